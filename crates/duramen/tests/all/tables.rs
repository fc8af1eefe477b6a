//! Named tables: each a separate set of keys, created, cleared, dropped and swapped by one small write, over closes and
//! crashes.
use crate::maintained;
use duramen::{
    Batch, Durability, ErrorKind, IndexKind, MediumKind, Meta, Options, Store, Swap, Table, Update,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn options(index: IndexKind) -> Options {
    Options {
        medium: MediumKind::File,
        durability: Durability::EveryWrite,
        extent_bytes: Some(4096),
        index,
        background: false,
        ..Options::default()
    }
}

fn shm(index: IndexKind) -> Options {
    Options { medium: MediumKind::Shm, ..options(index) }
}

/// Opens again what a killed process left, on a copy.
fn after_kill(path: &Path, options: &Options) -> Store {
    static COPIES: AtomicU64 = AtomicU64::new(0);
    let copy = path.with_extension(format!("copy-{}", COPIES.fetch_add(1, Relaxed)));
    std::fs::copy(path, &copy).unwrap();
    options.open(&copy).unwrap()
}

fn all(table: &Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    table.for_each(|value| assert!(all.insert(value.key().to_vec(), value.to_vec()).is_none())).unwrap();
    assert_eq!(table.len(), all.len() as u64);
    all
}

const KINDS: [IndexKind; 2] = [IndexKind::Hash, IndexKind::Ordered];

#[test]
fn the_same_key_of_two_tables_and_the_store_is_three_keys() {
    for kind in KINDS {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("store");
        let store = shm(kind).open(&path).unwrap();
        let (a, b) = (store.table(b"a", kind).unwrap(), store.table(b"b", IndexKind::Ordered).unwrap());
        store.put(b"k", b"of the store").unwrap();
        a.put(b"k", b"of a").unwrap();
        b.put_with(b"k", b"of b", Meta { tag: 7, ..Meta::default() }).unwrap();
        b.put(b"l", b"of b too").unwrap();
        let look = |store: &Store, a: &Table, b: &Table| {
            assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"of the store"[..]));
            assert_eq!(a.get(b"k").unwrap().as_deref(), Some(&b"of a"[..]));
            let of_b = b.get(b"k").unwrap().unwrap();
            assert_eq!((&*of_b, of_b.tag()), (&b"of b"[..], 7));
            assert!(a.get(b"l").unwrap().is_none());
            assert_eq!((store.len(), a.len(), b.len(), store.stats().keys), (1, 1, 2, 4));
            assert_eq!(all(b).len(), 2);
            let keys: Vec<_> = b.range(..).unwrap().map(|value| value.unwrap().key().to_vec()).collect();
            assert_eq!(keys, [b"k", b"l"]);
            assert_eq!(store.audit(), [""; 0]);
        };
        look(&store, &a, &b);
        let killed = after_kill(&path, &shm(kind));
        look(&killed, &killed.table(b"a", kind).unwrap(), &killed.table(b"b", IndexKind::Ordered).unwrap());
        drop((a, b));
        store.close().unwrap();
        let store = shm(kind).open(&path).unwrap();
        look(&store, &store.find_table(b"a").unwrap().unwrap(), &store.find_table(b"b").unwrap().unwrap());
        let names: Vec<_> = store.tables().into_iter().map(|table| (table.name, table.keys)).collect();
        assert_eq!(names, [(b"a".to_vec(), 1), (b"b".to_vec(), 2)]);
        assert!(store.find_table(b"c").unwrap().is_none());
    }
}

