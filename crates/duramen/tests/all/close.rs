//! The end of a store by its last handle.

use duramen::{Durability, ErrorKind, IndexKind, MediumKind, Options, Store};

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
            store.put(&[key], b"1").unwrap();
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
fn what_compaction_copied_since_the_commit_does_not_stop_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = Options { background: false, len_max: 8 << 20, ..options(Durability::Manual) };
    let store = options.open(&path).unwrap();
    for round in 0..40u32 {
        for key in 0..100u32 {
            // Some stay, so that there is something to be copied.
            let name = [key, round % (1 + key % 7)].map(u32::to_le_bytes).concat();
            store.put(&name, &[7; 2_000]).unwrap();
        }
        store.commit().unwrap();
    }
    for _ in 0..200 {
        store.maintain().unwrap();
    }
    store.close().unwrap();
}

#[test]
fn other_durabilities_close_with_what_was_written() {
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
