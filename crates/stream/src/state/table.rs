//! A table: open addressing over entries of whole words, with separate vectors for texts and for the rows of lists.

use super::pages::{
    Data, Get, Left, Numbers, PAGE_BYTES, PAGE_WORDS, Pages, Put, Reader, page_of_bytes, page_of_words,
    read_bytes, read_words, save_left, write_word,
};
use super::vector::Vector;
use crate::error::{Error, Result};
use crate::memory::MemoryLimit;

/// The fields that compiled code reads and writes, at the beginning of every [`Table`]. Addresses are the current ones.
#[derive(Debug, Default, Clone, Copy)]
#[repr(C)]
pub struct Head {
    /// Address of the first entry.
    pub entries: usize,
    /// Number of places minus one, a power of two minus one.
    pub mask: u64,
    /// Entries in use, without the one of the key that looks empty.
    pub count: u64,
    /// At this count the table grows before it takes another key.
    pub limit: u64,
    /// Address of texts.
    pub bytes: usize,
    /// Address of rows of lists.
    pub rows: usize,
    /// Addresses of the tables that belong to this one: sets of distinct values.
    pub children: usize,
    /// Whether the entry after the last place is in use: that of the key that looks empty.
    pub spare_used: u64,
    /// Address of the states of pages of entries.
    pub entry_pages: usize,
    /// Address of the states of pages of rows.
    pub row_pages: usize,
    /// Words of rows in use. The vector may have more after these, which are never read.
    pub rows_len: u64,
    /// Code may append rows up to here: the words are there, on pages that have been touched.
    pub rows_end: u64,
}

/// How entries and rows are laid out, in words of 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// Words of an entry.
    pub stride: usize,
    /// Whether the first word is the key itself, exclusive-or'd with [`Layout::EMPTY`], and not a hash.
    pub direct: bool,
    /// Words of an entry at which texts of the key begin (place, length).
    pub key_texts: Vec<usize>,
    /// The word of an entry that refers to the first row of its list; the next word refers to the last row.
    pub list: usize,
    /// Words of a row in a list, without the link.
    pub row: usize,
    /// Words of a row at which a text begins (place, length).
    pub row_texts: Vec<usize>,
    /// Layouts of the tables that belong to each table.
    pub children: Vec<Layout>,
    /// Whether changes since the last checkpoint are tracked.
    pub tracked: bool,
}

impl Layout {
    /// The key that would be stored as zero and therefore has a separate entry: one that generators of keys are
    /// unlikely to produce.
    pub const EMPTY: i64 = 0x5bd1_e995_9d2c_5680_u64 as i64;

    /// Turns on tracking of changes, in all tables that belong to each table too.
    pub fn track(&mut self) {
        self.tracked = true;
        self.children.iter_mut().for_each(Layout::track);
    }

    /// Shifting an entry's place by this many bits gives its page: no entry lies on two pages, and a page has at most
    /// [`PAGE_WORDS`], unless a single entry has more.
    pub fn page_shift(&self) -> u32 {
        (PAGE_WORDS / self.stride.max(1)).max(1).ilog2()
    }

    /// Words of a page of entries.
    fn page_words(&self) -> usize {
        self.stride << self.page_shift()
    }
}

/// A multiplier without structure: the fraction of the golden ratio.
pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes one word into a hash: the two halves of a product.
pub fn hash_word(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(MULTIPLIER);
    (product >> 64) as u64 ^ product as u64
}

/// The hash of every key begins with this.
pub fn hash_seed() -> u64 {
    0x51_7c_c1_b7_27_22_0a_95
}

/// The hash of a text.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64 ^ 0x1234_5678_9abc_def1;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        hash = hash_word(hash, word.try_into().map_or(0, u64::from_le_bytes));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    hash_word(hash, u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER)
}

/// The first place for an entry whose first word is this hash, before the mask is applied.
pub fn home(tag: u64) -> u64 {
    tag >> 1
}

