//! Expiry. A reader sees by the record that its time is over. [`sweep`] finds such keys in the background, [`write`]
//! makes them absent, and [`listeners`] are told.

pub(crate) mod listeners;
pub(crate) mod sweep;
pub(crate) mod write;
