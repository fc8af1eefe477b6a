//! A medium for models: plain memory in which loom watches the stores and reads of each range.
//!
//! It reports a plain store that is not ordered against another access of the same bytes by a release and an acquire of
//! the engine between them. A word stored by [`Persistent::store_u64`] is a loom atomic from then on, so a load of it
//! may return any value that the memory model allows. It does not report a plain read of a word that another thread
//! stores atomically. `flush` reads the bytes that it flushes, and notes them: the crash driver tests power failures. An
//! atomic store that a model weakens is a plain one.

use duramen_log::sync::modelled::weaken::is_weakened;
use duramen_media::{Bytes, Device, Granularity, Offset, Persistent, Result};
use loom::sync::atomic::AtomicU64 as Word;
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that were stored together.
struct Range {
    from: u64,
    to: u64,
    watched: loom::cell::UnsafeCell<()>,
}

#[derive(Default)]
struct State {
    ranges: Vec<Range>,
    words: BTreeMap<u64, Arc<Word>>,
    /// The words that were flushed since they were last stored.
    flushed: BTreeSet<u64>,
}

pub(super) struct ModelMedium {
    memory: Box<[UnsafeCell<u64>]>,
    len: AtomicU64,
    granularity: Granularity,
    state: Mutex<State>,
}

// SAFETY: a model has one thread of the system, on which loom's threads take turns.
unsafe impl Send for ModelMedium {}
// SAFETY: as above.
unsafe impl Sync for ModelMedium {}

impl ModelMedium {
    pub(super) fn new(bytes_max: u64, granularity: Granularity) -> Self {
        Self {
            memory: (0..bytes_max / 8).map(|_| UnsafeCell::new(0)).collect(),
            len: AtomicU64::new(0),
            granularity,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, at: Offset, bytes: u64) -> *mut u8 {
        assert!(at.0 + bytes <= self.len.load(SeqCst), "access of {bytes} bytes at {at}");
        self.memory.as_ptr().cast::<u8>().wrapping_add(at.0 as usize).cast_mut()
    }

    fn reads(&self, from: u64, to: u64) {
        for range in self.state().ranges.iter().filter(|range| range.from < to && from < range.to) {
            range.watched.with(|_| ());
        }
    }

    fn stores(&self, from: u64, to: u64) {
        let mut state = self.state();
        for range in state.ranges.iter().filter(|range| range.from < to && from < range.to) {
            range.watched.with_mut(|_| ());
        }
        state.words.retain(|&at, _| at + 8 <= from || to <= at);
        state.flushed.retain(|&at| at + 8 <= from || to <= at);
        if !state.ranges.iter().any(|range| (range.from, range.to) == (from, to)) {
            state.ranges.retain(|range| range.from < from || to < range.to);
            state.ranges.push(Range { from, to, watched: loom::cell::UnsafeCell::new(()) });
        }
    }

    /// Reads `bytes`, which lie on this medium, again: a store that overwrote them meanwhile is reported.
    pub(super) fn look(&self, bytes: &[u8]) {
        let from = self.offset_of(bytes);
        self.reads(from, from + bytes.len() as u64);
    }

    /// Where the bytes end that begin at `at` and were flushed.
    pub(super) fn flushed_to(&self, at: Offset) -> Offset {
        let state = self.state();
        Offset((at.0..).step_by(8).find(|at| !state.flushed.contains(at)).unwrap_or(at.0))
    }

    /// The offset of `bytes`, which lie on this medium.
    pub(super) fn offset_of(&self, bytes: &[u8]) -> u64 {
        bytes.as_ptr() as u64 - self.memory.as_ptr() as u64
    }
}

impl Bytes for ModelMedium {
    fn len(&self) -> u64 {
        self.len.load(SeqCst)
    }

    fn pointer(&self, at: Offset, bytes: u64) -> *const u8 {
        self.reads(at.0, at.0 + bytes);
        self.place(at, bytes)
    }

    fn load_u64(&self, at: Offset) -> u64 {
        self.reads(at.0, at.0 + 8);
        let word = self.state().words.get(&at.0).cloned();
        match word {
            Some(word) => word.load(loom::sync::atomic::Ordering::Acquire),
            // SAFETY: `place` checked the range; one thread of the system.
            None => unsafe { self.place(at, 8).cast::<u64>().read() },
        }
    }

    fn prefetch(&self, _at: Offset) {}
}

impl Persistent for ModelMedium {
    fn granularity(&self) -> Granularity {
        self.granularity
    }

    fn store_u64(&self, at: Offset, word: u64) {
        let to = self.place(at, 8).cast::<u64>();
        // SAFETY: `place` checked the range; one thread of the system.
        let now = unsafe { to.read() };
        let atomic = Arc::clone(self.state().words.entry(at.0).or_insert_with(|| Arc::new(Word::new(now))));
        atomic.store(word, loom::sync::atomic::Ordering::Release);
        // SAFETY: as above.
        unsafe { to.write(word) };
    }

    #[track_caller]
    fn store_atomic(&self, at: Offset, bytes: &[u8]) -> bool {
        let Ok(word) = bytes.try_into() else { return false };
        if is_weakened(Location::caller()) {
            self.store(at, &[bytes]);
        } else {
            self.store_u64(at, u64::from_le_bytes(word));
        }
        true
    }

    fn store(&self, at: Offset, parts: &[&[u8]]) {
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.stores(at.0, at.0 + bytes);
        let mut to = self.place(at, bytes);
        for part in parts {
            // SAFETY: `place` checked the range of all parts; one thread of the system.
            unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            to = to.wrapping_add(part.len());
        }
    }

    fn write(&self, at: Offset, parts: &[&[u8]]) {
        self.store(at, parts);
    }

    fn flush(&self, at: Offset, bytes: u64) {
        self.reads(at.0, at.0 + bytes);
        self.state().flushed.extend((at.0..at.0 + bytes).step_by(8));
    }

    fn drain(&self) {}

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl Device for ModelMedium {
    fn len_max(&self) -> u64 {
        self.memory.len() as u64 * 8
    }

    fn grow(&self, len: u64) -> Result<()> {
        if len > self.len_max() {
            return Err(duramen_media::Error::new(
                duramen_media::ErrorKind::OutOfSpace,
                format!("the model's medium has {} bytes, wanted {len}", self.len_max()),
            ));
        }
        self.len.fetch_max(len, SeqCst);
        Ok(())
    }

    fn interleave(&self) -> (u64, u32) {
        (512, 1)
    }

    fn survives_process(&self) -> bool {
        true
    }

    fn survives_power(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "memory of a model".into()
    }
}
