//! The state of a medium before any record is read: its superblock, its commit marks, the headers of its blocks, and an
//! index checkpoint, if there is one.
//!
//! Decides which epochs count ([`Cut`]), and which blocks must be read ([`Plan`]). Writes nothing.

use crate::checkpoint::plan::{Checkpoint, Plan};
use crate::options::{IndexKind, OnCorruption, Options};
use crate::recover::cut::Cut;
use crate::recover::given::Flushes;
use crate::recover::{Stop, scan};
use crate::{Error, ErrorKind, Result};
use duramen_log::format::block::DataBlock;
use duramen_log::format::checkpoint::{Damage, Kept};
use duramen_log::format::holes::Holes;
use duramen_log::format::mark::Mark;
use duramen_log::format::superblock::{BOOT_UNKNOWN, Regime, Superblock};
use duramen_log::format::{Epoch, Extent, Generation, HEAD_BYTES, block};
use duramen_log::read;
use duramen_media::{Granularity, Medium, Offset};
use std::ops::RangeInclusive;

/// Block headers that are prefetched while one is read.
const HEADERS_AHEAD: u64 = 8;
/// Where headers lie on a device, it reads so many at a time.
const HEADERS_FETCHED: u64 = 64;

/// The medium to recover, and the options.
pub(crate) struct Source<'m, M: Medium> {
    pub medium: &'m M,
    pub superblock: Superblock,
    pub options: &'m Options,
    pub extent_bytes: u64,
    pub threads: usize,
    /// The machine was rebooted since the store was opened last, or may have been.
    pub rebooted: bool,
}

/// The contents of the block headers.
#[derive(Default)]
pub(crate) struct Headers {
    pub free: Vec<(Extent, block::Header)>,
    pub damage: Vec<String>,
    /// Extents whose header is damaged.
    pub lost: Vec<Extent>,
    data: Vec<DataBlock>,
    incarnation_max: u32,
}

/// The state of a medium before its records are read.
pub(crate) struct Heads<'m> {
    pub holes: Holes<'m>,
    pub checkpoint: Option<Checkpoint<'m>>,
    pub headers: Headers,
    /// The newest first.
    pub marks: Vec<(usize, Mark)>,
    pub incarnation: u32,
    pub cut: Cut,
    pub plan: Plan,
    /// The plan names all blocks: extents in none of them are free.
    pub names_all: bool,
}

impl Heads<'_> {
    /// The epoch of the last commit recorded on the medium.
    pub(crate) fn newest_epoch(&self) -> u64 {
        self.marks.first().map_or(0, |(_, mark)| mark.epoch.0)
    }

    /// The newest known time that the store has issued.
    pub(crate) fn time_floor(&self, superblock: &Superblock) -> u64 {
        self.marks.iter().map(|(_, mark)| mark.time_floor).max().unwrap_or(0).max(superblock.time_floor)
    }

    /// Whether anything except records is known to be damaged.
    pub(crate) fn has_damage(&self) -> bool {
        !self.headers.damage.is_empty()
            || self.holes.damage().next().is_some()
            || self.plan.kept.iter().any(|kept| kept.damage != Damage::None)
    }
}

