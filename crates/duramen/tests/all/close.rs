//! The end of a store by its last handle.

use duramen::{
    Batch, Collection, Durability, ElementOrder, ErrorKind, IndexKind, MediumKind, Meta, Options, Store,
    Swap, Table,
};

fn options(durability: Durability) -> Options {
    Options { durability, ..Options::default() }
}

fn keys(store: &Store) -> u64 {
    store.tables().iter().map(|table| table.keys).sum::<u64>() + store.len()
}

#[test]
fn a_close_with_durability_manual_does_not_lose_what_was_not_committed() {
    for medium in [MediumKind::Auto, MediumKind::File] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let options = Options { medium, ..options(Durability::Manual) };
        let store = options.open(&path).unwrap();
        for key in 0..3u8 {
            store.put([key], b"1").unwrap();
        }
        let refused = store.close().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("3 records written since the last commit"), "{refused}");
        let store = refused.into_store().unwrap();
        store.put(b"more", b"1").unwrap();
        store.commit().unwrap();
        store.close().unwrap();

        // Of other writers and tables, also those that are gone.
        let store = options.open(&path).unwrap();
        assert_eq!(store.len(), 4);
        store.table(b"table", IndexKind::Hash).unwrap().put(b"a", b"1").unwrap();
        store.writer().unwrap().put(b"b", b"1").unwrap();
        let refused = store.close().unwrap_err();
        assert!(refused.to_string().contains("3 records"), "a name and two values: {refused}");
        refused.into_store().unwrap().close_discarding().unwrap();

        let store = options.open(&path).unwrap();
        assert_eq!(keys(&store), 4);
        store.close().unwrap();
    }
}

#[test]
fn moves_since_the_last_commit_do_not_prevent_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = Options { background: false, len_max: 8 << 20, ..options(Durability::Manual) };
    let store = options.open(&path).unwrap();
    for round in 0..40u32 {
        for key in 0..100u32 {
            // Some stay, so that there is something to be copied.
            let name = [key, round % (1 + key % 7)].map(u32::to_le_bytes).concat();
            store.put(&name, [7; 2_000]).unwrap();
        }
        store.commit().unwrap();
    }
    for _ in 0..200 {
        store.maintain().unwrap();
    }
    store.close().unwrap();
}

#[test]
fn with_other_durabilities_a_close_keeps_all_writes() {
    for durability in [Durability::EveryWrite, Durability::Interval(std::time::Duration::from_secs(60))] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let options = Options { medium: MediumKind::File, ..options(durability) };
        let store = options.open(&path).unwrap();
        store.put(b"a", b"1").unwrap();
        store.close().unwrap();
        assert_eq!(options.open(&path).unwrap().len(), 1);
    }
}

/// The store, a table of each kind, and an element's collection.
fn with_parts(options: &Options, path: &std::path::Path) -> (Store, [Table; 2], Collection) {
    let store = options.open(path).unwrap();
    let tables = [(&b"hash"[..], IndexKind::Hash), (b"ordered", IndexKind::Ordered)].map(|(name, kind)| {
        let table = store.table(name, kind).unwrap();
        table.put(b"a", b"1").unwrap();
        table.put(b"b", b"2").unwrap();
        table
    });
    let collection = store.new_collection(ElementOrder::Unordered);
    let mut batch = Batch::new();
    let root = Meta { collection: Some(collection.id()), ..Meta::default() };
    batch.put_with(b"root", b"", root).collection(&collection).put(b"element", b"3");
    assert_eq!(store.apply(&batch).unwrap(), Swap::Done);
    (store, tables, collection)
}

