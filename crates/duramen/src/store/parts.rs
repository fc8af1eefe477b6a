//! A walk over all of a store in parts, for who must see each key exactly once while others write.
//!
//! Each key belongs to one part, whatever is inserted, split or merged: of a hash index a part is a segment, so a range of
//! hashes; of an ordered one it is a range of keys. So whoever keeps writers out while a part is visited, and asks
//! [`StoreOn::has_visited`] for each of their keys, knows of each write whether the walk has seen what was before or after it.

use super::StoreOn;
use crate::index::either::Index;
use crate::index::hash::HashIndex;
use crate::read::scan::SCAN_AHEAD;
use crate::read::table::Target;
use crate::read::{Records, Value};
use crate::sync::reclaim;
use crate::{ErrorKind, Result};
use duramen_media::Medium;
use std::ops::Bound;

/// Entries that a part of an ordered store has.
const PART_ENTRIES: usize = 1024;

/// How far a walk in parts has come; [`Visited::default`] begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visited(Place);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nothing,
    /// Keys whose hash is below this.
    Hashes(u64),
    /// Keys up to this one.
    Keys(Vec<u8>),
    All,
}

impl Visited {
    /// Whether the walk has come to its end.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0 == Place::All
    }
}

impl<M: Medium> StoreOn<M> {
    /// Visits the live entries of the next part, some thousand at most. An entry whose key is written meanwhile may be
    /// visited twice, or as it was before. What is damaged is passed over: whoever asks for it is told.
    ///
    /// # Errors
    /// As [`StoreOn::get`]; `visited` stays where it was then.
    pub fn visit_part(&self, visited: &mut Visited, visit: &mut dyn FnMut(&Value<'_>)) -> Result<()> {
        let next = match (&self.records().tables.store.index, &visited.0) {
            (_, Place::All) | (Index::Collection(_), _) => Place::All,
            (Index::Hash(_), place) => {
                let from = if let Place::Hashes(from) = place { *from } else { 0 };
                match self.records().scan_segment(from, visit)? {
                    0 => Place::All,
                    next => Place::Hashes(next),
                }
            }
            (Index::Ordered(_), place) => {
                let from = match place {
                    Place::Keys(last) => Bound::Excluded(&last[..]),
                    _ => Bound::Unbounded,
                };
                let mut last = None;
                let mut entries = 0;
                for value in self.range((from, Bound::Unbounded))? {
                    let value = match value {
                        Err(error) if error.kind() == ErrorKind::Corrupt => continue,
                        value => value?,
                    };
                    visit(&value);
                    entries += 1;
                    if entries == PART_ENTRIES {
                        last = Some(value.key().to_vec());
                        break;
                    }
                }
                last.map_or(Place::All, Place::Keys)
            }
        };
        visited.0 = next;
        Ok(())
    }

    /// Whether the part to which `key` belongs has been visited.
    #[must_use]
    pub fn has_visited(&self, visited: &Visited, key: &[u8]) -> bool {
        match &visited.0 {
            Place::Nothing => false,
            Place::Hashes(below) => self.records().hasher.hash(key) < *below,
            Place::Keys(last) => key <= &last[..],
            Place::All => true,
        }
    }
}

impl<M: Medium> Records<M> {
    /// Visits the live entries of the segment of the hash `from`, and returns where the next begins, 0 at the end.
    fn scan_segment(&self, from: u64, visit: &mut dyn FnMut(&Value<'_>)) -> Result<u64> {
        let Index::Hash(index) = &self.tables.store.index else { return Ok(0) };
        // The segment may be merged with another before or while it is visited: of that one's keys none belongs here.
        let end = index.segment_end(from, &reclaim::pin());
        let belongs = |hash: u64| hash >= from && (end == 0 || hash < end);
        let mut only = |value: &Value<'_>| {
            if belongs(self.hasher.hash(value.key())) {
                visit(value);
            }
        };
        let mut cursor = from;
        let mut slots = Vec::new();
        loop {
            (cursor, _) = self.scan_together(
                Target::Store,
                cursor,
                SCAN_AHEAD,
                &mut slots,
                &mut only,
                HashIndex::begins_segment,
            )?;
            if cursor == 0 || HashIndex::begins_segment(cursor) && cursor >= end && end != 0 {
                return Ok(end);
            }
        }
    }
}
