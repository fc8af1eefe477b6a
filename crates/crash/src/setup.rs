//! The parameters of a run: medium, durability, sizes, keys, and operations, all from one seed.

use crate::entry::Entry;
use crate::hostile;
use crate::phases::Trace;
use duramen::tuning::Tuning;
use duramen::{Durability, IndexKind, Options, Residence};
use duramen_media::sim::{Model, Rng, SimMedium};
use duramen_media::{Bytes, LINE_BYTES};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A durability on a model of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// The medium.
    pub model: Model,
    /// The durability asked for.
    pub durability: Durability,
}

const INTERVAL: Durability = Durability::Interval(Duration::from_secs(3600));

/// All cases.
pub const CASES: [Case; 8] = [
    Case { name: "line/every-write", model: Model::CacheLine, durability: Durability::EveryWrite },
    Case { name: "byte/every-write", model: Model::Byte, durability: Durability::EveryWrite },
    Case { name: "page/every-write", model: Model::Page, durability: Durability::EveryWrite },
    Case { name: "page/interval", model: Model::Page, durability: INTERVAL },
    Case { name: "page/manual", model: Model::Page, durability: Durability::Manual },
    Case { name: "line/interval", model: Model::CacheLine, durability: INTERVAL },
    Case { name: "line/manual", model: Model::CacheLine, durability: Durability::Manual },
    Case { name: "byte/manual", model: Model::Byte, durability: Durability::Manual },
];

/// The writes that a power failure may undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// No acknowledged write.
    Nothing,
    /// The writes since the last commit, from some moment on.
    Suffix,
    /// All writes since the last commit; a process crash undoes them too.
    Uncommitted,
}

impl Case {
    /// The writes that a power failure may undo.
    #[must_use]
    pub fn promise(&self) -> Promise {
        match self.durability {
            Durability::EveryWrite => Promise::Nothing,
            Durability::Interval(_) => Promise::Suffix,
            Durability::Manual => Promise::Uncommitted,
        }
    }

    /// Whether the surviving writes of several in flight are a prefix of them.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.model == Model::Page || self.promise() != Promise::Nothing
    }

    /// The case of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        CASES.into_iter().find(|case| case.name == name)
    }
}

/// An operation on a collection. Places are numbered over all tables.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named after what they are")]
pub enum Change {
    /// Makes a collection of these elements, replacing the current content.
    Make { place: usize, kind: usize, elements: Vec<(usize, usize)>, ttl: Option<u64> },
    /// Puts elements, or deletes them (`None`): a single one directly, several as one batch.
    Elements { place: usize, writes: Vec<(usize, Option<usize>)> },
    /// The root moves to another place, replacing the content there.
    Rename { from: usize, to: usize },
    /// The same collection gets a new root under the same key.
    Again { place: usize, ttl: Option<u64> },
    /// A plain value takes the place of a collection.
    Overwrite { place: usize },
    /// Deletes the key.
    Delete { place: usize },
}

/// One operation. Keys are cells: see [`Setup::cell`].
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named after what they are")]
pub enum Op {
    /// Puts a value of `bytes` bytes that expires in `ttl` milliseconds.
    Put { key: usize, bytes: usize, tag: u8, ttl: Option<u64>, updatable: bool },
    /// Deletes.
    Delete { key: usize },
    /// Overwrites `bytes` bytes of the value, at this offset in 1/256 of its length. The condition is a stamp that is
    /// fresh, or from before another write.
    Update { key: usize, share: usize, bytes: usize, fresh: Option<bool> },
    /// Writes on condition that the stamp is the one seen: `fresh` or from before another write.
    Swap { key: usize, fresh: bool, bytes: Option<usize> },
    /// Several writes (`None` deletes), on condition of stamps: key and whether it is fresh.
    Batch { writes: Vec<(usize, Option<usize>, Option<u64>)>, expects: Vec<(usize, bool)> },
    /// Reads a value and keeps it while other writes continue: it must not change.
    Hold { key: usize, then: Vec<Op> },
    /// Makes a table, or finds it, by its number from 1 on.
    Make { table: usize, ordered: bool },
    /// Empties a table.
    Clear { table: usize },
    /// Drops a table.
    Drop { table: usize },
    /// Swaps the content of two tables.
    Exchange { tables: [usize; 2] },
    /// Changes a collection.
    Collection(Change),
    /// Begins a group.
    Group,
    /// Ends it.
    FlushGroup,
    /// Lets time pass.
    Advance(u64),
    /// Sweeps, compacts, commits when the interval says so.
    Maintain,
    /// Commits.
    Commit,
    /// Closes the store and opens it again.
    Reopen,
    /// From now on writes go through the other writer.
    Switch,
    /// Drops the current writer; the next write makes a new one.
    Retire,
}

