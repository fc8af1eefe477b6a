//! The free extents, and which purposes may take them.
//!
//! On the medium every free extent has a header of its own, one extent long, that marks it free; a data block's header
//! covers all its extents. So the chain of headers is whole at every moment:
//!
//! * *open a block*: one publish of its first extent's header. On page media, a block of several extents is synced
//!   before its body is written, since the body overwrites the other extents' headers.
//! * *free a block*: publish "free" for all its extents; then (only for several extents) write the inner headers, make
//!   them durable, and publish "free, one extent".
//! * *grow*: write the headers of the new extents, make them durable, then publish the new number of extents in the
//!   superblock.
//!
//! Invariants:
//! 1. An extent is in `free` only when nothing on the medium or in DRAM points to it, durably.
//! 2. Puts leave the reserve free: a *spare* run of `A` adjoining extents, `C` more for the compactor, and `D` more for
//!    deletes. Blocks that are open for deletes and at most half full count toward `D`. Deletes leave `A + C` extents,
//!    and changes also leave half of `D`. Neither leaves the longest run shorter than both it was and the spare,
//!    however many extents are free elsewhere. Only the compactor takes all.
//! 3. An open block knows for which purpose its extents were taken ([`OpenBlock::purpose`]). Puts get no room in an
//!    extent that was taken below their limit, unless the reserve is whole again without it: an open block does not
//!    count toward the reserve for a purpose that would use it up. At most `D` extents are kept open for deletes.
//!
//! # Why a delete always finds room
//!
//! `A` is [`Space::ample_extents_max`], the most extents of a block that is longer than its first record needs. `C` is
//! at least 1. `D` is at least 2, and a thirty-second of the store up to 64 MiB. `A + C + D` is [`Space::reserve`].
//!
//! * *Any block of several records can be rewritten without its dead records.* It has `m` extents, at most `A`, and the
//!   spare takes its live records in one piece. The block is then free: the spare is whole, or lacks the moved records.
//!   The `m` extents have room for those: they are moved there before the spare is taken again
//!   (`Maintenance::restore_spare`). A longer block holds one record (see `Log::open_block`): dead, it is free without
//!   a copy; live, it holds nothing stale. (The commit record of its transaction after it is dead with it.)
//! * *The records in the spare have one run to move to.* The live records of several blocks may be moved into one.
//!   Their extents are then free, but need not adjoin, and a record may fit none of them. So while the spare is not
//!   whole, another block is moved in only if all records there still fit the longest run afterwards, or the extents of
//!   that block (`Maintenance::fits_own`).
//! * *So no tombstone must stay.* Once the blocks with stale records are rewritten, no tombstone hides anything. The
//!   tombstones are dead, and so is everything that deletes took of `D`. Each of these rewrites removes dead bytes, and
//!   their number is finite: a delete compacts for as long as they become fewer (`Supply::take_extents`).
//! * *And no other purpose takes that room.* Deletes append to blocks of `D` first, one after the other: a writer
//!   returns such a block at the end of each delete. Puts get nothing until all of the reserve is free again (2, 3), so
//!   a reserve that deletes have used up is filled before puts take another extent. Scattered extents are no spare:
//!   deletes and changes cut from the longest run last (2). Before that, they have the blocks between free extents
//!   cleared (`Maintenance::make_adjoin`).
//! * *Freed space goes to the writer first.* With `Manual`, a compacted block is free only after a commit by the
//!   caller. A writer that comes then takes free space before more is moved, which would use all of it again
//!   (`Maintenance::compact_now`).
//! * *An active transaction has its room too.* The records it replaces are dead when it is finalized. Until then a
//!   delete waits for it, as for a block that another delete holds ([`Space::is_lent`]).
//! * *A crash or a close* seals blocks of `D` that hold a few tombstones, and those of the compactor. That may take all
//!   of `D` and `C`, and the spare. A block that was being moved is then dead in its copy, so the copy is free without
//!   another copy; a block that had been moved has its copy in place of a free block. So the compactor finds as much
//!   room as before the crash, and the live records of those blocks are packed.
//! * *An evicting round leaves the spare* while any block it moved out of is not free (`Maintenance::leaves_no_spare`).
//!   Besides copies, its blocks hold tombstones of evicted keys, which count after a crash though the copies are dead.
//!   So neither block would be free without a copy.
//! * *The rest of the compactor's own block is used.* It is open, so nobody moves it. Where little else gains, blocks
//!   whose live records fit are moved into it completely, which frees their extents and takes none
//!   (`Maintenance::fill_own`).
//! * *Dead records in open blocks are reclaimed.* Where a round of compaction gains nothing, the open blocks without a
//!   writer are sealed (`Supply::take_extents`), even if the compactor freed as much as it took. Open blocks without
//!   live records are sealed however small they are: they separate free extents.
//! * *The compactor keeps what it takes.* A block that it moves to is never counted as one for deletes, however much
//!   was free when it was taken. Half full of live records, it would be room for deletes by name alone, and open, so
//!   that nobody could move it.
//!
//! # Values that a full store takes
//!
//! `Room` of the engine lists them. Each such write adds a record, so it must be shown that no number of them uses up
//! the reserve.
//!
//! * *Removals* replace a record that is no shorter, and may use all of `D`, as deletes do. The live bytes do not grow,
//!   so all that they take is dead elsewhere, and the argument for rewriting holds. A round of compaction regains the
//!   space, however often the same value is written (then most versions are in one block of `D`, which is free without
//!   a copy once it is sealed). The additional parts of a transaction's records (trailer and commit record) go with the
//!   first copy.
//! * *Changes* may add live bytes: the same value with an expiry time, the entry of a group that was delivered. They
//!   leave half of `D` to deletes and removals, less the part of it that is already open. So the other half bounds what
//!   they add, together with the bytes deleted since: puts get nothing until the reserve is whole, so changes are the
//!   first to use the space that a removal frees. Beyond that they are refused as puts are.
//! * *Longer writes are always refused*: a change longer than half of `D` (a string that gets an expiry time is
//!   rewritten), and a transaction whose records together are longer than `D`.
//!
//! Cases in which a delete still finds no room:
//! * a group, or (with `Manual`) a commit that the space of a block waits for;
//! * blocks in which values are pinned, if nothing else is dead;
//! * a tombstone of a key longer than an extent, or a batch of more than `A` extents, for which no run is long enough;
//! * more writers that keep blocks of small records open, without writing, than `D` has extents;
//! * damaged blocks.

