//! Recovery: from the bytes on the medium to an index, after any crash.
//!
//! 1. walk the block headers ([`heads`]): which extents are free, which are data; after a clean close an index
//!    checkpoint, if there is one, lists them instead;
//! 2. decide which epochs count (`Cut`);
//! 3. fill the index from the checkpoint, as far as its blocks are unchanged ([`crate::checkpoint`]). Read every other
//!    data block, in parallel ([`scan`]): verify each record, and enter it in the index if it is the newest of its key
//!    so far. Then it is known which tables are named ([`crate::table::recover`]), and how much is free, used and live
//!    ([`tally`]);
//! 4. adopt: seal open blocks where their records end, free blocks that hold nothing, all durable before the superblock
//!    begins a new incarnation;
//! 5. record in the headers which transactions of several blocks count, durable before any compaction.
//!
//! Steps 1 to 3 write nothing, so `check` uses them too. But the bytes read may exist only in the CPU's caches, left by
//! a process that died, and step 4 builds on them. So on cache-line media step 3 flushes the bytes that it reads
//! (`Flushes`). Steps 4 and 5 are idempotent. A crash inside 4 leaves some blocks sealed where they ended anyway; after
//! one inside 5 the transactions are counted again.
//!
//! Where a block's records end:
//!
//! | block | a whole record follows the break | nothing follows |
//! |---|---|---|
//! | sealed, break before the seal | damage | damage |
//! | not sealed, though the superblock says that a clean close sealed all | damage | damage |
//! | open | damage, if that record says that all before it was durable (flag, or a committed epoch), or if only the process died, whose stores all survive in their order | torn write: the end |
//!
//! Damage is never passed over silently: opening refuses, or serves the rest and reports the damage ([`OnCorruption`]),
//! `check` reports, salvage saves the rest. A damaged block that is served from and has no seal that counts is sealed
//! to its very end. So each later recovery finds the damage too, whichever incarnation is the last then.

pub(crate) mod audit;
pub(crate) mod by_collection;
pub(crate) mod by_hash;
pub(crate) mod by_key;
pub(crate) mod bytes;
pub(crate) mod cut;
pub(crate) mod entries;
pub(crate) mod estimate;
pub(crate) mod given;
pub(crate) mod heads;
pub(crate) mod scan;
pub(crate) mod tally;
pub(crate) mod verify;

use crate::checkpoint::plan::{Checkpoint, Plan};
use crate::damage::claims::Claim;
use crate::get::value::CollectionId;
use crate::options::{IndexKind, OnCorruption, Options};
use crate::recover::audit::Accounts;
use crate::recover::estimate::Sample;
use crate::recover::given::{Flushes, Scan};
use crate::recover::heads::{Heads, Source};
use crate::recover::scan::Scanned;
use crate::recover::tally::Tally;
use crate::table::recover::Names;
use crate::table::tables::{Maker, Tables};
use crate::transaction::outcome::Outcome;
use crate::{Error, Result};
use duramen_index::either::Index;
use duramen_index::ordered::Parting;
use duramen_index::stripes::{ELEMENT_STRIPE_BITS, Stripes};
use duramen_index::{Hasher, KeepFilter, Loaded, MEDIUM_BYTES_MAX};
use duramen_log::blocks::{Blocks, Use};
use duramen_log::durability::StoreClock;
use duramen_log::format::block::{DataBlock, TransactionOutcome, TransactionOutcomes};
use duramen_log::format::checkpoint::{Damage, ExtentRun};
use duramen_log::format::record::{self, Kind};
use duramen_log::format::superblock::Superblock;
use duramen_log::format::{Epoch, Extent, HEAD_BYTES, Owner, OwnerKind, Version, block};
use duramen_log::read;
use duramen_log::space::{Space, free_blocks};
use duramen_log::sync::lock;
use duramen_log::sync::{Arc, Mutex, reclaim};
use duramen_media::{Granularity, Medium, Offset, PAGE_BYTES};
use std::time::Instant;

