//! The ordered index alone: the location of a key's record is its number in a list of keys.

use super::{Chunk, OrderedIndex, Parting};
use crate::{Hasher, KeyBytes, Keys, Slot};
use duramen_log::format::Version;
use duramen_log::sync::reclaim;
use duramen_media::Offset;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Keys by location; each may lie at several.
struct Log {
    keys: Vec<Vec<u8>>,
    hasher: Hasher,
}

impl Log {
    fn new(keys: Vec<Vec<u8>>) -> Self {
        Self { keys, hasher: Hasher::new(1, u64::MAX) }
    }

    fn at(number: usize) -> Offset {
        Offset((number as u64 + 1) * 8)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    fn key_at(&self, at: Offset) -> &[u8] {
        &self.keys[(at.0 / 8 - 1) as usize % self.keys.len()]
    }
}

impl Keys for Log {
    fn hash_at(&self, at: Offset) -> Option<u64> {
        Some(self.hash(self.key_at(at)))
    }

    fn prefetch_at(&self, _at: Offset) {}
}

impl KeyBytes for Log {
    fn key_at(&self, at: Offset) -> Option<&[u8]> {
        Some(self.key_at(at))
    }

    fn value_at(&self, _: Offset) -> Option<&[u8]> {
        None
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// Puts the record `number`, of the key at that number.
fn put(index: &OrderedIndex, log: &Log, number: usize) {
    let guard = reclaim::pin();
    let slot = Slot::new(Log::at(number));
    let key = log.key_at(slot.location());
    let locked = index.lock(log.hash(key), &guard);
    let found = locked.find_with(key, |slot| (log.key_at(slot.location()) == key).then_some(()));
    match found {
        Some((place, ())) => place.set(slot),
        None => locked.insert(key, slot, log),
    }
}

fn remove(index: &OrderedIndex, log: &Log, key: &[u8]) -> bool {
    let guard = reclaim::pin();
    let locked = index.lock(log.hash(key), &guard);
    let found = locked.find_with(key, |slot| (log.key_at(slot.location()) == key).then_some(()));
    found.map(|(place, ())| locked.remove(&place, log)).is_some()
}

fn get(index: &OrderedIndex, log: &Log, key: &[u8]) -> Option<u64> {
    let guard = reclaim::pin();
    let found = index
        .find_with(log.hash(key), key, &guard, |slot| (log.key_at(slot.location()) == key).then_some(()));
    found.map(|(slot, ())| slot.location().0)
}

#[test]
fn each_wait_for_a_lock_is_counted_once() {
    let log = Log::new(vec![b"a".to_vec(), b"b".to_vec()]);
    let index = OrderedIndex::new(1, 16, 14);
    put(&index, &log, 0);
    let waits = || (index.stripes().waits(), index.waits());
    assert_eq!(waits(), (0, 0));
    let while_held = |held: &mut dyn FnMut(), wanted: (u64, u64)| {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| put(&index, &log, 1));
            while waits() != wanted {
                assert!(!waiting.is_finished(), "it did not wait: {:?}", waits());
                std::thread::yield_now();
            }
            // It tries to lock many more times.
            std::thread::sleep(std::time::Duration::from_millis(5));
            held();
        });
        assert_eq!(waits(), wanted);
    };
    let guard = reclaim::pin();
    let mut key = Some(index.lock(log.hash(b"b"), &guard));
    while_held(&mut || drop(key.take()), (1, 0));
    let mut leaf = Some(index.head(&guard).hold(&index.waits));
    while_held(&mut || drop(leaf.take()), (1, 1));
    assert_eq!(get(&index, &log, b"b"), Some(Log::at(1).0));
}

