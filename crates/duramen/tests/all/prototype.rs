//! Failures of the published prototype of this design, one test each: they were seen by running it.
//!
//! The full sizes take minutes: `DURAMEN_FULL=1 cargo test --release -p duramen --test all prototype::`. Otherwise each
//! test does a tenth or less of its stated size, and says so where it matters.

use duramen::{Durability, ErrorKind, MediumKind, Options, Store};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// `full`, or this part of it.
fn scaled(full: u64, part: u64) -> u64 {
    if std::env::var_os("DURAMEN_FULL").is_some() { full } else { full / part }
}

fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn open(dir: &tempfile::TempDir, options: &Options) -> Store {
    options.open(dir.path().join("store")).unwrap()
}

/// Numbers that repeat.
fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 20
}

#[test]
fn neighbours_deleted_by_two_writers_stay_deleted_after_reopening() {
    // 28 thousand of 1.6 million were back.
    let count = scaled(1_600_000, 16);
    let dir = memory();
    {
        let store = open(&dir, &Options::default());
        let mut writer = store.writer().unwrap();
        for key in 0..count {
            writer.put(key.to_le_bytes(), [7; 16]).unwrap();
        }
        drop(writer);
        std::thread::scope(|scope| {
            for half in 0..2 {
                let store = store.clone();
                scope.spawn(move || {
                    let mut writer = store.writer().unwrap();
                    for key in (half..count).step_by(2) {
                        assert!(writer.delete(key.to_le_bytes()).unwrap(), "key {key} was not there");
                    }
                });
            }
        });
        assert_eq!(store.len(), 0);
    }
    let store = open(&dir, &Options::default());
    assert_eq!(store.len(), 0);
    for key in 0..count {
        assert!(store.get(key.to_le_bytes()).unwrap().is_none(), "key {key} is back");
    }
}

#[test]
fn deleted_keys_stay_deleted_and_present_ones_are_not_reported_as_new() {
    // 2 million keys, one third deleted, one third overwritten; whether a delete found the key is the same answer that
    // a put gives by `replace`.
    let count = scaled(2_000_000, 20);
    let dir = memory();
    let store = open(&dir, &Options::default());
    let mut writer = store.writer().unwrap();
    let put = |writer: &mut duramen::Writer, key: u64, value: &[u8]| {
        writer.replace(&key.to_le_bytes(), Some((value, duramen::Meta::default()))).unwrap().is_some()
    };
    for key in 0..count {
        assert!(!put(&mut writer, key, &[1; 8]), "key {key} was reported as present when it was new");
    }
    for key in 0..count {
        match key % 3 {
            0 => assert!(writer.delete(key.to_le_bytes()).unwrap(), "key {key} was reported as absent"),
            1 => assert!(put(&mut writer, key, &[2; 200]), "key {key} was reported as new"),
            _ => {}
        }
    }
    for key in 0..count {
        let found = store.get(key.to_le_bytes()).unwrap().map(|value| value.len());
        assert_eq!(found, [None, Some(200), Some(8)][key as usize % 3], "key {key}");
        assert_eq!(writer.delete(key.to_le_bytes()).unwrap(), key % 3 != 0, "key {key}");
    }
    assert_eq!(store.len(), 0);
}

#[test]
fn sixteen_keys_with_one_hash_are_sixteen_keys() {
    // Half of them were lost.
    let dir = memory();
    let options = Options { hash_mask: 0, ..Options::default() };
    let store = open(&dir, &options);
    for key in 0..16u8 {
        store.put([key], [key; 9]).unwrap();
    }
    store.close().unwrap();
    let store = open(&dir, &options);
    for key in 0..16u8 {
        assert_eq!(store.get([key]).unwrap().as_deref(), Some(&[key; 9][..]));
    }
}