use crate::format::{Extent, Generation, Secret, block};
use crate::open_block::{OpenBlock, Purpose};
use duramen_media::{Medium, Offset};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Minimum of extents kept back: two for deletes, the others for compaction.
pub const RESERVE_EXTENTS: u32 = 4;
const RESERVE_DELETES: u32 = 2;
/// Maximum of extents that the compactor may take besides the spare.
const RESERVE_COMPACTION: u32 = 2;
/// This part of the store is kept back for the compactor and for short deletes, up to twice the largest ordinary block.
const RESERVE_SHARE: u32 = 32;
/// This part is kept back for deletes, up to `DELETES_BYTES_MAX`: one command may delete very many elements at once.
const DELETES_SHARE: u32 = 32;
const DELETES_BYTES_MAX: u64 = 64 << 20;
/// The largest block that is made longer than its first record needs.
pub const AMPLE_BYTES_MAX: u64 = 1 << 20;
/// Maximum of open blocks without a writer that are kept for the next one.
const PARTIAL_MAX: usize = 64;

#[derive(Default)]
pub struct Space {
    /// Runs of free extents: first extent and length, never adjacent.
    by_start: BTreeMap<u32, u32>,
    by_extents: BTreeSet<(u32, u32)>,
    free: u32,
    /// Extents of the store, head included.
    extents: u32,
    extent_bytes: u64,
    /// Extents that puts may take, the reserve included. Extents beyond it come from an earlier, higher limit. 0: all.
    limit: u32,
    /// Blocks that were given back: first extent and length. See [`crate::given_back`].
    given_back: BTreeMap<u32, u32>,
    /// Their extents.
    given_back_extents: u32,
    /// How often the limit was set: a writer that found no room tries again when it changes.
    limits_set: u32,
    incarnation: u32,
    counter: u64,
    partial: Vec<OpenBlock>,
    /// Blocks taken for deletes that writers hold or are opening: they return them soon.
    lent: u32,
    /// Such blocks that unfinalized transactions have filled: the records that these replace are dead when they are
    /// finalized.
    filled_by_transactions: u32,
}

