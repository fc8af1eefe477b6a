//! Clients of memcached's protocol in the torture of a cache ([`super::evicting`]). They set items, set them on
//! condition of their number, delete them, and change counters. After a kill an item has its last value or is absent,
//! and a counter has not gone back. No number (memcached's CAS) is ever given to two changes.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::history::{Fault, Violation};
use super::known::{DELETES, KEYS, Known, TOGETHER, change_of, value};
use super::own_bytes::OwnBytes;
use super::witness::PATIENCE;
use crate::failure::{Attempt, Failure, Result};
use crate::random::Random;
use duramen_resp::{Connection, Ended};

/// Counters of one client, and their changes in a batch of changes of items.
const COUNTERS: u64 = 50;
const COUNTED: usize = 20;
/// One set out of this many is conditional on the expected number.
const CONDITIONS: u64 = 4;

/// A counter: its last value, its number, and the changes that were in flight when the server was killed.
#[derive(Clone, Copy, Default)]
struct Count {
    last: u64,
    number: u64,
    flying: u64,
}

/// One client.
pub(super) struct Items {
    client: usize,
    known: Vec<Known>,
    /// The numbers of `known`'s last values.
    numbers: Vec<u64>,
    counts: Vec<Count>,
    next: u64,
    /// The numbers that replies gave to changes.
    with_kind: Vec<u64>,
    wrong: Vec<Violation>,
    pub acknowledged: u64,
    pub evicted: u64,
}

/// The kinds of requests of a batch, in order.
enum Asked {
    Change(u64),
    Count(u64),
}

impl Items {
    pub(super) fn new(client: usize) -> Self {
        Self {
            client,
            known: vec![Known::default(); KEYS as usize],
            numbers: vec![0; KEYS as usize],
            counts: vec![Count::default(); COUNTERS as usize],
            next: 0,
            with_kind: Vec::new(),
            wrong: Vec::new(),
            acknowledged: 0,
            evicted: 0,
        }
    }

    fn key(&self, key: u64) -> String {
        format!("{}:{key:06}", self.client)
    }

    fn counter(&self, counter: u64) -> String {
        format!("{}:counter:{counter}", self.client)
    }

    /// Changes items until the server is gone.
    pub(super) fn write(&mut self, port: u16, store: &Path, seed: u64, stop: &AtomicBool) {
        let mut random = Random::new(seed);
        let mut own = OwnBytes::new(Some(store), random.any());
        let Ok(mut connection) = Connection::open(port) else { return };
        while !stop.load(Ordering::Relaxed) && self.wrong.is_empty() {
            let first = random.below(KEYS - TOGETHER as u64);
            let (mut commands, mut asked) = (Vec::new(), Vec::new());
            for at in first..first + TOGETHER as u64 {
                self.next += 1;
                let (key, known) = (self.key(at), &mut self.known[at as usize]);
                let deletes = random.one_in(DELETES);
                known.flying = Some(if deletes { 0 } else { self.next });
                if deletes {
                    commands.extend(format!("md {key}\r\n").into_bytes());
                } else {
                    let value = value(self.next, &mut random, &mut own);
                    let seconds = 100_000 + random.below(100_000);
                    let number = self.numbers[at as usize];
                    let condition = match number != 0 && random.one_in(CONDITIONS) {
                        true => format!(" C{number}"),
                        false => String::new(),
                    };
                    let head = format!("ms {key} {} c T{seconds}{condition}\r\n", value.len());
                    commands.extend([head.as_bytes(), &value, b"\r\n"].concat());
                }
                asked.push(Asked::Change(at));
                if random.one_in((TOGETHER / COUNTED) as u64) {
                    let counter = random.below(COUNTERS);
                    self.counts[counter as usize].flying += 1;
                    commands.extend(format!("ma {} c v N150000 J1\r\n", self.counter(counter)).into_bytes());
                    asked.push(Asked::Count(counter));
                }
            }
            if connection.send(&commands).is_err() {
                return;
            }
            for asked in asked {
                let taken = match asked {
                    Asked::Change(at) => self.take_change(&mut connection, at),
                    Asked::Count(counter) => self.take_count(&mut connection, counter),
                };
                if taken.is_err() {
                    return;
                }
            }
        }
    }

