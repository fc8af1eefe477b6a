//! A cell of more than one word: readers copy it while its parts are updated, each by one store.

use crate::Planted::Bug;
use crate::check;
use duramen_index::either::Index;
use duramen_index::hash::HashIndex;
use duramen_log::mutants::Mutant;
use duramen_log::sync::Arc;
use duramen_log::sync::atomic::AtomicU64;
use duramen_log::sync::atomic::Ordering::{Acquire, Release};
use loom::thread;

const HASH: u64 = 7 << 40;

#[test]
fn a_cell_is_copied_as_one_snapshot_while_its_parts_are_updated() {
    let planted = [Bug(Mutant::UpdateNotCounted), Bug(Mutant::CellCopyNotChecked)];
    check(3, &planted, || {
        let index = Arc::new(Index::Hash(HashIndex::default()));
        let cell = Arc::new([AtomicU64::new(0), AtomicU64::new(1)]);
        let writer = {
            let (index, cell) = (Arc::clone(&index), Arc::clone(&cell));
            thread::spawn(move || {
                // (0,1) (1,1) (1,0) (1,1): never (0,0).
                for (part, value) in [(0, 1), (1, 0), (1, 1)] {
                    let _held = index.hold(HASH);
                    index.stripes().count_update(HASH);
                    cell[part].store(value, Release);
                }
            })
        };
        let mut seen = [0; 2];
        index.stripes().read_cell(HASH, || seen = [cell[0].load(Acquire), cell[1].load(Acquire)]);
        assert_ne!(seen, [0, 0], "a state that never was");
        writer.join().unwrap();
    });
}
