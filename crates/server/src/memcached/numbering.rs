//! CAS numbers: after each change of an item another one, never the same twice, also over restarts.
//!
//! A number is a count and the worker that gave it out: bits 10 to 61 and 0 to 9. A worker's counts only rise, so no
//! two are the same. They are above those of the previous item and of all turns that were durable before this one. So the
//! later of two changes of an item has the greater number.
//!
//! A counter takes a run of counts when its record is written, one for each change that is made in place.
//!
//! Counts stay below a *ceiling* that is durable before the first count below it is given out; the next start begins at
//! the ceiling that it finds. So no number is given out again after a crash, whatever happened to the items.
//!
//! **Invariant**: a count that is given out is below the durable ceiling.

use duramen_structures::CAS_STEP;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The number of workers that the numbers can distinguish.
pub const WORKERS_MAX: usize = 1 << WORKER_BITS;

const WORKER_BITS: u32 = CAS_STEP.ilog2();
// 2^30 changes of one worker. The ceiling is raised once a second when half is used. Reaching it would take 500 million
// changes in a second, or 2 million runs that counters begin. 2^52 counts are enough for four million starts.
const CEILING_STEP: u64 = 1 << 30;

/// The state that all workers share.
#[derive(Debug, Default)]
pub struct Numbers {
    // The greatest count of a durable turn.
    durable: AtomicU64,
    ceiling: AtomicU64,
}

impl Numbers {
    /// Begins at the ceiling that was found. No number is given out before [`raise_to`](Self::raise_to).
    pub const fn begin(ceiling: u64) -> Self {
        Self { durable: AtomicU64::new(ceiling), ceiling: AtomicU64::new(ceiling) }
    }

    /// The ceiling to make durable now, if there is to be another one.
    pub fn wants(&self) -> Option<u64> {
        let (durable, ceiling) = (self.durable.load(Relaxed), self.ceiling.load(Relaxed));
        (ceiling - durable.min(ceiling) < CEILING_STEP / 2).then(|| ceiling + CEILING_STEP)
    }

    /// This ceiling is durable.
    pub fn raise_to(&self, ceiling: u64) {
        self.ceiling.store(ceiling, Relaxed);
    }
}

/// The state of a worker.
#[derive(Debug)]
pub struct Numbering {
    worker: u64,
    last: u64,
    is_new: bool,
}

impl Numbering {
    /// That of the worker with this position.
    pub const fn new(worker: usize) -> Self {
        Self { worker: worker as u64 % (1 << WORKER_BITS), last: 0, is_new: false }
    }

    /// A turn begins.
    pub fn begin_turn(&mut self, numbers: &Numbers) {
        // Relaxed: a client got a number only after its worker's turn was durable, and this turn comes after that client's
        // request.
        self.last = self.last.max(numbers.durable.load(Relaxed));
    }

    /// The next number, above that of the previous item; `None` when there is none below the ceiling.
    #[inline]
    pub fn next(&mut self, numbers: &Numbers, before: Option<u64>) -> Option<u64> {
        self.next_run(numbers, before, 1)
    }

    /// The first of the next `run` numbers, which are [`CAS_STEP`] apart.
    pub fn next_run(&mut self, numbers: &Numbers, before: Option<u64>, run: u64) -> Option<u64> {
        let before = before.map_or(0, |number| number >> WORKER_BITS);
        let count = self.last.max(before) + 1;
        let last = count + run - 1;
        if last >= numbers.ceiling.load(Relaxed) {
            return None;
        }
        self.last = last;
        self.is_new = true;
        Some(count << WORKER_BITS | self.worker)
    }

    /// The turn is durable: its replies may leave after this.
    pub fn finish_turn(&mut self, numbers: &Numbers) {
        if std::mem::take(&mut self.is_new) {
            numbers.durable.fetch_max(self.last, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cas_numbers_rise_and_are_never_given_out_twice() {
        let numbers = Numbers::begin(0);
        let mut workers = [Numbering::new(0), Numbering::new(1)];
        assert_eq!(workers[0].next(&numbers, None), None);
        numbers.raise_to(numbers.wants().unwrap());
        assert_eq!(numbers.wants(), None);
        let (mut seen, mut last) = (std::collections::BTreeSet::new(), None);
        for at in 0..1000 {
            // One item, changed by one worker and the other.
            let number = workers[at * 7 % 3 % 2].next(&numbers, last).unwrap();
            assert!(seen.insert(number) && last.is_none_or(|last| number > last));
            last = Some(number);
        }
        let run = workers[1].next_run(&numbers, last, 3).unwrap();
        let run = (0..3).map(|at| run + at * CAS_STEP);
        assert!(run.clone().all(|number| Some(number) > last && seen.insert(number)));
        last = run.max();
        workers.iter_mut().for_each(|worker| worker.finish_turn(&numbers));
        workers.iter_mut().for_each(|worker| worker.begin_turn(&numbers));
        let other = workers[0].next(&numbers, None).unwrap();
        assert!(Some(other) > last && seen.insert(other));
    }

    #[test]
    fn a_restart_begins_above_all_given_cas_numbers() {
        let numbers = Numbers::begin(0);
        let durable = numbers.wants().unwrap();
        numbers.raise_to(durable);
        let mut worker = Numbering::new(3);
        let last = (0..100).filter_map(|_| worker.next(&numbers, None)).last().unwrap();
        let again = Numbers::begin(durable);
        again.raise_to(again.wants().unwrap());
        let mut worker = Numbering::new(3);
        worker.begin_turn(&again);
        assert!(worker.next(&again, None).unwrap() > last);
        // A number that was never given out does not lead beyond the ceiling.
        assert_eq!(worker.next(&again, Some(u64::MAX)), None);
    }
}
