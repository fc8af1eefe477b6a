//! A collection's index as pages of an index checkpoint, and back.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 1 | what follows: 1 pages of the map, 2 elements in no page of it, 3 entries of the tree, 4 entries that it may lack |
//! | 1 | 7 | zero |
//! | 8 | | of 1, for each page: buckets, as a power of two (1), depth (1), known bits (1), zero (5), and its words |
//! | | | of 2, for each element: position (8), how many bits of it are known (8), slot (8) |
//! | | | of 3 and 4, for each entry: order (8), slot (8) |
//!
//! All of 1 come first, in the order of their positions, then 2, then 3, in the order of the tree, then 4.
//!
//! One page is written at a time, and others change the index between two pages. So the pages are not of one moment.
//! The following holds for records in blocks that the checkpoint keeps (`checkpoint::plan` of the engine):
//!
//! * An element that stays from the beginning to the end is in the map and in the tree. An element's position never
//!   changes, and pages of the map are not merged meanwhile. The walk of the tree resumes after the last entry, by its
//!   order and key.
//! * The map has all elements of the tree, since it is written first, and no record in a kept block becomes an element
//!   meanwhile. There is one exception: an element that a transaction superseded becomes an element again if the
//!   transaction does not count. The map has that element, in place of the transaction's record; the tree lacks it.
//! * An element that was removed from the tree while it was written may or may not be in the map, and in the tree. A
//!   record superseded it. Either that counts, and recovery reads it; or not, since a transaction wrote it, and then
//!   the old one is an element after all. So all removed elements are written after the tree, with those that
//!   transactions had superseded when the map was written. Recovery adds those of them that are in the map then.
//!
//! If nothing was changed meanwhile, all of this is of one moment and needs no correction. The index is read as a whole
//! when it is first used. Otherwise recovery corrects it ([`super::merge`]).

use super::indexes::{Indexes, compared};
use super::map::{Head, Loading, Map};
use super::tree::Tree;
use crate::attached::{Attached, KeepFilter};
use crate::{KeyBytes, Loaded, PagesOf, Slot};
use duramen_log::Result;
use duramen_log::format::u64_at;
use duramen_log::sync::{Mutex, lock, rank};
use std::cmp::Ordering;

const HEAD_BYTES: usize = 8;
const MAP_HEAD_BYTES: usize = 8;
const OVERFLOW_BYTES: usize = 24;
const ENTRY_BYTES: usize = 16;
/// A page is emitted when it has this many bytes.
const PAGE_BYTES: usize = if cfg!(test) { 2 << 10 } else { 64 << 10 };

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Holds {
    Pages = 1,
    Overflow,
    Entries,
    Lacking,
}

/// The kind of a page's contents, and their bytes; `None`: it is not a page.
fn parts(page: &[u8]) -> Option<(Holds, &[u8])> {
    let (head, body) = page.split_at_checked(HEAD_BYTES)?;
    let holds = match u64_at(head, 0) {
        1 => Holds::Pages,
        2 => Holds::Overflow,
        3 => Holds::Entries,
        4 => Holds::Lacking,
        _ => return None,
    };
    Some((holds, body))
}

/// The first page of a map in these bytes, and the bytes after it.
fn next_page(bytes: &[u8]) -> Option<(Head, &[u8], &[u8])> {
    let (head, overflow) = bytes.split_at_checked(MAP_HEAD_BYTES)?;
    let head = Head { bits: head[0].into(), depth: head[1].into(), known: head[2].into() };
    if !head.is_right() {
        return None;
    }
    let (words, overflow) = overflow.split_at_checked(head.words() * 8)?;
    Some((head, words, overflow))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64_at(word, 0))
}