/// The parameters of one run.
#[derive(Clone)]
pub struct Setup {
    /// The seed of all parameters.
    pub seed: u64,
    /// Medium and durability.
    pub case: Case,
    /// Bytes of an extent.
    pub extent_bytes: u32,
    /// Maximum bytes of the medium.
    pub len_max: u64,
    /// The kind of index. Recovery of an image may choose the other kind: the medium does not depend on it.
    pub index: IndexKind,
    /// The part of the index that survives a crash.
    pub residence: Residence,
    /// Mask of the hash bits in use.
    pub hash_mask: u64,
    /// All keys that may be written.
    pub keys: Vec<Vec<u8>>,
    /// Named tables besides the store's own.
    pub tables: usize,
    /// Places for collections in each table: see [`crate::collections`].
    pub places: usize,
    /// Whether most operations are puts and deletes of few keys.
    pub churns: bool,
    /// Whether most operations are transactions with values that are large relative to a block.
    pub spans: bool,
    /// The operations.
    pub ops: Vec<Op>,
    /// The time of day.
    pub clock: Arc<AtomicU64>,
    /// Events that are forced in small stores.
    pub tuning: Tuning,
    /// Space that is not needed is given back.
    pub gives_back: bool,
    /// A bug of the medium's: flushes leave out the last line of unaligned ranges.
    pub flush_short: bool,
    /// The number of each key, made when first needed.
    pub numbers: OnceLock<HashMap<Vec<u8>, usize>>,
}

/// The time at which every run begins.
pub const TIME_BEGIN: u64 = 1_000_000;

