//! The store: made or opened on a medium, and shared by its sessions.

use crate::cache::Cache;
use crate::heap::Heap;
use crate::layout::{
    CHUNKS_AT, GENERATION_AT, HEAD, HEADER, HEIGHT_MAX, LIVE, LOG_AT, LogKind, MAGIC, MAGIC_AT, NEXT,
    SHAPE_AT, STATE, entries, header, slot_bytes,
};
use crate::reclaim::Epochs;
use crate::{Error, ErrorKind, Result};
use duramen_media::{Granularity, LINE_BYTES, Medium, Offset, PAGE_BYTES};
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, PoisonError};

/// How a store is made or opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The content of the log. Must be that with which the store was made. Default: `Redo`.
    pub log: LogKind,
    /// Slots of the cache of direct references, 8 bytes of DRAM each; rounded up to a power of two. 0: none. Default:
    /// 2^20.
    pub cache_slots: usize,
    /// Bytes of a chunk, a multiple of 64 from 4096 to 1 GiB; the upper bound of a value. Default: 1 MiB. Ignored when
    /// the store exists.
    pub chunk_bytes: u64,
    /// The most sessions at once, 1 to 1024. Default: 64. Ignored when the store exists.
    pub sessions: usize,
    /// Whether an open searches for free blocks by a walk of all nodes. Without the walk, the time to open does not
    /// depend on their number. The free space is then not used until an open that does the walk. Default: true.
    pub rebuild: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { log: LogKind::Redo, cache_slots: 1 << 20, chunk_bytes: 1 << 20, sessions: 64, rebuild: true }
    }
}

/// An open store on medium `M`.
pub struct Store<M: Medium> {
    pub(crate) medium: M,
    pub(crate) log: LogKind,
    pub(crate) sessions: usize,
    /// The number of this open.
    pub(crate) generation: u64,
    /// Levels in use: a hint that is never too low for long.
    pub(crate) height: AtomicUsize,
    pub(crate) heap: Heap,
    pub(crate) epochs: Epochs,
    pub(crate) cache: Cache,
    /// The numbers that no session uses.
    numbers: Mutex<Vec<usize>>,
    replayed: u64,
    #[cfg(test)]
    pub(crate) planted: Option<crate::tests::Planted>,
    /// Words that may still be read with a planted bug, which may create cycles.
    #[cfg(test)]
    pub(crate) reads_left: std::sync::atomic::AtomicI64,
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, what)
}

/// A store's shape, as in its superblock.
#[derive(Clone, Copy)]
struct Shape {
    log: LogKind,
    chunk_bytes: u64,
    sessions: usize,
}

impl Shape {
    fn word(self) -> u64 {
        self.chunk_bytes | (self.sessions as u64) << 32 | u64::from(self.log == LogKind::Undo) << 48
    }

    fn of(word: u64) -> Self {
        let log = if word >> 48 == 0 { LogKind::Redo } else { LogKind::Undo };
        Self { log, chunk_bytes: word & 0xffff_ffff, sessions: (word >> 32 & 0xffff) as usize }
    }

    fn check(self) -> Result<()> {
        let Self { chunk_bytes, sessions, .. } = self;
        if !chunk_bytes.is_multiple_of(LINE_BYTES) || !(PAGE_BYTES..=1 << 30).contains(&chunk_bytes) {
            return Err(invalid(format!(
                "chunks of {chunk_bytes} bytes: wanted a multiple of 64, from 4096 to 1 GiB"
            )));
        }
        if !(1..=1024).contains(&sessions) {
            return Err(invalid(format!("{sessions} sessions: wanted 1 to 1024")));
        }
        Ok(())
    }

    fn heap_at(self) -> u64 {
        (LOG_AT + self.sessions as u64 * slot_bytes(self.log)).next_multiple_of(PAGE_BYTES)
    }
}

