//! Values that readers keep: each holds back the block that it lies in, and nothing else.

use duramen::{IndexKind, MediumKind, Options, Store, Value};
use std::time::{Duration, Instant};

const LEN_MAX: u64 = 8 << 20;
const KEYS: u32 = 1000;

fn options() -> Options {
    Options { medium: MediumKind::Volatile, len_max: LEN_MAX, ..Options::default() }
}

fn open() -> Store {
    options().open("none").unwrap()
}

fn key(number: u32) -> [u8; 8] {
    u64::from(number).to_be_bytes()
}

/// Overwrites a sixth of the store's capacity until eight times that was written, so that none of it fits without
/// compaction.
fn wear(store: &Store) {
    let begun = Instant::now();
    let mut value = [0; 1300];
    for round in 0..50 {
        value.fill(round);
        for number in 0..KEYS {
            store.put(key(number), value).unwrap();
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "it took {:?}", begun.elapsed());
}

fn is_as_put(value: &Value<'_>) -> bool {
    value.key().starts_with(b"kept") && value.bytes() == [value.key(); 20].concat()
}

fn put_to_keep(store: &Store, number: usize) -> Vec<u8> {
    let key = format!("kept {number}").into_bytes();
    store.put(&key, [&key[..]; 20].concat()).unwrap();
    key
}

#[test]
fn a_pinned_value_costs_another_store_no_space() {
    let (store, other) = (open(), open());
    let key = put_to_keep(&store, 1);
    let kept = store.get(&key).unwrap().unwrap();
    wear(&other);
    assert!(is_as_put(&kept));
}

#[test]
fn an_open_group_costs_another_store_no_space() {
    let (store, other) = (open(), open());
    let mut writer = store.writer().unwrap();
    writer.group();
    writer.put(b"key", b"value").unwrap();
    wear(&other);
    writer.flush_group().unwrap();
}

#[test]
fn the_callback_of_a_scan_can_fill_another_store() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let (store, other) = (Options { index, ..options() }.open("none").unwrap(), open());
        put_to_keep(&store, 1);
        let mut seen = 0;
        store
            .for_each(|value| {
                wear(&other);
                assert!(is_as_put(value));
                seen += 1;
            })
            .unwrap();
        assert_eq!(seen, 1);
        let picked = store.pick(1, &mut |_| {
            wear(&other);
            true
        });
        assert!(is_as_put(&picked.unwrap().unwrap()));
    }
}

#[test]
fn a_pinned_value_keeps_only_its_own_block() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let store = Options { index, ..options() }.open("none").unwrap();
        let key = put_to_keep(&store, 1);
        let kept = store.get(&key).unwrap().unwrap();
        store.delete(&key).unwrap();
        wear(&store);
        assert!(is_as_put(&kept));
        drop(kept);
        wear(&store);
        let used = store.stats().used_bytes;
        assert!(used < LEN_MAX, "{used} bytes are used");
    }
}

/// More than a thread has slots for, also read at once; released by another thread, in another order.
#[test]
fn thousands_of_values_are_pinned_and_sent_to_another_thread() {
    let store = Options { len_max: 4 * LEN_MAX, ..options() }.open("none").unwrap();
    let keys: Vec<Vec<u8>> = (0..2000).map(|number| put_to_keep(&store, number)).collect();
    for _ in 0..3 {
        let mut kept: Vec<Value<'_>> = store.get_many(&keys).unwrap().into_iter().flatten().collect();
        for key in &keys {
            kept.push(store.get(key).unwrap().unwrap());
            // Others come and go between.
            assert!(store.get(b"none").unwrap().is_none());
            assert!(is_as_put(&store.get(&keys[7]).unwrap().unwrap()));
        }
        assert_eq!(kept.len(), 2 * keys.len());
        for key in &keys {
            store.delete(key).unwrap();
        }
        wear(&store);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut kept = kept;
                assert!(kept.iter().all(is_as_put));
                while !kept.is_empty() {
                    drop(kept.swap_remove(kept.len() / 3));
                }
                wear(&store);
            });
        });
        for number in 0..keys.len() {
            put_to_keep(&store, number);
        }
    }
}

