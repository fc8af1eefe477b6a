//! A full store: for all sizes and orders, deletes still work, and the space of deleted records comes back.
//!
//! `DURAMEN_CASES` sets the number of cases of the property test, and `DURAMEN_SEED` the first seed.

mod kept;

use duramen::{Durability, ErrorKind, IndexKind, MediumKind, Meta, Options, Room, Store, Writer};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// The sizes of values.
#[derive(Clone, Copy, Debug)]
enum Sizes {
    Between(u64, u64),
    /// Mostly small, some of up to this many bytes.
    Mixed(u64),
}

impl Sizes {
    fn draw(self, random: &mut Random) -> usize {
        let (from, to) = match self {
            Self::Between(from, to) => (from, to),
            Self::Mixed(large) => random.pick(&[(0, 40), (40, 400), (400, 4000.min(large)), (100, large)]),
        };
        (from + random.below(to - from + 1)) as usize
    }
}

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    medium: MediumKind,
    durability: Durability,
    index: IndexKind,
    extent_bytes: u32,
    len_max: u64,
    sizes: Sizes,
    key_bytes: u64,
    background: bool,
    dead_percent: u32,
    rounds: u64,
    /// Deletes go to keys in the order of their insertion, else to any.
    oldest_first: bool,
    grouped: bool,
}

impl Case {
    fn options(&self) -> Options {
        Options {
            medium: self.medium,
            durability: self.durability,
            index: self.index,
            index_cache_slots: 1 << 8,
            extent_bytes: Some(self.extent_bytes),
            len_max: self.len_max,
            background: self.background,
            compaction_dead_percent: self.dead_percent,
            ..Options::default()
        }
    }
}

/// A store in use, and its keys, the oldest first.
struct Full<'c> {
    case: &'c Case,
    random: Random,
    store: Store,
    writer: Option<Writer>,
    keys: VecDeque<(Vec<u8>, usize)>,
    next: u64,
    bytes: u64,
}

impl<'c> Full<'c> {
    fn open(case: &'c Case, path: &Path) -> Self {
        let store = case.options().open(path).unwrap();
        let writer = Some(store.writer().unwrap());
        let (keys, random) = (VecDeque::new(), Random(case.seed));
        Self { case, random, store, writer, keys, next: 0, bytes: 0 }
    }

    fn again(&mut self, path: &Path) {
        self.store.commit().unwrap();
        self.writer = None;
        // A placeholder: a store is closed before it is opened again.
        let other = Options { medium: MediumKind::Volatile, len_max: 1 << 20, ..Options::default() };
        let other = other.open("none").unwrap();
        let store = std::mem::replace(&mut self.store, other);
        store.close().unwrap();
        self.store = self.case.options().open(path).unwrap();
        self.writer = Some(self.store.writer().unwrap());
        assert_eq!(self.store.len() as usize, self.keys.len());
    }

    fn manual(&self) -> bool {
        self.case.durability == Durability::Manual
    }

    fn put(&mut self) -> bool {
        let len = self.case.sizes.draw(&mut self.random);
        self.put_of(len)
    }

