//! Readers that meet a unit while it runs, is shown, or is given up. The whole engine runs, on the medium of [`super::medium`].

use super::Planted::{Bug, Relaxed};
use super::blocks::{get, open};
use super::check;
use crate::mutants::Mutant;
use crate::{Durability, Error};
use duramen_media::Granularity;
use loom::thread;

#[test]
fn reader_that_saw_one_write_of_a_unit_sees_the_other() {
    let planted =
        [Bug(Mutant::UnitShownInParts), Relaxed("log/unit.rs", "self.running.load(Acquire) == unit.0")];
    check(2, &planted, || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        store.writer().unwrap().put(b"a", b"1").unwrap();
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                let mut writer = store.writer().unwrap();
                writer
                    .unit(|unit| {
                        unit.put(b"a", b"2")?;
                        unit.put(b"b", b"2")
                    })
                    .unwrap();
            })
        };
        let a = get(&store, b"a").unwrap();
        let b = get(&store, b"b");
        assert!(a == b"1" || b.as_deref() == Some(b"2"), "a is {a:?}, then b is {b:?}");
        writer.join().unwrap();
        assert_eq!(get(&store, b"b").as_deref(), Some(&b"2"[..]));
        store.close().unwrap();
    });
}

#[test]
fn reader_beside_a_unit_that_is_given_up_sees_nothing_of_it() {
    let planted = [Bug(Mutant::PreviousNotPutBack)];
    check(2, &planted, || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        store.writer().unwrap().put(b"a", b"1").unwrap();
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                let mut writer = store.writer().unwrap();
                let given_up: crate::Result<()> = writer.unit(|unit| {
                    unit.put(b"a", b"2")?;
                    Err(Error::given_up("on purpose"))
                });
                assert!(given_up.is_err());
            })
        };
        for _ in 0..2 {
            assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
        }
        writer.join().unwrap();
        assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
        store.close().unwrap();
    });
}
