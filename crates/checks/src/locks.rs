//! Writers that lock keys for several writes.

use crate::Planted::Bug;
use crate::blocks::{Store, get, open};
use crate::{check, check_deep};
use duramen::{Durability, Error};
use duramen_index::stripes::{STRIPE_BITS, Stripes};
use duramen_log::format::Version;
use duramen_log::mutants::Mutant;
use duramen_media::Granularity;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;
use std::sync::Arc;

/// Hashes of two stripes.
const A: u64 = 0;
const B: u64 = 1 << (64 - STRIPE_BITS);

#[test]
fn locks_of_the_same_keys_in_different_orders_do_not_deadlock() {
    check(2, &[Bug(Mutant::LocksNotSorted)], || {
        let stripes = Arc::new(Stripes::default());
        let lock = |stripes: &Stripes, hashes: [u64; 2]| {
            let mut numbers = Vec::new();
            stripes.hold(&hashes, &mut numbers);
            stripes.release(&numbers, Version(1));
        };
        let other = {
            let stripes = Arc::clone(&stripes);
            thread::spawn(move || lock(&stripes, [B, A]))
        };
        lock(&stripes, [A, B]);
        other.join().unwrap();
    });
}

#[test]
fn the_next_lock_of_a_key_assigns_a_greater_version() {
    check(2, &[Bug(Mutant::VersionNotRaised)], || {
        let stripes = Arc::new(Stripes::default());
        let has_written = Arc::new(AtomicBool::new(false));
        let other = {
            let (stripes, has_written) = (Arc::clone(&stripes), Arc::clone(&has_written));
            thread::spawn(move || {
                let mut numbers = Vec::new();
                stripes.hold(&[A, B], &mut numbers);
                // A version for A alone.
                has_written.store(true, Relaxed);
                stripes.release(&numbers, Version(7));
            })
        };
        let held = stripes.lock(B);
        let (is_after, version) = (has_written.load(Relaxed), held.next_version(Version(0)));
        drop(held);
        assert!(!is_after || version > Version(7), "{version:?} after another that gave 7");
        other.join().unwrap();
    });
}

#[test]
fn two_increments_under_a_key_lock_are_both_kept() {
    check_deep(2, &[Bug(Mutant::KeysUnlockedEarly)], || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        let add = |store: &Store| {
            let mut writer = store.writer().unwrap();
            writer
                .locked([&b"a"[..]], |writer| {
                    let sum = get(store, b"a").map_or(1, |sum| sum[0] + 1);
                    writer.put(b"a", &[sum])?;
                    Ok::<_, Error>(())
                })
                .unwrap();
        };
        let other = {
            let store = store.clone();
            thread::spawn(move || add(&store))
        };
        add(&store);
        other.join().unwrap();
        assert_eq!(get(&store, b"a").as_deref(), Some(&[2][..]));
        store.close().unwrap();
    });
}
