//! How long readers verify records; when the background thread is woken; the effect of a panic in the compactor.

use crate::options::Options;
use crate::{Error, ErrorKind, Result};
use duramen_log::Log;
use duramen_log::appender::Appender;
use duramen_log::blocks::Use;
use duramen_log::format::Extent;
use duramen_log::open_block::Purpose;
use duramen_log::supply::{FreeOnly, Supply};
use duramen_log::sync::reclaim;
use duramen_media::{Medium, MediumKind};
use std::cell::RefCell;
use std::time::Duration;

/// Options of a store in this process's memory that runs maintenance only on request.
fn small(len_max: u64) -> Options {
    Options {
        medium: MediumKind::Volatile,
        extent_bytes: Some(4096),
        len_max,
        background: false,
        ..Options::default()
    }
}

/// A reader verifies a record after it has read its slot. Since then the slot may have changed, and the block of the
/// damaged record may have been retired: the record is to be verified all the same.
#[test]
fn records_are_verified_while_a_reader_holds_a_slot_of_a_damaged_record() {
    let options = small(4 << 20);
    let store = options.open("none").unwrap();
    let mut writer = store.writer().unwrap();
    for key in 0..200u8 {
        writer.put([key], [key; 1900]).unwrap();
    }
    let (maintenance, log) = (store.maintenance(), store.log());
    let records = &maintenance.records;
    let extents = log.space().extents();
    let (extent, ..) = log.blocks.walk(0..extents).find(|(_, _, state)| *state == Use::Sealed).unwrap();
    maintenance.set_aside(extent);
    assert!(records.has_unverified());
    let reader = reclaim::pin();
    // In truth nothing is damaged: the block goes at once.
    maintenance.maintain().unwrap();
    assert_eq!(store.stats().damaged_blocks, 0);
    assert!(records.has_unverified());
    drop(reader);
    for _ in 0..3 {
        maintenance.maintain().unwrap();
    }
    assert!(!records.has_unverified());
    for key in 0..200u8 {
        assert_eq!(store.get([key]).unwrap().as_deref(), Some(&[key; 1900][..]));
    }
}

/// A writer under key locks takes only free space and makes no room. So the background thread must make room before the
/// keys are locked again.
#[test]
fn a_put_under_locks_without_free_space_wakes_the_background_thread() {
    let options = small(1 << 20);
    let store = options.open("none").unwrap();
    let maintenance = store.maintenance();
    let was_woken = || maintenance.wake.rest(Duration::ZERO);
    // By the open.
    was_woken();
    let (extent, extents, _) = maintenance.take_free([1; 3], Purpose::Write).unwrap();
    store.log().space().give(extent, extents);
    assert!(!was_woken(), "there is room: the background thread need not wake");
    let refused = (0u32..).find_map(|key| store.put(key.to_le_bytes(), [1; 3000]).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
    was_woken();
    assert!(!was_woken());
    assert!(maintenance.take_free([1; 3], Purpose::Write).is_none());
    assert!(was_woken(), "nothing is free, but the background thread was not woken");
    // It searched just now, and found nothing.
    maintenance.wake.no_progress.store(true, duramen_log::sync::atomic::Ordering::Relaxed);
    assert!(maintenance.take_free([1; 3], Purpose::Write).is_none());
    assert!(!was_woken());
}

/// A search for extents while other threads release their blocks.
struct GivenBack<'a, M: Medium> {
    log: &'a Log<M>,
    others: RefCell<Vec<Appender>>,
}

impl<M: Medium> Supply for GivenBack<'_, M> {
    fn take_extents(&self, _: u32, _: [u32; 3], _: Purpose) -> Result<(Extent, u32, Purpose)> {
        for mut other in self.others.take() {
            other.put_aside(self.log);
        }
        Err(Error::new(ErrorKind::OutOfSpace, "nothing is free"))
    }

    fn take_free(&self, _: [u32; 3], _: Purpose) -> Option<(Extent, u32, Purpose)> {
        None
    }

    fn make_free(&self, _: u64, _: u64, _: Purpose) {}

    fn find_extent(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_block_released_during_a_search_for_room_is_found() {
    for purpose in [Purpose::Change, Purpose::Delete] {
        let options = small(1 << 20);
        let store = options.open("none").unwrap();
        let (maintenance, log) = (store.maintenance(), store.log());
        (0u32..).find_map(|key| store.put(key.to_le_bytes(), [1; 3000]).err()).unwrap();
        // Other threads have all reserved extents.
        let mut others = Vec::new();
        loop {
            let mut other = Appender::default();
            match other.reserve(log, &FreeOnly(maintenance), 3000, purpose) {
                Ok(()) => others.push(other),
                Err(_) => break,
            }
        }
        assert!(others.len() >= 2, "{purpose:?}: {}", others.len());
        let supply = GivenBack { log, others: RefCell::new(others) };
        let mut appender = Appender::default();
        appender.reserve(log, &supply, 3000, purpose).unwrap();
        appender.put_aside(log);
    }
}

#[test]
fn a_delete_waits_for_space_that_a_transaction_will_free() {
    let options = small(1 << 20);
    let store = options.open("none").unwrap();
    let table = store.table(b"table", crate::IndexKind::Hash).unwrap();
    let keys = (0u32..).take_while(|key| table.put(key.to_le_bytes(), [1; 40]).is_ok()).count() as u32;
    let mut writer = store.writer().unwrap();
    writer.begin_transaction().unwrap();
    // It takes all extents that are reserved for deletes.
    let refused =
        (0..keys).find_map(|key| writer.in_transaction(&table).delete(key.to_le_bytes()).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
    std::thread::scope(|scope| {
        let deleted = scope.spawn(|| table.delete((keys - 1).to_le_bytes()));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!deleted.is_finished(), "{:?}", deleted.join());
        writer.abort_transaction().unwrap();
        assert!(deleted.join().unwrap().unwrap());
    });
}

/// A move may be half done: a later write, or a close, would take its state for complete.
#[test]
fn a_panic_during_a_move_ends_all_writing() {
    let path = std::env::temp_dir().join(format!("duramen-moved-{}", std::process::id()));
    let options =
        Options { medium: MediumKind::File, len_max: 4 << 20, background: false, ..Options::default() };
    let store = options.open(&path).unwrap();
    store.put(b"key", b"value").unwrap();
    let maintenance = store.maintenance();
    let moved = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _compactor = maintenance.compactor();
        panic!("in the middle of a move");
    }));
    assert!(moved.is_err());
    assert_eq!(store.put(b"key", b"other").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    drop(store);
    let store = options.open(&path).unwrap();
    assert!(!store.recovery().clean);
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    drop(store);
    std::fs::remove_file(path).unwrap();
}

