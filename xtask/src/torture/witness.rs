//! Clients of a `duramen serve`, and their records of everything sent, acknowledged and read.
//!
//! The caller decides where the server runs and how it ends: a killed process ([`super::sockets`]), or a machine that
//! loses its power (`cargo xtask power-cut`).

use std::path::Path;
use std::thread;
use std::time::Duration;

use super::content::{self, Collection, Content, Form};
use super::history::{Event, History, Promise, Unit, Violation, Window, check_shared, now_ms};
use super::own_bytes::OwnBytes;
use super::workload::{self, Act, Door, Operation, SHARED_COUNTERS, shared_key};
use crate::failure::{Attempt, Failure, Result};
use crate::random::Random;
use duramen_resp::{Connection, Reply, encode_command};

/// Longest wait for a reply, or for the store to open.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The records of all writes to one store through a server, with one history for each writer.
pub struct Witness {
    pub histories: Vec<History>,
    shared: Vec<i64>,
}

impl Witness {
    /// The records for an empty store.
    pub fn new(promise: Promise, writers: usize) -> Witness {
        let history = |writer| History::new(promise, workload::units(writer, Door::Sockets), SHARED_COUNTERS);
        Witness { histories: (0..writers).map(history).collect(), shared: vec![0; SHARED_COUNTERS] }
    }

    /// Lets every writer write to the server at `port` until `end` has ended the server. With `commits` some of the
    /// operations are WAITAOF, which commits. Values hold bytes of the file `store`, if it lies on this machine.
    pub fn write<T>(
        &mut self,
        port: u16,
        store: Option<&Path>,
        random: &mut Random,
        commits: bool,
        end: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let seeds: Vec<u64> = self.histories.iter().map(|_| random.any()).collect();
        thread::scope(|scope| {
            for (history, seed) in self.histories.iter_mut().zip(seeds) {
                scope.spawn(move || write(port, store, history, Random::new(seed), commits));
            }
            end()
        })
    }

    /// Takes the violations that the writers found since the last call.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        self.histories.iter_mut().flat_map(History::take_violations).collect()
    }

    /// Reads everything and compares it with the histories.
    pub fn verify(&mut self, port: u16) -> Result<Vec<Violation>> {
        let mut connection = Connection::open(port).attempt(|| format!("connect to port {port}"))?;
        let mut violations = Vec::new();
        for history in &mut self.histories {
            history.crashed();
            for unit in 0..history.units().count() {
                let (window, found) = read_unit(&mut connection, history, unit)?;
                history.apply(&Event::Recovered { unit, window, found });
            }
            violations.append(&mut history.take_violations());
        }
        for (counter, base) in self.shared.iter_mut().enumerate() {
            let key = shared_key(counter);
            let found = match ask(&mut connection, &[b"GET", &key])?.bulk() {
                Some(bytes) => content::decode(content::Form::Decimal, &key, bytes),
                None => Content::Torn("no string".to_owned()),
            };
            let additions = super::sum_additions(&self.histories, counter);
            violations.extend(check_shared(counter, *base, &found, additions));
            *base = if let Content::Number(number) = found { number } else { 0 };
        }
        self.histories.iter_mut().for_each(History::forget_additions);
        self.verify_scan(&mut connection, &mut violations)?;
        Ok(violations)
    }

    fn verify_scan(&self, connection: &mut Connection, violations: &mut Vec<Violation>) -> Result<()> {
        let from = self.now();
        let mut keys = std::collections::HashSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            let reply = ask(connection, &[b"SCAN", &cursor, b"COUNT", b"500"])?;
            let Some([next, page]) = reply.items() else {
                return Err(Failure::new("cannot verify the store: SCAN gave no cursor and page"));
            };
            for key in page.items().unwrap_or_default() {
                keys.insert(key.text().unwrap_or_default().to_vec());
            }
            cursor = next.text().unwrap_or(b"0").to_vec();
            if cursor == b"0" {
                break;
            }
        }
        super::check_scan(&self.histories, &keys, Window { from, to: self.now() }, violations);
        Ok(())
    }

    /// The server's time.
    fn now(&self) -> u64 {
        self.histories.first().map_or_else(now_ms, History::now)
    }

    /// Sets how many milliseconds the server's clock is ahead of the local one from now on.
    pub fn set_clock_ahead(&mut self, milliseconds: i64) {
        self.histories.iter_mut().for_each(|history| history.set_clock_ahead(milliseconds));
    }
}