/// The same for an entry whose first word is the key itself.
pub fn home_of_key(tag: u64) -> u64 {
    hash_word(0, tag)
}

/// Entries by key. `head` comes first: compiled code accesses nothing else.
#[derive(Debug, Default)]
#[repr(C)]
#[expect(clippy::vec_box, reason = "code knows the addresses of children: they must not move")]
pub struct Table {
    /// For compiled code.
    pub head: Head,
    layout: Layout,
    memory_limit: MemoryLimit,
    entries: Vector<u64>,
    bytes: Vector<u8>,
    rows: Vector<u64>,
    children: Vec<Box<Table>>,
    addresses: Vec<usize>,
    entry_pages: Pages,
    row_pages: Pages,
    byte_pages: Pages,
    /// Vectors that were replaced before they were saved.
    left: Vec<Left>,
    /// Texts replaced by a longer vector, which may still be read.
    retired: Vec<Vector<u8>>,
}

/// Places for entries in a new table.
const PLACES: usize = 64;

impl Table {
    /// An empty table.
    pub fn new(layout: &Layout, memory_limit: &MemoryLimit) -> Box<Table> {
        let pages = || Pages::new(layout.tracked, 0);
        let mut table = Box::new(Table {
            layout: layout.clone(),
            memory_limit: memory_limit.clone(),
            bytes: Vector::new(memory_limit),
            rows: Vector::new(memory_limit),
            row_pages: pages(),
            byte_pages: pages(),
            ..Table::default()
        });
        table.children = layout.children.iter().map(|child| Table::new(child, memory_limit)).collect();
        table.addresses =
            table.children.iter_mut().map(|child| std::ptr::from_mut(&mut **child) as usize).collect();
        table.place(PLACES);
        table
    }

    /// Makes new entries; the spare one comes after the last place. The old entries must have been taken, or they are
    /// lost.
    fn place(&mut self, places: usize) {
        self.entries = Vector::zeroed(&self.memory_limit, (places + 1) * self.layout.stride);
        let pages = (places >> self.layout.page_shift()) + 1;
        self.entry_pages = Pages::new(self.layout.tracked, pages);
        self.head.mask = places as u64 - 1;
        // 11/16: a walk visits 2 entries on average when full.
        self.head.limit = (places as u64 / 16) * 11;
        self.aim();
    }

    fn aim(&mut self) {
        self.head.entries = self.entries.as_mut_ptr() as usize;
        self.head.bytes = self.bytes.as_ptr() as usize;
        self.head.rows = self.rows.as_ptr() as usize;
        self.head.children = self.addresses.as_ptr() as usize;
        self.head.entry_pages = self.entry_pages.address();
        self.head.row_pages = self.row_pages.address();
    }

    /// Takes the entries out, to be replaced; the caller must return them to [`Table::leave_entries`].
    fn take_entries(&mut self) -> (Vector<u64>, Pages) {
        (self.entries.take(), std::mem::take(&mut self.entry_pages))
    }

    /// Keeps entries that were replaced until they are saved.
    fn leave_entries(&mut self, (old, mut pages): (Vector<u64>, Pages)) {
        let each = self.layout.page_words();
        self.left.extend(pages.replace(0, || Data::Words(old, each)));
    }

    /// Marks the entry at a place, which is about to change.
    pub fn touch_entry(&mut self, place: usize) {
        let (shift, each) = (self.layout.page_shift(), self.layout.page_words());
        let entries = &self.entries;
        self.entry_pages.touch(place >> shift, || page_of_words(entries, each, place >> shift));
    }

    /// Marks words of rows that are about to change or to be appended.
    pub fn touch_rows(&mut self, from: usize, words: usize) {
        if !self.layout.tracked {
            return;
        }
        let rows = &self.rows;
        for page in from / PAGE_WORDS..=(from + words - 1) / PAGE_WORDS {
            self.row_pages.touch(page, || page_of_words(rows, PAGE_WORDS, page));
        }
        self.head.row_pages = self.row_pages.address();
    }

