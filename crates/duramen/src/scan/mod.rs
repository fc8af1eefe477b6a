//! Scans: all entries by a cursor and random keys ([`cursor`]), and keys in order ([`range`]).

pub(crate) mod cursor;
pub(crate) mod range;
