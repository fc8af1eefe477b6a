//! A collection's index as pages of an image, and what other bytes make of it.

use super::of_map::{Hashes, Log, slot_of};
use super::of_pages::pages;
use crate::index::Slot;
use crate::index::attached::{Attached, Counts};
use crate::index::collection::image;
use crate::index::collection::map::Map;
use crate::index::collection::tree::Tree;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeSet;

type Indexes = (Map, Option<Tree>);

fn pages_of((map, tree): &Indexes) -> Vec<(u64, Vec<u8>)> {
    let mut written = Vec::new();
    let loaded = image::dump(map, tree.as_ref(), &|slot| slot.with_pending(false), &mut |first, page| {
        written.push((first, page.to_vec()));
        Ok(true)
    });
    let loaded = loaded.unwrap().unwrap();
    assert_eq!(loaded.keys, map.len());
    assert_eq!(loaded.slots, map.len() + map.tombstones());
    written
}

/// The indexes by way of an image.
pub(super) fn again(indexes: &Indexes) -> Indexes {
    let written = pages_of(indexes);
    let pages_of_image: Vec<_> = written.iter().map(|(first, page)| (*first, &page[..])).collect();
    assert!(pages_of_image.iter().all(|(_, page)| image::is_page(page)));
    image::check(&pages_of_image, indexes.1.is_some()).unwrap();
    // SAFETY: `written` outlives it, and nobody changes it.
    let attached = unsafe { Attached::new(&pages_of_image, Counts::All) };
    let (mut map, mut tree) = (Map::new(pages()), indexes.1.is_some().then(|| Tree::new(pages())));
    image::read(&mut map, tree.as_mut(), &attached);
    assert_eq!(attached.left(), 0);
    (map, tree)
}

fn of_keys(count: u64, has_tree: bool) -> Indexes {
    let log = Log { hashes: Hashes::Even, damaged: BTreeSet::new() };
    let (mut map, mut tree) = (Map::new(pages()), has_tree.then(|| Tree::new(pages())));
    for key in 0..count {
        let slot = slot_of(key, key);
        map.insert(log.hashes.hash(key), slot, &log);
        if let Some(tree) = &mut tree {
            tree.insert(key, slot, |_| Ordering::Equal);
        }
    }
    (map, tree)
}

#[test]
fn pages_that_are_not_one_index_are_refused() {
    let written = pages_of(&of_keys(40_000, true));
    let all: Vec<_> = written.iter().map(|(first, page)| (*first, &page[..])).collect();
    image::check(&all, true).unwrap();
    assert!(all.len() > 8, "{} pages", all.len());
    assert!(image::check(&all, false).unwrap_err().contains("in order"));
    assert!(image::check(&all[1..], true).unwrap_err().contains("where it belongs"));
    let maps = all.iter().filter(|(_, page)| page[0] == 1).count();
    assert!(image::check(&all[..maps - 1], true).unwrap_err().contains("missing"));
    let twice = [&all[..maps], &all[..maps]].concat();
    assert!(image::check(&twice, true).unwrap_err().contains("behind its last"));
    let back = [&all[maps..], &all[..maps]].concat();
    assert!(image::check(&back, true).unwrap_err().contains("in order"));
}

#[test]
fn a_dump_ends_where_there_is_no_room() {
    let indexes = of_keys(40_000, true);
    let all = pages_of(&indexes).len();
    for room in [0, 1, all - 1] {
        let mut taken = 0;
        let dumped = image::dump(&indexes.0, indexes.1.as_ref(), &|slot| slot, &mut |_, _| {
            taken += 1;
            Ok(taken <= room)
        });
        assert!(dumped.unwrap().is_none(), "room for {room} of {all} pages");
        assert_eq!(taken, room + 1);
    }
}

#[test]
fn a_dump_says_where_a_slot_leads_elsewhere_once_it_is_settled() {
    let (mut map, _) = of_keys(100, false);
    let (hash, slot) = (Hashes::Even.hash(7), slot_of(7, 7));
    map.set(hash, slot.with_pending(true), |other| other.location() == slot.location());
    let dump =
        |settled: &dyn Fn(Slot) -> Slot| image::dump(&map, None, settled, &mut |_, _| Ok(true)).unwrap();
    assert!(dump(&|slot| slot.with_pending(false)).is_some());
    assert!(dump(&|_| slot_of(7, 8)).is_none());
}

proptest! {
    #[test]
    fn any_bytes_are_a_page_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200), holds in 0..5u8) {
        let mut page = bytes;
        if let Some(first) = page.first_mut() {
            *first = holds;
        }
        page.iter_mut().take(8).skip(1).for_each(|byte| *byte = 0);
        if image::is_page(&page) {
            let _ = image::check(&[(0, &page)], true);
        }
    }
}