impl Space {
    pub fn new(extents: u32, extent_bytes: u64, incarnation: u32) -> Self {
        Self { extents, extent_bytes, incarnation, ..Self::default() }
    }

    pub fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    /// Extents that are kept back now from puts (invariant 2): `A + C + D`.
    pub fn reserve(&self) -> u32 {
        self.for_compaction() + self.for_deletes()
    }

    /// The minimum reserve: `A`, and as much for everything else.
    fn reserve_least(&self) -> u32 {
        let most = RESERVE_DELETES + 2 * AMPLE_BYTES_MAX.div_ceil(self.extent_bytes) as u32;
        (self.backed_extents() / RESERVE_SHARE).min(most).max(RESERVE_EXTENTS)
    }

    /// A block that is longer than its first record needs has at most this many extents, so that compaction always has
    /// room to move out of it: `A`.
    pub fn ample_extents_max(&self) -> u32 {
        (self.reserve_least() - RESERVE_DELETES) / 2
    }

    /// The spare, and the compactor's other extents: `A + C`.
    fn for_compaction(&self) -> u32 {
        let spare = self.ample_extents_max();
        spare + spare.min(RESERVE_COMPACTION)
    }

    /// `D`: it grows with the store, as does the number of elements that one command can delete.
    fn for_deletes(&self) -> u32 {
        let most = u32::try_from(DELETES_BYTES_MAX / self.extent_bytes).unwrap_or(u32::MAX);
        (self.backed_extents() / DELETES_SHARE).min(most).max(self.reserve_least() - self.for_compaction())
    }

    /// Extents that an allocation for this purpose must leave free.
    fn left_by(&self, purpose: Purpose) -> u32 {
        self.left_without(None, purpose)
    }

    /// Like `left_by`, where the open block at `used` is no room for deletes any more.
    fn left_without(&self, used: Option<Extent>, purpose: Purpose) -> u32 {
        let compaction = self.for_compaction();
        match purpose {
            // Room for deletes that is already open need not be free as well.
            Purpose::Write => {
                let open = self.open_for_deletes(Purpose::Change, used);
                self.beyond() + self.reserve() - open.min(self.for_deletes())
            }
            Purpose::Change => {
                let deletes = self.for_deletes().div_ceil(2);
                compaction + deletes - self.open_for_deletes(Purpose::Delete, used).min(deletes)
            }
            Purpose::Delete => compaction,
            Purpose::Compaction => 0,
        }
    }

    /// Extents of blocks for deletes that no writer holds, that are at most half full, and that were taken for nothing
    /// less urgent than `least`; without the block `used`.
    fn open_for_deletes(&self, least: Purpose, used: Option<Extent>) -> u32 {
        let is_roomy = |block: &&OpenBlock| {
            block.is_roomy_for_deletes() && block.purpose >= least && Some(block.extent) != used
        };
        let roomy = self.partial.iter().filter(is_roomy);
        roomy.map(|block| (block.bytes / self.extent_bytes) as u32).sum()
    }

    /// The longest run of free extents.
    pub fn run_max(&self) -> u32 {
        self.by_extents.last().map_or(0, |&(length, _)| length)
    }

    /// Whether the spare is whole (invariant 2).
    pub fn has_spare(&self) -> bool {
        self.run_max() >= self.ample_extents_max()
    }

    /// Whether an allocation for this purpose leaves enough free, with so many extents free afterwards and a longest
    /// run of `run_max`.
    fn leaves(&self, free: u32, run_max: u32, purpose: Purpose) -> bool {
        free >= self.left_by(purpose) && self.leaves_run(run_max, purpose)
    }

    fn leaves_run(&self, run_max: u32, purpose: Purpose) -> bool {
        let spare = self.ample_extents_max();
        let run_least = match purpose {
            Purpose::Write => spare,
            // Where the spare is not whole, the compactor moves the records from the spare to the longest run.
            Purpose::Change | Purpose::Delete => spare.min(self.run_max()),
            Purpose::Compaction => 0,
        };
        run_max >= run_least
    }