#[test]
fn cleared_dropped_and_swapped_tables_stay_so_after_reopening() {
    for kind in KINDS {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("store");
        let store = shm(kind).open(&path).unwrap();
        let (a, b, c) = (
            store.table(b"a", kind).unwrap(),
            store.table(b"b", kind).unwrap(),
            store.table(b"c", kind).unwrap(),
        );
        for key in 0..2000u32 {
            a.put(key.to_be_bytes(), b"of a").unwrap();
            b.put(key.to_be_bytes(), b"of b").unwrap();
            c.put(key.to_be_bytes(), b"of c").unwrap();
        }
        let written = store.stats().written_bytes;
        a.clear().unwrap();
        store.swap_tables(b"b", b"c").unwrap();
        assert!(store.stats().written_bytes - written < 300, "tables cost only their content");
        assert_eq!((a.len(), b.len(), c.len()), (0, 2000, 2000));
        assert!(a.get(7u32.to_be_bytes()).unwrap().is_none());
        assert_eq!(b.get(7u32.to_be_bytes()).unwrap().as_deref(), Some(&b"of c"[..]));
        a.put(b"new", b"of a").unwrap();
        assert!(store.drop_table(b"c").unwrap() && !store.drop_table(b"c").unwrap());
        assert_eq!(c.get(b"k").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(c.put(b"k", b"v").unwrap_err().kind(), ErrorKind::NotFound);
        let look = |store: &Store| {
            let table = |name: &[u8]| store.find_table(name).unwrap();
            assert_eq!(
                all(&table(b"a").unwrap()).into_iter().collect::<Vec<_>>(),
                [(b"new".to_vec(), b"of a".to_vec())]
            );
            assert_eq!(all(&table(b"b").unwrap()).len(), 2000);
            assert!(table(b"c").is_none());
            assert_eq!(store.stats().keys, 2001);
        };
        look(&store);
        look(&after_kill(&path, &shm(kind)));
        // Its space comes back.
        assert!(maintained(&store, || store.stats().live_bytes <= 200_000), "{:?}", store.stats());
        assert_eq!(store.audit(), [""; 0]);
        look(&store);
        let killed = after_kill(&path, &shm(kind));
        assert_eq!(killed.audit(), [""; 0]);
        look(&killed);
        drop((a, b, c));
        store.close().unwrap();
        let store = shm(kind).open(&path).unwrap();
        assert_eq!(store.audit(), [""; 0]);
        look(&store);
    }
}

#[test]
fn a_batch_writes_to_several_tables_or_to_none() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let store = shm(IndexKind::Hash).open(&path).unwrap();
    let (a, b) =
        (store.table(b"a", IndexKind::Hash).unwrap(), store.table(b"b", IndexKind::Ordered).unwrap());
    let mut writer = store.writer().unwrap();
    let mut batch = Batch::new();
    batch.put(b"k", b"0").table(Some(&a)).put(b"k", b"1").table(Some(&b)).put(b"k", b"2");
    assert_eq!(writer.apply(&batch).unwrap(), Swap::Done);
    let (stamp, _) = writer.table(&a).get_stamped(b"k").unwrap();
    a.put(b"k", b"3").unwrap();
    let mut late = Batch::new();
    late.put(b"k", b"4").table(Some(&b)).delete(b"k").table(Some(&a)).expect(b"k", stamp);
    assert_eq!(writer.apply(&late).unwrap(), Swap::Changed);
    // So large that it claims its keys.
    let mut large = Batch::new();
    for key in 0..3000u32 {
        let to = [Some(&a), Some(&b), None][key as usize % 3];
        large.table(to).put(key.to_be_bytes(), [key as u8; 300]);
    }
    assert_eq!(writer.apply(&large).unwrap(), Swap::Done);
    let look = |store: &Store| {
        let table = |name: &[u8]| store.find_table(name).unwrap().unwrap();
        let (a, b) = (table(b"a"), table(b"b"));
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"0"[..]));
        assert_eq!(a.get(b"k").unwrap().as_deref(), Some(&b"3"[..]));
        assert_eq!(b.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!((store.len(), a.len(), b.len()), (1001, 1001, 1001));
        for key in 0..3000u32 {
            let tables = [a.get(key.to_be_bytes()), b.get(key.to_be_bytes()), store.get(key.to_be_bytes())];
            for (at, found) in tables.into_iter().enumerate() {
                assert_eq!(found.unwrap().is_some(), at == key as usize % 3, "{key}");
            }
        }
        assert_eq!(store.audit(), [""; 0]);
    };
    look(&store);
    look(&after_kill(&path, &shm(IndexKind::Hash)));
}

