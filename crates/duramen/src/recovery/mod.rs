//! Recovery: from the bytes on the medium to an index, after any crash.
//!
//! 1. walk the block headers: which units are free, which are data; after a clean close an index image, if there is one,
//!    tells that instead;
//! 2. decide which epochs count (`Cut`);
//! 3. fill the index from the image, as far as its blocks are what they were ([`image`]), and read every other
//!    data block, in parallel: verify each record, and enter it in the index if it is the newest of its key so far;
//! 4. adopt: seal what was open where its records end, free what holds nothing, all durable before the superblock
//!    begins a new incarnation.
//!
//! Steps 1 to 3 write nothing, so `check` uses them too. But what was read may be no more than what a process
//! that died left in the CPU's caches, and step 4 builds on it: so on cache-line media step 3
//! flushes what it reads (`Flushes`). Step 4 is idempotent: a crash inside
//! leaves some blocks sealed where they ended anyway.
//!
//! Where a block's records end:
//!
//! | block | a whole record follows behind the break | nothing follows |
//! |---|---|---|
//! | sealed, break before the seal | damage | damage |
//! | not sealed, though the superblock says that a clean close sealed all | damage | damage |
//! | open | damage, if that record says that all before it was durable (flag, or a committed epoch), or if only the process died, whose stores all survive in their order | torn write: the end |
//!
//! Damage is never passed over silently: opening refuses, or serves the rest and says so ([`OnDamage`]), `check` reports, salvage saves the
//! rest. A damaged block that is served from is sealed to its very end if it had no seal that counts: so each later recovery finds
//! the damage too, whatever incarnation then is the last.

pub(crate) mod audit;
mod by_hash;
mod by_key;
mod bytes;
mod claims;
mod entries;
mod estimate;
mod given;
pub(crate) mod headless;
pub(crate) mod image;
mod outcome;
mod scan;
mod units;
mod verify;

use crate::format::block::{DataBlock, Fates};
use crate::format::holes::Holes;
use crate::format::image::{Extent, Harm, Kept};
use crate::format::mark::Mark;
use crate::format::record::{self, Kind};
use crate::format::superblock::{BOOT_UNKNOWN, Regime, Superblock};
use crate::format::{Epoch, Generation, HEAD_BYTES, Owner, OwnerKind, Unit, Version, block};
use crate::index::either::Index;
use crate::index::ordered::Parting;
use crate::index::stripes::{ELEMENT_STRIPE_BITS, Stripes};
use crate::index::{Counts, Hasher, Loaded, MEDIUM_BYTES_MAX};
use crate::log::blocks::{Blocks, Use, room_won};
use crate::log::read;
use crate::log::space::{Space, free_blocks};
use crate::mutants::{Mutant, planted};
use crate::options::{IndexKind, OnDamage, Options};
use crate::read::CollectionId;
use crate::read::table::{self, Maker, Tables};
use crate::sync::lock;
use crate::sync::{Arc, Mutex, reclaim};
use crate::{Error, ErrorKind, Result};
use audit::Accounts;
use by_key::ByKey;
use duramen_media::{Granularity, Medium, Offset, PAGE_BYTES};
use image::{Image, Plan};
use std::collections::{HashMap, HashSet};
use std::time::Instant;

pub(crate) use claims::{Claim, Said};
pub(crate) use outcome::Outcome;

/// What recovery found and did, for people and for tests.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Whether the store had been closed cleanly.
    pub clean: bool,
    /// Counts opens: one more each time.
    pub incarnation: u32,
    /// Valid records that were read, superseded ones included, and those that an index image knew of.
    pub records: u64,
    /// Of these, records that an index image knew of: they were not read.
    pub imaged: u64,
    /// Whether the store's dead bytes are an estimate: some open since all records were read last found an image that told of
    /// part of them only.
    pub estimated: bool,
    /// Why an index image that was there was not used: all records were read instead.
    pub image_refused: Option<String>,
    /// Blocks that hold records.
    pub blocks: u64,
    /// Blocks that ended in a record that is not whole: a write that a crash interrupted, never acknowledged.
    pub torn: u64,
    /// Records of epochs that were not committed, left out.
    pub uncommitted: u64,
    /// Damage that the open found or was told of, each with its place: there is only any with [`OnDamage::Serve`].
    pub damage: Vec<String>,
    /// What was found damaged and is whole again from its other copy.
    pub repaired: Vec<String>,
    /// Time it took.
    pub nanos: u64,
    /// Threads it used.
    pub threads: usize,
}