    /// Whether extents that were taken for another purpose may be used for this one now, as if they were taken now
    /// (invariant 3).
    pub fn allows(&self, purpose: Purpose) -> bool {
        self.leaves(self.free, self.run_max(), purpose)
    }

    /// Like `allows`, for the rest of an open block, which is no room for deletes then (invariant 3).
    fn allows_without(&self, block: &OpenBlock, purpose: Purpose) -> bool {
        let left = self.left_without(Some(block.extent), purpose);
        self.free >= left && self.leaves_run(self.run_max(), purpose)
    }

    /// Whether `extents` are free for this, but do not adjoin, or only in the spare.
    pub fn is_scattered(&self, extents: u32, purpose: Purpose) -> bool {
        self.free >= extents + self.left_by(purpose)
    }

    pub fn extents(&self) -> u32 {
        self.extents
    }

    pub fn set_extents(&mut self, extents: u32) {
        self.extents = extents;
    }

    /// Extents of the store that have space.
    pub fn backed_extents(&self) -> u32 {
        self.extents - self.given_back_extents
    }

    /// Extents of blocks that were given back.
    pub fn given_back_extents(&self) -> u32 {
        self.given_back_extents
    }

    /// A block was given back.
    pub fn note_given_back(&mut self, extent: Extent, extents: u32) {
        let before = self.given_back.insert(extent.0, extents);
        assert!(before.is_none(), "the block at extent {} is given back twice", extent.0);
        self.given_back_extents += extents;
    }

    /// The blocks that were given back, in order.
    pub fn given_back(&self) -> impl Iterator<Item = (Extent, u32)> {
        self.given_back.iter().map(|(&extent, &extents)| (Extent(extent), extents))
    }

    /// The first of the blocks that were given back.
    pub fn first_given_back(&self) -> Option<(Extent, u32)> {
        self.given_back.first_key_value().map(|(&extent, &extents)| (Extent(extent), extents))
    }

    /// Such a block has space again.
    pub fn take_back(&mut self, extent: Extent) {
        let extents = self.given_back.remove(&extent.0).unwrap_or(0);
        self.given_back_extents -= extents;
        self.give(extent, extents);
    }

    /// Takes free extents that are to be given back: pieces of `least` to `most` extents, from the end of the medium
    /// on, while more than the reserve and `kept` extents stay free, and the spare among them.
    pub fn take_surplus(&mut self, kept: u32, least: u32, most: u32) -> Vec<(Extent, u32)> {
        let mut surplus = self.surplus(kept);
        let mut taken = Vec::new();
        let runs: Vec<(u32, u32)> = self.runs();
        for (start, length) in runs.into_iter().rev() {
            let (mut end, spare) = (start + length, self.ample_extents_max());
            while end - start >= least && surplus >= least {
                let extents = (end - start).min(most).min(surplus);
                // The rest of this run, or another one, is the spare.
                let others = self.by_extents.iter().rev().find(|&&(_, other)| other != start);
                let rest = end - start - extents;
                if others.map_or(0, |&(length, _)| length).max(rest) < spare {
                    break;
                }
                end -= extents;
                taken.extend(self.withhold(end, end + extents));
                surplus -= extents;
            }
        }
        taken
    }

    /// Free extents beyond the reserve and `kept`, which puts do not need soon. Beyond the limit nothing is kept.
    pub fn surplus(&self, kept: u32) -> u32 {
        let needed = self.backed_extents() - self.free + self.reserve();
        let kept = match self.limit {
            0 => kept,
            limit => kept.min(limit.saturating_sub(needed)),
        };
        self.free.saturating_sub(self.reserve() + kept)
    }

    pub fn free_extents(&self) -> u32 {
        self.free
    }

    /// Extents that ordinary writes may still take without growth.
    pub fn writable_extents(&self) -> u32 {
        self.free.saturating_sub(self.reserve() + self.beyond())
    }

