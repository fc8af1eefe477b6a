//! Recovery at open: active entries are redone or undone, and unreachable blocks become free.
//!
//! Nothing read here is trusted: an invalid word is an error that says where it is.

use crate::layout::{
    HEAD, HEADER, HEIGHT_MAX, KEY_BYTES_MAX, LIVE, LogKind, NEXT, STATE, VALUE, VALUE_HEAD_BYTES, entries,
    level_and_key_bytes, node_lines, slot_bytes, value_lines,
};
use crate::log::{ACTIVE, Action};
use crate::store::Store;
use crate::{Error, ErrorKind, Result};
use duramen_media::{LINE_BYTES, Medium, Offset};

#[cold]
fn damaged(what: &str, at: u64, found: u64, wanted: &str) -> Error {
    Error::new(
        ErrorKind::Io,
        format!(
            "{what} at {at:#x}: found {found:#x}, wanted {wanted}; the store is damaged, restore it from a copy"
        ),
    )
}

/// The lines of the heap that begin a block in use.
struct InUse(Vec<u64>);

impl InUse {
    /// Marks `line` as in use; returns whether it was not in use before.
    fn insert(&mut self, line: u64) -> bool {
        let word = &mut self.0[line as usize / 64];
        let is_new = *word >> (line % 64) & 1 == 0;
        *word |= 1 << (line % 64);
        is_new
    }

    fn contains(&self, line: u64) -> bool {
        self.0[line as usize / 64] >> (line % 64) & 1 != 0
    }
}

impl<M: Medium> Store<M> {
    /// Redoes or undoes the active entries and returns their number. Each becomes inactive only after the stores for it
    /// are durable.
    ///
    /// A killed process leaves lines in the caches that are older on the medium. So recovery writes back the words it
    /// reads before it relies on them: inactive entries, and everything that an active one points to.
    pub(crate) fn replay(&self) -> Result<u64> {
        let mut count = 0;
        for at in entries(self.log, self.sessions) {
            self.medium.flush(Offset(at), 8);
            let first = self.word(at);
            if first & ACTIVE == 0 {
                continue;
            }
            let is_whole = match self.log {
                LogKind::Redo => self.redo(at, first)?,
                LogKind::Undo => self.undo(at, first)?,
            };
            if is_whole {
                self.modified();
                count += 1;
            }
            self.medium.publish(Offset(at), 0);
        }
        self.medium.drain();
        Ok(count)
    }

    /// Continues the checksum `sum` over the `bytes` bytes at `at`.
    fn summed(&self, sum: u32, at: u64, bytes: u64) -> u32 {
        let add = |sum, word: u64| crc32c::crc32c_append(sum, &self.word(word).to_le_bytes());
        (at..at + bytes).step_by(8).fold(sum, add)
    }

    /// Like `summed`, and starts the write-back of those bytes.
    fn summed_and_flushed(&self, sum: u32, at: u64, bytes: u64) -> u32 {
        self.medium.flush(Offset(at), bytes);
        self.summed(sum, at, bytes)
    }

    /// The sum of the value that begins at `value` and of the node at `node`, as far as the action has them. `None` if
    /// no whole entry can point to them. Starts their write-back.
    fn sum_of_new(&self, action: Action, node: u64, value: u64) -> Option<u32> {
        if action == Action::Delete {
            return Some(0);
        }
        let inside = |at: u64, bytes: u64| {
            let begins = at.is_multiple_of(LINE_BYTES) && at >= self.heap.chunk_at(0);
            begins && at.checked_add(bytes).is_some_and(|end| end <= self.heap_end())
        };
        if !inside(value, LINE_BYTES) {
            return None;
        }
        let bytes = VALUE_HEAD_BYTES.checked_add(self.word(value).checked_next_multiple_of(8)?)?;
        if !inside(value, bytes) {
            return None;
        }
        let sum = self.summed_and_flushed(0, value, bytes);
        if action == Action::Update {
            return Some(sum);
        }
        if !inside(node, LINE_BYTES) {
            return None;
        }
        let (level, key_bytes) = level_and_key_bytes(self.word(node + HEADER));
        let bytes = NEXT + 8 * level as u64 + key_bytes.next_multiple_of(8) as u64;
        inside(node, bytes).then(|| self.summed_and_flushed(sum, node, bytes))
    }

    /// Returns `node` if a block can be there.
    fn checked(&self, what: &str, at: u64, node: u64) -> Result<u64> {
        let inside = node == HEAD || self.heap.chunk_at(0) <= node && node < self.heap_end();
        if inside && node.is_multiple_of(LINE_BYTES) {
            Ok(node)
        } else {
            Err(damaged(what, at, node, "a line of the heap"))
        }
    }

