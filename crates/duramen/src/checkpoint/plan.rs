//! The index checkpoint: how it is written, why it is correct, and how recovery finds it.
//!
//! The log is the truth, and an index can always be rebuilt from all of it. A checkpoint saves reading the unchanged
//! part: it has the slots of the index, and a list of *kept* blocks. Recovery takes from it the slots that point into
//! kept blocks, and reads all other blocks as usual. It need not know the blocks that are not kept.
//!
//! Order in which a checkpoint becomes durable (`Maintenance::write_checkpoint`):
//!
//! 1. under the compactor's lock: note which blocks are sealed;
//! 2. runs are opened, sealed where they begin, and filled with pages; other threads continue writing;
//! 3. the kept blocks are those of 1 that are still sealed, with the same generation;
//! 4. the root is written and made durable, with everything that was written to the store before 4. That includes
//!    records that another thread's group has not made durable yet, where a slot of the checkpoint points to them;
//! 5. the superblock points to the root;
//! 6. the runs of the previous checkpoint are freed.
//!
//! A crash before 5 leaves runs that hold no records: recovery frees them. A crash between 5 and 6 leaves the old runs,
//! which recovery frees too.
//!
//! Why the slots of kept blocks, taken at any moment after 1, and the records of all other blocks give the same index
//! as all records:
//!
//! * A record that is appended after 1 is in a block that was not sealed then, so it is read. The same holds for a
//!   record whose slot was not yet set at 1. A writer sets the slot before it seals the block; the compactor, which
//!   sets the slots of its copies late, does not work at 1.
//! * So a slot that points into a kept block points to the newest record of its key in kept blocks. The exception: a
//!   newer one was moved away or dropped since. Then the block of the newer one is retired, and 3 does not keep it.
//! * A kept block that is freed later is found free or with another generation, and no longer counts as kept. Before it
//!   was freed, its live records were moved to blocks that are read, or superseded there.
//! * 4 makes durable all records that slots of the checkpoint point to, so no slot hides the last record that a crash
//!   left.
//! * Versions: an index stores with its pages the highest version that it had issued, and all later records are read.
//!
//! Two counts are less exact afterwards. *Stale counts*: a count in the checkpoint may include records that are gone,
//! and records that are read are not counted. So after a crash a count is 0 if the checkpoint says so and no record of
//! the key was read. Else it is "many" (`STALE_MANY`), which compaction counts again
//! when it must. 0 is right: blocks with records that no slot counts are retired, and not kept. *Live bytes* of a kept
//! block are those at 3. Records superseded between a page and 3 are subtracted again when their successors are read:
//! too few, never too many, so compaction starts too early at most. So before 3 the checkpoint waits for each writer
//! that has superseded a record that no page has, until the writer has subtracted it
//! (`Maintenance::wait_for_accounts`). A block in which a tombstone came to count again meanwhile is read. After a
//! clean close with nothing left to read both are exact.
//!
//! The index is *attached* to the pages, and reads each when it is first touched (`index::attached`). The runs stay
//! until all pages have been read (`Maintenance::leave_checkpoint`). A crash before leaves them to recovery, which
//! finds them empty. The open decided which slots count, and that stays right: a kept block is freed only when each
//! record in it was looked up, which reads the page of its slot.
//!
//! *Damaged* blocks are kept as sealed ones are: nothing is stored to them either. The list says that they are damaged
//! ([`Damage`]). An open that refuses damage reads them, to report their damage. An open that serves the rest takes
//! them from the list: each slot that points to a damaged record still does, and its key answers `Corrupt`.
//!
//! The checkpoint has *collections* as it has tables. `index::collection::checkpoint` says how map and tree, each
//! written at its own moments, come to agree. A root names a collection, and is not read if its block is kept; so the
//! checkpoint has the places of roots. A live root in a kept block was pointed to from 1 to 3, and its place was noted
//! before its block could be sealed (`table::names`): so it is among them. Or it was moved, or superseded by a record
//! that a crash then lost. If that was before 1, its block is not kept, or the superseding record is durable. (4 made
//! it so; or its collection would be dead otherwise, and no checkpoint begins before that is reclaimed.) Places that
//! roots leave from then on are noted until all are known. Recovery asks the tables which of the places are live.
//!
//! The tables and collections that are written are those that exist *after* 1: later ones have no record in a kept
//! block.
//!
//! Recovery with a checkpoint does not verify each record. The background thread does it afterwards
//! (`Maintenance::verify`), as does `duramen check`.

use duramen_index::either::{self, Index};
use duramen_index::{KeepFilter, PagesOf};
use duramen_log::format::block::DataBlock;
use duramen_log::format::checkpoint::{Damage, Kept, Page, Root, TablePages};
use duramen_log::format::holes::Holes;
use duramen_log::format::superblock::Superblock;
use duramen_log::format::{Epoch, Extent, Owner, block};
use duramen_log::read;
use duramen_log::sync::atomic::AtomicUsize;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_media::{Medium, Offset};
use std::collections::HashMap;
use std::ops::Range;