/// Whether these bytes are a page.
pub fn is_page(page: &[u8]) -> bool {
    let Some((holds, mut body)) = parts(page) else { return false };
    match holds {
        Holds::Pages => {
            while let Some((_, _, overflow)) = next_page(body) {
                body = overflow;
            }
            body.is_empty()
        }
        Holds::Overflow => body.len().is_multiple_of(OVERFLOW_BYTES),
        Holds::Entries | Holds::Lacking => body.len().is_multiple_of(ENTRY_BYTES),
    }
}

/// All slots of the map in a page.
pub fn slots(page: &[u8]) -> impl Iterator<Item = Slot> {
    let (holds, mut body) = parts(page).unwrap_or((Holds::Lacking, &[]));
    let (mut pages, mut overflow): (Vec<&[u8]>, &[u8]) = (Vec::new(), &[]);
    match holds {
        Holds::Pages => {
            while let Some((_, bytes, behind)) = next_page(body) {
                pages.push(bytes);
                body = behind;
            }
        }
        Holds::Overflow => overflow = body,
        Holds::Entries | Holds::Lacking => {}
    }
    let in_pages = pages.into_iter().flat_map(words).map(Slot::of_word);
    let in_rest = overflow.chunks_exact(OVERFLOW_BYTES).map(|overflow| Slot(u64_at(overflow, 16)));
    in_pages.filter(|slot| !slot.is_empty()).chain(in_rest)
}

/// Checks that these pages, each of which is one, are together an index; `Err` gives the reason.
pub(super) fn check(pages: &PagesOf<'_>, has_tree: bool) -> std::result::Result<(), String> {
    let (mut next, mut before) = (Some(0), Holds::Pages);
    let mut has_pages = false;
    for &(first, page) in pages {
        let (holds, mut body) = parts(page).ok_or("a page of it is not one of a collection")?;
        if holds < before || holds >= Holds::Entries && !has_tree {
            return Err("pages of a collection are not in order".into());
        }
        before = holds;
        if holds == Holds::Pages && next.is_some_and(|next| next != first) {
            return Err("a page of a collection is at the wrong place".into());
        }
        while holds == Holds::Pages
            && let Some((head, _, overflow)) = next_page(body)
        {
            let here = next.ok_or("a collection has a page after its last")?;
            next = head.behind(here).map_err(|()| "a page of a collection is at the wrong place")?;
            has_pages = true;
            body = overflow;
        }
    }
    if has_pages && next.is_some() { Err("pages of a collection are missing".into()) } else { Ok(()) }
}

/// Gathers words into pages.
struct Writer<'e> {
    emit: &'e mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    page: Vec<u8>,
    /// Where the contents of the page begin.
    first: u64,
}

/// Why a dump ends early.
enum Stop {
    NoRoom,
    Failed(duramen_log::Error),
}

impl Writer<'_> {
    /// Appends words that belong together.
    fn put(&mut self, holds: Holds, first: u64, words: &[&[u64]]) {
        if self.page.is_empty() {
            self.page.extend_from_slice(&(holds as u64).to_le_bytes());
            self.first = first;
        }
        for word in words.iter().copied().flatten() {
            self.page.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn is_full(&self) -> bool {
        self.page.len() >= PAGE_BYTES
    }

    fn end(&mut self) -> std::result::Result<(), Stop> {
        let is_taken = self.page.is_empty() || (self.emit)(self.first, &self.page).map_err(Stop::Failed)?;
        self.page.clear();
        if is_taken { Ok(()) } else { Err(Stop::NoRoom) }
    }
}

/// A dump of an index. It holds the index's lock for one page at a time.
struct Dump<'d, K> {
    indexes: &'d Mutex<Indexes, { rank::INDEXES }>,
    keys: &'d K,
    /// The slot that a pending slot becomes once it is finalized. It points elsewhere if a transaction wrote it.
    durable_slot: &'d dyn Fn(Slot) -> Slot,
    writer: Writer<'d>,
    loaded: Loaded,
}

