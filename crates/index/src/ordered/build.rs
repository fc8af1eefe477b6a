//! Builds an index from all its slots in one go. Recovery finds them in no order, and one descent for each would take
//! ten times as long.
//!
//! While records are read, their slots are gathered in parts; a sample of the keys gives the bounds ([`Parting`]). A
//! part is small enough for a CPU's own caches. One thread sorts it by 16 bytes of each key, after the bytes that its
//! bounds share, and by records where these are equal. It fills leaves from left to right; they are a chain of their
//! own ([`super::chain`]).

use super::OrderedIndex;
use super::key::{shared_bytes, word_at};
use super::list::LABEL_MAX;
use super::node::{Order, skip_between};
use crate::{KeyBytes, Slot};
use duramen_log::format::Version;

/// A leaf has room for this share of its slots.
const ROOM_SHARE: usize = 7;
/// Entries of a part: 400 KiB, less than half of most CPUs' second-level cache.
const PART_ENTRIES: u64 = if cfg!(test) { 40 } else { 16 << 10 };
/// Limits how many places a thread writes to in turn: a line of each part stays in its caches.
const PARTS_MAX: u64 = 4096;
const CELLS_PER_BOUND: usize = 4;

/// 16 bytes of a key, in its order.
type Words = [u64; 2];

/// A slot, and the bytes that distinguish most keys of a part: those after the prefix that all keys of the part share.
/// For an element of a collection, its position and its order.
#[derive(Clone, Copy)]
pub struct Sorted {
    pub(super) words: Words,
    pub slot: Slot,
}

impl Sorted {
    pub fn new(words: Words, slot: Slot) -> Self {
        Self { words, slot }
    }

    #[inline]
    pub fn words(&self) -> Words {
        self.words
    }

    /// The order of the entries of a part, before their keys are compared.
    #[inline]
    pub fn rank(&self) -> u128 {
        rank(self.words)
    }
}

#[inline]
fn rank([first, second]: Words) -> u128 {
    u128::from(first) << 64 | u128::from(second)
}

#[inline]
fn words(key: &[u8]) -> Words {
    [word_at(key, 0), word_at(key, 8)]
}

/// Which keys belong to which part. All keys of a part are below those of the next.
///
/// The first part has the keys below all that share the sample's prefix, and the last part those above.
#[derive(Default)]
pub struct Parting<'k> {
    /// The prefix of all keys of the sample.
    shared: &'k [u8],
    /// Where all parts but the first two and the last begin.
    bounds: Vec<Bound<'k>>,
    /// How many bytes all keys of each part share: those that its bounds share.
    skips: Vec<usize>,
    /// Number of bounds in the cells before each cell. The range of the bounds' first words is divided into cells of
    /// equal width, so that most keys are compared with one or two bounds.
    before: Vec<u16>,
    /// Where the cells begin, and the shift of a word that gives the number of its cell.
    cells_from: u64,
    cells_shift: u32,
}

/// A key, and the rank of its bytes after the prefix that all share.
#[derive(Clone, Copy)]
struct Bound<'k> {
    rank: u128,
    key: &'k [u8],
}

impl<'k> Bound<'k> {
    fn new(key: &'k [u8], shared: usize) -> Self {
        Self { rank: rank(words(&key[shared..])), key }
    }

    fn word(&self) -> u64 {
        (self.rank >> 64) as u64
    }
}

