//! What the tests of keyspaces share.

#![allow(dead_code)] // Not every test uses all of it.

use duramen::{MediumKind, Options, Store};
use duramen_structures::{Error, Found, Keyspace, Txn, Worker};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

pub fn store(medium: MediumKind, dir: &TempDir) -> Store {
    Options { medium, ..Options::default() }.open(dir.path().join("store")).unwrap()
}

pub fn keyspace(medium: MediumKind) -> (TempDir, Keyspace) {
    let dir = match medium {
        MediumKind::Shm => tempfile::tempdir_in("/dev/shm").unwrap(),
        _ => tempfile::tempdir().unwrap(),
    };
    let keyspace = Keyspace::open(store(medium, &dir), 16).unwrap();
    (dir, keyspace)
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Runs `commands` until it commits, as a dispatcher does.
pub fn run<T>(worker: &mut Worker, mut commands: impl FnMut(&mut Txn<'_>) -> T) -> T {
    let mut result = None;
    let committed = worker.retry::<Error>(|worker| {
        let mut txn = worker.begin(now());
        result = Some(commands(&mut txn));
        txn.commit()
    });
    committed.unwrap();
    result.unwrap()
}

pub fn text(found: Option<Found<'_>>) -> Option<String> {
    found.map(|found| String::from_utf8(found.to_vec()).unwrap())
}
