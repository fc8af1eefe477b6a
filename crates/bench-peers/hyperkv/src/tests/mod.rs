//! Tests of the whole store: against a model, with threads, and with crashes.
#![allow(clippy::unwrap_used)] // A panic here is a failed test.

mod crash;
mod model;
mod threads;

use crate::{LogKind, Options, Store};
use duramen_media::sim::{Log, Model, SimMedium};

/// Bugs that the crash test must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// An entry is durably active before its checksum is.
    ActiveBeforeChecksum,
    /// A node's lines are written back with the links to it, not before.
    LinkedBeforePersisted,
    /// Some blocks stay in the free list when they are taken.
    HandedOutTwice,
}

const LEN_MAX: u64 = 512 << 10;

fn options(log: LogKind) -> Options {
    // Small in every way: chunks fill up, and keys collide in the cache.
    Options { log, cache_slots: 16, chunk_bytes: 4096, sessions: 4, rebuild: true }
}

fn sim() -> SimMedium {
    SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX))
}

/// All entries of a scan; each is also read with a get.
fn contents<M: duramen_media::Medium>(store: &Store<M>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut session = store.session().unwrap();
    let mut all = Vec::new();
    session.scan(b"", usize::MAX, &mut |key, value| all.push((key.to_vec(), value.to_vec())));
    let mut copy = Vec::new();
    for (key, value) in &all {
        assert!(session.get(key, &mut copy), "a key of a scan is not found by itself");
        assert!(copy == *value, "a value of a scan is another one by itself");
    }
    all
}
