//! Space that the store does not need goes back to the file system.

use duramen::tuning::Tuning;
use duramen::{Durability, IndexKind, MediumKind, Options, Store};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

const KEYS: u64 = 20_000;
const VALUE_BYTES: usize = 1000;

fn options(medium: MediumKind, keep_free_bytes: u64) -> Options {
    Options {
        medium,
        durability: Durability::Interval(Duration::from_secs(3600)),
        background: false,
        keep_free_bytes,
        len_max: 1 << 30,
        tuning: Tuning { give_back_after: Duration::ZERO, ..Tuning::default() },
        ..Options::default()
    }
}

fn value(number: u64, cycle: u64) -> Vec<u8> {
    let mut value = [number.to_le_bytes(), cycle.to_le_bytes()].concat();
    value.resize(VALUE_BYTES, b'v');
    value
}

/// Puts all keys, deletes all but each tenth, and does all work that is due.
fn cycle(store: &Store, cycle: u64) {
    let mut writer = store.writer().unwrap();
    for number in 0..KEYS {
        writer.put(number.to_le_bytes(), value(number, cycle)).unwrap();
    }
    for number in (0..KEYS).filter(|number| number % 10 != 0) {
        assert!(writer.delete(number.to_le_bytes()).unwrap());
    }
    drop(writer);
    store.commit().unwrap();
    for _ in 0..300 {
        store.maintain().unwrap();
    }
    store.commit().unwrap();
}

fn check(store: &Store, cycle: u64) {
    for number in 0..KEYS {
        let found = store.get(number.to_le_bytes()).unwrap().map(|found| found.to_vec());
        let wanted = (number % 10 == 0).then(|| value(number, cycle));
        assert_eq!(found, wanted, "key {number}");
    }
    assert_eq!(store.audit(), Vec::<String>::new());
}

fn allocated(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn space_of_deleted_records_goes_back_and_is_used_again() {
    for (medium, dir) in
        [(MediumKind::Shm, tempfile::tempdir_in("/dev/shm").unwrap()), (MediumKind::File, on_disk())]
    {
        let path = dir.path().join("store");
        let options = options(medium, 1 << 20);
        let mut store = options.open(&path).unwrap();
        let (mut low, mut high) = (u64::MAX, 0);
        for round in 0..4 {
            cycle(&store, round);
            // Readers of other tests may keep blocks from being freed for a while.
            let begun = std::time::Instant::now();
            while store.stats().given_back_bytes <= 5 << 20 && begun.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(5));
                store.maintain().unwrap();
            }
            check(&store, round);
            let stats = store.stats();
            assert!(stats.given_back_bytes > 5 << 20, "{stats:?}");
            let space = allocated(&path);
            assert_eq!(path.metadata().unwrap().len(), stats.medium_bytes);
            assert!(
                space <= stats.medium_bytes - stats.given_back_bytes + (1 << 20),
                "{medium:?}: {space} bytes have space, {stats:?}"
            );
            (low, high) = (low.min(space), high.max(stats.medium_bytes));
            if round % 2 == 1 {
                store.close().unwrap();
                store = options.open(&path).unwrap();
                check(&store, round);
                assert!(allocated(&path) <= space + (1 << 20), "an open gives nothing its space again");
                assert!(store.stats().given_back_bytes > 5 << 20);
            }
        }
        assert!(low * 2 < high, "{medium:?}: {low} of {high} bytes");
    }
}

#[test]
fn nothing_is_given_back_that_is_kept() {
    let dir = on_disk();
    let path = dir.path().join("store");
    let store = options(MediumKind::File, u64::MAX).open(&path).unwrap();
    cycle(&store, 0);
    assert_eq!(store.stats().given_back_bytes, 0);
    assert!(allocated(&path) >= store.stats().medium_bytes);
    check(&store, 0);
}

#[test]
fn a_store_copied_without_its_zeroes_opens_and_takes_writes() {
    let dir = on_disk();
    let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let options = Options { index: IndexKind::Ordered, ..options(MediumKind::File, 1 << 20) };
    let store = options.open(&path).unwrap();
    cycle(&store, 0);
    store.close().unwrap();
    let status = std::process::Command::new("cp").arg("--sparse=always").args([&path, &copy]).status();
    assert!(status.unwrap().success());
    let store = options.open(&copy).unwrap();
    check(&store, 0);
    cycle(&store, 1);
    check(&store, 1);
}

#[test]
fn a_compacted_store_takes_what_lives_in_it() {
    for background in [false, true] {
        let dir = on_disk();
        let path = dir.path().join("store");
        let options = Options { background, tuning: Tuning::default(), ..options(MediumKind::File, 1 << 20) };
        let store = options.open(&path).unwrap();
        cycle(&store, 0);
        let writes = std::sync::atomic::AtomicBool::new(background);
        std::thread::scope(|scope| {
            // Another who overwrites, so that there is always something more to compact.
            scope.spawn(|| {
                let mut writer = store.writer().unwrap();
                for number in (0..KEYS).step_by(10).cycle().take(50_000) {
                    if !writes.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    writer.put(number.to_le_bytes(), value(number, 0)).unwrap();
                }
            });
            store.compact().unwrap();
            writes.store(false, std::sync::atomic::Ordering::Relaxed);
        });
        // With durability by interval the last blocks are free after a commit.
        store.commit().unwrap();
        store.compact().unwrap();
        check(&store, 0);
        let (stats, space) = (store.stats(), allocated(&path));
        let reserve = stats.medium_bytes / 20;
        assert!(space <= stats.live_bytes * 13 / 10 + (2 << 20) + reserve, "{space} of {stats:?}");
        store.close().unwrap();
        check(&options.open(&path).unwrap(), 0);
    }
}

#[test]
fn victims_are_chosen_in_parts_of_a_large_store() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut options = Options { compaction_dead_percent: 10, ..options(MediumKind::Shm, u64::MAX) };
    options.extent_bytes = Some(4096);
    // Blocks of several extents, so that parts begin within blocks.
    options.tuning.choose_extents = 7;
    let store = options.open(dir.path().join("store")).unwrap();
    let mut writer = store.writer().unwrap();
    for round in 0..4 {
        for number in (0..KEYS).filter(|number| round == 0 || number % 3 == round % 3) {
            writer.put(number.to_le_bytes(), value(number, round)).unwrap();
        }
        for _ in 0..2000 {
            store.maintain().unwrap();
        }
        let stats = store.stats();
        let most = stats.used_bytes / 10 + (1 << 20);
        assert!(stats.dead_bytes <= most, "round {round}: {} of {most} bytes are dead", stats.dead_bytes);
    }
    drop(writer);
    for number in 0..KEYS {
        let last = (1..4).rev().find(|round| number % 3 == round % 3).unwrap_or(0);
        assert_eq!(store.get(number.to_le_bytes()).unwrap().unwrap().to_vec(), value(number, last));
    }
    assert_eq!(store.audit(), Vec::<String>::new());
}
