//! What the tests of keyspaces share.

#![allow(dead_code)] // Not every test uses all of it.

use duramen::{MediumKind, Options, Store};
use duramen_structures::{Error, Found, Keyspace, Locks, Txn, Worker};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

pub fn store(medium: MediumKind, dir: &TempDir) -> Store {
    let mut options = Options { medium, ..Options::default() };
    // Nothing grows under locks, and a test of what is written there does not begin again.
    options.tuning.units_initial = options.tuning.units_initial.max(256);
    options.open(dir.path().join("store")).unwrap()
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

/// Runs `commands` in a transaction, as a dispatcher does.
pub fn run<T>(worker: &mut Worker, commands: impl FnMut(&mut Txn<'_>) -> T) -> T {
    run_on(worker, Locks::All, commands)
}

/// The same with nothing locked, to look at what is there.
pub fn look<T>(worker: &mut Worker, commands: impl FnMut(&mut Txn<'_>) -> T) -> T {
    run_on(worker, Locks::Nothing, commands)
}

pub fn run_on<T>(worker: &mut Worker, locks: Locks<'_>, mut commands: impl FnMut(&mut Txn<'_>) -> T) -> T {
    worker.run::<_, Error>(now(), locks, |txn| Ok(commands(txn))).unwrap()
}

pub fn text(found: Option<Found<'_>>) -> Option<String> {
    found.map(|found| String::from_utf8(found.to_vec()).unwrap())
}
