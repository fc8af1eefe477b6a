//! The hash index alone: its keys are numbers, and the location of a key's record is the number.

use super::hash::{HashIndex, SPLIT_COUNT_MIN};
use super::stripes::STRIPE_BITS;
use super::{Keys, Slot};
use duramen_log::sync::Backoff;
use duramen_log::sync::reclaim;
use duramen_media::Offset;
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of a number, spread over the word; in Miri, all in one segment, which is full sooner.
fn hash(key: u64) -> u64 {
    let bits = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> u32::from(cfg!(miri))
}

struct Numbers;

impl Keys for Numbers {
    fn hash_at(&self, at: Offset) -> Option<u64> {
        Some(hash(at.0 / 8))
    }

    fn prefetch_at(&self, _at: Offset) {}
}

fn insert(index: &HashIndex, key: u64) {
    let guard = reclaim::pin_to_write();
    let at = Offset(key * 8);
    let locked = index.lock(hash(key), &guard);
    let crowded = match locked.find(|slot| slot.location() == at) {
        Some(place) => {
            place.set(Slot::new(at));
            false
        }
        None => locked.insert(Slot::new(at)),
    };
    drop(locked);
    if crowded {
        index.split(hash(key), &Numbers, &guard);
    }
}

fn remove(index: &HashIndex, key: u64) -> bool {
    let guard = reclaim::pin();
    let locked = index.lock(hash(key), &guard);
    locked.find(|slot| slot.location() == Offset(key * 8)).map(|place| locked.remove(place)).is_some()
}

fn find(index: &HashIndex, key: u64) -> bool {
    let guard = reclaim::pin();
    index.find(hash(key), &guard, |slot| slot.location() == Offset(key * 8)).is_some()
}

fn all(index: &HashIndex) -> BTreeSet<u64> {
    let guard = reclaim::pin();
    let (mut cursor, mut all) = (0, BTreeSet::new());
    loop {
        cursor = index.scan(cursor, &guard, &mut |slot| {
            assert!(all.insert(slot.location().0 / 8), "two slots hold a key");
        });
        if cursor == 0 {
            return all;
        }
    }
}

#[test]
fn a_slot_is_trusted_without_its_record_only_if_its_fingerprint_is_unique() {
    let index = HashIndex::default();
    let guard = reclaim::pin();
    let sole = || {
        let locked = index.lock(hash(7), &guard);
        locked.find_sole().map(|place| place.get().location())
    };
    assert_eq!(sole(), None);
    // More than both buckets hold: the last ones are in the stash.
    for key in 1..20 {
        let _ = index.lock(hash(7), &guard).insert(Slot::new(Offset(key * 8)));
        assert_eq!(sole(), (key == 1).then_some(Offset(8)));
    }
    for key in 1..20 {
        assert_eq!(sole(), None);
        let locked = index.lock(hash(7), &guard);
        let place = locked.find(|slot| slot.location() == Offset(key * 8)).unwrap();
        locked.remove(place);
        if key == 18 {
            break;
        }
    }
    assert_eq!(sole(), Some(Offset(19 * 8)));
}

/// Enough to split segments several times; in Miri, once.
const KEYS: u64 = if cfg!(miri) { 1_600 } else { 100_000 };

#[test]
fn an_index_keeps_all_inserted_keys_through_splits() {
    let index = HashIndex::default();
    let mut wanted = BTreeSet::new();
    for key in 1..=KEYS {
        insert(&index, key);
        wanted.insert(key);
        if key.is_multiple_of(20) {
            assert!(remove(&index, key / 3) == wanted.remove(&(key / 3)));
        }
    }
    assert_eq!(all(&index), wanted);
    let step = if cfg!(miri) { 23 } else { 1 };
    assert!((1..=KEYS).step_by(step).all(|key| find(&index, key) == wanted.contains(&key)));
}

#[test]
fn an_index_made_for_its_keys_does_not_split_and_takes_no_more_than_one_that_grew() {
    let guard = reclaim::pin();
    let (grown, mut reserved) = (HashIndex::default(), HashIndex::default());
    reserved.reserve(KEYS);
    for key in 1..=KEYS {
        insert(&grown, key);
        insert(&reserved, key);
    }
    assert!(grown.grown(&guard).0 > 0);
    assert_eq!(reserved.grown(&guard).0, 0);
    assert!(reserved.bytes(&guard) <= grown.bytes(&guard));
    assert_eq!(all(&reserved), all(&grown));
}