impl<'m, M: Medium> Source<'m, M> {
    /// # Errors
    /// `Corrupt` when the medium is shorter than its superblock says.
    pub(crate) fn new(medium: &'m M, superblock: Superblock, options: &'m Options) -> Result<Self> {
        let extent_bytes = u64::from(superblock.extent_bytes);
        let threads = match options.recovery_threads {
            0 => duramen_log::sync::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let rebooted = superblock.boot_id == BOOT_UNKNOWN || superblock.boot_id != options.boot_id_now();
        let source = Self { medium, superblock, options, extent_bytes, threads, rebooted };
        if medium.len() < source.bytes() {
            return Err(Error::corrupt(format!(
                "the medium has {} bytes, the superblock says {}: it was truncated; restore the missing part, or run \
                 \"duramen check --salvage NEW\" on a copy that is extended with zeros",
                medium.len(),
                source.bytes()
            )));
        }
        Ok(source)
    }

    /// The bytes of the medium that the store occupies.
    fn bytes(&self) -> u64 {
        u64::from(self.superblock.extents) * self.extent_bytes
    }

    /// The first extent after the head.
    pub(crate) fn first_extent(&self) -> u32 {
        HEAD_BYTES.div_ceil(self.extent_bytes) as u32
    }

    /// Reads heads, marks, and the checkpoint, if it is wanted.
    pub(crate) fn read_heads(&self, with_checkpoint: bool) -> std::result::Result<Heads<'m>, Stop> {
        let (medium, superblock) = (self.medium, &self.superblock);
        let mut holes = Holes::of_what_is_read(medium);
        let checkpoint = match with_checkpoint {
            true => {
                let kind = u8::from(self.options.index == IndexKind::Ordered);
                Checkpoint::find(medium, superblock, kind, &holes, self.threads).map_err(Stop::Checkpoint)?
            }
            false => None,
        };
        // With memory as medium, querying each header takes longer than querying the whole medium.
        if checkpoint.is_none() || !superblock.clean && medium.granularity() == Granularity::CacheLine {
            holes = Holes::of_on_threads(medium, self.bytes(), self.threads);
        }
        if checkpoint.is_none() {
            medium.fault_in(Offset(0), self.bytes());
        }
        // Read, to report what is wrong with it.
        let must_read =
            |kept: &Kept| kept.damage != Damage::None && self.options.on_corruption == OnCorruption::Refuse;
        // After a clean close the checkpoint lists all blocks.
        let known = checkpoint
            .as_ref()
            .filter(|_| superblock.clean)
            .map(|checkpoint| checkpoint.plan_at_close(medium, &holes, superblock, must_read))
            .transpose()
            .map_err(Stop::Checkpoint)?;
        let mut headers = match known {
            None => self.walk_headers(&holes),
            Some(_) => Headers::default(),
        };
        let marks = Mark::find(medium, superblock.secret, &holes);
        let incarnation = self.next_incarnation(&headers, &marks)?;
        let cut = self.decide_cut(&headers, &marks, &holes);
        let names_all = known.is_some();
        let data = std::mem::take(&mut headers.data);
        let plan = match (known, &checkpoint) {
            (Some(plan), _) => plan,
            (None, Some(checkpoint)) => checkpoint.plan(data, |epoch| cut.keeps(epoch), must_read),
            (None, None) => Plan { data, ..Plan::default() },
        };
        Ok(Heads { holes, checkpoint, headers, marks, incarnation, cut, plan, names_all })
    }

    /// Visits every extent once, by the headers (format invariant 3).
    fn walk_headers(&self, holes: &Holes<'_>) -> Headers {
        let (mut headers, mut extents_usual) = (Headers::default(), 1);
        let mut extent = self.first_extent();
        while extent < self.superblock.extents {
            let at = Offset(u64::from(extent) * self.extent_bytes);
            // Most blocks are as long as the one before.
            self.medium.prefetch(at.plus(HEADERS_AHEAD * extents_usual * self.extent_bytes));
            let ahead = HEADERS_FETCHED * extents_usual * self.extent_bytes;
            self.medium.fetch(at.plus(ahead), block::HEADER_BYTES);
            match self.header_at(extent, at, holes) {
                Ok(header) => {
                    headers.incarnation_max = headers.incarnation_max.max(header.generation.incarnation());
                    match header.state {
                        block::State::Data => headers.data.push(DataBlock { extent: Extent(extent), header }),
                        block::State::Free => headers.free.push((Extent(extent), header)),
                    }
                    extents_usual = u64::from(header.extents);
                    extent += header.extents;
                }
                Err(why) => {
                    headers.damage.push(format!("extent {extent} at offset {at}: {why}"));
                    headers.lost.push(Extent(extent));
                    // The length of the block is not known: look at the next extent.
                    extent += 1;
                }
            }
        }
        headers
    }

