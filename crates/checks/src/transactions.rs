//! Readers that find a transaction while it is active, becomes visible, or is aborted. The whole engine runs, on the
//! medium of [`crate::medium`].

use crate::Planted::{Bug, Relaxed};
use crate::blocks::{Store, get, open};
use crate::check_deep;
use duramen::{Batch, Durability, Error, Swap};
use duramen_log::mutants::Mutant;
use duramen_media::Granularity;
use loom::thread;

/// Runs `work` on its own thread.
fn beside(store: &Store, work: impl FnOnce(&Store) + 'static) -> thread::JoinHandle<()> {
    let store = store.clone();
    thread::spawn(move || work(&store))
}

#[test]
fn reader_that_saw_one_write_of_a_transaction_sees_the_other() {
    let planted = [
        Bug(Mutant::TransactionShownInParts),
        Relaxed("log/src/transaction.rs", "self.running.load(Acquire) == transaction.0"),
    ];
    check_deep(2, &planted, || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        store.writer().unwrap().put(b"a", b"1").unwrap();
        let writer = beside(&store, move |store| {
            let mut writer = store.writer().unwrap();
            writer
                .transaction(|transaction| {
                    transaction.put(b"a", b"2")?;
                    transaction.put(b"b", b"2")
                })
                .unwrap();
        });
        let a = get(&store, b"a").unwrap();
        let b = get(&store, b"b");
        assert!(a == b"1" || b.as_deref() == Some(b"2"), "a is {a:?}, then b is {b:?}");
        writer.join().unwrap();
        assert_eq!(get(&store, b"b").as_deref(), Some(&b"2"[..]));
        store.close().unwrap();
    });
}

#[test]
fn reader_sees_no_step_of_a_transaction_that_writes_a_key_twice() {
    check_deep(2, &[Bug(Mutant::StepOfTransactionShown)], || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        let writer = beside(&store, move |store| {
            let mut writer = store.writer().unwrap();
            writer
                .transaction(|transaction| {
                    transaction.put(b"a", b"1")?;
                    transaction.put(b"a", b"2")
                })
                .unwrap();
        });
        let seen = get(&store, b"a");
        assert!(seen.is_none() || seen.as_deref() == Some(b"2"), "{seen:?}");
        writer.join().unwrap();
        assert_eq!(get(&store, b"a").as_deref(), Some(&b"2"[..]));
        store.close().unwrap();
    });
}

#[test]
fn key_that_a_batch_deletes_is_absent_when_the_batch_is_shown() {
    check_deep(2, &[Bug(Mutant::MissedNotLookedAt)], || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        let writer = beside(&store, move |store| {
            let mut batch = Batch::new();
            batch.put(b"a", b"1").delete(b"b");
            assert_eq!(store.writer().unwrap().apply(&batch).unwrap(), Swap::Done);
        });
        store.put(b"b", b"2").unwrap();
        let is_shown = get(&store, b"a").is_some();
        writer.join().unwrap();
        // Not visible when b was there: the transaction deleted b.
        assert!(is_shown || get(&store, b"b").is_none());
        store.close().unwrap();
    });
}

#[test]
fn a_reader_sees_nothing_of_an_aborted_transaction() {
    let planted = [Bug(Mutant::PreviousNotPutBack)];
    check_deep(2, &planted, || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        store.writer().unwrap().put(b"a", b"1").unwrap();
        let writer = beside(&store, move |store| {
            let mut writer = store.writer().unwrap();
            let aborted: duramen::Result<()> = writer.transaction(|transaction| {
                transaction.put(b"a", b"2")?;
                Err(Error::aborted("on purpose"))
            });
            assert!(aborted.is_err());
        });
        for _ in 0..2 {
            assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
        }
        writer.join().unwrap();
        assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
        store.close().unwrap();
    });
}

#[test]
fn a_lock_of_keys_waits_for_a_transaction_that_writes_them() {
    let planted = [Bug(Mutant::LockedBesideActive)];
    check_deep(2, &planted, || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                store.writer().unwrap().transaction(|transaction| transaction.put(b"a", b"1")).unwrap()
            })
        };
        let mut locking = store.writer().unwrap();
        let seen = locking.locked([&b"a"[..]], |locking| {
            let seen = get(&store, b"a");
            locking.put(b"a", b"2")?;
            Ok::<_, Error>(seen)
        });
        let seen = seen.unwrap();
        writer.join().unwrap();
        // Either one came first.
        let last = get(&store, b"a").unwrap();
        assert!(if seen.is_some() { last == b"2" } else { last == b"1" }, "{seen:?}, then {last:?}");
        drop(locking);
        store.close().unwrap();
    });
}

#[test]
fn the_thread_that_closes_the_barrier_is_alone() {
    let planted = [Bug(Mutant::BarrierNotWaitedFor)];
    check_deep(2, &planted, || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        let more = |store: &Store| get(store, b"a").map_or(1, |count| count[0] + 1);
        let other = beside(&store, move |store| {
            let mut writer = store.writer().unwrap();
            writer.locked([&b"a"[..]], |writer| writer.put(b"a", &[more(&store)])).unwrap();
        });
        let mut writer = store.writer().unwrap();
        writer.locked_all(|writer| writer.put(b"a", &[more(&store)])).unwrap();
        other.join().unwrap();
        assert_eq!(get(&store, b"a").as_deref(), Some(&[2][..]));
        drop(writer);
        store.close().unwrap();
    });
}
