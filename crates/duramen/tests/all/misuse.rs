//! Calls that would wait for their own thread: each is refused, reports where the thread took its locks, and leaves
//! them unchanged.

use duramen::{Batch, Error, ErrorKind, IndexKind, Options, Result, Store, Swap, Writer};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than anything here takes on a loaded machine.
const HANGS: Duration = Duration::from_secs(20);

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Options::default().open(dir.path().join("store")).unwrap();
    (dir, store)
}

/// Returns the result of `work`, run on a separate thread; fails when that takes too long.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    wait.recv_timeout(HANGS).unwrap_or_else(|_| panic!("it waits for itself"))
}

/// That the call was refused, and that its error names this many places of this file.
#[track_caller]
fn refused<T>(result: Result<T>, places: usize) {
    let Err(error) = result else { panic!("it was not refused") };
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let message = error.to_string();
    assert!(message.matches("tests/all/misuse.rs:").count() >= places, "{places} places in: {message}");
}

/// All is given back: others write these keys, and run alone.
fn is_free(store: &Store, keys: &'static [&'static [u8]]) {
    let store = store.clone();
    in_time(move || {
        keys.iter().for_each(|key| store.put(key, b"others").unwrap());
        let mut writer = store.writer().unwrap();
        writer.locked_all(|writer| writer.put(b"alone", b"1")).unwrap();
        writer.locked(keys.iter().copied(), |writer| writer.put(keys[0], b"locked")).unwrap();
    });
}

fn nothing(_: &mut Writer) -> Result<()> {
    Ok(())
}

#[test]
fn an_existing_table_is_opened_under_key_locks_while_another_is_created() {
    let (_dir, store) = store();
    store.table(b"known", IndexKind::Hash).unwrap();
    let (holds, held) = mpsc::channel();
    let (made, go_on) = mpsc::channel();
    let (s, keys) = (store.clone(), (0..2_000u32).map(|i| format!("table {i}")).collect::<Vec<_>>());
    let names = keys.clone();
    let holder = std::thread::spawn(move || {
        let mut writer = s.writer().unwrap();
        writer
            .locked(names.iter().map(String::as_bytes), |_| {
                holds.send(()).unwrap();
                // The maker waits for a name that is locked here, with all that it holds.
                let _ = go_on.recv_timeout(Duration::from_millis(300));
                refused(s.table(b"unknown", IndexKind::Hash), 1);
                refused(s.drop_table(b"known"), 1);
                refused(s.swap_tables(b"known", b"known"), 1);
                refused(s.table(b"known", IndexKind::Hash)?.clear(), 1);
                assert_eq!(s.tables().len(), 1);
                assert!(s.find_table(b"known")?.is_some());
                s.table(b"known", IndexKind::Hash).map(|table| table.len())
            })
            .unwrap()
    });
    held.recv().unwrap();
    let s = store.clone();
    std::thread::spawn(move || {
        keys.iter().take(3).for_each(|name| drop(s.table(name.as_bytes(), IndexKind::Hash).unwrap()));
        made.send(()).unwrap();
    });
    assert_eq!(in_time(move || holder.join().unwrap()), 0);
}

#[test]
fn keys_are_not_locked_within_a_transaction_or_twice() {
    let (_dir, store) = store();
    let s = store.clone();
    in_time(move || {
        let table = s.table(b"table", IndexKind::Hash).unwrap();
        let mut writer = s.writer().unwrap();
        writer.begin_transaction().unwrap();
        writer.in_transaction(&table).put(b"a", b"1").unwrap();
        refused(writer.locked([&b"b"[..]], nothing), 2);
        refused(writer.locked([&b"a"[..]], nothing), 2);
        refused(writer.locked_all(nothing), 2);
        refused(writer.begin_transaction(), 2);
        refused(writer.transaction(|transaction| transaction.put(b"c", b"1")), 2);
        let mut batch = Batch::new();
        batch.put(b"c", b"1");
        refused(writer.apply(&batch), 1);
        let mut other = s.writer().unwrap();
        refused(other.locked_all(nothing), 2);
        assert!(writer.has_transaction());
        writer.commit_transaction().unwrap();
        assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(writer.apply(&batch).unwrap(), Swap::Done);

        writer
            .locked([&b"a"[..]], |writer| {
                refused(writer.locked([&b"b"[..]], nothing), 2);
                refused(writer.locked_all(nothing), 2);
                refused(other.locked([&b"a"[..]], nothing), 2);
                refused(other.locked_all(nothing), 2);
                refused(other.begin_transaction(), 2);
                refused(writer.make_room(), 1);
                refused(writer.find_room(), 1);
                writer.put(b"a", b"still")
            })
            .unwrap();
        writer
            .locked_all(|writer| {
                refused(writer.locked([&b"a"[..]], nothing), 2);
                refused(writer.locked_all(nothing), 2);
                refused(other.locked_all(nothing), 2);
                writer.put(b"b", b"alone")
            })
            .unwrap();
    });
    is_free(&store, &[b"a", b"b", b"c"]);
}