#[test]
fn values_of_tables_are_updated_in_place_and_moved_with_their_owner() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let store = shm(IndexKind::Hash).open(&path).unwrap();
    let table = store.table(b"t", IndexKind::Hash).unwrap();
    let mut writer = store.writer().unwrap();
    for key in 0..500u64 {
        let meta = Meta { updatable: key % 2 == 0, ..Meta::default() };
        writer.table(&table).put_with(key.to_be_bytes(), [0; 16], meta).unwrap();
        // What lies between is dead at once.
        store.put(b"filler", [1; 400]).unwrap();
    }
    for key in 0..500u64 {
        let wanted = if key % 2 == 0 { Update::InPlace } else { Update::NewVersion };
        assert_eq!(table.update(&key.to_be_bytes(), 8, &key.to_be_bytes()).unwrap(), wanted);
    }
    for key in (0..500u64).step_by(5) {
        assert!(table.delete(key.to_be_bytes()).unwrap());
    }
    let look = |store: &Store| {
        let table = store.find_table(b"t").unwrap().unwrap();
        assert_eq!((table.len(), store.len()), (400, 1));
        for key in 0..500u64 {
            let found = table.get(key.to_be_bytes()).unwrap();
            let wanted = (key % 5 != 0).then(|| [[0; 8], key.to_be_bytes()].concat());
            assert_eq!(found.as_deref(), wanted.as_deref(), "{key}");
        }
        assert_eq!(store.audit(), [""; 0]);
    };
    look(&store);
    for _ in 0..200 {
        store.maintain().unwrap();
        store.put(b"filler", [2; 4000]).unwrap();
    }
    assert!(store.stats().compacted_bytes > 0);
    look(&store);
    look(&after_kill(&path, &shm(IndexKind::Hash)));
}

#[test]
fn a_full_store_clears_its_tables_and_takes_writes_again() {
    for medium in [MediumKind::Shm, MediumKind::File, MediumKind::Volatile] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = Options { medium, len_max: 4 << 20, ..options(IndexKind::Hash) };
        let store = options.open(dir.path().join("store")).unwrap();
        let tables = [b"a", b"b"].map(|name| store.table(name, IndexKind::Hash).unwrap());
        for round in 0..4u32 {
            let mut kept = 0u32;
            let full = loop {
                match tables[kept as usize % 2].put(kept.to_be_bytes(), [round as u8; 700]) {
                    Ok(()) => kept += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind(), ErrorKind::OutOfSpace, "{full}");
            assert!(kept > 3000, "{kept} in round {round} on {medium:?}");
            tables[0].clear().unwrap();
            assert_eq!(tables[0].len(), 0);
            tables[0].put(b"at once", [9; 700]).unwrap();
            assert_eq!(tables[1].len(), u64::from(kept / 2));
            tables[1].clear().unwrap();
            assert_eq!(store.audit(), [""; 0]);
        }
    }
}

#[test]
fn wrong_uses_of_a_table_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let store = options(IndexKind::Hash).open(dir.path().join("store")).unwrap();
    store.table(b"hash", IndexKind::Hash).unwrap();
    let wrong = store.table(b"hash", IndexKind::Ordered).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
    assert!(
        wrong.to_string().contains("table \"hash\" has an index of kind Hash, wanted Ordered"),
        "{wrong}"
    );
    let long = store.table([b'x'; 1025], IndexKind::Hash).unwrap_err();
    assert!(long.to_string().contains("1025 bytes; at most 1024"), "{long}");
    let missing = store.swap_tables(b"hash", b"none").unwrap_err();
    assert!(missing.to_string().contains("no table is named \"none\""), "{missing}");
    let table = store.find_table(b"hash").unwrap().unwrap();
    assert_eq!(table.range(..).unwrap_err().kind(), ErrorKind::Unsupported);
}