    fn put_of(&mut self, len: usize) -> bool {
        self.next += 1;
        let mut key = self.next.to_le_bytes().to_vec();
        let longer = self.random.below(self.case.key_bytes) as usize;
        key.resize(8 + longer, b'k');
        let value = vec![self.next as u8; len];
        // With `Manual` space comes back with the commits of the caller, a little with each.
        for again in (0..60).map(|round| round < 59) {
            match self.writer.as_mut().unwrap().put(&key, &value) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::OutOfSpace && self.manual() && again => {
                    self.store.commit().unwrap();
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                    return false;
                }
            }
        }
        self.bytes += len as u64;
        self.keys.push_back((key, len));
        true
    }

    /// Deletes a key; returns the length of its value.
    fn delete(&mut self, what: &str) -> usize {
        let any = self.random.below(self.keys.len() as u64) as usize;
        let at = if self.case.oldest_first { 0 } else { any };
        let (key, len) = self.keys.swap_remove_back(at).unwrap();
        for again in (0..60).map(|round| round < 59) {
            match self.writer.as_mut().unwrap().delete(&key) {
                Ok(was) => {
                    assert!(was, "{what}: the key was there");
                    break;
                }
                Err(error) if self.manual() && again => {
                    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                    self.store.commit().unwrap();
                }
                Err(error) => {
                    let left = self.keys.len();
                    panic!(
                        "{:?}\n{what}: delete, {left} keys left: {error}\n{:?}",
                        self.case,
                        self.store.stats()
                    )
                }
            }
        }
        self.bytes -= len as u64;
        len
    }

    /// A batch of two values of half the size and a delete, or, where it is refused, deletes.
    fn batch(&mut self) {
        let mut batch = duramen::Batch::new();
        let mut put = Vec::new();
        for _ in 0..2 {
            self.next += 1;
            let (key, len) = (self.next.to_le_bytes().to_vec(), self.case.sizes.draw(&mut self.random) / 2);
            batch.put(&key, vec![self.next as u8; len]);
            put.push((key, len));
        }
        let any = self.random.below(self.keys.len() as u64) as usize;
        let gone = self.keys.swap_remove_back(any).unwrap();
        batch.delete(&gone.0);
        match self.writer.as_mut().unwrap().apply(&batch) {
            Ok(_) => {
                self.bytes += put.iter().map(|(_, len)| *len as u64).sum::<u64>();
                self.bytes -= gone.1 as u64;
                self.keys.extend(put);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                self.keys.push_back(gone);
                for _ in 0..=self.random.below(3) {
                    self.delete("a batch was refused");
                }
            }
        }
    }

    fn fill(&mut self) {
        while self.put() {}
    }

    fn delete_all(&mut self, what: &str) {
        while !self.keys.is_empty() {
            self.delete(what);
        }
    }
}

fn run(case: &Case) {
    let memory = case.medium != MediumKind::File;
    let dir = if memory { tempfile::tempdir_in("/dev/shm") } else { tempfile::tempdir() }.unwrap();
    let path = dir.path().join("store");
    let mut full = Full::open(case, &path);
    full.fill();
    let (first, keys) = (full.bytes, full.keys.len());
    for round in 0..case.rounds {
        if full.keys.is_empty() {
            break;
        }
        if case.grouped {
            full.writer.as_mut().unwrap().group();
        }
        // Sometimes many, so that adjacent space comes back.
        let many = if full.random.below(200) == 0 { 20 } else { 1 };
        for _ in 0..many {
            if !full.keys.is_empty() {
                full.delete(&format!("round {round}"));
            }
        }
        full.put();
        if case.grouped {
            full.writer.as_mut().unwrap().flush_group().unwrap();
        }
    }
    if case.medium != MediumKind::Volatile {
        full.again(&path);
    }
    full.delete_all("at the end");
    let mut puts = 0;
    full.random = Random(case.seed);
    full.fill();
    puts += full.keys.len();
    // The same draws: only the space of a few blocks is missing, which tombstones or writers keep.
    assert!(
        full.bytes * 100 >= first * 80,
        "{case:?}\nat first {keys} keys of {first} bytes fitted, then {puts} of {}: {:?}\n{:?}",
        full.bytes,
        full.store.stats(),
        full.store.audit()
    );
    assert_eq!(full.store.audit(), [""; 0], "{case:?}");
    full.delete_all("once more");
}

const INTERVAL: Durability = Durability::Interval(Duration::from_secs(3600));

fn case(medium: MediumKind, durability: Durability, sizes: Sizes) -> Case {
    Case {
        seed: 1,
        medium,
        durability,
        index: IndexKind::Hash,
        extent_bytes: 4096,
        len_max: 4 << 20,
        sizes,
        key_bytes: 9,
        background: false,
        dead_percent: 25,
        rounds: 3000,
        oldest_first: true,
        grouped: false,
    }
}

#[test]
fn deletes_of_small_values_work_in_a_full_store() {
    run(&case(MediumKind::Shm, Durability::EveryWrite, Sizes::Between(100, 1000)));
}

#[test]
fn deletes_of_values_of_about_an_extent_work_in_a_full_store() {
    run(&case(MediumKind::Shm, Durability::EveryWrite, Sizes::Between(3000, 5000)));
}

