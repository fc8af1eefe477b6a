//! Clients of a `duramen serve`, and their records of everything sent, acknowledged and read.
//!
//! The caller decides where the server runs and how it ends: a killed process ([`super::sockets`]), or a machine that
//! loses its power (`cargo xtask power-cut`).

use std::path::Path;
use std::thread;
use std::time::Duration;

use super::content::{self, Collection, Content, Form};
use super::history::{Event, History, Promise, State, Unit, Violation, Window, check_shared, now_ms};
use super::own_bytes::OwnBytes;
use super::workload::{self, Act, Door, Operation, SHARED_COUNTERS, Script, ScriptEnd, shared_key};
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

/// The commands that read a unit: one for all its strings, or one for each key.
fn reads(unit: &Unit) -> Vec<Vec<Vec<u8>>> {
    if !matches!(unit.form, Form::Entries(_) | Form::OneEach) {
        return vec![[vec![b"MGET".to_vec()], unit.keys.clone()].concat()];
    }
    let command = |(at, key): (usize, &Vec<u8>)| {
        let words: &[&[u8]] = match unit.form_of(at) {
            Form::Entries(Collection::Hash) => &[b"HGETALL", key],
            Form::Entries(Collection::List) => &[b"LRANGE", key, b"0", b"-1"],
            Form::Entries(Collection::Set) => &[b"SMEMBERS", key],
            Form::Entries(Collection::SortedSet) => &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
            _ => &[b"GET", key],
        };
        words.iter().map(|word| word.to_vec()).collect()
    };
    unit.keys.iter().enumerate().map(command).collect()
}

