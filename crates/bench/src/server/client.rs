//! The client: one thread, one event queue, all connections.
//!
//! Invariants:
//! 1. Replies come in the order of commands: the next byte belongs to the first command of `pending`.
//! 2. The clock is read once for each read of a socket, and all replies in it count as received then. The following
//!    batch counts as sent at the same moment: the client's own time is part of the latency.

use crate::server::address::Stream;
use crate::server::keys::{Keys, Values};
use crate::server::plan::{Command, Length, Plan};
use crate::server::protocol::{Sent, cas_number};
use crate::server::verdict::Verdict;
use crate::server::{Failure, Protocol, Result};
use hdrhistogram::Histogram;
use mio::{Events, Poll, Token};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// The figures of a load.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Commands with a reply, without those of the warm-up.
    pub commands: u64,
    /// From the end of the warm-up to the last reply.
    pub elapsed: Duration,
    /// Nanoseconds from sending (in an open loop: from when the command was due) to the reply.
    pub latency: Histogram<u64>,
    /// Share of the time that the client itself was on its core. Near 1, the client may be the limit.
    pub client_busy: f64,
}

impl Outcome {
    /// Commands per second.
    pub fn rate(&self) -> f64 {
        self.commands as f64 / self.elapsed.as_secs_f64()
    }
}

/// Receives the progress of a load.
pub trait Watch {
    /// The warm-up is over: from here on commands count.
    fn begin(&self) {}
    /// The share that is done, from 0 to 1.
    fn progress(&self, _share: f64) {}
    /// The last counted reply has arrived.
    fn end(&self) {}
}

/// Ignores the progress.
impl Watch for () {}

const READ_BYTES: usize = 64 << 10;
// Depth of the pipeline while keys are set and checked.
const LOAD_DEPTH: u32 = 64;
// Keys that are read back after a load.
const CHECKED_MAX: u64 = 10_000;
const SILENCE_MAX: Duration = Duration::from_secs(20);
// An hour: longer latencies are recorded as this.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// Runs one load: sets the keys, warms up, measures, reads keys back.
///
/// # Errors
/// When the plan is impossible, the server cannot be reached, falls silent, or gives a wrong reply.
pub fn run(plan: &Plan, watch: &dyn Watch) -> Result<Outcome> {
    plan.check()?;
    let mut client = Client::connect(plan)?;
    match plan.command {
        Command::Incr => client.one_each(plan.keys, Sent::Zero)?,
        Command::Typed(load) => {
            let (keys, elements) = (load.keys(plan.keys), load.elements(plan.keys));
            client.one_each(keys, |key| Sent::Typed(load.empty(key)))?;
            client.one_each(keys * elements, |i| Sent::Typed(load.put(i / elements, i % elements)))?;
        }
        _ if plan.load => client.one_each(plan.keys, Sent::Set)?,
        _ => {}
    }
    let (outcome, counts) = client.measure(plan, watch)?;
    // One key in so many, starting at the first.
    let step = plan.keys.div_ceil(CHECKED_MAX).max(1);
    let checked = plan.keys.div_ceil(step);
    match plan.command {
        Command::Incr => {
            client.one_each(checked, |i| Sent::Counter(i * step, counts[(i * step) as usize]))?;
        }
        Command::Typed(_) => {}
        _ if plan.evicts => {}
        _ => client.one_each(checked, |i| Sent::Get(i * step))?,
    }
    Ok(outcome)
}

struct Connection {
    stream: Stream,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    // Command and nanoseconds since the client began.
    pending: VecDeque<(Sent, u64)>,
}

struct Client {
    protocol: Protocol,
    values: Values,
    keys: u64,
    evicts: bool,
    // The CAS number of each key for [`Sent::Cas`], 0 if it is not known.
    numbers: Vec<u64>,
    connections: Vec<Connection>,
    poll: Poll,
    began: Instant,
    scratch: Vec<u8>,
    place: String,
}

