//! Damage of a closed store: blocks that an open by checkpoint did not read are verified before they are used, at once
//! and later.

use duramen::{
    Batch, Durability, Error, ErrorKind, IndexKind, MediumKind, Meta, OnCorruption, Options, Remains, Store,
};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const NOW: u64 = 1_000_000;
const KEYS: u64 = 400;

/// Absent: `None`. Cells have any value: it is outside the checksum.
type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

fn options(medium: MediumKind, index: IndexKind) -> Options {
    let mut options = Options {
        medium,
        index,
        extent_bytes: Some(4096),
        background: false,
        clock: Some(Arc::new(|| NOW)),
        recovery_threads: 1,
        boot_id: Some([7; 16]),
        // Each write of a file would wait for the disk.
        durability: match medium {
            MediumKind::File => Durability::Interval(Duration::from_secs(3600)),
            _ => Durability::EveryWrite,
        },
        ..Options::default()
    };
    options.tuning.close_checkpoint_bytes_min = 0;
    options.tuning.compaction_bytes_min = Some(64);
    options.compaction_dead_percent = 5;
    options
}

fn configurations() -> Vec<Options> {
    let of = |medium| [IndexKind::Hash, IndexKind::Ordered].map(|index| options(medium, index));
    [MediumKind::Shm, MediumKind::File].into_iter().flat_map(of).collect()
}

fn directory(options: &Options) -> tempfile::TempDir {
    match options.medium {
        MediumKind::Shm => tempfile::tempdir_in("/dev/shm").unwrap(),
        _ => tempfile::tempdir().unwrap(),
    }
}

fn key(number: u64) -> Vec<u8> {
    // Many share the part of the key that a leaf keeps.
    format!("user:{:0width$}:name", number * 7 % 401, width = 4 + number as usize % 20).into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    format!("{number} {round};").into_bytes().repeat(1 + (number * 37 % 60) as usize)
}

fn is_cell(key: &[u8]) -> bool {
    key.starts_with(b"cell")
}

/// A closed store with a checkpoint, and its contents.
fn closed(options: &Options, path: &Path) -> (Vec<u8>, Model) {
    let store = options.open(path).unwrap();
    let mut model = Model::new();
    for round in 0..2 {
        for number in 0..KEYS {
            let meta = Meta { expires_at: (number % 5 == 0).then_some(NOW * 2), ..Meta::default() };
            store.put_with(key(number), value(number, round), meta).unwrap();
            model.insert(key(number), Some(value(number, round)));
        }
    }
    for number in (0..KEYS).step_by(9) {
        store.delete(key(number)).unwrap();
        model.insert(key(number), None);
    }
    for number in 0..20u64 {
        let mut batch = Batch::new();
        let names = [0, 1].map(|which| format!("batch {number} {which}").into_bytes());
        batch.put(&names[0], [number as u8; 50]).put(&names[1], b"other");
        let _ = store.apply(&batch).unwrap();
        model.extend([
            (names[0].clone(), Some(vec![number as u8; 50])),
            (names[1].clone(), Some(b"other".to_vec())),
        ]);
        let cell = format!("cell {number}").into_bytes();
        store.put_with(&cell, [9; 16], Meta { updatable: true, ..Meta::default() }).unwrap();
        model.insert(cell, Some(vec![9; 16]));
    }
    store.close().unwrap();
    let store = options.open(path).unwrap();
    assert!(store.recovery().checkpointed > 0, "{:?}", store.recovery());
    store.close().unwrap();
    (std::fs::read(path).unwrap(), model)
}

