//! Handling of records that may differ from the written ones.
//!
//! An open by checkpoint reads no record, and media decay. So a block is *unverified* until all of it was verified, and
//! again when it is known to be damaged. While any block is unverified ([`Records::has_unverified`], one flag that
//! every lookup reads and that is nearly always false), each record of such a block is verified whenever it is used.
//! The check covers the record alone, with the generation of its block, and the record must end before the block's
//! records do.
//!
//! Why a check of the record, and not of the whole block at its first use: a block may have a megabyte, and on a file
//! none of it may be in memory yet. The first reads after an open would take milliseconds instead of microseconds, and
//! read hundreds of times the requested bytes. The background thread reads all blocks in their order anyway. A checksum
//! of the record costs a fraction of its cache misses.
//!
//! A slot with the fingerprint of a key, but with a damaged record, may be the key's. So:
//!
//! * a lookup that finds no whole record of the key, but such a slot, answers `Corrupt`, and never "absent";
//! * a write that depends on the current record answers `Corrupt`;
//! * a put or a delete takes the slot if the record was the key's ([`read::was_of`]). With a second slot the key would
//!   count twice, and would show the old record if the medium read right again. Otherwise the slot may be another
//!   key's, which must not silently become absent: the new record gets its own slot, and the damaged one stays;
//! * a delete returns true exactly where a lookup just before would have shown a value or answered `Corrupt`. It is
//!   unknown whether the key was present then: "true" means that something may have been deleted, "false" that nothing
//!   was. This is no error, since the key is permanently gone, as requested: a retry would learn no more.
//!
//! A damaged block is freed when no slot points to a damaged record in it any more (`Maintenance::mend` of the
//! compactor): its whole records are moved first. Until then it is neither written nor reused.
//!
//! After a restart: an open reads blocks that were known to be damaged at the close, and refuses the store. A full
//! reading knows the whole records, but not the keys of the damaged ones. Each older version might have been
//! superseded, or deleted, by one of those, so none may be served as current.

use crate::Error;
use crate::get::value::{Record, is_same};
use crate::records::Records;
use crate::table::tables::Table;
use duramen_index::Slot;
use duramen_log::read::{self, Unknown, Wrong};
use duramen_log::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use duramen_media::{Medium, Offset};

/// The record of the key that a writer found in a slot.
#[derive(Clone, Copy)]
pub(crate) enum Existing<'a> {
    Whole(Record<'a>),
    /// It was the key's, but is damaged.
    Damaged,
}

impl<'a> Existing<'a> {
    pub(crate) fn whole(self) -> Option<Record<'a>> {
        match self {
            Self::Whole(record) => Some(record),
            Self::Damaged => None,
        }
    }
}

impl<M: Medium> Records<M> {
    /// Whether any record must be verified before it is used.
    #[inline(always)]
    pub(crate) fn has_unverified(&self) -> bool {
        // Acquire: pairs with the Release in `set_has_unverified`.
        self.has_unverified.load(Acquire)
    }

    /// Sets whether any record must be verified before it is used.
    pub(crate) fn set_has_unverified(&self, has_unverified: bool) {
        self.has_unverified.store(has_unverified, Release);
    }

    /// Whether the record that a slot points to is intact. The caller is pinned since before it read the slot.
    #[inline(always)]
    pub(crate) fn is_whole(&self, at: Offset) -> bool {
        !self.has_unverified() || self.verify_record(at).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn verify_record(&self, at: Offset) -> Result<(), Wrong> {
        read::verify_unverified(&self.log.medium, &self.log.blocks, at)
    }

    /// Where the records end in the block that holds the byte at `at`.
    fn end_of_records(&self, at: Offset) -> u64 {
        self.log.blocks.end_of_records(at.0)
    }

    /// The record that a slot points to, if it is intact.
    pub(crate) fn whole_record(&self, at: Offset) -> Option<Record<'_>> {
        self.is_whole(at).then(|| self.record(at))
    }

    /// As [`Records::record_of`]; notes in `damaged` the first slot that may be the key's but points to a damaged
    /// record.
    #[inline(always)]
    pub(crate) fn record_or(&self, slot: Slot, key: &[u8], damaged: &mut Offset) -> Option<Record<'_>> {
        if self.is_whole(slot.location()) {
            let record = self.record(slot.location());
            return is_same(record.key(), key).then_some(record);
        }
        // A tombstone is in the slot itself: whichever key it belongs to, this key is absent.
        if damaged.0 == 0 && !slot.is_tombstone() {
            *damaged = slot.location();
        }
        None
    }

    /// As `record_or`, for a writer of the key: a record known to be the key's is returned even if it is damaged.
    #[inline(always)]
    pub(crate) fn look_up_for_write(
        &self,
        table: &Table,
        slot: Slot,
        key: &[u8],
        unknown: &mut Unknown,
    ) -> Option<Existing<'_>> {
        match self.record_or(slot, key, &mut unknown.at) {
            Some(record) => Some(Existing::Whole(record)),
            None if !self.has_unverified() => None,
            None => self.look_up_damaged_for_write(table, slot, key, unknown),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up_damaged_for_write(
        &self,
        table: &Table,
        slot: Slot,
        key: &[u8],
        unknown: &mut Unknown,
    ) -> Option<Existing<'_>> {
        let at = slot.location();
        let wrong = self.verify_record(at).err()?;
        // A tombstone too: the records it hides may belong to this key.
        unknown.at = at;
        unknown.may_be_live |= !slot.is_tombstone();
        let seeds = self.log.blocks.seeds(self.log.blocks.of(at.0));
        let is_own = wrong != Wrong::Unreadable
            && read::was_of(&self.log.medium, at, self.end_of_records(at), seeds, (table.is_owned(), key));
        is_own.then_some(Existing::Damaged)
    }

    /// Notes that nothing points to some damaged record any more: its block may be freeable.
    #[cold]
    pub(crate) fn mended(&self) {
        self.mends.store(true, Relaxed);
    }

    /// A damaged record was superseded, to which `slot` pointed: returns by how much its block has fewer live bytes.
    /// Not known where its header is damaged; the block then has too many, and is freed by `mend` alone.
    #[cold]
    pub(crate) fn superseded_damaged(&self, slot: Slot) -> u64 {
        self.mended();
        let bytes = read::damaged_bytes(&self.log.medium, &self.log.blocks, slot.location());
        bytes.filter(|_| !slot.covers_no_older_records()).unwrap_or(0)
    }

    /// `Ok` if no slot that may be the key's points to a damaged record.
    #[inline]
    pub(crate) fn error_if_damaged(&self, damaged: Offset) -> crate::Result<()> {
        if damaged.0 == 0 { Ok(()) } else { Err(self.corrupt(damaged)) }
    }

    /// The error for the damaged record at `at`, with the action to take.
    #[cold]
    #[inline(never)]
    pub(crate) fn corrupt(&self, at: Offset) -> Error {
        let extent = self.log.blocks.extent_of(at.0);
        let why = match self.verify_record(at) {
            Err(wrong) => wrong.to_string(),
            Ok(()) => "the first check failed, and a second one succeeded".into(),
        };
        Error::corrupt(format!(
            "the record at offset {at} is damaged (block at extent {}, offset {}): {why}; \
             close the store and run \"duramen check\" for all damage and \"duramen check --salvage NEW\" to save the valid records; a put or \
             delete of the key repairs it, and discards the damaged record",
            extent.0,
            self.log.offset_of(extent)
        ))
    }
}
