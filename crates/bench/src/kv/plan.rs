//! Operations, made before the clock starts: the steps of each thread, in order.

use crate::kv::distribution::Picker;
use crate::kv::random::Random;
use crate::kv::{Distribution, Failure, Op, Result, Workload};

/// The steps of all threads in one run of a workload.
#[derive(Debug)]
pub struct Plan {
    name: String,
    threads: Vec<Steps>,
    version: u32,
    keys: u64,
}

/// The steps of one thread.
#[derive(Debug, Default)]
pub struct Steps(Vec<u64>);

/// The operation is in the upper 8 bits, the key's number in the others.
const NUMBER_BITS: u32 = 56;

impl Steps {
    fn with_capacity(count: u64) -> Self {
        Self(Vec::with_capacity(count as usize))
    }

    fn push(&mut self, op: Op, number: u64) {
        self.0.push((op as u64) << NUMBER_BITS | number);
    }

    /// The number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no steps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The operation at `i` and the number of its key.
    #[inline]
    #[must_use]
    pub fn at(&self, i: usize) -> (Op, u64) {
        let step = self.0[i];
        (Op::ALL[(step >> NUMBER_BITS) as usize], step & ((1 << NUMBER_BITS) - 1))
    }
}

impl Plan {
    /// `ops` operations of `workload` by `threads` threads on a store of keys 0 to `keys`; a load inserts
    /// these keys, whatever `ops` is.
    ///
    /// # Errors
    /// Usage, when there are no keys, no threads, or more deletes than keys.
    pub fn new(workload: &Workload, keys: u64, ops: u64, threads: usize, seed: u64) -> Result<Self> {
        if keys == 0 || threads == 0 || ops == 0 {
            return Err(Failure::usage("keys, operations and threads must be at least 1"));
        }
        let deletes = workload.has(Op::Delete);
        let ops = if workload.is_load() {
            keys
        } else if deletes {
            ops.min(keys)
        } else if let Some(entries) = workload.entries(keys) {
            // `ops` counts entries here, not visits.
            (ops / entries).max(1)
        } else {
            ops
        };
        let threads = threads as u64;
        let mut doomed: Vec<u64> = Vec::new();
        if deletes {
            doomed = (0..keys).collect();
            Random::new(seed, u64::MAX).shuffle(&mut doomed);
        }
        let picker = Picker::new(workload.distribution(), keys);
        let share = |t: u64| ops * t / threads..ops * (t + 1) / threads;
        let steps = (0..threads).map(|t| {
            let range = share(t);
            if workload.is_load() {
                let mut steps = Steps::with_capacity(range.end - range.start);
                range.for_each(|number| steps.push(Op::Insert, number));
                steps
            } else if deletes {
                let mut steps = Steps::with_capacity(range.end - range.start);
                doomed[range.start as usize..range.end as usize]
                    .iter()
                    .for_each(|n| steps.push(Op::Delete, *n));
                steps
            } else {
                mixed(
                    workload,
                    &picker,
                    keys,
                    keys + range.start,
                    range.end - range.start,
                    &mut Random::new(seed, t),
                )
            }
        });
        // A version other than the load's, so that a missing overwrite is detected.
        let version = if workload.is_load() { 0 } else { Random::new(seed, 77).next() as u32 | 1 };
        Ok(Self { name: workload.name().into(), threads: steps.collect(), version, keys })
    }

    /// The workload's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The steps of each thread.
    #[must_use]
    pub fn threads(&self) -> &[Steps] {
        &self.threads
    }

    /// The number of operations of all threads.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.threads.iter().map(|steps| steps.len() as u64).sum()
    }

    /// The number of records in the store before the run, or that the run loads.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The version of the values that the run puts.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }
}