/// The results of recovery, for people and for tests.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Whether the store had been closed cleanly.
    pub clean: bool,
    /// The number of opens: one more each time.
    pub incarnation: u32,
    /// Valid records that were read, superseded ones included, and those that an index checkpoint knew of.
    pub records: u64,
    /// Of these, records that an index checkpoint knew of: they were not read.
    pub checkpointed: u64,
    /// Whether the store's dead bytes are an estimate: since all records were last read, some open found a checkpoint
    /// that covered only part of them.
    pub estimated: bool,
    /// Why an existing index checkpoint was not used: all records were read instead.
    pub checkpoint_refused: Option<String>,
    /// Blocks that hold records.
    pub blocks: u64,
    /// Blocks that end in a record that is not whole: a write that a crash interrupted, never acknowledged.
    pub torn: u64,
    /// Records of epochs that were not committed, left out.
    pub uncommitted: u64,
    /// Damage that the open found or that was already recorded, each with its place: non-empty only with
    /// [`OnCorruption::Serve`].
    pub damage: Vec<String>,
    /// Damaged parts that were repaired from their other copies.
    pub repaired: Vec<String>,
    /// Duration of the recovery.
    pub nanos: u64,
    /// Threads that recovery used.
    pub threads: usize,
}

/// A store in DRAM, recovered from its medium, ready to run.
pub(crate) struct Recovered {
    pub superblock: Superblock,
    pub incarnation: u32,
    pub epoch_base: Epoch,
    pub mark_slot: usize,
    pub time_floor: u64,
    /// Bytes of records.
    pub used_bytes: u64,
    /// Bytes of dead records, and space that compaction gains.
    pub dead_bytes: u64,
    pub hasher: Hasher,
    pub tables: Tables,
    /// The names of tables, and their owners.
    pub names: Vec<(Vec<u8>, Owner)>,
    /// Owners without a known name; a damaged part may hold their name.
    pub nameless: Vec<Owner>,
    pub blocks: Blocks,
    pub space: Space,
    pub summary: Summary,
    /// The runs of the checkpoint that was used.
    pub checkpoint: Vec<ExtentRun>,
    /// See [`Records::cells_unflushed`](crate::records::Records::cells_unflushed).
    pub cells_unflushed: bool,
    /// See [`Records::has_unverified`](crate::records::Records::has_unverified).
    pub has_unverified: bool,
    /// Blocks that are known to be damaged.
    pub damaged: u64,
    /// The blocks that a checkpoint kept were verified.
    pub verified: bool,
    /// On page media after an unclean end: blocks that were sealed in this epoch or a later one, or not at all, may
    /// have unverified pages. The kernel failed to write these, but shows them and treats them as written.
    unverified: Option<Epoch>,
    /// The claims of damaged records.
    pub claims: Vec<Claim>,
    outcomes: Vec<(DataBlock, Outcome)>,
    freed: Vec<(Extent, block::Header)>,
}

/// Reads a store's medium and, unless the rest is to be served, returns an error when anything on it is damaged. Writes
/// nothing.
pub(crate) fn recover<M: Medium>(medium: &M, superblock: Superblock, options: &Options) -> Result<Recovered> {
    let recovered = match read_from(medium, superblock, options, options.index_checkpoint) {
        Err(Stop::Checkpoint(why)) => {
            let mut recovered = read(medium, superblock, options)?;
            recovered.summary.checkpoint_refused = Some(why);
            recovered
        }
        recovered => recovered?,
    };
    let damage = &recovered.summary.damage;
    // A head that cannot be read cannot be written either, and opening a store begins with writing it.
    let is_served = options.on_corruption == OnCorruption::Serve
        && (damage.is_empty() || medium.unreadable(Offset(0), HEAD_BYTES).is_empty());
    if let Some(first) = damage.first().filter(|_| !is_served) {
        return Err(Error::corrupt(format!(
            "the medium is damaged in {} place{}: {first}; nothing was changed; run \"duramen check\" for all of them, and \
             \"duramen check --salvage NEW\" to save the valid records into a new store",
            damage.len(),
            if damage.len() == 1 { "" } else { "s" }
        )));
    }
    Ok(recovered)
}

/// Reads all of a store's medium, including damage. Writes nothing.
pub(crate) fn read<M: Medium>(medium: &M, superblock: Superblock, options: &Options) -> Result<Recovered> {
    Ok(read_from(medium, superblock, options, false)?)
}

/// Why a medium could not be read.
pub(crate) enum Stop {
    Failed(Error),
    /// The index checkpoint cannot be used, and why: all records must be read instead.
    Checkpoint(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(error) => error,
            Stop::Checkpoint(why) => Self::corrupt(format!("the index checkpoint cannot be used: {why}")),
        }
    }
}