    /// Extents that may be taken for this without growth, whatever is open.
    pub fn extents_for(&self, purpose: Purpose) -> u32 {
        match purpose {
            Purpose::Write => self.writable_extents(),
            _ => self.free.saturating_sub(self.left_by(purpose)),
        }
    }

    /// Extents beyond the limit.
    fn beyond(&self) -> u32 {
        if self.limit == 0 { 0 } else { self.backed_extents().saturating_sub(self.limit) }
    }

    /// The most extents that the store may have; 0: as many as the medium has.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    pub fn limits_set(&self) -> u32 {
        self.limits_set
    }

    pub fn set_limit(&mut self, extents: u32) {
        self.limit = extents;
        self.limits_set = self.limits_set.wrapping_add(1);
    }

    /// The same space for the writes of an incarnation.
    pub fn with_incarnation(self, incarnation: u32) -> Self {
        Self { incarnation, ..self }
    }

    /// The generation last given out.
    pub fn generation_now(&self) -> Generation {
        Generation::new(self.incarnation, self.counter)
    }

    /// A generation that was never used.
    pub fn generation(&mut self) -> Generation {
        self.counter += 1;
        Generation::new(self.incarnation, self.counter)
    }

    /// Takes `extents` adjoining extents: the beginning of the shortest run that is long enough. Also returns the
    /// purpose that they may be used for: the least urgent one allowed. But nothing that the compactor takes is kept
    /// for deletes.
    pub fn take(&mut self, extents: u32, purpose: Purpose) -> Option<(Extent, Purpose)> {
        let free = self.free.checked_sub(extents)?;
        let &(length, start) = self.by_extents.range((extents, 0)..).next()?;
        let other = self.by_extents.iter().rev().find(|&&run| run != (length, start));
        let run_max = other.map_or(0, |&(length, _)| length).max(length - extents);
        let allows = |&as_for: &Purpose| self.leaves(free, run_max, as_for);
        let purposes = [Purpose::Write, Purpose::Change, Purpose::Delete, Purpose::Compaction];
        let as_for = purposes.into_iter().find(allows)?;
        let is_kept = purpose == Purpose::Compaction && as_for.is_kept_for();
        let as_for = if is_kept { Purpose::Compaction } else { as_for };
        if as_for > purpose {
            return None;
        }
        self.by_extents.remove(&(length, start));
        self.by_start.remove(&start);
        if length > extents {
            self.by_start.insert(start + extents, length - extents);
            self.by_extents.insert((length - extents, start + extents));
        }
        self.free = free;
        assert!(
            self.leaves(free, self.run_max(), as_for),
            "{extents} extents at {start} are taken for {as_for:?}; left are {free}, the longest run {} (invariant 2)",
            self.run_max()
        );
        // Before the block is open: opening may take a sync, and until then nothing else counts this room for deletes.
        self.lent += u32::from(as_for.is_kept_for());
        Some((Extent(start), as_for))
    }

    /// Takes all free extents from `from` to `to`, so that the compactor can clear the blocks between them.
    pub fn withhold(&mut self, from: u32, to: u32) -> Vec<(Extent, u32)> {
        let begins = self.by_start.range(..from).next_back().map(|(&start, &length)| (start, length));
        let runs: Vec<(u32, u32)> = begins
            .into_iter()
            .chain(self.by_start.range(from..to).map(|(&start, &length)| (start, length)))
            .filter(|&(start, length)| start + length > from)
            .collect();
        let mut taken = Vec::new();
        for (start, length) in runs {
            self.by_start.remove(&start);
            self.by_extents.remove(&(length, start));
            self.free -= length;
            let (first, last) = (start.max(from), (start + length).min(to));
            if first > start {
                self.give(Extent(start), first - start);
            }
            if start + length > last {
                self.give(Extent(last), start + length - last);
            }
            taken.push((Extent(first), last - first));
        }
        taken
    }

    /// Gives extents back (invariant 1), joined with their free neighbours.
    pub fn give(&mut self, extent: Extent, extents: u32) {
        self.free += extents;
        let (mut start, mut length) = (extent.0, extents);
        let before = self.by_start.range(..start + length).next_back().map_or(0, |(&from, &n)| from + n);
        assert!(
            extents > 0 && before <= start && start + length <= self.extents,
            "{extents} extents at {start} of {} are given back, and those before {before} are free (invariant 1)",
            self.extents
        );
        if let Some((&before, &n)) = self.by_start.range(..start).next_back()
            && before + n == start
        {
            self.by_start.remove(&before);
            self.by_extents.remove(&(n, before));
            (start, length) = (before, length + n);
        }
        if let Some(&n) = self.by_start.get(&(start + length)) {
            self.by_start.remove(&(start + length));
            self.by_extents.remove(&(n, start + length));
            length += n;
        }
        self.by_start.insert(start, length);
        self.by_extents.insert((length, start));
    }

    /// An open block with room for `bytes`, left by a writer that ended or needed a larger one. A transaction that
    /// `continues_transaction` from another block takes none that another transaction has already continued in.
    pub fn take_partial(
        &mut self,
        bytes: u64,
        purpose: Purpose,
        continues_transaction: bool,
    ) -> Option<OpenBlock> {
        let is_allowed = |block: &OpenBlock| match purpose {
            // The compactor has room of its own: it leaves deletes theirs.
            Purpose::Compaction => !block.purpose.is_kept_for(),
            _ => block.purpose <= purpose || self.allows_without(block, purpose),
        };
        let fits = |block: &OpenBlock| {
            block.room() >= bytes && !(continues_transaction && block.entered) && is_allowed(block)
        };
        let at = self.partial.iter().rposition(fits)?;
        let mut block = self.partial.swap_remove(at);
        self.lend(&mut block, purpose);
        Some(block)
    }

    /// Notes that a writer holds `block`, for this purpose: see invariant 3.
    pub fn lend(&mut self, block: &mut OpenBlock, purpose: Purpose) {
        block.purpose = block.purpose.min(purpose);
        debug_assert!(
            purpose != Purpose::Compaction || !block.purpose.is_kept_for(),
            "the compactor takes room that is kept for deletes (invariant 3)"
        );
        self.lent += u32::from(block.purpose.is_kept_for());
    }

    /// Notes that a writer returns a block taken for this.
    pub fn returned(&mut self, purpose: Purpose) {
        let kept = u32::from(purpose.is_kept_for());
        assert!(self.lent >= kept, "a block for {purpose:?} is returned that nobody has (invariant 3)");
        self.lent -= kept;
    }

    /// A transaction has filled a block taken for this, and continues. Returns whether the block was kept for deletes;
    /// then the caller must call [`Space::transactions_finalized`] for it.
    pub fn filled_by_transaction(&mut self, purpose: Purpose) -> bool {
        self.returned(purpose);
        self.filled_by_transactions += u32::from(purpose.is_kept_for());
        purpose.is_kept_for()
    }

    /// Transactions that filled `blocks` of these blocks are finalized.
    pub fn transactions_finalized(&mut self, blocks: u32) {
        let filled = self.filled_by_transactions;
        assert!(
            filled >= blocks,
            "{blocks} blocks are finalized, of {filled} that were filled (invariant 3)"
        );
        self.filled_by_transactions -= blocks;
    }

    /// Whether room for deletes comes back soon: a block, or the records that active transactions replace. A writer
    /// whose own transaction has filled such blocks does not wait for other transactions, which may wait for it.
    pub fn is_lent(&self, has_filled: bool) -> bool {
        self.lent > 0 || !has_filled && self.filled_by_transactions > 0
    }

    /// Keeps an open block for the next writer; returns one to be sealed when there are too many.
    pub fn give_partial(&mut self, block: OpenBlock) -> Option<OpenBlock> {
        debug_assert!(
            self.partial.iter().all(|other| other.extent != block.extent),
            "the block at extent {} has two owners (appender, invariant 1)",
            block.extent.0
        );
        self.partial.push(block);
        if self.partial.len() <= PARTIAL_MAX {
            return None;
        }
        let fullest = (0..self.partial.len()).min_by_key(|&i| self.partial[i].room())?;
        Some(self.partial.swap_remove(fullest))
    }

    /// Removes the `wanted` blocks that are not kept for more urgent purposes. At most `D` extents are kept for
    /// deletes.
    pub fn drain_partial(&mut self, purpose: Purpose, wanted: impl Fn(&OpenBlock) -> bool) -> Vec<OpenBlock> {
        let extent_bytes = self.extent_bytes;
        let mut left = self.for_deletes();
        let goes = |block: &mut OpenBlock| {
            let extents = (block.bytes / extent_bytes) as u32;
            let stays = block.purpose > purpose && block.is_roomy_for_deletes() && extents <= left;
            left -= if stays { extents } else { 0 };
            !stays && wanted(block)
        };
        self.partial.extract_if(.., goes).collect()
    }

    /// Runs of free extents: first extent and length, in order.
    pub fn runs(&self) -> Vec<(u32, u32)> {
        self.by_start.iter().map(|(&start, &length)| (start, length)).collect()
    }

    /// Those that begin in a part of the store.
    pub fn runs_from(&self, extents: Range<u32>) -> Vec<(u32, u32)> {
        self.by_start.range(extents).map(|(&start, &length)| (start, length)).collect()
    }

    /// So many of the longest ones, the longest first.
    pub fn longest_runs(&self, most: usize) -> Vec<(u32, u32)> {
        self.by_extents.iter().rev().take(most).map(|&(length, start)| (start, length)).collect()
    }
}