fn ask(connection: &mut Connection, command: &[&[u8]]) -> Result<Reply> {
    connection.call(command, PATIENCE).map_err(|ended| {
        let command = command.first().map(|name| name.escape_ascii().to_string()).unwrap_or_default();
        Failure::new(format!("cannot verify the store: {command} got no reply: {ended:?}"))
    })
}

fn read_unit(connection: &mut Connection, history: &History, unit: usize) -> Result<(Window, Vec<Content>)> {
    let Some(unit) = history.unit(unit) else { return Err(Failure::new("no such unit")) };
    let from = history.now();
    let mut replies = Vec::new();
    for command in reads(unit) {
        let command: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        replies.push(ask(connection, &command)?);
    }
    let window = Window { from, to: history.now() };
    Ok((window, contents(unit, &replies)))
}

/// The commands that read a unit: one, or one for each collection.
fn reads(unit: &Unit) -> Vec<Vec<Vec<u8>>> {
    let Form::Entries(collection) = unit.form else {
        return vec![[vec![b"MGET".to_vec()], unit.keys.clone()].concat()];
    };
    let command = |key: &Vec<u8>| {
        let words: &[&[u8]] = match collection {
            Collection::Hash => &[b"HGETALL", key],
            Collection::List => &[b"LRANGE", key, b"0", b"-1"],
            Collection::Set => &[b"SMEMBERS", key],
            Collection::SortedSet => &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
        };
        words.iter().map(|word| word.to_vec()).collect()
    };
    unit.keys.iter().map(command).collect()
}

/// The contents of a unit's keys, from the replies to [`reads`].
fn contents(unit: &Unit, replies: &[Reply]) -> Vec<Content> {
    let torn = |reply: &Reply| Content::Torn(format!("reply {}", reply.encode().escape_ascii()));
    if let Form::Entries(collection) = unit.form {
        let content = |(key, reply): (&Vec<u8>, &Reply)| {
            let strings: Option<Vec<&[u8]>> =
                reply.items().and_then(|items| items.iter().map(|item| item.bulk().flatten()).collect());
            strings.map_or_else(|| torn(reply), |strings| content::decode_entries(collection, key, &strings))
        };
        return unit.keys.iter().zip(replies).map(content).collect();
    }
    let Some(reply) = replies.first() else { return Vec::new() };
    let items = reply.items().unwrap_or_default();
    let content = |(index, key): (usize, &Vec<u8>)| match items.get(index).and_then(Reply::bulk) {
        Some(bytes) => content::decode(unit.form, key, bytes),
        None => torn(reply),
    };
    unit.keys.iter().enumerate().map(content).collect()
}

/// The kinds of replies that a writer waits for.
enum Awaited {
    Operation(Operation),
    Read { unit: usize, after: u64 },
    Shared(usize),
    Commit { op: u64 },
}

/// One client: pipelines of operations and reads, until the connection ends.
fn write(port: u16, store: Option<&Path>, history: &mut History, mut random: Random, commits: bool) {
    let Ok(mut connection) = Connection::open(port) else { return };
    let mut own = OwnBytes::new(store, random.any());
    loop {
        let mut bytes = Vec::new();
        let mut awaited = Vec::new();
        for _ in 0..1 + random.below(16) {
            match random.below(10) {
                0 | 1 => {
                    let unit = random.below(history.units().count() as u64) as usize;
                    let Some(commands) = history.unit(unit).map(reads) else { continue };
                    commands.iter().for_each(|command| encode_command(&mut bytes, command));
                    awaited.push(Awaited::Read { unit, after: history.last_op() });
                }
                2 => {
                    let counter = random.below(SHARED_COUNTERS as u64) as usize;
                    history.apply(&Event::SharedSent { counter });
                    encode_command(&mut bytes, &[b"INCR".to_vec(), shared_key(counter)]);
                    awaited.push(Awaited::Shared(counter));
                }
                3 if commits && random.one_in(8) => {
                    encode_command(&mut bytes, &[&b"WAITAOF"[..], b"1", b"0", b"0"]);
                    awaited.push(Awaited::Commit { op: history.last_op() });
                }
                _ => {
                    let operation = workload::next(&mut random, history, Door::Sockets);
                    let Operation { op, unit, ref states, .. } = operation;
                    history.apply(&Event::Sent { op, unit, at: history.now(), states: states.clone() });
                    put_operation(&mut bytes, &mut random, &mut own, history, &operation);
                    awaited.push(Awaited::Operation(operation));
                }
            }
        }
        let from = history.now();
        if connection.send(&bytes).is_err() {
            return;
        }
        for awaited in awaited {
            let Some(events) = receive(&mut connection, history, awaited, from) else { return };
            events.iter().for_each(|event| history.apply(event));
        }
    }
}

