//! The workloads, each by name.

use crate::kv::{Distribution, Failure, Result};
use std::fmt;

/// Keys of one `get_many`.
pub(crate) const GET_MANY_KEYS: usize = 32;
/// Entries of one walk.
pub(crate) const WALK_ENTRIES: u64 = 10_000;

/// One kind of operation, as counted and timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// A put of an absent key.
    Insert,
    /// A get of one key, its value copied out and checked.
    Get,
    /// Gets of 32 keys in one call, copied out and checked. Counted in keys, timed in calls.
    GetMany,
    /// A change of 8 bytes of the value: in place where the engine can.
    Update,
    /// A get and an overwrite of the same key.
    ReadModifyWrite,
    /// A put of an existing key.
    Overwrite,
    /// A delete of an existing key.
    Delete,
    /// A visit of 1 to 100 entries.
    Scan,
    /// A visit of [`WALK_ENTRIES`] entries in sequence.
    Walk,
    /// A visit of 10 entries from a key on.
    Range10,
    /// A visit of 100 entries.
    Range100,
    /// A visit of 1000 entries.
    Range1000,
    /// A visit of all entries, from the first on.
    Sequential,
    /// The number of elements before a given one in a collection.
    Rank,
    /// The element of a collection with a given number of elements before it.
    Nth,
}

impl Op {
    /// All operations.
    pub const ALL: [Self; 15] = [
        Self::Insert,
        Self::Get,
        Self::GetMany,
        Self::Update,
        Self::ReadModifyWrite,
        Self::Overwrite,
        Self::Delete,
        Self::Scan,
        Self::Walk,
        Self::Range10,
        Self::Range100,
        Self::Range1000,
        Self::Sequential,
        Self::Rank,
        Self::Nth,
    ];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Get => "get",
            Self::GetMany => "get_many",
            Self::Update => "update",
            Self::ReadModifyWrite => "read-modify-write",
            Self::Overwrite => "overwrite",
            Self::Delete => "delete",
            Self::Scan => "scan",
            Self::Walk => "walk",
            Self::Range10 => "range-10",
            Self::Range100 => "range-100",
            Self::Range1000 => "range-1000",
            Self::Sequential => "sequential",
            Self::Rank => "rank",
            Self::Nth => "nth",
        }
    }

    /// The number of entries that one operation visits on a store of `keys`, if it is always the same. Such operations
    /// are requested by the number of entries.
    #[must_use]
    pub fn entries(self, keys: u64) -> Option<u64> {
        match self {
            Self::Walk => Some(WALK_ENTRIES),
            Self::Range10 => Some(10),
            Self::Range100 => Some(100),
            Self::Range1000 => Some(1000),
            Self::Sequential => Some(keys),
            _ => None,
        }
    }

    /// Whether it visits entries instead of a given key.
    #[must_use]
    pub fn visits(self) -> bool {
        self == Self::Scan || self.entries(1).is_some()
    }

    /// Whether it leaves the store unchanged.
    #[must_use]
    pub fn only_reads(self) -> bool {
        self.visits() || matches!(self, Self::Get | Self::GetMany | Self::Rank | Self::Nth)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Operations in shares, on keys by a distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    name: &'static str,
    about: &'static str,
    /// Shares in percent; they add up to 100.
    mix: &'static [(Op, u8)],
    distribution: Distribution,
}

const fn workload(
    name: &'static str,
    about: &'static str,
    mix: &'static [(Op, u8)],
    distribution: Distribution,
) -> Workload {
    Workload { name, about, mix, distribution }
}

use Distribution::{Latest, Uniform, Zipfian};