/// Writes the headers of free extents, one each, and drains.
pub fn write_free_headers<M: Medium>(medium: &M, secret: Secret, extent_bytes: u64, from: u32, extents: u32) {
    for extent in from..from + extents {
        let offset = Offset(u64::from(extent) * extent_bytes);
        block::Header::fresh(secret, 1).store(medium, Extent(extent), offset);
    }
    medium.drain();
}

/// Frees blocks, or completes an interrupted free: see the module for the order. On return the free, and all stores
/// before it, are durable.
pub fn free_blocks<M: Medium>(
    medium: &M,
    extent_bytes: u64,
    blocks: &[(Extent, block::Header)],
) -> duramen_media::Result<()> {
    let offset = |extent: Extent| Offset(u64::from(extent.0) * extent_bytes);
    for (extent, header) in blocks {
        header.freed().publish_word(medium, *extent, offset(*extent));
    }
    medium.sync()?;
    // Each extent of a block of several gets a header of its own.
    let many: Vec<_> = blocks.iter().filter(|(_, header)| header.extents > 1).collect();
    if many.is_empty() {
        return Ok(());
    }
    give_headers(medium, extent_bytes, &many)?;
    for (extent, header) in many {
        header.freed().alone().publish_word(medium, *extent, offset(*extent));
    }
    medium.sync()
}

