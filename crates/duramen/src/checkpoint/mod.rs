//! Index checkpoints. [`plan`] says why one is correct and how recovery uses it, [`write`] writes it in the background
//! or at a close, and [`state`] has the settings and the last one.

pub(crate) mod plan;
pub(crate) mod state;
pub(crate) mod write;
