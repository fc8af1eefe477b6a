//! Tests of where blocks are found by the share of their bytes that is dead.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const EXTENT_BYTES: u64 = 192 << 10;

fn table(extents: u32) -> Blocks {
    Blocks::new(u64::from(extents) * EXTENT_BYTES, EXTENT_BYTES, Secret::new(1))
}

/// A sealed block of one extent with as many bytes of records, all live.
fn seal(blocks: &Blocks, extent: u32, generation: u64, bytes: u64) {
    let extent = Extent(extent);
    blocks.open(extent, 1, Generation(generation)).set_tail(HEADER_BYTES + bytes);
    blocks.seal(extent, bytes);
}

fn found(blocks: &Blocks, least: Class) -> BTreeMap<u32, u64> {
    let mut found = BTreeMap::new();
    let looked = blocks.look(least, false, 1, |extent, block| {
        let (bytes, live) = blocks.gain_of(block);
        if Class::of(bytes, live) >= least {
            found.insert(extent.0, bytes - live);
        }
        ControlFlow::Continue(())
    });
    assert!(!looked.is_enough, "nothing was found, and everything was looked at");
    found
}

#[test]
fn blocks_are_found_with_the_largest_dead_share_first_and_at_the_end_first() {
    // In Miri, in four groups of one chunk.
    let (count, middle) = if cfg!(miri) { (4 * GROUP as u32, 80) } else { (10_000, 5_000) };
    let (later, last) = (middle + 100, count - 1);
    let blocks = table(count);
    for extent in 0..count {
        seal(&blocks, extent, 1 + u64::from(extent), 190_000);
    }
    assert_eq!(found(&blocks, Class::of_percent(0)), BTreeMap::new(), "nothing is dead");
    let dead = [(40, 10_000), (middle, 100_000), (later, 100_000), (last, 3), (7, 190_000)];
    for (extent, bytes) in dead {
        blocks.live_sub(blocks.offset(Extent(extent)) + 800, bytes);
    }
    let mut order = Vec::new();
    blocks.look(Class::of_percent(0), false, usize::MAX, |extent, block| {
        let (bytes, live) = blocks.gain_of(block);
        if live < bytes {
            order.push(extent.0);
        }
        ControlFlow::Break(())
    });
    assert_eq!(order, [7, 40, later, middle, last], "40 is in the group of 7");
    let percent = |least| found(&blocks, Class::of_percent(least)).into_keys().collect::<Vec<_>>();
    assert_eq!(percent(5), [7, 40, middle, later]);
    assert_eq!(percent(30), [7, middle, later]);
    let looked = blocks.look(Class::of_percent(30), false, 1, |_, _| ControlFlow::Break(()));
    assert_eq!(looked, Looked { extents: GROUP, is_enough: true }, "one group is enough");
}

#[test]
fn a_block_that_was_put_off_or_kept_is_found_again_and_a_retired_one_is_not() {
    let blocks = table(100);
    seal(&blocks, 10, 1, 190_000);
    let at = blocks.offset(Extent(10));
    let is_found = || found(&blocks, Class::of_percent(1)).contains_key(&10);
    blocks.live_sub(at, 57_000);
    assert!(is_found());
    blocks.put_off(Extent(10));
    assert!(!is_found());
    // What dies meanwhile is known when it comes back.
    blocks.live_sub(at, 114_000);
    blocks.bring_back(Extent(10));
    assert_eq!(found(&blocks, Class::of_percent(90)).get(&10), Some(&171_000));
    assert!(blocks.at(Extent(10)).retire() && !is_found());
    blocks.live_sub(at, 19_000);
    blocks.keep(Extent(10));
    assert_eq!(found(&blocks, Class::HIGHEST).get(&10), Some(&190_000));
    assert!(blocks.at(Extent(10)).retire());
    blocks.at(Extent(10)).free();
    assert!(!is_found() && blocks.wrong_classes(100).is_empty());
}

