//! How far a group has read: XINFO's `entries-read` and `lag`.
//!
//! Redis counts the entries that a group reads as long as it knows that none between them was deleted; otherwise it
//! derives the count from the ends of the stream, or has none.

use std::ops::Deref;

use super::{Group, Stream, StreamId};

impl<B: Deref<Target = [u8]>> Stream<B> {
    /// How many of all entries ever added are up to this id, if that is known.
    pub(crate) fn count_up_to(&self, id: StreamId) -> Option<i64> {
        let added = self.added() as i64;
        if added == 0 || self.is_empty() && id <= self.last_id() {
            return Some(added);
        }
        if id == self.last_id() {
            return Some(added);
        }
        // Deletions of later entries are unknown.
        let is_whole = self.deleted_id() == StreamId::MIN || self.deleted_id() < self.first_id();
        if id > self.last_id() || !is_whole || id > self.first_id() {
            return None;
        }
        let before = added.wrapping_sub(self.len() as i64);
        Some(before.wrapping_add(i64::from(id == self.first_id())))
    }

    /// Whether an entry at or after this id may have been deleted.
    fn may_miss_from(&self, id: StreamId) -> bool {
        let deleted = self.deleted_id();
        !self.is_empty() && deleted != StreamId::MIN && deleted >= self.first_id() && id <= deleted
    }

    /// How many entries the group has yet to read, if that is known.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        let added = self.added() as i64;
        if added == 0 {
            return Some(0);
        }
        let read = group.entries_read.filter(|_| !self.may_miss_from(group.last_id));
        Some(added.wrapping_sub(read.or_else(|| self.count_up_to(group.last_id))?))
    }

    /// The group has read this entry, which is after all that it had read.
    pub fn read_by(&self, group: &mut Group, id: StreamId) {
        group.entries_read = match group.entries_read.filter(|_| !self.may_miss_from(id)) {
            Some(read) => Some(read.wrapping_add(1)),
            None if self.added() != 0 => self.count_up_to(id),
            None => group.entries_read,
        };
        group.last_id = id;
    }
}