    /// Entries in use.
    pub fn count(&self) -> usize {
        (self.head.count + self.head.spare_used) as usize
    }

    /// Bytes allocated.
    pub fn held(&self) -> usize {
        let own = (self.entries.capacity() + self.rows.capacity()) * 8 + self.bytes.capacity();
        own + self.children.iter().map(|child| child.held()).sum::<usize>()
    }

    /// All entries in use.
    pub fn entries(&self) -> impl Iterator<Item = &[u64]> {
        let places = self.head.mask as usize + 1;
        let spare = self.head.spare_used != 0;
        self.entries
            .chunks_exact(self.layout.stride)
            .enumerate()
            .filter(move |(place, entry)| if *place == places { spare } else { entry[0] != 0 })
            .map(|(_, entry)| entry)
    }

    fn home(&self, tag: u64) -> usize {
        let home = if self.layout.direct { home_of_key(tag) } else { home(tag) };
        (home & self.head.mask) as usize
    }

    /// Doubles the number of places.
    pub fn grow(&mut self) {
        match self.layout.stride {
            1 => self.grow_by::<1>(),
            2 => self.grow_by::<2>(),
            3 => self.grow_by::<3>(),
            4 => self.grow_by::<4>(),
            5 => self.grow_by::<5>(),
            6 => self.grow_by::<6>(),
            _ => self.grow_any(),
        }
    }

    /// As [`Table::grow`], for a length known at compile time: entries are a few words, and a call would take longer
    /// than the copy.
    fn grow_by<const STRIDE: usize>(&mut self) {
        let places = self.head.mask as usize + 1;
        let old = self.take_entries();
        self.place(places * 2);
        let (mask, direct) = (self.head.mask, self.layout.direct);
        let (from, _) = old.0.as_chunks::<STRIDE>();
        let (to, _) = self.entries.as_chunks_mut::<STRIDE>();
        for found in from[..places].iter().filter(|entry| entry[0] != 0) {
            let home = if direct { home_of_key(found[0]) } else { home(found[0]) };
            let mut place = (home & mask) as usize;
            while to[place][0] != 0 {
                place = (place + 1) & mask as usize;
            }
            to[place] = *found;
        }
        to[places * 2] = from[places];
        self.leave_entries(old);
    }

    fn grow_any(&mut self) {
        let stride = self.layout.stride;
        let places = self.head.mask as usize + 1;
        let old = self.take_entries();
        self.place(places * 2);
        for (place, entry) in old.0.chunks_exact(stride).enumerate() {
            if place == places {
                let spare = places * 2 * stride;
                self.entries[spare..spare + stride].copy_from_slice(entry);
            } else if entry[0] != 0 {
                self.put_back(entry);
            }
        }
        self.leave_entries(old);
    }