#[test]
fn roomy_blocks_are_found_whatever_is_dead() {
    let blocks = table(100);
    seal(&blocks, 10, 1, 150_000);
    seal(&blocks, 80, 2, 190_000);
    let mut seen = Vec::new();
    blocks.look(Class::of_percent(5), true, 1, |extent, _| {
        seen.push(extent.0);
        ControlFlow::Continue(())
    });
    assert_eq!(seen, [10]);
}

#[test]
fn a_pin_and_a_retirement_exclude_each_other() {
    let blocks = table(10);
    seal(&blocks, 1, 1, 1000);
    let block = blocks.at(Extent(1));
    assert!(block.pin() && !block.retire() && block.is_pinned());
    block.pin_more(2);
    block.unpin_all(3);
    assert!(block.retire() && !block.pin());
    assert!(!block.is_pinned(), "a pin that fails leaves no trace");
}

#[test]
fn durable_tail_is_that_of_an_open_block_and_the_tail_of_others() {
    let blocks = table(10);
    let block = blocks.open(Extent(1), 1, Generation(1));
    block.set_tail(HEADER_BYTES + 500);
    assert_eq!(block.durable_tail(), HEADER_BYTES);
    block.set_durable_tail(HEADER_BYTES + 200);
    // Dead while the block is open: its appender has not counted it yet.
    blocks.live_sub(blocks.offset(Extent(1)) + 600, 100);
    assert_eq!((block.durable_tail(), block.live() as i32), (HEADER_BYTES + 200, -100));
    blocks.seal(Extent(1), 500);
    assert_eq!((block.durable_tail(), block.live()), (HEADER_BYTES + 500, 400));
}