/// Reads the awaited replies; `None` if the connection ended first.
fn receive(
    connection: &mut Connection,
    history: &History,
    awaited: Awaited,
    from: u64,
) -> Option<Vec<Event>> {
    let reply = connection.read(PATIENCE).ok()?;
    let error = |command: &str, reply: &Reply| {
        let what = format!("{command} was answered {}", reply.encode().escape_ascii());
        Some(vec![Event::Refused { what }])
    };
    match awaited {
        Awaited::Read { unit, after } => {
            let unit_read = history.unit(unit)?;
            let mut replies = vec![reply];
            while replies.len() < reads(unit_read).len() {
                replies.push(connection.read(PATIENCE).ok()?);
            }
            let found = contents(unit_read, &replies);
            Some(vec![Event::Read { unit, after, window: Window { from, to: history.now() }, found }])
        }
        Awaited::Shared(counter) if reply.kind() == b':' => Some(vec![Event::SharedAcked { counter }]),
        Awaited::Shared(_) => error("INCR", &reply),
        Awaited::Commit { op } if reply.encode() == b"*2\r\n:1\r\n:0\r\n" => {
            Some(vec![Event::Committed { op }])
        }
        Awaited::Commit { .. } => error("WAITAOF", &reply),
        Awaited::Operation(operation) => {
            let mut reply = reply;
            // The replies to MULTI and to each queued command come before that of EXEC.
            if operation.is_multi() && reply.encode() == b"+OK\r\n" {
                for _ in 0..=operation.states.len() {
                    reply = connection.read(PATIENCE).ok()?;
                }
            }
            if !operation.is_answer(&reply) {
                return error(&format!("{:?} number {}", operation.act, operation.op), &reply);
            }
            Some(vec![Event::Acked { op: operation.op, at: history.now() }])
        }
    }
}

impl Operation {
    /// Whether a batch is sent as MULTI … EXEC; if every key is written, every other batch is sent as MSET.
    fn queued(&self) -> bool {
        self.op.is_multiple_of(2) || self.states.iter().any(|state| state.content == Content::Absent)
    }

    /// Whether it is sent as MULTI … EXEC.
    fn is_multi(&self) -> bool {
        match self.act {
            Act::Together => self.queued(),
            Act::Enter { .. } | Act::Leave { .. } => self.states.len() > 1,
            _ => false,
        }
    }

    fn is_answer(&self, reply: &Reply) -> bool {
        let of_each = |reply: &Reply| match self.act {
            Act::Enter { count, .. } => match self.states.first().map(|state| &state.content) {
                // RPUSH replies with the new length.
                Some(Content::Entries { count: all, .. }) => {
                    reply.integer() == Some(count.into()) || reply.integer() == Some((*all).into())
                }
                _ => false,
            },
            Act::Leave { count, .. } => {
                let items = reply.items().map(<[Reply]>::len);
                let count = count as usize;
                reply.encode() == b"+OK\r\n"
                    || reply.integer() == Some(count as i64)
                    || items == Some(count)
                    || items == Some(2 * count)
            }
            _ => reply.kind() != b'-',
        };
        match self.act {
            Act::Put | Act::PutExpiring { .. } => reply.encode() == b"+OK\r\n",
            Act::Expire { .. } => reply.integer() == Some(1),
            // A key that expires may be counted or not.
            Act::Delete => reply.integer().is_some_and(|gone| (0..=self.states.len() as i64).contains(&gone)),
            _ if self.is_multi() => {
                let items = reply.items().unwrap_or_default();
                items.len() == self.states.len() && items.iter().all(of_each)
            }
            Act::Enter { .. } | Act::Leave { .. } => of_each(reply),
            Act::Together => reply.encode() == b"+OK\r\n",
            Act::Add(_) => match self.states.first().map(|state| &state.content) {
                Some(Content::Number(number)) => reply.integer() == Some(*number),
                _ => false,
            },
            Act::Append { index, .. } => {
                reply.integer() == Some((i64::from(index) + 1) * content::CHUNK_BYTES as i64)
            }
        }
    }
}

