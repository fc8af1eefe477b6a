//! Index checkpoints: written in the background, planned and read by recovery.

pub(crate) mod plan;
pub(crate) mod state;
pub(crate) mod write;
