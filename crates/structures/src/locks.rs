//! Which keys a transaction is about.

/// The keys that a transaction names: see the head of [`Txn`](crate::Txn).
#[derive(Clone, Copy, Default)]
pub enum Locks<'n> {
    /// No keys: it reads, at most one plain value or values of different moments, and writes nothing.
    Nothing,
    /// One key, in any databases.
    One(&'n [u8]),
    /// Some keys, in any databases.
    Keys(&'n Keys),
    /// Any keys: all other workers wait meanwhile.
    #[default]
    All,
}

/// Keys that are named together; its memory can be used again.
#[derive(Default)]
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Gives back memory that only a command of many keys, or long ones, needs.
    pub fn shrink(&mut self) {
        const BYTES_KEPT: usize = 64 << 10;
        self.bytes.shrink_to(BYTES_KEPT);
        self.ends.shrink_to(BYTES_KEPT / size_of::<usize>());
    }

    /// Locks `key`, again or for the first time.
    pub fn add(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Whether none is named.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The keys.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().scan(0, |from, &end| self.bytes.get(std::mem::replace(from, end)..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locked_keys_are_the_named_keys() {
        let mut keys = Keys::default();
        for _ in 0..2 {
            assert!(keys.is_empty());
            for key in [b"a".as_slice(), b"", b"bc"] {
                keys.add(key);
            }
            assert_eq!(keys.iter().collect::<Vec<_>>(), [b"a".as_slice(), b"", b"bc"]);
            keys.clear();
        }
    }
}
