//! Hashes of recently evicted keys, a byte of each.
//!
//! A word is a queue of the last eight hashes that fell into it, the newest in the lowest byte. So a key is remembered
//! until about as many others were evicted as there are bytes. One key in thirty that was never evicted looks as if it
//! was (8 of 255).

/// Keys of the store for each word.
const KEYS_PER_WORD: u64 = 32;
const WORDS_MIN: u64 = 128;
const PER_WORD: u32 = 8;

/// See the module.
#[derive(Default)]
pub(crate) struct Ghosts {
    words: Vec<u64>,
}

impl Ghosts {
    /// The word of a hash, and its byte, which is not 0.
    fn place(&self, hash: u64) -> (usize, u64) {
        // The index and the counters use other bits of it.
        let mixed = hash.wrapping_mul(0xd134_2543_de82_ef95);
        let at = (u128::from(mixed) * self.words.len() as u128) >> 64;
        (at as usize, mixed % 255 + 1)
    }

    /// Notes that a key was evicted.
    pub(crate) fn add(&mut self, hash: u64) {
        if !self.words.is_empty() {
            let (at, byte) = self.place(hash);
            self.words[at] = self.words[at] << 8 | byte;
        }
    }

    /// Whether a key was evicted recently; it is then forgotten.
    pub(crate) fn take(&mut self, hash: u64) -> bool {
        if self.words.is_empty() {
            return false;
        }
        let (at, byte) = self.place(hash);
        let word = self.words[at];
        let Some(shift) = (0..PER_WORD).map(|at| 8 * at).find(|shift| word >> shift & 0xff == byte) else {
            return false;
        };
        self.words[at] = word & !(0xff << shift);
        true
    }

    /// Resizes it for a store of so many keys. A large change of size forgets everything.
    pub(crate) fn fit(&mut self, keys: u64) {
        let wanted = if keys == 0 { 0 } else { keys.div_ceil(KEYS_PER_WORD).max(WORDS_MIN) as usize };
        let has = self.words.len();
        if wanted == 0 || wanted > has + has / 4 || wanted < has / 2 {
            self.words = vec![0; wanted];
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&self.words[..]) as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash(key: u64) -> u64 {
        rapidhash::v3::rapidhash_v3(&key.to_le_bytes())
    }

    #[test]
    fn recently_evicted_keys_are_remembered_once_and_others_rarely_match() {
        let mut ghosts = Ghosts::default();
        ghosts.add(hash(1));
        assert!(!ghosts.take(hash(1)) && ghosts.bytes() == 0, "it is off");
        ghosts.fit(1 << 15);
        assert_eq!(ghosts.bytes(), 1 << 13);
        (0..100_000).for_each(|key| ghosts.add(hash(key)));
        let wrong = (200_000..210_000).filter(|&key| ghosts.take(hash(key))).count();
        assert!(wrong < 500, "{wrong} of 10,000");
        let known = (98_000..100_000).filter(|&key| ghosts.take(hash(key))).count();
        assert!(known > 1_800, "{known} of the last 2,000");
        let again = (98_000..100_000).filter(|&key| ghosts.take(hash(key))).count();
        assert!(again < 100, "{again} of the last 2,000");
        let before = (0..80_000).filter(|&key| ghosts.take(hash(key))).count();
        assert!(before < 4_000, "{before} of 80,000 that were evicted long ago");
    }
}
