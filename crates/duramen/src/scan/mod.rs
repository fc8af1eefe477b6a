//! Scans: all entries by a cursor and random keys ([`cursor`]), keys in order ([`range`]), and the keys of a nearly
//! empty store ([`sparse_keys`]).

pub(crate) mod cursor;
pub(crate) mod range;
pub(crate) mod sparse_keys;
