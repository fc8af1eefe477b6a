//! The images that a power failure could leave, along a log.
//!
//! A [`Walker`] keeps the certain content at its position, and for each unit (a line; on page media a sector) the
//! stores that are not certain yet, in order. An image is the certain content, and for each unit a prefix of those
//! stores. The store after the prefix may be present in some of its words, and non-temporal words inside the prefix may
//! be missing. Units are independent.
//!
//! Between two drains nothing becomes certain and stores are only added, so the images at a drain include those at all
//! events before it. On cache-line and page media, crashing at drains and syncs is therefore enough. With byte
//! granularity every store is a crash point.

use super::log::{Event, Kind, Log};
use super::memory::{LINE_WORDS, Memory};
use super::{Model, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Lines in a sector, which a device writes whole: 512 bytes.
const SECTOR_LINES: u32 = 8;

/// A store that is not certain.
#[derive(Clone, Copy, Debug)]
struct Pending {
    event: u32,
    mask: u8,
}

/// One unit of an image, beyond its certain content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pick {
    unit: u32,
    /// How many of its uncertain stores are in.
    count: u32,
    /// Words of the next one that are in too.
    torn: u8,
    /// Non-temporal stores among the first 32 that are not in.
    missing: u32,
}

/// What distinguishes one image from the others at the same position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    picks: Vec<Pick>,
    /// Whether the medium has the length it was grown to.
    grown: bool,
    /// With byte granularity: words of the store at the position itself that are in.
    torn: u8,
}

impl Choice {
    /// Whether part of the store at the position itself is in.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.torn != 0
    }
}

/// Goes along a log and forms images.
pub struct Walker<'l> {
    log: &'l Log,
    at: usize,
    sure: Vec<[u64; LINE_WORDS]>,
    sure_len: u64,
    len: u64,
    pending: BTreeMap<u32, Vec<Pending>>,
    /// What each thread's next drain makes certain: a unit, up to which event, and whether only that event.
    flushed: BTreeMap<u16, Vec<(u32, u32, bool)>>,
    /// Stores before this event were dropped by a sync that failed: no later sync makes them certain.
    void: u32,
    frame: Arc<Memory>,
}

impl<'l> Walker<'l> {
    /// At the beginning of `log`.
    #[must_use]
    pub fn new(log: &'l Log) -> Self {
        let frame = Memory::from_lines(&log.base, log.len_max);
        Self {
            log,
            at: 0,
            sure: frame.snapshot(),
            sure_len: log.base_len,
            len: log.base_len,
            pending: BTreeMap::new(),
            flushed: BTreeMap::new(),
            void: 0,
            frame: Arc::new(frame),
        }
    }

    /// How many events have happened.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Goes on to the next position at which images should be formed, `None` at the end of the log. The end
    /// is itself such a position.
    pub fn next_point(&mut self) -> Option<usize> {
        loop {
            if self.at >= self.log.events.len() {
                return None;
            }
            self.step();
            let Some(next) = self.log.events.get(self.at) else { return Some(self.at) };
            let point = match self.log.model {
                Model::Byte => next.kind != Kind::Flush,
                _ => matches!(next.kind, Kind::Drain | Kind::Sync | Kind::SyncVoid),
            };
            if point {
                return Some(self.at);
            }
        }
    }

    /// Goes on to `position`.
    pub fn advance(&mut self, position: usize) {
        while self.at < position.min(self.log.events.len()) {
            self.step();
        }
    }

    fn unit_of(&self, line: u32) -> u32 {
        if self.log.model == Model::Page { line / SECTOR_LINES } else { line }
    }

    fn step(&mut self) {
        let at = self.at as u32;
        let event = &self.log.events[self.at];
        self.at += 1;
        let (model, unit) = (self.log.model, self.unit_of(event.line));
        match event.kind {
            Kind::Store | Kind::Atomic | Kind::Write => {
                if model == Model::Byte && event.kind != Kind::Write {
                    self.make_sure(event, event.mask, at);
                } else {
                    self.pending.entry(unit).or_default().push(Pending { event: at, mask: event.mask });
                    if event.kind == Kind::Write && model != Model::Page {
                        self.flushed.entry(event.thread).or_default().push((unit, at, true));
                    }
                }
            }
            Kind::Flush if model == Model::CacheLine => {
                let lines = event.line..event.words[0] as u32;
                let flushed = self.flushed.entry(event.thread).or_default();
                for (&line, stores) in self.pending.range(lines) {
                    if let Some(last) = stores.last() {
                        flushed.push((line, last.event, false));
                    }
                }
            }
            Kind::Drain | Kind::Sync if model != Model::Page => self.drain(event.thread),
            Kind::Sync => {
                for (unit, stores) in std::mem::take(&mut self.pending) {
                    let (void, sure): (Vec<_>, Vec<_>) =
                        stores.into_iter().partition(|store| store.event < self.void);
                    if !void.is_empty() {
                        self.pending.insert(unit, void);
                    }
                    for store in sure {
                        self.make_sure(&self.log.events[store.event as usize], store.mask, store.event);
                    }
                }
                self.sure_len = self.len;
            }
            Kind::SyncVoid => self.void = at,
            Kind::Grow => {
                self.len = event.words[0];
                if model != Model::Page {
                    self.sure_len = self.len;
                }
            }
            Kind::Flush | Kind::Drain => {}
        }
    }

