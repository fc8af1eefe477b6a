//! Roots: how they refer to a collection and keep it alive, and how it is removed without them.

use crate::collections::{after_kill, make, options, root};
use duramen::{
    Batch, Collection, ElementOrder, ErrorKind, IndexKind, Meta, Options, Residence, Store, Swap,
    tuning::Tuning,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn is_gone<T>(done: duramen::Result<T>) -> bool {
    done.err().is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

fn lives(store: &Store, collection: &Collection) -> bool {
    !is_gone(store.collection(collection.id()))
}

/// Live bytes of a store that holds next to nothing: its head, and headers of blocks.
const NOTHING: u64 = 26_000;

/// Compacts until no more than `bytes` are live. Dead records wait for readers of other tests, which may be active.
fn compact_to(store: &Store, bytes: u64) {
    for _ in 0..2000 {
        store.maintain().unwrap();
        if store.stats().live_bytes <= bytes {
            return assert_eq!(store.audit(), [""; 0]);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{} bytes are live, wanted {bytes}", store.stats().live_bytes);
}

fn fill(collection: &Collection, elements: u64) {
    for at in 0..elements {
        collection.put(at.to_be_bytes(), [at as u8; 50]).unwrap();
    }
}

#[test]
fn a_handle_of_a_reclaimed_collection_neither_reads_nor_writes() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let options = Options { len_max: 1 << 20, ..options() };
    let store = options.open(&path).unwrap();
    let made = make(&store, b"k", ElementOrder::ByKey);
    fill(&made, 2000);
    assert!(store.delete(b"k").unwrap());
    compact_to(&store, NOTHING);
    // Its blocks are others' now.
    for at in 0..3000u64 {
        store.put(at.to_be_bytes(), [1; 100]).unwrap();
    }
    assert!(is_gone(made.get(7u64.to_be_bytes())));
    assert!(is_gone(made.put(7u64.to_be_bytes(), b"again")));
    assert!(is_gone(made.delete(7u64.to_be_bytes())));
    assert!(is_gone(made.scan(0, 10, &mut |_| ())));
    assert!(is_gone(made.pick(1, &mut |_| true)));
    assert!(is_gone(made.rank(&7u64.to_be_bytes())));
    assert!(is_gone(made.rank_of_order([0; 8], true)));
    assert!(is_gone(made.ranked(0, false, &mut |_| true)));
    assert_eq!(made.len(), 0);
    let mut writer = store.writer().unwrap();
    assert!(is_gone(writer.collection(&made).put(b"k", b"v")));
    let mut batch = Batch::new();
    batch.put(b"beside", b"it").collection(&made).put(b"k", b"v");
    assert!(is_gone(store.apply(&batch)));
    assert!(store.get(b"beside").unwrap().is_none());
    // Nor may anything name it again.
    assert!(is_gone(store.put_with(b"k", b"state", root(made.id()))));
    let mut batch = Batch::new();
    batch.put_with(b"k", b"state", root(made.id()));
    assert!(is_gone(store.apply(&batch)));
    assert!(store.get(b"k").unwrap().is_none());
    let killed = after_kill(&path, &options);
    assert_eq!(killed.len(), 3000);
    assert_eq!(killed.audit(), [""; 0]);
}

#[test]
fn a_collection_exists_as_long_as_any_root_refers_to_it() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let store = options().open(&path).unwrap();
    let made = make(&store, b"a", ElementOrder::Unordered);
    fill(&made, 100);
    store.put_with(b"b", b"state", root(made.id())).unwrap();
    assert!(store.delete(b"a").unwrap());
    assert!(lives(&store, &made) && lives(&after_kill(&path, &options()), &made));
    // From key to key, and once more under the same one.
    let mut batch = Batch::new();
    batch.delete(b"b").put_with(b"c", b"state", root(made.id()));
    assert_eq!(store.apply(&batch).unwrap(), Swap::Done);
    store.put_with(b"c", b"other state", root(made.id())).unwrap();
    assert_eq!(made.len(), 101);
    store.put(b"c", b"a string").unwrap();
    assert!(!lives(&store, &made) && !lives(&after_kill(&path, &options()), &made));
    // A root that is not written names nothing.
    let fresh = store.new_collection(ElementOrder::ByKey);
    let stamp = store.writer().unwrap().get_stamped(b"c").unwrap().0;
    store.put(b"c", b"another").unwrap();
    let mut batch = Batch::new();
    batch.expect(b"c", stamp).put_with(b"c", b"state", root(fresh.id()));
    assert_eq!(store.apply(&batch).unwrap(), Swap::Changed);
    store.put_with(b"c", b"state", root(fresh.id())).unwrap();
    fresh.clone().abandon();
    fill(&fresh, 10);
    assert_eq!(after_kill(&path, &options()).collection(fresh.id()).unwrap().len(), 10);
    assert!(store.delete(b"c").unwrap());
    assert!(!lives(&store, &fresh));
}

#[test]
fn an_expired_root_is_removed_once() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let now = Arc::new(AtomicU64::new(1_000_000));
    let clock = Arc::clone(&now);
    let options = Options { clock: Some(Arc::new(move || clock.load(Relaxed))), ..options() };
    for swept in [false, true] {
        let store = options.open(dir.path().join(format!("{swept}"))).unwrap();
        let made = make(&store, b"a", ElementOrder::ByValue);
        let expires = Meta { expires_at: Some(now.load(Relaxed) + 5000), ..root(made.id()) };
        store.put_with(b"b", b"state", expires).unwrap();
        now.fetch_add(10_000, Relaxed);
        if swept {
            store.maintain().unwrap();
        }
        store.put(b"b", b"a string").unwrap();
        assert!(lives(&store, &made), "{swept}");
        assert!(store.delete(b"a").unwrap());
        assert!(!lives(&store, &made), "{swept}");
        compact_to(&store, NOTHING);
    }
}

#[test]
fn collections_are_deleted_with_the_table_of_their_roots() {
    for ordered in [IndexKind::Hash, IndexKind::Ordered] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("store");
        let store = options().open(&path).unwrap();
        let tables = [b"one", b"two"].map(|name| store.table(name, ordered).unwrap());
        let make_in = |at: usize, key: &[u8]| {
            let made = store.new_collection(ElementOrder::ByKey);
            let mut batch = Batch::new();
            batch.table(Some(&tables[at])).put_with(key, b"state", root(made.id()));
            assert_eq!(store.apply(&batch).unwrap(), Swap::Done);
            fill(&made, 500);
            made
        };
        let (first, second, both) = (make_in(0, b"k"), make_in(1, b"k"), make_in(0, b"both"));
        tables[1].put_with(b"both", b"state", root(both.id())).unwrap();
        store.swap_tables(b"one", b"two").unwrap();
        assert!(lives(&store, &first) && lives(&store, &second));
        // The first one's root is in the second table now.
        tables[1].clear().unwrap();
        let killed = after_kill(&path, &options());
        assert!(!lives(&killed, &first) && lives(&killed, &second) && lives(&killed, &both));
        assert_eq!(killed.audit(), [""; 0]);
        drop(killed);
        compact_to(&store, 130_000);
        assert!(!lives(&store, &first) && lives(&store, &second) && lives(&store, &both));
        assert_eq!((second.len(), both.len()), (500, 500));
        assert!(store.drop_table(b"one").unwrap());
        let killed = after_kill(&path, &options());
        assert!(!lives(&killed, &second) && !lives(&killed, &both));
        compact_to(&store, NOTHING);
        assert!(!lives(&store, &second) && !lives(&store, &both));
    }
}

