//! Decides when nobody can read a block any more: by epochs, which advance when all sessions have seen them.
//!
//! A session is pinned as long as an operation takes. A block that is retired in epoch *e* is free in *e + 3*. A reader
//! that was pinned before the retirement (at most *e*) may have pointed the cache to the block until it left. A reader
//! that followed the cache was pinned at *e + 1* at most and holds the epoch below *e + 3*.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize, fence};

const EPOCHS_TO_WAIT: u64 = 3;
// 32: an attempt to advance the epoch is made once for so many blocks; each reads a line of every session.
const RETIRED_PER_TRY: u32 = 32;

#[repr(align(64))]
#[derive(Default)]
struct Pinned(AtomicU64);

/// The epoch, and the epoch in which each session is pinned.
pub(crate) struct Epochs {
    now: AtomicU64,
    /// 0 if not pinned; otherwise twice the epoch, plus one.
    pinned: Box<[Pinned]>,
    /// The highest number of sessions at once so far.
    sessions: AtomicUsize,
}

/// Pins a session until dropped.
pub(crate) struct Guard<'e>(&'e AtomicU64);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // Release: the session's reads complete before another thread sees it unpinned.
        self.0.store(0, Release);
    }
}

impl Epochs {
    pub(crate) fn new(sessions: usize) -> Self {
        Self {
            now: AtomicU64::new(1),
            pinned: (0..sessions).map(|_| Pinned::default()).collect(),
            sessions: AtomicUsize::new(0),
        }
    }

    /// Registers session `session`.
    pub(crate) fn enter(&self, session: usize) {
        self.sessions.fetch_max(session + 1, SeqCst);
    }

    /// Pins `session`, which is not pinned.
    #[inline]
    pub(crate) fn pin(&self, session: usize) -> Guard<'_> {
        let slot = &self.pinned[session].0;
        loop {
            let now = self.now.load(Acquire);
            slot.store(now << 1 | 1, Relaxed);
            // Nothing is read before others can see the pin.
            fence(SeqCst);
            // The epoch may have advanced before others saw this session's pin.
            if self.now.load(SeqCst) == now {
                return Guard(slot);
            }
        }
    }

    fn try_advance(&self) {
        fence(SeqCst);
        let now = self.now.load(SeqCst);
        let sessions = self.sessions.load(SeqCst);
        let is_behind = |pinned: u64| pinned != 0 && pinned >> 1 != now;
        if !self.pinned[..sessions].iter().any(|slot| is_behind(slot.0.load(SeqCst))) {
            let _ = self.now.compare_exchange(now, now + 1, SeqCst, Relaxed);
        }
    }
}

/// A block and its number of lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) at: u64,
    pub(crate) lines: u64,
}

/// Retired blocks of one session that are not free yet.
#[derive(Default)]
pub(crate) struct Limbo {
    waiting: VecDeque<(u64, Block)>,
    count: u32,
}

impl Limbo {
    /// Retires `block`: only readers that reached it before can still read it.
    pub(crate) fn retire(&mut self, epochs: &Epochs, block: Block, free: &mut impl FnMut(Block)) {
        self.waiting.push_back((epochs.now.load(SeqCst), block));
        self.count += 1;
        if self.count.is_multiple_of(RETIRED_PER_TRY) {
            epochs.try_advance();
            self.release(epochs, free);
        }
    }

    fn release(&mut self, epochs: &Epochs, free: &mut impl FnMut(Block)) {
        let now = epochs.now.load(SeqCst);
        while let Some(&(epoch, block)) = self.waiting.front() {
            if epoch + EPOCHS_TO_WAIT > now {
                return;
            }
            self.waiting.pop_front();
            free(block);
        }
    }

    /// Takes over the blocks of another session that ended.
    pub(crate) fn take_over(&mut self, other: &mut Self) {
        self.waiting.extend(other.waiting.drain(..));
        // The epochs of two sessions interleave, and `release` checks the front alone.
        self.waiting.make_contiguous().sort_by_key(|(epoch, _)| *epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_not_freed_while_a_session_that_could_see_it_is_pinned() {
        let epochs = Epochs::new(2);
        epochs.enter(0);
        epochs.enter(1);
        let mut limbo = Limbo::default();
        let mut freed = Vec::new();
        let reader = epochs.pin(1);
        for at in 0..1000 {
            limbo.retire(&epochs, Block { at, lines: 1 }, &mut |block| freed.push(block.at));
        }
        assert!(freed.is_empty());
        drop(reader);
        for at in 1000..1200 {
            limbo.retire(&epochs, Block { at, lines: 1 }, &mut |block| freed.push(block.at));
        }
        assert!(freed.len() >= 1000, "{} freed", freed.len());
        assert!(freed.iter().copied().eq(0..freed.len() as u64), "in order, none twice");
    }
}