    /// Makes words certain; older stores of the same words no longer matter.
    fn make_sure(&mut self, event: &Event, mask: u8, at: u32) {
        assert!(
            event.stores() && mask & !event.mask == 0,
            "only words that were stored become certain (sim, invariant 2)"
        );
        let words = &mut self.sure[event.line as usize];
        for (i, word) in words.iter_mut().enumerate() {
            if mask >> i & 1 != 0 {
                *word = event.words[i];
            }
        }
        self.frame.mark_dirty(event.line);
        let unit = self.unit_of(event.line);
        if let Some(stores) = self.pending.get_mut(&unit) {
            for store in stores.iter_mut() {
                if store.event < at && self.log.events[store.event as usize].line == event.line {
                    store.mask &= !mask;
                }
            }
            stores.retain(|store| store.mask != 0);
            if stores.is_empty() {
                self.pending.remove(&unit);
            }
        }
    }

    fn drain(&mut self, thread: u16) {
        for (unit, last, alone) in self.flushed.remove(&thread).unwrap_or_default() {
            let Some(stores) = self.pending.get_mut(&unit) else { continue };
            let sure: Vec<Pending> = stores
                .extract_if(.., |store| if alone { store.event == last } else { store.event <= last })
                .collect();
            for store in sure {
                self.make_sure(&self.log.events[store.event as usize], store.mask, store.event);
            }
            if self.pending.get(&unit).is_some_and(Vec::is_empty) {
                self.pending.remove(&unit);
            }
        }
    }