#[test]
fn a_transaction_that_is_left_open_under_locks_ends_with_them() {
    let (_dir, store) = store();
    let s = store.clone();
    in_time(move || {
        let mut writer = s.writer().unwrap();
        let table = s.table(b"table", IndexKind::Hash).unwrap();
        let left = writer.locked([&b"a"[..]], |writer| {
            writer.begin_transaction()?;
            writer.in_transaction(&table).put(b"a", b"1")
        });
        refused(left, 1);
        assert!(!writer.has_transaction());
        assert!(table.is_empty());
    });
    is_free(&store, &[b"a"]);
}

#[test]
fn a_write_outside_the_own_transaction_or_locks_is_refused_without_a_wait() {
    let (_dir, store) = store();
    let s = store.clone();
    in_time(move || {
        let (mut writer, mut other) = (s.writer().unwrap(), s.writer().unwrap());
        let table = s.table(b"table", IndexKind::Hash).unwrap();
        s.put(b"a", b"0").unwrap();
        writer
            .transaction(|transaction| {
                transaction.put(b"a", b"1")?;
                refused(s.put(b"a", b"2"), 1);
                refused(s.delete(b"a"), 1);
                refused(s.update(b"a", 0, b"2"), 1);
                let mut batch = Batch::new();
                batch.put(b"a", b"2");
                refused(s.apply(&batch), 1);
                refused(other.put(b"a", b"2"), 1);
                refused(other.transaction(|transaction| transaction.put(b"a", b"2")), 1);
                s.put(b"b", b"beside")?;
                transaction.table(&table).put(b"c", b"1")?;
                refused(table.put(b"c", b"2"), 1);
                Ok(())
            })
            .unwrap();
        assert_eq!(s.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        writer
            .locked([&b"a"[..]], |writer| {
                refused(s.put(b"b", b"2"), 1);
                refused(other.put(b"b", b"2"), 1);
                refused(other.update(b"b", 0, b"2"), 1);
                refused(writer.put(b"b", b"2"), 0);
                // Two that did so might wait for each other when their transactions end.
                refused(writer.transaction(|transaction| transaction.get(b"b").map(|_| ())), 0);
                writer.transaction_unchecked(|transaction| transaction.get(b"b").map(|_| ()))?;
                writer.transaction(|transaction| transaction.get(b"a").map(|_| ()))?;
                writer.put(b"a", b"3")
            })
            .unwrap();
        writer.locked_all(|writer| s.put(b"b", b"4").and_then(|()| writer.put(b"a", b"4"))).unwrap();
    });
    is_free(&store, &[b"a", b"b", b"c"]);
}

#[test]
fn the_store_is_not_written_within_a_change_in_place() {
    let (_dir, store) = store();
    let s = store.clone();
    in_time(move || {
        let mut writer = s.writer().unwrap();
        writer.put_with(b"number", [0; 8], duramen::Meta::UPDATABLE).unwrap();
        let _ = writer
            .modify_in_place(b"number", |_, _| {
                refused(s.put(b"number", b"2"), 1);
                refused(s.put(b"other", b"2"), 1);
                refused(s.table(b"table", IndexKind::Hash), 1);
                Some((0, [1; 8]))
            })
            .unwrap();
    });
    is_free(&store, &[b"number", b"other"]);
}

#[test]
fn no_command_runs_alone_within_a_scan_of_its_thread() {
    let (_dir, store) = store();
    let s = store.clone();
    in_time(move || {
        s.put(b"a", b"1").unwrap();
        let mut seen = 0;
        s.for_each(|_| {
            seen += 1;
            let alone = s.writer().and_then(|mut writer| writer.locked_all(nothing));
            if let Err(error) = alone {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            }
        })
        .unwrap();
        assert_eq!(seen, 1);
    });
    is_free(&store, &[b"a"]);
}

#[test]
fn locks_of_two_stores_are_independent() {
    let ((_a, first), (_b, second)) = (store(), store());
    let result: Result<()> = in_time(move || {
        let (mut writer, mut other) = (first.writer()?, second.writer()?);
        writer.locked([&b"a"[..]], |writer| {
            second.table(b"table", IndexKind::Hash)?.put(b"x", b"1")?;
            other.locked([&b"b"[..]], |other| other.put(b"b", b"1"))?;
            other.locked_all(|other| other.put(b"c", b"1"))?;
            other.transaction(|transaction| transaction.put(b"d", b"1"))?;
            second.put(b"e", b"1")?;
            writer.put(b"a", b"1")
        })?;
        assert_eq!((first.len(), second.len()), (1, 4));
        Ok::<_, Error>(())
    });
    result.unwrap();
}
