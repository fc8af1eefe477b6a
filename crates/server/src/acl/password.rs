//! Hashes of passwords: SHA-256, in hexadecimal where they are shown.

use ring::digest::{SHA256, digest};

/// The hash of a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hash([u8; 32]);

impl Hash {
    /// That of a password.
    pub fn of(password: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, password).as_ref());
        Self(hash)
    }

    /// The hash that these 64 lower-case digits show.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() {
            return None;
        }
        for (byte, two) in hash.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(two[0])? << 4 | digit(two[1])?;
        }
        Some(Self(hash))
    }

    /// Its 64 digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether `given` is among `known`, in a time that depends on their number alone.
    pub fn is_among(given: &Self, known: &[Self]) -> bool {
        let differ = |other: &Self| given.0.iter().zip(&other.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        // `black_box`: no comparison is left out because an earlier one has matched.
        known.iter().fold(false, |found, other| std::hint::black_box(found | (differ(other) == 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_redis_and_is_read_back() {
        let hash = Hash::of(b"passwd4");
        assert_eq!(hash.hex(), "34344e4d60c2b6d639b7bd22e18f2b0b91bc34bf0ac5f9952744435093cfb4e6");
        assert_eq!(Hash::parse(hash.hex().as_bytes()), Some(hash));
        let hex = hash.hex();
        for bad in [&hex[1..], &hex.to_uppercase(), &format!("{}q", &hex[1..]), ""] {
            assert_eq!(Hash::parse(bad.as_bytes()), None, "{bad}");
        }
        assert!(Hash::is_among(&hash, &[Hash::of(b"a"), hash, Hash::of(b"b")]));
        assert!(!Hash::is_among(&hash, &[Hash::of(b"a"), Hash::of(b"b")]));
        assert!(!Hash::is_among(&hash, &[]));
    }
}
