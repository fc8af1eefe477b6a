//! Eviction: keys that a full store gives up.

pub(crate) mod access;
pub(crate) mod ghosts;
pub(crate) mod queues;
pub(crate) mod victims;