#[test]
fn a_get_never_misses_a_key_that_another_thread_overwrites() {
    // About 100 of 3 million did.
    let gets = scaled(3_000_000, 10);
    let dir = memory();
    let store = open(&dir, &Options::default());
    let keys = 1_000u64;
    for key in 0..keys {
        store.put(key.to_le_bytes(), [0; 24]).unwrap();
    }
    let done = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (store, done, written) = (&store, &done, &written);
        scope.spawn(move || {
            let mut writer = store.writer().unwrap();
            let mut random = 1;
            while !done.load(Relaxed) {
                let key = next(&mut random) % keys;
                writer.put(key.to_le_bytes(), [random as u8; 24]).unwrap();
                written.fetch_add(1, Relaxed);
            }
        });
        let mut random = 2;
        for _ in 0..gets {
            let key = next(&mut random) % keys;
            let value = store.get(key.to_le_bytes()).unwrap();
            let value = value.unwrap_or_else(|| panic!("key {key} was missed"));
            assert!(value.len() == 24 && value.iter().all(|byte| *byte == value[0]), "key {key} is torn");
        }
        done.store(true, Relaxed);
    });
    assert!(written.into_inner() > gets / 100);
}

#[test]
fn values_of_sizes_around_every_border_read_back_and_survive_reopening() {
    // From 4,090 bytes up they read back wrong, and no store with them could be reopened.
    let mut sizes: Vec<usize> = (4_090..=4_104).collect();
    // Around borders of pages, of extents (4 KiB here, 24 KiB by default), and of blocks of several extents.
    for border in [4_096, 8_192, 12_288, 16_384, 24_576, 49_152, 65_536] {
        sizes.extend((border - 105..=border + 8).step_by(if border <= 8_192 { 1 } else { 7 }));
    }
    sizes.extend([10_000, 20_000, 30_000, 69_999, 70_000]);
    let value = |n: usize| (0..n).map(|i| (i * 131 + n) as u8).collect::<Vec<_>>();
    for extent_bytes in [Some(4096), None] {
        let dir = memory();
        let options = Options { extent_bytes, ..Options::default() };
        let read = |store: &Store, when: &str| {
            assert_eq!(store.len(), {
                let mut unique = sizes.clone();
                unique.sort_unstable();
                unique.dedup();
                unique.len() as u64
            });
            for &n in &sizes {
                let found = store.get(n.to_le_bytes()).unwrap();
                assert!(found.as_deref() == Some(&value(n)[..]), "{n} bytes, {when}");
            }
        };
        let store = open(&dir, &options);
        for &n in &sizes {
            store.put(n.to_le_bytes(), value(n)).unwrap();
        }
        read(&store, "at once");
        // As a process leaves it that is killed, too.
        std::fs::copy(dir.path().join("store"), dir.path().join("copy")).unwrap();
        store.close().unwrap();
        read(&open(&dir, &options), "reopened");
        read(&options.open(dir.path().join("copy")).unwrap(), "after a kill");
    }
}

const CHILD: &str = "DURAMEN_PROTOTYPE_CHILD";

/// Not a separate test: writes the same few keys from four threads until it is killed.
#[test]
fn child_that_holds_locks_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = locked_options().open(Path::new(&path)).unwrap();
    println!("ready");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let store = &store;
            scope.spawn(move || {
                let mut writer = store.writer().unwrap();
                let mut random = thread;
                loop {
                    let key = next(&mut random) % 16;
                    let value = [thread as u8; 700];
                    match random % 3 {
                        0 => drop(writer.delete(key.to_le_bytes())),
                        1 => writer.put(key.to_le_bytes(), value).unwrap(),
                        _ => {
                            let mut batch = duramen::Batch::new();
                            batch.put(key.to_le_bytes(), value).put((key + 1).to_le_bytes(), &value[..9]);
                            let _ = writer.apply(&batch).unwrap();
                        }
                    }
                }
            });
        }
    });
}

fn locked_options() -> Options {
    // Small, so that blocks are opened, sealed, compacted and freed all the time.
    Options { extent_bytes: Some(4096), len_max: 512 << 10, ..Options::default() }
}