impl<'k> Parting<'k> {
    /// Parts for this many entries. The sample only makes them even.
    pub fn new(sample: &[&'k [u8]], entries: u64) -> Self {
        let shared = match sample {
            [first, ..] => {
                &first[..sample.iter().fold(first.len(), |len, key| shared_bytes(&first[..len], key))]
            }
            [] => &[],
        };
        let mut keys: Vec<Bound<'k>> = sample.iter().map(|key| Bound::new(key, shared.len())).collect();
        keys.sort_unstable_by(|a, b| a.rank.cmp(&b.rank).then_with(|| a.key.cmp(b.key)));
        let parts = (entries / PART_ENTRIES).clamp(1, PARTS_MAX) as usize;
        let numbers = (1..parts).map(|part| part * keys.len() / parts);
        // Just long enough to differ from the previous key of the sample.
        let pair = |number: usize| Some((keys.get(number.checked_sub(1)?)?.key, keys.get(number)?.key));
        let bound = |(before, key): (&'k [u8], &'k [u8])| {
            let len = key.len().min(shared_bytes(before, key) + 1);
            Bound::new(&key[..len], shared.len())
        };
        let bounds: Vec<Bound<'k>> = numbers.filter_map(pair).map(bound).collect();
        let between = |pair: &[Bound<'k>]| shared_bytes(pair[0].key, pair[1].key);
        let mut skips = vec![0, shared.len()];
        skips.extend(bounds.windows(2).map(between));
        if !bounds.is_empty() {
            skips.push(shared.len());
        }
        skips.push(0);
        let mut parting = Self { shared, bounds, skips, ..Self::default() };
        parting.cut();
        parting
    }

    fn cut(&mut self) {
        let (Some(first), Some(last)) = (self.bounds.first(), self.bounds.last()) else { return };
        self.cells_from = first.word();
        let cells = self.bounds.len().next_power_of_two() * CELLS_PER_BOUND;
        let width = last.word() - first.word();
        self.cells_shift = (u64::BITS - width.leading_zeros()).saturating_sub(cells.ilog2());
        let cell_of = |bound: &Bound<'_>| (bound.word() - self.cells_from) >> self.cells_shift;
        self.before = (0..=cells as u64)
            .map(|cell| self.bounds.partition_point(|bound| cell_of(bound) < cell) as u16)
            .collect();
    }

    /// Number of bounds that are not above `key`, which has these words after `shared`.
    #[inline]
    fn bounds_below(&self, key: &[u8], words: Words) -> usize {
        let Some(last) = self.before.len().checked_sub(2) else { return 0 };
        let cell = (words[0].saturating_sub(self.cells_from) >> self.cells_shift).min(last as u64) as usize;
        let (from, to) = (usize::from(self.before[cell]), usize::from(self.before[cell + 1]));
        let rank = rank(words);
        let is_below = |bound: &Bound<'_>| bound.rank < rank || bound.rank == rank && bound.key <= key;
        from + self.bounds[from..to].partition_point(is_below)
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.skips.len()
    }

    /// The part of a key, and its entry there.
    #[inline]
    pub fn place(&self, key: &[u8], slot: Slot) -> (usize, Sorted) {
        let Some(rest) = key.strip_prefix(self.shared) else {
            let part = if key < self.shared { 0 } else { self.parts() - 1 };
            return (part, Sorted { words: words(key), slot });
        };
        let mut words = words(rest);
        let part = 1 + self.bounds_below(key, words);
        let skip = self.skips[part];
        if skip > self.shared.len() {
            words = [word_at(key, skip), word_at(key, skip + 8)];
        }
        (part, Sorted { words, slot })
    }

    /// The prefix of all keys of a part.
    fn shared(&self, part: usize) -> &'k [u8] {
        let bound = part.checked_sub(2).and_then(|bound| self.bounds.get(bound));
        &bound.map_or(self.shared, |bound| bound.key)[..self.skips[part]]
    }

    /// A key above all of the parts before, and not above any of this part.
    fn low(&self, part: usize) -> Vec<u8> {
        if part + 1 < self.parts() {
            return part.checked_sub(2).map_or(self.shared, |bound| self.bounds[bound].key).to_vec();
        }
        // The lowest key above all that begin with `shared`.
        let len = self.shared.iter().rposition(|&byte| byte < 255).map_or(0, |last| last + 1);
        let mut low = self.shared[..len].to_vec();
        low.iter_mut().next_back().into_iter().for_each(|byte| *byte += 1);
        low
    }
}

impl OrderedIndex {
    /// Sets the versions of absent keys: no record of the keys that the index is built of has a higher version.
    pub fn observe_version(&self, version: Version) {
        self.stripes.raise_versions(version);
    }

