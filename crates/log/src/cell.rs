//! Cells: records whose values are updated in place.
//!
//! | part of a cell | changes |
//! |---|---|
//! | header, key, padding | never, once a slot points to it. The checksum covers them and not the value |
//! | value | by one atomic store at a time ([`Cell::store`]), of up to 8 or 16 bytes that are aligned |
//!
//! Order in which the bytes of a cell become durable, and the result of a crash at each point:
//!
//! 1. *Sealed*: it is appended like any value, with a checksum over all of it, as [`Kind::CellSealed`]; drained. A
//!    crash before: a torn record. After: recovery finds a plain value, which stays as it is: an update writes a new
//!    version.
//! 2. *Opened*: one store of its first word, which holds kind and checksum, makes it a [`Kind::CellOpen`]
//!    ([`Appender::open_cell`]); persisted. Both words match the bytes after them, so a crash leaves it sealed or
//!    opened.
//! 3. Only then a slot points to it.
//! 4. *Updated*: one store into the value, persisted before the lock of its key is released. A crash leaves the bytes
//!    before or after each store.
//!
//! Invariants:
//! 1. A writer that stores to a cell holds the lock of its key, its slot is not pending, and the store was counted
//!    before, in the key's stripe (`index::stripes`).
//! 2. A reader without that lock copies a cell again until no store was counted during the copy, or copies it by one
//!    load. So its copy is the cell at one moment. (No line can check it: it is about the stores of others during a
//!    copy. The model `a_cell_is_copied_as_one_snapshot_while_its_parts_are_updated` does.)
//! 3. No cell is appended or updated where epochs are in use: a crash must be able to undo the update alone.
//! 4. Compaction moves a cell under the lock of its key, with the key's next version, as a new one: sealed, opened,
//!    then pointed to.
//! 5. No reference is made to the bytes of an open cell's value: they are loaded in pieces, each by one load. (No line
//!    can check which references exist. The models' medium reports a reference to bytes that are stored to meanwhile.)

use crate::Log;
use crate::appender::Appender;
use crate::format::record::{Appended, Head, Header, Kind};
use crate::reachable::Reachable;
use crate::read::head_at;
use crate::sync::reclaim;
use duramen_media::{Medium, Offset};

/// The value of a cell that a slot points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    value_at: Offset,
    value_bytes: u64,
}

impl Cell {
    /// The cell of the reachable record at `at`, if it is an open cell.
    #[inline]
    pub fn of(at: Offset, head: Head) -> Option<Self> {
        head.is_cell().then(|| Self { value_at: at.plus(head.value_at()), value_bytes: head.value_bytes() })
    }

    /// Key and cell of the reachable record at `at`, if it is an open cell that does not expire and its key has
    /// `key_bytes` bytes.
    #[inline(always)]
    pub fn lasting<M: Medium>(medium: &M, at: Offset, key_bytes: usize) -> Option<(&[u8], Self)> {
        let head = head_at(medium, at);
        if !head.is_lasting_cell() || head.key_bytes() != key_bytes as u64 {
            return None;
        }
        let key_at = at.plus(head.key_at());
        // SAFETY: the key of a reachable record is never stored to (`log::read`, 2).
        let key = unsafe { medium.bytes(key_at, head.key_bytes()) };
        Some((key, Self { value_at: key_at.plus(key_bytes as u64), value_bytes: head.value_bytes() }))
    }

    /// Length of its value, which never changes.
    #[inline]
    pub fn bytes(self) -> usize {
        self.value_bytes as usize
    }

    /// Whether one load copies its whole value, as it is at one moment.
    #[inline]
    pub fn is_one_piece(self) -> bool {
        self.value_at.0 % 8 + self.value_bytes <= 8
    }

    /// Copies its value, piece by piece: a consistent copy if nobody stores during it (2). `into` is as long as the
    /// value.
    #[inline]
    pub fn load<M: Medium>(self, medium: &M, into: &mut [u8]) {
        assert_eq!(into.len(), self.bytes(), "a copy of a cell must be as long as the cell");
        medium.load_pieces(self.value_at, into);
    }

