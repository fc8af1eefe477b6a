//! A collection's index as pages of an index image, and back.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 1 | what follows: 1 pages of the map, 2 elements in no page of it, 3 entries of the tree |
//! | 1 | 7 | zero |
//! | 8 | | of 1, for each page: buckets, as a power of two (1), depth (1), known bits (1), zero (5), and its words |
//! | | | of 2, for each element: position (8), how many bits of it are known (8), slot (8) |
//! | | | of 3, for each entry: order (8), slot (8) |
//!
//! All of 1 come first, in the order of their positions, then 2, then 3, in the order of the tree. Only a clean close writes them: map and
//! tree are then of one moment. The index is read as a whole when it is first used.

use super::map::{Head, Loading, Map};
use super::tree::Tree;
use crate::Result;
use crate::format::u64_at;
use crate::index::attached::Attached;
use crate::index::{Loaded, PagesOf, Slot};

const HEAD_BYTES: usize = 8;
const MAP_HEAD_BYTES: usize = 8;
const REST_BYTES: usize = 24;
const ENTRY_BYTES: usize = 16;
/// A page is handed out when it has so much.
const PAGE_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Holds {
    Pages = 1,
    Rest,
    Entries,
}

/// What a page holds, and where; `None`: it is none.
fn parts(page: &[u8]) -> Option<(Holds, &[u8])> {
    let (head, body) = page.split_at_checked(HEAD_BYTES)?;
    let holds = match u64_at(head, 0) {
        1 => Holds::Pages,
        2 => Holds::Rest,
        3 => Holds::Entries,
        _ => return None,
    };
    Some((holds, body))
}

/// The first page of a map in these bytes, and what follows it.
fn next_page(bytes: &[u8]) -> Option<(Head, &[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(MAP_HEAD_BYTES)?;
    let head = Head { bits: head[0].into(), depth: head[1].into(), known: head[2].into() };
    if !head.is_right() {
        return None;
    }
    let (words, rest) = rest.split_at_checked(head.words() * 8)?;
    Some((head, words, rest))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64_at(word, 0))
}

/// Whether these bytes are a page.
pub(crate) fn is_page(page: &[u8]) -> bool {
    let Some((holds, mut body)) = parts(page) else { return false };
    match holds {
        Holds::Pages => {
            while let Some((_, _, rest)) = next_page(body) {
                body = rest;
            }
            body.is_empty()
        }
        Holds::Rest => body.len().is_multiple_of(REST_BYTES),
        Holds::Entries => body.len().is_multiple_of(ENTRY_BYTES),
    }
}

/// Whether these pages, of which each is one, are an index together; `Err` says why they are not.
pub(super) fn check(pages: &PagesOf<'_>, has_tree: bool) -> std::result::Result<(), String> {
    let (mut next, mut before) = (Some(0), Holds::Pages);
    let mut has_pages = false;
    for &(first, page) in pages {
        let (holds, mut body) = parts(page).ok_or("a page of it is not one of a collection")?;
        if holds < before || holds == Holds::Entries && !has_tree {
            return Err("pages of a collection are not in order".into());
        }
        before = holds;
        if holds == Holds::Pages && next.is_some_and(|next| next != first) {
            return Err("a page of a collection is not where it belongs".into());
        }
        while holds == Holds::Pages
            && let Some((head, _, rest)) = next_page(body)
        {
            let here = next.ok_or("a collection has a page behind its last")?;
            next = head.behind(here).map_err(|()| "a page of a collection is not where it belongs")?;
            has_pages = true;
            body = rest;
        }
    }
    if has_pages && next.is_some() { Err("pages of a collection are missing".into()) } else { Ok(()) }
}

/// Gathers what is handed out into pages.
struct Writer<'e> {
    emit: &'e mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    page: Vec<u8>,
    /// Where what is in the page begins.
    first: u64,
}

/// Why a dump ends early.
enum Stop {
    NoRoom,
    Failed(crate::Error),
}

