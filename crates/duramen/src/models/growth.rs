//! Growth: writers that find no space grow the store once, and each unit goes to one of them.

use super::Planted::Bug;
use super::blocks::{get, open_with};
use super::check;
use crate::Durability;
use crate::mutants::Mutant;
use duramen_media::Granularity;
use loom::thread;

#[test]
fn writers_share_no_unit_when_they_grow_the_store_and_both_find_room() {
    let planted = [Bug(Mutant::GrownTwice), Bug(Mutant::SpaceNotLookedForAgain)];
    check(2, &planted, || {
        // 16 units to begin with, of which writes may take 12. A record takes most of a unit: eight go to a
        // block of seven, the others to one each. 8 more units to grow by.
        let store = open_with(Granularity::CacheLine, Durability::EveryWrite, 56 << 9);
        let mut first = store.writer().unwrap();
        for i in 0..13u8 {
            first.put(&[i], &[i; 400]).unwrap();
        }
        let other = {
            let store = store.clone();
            thread::spawn(move || {
                let mut writer = store.writer().unwrap();
                writer.put(b"b", &[100; 400]).unwrap();
            })
        };
        first.put(b"a", &[99; 400]).unwrap();
        other.join().unwrap();
        for i in 0..13u8 {
            assert_eq!(get(&store, &[i]).as_deref(), Some(&[i; 400][..]));
        }
        assert_eq!(get(&store, b"a").as_deref(), Some(&[99; 400][..]));
        assert_eq!(get(&store, b"b").as_deref(), Some(&[100; 400][..]));
        drop(first);
        store.close().unwrap();
    });
}
