//! What is done with records that may not be what was written.
//!
//! An open by checkpoint reads no record, and media decay. So a block is *unverified* until all of it was verified, and
//! again when it is known to be damaged. While any block is ([`Records::has_unverified`], one flag that is read by
//! every lookup and false nearly always), each record of a unverified block is verified whenever it is used: by itself,
//! with the generation of its block, and it must end where the block's records do.
//!
//! Why by the record, and not the whole block at its first use: a block may have a megabyte, and on a file none of it may be in
//! memory yet. The first reads after an open would take milliseconds instead of microseconds, and read hundreds of times what they
//! ask for, while the background thread reads all blocks in their order anyway. A checksum of the record is a fraction of its
//! cache misses.
//!
//! A slot whose fingerprint is that of a key, but whose record is damaged, may be the key's. So:
//!
//! * a lookup that finds no whole record of the key, but such a slot, answers `Corrupt`, and never "absent";
//! * a write that depends on what is there answers `Corrupt`;
//! * a put or a delete takes the slot if the record was the key's ([`read::was_of`]), and the key is whole from then on. Else the
//!   slot may be another key's, which must not become absent without a word: the new record gets a slot of its own, and the damaged one stays;
//! * a delete says true exactly where a lookup just before would have shown a value or answered `Corrupt`. Nobody knows whether the key was
//!   there then: "true" says that something may have gone, "false" that nothing has. It is no error, since the key is gone for good, as
//!   asked: who had to try again would learn no more.
//!
//! A damaged block is freed when no slot points to a damaged record in it any more (`Maintenance::mend` of the
//! compactor): what is whole is moved first. Until then it is neither written nor reused.
//!
//! What a restart may say. An open reads blocks that were known to be damaged at the close, and refuses the store.
//! A full reading knows the records that are whole, and not which keys those had that are not: each older version might have been
//! superseded, or deleted, by one of them, so none may be served as if it were current.

use super::Records;
use super::table::{Table, Target};
use super::value::{Record, is_same};
use crate::Error;
use crate::index::Slot;
use crate::log::read::{self, Unknown, Wrong};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::reclaim;
use duramen_media::{Medium, Offset};

/// What a slot that is looked at by a writer points to: a record of the key.
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
    /// Whether any record has to be verified before it is used.
    #[inline(always)]
    pub(crate) fn has_unverified(&self) -> bool {
        // Acquire: pairs with the Release in `set_has_unverified`.
        self.has_unverified.load(Acquire)
    }

    /// Nothing is verified any more from now on, or again.
    pub(crate) fn set_has_unverified(&self, has_unverified: bool) {
        self.has_unverified.store(has_unverified, Release);
    }

    /// Whether the record that a slot points to is what was written. The caller is pinned since before it read the
    /// slot.
    #[inline(always)]
    pub(crate) fn is_whole(&self, at: Offset) -> bool {
        !self.has_unverified() || self.verify_record(at).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn verify_record(&self, at: Offset) -> Result<(), Wrong> {
        if crate::mutants::planted(crate::mutants::Mutant::UsedUnverified) {
            return Ok(());
        }
        read::verify_unverified(&self.log.medium, &self.log.blocks, at)
    }

    /// Where the records of the block end that the byte at `at` is in.
    fn end_of_records(&self, at: Offset) -> u64 {
        self.log.blocks.end_of_records(at.0)
    }

    /// The record that a slot points to, if it is what was written.
    pub(crate) fn whole_record(&self, at: Offset) -> Option<Record<'_>> {
        self.is_whole(at).then(|| self.record(at))
    }

    /// As [`Records::record_of`]; notes in `damaged` the first slot that may be the key's, but points to what is not
    /// whole.
    #[inline(always)]
    pub(crate) fn record_or(&self, slot: Slot, key: &[u8], damaged: &mut Offset) -> Option<Record<'_>> {
        if self.is_whole(slot.location()) {
            let record = self.record(slot.location());
            return is_same(record.key(), key).then_some(record);
        }
        // What a tombstone says is in the slot: whoever's it is, the key is absent.
        if damaged.0 == 0 && !slot.is_tombstone() {
            *damaged = slot.location();
        }
        None
    }

    /// The same for who writes the key: what is known to be its own is its own, though it is damaged.
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
        // Also a tombstone: what it hides is not known to be somebody else's.
        unknown.at = at;
        unknown.may_be_live |= !slot.is_tombstone();
        let seeds = self.log.blocks.seeds(self.log.blocks.of(at.0));
        let is_own = wrong != Wrong::Unreadable
            && read::was_of(&self.log.medium, at, self.end_of_records(at), seeds, (table.is_owned(), key));
        is_own.then_some(Existing::Damaged)
    }

    /// What the damaged records that slots of a table point to say of whose they were.
    pub(crate) fn claimed_keys(&self, target: Target<'_>) -> Vec<Vec<u8>> {
        let (mut claimed, mut cursor) = (Vec::new(), 0);
        while self.has_unverified() {
            let guard = reclaim::pin();
            let Ok(table) = self.tables.at(target, &guard) else { break };
            cursor = table.index.scan(cursor, &guard, &mut |slot| {
                let at = slot.location();
                if !self.is_whole(at) {
                    let (medium, end) = (&self.log.medium, self.end_of_records(at));
                    claimed.extend(read::claimed_keys(medium, at, end, table.is_owned()));
                }
            });
            if cursor == 0 {
                break;
            }
        }
        claimed
    }

    /// Nothing points to the damaged record at `at` any more: maybe its block can go.
    #[cold]
    pub(crate) fn mended(&self) {
        self.mends.store(true, Relaxed);
    }

    /// Says nothing if no slot that may be the key's pointed to a damaged record.
    #[inline]
    pub(crate) fn error_if_damaged(&self, damaged: Offset) -> crate::Result<()> {
        if damaged.0 == 0 { Ok(()) } else { Err(self.corrupt(damaged)) }
    }

    /// That the record at `at` is damaged, and what to do.
    #[cold]
    #[inline(never)]
    pub(crate) fn corrupt(&self, at: Offset) -> Error {
        let extent = self.log.blocks.extent_of(at.0);
        let why = match self.verify_record(at) {
            Err(wrong) => wrong.to_string(),
            Ok(()) => "it was not whole a moment ago, and is now".into(),
        };
        Error::corrupt(format!(
            "the record at offset {at} is damaged (block at extent {}, offset {}): {why}; \
             close the store and run \"duramen check\" for all damage and \"duramen check --salvage NEW\" to save what is valid; a put or \
             delete of the key makes it whole, and gives up what may be left of it",
            extent.0,
            self.log.offset_of(extent)
        ))
    }
}