/// In the order in which they disturb a store least: each uses the store that the previous one left.
static WORKLOADS: [Workload; 26] = [
    workload("insert", "new keys, disjoint ranges per thread", &[(Op::Insert, 100)], Uniform),
    workload("get", "one key each, copied out", &[(Op::Get, 100)], Uniform),
    workload("get_many", "32 keys a call, copied out", &[(Op::GetMany, 100)], Uniform),
    workload("update", "8 bytes in place", &[(Op::Update, 100)], Uniform),
    workload("read-modify-write", "get, then overwrite", &[(Op::ReadModifyWrite, 100)], Uniform),
    workload("overwrite", "a new value for an existing key", &[(Op::Overwrite, 100)], Uniform),
    workload("mixed-50-50", "half overwrites, half gets", &[(Op::Overwrite, 50), (Op::Get, 50)], Uniform),
    workload("ycsb-a", "YCSB A: half gets, half overwrites", &[(Op::Get, 50), (Op::Overwrite, 50)], Zipfian),
    workload("ycsb-b", "YCSB B: 95 % gets, 5 % overwrites", &[(Op::Get, 95), (Op::Overwrite, 5)], Zipfian),
    workload("ycsb-c", "YCSB C: gets", &[(Op::Get, 100)], Zipfian),
    workload(
        "ycsb-d",
        "YCSB D: 95 % gets of the newest, 5 % inserts",
        &[(Op::Get, 95), (Op::Insert, 5)],
        Latest,
    ),
    workload(
        "ycsb-e",
        "YCSB E: 95 % scans of 1 to 100, 5 % inserts",
        &[(Op::Scan, 95), (Op::Insert, 5)],
        Zipfian,
    ),
    workload(
        "ycsb-f",
        "YCSB F: half gets, half read-modify-writes",
        &[(Op::Get, 50), (Op::ReadModifyWrite, 50)],
        Zipfian,
    ),
    workload(
        "viper-50-50",
        "Viper's YCSB 50:50, half gets, half inserts",
        &[(Op::Get, 50), (Op::Insert, 50)],
        Uniform,
    ),
    workload(
        "viper-10-90",
        "Viper's YCSB 10:90, 10 % gets, 90 % inserts",
        &[(Op::Get, 10), (Op::Insert, 90)],
        Uniform,
    ),
    workload(
        "viper-50-50-zipfian",
        "half gets of popular keys, half inserts",
        &[(Op::Get, 50), (Op::Insert, 50)],
        Zipfian,
    ),
    workload(
        "viper-10-90-zipfian",
        "10 % gets of popular keys, 90 % inserts",
        &[(Op::Get, 10), (Op::Insert, 90)],
        Zipfian,
    ),
    workload("scan", "visits of 1 to 100 entries", &[(Op::Scan, 100)], Uniform),
    workload("walk", "visits of 10,000 entries, as many in all as operations", &[(Op::Walk, 100)], Uniform),
    workload(
        "range-10",
        "visits of 10 entries, as many in all as operations",
        &[(Op::Range10, 100)],
        Uniform,
    ),
    workload("range-100", "visits of 100 entries, as many in all", &[(Op::Range100, 100)], Uniform),
    workload("range-1000", "visits of 1000 entries, as many in all", &[(Op::Range1000, 100)], Uniform),
    workload(
        "sequential",
        "visits of the whole store, as many as operations ask for",
        &[(Op::Sequential, 100)],
        Uniform,
    ),
    workload(
        "rank",
        "how many elements come before one: collections with an order",
        &[(Op::Rank, 100)],
        Uniform,
    ),
    workload("nth", "the element of a rank: collections with an order", &[(Op::Nth, 100)], Uniform),
    workload("delete", "each key once", &[(Op::Delete, 100)], Uniform),
];

