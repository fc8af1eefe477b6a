//! Growth: writers that find no space grow the store once, and each extent goes to one of them.

use crate::Planted::Bug;
use crate::blocks::{get, open_with};
use crate::check_deep;
use duramen::Durability;
use duramen_log::mutants::Mutant;
use duramen_media::Granularity;
use loom::thread;

#[test]
fn writers_share_no_extent_when_they_grow_the_store_and_both_find_room() {
    let planted = [Bug(Mutant::GrownTwice), Bug(Mutant::SpaceNotLookedForAgain)];
    check_deep(2, &planted, || {
        // 16 extents at first, and 8 more to grow by. All extents that writes may take are taken.
        let store = open_with(Granularity::CacheLine, Durability::EveryWrite, 56 << 9);
        let mut first = store.writer().unwrap();
        let mut keys = 0u8;
        while store.modelled_log().space().writable_extents() > 0 {
            first.put(&[keys], &[keys; 400]).unwrap();
            keys += 1;
        }
        let other = {
            let store = store.clone();
            thread::spawn(move || {
                let mut writer = store.writer().unwrap();
                writer.put(b"b", &[100; 400]).unwrap();
            })
        };
        let mut writer = store.writer().unwrap();
        writer.put(b"a", &[99; 400]).unwrap();
        other.join().unwrap();
        for i in 0..keys {
            assert_eq!(get(&store, &[i]).as_deref(), Some(&[i; 400][..]));
        }
        assert_eq!(get(&store, b"a").as_deref(), Some(&[99; 400][..]));
        assert_eq!(get(&store, b"b").as_deref(), Some(&[100; 400][..]));
        drop((first, writer));
        store.close().unwrap();
    });
}