#[test]
fn a_kill_inside_a_critical_section_leaves_no_lock_held() {
    // 31 of 40 rounds left a lock on the medium that readers waited for, forever.
    let rounds = scaled(40, 5);
    let dir = memory();
    let path = dir.path().join("store");
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "prototype::child_that_holds_locks_until_it_is_killed", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.any(|line| line.unwrap().contains("ready")));
        std::thread::sleep(Duration::from_millis(20 + 13 * round % 60));
        child.kill().unwrap();
        child.wait().unwrap();
        // Every key, by a reader and a writer, on a separate thread with a deadline.
        let (path, (tell, told)) = (path.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            let store = locked_options().open(&path).unwrap();
            for key in 0..=16u64 {
                let _ = store.get(key.to_le_bytes()).unwrap().map(|value| value.len());
                store.put(key.to_le_bytes(), b"after").unwrap();
                assert!(store.delete(key.to_le_bytes()).unwrap());
            }
            drop(store);
            tell.send(()).unwrap();
        });
        told.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
}

#[test]
fn growth_during_reads_moves_no_value() {
    // It was a segmentation fault.
    let dir = memory();
    let options = Options { extent_bytes: Some(4096), ..Options::default() };
    let store = open(&dir, &options);
    store.put(b"first", [5; 3000]).unwrap();
    let before = store.stats().medium_bytes;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let held = store.get(b"first").unwrap().unwrap();
                while !done.load(Relaxed) {
                    assert_eq!(store.get(b"first").unwrap().as_deref(), Some(&[5; 3000][..]));
                    store.for_each(|value| assert!(value.iter().all(|byte| *byte == value[0]))).unwrap();
                }
                assert_eq!(&held[..], &[5; 3000]);
            });
        }
        let mut writer = store.writer().unwrap();
        for key in 0..scaled(400_000, 20) {
            writer.put(key.to_le_bytes(), [key as u8; 1000]).unwrap();
        }
        done.store(true, Relaxed);
    });
    // At least one step of growth; whether the next had begun at the end is the background's affair.
    assert!(store.stats().medium_bytes >= before + (8 << 20), "{before} {:?}", store.stats());
}

#[test]
fn endless_overwrites_stay_in_bounded_space() {
    // 15 million overwrites of 1 million keys grew the space 3.5 times, without end.
    let keys = scaled(1_000_000, 20);
    let dir = memory();
    let store = open(&dir, &Options::default());
    let mut writer = store.writer().unwrap();
    for key in 0..keys {
        writer.put(key.to_le_bytes(), [1; 100]).unwrap();
    }
    let first = store.stats().medium_bytes;
    let mut random = 3;
    let mut sizes = Vec::new();
    for _ in 0..15 {
        for _ in 0..keys {
            let key = next(&mut random) % keys;
            writer.put(key.to_le_bytes(), [random as u8; 100]).unwrap();
        }
        sizes.push(store.stats().medium_bytes);
    }
    eprintln!("{keys} keys took {first} bytes; while they were overwritten 15 times: {sizes:?}");
    // Bounded: the last third adds next to nothing, or one step of growth where compaction came late once. Its garbage
    // is 2 MiB in each sixth of a round. Bounded: less than three times the space of the keys.
    assert!(sizes[14] <= sizes[9] + (sizes[9] / 20).max(2 << 20), "{sizes:?}");
    assert!(sizes[14] < 3 * first.max(8 << 20), "{first}: {sizes:?}");
    assert_eq!(store.len(), keys);
}

#[test]
fn forty_thousand_writers_of_one_record_take_little_space() {
    // They took 937 MB.
    let dir = memory();
    let store = open(&dir, &Options::default());
    for key in 0..40_000u32 {
        store.writer().unwrap().put(key.to_le_bytes(), [0; 16]).unwrap();
    }
    let stats = store.stats();
    assert!(stats.used_bytes < 4 << 20, "{stats:?}");
    assert_eq!(store.len(), 40_000);
}

#[test]
fn a_second_process_cannot_open_the_store() {
    let dir = memory();
    let path = dir.path().join("store");
    let store = Options::default().open(&path).unwrap();
    assert_eq!(Options::default().open(&path).unwrap_err().kind(), ErrorKind::InUse);
    // Another process, too: it fails before it is ready.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "prototype::child_that_holds_locks_until_it_is_killed", "--nocapture"])
        .env(CHILD, &path)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("InUse") && said.contains(&std::process::id().to_string()), "{said}");
    drop(store);
}

