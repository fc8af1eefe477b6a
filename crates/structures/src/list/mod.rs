//! Lists: small ones [`packed`] in one value, [`large`] ones in nodes.

mod large;
mod packed;

pub(crate) use large::LargeList;
pub use packed::End;
pub(crate) use packed::{PackedList, part, position};