impl Setup {
    /// The run of a seed; `case` overrides the seed's case.
    #[must_use]
    pub fn new(seed: u64, case: Option<Case>) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let case = case.unwrap_or(CASES[(seed % CASES.len() as u64) as usize]);
        let extent_bytes = [512, 512, 512, 1024, 768, 4096][rng.below(6) as usize];
        let head = (16u64 << 10).div_ceil(extent_bytes);
        // From too small for all content to roomy.
        let spread = [12, 30, 80][rng.below(3) as usize];
        // One in four: few keys, little space, and mostly dead records.
        let churns = rng.one_in(4);
        let extents = head + 9 + rng.below(if churns { 6 } else { spread });
        let mut hash_mask = [u64::MAX, u64::MAX, u64::MAX, 1 << 63 | 1, 0][rng.below(5) as usize];
        let mut tuning = Tuning::default();
        if rng.one_in(2) {
            tuning.extents_initial = 5 + rng.below(8) as u32;
            tuning.growth_bytes_min = extent_bytes << rng.below(3);
        }
        if rng.one_in(2) {
            tuning.compaction_bytes_min = Some(extent_bytes);
        }
        // About one in seven: all keys are in two buckets of a segment, so it splits after every few keys.
        let splits = !churns && rng.one_in(5);
        let key_count = if splits { 40 + rng.below(25) } else { 3 + rng.below(18) };
        let mut keys = keys(&mut rng, key_count);
        let mut extents = extents;
        if splits {
            hash_mask = !0xffff_ffff;
            tuning.split_count_min = 8;
            extents += 24;
        }
        keys.truncate(if churns { 4 } else { usize::MAX });
        let count = match (churns, splits) {
            (true, _) => 120 + rng.below(120),
            (_, true) => 80 + rng.below(80),
            _ => 20 + rng.below(60),
        };
        // A separate random source, so that seeds keep their runs.
        let mut own = Rng::new(seed ^ 0x006f_7264_6572_6564);
        let index = if own.one_in(2) { IndexKind::Ordered } else { IndexKind::Hash };
        tuning.leaf_slots = 2 + own.below(3) as usize;
        // Three in four write index checkpoints.
        tuning.close_checkpoint_bytes_min = if own.one_in(4) { u64::MAX } else { 0 };
        let residence = if own.one_in(2) { Residence::Persistent } else { Residence::Dram };
        tuning.checkpoint_bytes_min = 100 << own.below(5);
        // Index segments that each lie in one stripe: all segments, those of a store that grew a little, or none.
        tuning.stripe_bits = [1, 2, 11][own.below(3) as usize];
        // The following draws keep their original order.
        let _ = own.one_in(2);
        let tables = own.below(4) as usize;
        // Half of them have collections; again from a separate source.
        let mut theirs = Rng::new(seed ^ 0x636f_6c6c_6563_7473);
        let places = if theirs.one_in(2) { 0 } else { 1 + theirs.below(2) as usize };
        extents += if places > 0 { 6 } else { 0 };
        // One in six: transactions that span several blocks, half of them aborted.
        let spans = Rng::new(seed ^ 0x7370_616e_7300).one_in(6);
        extents += if spans { 16 } else { 0 };
        // Two in three give space back at once, in short pieces.
        let mut space = Rng::new(seed ^ 0x7370_6163_6500);
        let gives_back = !space.one_in(3);
        tuning.give_back_after = Duration::ZERO;
        tuning.give_back_bytes_min = extent_bytes * (2 + space.below(20));
        if space.one_in(2) {
            tuning.choose_extents = 1 + space.below(40) as u32;
        }
        // Half of them move records out of several blocks before they retire one.
        let mut copiers = Rng::new(seed ^ 0x636f_7069_6572);
        if copiers.one_in(2) {
            tuning.copiers_in_turn = Some(2 + copiers.below(3) as usize);
        }
        let mut setup = Self {
            gives_back,
            seed,
            case,
            index,
            residence,
            extent_bytes: extent_bytes as u32,
            len_max: (extents * extent_bytes).next_multiple_of(4096),
            hash_mask,
            keys,
            tables,
            places,
            churns,
            spans,
            ops: Vec::new(),
            clock: Arc::new(AtomicU64::new(TIME_BEGIN)),
            tuning,
            flush_short: false,
            numbers: OnceLock::new(),
        };
        // Most runs begin with all tables, empty.
        let make = |table| {
            let ordered = own.one_in(2);
            (!own.one_in(6)).then_some(Op::Make { table, ordered })
        };
        setup.ops = (1..=tables).filter_map(make).collect();
        setup.ops.append(&mut setup.some_ops(&mut rng, count));
        setup
    }

    /// Some operations.
    #[must_use]
    pub fn some_ops(&self, rng: &mut Rng, count: u64) -> Vec<Op> {
        // Each run has its own preferences, so that rare operations occur often in some runs.
        let weights: [u64; 13] = std::array::from_fn(|i| {
            if self.spans {
                return [20, 6, 1, 1, 40, 2, 1, 1, 6, 2, 2, 3, 2][i];
            }
            if self.churns {
                return [30, 20, 2, 2, 3, 1, 8, 2, 2, 3, 1, 2, 2][i];
            }
            let usual = [30, 14, 10, 6, 8, 3, 3, 4, 5, 5, 2, 2, 2][i];
            usual * [0, 1, 1, 1, 3][rng.below(5) as usize]
        });
        let large = rng.one_in(3);
        // In some runs, one of every few operations is about a table.
        let about_tables = if self.tables > 0 { [0, 5, 12, 30][rng.below(4) as usize] } else { 0 };
        let about_collections = if self.places > 0 { [2, 3, 6, 15][rng.below(4) as usize] } else { 0 };
        let mut ops = Vec::new();
        let mut group_left = 0;
        while (ops.len() as u64) < count || group_left > 0 {
            if about_tables > 0 && rng.one_in(about_tables) {
                ops.push(self.table_op(rng));
            }
            if about_collections > 0 && rng.one_in(about_collections) {
                ops.push(Op::Collection(self.collection_op(rng)));
            }
            if group_left > 0 {
                group_left -= 1;
                let which = [0, 0, 0, 1, 2, 3, 4][rng.below(7) as usize];
                ops.push(if group_left == 0 { Op::FlushGroup } else { self.op(rng, which, large) });
                continue;
            }
            let total: u64 = weights.iter().sum::<u64>() + 10;
            let mut at = rng.below(total);
            let which = weights.iter().position(|&weight| {
                let here = at < weight;
                at = at.wrapping_sub(weight);
                here
            });
            let op = self.op(rng, which.unwrap_or(0), large);
            if matches!(op, Op::Group) {
                group_left = 2 + rng.below(8);
            }
            ops.push(op);
        }
        ops
    }

    /// An operation on a whole table.
    fn table_op(&self, rng: &mut Rng) -> Op {
        let some = |rng: &mut Rng| 1 + rng.below(self.tables as u64) as usize;
        match rng.below(9) {
            0..=3 => Op::Clear { table: some(rng) },
            4 => Op::Drop { table: some(rng) },
            5 => Op::Exchange { tables: [some(rng), some(rng)] },
            _ => Op::Make { table: some(rng), ordered: rng.one_in(2) },
        }
    }

    fn op(&self, rng: &mut Rng, which: usize, large: bool) -> Op {
        let key = |rng: &mut Rng| {
            let key = rng.below(self.keys.len() as u64) as usize;
            if self.tables == 0 { key } else { self.cell(rng.below(self.tables as u64 + 1) as usize, key) }
        };
        let extent = u64::from(self.extent_bytes);
        let bytes = |rng: &mut Rng| {
            if self.spans {
                return rng.below(extent * 3 / 4) as usize;
            }
            let bound = match rng.below(12) {
                0 => return 0,
                1..=5 => 24,
                6..=8 => 80,
                9 | 10 => extent.min(600),
                _ if large => extent * 4,
                _ => 150,
            };
            rng.below(bound) as usize
        };
        let ttl = |rng: &mut Rng| rng.one_in(4).then(|| 1 + rng.below(5_000));
        match which {
            1 => Op::Delete { key: key(rng) },
            2 => {
                let (key, some) = (key(rng), rng.below(256 * 8) as usize);
                let fresh =
                    [None, None, None, None, Some(true), Some(true), Some(true), Some(false)][some % 8];
                let bytes = [1, 2, 4, 8, 8, 8, 3, 16][rng.below(8) as usize];
                Op::Update { key, share: some / 8, bytes, fresh }
            }
            3 => Op::Swap {
                key: key(rng),
                fresh: !rng.one_in(4),
                bytes: if rng.one_in(3) { None } else { Some(bytes(rng)) },
            },
            4 => {
                let writes = (0..1 + rng.below(if self.spans { 4 } else { 6 }))
                    .map(|_| (key(rng), (!rng.one_in(3)).then(|| bytes(rng)), ttl(rng)))
                    .collect();
                let expects = (0..rng.below(if self.spans { 1 } else { 3 }))
                    .map(|_| (key(rng), !rng.one_in(6)))
                    .collect();
                Op::Batch { writes, expects }
            }
            5 => Op::Group,
            6 => {
                let bound = if rng.one_in(4) { 60 } else { 8 };
                let then = (0..rng.below(bound))
                    .map(|_| {
                        if self.tables > 0 && rng.one_in(8) {
                            return self.table_op(rng);
                        }
                        let which = [0, 0, 1][rng.below(3) as usize];
                        self.op(rng, which, false)
                    })
                    .collect();
                Op::Hold { key: key(rng), then }
            }
            7 => Op::Advance(rng.below(4_000)),
            8 => Op::Maintain,
            9 => Op::Commit,
            10 => Op::Reopen,
            11 => Op::Switch,
            12 => Op::Retire,
            _ => Op::Put {
                key: key(rng),
                bytes: bytes(rng),
                tag: rng.below(256) as u8,
                ttl: ttl(rng),
                updatable: rng.one_in(3),
            },
        }
    }

    /// How the store is opened on boot `boot` of the machine.
    #[must_use]
    pub fn options(&self, boot: u64) -> Options {
        let clock = Arc::clone(&self.clock);
        let mut id = [7; 16];
        id[8..].copy_from_slice(&boot.to_le_bytes());
        Options {
            durability: self.case.durability,
            len_max: self.len_max,
            extent_bytes: Some(self.extent_bytes),
            recovery_threads: 1,
            background: false,
            clock: Some(Arc::new(move || clock.load(Relaxed))),
            index: self.index,
            residence: self.residence,
            // So few that keys evict each other.
            index_cache_slots: 8,
            // Every other boot reads all records despite the image: the content must be the same.
            index_checkpoint: !(self.seed ^ boot).is_multiple_of(2),
            hash_mask: self.hash_mask,
            tuning: self.tuning.clone(),
            // The head alone is a large part of a small store.
            compaction_dead_percent: if self.tuning.compaction_bytes_min.is_some() { 5 } else { 25 },
            keep_free_bytes: if self.gives_back { 0 } else { u64::MAX },
            boot_id: Some(id),
            ..Options::default()
        }
    }

    /// The same, and `trace` is notified of phases.
    #[must_use]
    pub fn options_traced(&self, boot: u64, trace: &Trace) -> Options {
        let mut options = self.options(boot);
        options.tuning.on_phase = Some(trace.listener());
        options
    }

    /// The cell in a [`State`](crate::oracle::State) of a table's key; table 0 is the store's own.
    #[must_use]
    pub fn cell(&self, table: usize, key: usize) -> usize {
        table * self.keys.len() + key
    }

    /// The cells of all keys of a table.
    #[must_use]
    pub fn cells_of(&self, table: usize) -> std::ops::Range<usize> {
        self.cell(table, 0)..self.cell(table + 1, 0)
    }

    /// The cell with the presence and the kind of a named table.
    #[must_use]
    pub fn cell_of_table(&self, table: usize) -> usize {
        self.cell(self.tables + 1, table - 1)
    }

    /// The number of cells.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.cell_of_root(self.all_places())
    }

    /// The table and the key of a cell.
    #[must_use]
    pub fn of_cell(&self, cell: usize) -> (usize, &[u8]) {
        (cell / self.keys.len(), &self.keys[cell % self.keys.len()])
    }

    /// The cell's content for an existing table.
    #[must_use]
    pub fn entry_of_table(ordered: bool) -> Entry {
        Entry { value: vec![u8::from(ordered)], tag: 0, expires_at: None, updatable: false }
    }

    /// The number of the key of this name.
    #[must_use]
    pub fn number(&self, name: &[u8]) -> Option<usize> {
        let numbers = || self.keys.iter().enumerate().map(|(number, name)| (name.clone(), number)).collect();
        self.numbers.get_or_init(numbers).get(name).copied()
    }

    /// The time of day.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// A one-line description.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "seed {} {}, index {}: extents of {} bytes, medium of {} KiB, {} keys, {} tables, \
             {} places of collections, {} ops, hash mask {:#x}",
            self.seed,
            self.case.name,
            self.index,
            self.extent_bytes,
            self.len_max >> 10,
            self.keys.len(),
            self.tables,
            self.all_places(),
            self.ops.len(),
            self.hash_mask
        )
    }
}