/// The commands of an operation.
fn put_operation(
    out: &mut Vec<u8>,
    random: &mut Random,
    own: &mut OwnBytes,
    history: &History,
    operation: &Operation,
) {
    let Some(unit) = history.unit(operation.unit) else { return };
    let Some(key) = unit.keys.first() else { return };
    let values = operation.values(unit, own);
    let value = |at: usize| values.get(at).cloned().flatten();
    let first = value(0).unwrap_or_default();
    match operation.act {
        Act::Put => encode_command(out, &[b"SET", key.as_slice(), &first]),
        Act::PutExpiring { after_ms } => {
            let after = after_ms.to_string();
            if random.one_in(2) {
                encode_command(out, &[b"SET", key.as_slice(), &first, b"PX", after.as_bytes()]);
            } else {
                encode_command(out, &[b"PSETEX", key.as_slice(), after.as_bytes(), &first]);
            }
        }
        Act::Expire { after_ms } => {
            encode_command(out, &[b"PEXPIRE", key.as_slice(), after_ms.to_string().as_bytes()]);
        }
        Act::Delete => {
            let name = if random.one_in(2) { &b"DEL"[..] } else { b"UNLINK" };
            let words: Vec<&[u8]> = [name].into_iter().chain(unit.keys.iter().map(Vec::as_slice)).collect();
            encode_command(out, &words);
        }
        Act::Add(1) => encode_command(out, &[b"INCR", key.as_slice()]),
        Act::Add(number) => encode_command(out, &[b"INCRBY", key.as_slice(), number.to_string().as_bytes()]),
        Act::Append { base, index } => {
            encode_command(
                out,
                &[b"APPEND", key.as_slice(), &content::chunk(key, base, index, own.chunk_filler())],
            );
        }
        Act::Enter { .. } | Act::Leave { .. } => {
            let Form::Entries(collection) = unit.form else { return };
            let by_range = random.one_in(3);
            if operation.is_multi() {
                encode_command(out, &["MULTI"]);
            }
            for key in &unit.keys {
                encode_command(out, &change(collection, key, operation.act, by_range, own));
            }
            if operation.is_multi() {
                encode_command(out, &["EXEC"]);
            }
        }
        Act::Together if operation.queued() => {
            encode_command(out, &["MULTI"]);
            for (at, key) in unit.keys.iter().enumerate() {
                match value(at) {
                    Some(value) => encode_command(out, &[b"SET", key.as_slice(), &value]),
                    None => encode_command(out, &[b"DEL", key.as_slice()]),
                }
            }
            encode_command(out, &["EXEC"]);
        }
        Act::Together => {
            let mut command = vec![b"MSET".to_vec()];
            for (at, key) in unit.keys.iter().enumerate() {
                command.push(key.clone());
                command.push(value(at).unwrap_or_default());
            }
            encode_command(out, &command);
        }
    }
}

/// The command that adds chunks to a collection, or removes some.
fn change(collection: Collection, key: &[u8], act: Act, by_range: bool, own: &mut OwnBytes) -> Vec<Vec<u8>> {
    let (Act::Enter { base, first, count } | Act::Leave { base, first, count }) = act else {
        return Vec::new();
    };
    let mut command: Vec<Vec<u8>> = Vec::new();
    let mut words = |words: &[&[u8]]| command.extend(words.iter().map(|word| word.to_vec()));
    let number = |number: u32| number.to_string().into_bytes();
    if let Act::Leave { .. } = act {
        match collection {
            Collection::List if by_range => words(&[b"LTRIM", key, &number(count), b"-1"]),
            Collection::List => words(&[b"LPOP", key, &number(count)]),
            Collection::SortedSet if by_range => words(&[b"ZREMRANGEBYRANK", key, b"0", &number(count - 1)]),
            Collection::SortedSet => words(&[b"ZPOPMIN", key, &number(count)]),
            Collection::Hash => words(&[b"HDEL", key]),
            Collection::Set => words(&[b"SREM", key]),
        }
    } else {
        let name: &[u8] = match collection {
            Collection::Hash => b"HSET",
            Collection::List => b"RPUSH",
            Collection::Set => b"SADD",
            Collection::SortedSet => b"ZADD",
        };
        words(&[name, key]);
    }
    for index in first..first + count {
        // Members of a set are removed by name.
        let filler = if collection == Collection::Set { content::NO_FILLER } else { own.chunk_filler() };
        let chunk = content::chunk(key, base, index, filler);
        match (collection, act) {
            (Collection::Hash, Act::Leave { .. }) => words(&[&number(index)]),
            (Collection::Set, _) => words(&[&chunk]),
            (_, Act::Leave { .. }) => {}
            (Collection::List, _) => words(&[&chunk]),
            (Collection::Hash | Collection::SortedSet, _) => words(&[&number(index), &chunk]),
        }
    }
    command
}
