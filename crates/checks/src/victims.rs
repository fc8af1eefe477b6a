//! Where the compactor finds blocks by their dead share, while writers make records dead.

use crate::Planted::{self, Relaxed};
use crate::check;
use duramen_log::blocks::{Blocks, Class};
use duramen_log::format::{Extent, Generation, Secret, block};
use duramen_log::sync::Arc;
use loom::thread;
use std::ops::ControlFlow;

const EXTENT_BYTES: u64 = 512;
/// Bytes of records of each block, all live at first.
const RECORDS_BYTES: u64 = 400;
/// Two chunks of a model, so that there are sets above those of chunks.
const EXTENTS: u32 = 32;

fn table() -> Arc<Blocks> {
    Arc::new(Blocks::new(u64::from(EXTENTS) * EXTENT_BYTES, EXTENT_BYTES, Secret::new(1)))
}

fn seal(blocks: &Blocks, extent: u32) {
    let opened = blocks.open(Extent(extent), 1, Generation::new(1, u64::from(extent)));
    opened.set_tail(block::HEADER_BYTES + RECORDS_BYTES);
    blocks.seal(Extent(extent), RECORDS_BYTES);
}

fn lose(blocks: &Blocks, extent: u32, bytes: u64) {
    blocks.live_sub(u64::from(extent) * EXTENT_BYTES + block::HEADER_BYTES, bytes);
}

/// The blocks that a choice sees when it asks for this percentage of dead bytes.
fn found(blocks: &Blocks, percent: u64) -> Vec<u32> {
    let mut found = Vec::new();
    blocks.look(Class::of_percent(percent), false, 1, |extent, _| {
        found.push(extent.0);
        ControlFlow::Continue(())
    });
    found
}

const ADDED: Planted = Relaxed("log/src/blocks/victims.rs", "self.0.fetch_or(classes, AcqRel)");
const TAKEN: Planted = Relaxed("log/src/blocks/victims.rs", "self.0.swap(0, AcqRel)");

/// The class of a block rises while a look takes that class away, which the block at extent 17 was in before.
fn rises_while_looked_at(extent: u32) {
    check(3, &[ADDED, TAKEN], move || {
        let blocks = table();
        for extent in [17, extent] {
            seal(&blocks, extent);
        }
        lose(&blocks, 17, 200);
        blocks.at(Extent(17)).live_add(200);
        let writer = {
            let blocks = Arc::clone(&blocks);
            thread::spawn(move || lose(&blocks, extent, 200))
        };
        found(&blocks, 50);
        writer.join().unwrap();
        assert_eq!(blocks.wrong_classes(EXTENTS), Vec::<String>::new());
        assert!(found(&blocks, 50).contains(&extent));
    });
}

#[test]
fn a_block_whose_class_rises_while_its_group_is_looked_at_is_found() {
    rises_while_looked_at(18);
}

#[test]
fn a_block_whose_class_rises_while_the_sets_above_it_are_renewed_is_found() {
    // In another group of the same chunk.
    rises_while_looked_at(22);
}

#[test]
fn two_writers_leave_a_block_in_its_class() {
    check(2, &[], || {
        let blocks = table();
        seal(&blocks, 17);
        let writer = |bytes| {
            let blocks = Arc::clone(&blocks);
            thread::spawn(move || lose(&blocks, 17, bytes))
        };
        let (one, other) = (writer(100), writer(140));
        found(&blocks, 5);
        one.join().unwrap();
        other.join().unwrap();
        assert_eq!(blocks.wrong_classes(EXTENTS), Vec::<String>::new());
        assert_eq!(found(&blocks, 60), [17]);
    });
}

#[test]
fn a_block_is_pinned_or_retired_by_one_of_two_threads() {
    check(3, &[], || {
        let blocks = table();
        seal(&blocks, 17);
        let writer = {
            let blocks = Arc::clone(&blocks);
            thread::spawn(move || {
                let is_pinned = blocks.at(Extent(17)).pin();
                lose(&blocks, 17, 200);
                is_pinned
            })
        };
        let is_retired = blocks.at(Extent(17)).retire();
        // The compactor reads whether a retired block counts records of transactions that are not finalized.
        assert!(!is_retired || !blocks.at(Extent(17)).is_pinned(), "a pin that fails is seen");
        let is_pinned = writer.join().unwrap();
        assert_ne!(is_pinned, is_retired);
        if is_retired {
            blocks.keep(Extent(17));
        }
        assert_eq!(blocks.wrong_classes(EXTENTS), Vec::<String>::new());
        assert_eq!(found(&blocks, 50), [17]);
    });
}