/// Which records count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Epochs from `base` on count only up to `committed`.
    pub base: Epoch,
    pub committed: Epoch,
}

impl Cut {
    pub(crate) const ALL: Self = Self { base: Epoch(Epoch::MAX), committed: Epoch(Epoch::MAX) };

    pub(crate) fn keeps(&self, epoch: Epoch) -> bool {
        epoch < self.base || epoch <= self.committed
    }
}

/// Block headers that are fetched while one is read.
const HEADERS_AHEAD: u64 = 8;

/// What the block headers tell.
#[derive(Default)]
struct Headers {
    data: Vec<DataBlock>,
    free: Vec<(Unit, block::Header)>,
    damage: Vec<String>,
    /// Units whose header is damaged.
    lost: Vec<Unit>,
    incarnation_max: u32,
}

/// A store in DRAM, as its medium tells, ready to run.
pub(crate) struct Recovered {
    pub superblock: Superblock,
    pub incarnation: u32,
    pub epoch_base: Epoch,
    pub mark_slot: usize,
    pub time_floor: u64,
    /// Bytes of records.
    pub used_bytes: u64,
    /// Those of them that are dead, and room that compaction wins.
    pub dead_bytes: u64,
    pub hasher: Hasher,
    pub tables: Tables,
    /// The names of tables, and their owners.
    pub names: Vec<(Vec<u8>, Owner)>,
    /// Owners that nothing names, though a name of theirs may lie in what is damaged.
    pub nameless: Vec<Owner>,
    pub blocks: Blocks,
    pub space: Space,
    pub summary: Summary,
    /// The extents of the image that was used.
    pub image: Vec<Extent>,
    /// See [`Records::cells_unflushed`](crate::read::Records::cells_unflushed).
    pub cells_unflushed: bool,
    /// See [`Records::has_doubts`](crate::read::Records::has_doubts).
    pub doubts: bool,
    /// Blocks that are known to be damaged.
    pub damaged: u64,
    /// What an image knew of was verified.
    pub verified: bool,
    /// On page media after an unclean end: blocks that were sealed in an epoch from this one on, or not at all, may have pages that the
    /// kernel shows and takes for written, though it failed to write them.
    doubtful: Option<Epoch>,
    /// What damaged records say of themselves.
    pub claims: Vec<Claim>,
    outcomes: Vec<(DataBlock, Outcome)>,
    freed: Vec<(Unit, block::Header)>,
}

/// Reads a store's medium and, unless the rest is to be served, refuses it when anything on it is damaged. Writes nothing.
pub(crate) fn recover<M: Medium>(medium: &M, superblock: Superblock, options: &Options) -> Result<Recovered> {
    let recovered = match read_from(medium, superblock, options, options.index_image) {
        Err(Stop::Image(why)) => {
            let mut recovered = read(medium, superblock, options)?;
            recovered.summary.image_refused = Some(why);
            recovered
        }
        recovered => recovered?,
    };
    let damage = &recovered.summary.damage;
    // A head that cannot be read cannot be written either, which is how a store begins.
    let is_served = options.on_damage == OnDamage::Serve
        && (damage.is_empty() || medium.unreadable(Offset(0), HEAD_BYTES).is_empty());
    if let Some(first) = damage.first().filter(|_| !is_served) {
        return Err(Error::corrupt(format!(
            "the medium is damaged in {} place{}: {first}; nothing was changed; run \"duramen check\" for all of them, and \
             \"duramen check --salvage NEW\" to save what is valid into a new store",
            damage.len(),
            if damage.len() == 1 { "" } else { "s" }
        )));
    }
    Ok(recovered)
}

