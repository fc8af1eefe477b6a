//! Eviction. [`access`] counts reads, [`queues`] has the blocks to look at next, [`victims`] chooses keys and removes
//! them (it has the invariants), and [`ghosts`] remembers hashes of evicted keys.

pub(crate) mod access;
pub(crate) mod ghosts;
pub(crate) mod queues;
pub(crate) mod victims;
