//! One table: open addressing over entries of whole words, with texts and lists of rows beside.

use crate::error::{Error, Result};

/// What compiled code reads and writes, at the beginning of every [`Table`]. Addresses are as of now.
#[derive(Debug, Default, Clone, Copy)]
#[repr(C)]
pub struct Head {
    /// Address of the first entry.
    pub entries: usize,
    /// Number of places minus one, a power of two minus one.
    pub mask: u64,
    /// Entries that are filled, without the one of the key that looks empty.
    pub count: u64,
    /// At this count the table grows before it takes another key.
    pub limit: u64,
    /// Address of texts.
    pub bytes: usize,
    /// Address of rows of lists.
    pub rows: usize,
    /// Addresses of the tables that belong to this one: sets of distinct values.
    pub children: usize,
    /// Whether the entry behind the last place is filled: that of the key that looks empty.
    pub spare_used: u64,
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
    /// The word of an entry that names the first row of its list; the last row's is behind it.
    pub list: usize,
    /// Words of a row in a list, without the link.
    pub row: usize,
    /// Words of a row at which a text begins (place, length).
    pub row_texts: Vec<usize>,
    /// Layouts of the tables that belong to each table.
    pub children: Vec<Layout>,
}

impl Layout {
    /// The key that is stored as zero, and therefore apart: one that no generator of keys is likely to give.
    pub const EMPTY: i64 = 0x5bd1_e995_9d2c_5680_u64 as i64;
}

/// A multiplier without structure: the fraction of the golden ratio.
pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes one word into a hash: the two halves of a product.
pub fn hash_word(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(MULTIPLIER);
    (product >> 64) as u64 ^ product as u64
}

/// What the hash of every key begins with.
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

/// Where an entry with this first word is looked for first, before the mask is applied: of a hash.
pub fn home(tag: u64) -> u64 {
    tag >> 1
}

/// The same for a key that is stored itself.
pub fn home_of_key(tag: u64) -> u64 {
    hash_word(0, tag)
}

/// Entries by key. `head` comes first: compiled code knows nothing of the rest.
#[derive(Debug, Default)]
#[repr(C)]
#[expect(clippy::vec_box, reason = "code knows the addresses of children: they must not move")]
pub struct Table {
    /// For compiled code.
    pub head: Head,
    layout: Layout,
    entries: Vec<u64>,
    bytes: Vec<u8>,
    rows: Vec<u64>,
    children: Vec<Box<Table>>,
    addresses: Vec<usize>,
    /// Texts that were replaced by a longer vector while somebody may still read them.
    retired: Vec<Vec<u8>>,
}

/// Places of a new table.
const PLACES: usize = 64;

impl Table {
    /// An empty table.
    pub fn new(layout: &Layout) -> Box<Table> {
        let mut table = Box::new(Table { layout: layout.clone(), ..Table::default() });
        table.children = layout.children.iter().map(Table::new).collect();
        table.addresses =
            table.children.iter_mut().map(|child| std::ptr::from_mut(&mut **child) as usize).collect();
        table.place(PLACES);
        table
    }

    /// Fresh entries; the spare one is behind the last place.
    fn place(&mut self, places: usize) {
        self.entries = vec![0; (places + 1) * self.layout.stride];
        self.head.mask = places as u64 - 1;
        // 11/16: a walk meets 2 entries on average when full.
        self.head.limit = (places as u64 / 16) * 11;
        self.aim();
    }

    fn aim(&mut self) {
        self.head.entries = self.entries.as_mut_ptr() as usize;
        self.head.bytes = self.bytes.as_ptr() as usize;
        self.head.rows = self.rows.as_ptr() as usize;
        self.head.children = self.addresses.as_ptr() as usize;
    }

    /// Entries in use.
    pub fn count(&self) -> usize {
        (self.head.count + self.head.spare_used) as usize
    }

    /// Bytes that are held.
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

    /// Twice as many places.
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

    /// The same for a length that is known when compiling: copies of a few words, where a call takes longer than they.
    fn grow_by<const STRIDE: usize>(&mut self) {
        let places = self.head.mask as usize + 1;
        let old = std::mem::take(&mut self.entries);
        self.place(places * 2);
        let (mask, direct) = (self.head.mask, self.layout.direct);
        let (from, _) = old.as_chunks::<STRIDE>();
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
    }

    fn grow_any(&mut self) {
        let stride = self.layout.stride;
        let places = self.head.mask as usize + 1;
        let old = std::mem::take(&mut self.entries);
        self.place(places * 2);
        for (place, entry) in old.chunks_exact(stride).enumerate() {
            if place == places {
                let spare = places * 2 * stride;
                self.entries[spare..spare + stride].copy_from_slice(entry);
            } else if entry[0] != 0 {
                self.put_back(entry);
            }
        }
    }

    /// Keeps only entries for which `keep` is true. Texts stay.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u64]) -> bool) {
        let stride = self.layout.stride;
        let places = self.head.mask as usize + 1;
        let old = std::mem::take(&mut self.entries);
        self.place(places);
        self.head.count = 0;
        for (place, entry) in old.chunks_exact(stride).enumerate() {
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
    }

    /// Rows that were appended.
    pub fn rows(&self) -> usize {
        self.rows.len() / (self.layout.row + 1)
    }