/// Reads all of a store's medium, damage and all. Writes nothing.
pub(crate) fn read<M: Medium>(medium: &M, superblock: Superblock, options: &Options) -> Result<Recovered> {
    Ok(read_from(medium, superblock, options, false)?)
}

/// Why a medium could not be read.
enum Stop {
    Failed(Error),
    /// The index image cannot be used, and why: all must be read instead.
    Image(String),
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
            Stop::Image(why) => Self::corrupt(format!("the index image cannot be used: {why}")),
        }
    }
}

fn read_from<M: Medium>(
    medium: &M,
    superblock: Superblock,
    options: &Options,
    with_image: bool,
) -> std::result::Result<Recovered, Stop> {
    let begun = Instant::now();
    let unit_bytes = u64::from(superblock.unit_bytes);
    let wanted = u64::from(superblock.units) * unit_bytes;
    if medium.len() < wanted {
        return Err(Stop::Failed(Error::corrupt(format!(
            "the medium has {} bytes, the superblock says {wanted}: it was truncated; restore the missing part, or run \
             \"duramen check --salvage NEW\" on a copy that is extended with zeros",
            medium.len()
        ))));
    }
    let threads = match options.recovery_threads {
        0 => crate::sync::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let hasher = Hasher::new(superblock.store_id, options.hash_mask);
    let mut holes = Holes::of_what_is_read(medium);
    let image = match with_image {
        true => {
            let kind = u8::from(options.index == IndexKind::Ordered);
            Image::find(medium, &superblock, kind, &holes, threads).map_err(Stop::Image)?
        }
        false => None,
    };
    // With memory for a medium, to ask for each header takes longer than to ask for all of it.
    if image.is_none() || !superblock.clean && medium.granularity() == Granularity::CacheLine {
        holes = Holes::of_on_threads(medium, wanted, threads);
    }
    if image.is_none() {
        medium.fault_in(Offset(0), wanted);
    }
    // After a clean close the image says it all.
    let known = image.as_ref().filter(|_| superblock.clean);
    // To say what is wrong with it.
    let must_read = |kept: &Kept| kept.harm != Harm::None && options.on_damage == OnDamage::Refuse;
    let known = known
        .map(|image| image.plan_at_close(medium, &holes, unit_bytes, must_read))
        .transpose()
        .map_err(Stop::Image)?;
    let mut headers = match known {
        None => walk_headers(medium, &superblock, &holes),
        Some(_) => Headers::default(),
    };
    let marks = Mark::find(medium, &holes);
    let incarnation = next_incarnation(&superblock, &headers, &marks)?;
    let mut tables = empty_tables(&superblock, options, incarnation);
    let rebooted = superblock.boot_id == BOOT_UNKNOWN || superblock.boot_id != options.boot_id_now();
    let cut = decide_cut(medium, &superblock, &headers, &marks, rebooted, &holes);
    let time_floor =
        marks.iter().map(|(_, mark)| mark.time_floor).max().unwrap_or(0).max(superblock.time_floor);
    let bytes_max = medium.len_max().min(MEDIUM_BYTES_MAX);
    let blocks = Blocks::new(bytes_max, unit_bytes);
    let all_free = known.is_some();
    let data = std::mem::take(&mut headers.data);
    let plan = match (known, &image) {
        (Some(plan), _) => plan,
        (None, Some(image)) => image.plan(data, |epoch| cut.keeps(epoch), must_read),
        (None, None) => Plan { data, ..Plan::default() },
    };
    let loaded = match &image {
        Some(image) => {
            attach(&mut tables, &blocks, unit_bytes, image, &plan, threads).map_err(Stop::Image)?
        }
        None => Loaded::default(),
    };
    let sample = estimate::Sample::of(medium, unit_bytes, &plan.data, &holes);
    let mut parting = Parting::default();
    tables.fill(Owner::STORE, |index| match index {
        Index::Ordered(_) => parting = sample.parting(),
        Index::Hash(empty) if image.is_none() => empty.reserve(sample.keys_of_log(Owner::STORE, &hasher)),
        Index::Hash(_) | Index::Collection(_) => {}
    });
    let clock = crate::durability::StoreClock::new(options.clock.clone(), time_floor);
    let flushes = flushes_for(medium.granularity(), superblock.clean, rebooted);
    // Each commit writes a mark, so the last epoch of the store is at most one above the newest.
    let epoch_last = if superblock.sequence == 0 { Epoch::MAX - 2 } else { 0 };
    let epoch_last =
        epoch_last.max(marks.first().map_or(0, |(_, mark)| mark.epoch.0).max(superblock.epoch_base) + 1);
    let scan = given::Scan {
        medium,
        holes: &holes,
        hasher: &hasher,
        tables: &tables,
        sample: &sample,
        parting: &parting,
        parting_whole: &Parting::new(&[], 0),
        blocks: &blocks,
        unit_bytes,
        cut,
        epochs: superblock.epoch_base..=epoch_last,
        killed: !rebooted,
        all_sealed: superblock.clean && superblock.sealed,
        now: clock.now(),
        flushes,
        counts_all: image.is_none(),
        damaged: Mutex::default(),
        lost_heads: !headers.lost.is_empty(),
        on_progress: options.on_progress.as_ref(),
    };
    let mut scanned = scan.run(&plan.data, threads);
    let mut by_owner: HashMap<Owner, Vec<ByKey>> = HashMap::new();
    for (owner, gathered) in std::mem::take(&mut scanned.by_key) {
        by_owner.entry(owner).or_default().push(gathered);
    }
    for (owner, gathered) in by_owner {
        let Some(table) = tables.of(owner) else { continue };
        match image {
            // What the image does not know has an index that is empty, but is entered all the same.
            None => scan.build(&table, &gathered, threads),
            Some(_) => scan.enter_in_order(&table, &gathered, threads),
        }
    }
    let names = names_in(&scan);
    let has_damage = !headers.damage.is_empty()
        || holes.damage().next().is_some()
        || scanned.outcomes.iter().any(|(_, outcome)| !outcome.damage.is_empty())
        || plan.kept.iter().any(|kept| kept.harm != Harm::None);
    let mut nameless = Vec::new();
    // What names it may be what is damaged.
    let is_kept = has_damage && !planted(Mutant::NamelessBuried);
    let named = names_of_owners(&scan, &names, &scanned.roots, is_kept);
    for table in tables.unnamed(&named) {
        if is_kept {
            nameless.push(table.owner);
        } else {
            if !planted(Mutant::DeadCountedLive) {
                scan.bury(&table);
            }
            tables.bury(table.owner);
        }
    }
    if let Some(why) = lock(&scan.damaged).take() {
        return Err(Stop::Image(why));
    }
    if plan.extents.is_empty() {
        // What is left of the image's own blocks is free from now on.
        tables.read_pages(&|| false);
    }
    if medium.granularity() == Granularity::CacheLine {
        medium.flush(Offset(0), HEAD_BYTES);
        for &(unit, _) in headers.free.iter().filter(|_| flushes != given::Flushes::Nothing) {
            medium.flush(Offset(u64::from(unit.0) * unit_bytes), block::HEADER_BYTES);
        }
        medium.drain();
    }

    let mut space = Space::new(superblock.units, unit_bytes, incarnation);
    let mut freed = Vec::new();
    for &(unit, header) in &headers.free {
        // Free, and not to be written.
        if options.on_damage == OnDamage::Serve
            && holes.touch(u64::from(unit.0) * unit_bytes, u64::from(header.units) * unit_bytes)
        {
            let block = blocks.found(unit, header.units, Generation(0), Use::Damaged);
            block.set_tail(block::HEADER_BYTES);
            block.set_unknown();
            continue;
        }
        space.give(unit, header.units);
        if header.units > 1 {
            freed.push((unit, header));
        }
    }
    if all_free {
        plan.gaps(HEAD_BYTES.div_ceil(unit_bytes) as u32..superblock.units, |unit, units| {
            space.give(unit, units)
        });
    }
    let mut summary = Summary {
        clean: superblock.clean,
        incarnation,
        records: scanned.records + loaded.slots,
        imaged: loaded.slots,
        estimated: image.as_ref().is_some_and(|image| image.root.estimated || !plan.exact),
        uncommitted: scanned.uncommitted,
        damage: holes.damage().chain(headers.damage).collect(),
        threads,
        ..Summary::default()
    };
    let mut outcomes = Vec::new();
    let mut used: u64 = plan.kept.iter().map(|kept| kept.tail - block::HEADER_BYTES).sum();
    let room_in = |units: u32, tail| room_won(u64::from(units) * unit_bytes, tail);
    let mut room: u64 = plan.kept.iter().map(|kept| room_in(kept.units, kept.tail)).sum();
    let mut live: u64 = plan.kept.iter().map(|kept| u64::from(blocks.at(kept.unit).live_sealed())).sum();
    summary.blocks += plan.kept.len() as u64;
    let mut epoch_max = superblock.epoch_base.max(marks.first().map_or(0, |(_, mark)| mark.epoch.0));
    epoch_max = epoch_max.max(image.as_ref().map_or(0, |image| image.root.epoch.0));
    let mut claims = Vec::new();
    for (data, mut outcome) in scanned.outcomes {
        claims.append(&mut outcome.claims);
        epoch_max = epoch_max.max(outcome.epoch_max.0);
        summary.torn += u64::from(outcome.torn);
        summary.damage.extend(outcome.damage.iter().cloned());
        let entry = blocks.at(data.unit);
        live += u64::from(entry.live_sealed());
        if !outcome.holds && outcome.damage.is_empty() {
            entry.free();
            space.give(data.unit, data.header.units);
            freed.push((data.unit, data.header));
            continue;
        }
        summary.blocks += 1;
        used += outcome.tail - block::HEADER_BYTES;
        room += room_in(data.header.units, outcome.tail);
        outcomes.push((data, outcome));
    }
    for units in runs_of(&headers.lost) {
        let (from, bytes) = (u64::from(units.start) * unit_bytes, units.len() as u64 * unit_bytes);
        for part in holes.between(from, bytes) {
            let first = if part.start == from { block::HEADER_BYTES } else { 0 };
            let found = read::block(medium, Offset(part.start), part.end - part.start);
            claims.extend(claims::claims_in(found, part.start, first, found.len() as u64));
        }
    }
    claims.sort_unstable_by_key(|claim| claim.at);
    for unit in headers.lost {
        let block = blocks.found(unit, 1, Generation(0), Use::Damaged);
        block.set_tail(block::HEADER_BYTES);
        block.set_unknown();
    }
    let verified = options.verify_at_open;
    if verified {
        let wrong = verify::verify_kept(medium, &blocks, &plan.kept, &holes, threads);
        summary.damage.extend(wrong);
    }
    for kept in plan.kept.iter().filter(|kept| kept.harm != Harm::None) {
        summary.damage.push(format!(
            "block at unit {} (offset {:#x}): it was known to be damaged before, and has not been mended",
            kept.unit.0,
            blocks.offset(kept.unit)
        ));
    }
    let states = blocks.walk(0..superblock.units).map(|(_, _, state)| state);
    let damaged = states.filter(|&state| state == Use::Damaged).count() as u64;
    summary.nanos = begun.elapsed().as_nanos() as u64;
    Ok(Recovered {
        superblock,
        incarnation,
        // Above every epoch on the medium, so that what was left out never counts later.
        epoch_base: Epoch(epoch_max + 2),
        mark_slot: marks.first().map_or(0, |(slot, _)| slot ^ 1),
        time_floor,
        used_bytes: used,
        dead_bytes: used.saturating_sub(live) + room,
        hasher,
        tables,
        names,
        nameless,
        blocks,
        space,
        summary,
        image: plan.extents.iter().map(|extent| (extent.unit, extent.header.units)).collect(),
        cells_unflushed: flushes == given::Flushes::Records && !plan.kept.is_empty(),
        doubts: damaged > 0 || (!verified && !plan.kept.is_empty()),
        damaged,
        verified,
        doubtful: (medium.granularity() == Granularity::Page && !superblock.clean)
            .then(|| marks.first().map_or(Epoch(0), |(_, mark)| mark.epoch)),
        claims,
        outcomes,
        freed,
    })
}

/// Units in order, as runs.
fn runs_of(units: &[Unit]) -> Vec<std::ops::Range<u32>> {
    let mut runs: Vec<std::ops::Range<u32>> = Vec::new();
    for unit in units {
        match runs.last_mut() {
            Some(run) if run.end == unit.0 => run.end += 1,
            _ => runs.push(unit.0..unit.0 + 1),
        }
    }
    runs
}

/// What of a medium must be flushed because it was found. Not durable yet may be: after a process crash, anything; after
/// a reboot, what a recovery that was killed since then did to heads of blocks; after a clean close that did not finish, the
/// superblock.
fn flushes_for(granularity: Granularity, clean: bool, rebooted: bool) -> given::Flushes {
    match (granularity, clean, rebooted) {
        _ if planted(Mutant::DeadProcessNotFlushed) => given::Flushes::Nothing,
        (Granularity::CacheLine, false, false) => given::Flushes::Records,
        (Granularity::CacheLine, false, true) => given::Flushes::Heads,
        _ => given::Flushes::Nothing,
    }
}

/// One above every incarnation that the medium tells of.
fn next_incarnation(superblock: &Superblock, headers: &Headers, marks: &[(usize, Mark)]) -> Result<u32> {
    let known = marks.iter().map(|(_, mark)| mark.incarnation).max().unwrap_or(0);
    let incarnation = superblock.incarnation.max(headers.incarnation_max).max(known) + 1;
    if incarnation > Generation::INCARNATION_MAX {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the store was opened {incarnation} times, which is as often as its format counts: dump it and load \
                 it into a new store"
            ),
        ));
    }
    Ok(incarnation)
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

