//! An index made at once, of all its slots: recovery finds them in no order, and a descent for each would take ten times as
//! long.
//!
//! The slots are sorted by the 16 bytes of their keys behind those that all keys share, and by their records where these do
//! not tell. Then leaves are filled from left to right.

use super::key::{shared_bytes, word_at};
use super::node::{Node, Order, skip_between};
use super::{HEIGHT_MAX, OrderedIndex};
use crate::format::Version;
use crate::index::{KeyBytes, Slot};
use crate::sync::reclaim;

/// Records whose lines are under way while one is looked at.
const AHEAD: usize = 16;
/// A leaf has room for this share of its slots.
const ROOM_SHARE: usize = 7;

/// A slot, and 16 bytes of its key.
#[derive(Clone, Copy)]
struct Entry {
    words: [u64; 2],
    slot: Slot,
}

impl OrderedIndex {
    /// Fills an index, which is empty and not shared yet, with slots of different keys. `version` is at least that of every
    /// record.
    pub(crate) fn build(&self, slots: &[Slot], version: Version, keys: &impl KeyBytes) {
        self.stripes.meet_all(version);
        let key_of = |slot: Slot| keys.key_at(slot.location());
        let shared = shared_by_all(slots, keys);
        let mut entries = Vec::with_capacity(slots.len());
        for (i, &slot) in slots.iter().enumerate() {
            if let Some(ahead) = slots.get(i + AHEAD) {
                keys.prefetch_at(ahead.location());
            }
            let key = key_of(slot);
            entries.push(Entry { words: [word_at(key, shared), word_at(key, shared + 8)], slot });
        }
        entries
            .sort_unstable_by(|a, b| a.words.cmp(&b.words).then_with(|| key_of(a.slot).cmp(key_of(b.slot))));
        let guard = reclaim::pin();
        let each = (self.leaf_slots - self.leaf_slots / ROOM_SHARE).max(1);
        // The last node of each level.
        let mut last: [&Node; HEIGHT_MAX] = [self.head(&guard); HEIGHT_MAX];
        let step = u64::MAX / 2 / (entries.len() / each + 1) as u64;
        let mut low: Vec<u8> = Vec::new();
        for (number, leaf) in entries.chunks(each).enumerate() {
            let behind = entries.get((number + 1) * each);
            let next = match (leaf.last(), behind) {
                // The shortest that is above all of this leaf.
                (Some(last), Some(behind)) => {
                    let next = key_of(behind.slot);
                    Some(&next[..shared_bytes(key_of(last.slot), next) + 1])
                }
                _ => None,
            };
            let mut held = match number {
                0 => last[0].hold(&self.waits),
                _ => self.add(&mut last, &low, number as u64 * step),
            };
            held.change();
            let skip = skip_between(&low, next);
            for (position, entry) in leaf.iter().enumerate() {
                held.set(position, prefix(entry, shared, skip, || key_of(entry.slot)), entry.slot);
            }
            held.set_skip(skip);
            held.set_order(Order::of(leaf.len()));
            low.clear();
            low.extend_from_slice(next.unwrap_or_default());
        }
    }
}

/// How many bytes all keys begin with in common.
fn shared_by_all(slots: &[Slot], keys: &impl KeyBytes) -> usize {
    let Some((first, rest)) = slots.split_first() else { return 0 };
    let first = keys.key_at(first.location());
    let mut shared = first.len();
    for (i, slot) in rest.iter().enumerate() {
        if shared == 0 {
            break;
        }
        if let Some(ahead) = rest.get(i + AHEAD) {
            keys.prefetch_at(ahead.location());
        }
        shared = shared.min(shared_bytes(first, keys.key_at(slot.location())));
    }
    shared
}

/// The eight bytes behind `skip` bytes of the key, from those at hand if they are among them.
fn prefix<'k>(entry: &Entry, shared: usize, skip: usize, key: impl FnOnce() -> &'k [u8]) -> u64 {
    match skip.checked_sub(shared) {
        Some(0) => entry.words[0],
        Some(by @ 1..=7) => entry.words[0] << (8 * by) | entry.words[1] >> (64 - 8 * by),
        Some(8) => entry.words[1],
        _ => word_at(key(), skip),
    }
}