/// Hands the pages of an index to `emit`, until it returns false. Returns the count of their contents, if all were
/// emitted.
pub(super) fn dump(
    indexes: &Mutex<Indexes, { rank::INDEXES }>,
    keys: &impl KeyBytes,
    durable_slot: &dyn Fn(Slot) -> Slot,
    emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
) -> Result<Option<Loaded>> {
    let (changes, in_rest) = lock(indexes).begin_dump();
    let writer = Writer { emit, page: Vec::with_capacity(PAGE_BYTES * 2), first: 0 };
    let mut dump = Dump { indexes, keys, durable_slot, writer, loaded: Loaded::default() };
    let mut done = dump.pages().and_then(|()| dump.overflow(in_rest)).and_then(|()| dump.entries());
    let (changed, lacking) = lock(indexes).end_dump(changes);
    if done.is_ok() {
        dump.loaded.changed |= changed;
        done = dump.lacking(lacking);
    }
    match done {
        Ok(()) => Ok(Some(dump.loaded)),
        Err(Stop::NoRoom) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

impl<K: KeyBytes> Dump<'_, K> {
    fn pages(&mut self) -> std::result::Result<(), Stop> {
        let mut next = Some(0);
        let mut words = Vec::new();
        while let Some(first) = next {
            let mut indexes = lock(self.indexes);
            let mut at = first;
            loop {
                let mut put_back = Vec::new();
                let mut to_durable =
                    |slot| to_durable(slot, self.durable_slot, &mut self.loaded, &mut put_back);
                let Some((head, behind)) = indexes.map.dump_page(at, &mut words, &mut to_durable) else {
                    next = None;
                    break;
                };
                self.loaded.changed |= indexes.lacks(&put_back, self.keys);
                let head = [head.bits, head.depth, head.known].map(|byte| byte as u8);
                let head = u64::from_le_bytes([head[0], head[1], head[2], 0, 0, 0, 0, 0]);
                self.writer.put(Holds::Pages, at, &[&[head], &words]);
                next = behind;
                match behind {
                    Some(behind) if !self.writer.is_full() => at = behind,
                    _ => break,
                }
            }
            drop(indexes);
            self.writer.end()?;
        }
        Ok(())
    }

    /// `before`: the number of such elements when the first page was written.
    fn overflow(&mut self, before: usize) -> std::result::Result<(), Stop> {
        let mut indexes = lock(self.indexes);
        if indexes.map.rest_len() > before {
            // The new one may have been in a page when that was written.
            return Err(Stop::NoRoom);
        }
        let mut put_back = Vec::new();
        for (position, known, slot) in indexes.map.dump_rest() {
            let slot = to_durable(slot, self.durable_slot, &mut self.loaded, &mut put_back);
            if !slot.is_empty() {
                self.writer.put(Holds::Overflow, 0, &[&[position, known.into(), slot.0]]);
            }
        }
        self.loaded.changed |= indexes.lacks(&put_back, self.keys);
        drop(indexes);
        self.writer.end()
    }

    fn entries(&mut self) -> std::result::Result<(), Stop> {
        let mut last: Option<(u64, Vec<u8>)> = None;
        loop {
            let indexes = lock(self.indexes);
            let Some(tree) = &indexes.tree else { return Ok(()) };
            let mut cursor = match &last {
                None => tree.cursor_at(0),
                Some((order, key)) => {
                    let mut compare = compared(key, self.keys);
                    tree.seek(*order, |slot| compare(slot).then(Ordering::Less))
                }
            };
            last = None;
            while let Some((order, slot)) = cursor.forward() {
                // Its marks date from when it was entered here.
                self.writer.put(Holds::Entries, order, &[&[order, Slot::new(slot.location()).0]]);
                if self.writer.is_full()
                    && let Some(key) = self.keys.key_at(slot.location())
                {
                    last = Some((order, key.to_vec()));
                    break;
                }
            }
            drop(indexes);
            self.writer.end()?;
            if last.is_none() {
                return Ok(());
            }
        }
    }

    fn lacking(&mut self, lacking: Vec<(u64, Slot)>) -> std::result::Result<(), Stop> {
        for (order, slot) in lacking {
            self.writer.put(Holds::Lacking, order, &[&[order, Slot::new(slot.location()).0]]);
            if self.writer.is_full() {
                self.writer.end()?;
            }
        }
        self.writer.end()
    }
}

/// The slot to write in place of `slot`, which is counted. A slot that points back to an older record is noted.
fn to_durable(
    slot: Slot,
    durable_slot: &dyn Fn(Slot) -> Slot,
    loaded: &mut Loaded,
    put_back: &mut Vec<Slot>,
) -> Slot {
    let mut now = slot;
    if slot.is_pending() {
        now = durable_slot(slot).with_pending(false);
        if now.location() != slot.location() {
            put_back.push(now);
        }
    }
    if !now.is_empty() {
        loaded.count(now);
    }
    now
}

/// The tree's part of a checkpoint's pages.
pub(super) struct OfTree<'p> {
    entries: Vec<&'p [u8]>,
    lacking: Vec<&'p [u8]>,
    counts: Option<&'p KeepFilter>,
    attached: &'p Attached,
}