/// The names of tables, and the owners that they lead to. A record of the catalog that is not whole is noted as damage of the image
/// that leads to it; one that was written by nobody we know is passed over.
fn names_in<M: Medium>(scan: &given::Scan<'_, M>) -> Vec<(Vec<u8>, Owner)> {
    let mut names = Vec::new();
    let (guard, mut cursor) = (reclaim::pin(), 0);
    loop {
        cursor = scan.tables.catalog.index.scan(cursor, &guard, &mut |slot| {
            if slot.is_tombstone() || scan.record_met(slot.location()).is_none() {
                return;
            }
            let (header, bytes) = read::whole_record(scan.medium, slot.location());
            let from = header.value_at() as usize;
            if let Some(owner) = table::owner_in(&bytes[from..from + header.value_bytes as usize]) {
                names.push((header.key(bytes).to_vec(), owner));
            }
        });
        if cursor == 0 {
            names.sort_unstable();
            // A scan may meet a slot twice.
            names.dedup();
            if planted(Mutant::NewestNameIgnored) {
                // Owners are numbered in the order in which they came.
                let newest = names.iter().map(|&(_, owner)| owner).max();
                names.retain(|&(_, owner)| Some(owner) != newest);
            }
            return names;
        }
    }
}

/// The owners that something names: tables by the catalog, collections by roots that are alive, which are counted. A root is alive if it is
/// the newest record of its key and its own owner is named, or is kept though nothing names it.
fn names_of_owners<M: Medium>(
    scan: &given::Scan<'_, M>,
    names: &[(Vec<u8>, Owner)],
    roots: &[given::MetRoot],
    keeps_nameless: bool,
) -> HashSet<Owner> {
    let mut named: HashSet<Owner> = names.iter().map(|&(_, owner)| owner).collect();
    let mut roots_in: HashMap<Owner, Vec<&given::MetRoot>> = HashMap::new();
    roots.iter().for_each(|root| roots_in.entry(root.owner).or_default().push(root));
    let mut work: Vec<Owner> = match keeps_nameless || planted(Mutant::RootOfDeadTableLives) {
        true => roots_in.keys().copied().collect(),
        false => named.iter().copied().chain([Owner::STORE]).collect(),
    };
    while let Some(owner) = work.pop() {
        for root in roots_in.remove(&owner).unwrap_or_default() {
            if scan.is_live_root(root) && root.names.is_collection() {
                // Also one that has no element.
                if !planted(Mutant::EmptyForgotten) || scan.tables.of(root.names).is_some() {
                    scan.tables.met(root.names, |_| ()).add_name();
                }
                named.insert(root.names);
                work.push(root.names);
            }
        }
    }
    named
}