fn is_corrupt(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

fn fits(key: &[u8], found: Option<&[u8]>, model: &Model) {
    let wanted = model.get(key).cloned().flatten();
    if is_cell(key) && found.is_some() && wanted.is_some() {
        assert_eq!(found.map(<[u8]>::len), wanted.map(|wanted| wanted.len()));
        return;
    }
    assert_eq!(found, wanted.as_deref(), "{:?}", String::from_utf8_lossy(key));
}

/// Reads a key in one of the existing ways; every answer except an error is right.
fn read(store: &Store, key: &[u8], way: u64, model: &Model) -> bool {
    let read = match way {
        0 => store.get(key).map(|value| fits(key, value.as_deref(), model)),
        1 => {
            let mut into = Vec::new();
            store.get_into(key, &mut into).map(|found| fits(key, found.then_some(&into[..]), model))
        }
        _ => store.get_many(&[key, b"absent"]).map(|values| fits(key, values[0].as_deref(), model)),
    };
    let info = store.info(key).map(|info| {
        let wanted = model.get(key).cloned().flatten();
        assert_eq!(info.map(|info| info.bytes), wanted.map(|wanted| wanted.len()));
    });
    assert_eq!(info.inspect_err(is_corrupt).is_ok(), read.is_ok(), "{:?}", String::from_utf8_lossy(key));
    read.inspect_err(is_corrupt).is_ok()
}

/// All keys once, in one of the existing ways. Damaged keys are reported; all others are shown.
fn walk(store: &Store, model: &Model) {
    let mut told = 0;
    let mut seen = BTreeMap::new();
    let mut cursor = 0;
    loop {
        let visited = store.scan(cursor, 10, &mut |value| {
            fits(value.key(), Some(value.bytes()), model);
            seen.insert(value.key().to_vec(), ());
        });
        cursor = match visited {
            Ok(cursor) => cursor,
            Err(error) => {
                is_corrupt(&error);
                told += 1;
                error.cursor().unwrap()
            }
        };
        if cursor == 0 {
            break;
        }
    }
    let there = model.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| key);
    let missing: Vec<_> = there.clone().filter(|key| !seen.contains_key(*key)).collect();
    for key in &missing {
        is_corrupt(&store.get(key).unwrap_err());
    }
    assert!(missing.is_empty() || told > 0);
    if store.index_kind() == IndexKind::Ordered {
        let mut last = Vec::new();
        let mut seen = 0;
        for value in store.range(..).unwrap() {
            match value {
                Ok(value) => {
                    fits(value.key(), Some(value.bytes()), model);
                    assert!(last[..] < *value.key());
                    last = value.key().to_vec();
                    seen += 1;
                }
                Err(error) => is_corrupt(&error),
            }
        }
        assert_eq!(seen, there.count() - missing.len());
    }
}

/// Writes a key in one of the existing ways. A write that reports nothing else has taken effect.
fn write(store: &Store, key: &[u8], way: u64, number: u64, model: &mut Model) {
    let new = value(number, 77);
    match way {
        0..3 => {
            store.put(key, &new).unwrap();
            model.insert(key.to_vec(), Some(new));
        }
        3 => {
            delete(store, key);
            model.insert(key.to_vec(), None);
        }
        4 => {
            if let Err(error) = store.update(key, 0, &[1]).map(|update| {
                if let Some(Some(value)) = model.get_mut(key) {
                    assert_ne!(update, duramen::Update::Absent);
                    value[0] = 1;
                } else {
                    assert_eq!(update, duramen::Update::Absent);
                }
            }) {
                is_corrupt(&error);
            }
        }
        5 => {
            let mut writer = store.writer().unwrap();
            let Ok((stamp, _)) = writer.get_stamped(key).map(|(stamp, value)| (stamp, value.is_some()))
            else {
                return;
            };
            if writer.compare_and_swap(key, stamp, Some((&new, Meta::default()))).unwrap()
                == duramen::Swap::Done
            {
                model.insert(key.to_vec(), Some(new));
            } else {
                panic!("nobody else writes");
            }
        }
        _ => {
            let mut batch = Batch::new();
            batch.put(key, &new).delete(b"batch 3 1");
            let _ = store.apply(&batch).unwrap();
            model.insert(key.to_vec(), Some(new));
            model.insert(b"batch 3 1".to_vec(), None);
        }
    }
    read(store, key, 0, model);
    if matches!(way, 0..4 | 6..) {
        // A key that is overwritten or deleted is whole again.
        assert!(read(store, key, 1, model));
    }
}

/// Deletes a key. Whether it was there is unknown exactly if a get before says so; afterwards it is absent.
fn delete(store: &Store, key: &[u8]) -> bool {
    let before = store.get(key).map(|value| value.is_some());
    assert_eq!(store.delete(key).unwrap(), before.as_ref().is_ok_and(|there| *there) || before.is_err());
    assert!(store.get(key).unwrap().is_none());
    assert!(!store.delete(key).unwrap());
    before.inspect_err(is_corrupt).is_err()
}

fn damaged(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let from = 16 << 10;
    let len = bytes.len() as u64;
    match random.below(4) {
        // A line, or a page, of zeros or of something else.
        0 => {
            let size = [64, 4096][random.below(2) as usize];
            let at = (from + random.below(len - from)) / size * size;
            let fill = [0, 0xff, random.below(256) as u8][random.below(3) as usize];
            bytes[at as usize..(at + size).min(len) as usize].fill(fill);
        }
        _ => {
            for _ in 0..=random.below(60) {
                let bit = random.below((len - from) * 8) + from * 8;
                bytes[bit as usize / 8] ^= 1 << (bit % 8);
            }
        }
    }
    bytes
}

fn is_opened(options: &Options, path: &Path) -> Option<Store> {
    options.open(path).inspect_err(is_corrupt).ok()
}

