//! The simulated medium itself: it stores, records, and fails on request.

use super::Model;
use super::log::{Event, Kind, Log};
use super::lost::is_lost;
use super::memory::{LINE_WORDS, Memory};
use super::schedule::{Point, point};
use crate::{
    Bytes, Device, Error, ErrorKind, Granularity, LINE_BYTES, Offset, PAGE_BYTES, Persistent, Result,
    lines_of,
};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// Events of one opening, and its threads.
struct Recording {
    log: Log,
    threads: HashMap<ThreadId, u16>,
    thread_next: u16,
}

impl Recording {
    fn push(&mut self, kind: Kind, mask: u8, line: u32, words: [u64; LINE_WORDS]) {
        let next = &mut self.thread_next;
        let thread = *self.threads.entry(std::thread::current().id()).or_insert_with(|| {
            *next += 1;
            *next
        });
        self.log.events.push(Event { kind, mask, thread, line, words });
    }
}

struct Machine {
    model: Model,
    len_max: u64,
    memory: Arc<Memory>,
    len: AtomicU64,
    recording: Option<Mutex<Recording>>,
    /// The power is off: nothing reaches the memory any more.
    off: AtomicBool,
    /// Syncs until one fails, or lies; below zero: none does.
    sync_fails_in: AtomicI64,
    sync_lies_in: AtomicI64,
    growth_refused: AtomicBool,
    growth_fails_in: AtomicI64,
    flush_short: AtomicBool,
    /// Ranges that cannot be read, and whether there are any.
    poisoned: Mutex<Vec<Range<u64>>>,
    is_poisoned: AtomicBool,
    /// Ranges without space; the flag says whether there are any.
    given_back: Mutex<Vec<Range<u64>>>,
    has_given_back: AtomicBool,
}

/// A simulated medium. Clones are the same medium: one goes into the store, and the test keeps another.
#[derive(Clone)]
pub struct SimMedium {
    machine: Arc<Machine>,
}

impl SimMedium {
    /// Continues where `log` ends, as a new process on the same machine would: it sees every store, and a store that
    /// was not durable still is not. Appends to `log`.
    ///
    /// With byte granularity, what the process before had written past the cache is drained: entering the
    /// kernel empties those buffers. (On cache-line media a `write` may have been a store whose flush never came.)
    #[must_use]
    pub fn resume(mut log: Log) -> Self {
        if log.model == Model::Byte {
            let threads: BTreeSet<u16> = log.events.iter().map(|event| event.thread).collect();
            for thread in threads {
                let words = [0; LINE_WORDS];
                log.events.push(Event { kind: Kind::Drain, mask: 0, thread, line: 0, words });
            }
        }
        let (memory, len) = log.replay();
        let thread_next = log.events.iter().map(|event| event.thread).max().unwrap_or(0);
        let (model, len_max) = (log.model, log.len_max);
        let recording = Recording { log, threads: HashMap::new(), thread_next };
        Self::new(model, len_max, Arc::new(memory), len, Some(Mutex::new(recording)))
    }

    /// Opens an image, all of which is durable. Records nothing.
    #[must_use]
    pub fn from_image(model: Model, len_max: u64, image: Arc<Memory>, len: u64) -> Self {
        Self::new(model, len_max, image, len, None)
    }

    fn new(
        model: Model,
        len_max: u64,
        memory: Arc<Memory>,
        len: u64,
        recording: Option<Mutex<Recording>>,
    ) -> Self {
        assert!(len_max <= memory.bytes(), "len_max {len_max} of a memory of {} bytes", memory.bytes());
        Self {
            machine: Arc::new(Machine {
                model,
                len_max,
                memory,
                len: AtomicU64::new(len),
                recording,
                off: AtomicBool::new(false),
                sync_fails_in: AtomicI64::new(-1),
                sync_lies_in: AtomicI64::new(-1),
                growth_refused: AtomicBool::new(false),
                growth_fails_in: AtomicI64::new(-1),
                flush_short: AtomicBool::new(false),
                poisoned: Mutex::default(),
                is_poisoned: AtomicBool::new(false),
                given_back: Mutex::default(),
                has_given_back: AtomicBool::new(false),
            }),
        }
    }

    /// Cuts the power: from now on stores are lost, and what can fail does.
    pub fn power_off(&self) {
        // Under the lock, so that no store that is being recorded is half in.
        let _recording = self.recording();
        self.machine.off.store(true, SeqCst);
    }

    /// Events recorded so far: the position of the next one.
    #[must_use]
    pub fn position(&self) -> usize {
        self.recording().map_or(0, |recording| recording.log.events.len())
    }

