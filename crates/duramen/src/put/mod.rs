//! Put and delete of one key.

pub(crate) mod old;
pub(crate) mod write;