#[test]
fn an_index_made_for_too_few_keys_or_for_too_many_holds_all_of_them() {
    for reserved in [0, 1, KEYS / 10, KEYS * 3] {
        let mut index = HashIndex::default();
        index.reserve(reserved);
        for key in 1..=KEYS {
            insert(&index, key);
        }
        assert_eq!(all(&index).len() as u64, KEYS);
        let step = if cfg!(miri) { 23 } else { 1 };
        assert!((1..=KEYS).step_by(step).all(|key| find(&index, key)), "made for {reserved}");
    }
}

#[test]
fn keys_of_one_hash_go_to_the_stash_and_come_back() {
    let index = HashIndex::default();
    let guard = reclaim::pin();
    for key in 1..=40u64 {
        let _ = index.lock(0, &guard).insert(Slot::new(Offset(key * 8)));
    }
    assert_eq!(all(&index), (1..=40).collect());
    for key in 1..=40u64 {
        let at = Offset(key * 8);
        assert!(index.find(0, &guard, |slot| slot.location() == at).is_some());
        let locked = index.lock(0, &guard);
        let place = locked.find(|slot| slot.location() == at).unwrap();
        locked.remove(place);
    }
    assert!(all(&index).is_empty());
}

#[test]
fn threads_insert_and_find_while_segments_split() {
    let index = HashIndex::default();
    let keys = if cfg!(miri) { 500 } else { 50_000 };
    for key in 1..=keys {
        insert(&index, key);
    }
    std::thread::scope(|scope| {
        let index = &index;
        scope.spawn(move || (keys + 1..=2 * keys).for_each(|key| insert(index, key)));
        scope.spawn(move || (2 * keys + 1..=3 * keys).for_each(|key| insert(index, key)));
        let step = if cfg!(miri) { 25 } else { 1 };
        assert!((1..=keys).step_by(step).all(|key| find(index, key)), "a key that was there is missed");
    });
    assert_eq!(all(&index).len() as u64, 3 * keys);
}

#[test]
#[cfg_attr(miri, ignore = "32 MiB of segments; a model of loom has fewer")]
fn segments_of_one_stripe_lose_nothing_to_writers_readers_and_splits() {
    let mut index = HashIndex::default();
    index.reserve(u64::from(SPLIT_COUNT_MIN) << STRIPE_BITS);
    // All of one stripe, and of one segment until it splits.
    let of_stripe = (1..).filter(|&key| hash(key) >> (64 - STRIPE_BITS) == 3);
    let keys: Vec<u64> = of_stripe.take(4000).collect();
    let (staying, moving) = keys.split_at(1000);
    staying.iter().for_each(|&key| insert(&index, key));
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        let write = |own: &[u64]| {
            start.wait();
            for round in 0..200 {
                own.iter().for_each(|&key| insert(&index, key));
                own.iter().step_by(1 + round % 2).for_each(|&key| assert!(remove(&index, key)));
            }
        };
        let writers: Vec<_> = moving.chunks(1000).map(|own| scope.spawn(move || write(own))).collect();
        start.wait();
        while writers.iter().any(|writer| !writer.is_finished()) {
            staying.iter().for_each(|&key| assert!(find(&index, key), "{key} is not found"));
        }
    });
    // The last round left every second key.
    let left = moving.chunks(1000).flat_map(|own| own.iter().skip(1).step_by(2));
    assert_eq!(all(&index), staying.iter().chain(left).copied().collect());
    assert!(index.grown(&reclaim::pin()).0 >= 2, "no segment was split");
}

#[test]
#[cfg_attr(miri, ignore = "32 MiB of segments; a model of loom has fewer")]
fn of_two_inserting_threads_that_look_up_each_others_key_one_finds_it() {
    const ROUNDS: u64 = 300_000;
    let mut index = HashIndex::default();
    index.reserve(u64::from(SPLIT_COUNT_MIN) << STRIPE_BITS);
    let begun = [AtomicU64::new(0), AtomicU64::new(0)];
    let look = |me: usize| {
        let found = (1..=ROUNDS).map(|round| {
            begun[me].store(round, Relaxed);
            let mut backoff = Backoff::default();
            while begun[1 - me].load(Relaxed) < round {
                backoff.wait();
            }
            insert(&index, 2 * round + me as u64);
            find(&index, 2 * round + 1 - me as u64)
        });
        found.collect::<Vec<bool>>()
    };
    let (ours, theirs) = std::thread::scope(|scope| {
        let other = scope.spawn(|| look(1));
        (look(0), other.join().unwrap())
    });
    assert_eq!(ours.iter().zip(&theirs).position(|(ours, theirs)| !ours && !theirs), None);
    assert!(ours != theirs, "they never ran at once");
}
