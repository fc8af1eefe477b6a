//! Typed values and transactions through the public door.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod collections;
mod databases;
mod hash_times;
mod keyspace;
mod large;
mod lists;
mod numbers;
mod rdb;
mod redis_vectors;
mod strings;
mod support;
mod units;