    /// Keeps only entries for which `keep` is true. Texts are not freed.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u64]) -> bool) {
        let stride = self.layout.stride;
        let places = self.head.mask as usize + 1;
        let old = self.take_entries();
        self.place(places);
        self.head.count = 0;
        for (place, entry) in old.0.chunks_exact(stride).enumerate() {
            if place == places {
                if self.head.spare_used != 0 && keep(entry) {
                    self.entries[places * stride..].copy_from_slice(entry);
                } else {
                    self.head.spare_used = 0;
                }
            } else if entry[0] != 0 && keep(entry) {
                self.put_back(entry);
                self.head.count += 1;
            }
        }
        self.leave_entries(old);
    }

    /// Number of rows that were appended.
    pub fn rows(&self) -> usize {
        self.head.rows_len as usize / (self.layout.row + 1)
    }

    /// Makes room for a row that code appends, and for more rows as far as the same page has room.
    pub fn make_room_for_row(&mut self) {
        let (place, words) = (self.head.rows_len as usize, self.layout.row + 1);
        self.rows.lengthen(place + words);
        let mut end = self.rows.len();
        if self.layout.tracked {
            self.touch_rows(place, words);
            end = end.min((place + words).next_multiple_of(PAGE_WORDS));
        }
        self.head.rows_end = end as u64;
        self.aim();
    }

    /// Truncates the vector of rows to the part in use. Code must call before it appends the next row.
    fn truncate_rows(&mut self) {
        self.rows.truncate(self.head.rows_len as usize);
        self.head.rows_end = self.head.rows_len;
    }

    /// Updates the head after the vector of rows was changed.
    fn count_rows(&mut self) {
        self.head.rows_len = self.rows.len() as u64;
        self.head.rows_end = self.head.rows_len;
    }

    /// Keeps only rows of lists for which `keep` is true, and keys that still have rows. The other rows leave no gaps.
    pub fn keep_rows(&mut self, keep: impl Fn(&[u64]) -> bool) {
        let (stride, list, row) = (self.layout.stride, self.layout.list, self.layout.row);
        let places = self.head.mask as usize + 1;
        let (entries, entry_pages) = self.take_entries();
        self.truncate_rows();
        let (rows, bytes) = (self.rows.take(), self.bytes.take());
        self.count_rows();
        let mut row_pages = std::mem::replace(&mut self.row_pages, Pages::new(self.layout.tracked, 0));
        let mut byte_pages = std::mem::replace(&mut self.byte_pages, Pages::new(self.layout.tracked, 0));
        let spare = self.head.spare_used != 0;
        self.place(places);
        (self.head.count, self.head.spare_used) = (0, 0);
        let text = |words: &[u64], at: usize| &bytes[words[at] as usize..][..words[at + 1] as usize];
        let (mut words, mut kept) = (vec![0; row], vec![0; stride]);
        for (place, entry) in entries.chunks_exact(stride).enumerate() {
            if if place == places { !spare } else { entry[0] == 0 } {
                continue;
            }
            let (mut first, mut last, mut link) = (0, 0, entry[list]);
            while link != 0 {
                let at = link as usize - 1;
                let old = &rows[at + 1..=at + row];
                link = rows[at];
                if !keep(old) {
                    continue;
                }
                words.copy_from_slice(old);
                for field in 0..self.layout.row_texts.len() {
                    let field = self.layout.row_texts[field];
                    words[field] = self.intern(text(old, field)) as u64;
                }
                last = self.append(&words, last);
                first = if first == 0 { last } else { first };
            }
            if first == 0 {
                continue;
            }
            kept.copy_from_slice(entry);
            (kept[list], kept[list + 1]) = (first, last);
            for field in 0..self.layout.key_texts.len() {
                let field = self.layout.key_texts[field];
                kept[field] = self.intern(text(entry, field)) as u64;
            }
            if place == places {
                self.entries[places * stride..].copy_from_slice(&kept);
                self.head.spare_used = 1;
            } else {
                self.put_back(&kept);
                self.head.count += 1;
            }
        }
        self.leave_entries((entries, entry_pages));
        self.left.extend(row_pages.replace(0, || Data::Words(rows, PAGE_WORDS)));
        // A copy, because the old texts may still be read in place.
        self.left.extend(byte_pages.replace(0, || Data::Bytes(bytes.copied())));
        self.retired.push(bytes);
        self.aim();
    }

    /// The words of the entry at an address of this table.
    pub fn entry(&mut self, address: usize) -> &mut [u64] {
        let first = (address - self.head.entries) / 8;
        &mut self.entries[first..first + self.layout.stride]
    }

    /// Copies an entry to its first free place.
    fn put_back(&mut self, entry: &[u64]) {
        let stride = self.layout.stride;
        let mut place = self.home(entry[0]);
        while self.entries[place * stride] != 0 {
            place = (place + 1) & self.head.mask as usize;
        }
        self.entries[place * stride..][..stride].copy_from_slice(entry);
    }

    /// The entry of the key that looks empty: its address, and whether it is new.
    pub fn spare(&mut self) -> (usize, bool) {
        let new = self.head.spare_used == 0;
        self.touch_entry(self.head.mask as usize + 1);
        self.head.spare_used = 1;
        let spare = (self.head.mask as usize + 1) * self.layout.stride;
        (self.head.entries + spare * 8, new)
    }

    /// Stores a text; returns its place.
    pub fn intern(&mut self, text: &[u8]) -> usize {
        let place = self.bytes.len();
        if self.layout.tracked && !text.is_empty() {
            let bytes = &self.bytes;
            for page in place / PAGE_BYTES..=(place + text.len() - 1) / PAGE_BYTES {
                self.byte_pages.touch(page, || page_of_bytes(bytes, page));
            }
        }
        // Mostly nothing moves, and the head stays valid.
        if let Some(place) = self.bytes.extend_within_capacity(text, &[]) {
            return place;
        }
        if !self.bytes.reserve_here(text.len()) {
            let mut longer = Vector::with_capacity(&self.memory_limit, (place + text.len()).max(256) * 2);
            longer.extend_from_slice(&self.bytes);
            self.retired.push(std::mem::replace(&mut self.bytes, longer));
        }
        self.bytes.extend_from_slice(text);
        self.aim();
        place
    }

    /// The text at a place.
    pub fn text(&self, place: usize, bytes: usize) -> &[u8] {
        self.bytes.get(place..place + bytes).unwrap_or_default()
    }

    /// Appends a row to the list whose first and last rows an entry refers to. The texts are in the table already.
    /// Returns the row's place plus one; `last` is the place plus one of the row before it, or zero.
    pub fn append(&mut self, row: &[u64], last: u64) -> u64 {
        self.truncate_rows();
        let place = self.rows.len();
        self.touch_rows(place, row.len() + 1);
        // As in `intern`.
        if self.rows.extend_within_capacity(&[0], row).is_none() {
            self.rows.push(0);
            self.rows.extend_from_slice(row);
            self.aim();
        }
        self.count_rows();
        if last > 0 {
            self.touch_rows(last as usize - 1, 1);
            self.rows[last as usize - 1] = place as u64 + 1;
        }
        place as u64 + 1
    }

    /// Overwrites a row that is in no list any more, given its place plus one.
    pub fn replace(&mut self, row: &[u64], free: u64) -> u64 {
        self.touch_rows(free as usize, row.len().max(1));
        self.rows[free as usize..][..row.len()].copy_from_slice(row);
        free
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Frees replaced texts, which are no longer read.
    pub fn release(&mut self) {
        self.retired.clear();
        self.children.iter_mut().for_each(|child| child.release());
    }

    /// Empties the table. It keeps its memory, except the parts that are not saved yet.
    pub fn clear(&mut self) {
        let places = self.head.mask as usize + 1;
        let pages = (places >> self.layout.page_shift()) + 1;
        let each = self.layout.page_words();
        let entries = &mut self.entries;
        match self.entry_pages.replace(pages, || Data::Words(entries.take(), each)) {
            None => self.entries.zero(),
            Some(left) => {
                self.left.push(left);
                self.entries = Vector::zeroed(&self.memory_limit, (places + 1) * self.layout.stride);
            }
        }
        let (rows, bytes) = (&mut self.rows, &mut self.bytes);
        self.left.extend(self.row_pages.replace(0, || Data::Words(rows.take(), PAGE_WORDS)));
        self.left.extend(self.byte_pages.replace(0, || Data::Bytes(bytes.take())));
        self.bytes.clear();
        self.rows.clear();
        self.count_rows();
        self.retired.clear();
        self.head.count = 0;
        self.head.spare_used = 0;
        self.children.iter_mut().for_each(|child| child.clear());
        self.aim();
    }

    /// Places of entries, without the spare one.
    pub fn places(&self) -> usize {
        self.head.mask as usize + 1
    }

    /// An empty table with this many places.
    pub fn with_places(layout: &Layout, memory_limit: &MemoryLimit, places: usize) -> Box<Table> {
        let mut table = Table::new(layout, memory_limit);
        table.place(places.next_power_of_two().max(PLACES));
        table
    }

    /// Bytes of pages that were copied and wait to be written out.
    pub(super) fn copies(&self) -> usize {
        let pages = [&self.entry_pages, &self.row_pages, &self.byte_pages];
        pages.into_iter().map(Pages::copies).sum::<usize>()
            + self.left.iter().map(Left::copies).sum::<usize>()
            + self.children.iter().map(|child| child.copies()).sum::<usize>()
    }

    /// Takes out the vectors that were replaced before they were saved.
    pub(super) fn take_left(&mut self, left: &mut Vec<Left>) {
        left.append(&mut self.left);
        self.children.iter_mut().for_each(|child| child.take_left(left));
    }

    /// Freezes the table for a checkpoint, and writes to `out` where to find it.
    pub(super) fn freeze(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        self.truncate_rows();
        let words = [
            self.places() as u64,
            self.head.count,
            self.head.spare_used,
            self.entry_pages.freeze(numbers),
            self.rows.len() as u64,
            self.row_pages.freeze(numbers),
            self.bytes.len() as u64,
            self.byte_pages.freeze(numbers),
        ];
        words.into_iter().for_each(|word| write_word(out, word));
        self.children.iter_mut().for_each(|child| child.freeze(numbers, out));
    }

    /// Writes frozen pages out; returns whether all are written.
    pub(super) fn save(&mut self, put: &mut Put<'_>, budget: &mut usize) -> bool {
        let each = self.layout.page_words();
        let (entries, rows, bytes) = (&self.entries, &self.rows, &self.bytes);
        save_left(&mut self.left, put, budget)
            && self.entry_pages.save(|page| page_of_words(entries, each, page), put, budget)
            && self.row_pages.save(|page| page_of_words(rows, PAGE_WORDS, page), put, budget)
            && self.byte_pages.save(|page| page_of_bytes(bytes, page), put, budget)
            && self.children.iter_mut().all(|child| child.save(put, budget))
    }

    /// Fills an empty table with the frozen state. The numbers of its vectors are appended to `named`.
    pub(super) fn restore(
        &mut self,
        reader: &mut Reader<'_>,
        get: &mut Get<'_>,
        named: &mut Vec<u64>,
    ) -> Result<()> {
        let places = reader.count()?;
        (self.head.count, self.head.spare_used) = (reader.word()?, reader.word()?);
        let number = reader.word()?;
        named.push(number);
        if !places.is_power_of_two() || places < PLACES || self.head.count as usize > places / 16 * 11 {
            return Err(Error::evaluation(format!(
                "the checkpoint has a table of {} entries in {places} places; it is damaged",
                self.head.count
            )));
        }
        let (stride, each) = (self.layout.stride, self.layout.page_words());
        self.entries = read_words(number, ((places + 1) * stride, each), get, &self.memory_limit)?;
        self.entry_pages = Pages::restored(number, (places >> self.layout.page_shift()) + 1);
        self.head.mask = places as u64 - 1;
        self.head.limit = (places as u64 / 16) * 11;
        let (count, number) = (reader.count()?, reader.word()?);
        named.push(number);
        self.rows = read_words(number, (count, PAGE_WORDS), get, &self.memory_limit)?;
        self.count_rows();
        self.row_pages = Pages::restored(number, count.div_ceil(PAGE_WORDS));
        let (count, number) = (reader.count()?, reader.word()?);
        named.push(number);
        self.bytes = read_bytes(number, count, get, &self.memory_limit)?;
        self.byte_pages = Pages::restored(number, count.div_ceil(PAGE_BYTES));
        self.aim();
        self.children.iter_mut().try_for_each(|child| child.restore(reader, get, named))
    }
}
