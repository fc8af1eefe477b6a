//! Scans: keys in the order of the index, ranges and prefixes, random keys.

pub(crate) mod cursor;
pub(crate) mod range;
pub(crate) mod sparse_keys;
