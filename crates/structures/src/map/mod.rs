//! Hashes, sets and sorted sets: small ones [`packed`] in one value, [`large`] ones with an element for each entry.

mod large;
mod packed;
mod score;

pub(crate) use large::{Expiry, LargeMap, TIMED};
pub(crate) use packed::{CONVERTED, Kind, Names, PackedMap, Shape};
pub use packed::{Encoding, Scored, order, rank, score_of};