    /// The reply to a set or a delete.
    fn take_change(&mut self, connection: &mut Connection, at: u64) -> std::result::Result<(), Ended> {
        let line = connection.line(PATIENCE)?;
        let key = self.key(at);
        let known = &mut self.known[at as usize];
        match (line.split(' ').next().unwrap_or_default(), known.flying.take()) {
            ("HD" | "NF", Some(0)) => {
                known.last = 0;
                self.numbers[at as usize] = 0;
            }
            // The item was evicted, or there was no room for it: it is unchanged or gone.
            ("NF", _) => return Ok(()),
            ("SERVER_ERROR", _) => return Ok(()),
            ("HD", Some(change)) if number_of(&line).is_some() => {
                let number = number_of(&line).unwrap_or(0);
                known.last = change;
                self.numbers[at as usize] = number;
                self.with_kind.push(number);
            }
            (_, flying) => {
                let what = format!("{key}: {flying:?} is answered {line:?}");
                self.wrong.push(Violation { fault: Fault::Refused, what });
            }
        }
        self.acknowledged += 1;
        Ok(())
    }

    /// The reply to a change of a counter.
    fn take_count(&mut self, connection: &mut Connection, counter: u64) -> std::result::Result<(), Ended> {
        let read = read_value(connection)?;
        let key = self.counter(counter);
        let count = &mut self.counts[counter as usize];
        count.flying -= 1;
        match read {
            // The counter was evicted and created again, or was incremented by one.
            Read::Value(value, number)
                if value == b"1" || value == (count.last + 1).to_string().as_bytes() =>
            {
                count.last = if value == b"1" { 1 } else { count.last + 1 };
                count.number = number;
                self.with_kind.push(number);
            }
            Read::Other(line) if line.starts_with("SERVER_ERROR") => return Ok(()),
            other => {
                let what = format!("{key} was {}, and an increment returned {other:?}", count.last);
                self.wrong.push(Violation { fault: Fault::Lost, what });
            }
        }
        self.acknowledged += 1;
        Ok(())
    }

    /// Reads all items and counters, and returns the violations. `numbers`: all numbers that any client got from this
    /// store.
    pub(super) fn verify(
        &mut self,
        port: u16,
        numbers: &mut HashSet<u64>,
        violations: &mut Vec<Violation>,
    ) -> Result<()> {
        violations.append(&mut self.wrong);
        for number in std::mem::take(&mut self.with_kind) {
            self.note(number, numbers, violations);
        }
        let mut connection = Connection::open(port).attempt(|| "connect to the server".to_owned())?;
        let keys: Vec<String> = (0..KEYS).map(|at| self.key(at)).collect();
        for (at, read) in read_all(&mut connection, &keys)?.into_iter().enumerate() {
            let known = self.known[at].clone();
            let found = match &read {
                Read::Value(value, number) => (change_of(value).unwrap_or(u64::MAX), *number),
                Read::Absent => (0, 0),
                Read::Other(line) => return Err(Failure::new(format!("an mg is answered {line:?}"))),
            };
            let fault = match found {
                (0, _) => {
                    self.evicted += u64::from(known.last != 0);
                    None
                }
                (change, number) if change == known.last => {
                    (number != self.numbers[at]).then_some(Fault::Repeated)
                }
                (change, number) if Some(change) == known.flying => {
                    self.note(number, numbers, violations);
                    None
                }
                (u64::MAX, _) => Some(Fault::Torn),
                _ => Some(Fault::Resurrected),
            };
            if let Some(fault) = fault {
                let what = format!(
                    "{} holds {} with the number {}, last was {} with {}, under way {:?}",
                    keys[at], found.0, found.1, known.last, self.numbers[at], known.flying
                );
                violations.push(Violation { fault, what });
            }
            self.known[at] = Known { last: found.0, flying: None };
            self.numbers[at] = found.1;
        }
        let keys: Vec<String> = (0..COUNTERS).map(|counter| self.counter(counter)).collect();
        for (at, read) in read_all(&mut connection, &keys)?.into_iter().enumerate() {
            let Count { last, number: before, flying } = self.counts[at];
            let (found, number) = match read {
                Read::Value(value, number) => {
                    (std::str::from_utf8(&value).ok().and_then(|text| text.trim_end().parse().ok()), number)
                }
                Read::Absent => (Some(0), 0),
                Read::Other(line) => return Err(Failure::new(format!("an mg is answered {line:?}"))),
            };
            let fault = match found {
                None => Some(Fault::Torn),
                Some(0) => None,
                Some(found) if found == last && number == before => None,
                // The counter was incremented, or was evicted and created again.
                Some(found)
                    if (last + 1..=last + flying).contains(&found) || (1..=flying).contains(&found) =>
                {
                    self.note(number, numbers, violations);
                    None
                }
                Some(found) if found == last => Some(Fault::Repeated),
                Some(_) => Some(Fault::Lost),
            };
            if let Some(fault) = fault {
                let what = format!(
                    "{} is {found:?} with the number {number}, last was {last} with {before}, {flying} under way",
                    keys[at]
                );
                violations.push(Violation { fault, what });
            }
            self.counts[at] = Count { last: found.unwrap_or(0), number, flying: 0 };
        }
        Ok(())
    }