/// `count` operations of one thread, whose inserts begin at number `fresh`.
fn mixed(
    workload: &Workload,
    picker: &Picker,
    keys: u64,
    fresh: u64,
    count: u64,
    random: &mut Random,
) -> Steps {
    let mut steps = Steps::with_capacity(count);
    let mut inserted = 0;
    let latest = workload.distribution() == Distribution::Latest;
    for _ in 0..count {
        let mut share = random.below(100);
        let op = workload.mix().iter().find(|(_, percent)| {
            let here = share < u64::from(*percent);
            share = share.saturating_sub(u64::from(*percent));
            here
        });
        let op = op.map_or(Op::Get, |(op, _)| *op);
        if op == Op::Insert {
            steps.push(op, fresh + inserted);
            inserted += 1;
            continue;
        }
        // Only this thread's own inserts are sure to be there.
        let newest = |k: u64| {
            if k < inserted { fresh + inserted - 1 - k } else { keys - 1 - (k - inserted).min(keys - 1) }
        };
        let number = if latest { picker.pick(random, newest) } else { picker.pick(random, |k| k) };
        steps.push(op, number);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn plan(name: &str, keys: u64, ops: u64, threads: usize, seed: u64) -> Plan {
        Plan::new(Workload::named(name).unwrap(), keys, ops, threads, seed).unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_steps_and_another_seed_others() {
        for workload in Workload::all() {
            let steps = |seed| {
                plan(workload.name(), 1000, 1000, 2, seed)
                    .threads
                    .into_iter()
                    .map(|s| s.0)
                    .collect::<Vec<_>>()
            };
            assert_eq!(steps(1), steps(1), "{}", workload.name());
            if !workload.is_load() {
                assert_ne!(steps(1), steps(2), "{}", workload.name());
            }
        }
    }

    #[test]
    fn inserts_of_threads_are_disjoint_and_new() {
        for name in ["insert", "viper-50-50", "ycsb-d"] {
            let plan = plan(name, 999, 10_000, 3, 4);
            let mut seen = HashSet::new();
            for steps in plan.threads() {
                for i in 0..steps.len() {
                    let (op, number) = steps.at(i);
                    if op == Op::Insert {
                        assert!(seen.insert(number), "{name}: {number} twice");
                        assert!(name == "insert" || number >= 999);
                    }
                }
            }
            assert!(name != "insert" || seen.len() == 999);
        }
    }

    #[test]
    fn reads_ask_only_for_keys_that_are_there() {
        for workload in Workload::all().iter().filter(|w| !w.is_load()) {
            for steps in plan(workload.name(), 500, 20_000, 2, 4).threads() {
                let mut own = HashSet::new();
                for i in 0..steps.len() {
                    let (op, number) = steps.at(i);
                    if op == Op::Insert {
                        own.insert(number);
                    } else {
                        assert!(number < 500 || own.contains(&number), "{}: {number}", workload.name());
                    }
                }
            }
        }
    }

    #[test]
    fn every_key_is_deleted_at_most_once() {
        let plan = plan("delete", 1000, 5000, 2, 1);
        let numbers: HashSet<u64> =
            plan.threads().iter().flat_map(|s| (0..s.len()).map(|i| s.at(i).1).collect::<Vec<_>>()).collect();
        assert_eq!((plan.ops(), numbers.len()), (1000, 1000));
    }

    #[test]
    fn mixes_have_their_shares() {
        let plan = plan("ycsb-b", 1000, 100_000, 1, 1);
        let steps = &plan.threads()[0];
        let gets = (0..steps.len()).filter(|&i| steps.at(i).0 == Op::Get).count();
        // Binomial: deviation 69.
        assert!((94_500..95_500).contains(&gets), "{gets}");
    }

    #[test]
    fn nothing_to_do_is_refused() {
        let get = Workload::named("get").unwrap();
        for (keys, ops, threads) in [(0, 1, 1), (1, 0, 1), (1, 1, 0)] {
            assert!(Plan::new(get, keys, ops, threads, 1).unwrap_err().is_usage());
        }
    }
}