    /// Fills an index that is empty and not shared yet, on `threads` threads. `in_order` returns a part of `parting`,
    /// sorted by keys, which all differ. `entries` holds the maximum number of entries for each part, 0 only if there
    /// are none. Versions are reported separately ([`OrderedIndex::observe_version`]).
    pub fn build(
        &self,
        parting: &Parting<'_>,
        entries: &[usize],
        keys: &(impl KeyBytes + Sync),
        threads: usize,
        in_order: impl Fn(usize) -> Vec<Sorted> + Sync,
    ) {
        let each = (self.leaf_slots - self.leaf_slots / ROOM_SHARE).max(1);
        let mut leaves = 0;
        // Parts that have entries, and how many leaves lie before each.
        let mut parts = Vec::new();
        for (part, entries) in entries.iter().enumerate().filter(|&(_, &entries)| entries > 0) {
            parts.push((part, leaves));
            leaves += entries.div_ceil(each) as u64;
        }
        let step = LABEL_MAX / 2 / (leaves + 1);
        self.fill_with(threads, 0..parts.len(), |number, chain| {
            let (part, leaves) = parts[number];
            let shared = parting.shared(part);
            let entries = in_order(part);
            let mut low = if number == 0 { Vec::new() } else { parting.low(part) };
            let mut rest = entries.chunks(each).zip(leaves..).peekable();
            while let Some((leaf, label)) = rest.next() {
                // The next leaf begins with the shortest key that is above all of this one.
                let next = match (leaf, rest.peek()) {
                    ([.., last], Some(([first, ..], _))) => Some(shortest_between(shared, last, first, keys)),
                    _ => parts.get(number + 1).map(|&(part, _)| parting.low(part)),
                };
                let mut held = self.add(chain, &low, label * step);
                held.change();
                let skip = skip_between(&low, next.as_deref());
                for (position, entry) in leaf.iter().enumerate() {
                    held.set(position, prefix(shared, entry, skip, keys), entry.slot);
                }
                held.set_skip(skip);
                held.set_order(Order::of(leaf.len()));
                low = next.unwrap_or_default();
            }
        });
    }
}

/// A key above that of `last`, and not above that of `next`; both begin with `shared`. It is short, but maybe not the
/// shortest.
fn shortest_between(shared: &[u8], last: &Sorted, next: &Sorted, keys: &impl KeyBytes) -> Vec<u8> {
    let bytes = |entry: &Sorted| entry.rank().to_be_bytes();
    let same = shared_bytes(&bytes(last), &bytes(next));
    if same < size_of::<Words>() {
        // At the first byte that differs, `next` is greater, so that byte is part of its key and not a zero after its
        // end.
        return [shared, &bytes(next)[..=same]].concat();
    }
    // The records that the index is built of are verified.
    let key_of = |entry: &Sorted| keys.key_at(entry.slot.location()).unwrap_or_default();
    let next = key_of(next);
    next[..next.len().min(shared_bytes(key_of(last), next) + 1)].to_vec()
}

/// The eight bytes after `skip` bytes of the key, from the entry's words if they are among them.
fn prefix(shared: &[u8], entry: &Sorted, skip: usize, keys: &impl KeyBytes) -> u64 {
    match skip.checked_sub(shared.len()) {
        Some(0) => entry.words[0],
        Some(by @ 1..=7) => entry.words[0] << (8 * by) | entry.words[1] >> (64 - 8 * by),
        Some(8) => entry.words[1],
        _ => word_at(keys.key_at(entry.slot.location()).unwrap_or_default(), skip),
    }
}