/// Enters the kept blocks, and attaches the indexes to the image, whose slots that lead into them they get.
fn attach(
    tables: &mut Tables,
    blocks: &Blocks,
    unit_bytes: u64,
    image: &Image<'_>,
    plan: &Plan,
    threads: usize,
) -> std::result::Result<Loaded, String> {
    for kept in &plan.kept {
        let state = if kept.harm == Harm::None { Use::Sealed } else { Use::Damaged };
        let block = blocks.found(kept.unit, kept.units, kept.generation, state);
        if kept.harm == Harm::Unknown {
            block.set_unknown();
        }
        block.set_tail(kept.tail);
        block.set_settled(kept.tail);
        block.set_doubtful(true);
        block.live_add(kept.live.into());
        block.set_expiry_seconds(kept.expiry);
    }
    for extent in &plan.extents {
        blocks.found(extent.unit, extent.header.units, extent.header.generation, Use::Image);
    }
    let mut all = Loaded::default();
    for (of, pages) in image.tables() {
        let counts = plan.counts(unit_bytes);
        let loaded = match counts {
            Counts::All => Loaded { slots: of.slots, keys: of.keys },
            Counts::Kept { .. } => Index::count(image.kind_of(of.owner), pages, &counts, threads),
        };
        if let Some(attached) = tables.fill(of.owner, |index| index.attach(pages, counts, threads)) {
            attached?;
        }
        if let Some(table) = tables.of(of.owner) {
            table.count_keys(0, loaded.keys as i64);
        }
        all = all.plus(loaded);
    }
    if !planted(Mutant::ImageVersionsForgotten) {
        tables.meet_all(image.root.version);
    }
    Ok(all)
}