    /// Keeps only rows of lists for which `keep` is true, and keys that have such. What went leaves no space behind.
    pub fn keep_rows(&mut self, keep: impl Fn(&[u64]) -> bool) {
        let (stride, list, row) = (self.layout.stride, self.layout.list, self.layout.row);
        let places = self.head.mask as usize + 1;
        let entries = std::mem::take(&mut self.entries);
        let rows = std::mem::take(&mut self.rows);
        let bytes = std::mem::take(&mut self.bytes);
        let spare = self.head.spare_used != 0;
        self.place(places);
        (self.head.count, self.head.spare_used) = (0, 0);
        let text = |words: &[u64], at: usize| bytes[words[at] as usize..][..words[at + 1] as usize].to_vec();
        for (place, entry) in entries.chunks_exact(stride).enumerate() {
            if if place == places { !spare } else { entry[0] == 0 } {
                continue;
            }
            let (mut first, mut last, mut link) = (0, 0, entry[list]);
            while link != 0 {
                let at = link as usize - 1;
                let mut words = rows[at + 1..=at + row].to_vec();
                link = rows[at];
                if !keep(&words) {
                    continue;
                }
                for field in 0..self.layout.row_texts.len() {
                    let field = self.layout.row_texts[field];
                    words[field] = self.intern(&text(&words, field)) as u64;
                }
                last = self.append(&words, last);
                first = if first == 0 { last } else { first };
            }
            if first == 0 {
                continue;
            }
            let mut kept = entry.to_vec();
            (kept[list], kept[list + 1]) = (first, last);
            for field in 0..self.layout.key_texts.len() {
                let field = self.layout.key_texts[field];
                kept[field] = self.intern(&text(entry, field)) as u64;
            }
            if place == places {
                self.entries[places * stride..].copy_from_slice(&kept);
                self.head.spare_used = 1;
            } else {
                self.put_back(&kept);
                self.head.count += 1;
            }
        }
        // Somebody may still read texts where they were.
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
        self.head.spare_used = 1;
        let spare = (self.head.mask as usize + 1) * self.layout.stride;
        (self.head.entries + spare * 8, new)
    }

    /// Keeps a text; returns its place.
    pub fn intern(&mut self, text: &[u8]) -> usize {
        let place = self.bytes.len();
        if self.bytes.capacity() - place < text.len() {
            let mut longer = Vec::with_capacity((place + text.len()).max(256) * 2);
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

    /// Appends a row to the list whose first and last rows an entry names. Texts are in the table already.
    /// Returns the row's place plus one; `last` is the place plus one of the row before it, zero for none.
    pub fn append(&mut self, row: &[u64], last: u64) -> u64 {
        let place = self.rows.len();
        self.rows.push(0);
        self.rows.extend_from_slice(row);
        if last > 0 {
            self.rows[last as usize - 1] = place as u64 + 1;
        }
        self.aim();
        place as u64 + 1
    }

    /// Writes a row over one that is in no list any more, given its place plus one.
    pub fn replace(&mut self, row: &[u64], free: u64) -> u64 {
        self.rows[free as usize..][..row.len()].copy_from_slice(row);
        free
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Lets go of texts that were replaced: nobody reads them any more.
    pub fn release(&mut self) {
        self.retired.clear();
        self.children.iter_mut().for_each(|child| child.release());
    }

    /// Empties the table and keeps its memory.
    pub fn clear(&mut self) {
        self.entries.fill(0);
        self.bytes.clear();
        self.rows.clear();
        self.retired.clear();
        self.head.count = 0;
        self.head.spare_used = 0;
        self.children.iter_mut().for_each(|child| child.clear());
        self.aim();
    }

    /// Writes everything to `out`: counts, entries in use, texts, rows, children.
    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        let mut word = |word: u64| out.extend_from_slice(&word.to_le_bytes());
        word(self.count() as u64);
        word(self.head.spare_used);
        word(self.bytes.len() as u64);
        word(self.rows.len() as u64);
        self.entries().flatten().chain(&self.rows).for_each(|value| word(*value));
        out.extend_from_slice(&self.bytes);
        self.children.iter().for_each(|child| child.snapshot(out));
    }

    /// Fills an empty table with what [`Table::snapshot`] wrote; returns what stands behind it.
    pub(super) fn restore<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8]> {
        let mut reader = Reader(bytes);
        let (count, spare) = (reader.word()?, reader.word()?);
        let (text, rows) = (reader.word()?, reader.word()?);
        let stride = self.layout.stride;
        let needed = usize::try_from(count).unwrap_or(usize::MAX);
        if needed.checked_mul(stride * 8).is_none_or(|bytes| bytes > reader.0.len()) {
            return Err(Reader::short());
        }
        let mut places = PLACES;
        while (places / 16 * 11) < needed {
            places *= 2;
        }
        self.clear();
        self.place(places);
        for index in 0..count {
            let entry: Result<Vec<u64>> = (0..stride).map(|_| reader.word()).collect();
            let entry = entry?;
            // The spare entry is written last.
            if spare != 0 && index + 1 == count {
                self.entries[places * stride..].copy_from_slice(&entry);
                self.head.spare_used = 1;
            } else if entry[0] == 0 {
                return Err(Error::evaluation("the snapshot has an empty entry; it is damaged"));
            } else {
                self.put_back(&entry);
                self.head.count += 1;
            }
        }
        for _ in 0..rows {
            let word = reader.word()?;
            self.rows.push(word);
        }
        let length = usize::try_from(text).unwrap_or(usize::MAX);
        let (text, rest) = reader.0.split_at_checked(length).ok_or_else(Reader::short)?;
        self.bytes.extend_from_slice(text);
        self.aim();
        let mut rest = rest;
        for child in &mut self.children {
            rest = child.restore(rest)?;
        }
        Ok(rest)
    }
}

/// Reads words.
pub(super) struct Reader<'b>(pub &'b [u8]);

impl Reader<'_> {
    fn short() -> Error {
        Error::evaluation("the snapshot ends too early; it is damaged")
    }

    pub(super) fn word(&mut self) -> Result<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>().ok_or_else(Self::short)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }
}
