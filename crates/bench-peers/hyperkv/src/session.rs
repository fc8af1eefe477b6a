//! The operations of one thread: get, put, delete, scan. The order of a write's stores is in the crate's documentation.

use crate::cache;
use crate::heap::Arena;
use crate::layout::{
    HEADER, HEIGHT_MAX, KEY_BYTES_MAX, LIVE, LOCK, LogKind, NEXT, STATE, VALUE, VALUE_HEAD_BYTES, header,
    level_and_key_bytes, node_lines, value_lines,
};
use crate::list::{Place, wait};
use crate::log::{Action, Active, Slot};
use crate::reclaim::{Block, Guard};
use crate::store::Store;
use crate::{Error, ErrorKind, Result};
use duramen_media::{LINE_BYTES, Medium, Offset};
use std::cmp::Ordering;

/// One thread's access to a store.
pub struct Session<'s, M: Medium> {
    store: &'s Store<M>,
    number: usize,
    slot: Slot,
    arena: Arena,
    random: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The blocks that a put has taken before it knows whether it inserts or updates.
#[derive(Default)]
struct Draft {
    /// A value's block, and the checksum of its content.
    value: Option<(u64, u32)>,
    /// A node's block, and its level.
    node: Option<(u64, usize)>,
}

const ZEROS: [u8; 8] = [0; 8];

/// Continues the checksum `sum` over `parts`.
fn summed(sum: u32, parts: &[&[u8]]) -> u32 {
    parts.iter().fold(sum, |sum, part| crc32c::crc32c_append(sum, part))
}

/// Pads `bytes` bytes to whole words.
fn padding(bytes: usize) -> &'static [u8] {
    &ZEROS[..bytes.next_multiple_of(8) - bytes]
}