/// Visits every unit once, by the headers (format invariant 3).
fn walk_headers<M: Medium>(medium: &M, superblock: &Superblock, holes: &Holes<'_>) -> Headers {
    let unit_bytes = u64::from(superblock.unit_bytes);
    let (mut headers, mut units_usual) = (Headers::default(), 1);
    let mut unit = HEAD_BYTES.div_ceil(unit_bytes) as u32;
    while unit < superblock.units {
        let at = Offset(u64::from(unit) * unit_bytes);
        // Most blocks are as long as the one before.
        medium.prefetch(at.plus(HEADERS_AHEAD * units_usual * unit_bytes));
        let readable = match holes.touch(at.0, block::HEADER_BYTES) {
            true => Err("block header cannot be read".into()),
            false => read::header(medium, Unit(unit), at),
        };
        let header = readable.and_then(|header| {
            let end = u64::from(unit) + u64::from(header.units);
            if end > u64::from(superblock.units) {
                return Err(format!("block ends at unit {end}, the store has {}", superblock.units));
            }
            Ok(header)
        });
        match header {
            Ok(header) => {
                headers.incarnation_max = headers.incarnation_max.max(header.generation.incarnation());
                match header.state {
                    block::State::Data => headers.data.push(DataBlock { unit: Unit(unit), header }),
                    block::State::Free => headers.free.push((Unit(unit), header)),
                }
                units_usual = u64::from(header.units);
                unit += header.units;
            }
            Err(why) => {
                headers.damage.push(format!("unit {unit} at offset {at}: {why}"));
                headers.lost.push(Unit(unit));
                // How long the block was is not known: look at the next unit.
                unit += 1;
            }
        }
    }
    headers
}

