//! The server over sockets. One program for all tests, because linking each takes time; tests that need their own
//! process are separate.

#![allow(clippy::unwrap_used)] // A panic here is a failed test.

mod administration;
mod blocking;
mod collections;
mod commands;
mod connections;
mod console;
mod cost;
mod damage;
mod eviction;
mod hash_times;
mod limits;
mod lists;
mod memcached;
mod memcached_rights;
mod metrics;
mod panics;
mod pipelines;
mod protocol;
mod pubsub;
mod scripts;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod tracking;
mod users;

/// All tests of this program, in a process in which hardly anything is packed.
#[test]
fn every_test_also_passes_with_large_values() {
    if std::env::var_os(support::PACKED).is_none() {
        let program = std::env::current_exe().unwrap();
        let status = std::process::Command::new(program).env(support::PACKED, "64").status();
        assert!(status.unwrap().success());
    }
}