/// The contents of a unit's keys, from the replies to [`reads`].
fn contents(unit: &Unit, replies: &[Reply]) -> Vec<Content> {
    let replies = match replies {
        [all] if !matches!(unit.form, Form::Entries(_)) => all.items().unwrap_or_default(),
        each => each,
    };
    let content = |(at, key): (usize, &Vec<u8>)| {
        let reply = replies.get(at)?;
        Some(match unit.form_of(at) {
            Form::Entries(collection) => {
                let strings: Option<Vec<&[u8]>> =
                    reply.items()?.iter().map(|item| item.bulk().flatten()).collect();
                content::decode_entries(collection, key, &strings?)
            }
            form => content::decode(form, key, reply.bulk()?),
        })
    };
    let all = unit.keys.iter().enumerate();
    all.map(|(at, key)| {
        content((at, key)).unwrap_or_else(|| {
            let reply = replies.get(at).map(Reply::encode).unwrap_or_default();
            Content::Torn(format!("reply {}", reply.escape_ascii()))
        })
    })
    .collect()
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
    match connection.call(&["FUNCTION", "LOAD", "REPLACE", &library()], PATIENCE) {
        Ok(reply) if reply.kind() != b'-' => {}
        Ok(reply) => {
            let what = format!("FUNCTION LOAD was answered {}", reply.encode().escape_ascii());
            return history.apply(&Event::Refused { what });
        }
        Err(_) => return,
    }
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
                for _ in 0..=operation.parts().len() {
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
    /// What each command of the operation does, and to which of the unit's keys.
    fn parts(&self) -> Vec<(Act, usize)> {
        let of_states = |act: fn(&State) -> Act| {
            self.states.iter().enumerate().map(|(at, state)| (act(state), at)).collect()
        };
        match self.act {
            Act::Each => self.steps.iter().enumerate().map(|(at, step)| (*step, at)).collect(),
            Act::Enter { .. } | Act::Leave { .. } => {
                (0..self.states.len()).map(|at| (self.act, at)).collect()
            }
            // If every key is written, every other batch is one MSET.
            Act::Together if self.op.is_multiple_of(2) || self.states.iter().any(is_absent) => {
                of_states(|state| if is_absent(state) { Act::Delete } else { Act::Put })
            }
            act => vec![(act, 0)],
        }
    }

    /// Whether it is sent as MULTI … EXEC.
    fn is_multi(&self) -> bool {
        self.script.is_none() && self.parts().len() > 1
    }

    fn is_answer(&self, reply: &Reply) -> bool {
        let parts = self.parts();
        let is_each = |replies: &[Reply]| {
            let mut all = parts.iter().zip(replies);
            replies.len() == parts.len() && all.all(|(part, reply)| self.is_answer_to(*part, reply))
        };
        match self.script {
            Some(Script { end: ScriptEnd::Returns, .. }) => reply.items().is_some_and(is_each),
            Some(Script { end: ScriptEnd::Raises, .. }) => is_error(reply, "as asked"),
            Some(Script { end: ScriptEnd::Fails, .. }) => is_error(reply, "wrong number of arg"),
            None if self.is_multi() => reply.items().is_some_and(is_each),
            None => is_each(std::slice::from_ref(reply)),
        }
    }

    fn is_answer_to(&self, (act, at): (Act, usize), reply: &Reply) -> bool {
        let content = self.states.get(at).map(|state| &state.content);
        match act {
            Act::Put | Act::PutExpiring { .. } | Act::Together => reply.encode() == b"+OK\r\n",
            Act::Expire { .. } => reply.integer() == Some(1),
            // A key that expires may be counted or not.
            Act::Delete => reply.integer().is_some_and(|gone| (0..=self.states.len() as i64).contains(&gone)),
            Act::Enter { count, .. } => match content {
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
            Act::Add(_) => match content {
                Some(Content::Number(number)) => reply.integer() == Some(*number),
                _ => false,
            },
            Act::Append { index, .. } => {
                reply.integer() == Some((i64::from(index) + 1) * content::CHUNK_BYTES as i64)
            }
            Act::Each => false,
        }
    }
}

fn is_error(reply: &Reply, with: &str) -> bool {
    reply.kind() == b'-' && String::from_utf8_lossy(&reply.encode()).to_lowercase().contains(with)
}

fn is_absent(state: &State) -> bool {
    state.content == Content::Absent
}

/// The commands of an operation, as they are sent.
fn put_operation(
    out: &mut Vec<u8>,
    random: &mut Random,
    own: &mut OwnBytes,
    history: &History,
    operation: &Operation,
) {
    let Some(unit) = history.unit(operation.unit) else { return };
    let values = operation.values(unit, own);
    let parts = operation.parts();
    let commands: Vec<Vec<Vec<u8>>> = match operation.act {
        Act::Delete => vec![[vec![b"UNLINK".to_vec()], unit.keys.clone()].concat()],
        _ => parts.iter().map(|part| command(random, own, unit, &values, *part)).collect(),
    };
    match operation.script {
        Some(script) => encode_command(out, &call(random, script, &unit.keys, &commands)),
        None if operation.is_multi() => {
            encode_command(out, &["MULTI"]);
            commands.iter().for_each(|command| encode_command(out, command));
            encode_command(out, &["EXEC"]);
        }
        None => commands.iter().for_each(|command| encode_command(out, command)),
    }
}

/// The command for a change of one of a unit's keys, or of all.
fn command(
    random: &mut Random,
    own: &mut OwnBytes,
    unit: &Unit,
    values: &[Option<Vec<u8>>],
    (act, at): (Act, usize),
) -> Vec<Vec<u8>> {
    let Some(key) = unit.keys.get(at) else { return Vec::new() };
    let value = values.get(at).and_then(Option::as_deref).unwrap_or_default();
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
    match act {
        Act::Put => words(&[b"SET", key, value]),
        Act::PutExpiring { after_ms } => {
            let after = after_ms.to_string();
            if random.one_in(2) {
                words(&[b"SET", key, value, b"PX", after.as_bytes()])
            } else {
                words(&[b"PSETEX", key, after.as_bytes(), value])
            }
        }
        Act::Expire { after_ms } => words(&[b"PEXPIRE", key, after_ms.to_string().as_bytes()]),
        Act::Delete => words(&[b"DEL", key]),
        Act::Add(1) => words(&[b"INCR", key]),
        Act::Add(number) => words(&[b"INCRBY", key, number.to_string().as_bytes()]),
        Act::Append { base, index } => {
            words(&[b"APPEND", key, &content::chunk(key, base, index, own.chunk_filler())])
        }
        Act::Enter { .. } | Act::Leave { .. } => match unit.form_of(at) {
            Form::Entries(collection) => change(collection, key, act, random.one_in(3), own),
            _ => Vec::new(),
        },
        Act::Together => {
            let pairs = unit.keys.iter().zip(values);
            let pairs = pairs.flat_map(|(key, value)| [key.clone(), value.clone().unwrap_or_default()]);
            [b"MSET".to_vec()].into_iter().chain(pairs).collect()
        }
        Act::Each => Vec::new(),
    }
}

/// Executes the commands of its arguments one after the other, with one in between whose error it catches.
const SCRIPT: &str = "
local replies, at = {}, 3
for command = 1, tonumber(ARGV[2]) do
  local words = tonumber(ARGV[at])
  replies[command] = redis.call(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
  redis.pcall('INCR')
end
if ARGV[1] == 'raises' then error('as asked') end
if ARGV[1] == 'fails' then redis.call('SET') end
return replies";

/// Scripts that differ by a number. One whose keys are not declared is begun twice only the first time.
const SCRIPTS: u64 = 500;

/// The library whose function is the script.
fn library() -> String {
    format!("#!lua name=torture\nredis.register_function('torture', function(KEYS, ARGV){SCRIPT}\nend)")
}

/// The command that executes the commands in a script.
fn call(random: &mut Random, script: Script, keys: &[Vec<u8>], commands: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    let number = |number: usize| number.to_string().into_bytes();
    let declared = if script.declares { keys } else { &[] };
    let end: &[u8] = match script.end {
        ScriptEnd::Returns => b"returns",
        ScriptEnd::Raises => b"raises",
        ScriptEnd::Fails => b"fails",
    };
    let mut words = match script.is_function {
        true => vec![b"FCALL".to_vec(), b"torture".to_vec()],
        false => {
            // A script that once used a key without declaring it runs alone ever after.
            let declares = script.declares;
            let text = format!("-- {} {declares}{SCRIPT}", random.below(SCRIPTS));
            vec![b"EVAL".to_vec(), text.into_bytes()]
        }
    };
    words.push(number(declared.len()));
    words.extend_from_slice(declared);
    words.push(end.to_vec());
    words.push(number(commands.len()));
    for command in commands {
        words.push(number(command.len()));
        words.extend_from_slice(command);
    }
    words
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
