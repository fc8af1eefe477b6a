//! Epochs: a commit ends an epoch when its writers have left it, and counts and flushes all their writes.

use crate::Planted::{Bug, Relaxed};
use crate::check;
use crate::medium::ModelMedium;
use duramen_log::blocks::Blocks;
use duramen_log::durability::{Activity, Epochs};
use duramen_log::format::holes::Holes;
use duramen_log::format::mark::Mark;
use duramen_log::format::record::Appended;
use duramen_log::format::superblock::Regime;
use duramen_log::format::{Epoch, Extent, Generation, HEAD_BYTES, Secret, block};
use duramen_log::mutants::Mutant;
use duramen_log::open_block::Purpose;
use duramen_log::open_block::{DirtyBlocks, OpenBlock};
use duramen_log::sync::Arc;
use duramen_log::sync::atomic::AtomicU64;
use duramen_log::sync::atomic::Ordering::SeqCst;
use duramen_media::{Device, Granularity, Offset, Persistent};
use loom::thread;

const EXTENT_BYTES: u64 = 512;

struct Store {
    medium: ModelMedium,
    blocks: Blocks,
    epochs: Epochs,
    dirty_blocks: DirtyBlocks,
}

impl Store {
    fn new() -> Arc<Self> {
        let medium = ModelMedium::new(HEAD_BYTES + 4 * EXTENT_BYTES, Granularity::CacheLine);
        medium.grow(medium.len_max()).unwrap();
        let epochs = Epochs::new(Regime::Epochs, true, Epoch(5), 0, 1, Secret::new(1), Activity::default());
        let blocks = Blocks::new(medium.len_max(), EXTENT_BYTES, Secret::new(1));
        Arc::new(Self { medium, blocks, epochs, dirty_blocks: DirtyBlocks::new(true) })
    }

    fn open(&self, number: u32) -> OpenBlock {
        let extent = Extent((HEAD_BYTES / EXTENT_BYTES) as u32 + number);
        self.blocks.open(extent, 1, Generation::new(1, 1));
        OpenBlock {
            extent,
            offset: self.blocks.offset(extent),
            bytes: EXTENT_BYTES,
            tail: block::HEADER_BYTES,
            header: block::Header::fresh(Secret::new(1), 1),
            seeds: Secret::new(1).seeds(Generation::new(1, 1)),
            durable_tail: block::HEADER_BYTES,
            live: 0,
            records: 0,
            dirty_epoch: 0,
            unflushed: u64::MAX,
            purpose: Purpose::Write,
            entered: false,
        }
    }

    /// In the order of an append: enter, store, mark dirty, leave. Returns the epoch.
    fn write(&self, activity: &Activity, block: &mut OpenBlock) -> Epoch {
        let epoch = self.epochs.enter(activity);
        self.medium.store(Offset(block.offset + block.tail), &[&[1; 8]]);
        block.tail += 8;
        self.blocks.at(block.extent).set_tail(block.tail);
        self.dirty_blocks.mark_dirty(block, block.tail - 8, epoch);
        let at = Offset(block.offset + block.tail - 8);
        self.epochs.leave(activity, epoch, Some(Appended { at, bytes: 8, crc: 1 }));
        epoch
    }

    /// The bytes of the block that were flushed, from its beginning, as far as without a gap.
    fn durable_tail(&self, block: &OpenBlock) -> u64 {
        self.medium.flushed_to(Offset(block.offset + block::HEADER_BYTES)).0 - block.offset
    }

    fn flush(&self, epoch: Epoch) {
        self.dirty_blocks.flush(&self.medium, &self.blocks, epoch);
    }

    fn commit(&self) -> Epoch {
        self.epochs.commit_current(&self.medium, &|epoch| self.flush(epoch), 0).unwrap()
    }

    /// The records that the mark of `epoch` counts; `None` when another mark took its place.
    fn counted(&self, epoch: Epoch) -> Option<u64> {
        Mark::find(&self.medium, Secret::new(1), &Holes::of(&self.medium, HEAD_BYTES))
            .into_iter()
            .find(|(_, mark)| mark.epoch == epoch)
            .map(|(_, mark)| mark.records)
    }
}

