//! The program from outside.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

#[cfg(feature = "bench")]
mod bench;
#[cfg(feature = "bench")]
mod bench_mem;
mod cli;
mod damage;
mod databases;
mod import;
mod log;
mod memcached;
#[cfg(feature = "sql")]
mod metrics;
#[cfg(feature = "sql")]
mod sql;
