//! Scans of a map, and random elements.

use super::*;

/// Maximum number of draws before a search in order: with one slot in a hundred taken, all draws fail in one call of
/// 20,000.
const DRAWS: u32 = 1000;

impl Map {
    /// Visits the elements at `cursor`, those of a bucket and maybe others, and returns the cursor of the next; 0 at
    /// the end.
    ///
    /// A cursor is a position with its bits in reverse, so that it is as small as the map. All elements of lower
    /// positions have been visited. An element's position never changes, so a scan misses no element that stays,
    /// whatever splits and merges meanwhile. Some may be visited twice.
    pub fn scan(&self, cursor: u64, visit: &mut dyn FnMut(Slot)) -> u64 {
        self.scan_by(cursor, &|_| None, visit)
    }

    /// The same; while nobody changes the map, only damaged elements may be visited twice.
    pub fn scan_once(&self, cursor: u64, keys: &impl Keys, visit: &mut dyn FnMut(Slot)) -> u64 {
        self.scan_by(cursor, &|slot| keys.hash_at(slot.location()).map(skew), visit)
    }

    fn scan_by(
        &self,
        cursor: u64,
        position_of: &dyn Fn(Slot) -> Option<u64>,
        visit: &mut dyn FnMut(Slot),
    ) -> u64 {
        let position = cursor.reverse_bits();
        let entry = self.entry(position);
        let mut next = None;
        if entry.is_page() {
            let (bits, depth) = (entry.bits(), entry.depth());
            let home = |position: u64| top(position << depth, bits);
            self.each_of_bucket(entry, home(position), visit, &|slot| position_of(slot).map(home));
            let step = 1u64.checked_shl(64 - depth - bits);
            next = step.and_then(|step| (position & !(step - 1)).checked_add(step));
        }
        match next {
            Some(next) => next.reverse_bits(),
            None => {
                self.overflow.iter().for_each(|overflow| visit(overflow.slot));
                0
            }
        }
    }

    /// Visits the elements of a home bucket. Slots three or more buckets from home do not say which one it is. Those of
    /// other buckets are visited as well if `home_of` does not know it.
    fn each_of_bucket(
        &self,
        entry: Entry,
        home: u32,
        visit: &mut dyn FnMut(Slot),
        home_of: &dyn Fn(Slot) -> Option<u32>,
    ) {
        for away in 0..1 << entry.bits() {
            let line = self.line(entry.page(), entry.bits(), home + away);
            let mut is_passed = false;
            for word in line {
                let word = word.load(Relaxed);
                is_passed |= word & BUCKET_BIT != 0;
                if word & LOCATION_MASK == 0 || word & (3 << AWAY_SHIFT) != away_field(away) {
                    continue;
                }
                let slot = Slot::of_word(word);
                if away < AWAY_MANY || home_of(slot).is_none_or(|its| its == home) {
                    visit(slot);
                }
            }
            if !is_passed {
                return;
            }
        }
    }

    /// Visits all elements once, including tombstones.
    pub fn each(&self, visit: &mut dyn FnMut(Slot)) {
        let mut position = Some(0);
        while let Some(at) = position {
            let entry = self.entry(at);
            self.each_of_page(entry, visit);
            position = behind(entry, at);
        }
        self.overflow.iter().for_each(|overflow| visit(overflow.slot));
    }

    /// Visits the elements of the page at `position`, including tombstones, and returns where the next page begins. A
    /// walk from 0 visits all elements once if the only changes are removals of tombstones.
    ///
    /// Removals merge pages. A merged page may begin before `position`; its elements before `position` were visited
    /// already.
    pub fn each_at(&self, position: u64, keys: &impl Keys, visit: &mut dyn FnMut(Slot)) -> Option<u64> {
        let entry = self.entry(position);
        if position << entry.depth() == 0 {
            self.each_of_page(entry, visit);
        } else {
            // A damaged record is visited, maybe twice: its reader gets an error.
            self.each_of_page(entry, &mut |slot| {
                if keys.hash_at(slot.location()).is_none_or(|hash| skew(hash) >= position) {
                    visit(slot);
                }
            });
        }
        let next = behind(entry, position);
        if next.is_none() {
            self.overflow.iter().for_each(|overflow| visit(overflow.slot));
        }
        next
    }

    fn each_of_page(&self, entry: Entry, visit: &mut dyn FnMut(Slot)) {
        if entry.is_page() {
            self.each_word(entry, |_, word| visit(Slot::of_word(word)));
        }
    }

    /// An element without a tombstone, all equally likely; `random` gives random words.
    ///
    /// A page is drawn by a random position, and skipped just often enough that all pages are equally likely. One of
    /// its slots is drawn; all this repeats until a taken slot is found. If hardly any is, because nearly all are
    /// tombstones, the next element after a random position is taken, which is less even.
    pub fn random(&self, mut random: impl FnMut() -> u64) -> Option<Slot> {
        if self.len() == 0 {
            return None;
        }
        let is_live = |slot: &Slot| !slot.is_empty() && !slot.is_tombstone();
        let deepest = (self.depths.len() as u32).saturating_sub(1);
        // Each slot of a page is drawn with a chance of one in this many; the rest's slots must be as likely.
        let in_pages =
            u64::from(slots(if deepest == 0 { self.root.bits() } else { PAGE_BITS_MAX })) << deepest;
        for _ in 0..DRAWS {
            let at = below(random(), in_pages + self.overflow.len() as u64);
            let slot = match at.checked_sub(in_pages).and_then(|at| self.overflow.get(at as usize)) {
                Some(overflow) => overflow.slot,
                None => self.draw(deepest, random(), random()),
            };
            if is_live(&slot) {
                return Some(slot);
            }
        }
        let mut cursor = random().reverse_bits();
        let mut live = None;
        // After the end the scan restarts at the beginning, and there is a live element somewhere.
        while live.is_none() {
            cursor = self.scan(cursor, &mut |slot| live = live.or(Some(slot).filter(is_live)));
        }
        live
    }

    /// A slot of the page that `position` draws, or an empty one.
    fn draw(&self, deepest: u32, position: u64, draw: u64) -> Slot {
        let entry = self.entry(position);
        // A page is hit in proportion to its range of positions. One with twice the range has no more slots: it is
        // skipped every other time.
        let more = deepest.saturating_sub(entry.depth());
        if !entry.is_page() || top(draw, more) != 0 {
            return Slot::default();
        }
        let at = below(draw << more, slots(entry.bits()).into()) as u32;
        let line = self.line(entry.page(), entry.bits(), at / LINE_WORDS as u32);
        let word = line[at as usize % LINE_WORDS].load(Relaxed);
        Slot::of_word(word)
    }
}

/// Where the page after that of a position begins.
pub(super) fn behind(entry: Entry, position: u64) -> Option<u64> {
    let step = 1u64.checked_shl(64 - entry.depth()).filter(|_| entry.is_page())?;
    (position & !(step - 1)).checked_add(step)
}

/// A number below `most`, from a random word.
fn below(random: u64, most: u64) -> u64 {
    ((u128::from(random) * u128::from(most)) >> 64) as u64
}