fn read_from<M: Medium>(
    medium: &M,
    superblock: Superblock,
    options: &Options,
    with_checkpoint: bool,
) -> std::result::Result<Recovered, Stop> {
    let begun = Instant::now();
    let source = Source::new(medium, superblock, options)?;
    let heads = source.read_heads(with_checkpoint)?;
    let hasher = Hasher::new(superblock.store_id, options.hash_mask);
    let mut tables = empty_tables(&superblock, options, heads.incarnation);
    let blocks = Blocks::new(medium.len_max().min(MEDIUM_BYTES_MAX), source.extent_bytes, superblock.secret);
    let loaded = match &heads.checkpoint {
        Some(checkpoint) => {
            attach(&source, &heads.plan, checkpoint, &mut tables, &blocks).map_err(Stop::Checkpoint)?
        }
        None => Loaded::default(),
    };
    let (scanned, names) = read_records(&source, &heads, &hasher, &mut tables, &blocks)?;
    if heads.plan.runs.is_empty() {
        // The remaining blocks of the checkpoint are free from now on.
        tables.read_pages(&|| false);
    }
    source.flush_heads(&heads);
    let tally = Tally::of(&source, &heads, &blocks, loaded, scanned);
    let (dead_bytes, newest_epoch) = (tally.dead(), heads.newest_epoch());
    let Tally { space, mut summary, used, epoch_max, claims, outcomes, freed, damaged, .. } = tally;
    summary.nanos = begun.elapsed().as_nanos() as u64;
    let (plan, verified) = (&heads.plan, options.verify_at_open);
    Ok(Recovered {
        superblock,
        incarnation: heads.incarnation,
        // Above every epoch on the medium, so that records left out never count later.
        epoch_base: Epoch(epoch_max.0 + 2),
        mark_slot: heads.marks.first().map_or(0, |(slot, _)| slot ^ 1),
        time_floor: heads.time_floor(&superblock),
        used_bytes: used,
        dead_bytes,
        hasher,
        tables,
        names: names.of_tables,
        nameless: names.nameless,
        space,
        summary,
        checkpoint: plan.runs.iter().map(|run| (run.extent, run.header.extents)).collect(),
        cells_unflushed: source.flushes() == Flushes::Records && !plan.kept.is_empty(),
        has_unverified: damaged > 0 || (!verified && !plan.kept.is_empty()),
        damaged,
        verified,
        unverified: (medium.granularity() == Granularity::Page && !superblock.clean)
            .then_some(Epoch(newest_epoch)),
        claims,
        outcomes,
        freed,
        blocks,
    })
}

/// Reads the blocks that the plan lists, fills the indexes, and determines which tables are named.
fn read_records<M: Medium>(
    source: &Source<'_, M>,
    heads: &Heads<'_>,
    hasher: &Hasher,
    tables: &mut Tables,
    blocks: &Blocks,
) -> std::result::Result<(Scanned, Names), Stop> {
    let Source { medium, superblock, options, extent_bytes, threads, rebooted } = *source;
    let (plan, is_all) = (&heads.plan, heads.checkpoint.is_none());
    let sample = Sample::of(medium, extent_bytes, &plan.data, &heads.holes);
    let mut parting = Parting::default();
    tables.fill(Owner::STORE, |index| match index {
        Index::Ordered(_) => parting = sample.parting(),
        Index::Hash(empty) if is_all => empty.reserve(sample.keys_of_log(Owner::STORE, hasher)),
        Index::Hash(_) | Index::Collection(_) => {}
    });
    let scan = Scan {
        medium,
        holes: &heads.holes,
        hasher,
        tables,
        sample: &sample,
        parting: &parting,
        parting_whole: &Parting::new(&[], 0),
        blocks,
        extent_bytes,
        cut: heads.cut,
        epochs: source.epochs(heads),
        killed: !rebooted,
        all_sealed: superblock.clean && superblock.sealed,
        now: StoreClock::new(options.clock.clone(), heads.time_floor(&superblock)).now(),
        flushes: source.flushes(),
        counts_all: is_all,
        damaged: Mutex::default(),
        lost_heads: !heads.headers.lost.is_empty(),
        on_progress: options.on_progress.as_ref(),
    };
    let mut scanned = scan.run(&plan.data, threads);
    scan.enter_gathered(std::mem::take(&mut scanned.by_key), threads);
    let mut by_collection = std::mem::take(&mut scanned.by_collection);
    if let Some(checkpoint) = &heads.checkpoint {
        by_collection.extend(scan.changed_collections(checkpoint));
        scanned.roots.append(&mut scan.roots_of_checkpoint(checkpoint, plan));
    }
    scan.build_collections(by_collection, threads);
    let has_damage =
        heads.has_damage() || scanned.outcomes.iter().any(|(_, outcome)| !outcome.damage.is_empty());
    let names = scan.resolve_names(&scanned.roots, has_damage);
    match lock(&scan.damaged).take() {
        Some(why) => Err(Stop::Checkpoint(why)),
        None => Ok((scanned, names)),
    }
}

