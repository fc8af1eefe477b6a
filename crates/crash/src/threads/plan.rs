//! The operations of each thread of a run, all from one seed.

use super::touch::Touch;
use crate::setup::{Case, Promise, Setup};
use duramen::Options;
use duramen::tuning::Tuning;
use duramen_media::sim::Rng;
use duramen_media::sim::schedule::{Settings, Strategy};
use std::sync::OnceLock;
use std::time::Duration;

/// One operation of a thread. Keys are cells: see [`Setup::cell`].
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named after what they are")]
pub enum Op {
    Put {
        key: usize,
        bytes: usize,
        updatable: bool,
    },
    Delete {
        key: usize,
    },
    /// Overwrites 2 to the power of `size` bytes, or 24, `at` eighths of 64 bytes into the value. On request it reads
    /// first, lets other threads run, and updates if nothing changed.
    Update {
        key: usize,
        at: usize,
        size: u32,
        on_condition: bool,
    },
    /// Reads, lets other threads run, and writes if nothing changed; `None` deletes.
    Swap {
        key: usize,
        bytes: Option<usize>,
    },
    /// Several writes, conditional on earlier reads.
    Batch {
        writes: Vec<(usize, Option<usize>)>,
        expects: Vec<usize>,
    },
    /// Reads a value and keeps it while other threads run.
    Get {
        key: usize,
        hold: u64,
    },
    GetMany {
        keys: Vec<usize>,
    },
    /// Reads everything by a cursor or, on an ordered store, by an iterator, from one end or the other.
    Scan,
    /// Makes a table, or finds it: by its number, from 1 on.
    Make {
        table: usize,
        ordered: bool,
    },
    Clear {
        table: usize,
    },
    Drop {
        table: usize,
    },
    /// Swaps the content of two tables.
    Exchange {
        tables: [usize; 2],
    },
    /// Iterates over a table, if its index is ordered.
    Walk {
        table: usize,
    },
    /// An operation on collections.
    Touch(Touch),
    /// Several operations, flushed as one group.
    Group(Vec<Op>),
    /// The same, with their keys locked.
    Locked(Vec<Op>),
    Commit,
    Maintain,
    /// Drops the writer; the next write makes a new one.
    Retire,
}

impl Op {
    /// The cells of the keys that it names.
    #[must_use]
    pub fn keys(&self) -> Vec<usize> {
        match self {
            Self::Put { key, .. }
            | Self::Delete { key }
            | Self::Update { key, .. }
            | Self::Swap { key, .. }
            | Self::Get { key, .. } => vec![*key],
            Self::Batch { writes, expects } => {
                writes.iter().map(|(key, _)| *key).chain(expects.iter().copied()).collect()
            }
            Self::GetMany { keys } => keys.clone(),
            Self::Group(ops) | Self::Locked(ops) => ops.iter().flat_map(Self::keys).collect(),
            Self::Scan
            | Self::Touch(_)
            | Self::Make { .. }
            | Self::Clear { .. }
            | Self::Drop { .. }
            | Self::Exchange { .. }
            | Self::Walk { .. }
            | Self::Commit
            | Self::Maintain
            | Self::Retire => Vec::new(),
        }
    }
}

/// The parameters of one run.
#[derive(Clone)]
pub struct Plan {
    /// The main work of the run.
    pub kind: Kind,
    /// Medium, keys, sizes.
    pub setup: Setup,
    /// The operations of each thread, and whether it writes through the plain handle.
    pub threads: Vec<(bool, Vec<Op>)>,
    /// Keys that exist at first.
    pub first: Vec<usize>,
    /// The operations after these puts, before threads begin.
    pub then: Vec<Op>,
    /// Whether the store has its own thread.
    pub background: bool,
    /// Whether the last thread that owns the store closes it.
    pub last_closes: bool,
    /// The schedule of threads.
    pub schedule: Settings,
}

/// A run that takes more steps than this does not end: the longest of 20 thousand took 150 thousand.
const STEPS_MAX: u64 = 1_000_000;

/// Extents for everything that four threads of [`Kind::Growth`] may write, with each record in a separate extent.
const ROOM_ENOUGH: u64 = 4 * 10 * 3;