impl Client {
    fn connect(plan: &Plan) -> Result<Self> {
        let poll = Poll::new().map_err(|error| event_queue(&error))?;
        let mut connections = Vec::new();
        for index in 0..plan.connections as usize {
            let mut stream = plan.address.connect()?;
            stream.register(poll.registry(), Token(index)).map_err(|error| event_queue(&error))?;
            connections.push(Connection {
                stream,
                output: Vec::new(),
                sent: 0,
                input: Vec::new(),
                pending: VecDeque::new(),
            });
        }
        Ok(Self {
            protocol: plan.protocol,
            values: Values::new(plan.value_bytes),
            keys: plan.keys,
            evicts: plan.evicts,
            numbers: vec![0; if plan.command == Command::Cas { plan.keys as usize } else { 0 }],
            connections,
            poll,
            began: Instant::now(),
            scratch: vec![0; READ_BYTES],
            place: plan.address.to_string(),
        })
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Sends `sent(0)` to `sent(count - 1)`, and checks all replies.
    fn one_each(&mut self, count: u64, sent: impl Fn(u64) -> Sent) -> Result<()> {
        let mut next = 0;
        self.closed(
            LOAD_DEPTH,
            |_| {
                next += 1;
                (next <= count).then(|| sent(next - 1))
            },
            |_, _, _| {},
        )
    }

    fn measure(&mut self, plan: &Plan, watch: &dyn Watch) -> Result<(Outcome, Vec<u32>)> {
        let mut keys = Keys::new(plan.keys, plan.distribution, plan.seed);
        let counted = if plan.command == Command::Incr { plan.keys as usize } else { 0 };
        let (mut counts, seen) = (vec![0_u32; counted], RefCell::new(vec![0_u32; counted]));
        let mut latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
            .map_err(|error| Failure::new(format!("cannot make a histogram: {error}")))?;
        let warm = self.now() + plan.warm_up.as_nanos() as u64;
        let (commands, mut first, mut last) = (Cell::new(0_u64), None, warm);
        let (end, most) = match plan.length {
            Length::Time(time) => (warm + time.as_nanos() as u64, u64::MAX),
            Length::Commands(most) => (u64::MAX, most),
        };
        let mut sent_warm = 0_u64;
        let (mut number, mut key) = (0_u64, 0_u64);
        let (mut told, mut cpu) = (0, None);
        let next = |now: u64| {
            // A stall may outlast the time: then the load continues until a command is counted.
            if (now >= end && commands.get() > 0) || sent_warm >= most {
                return None;
            }
            sent_warm += u64::from(now >= warm);
            Some(match plan.command {
                Command::Set => Sent::Set(keys.next()),
                Command::Get => Sent::Get(keys.next()),
                Command::Mset => Sent::Mset(keys.next()),
                Command::Mget => Sent::Mget(keys.next()),
                // Or a `gets`: see `put`.
                Command::Cas => Sent::Cas(keys.next(), 0),
                Command::Touch => Sent::Touch(keys.next()),
                Command::Mixed(gets) => {
                    let key = keys.next();
                    if keys.below(100) < u64::from(gets) { Sent::Get(key) } else { Sent::Set(key) }
                }
                Command::Typed(load) => {
                    if !load.goes_on(number) {
                        key = keys.next();
                    }
                    let sent = load.send(number, key, keys.below(load.chosen_from(plan.keys)));
                    number += 1;
                    Sent::Typed(sent)
                }
                Command::Incr => {
                    let key = keys.next();
                    counts[key as usize] += 1;
                    Sent::Incr(key, seen.borrow()[key as usize] + 1)
                }
            })
        };
        let done = |sent: Sent, at: u64, now: u64| {
            if let Sent::Incr(key, _) = sent {
                seen.borrow_mut()[key as usize] += 1;
            }
            if at < warm {
                return;
            }
            if first.is_none() {
                first = Some(at);
                cpu = thread_cpu();
                watch.begin();
            }
            commands.set(commands.get() + 1);
            last = now;
            latency.saturating_record(now - at);
            if now - told > 50_000_000 {
                told = now;
                let share = match plan.length {
                    Length::Time(time) => (now - warm) as f64 / time.as_nanos() as f64,
                    Length::Commands(most) => commands.get() as f64 / most as f64,
                };
                watch.progress(share.min(1.0));
            }
        };
        match plan.rate {
            None => self.closed(plan.pipeline, next, done)?,
            Some(rate) => self.open(plan.pipeline, rate, next, done)?,
        }
        let Some(first) = first else {
            return Err(Failure::new(format!(
                "no command to {} was counted: the warm-up used all commands; give a larger number",
                self.place
            )));
        };
        watch.end();
        let elapsed = Duration::from_nanos((last - first).max(1));
        let busy =
            cpu.zip(thread_cpu()).map_or(0.0, |(from, to)| (to - from) as f64 / elapsed.as_nanos() as f64);
        Ok((Outcome { commands: commands.get(), elapsed, latency, client_busy: busy.min(1.0) }, counts))
    }

    /// Each connection sends a batch, waits for all its replies, sends the next.
    fn closed(
        &mut self,
        depth: u32,
        mut next: impl FnMut(u64) -> Option<Sent>,
        mut done: impl FnMut(Sent, u64, u64),
    ) -> Result<()> {
        let now = self.now();
        let mut under_way = 0_usize;
        for index in 0..self.connections.len() {
            under_way += usize::from(self.batch(index, depth, now, &mut next)?);
        }
        let mut events = Events::with_capacity(1024);
        while under_way > 0 {
            self.wait(&mut events, SILENCE_MAX)?;
            for event in &events {
                let index = event.token().0;
                self.send(index)?;
                let had_work = !self.connections[index].pending.is_empty();
                let now = self.receive(index, &mut done)?;
                if had_work && self.connections[index].pending.is_empty() {
                    under_way -= usize::from(!self.batch(index, depth, now, &mut next)?);
                }
            }
        }
        Ok(())
    }

    /// Commands are due at a rate; a connection takes one if it has fewer than `depth` in flight.
    fn open(
        &mut self,
        depth: u32,
        rate: f64,
        mut next: impl FnMut(u64) -> Option<Sent>,
        mut done: impl FnMut(Sent, u64, u64),
    ) -> Result<()> {
        let (start, interval) = (self.now(), 1e9 / rate);
        let due = |index: u64| start + (index as f64 * interval) as u64;
        let mut events = Events::with_capacity(1024);
        let (mut index, mut turn, mut more, mut heard) = (0_u64, 0, true, start);
        let mut touched = Vec::new();
        loop {
            let now = self.now();
            while more && due(index) <= now {
                let all = self.connections.len();
                let Some(free) = (0..all)
                    .map(|i| (turn + i) % all)
                    .find(|i| self.connections[*i].pending.len() < depth as usize)
                else {
                    break;
                };
                turn = free + 1;
                let at = due(index);
                let Some(sent) = next(at) else {
                    more = false;
                    break;
                };
                index += 1;
                self.put(free, sent, at);
                touched.push(free);
            }
            touched.sort_unstable();
            touched.dedup();
            for index in touched.drain(..) {
                self.send(index)?;
            }
            if !more && self.connections.iter().all(|connection| connection.pending.is_empty()) {
                return Ok(());
            }
            // The client owns its core: a wait in the kernel would sleep past the due time.
            self.poll_for(&mut events, Some(Duration::ZERO))?;
            for event in &events {
                heard = now;
                self.send(event.token().0)?;
                self.receive(event.token().0, &mut done)?;
            }
            if now - heard > SILENCE_MAX.as_nanos() as u64 {
                return Err(self.silent());
            }
        }
    }

    /// Sends a batch; returns false if there was nothing left to send.
    fn batch(
        &mut self,
        index: usize,
        depth: u32,
        now: u64,
        next: &mut impl FnMut(u64) -> Option<Sent>,
    ) -> Result<bool> {
        for _ in 0..depth {
            let Some(sent) = next(now) else { break };
            self.put(index, sent, now);
        }
        self.send(index)?;
        Ok(!self.connections[index].pending.is_empty())
    }

    fn put(&mut self, index: usize, sent: Sent, at: u64) {
        let connection = &mut self.connections[index];
        let sent = match sent {
            Sent::Cas(key, _) => match std::mem::take(&mut self.numbers[key as usize]) {
                0 => Sent::Gets(key),
                number => Sent::Cas(key, number),
            },
            sent => sent,
        };
        self.protocol.write(sent, &self.values, self.keys, &mut connection.output);
        connection.pending.push_back((sent, at));
    }

    /// Sends as much as the socket takes.
    fn send(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        while connection.sent < connection.output.len() {
            match connection.stream.write(&connection.output[connection.sent..]) {
                Ok(bytes) => connection.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&self.place, &error)),
            }
        }
        connection.output.clear();
        connection.sent = 0;
        // What TLS has encrypted and the socket did not take.
        match connection.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(lost(&self.place, &error)),
            _ => Ok(()),
        }
    }

    /// Reads and checks the received bytes; returns the time at which the last of them had arrived.
    fn receive(&mut self, index: usize, done: &mut impl FnMut(Sent, u64, u64)) -> Result<u64> {
        let mut now = self.now();
        loop {
            let connection = &mut self.connections[index];
            let bytes = match connection.stream.read(&mut self.scratch) {
                Ok(0) => return Err(lost(&self.place, &ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(now),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(lost(&self.place, &error)),
            };
            now = self.began.elapsed().as_nanos() as u64;
            let whole = &self.scratch[..bytes];
            let mut judge = Judge {
                protocol: self.protocol,
                values: &self.values,
                keys: self.keys,
                evicts: self.evicts,
                numbers: &mut self.numbers,
            };
            if connection.input.is_empty() {
                let used = judge.all(&mut connection.pending, whole, now, done)?;
                connection.input.extend_from_slice(&whole[used..]);
            } else {
                connection.input.extend_from_slice(whole);
                let used = judge.all(&mut connection.pending, &connection.input, now, done)?;
                connection.input.drain(..used);
            }
            // A short read has emptied the socket; the next bytes raise another event.
            if bytes < READ_BYTES {
                return Ok(now);
            }
        }
    }

    fn wait(&mut self, events: &mut Events, most: Duration) -> Result<()> {
        self.poll_for(events, Some(most))?;
        if events.is_empty() { Err(self.silent()) } else { Ok(()) }
    }

    fn poll_for(&mut self, events: &mut Events, most: Option<Duration>) -> Result<()> {
        loop {
            match self.poll.poll(events, most) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result.map_err(|error| event_queue(&error)),
            }
        }
    }

    fn silent(&self) -> Failure {
        Failure::new(format!(
            "{} has not answered for {} seconds; wanted a reply to each command. Is it stopped, or out of memory?",
            self.place,
            SILENCE_MAX.as_secs()
        ))
    }
}