#[test]
fn epoch_closes_only_when_its_writers_have_left() {
    let planted = [
        Bug(Mutant::EnterNotRechecked),
        Bug(Mutant::CommitDoesNotWait),
        Relaxed("log/src/durability/epochs.rs", "if self.current.load(SeqCst) == epoch"),
    ];
    check(3, &planted, || {
        let store = Store::new();
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let activity = store.epochs.register();
                let mut block = store.open(0);
                let first = store.write(&activity, &mut block);
                (activity, block, first)
            })
        };
        let ended = store.commit();
        let early = store.counted(ended).unwrap();
        let (_activity, block, first) = writer.join().unwrap();
        // Counted in the mark of its own epoch, neither before nor after.
        assert_eq!(early, u64::from(first == ended), "epoch {first:?}, committed {ended:?}");
        if first == ended {
            assert_eq!(store.durable_tail(&block), block.tail);
        } else {
            let next = store.commit();
            assert_eq!((first, store.counted(next)), (next, Some(1)));
            assert_eq!(store.durable_tail(&block), block.tail);
        }
    });
}

/// Otherwise a later write could belong to the earlier epoch, and a crash would not leave a prefix in time.
#[test]
fn no_thread_writes_in_an_epoch_while_another_is_in_the_previous_one() {
    check(2, &[Bug(Mutant::EpochsOverlap)], || {
        let store = Store::new();
        let latest = Arc::new(AtomicU64::new(0));
        let activity = store.epochs.register();
        let epoch = store.epochs.enter(&activity);
        let writer = {
            let (store, latest) = (Arc::clone(&store), Arc::clone(&latest));
            let activity = store.epochs.register();
            thread::spawn(move || {
                let epoch = store.epochs.enter(&activity);
                latest.store(epoch.0, SeqCst);
                store.epochs.leave(&activity, epoch, None);
                activity
            })
        };
        let committer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.commit())
        };
        let seen = latest.load(SeqCst);
        assert!(seen <= epoch.0, "a write of epoch {seen} is over, and one of {epoch:?} begins");
        store.epochs.leave(&activity, epoch, None);
        writer.join().unwrap();
        committer.join().unwrap();
    });
}

#[test]
fn a_commit_flushes_all_writes_of_its_epoch() {
    // The second write of an epoch is not marked dirty again: the tail alone shows where it ends.
    let planted = [
        Bug(Mutant::DirtyBlocksInOneList),
        Relaxed("log/src/durability/epochs.rs", "activity.active.store(0, Release)"),
    ];
    check(2, &planted, || {
        let store = Store::new();
        let activity = store.epochs.register();
        let writer = {
            let store = Arc::clone(&store);
            let activity = Arc::clone(&activity);
            thread::spawn(move || {
                let mut block = store.open(0);
                let first = store.write(&activity, &mut block);
                let tail = block.tail;
                let second = store.write(&activity, &mut block);
                (block, [(first, tail), (second, tail + 8)])
            })
        };
        let ended = store.commit();
        let (block, writes) = writer.join().unwrap();
        let mut committed = ended;
        loop {
            for (epoch, tail) in writes {
                assert!(
                    epoch > committed || store.durable_tail(&block) >= tail,
                    "epoch {epoch:?} is not flushed"
                );
            }
            if committed >= writes[1].0 {
                break;
            }
            committed = store.commit();
        }
    });
}

#[test]
fn a_writer_that_ends_leaves_its_counts() {
    let planted = [Bug(Mutant::SumsNotKept)];
    check(2, &planted, || {
        let store = Store::new();
        // A writer that stays: the sums of those that leave go there.
        let _first = store.epochs.register();
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let activity = store.epochs.register();
                let mut block = store.open(0);
                let epoch = store.write(&activity, &mut block);
                store.epochs.unregister(&activity);
                epoch
            })
        };
        let ended = store.commit();
        let early = store.counted(ended).unwrap();
        let epoch = writer.join().unwrap();
        assert_eq!(early, u64::from(epoch == ended));
        let next = store.commit();
        assert_eq!(store.counted(next), Some(u64::from(epoch == next)));
    });
}

#[test]
fn writers_that_wait_share_commits_and_all_return() {
    let planted = [Bug(Mutant::CommitDoesNotWait), Bug(Mutant::NextNotWoken)];
    check(2, &planted, || {
        let store = Store::new();
        let write = |store: &Store, number| {
            let activity = store.epochs.register();
            let mut block = store.open(number);
            let epoch = store.write(&activity, &mut block);
            store.epochs.wait_for(epoch, &store.medium, &|epoch| store.flush(epoch), 0).unwrap();
            assert!(store.epochs.committed() >= epoch);
            assert_eq!(store.durable_tail(&block), block.tail);
        };
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || write(&store, 0))
        };
        write(&store, 1);
        other.join().unwrap();
    });
}