/// Gives all extents of freed blocks but the first headers of their own, durably.
fn give_headers<M: Medium>(
    medium: &M,
    extent_bytes: u64,
    blocks: &[&(Extent, block::Header)],
) -> duramen_media::Result<()> {
    for (extent, header) in blocks {
        write_free_headers(medium, header.secret(), extent_bytes, extent.0 + 1, header.extents - 1);
    }
    medium.sync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reserve_is_for_deletes_and_compaction() {
        let mut space = Space::new(10, 4096, 1);
        space.give(Extent(1), RESERVE_EXTENTS + 1);
        assert!(space.take(2, Purpose::Write).is_none());
        assert!(space.take(1, Purpose::Write).is_some());
        assert!(space.take(1, Purpose::Write).is_none());
        assert!(space.take(2, Purpose::Delete).is_some());
        assert!(space.take(1, Purpose::Delete).is_none());
        assert!(space.take(2, Purpose::Compaction).is_some());
        assert_eq!(space.free_extents(), 0);
    }

    #[test]
    fn deletes_and_changes_leave_the_spare_contiguous() {
        for purpose in [Purpose::Change, Purpose::Delete] {
            // Three extents are the spare; of twelve that are free, seven must be left at most.
            let mut space = Space::new(256, 512, 1);
            space.give(Extent(100), 3);
            (0..9).for_each(|n| space.give(Extent(10 + 2 * n), 1));
            assert!(space.take(3, purpose).is_none(), "{purpose:?}");
            assert!(space.take(2, purpose).is_none(), "{purpose:?}");
            assert!(space.take(1, purpose).is_some(), "{purpose:?}");
            assert!(space.has_spare());
            // The compactor has the spare: the records it moves there go back to the longest run.
            assert!(space.take(3, Purpose::Compaction).is_some());
            space.give(Extent(200), 2);
            assert!(space.take(2, purpose).is_none(), "{purpose:?}");
            assert!(space.take(1, purpose).is_some(), "{purpose:?}");
        }
    }

    fn open_block(extent: Extent, bytes: u64, purpose: Purpose) -> OpenBlock {
        let secret = Secret::new(7);
        OpenBlock {
            extent,
            offset: u64::from(extent.0) * bytes,
            bytes,
            tail: block::HEADER_BYTES,
            header: block::Header::fresh(secret, 1),
            seeds: secret.seeds(Generation(1)),
            durable_tail: 0,
            live: 0,
            records: 0,
            dirty_epoch: 0,
            unflushed: u64::MAX,
            purpose,
            entered: false,
        }
    }

    #[test]
    fn room_reserved_for_deletes_is_not_used_by_puts() {
        let mut space = Space::new(10, 4096, 1);
        space.give(Extent(1), RESERVE_EXTENTS);
        let (extent, purpose) = space.take(1, Purpose::Delete).unwrap();
        assert_eq!(purpose, Purpose::Change);
        space.returned(purpose);
        assert!(space.give_partial(open_block(extent, 4096, purpose)).is_none());
        // The reserve is whole by the open block alone.
        assert!(space.allows(Purpose::Write));
        assert!(space.take_partial(64, Purpose::Write, false).is_none());
        assert!(space.take_partial(64, Purpose::Change, false).is_some());
        space.returned(purpose);
        // And without it.
        assert!(space.give_partial(open_block(extent, 4096, purpose)).is_none());
        space.give(Extent(6), 1);
        assert!(space.take_partial(64, Purpose::Write, false).is_some());
    }

    #[test]
    fn room_for_deletes_counts_as_lent_once_it_is_taken() {
        let mut space = Space::new(10, 4096, 1);
        space.give(Extent(1), RESERVE_EXTENTS);
        // The block is not open yet: opening it may take a sync.
        let (extent, purpose) = space.take(1, Purpose::Delete).unwrap();
        assert!(space.is_lent(false));
        space.returned(purpose);
        assert!(space.give_partial(open_block(extent, 4096, purpose)).is_none());
        assert!(!space.is_lent(false));
        assert!(space.take_partial(64, Purpose::Delete, false).is_some());
        assert!(space.is_lent(false));
    }

    #[test]
    fn room_for_deletes_grows_with_the_store() {
        let room = |extents: u32, extent_bytes: u64| Space::new(extents, extent_bytes, 1).for_deletes();
        assert_eq!(room(64, 192 << 10), 2);
        assert_eq!(room(3072, 4096), 96);
        assert_eq!(room(1 << 20, 4096), 16384, "64 MiB at most");
    }

    proptest! {
        #[test]
        fn no_extent_is_lost_or_owned_twice(ops in prop::collection::vec((any::<bool>(), 1u32..6), 1..200)) {
            let mut space = Space::new(200, 1 << 20, 1);
            space.give(Extent(1), 100);
            let mut owned: Vec<(u32, u32)> = Vec::new();
            for (take, n) in ops {
                if take {
                    if let Some((extent, _)) = space.take(n, Purpose::Compaction) {
                        for &(start, length) in &owned {
                            prop_assert!(extent.0 + n <= start || start + length <= extent.0);
                        }
                        owned.push((extent.0, n));
                    }
                } else if !owned.is_empty() {
                    let (start, length) = owned.swap_remove(n as usize % owned.len());
                    space.give(Extent(start), length);
                }
                let held: u32 = owned.iter().map(|o| o.1).sum();
                prop_assert_eq!(space.free_extents() + held, 100);
                let runs: u32 = space.by_start.values().sum();
                prop_assert_eq!(runs, space.free_extents());
                prop_assert_eq!(space.by_start.len(), space.by_extents.len());
            }
        }
    }
}