/// The main work of a run. Some races need a few operations of one kind, close to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Everything.
    Mixed,
    /// Batches over a few keys, and reads of those.
    Batches,
    /// Updates in place of one or two values, and reads of those.
    Cells,
    /// Overwrites of few values in little space, by short-lived writers, while readers keep values.
    Churn,
    /// Enough keys to fill both of their buckets, in segments that then split.
    Splits,
    /// Writers that need space at the same time, in a store that grows in small steps and may still grow.
    Growth,
    /// Keys that are locked for several operations, concurrently with writers that lock none.
    Locks,
    /// Tables that are made, cleared and dropped while other threads use them.
    Tables,
    /// The same, with swaps. Only on request: a read that found its table before a swap may act on it afterwards
    /// ([`duramen::StoreOn::swap_tables`]), and seeds find that.
    Swaps,
    /// Collections: several elements at once, concurrently with plain keys. They are made, renamed, overwritten and
    /// deleted, and read in every way, under locks and without.
    Collections,
}

impl Kind {
    fn has_tables(self) -> bool {
        matches!(self, Self::Tables | Self::Swaps)
    }
}

impl Plan {
    /// The run of a seed; `kind`, `case` and `threads` override the seed's choices.
    #[must_use]
    pub fn new(seed: u64, kind: Option<Kind>, case: Option<Case>, threads: Option<usize>) -> Self {
        let some = match Rng::new(seed ^ 0x6b69_6e64).below(12) {
            0 => Kind::Batches,
            1 => Kind::Cells,
            2 => Kind::Splits,
            3 => Kind::Churn,
            4 => Kind::Growth,
            5 | 6 => Kind::Tables,
            7 | 8 => Kind::Collections,
            11 => Kind::Locks,
            _ => Kind::Mixed,
        };
        let kind = kind.unwrap_or(some);
        let mut rng = Rng::new(seed ^ 0x0074_6872_6561_6473);
        let mut setup = Setup::new(seed, case);
        setup.ops.clear();
        setup.places = 0;
        setup.tables = if kind.has_tables() { 1 + setup.tables.min(2) } else { 0 };
        setup.extent_bytes = [512, 512, 1024][rng.below(3) as usize];
        let some = rng.below(3) as usize + 2;
        let threads = threads.unwrap_or(some);
        let extent = u64::from(setup.extent_bytes);
        let head = (16u64 << 10).div_ceil(extent);
        let room = match kind {
            Kind::Churn => 4,
            Kind::Growth => ROOM_ENOUGH,
            Kind::Collections => [4, 8, 30][rng.below(3) as usize],
            _ => [6, 12, 60][rng.below(3) as usize],
        };
        let more = if kind == Kind::Growth { room } else { rng.below(room) };
        setup.len_max = ((head + 8 + threads as u64 + more) * extent).next_multiple_of(4096);
        // All keys in one bucket; in a few buckets, with equal fingerprints; and anywhere.
        setup.hash_mask = [u64::MAX, u64::MAX, 0, 1 << 63 | 0x0300, 0x0700][rng.below(5) as usize];
        setup.tuning = Tuning {
            compaction_bytes_min: Some(extent),
            stripe_bits: setup.tuning.stripe_bits,
            leaf_slots: setup.tuning.leaf_slots,
            close_checkpoint_bytes_min: setup.tuning.close_checkpoint_bytes_min,
            // After nearly every write, so that other threads write while a checkpoint is made.
            checkpoint_bytes_min: 64,
            ..Tuning::default()
        };
        if kind == Kind::Growth {
            setup.tuning.extents_initial = 5 + rng.below(3) as u32;
            // In small steps, or at once to the maximum: then no thread that looked earlier may report a full store.
            setup.tuning.growth_bytes_min = if rng.one_in(2) { extent } else { setup.len_max };
        }
        let keys = match kind {
            Kind::Mixed => [1, 2, 4, 8, 16][rng.below(5) as usize],
            Kind::Batches | Kind::Locks => 2 + rng.below(2) as usize,
            Kind::Cells => 1 + rng.below(2) as usize,
            Kind::Churn => 2 + rng.below(3) as usize,
            Kind::Splits => 26,
            Kind::Growth => 12,
            Kind::Tables | Kind::Swaps => 1 + rng.below(4) as usize,
            Kind::Collections => 1 + rng.below(2) as usize,
        };
        if kind == Kind::Collections {
            setup.places = 2 + rng.below(2) as usize;
        }
        if kind == Kind::Splits {
            // One segment, and in it two buckets: 16 slots.
            setup.hash_mask = 0x7fff_ffff_0000_0000;
            setup.tuning.split_count_min = 8;
        }
        // Of 8 bytes, so that values lie where they can be updated in place.
        setup.keys = (0..keys).map(|key| format!("key {key:04}").into_bytes()).collect();
        setup.numbers = OnceLock::new();
        let strategy = Strategy::some(&mut rng);
        let schedule = Settings { seed, strategy, steps_max: STEPS_MAX };
        let background = rng.one_in(2);
        let last_closes = rng.one_in(3);
        let first = match kind {
            Kind::Splits => (0..14 + rng.below(3) as usize).collect(),
            Kind::Batches | Kind::Cells | Kind::Churn | Kind::Locks => (0..keys).collect(),
            Kind::Collections => (0..keys).filter(|_| rng.one_in(2)).collect(),
            Kind::Mixed => (0..keys).filter(|_| rng.one_in(2)).collect(),
            Kind::Growth => Vec::new(),
            Kind::Tables | Kind::Swaps => (0..keys * (setup.tables + 1)).filter(|_| rng.one_in(2)).collect(),
        };
        let per_thread = if kind == Kind::Growth { [1, 2, 10] } else { [4, 10, 24] };
        let per_thread = per_thread[rng.below(3) as usize];
        // An iterator continues with its first table, even after that table is swapped to another name.
        let swaps = setup.tables > 1 && rng.one_in(2) && kind == Kind::Swaps;
        let mut maker = Maker {
            kind,
            keys,
            setup: &setup,
            swaps,
            extent: extent as usize,
            rng: rng.fork(),
            weights: [0; 15],
        };
        let threads = (0..threads)
            .map(|_| {
                let mut fork = rng.fork();
                let count = 1 + fork.below(per_thread);
                (fork.one_in(3), maker.thread(fork, count))
            })
            .collect();
        let then = if kind == Kind::Collections { Touch::first(&setup, &mut rng) } else { Vec::new() };
        let then = then.into_iter().map(Op::Touch).collect();
        Self { kind, setup, threads, first, then, background, last_closes, schedule }
    }

