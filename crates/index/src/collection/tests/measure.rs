//! The cost of elements, in bytes and nanoseconds, compared with the index of a table.
//!
//! ```text
//! cargo test --release -p duramen --lib collection::tests::measure -- --ignored --nocapture
//! ```
//!
//! Bytes are those of the whole arena. No records are read: a key is recognised by its place. `one` waits for each
//! answer before it asks for the next; `many` does not.

use super::of_map::{Hashes, Log, mix, slot_of};
use super::of_pages::pages;
use crate::collection::map::Map;
use crate::collection::tree::Tree;
use crate::hash::HashIndex;
use duramen_log::sync::reclaim;
use std::cmp::Ordering;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u64 = 2_000_000;

/// Nanoseconds of each of `count` calls.
fn each(count: u64, mut call: impl FnMut(u64)) -> f64 {
    let begun = Instant::now();
    (0..count).for_each(&mut call);
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// The same for calls on keys below `keys`, waiting for each answer, and not waiting.
fn both(keys: u64, mut call: impl FnMut(u64) -> u64) -> [f64; 2] {
    let below = |random: u64| ((u128::from(random) * u128::from(keys)) >> 64) as u64;
    let mut last = 0;
    let one = each(ROUNDS, |at| last = call(below(mix(at.wrapping_mul(7) ^ last & 1 << 63))));
    let many = each(ROUNDS, |at| {
        black_box(call(below(mix(at ^ 0x5555))));
    });
    black_box(last);
    [one, many]
}

/// Loads that depend on each other, spread over as much memory as the elements' index takes.
fn load(bytes: u64) -> f64 {
    let words = (bytes / 8).next_power_of_two();
    let memory: Vec<u64> = (0..words).map(mix).collect();
    let mut at = 1;
    let one = each(ROUNDS, |round| at = memory[((at ^ round) & (words - 1)) as usize]);
    black_box(at);
    one
}

fn row(name: &str, bytes: f64, insert: f64, times: &[(&str, [f64; 2])]) {
    let times: Vec<_> =
        times.iter().map(|(name, [one, many])| format!("{name} {one:.0} / {many:.0}")).collect();
    println!("{name:12} {bytes:5.2} bytes  insert {insert:4.0}  one / many: {}", times.join("  "));
}

#[test]
#[ignore = "minutes, by the clock"]
fn time_and_memory_per_element() {
    for count in [1_000_000u64, 10_000_000] {
        println!("{count} elements; a load in as much memory: {:.0} ns", load(count * 16));
        of_table(count);
        of_map(count);
        of_tree("Tree", count, mix);
        of_tree("... in order", count, |key| key);
    }
}

#[test]
#[ignore = "minutes, by the clock"]
fn time_and_memory_per_element_of_a_map() {
    of_table(10_000_000);
    of_map(10_000_000);
}

fn of_table(count: u64) {
    let log = Log { hashes: Hashes::Even, damaged: Default::default() };
    let (index, guard) = (HashIndex::default(), reclaim::pin_to_write());
    let insert = each(count, |key| {
        let crowded = index.lock(mix(key), &guard).insert(slot_of(key, 0));
        if crowded {
            index.split(mix(key), &log, &guard);
        }
    });
    let find = both(count, |key| {
        let at = slot_of(key, 0).location();
        index.find(mix(key), &guard, |slot| slot.location() == at).unwrap().location().0
    });
    let absent = both(count, |key| {
        u64::from(index.find(mix(key + count), &guard, |slot| slot.location().0 == 1).is_some())
    });
    let bytes = index.bytes(&guard) as f64 / count as f64;
    row("HashIndex", bytes, insert, &[("find", find), ("absent", absent)]);
}

fn of_map(count: u64) {
    let log = Log { hashes: Hashes::Even, damaged: Default::default() };
    let mut map = Map::new(pages());
    let insert = each(count, |key| map.insert(mix(key), slot_of(key, 0), &log));
    let find = both(count, |key| {
        let at = slot_of(key, 0).location();
        map.find(mix(key), |slot| slot.location() == at).unwrap().location().0
    });
    let absent =
        both(count, |key| u64::from(map.find(mix(key + count), |slot| slot.location().0 == 1).is_some()));
    let random = each(ROUNDS / 10, |at| {
        let mut word = at;
        black_box(map.random(|| {
            word = mix(word);
            word
        }));
    });
    let (mut cursor, mut scanned, begun) = (0, 0u64, Instant::now());
    loop {
        cursor = map.scan(cursor, &mut |_| scanned += 1);
        if cursor == 0 {
            break;
        }
    }
    let scan = begun.elapsed().as_nanos() as f64 / scanned as f64;
    let bytes = map.pages().arena().bytes() as f64 / count as f64;
    row("Map", bytes, insert, &[("find", find), ("absent", absent)]);
    let key = |at: u64| slot_of(at, 0).location();
    let remove = each(count / 2, |at| {
        map.remove(mix(at), |slot| slot.location() == key(at), &log);
    });
    let (mut steps, begun) = (1, Instant::now());
    while !map.clear_some(64, &mut |_| ()) {
        steps += 1;
    }
    let clear = begun.elapsed().as_nanos() as f64 / (count / 2) as f64;
    println!(
        "             random {random:.0}  scan {scan:.1} each  remove {remove:.0}  clear {clear:.1} each in {steps} steps"
    );
}

fn of_tree(name: &str, count: u64, order: fn(u64) -> u64) {
    let always = |_| Ordering::Equal;
    let mut tree = Tree::new(pages());
    let insert = each(count, |key| {
        tree.insert(order(key), slot_of(key, 0), always);
    });
    let find = both(count, |key| tree.find(order(key), always).unwrap().location().0);
    let rank = both(count, |key| tree.rank(order(key), always));
    let nth = both(count, |rank| tree.nth(rank).unwrap().0);
    let bytes = tree.pages().arena().bytes() as f64 / count as f64;
    row(name, bytes, insert, &[("find", find), ("rank", rank), ("nth", nth)]);
    let range = each(ROUNDS / 100, |at| {
        let mut cursor = tree.seek(order(mix(at) % count), |_| Ordering::Greater);
        (0..100).for_each(|_| {
            black_box(cursor.forward());
        });
    });
    let remove = each(count, |key| {
        tree.remove(order(key), always);
    });
    println!("             range of 100 {range:.0}  remove {remove:.0}");
}