/// With `manual`, a crash reverts uncommitted changes, including creating, clearing and dropping tables.
#[test]
fn with_durability_manual_table_changes_are_kept_by_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = Options { durability: Durability::Manual, ..options(IndexKind::Hash) };
    let store = options.open(&path).unwrap();
    let (a, b) = (store.table(b"a", IndexKind::Hash).unwrap(), store.table(b"b", IndexKind::Hash).unwrap());
    for key in 0..300u32 {
        a.put(key.to_be_bytes(), [1; 200]).unwrap();
        b.put(key.to_be_bytes(), [2; 200]).unwrap();
    }
    store.commit().unwrap();
    a.clear().unwrap();
    store.drop_table(b"b").unwrap();
    let c = store.table(b"c", IndexKind::Hash).unwrap();
    for key in 0..300u32 {
        c.put(key.to_be_bytes(), [3; 200]).unwrap();
        a.put(key.to_be_bytes(), [4; 200]).unwrap();
    }
    for _ in 0..20 {
        store.maintain().unwrap();
    }
    assert_eq!(store.audit(), [""; 0]);
    let killed = after_kill(&path, &options);
    let lens =
        |store: &Store| [&b"a"[..], b"b", b"c"].map(|name| store.find_table(name).unwrap().map(|t| t.len()));
    assert_eq!(lens(&killed), [Some(300), Some(300), None]);
    let a = killed.find_table(b"a").unwrap().unwrap();
    assert_eq!(a.get(7u32.to_be_bytes()).unwrap().as_deref(), Some(&[1; 200][..]));
    assert_eq!(killed.audit(), [""; 0]);
    store.commit().unwrap();
    for _ in 0..20 {
        store.maintain().unwrap();
    }
    let killed = after_kill(&path, &options);
    assert_eq!(lens(&killed), [Some(300), None, Some(300)]);
    assert_eq!(killed.audit(), [""; 0]);
}

/// An open by checkpoint finds all tables, after a close and with checkpoints after a crash.
#[test]
fn checkpoints_contain_all_tables() {
    for kind in KINDS {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("store");
        let options = Options {
            residence: duramen::Residence::Persistent,
            checkpoint_bytes: 64 << 10,
            tuning: duramen::tuning::Tuning { close_checkpoint_bytes_min: 0, ..Default::default() },
            ..shm(kind)
        };
        let store = options.open(&path).unwrap();
        let tables: Vec<Table> =
            (0..4u8).map(|name| store.table([name], KINDS[name as usize % 2]).unwrap()).collect();
        let mut model: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = vec![BTreeMap::new(); 4];
        let mut state = 1u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % bound
        };
        for round in 0..6 {
            for _ in 0..1500 {
                let at = random(4) as usize;
                let key = random(900).to_be_bytes();
                if random(4) == 0 {
                    assert_eq!(tables[at].delete(key).unwrap(), model[at].remove(&key[..]).is_some());
                } else {
                    let value = vec![random(256) as u8; random(200) as usize];
                    tables[at].put(key, &value).unwrap();
                    model[at].insert(key.to_vec(), value);
                }
                if random(300) == 0 {
                    tables[at].clear().unwrap();
                    model[at].clear();
                }
            }
            let before = store.stats().checkpoints;
            // A checkpoint waits for the dead.
            maintained(&store, || store.stats().checkpoints > before);
            let killed = after_kill(&path, &options);
            for (at, model) in model.iter().enumerate() {
                assert_eq!(
                    &all(&killed.find_table([at as u8]).unwrap().unwrap()),
                    model,
                    "table {at}, round {round}"
                );
            }
            assert_eq!(killed.audit(), [""; 0]);
            assert!(
                round == 0 || killed.recovery().checkpointed > 0,
                "round {round}: {:?}",
                killed.recovery()
            );
        }
        assert_eq!(store.audit(), [""; 0]);
        drop(tables);
        store.close().unwrap();
        let store = options.open(&path).unwrap();
        assert!(store.recovery().checkpointed > 0);
        for (at, model) in model.iter().enumerate() {
            assert_eq!(&all(&store.find_table([at as u8]).unwrap().unwrap()), model, "table {at}");
        }
        assert_eq!(store.audit(), [""; 0]);
    }
}

