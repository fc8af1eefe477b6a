//! FNV-1a, 64 bits: detects forgotten changes and damage, not malice.

/// A digest of the pieces so far.
pub struct Digest(u64);

impl Digest {
    /// A digest of no pieces.
    pub fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    /// Adds one piece; "ab", "c" and "a", "bc" are different.
    pub fn add(&mut self, piece: &[u8]) {
        for byte in piece.iter().chain(&[0]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The digest of all pieces.
    pub fn value(&self) -> u64 {
        self.0
    }
}

/// The digest of one piece.
pub fn digest(piece: &[u8]) -> u64 {
    let mut digest = Digest::new();
    digest.add(piece);
    digest.value()
}
