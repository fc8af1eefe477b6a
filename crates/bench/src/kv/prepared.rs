//! Throughput of bare operations: keys and values of the next few hundred operations are made while the clock is
//! stopped. So the CPU may overlap an operation with the next, as in a program that has its keys at hand.
//!
//! Besides the engine, only this runs while the clock runs: a step of a loop, the address of key and value, and a
//! comparison of the returned value by length and one word.

use crate::kv::clock::thread_cpu;
use crate::kv::engine::{Changed, Session};
use crate::kv::plan::Steps;
use crate::kv::workload::GET_MANY_KEYS;
use crate::kv::{Failure, Op, Records, Result};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Operations made at a time: their values stay in the second-level cache.
const TOGETHER: usize = 512;

/// The time in which operations ran.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    pub wall: Duration,
    pub cpu: Duration,
    /// Updates that were not in place.
    pub rewritten: u64,
}

/// The next operations, all of one kind.
struct Ready<'a> {
    records: &'a Records,
    version: u32,
    numbers: Vec<u64>,
    /// The first bytes that each read value must have.
    seals: Vec<u64>,
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    values: Vec<u8>,
    value_ends: Vec<usize>,
    cells: Vec<(usize, [u8; 8])>,
    one: Vec<u8>,
}

/// The bytes from the previous end to this one's end.
#[inline]
fn part(ends: &[usize], i: usize) -> Range<usize> {
    let from = if i == 0 { 0 } else { ends[i - 1] };
    from..ends[i]
}

impl<'a> Ready<'a> {
    fn new(records: &'a Records, version: u32) -> Self {
        Self {
            records,
            version,
            numbers: Vec::new(),
            seals: Vec::new(),
            keys: Vec::new(),
            key_ends: Vec::new(),
            values: Vec::new(),
            value_ends: Vec::new(),
            cells: Vec::new(),
            one: Vec::new(),
        }
    }

    fn make(&mut self, op: Op, steps: &Steps, range: Range<usize>) {
        self.numbers.clear();
        self.seals.clear();
        self.keys.clear();
        self.key_ends.clear();
        self.values.clear();
        self.value_ends.clear();
        self.cells.clear();
        for i in range {
            let (_, number) = steps.at(i);
            self.numbers.push(number);
            self.records.key(number, &mut self.one);
            self.keys.extend_from_slice(&self.one);
            self.key_ends.push(self.keys.len());
            match op {
                Op::Insert | Op::Overwrite => {
                    self.records.value(number, self.version, &mut self.one);
                    self.values.extend_from_slice(&self.one);
                    self.value_ends.push(self.values.len());
                }
                Op::Update => {
                    self.cells.push((self.records.cell_at(number), self.records.cell(number, self.version)));
                }
                _ => self.seals.push(self.records.seal(number)),
            }
        }
    }

    #[inline]
    fn key(&self, i: usize) -> &[u8] {
        &self.keys[part(&self.key_ends, i)]
    }

    /// Runs the prepared operations.
    fn run<S: Session>(&self, op: Op, session: &mut S, copy: &mut Vec<u8>, ran: &mut Ran) -> Result<()> {
        let count = self.numbers.len();
        match op {
            Op::Insert | Op::Overwrite => {
                for i in 0..count {
                    session.put(self.key(i), &self.values[part(&self.value_ends, i)])?;
                }
            }
            Op::Get => {
                for i in 0..count {
                    if !session.get(self.key(i), copy)? || !self.records.begins(self.seals[i], copy) {
                        return Err(self.wrong(i, copy));
                    }
                }
            }
            Op::GetMany => {
                for from in (0..count).step_by(GET_MANY_KEYS) {
                    let end = (from + GET_MANY_KEYS).min(count);
                    let mut keys = [&[][..]; GET_MANY_KEYS];
                    for (key, i) in keys.iter_mut().zip(from..end) {
                        *key = self.key(i);
                    }
                    session.get_many(&keys[..end - from], &mut |i, value| {
                        let value =
                            value.ok_or_else(|| Failure::missing(self.numbers[from + i], "get_many"))?;
                        copy.clear();
                        copy.extend_from_slice(value);
                        match self.records.begins(self.seals[from + i], copy) {
                            true => Ok(()),
                            false => Err(self.wrong(from + i, copy)),
                        }
                    })?;
                }
            }
            Op::Update => {
                for i in 0..count {
                    let (at, cell) = &self.cells[i];
                    match session.update(self.key(i), *at, cell)? {
                        Changed::InPlace => {}
                        Changed::Rewritten => ran.rewritten += 1,
                        Changed::Absent => return Err(Failure::missing(self.numbers[i], "update")),
                    }
                }
            }
            Op::Delete => {
                for i in 0..count {
                    if !session.delete(self.key(i))? {
                        return Err(Failure::missing(self.numbers[i], "delete"));
                    }
                }
            }
            Op::ReadModifyWrite
            | Op::Scan
            | Op::Walk
            | Op::Range10
            | Op::Range100
            | Op::Range1000
            | Op::Sequential
            | Op::Rank
            | Op::Nth => {
                return Err(Failure::new(format!(
                    "{op} cannot be prepared: it consists of several operations"
                )));
            }
        }
        Ok(())
    }

    #[cold]
    fn wrong(&self, i: usize, value: &[u8]) -> Failure {
        let number = self.numbers[i];
        match self.records.check(number, value) {
            Err(failure) if !value.is_empty() => failure,
            _ => Failure::missing(number, "get"),
        }
    }
}

/// Runs all steps. Consecutive steps of one kind run up to [`TOGETHER`] at a time; each batch is reported to
/// `progress`.
pub(crate) fn take<S: Session>(
    session: &mut S,
    records: &Records,
    version: u32,
    steps: &Steps,
    mut progress: impl FnMut(usize) -> Result<()>,
) -> Result<Ran> {
    let mut ready = Ready::new(records, version);
    let (mut ran, mut copy, mut from) = (Ran::default(), Vec::new(), 0);
    while from < steps.len() {
        let (op, _) = steps.at(from);
        let most = (from + TOGETHER).min(steps.len());
        let end = (from + 1..most).find(|&i| steps.at(i).0 != op).unwrap_or(most);
        ready.make(op, steps, from..end);
        let (cpu, begun) = (thread_cpu(), Instant::now());
        ready.run(op, session, &mut copy, &mut ran)?;
        ran.wall += begun.elapsed();
        ran.cpu += thread_cpu().saturating_sub(cpu);
        progress(end - from)?;
        from = end;
    }
    Ok(ran)
}
