//! The instruments of `duramen bench`: they measure a memory, the engine, servers and continuous SQL.
//!
//! | module | measures | uses |
//! |---|---|---|
//! | [`memory`] | a byte-addressable memory, by workload files, and the bounds of any store on it | `report` |
//! | [`kv`] | named workloads on the engine, beside those bounds | `memory`, `report` |
//! | [`server`] | any Redis or memcached server, over sockets | `report` |
//! | `stream` | continuous SQL; with the feature `sql` | `report` |
//! | [`report`] | nothing: results as JSON, text and pages, comparisons and prices | |
//!
//! Invariant: unsafe code is in `memory::kernel` alone.

#[forbid(unsafe_code)]
pub mod kv;
pub mod memory;
#[forbid(unsafe_code)]
pub mod report;
#[forbid(unsafe_code)]
pub mod server;
#[cfg(feature = "sql")]
#[forbid(unsafe_code)]
pub mod stream;