impl Workload {
    /// All workloads.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &WORKLOADS
    }

    /// The workload called `name`.
    ///
    /// # Errors
    /// Usage, with the nearest name and all names.
    pub fn named(name: &str) -> Result<&'static Self> {
        Self::named_among(name, std::iter::empty())
    }

    /// Like [`Workload::named`], for an argument that also accepts other names.
    ///
    /// # Errors
    /// As [`Workload::named`]; the message lists the other names too.
    pub fn named_among(
        name: &str,
        others: impl Iterator<Item = &'static str> + Clone,
    ) -> Result<&'static Self> {
        WORKLOADS
            .iter()
            .find(|workload| workload.name == name)
            .ok_or_else(|| unknown(name, "workload", Self::names().chain(others)))
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        WORKLOADS.iter().map(|workload| workload.name)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it does, in a few words.
    #[must_use]
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// Its operations, with shares in percent.
    #[must_use]
    pub fn mix(&self) -> &'static [(Op, u8)] {
        self.mix
    }

    /// How it picks keys.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    /// The same workload with another way to pick keys.
    #[must_use]
    pub fn with_distribution(&self, distribution: Distribution) -> Self {
        Self { distribution, ..self.clone() }
    }

    /// Whether `op` is among its operations.
    #[must_use]
    pub fn has(&self, op: Op) -> bool {
        self.mix.iter().any(|(o, _)| *o == op)
    }

    /// Whether it starts from an empty store: inserts alone.
    #[must_use]
    pub fn is_load(&self) -> bool {
        self.mix == [(Op::Insert, 100)]
    }

    /// Whether it visits entries.
    #[must_use]
    pub fn visits(&self) -> bool {
        self.mix.iter().any(|(op, _)| op.visits())
    }

    /// Whether it asks for ranks, which only ordered collections have.
    #[must_use]
    pub fn asks_for_ranks(&self) -> bool {
        self.has(Op::Rank) || self.has(Op::Nth)
    }

    /// Whether it leaves the store unchanged.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.mix.iter().all(|(op, _)| op.only_reads())
    }

    /// The number of entries that each of its operations visits on a store of `keys`, if they all visit entries.
    #[must_use]
    pub fn entries(&self, keys: u64) -> Option<u64> {
        match self.mix {
            [(op, _)] => op.entries(keys),
            _ => None,
        }
    }

    /// Whether the keys afterwards differ from those of the load.
    #[must_use]
    pub fn changes_keys(&self) -> bool {
        self.has(Op::Insert) || self.has(Op::Delete)
    }
}

/// The error for a name that is not in `names`.
pub(crate) fn unknown<'a>(name: &str, what: &str, names: impl Iterator<Item = &'a str> + Clone) -> Failure {
    let nearest = names.clone().min_by_key(|known| distance(name, known)).unwrap_or("");
    let all: Vec<&str> = names.collect();
    Failure::usage(format!("{what} {name:?} is unknown; did you mean {nearest}? Known: {}", all.join(", ")))
}

/// The number of characters to insert, remove or replace to get from one to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_names_differ() {
        for workload in Workload::all() {
            assert_eq!(
                workload.mix.iter().map(|(_, share)| u32::from(*share)).sum::<u32>(),
                100,
                "{}",
                workload.name
            );
            assert_eq!(Workload::names().filter(|name| *name == workload.name).count(), 1);
        }
    }

    #[test]
    fn vipers_mixes_are_those_of_its_benchmark() {
        // benchmark/config/ycsb_1090_uniform.conf of Viper: readproportion=0.1, insertproportion=0.9.
        for (name, gets) in [("viper-50-50", 50), ("viper-10-90", 10)] {
            for suffix in ["", "-zipfian"] {
                let workload = Workload::named(&format!("{name}{suffix}")).unwrap();
                assert_eq!(workload.mix, [(Op::Get, gets), (Op::Insert, 100 - gets)], "{}", workload.name);
            }
        }
    }

    #[test]
    fn an_unknown_workload_names_the_nearest() {
        for (said, nearest) in
            [("ycsb_a", "ycsb-a"), ("delet", "delete"), ("rmw", "scan"), ("overwrites", "overwrite")]
        {
            let failure = Workload::named(said).unwrap_err();
            assert!(failure.is_usage());
            if said != "rmw" {
                assert!(failure.to_string().contains(&format!("did you mean {nearest}?")), "{failure}");
            }
            assert!(failure.to_string().contains("read-modify-write"), "{failure}");
        }
    }
}