#[test]
fn an_empty_store_answers_every_call() {
    // It divided by zero.
    for medium in [MediumKind::Shm, MediumKind::File, MediumKind::Volatile] {
        let dir = if medium == MediumKind::Shm { memory() } else { tempfile::tempdir().unwrap() };
        let options = Options { medium, background: false, ..Options::default() };
        let store = open(&dir, &options);
        assert!(store.is_empty() && store.get(b"").unwrap().is_none() && !store.delete(b"x").unwrap());
        store.for_each(|_| panic!("an entry")).unwrap();
        store.maintain().unwrap();
        store.commit().unwrap();
        let stats = store.stats();
        assert_eq!((stats.keys, stats.dead_bytes, stats.written_bytes), (0, 0, 0), "{stats:?}");
        assert!(!store.describe().is_empty());
        store.close().unwrap();
        if medium != MediumKind::Volatile {
            assert!(open(&dir, &options).is_empty());
            assert!(duramen::check(dir.path().join("store"), &options).unwrap().damage.is_empty());
        }
    }
}

#[test]
fn the_last_line_of_an_unaligned_record_is_flushed() {
    // It was left out. Here over real flushes; that all of it is durable shows on the simulated medium:
    // `a_flush_that_omits_a_line_is_detected` in crates/crash/tests/classes.rs.
    let dir = memory();
    let options = Options {
        flush_instruction: Some(duramen::FlushInstruction::Clflush),
        background: false,
        ..Options::default()
    };
    let store = open(&dir, &options);
    for bytes in 0..300usize {
        store.put(bytes.to_le_bytes(), vec![bytes as u8; bytes]).unwrap();
    }
    std::fs::copy(dir.path().join("store"), dir.path().join("copy")).unwrap();
    let copy = options.open(dir.path().join("copy")).unwrap();
    for bytes in 0..300usize {
        assert_eq!(copy.get(bytes.to_le_bytes()).unwrap().as_deref(), Some(&vec![bytes as u8; bytes][..]));
    }
}

#[test]
fn a_full_store_takes_deletes_spread_over_all_of_its_blocks() {
    for bytes in [40usize, 1000, 3900, 9000] {
        let dir = memory();
        let options =
            Options { extent_bytes: Some(4096), background: false, len_max: 8 << 20, ..Options::default() };
        let store = open(&dir, &options);
        let mut writer = store.writer().unwrap();
        let mut count = 0u32;
        while writer.put(count.to_le_bytes(), vec![1; bytes]).is_ok() {
            count += 1;
        }
        for from in 0..9 {
            for key in (from..count).step_by(9) {
                let deleted = writer.delete(key.to_le_bytes());
                assert!(deleted.unwrap_or_else(|e| panic!("{bytes} bytes, {key} of {count}: {e}")));
            }
        }
        for key in 0..count / 2 {
            writer.put(key.to_le_bytes(), vec![1; bytes]).unwrap();
        }
    }
}

#[test]
fn a_key_overwritten_very_often_and_deleted_leaves_no_tombstone() {
    let dir = memory();
    let mut options = Options { extent_bytes: Some(4096), background: false, ..Options::default() };
    options.durability = Durability::EveryWrite;
    options.tuning.compaction_bytes_min = Some(4096);
    options.compaction_dead_percent = 5;
    let store = open(&dir, &options);
    let mut writer = store.writer().unwrap();
    // More tombstones than the bytes that make counting worth it.
    for key in 0..400u32 {
        for round in 0..200u32 {
            writer.put(key.to_le_bytes(), round.to_le_bytes()).unwrap();
        }
        assert!(writer.delete(key.to_le_bytes()).unwrap());
    }
    drop(writer);
    let begun = Instant::now();
    while store.stats().dead_bytes > 8192 && begun.elapsed() < Duration::from_secs(20) {
        store.maintain().unwrap();
    }
    let stats = store.stats();
    assert!(stats.recounts > 0, "{stats:?}");
    store.close().unwrap();
    let store = open(&dir, &options);
    assert!(store.is_empty());
    assert!(store.recovery().records < 300, "{:?}", store.recovery());
}
