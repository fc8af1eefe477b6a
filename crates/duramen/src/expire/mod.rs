//! Expiry: keys that end at a time.

pub(crate) mod listeners;
pub(crate) mod sweep;
pub(crate) mod write;