/// A store that is dropped because its user's thread panics is closed normally.
#[test]
fn a_store_dropped_by_a_panic_of_its_user_is_closed() {
    let path = std::env::temp_dir().join(format!("duramen-dropped-{}", std::process::id()));
    let options =
        Options { medium: MediumKind::File, len_max: 4 << 20, background: false, ..Options::default() };
    let user = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let store = options.open(&path).unwrap();
        store.put(b"key", b"value").unwrap();
        panic!("of the user");
    }));
    assert!(user.is_err());
    let store = options.open(&path).unwrap();
    assert!(store.recovery().clean);
    store.put(b"key", b"other").unwrap();
    drop(store);
    std::fs::remove_file(path).unwrap();
}

/// Counting again reads the whole store under the compactor, for which a writer without space waits.
#[test]
fn a_recount_is_postponed_for_a_writer_that_waits_for_the_compactor() {
    use duramen_log::sync::atomic::Ordering::Relaxed;
    let mut options = Options {
        medium: MediumKind::Volatile,
        extent_bytes: Some(4096),
        len_max: 4 << 20,
        background: false,
        compaction_dead_percent: 5,
        ..Options::default()
    };
    options.tuning.compaction_bytes_min = Some(4096);
    let store = options.open("none").unwrap();
    let mut writer = store.writer().unwrap();
    for key in 0..400u32 {
        for round in 0..60u32 {
            writer.put(key.to_le_bytes(), round.to_le_bytes()).unwrap();
        }
        assert!(writer.delete(key.to_le_bytes()).unwrap());
    }
    drop(writer);
    let maintenance = store.maintenance();
    let unknown_bytes = || maintenance.compactor().copier.unknown_bytes;
    // As a waiting thread does.
    maintenance.compaction.waiting.fetch_add(1, Relaxed);
    for _ in 0..200 {
        maintenance.maintain().unwrap();
    }
    assert_eq!(store.stats().recounts, 0);
    assert!(unknown_bytes() >= 4096, "the count of unknown bytes was lost");
    assert!(maintenance.compactor().recounts_put_off > 0);
    maintenance.compaction.waiting.fetch_sub(1, Relaxed);
    maintenance.maintain().unwrap();
    assert!(store.stats().recounts > 0);
    assert_eq!(maintenance.compactor().recounts_put_off, 0);
}

/// What several copiers leave is what one leaves: the newest record of each key, and no tombstone that hides nothing.
#[test]
fn several_copiers_empty_blocks_together() {
    for copiers_in_turn in [None, Some(1), Some(3)] {
        let mut options = Options { compactors: 4, compaction_dead_percent: 5, ..small(32 << 20) };
        options.tuning.copiers_in_turn = copiers_in_turn;
        let store = options.open("none").unwrap();
        let mut writer = store.writer().unwrap();
        let (mut expected, mut random) = (std::collections::HashMap::new(), 1u32);
        for round in 0..20_000u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (random >> 16) % 2_000;
            if random >> 8 & 7 == 0 {
                writer.delete(key.to_le_bytes()).unwrap();
                expected.remove(&key);
            } else {
                let value = vec![round as u8; 200 + (round % 400) as usize];
                writer.put(key.to_le_bytes(), &value).unwrap();
                expected.insert(key, value);
            }
            if round % 5_000 == 4_999 {
                store.compact().unwrap();
                assert!(
                    copiers_in_turn == Some(1) || store.maintenance().compactor().beside.len() >= 3,
                    "the copiers had nothing to do"
                );
            }
        }
        for key in 0..2_000u32 {
            let found = store.get(key.to_le_bytes()).unwrap();
            assert_eq!(found.as_deref(), expected.get(&key).map(Vec::as_slice), "key {key}");
        }
        for &key in expected.keys() {
            assert!(writer.delete(key.to_le_bytes()).unwrap());
        }
        drop(writer);
        store.compact().unwrap();
        let stats = store.stats();
        assert_eq!(stats.keys, 0);
        // A third of the tombstones, in open blocks or beside them.
        assert!(stats.live_bytes < 24 << 10, "tombstones that hide nothing are left: {stats:?}");
    }
}
