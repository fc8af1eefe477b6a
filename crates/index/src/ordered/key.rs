//! Keys as the ordered index compares them: by words first.

/// Eight bytes of `key` from `from` on, as a number in the order of the bytes; bytes after its end count as zeros.
#[inline]
pub(super) fn word_at(key: &[u8], from: usize) -> u64 {
    if let Some(word) = key.get(from..).and_then(|rest| rest.first_chunk()) {
        return u64::from_be_bytes(*word);
    }
    match key.last_chunk() {
        // The last eight bytes, less those before `from`.
        Some(last) if from < key.len() => u64::from_be_bytes(*last) << (8 * (from + 8 - key.len())),
        _ => {
            let rest = key.get(from..).unwrap_or_default();
            rest.iter().enumerate().fold(0, |word, (i, &byte)| word | u64::from(byte) << (56 - 8 * i))
        }
    }
}

/// Length of the common prefix of two keys.
pub(super) fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A key that is looked for, and its first two words.
#[derive(Clone, Copy)]
pub struct Sought<'k> {
    pub(super) bytes: &'k [u8],
    pub(super) words: [u64; 2],
}

impl<'k> Sought<'k> {
    #[inline]
    pub(super) fn new(bytes: &'k [u8]) -> Self {
        Self { bytes, words: [word_at(bytes, 0), word_at(bytes, 8)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_words_compare_as_their_bytes() {
        let key: Vec<u8> = (1..=20).collect();
        for len in 0..=20 {
            for from in 0..=25 {
                let mut padded = key[..len].to_vec();
                padded.resize(40, 0);
                let want = u64::from_be_bytes(padded[from..from + 8].try_into().unwrap());
                assert_eq!(word_at(&key[..len], from), want, "{len} bytes from {from}");
            }
        }
    }
}
