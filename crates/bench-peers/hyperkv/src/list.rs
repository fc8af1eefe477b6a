//! Nodes: reading them, locking them, and finding a key's place.

use crate::layout::{
    HEAD, HEADER, HEIGHT_MAX, LIVE, LOCK, NEXT, STATE, VALUE, VALUE_HEAD_BYTES, level_and_key_bytes,
};
use crate::store::Store;
use crate::{LogKind, word};
use duramen_media::{LINE_BYTES, Medium, Offset};
use std::cmp::Ordering;
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, fence};

/// The place where a key is or would be: on each level the last node before it, and the node after that.
pub(crate) struct Place {
    pub(crate) before: [u64; HEIGHT_MAX],
    pub(crate) behind: [u64; HEIGHT_MAX],
    /// The node of the key.
    pub(crate) found: Option<u64>,
}

// 100: checks of a lock before the thread yields; a running holder keeps the lock for two drains.
const SPINS: u32 = 100;

/// Waits a little longer at each call.
pub(crate) fn wait(spins: &mut u32) {
    *spins += 1;
    if *spins < SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// The 8 bytes of `key` at `at`, in comparison order; zeros after its end.
#[inline]
fn word_of(key: &[u8], at: usize) -> u64 {
    match key.get(at..at + 8).and_then(|word| word.try_into().ok()) {
        Some(word) => u64::from_be_bytes(word),
        None => {
            let mut word = [0; 8];
            let rest = key.get(at..).unwrap_or_default();
            word[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(word)
        }
    }
}

impl<M: Medium> Store<M> {
    /// The word at `at`.
    #[inline]
    pub(crate) fn word(&self, at: u64) -> u64 {
        #[cfg(test)]
        if self.planted.is_some() && self.reads_left.fetch_sub(1, Relaxed) < 0 {
            panic!("a circle");
        }
        self.medium.load_u64(Offset(at))
    }

    #[inline]
    pub(crate) fn next(&self, node: u64, level: usize) -> u64 {
        self.word(node + NEXT + 8 * level as u64)
    }

    #[inline]
    pub(crate) fn is_live(&self, node: u64) -> bool {
        self.word(node + STATE) == LIVE
    }

    /// How the key of `node` compares with `key`.
    #[inline]
    pub(crate) fn compare(&self, node: u64, key: &[u8]) -> Ordering {
        let (level, bytes) = level_and_key_bytes(self.word(node + HEADER));
        let words = node + NEXT + 8 * level as u64;
        for at in (0..bytes.min(key.len())).step_by(8) {
            let theirs = self.word(words + at as u64).swap_bytes();
            match theirs.cmp(&word_of(key, at)) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        // If all words are the same, the longer key is the shorter one followed by zeros.
        bytes.cmp(&key.len())
    }

    /// Copies `bytes` bytes at `at` out.
    fn copy(&self, at: u64, bytes: usize, into: &mut Vec<u8>) {
        into.resize(bytes.next_multiple_of(8), 0);
        for (i, to) in into.chunks_exact_mut(8).enumerate() {
            to.copy_from_slice(&self.word(at + 8 * i as u64).to_le_bytes());
        }
        into.truncate(bytes);
    }

    /// Copies the key of `node` out.
    pub(crate) fn copy_key(&self, node: u64, into: &mut Vec<u8>) {
        let (level, bytes) = level_and_key_bytes(self.word(node + HEADER));
        self.copy(node + NEXT + 8 * level as u64, bytes, into);
    }

    /// Copies the value of `node` out.
    #[inline]
    pub(crate) fn copy_value(&self, node: u64, into: &mut Vec<u8>) {
        if self.log == LogKind::Redo {
            return self.copy_value_once(node, into);
        }
        // Values change in place: the copy counts if nobody had the lock meanwhile.
        let mut spins = 0;
        loop {
            let version = self.version(node);
            if version & 1 == 0 {
                self.copy_value_once(node, into);
                // The copy is read before the version is read again.
                fence(Acquire);
                if self.version(node) == version {
                    return;
                }
            }
            wait(&mut spins);
        }
    }

    #[inline]
    fn copy_value_once(&self, node: u64, into: &mut Vec<u8>) {
        let value = self.word(node + VALUE);
        self.medium.prefetch(Offset(value + LINE_BYTES));
        self.copy(value + VALUE_HEAD_BYTES, self.word(value) as usize, into);
    }

    /// The lock word in this open: odd while a writer has the lock.
    #[inline]
    fn version(&self, node: u64) -> u64 {
        let word = self.word(node + LOCK);
        // Invariant 5: a lock word of an earlier open counts as unlocked.
        if word >> 32 == self.generation { word } else { self.generation << 32 }
    }

    /// The lock word of a node that is created locked.
    pub(crate) fn locked_word(&self) -> u64 {
        self.generation << 32 | 1
    }

    /// Takes the lock of `node`.
    #[inline]
    pub(crate) fn lock(&self, node: u64) {
        let mut spins = 0;
        loop {
            let word = self.word(node + LOCK);
            let version = if word >> 32 == self.generation { word } else { self.generation << 32 };
            if version & 1 == 0 && word::exchange(&self.medium, node + LOCK, word, version + 1) {
                return;
            }
            wait(&mut spins);
        }
    }

    /// Releases the lock of `node`.
    #[inline]
    pub(crate) fn unlock(&self, node: u64) {
        let word = self.word(node + LOCK);
        // The lower half counts and wraps around; the upper one is the generation.
        let count = (word as u32).wrapping_add(1);
        self.medium.store_u64(Offset(node + LOCK), word >> 32 << 32 | u64::from(count));
    }

    /// Prefetches what the descent reads next if it leaves `at` on `level` and descends.
    #[inline]
    fn fetch_below(&self, at: u64, level: usize) {
        if level > 0 {
            self.medium.prefetch(Offset(self.next(at, level - 1)));
        }
    }

    /// Finds the place of `key`, on all levels.
    #[inline]
    pub(crate) fn find_place(&self, key: &[u8]) -> Place {
        let mut place = Place { before: [HEAD; HEIGHT_MAX], behind: [0; HEIGHT_MAX], found: None };
        // A hint: levels above it that a writer is just beginning to use are checked when they are locked.
        let height = self.height.load(Relaxed);
        let (mut at, mut greater) = (HEAD, 0);
        for level in (0..height).rev() {
            // The compared node is kept and not read again: a smaller key may have been linked in between.
            place.behind[level] = loop {
                let next = self.next(at, level);
                if next == 0 || next == greater || Some(next) == place.found {
                    break next;
                }
                self.fetch_below(at, level);
                match self.compare(next, key) {
                    Ordering::Less => at = next,
                    Ordering::Equal => {
                        place.found = Some(next);
                        break next;
                    }
                    Ordering::Greater => {
                        greater = next;
                        break next;
                    }
                }
            };
            place.before[level] = at;
        }
        place
    }

    /// The node of `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<u64> {
        let (mut at, mut greater) = (HEAD, 0);
        for level in (0..self.height.load(Relaxed)).rev() {
            loop {
                let next = self.next(at, level);
                if next == 0 || next == greater {
                    break;
                }
                self.fetch_below(at, level);
                match self.compare(next, key) {
                    Ordering::Less => at = next,
                    Ordering::Equal => return Some(next),
                    Ordering::Greater => greater = next,
                }
            }
        }
        None
    }

    /// Locks the nodes of `place.before` up to `level`, each once, if nothing has changed since they were found;
    /// returns whether it locked them. With `node`, each of them must point to it.
    pub(crate) fn lock_before(&self, place: &Place, level: usize, node: Option<u64>) -> bool {
        let mut last = 0;
        for (i, &before) in place.before[..level].iter().enumerate() {
            if before != last {
                self.lock(before);
                last = before;
            }
            let wanted = node.unwrap_or(place.behind[i]);
            if !self.is_live(before) || self.next(before, i) != wanted {
                self.unlock_before(place, i + 1);
                return false;
            }
        }
        true
    }

    /// Unlocks the nodes that [`Store::lock_before`] locked.
    pub(crate) fn unlock_before(&self, place: &Place, level: usize) {
        let mut last = 0;
        for &before in &place.before[..level] {
            if before != last {
                self.unlock(before);
                last = before;
            }
        }
    }
}