#[test]
fn deletes_of_values_of_many_extents_work_in_a_full_store() {
    run(&case(MediumKind::Shm, Durability::EveryWrite, Sizes::Between(100, 100_000)));
}

#[test]
fn deletes_of_values_of_all_sizes_work_in_a_full_store() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        run(&Case { index, ..case(MediumKind::Shm, Durability::EveryWrite, Sizes::Mixed(60_000)) });
    }
}

#[test]
fn deletes_work_in_a_full_store_of_every_medium_and_durability() {
    let medium = [MediumKind::Shm, MediumKind::File, MediumKind::Volatile];
    for medium in medium {
        for durability in [Durability::EveryWrite, INTERVAL, Durability::Manual] {
            let slow = medium == MediumKind::File && durability == Durability::EveryWrite;
            for sizes in [Sizes::Between(100, 1000), Sizes::Mixed(20_000)] {
                let (len_max, rounds) = if slow { (1 << 20, 300) } else { (2 << 20, 2000) };
                run(&Case { len_max, rounds, ..case(medium, durability, sizes) });
            }
        }
    }
}

fn drawn(seed: u64) -> Case {
    let mut random = Random(seed ^ 0x9e37_79b9_7f4a_7c15);
    (0..4).for_each(|_| {
        random.below(2);
    });
    let extent_bytes = random.pick(&[512, 1024, 4096, 4096, 24 << 10]);
    let extents = random.pick(&[60, 300, 1500]);
    let len_max = u64::from(extent_bytes) * (48 + random.below(extents));
    let extent = u64::from(extent_bytes);
    let large = (len_max / 30).max(200);
    let sizes = random.pick(&[
        Sizes::Between(0, 16),
        Sizes::Between(100, 1000),
        Sizes::Between(extent * 3 / 4, extent * 5 / 4),
        Sizes::Between(extent / 8, extent / 2),
        Sizes::Between(100, large),
        Sizes::Mixed(large),
        Sizes::Mixed(extent),
    ]);
    Case {
        seed,
        medium: random.pick(&[MediumKind::Shm, MediumKind::Shm, MediumKind::Volatile, MediumKind::File]),
        durability: random.pick(&[Durability::EveryWrite, INTERVAL, Durability::Manual]),
        index: random.pick(&[IndexKind::Hash, IndexKind::Ordered]),
        extent_bytes,
        len_max: len_max.max(128 << 10),
        sizes,
        key_bytes: random.pick(&[1, 9, 100]),
        background: random.below(4) == 0,
        dead_percent: random.pick(&[5, 25, 90]),
        rounds: random.pick(&[50, 500, 1500]),
        oldest_first: random.below(2) == 0,
        grouped: random.below(4) == 0,
    }
}

#[test]
fn deletes_work_and_free_space_with_any_sizes_and_order() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let cases = number("DURAMEN_CASES").unwrap_or(12);
    let from = number("DURAMEN_SEED").unwrap_or(1);
    for seed in from..from + cases {
        let case = drawn(seed);
        if case.medium == MediumKind::File && case.durability == Durability::EveryWrite {
            // A wait for the device in each write.
            run(&Case { rounds: case.rounds.min(50), medium: MediumKind::Shm, ..case });
            continue;
        }
        eprintln!("DURAMEN_SEED={seed} DURAMEN_CASES=1: {case:?}");
        run(&case);
    }
}

/// Cases in which a delete, or the compactor's moves, broke up the last run that could take a block of several extents.
/// In one case the compactor took space that a commit had freed, before the waiting delete could.
#[test]
fn deletes_work_where_free_space_is_scattered_or_appears_with_commits() {
    [11, 71, 273].into_iter().for_each(|seed| run(&drawn(seed)));
}