    /// Stores into its value, `at` bytes after its beginning, and makes that durable; `count` counts the store for
    /// readers (1). Returns false, with nothing counted or stored, where one atomic store cannot do it. The caller has
    /// checked that the bytes are within the value.
    #[inline(always)]
    pub fn store<M: Medium>(self, medium: &M, at: usize, bytes: &[u8], count: impl FnOnce()) -> bool {
        assert!(at + bytes.len() <= self.bytes(), "a store of {} bytes at {at} into {self:?}", bytes.len());
        let to = self.value_at.plus(at as u64);
        let len = bytes.len() as u64;
        if !len.is_power_of_two() || len > medium.atomic_bytes_max() || !to.0.is_multiple_of(len) {
            return false;
        }
        count();
        // Release: a reader that observes the store and then finds the key's lock free (`Records::flush_shown`) reads a
        // durable value.
        let stored = medium.store_atomic(to, bytes);
        if stored {
            reclaim::published();
            medium.persist(to, len);
        }
        stored
    }

    /// Begins the write-back of its value. The rest of the record was durable before a slot pointed to it.
    pub fn flush<M: Medium>(self, medium: &M) {
        medium.flush(self.value_at, self.value_bytes);
    }
}

impl Kind {
    /// Whether a record of this kind is an open cell.
    pub fn is_cell(self) -> bool {
        self == Self::CellOpen
    }
}

/// The kind of a value that is appended now; `updatable`: the caller wants to update it in place (3).
#[inline]
pub fn kind_to_append<M: Medium>(log: &Log<M>, updatable: bool) -> Kind {
    if updatable && !log.epochs().in_use() { Kind::CellSealed } else { Kind::Value }
}

impl Appender {
    /// Drains and opens the sealed cell last appended, to which no slot points yet.
    pub fn open_cell<M: Medium>(&mut self, log: &Log<M>, appended: Appended) -> Reachable {
        debug_assert!(
            !log.epochs().in_use(),
            "a cell is opened where a crash cannot undo an epoch (invariant 3)"
        );
        self.drain(log);
        // SAFETY: the record was just appended by this thread, and nobody else can reach it yet.
        let record = unsafe { log.medium.bytes(appended.at, appended.bytes) };
        let sealed = Header::decode_head(record);
        assert!(
            sealed.kind == Kind::CellSealed && sealed.crc == appended.crc,
            "only the sealed cell last appended can be opened (invariant 4); found {sealed:?}, wanted checksum {:#010x}",
            appended.crc
        );
        let open = Header { kind: Kind::CellOpen, ..sealed };
        let head = open.encode(self.seed_at(appended.at));
        log.medium.publish(appended.at, head.first_word());
        Reachable::drained(appended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Epoch, Owner, Version};

    #[test]
    fn a_small_cell_lies_in_one_aligned_word() {
        let cell = |value_at, value_bytes| Cell { value_at: Offset(value_at), value_bytes };
        assert!(cell(64, 8).is_one_piece() && cell(67, 5).is_one_piece() && cell(64, 0).is_one_piece());
        assert!(!cell(67, 6).is_one_piece() && !cell(64, 9).is_one_piece());
    }

    #[test]
    fn only_an_open_cell_has_a_value_that_changes() {
        for kind in [Kind::Value, Kind::Tombstone, Kind::CellSealed, Kind::CellOpen] {
            let header = Header {
                crc: 0,
                kind,
                tag: 0,
                transactional: false,
                drained: true,
                key_bytes: 3,
                value_bytes: 5,
                epoch: Epoch(1),
                version: Version(1),
                expires_at: None,
                owner: Owner(8),
            };
            let head = Head::new(header.encode(0).bytes());
            let wanted = Cell {
                value_at: Offset(64 + crate::format::record::head_bytes(false, true) + 3),
                value_bytes: 5,
            };
            assert_eq!(Cell::of(Offset(64), head), (kind == Kind::CellOpen).then_some(wanted));
        }
    }
}