    /// Redoes the entry; returns whether it was whole.
    fn redo(&self, at: u64, first: u64) -> Result<bool> {
        let (word, node, value) = (self.word(at + 8), self.word(at + 16), self.word(at + 24));
        let level = word >> 8;
        let Some(action) = Action::of(word as u8).filter(|_| level <= HEIGHT_MAX as u64) else {
            return Ok(false);
        };
        let Some(sum) = self.sum_of_new(action, node, value) else { return Ok(false) };
        if first & !ACTIVE != u64::from(self.summed_and_flushed(sum, at + 8, 8 * (3 + level))) {
            return Ok(false);
        }
        self.medium.drain();
        // From here on the entry is as it was written: an invalid word was already invalid when written, or is damage.
        let node = self.checked("node of an entry", at, node)?;
        if action == Action::Update {
            self.modify(node + VALUE, value);
            return Ok(true);
        }
        if action == Action::Delete {
            self.modify(node + STATE, 0);
        }
        for i in 0..level {
            let before = self.checked("predecessor of an entry", at, self.word(at + 32 + 8 * i))?;
            let to = if action == Action::Insert { node } else { self.next(node, i as usize) };
            self.modify(before + NEXT + 8 * i, to);
        }
        Ok(true)
    }

    /// Undoes the entry; returns whether it was whole.
    fn undo(&self, at: u64, first: u64) -> Result<bool> {
        let bytes = self.word(at + 8);
        if bytes > slot_bytes(LogKind::Undo) - 16 || !bytes.is_multiple_of(8) {
            return Ok(false);
        }
        if first & !ACTIVE != u64::from(self.summed(0, at + 8, 8 + bytes)) {
            return Ok(false);
        }
        let (mut from, end) = (at + 16, at + 16 + bytes);
        while from < end {
            let (to, count) = (self.word(from), self.word(from + 8));
            if !to.is_multiple_of(8) || count > end - from - 16 || to + count > self.heap_end() {
                return Err(damaged("range of an entry", from, to, "words of nodes or values"));
            }
            for word in (0..count).step_by(8) {
                self.medium.store_u64(Offset(to + word), self.word(from + 16 + word));
            }
            self.medium.flush(Offset(to), count);
            from += 16 + count;
        }
        Ok(true)
    }

    /// Walks all nodes, and frees every block that none of them uses. Returns the number of nodes.
    ///
    /// # Errors
    /// When a node is invalid, or a block is in use twice.
    pub(crate) fn rebuild_free_lists(&self) -> Result<u64> {
        let (first, end) = (self.heap.chunk_at(0), self.heap_end());
        let mut in_use = InUse(vec![0; ((end - first) / LINE_BYTES).div_ceil(64) as usize]);
        let mut occupy = |what, at, block: u64| -> Result<()> {
            if block < first || block >= end || !block.is_multiple_of(LINE_BYTES) {
                return Err(damaged(what, at, block, "a line of the heap"));
            }
            if !in_use.insert((block - first) / LINE_BYTES) {
                return Err(damaged(what, at, block, "a block that nothing else uses"));
            }
            Ok(())
        };
        let (mut count, mut from) = (0, HEAD);
        loop {
            let node = self.next(from, 0);
            if node == 0 {
                break;
            }
            occupy("next node", from, node)?;
            let header = self.word(node + HEADER);
            let (level, key_bytes) = level_and_key_bytes(header);
            if level == 0 || level > HEIGHT_MAX || key_bytes > KEY_BYTES_MAX {
                return Err(damaged("header of a node", node, header, "a level up to 24, a key up to 1024"));
            }
            let lines = node_lines(level, key_bytes);
            if node + lines * LINE_BYTES > end {
                return Err(damaged("header of a node", node, header, "a node within the heap"));
            }
            if !self.is_live(node) {
                return Err(damaged("state of a node", node, self.word(node + STATE), &format!("{LIVE}")));
            }
            let value = self.word(node + VALUE);
            occupy("value of a node", node, value)?;
            let bytes = self.word(value);
            if bytes > self.medium.len() || value + value_lines(bytes) * LINE_BYTES > end {
                return Err(damaged("length of a value", value, bytes, "a value within the heap"));
            }
            count += 1;
            from = node;
        }
        let is_live = |at: u64| in_use.contains((at - first) / LINE_BYTES);
        self.heap.sweep(&self.medium, is_live)?;
        Ok(count)
    }

    /// Compares all levels: keys ascend on each, and each node is linked on all of its levels and on no other. For
    /// tests.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn verify(&self) -> Result<u64> {
        let (mut key, mut last) = (Vec::new(), Vec::new());
        let mut above: [u64; HEIGHT_MAX] = std::array::from_fn(|level| self.next(HEAD, level));
        let (mut count, mut node) = (0, self.next(HEAD, 0));
        while node != 0 {
            self.copy_key(node, &mut key);
            if count > 0 && last >= key {
                return Err(damaged("key of a node", node, count, "a key above the previous one"));
            }
            let (level, _) = level_and_key_bytes(self.word(node + HEADER));
            for (i, next) in above.iter_mut().enumerate() {
                if (*next == node) != (i < level) {
                    return Err(damaged("level of a node", node, i as u64, &format!("{level} levels")));
                }
                if *next == node {
                    *next = self.next(node, i);
                }
            }
            std::mem::swap(&mut key, &mut last);
            count += 1;
            node = above[0];
        }
        match above.iter().position(|next| *next != 0) {
            Some(level) => Err(damaged("end of a level", HEAD, level as u64, "the same end as level 0")),
            None => Ok(count),
        }
    }
}