#[test]
fn a_store_closes_despite_idle_handles_of_its_tables() {
    for medium in [MediumKind::Auto, MediumKind::File] {
        for durability in [Durability::EveryWrite, Durability::Interval(std::time::Duration::from_secs(60))] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store");
            let options = Options { medium, ..options(durability) };
            let (store, [hash, ordered], collection) = with_parts(&options, &path);
            let clone = hash.clone();
            let mut range = ordered.range(..).unwrap();
            assert_eq!(range.next().unwrap().unwrap().key(), b"a");
            store.close().unwrap();

            // Beside the handles, in this process.
            let again = options.open(&path).unwrap();
            assert_eq!(keys(&again), 5);
            let closed = |result: duramen::Result<()>| {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains("it was closed"), "{error}");
            };
            for table in [&hash, &ordered, &clone] {
                closed(table.get(b"a").map(|_| ()));
                closed(table.get_into(b"a", &mut Vec::new()).map(|_| ()));
                closed(table.contains(b"a").map(|_| ()));
                closed(table.info(b"a").map(|_| ()));
                closed(table.get_many(&[b"a"]).map(|_| ()));
                closed(table.scan(0, 10, &mut |_| panic!("shown")).map(|_| ()));
                closed(table.put(b"a", b"9"));
                closed(table.put(b"large", [9; 20_000]));
                closed(table.delete(b"a").map(|_| ()));
                closed(table.update(b"a", 0, b"9").map(|_| ()));
                closed(table.clear());
                let mut batch = Batch::new();
                batch.table(Some(table)).put(b"c", b"9");
                closed(table.store().apply(&batch).map(|_| ()));
                closed(table.store().put(b"c", b"9"));
                closed(table.store().get(b"root").map(|_| ()));
                closed(table.store().table(b"new", IndexKind::Hash).map(|_| ()));
                closed(table.store().drop_table(b"hash").map(|_| ()));
                closed(table.store().commit());
                closed(table.store().writer().map(|_| ()));
            }
            closed(range.next().unwrap().map(|_| ()));
            assert!(range.next().is_none());
            closed(collection.get(b"element").map(|_| ()));
            closed(collection.each(&mut |_| panic!("shown")));
            drop(range);
            drop((hash, ordered, clone, collection));

            // Neither their calls nor their end reached the store.
            assert_eq!(keys(&again), 5);
            assert_eq!(
                again.table(b"hash", IndexKind::Hash).unwrap().get(b"a").unwrap().as_deref(),
                Some(&b"1"[..])
            );
            again.close().unwrap();
            assert_eq!(keys(&options.open(&path).unwrap()), 5);
        }
    }
}

#[test]
fn a_close_is_refused_while_parts_of_the_store_are_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (store, [hash, _ordered], _collection) = with_parts(&Options::default(), &dir.path().join("store"));
    let refused = |store: Store, why: &str| {
        let refused = store.close().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains(why), "{refused}");
        refused.into_store().unwrap()
    };
    let value = hash.get(b"a").unwrap().unwrap();
    let store = refused(store, "values of its tables or collections are still pinned");
    assert_eq!(&*value, b"1");
    drop(value);
    let writer = store.writer().unwrap();
    let store = refused(store, "1 other handle");
    drop(writer);
    let mut in_scan = Some(store);
    hash.scan(0, 1, &mut |_| in_scan = Some(refused(in_scan.take().unwrap(), "close the store"))).unwrap();
    hash.put(b"a", b"4").unwrap();
    in_scan.unwrap().close().unwrap();
}

/// Handles that are not idle: each call was before the close, and is in the store, or it fails.
#[test]
fn calls_during_a_close_complete_or_fail() {
    for medium in [MediumKind::Auto, MediumKind::File] {
        for round in 0..20u64 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store");
            let options =
                Options { medium, ..options(Durability::Interval(std::time::Duration::from_secs(60))) };
            let (mut store, tables, _collection) = with_parts(&options, &path);
            let done = std::thread::scope(|scope| {
                let writers: Vec<_> = (0..3usize)
                    .map(|number| {
                        let table = &tables[number % 2];
                        scope.spawn(move || {
                            for count in 0u64.. {
                                let value = [count; 40].map(u64::to_le_bytes).concat();
                                if let Err(error) = table.put([number as u8], &value) {
                                    assert!(error.to_string().contains("it was closed"), "{error}");
                                    return count;
                                }
                            }
                            unreachable!()
                        })
                    })
                    .collect();
                std::thread::sleep(std::time::Duration::from_millis(round));
                while let Err(refused) = store.close() {
                    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
                    store = refused.into_store().unwrap();
                }
                // At once, while the writers may not know yet.
                let again = options.open(&path).unwrap();
                let done: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
                for (number, name) in [&b"hash"[..], b"ordered", b"hash"].into_iter().enumerate() {
                    let table = again.find_table(name).unwrap().unwrap();
                    let found = table.get([number as u8]).unwrap();
                    let found = found.map(|value| u64::from_le_bytes(value[..8].try_into().unwrap()));
                    assert_eq!(
                        found,
                        done[number].checked_sub(1),
                        "{medium:?}, round {round}, writer {number}"
                    );
                }
                again.close().unwrap();
                done
            });
            assert_eq!(done.len(), 3);
        }
    }
}