fn empty_tables(superblock: &Superblock, options: &Options, incarnation: u32) -> Tables {
    let tuning = &options.tuning;
    let maker = Maker {
        stripes: Arc::new(Stripes::new(tuning.stripe_bits)),
        elements: Arc::new(Stripes::new(tuning.stripe_bits.min(ELEMENT_STRIPE_BITS))),
        seed: superblock.store_id,
        cache_slots: options.index_cache_slots,
        split_count_min: tuning.split_count_min,
        leaf_slots: tuning.leaf_slots,
        arena: Arc::default(),
    };
    let kind = match options.index {
        IndexKind::Hash => OwnerKind::Hash,
        IndexKind::Ordered => OwnerKind::Ordered,
    };
    Tables::new(maker, kind, incarnation)
}

/// Enters the kept blocks, and attaches the indexes to the checkpoint; they get its slots that point into these blocks.
fn attach<M: Medium>(
    source: &Source<'_, M>,
    plan: &Plan,
    checkpoint: &Checkpoint<'_>,
    tables: &mut Tables,
    blocks: &Blocks,
) -> std::result::Result<Loaded, String> {
    let threads = source.threads;
    for kept in &plan.kept {
        let state = if kept.damage == Damage::None { Use::Sealed } else { Use::Damaged };
        let block = blocks.found(kept.extent, kept.extents, kept.generation, state);
        if kept.damage == Damage::Unknown {
            block.set_unknown();
        }
        block.set_tail(kept.tail);
        block.set_unverified(true);
        block.live_add(kept.live.into());
        block.set_expiry_seconds(kept.expiry);
    }
    for run in &plan.runs {
        blocks.found(run.extent, run.header.extents, run.header.generation, Use::Checkpoint);
    }
    let mut all = Loaded::default();
    for (of, pages, roots) in checkpoint.tables() {
        let counts = plan.counts(source.extent_bytes);
        let loaded = match counts {
            KeepFilter::All => Loaded { slots: of.slots, keys: of.keys, changed: of.changed },
            KeepFilter::Kept { .. } => Index::count(checkpoint.kind_of(of.owner), pages, &counts, threads),
        };
        if let Some(attached) = tables.fill(of.owner, |index| index.attach(pages, counts, threads)) {
            attached?;
        }
        if let Some(table) = tables.of(of.owner) {
            table.count_keys(0, loaded.keys as i64);
            if plan.exact {
                roots.iter().for_each(|&root| table.add_name(root));
            }
            if of.owner.is_collection() {
                tables.add_unread(table);
            }
        }
        all = all.plus(loaded);
    }
    tables.raise_versions(checkpoint.root.version);
    Ok(all)
}

impl Recovered {
    /// Gives space to all that may be stored to: the store may have been copied without its zeroes.
    fn back<M: Medium>(&self, medium: &M) -> Result<()> {
        let extent_bytes = u64::from(self.superblock.extent_bytes);
        let mut from = 0;
        for (extent, extents) in self.space.given_back() {
            let at = u64::from(extent.0) * extent_bytes;
            // With the page of the header.
            medium.back(Offset(from), (at + PAGE_BYTES).min(medium.len()) - from)?;
            from = (u64::from(extent.0) + u64::from(extents)) * extent_bytes;
        }
        let end = u64::from(self.superblock.extents) * extent_bytes;
        if from < end {
            medium.back(Offset(from), end - from)?;
        }
        Ok(())
    }

    /// Makes the decisions of recovery durable. Afterwards every block is sealed or free.
    pub(crate) fn adopt<M: Medium>(&self, medium: &M) -> Result<()> {
        let extent_bytes = u64::from(self.superblock.extent_bytes);
        let offset = |extent: Extent| Offset(u64::from(extent.0) * extent_bytes);
        self.back(medium)?;
        // Counts from the next incarnation on, whose base is above it.
        let epoch = Epoch(self.epoch_base.0 - 1);
        for (data, outcome) in &self.outcomes {
            let is_old = |from| data.header.seal.is_some_and(|(_, epoch)| epoch < from);
            let can_be_read = || medium.unreadable(offset(data.extent), outcome.tail).is_empty();
            if self.unverified.is_some_and(|from| !is_old(from))
                && (outcome.damage.is_empty() || can_be_read())
            {
                // Pages that are stored to are written with the seals.
                for at in (0..outcome.tail).step_by(PAGE_BYTES as usize).chain([outcome.tail - 8]) {
                    let at = offset(data.extent).plus(at);
                    medium.store_u64(at, medium.load_u64(at));
                }
            }
            // `confirm_transactions` records later that a transaction counts.
            let transaction_outcomes = outcome.transaction_outcomes.only(TransactionOutcome::Void);
            if transaction_outcomes != TransactionOutcomes::default() {
                data.header.store_transaction_outcomes(
                    medium,
                    offset(data.extent),
                    data.header.transaction_outcomes.with(transaction_outcomes),
                );
                medium.drain();
            }
            if outcome.reseal {
                data.header.publish_seal(medium, offset(data.extent), outcome.tail, epoch);
            }
        }
        // Blocks that hold nothing.
        Ok(free_blocks(medium, extent_bytes, &self.freed)?)
    }

