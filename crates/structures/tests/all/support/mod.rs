//! What the tests of keyspaces share.

#![allow(dead_code)] // Not every test uses all of it.

use duramen::{MediumKind, Options, Store};
use duramen_structures::{Error, Found, Keyspace, Locks, Txn, Worker};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

pub fn store(medium: MediumKind, dir: &TempDir) -> Store {
    Options { medium, ..Options::default() }.open(dir.path().join("store")).unwrap()
}

/// Opens the keyspace; up to how much is packed, the environment may say.
pub fn open(store: Store, databases: u8) -> Keyspace {
    let keyspace = Keyspace::open(store, databases).unwrap();
    if let Some(bytes) = std::env::var_os(PACKED) {
        keyspace.set_small_collection_bytes_max(bytes.to_str().unwrap().parse().unwrap());
    }
    keyspace
}

/// Names the limit in the process that runs all with another one.
const PACKED: &str = "DURAMEN_TEST_SMALL_COLLECTION_BYTES_MAX";

/// All tests of this program, in a process in which hardly anything is packed.
#[test]
fn every_test_also_passes_with_large_values() {
    if std::env::var_os(PACKED).is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap()).env(PACKED, "64").status();
        assert!(status.unwrap().success());
    }
}

pub fn keyspace(medium: MediumKind) -> (TempDir, Keyspace) {
    let dir = match medium {
        MediumKind::Shm => tempfile::tempdir_in("/dev/shm").unwrap(),
        _ => tempfile::tempdir().unwrap(),
    };
    let keyspace = open(store(medium, &dir), 16);
    (dir, keyspace)
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Runs `commands` in a transaction, as a dispatcher does.
pub fn run<T>(worker: &mut Worker, commands: impl FnMut(&mut Txn<'_>) -> T) -> T {
    run_on(worker, Locks::All, commands)
}

/// The same without locks, for checks.
pub fn look<T>(worker: &mut Worker, commands: impl FnMut(&mut Txn<'_>) -> T) -> T {
    run_on(worker, Locks::Nothing, commands)
}

/// The same under these locks. What panics since it found no room runs again when there is some, as what returns the error.
pub fn run_on<T>(worker: &mut Worker, locks: Locks<'_>, mut commands: impl FnMut(&mut Txn<'_>) -> T) -> T {
    let run = |txn: &mut Txn<'_>| match catch_unwind(AssertUnwindSafe(|| commands(txn))) {
        Ok(done) => Ok(done),
        Err(_) if txn.wants_room() => Err(Error::NoSuchKey),
        Err(panic) => resume_unwind(panic),
    };
    worker.run(now(), locks, run).unwrap()
}

pub fn text(found: Option<Found<'_>>) -> Option<String> {
    found.map(|found| String::from_utf8(found.to_vec()).unwrap())
}
