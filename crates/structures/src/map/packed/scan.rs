//! A part of a collection at a time, as HSCAN, SSCAN and ZSCAN ask for it.
//!
//! A collection that is small to Redis is returned at once. Otherwise entries come by ascending hash of their names,
//! and the cursor is the least hash not returned yet. So an entry that exists from the first call to the last is
//! returned once, whatever is put or removed meanwhile. A part takes time in proportion to the whole collection.

use std::hash::{DefaultHasher, Hasher};
use std::ops::{ControlFlow, Deref};

use super::PackedMap;
use crate::packed::Malformed;

// So that a cursor is an integer to clients that have doubles only, the bit that says whose it is included.
const HASH_BITS: u32 = 52;
/// Set in all cursors of a packed collection except 0, and in none of a large one. A cursor of the other form starts
/// again, because the two forms count differently.
pub(crate) const CURSOR_PACKED: u64 = 1 << HASH_BITS;

impl<B: Deref<Target = [u8]>> PackedMap<B> {
    /// Calls `visit` for about `count` entries from `cursor` on, which is 0 at the start. Returns the next cursor, 0 at
    /// the end.
    pub fn scan<'a>(
        &'a self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&'a [u8], &'a [u8]),
    ) -> Result<u64, Malformed> {
        if !self.is_converted()? {
            self.visit(|name, value| {
                visit(name, value);
                ControlFlow::Continue(())
            })?;
            return Ok(0);
        }
        let mut entries = Vec::new();
        let from = if cursor & CURSOR_PACKED == 0 { 0 } else { cursor & (CURSOR_PACKED - 1) };
        self.visit(|name, value| {
            let hash = hash(name);
            if hash >= from {
                entries.push((hash, name, value));
            }
            ControlFlow::Continue(())
        })?;
        let next = if entries.len() <= count.max(1) {
            0
        } else {
            let (_, &mut (last, ..), rest) =
                entries.select_nth_unstable_by_key(count.max(1) - 1, |&(hash, ..)| hash);
            // Names of one hash come together.
            let last_of_all = rest.iter().all(|&(hash, ..)| hash == last);
            entries.retain(|&(hash, ..)| hash <= last);
            if last_of_all { 0 } else { CURSOR_PACKED | (last + 1) }
        };
        for (_, name, value) in entries {
            visit(name, value);
        }
        Ok(next)
    }
}

/// Always the same of a name, so that a cursor outlives its connection.
fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish() >> (u64::BITS - HASH_BITS)
}