    /// The header of the block that begins at `extent`; `Err` says why there is none.
    fn header_at(
        &self,
        extent: u32,
        at: Offset,
        holes: &Holes<'_>,
    ) -> std::result::Result<block::Header, String> {
        if holes.touch(at.0, block::HEADER_BYTES) {
            return Err("block header cannot be read".into());
        }
        let header = read::header(self.medium, self.superblock.secret, Extent(extent), at)?;
        let (end, extents) = (u64::from(extent) + u64::from(header.extents), self.superblock.extents);
        if end > u64::from(extents) {
            return Err(format!("block ends at extent {end}, the store has {extents}"));
        }
        Ok(header)
    }

    /// One above every incarnation recorded on the medium.
    fn next_incarnation(&self, headers: &Headers, marks: &[(usize, Mark)]) -> Result<u32> {
        let known = marks.iter().map(|(_, mark)| mark.incarnation).max().unwrap_or(0);
        let incarnation = self.superblock.incarnation.max(headers.incarnation_max).max(known) + 1;
        if incarnation > Generation::INCARNATION_MAX {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the store was opened {incarnation} times, the maximum of its format: dump it and load it into a \
                     new store"
                ),
            ));
        }
        Ok(incarnation)
    }

    /// Which epochs count. Only writes of the last incarnation are in question: everything earlier was decided when it
    /// began.
    fn decide_cut(&self, headers: &Headers, marks: &[(usize, Mark)], holes: &Holes<'_>) -> Cut {
        let superblock = &self.superblock;
        let whole = superblock.clean
            || match superblock.regime {
                Regime::Immediate => true,
                // The page cache, or the CPU's caches, outlived the process.
                Regime::Epochs => !self.rebooted,
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
                // After a process crash without a reboot no record that a mark covers can be missing.
                !self.rebooted || {
                    let (records, sum) =
                        scan::count_epoch(self.medium, superblock, &headers.data, mark.epoch, holes);
                    (records, sum) == (mark.records, mark.sum)
                }
            })
            .map_or(none, |(_, mark)| mark.epoch);
        Cut { base, committed }
    }

    /// The epochs that a block without a seal can hold. Each commit writes a mark, so the last epoch of the store is at
    /// most one above the newest.
    pub(crate) fn epochs(&self, heads: &Heads<'_>) -> RangeInclusive<u64> {
        let base = self.superblock.epoch_base;
        let last = if self.superblock.sequence == 0 { Epoch::MAX - 2 } else { 0 };
        base..=last.max(heads.newest_epoch().max(base) + 1)
    }

    /// The parts of the medium that must be flushed because they were read. Not durable yet may be: after a process
    /// crash, anything; after a reboot, changes to heads of blocks by a recovery that was killed since then; after a
    /// clean close that did not finish, the superblock.
    pub(crate) fn flushes(&self) -> Flushes {
        match (self.medium.granularity(), self.superblock.clean, self.rebooted) {
            (Granularity::CacheLine, false, false) => Flushes::Records,
            (Granularity::CacheLine, false, true) => Flushes::Heads,
            _ => Flushes::Nothing,
        }
    }

    /// Makes durable the heads that were read, where they may not be durable yet.
    pub(crate) fn flush_heads(&self, heads: &Heads<'_>) {
        if self.medium.granularity() == Granularity::CacheLine {
            self.medium.flush(Offset(0), HEAD_BYTES);
            if self.flushes() != Flushes::Nothing {
                for &(extent, _) in &heads.headers.free {
                    self.medium.flush(Offset(u64::from(extent.0) * self.extent_bytes), block::HEADER_BYTES);
                }
            }
            self.medium.drain();
        }
    }
}
