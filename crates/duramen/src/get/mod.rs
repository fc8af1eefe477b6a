//! Get: from a key to the value that may be shown.
//!
//! [`lookup`] finds the slot without a lock, [`visibility`] decides whether its record may be shown, and [`value`] is
//! what callers get. [`many`] does it for several keys at once. [`barrier`] is what a reader within a group must make
//! durable first, and [`stamp`] tells whether a key has changed since it was read.

pub(crate) mod barrier;
pub(crate) mod lookup;
pub(crate) mod many;
pub(crate) mod stamp;
pub(crate) mod value;
pub(crate) mod visibility;
