//! Which key is picked where nearly all were deleted just now: their tombstones keep the index as large as it was.

use duramen::{Batch, IndexKind, MediumKind, Meta, Options, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PICKS: u64 = 1000;

/// How often each key is picked.
fn picked(store: &Store, from: u64) -> BTreeMap<Vec<u8>, u64> {
    let mut hits = BTreeMap::new();
    for seed in from..from + PICKS {
        let value = store.pick(seed << 32, &mut |_| true).unwrap().unwrap();
        *hits.entry(value.key().to_vec()).or_default() += 1;
    }
    hits
}

/// Whether these keys are picked, all as often as any other, and no others.
fn assert_even(store: &Store, from: u64, wanted: &[&[u8]]) {
    let hits = picked(store, from);
    let keys: Vec<&[u8]> = hits.keys().map(Vec::as_slice).collect();
    assert_eq!(keys, wanted);
    let share = PICKS / wanted.len() as u64;
    assert!(hits.values().all(|&hits| (share / 2..share * 2).contains(&hits)), "{hits:?}");
}

#[test]
fn after_a_mass_delete_every_remaining_and_later_key_is_picked() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let now = Arc::new(AtomicU64::new(1_000));
        let clock = Arc::clone(&now);
        let options = Options {
            index,
            medium: MediumKind::Volatile,
            background: false,
            clock: Some(Arc::new(move || clock.load(Relaxed))),
            ..Options::default()
        };
        let store = options.open("none").unwrap();
        for key in 0..40_000u32 {
            store.put(key.to_be_bytes(), b"value").unwrap();
        }
        for key in 4..40_000u32 {
            assert!(store.delete(key.to_be_bytes()).unwrap());
        }
        let key = |number: u32| number.to_be_bytes();
        assert_even(&store, 0, &[&key(0), &key(1), &key(2), &key(3)]);
        assert!(store.delete(key(1)).unwrap());
        assert_even(&store, 1000, &[&key(0), &key(2), &key(3)]);
        store.put(key(7), b"new").unwrap();
        assert_even(&store, 2000, &[&key(0), &key(2), &key(3), &key(7)]);
        let _ = store.apply(Batch::new().put(key(8), b"new").delete(key(0))).unwrap();
        assert_even(&store, 3000, &[&key(2), &key(3), &key(7), &key(8)]);
        // It expires, is not picked, and comes again before it was swept.
        store.put_with(key(3), b"new", Meta { expires_at: Some(2_000), ..Meta::default() }).unwrap();
        now.store(3_000, Relaxed);
        assert_even(&store, 4000, &[&key(2), &key(7), &key(8)]);
        store.put(key(3), b"new").unwrap();
        assert_even(&store, 5000, &[&key(2), &key(3), &key(7), &key(8)]);
        for number in [2, 3, 7, 8] {
            assert!(store.delete(key(number)).unwrap());
        }
        assert!(store.pick(6000, &mut |_| true).unwrap().is_none());
        store.put(key(9), b"new").unwrap();
        assert_even(&store, 7000, &[&key(9)]);
    }
}