    /// Whether nothing is uncertain here: then there is one image only.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.pending.is_empty() && self.len == self.sure_len
    }

    /// The first event from `from` on whose store is not certain here.
    #[must_use]
    pub fn dirty_since(&self, from: usize) -> Option<usize> {
        let events = self.pending.values().flatten().map(|store| store.event as usize);
        events.filter(|&event| event >= from).min()
    }

    /// The image in which nothing uncertain is.
    #[must_use]
    pub fn none(&self) -> Choice {
        Choice { picks: Vec::new(), grown: false, torn: 0 }
    }

    /// The image in which everything is that was stored: also what another process sees.
    #[must_use]
    pub fn all(&self) -> Choice {
        self.stored_before(u32::MAX)
    }

    /// What was stored before event `end`, and nothing after.
    fn stored_before(&self, end: u32) -> Choice {
        let picks = self.pending.iter().map(|(&unit, stores)| {
            let count = stores.iter().take_while(|store| store.event < end).count() as u32;
            Pick { unit, count, torn: 0, missing: 0 }
        });
        Choice { picks: picks.filter(|pick| pick.count > 0).collect(), grown: true, torn: 0 }
    }

    /// Up to `budget` different choices: all when there are no more, else the simple ones (nothing, everything,
    /// prefixes in time, the latest lines only, one line missing, one line early) and random ones.
    #[must_use]
    pub fn choices(&self, rng: &mut Rng, budget: usize) -> Vec<Choice> {
        let mut found = BTreeSet::new();
        if let Some(event) = self.log.events.get(self.at)
            && self.log.model == Model::Byte
            && event.kind == Kind::Store
            && event.mask.count_ones() > 1
        {
            let torn = event.mask & rng.bits() as u8;
            found.insert(Choice { torn, ..self.all() });
            found.insert(Choice { torn, ..self.none() });
        }
        if !self.every_prefix(&mut found, budget) {
            self.simple(&mut found, rng, budget);
        }
        // Some always, since no simple choice tears a store.
        let random = if self.pending.is_empty() { 0 } else { (budget / 4).max(1) };
        for _ in 0..random {
            found.insert(self.random(rng));
        }
        let mut choices: Vec<Choice> = found.into_iter().collect();
        while choices.len() > budget.max(1) {
            choices.swap_remove(rng.below(choices.len() as u64) as usize);
        }
        choices
    }

    /// Every combination of prefixes, if there are no more than `budget`.
    fn every_prefix(&self, found: &mut BTreeSet<Choice>, budget: usize) -> bool {
        let lengths = usize::from(self.len != self.sure_len) + 1;
        let mut product = lengths;
        for stores in self.pending.values() {
            product = product.saturating_mul(stores.len() + 1);
            if product > budget {
                return false;
            }
        }
        for mut n in 0..product {
            let grown = n % lengths == 1 || lengths == 1;
            n /= lengths;
            let mut picks = Vec::new();
            for (&unit, stores) in &self.pending {
                let count = (n % (stores.len() + 1)) as u32;
                n /= stores.len() + 1;
                if count > 0 {
                    picks.push(Pick { unit, count, torn: 0, missing: 0 });
                }
            }
            found.insert(Choice { picks, grown, torn: 0 });
        }
        true
    }

    fn simple(&self, found: &mut BTreeSet<Choice>, rng: &mut Rng, budget: usize) {
        let all = self.all();
        found.insert(self.none());
        found.insert(all.clone());
        let units = all.picks.len() as u64;
        let each = (budget as u64 / 5).clamp(1, 16);
        let first = self.pending.values().flatten().map(|store| store.event).min().unwrap_or(0);
        for _ in 0..each {
            let end = first + rng.below(u64::from(self.at as u32 - first) + 1) as u32;
            found.insert(self.stored_before(end));
        }
        // The lines that were stored to last, and none of the others.
        let mut order: Vec<&Pick> = all.picks.iter().collect();
        order.sort_by_key(|pick| self.pending[&pick.unit].last().map(|store| store.event));
        for _ in 0..each {
            let from = rng.below(units + 1) as usize;
            let mut picks: Vec<Pick> = order[from.min(order.len())..].iter().map(|&&pick| pick).collect();
            picks.sort_unstable();
            found.insert(Choice { picks, ..all.clone() });
        }
        for _ in 0..each {
            let one = rng.below(units) as usize;
            let mut missing = all.clone();
            if one < missing.picks.len() {
                missing.picks.remove(one);
                found.insert(missing);
                found.insert(Choice { picks: vec![all.picks[one]], ..all.clone() });
            }
        }
    }

    fn random(&self, rng: &mut Rng) -> Choice {
        // Three temperaments: most lines out, half of them, most of them in.
        let likely = [1, 4, 7][rng.below(3) as usize];
        let mut picks = Vec::new();
        for (&unit, stores) in &self.pending {
            let full = stores.len() as u32;
            let count = match rng.below(8) {
                0 => rng.below(u64::from(full) + 1) as u32,
                n if n <= likely => full,
                _ => 0,
            };
            let (mut torn, mut missing) = (0, 0);
            if let Some(next) = stores.get(count as usize)
                && rng.one_in(3)
                && self.log.events[next.event as usize].kind != Kind::Atomic
            {
                torn = next.mask & rng.bits() as u8;
            }
            if self.log.model != Model::Page && rng.one_in(2) {
                missing = rng.bits() as u32 & rng.bits() as u32;
            }
            if count > 0 || torn != 0 {
                picks.push(Pick { unit, count, torn, missing });
            }
        }
        Choice { picks, grown: rng.one_in(2), torn: 0 }
    }

    /// Forms the image of `choice`, with its length. The memory is used again for the next image once
    /// nobody else holds it.
    pub fn form(&mut self, choice: &Choice) -> (Arc<Memory>, u64) {
        if Arc::strong_count(&self.frame) > 1 {
            self.frame = Arc::new(Memory::from_lines(&self.sure, self.log.len_max));
        } else {
            self.frame.restore(&self.sure);
        }
        let events = &self.log.events;
        for pick in &choice.picks {
            let Some(stores) = self.pending.get(&pick.unit) else { continue };
            for (i, store) in stores.iter().take(pick.count as usize).enumerate() {
                let event = &events[store.event as usize];
                assert!(
                    event.stores() && store.mask & !event.mask == 0,
                    "only words that were stored are in an image (sim, invariant 2)"
                );
                let missing = event.kind == Kind::Write && i < 32 && pick.missing >> i & 1 != 0;
                if !missing {
                    self.frame.set_line(event.line, store.mask, &event.words);
                }
            }
            if let Some(store) = stores.get(pick.count as usize) {
                let event = &events[store.event as usize];
                self.frame.set_line(event.line, store.mask & pick.torn, &event.words);
            }
        }
        if choice.torn != 0
            && let Some(event) = events.get(self.at)
        {
            self.frame.set_line(event.line, event.mask & choice.torn, &event.words);
        }
        let len = if choice.grown { self.len } else { self.sure_len };
        if len < self.len {
            self.cut(len);
        }
        (Arc::clone(&self.frame), len)
    }

    /// Bytes after the end of a file are absent.
    fn cut(&self, len: u64) {
        for line in (len / crate::LINE_BYTES) as u32..(self.len / crate::LINE_BYTES) as u32 {
            self.frame.set_line(line, u8::MAX, &[0; LINE_WORDS]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SimMedium;
    use super::*;
    use crate::{Bytes, Device, Offset, Persistent};

    fn word(memory: &Memory, at: u64) -> u64 {
        memory.line((at / 64) as u32)[(at / 8 % 8) as usize]
    }

    /// All values that the words at `places` can have together at the end of what `work` does.
    fn outcomes(model: Model, places: &[u64], work: impl FnOnce(&SimMedium)) -> BTreeSet<Vec<u64>> {
        let medium = SimMedium::resume(Log::empty(model, 1 << 16));
        medium.grow(1 << 16).unwrap();
        medium.sync().unwrap();
        work(&medium);
        let log = medium.log();
        let mut found = BTreeSet::new();
        for seed in 0..200 {
            let mut walker = Walker::new(&log);
            walker.advance(log.events.len());
            for choice in walker.choices(&mut Rng::new(seed), 64) {
                let (memory, _) = walker.form(&choice);
                found.insert(places.iter().map(|&at| word(&memory, at)).collect());
            }
        }
        found
    }

    fn set(of: &[&[u64]]) -> BTreeSet<Vec<u64>> {
        of.iter().map(|values| values.to_vec()).collect()
    }

    #[test]
    fn stores_to_two_lines_survive_in_any_combination_and_in_one_line_in_order() {
        let found = outcomes(Model::CacheLine, &[0, 64], |medium| {
            medium.store_u64(Offset(0), 1);
            medium.store_u64(Offset(64), 1);
        });
        assert_eq!(found, set(&[&[0, 0], &[0, 1], &[1, 0], &[1, 1]]));
        let found = outcomes(Model::CacheLine, &[0, 8], |medium| {
            medium.store_u64(Offset(0), 1);
            medium.store_u64(Offset(8), 1);
        });
        assert_eq!(found, set(&[&[0, 0], &[1, 0], &[1, 1]]));
    }

    #[test]
    fn a_flushed_line_is_certain_only_after_a_drain_and_only_as_it_was_flushed() {
        let flushed = |drain: bool| {
            outcomes(Model::CacheLine, &[0], |medium| {
                medium.store_u64(Offset(0), 1);
                medium.flush(Offset(0), 8);
                medium.store_u64(Offset(0), 2);
                if drain {
                    medium.drain();
                }
            })
        };
        assert_eq!(flushed(false), set(&[&[0], &[1], &[2]]));
        assert_eq!(flushed(true), set(&[&[1], &[2]]));
    }

    #[test]
    fn the_drain_of_another_thread_makes_nothing_certain() {
        let found = outcomes(Model::CacheLine, &[0], |medium| {
            medium.store_u64(Offset(0), 1);
            medium.flush(Offset(0), 8);
            std::thread::scope(|scope| {
                scope.spawn(|| medium.drain());
            });
        });
        assert_eq!(found, set(&[&[0], &[1]]));
    }

    #[test]
    fn written_words_of_one_line_survive_in_any_order_until_drained() {
        let found = outcomes(Model::CacheLine, &[0, 8], |medium| {
            medium.write(Offset(0), &[&1u64.to_le_bytes()]);
            medium.write(Offset(8), &[&1u64.to_le_bytes()]);
        });
        assert_eq!(found, set(&[&[0, 0], &[0, 1], &[1, 0], &[1, 1]]));
        let found = outcomes(Model::CacheLine, &[0, 8], |medium| {
            medium.write(Offset(0), &[&1u64.to_le_bytes()]);
            medium.drain();
            medium.store_u64(Offset(8), 1);
        });
        assert_eq!(found, set(&[&[1, 0], &[1, 1]]));
    }

    #[test]
    fn a_bulk_store_tears_at_words_and_an_atomic_one_never() {
        let pair = [1u64.to_le_bytes(), 1u64.to_le_bytes()].concat();
        let found = outcomes(Model::CacheLine, &[0, 8], |medium| medium.store(Offset(0), &[&pair]));
        assert_eq!(found, set(&[&[0, 0], &[0, 1], &[1, 0], &[1, 1]]));
    }

    #[test]
    fn with_byte_granularity_stores_survive_in_program_order() {
        let found = outcomes(Model::Byte, &[0, 64], |medium| {
            medium.store_u64(Offset(64), 1);
            medium.store_u64(Offset(0), 1);
        });
        assert_eq!(found, set(&[&[1, 1]]));
        let found = outcomes(Model::Byte, &[0, 64], |medium| {
            medium.write(Offset(64), &[&1u64.to_le_bytes()]);
            medium.store_u64(Offset(0), 1);
        });
        assert_eq!(found, set(&[&[1, 0], &[1, 1]]));
    }

    #[test]
    fn pages_survive_in_any_order_until_a_sync_that_did_not_fail() {
        let work = |how: fn(&SimMedium)| {
            outcomes(Model::Page, &[0, 4096], move |medium| {
                medium.store_u64(Offset(0), 1);
                medium.persist(Offset(0), 8);
                medium.store_u64(Offset(4096), 1);
                how(medium);
            })
        };
        let any = set(&[&[0, 0], &[0, 1], &[1, 0], &[1, 1]]);
        assert_eq!(work(|_| {}), any);
        assert_eq!(work(|medium| medium.sync().unwrap()), set(&[&[1, 1]]));
        assert_eq!(
            work(|medium| {
                medium.fail_sync_in(0);
                medium.sync().unwrap_err();
                medium.sync().unwrap();
            }),
            any
        );
        assert_eq!(
            work(|medium| {
                medium.lie_sync_in(0);
                medium.sync().unwrap();
            }),
            any
        );
    }

    #[test]
    fn a_file_may_have_its_old_length_until_a_sync() {
        let medium = SimMedium::resume(Log::empty(Model::Page, 1 << 16));
        medium.grow(4096).unwrap();
        medium.sync().unwrap();
        medium.grow(8192).unwrap();
        medium.store_u64(Offset(4096), 1);
        let log = medium.log();
        let mut walker = Walker::new(&log);
        walker.advance(log.events.len());
        let lens: BTreeSet<(u64, u64)> = walker
            .choices(&mut Rng::new(1), 16)
            .iter()
            .map(|choice| {
                let (memory, len) = walker.form(choice);
                (len, word(&memory, 4096))
            })
            .collect();
        assert_eq!(lens, [(4096, 0), (8192, 0), (8192, 1)].into());
    }

    /// Whether anything of `bytes` bytes at `at` may be lost once they were stored and persisted.
    fn dirty_after_persist(model: Model, at: u64, bytes: u64, flush_short: bool) -> bool {
        let medium = SimMedium::resume(Log::empty(model, 4096));
        medium.grow(4096).unwrap();
        medium.flush_short(flush_short);
        medium.store(Offset(at), &[&vec![1; bytes as usize]]);
        medium.persist(Offset(at), bytes);
        let log = medium.take_log();
        let mut walker = Walker::new(&log);
        walker.advance(log.events.len());
        !walker.is_certain()
    }

    #[test]
    fn every_byte_of_every_range_is_certain_once_it_is_persisted() {
        for at in 0..128 {
            for bytes in 0..=300 {
                assert!(!dirty_after_persist(Model::CacheLine, at, bytes, false), "{bytes} bytes at {at}");
            }
        }
    }

    #[test]
    fn bytes_acknowledged_while_dirty_are_seen() {
        let mut seen = 0;
        for at in 0..128 {
            for bytes in 1..=300 {
                let lines = crate::lines_of(at, bytes);
                let left_out = (lines.end - lines.start) / 64 > bytes.div_ceil(64);
                assert_eq!(
                    dirty_after_persist(Model::CacheLine, at, bytes, true),
                    left_out,
                    "{bytes} at {at}"
                );
                seen += u32::from(left_out);
            }
        }
        assert!(seen > 10_000, "{seen}");
    }

    #[test]
    fn another_process_sees_every_store_and_none_of_them_is_certain() {
        let medium = SimMedium::resume(Log::empty(Model::CacheLine, 1 << 16));
        medium.grow(4096).unwrap();
        medium.store_u64(Offset(0), 1);
        medium.flush(Offset(0), 8);
        let next = SimMedium::resume(medium.log());
        assert_eq!(next.load_u64(Offset(0)), 1);
        next.drain();
        let log = next.log();
        let mut walker = Walker::new(&log);
        walker.advance(log.events.len());
        let (memory, _) = walker.form(&walker.none());
        assert_eq!(word(&memory, 0), 0);
    }
}