fn keys(rng: &mut Rng, count: u64) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| {
            let bytes = [2, 3, 8, 9, 16, 40, 120][rng.below(7) as usize];
            // The empty key is valid too.
            if i == 0 && rng.one_in(4) {
                return Vec::new();
            }
            let mut key = format!("{i:02}").into_bytes();
            key.resize(bytes, b'k');
            key
        })
        .collect()
}

/// The name of a named table.
#[must_use]
pub fn table_name(table: usize) -> Vec<u8> {
    format!("t{table}").into_bytes()
}

/// The value of this number.
#[must_use]
pub fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let mut value: Vec<u8> = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        value.extend_from_slice(&rng.bits().to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// The value of this number, with bytes of the medium in it ([`crate::hostile`]).
#[must_use]
pub fn hostile(medium: &SimMedium, number: u64, bytes: usize) -> Vec<u8> {
    let mut value = value(number, bytes);
    let mut rng = Rng::new(!number);
    hostile::copy(&mut value, medium.len(), |bound| rng.below(bound), |at, to| read(medium, at, to));
    value
}

/// Reads bytes of the medium from `at` on.
pub fn read(medium: &SimMedium, at: u64, to: &mut [u8]) {
    let memory = medium.memory();
    let mut line_at = None;
    let mut line = [0; LINE_BYTES as usize / 8];
    for (byte, at) in to.iter_mut().zip(at..) {
        if line_at != Some(at / LINE_BYTES) {
            line_at = Some(at / LINE_BYTES);
            line = memory.line((at / LINE_BYTES) as u32);
        }
        *byte = line[(at % LINE_BYTES / 8) as usize].to_le_bytes()[(at % 8) as usize];
    }
}