/// A checkpoint whose checksums are right.
pub(crate) struct Checkpoint<'m> {
    pub root: Root,
    pages: Vec<(u64, &'m [u8])>,
}

/// The blocks of a medium according to a checkpoint.
#[derive(Default)]
pub(crate) struct Plan {
    /// Blocks that need not be read.
    pub kept: Vec<Kept>,
    /// Blocks that must be read.
    pub data: Vec<DataBlock>,
    /// The checkpoint's own runs; empty if some are not as the checkpoint describes them.
    pub runs: Vec<DataBlock>,
    /// Whether counts of stale records are exact.
    pub exact: bool,
}

impl Plan {
    /// Which slots of the checkpoint count.
    pub(crate) fn counts(&self, extent_bytes: u64) -> KeepFilter {
        if self.exact {
            return KeepFilter::All;
        }
        let end = self.kept.iter().map(|kept| kept.extent.0 + kept.extents).max().unwrap_or(0);
        let mut extents = vec![0; end.div_ceil(64) as usize];
        for extent in self.kept.iter().flat_map(|kept| kept.extent.0..kept.extent.0 + kept.extents) {
            extents[extent as usize / 64] |= 1 << (extent % 64);
        }
        KeepFilter::Kept { extents, extent_bytes }
    }

    /// Calls `visit` with each run of extents of `within` that no block of the plan takes.
    pub(crate) fn gaps(&self, within: Range<u32>, mut visit: impl FnMut(Extent, u32)) {
        let blocks = self.data.iter().chain(&self.runs).map(|block| (block.extent.0, block.header.extents));
        let mut taken: Vec<_> =
            self.kept.iter().map(|kept| (kept.extent.0, kept.extents)).chain(blocks).collect();
        taken.sort_unstable();
        taken.push((within.end, 0));
        let mut from = within.start;
        for (extent, extents) in taken {
            if extent > from {
                visit(Extent(from), extent - from);
            }
            from = extent + extents;
        }
    }
}

impl<'m> Checkpoint<'m> {
    /// The checkpoint that the superblock points to; `Err` says why it cannot be used.
    pub(crate) fn find<M: Medium>(
        medium: &'m M,
        superblock: &Superblock,
        kind: u8,
        holes: &Holes<'_>,
        threads: usize,
    ) -> Result<Option<Self>, String> {
        let Some(place) = superblock.checkpoint else { return Ok(None) };
        let extent_bytes = u64::from(superblock.extent_bytes);
        let end = u64::from(superblock.extents) * extent_bytes;
        if place.at.checked_add(place.bytes).is_none_or(|to| to > end) {
            return Err(format!("its root at offset {:#x} lies beyond the end", place.at));
        }
        if holes.touch(place.at, place.bytes) {
            return Err(format!("its root at offset {:#x} cannot be read", place.at));
        }
        let bytes = read::block(medium, Offset(place.at), place.bytes);
        let seed = superblock.secret.of_checkpoints();
        let crc = crc32c::crc32c_append(seed, bytes);
        if crc != place.crc {
            return Err(format!("its root has checksum {crc:#010x}, wanted {:#010x}", place.crc));
        }
        let root = Root::decode(bytes, superblock.extents, extent_bytes)?;
        if root.store_id != superblock.store_id {
            return Err("it is of another store".into());
        }
        if root.kind != kind {
            // An open with another kind of index wants it rebuilt.
            return Ok(None);
        }
        // In long pieces, where a device must be read.
        let adjoin = |a: &Page, b: &Page| a.at + u64::from(a.bytes) == b.at;
        for run in root.pages.chunk_by(adjoin) {
            let (from, last) = (run[0].at, run[run.len() - 1]);
            medium.fetch(Offset(from), last.at + u64::from(last.bytes) - from);
        }
        let read_page = |page: &Page| (page.first, read::block(medium, Offset(page.at), page.bytes.into()));
        let pages = root.pages.iter().map(read_page).collect();
        let checkpoint = Self { root, pages };
        match checkpoint.find_damage(seed, holes, threads) {
            Some(wrong) => Err(wrong),
            None => Ok(Some(checkpoint)),
        }
    }