    /// Whether all writes fit, so that a write refused for space is a violation.
    #[must_use]
    pub fn is_roomy(&self) -> bool {
        self.kind == Kind::Growth
    }

    /// How the store is opened while threads work on it.
    #[must_use]
    pub fn options(&self, boot: u64) -> Options {
        let mut options = self.setup.options(boot);
        options.background = self.background;
        // So that the store's own thread commits now and then.
        if self.setup.case.promise() == Promise::Suffix {
            options.durability = duramen::Durability::Interval(Duration::from_millis(20));
        }
        options
    }

    /// A one-line description.
    #[must_use]
    pub fn describe(&self) -> String {
        let calls: Vec<String> = self.threads.iter().map(|(_, ops)| ops.len().to_string()).collect();
        format!(
            "{}; {:?}: {} threads with {} ops, {:?}{}",
            self.setup.describe(),
            self.kind,
            self.threads.len(),
            calls.join(", "),
            self.schedule.strategy,
            if self.background { ", background" } else { "" },
        )
    }
}

struct Maker<'s> {
    kind: Kind,
    keys: usize,
    setup: &'s Setup,
    /// Tables are swapped, else iterated over.
    swaps: bool,
    extent: usize,
    rng: Rng,
    weights: [u64; 15],
}

impl Maker<'_> {
    fn thread(&mut self, rng: Rng, count: u64) -> Vec<Op> {
        self.rng = rng;
        // Each thread has its own preferences, so that reads and writes of the same keys overlap.
        let usual = match self.kind {
            Kind::Mixed => [20, 8, 10, 8, 8, 16, 3, 1, 3, 2, 3, 3, 0, 3, 0],
            Kind::Batches => [2, 1, 0, 2, 20, 20, 6, 0, 1, 0, 0, 0, 0, 0, 0],
            Kind::Cells => [1, 0, 20, 2, 0, 20, 1, 0, 1, 0, 1, 0, 0, 0, 0],
            Kind::Churn => [40, 6, 0, 4, 4, 10, 0, 0, 2, 2, 4, 8, 0, 0, 0],
            Kind::Splits => [20, 4, 3, 4, 10, 10, 4, 1, 1, 0, 2, 1, 0, 0, 0],
            Kind::Growth => [40, 1, 0, 0, 2, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            Kind::Tables | Kind::Swaps => [20, 4, 4, 3, 4, 14, 0, 1, 2, 1, 6, 2, 16, 0, 0],
            Kind::Locks => [16, 4, 4, 4, 8, 12, 1, 0, 1, 1, 2, 1, 0, 24, 0],
            Kind::Collections => [6, 2, 0, 2, 4, 4, 2, 1, 12, 1, 5, 2, 0, 0, 50],
        };
        let mut weights = usual.map(|weight| weight * [0, 1, 1, 4][self.rng.below(4) as usize]);
        if self.kind == Kind::Collections {
            // Every thread does something with them.
            weights[14] = weights[14].max(usual[14]);
        }
        self.weights = weights;
        (0..count).map(|_| self.op(false)).collect()
    }

    fn key(&mut self) -> usize {
        if self.kind.has_tables() {
            // Mostly of tables.
            let table = self.rng.below(2 * self.setup.tables as u64 + 1) as usize;
            return table.div_ceil(2) * self.keys + self.rng.below(self.keys as u64) as usize;
        }
        if matches!(self.kind, Kind::Splits | Kind::Growth) {
            return self.rng.below(self.keys as u64) as usize;
        }
        // Some keys more than others.
        let all = self.rng.below(self.keys as u64);
        self.rng.below(all + 1) as usize
    }

    fn bytes(&mut self) -> usize {
        match self.rng.below(10) {
            0..=6 if self.kind == Kind::Cells => 16,
            _ if matches!(self.kind, Kind::Churn | Kind::Growth) => {
                self.extent / 4 + self.rng.below(self.extent as u64 / 2) as usize
            }
            0 => self.extent,
            1 => self.extent / 2,
            2..=5 => 64,
            _ => 8 + self.rng.below(60) as usize,
        }
    }

    fn table_op(&mut self) -> Op {
        let mut table = || 1 + self.rng.below(self.setup.tables as u64) as usize;
        let (table, other) = (table(), table());
        match self.rng.below(9) {
            0..=3 => Op::Clear { table },
            4 => Op::Drop { table },
            5 | 6 if self.swaps => Op::Exchange { tables: [table, other] },
            5 | 6 => Op::Walk { table },
            _ => Op::Make { table, ordered: self.rng.one_in(2) },
        }
    }

    /// Those of one group.
    fn some_ops(&mut self) -> Vec<Op> {
        let count = 1 + self.rng.below(5);
        (0..count).map(|_| self.op(true)).collect()
    }

    fn op(&mut self, grouped: bool) -> Op {
        let rest = if matches!(self.kind, Kind::Mixed | Kind::Splits) { 8 } else { 1 };
        let total: u64 = self.weights.iter().sum::<u64>() + rest;
        let mut at = self.rng.below(total);
        let which = self.weights.iter().position(|&weight| {
            let here = at < weight;
            at = at.wrapping_sub(weight);
            here
        });
        match which {
            Some(1) => Op::Delete { key: self.key() },
            Some(2) => {
                let (key, some) = (self.key(), self.rng.below(16) as usize);
                let size = self.rng.below(4) as u32 + 2;
                Op::Update { key, at: some / 2, size, on_condition: some % 2 == 1 }
            }
            Some(3) => {
                let bytes = (!self.rng.one_in(4)).then(|| self.bytes());
                Op::Swap { key: self.key(), bytes }
            }
            Some(4) => {
                let writes = (0..1 + self.rng.below(4))
                    .map(|_| {
                        let bytes = (!self.rng.one_in(4)).then(|| self.bytes().min(200));
                        (self.key(), bytes)
                    })
                    .collect();
                let expects = (0..self.rng.below(3)).map(|_| self.key()).collect();
                Op::Batch { writes, expects }
            }
            Some(5) => {
                let longest = if self.kind == Kind::Churn { 200 } else { 3 };
                Op::Get { key: self.key(), hold: self.rng.below(4) * longest }
            }
            Some(6) => {
                let count = 1 + self.rng.below(4);
                Op::GetMany { keys: (0..count).map(|_| self.key()).collect() }
            }
            Some(7) if !grouped => Op::Scan,
            Some(8) if !grouped => Op::Group(self.some_ops()),
            Some(13) if !grouped => Op::Locked(self.some_ops()),
            Some(9) if !grouped => Op::Commit,
            Some(10) if !grouped => Op::Maintain,
            Some(11) if !grouped => Op::Retire,
            Some(12) if !grouped => self.table_op(),
            Some(14) => Op::Touch(Touch::some(self.setup, &mut self.rng)),
            _ => Op::Put { key: self.key(), bytes: self.bytes(), updatable: self.rng.one_in(3) },
        }
    }
}
