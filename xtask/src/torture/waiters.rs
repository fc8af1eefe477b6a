//! A queue with clients that wait for its elements (BLPOP), under kills: each pushed element is popped once.
//!
//! Elements are numbers, pushed in ascending order, and the numbers that each waiter gets must ascend. No number is
//! popped twice, or is in the list after it was popped. A number whose push was acknowledged is either popped or in the
//! list. A reply in flight when the server ended lost its number: at most one per waiter and round.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::history::{Fault, Violation};
use super::witness::PATIENCE;
use duramen_resp::{Connection, Reply};

const WAITERS: usize = 3;
// Not the writers' database, because the writers know all keys in that.
const DATABASE: &str = "1";
const QUEUE: &str = "waited for";

/// What was pushed to the queue of one store and popped from it.
#[derive(Default)]
pub struct Queue {
    pushed: u64,
    /// Acknowledged pushes that are neither popped nor known to be lost with a reply.
    left: HashSet<u64>,
    popped: HashSet<u64>,
    /// Waiters whose reply may have been in flight when the server ended.
    under_way: usize,
    violations: Vec<Violation>,
}

impl Queue {
    /// Pushes and pops while `ends` runs, which ends the server.
    pub fn work<T>(&mut self, port: u16, ends: impl FnOnce() -> T) -> T {
        let next = AtomicU64::new(self.pushed);
        let (ended, acknowledged, got) = thread::scope(|scope| {
            let producer = scope.spawn(|| push(port, &next));
            let waiters: Vec<_> = (0..WAITERS).map(|_| scope.spawn(move || wait(port))).collect();
            let ended = ends();
            let got: Vec<Vec<u64>> =
                waiters.into_iter().map(|waiter| waiter.join().unwrap_or_default()).collect();
            (ended, producer.join().unwrap_or_default(), got)
        });
        self.pushed = next.into_inner();
        self.left.extend(acknowledged);
        for numbers in got {
            if let Some(pair) = numbers.windows(2).find(|pair| pair[0] >= pair[1]) {
                self.found(Fault::Hole, format!("a waiter got {} after {}", pair[1], pair[0]));
            }
            for number in numbers {
                self.left.remove(&number);
                if !self.popped.insert(number) {
                    self.found(Fault::Repeated, format!("element {number} was popped twice"));
                }
            }
        }
        self.under_way += WAITERS;
        ended
    }

    /// Compares the list with the records. Nobody may push or pop meanwhile.
    pub fn verify(&mut self, port: u16) -> Vec<Violation> {
        match listed(port) {
            Some(there) => self.compare(&there),
            None => self.found(Fault::Refused, "the queue cannot be read".to_owned()),
        }
        std::mem::take(&mut self.violations)
    }

    fn compare(&mut self, there: &[u64]) {
        if let Some(pair) = there.windows(2).find(|pair| pair[0] >= pair[1]) {
            self.found(Fault::Hole, format!("the queue has {} after {}", pair[1], pair[0]));
        }
        if let Some(number) = there.iter().find(|number| self.popped.contains(number)) {
            self.found(
                Fault::Resurrected,
                format!("element {number} is in the queue, although it was popped"),
            );
        }
        if let Some(number) = there.iter().find(|number| **number >= self.pushed) {
            self.found(Fault::Torn, format!("the queue has {number}, which no client pushed"));
        }
        let there: HashSet<u64> = there.iter().copied().collect();
        let lost: Vec<u64> = self.left.difference(&there).copied().collect();
        if lost.len() > self.under_way {
            let what =
                format!("{lost:?} are missing from the queue, and {} replies were under way", self.under_way);
            self.found(Fault::Lost, what);
        }
        // This includes elements whose push was not acknowledged.
        (self.left, self.under_way) = (there, 0);
    }

    fn found(&mut self, fault: Fault, what: String) {
        self.violations.push(Violation { fault, what });
    }
}

fn open(port: u16) -> Option<Connection> {
    let mut connection = Connection::open(port).ok()?;
    connection.call(&["SELECT", DATABASE], PATIENCE).ok()?;
    Some(connection)
}

/// Pushes until the server is gone; returns the acknowledged numbers.
fn push(port: u16, next: &AtomicU64) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    let Some(mut connection) = open(port) else { return acknowledged };
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        match connection.call(&["RPUSH", QUEUE, &number.to_string()], PATIENCE) {
            Ok(reply) if reply.integer().is_some() => acknowledged.push(number),
            _ => return acknowledged,
        }
        // A pause, so that waiters sometimes wait.
        if number.is_multiple_of(8) {
            thread::sleep(Duration::from_micros(300));
        }
    }
}

/// Pops until the server is gone; returns the popped numbers.
fn wait(port: u16) -> Vec<u64> {
    let mut got = Vec::new();
    let Some(mut connection) = open(port) else { return got };
    while let Ok(reply) = connection.call(&["BLPOP", QUEUE, "0.02"], PATIENCE) {
        match reply.items() {
            Some([_, element]) => got.extend(number(element)),
            // The wait timed out.
            _ if reply.kind() == b'*' || reply.kind() == b'_' => {}
            _ => break,
        }
    }
    got
}

fn listed(port: u16) -> Option<Vec<u64>> {
    let reply = open(port)?.call(&["LRANGE", QUEUE, "0", "-1"], PATIENCE).ok()?;
    reply.items()?.iter().map(number).collect()
}

fn number(element: &Reply) -> Option<u64> {
    std::str::from_utf8(element.text()?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_doubled_and_reappearing_elements_are_found() {
        let faults = |left: &[u64], popped: &[u64], under_way, there: &[u64]| {
            let (left, popped) = (left.iter().copied().collect(), popped.iter().copied().collect());
            let mut queue = Queue { pushed: 10, left, popped, under_way, ..Queue::default() };
            queue.compare(there);
            queue.violations.into_iter().map(|violation| violation.fault).collect::<Vec<_>>()
        };
        assert_eq!(faults(&[3, 4], &[1, 2], 0, &[3, 4, 5]), []);
        assert_eq!(faults(&[3, 4], &[1, 2], 1, &[4]), [], "with a reply");
        assert_eq!(faults(&[3, 4], &[1, 2], 1, &[]), [Fault::Lost]);
        assert_eq!(faults(&[3], &[1, 2], 0, &[2, 3]), [Fault::Resurrected]);
        assert_eq!(faults(&[3, 4], &[], 0, &[4, 3]), [Fault::Hole]);
        assert_eq!(faults(&[3], &[], 0, &[3, 10]), [Fault::Torn]);
    }
}