    /// Everything recorded so far. Empty when nothing is recorded.
    #[must_use]
    pub fn log(&self) -> Log {
        self.recording().map_or_else(
            || Log::empty(self.machine.model, self.machine.len_max),
            |recording| recording.log.clone(),
        )
    }

    /// Takes the record without a copy; later events start a new one.
    #[must_use]
    pub fn take_log(&self) -> Log {
        let empty = Log::empty(self.machine.model, self.machine.len_max);
        self.recording().map_or(empty.clone(), |mut recording| std::mem::replace(&mut recording.log, empty))
    }

    /// The memory of the medium.
    #[must_use]
    pub fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.machine.memory)
    }

    /// The sync after `syncs` more fails, and makes nothing durable.
    pub fn fail_sync_in(&self, syncs: u32) {
        self.machine.sync_fails_in.store(i64::from(syncs), Relaxed);
    }

    /// The sync after `syncs` more says that it succeeded, and makes nothing durable.
    pub fn lie_sync_in(&self, syncs: u32) {
        self.machine.sync_lies_in.store(i64::from(syncs), Relaxed);
    }

    /// The growth after `growths` more fails in the device.
    pub fn fail_growth_in(&self, growths: u32) {
        self.machine.growth_fails_in.store(i64::from(growths), Relaxed);
    }

    /// From now on the lines of this range cannot be read or stored to. On real hardware a machine check would end the
    /// process with SIGBUS; here, an access panics.
    pub fn poison(&self, at: Offset, bytes: u64) {
        self.poisoned().push(lines_of(at.0, bytes));
        self.machine.is_poisoned.store(true, Release);
    }

    fn given_back(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.machine.given_back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poisoned(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.machine.poisoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on growth finds no space.
    pub fn refuse_growth(&self, refuse: bool) {
        self.machine.growth_refused.store(refuse, Relaxed);
    }

    /// From now on a flush skips the last line of a range that does not begin on a line: the bug that [`lines_of`]
    /// prevents.
    pub fn flush_short(&self, short: bool) {
        self.machine.flush_short.store(short, Relaxed);
    }

    fn recording(&self) -> Option<MutexGuard<'_, Recording>> {
        self.machine.recording.as_ref().map(|r| r.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_off(&self) -> bool {
        self.machine.off.load(Relaxed)
    }

    fn check_bounds(&self, at: Offset, bytes: u64) {
        let len = self.len();
        assert!(
            at.0 <= len && bytes <= len - at.0,
            "access to {bytes} bytes at {at} of a medium of {len} bytes"
        );
    }

    fn check(&self, at: Offset, bytes: u64) {
        self.check_bounds(at, bytes);
        if self.machine.is_poisoned.load(Acquire) {
            let dead = self.unreadable(at, bytes);
            assert!(dead.is_empty(), "SIGBUS: {bytes} bytes at {at} of the simulated medium were accessed");
        }
        if self.machine.has_given_back.load(Acquire) {
            let given_back = self.given_back();
            let holds = |range: &Range<u64>| range.start < at.0 + bytes && at.0 < range.end;
            assert!(
                !given_back.iter().any(holds),
                "SIGBUS: {bytes} bytes at {at} of the simulated medium were accessed, which were given back"
            );
        }
    }

    /// Stores, and records each line.
    fn put(&self, kind: Kind, at: Offset, parts: &[&[u8]]) {
        self.check(at, parts.iter().map(|part| part.len() as u64).sum());
        point(Point::Store, at.0);
        let recording = self.recording();
        if self.is_off() {
            return;
        }
        let bytes = self.machine.memory.store(at.0, parts);
        let Some(mut recording) = recording else { return };
        for line in lines_of(at.0, bytes).step_by(LINE_BYTES as usize) {
            let first = at.0.max(line) / 8 % LINE_WORDS as u64;
            let last = ((at.0 + bytes).min(line + LINE_BYTES) - 1) / 8 % LINE_WORDS as u64;
            let mask = ((1u16 << (last + 1)) - (1u16 << first)) as u8;
            let line = (line / LINE_BYTES) as u32;
            recording.push(kind, mask, line, self.machine.memory.line(line));
        }
    }

    fn note(&self, kind: Kind, line: u32, word: u64) {
        if let Some(mut recording) = self.recording()
            && !self.is_off()
        {
            recording.push(kind, 0, line, [word, 0, 0, 0, 0, 0, 0, 0]);
        }
    }

    /// Counts down to a fault; whether it is due now.
    fn is_due(count: &AtomicI64) -> bool {
        count.load(Relaxed) >= 0 && count.fetch_sub(1, Relaxed) == 0
    }
}

impl Bytes for SimMedium {
    fn len(&self) -> u64 {
        self.machine.len.load(Acquire)
    }

    fn pointer(&self, at: Offset, bytes: u64) -> *const u8 {
        point(Point::Load, at.0);
        self.check(at, bytes);
        self.machine.memory.pointer(at.0)
    }

    fn unreadable(&self, at: Offset, bytes: u64) -> Vec<Range<u64>> {
        let poisoned = self.poisoned();
        let inside = |range: &Range<u64>| range.start.max(at.0)..range.end.min(at.0 + bytes);
        poisoned.iter().map(inside).filter(|range| !range.is_empty()).collect()
    }

    fn load_u64(&self, at: Offset) -> u64 {
        point(Point::Load, at.0);
        assert!(at.0.is_multiple_of(8), "word at {at}");
        self.check(at, 8);
        self.machine.memory.load_word(at.0)
    }

    /// Every second page is.
    fn is_cold(&self, at: Offset, _bytes: u64) -> bool {
        self.machine.model == Model::Page && (at.0 / PAGE_BYTES) % 2 == 1
    }

    fn prefetch(&self, _at: Offset) {}
}

impl Persistent for SimMedium {
    fn granularity(&self) -> Granularity {
        match self.machine.model {
            Model::CacheLine => Granularity::CacheLine,
            Model::Byte => Granularity::Byte,
            Model::Page => Granularity::Page,
        }
    }

    fn store_u64(&self, at: Offset, word: u64) {
        assert!(at.0.is_multiple_of(8), "word at {at}");
        self.check(at, 8);
        point(Point::Store, at.0);
        let recording = self.recording();
        if self.is_off() {
            return;
        }
        self.machine.memory.store_word(at.0, word);
        if let Some(mut recording) = recording {
            let now = self.machine.memory.load_word(at.0);
            assert_eq!(now, word, "a store at {at} passed by the recording's lock (sim, invariant 1)");
            let line = (at.0 / LINE_BYTES) as u32;
            let mask = 1 << (at.0 / 8 % LINE_WORDS as u64);
            recording.push(Kind::Atomic, mask, line, self.machine.memory.line(line));
        }
    }

    #[track_caller]
    fn store_atomic(&self, at: Offset, bytes: &[u8]) -> bool {
        if !matches!(bytes.len(), 1 | 2 | 4 | 8) {
            return false;
        }
        assert!(at.0.is_multiple_of(bytes.len() as u64), "atomic store of {} bytes at {at}", bytes.len());
        if is_lost(Location::caller()) {
            // What makes it one is left out.
            let (low, high) = bytes.split_at(bytes.len() / 2);
            self.put(Kind::Store, at, &[low]);
            self.put(Kind::Store, at.plus(low.len() as u64), &[high]);
            return true;
        }
        // One word, so never torn.
        self.put(Kind::Atomic, at, &[bytes]);
        true
    }

    fn store(&self, at: Offset, parts: &[&[u8]]) {
        self.put(Kind::Store, at, parts);
    }

    #[track_caller]
    fn write(&self, at: Offset, parts: &[&[u8]]) {
        let kind = if is_lost(Location::caller()) { Kind::Store } else { Kind::Write };
        self.put(kind, at, parts);
    }

    #[track_caller]
    fn flush(&self, at: Offset, bytes: u64) {
        // A flush reads nothing, so a line that cannot be read may be flushed.
        self.check_bounds(at, bytes);
        point(Point::Flush, at.0);
        if is_lost(Location::caller()) {
            return;
        }
        let mut lines = lines_of(at.0, bytes);
        if self.machine.flush_short.load(Relaxed) && !at.0.is_multiple_of(LINE_BYTES) {
            lines.end = lines.start + bytes.div_ceil(LINE_BYTES) * LINE_BYTES;
        }
        self.note(Kind::Flush, (lines.start / LINE_BYTES) as u32, lines.end / LINE_BYTES);
    }

    #[track_caller]
    fn drain(&self) {
        point(Point::Drain, 0);
        if !is_lost(Location::caller()) {
            self.note(Kind::Drain, 0, 0);
        }
    }

    #[track_caller]
    fn sync(&self) -> Result<()> {
        point(Point::Sync, 0);
        if self.is_off() {
            return Err(power_is_off());
        }
        if Self::is_due(&self.machine.sync_fails_in) {
            self.note(Kind::SyncVoid, 0, 0);
            return Err(Error::new(
                ErrorKind::Io,
                "cannot sync the simulated medium: a test asked for this failure",
            ));
        }
        if Self::is_due(&self.machine.sync_lies_in) || is_lost(Location::caller()) {
            self.note(Kind::SyncVoid, 0, 0);
            return Ok(());
        }
        self.note(Kind::Sync, 0, 0);
        Ok(())
    }
}

impl Device for SimMedium {
    fn len_max(&self) -> u64 {
        self.machine.len_max
    }

    fn grow(&self, len: u64) -> Result<()> {
        point(Point::Grow, len);
        if self.is_off() {
            return Err(power_is_off());
        }
        // Mapped media grow by pages.
        let len = len.next_multiple_of(PAGE_BYTES);
        if len > self.len_max() || (len > self.len() && self.machine.growth_refused.load(Relaxed)) {
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                format!("cannot grow the simulated medium to {len} of {} bytes", self.len_max()),
            ));
        }
        if len > self.len() && Self::is_due(&self.machine.growth_fails_in) {
            return Err(Error::new(
                ErrorKind::Io,
                "cannot grow the simulated medium: a test asked for this failure",
            ));
        }
        if len > self.len() {
            self.note(Kind::Grow, 0, len);
            self.machine.len.store(len, Release);
        }
        Ok(())
    }

    fn gives_back(&self) -> bool {
        true
    }

    /// The content is zero, or as it was, in any mixture after a crash: no other store comes before.
    fn give_back(&self, at: Offset, bytes: u64) {
        self.check_bounds(at, bytes);
        let pages = at.0.next_multiple_of(PAGE_BYTES)..(at.0 + bytes) & !(PAGE_BYTES - 1);
        if pages.is_empty() || self.is_off() {
            return;
        }
        let zeroes = vec![0; (pages.end - pages.start) as usize];
        self.store(Offset(pages.start), &[&zeroes]);
        self.given_back().push(pages);
        self.machine.has_given_back.store(true, Release);
    }

    /// Pages that are zero have no space: after a crash nobody knows whether they have.
    fn has_space(&self, at: Offset, bytes: u64) -> bool {
        self.check_bounds(at, bytes);
        let pages = at.0.next_multiple_of(PAGE_BYTES)..(at.0 + bytes) & !(PAGE_BYTES - 1);
        let is_zero = pages.clone().step_by(8).all(|at| self.machine.memory.load_word(at) == 0);
        if is_zero && !pages.is_empty() && !self.is_off() {
            self.given_back().push(pages);
            self.machine.has_given_back.store(true, Release);
        }
        !is_zero
    }

    fn back(&self, at: Offset, bytes: u64) -> Result<()> {
        point(Point::Grow, at.0);
        if self.is_off() {
            return Err(power_is_off());
        }
        if !self.machine.has_given_back.load(Acquire) {
            return Ok(());
        }
        let mut given_back = self.given_back();
        let is_in = |range: &Range<u64>| range.start >= at.0 && range.end <= at.0 + bytes;
        if self.machine.growth_refused.load(Relaxed) && given_back.iter().any(is_in) {
            return Err(Error::new(ErrorKind::OutOfSpace, "the simulated file system has no more space"));
        }
        given_back.retain(|range| !is_in(range));
        Ok(())
    }

    fn prepare(&self, at: Offset, bytes: u64) -> Result<()> {
        if self.machine.model == Model::Page {
            self.store(at, &[&vec![0; bytes as usize]]);
        }
        Ok(())
    }

    /// Zeroes every second page.
    fn reuse(&self, at: Offset, bytes: u64) {
        let pages = at.0.next_multiple_of(PAGE_BYTES)..(at.0 + bytes) & !(PAGE_BYTES - 1);
        for page in pages.step_by(PAGE_BYTES as usize).filter(|page| (page / PAGE_BYTES) % 2 == 1) {
            if self.machine.model == Model::Page {
                self.store(Offset(page), &[&[0; PAGE_BYTES as usize]]);
            }
        }
    }

    fn interleave(&self) -> (u64, u32) {
        (PAGE_BYTES, 1)
    }

    fn survives_process(&self) -> bool {
        true
    }

    fn survives_power(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("simulated medium, {} of {} bytes, {}", self.len(), self.len_max(), self.granularity())
    }
}

impl std::fmt::Debug for SimMedium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

fn power_is_off() -> Error {
    Error::new(ErrorKind::Io, "the simulated medium has no power")
}