    /// Records in the headers that transactions of several blocks count, before compaction may take one of these apart.
    /// This happens only once the new incarnation is durable: the death of a process, without a reboot, leaves
    /// transactions of epochs that are not committed. Until their epochs count permanently, a power failure may still
    /// remove the commit record of such a transaction, and then all of it must go.
    pub(crate) fn confirm_transactions<M: Medium>(&self, medium: &M) -> Result<()> {
        let extent_bytes = u64::from(self.superblock.extent_bytes);
        let mut any = false;
        for (data, outcome) in &self.outcomes {
            if outcome.transaction_outcomes.only(TransactionOutcome::Counts) != TransactionOutcomes::default()
            {
                let at = Offset(u64::from(data.extent.0) * extent_bytes);
                data.header.store_transaction_outcomes(
                    medium,
                    at,
                    data.header.transaction_outcomes.with(outcome.transaction_outcomes),
                );
                any = true;
            }
        }
        if any {
            medium.drain();
            medium.sync()?;
        }
        Ok(())
    }
}

impl Recovered {
    /// The counts, to be compared with the blocks.
    pub(crate) fn accounts<'a, M: Medium>(&'a self, medium: &'a M) -> Accounts<'a, M> {
        Accounts {
            medium,
            hasher: &self.hasher,
            tables: &self.tables,
            blocks: &self.blocks,
            extent_bytes: self.superblock.extent_bytes.into(),
            extents: self.superblock.extents,
            free: self.space.runs(),
            kept: Vec::new(),
            put_off: None,
            transaction_outcomes: self
                .outcomes
                .iter()
                .map(|(data, outcome)| (data.extent, outcome.transaction_outcomes))
                .collect(),
            estimated: self.summary.estimated,
        }
    }

    /// The newest whole record of `key` in the table of `owner`: its version, and whether it is a tombstone or expired.
    pub(crate) fn newest<M: Medium>(&self, medium: &M, owner: Owner, key: &[u8]) -> Option<(Version, bool)> {
        let guard = reclaim::pin();
        let mut version = Version(0);
        let table = self.tables.of(owner)?;
        let slot = table.index.find(self.hasher.hash(key), key, &guard, |slot| {
            let (header, bytes) = read::whole_record(medium, slot.location());
            version = header.version;
            header.key(bytes) == key
        });
        slot.map(|slot| (version, slot.is_tombstone()))
    }

    /// Calls `visit` with key and value of every live key of the table of `owner`.
    pub(crate) fn for_each<M: Medium>(
        &self,
        medium: &M,
        owner: Owner,
        mut visit: impl FnMut(&[u8], &[u8], crate::Meta),
    ) {
        let Some(table) = self.tables.of(owner) else { return };
        let guard = reclaim::pin();
        let (mut cursor, mut slots) = (0, Vec::new());
        loop {
            // Visited after the index's lock is released: the visitor may take locks of another store.
            cursor = table.index.scan(cursor, &guard, &mut |slot| slots.push(slot));
            for slot in slots.drain(..) {
                if !slot.is_tombstone() {
                    let (header, bytes) = read::whole_record(medium, slot.location());
                    let from = header.value_at() as usize;
                    let value = &bytes[from..from + header.value_bytes as usize];
                    let is_root = header.kind == Kind::Root;
                    let names = is_root.then(|| CollectionId(record::owner_of_root(value)));
                    let value = if is_root { &value[8..] } else { value };
                    let meta = crate::Meta {
                        collection: names,
                        tag: header.tag,
                        expires_at: header.expires_at,
                        updatable: header.kind.is_updatable(),
                        room: crate::Room::Free,
                    };
                    visit(header.key(bytes), value, meta);
                }
            }
            if cursor == 0 {
                return;
            }
        }
    }
}