/// Which epochs count. Only what the last incarnation wrote is in question: all before was settled when
/// it began.
fn decide_cut<M: Medium>(
    medium: &M,
    superblock: &Superblock,
    headers: &Headers,
    marks: &[(usize, Mark)],
    rebooted: bool,
    holes: &Holes<'_>,
) -> Cut {
    let whole = superblock.clean
        || match superblock.regime {
            Regime::Immediate => true,
            // The page cache, or the CPU's caches, outlived the process.
            Regime::Epochs => !rebooted,
            Regime::Manual => false,
        };
    if whole {
        return Cut::ALL;
    }
    let base = Epoch(superblock.epoch_base);
    let ours = |mark: &&(usize, Mark)| mark.1.epoch >= base;
    let none = Epoch(base.0.saturating_sub(1));
    let committed = marks
        .iter()
        .filter(ours)
        .find(|(_, mark)| {
            // After a mere process crash nothing that a mark speaks of can be missing.
            !rebooted || planted(Mutant::MarkNotProven) || {
                let (records, sum) = scan::count_epoch(medium, superblock, &headers.data, mark.epoch, holes);
                (records, sum) == (mark.records, mark.sum)
            }
        })
        .map_or(none, |(_, mark)| mark.epoch);
    Cut { base, committed }
}