#[test]
fn a_value_outlives_the_thread_that_read_it() {
    let store = open();
    let key = put_to_keep(&store, 1);
    let mut kept = Vec::new();
    for _ in 0..100 {
        let value =
            std::thread::scope(|scope| scope.spawn(|| store.get(&key).unwrap().unwrap()).join().unwrap());
        kept.push(value);
    }
    store.delete(&key).unwrap();
    wear(&store);
    assert!(kept.iter().all(is_as_put));
    drop(kept);
    wear(&store);
}

/// Each tombstone hides a record in the block that is kept, so none is dropped: but only the last one is needed.
#[test]
fn a_key_of_a_pinned_block_is_put_and_deleted_without_end() {
    for background in [false, true] {
        let store = Options { background, ..options() }.open("none").unwrap();
        for number in 0..KEYS {
            store.put(key(number), [1; 1300]).unwrap();
        }
        let key_kept = put_to_keep(&store, 1);
        let kept = store.get(&key_kept).unwrap().unwrap();
        for round in 0..20 {
            for number in 0..KEYS {
                store.put(key(number), [round; 1300]).unwrap();
            }
            for number in 0..KEYS {
                assert!(store.delete(key(number)).unwrap());
            }
            store.maintain().unwrap();
        }
        assert!(is_as_put(&kept));
        drop(kept);
        let mut fitted = 0;
        while store.put(key(fitted), [1; 1300]).is_ok() {
            fitted += 1;
        }
        assert!(u64::from(fitted) * 1300 > LEN_MAX * 3 / 4, "{fitted} values fit");
    }
}

#[test]
fn deletes_work_in_a_full_store_while_a_value_is_pinned() {
    for background in [false, true] {
        let store = Options { background, ..options() }.open("none").unwrap();
        let key_kept = put_to_keep(&store, 1);
        let mut next = 0;
        let mut random = super::Random(7);
        let mut put = |store: &Store| {
            next += 1;
            let value = vec![next as u8; 100 + random.below(900) as usize];
            store.put(key(next), &value).is_ok()
        };
        while put(&store) {}
        let kept = store.get(&key_kept).unwrap().unwrap();
        let mut oldest = 0;
        for _ in 0..20_000 {
            oldest += 1;
            store.delete(key(oldest)).unwrap();
            put(&store);
        }
        assert!(is_as_put(&kept));
    }
}

/// In some of these the compactor's own block is all that has room, but for the one that is kept.
#[test]
fn deletes_work_in_a_small_full_store_while_a_value_is_pinned() {
    for seed in 1..=60 {
        let store = Options { extent_bytes: Some(512), len_max: 128 << 10, background: false, ..options() };
        let store = store.open("none").unwrap();
        let mut random = super::Random(seed);
        let mut there = Vec::new();
        let put = |random: &mut super::Random, there: &mut Vec<u32>| {
            let number = random.below(460) as u32;
            let is_put = store.put(key(number), vec![seed as u8; 100 + random.below(900) as usize]).is_ok();
            if is_put && !there.contains(&number) {
                there.push(number);
            }
            is_put
        };
        while put(&mut random, &mut there) {}
        let mut churn = |turns: u32| {
            for turn in 0..turns {
                if put(&mut random, &mut there) {
                    continue;
                }
                for _ in 0..=random.below(3) {
                    let number = there.swap_remove(random.below(there.len() as u64) as usize);
                    let was = store.delete(key(number));
                    assert!(
                        was.unwrap_or_else(|e| panic!("seed {seed}, turn {turn}: {e}\n{:?}", store.stats()))
                    );
                }
            }
            there[0]
        };
        let number = churn(500);
        let kept = store.get(key(number)).unwrap().unwrap();
        churn(1000);
        assert!(kept.bytes().iter().all(|&byte| byte == seed as u8));
    }
}