#[test]
fn an_offset_within_a_block_of_several_extents_belongs_to_it() {
    let blocks = table(20);
    blocks.open(Extent(3), 5, Generation(1));
    for extent in 3..8u32 {
        let at = u64::from(extent) * EXTENT_BYTES + 17;
        assert_eq!((blocks.extent_of(at), blocks.of(at).extents()), (Extent(3), 5));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Seal(u64),
    Die(u64),
    Revive(u64),
    Retire,
    Keep,
    Free,
    PutOff,
    BringBack,
    Look(u64),
}

fn steps() -> impl Strategy<Value = Vec<(u32, Step)>> {
    let step = prop_oneof![
        (1u64..180_000).prop_map(Step::Seal),
        (1u64..60_000).prop_map(Step::Die),
        (1u64..60_000).prop_map(Step::Revive),
        Just(Step::Retire),
        Just(Step::Keep),
        Just(Step::Free),
        Just(Step::PutOff),
        Just(Step::BringBack),
        (0u64..100).prop_map(Step::Look),
    ];
    // In Miri fewer places too, so that a block still gets several steps.
    let (places, most) = if cfg!(miri) { (6, 60) } else { (200, 400) };
    prop::collection::vec((0u32..places, step), 1..most)
}

proptest! {
    /// All blocks that qualify are found, and the sets agree with the entries, after any steps.
    #[test]
    fn every_sealed_block_is_found_in_its_class(steps in steps()) {
        // In three chunks; in Miri, in four groups of one, since every step looks at all entries.
        let (count, apart) = if cfg!(miri) { (4 * GROUP as u32, 43) } else { (3 * CHUNK as u32, 61) };
        let blocks = table(count);
        let place = |number: u32| Extent(number * apart);
        let (mut generation, mut put_off) = (0, BTreeSet::new());
        for (number, step) in steps {
            let extent = place(number);
            let block = blocks.at(extent);
            let (state, live) = (block.state(), u64::from(block.live_sealed()));
            match step {
                Step::Seal(bytes) if state == Use::Free => {
                    generation += 1;
                    seal(&blocks, extent.0, generation, bytes);
                }
                Step::Die(bytes) if state != Use::Free && live > 0 => {
                    blocks.live_sub(blocks.offset(extent), bytes.min(live));
                }
                Step::Revive(bytes) if state != Use::Free => {
                    block.live_add(bytes.min(block.tail() - HEADER_BYTES - live));
                }
                Step::Retire if state == Use::Sealed => prop_assert!(block.retire()),
                Step::Keep if state == Use::Retired => blocks.keep(extent),
                Step::Free if state == Use::Retired => block.free(),
                Step::PutOff if state == Use::Sealed => blocks.put_off(extent),
                Step::BringBack => blocks.bring_back(extent),
                Step::Look(percent) => {
                    found(&blocks, Class::of_percent(percent));
                }
                _ => continue,
            }
            match block.state() {
                Use::Sealed if !block.is_listed() => put_off.insert(extent),
                _ => put_off.remove(&extent),
            };
            prop_assert_eq!(blocks.wrong_classes(count), Vec::<String>::new());
        }
        for least in Class::of_percent(0).and_above() {
            let found: BTreeSet<u32> = found(&blocks, least).into_keys().collect();
            let sealed = blocks.walk(0..count).filter(|&(extent, block, state)| {
                let (bytes, live) = blocks.gain_of(block);
                state == Use::Sealed && Class::of(bytes, live) >= least && !put_off.contains(&extent)
            });
            prop_assert_eq!(found, sealed.map(|(extent, ..)| extent.0).collect::<BTreeSet<_>>());
        }
        prop_assert_eq!(blocks.unlisted(count).collect::<BTreeSet<_>>(), put_off);
    }
}

/// Resident bytes of this process.
fn resident() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

/// What a table of 10 million blocks takes (1.8 TiB), and a choice of victims in it.
/// `cargo test --release -p duramen-log -- --ignored --nocapture ten_million`
#[test]
#[ignore = "takes 330 MB and some seconds"]
fn a_choice_among_ten_million_blocks_looks_at_few_of_them() {
    const BLOCKS: u32 = 10_000_000;
    let (before, begun) = (resident().unwrap(), Instant::now());
    let blocks = table(BLOCKS);
    for extent in 0..BLOCKS {
        seal(&blocks, extent, 1 + u64::from(extent), 190_000);
    }
    let each = (resident().unwrap() - before) as f64 / f64::from(BLOCKS);
    println!("{each:.2} bytes an entry; opened and sealed in {:?}", begun.elapsed());
    // And what the allocator adds to each chunk of 4,096: a page.
    assert!(each < 33.5, "{each} bytes an entry");
    let choose = |what: &str, least: u64, found_least: usize, most: usize| {
        let mut found = 0;
        let begun = Instant::now();
        let looked = blocks.look(Class::of_percent(least), false, 8192, |_, block| {
            let (bytes, live) = blocks.gain_of(block);
            if (bytes - live) * 100 < bytes * least.max(1) {
                return ControlFlow::Continue(());
            }
            found += 1;
            ControlFlow::Break(())
        });
        println!("{what}: {found} found among {} entries in {:?}", looked.extents, begun.elapsed());
        assert!(found >= found_least && looked.extents <= most, "{what}: {found} found, {looked:?}");
    };
    choose("nothing is dead", 0, 0, 0);
    let at = |extent: u32| blocks.offset(Extent(extent)) + 800;
    blocks.live_sub(at(123), 20_000);
    choose("one has dead bytes", 5, 1, GROUP);
    // Each tenth, spread over all classes.
    let begun = Instant::now();
    for extent in (0..BLOCKS).step_by(10) {
        blocks.live_sub(at(extent), u64::from(extent / 10) * 7919 % 1000 * 189);
    }
    println!("a million blocks lose a part of their live bytes in {:?}", begun.elapsed());
    choose("each tenth has dead bytes", 5, 128, 8192 + GROUP);
    choose("once more", 5, 128, 8192 + GROUP);
    choose("with many", 30, 128, 8192 + GROUP);
}