/// The compactor moves halves of batches into its own blocks, and half of these is left. And a delete after two puts of
/// a batch needs a block that no transaction extended to before. Some dozen such blocks stay open, with one tombstone
/// each; where a value has several extents they are in its way.
#[test]
fn space_of_batches_of_large_values_is_freed() {
    let extents = [(1 << 10, 800 << 10), (4 << 10, 400 << 10)];
    for ((extent_bytes, len_max), seed) in
        extents.into_iter().flat_map(|extent| (1..=3).map(move |seed| (extent, seed)))
    {
        let mut case = case(MediumKind::Volatile, Durability::EveryWrite, Sizes::Between(10 << 10, 20 << 10));
        (case.seed, case.extent_bytes, case.len_max, case.background) = (seed, extent_bytes, len_max, false);
        let mut full = Full::open(&case, Path::new("none"));
        full.fill();
        let first = full.bytes;
        for round in 0..3 {
            for _ in 0..500 {
                full.batch();
            }
            full.delete_all("after batches");
            full.store.maintain().unwrap();
            full.fill();
            let now = full.bytes;
            assert!(now * 10 >= first * 8, "seed {seed}, round {round}: {first} bytes fitted, now {now}");
        }
    }
}

/// A transaction that fills the store is aborted: its space is free again for the next writer, though nothing is
/// committed meanwhile.
#[test]
fn the_space_of_a_transaction_that_was_aborted_is_found_without_a_wait() {
    let hour = Duration::from_secs(3600);
    for (durability, in_transaction) in [
        (Durability::Interval(hour), false),
        (Durability::Interval(hour), true),
        (Durability::EveryWrite, false),
        (Durability::EveryWrite, true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            medium: MediumKind::File,
            durability,
            len_max: 8 << 20,
            extent_bytes: Some(32 << 10),
            background: false,
            ..Options::default()
        };
        let store = options.open(dir.path().join("store")).unwrap();
        let mut writer = store.writer().unwrap();
        let mut fill = |limit: u32| {
            let mut count = 0;
            let filled = writer.transaction(|transaction| -> duramen::Result<()> {
                while count < limit {
                    transaction.put(count.to_le_bytes(), [7; 1000])?;
                    count += 1;
                }
                Ok(())
            });
            (count, filled.map_err(|error| error.kind()))
        };
        let (most, filled) = fill(u32::MAX);
        assert_eq!(filled, Err(ErrorKind::OutOfSpace));
        for round in 0..4 {
            let what = format!("{durability:?}, in a transaction: {in_transaction}, round {round}");
            if in_transaction {
                assert_eq!(fill(most / 3), (most / 3, Ok(())), "{what}");
            } else {
                store.put(b"other", b"x").unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            assert_eq!(fill(u32::MAX).1, Err(ErrorKind::OutOfSpace), "{what}");
        }
        assert_eq!(store.audit(), Vec::<String>::new());
    }
}

/// A full store accepts values that it must not refuse, until they have used up half of the space kept for deletes.
/// Then it still accepts deletes, and values no longer than before.
#[test]
fn a_full_store_accepts_changes_and_their_space_is_bounded() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options {
        medium: MediumKind::Shm,
        len_max: 4 << 20,
        extent_bytes: Some(4096),
        background: false,
        ..Options::default()
    };
    let store = options.open(dir.path().join("store")).unwrap();
    let mut writer = store.writer().unwrap();
    let key = |number: u32| number.to_le_bytes();
    let with = |room| Meta { room, ..Meta::default() };
    let mut count = 0;
    while writer.put(key(count), [1; 200]).is_ok() {
        count += 1;
    }
    // The same values again, which add no live bytes: as often as wanted.
    for number in 0..3 * count {
        let number = number * 7919 % count;
        for room in [Room::Change, Room::Removal] {
            let put = writer.put_with(key(number), [3; 200], with(room));
            put.unwrap_or_else(|error| panic!("{number} for {room:?}: {error}"));
        }
    }
    // New values, which add live bytes.
    let mut more = 0;
    while writer.put_with(key(count + more), [4; 200], with(Room::Change)).is_ok() {
        more += 1;
        assert!(more < count / 10, "changes take more than is kept for deletes");
    }
    assert!(more > 0);
    for number in 0..count {
        let put = writer.put_with(key(number), [5; 192], with(Room::Removal));
        put.unwrap_or_else(|error| panic!("removal {number}: {error}"));
    }
    for number in 0..count + more {
        assert!(writer.delete(key(number)).unwrap_or_else(|error| panic!("delete {number}: {error}")));
    }
    assert_eq!(store.audit(), Vec::<String>::new());
}