/// Threads write, read and iterate while another clears, swaps and drops.
#[test]
fn tables_are_cleared_during_concurrent_use() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options { background: true, ..shm(IndexKind::Hash) };
    let store = options.open(dir.path().join("store")).unwrap();
    let tables: Vec<Table> = (0..3u8).map(|name| store.table([name], IndexKind::Ordered).unwrap()).collect();
    std::thread::scope(|scope| {
        let ends = std::time::Instant::now() + std::time::Duration::from_millis(1500);
        for thread in 0..2u64 {
            let (store, tables) = (&store, &tables);
            scope.spawn(move || {
                let mut writer = store.writer().unwrap();
                let mut key = thread;
                while std::time::Instant::now() < ends {
                    for table in tables {
                        key += 2;
                        writer.group();
                        writer.table(table).put(key.to_be_bytes(), key.to_be_bytes()).unwrap();
                        let _ = writer.table(table).delete(key.wrapping_sub(40).to_be_bytes()).unwrap();
                        writer.flush_group().unwrap();
                        for value in table.range(..).unwrap().take(50) {
                            let value = value.unwrap();
                            assert_eq!(value.key(), &*value);
                        }
                    }
                }
            });
        }
        while std::time::Instant::now() < ends {
            for table in &tables {
                table.clear().unwrap();
            }
            store.swap_tables(&[0], &[1]).unwrap();
        }
    });
    for table in &tables {
        table.clear().unwrap();
    }
    assert!(maintained(&store, || store.stats().live_bytes <= 100_000), "{:?}", store.stats());
    assert_eq!(store.audit(), [""; 0]);
}

/// Space that is kept for deletes stays with them, however many tables are requested.
#[test]
fn a_full_store_that_is_asked_for_tables_still_deletes_clears_and_drops() {
    for medium in [MediumKind::Shm, MediumKind::File, MediumKind::Volatile] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = Options { medium, len_max: 1 << 20, ..options(IndexKind::Hash) };
        let store = options.open(dir.path().join("store")).unwrap();
        let table = store.table(b"a", IndexKind::Hash).unwrap();
        let mut keys = 0u32;
        while table.put(keys.to_be_bytes(), [7; 300]).is_ok() {
            store.put(keys.to_be_bytes(), [7; 300]).unwrap_or_default();
            keys += 1;
        }
        let mut made = Vec::new();
        let full = loop {
            let name = format!("a table with a name that is rather long, number {}", made.len());
            match store.table(name.as_bytes(), IndexKind::Ordered) {
                Ok(_) => made.push(name),
                Err(error) => break error,
            }
            assert!(made.len() < 20_000, "it is never full");
        };
        assert_eq!(full.kind(), ErrorKind::OutOfSpace, "{full}");
        for key in 0..keys.min(200) {
            store.delete(key.to_be_bytes()).unwrap_or_else(|error| panic!("{medium:?}: {error}"));
            table.delete(key.to_be_bytes()).unwrap_or_else(|error| panic!("{medium:?}: {error}"));
        }
        for name in &made {
            assert!(store.drop_table(name.as_bytes()).unwrap_or_else(|error| panic!("{medium:?}: {error}")));
        }
        table.clear().unwrap();
        table.put(b"again", [7; 300]).unwrap();
        assert_eq!(store.audit(), [""; 0]);
    }
}

