//! Queries from their text to their rows.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod compiled;
mod connect;
mod datafusion;
#[cfg(feature = "kafka")]
mod kafka;
mod kill;
mod nexmark;
mod others;
mod property;
mod run;
mod slt;
mod support;
