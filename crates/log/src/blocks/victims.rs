//! Where the blocks of each class of dead share are, so that a choice of victims need not look at all blocks.
//!
//! Blocks lie in *groups* of [`GROUP`] extents, groups in chunks, and these in larger parts. Each of them has a set of
//! classes, as bits of one word: those that its blocks may be in. The lowest bit is for blocks with much room after
//! their records, whatever is dead.
//!
//! A writer whose record makes a class rise adds the new class to the sets, from the group up, until one has it. The
//! compactor descends to the groups of a class, looks at all blocks there, and takes away what is not there any more.
//! Neither waits for the other:
//!
//! Invariants:
//! 1. The live bytes of a block are subtracted first, and then the class that it rises to is added to the sets. So while
//!    nobody is in between, all sets above a listed block have its class, or one above it that the block was in before.
//! 2. Only the thread with the compactor takes classes away: it empties a set by a swap, looks at what is below it, and
//!    adds what it finds. A writer that added its class before the swap is seen by that look (the swap acquires what
//!    the addition released). A writer that adds it later finds it gone, and goes on to the set above.

use crate::blocks::dead_share::Class;
use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::{AcqRel, Acquire};

/// Extents that share a set of classes: their entries take 2 KiB.
pub(super) const GROUP: usize = if cfg!(loom) { 4 } else { 64 };
/// Sets that share a larger one.
const FAN: usize = GROUP;

/// The bit of blocks with much room after their records.
pub(super) const ROOMY: u32 = Class::LOWEST.bit();

/// The classes of the blocks of one group, or of what shares a larger set.
#[derive(Default)]
pub(super) struct ClassSet(AtomicU32);

impl ClassSet {
    /// Whether one of these may be there.
    pub(super) fn get(&self) -> u32 {
        self.0.load(Acquire)
    }

    /// Adds classes; returns whether all were there.
    #[inline]
    pub(super) fn add(&self, classes: u32) -> bool {
        // Release: pairs with the Acquire in `renew`. Acquire: whoever finds the class knows of what it was added for.
        self.0.fetch_or(classes, AcqRel) & classes == classes
    }

    /// Replaces the set by what `look` finds (invariant 2).
    pub(super) fn renew(&self, look: impl FnOnce() -> u32) {
        self.0.swap(0, AcqRel);
        self.add(look());
    }
}

/// Which groups to look at: those that may have blocks of `class`, and none that was looked at for a higher one of
/// `done`.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) class: Class,
    pub(super) done: u32,
}

impl Wanted {
    pub(super) fn is_in(self, classes: u32) -> bool {
        classes & self.class.bit() != 0
    }

    pub(super) fn is_new(self, classes: u32) -> bool {
        classes & self.done == 0
    }
}

/// The sets of classes of chunks, and of the larger parts, up to one of the whole table.
pub(super) struct Parts(Box<[Box<[ClassSet]>]>);

impl Parts {
    pub(super) fn of(chunks: usize) -> Self {
        let mut levels: Vec<Box<[ClassSet]>> = Vec::new();
        let mut parts = chunks;
        loop {
            levels.push((0..parts).map(|_| ClassSet::default()).collect());
            if parts <= 1 {
                return Self(levels.into());
            }
            parts = parts.div_ceil(FAN);
        }
    }

    /// Adds classes to all sets above a group of `chunk`.
    pub(super) fn add(&self, chunk: usize, classes: u32) {
        let mut part = chunk;
        for level in &self.0 {
            if level[part].add(classes) {
                return;
            }
            part /= FAN;
        }
    }

    /// Whether all sets above a group of `chunk` have one of these classes.
    pub(super) fn have(&self, chunk: usize, classes: u32) -> bool {
        let mut part = chunk;
        self.0.iter().all(|level| {
            let has = level[part].get() & classes != 0;
            part /= FAN;
            has
        })
    }

    /// Visits the chunks that may have blocks of the class, the last one first, until `visit` says that it is enough.
    /// It returns that, and the classes that are left in the chunk. Returns whether it was enough.
    pub(super) fn visit(
        &self,
        wanted: Wanted,
        visit: &mut dyn FnMut(usize) -> bool,
        left: &dyn Fn(usize) -> u32,
    ) -> bool {
        let Some(root) = self.0.len().checked_sub(1) else { return false };
        !self.0[root].is_empty() && self.visit_part(root, 0, wanted, visit, left)
    }

    fn visit_part(
        &self,
        level: usize,
        part: usize,
        wanted: Wanted,
        visit: &mut dyn FnMut(usize) -> bool,
        left: &dyn Fn(usize) -> u32,
    ) -> bool {
        let set = &self.0[level][part];
        if !wanted.is_in(set.get()) {
            return false;
        }
        if level == 0 {
            let is_enough = visit(part);
            Self::bring_up_to_date(set, || left(part));
            return is_enough;
        }
        let below = part * FAN..self.0[level - 1].len().min((part + 1) * FAN);
        let mut parts = below.clone().rev();
        let is_enough = parts.any(|below| self.visit_part(level - 1, below, wanted, visit, left));
        let sets = &self.0[level - 1][below];
        Self::bring_up_to_date(set, || sets.iter().fold(0, |classes, set| classes | set.get()));
        is_enough
    }

    /// Brings a set up to date with what is below it, where a block was found in a lower class than before.
    fn bring_up_to_date(set: &ClassSet, look: impl Fn() -> u32) {
        let found = look();
        if set.get() & !found == 0 {
            set.add(found);
        } else {
            set.renew(look);
        }
    }
}