impl<'p> OfTree<'p> {
    /// The entries that `counts` keeps, in the order of the tree.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, Slot)> {
        self.counted(&self.entries)
    }

    /// The entries that the tree may lack. It must have those that are in the map.
    pub(super) fn lacking(&self) -> impl Iterator<Item = (u64, Slot)> {
        self.counted(&self.lacking)
    }

    fn counted(&self, pages: &[&'p [u8]]) -> impl Iterator<Item = (u64, Slot)> {
        let keep = |slot| self.counts.and_then(|counts| counts.keep(slot));
        let entries = pages.iter().flat_map(|body| body.chunks_exact(ENTRY_BYTES));
        // Marks are in the map.
        entries.filter_map(move |entry| {
            Some((u64_at(entry, 0), Slot::new(keep(Slot(u64_at(entry, 8)))?.location())))
        })
    }

    /// The pages are no longer needed.
    pub(super) fn done(self) {
        self.attached.firsts().for_each(|_| self.attached.done());
    }
}

/// Fills an empty map from the pages that its index is attached to.
pub(super) fn read_map<'p>(map: &mut Map, attached: &'p Attached) -> OfTree<'p> {
    let mut loading = Loading::default();
    let mut of_tree = OfTree { entries: Vec::new(), lacking: Vec::new(), counts: None, attached };
    for number in 0..attached.firsts().count() {
        let Some((page, counts)) = attached.claim(number) else { continue };
        of_tree.counts = Some(counts);
        match parts(page) {
            Some((Holds::Pages, mut body)) => {
                while let Some((head, bytes, overflow)) = next_page(body) {
                    map.load(&mut loading, head, words(bytes), |slot| counts.keep(slot));
                    body = overflow;
                }
            }
            Some((Holds::Overflow, body)) => {
                for overflow in body.chunks_exact(OVERFLOW_BYTES) {
                    if let Some(slot) = counts.keep(Slot(u64_at(overflow, 16))) {
                        map.load_rest(u64_at(overflow, 0), u64_at(overflow, 8), slot);
                    }
                }
            }
            Some((Holds::Entries, body)) => of_tree.entries.push(body),
            Some((Holds::Lacking, body)) => of_tree.lacking.push(body),
            // The pages were checked before.
            None => {}
        }
    }
    map.loaded(&loading);
    of_tree
}

/// Fills an empty index from the pages that it is attached to, which are of one moment.
pub(super) fn read(map: &mut Map, tree: Option<&mut Tree>, attached: &Attached) {
    let of_tree = read_map(map, attached);
    if let Some(tree) = tree {
        tree.fill(of_tree.entries().count() as u64, of_tree.entries());
        debug_assert_eq!(tree.len(), map.len(), "the tree must contain every slot that is no tombstone");
    }
    of_tree.done();
}