fn go(options: &Options, path: &PathBuf, bytes: &[u8], mut model: Model, seed: u64) -> bool {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    std::fs::write(path, damaged(bytes, &mut random)).unwrap();
    let Some(store) = is_opened(options, path) else { return false };
    let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    let later = random.below(3) == 0;
    if later {
        for _ in 0..8 {
            store.maintain().unwrap();
        }
    }
    if random.below(2) == 0 {
        walk(&store, &model);
    }
    for step in 0..150 {
        let key = &keys[random.below(keys.len() as u64) as usize];
        match random.below(8) {
            0..4 => {
                read(&store, key, random.below(3), &model);
            }
            4..7 => write(&store, key, random.below(8), step, &mut model),
            _ => store.maintain().unwrap(),
        }
    }
    for _ in 0..8 {
        store.maintain().unwrap();
    }
    for key in &keys {
        read(&store, key, random.below(3), &model);
    }
    walk(&store, &model);
    let _ = store.close();
    let Some(store) = is_opened(options, path) else { return true };
    for key in &keys {
        read(&store, key, random.below(3), &model);
    }
    walk(&store, &model);
    true
}

#[test]
fn flipped_bits_of_a_closed_store_are_reported_and_never_served() {
    let seeds = std::env::var("DURAMEN_DAMAGE_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    let from = std::env::var("DURAMEN_DAMAGE_SEED").map_or(1, |seed| seed.parse().unwrap());
    for options in configurations() {
        let dir = directory(&options);
        let path = dir.path().join("store");
        let (bytes, model) = closed(&options, &path);
        let mut opened = 0;
        for seed in from..from + seeds {
            eprintln!(
                "{:?}, {}: DURAMEN_DAMAGE_SEED={seed} DURAMEN_DAMAGE_SEEDS=1",
                options.medium, options.index
            );
            opened += u64::from(go(&options, &path, &bytes, model.clone(), seed));
        }
        assert!(opened > seeds / 4, "{opened}");
    }
}

/// If the only record of a key may be a damaged one, it is unknown whether the key exists. Then a delete returns true;
/// otherwise it returns exactly whether the key existed.
#[test]
fn a_delete_returns_true_exactly_where_a_get_is_corrupt() {
    for options in configurations() {
        let dir = directory(&options);
        let path = dir.path().join("store");
        let store = options.open(&path).unwrap();
        for number in (0..KEYS).step_by(2) {
            store.put(format!("key:{number:08}").as_bytes(), [7; 100]).unwrap();
        }
        // One that is deleted, and is a damaged tombstone then: absent, whoever's it is.
        store.delete(b"key:00000200").unwrap();
        store.close().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        // Every tenth key is another one now, and its value is damaged too.
        for number in (0..KEYS).step_by(20) {
            let key = format!("key:{number:08}");
            for at in 0..bytes.len() - 20 {
                if bytes[at..].starts_with(key.as_bytes()) {
                    bytes[at + 6] ^= 1;
                    bytes[at + 14] ^= 1;
                }
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        let store = options.open(&path).unwrap();
        assert!(store.recovery().checkpointed > 0, "{:?}", store.recovery());
        let (mut unknown, mut known) = (0, 0);
        for number in 0..KEYS {
            let key = format!("key:{number:08}");
            match delete(&store, key.as_bytes()) {
                true => unknown += 1,
                false => known += 1,
            }
        }
        // Hash: those whose records are damaged. Ordered: also their neighbours, which the index cannot distinguish
        // from them.
        assert!(unknown >= 15 && known >= 100, "{:?} {}: {unknown}, {known}", options.medium, options.index);
        assert!(options.index == IndexKind::Hash || unknown > 20, "{unknown}");
        for number in 0..KEYS {
            assert!(store.get(format!("key:{number:08}").as_bytes()).unwrap().is_none());
        }
    }
}

/// Flips a bit of the value of each of these keys, wherever its records lie. One pass: most bytes begin no key.
fn damage_values_of(path: &Path, keys: &[&[u8]]) {
    let mut bytes = std::fs::read(path).unwrap();
    let mut begins = [false; 256];
    keys.iter().for_each(|key| begins[usize::from(key[0])] = true);
    for at in 16 << 10..bytes.len() {
        if !begins[usize::from(bytes[at])] {
            continue;
        }
        for key in keys {
            let flipped = at + key.len() + 4;
            if flipped + 4 < bytes.len() && bytes[at..].starts_with(key) {
                bytes[flipped] ^= 1;
            }
        }
    }
    std::fs::write(path, &bytes).unwrap();
}

fn some_keys() -> [Vec<u8>; 3] {
    [key(11), key(12), key(130)]
}

fn damage_some_values(path: &Path) -> [Vec<u8>; 3] {
    let hurt = some_keys();
    damage_values_of(path, &[&hurt[0], &hurt[1], &hurt[2]]);
    hurt
}

/// All keys are right except these, and each read of these is `Corrupt`.
fn only_these_are_corrupt(store: &Store, model: &Model, hurt: &[Vec<u8>]) {
    for key in model.keys() {
        assert_eq!(read(store, key, 0, model), !hurt.contains(key), "{:?}", String::from_utf8_lossy(key));
    }
    walk(store, model);
}

/// Waits until the damaged, unneeded blocks are freed: readers of any store of the process may hold them back.
fn free_damaged(store: &Store) {
    for _ in 0..40 {
        store.maintain().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A reader of another store of the process: while it exists, no store frees anything that is retired from now on.
struct Reader {
    stays: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn new() -> Self {
        let (stays, leaves) = channel();
        let (comes, came) = channel();
        let thread = std::thread::spawn(move || {
            let reads = Arc::new(AtomicBool::new(false));
            let (leaves, is_read) = (Mutex::new(leaves), Arc::clone(&reads));
            let clock = move || {
                // Asked within a read, which is pinned.
                if is_read.swap(false, Relaxed) {
                    comes.send(()).unwrap();
                    leaves.lock().unwrap().recv().unwrap_err();
                }
                NOW
            };
            let options = Options {
                clock: Some(Arc::new(clock)),
                len_max: 4 << 20,
                ..options(MediumKind::Volatile, IndexKind::Hash)
            };
            let store = options.open("none").unwrap();
            let expires = Meta { expires_at: Some(NOW * 2), ..Meta::default() };
            store.put_with(b"key", b"value", expires).unwrap();
            reads.store(true, Relaxed);
            assert!(store.get(b"key").unwrap().is_some());
            assert!(!reads.load(Relaxed));
        });
        came.recv().unwrap();
        Self { stays: Some(stays), thread: Some(thread) }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stays.take();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// An ordered index knows a damaged record by its place among neighbouring keys, and by the part of its key that the
/// leaf keeps, which other keys may share. Whatever keys are inserted between and overwritten meanwhile, each key is
/// found, and in order.
#[test]
fn keys_written_around_damaged_ones_are_found_and_stay_in_order() {
    let seeds = std::env::var("DURAMEN_DAMAGE_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    let from: u64 = std::env::var("DURAMEN_DAMAGE_SEED").map_or(1, |seed| seed.parse().unwrap());
    // The part that the leaf keeps either does not distinguish them, or does.
    let key = |number: u64, width: usize| format!("{number:0width$}").into_bytes();
    for seed in from..from + seeds {
        eprintln!("DURAMEN_DAMAGE_SEED={seed} DURAMEN_DAMAGE_SEEDS=1");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut reader, mut often) = (None, Random(seed ^ 0x55aa));
        let rate = [3, 10, 30][often.below(3) as usize];
        let mut options = options(MediumKind::Shm, IndexKind::Ordered);
        // Nothing but the order points to a key.
        options.index_cache_slots = 0;
        options.tuning.extents_initial = 8;
        options.tuning.growth_bytes_min = 4096;
        options.tuning.leaf_slots = [2, 4, 14][random.below(3) as usize];
        let width = [30, 12][random.below(2) as usize];
        let numbers = [20, 60, 200][random.below(3) as usize];
        let dir = directory(&options);
        let path = dir.path().join("store");
        let store = options.open(&path).unwrap();
        let mut model: Model = (0..numbers).map(|number| (key(number, width), None)).collect();
        for _ in 0..numbers / 2 {
            let key = key(random.below(numbers), width);
            store.put(&key, value(1, 1)).unwrap();
            model.insert(key, Some(value(1, 1)));
        }
        store.close().unwrap();
        let there = model.iter().filter(|(_, value)| value.is_some());
        let hurt: Vec<_> =
            there.filter(|_| random.below(3) == 0).map(|(key, _)| [&key[..], b"1 1;"].concat()).collect();
        // Not where the checkpoint's leaves begin with a key.
        damage_values_of(&path, &hurt.iter().map(|record| &record[..]).collect::<Vec<_>>());
        options.on_corruption = OnCorruption::Serve;
        let mut store = options.open(&path).unwrap();
        assert!(store.recovery().checkpointed > 0, "{:?}", store.recovery());
        for step in 0..numbers * 3 {
            let key = key(random.below(numbers), width);
            if often.below(rate) == 0 {
                reader = match reader {
                    None => Some(Reader::new()),
                    Some(_) => None,
                };
            }
            match random.below(40) {
                0 => {
                    store.close().unwrap();
                    store = options.open(&path).unwrap();
                    assert_eq!(store.recovery().checkpoint_refused, None);
                }
                1..4 => store.maintain().unwrap(),
                4 => walk(&store, &model),
                5..12 => {
                    delete(&store, &key);
                    model.insert(key, None);
                }
                _ => write(&store, &key, 0, step, &mut model),
            }
        }
        drop(reader);
        free_damaged(&store);
        for key in model.keys() {
            read(&store, key, 0, &model);
        }
        walk(&store, &model);
        assert_eq!(store.audit(), Vec::<String>::new());
    }
}

/// Compacted blocks may wait for readers, and for an epoch, to be freed when the store is closed. The next open must
/// not have to read them: they cannot be compared with damaged records, and without the checkpoint the owners of these
/// are unknown.
#[test]
fn a_close_during_reads_of_other_stores_forgets_no_damage() {
    let hour = Duration::from_secs(3600);
    for (medium, durability) in [
        (MediumKind::Shm, Durability::EveryWrite),
        (MediumKind::File, Durability::Interval(hour)),
        (MediumKind::File, Durability::Manual),
    ] {
        let options =
            Options { durability, on_corruption: OnCorruption::Serve, ..options(medium, IndexKind::Ordered) };
        let dir = directory(&options);
        let path = dir.path().join("store");
        // One leaf, which keeps the same part of all keys.
        let key = |number: u64| format!("{number:030}").into_bytes();
        let store = options.open(&path).unwrap();
        let mut model = Model::new();
        for number in 0..10 {
            store.put(key(number), value(number, 0)).unwrap();
            model.insert(key(number), Some(value(number, 0)));
        }
        store.commit().unwrap();
        store.close().unwrap();
        let hurt = key(3);
        damage_values_of(&path, &[&hurt]);
        let store = options.open(&path).unwrap();
        only_these_are_corrupt(&store, &model, std::slice::from_ref(&hurt));
        let reader = Reader::new();
        for round in 1..200 {
            for number in 4..10 {
                store.put(key(number), value(number, round)).unwrap();
                model.insert(key(number), Some(value(number, round)));
            }
        }
        // So that the record of each round is in some block that is compacted.
        for _ in 0..8 {
            store.commit().unwrap();
            store.maintain().unwrap();
        }
        store.commit().unwrap();
        store.close().unwrap();
        drop(reader);
        let store = options.open(&path).unwrap();
        let recovery = store.recovery();
        assert_eq!(recovery.checkpoint_refused, None, "{durability:?}");
        assert_eq!(recovery.checkpointed, recovery.records, "{durability:?}");
        only_these_are_corrupt(&store, &model, &[hurt]);
    }
}

/// Each later open knows the damage that was found, and refuses or serves the rest, until the damaged keys are written
/// again.
#[test]
fn known_damage_is_refused_or_the_rest_is_served_across_closes_until_repair() {
    for options in configurations() {
        // As with a store that is too small for a checkpoint: known damage asks for one.
        for close_checkpoint_bytes_min in [0, u64::MAX] {
            let mut refuse = options.clone();
            let dir = directory(&options);
            let path = dir.path().join("store");
            let (_, mut model) = closed(&options, &path);
            let hurt = damage_some_values(&path);
            refuse.tuning.close_checkpoint_bytes_min = close_checkpoint_bytes_min;
            let serve = Options { on_corruption: OnCorruption::Serve, ..refuse.clone() };
            let store = refuse.open(&path).unwrap();
            free_damaged(&store);
            let found = store.stats().damaged_blocks;
            assert!(found > 0 && found <= 6, "{found}");
            store.close().unwrap();
            for round in 0..3u64 {
                let bytes = std::fs::read(&path).unwrap();
                is_corrupt(&refuse.open(&path).unwrap_err());
                assert!(std::fs::read(&path).unwrap() == bytes, "a refused open changed it");
                let looked = Options { read_only: true, ..serve.clone() }.open(&path).unwrap();
                assert_eq!(looked.stats().damaged_blocks, found);
                drop(looked);
                let store = serve.open(&path).unwrap();
                assert!(store.recovery().checkpointed > 0, "{:?}", store.recovery());
                assert_eq!(
                    (store.stats().damaged_blocks, store.recovery().damage.len()),
                    (found, found as usize)
                );
                only_these_are_corrupt(&store, &model, &hurt);
                // Others are written meanwhile, and compacted.
                for number in 200..260 {
                    store.put(key(number), value(number, round + 50)).unwrap();
                    model.insert(key(number), Some(value(number, round + 50)));
                }
                store.maintain().unwrap();
                only_these_are_corrupt(&store, &model, &hurt);
                store.close().unwrap();
            }
            let store = serve.open(&path).unwrap();
            store.put(&hurt[0], b"whole").unwrap();
            assert!(store.delete(&hurt[1]).unwrap());
            store.put(&hurt[2], b"whole").unwrap();
            model.extend([(hurt[0].clone(), Some(b"whole".to_vec())), (hurt[1].clone(), None)]);
            model.insert(hurt[2].clone(), Some(b"whole".to_vec()));
            free_damaged(&store);
            assert_eq!(store.stats().damaged_blocks, 0);
            only_these_are_corrupt(&store, &model, &[]);
            store.close().unwrap();
            only_these_are_corrupt(&refuse.open(&path).unwrap(), &model, &[]);
        }
    }
}

/// A device may fail to read, and read right later. The record that was damaged is then whole, but it was superseded.
#[test]
fn a_write_over_a_damaged_record_stays_when_the_medium_reads_right_again() {
    for options in configurations() {
        let dir = directory(&options);
        let path = dir.path().join("store");
        let (whole, mut model) = closed(&options, &path);
        let hurt = damage_some_values(&path);
        let damaged = std::fs::read(&path).unwrap();
        let serve = Options { on_corruption: OnCorruption::Serve, ..options.clone() };
        let store = serve.open(&path).unwrap();
        only_these_are_corrupt(&store, &model, &hurt);
        let before = store.len();
        store.put(&hurt[0], b"new").unwrap();
        assert!(store.delete(&hurt[1]).unwrap());
        store.put(&hurt[2], b"new").unwrap();
        model.extend([(hurt[0].clone(), Some(b"new".to_vec())), (hurt[1].clone(), None)]);
        model.insert(hurt[2].clone(), Some(b"new".to_vec()));
        assert_eq!(store.len(), before - 1, "one key was deleted, none was added");
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        for at in (0..whole.len()).filter(|&at| whole[at] != damaged[at]) {
            file.write_all_at(&whole[at..=at], at as u64).unwrap();
        }
        only_these_are_corrupt(&store, &model, &[]);
        free_damaged(&store);
        only_these_are_corrupt(&store, &model, &[]);
        store.close().unwrap();
        only_these_are_corrupt(&serve.open(&path).unwrap(), &model, &[]);
    }
}

/// An open that verifies finds at once the damage that the background thread would find later. It refuses and changes
/// nothing.
#[test]
fn an_open_that_verifies_refuses_damage_or_knows_all_of_it_at_once() {
    for options in configurations() {
        let dir = directory(&options);
        let path = dir.path().join("store");
        let (whole, model) = closed(&options, &path);
        let verify = Options { verify_at_open: true, ..options.clone() };
        let store = verify.open(&path).unwrap();
        assert!(store.recovery().checkpointed > 0, "{:?}", store.recovery());
        assert_eq!((store.stats().unverified_bytes, store.stats().damaged_blocks), (0, 0));
        drop(store);
        std::fs::write(&path, &whole).unwrap();
        let hurt = damage_some_values(&path);
        let bytes = std::fs::read(&path).unwrap();
        let error = verify.open(&path).unwrap_err();
        is_corrupt(&error);
        assert!(error.to_string().contains("no whole record at offset"), "{error}");
        assert!(std::fs::read(&path).unwrap() == bytes, "a refused open changed it");
        let serve = Options { on_corruption: OnCorruption::Serve, ..verify };
        let store = serve.open(&path).unwrap();
        let stats = store.stats();
        assert_eq!(
            (stats.unverified_bytes, stats.damaged_blocks as usize),
            (0, store.recovery().damage.len())
        );
        assert!(stats.damaged_blocks > 0);
        only_these_are_corrupt(&store, &model, &hurt);
    }
}

/// Without a checkpoint the owners of the damaged records are unknown: all whole records are served, and the damage
/// stays known over crashes.
#[test]
fn without_a_checkpoint_intact_records_are_served_and_the_damage_stays_known() {
    for options in configurations() {
        let options = Options { index_checkpoint: false, ..options };
        let serve = Options { on_corruption: OnCorruption::Serve, ..options.clone() };
        let dir = directory(&options);
        let path = dir.path().join("store");
        let store = options.open(&path).unwrap();
        let mut model = Model::new();
        for number in 0..KEYS {
            store.put(key(number), value(number, 0)).unwrap();
            model.insert(key(number), Some(value(number, 0)));
        }
        // As if killed: blocks are open.
        store.sync().unwrap();
        let killed = dir.path().join("killed");
        std::fs::copy(&path, &killed).unwrap();
        let hurt = damage_some_values(&killed);
        is_corrupt(&options.open(&killed).unwrap_err());
        let mut found = 0;
        for round in 0..4 {
            let store = serve.open(&killed).unwrap();
            assert!(store.stats().damaged_blocks > 0 && !store.recovery().damage.is_empty());
            assert!(round == 0 || store.stats().damaged_blocks == found, "{found}");
            found = store.stats().damaged_blocks;
            for key in model.keys().filter(|key| !hurt.contains(key)) {
                assert!(read(&store, key, 0, &model));
            }
            store.put(key(300), value(300, round)).unwrap();
            model.insert(key(300), Some(value(300, round)));
            for _ in 0..4 {
                store.maintain().unwrap();
            }
            // It is unknown which record was damaged, so it is kept.
            assert_eq!(store.stats().damaged_blocks, found);
            if round % 2 == 0 {
                store.close().unwrap();
            } else {
                store.sync().unwrap();
                let again = dir.path().join("again");
                std::fs::copy(&killed, &again).unwrap();
                drop(store);
                std::fs::rename(&again, &killed).unwrap();
            }
            is_corrupt(&options.open(&killed).unwrap_err());
        }
    }
}

/// A check reports the keys to which damaged records may belong, and the intact versions of those keys.
#[test]
fn check_and_salvage_name_the_keys_of_damaged_records_and_their_intact_parts() {
    for options in configurations() {
        let options = Options { index_checkpoint: false, compaction_dead_percent: 90, ..options };
        let dir = directory(&options);
        let path = dir.path().join("store");
        let store = options.open(&path).unwrap();
        let put = |key: &str, value: &str| store.put(key.as_bytes(), value.repeat(20).as_bytes()).unwrap();
        put("key:lost", "hurt");
        put("key:old", "kept");
        put("key:old", "hurt");
        put("key:undeleted", "kept");
        put("key:deleted-then-put", "kept");
        store.delete(b"key:deleted-then-put").unwrap();
        put("key:deleted-then-put", "hurt");
        put("key:superseded", "hurt");
        put("key:superseded", "kept");
        let mut batch = Batch::new();
        batch.put(b"key:batch", "hurt".repeat(20).as_bytes()).put(b"key:other", b"whole");
        let _ = store.apply(&batch).unwrap();
        // Whole, between two that are damaged.
        put("key:whole", "kept");
        put("key:header", "hurt");
        put("key:last", "kept");
        store.close().unwrap();
        let sound = duramen::check(&path, &options).unwrap();
        assert!(sound.damage.is_empty() && sound.damaged_records.is_empty(), "{sound:?}");
        let mut bytes = std::fs::read(&path).unwrap();
        for at in 16 << 10..bytes.len() - 16 {
            if bytes[at..].starts_with(b"hurthurthurthurt") {
                bytes[at] ^= 1;
            }
            // The kind of record: nothing can be made out of its header.
            if bytes[at..].starts_with(b"key:header") {
                bytes[at - 24 + 4] ^= 0x0f;
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        let report = duramen::check(&path, &options).unwrap();
        let found: BTreeMap<_, _> = report
            .damaged_records
            .iter()
            .map(|record| (record.key.clone().map(|key| String::from_utf8(key).unwrap()), record.remains))
            .collect();
        let wanted = [
            (None, Remains::Unknown),
            (Some("key:batch"), Remains::Nothing),
            (Some("key:deleted-then-put"), Remains::OlderDelete),
            (Some("key:lost"), Remains::Nothing),
            (Some("key:old"), Remains::OlderValue),
            (Some("key:other"), Remains::Nothing),
            (Some("key:superseded"), Remains::Newer),
        ];
        assert_eq!(
            found,
            wanted.map(|(key, remains)| (key.map(str::to_owned), remains)).into(),
            "{report:?}"
        );
        // Each place is reported, not only the first of a block.
        assert!(report.damage.len() >= 5, "{:?}", report.damage);
        let saved = dir.path().join("saved");
        let (keys, told) = duramen::salvage(&path, &saved, &options).unwrap();
        assert_eq!(told.damaged_records.len(), report.damaged_records.len());
        let store = options.open(&saved).unwrap();
        let has = |key: &str, value: &str| {
            assert_eq!(
                store.get(key.as_bytes()).unwrap().as_deref(),
                Some(value.repeat(20).as_bytes()),
                "{key}"
            );
        };
        for key in ["key:old", "key:undeleted", "key:superseded", "key:whole", "key:last"] {
            has(key, "kept");
        }
        assert_eq!(keys, 5);
    }
}

/// A block whose header is lost is not read, but its keys are reported. A damaged deletion may bring a key back.
#[test]
fn the_keys_of_a_lost_block_and_of_a_damaged_tombstone_are_reported() {
    for options in configurations() {
        let options = Options { index_checkpoint: false, ..options };
        let dir = directory(&options);
        let path = dir.path().join("store");
        let store = options.open(&path).unwrap();
        for number in 0..100 {
            store.put(format!("key:{number:04}").as_bytes(), [7; 100]).unwrap();
        }
        store.delete(b"key:0003").unwrap();
        store.close().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let extent = (4..whole.len() / 4096)
            .find(|extent| {
                whole[extent * 4096..(extent + 1) * 4096].windows(8).any(|part| part == b"key:0040")
            })
            .unwrap();
        let mut bytes = whole.clone();
        bytes[extent * 4096..extent * 4096 + 64].fill(0xa5);
        std::fs::write(&path, &bytes).unwrap();
        let report = duramen::check(&path, &options).unwrap();
        let named =
            |wanted: &[u8]| report.damaged_records.iter().any(|record| record.key.as_deref() == Some(wanted));
        assert!(named(b"key:0040") && !named(b"key:0001"), "{report:?}");
        let kept =
            report.damaged_records.iter().filter(|record| record.remains == Remains::Nothing).count() as u64;
        assert_eq!(report.keys + kept, 99, "{report:?}");
        // The last record of that key is its deletion.
        let mut bytes = whole.clone();
        let at = (0..bytes.len() - 8).rev().find(|&at| bytes[at..].starts_with(b"key:0003")).unwrap();
        bytes[at - 24] ^= 1; // Of its checksum.
        std::fs::write(&path, &bytes).unwrap();
        let report = duramen::check(&path, &options).unwrap();
        let of = report.damaged_records.iter().find(|record| record.key.as_deref() == Some(b"key:0003"));
        assert_eq!(of.map(|record| record.remains), Some(Remains::Undeleted), "{report:?}");
    }
}

/// Files whose head is lost are neither empty nor stores, and their contents are saved.
#[test]
fn a_lost_head_never_becomes_an_empty_store() {
    for options in configurations() {
        for extent_bytes in [512, 4096, 24 << 10, 192 << 10] {
            let options = Options { extent_bytes: Some(extent_bytes), ..options.clone() };
            let dir = directory(&options);
            let path = dir.path().join("store");
            let store = options.open(&path).unwrap();
            let mut model = Model::new();
            for number in 0..100 {
                store.put(key(number), value(number, 0)).unwrap();
                model.insert(key(number), Some(value(number, 0)));
            }
            store.close().unwrap();
            let whole = std::fs::read(&path).unwrap();
            let magics: [std::ops::Range<usize>; 2] = [0..8, 4096..4104];
            for lost in [std::slice::from_ref(&(0..16 << 10)), std::slice::from_ref(&(0..8192)), &magics[..]]
            {
                let mut bytes = whole.clone();
                lost.iter().for_each(|range| bytes[range.clone()].fill(0));
                std::fs::write(&path, &bytes).unwrap();
                // With any extent size of new stores.
                for extent_bytes in [None, Some(extent_bytes), Some(64 << 10)] {
                    let error = Options { extent_bytes, ..options.clone() }.open(&path).unwrap_err();
                    is_corrupt(&error);
                    assert!(error.to_string().contains("salvage"), "{error}");
                }
                assert!(std::fs::read(&path).unwrap() == bytes, "an open changed it");
                let plain = Options { extent_bytes: None, ..options.clone() };
                let report = duramen::check(&path, &plain).unwrap();
                assert!(!report.damage.is_empty() && report.keys == 100, "{report:?}");
                let saved = dir.path().join("saved");
                assert_eq!(duramen::salvage(&path, &saved, &plain).unwrap().0, 100);
                let store = plain.open(&saved).unwrap();
                model.keys().for_each(|key| assert!(read(&store, key, 0, &model)));
                drop(store);
                std::fs::remove_file(&saved).unwrap();
            }
            // On purpose.
            assert!(duramen::erase(&path, &options).unwrap() > 0);
            assert!(options.open(&path).unwrap().is_empty());
        }
    }
}

/// A mistaken wipe of a head may erase far more: blocks anywhere show that a store existed.
#[test]
fn a_store_whose_first_quarter_of_a_gibibyte_is_wiped_is_refused() {
    let options = Options { extent_bytes: None, ..options(MediumKind::Shm, IndexKind::Hash) };
    let dir = directory(&options);
    let path = dir.path().join("store");
    let store = options.open(&path).unwrap();
    for number in 0..2800 {
        store.put(key(number), [number as u8; 100 << 10]).unwrap();
    }
    store.close().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    assert!(len > 260 << 20, "{len}");
    // As a hole: no page of it is there.
    let copy = std::fs::File::create(dir.path().join("copy")).unwrap();
    copy.set_len(len).unwrap();
    let from = 256 << 20;
    let mut bytes = vec![0; (len - from) as usize];
    std::fs::File::open(&path).unwrap().read_exact_at(&mut bytes, from).unwrap();
    drop(file);
    std::fs::remove_file(&path).unwrap();
    copy.write_all_at(&bytes, from).unwrap();
    let path = dir.path().join("copy");
    is_corrupt(&options.open(&path).unwrap_err());
    let report = duramen::check(&path, &options).unwrap();
    assert!(report.keys > 50 && !report.damage.is_empty(), "{} keys", report.keys);
}

/// A medium that holds any bytes, but never held a store, has room for one.
#[test]
fn an_unfinished_creation_and_a_medium_without_a_store_become_stores() {
    for options in configurations() {
        // A checkpoint takes blocks.
        let options = Options { index_checkpoint: false, ..options };
        let dir = directory(&options);
        let path = dir.path().join("store");
        let empty = options.open(&path).unwrap();
        drop(empty);
        let mut random = Random(3);
        let mut bytes = std::fs::read(&path).unwrap();
        // A creation that did not finish: all but the magic words.
        for kept in [0, 4096] {
            bytes[kept..kept + 8].fill(0);
        }
        bytes[128..4096].fill(0);
        bytes[4096 + 128..16 << 10].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        assert!(options.open(&path).unwrap().is_empty());
        // A device that others used.
        bytes[..16 << 10].fill(0);
        bytes.resize(3 << 20, 0);
        bytes[16 << 10..].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        std::fs::write(&path, &bytes).unwrap();
        assert!(options.open(&path).unwrap().is_empty());
    }
}