impl<'s, M: Medium> Session<'s, M> {
    pub(crate) fn new(store: &'s Store<M>, number: usize) -> Self {
        store.epochs.enter(number);
        Self {
            store,
            number,
            slot: Slot::new(number),
            arena: store.heap.enter(),
            random: (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ store.generation << 32,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Copies the value of `key` into `into`, replacing its content; returns whether the key exists.
    pub fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> bool {
        let store = self.store;
        let _guard = store.epochs.pin(self.number);
        match self.find(key) {
            Some(node) => {
                store.copy_value(node, into);
                true
            }
            None => false,
        }
    }

    /// The node of `key`, if the cache points to it.
    #[inline]
    fn cached(&self, key: &[u8], hash: u64) -> Option<u64> {
        let store = self.store;
        let node = store.cache.get(hash)?;
        (store.compare(node, key) == Ordering::Equal && store.is_live(node)).then_some(node)
    }

    /// The node of `key`, found by the cache or by a descent.
    #[inline]
    fn find(&self, key: &[u8]) -> Option<u64> {
        let store = self.store;
        let hash = cache::hash(key);
        if let Some(node) = self.cached(key, hash) {
            return Some(node);
        }
        let node = store.find(key).filter(|node| store.is_live(*node))?;
        self.remember(hash, node);
        Some(node)
    }

    /// Points the cache to `node`, unless it was removed meanwhile.
    #[inline]
    fn remember(&self, hash: u64, node: u64) {
        self.store.cache.fill(hash, node);
        if !self.store.is_live(node) {
            self.store.cache.clear(hash, node);
        }
    }

    /// Sets `key` to `value`; durable when it returns.
    ///
    /// # Errors
    /// `InvalidInput` for a key of no or more than [`KEY_BYTES_MAX`] bytes, or a value larger than a chunk;
    /// `OutOfSpace`. The store is unchanged.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let store = self.store;
        let most = store.heap.lines_max() * LINE_BYTES;
        if key.is_empty() || key.len() > KEY_BYTES_MAX || value_lines(value.len() as u64) * LINE_BYTES > most
        {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "cannot put a key of {} and a value of {} bytes: keys have 1 to {KEY_BYTES_MAX}, values at most {}",
                    key.len(),
                    value.len(),
                    most - VALUE_HEAD_BYTES
                ),
            ));
        }
        let guard = store.epochs.pin(self.number);
        let mut draft = Draft::default();
        let mut spins = 0;
        let result = loop {
            match self.try_put(key, value, &mut draft) {
                Ok(true) => break Ok(()),
                Ok(false) => wait(&mut spins),
                Err(error) => break Err(error),
            }
        };
        drop(guard);
        // Unused blocks of the draft were never reachable.
        if let Some((at, _)) = draft.value {
            store.heap.give(&mut self.arena, Block { at, lines: value_lines(value.len() as u64) });
        }
        if let Some((at, level)) = draft.node {
            store.heap.give(&mut self.arena, Block { at, lines: node_lines(level, key.len()) });
        }
        result
    }

    /// One attempt; returns whether no other writer interfered.
    #[inline]
    fn try_put(&mut self, key: &[u8], value: &[u8], draft: &mut Draft) -> Result<bool> {
        let (store, hash) = (self.store, cache::hash(key));
        if store.log == LogKind::Redo {
            // The write-back proceeds while the key is searched for.
            self.draft_value(value, draft)?;
        }
        let node = match self.cached(key, hash) {
            Some(node) => node,
            None => {
                let place = store.find_place(key);
                let Some(node) = place.found else {
                    return self.insert(key, value, &place, draft);
                };
                if !store.is_live(node) {
                    return Ok(false);
                }
                self.remember(hash, node);
                node
            }
        };
        match store.log {
            LogKind::Redo => self.update(node, value, draft),
            LogKind::Undo => self.update_with_undo(node, value, draft),
        }
    }

    fn take(&mut self, lines: u64) -> Result<u64> {
        let at = self.store.heap.take(&self.store.medium, &mut self.arena, lines)?;
        #[cfg(test)]
        if self.store.is_planted(crate::tests::Planted::HandedOutTwice) && self.random.is_multiple_of(4) {
            self.store.heap.give(&mut self.arena, Block { at, lines });
        }
        Ok(at)
    }

    /// Writes a new value into a block and starts its write-back. Returns the block and the value's sum, which only a
    /// redo entry has.
    fn draft_value(&mut self, value: &[u8], draft: &mut Draft) -> Result<(u64, u32)> {
        if let Some(drafted) = draft.value {
            return Ok(drafted);
        }
        let at = self.take(value_lines(value.len() as u64))?;
        let head = (value.len() as u64).to_le_bytes();
        let parts: [&[u8]; 3] = [&head, value, padding(value.len())];
        self.store.medium.write(Offset(at), &parts);
        let sum = if self.store.log == LogKind::Redo { summed(0, &parts) } else { 0 };
        Ok(*draft.value.insert((at, sum)))
    }

    fn retire(&mut self, at: u64, lines: u64) {
        let (heap, Arena { free, limbo, .. }) = (&self.store.heap, &mut self.arena);
        limbo.retire(&self.store.epochs, Block { at, lines }, &mut |block| {
            free[heap.size_of(block.lines)].push(block.at);
        });
    }

    /// Returns whether `node` was still in the list; then it has the new value.
    fn update(&mut self, node: u64, value: &[u8], draft: &mut Draft) -> Result<bool> {
        let store = self.store;
        let (new, sum) = self.draft_value(value, draft)?;
        store.lock(node);
        if !store.is_live(node) {
            store.unlock(node);
            return Ok(false);
        }
        let entry = store.prepare_redo(&mut self.slot, Action::Update, [node, new], &[], sum);
        let old = store.word(node + VALUE);
        store.modify(node + VALUE, new);
        store.modified();
        store.commit(entry);
        store.unlock(node);
        draft.value = None;
        self.retire(old, value_lines(store.word(old)));
        Ok(true)
    }

    /// The same in place, after a copy of the old bytes. A value of another size, or one too large to copy, gets a new
    /// block; then only the node's word is copied.
    fn update_with_undo(&mut self, node: u64, value: &[u8], draft: &mut Draft) -> Result<bool> {
        let (store, bytes) = (self.store, value.len() as u64);
        // Checked before the lock, since taking a block may fail, and again under the lock.
        let fits = |old: u64| {
            let heap = &store.heap;
            let (lines, changed) =
                (value_lines(store.word(old)), VALUE_HEAD_BYTES + bytes.next_multiple_of(8));
            heap.size_of(lines) == heap.size_of(value_lines(bytes))
                && changed + 16 <= Slot::copied_bytes_max()
        };
        if !fits(store.word(node + VALUE)) {
            self.draft_value(value, draft)?;
        }
        store.lock(node);
        let old = store.word(node + VALUE);
        if !store.is_live(node) || (draft.value.is_none() && !fits(old)) {
            store.unlock(node);
            return Ok(false);
        }
        if let Some((new, _)) = draft.value.take() {
            let entry = store.prepare_undo(&mut self.slot, [(node + VALUE, 8)].into_iter());
            store.modify(node + VALUE, new);
            store.modified();
            store.commit(entry);
            store.unlock(node);
            self.retire(old, value_lines(store.word(old)));
            return Ok(true);
        }
        let changed = VALUE_HEAD_BYTES + bytes.next_multiple_of(8);
        let entry = store.prepare_undo(&mut self.slot, [(old, changed)].into_iter());
        // By single words, since readers read them meanwhile.
        store.medium.store_u64(Offset(old), bytes);
        for (part, at) in value.chunks(8).zip((old + VALUE_HEAD_BYTES..).step_by(8)) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            store.medium.store_u64(Offset(at), u64::from_le_bytes(word));
        }
        store.medium.flush(Offset(old), changed);
        store.modified();
        store.commit(entry);
        store.unlock(node);
        Ok(true)
    }

    /// The levels of a new node: each further level with a chance of one in two.
    fn level(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // The bit that is set here ends it at HEIGHT_MAX.
        (self.random | 1 << (HEIGHT_MAX - 1)).trailing_zeros() as usize + 1
    }

    /// Returns whether `place` was unchanged; then the node is in the list.
    fn insert(&mut self, key: &[u8], value: &[u8], place: &Place, draft: &mut Draft) -> Result<bool> {
        let store = self.store;
        let (new, sum) = self.draft_value(value, draft)?;
        let (node, level) = match draft.node {
            Some(drafted) => drafted,
            None => {
                let level = self.level();
                let at = self.take(node_lines(level, key.len()))?;
                *draft.node.insert((at, level))
            }
        };
        if !store.lock_before(place, level, None) {
            return Ok(false);
        }
        #[cfg(test)]
        let is_late = store.is_planted(crate::tests::Planted::LinkedBeforePersisted);
        #[cfg(not(test))]
        let is_late = false;
        let sum = self.write_node(node, key, (new, sum), &place.behind[..level], is_late);
        let entry = self.prepare_links(Action::Insert, [node, new], place, level, sum);
        for (i, before) in place.before[..level].iter().enumerate() {
            store.modify(before + NEXT + 8 * i as u64, node);
        }
        if is_late {
            store.medium.flush(Offset(node), LINE_BYTES * node_lines(level, key.len()));
        }
        store.modified();
        store.commit(entry);
        store.height.fetch_max(level, std::sync::atomic::Ordering::Relaxed);
        store.cache.fill(cache::hash(key), node);
        store.unlock_before(place, level);
        store.unlock(node);
        *draft = Draft::default();
        Ok(true)
    }

    /// Writes a locked node that nothing points to; starts its write-back unless it `is_late`. Returns the sum of its
    /// value and itself.
    fn write_node(
        &self,
        node: u64,
        key: &[u8],
        (value, sum): (u64, u32),
        behind: &[u64],
        is_late: bool,
    ) -> u32 {
        let store = self.store;
        let mut words = [0; NEXT as usize + 8 * HEIGHT_MAX];
        let mut set = |at: u64, word: u64| words[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        set(HEADER, header(behind.len(), key.len()));
        set(LOCK, store.locked_word());
        set(STATE, LIVE);
        set(VALUE, value);
        for (i, next) in behind.iter().enumerate() {
            set(NEXT + 8 * i as u64, *next);
        }
        let parts: [&[u8]; 3] = [&words[..NEXT as usize + 8 * behind.len()], key, padding(key.len())];
        if is_late {
            store.medium.store(Offset(node), &parts);
        } else {
            store.medium.write(Offset(node), &parts);
        }
        if store.log == LogKind::Redo { summed(sum, &parts) } else { 0 }
    }

    /// Prepares the entry for a change of the links to `node`, whose predecessors are locked.
    fn prepare_links(
        &mut self,
        action: Action,
        [node, value]: [u64; 2],
        place: &Place,
        level: usize,
        sum: u32,
    ) -> Active {
        let before = &place.before[..level];
        match self.store.log {
            LogKind::Redo => self.store.prepare_redo(&mut self.slot, action, [node, value], before, sum),
            LogKind::Undo => {
                let state = (action == Action::Delete).then_some((node + STATE, 8));
                let links = before.iter().enumerate().map(|(i, before)| (before + NEXT + 8 * i as u64, 8));
                self.store.prepare_undo(&mut self.slot, links.chain(state))
            }
        }
    }

    /// Removes `key`, durably when it returns; returns whether it existed.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let store = self.store;
        let guard = store.epochs.pin(self.number);
        let Some(node) = self.find(key) else { return false };
        store.lock(node);
        if !store.is_live(node) {
            store.unlock(node);
            return false;
        }
        let (level, _) = level_and_key_bytes(store.word(node + HEADER));
        let mut spins = 0;
        let place = loop {
            let place = store.find_place(key);
            if store.lock_before(&place, level, Some(node)) {
                break place;
            }
            wait(&mut spins);
        };
        let entry = self.prepare_links(Action::Delete, [node, 0], &place, level, 0);
        store.modify(node + STATE, 0);
        for (i, before) in place.before[..level].iter().enumerate().rev() {
            store.modify(before + NEXT + 8 * i as u64, store.next(node, i));
        }
        store.modified();
        store.commit(entry);
        store.cache.clear(cache::hash(key), node);
        store.unlock_before(&place, level);
        store.unlock(node);
        self.retire_node(node, &guard);
        true
    }

    /// Retires a node that nothing points to any more, and its value.
    fn retire_node(&mut self, node: u64, _pinned: &Guard<'_>) {
        let store = self.store;
        let (level, key_bytes) = level_and_key_bytes(store.word(node + HEADER));
        let value = store.word(node + VALUE);
        self.retire(value, value_lines(store.word(value)));
        self.retire(node, node_lines(level, key_bytes));
    }

    /// Visits up to `count` entries from `key` on, in ascending order; returns their number. Each value is one that its
    /// key had during the call. Keys that are put or deleted meanwhile may be visited or not. While it lasts, no
    /// session's retired space is used again.
    pub fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> usize {
        let store = self.store;
        let _guard = store.epochs.pin(self.number);
        let mut node = store.find_place(key).behind[0];
        let mut seen = 0;
        while node != 0 && seen < count {
            // The next node is fetched while this value is read, and its value while this one is visited.
            let next = store.next(node, 0);
            if next != 0 {
                store.medium.prefetch(Offset(next));
            }
            if store.is_live(node) {
                store.copy_key(node, &mut self.key);
                store.copy_value(node, &mut self.value);
                visit(&self.key, &self.value);
                seen += 1;
            }
            if next != 0 {
                store.medium.prefetch(Offset(store.word(next + VALUE)));
            }
            node = next;
        }
        seen
    }
}

impl<M: Medium> Store<M> {
    /// Begins a session: one for each thread that works with the store.
    ///
    /// # Errors
    /// `InvalidInput` when there are as many as the store was made for.
    pub fn session(&self) -> Result<Session<'_, M>> {
        Ok(Session::new(self, self.take_number()?))
    }
}

impl<M: Medium> Drop for Session<'_, M> {
    fn drop(&mut self) {
        self.store.heap.leave(std::mem::take(&mut self.arena));
        self.store.give_back(self.number);
    }
}