/// Checks replies.
struct Judge<'a> {
    protocol: Protocol,
    values: &'a Values,
    keys: u64,
    evicts: bool,
    numbers: &'a mut [u64],
}

impl Judge<'_> {
    /// Checks all whole replies in `input`; returns the number of their bytes.
    fn all(
        &mut self,
        pending: &mut VecDeque<(Sent, u64)>,
        input: &[u8],
        now: u64,
        done: &mut impl FnMut(Sent, u64, u64),
    ) -> Result<usize> {
        let mut used = 0;
        while used < input.len() {
            let Some((sent, at)) = pending.front().copied() else {
                return Err(wrong("an unrequested reply", &input[used..]));
            };
            let rest = &input[used..];
            let verdict = match self.protocol.judge(sent, self.values, self.keys, rest) {
                Verdict::Wrong if self.evicts => self.protocol.judge_miss(sent, rest),
                verdict => verdict,
            };
            match verdict {
                Verdict::Right(bytes) => used += bytes,
                Verdict::Incomplete => break,
                Verdict::Wrong => return Err(wrong(&format!("{sent:?}"), rest)),
            }
            if let Sent::Gets(key) = sent {
                self.numbers[key as usize] = cas_number(rest).unwrap_or_default();
            }
            pending.pop_front();
            done(sent, at, now);
        }
        Ok(used)
    }
}

fn wrong(asked: &str, found: &[u8]) -> Failure {
    let shown = found[..found.len().min(80)].escape_ascii();
    Failure::new(format!(
        "wrong reply to {asked}: found \"{shown}\"; wanted the reply of the protocol with the value that was set. Does \
         another client use these keys, does the server evict or expire, or does it speak another protocol?"
    ))
}

fn lost(place: &str, error: &io::Error) -> Failure {
    Failure::new(format!(
        "the connection to {place} is lost: {error}; see the server's log, and its limit of clients"
    ))
}

fn event_queue(error: &io::Error) -> Failure {
    Failure::new(format!("the kernel's event queue failed: {error}; see the limit of open files (ulimit -n)"))
}

/// Nanoseconds that this thread was on a core.
fn thread_cpu() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}
