//! Queries from their text to their rows.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod compiled;
mod connect;
mod datafusion;
mod flink;
mod formats;
#[cfg(feature = "kafka")]
mod kafka;
mod kill;
mod limits;
mod nexmark;
mod options;
mod others;
mod property;
mod round_trip;
mod run;
mod slt;
mod support;
mod tutorial;
