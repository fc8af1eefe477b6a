//! When items were last used, and whether they were fetched at all: for the flags `l` and `h` of `mg`, and for `me`.
//!
//! A table of fixed size in DRAM, one word for many keys: a later key takes the word over, and after a restart the
//! table is empty. If its word was taken over, an item counts as never fetched. As in memcached, an item's first fetch
//! only marks it; from the second on its time is that of the last.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

// 8 MiB of address space; only used pages take memory.
const WORDS: usize = 1 << 20;

const FETCHED: u64 = 1 << 32;
const ACTIVE: u64 = 1 << 33;
const TAG_FROM: u32 = 34;

/// The table. A word: bits 0 to 31 Unix seconds, 32 fetched, 33 fetched twice, 34 to 63 of the key's hash.
pub struct LastUsed(Box<[AtomicU64]>);

/// The use of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// It was fetched.
    pub is_fetched: bool,
    /// Seconds since it was stored or fetched last; 0 where that is not known.
    pub seconds: u64,
}

impl Default for LastUsed {
    fn default() -> Self {
        Self((0..WORDS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl LastUsed {
    /// An item is stored at this time.
    #[inline]
    pub fn store(&self, key: &[u8], now: u64) {
        let hash = hash(key);
        self.word(hash).store(tag(hash) | now & u64::from(u32::MAX), Relaxed);
    }

    /// An item is fetched.
    #[inline]
    pub fn fetch(&self, key: &[u8], now: u64) {
        let hash = hash(key);
        let now = now & u64::from(u32::MAX);
        let word = self.word(hash);
        // Relaxed: it is a hint, and any value that was ever right is good enough.
        let before = word.load(Relaxed);
        let after = match before {
            _ if before >> TAG_FROM != tag(hash) >> TAG_FROM => tag(hash) | FETCHED | now,
            _ if before & FETCHED == 0 => before | FETCHED,
            _ => tag(hash) | FETCHED | ACTIVE | now,
        };
        // Most fetches change nothing: then the line stays shared.
        if after != before {
            word.store(after, Relaxed);
        }
    }

    /// The use of an item.
    pub fn of(&self, key: &[u8], now: u64) -> Use {
        let hash = hash(key);
        let word = self.word(hash).load(Relaxed);
        if word >> TAG_FROM != tag(hash) >> TAG_FROM {
            return Use { is_fetched: false, seconds: 0 };
        }
        let seconds = (now as u32).wrapping_sub(word as u32);
        Use { is_fetched: word & FETCHED != 0, seconds: u64::from(seconds) }
    }

    fn word(&self, hash: u64) -> &AtomicU64 {
        &self.0[hash as usize % WORDS]
    }
}

fn tag(hash: u64) -> u64 {
    hash >> TAG_FROM << TAG_FROM
}

/// Good enough to spread keys: a client that makes two keys collide only makes the server forget when they were used.
fn hash(key: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = key.as_chunks::<8>();
    let hash = words.iter().fold(key.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash = mix(mix(hash, u64::from_le_bytes(last)), hash);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fetch_marks_and_the_next_ones_set_the_time() {
        let last_used = LastUsed::default();
        let seen = |is_fetched, seconds| Use { is_fetched, seconds };
        assert_eq!(last_used.of(b"k", 100), seen(false, 0));
        last_used.store(b"k", 100);
        assert_eq!(last_used.of(b"k", 103), seen(false, 3));
        last_used.fetch(b"k", 104);
        assert_eq!(last_used.of(b"k", 105), seen(true, 5));
        last_used.fetch(b"k", 106);
        assert_eq!(last_used.of(b"k", 107), seen(true, 1));
        last_used.fetch(b"k", 108);
        assert_eq!(last_used.of(b"k", 108), seen(true, 0));
        last_used.store(b"k", 109);
        assert_eq!(last_used.of(b"k", 109), seen(false, 0));
    }

    #[test]
    fn keys_are_distinguished() {
        let last_used = LastUsed::default();
        let keys: Vec<String> = (0..1000).map(|at| format!("key:{at}")).collect();
        keys.iter().for_each(|key| last_used.store(key.as_bytes(), 7));
        let known = keys.iter().filter(|key| last_used.of(key.as_bytes(), 9).seconds == 2).count();
        assert!(known > 980, "{known} of 1000 are known");
    }
}