/// Values of a cleared table are pinned during many writes, and stay unchanged; each holds back one block.
#[test]
fn pinned_values_outlive_their_table() {
    for kind in KINDS {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("store");
        let options = Options { len_max: 2 << 20, ..shm(kind) };
        let store = options.open(&path).unwrap();
        let table = store.table(b"t", kind).unwrap();
        for round in 0..6u8 {
            for key in 0..400u32 {
                table.put(key.to_be_bytes(), [round; 200]).unwrap();
            }
            for key in 0..40u32 {
                assert!(table.delete(key.to_be_bytes()).unwrap());
            }
            let kept: Vec<_> =
                (100..400u32).step_by(60).map(|key| table.get(key.to_be_bytes()).unwrap().unwrap()).collect();
            let mut range = (kind == IndexKind::Ordered).then(|| table.range(..).unwrap());
            assert!(range.as_mut().is_none_or(|range| range.next().unwrap().is_ok()));
            if round % 2 == 0 {
                table.clear().unwrap();
            } else {
                assert!(store.drop_table(b"t").unwrap());
                store.table(b"t", kind).unwrap();
            }
            for key in 0..6000u32 {
                store.put((key % 300).to_be_bytes(), [9; 300]).unwrap();
                if key % 500 == 0 {
                    store.maintain().unwrap();
                }
            }
            assert!(range.is_none_or(|mut range| range.next().is_none() && range.next_back().is_none()));
            assert!(kept.iter().all(|value| **value == [round; 200]));
            assert_eq!(store.audit(), [""; 0], "round {round}");
            let killed = after_kill(&path, &options);
            assert_eq!(killed.audit(), [""; 0], "round {round}");
            assert_eq!(killed.find_table(b"t").unwrap().unwrap().len(), 0);
            drop(killed);
            drop(kept);
            store.maintain().unwrap();
            assert_eq!(store.audit(), [""; 0], "round {round}, given back");
            if round % 2 == 1 {
                break;
            }
        }
    }
}

/// Every read of a target, by these reads: of the keys a, b and c with values 1, 2 and 3.
fn check_reads(reads: duramen::Reads<'_>) {
    let mut into = b"before".to_vec();
    assert_eq!(reads.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(reads.get_stamped("b").unwrap().1.is_some() && reads.get_stamped("x").unwrap().1.is_none());
    assert!(reads.get_into("c", &mut into).unwrap() && into == b"3");
    assert!(!reads.get_into("x", &mut into).unwrap() && into.is_empty());
    assert!(reads.contains("a").unwrap() && !reads.contains("x").unwrap());
    check_info(reads, &["a", "b", "c", "x"]);
    reads.prefetch(&["a", "x"]);
    let many = reads.get_many(&["c", "x", "a"]).unwrap();
    assert_eq!(
        many.iter().map(|value| value.as_deref()).collect::<Vec<_>>(),
        [Some(&b"3"[..]), None, Some(b"1")]
    );
    let mut visited = BTreeMap::new();
    reads.for_each(|value| assert!(visited.insert(value.key().to_vec(), value.to_vec()).is_none())).unwrap();
    assert_eq!(visited.into_values().collect::<Vec<_>>(), [b"1", b"2", b"3"]);
    assert_eq!(
        reads.iter().map(|entry| entry.unwrap().0).collect::<std::collections::BTreeSet<_>>().len(),
        3
    );
    assert!(reads.scan(reads.cursor_at(u64::MAX / 2).unwrap(), 10, &mut |_| ()).is_ok());
    assert_eq!(reads.pick(7, &mut |value| value.key() == b"b").unwrap().unwrap().to_vec(), b"2");
    assert_eq!((reads.len(), reads.is_empty()), (3, false));
}

/// What is told of keys is what their values say of themselves.
fn check_info(reads: duramen::Reads<'_>, keys: &[&str]) {
    for key in keys {
        let value = reads.get(key).unwrap();
        let own = value.map(|value| (value.meta(), value.len(), value.footprint()));
        let info = reads.info(key).unwrap();
        assert_eq!(info.map(|info| (info.meta, info.bytes, info.footprint)), own, "{key}");
    }
}

#[test]
fn what_is_known_of_a_value_without_reading_it_is_what_it_says_of_itself() {
    let directory = tempfile::tempdir().unwrap();
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let store = options(index).open(directory.path().join(format!("{index:?}"))).unwrap();
        let elements = store.new_collection(duramen::ElementOrder::ByKey);
        let root = Meta { collection: Some(elements.id()), tag: 3, ..Meta::default() };
        let until = |expires_at| Meta { expires_at: Some(expires_at), tag: 7, ..Meta::default() };
        let keys = ["plain", "long", "cell", "root", "later", "expired", "deleted", "absent"];
        let mut writer = store.writer().unwrap();
        writer.group();
        writer.put("plain", "value").unwrap();
        writer.put("long", [1; 5000]).unwrap();
        writer.put_with("cell", "12345678", Meta::UPDATABLE).unwrap();
        writer.put_with("root", "of elements", root).unwrap();
        writer.put_with("later", "lives", until(u64::MAX)).unwrap();
        writer.put_with("expired", "dead", until(1)).unwrap();
        writer.put("deleted", "dead").unwrap();
        assert!(writer.delete("deleted").unwrap());
        check_info(writer.reads(), &keys);
        writer.flush_group().unwrap();
        check_info(store.reads(), &keys);
        assert_ne!(writer.update(b"cell", 2, b"xy").unwrap(), Update::Absent);
        check_info(store.reads(), &keys);
        let there: Vec<&str> = keys.into_iter().filter(|key| store.contains(key).unwrap()).collect();
        assert_eq!(there, ["plain", "long", "cell", "root", "later"]);
        assert_eq!(store.info("root").unwrap().unwrap().meta.collection, Some(elements.id()));
    }
}