impl Recovered {
    /// Makes what recovery decided durable. Afterwards every block is sealed or free.
    pub(crate) fn adopt<M: Medium>(&self, medium: &M) -> Result<()> {
        let unit_bytes = u64::from(self.superblock.unit_bytes);
        let offset = |unit: Unit| Offset(u64::from(unit.0) * unit_bytes);
        // Counts from the next incarnation on, whose base is above it.
        let epoch = Epoch(self.epoch_base.0 - 1);
        for (data, outcome) in &self.outcomes {
            let is_old = |from| data.header.seal.is_some_and(|(_, epoch)| epoch < from);
            let can_be_read = || medium.unreadable(offset(data.unit), outcome.tail).is_empty();
            if self.doubtful.is_some_and(|from| !is_old(from)) && (outcome.damage.is_empty() || can_be_read())
            {
                // What is stored to is written with the seals.
                for at in (0..outcome.tail).step_by(PAGE_BYTES as usize).chain([outcome.tail - 8]) {
                    let at = offset(data.unit).plus(at);
                    medium.store_u64(at, medium.load_u64(at));
                }
            }
            if outcome.fates != Fates::default() && !planted(Mutant::TornNotVoided) {
                data.header.store_fates(medium, offset(data.unit), data.header.fates.with(outcome.fates));
                medium.drain();
            }
            if outcome.reseal {
                data.header.publish_seal(medium, offset(data.unit), outcome.tail, epoch);
            }
        }
        // What holds nothing.
        Ok(free_blocks(medium, unit_bytes, &self.freed)?)
    }
}

impl Recovered {
    /// What was counted, to be compared with the blocks.
    pub(crate) fn accounts<'a, M: Medium>(&'a self, medium: &'a M) -> Accounts<'a, M> {
        Accounts {
            medium,
            hasher: &self.hasher,
            tables: &self.tables,
            blocks: &self.blocks,
            unit_bytes: self.superblock.unit_bytes.into(),
            units: self.superblock.units,
            free: self.space.runs(),
            kept: Vec::new(),
            estimated: self.summary.estimated,
        }
    }

    /// The newest whole record of `key` in the table of `owner`: its version, and whether it is a tombstone, or expired.
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
        let mut cursor = 0;
        loop {
            cursor = table.index.scan(cursor, &guard, &mut |slot| {
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
                        shrinks: false,
                    };
                    visit(header.key(bytes), value, meta);
                }
            });
            if cursor == 0 {
                return;
            }
        }
    }
}