    /// The tables of the checkpoint: the amount, the pages, and the places of the roots that name each.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (TablePages, &PagesOf<'m>, &[Offset])> {
        let (mut pages, mut roots) = (&self.pages[..], &self.root.roots[..]);
        self.root.tables.iter().map(move |&table| {
            let (its_pages, pages_behind) = pages.split_at(table.pages as usize);
            let (its_roots, roots_behind) = roots.split_at(table.roots as usize);
            (pages, roots) = (pages_behind, roots_behind);
            (table, its_pages, its_roots)
        })
    }

    /// The kind of index of a table.
    pub(crate) fn kind_of(&self, owner: Owner) -> u8 {
        match owner {
            Owner::STORE => self.root.kind,
            _ if owner.is_collection() => either::COLLECTION,
            _ => u8::from(owner.is_ordered()),
        }
    }

    /// Describes the damage of a damaged page, if there is one.
    fn find_damage(&self, seed: u32, holes: &Holes<'_>, threads: usize) -> Option<String> {
        let turn = AtomicUsize::new(0);
        let of_table =
            |table: &TablePages| std::iter::repeat_n(self.kind_of(table.owner), table.pages as usize);
        let kinds: Vec<u8> = self.root.tables.iter().flat_map(of_table).collect();
        let work = || {
            loop {
                let at = turn.fetch_add(1, Relaxed);
                let (_, bytes) = self.pages.get(at)?;
                let page = self.root.pages[at];
                if holes.touch(page.at, page.bytes.into()) {
                    return Some(format!("its page at offset {:#x} cannot be read", page.at));
                }
                if crc32c::crc32c_append(seed, bytes) != page.crc {
                    return Some(format!(
                        "its page at offset {:#x} has a wrong checksum, wanted {:#010x}",
                        page.at, page.crc
                    ));
                }
                // Checked now, while it is in the cache.
                if !Index::is_page(kinds[at], bytes) {
                    return Some(format!(
                        "its page at offset {:#x} belongs to another kind of index",
                        page.at
                    ));
                }
            }
        };
        duramen_log::sync::on_threads(threads, work).into_iter().flatten().next()
    }

    /// After a clean close: the checkpoint's own list says what each block is. `must_read` selects kept blocks that are
    /// read nevertheless.
    pub(crate) fn plan_at_close<M: Medium>(
        &self,
        medium: &M,
        holes: &Holes<'_>,
        superblock: &Superblock,
        must_read: impl Fn(&Kept) -> bool,
    ) -> Result<Plan, String> {
        if !self.root.at_close {
            return Err("it was not written when the store was closed".into());
        }
        let header = |extent: Extent| {
            let at = u64::from(extent.0) * u64::from(superblock.extent_bytes);
            if holes.touch(at, block::HEADER_BYTES) {
                return Err(format!("the header of the block at offset {at:#x} cannot be read"));
            }
            let header = read::header(medium, superblock.secret, extent, Offset(at))?;
            match header.state {
                block::State::Data => Ok(DataBlock { extent, header }),
                block::State::Free => {
                    Err(format!("extent {} is free, but the checkpoint covers it", extent.0))
                }
            }
        };
        let is_read = |kept: &Kept| kept.is_unknown() || must_read(kept);
        let (unknown, kept): (Vec<_>, Vec<Kept>) = self.root.blocks.iter().partition(|kept| is_read(kept));
        // An open that did not use the checkpoint and was killed may have freed blocks without records.
        for empty in
            kept.iter().filter(|kept| kept.tail == block::HEADER_BYTES && kept.damage == Damage::None)
        {
            header(empty.extent)?;
        }
        let data = unknown.iter().map(|kept: &Kept| header(kept.extent)).collect::<Result<Vec<_>, _>>()?;
        let runs = self.root.runs.iter().map(|&(extent, _)| header(extent)).collect::<Result<_, _>>()?;
        Ok(Plan { kept, exact: data.is_empty(), data, runs })
    }

    /// After a crash: the headers of all blocks decide. `must_read` as in [`Checkpoint::plan_at_close`].
    pub(crate) fn plan(
        &self,
        data: Vec<DataBlock>,
        counts: impl Fn(Epoch) -> bool,
        must_read: impl Fn(&Kept) -> bool,
    ) -> Plan {
        let blocks: HashMap<Extent, &Kept> =
            self.root.blocks.iter().map(|kept| (kept.extent, kept)).collect();
        let runs: HashMap<Extent, u32> = self.root.runs.iter().copied().collect();
        let mut plan = Plan::default();
        for block in data {
            let header = &block.header;
            let tail = header.seal.filter(|&(_, epoch)| counts(epoch)).map(|(tail, _)| tail);
            let kept = blocks.get(&block.extent).filter(|kept| !must_read(kept)).filter(|kept| {
                (kept.extents, kept.generation, Some(kept.tail)) == (header.extents, header.generation, tail)
            });
            match kept {
                Some(kept) => plan.kept.push(**kept),
                _ if runs.get(&block.extent) == Some(&header.extents)
                    && tail == Some(block::HEADER_BYTES) =>
                {
                    plan.runs.push(block);
                }
                _ => plan.data.push(block),
            }
        }
        if plan.runs.len() != runs.len() {
            plan.data.append(&mut plan.runs);
            plan.data.sort_unstable_by_key(|block| block.extent);
        }
        plan
    }
}