impl<M: Medium> Store<M> {
    /// Opens the store on `medium`, or makes one if there is none.
    ///
    /// # Errors
    /// `InvalidInput` for a medium on which flushes make nothing durable, options out of their bounds, or a store with
    /// the other log; `Io` for a damaged store; or as growth of the medium.
    pub fn open(medium: M, options: &Options) -> Result<Self> {
        if medium.granularity() == Granularity::Page {
            return Err(invalid(format!(
                "cannot open a store on {}: line flushes do not reach the device; use shm or a DAX medium",
                medium.describe()
            )));
        }
        let exists = medium.len() >= LOG_AT && medium.load_u64(Offset(MAGIC_AT)) == MAGIC;
        let shape = if exists {
            Shape::of(medium.load_u64(Offset(SHAPE_AT)))
        } else {
            let Options { log, chunk_bytes, sessions, .. } = *options;
            Shape { log, chunk_bytes, sessions }
        };
        shape.check()?;
        if shape.log != options.log {
            return Err(invalid(format!("the store has log {:?}, wanted {:?}", shape.log, options.log)));
        }
        if !exists {
            create(&medium, shape)?;
        }
        let chunks = medium.load_u64(Offset(CHUNKS_AT));
        let end = chunks.checked_mul(shape.chunk_bytes).and_then(|bytes| bytes.checked_add(shape.heap_at()));
        if end.is_none_or(|end| end > medium.len()) {
            let text = format!("superblock: {chunks} chunks, which end beyond the medium's {}", medium.len());
            return Err(Error::new(ErrorKind::Io, format!("{text} bytes; the store is damaged")));
        }
        Self::adopt(medium, shape, options, chunks)
    }

    fn adopt(medium: M, shape: Shape, options: &Options, chunks: u64) -> Result<Self> {
        // 32 bits, and never 0, so that a word that was never locked is not locked now.
        let generation = (medium.load_u64(Offset(GENERATION_AT)) % u64::from(u32::MAX)) + 1;
        let mut store = Self {
            log: shape.log,
            sessions: shape.sessions,
            generation,
            height: AtomicUsize::new(1),
            heap: Heap::new(shape.heap_at(), shape.chunk_bytes, chunks),
            epochs: Epochs::new(shape.sessions),
            cache: Cache::new(options.cache_slots),
            numbers: Mutex::new((0..shape.sessions).rev().collect()),
            replayed: 0,
            medium,
            #[cfg(test)]
            planted: None,
            #[cfg(test)]
            reads_left: 2_000_000.into(),
        };
        store.replayed = store.replay()?;
        store.medium.publish(Offset(GENERATION_AT), generation);
        let height = (0..HEIGHT_MAX).take_while(|level| store.next(HEAD, *level) != 0).count();
        store.height = AtomicUsize::new(height.max(1));
        if options.rebuild {
            store.rebuild_free_lists()?;
        }
        Ok(store)
    }

    /// Takes a number that no session uses, to be given back.
    pub(crate) fn take_number(&self) -> Result<usize> {
        let number = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        number.ok_or_else(|| {
            invalid(format!(
                "all {} sessions are in use: drop one, or create the store for more",
                self.sessions
            ))
        })
    }

    /// Gives the number of an ended session back.
    pub(crate) fn give_back(&self, number: usize) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    /// The end of the chunks.
    pub(crate) fn heap_end(&self) -> u64 {
        self.heap.chunk_at(self.heap.chunks())
    }

    /// Replaces the cache with an empty one; see [`Options::cache_slots`].
    pub fn set_cache_slots(&mut self, slots: usize) {
        self.cache = Cache::new(slots);
    }

    /// Bytes of the medium in use: superblock, log and chunks.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.heap_end()
    }

    /// The number of log entries that this open redid or undid.
    #[must_use]
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// The medium.
    #[must_use]
    pub fn medium(&self) -> &M {
        &self.medium
    }

    #[cfg(test)]
    pub(crate) fn is_planted(&self, bug: crate::tests::Planted) -> bool {
        self.planted == Some(bug)
    }
}

/// Makes an empty store; the magic is published last, so that a crash leaves a whole store or none.
fn create<M: Medium>(medium: &M, shape: Shape) -> Result<()> {
    medium.grow(shape.heap_at())?;
    for entry in entries(shape.log, shape.sessions) {
        medium.store_u64(Offset(entry), 0);
        medium.flush(Offset(entry), 8);
    }
    let mut head = [0u64; (NEXT / 8) as usize + HEIGHT_MAX];
    head[(HEADER / 8) as usize] = header(HEIGHT_MAX, 0);
    head[(STATE / 8) as usize] = LIVE;
    for (word, at) in head.into_iter().zip((HEAD..).step_by(8)) {
        medium.store_u64(Offset(at), word);
    }
    medium.flush(Offset(HEAD), 8 * head.len() as u64);
    for (at, word) in [(SHAPE_AT, shape.word()), (GENERATION_AT, 0), (CHUNKS_AT, 0)] {
        medium.store_u64(Offset(at), word);
    }
    medium.flush(Offset(MAGIC_AT), LINE_BYTES);
    medium.drain();
    medium.publish(Offset(MAGIC_AT), MAGIC);
    Ok(())
}