#[test]
fn a_root_of_an_empty_collection_refers_to_it_after_a_crash() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("store");
        let options = Options { index, ..options() };
        let store = options.open(&path).unwrap();
        let [never, emptied] = [b"never", b"empty"].map(|key| {
            let made = store.new_collection(ElementOrder::ByValue);
            store.put_with(key, b"state", root(made.id())).unwrap();
            made
        });
        fill(&emptied, 300);
        for at in 0..300u64 {
            assert!(emptied.delete(at.to_be_bytes()).unwrap());
        }
        let ids = [never.id(), emptied.id()];
        drop((never, emptied));
        let look = |store: &Store| {
            for id in ids {
                let found = store.collection(id).unwrap();
                assert_eq!((found.len(), found.order()), (0, ElementOrder::ByValue));
                found.put(b"k", b"v").unwrap();
                assert_eq!(found.rank(b"k").unwrap(), Some(0));
                assert!(found.delete(b"k").unwrap());
            }
            assert_eq!(store.audit(), [""; 0]);
        };
        look(&after_kill(&path, &options));
        compact_to(&store, 2 * NOTHING);
        look(&after_kill(&path, &options));
        store.close().unwrap();
        look(&options.open(&path).unwrap());
    }
}

#[test]
fn a_checkpoint_contains_the_roots_of_batches() {
    for at_close in [true, false] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("store");
        let options = Options {
            residence: if at_close { Residence::Dram } else { Residence::Persistent },
            checkpoint_bytes: 50 << 10,
            tuning: Tuning { close_checkpoint_bytes_min: 0, ..Tuning::default() },
            ..options()
        };
        let store = options.open(&path).unwrap();
        let mut all = Vec::new();
        for at in 0..200u64 {
            let made = store.new_collection(ElementOrder::ByKey);
            let mut batch = Batch::new();
            batch.put_with(at.to_be_bytes(), b"state", root(made.id()));
            assert_eq!(store.apply(&batch).unwrap(), Swap::Done);
            all.push(made);
        }
        // Its blocks are not those of the roots.
        for at in 0..100u64 {
            store.put([&at.to_be_bytes()[..], &[1; 1000]].concat(), [1; 1500]).unwrap();
            store.maintain().unwrap();
        }
        let all: Vec<_> = all
            .into_iter()
            .map(|made| {
                fill(&made, 2);
                made.id()
            })
            .collect();
        let look = |store: &Store| {
            for &id in &all {
                assert_eq!(store.collection(id).unwrap().len(), 2);
            }
            assert_eq!(store.audit(), [""; 0]);
        };
        if at_close {
            store.close().unwrap();
            look(&options.open(&path).unwrap());
        } else {
            assert!(store.stats().checkpoints > 0);
            look(&after_kill(&path, &options));
        }
    }
}