/// The result of a walk, chunk by chunk.
fn walk(
    index: &OrderedIndex,
    log: &Log,
    (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    chunk: usize,
    reverse: bool,
) -> Vec<(Vec<u8>, u64)> {
    let mut all = Vec::new();
    let mut bound: Bound<Vec<u8>> = if reverse { to } else { from }.map(<[u8]>::to_vec);
    loop {
        let guard = reclaim::pin();
        let mut found = Chunk::default();
        let start = bound.as_ref().map(|key| &key[..]);
        let more = if reverse {
            index.backward((from, start), chunk, log, &guard, &mut found)
        } else {
            index.forward((start, to), chunk, log, &guard, &mut found)
        };
        let Chunk { slots, onward } = found;
        all.extend(slots.iter().map(|slot| (log.key_at(slot.location()).to_vec(), slot.location().0)));
        if !more {
            break;
        }
        bound = if reverse { Excluded(onward) } else { Included(onward) };
    }
    let is_in = |key: &[u8]| {
        let begun = match from {
            Included(from) => key >= from,
            Excluded(from) => key > from,
            Unbounded => true,
        };
        begun
            && match to {
                Included(to) => key <= to,
                Excluded(to) => key < to,
                Unbounded => true,
            }
    };
    // A walk gives whole leaves at the far end.
    let len = all.iter().rposition(|(key, _)| is_in(key)).map_or(0, |at| at + 1);
    all.truncate(len);
    all
}

fn scan(index: &OrderedIndex, log: &Log) -> Vec<Vec<u8>> {
    let guard = reclaim::pin();
    let (mut cursor, mut all) = (0, Vec::new());
    loop {
        cursor = index.scan(cursor, &guard, &mut |slot| all.push(log.key_at(slot.location()).to_vec()));
        if cursor == 0 {
            return all;
        }
    }
}

/// Keys of many kinds: short ones, long ones, with shared beginnings of every length, with zeros at the end.
fn keys(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let mut keys = BTreeSet::from([Vec::new()]);
    while keys.len() < count {
        let bytes = random.below(41);
        let letters = 1 + random.below(3);
        let mut key: Vec<u8> = (0..bytes).map(|_| random.below(letters) as u8).collect();
        match random.below(4) {
            0 => key = format!("user:{:010}", random.below(1000)).into_bytes(),
            1 => key = (random.0 ^ key.len() as u64).to_be_bytes().to_vec(),
            2 => key.splice(0..0, *b"a beginning that is longer than sixteen bytes ").for_each(drop),
            _ => {}
        }
        keys.insert(key);
    }
    let mut keys: Vec<_> = keys.into_iter().collect();
    for i in (1..keys.len()).rev() {
        keys.swap(i, random.below(i + 1));
    }
    keys
}

/// Builds the empty index from some of the keys, as recovery does, and returns these.
fn build_some(random: &mut Random, log: &Log, index: &OrderedIndex, count: usize) -> BTreeMap<Vec<u8>, u64> {
    let some: Vec<usize> = (0..count).filter(|_| random.below(3) > 0).collect();
    // Some are below or above all that share the sample's prefix.
    let sampled = |number: &&usize| *number % 20 != 7 && *number % 20 != 17;
    let sample: Vec<&[u8]> =
        some.iter().filter(sampled).map(|&number| &log.keys[number][..]).step_by(9).collect();
    let parting = Parting::new(&sample, some.len() as u64);
    let mut parts = vec![Vec::new(); parting.parts()];
    for &number in &some {
        let (part, entry) = parting.place(&log.keys[number], Slot::new(Log::at(number)));
        parts[part].push(entry);
    }
    for part in &mut parts {
        part.sort_by_key(|entry| (entry.rank(), log.key_at(entry.slot.location())));
    }
    let entries: Vec<usize> = parts.iter().map(Vec::len).collect();
    let threads = 1 + random.below(3);
    index.observe_version(Version(7));
    index.build(&parting, &entries, log, threads, |part| parts[part].clone());
    let mut model = BTreeMap::new();
    model.extend(some.into_iter().map(|number| (log.keys[number].clone(), Log::at(number).0)));
    index.check_levels(&reclaim::pin());
    let all: Vec<_> = model.iter().map(|(key, at)| (key.clone(), *at)).collect();
    assert_eq!(walk(index, log, (Unbounded, Unbounded), 9, false), all);
    assert_eq!(index.lock(0, &reclaim::pin()).held().next_version(Version(0)), Version(8));
    model
}

fn check_random(seed: u64, count: usize, operations: usize, leaf_slots: usize, cache_slots: usize) {
    let mut random = Random(seed);
    let mut keys = keys(&mut random, count);
    if seed.is_multiple_of(3) {
        // All but some, which are below and above.
        for (number, key) in keys.iter_mut().enumerate() {
            match number % 40 {
                7 => {}
                17 => key.insert(0, 255),
                _ => drop(key.splice(0..0, *b"shared by most ")),
            }
        }
    }
    let log = Log::new(keys);
    let index = OrderedIndex::new(seed, cache_slots, leaf_slots);
    let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    // Every other one is built from some of the keys.
    if seed.is_multiple_of(2) {
        model = build_some(&mut random, &log, &index, count);
    }
    for turn in 0..operations {
        // Grows, then shrinks, again and again.
        let grows = (turn * 4 / operations).is_multiple_of(2);
        let number = random.below(count);
        let key = log.keys[number].clone();
        match random.below(10) {
            0..=6 if random.below(4) == 0 || !grows => {
                assert_eq!(remove(&index, &log, &key), model.remove(&key).is_some(), "turn {turn}");
            }
            0..=6 => {
                // One of three records of the key.
                let number = number + count * random.below(3);
                put(&index, &log, number);
                model.insert(key, Log::at(number).0);
            }
            7 => assert_eq!(get(&index, &log, &key), model.get(&key).copied(), "turn {turn}"),
            8 => {
                let other = &log.keys[random.below(count)];
                let bound = |key, which| match which {
                    0 => Included(key),
                    1 => Excluded(key),
                    _ => Unbounded,
                };
                let from = bound(key.as_slice().min(other), random.below(3));
                let to = bound(key.as_slice().max(other), random.below(3));
                if matches!((from, to), (Excluded(a), Excluded(b)) if a == b) {
                    continue;
                }
                let mut wanted: Vec<_> =
                    model.range::<[u8], _>((from, to)).map(|(key, at)| (key.clone(), *at)).collect();
                let chunk = 1 + random.below(40);
                assert_eq!(walk(&index, &log, (from, to), chunk, false), wanted, "turn {turn}");
                wanted.reverse();
                assert_eq!(walk(&index, &log, (from, to), chunk, true), wanted, "turn {turn}, reverse");
            }
            _ if turn % 10 == 0 => {
                assert_eq!(scan(&index, &log), model.keys().cloned().collect::<Vec<_>>(), "turn {turn}");
            }
            _ => {}
        }
    }
    index.check_levels(&reclaim::pin());
    let (splits, merges) = index.grown();
    assert!(splits > 10 && merges > 2, "{splits} splits, {merges} merges: nothing was shown");
}

#[test]
fn an_ordered_index_holds_what_a_sorted_map_holds() {
    // Few keys make few leaves, unless these are small.
    let (rounds, operations, count, large) = if cfg!(miri) { (1, 200, 60, 4) } else { (20, 20_000, 600, 14) };
    for seed in 0..rounds {
        for (leaf_slots, cache_slots) in [(2, 0), (3, 64), (large, 1 << 10)] {
            check_random(seed + 1, count, operations, leaf_slots, cache_slots);
        }
    }
}

#[test]
fn ascending_and_descending_keys_are_inserted_and_removed_completely() {
    let count = if cfg!(miri) { 200 } else { 20_000 };
    let log = Log::new((0..count).map(|i| format!("{i:08}").into_bytes()).collect());
    let index = OrderedIndex::new(7, 1 << 10, 14);
    (0..count).for_each(|number| put(&index, &log, number));
    let (splits, _) = index.grown();
    assert!(splits as usize <= count / 14, "{splits} splits: ascending keys leave leaves half empty");
    assert_eq!(scan(&index, &log), log.keys);
    // A queue: the oldest go, and their leaves with them.
    for number in 0..count {
        assert!(remove(&index, &log, &log.keys[number]));
    }
    let (splits, merges) = index.grown();
    assert_eq!((splits, scan(&index, &log).len()), (merges, 0), "empty leaves are left");
    for number in (0..count).rev() {
        put(&index, &log, number);
    }
    assert_eq!(scan(&index, &log), log.keys);
    reclaim::collect();
}

#[test]
fn a_step_of_a_scan_returns_few_keys_in_any_insertion_order() {
    let (others, count) = if cfg!(miri) { (50, 200) } else { (1000, 8000) };
    // In random order, so that later leaves have labels close to each other.
    let mut random = Random(5);
    let mut behind: Vec<Vec<u8>> = (0..others).map(|i| format!("z:{i:06}").into_bytes()).collect();
    (1..others).rev().for_each(|at| behind.swap(at, random.below(at + 1)));
    let in_order = |i: usize| format!("a:{i:012}").into_bytes();
    let orders: [(&str, Vec<Vec<u8>>); 4] = [
        ("ascending", (0..count).map(in_order).collect()),
        ("descending", (0..count).rev().map(in_order).collect()),
        ("random", (0..count).map(|_| in_order(random.below(1 << 30))).collect()),
        (
            "towards the middle",
            (0..count).map(|i| in_order(if i % 2 == 0 { i } else { 2 * count - i })).collect(),
        ),
    ];
    for (name, order) in orders {
        let mut keys = behind.clone();
        keys.extend(order);
        let log = Log::new(keys);
        let index = OrderedIndex::new(7, 1 << 10, 14);
        (0..log.keys.len()).for_each(|number| put(&index, &log, number));
        let guard = reclaim::pin();
        let (mut cursor, mut seen, mut most) = (0, BTreeSet::new(), 0);
        loop {
            let before = cursor;
            let mut shown = 0;
            cursor = index.scan(cursor, &guard, &mut |slot| {
                seen.insert(log.key_at(slot.location()).to_vec());
                shown += 1;
            });
            most = most.max(shown);
            if cursor == 0 {
                break;
            }
            assert!(cursor > before, "{name}: the cursor went from {before} to {cursor}");
        }
        assert_eq!(seen, log.keys.iter().cloned().collect(), "{name}");
        assert!(most <= 2 * 14, "{name}: {most} keys in one step");
        index.check_levels(&guard);
    }
    reclaim::collect();
}

#[test]
fn a_scan_misses_nothing_while_labels_are_raised_between_its_steps() {
    let (others, count) = if cfg!(miri) { (50, 100) } else { (1000, 4000) };
    let mut keys: Vec<Vec<u8>> =
        (0..others).map(|i| format!("{}:{i:06}", ["0", "z"][i % 2]).into_bytes()).collect();
    keys.extend((0..count).map(|i| format!("a:{i:012}").into_bytes()));
    let log = Log::new(keys);
    let index = OrderedIndex::new(7, 1 << 10, 14);
    (0..others).for_each(|number| put(&index, &log, number));
    let guard = reclaim::pin();
    let (mut cursor, mut seen, mut added, mut steps) = (0, BTreeSet::new(), others, 0);
    loop {
        cursor = index.scan(cursor, &guard, &mut |slot| _ = seen.insert(slot.location().0));
        steps += 1;
        if cursor == 0 {
            break;
        }
        let more = (added + 20).min(log.keys.len());
        (added..more).for_each(|number| put(&index, &log, number));
        added = more;
    }
    assert!(
        (0..others).all(|number| seen.contains(&Log::at(number).0)),
        "a key that was there all the time was missed"
    );
    assert!(steps <= log.keys.len(), "{steps} steps");
    reclaim::collect();
}

#[test]
fn the_cache_of_a_small_table_is_small_and_grows_with_it() {
    let count = if cfg!(miri) { 200 } else { 20_000 };
    let log = Log::new((0..count).map(|i| format!("{i:08}").into_bytes()).collect());
    let index = OrderedIndex::new(7, 1 << 20, 14);
    put(&index, &log, 0);
    assert!(index.cache.bytes() <= 4096, "{} bytes for one key", index.cache.bytes());
    (1..count).for_each(|number| put(&index, &log, number));
    let slots = index.cache.bytes() / 8;
    assert!((count as u64..8 * count as u64).contains(&slots), "{slots} slots for {count} keys");
    let get_all = || {
        let found = |number: usize| get(&index, &log, &log.keys[number]);
        (0..count).for_each(|number| assert_eq!(found(number), Some(Log::at(number).0)));
    };
    // The keys cached before the last growth have other slots now; the first round finds them again.
    get_all();
    let before = index.cached();
    get_all();
    let (hits, misses) = (index.cached().0 - before.0, index.cached().1 - before.1);
    assert!(hits > 2 * misses, "{hits} hits, {misses} misses");
    reclaim::collect();
}

/// Stops the writers, also when the check fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Every walk sees the keys that stay exactly once and in order, while neighbours come and go.
fn check_threads(leaf_slots: usize) {
    let count = if cfg!(miri) { 60 } else { 3_000 };
    let mut random = Random(leaf_slots as u64);
    let log = &Log::new(keys(&mut random, count));
    let index = &OrderedIndex::new(3, 1 << 8, leaf_slots);
    // Those at multiples of three stay; the others come and go.
    let stay: &BTreeSet<&[u8]> = &log.keys.iter().step_by(3).map(|key| &key[..]).collect();
    (0..count).step_by(3).for_each(|number| put(index, log, number));
    let (stop, rounds) = (&AtomicBool::new(false), if cfg!(miri) { 1 } else { 60 });
    std::thread::scope(|scope| {
        for writer in 1..=2 {
            scope.spawn(move || {
                let mut random = Random(writer as u64);
                while !stop.load(Relaxed) {
                    let number = random.below(count / 3) * 3 + writer;
                    match random.below(3) {
                        0 => drop(remove(index, log, &log.keys[number])),
                        1 => put(index, log, number),
                        // Another record of a key that stays.
                        _ => put(index, log, random.below(count / 3) * 3 + count * random.below(3)),
                    }
                }
            });
        }
        let _stop = Stop(stop);
        // With other work on the machine the writers may make no progress for a while.
        for round in (0..100 * rounds).take_while(|&round| round < rounds || index.grown().1 <= 2) {
            for reverse in [false, true] {
                let mut seen = walk(index, log, (Unbounded, Unbounded), 1 + round * 7 % 50, reverse);
                if reverse {
                    seen.reverse();
                }
                assert!(seen.windows(2).all(|w| w[0].0 < w[1].0), "out of order, or twice");
                let seen: Vec<&[u8]> =
                    seen.iter().map(|(key, _)| &key[..]).filter(|&key| stay.contains(key)).collect();
                assert!(seen.iter().eq(stay), "{} of {} seen", seen.len(), stay.len());
            }
            let seen: BTreeSet<Vec<u8>> = scan(index, log).into_iter().collect();
            assert!(stay.iter().all(|&key| seen.contains(key)), "a scan missed a key that stays");
            for key in stay.iter().skip(round % 7).step_by(7) {
                assert!(get(index, log, key).is_some(), "a key that stays is missed");
            }
            reclaim::collect();
        }
    });
    index.check_levels(&reclaim::pin());
    let (splits, merges) = index.grown();
    assert!(merges > 2, "{splits} splits, {merges} merges: nothing was shown");
}

#[test]
fn a_walk_visits_each_lasting_key_once_and_in_order_during_changes() {
    check_threads(2);
    check_threads(if cfg!(miri) { 4 } else { 14 });
}

#[test]
fn any_cursor_points_to_some_leaf() {
    let log = Log::new((0..500u32).map(|i| i.to_be_bytes().to_vec()).collect());
    let index = OrderedIndex::new(5, 0, 4);
    let guard = reclaim::pin();
    assert_eq!(index.cursor_at(123, &guard), 0);
    (0..500).for_each(|number| put(&index, &log, number));
    let cursors: BTreeSet<u64> =
        (0..1000u64).map(|i| index.cursor_at(i.wrapping_mul(0x9e37_79b9_7f4a_7c15), &guard)).collect();
    assert!(cursors.len() > 50, "{} places of some 200", cursors.len());
    for cursor in cursors.into_iter().chain([1, u64::MAX]) {
        let mut any = false;
        index.scan(cursor, &guard, &mut |_| any = true);
        assert!(any, "cursor {cursor}");
    }
}
