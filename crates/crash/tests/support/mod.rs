//! Shared parts of the tests of the crash driver.

#![allow(dead_code)] // Not every test uses all of it.

use duramen::{Durability, Options};
use duramen_crash::explore::run_setup;
use duramen_crash::setup::Op;
use duramen_crash::{Case, Effort, Setup, Totals};
use duramen_media::sim::{Memory, Model, SimMedium};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One run at a time: what others have pinned decides when the engine frees a block, and runs must repeat.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn case(name: &str) -> Option<Case> {
    Some(Case::named(name).unwrap())
}

/// A small store of given keys to which given operations are done.
pub fn small(seed: u64, case_name: &str, keys: &[&[u8]], ops: Vec<Op>) -> Setup {
    Setup {
        extent_bytes: 512,
        len_max: 40 << 10,
        hash_mask: u64::MAX,
        tuning: duramen::tuning::Tuning::default(),
        keys: keys.iter().map(|key| key.to_vec()).collect(),
        ops,
        places: 0,
        ..Setup::new(seed, case(case_name))
    }
}

/// The options of a test's own store, under the boot with this number.
pub fn options(boot: u8) -> Options {
    Options {
        durability: Durability::EveryWrite,
        extent_bytes: Some(512),
        recovery_threads: 1,
        background: false,
        clock: Some(Arc::new(|| 1_000)),
        boot_id: Some([boot; 16]),
        ..Options::default()
    }
}

/// A medium that holds these bytes.
pub fn image_of(model: Model, lines: &[[u64; 8]], len_max: u64, len: u64) -> SimMedium {
    SimMedium::from_image(model, len_max, Arc::new(Memory::from_lines(lines, len_max)), len)
}

/// Crashes a run at all points that the budget allows.
pub fn crash(setup: &Setup, images_max: u64) -> Totals {
    run_setup(setup, Effort { images_max, images: 30, ..Effort::default() })
        .unwrap_or_else(|violation| panic!("{violation}"))
}

/// Crashes a run at each of its persist points, without running on from the images.
pub fn crash_at_every_point(setup: &Setup) -> Totals {
    run_setup(setup, Effort { images: 16, images_max: u64::MAX >> 8, depth: 0, until: None })
        .unwrap_or_else(|violation| panic!("{violation}"))
}

/// A small run of given operations, by several seeds.
pub fn crashed(case_name: &str, keys: &[&[u8]], ops: &[Op]) -> Totals {
    let _alone = alone();
    let mut totals = Totals::default();
    for seed in 1..=4 {
        totals.add(&crash(&small(seed, case_name, keys, ops.to_vec()), 800));
    }
    totals
}

pub fn put(key: usize, bytes: usize) -> Op {
    Op::Put { key, bytes, tag: 1, ttl: None, updatable: false }
}