impl Writer<'_> {
    /// Words that belong together follow.
    fn put(&mut self, holds: Holds, first: u64, words: &[&[u64]]) -> std::result::Result<(), Stop> {
        if self.page.len() >= PAGE_BYTES {
            self.end()?;
        }
        if self.page.is_empty() {
            self.page.extend_from_slice(&(holds as u64).to_le_bytes());
            self.first = first;
        }
        for word in words.iter().copied().flatten() {
            self.page.extend_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }

    fn end(&mut self) -> std::result::Result<(), Stop> {
        let is_taken = self.page.is_empty() || (self.emit)(self.first, &self.page).map_err(Stop::Failed)?;
        self.page.clear();
        if is_taken { Ok(()) } else { Err(Stop::NoRoom) }
    }
}

/// Hands the pages of an index to `emit`, until that says false; what was in them, if it was all. `settled` says of a slot that is
/// pending what it is once it is settled.
pub(super) fn dump(
    map: &Map,
    tree: Option<&Tree>,
    settled: &dyn Fn(Slot) -> Slot,
    emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
) -> Result<Option<Loaded>> {
    let mut writer = Writer { emit, page: Vec::with_capacity(PAGE_BYTES * 2), first: 0 };
    let mut write = || {
        let loaded = map.dump(settled, |position, head, words| {
            let head = [head.bits, head.depth, head.known].map(|byte| byte as u8);
            let head = u64::from_le_bytes([head[0], head[1], head[2], 0, 0, 0, 0, 0]);
            writer.put(Holds::Pages, position, &[&[head], words])
        })?;
        writer.end()?;
        for rest in map.dump_rest() {
            writer.put(Holds::Rest, 0, &[&rest])?;
        }
        writer.end()?;
        if let Some(tree) = tree {
            let mut cursor = tree.cursor_at(0);
            while let Some((order, slot)) = cursor.forward() {
                // Its marks are of when it came here.
                writer.put(Holds::Entries, order, &[&[order, Slot::new(slot.location()).0]])?;
            }
        }
        writer.end()?;
        Ok(loaded)
    };
    match write() {
        Ok(loaded) => Ok(loaded),
        Err(Stop::NoRoom) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Fills an index that is empty from the pages that it is attached to.
pub(super) fn read(map: &mut Map, tree: Option<&mut Tree>, attached: &Attached) {
    let mut loading = Loading::default();
    let mut entries = Vec::new();
    let count = attached.firsts().count();
    for number in 0..count {
        let Some((page, _)) = attached.claim(number) else { continue };
        match parts(page) {
            Some((Holds::Pages, body)) => load_pages(map, &mut loading, body),
            Some((Holds::Rest, body)) => body
                .chunks_exact(REST_BYTES)
                .for_each(|rest| map.load_rest([0, 8, 16].map(|at| u64_at(rest, at)))),
            Some((Holds::Entries, body)) => entries.push(body),
            // All were looked at before.
            None => {}
        }
    }
    map.loaded(&loading);
    if let Some(tree) = tree {
        fill_tree(tree, &entries);
        debug_assert_eq!(tree.len(), map.len(), "the tree has what is no tombstone");
    }
    (0..count).for_each(|_| attached.done());
}

fn load_pages(map: &mut Map, loading: &mut Loading, mut body: &[u8]) {
    while let Some((head, bytes, rest)) = next_page(body) {
        map.load(loading, head, words(bytes));
        body = rest;
    }
}

fn fill_tree(tree: &mut Tree, pages: &[&[u8]]) {
    let len = pages.iter().map(|body| (body.len() / ENTRY_BYTES) as u64).sum();
    let entries = pages.iter().flat_map(|body| body.chunks_exact(ENTRY_BYTES));
    tree.fill(len, entries.map(|entry| (u64_at(entry, 0), Slot(u64_at(entry, 8)))));
}