    /// Records that a change got this number.
    fn note(&self, number: u64, numbers: &mut HashSet<u64>, violations: &mut Vec<Violation>) {
        if !numbers.insert(number) {
            let what =
                format!("CAS number {number} was given twice, the second time to client {}", self.client);
            violations.push(Violation { fault: Fault::Repeated, what });
        }
    }
}

/// The state of a key.
#[derive(Debug)]
enum Read {
    /// A value with its number.
    Value(Vec<u8>, u64),
    Absent,
    Other(String),
}

/// The number in a reply's flags.
fn number_of(line: &str) -> Option<u64> {
    let mut words = line.split(' ');
    matches!(words.next(), Some("HD" | "VA")).then_some(())?;
    words.find_map(|word| word.strip_prefix('c')?.parse().ok())
}

fn read_value(connection: &mut Connection) -> std::result::Result<Read, Ended> {
    let line = connection.line(PATIENCE)?;
    let bytes = line.strip_prefix("VA ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    Ok(match (bytes, number_of(&line)) {
        (Some(bytes), Some(number)) => {
            let value = connection.bytes(bytes, PATIENCE)?;
            connection.line(PATIENCE)?;
            Read::Value(value, number)
        }
        _ if line == "EN" => Read::Absent,
        _ => Read::Other(line),
    })
}

fn read_all(connection: &mut Connection, keys: &[String]) -> Result<Vec<Read>> {
    let mut all = Vec::new();
    for keys in keys.chunks(100) {
        let commands: String = keys.iter().map(|key| format!("mg {key} v c\r\n")).collect();
        connection.send(commands.as_bytes()).attempt(|| "send to the server".to_owned())?;
        for _ in keys {
            all.push(
                read_value(connection).map_err(|ended| {
                    Failure::new(format!("the server answers no mg: {:?}", ended.bytes()))
                })?,
            );
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_cas_number_is_a_fault() {
        assert_eq!(["HD c12", "VA 3 c7", "NF c0", "HD"].map(number_of), [Some(12), Some(7), None, None]);
        let (items, mut numbers, mut violations) = (Items::new(1), HashSet::new(), Vec::new());
        [3, 4].into_iter().for_each(|number| items.note(number, &mut numbers, &mut violations));
        assert!(violations.is_empty());
        items.note(3, &mut numbers, &mut violations);
        assert_eq!(violations.iter().map(|violation| violation.fault).collect::<Vec<_>>(), [Fault::Repeated]);
    }
}