#[test]
fn a_store_a_table_and_a_collection_have_the_same_reads_and_writes_also_in_a_group() {
    let directory = tempfile::tempdir().unwrap();
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let store = options(index).open(directory.path().join(format!("{index:?}"))).unwrap();
        let table = store.table("named", index).unwrap();
        let elements = store.new_collection(duramen::ElementOrder::ByKey);
        let mut writer = store.writer().unwrap();
        let root = Meta { collection: Some(elements.id()), ..Meta::default() };
        writer.write(&table).put_with("root", [], root).unwrap();
        writer.group();
        for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
            writer.write(&store).put(key, value).unwrap();
            writer.write(&elements).put(key, value).unwrap();
        }
        for (key, value) in [("a", "1"), ("b", "0"), ("c", "3"), ("d", "4")] {
            writer.write(&table).put(key, value).unwrap();
        }
        assert!(writer.write(&table).delete("d").unwrap() && writer.write(&table).delete("root").unwrap());
        assert_eq!(writer.write(&table).update(b"b", 0, b"2").unwrap(), Update::NewVersion);
        check_reads(writer.reads());
        check_reads(writer.read(&store));
        check_reads(writer.read(&table));
        writer.flush_group().unwrap();
        check_reads(store.reads());
        check_reads(table.reads());
        assert_eq!(table.reads().each(&mut |_| true).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(
            elements.reads().get("a").unwrap_err().kind(),
            ErrorKind::NotFound,
            "its root was deleted"
        );

        let elements = store.new_collection(duramen::ElementOrder::ByKey);
        let root = Meta { collection: Some(elements.id()), ..Meta::default() };
        writer.put_with("root", [], root).unwrap();
        writer.group();
        for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
            assert!(
                writer
                    .write(&elements)
                    .replace(key.as_bytes(), Some((value.as_bytes(), Meta::default())))
                    .unwrap()
                    .is_none()
            );
        }
        check_reads(writer.read(&elements));
        assert_eq!(writer.read(&elements).rank(b"c").unwrap(), Some(2));
        writer.flush_group().unwrap();
        check_reads(elements.reads());
        assert_eq!(elements.nth(1).unwrap().unwrap().to_vec(), b"2");
        if index == IndexKind::Ordered {
            let keys = |reads: duramen::Reads<'_>| {
                [reads.first(), reads.last()].map(|v| v.unwrap().unwrap().key().to_vec())
            };
            assert_eq!(keys(table.reads()), [b"a", b"c"]);
            assert_eq!(table.prefix("b").unwrap().count(), 1);
        }
    }
}
