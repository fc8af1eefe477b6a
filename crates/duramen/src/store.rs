//! The store: its parts, how they open, and the handle that programs hold.

mod background;
mod clock;
mod failure;
mod growth;

use crate::audit::Accounts;
use crate::compaction::Compaction;
use crate::epoch::{Activity, Epochs, lock};
use crate::format::record::HEADER_BYTES;
use crate::format::superblock::{Found, ImagePlace, Regime, Superblock};
use crate::format::{HEAD_BYTES, Unit, block, u64_at};
use crate::image;
use crate::index::either::Index;
use crate::index::{Hasher, KeyBytes, Keys};
use crate::log::appender::Shared as SharedBlock;
use crate::log::blocks::{Blocks, Use};
use crate::log::read;
use crate::log::space::{Purpose, RESERVE_UNITS, Space};
use crate::mutants::{Mutant, planted};
use crate::options::{Durability, IndexKind, Options, Residence};
use crate::reader::{Cursor, Value};
use crate::recovery::{self, Recovered};
use crate::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::reclaim;
use crate::sync::thread::JoinHandle;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, MutexGuard, statics};
use crate::tuning::{Phase, Tuning};
use crate::writer::{Pen, WriterOn};
use crate::{Batch, Error, ErrorKind, Meta, Result, Stats, Swap};
use duramen_media::{Granularity, LINE_BYTES, Mapped, Medium, Offset};
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

pub(crate) use background::Background;
pub(crate) use clock::StoreClock;
pub(crate) use failure::BOOT_UNKNOWN;
pub(crate) use growth::GROWTH_BYTES_MIN;

/// A store on the media of this machine.
pub type Store = StoreOn<Mapped>;

/// Generations begin with the incarnation. Were the first one always the same, the records of another store, whose head alone
/// was erased, would be valid in the blocks of a new one: so it is drawn below 2^22, which leaves 12 million opens.
const INCARNATION_FIRST_MAX: u32 = (1 << 22) - 1;
/// The first units of a new store, beyond the head.
pub(crate) const UNITS_INITIAL: u32 = 16;
/// The most lines of a record that are fetched before its length is known.
const RECORD_LINES_MAX: u64 = 8;
/// Places that an error names when there are many.
const DAMAGE_NAMED_MAX: usize = 8;
/// What is fetched of a key of unknown length.
pub(crate) const KEY_BYTES_USUAL: u64 = 16;

/// All that the parts of a store share.
pub(crate) struct Core<M: Medium> {
    pub medium: M,
    pub hasher: Hasher,
    pub index: Index,
    pub blocks: Blocks,
    pub epochs: Epochs,
    pub compaction: Compaction,
    pub clock: StoreClock,
    pub unit_bytes: u64,
    pub dead_percent: u32,
    pub index_image: bool,
    pub residence: Residence,
    pub checkpoint_bytes: u64,
    /// Checkpoints since the store was opened, and bytes of all images since then.
    pub checkpoints: AtomicU64,
    pub image_bytes: AtomicU64,
    pub image: Mutex<image::Current>,
    pub expired: AtomicU64,
    /// Lines that a record of this store takes, about: what a lookup fetches ahead.
    pub record_lines: AtomicU64,
    pub recovered: recovery::Summary,
    /// The process before was killed, and the medium keeps what it had not flushed in the CPU's caches. Recovery flushes what it
    /// reads; cells of blocks that an image spared it to read may hold an update that nobody flushed, until
    /// the background thread has.
    pub cells_unflushed: AtomicBool,
    /// Some blocks are not verified yet, which recovery took from an image, or are known to be damaged. See [`crate::damage`].
    pub doubts: AtomicBool,
    /// Where writers append that wait for a commit of pages: see [`crate::log::appender`].
    pub shared: SharedBlock,
    space: Mutex<Space>,
    superblock: Mutex<Superblock>,
    growing: Mutex<()>,
    /// Writers that have no space and want to grow the store: the background thread lets them look before it grows it further,
    /// since the lock alone would go back to it.
    growers: statics::AtomicU32,
    /// The unit count that growth failed at, so that not every writer tries again; 0 for none.
    grown_out: AtomicU64,
    /// When that was, in milliseconds since `begun`.
    grown_out_at: AtomicU64,
    /// Growth has failed since the store was opened.
    grown_out_ever: AtomicBool,
    /// What the medium said then; nothing when the store has reached a limit of its own.
    grown_out_why: Mutex<Option<duramen_media::Error>>,
    begun: Instant,
    closed: AtomicBool,
    interval_nanos: AtomicU64,
    pub background: Background,
    pub tuning: Tuning,
}

impl<M: Medium> Core<M> {
    pub(crate) fn space(&self) -> MutexGuard<'_, Space> {
        lock(&self.space)
    }

    /// Notes how large records are in this store.
    pub(crate) fn note_records(&self, bytes: u64, records: u64) {
        let lines = (bytes / records.max(1)).div_ceil(LINE_BYTES).min(RECORD_LINES_MAX);
        if self.record_lines.load(Relaxed) != lines {
            self.record_lines.store(lines, Relaxed);
        }
    }

    /// Hints that the value of the record at `at` is read soon, before it is known how long it is. Its lines are
    /// fetched at once, instead of when its header has come.
    #[inline]
    pub(crate) fn fetch_ahead(&self, at: Offset) {
        let lines = self.record_lines.load(Relaxed);
        // Unrolled: to a constant, and not as far as it is needed.
        for line in (0..RECORD_LINES_MAX).take_while(|&line| line < lines) {
            self.medium.prefetch(at.plus(line * LINE_BYTES));
        }
    }

    /// Hints that the key of the record at `at` is read soon. More often than not it ends in the line behind that of the header.
    #[inline]
    pub(crate) fn fetch_key(&self, at: Offset) {
        self.medium.prefetch(at);
        self.medium.prefetch(at.plus(HEADER_BYTES + KEY_BYTES_USUAL));
    }

    /// Hints that the record at `at`, whose key is probably of `key_bytes`, is looked at and superseded soon.
    #[inline]
    pub(crate) fn fetch_old(&self, at: Offset, key_bytes: usize) {
        self.medium.prefetch(at);
        self.medium.prefetch(at.plus(HEADER_BYTES + key_bytes as u64));
        self.blocks.prefetch(at.0);
    }

    /// Whether a write that is to be durable by itself can be seen before it is: a group's records are marked pending until they
    /// are drained, and readers of a cell ask for updates under way.
    #[inline]
    pub(crate) fn shows_before_durable(&self) -> bool {
        !self.epochs.in_use() && self.medium.granularity() == Granularity::CacheLine
    }

    /// The headers of blocks that are to be freed.
    pub(crate) fn headers_of(&self, units: &[Unit]) -> Vec<(Unit, block::Header)> {
        let header = |&unit| Some((unit, read::header(&self.medium, unit, self.offset_of(unit)).ok()?));
        units.iter().filter_map(header).collect()
    }

    pub(crate) fn offset_of(&self, unit: Unit) -> Offset {
        Offset(self.blocks.offset(unit))
    }

    /// A record at `at` is no longer needed: its block has fewer live bytes.
    pub(crate) fn uncount(&self, at: Offset, bytes: u64, activity: &Activity) {
        self.blocks.of(at.0).live_sub(bytes);
        activity.dead_add(bytes as i64);
    }

    /// Makes everything acknowledged so far durable.
    pub(crate) fn commit(&self) -> Result<()> {
        let _inside = self.tuning.phase(Phase::Commit);
        if self.epochs.in_use() {
            let committed = self.epochs.commit_current(&self.medium, &self.blocks, self.clock.now());
            committed.map_err(|error| self.commit_failed(error))?;
        } else {
            self.epochs.check_writable()?;
            self.sync_or_poison()?;
        }
        Ok(())
    }

    /// Waits until `epoch` is committed, where a reply has to.
    #[inline]
    pub(crate) fn wait_for(&self, epoch: crate::format::Epoch) -> Result<()> {
        if self.epochs.must_wait(epoch) {
            let _inside = self.tuning.phase(Phase::Commit);
            let waited = self.epochs.wait_for(epoch, &self.medium, &self.blocks, self.clock.now());
            return waited.map_err(|error| self.commit_failed(error));
        }
        Ok(())
    }

    /// Puts the time of day on the medium, so that what expired stays expired though the
    /// clock should go back.
    pub(crate) fn persist_time(&self) -> Result<()> {
        if lock(&self.superblock).time_floor < self.clock.floor() {
            let now = self.clock.raise();
            self.update_superblock(|superblock| superblock.time_floor = now)?;
        }
        Ok(())
    }

    pub(crate) fn interval(&self) -> Option<Duration> {
        match self.interval_nanos.load(Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub(crate) fn superblock(&self) -> MutexGuard<'_, Superblock> {
        lock(&self.superblock)
    }

    /// Bytes of units that are not free.
    pub(crate) fn used_bytes(&self) -> u64 {
        let space = self.space();
        u64::from(space.units() - space.free_units()) * self.unit_bytes
    }

    /// Changes the superblock, durably.
    pub(crate) fn update_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut superblock = lock(&self.superblock);
        change(&mut superblock);
        superblock.sequence += 1;
        let persisted = superblock.persist(&self.medium);
        drop(superblock);
        persisted.map_err(|error| self.failed(error))
    }

    /// The image that the next open begins with, if it is worth it and there is room.
    fn image_at_close(&self) -> Result<Option<ImagePlace>> {
        if !self.index_image || self.used_bytes() < self.tuning.image_bytes_min {
            return Ok(None);
        }
        let _inside = self.tuning.phase(Phase::Image);
        self.write_image_at_close()
    }

    fn durability(&self) -> Durability {
        match (self.interval(), self.epochs.regime()) {
            (Some(interval), _) => Durability::Interval(interval),
            (None, Regime::Manual) => Durability::Manual,
            (None, _) => Durability::EveryWrite,
        }
    }

    /// Whether no block is open. One is that a thread wrote to by a plain handle, which has not ended yet: nobody else knows where
    /// its records end.
    fn is_all_sealed(&self) -> bool {
        let units = self.space().units();
        !self.blocks.walk(0..units).any(|(_, _, state)| state == Use::Open)
    }

    /// Ends the store: what is open is sealed, what is pending committed, and the superblock says that it
    /// was closed.
    fn close(&self) -> Result<()> {
        if self.closed.swap(true, AcqRel) {
            return Ok(());
        }
        match self.epochs.check_writable() {
            Err(error) if error.kind() == ErrorKind::ReadOnly => return Ok(()),
            Err(error) => {
                self.doubt();
                return Err(error);
            }
            Ok(()) => {}
        }
        let _inside = self.tuning.phase(Phase::Close);
        // With `Manual`, what was not committed is dropped, as the caller asked; so it is not sealed as
        // if it counted: recovery judges it by its epoch.
        let manual = self.epochs.regime() == Regime::Manual && self.epochs.wrote();
        self.compaction.end(self);
        let mut place = None;
        if !manual {
            self.seal_partial(Purpose::Compaction);
            self.commit()?;
            place = self.image_at_close()?;
        }
        if self.cells_unflushed.load(Relaxed) {
            // The next open will flush nothing.
            let units = self.space().units();
            for (unit, block, _) in self.blocks.walk(0..units) {
                self.medium.flush(self.offset_of(unit), block.tail());
            }
            self.medium.drain();
        }
        let mut superblock = lock(&self.superblock);
        superblock.clean = !manual;
        superblock.sealed = !manual && self.is_all_sealed();
        superblock.image = place;
        superblock.time_floor = self.clock.now();
        superblock.sequence += 1;
        let persisted = superblock.persist(&self.medium);
        drop(superblock);
        persisted.map_err(|error| self.failed(error))
    }
}

impl<M: Medium> Keys for Core<M> {
    fn hash_at(&self, at: Offset) -> Option<u64> {
        self.key_at(at).map(|key| self.hasher.hash(key))
    }

    fn prefetch_at(&self, at: Offset) {
        self.fetch_key(at);
    }

    fn may_be_damaged(&self) -> bool {
        self.has_doubts()
    }
}

impl<M: Medium> KeyBytes for Core<M> {
    fn key_at(&self, at: Offset) -> Option<&[u8]> {
        self.whole_record(at).map(|record| record.key())
    }
}

/// Writes the headers of free units, one each, not drained.
pub(crate) fn write_free_headers<M: Medium>(medium: &M, unit_bytes: u64, from: u32, units: u32) {
    for unit in from..from + units {
        let offset = Offset(u64::from(unit) * unit_bytes);
        block::Header::fresh(1).store(medium, Unit(unit), offset);
    }
    medium.drain();
}

/// The kernel's boot id: tells whether the machine was rebooted since the last open.
pub(crate) fn boot_id(options: &Options) -> [u8; 16] {
    if let Some(id) = options.boot_id {
        return id;
    }
    let mut id = [0; 16];
    if let Ok(text) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        let digits: Vec<u8> =
            text.bytes().filter_map(|b| (b as char).to_digit(16).map(|d| d as u8)).collect();
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
    }
    id
}

/// A number that no other store has.
fn random_id() -> u64 {
    use std::hash::{BuildHasher, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn regime_for(durability: Durability, granularity: Granularity) -> Regime {
    match (durability, granularity) {
        (Durability::Manual, _) => Regime::Manual,
        (_, Granularity::Page) => Regime::Epochs,
        (Durability::Interval(_), Granularity::CacheLine) => Regime::Epochs,
        // With byte granularity a write is durable as soon as it is ordered: an interval would save nothing.
        _ => Regime::Immediate,
    }
}

/// A store. Cheap to clone; all clones are the same store, which is closed when the last one and the last
/// writer are gone.
///
/// Reads take no lock. A write through the handle goes through the calling thread's own
/// [`Writer`](crate::Writer), made when first needed and kept until the thread ends.
pub struct StoreOn<M: Medium = Mapped> {
    shared: Arc<Shared<M>>,
}

/// What the last handle closes.
struct Shared<M: Medium> {
    core: Arc<Core<M>>,
    thread: Option<JoinHandle<()>>,
    id: u64,
}

impl<M: Medium> Shared<M> {
    /// Ends the background thread.
    fn stop(&mut self) {
        self.core.background.stop.store(true, SeqCst);
        self.core.background.hurry();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<M: Medium> Clone for StoreOn<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<M: Medium> Drop for Shared<M> {
    fn drop(&mut self) {
        if self.core.epochs.is_forked() {
            // The thread is not here, locks may be held by others that are not, and the medium is the parent's: all of it is left as it is.
            let _ = std::mem::ManuallyDrop::new((Arc::clone(&self.core), self.thread.take()));
            return;
        }
        let _ = PENS.try_with(|pens| pens.borrow_mut().remove(&self.id));
        self.stop();
        // An error has nowhere to go here; `StoreOn::close` tells it. The next open recovers.
        let _ = self.core.close();
    }
}

impl<M: Medium> std::fmt::Debug for StoreOn<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("medium", &self.core().medium.describe()).finish_non_exhaustive()
    }
}

static NEXT_ID: crate::sync::statics::AtomicU64 = crate::sync::statics::AtomicU64::new(1);

thread_local! {
    /// This thread's pen for each store that it wrote to through a plain handle.
    static PENS: RefCell<HashMap<u64, Box<dyn std::any::Any>>> = RefCell::default();
}

impl<M: Medium> StoreOn<M> {
    /// Opens the store on `medium`, or creates one where there is none.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_on(medium: M, options: &Options) -> Result<Self> {
        options.check()?;
        if medium.is_empty() && medium.len_max() >= HEAD_BYTES {
            medium.grow(HEAD_BYTES)?;
        }
        let (superblock, copy, damaged) = match Superblock::find(&medium)? {
            Found::Store { superblock, copy, damaged } => (superblock, copy, damaged),
            Found::Nothing => (Self::create(&medium, options)?, 0, None),
        };
        let mut recovered = recovery::recover(&medium, superblock, options)?;
        recovered.summary.repaired.extend(damaged);
        Self::run(medium, recovered, 1 - copy, options)
    }

    /// Makes an empty store.
    ///
    /// Order: the first units' headers are durable before the superblock's magic is written; a
    /// crash before leaves no store, and the next open begins anew.
    fn create(medium: &M, options: &Options) -> Result<Superblock> {
        let _inside = options.tuning.phase(Phase::Create);
        let unit_bytes = options.unit_for(medium)?;
        let head = HEAD_BYTES.div_ceil(u64::from(unit_bytes)) as u32;
        let units = (medium.len_max() / u64::from(unit_bytes))
            .min(u64::from(head + options.tuning.units_initial)) as u32;
        if units < head + RESERVE_UNITS + 1 {
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                format!(
                    "the medium has room for {} bytes; the smallest store with units of {unit_bytes} bytes takes {}: \
                     give it a larger medium or a smaller unit_bytes",
                    medium.len_max(),
                    u64::from(head + RESERVE_UNITS + 1) * u64::from(unit_bytes)
                ),
            ));
        }
        medium.grow(u64::from(units) * u64::from(unit_bytes))?;
        if options.durability == Durability::EveryWrite {
            let (from, to) =
                (u64::from(head) * u64::from(unit_bytes), u64::from(units) * u64::from(unit_bytes));
            medium.prepare(Offset(from), to - from)?;
        }
        write_free_headers(medium, u64::from(unit_bytes), head, units - head);
        medium.sync()?;
        let now = StoreClock::new(options.clock.clone(), 0).now();
        let store_id = options.boot_id.map_or_else(random_id, |id| u64_at(&id, 0));
        let superblock = Superblock {
            store_id,
            sequence: 1,
            unit_bytes,
            clean: true,
            sealed: true,
            regime: Regime::Immediate,
            incarnation: store_id as u32 & INCARNATION_FIRST_MAX,
            boot_id: boot_id(options),
            epoch_base: 1,
            time_floor: 0,
            created: now,
            units,
            image: None,
        };
        superblock.persist(medium)?;
        Ok(superblock)
    }

    /// Starts an incarnation on what was recovered.
    fn run(medium: M, recovered: Recovered, copy_first: usize, options: &Options) -> Result<Self> {
        let regime = regime_for(options.durability, medium.granularity());
        let inside = options.tuning.phase(Phase::Adopt);
        // Order: what recovery decided (seals, frees) is durable before the superblock
        // begins the new incarnation, and that before the first write.
        if !planted(Mutant::AdoptedTooLate) {
            recovered.adopt(&medium)?;
        }
        // What recovery began with is a checkpoint already.
        let keeps_image = options.residence == Residence::Persistent && !recovered.image.is_empty();
        let superblock = Superblock {
            sequence: recovered.superblock.sequence + 1,
            clean: false,
            sealed: false,
            regime,
            incarnation: recovered.incarnation,
            boot_id: boot_id(options),
            epoch_base: recovered.epoch_base.0,
            image: recovered.superblock.image.filter(|_| keeps_image),
            ..recovered.superblock
        };
        let copy_first = if planted(Mutant::SuperblockCopyZeroFirst) { 0 } else { copy_first };
        superblock.persist_from(&medium, copy_first)?;
        if planted(Mutant::AdoptedTooLate) {
            recovered.adopt(&medium)?;
        }
        drop(inside);
        let waits = regime == Regime::Epochs && options.durability == Durability::EveryWrite;
        let epochs = Epochs::new(
            regime,
            waits,
            recovered.epoch_base,
            recovered.mark_slot,
            superblock.incarnation,
            medium.granularity(),
            Activity::recovered(recovered.keys, recovered.dead_bytes),
        );
        let clock = StoreClock::new(options.clock.clone(), recovered.time_floor);
        let (unit_bytes, used_bytes) = (u64::from(superblock.unit_bytes), recovered.used_bytes);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let image = image::Current::of(recovered.image, keeps_image);
        let compaction = Compaction::new(&epochs, options.compaction_bytes_per_second);
        let core = Arc::new(Core {
            hasher: recovered.hasher,
            index: recovered.index,
            blocks: recovered.blocks,
            epochs,
            compaction,
            clock,
            unit_bytes,
            dead_percent: options.compaction_dead_percent,
            index_image: options.index_image,
            residence: options.residence,
            checkpoint_bytes: options.checkpoint_bytes,
            checkpoints: AtomicU64::new(0),
            image_bytes: AtomicU64::new(0),
            image: Mutex::new(image),
            expired: AtomicU64::new(0),
            record_lines: AtomicU64::new(1),
            recovered: recovered.summary,
            cells_unflushed: AtomicBool::new(recovered.cells_unflushed),
            doubts: AtomicBool::new(recovered.doubts),
            shared: SharedBlock::default(),
            space: Mutex::new(recovered.space.with_incarnation(superblock.incarnation)),
            superblock: Mutex::new(superblock),
            growing: Mutex::new(()),
            growers: statics::AtomicU32::new(0),
            grown_out: AtomicU64::new(0),
            grown_out_at: AtomicU64::new(0),
            grown_out_ever: AtomicBool::new(false),
            grown_out_why: Mutex::new(None),
            begun: Instant::now(),
            closed: AtomicBool::new(false),
            interval_nanos: AtomicU64::new(interval_nanos(options.durability)),
            background: Background::default(),
            tuning: options.tuning.clone(),
            medium,
        });
        core.note_records(used_bytes, core.recovered.records);
        if core.index.pages_left() == 0 {
            core.leave_image(&|| false)?;
        }
        if core.recovered.imaged > 0 {
            core.compaction.begin(&core);
        }
        if options.read_only {
            core.epochs.read_only();
        }
        let thread = if options.background && !options.read_only {
            let core = Arc::clone(&core);
            let thread = crate::sync::thread::Builder::new()
                .name("duramen".into())
                .spawn(move || core.run_background());
            Some(thread.map_err(|e| {
                Error::new(ErrorKind::Io, format!("cannot start the store's background thread: {e}"))
            })?)
        } else {
            None
        };
        Ok(Self { shared: Arc::new(Shared { core, thread, id }) })
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core<M> {
        &self.shared.core
    }

    pub(crate) fn core_arc(&self) -> &Arc<Core<M>> {
        &self.shared.core
    }

    /// Runs `work` with this thread's pen.
    fn with_pen<T>(&self, work: impl FnOnce(&mut Pen<M>, &Core<M>) -> Result<T>) -> Result<T> {
        let id = self.shared.id;
        // Taken out while it works: `work` may come back here through a callback.
        let taken = PENS.try_with(|pens| pens.borrow_mut().remove(&id)).ok().flatten();
        let mut pen = match taken.map(|pen| pen.downcast::<Pen<M>>()) {
            Some(Ok(pen)) => pen,
            _ => Box::new(Pen::new(&self.shared.core)),
        };
        let result = work(&mut pen, self.core());
        let _ = PENS.try_with(|pens| pens.borrow_mut().insert(id, pen));
        result
    }

    /// The value of `key`, without copying it. O(1): one index line and the record's lines.
    ///
    /// # Errors
    /// `Corrupt` when the key's record is damaged, or one that may be the key's: it is shown neither as a value nor as absent, until
    /// the key is put or deleted. With `EveryWrite` on a page medium a value is shown only when it is durable: when the wait for that
    /// fails, its error.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.core().epochs.check_process()?;
        self.core().get(key)
    }

    /// Copies the value of `key` into `into`, which is cleared before; false when the key is absent.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        self.core().epochs.check_process()?;
        self.core().get_into(key, into)
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Hints that these keys are read or written soon: their lines are fetched meanwhile, the misses of all keys
    /// overlapped. Changes nothing, waits for nothing, and may be wrong.
    pub fn prefetch(&self, keys: &[impl AsRef<[u8]>]) {
        self.core().prefetch(keys);
    }

    /// The values of several keys, their cache misses overlapped. Each is the key's value at some moment
    /// during the call. Keys may be slices, vectors, strings, or arrays of one length.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = duramen::Options::default().open(dir.path().join("store"))?;
    /// store.put(b"user:7", b"Ada")?;
    /// let keys: Vec<String> = (6..8).map(|id| format!("user:{id}")).collect();
    /// let values = store.get_many(&keys)?;
    /// assert!(values[0].is_none() && values[1].as_deref() == Some(b"Ada"));
    /// # Ok::<(), duramen::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn get_many<'a>(&'a self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value<'a>>>> {
        self.core().epochs.check_process()?;
        self.core().get_many(keys)
    }

    /// Visits about `count` live entries from `cursor` on; returns the cursor to go on from, 0 at the end. A
    /// key that is present during the whole scan is seen at least once.
    ///
    /// # Errors
    /// As [`StoreOn::get`]. `Corrupt` when some of the entries are damaged: the others up to [`Error::cursor`] were visited, and the
    /// scan can go on there.
    pub fn scan(&self, cursor: Cursor, count: usize, visit: &mut dyn FnMut(&Value<'_>)) -> Result<Cursor> {
        let core = self.core();
        core.epochs.check_process()?;
        match core.scan(core.index.cursor_meant(cursor), count, visit) {
            Ok(cursor) => Ok(core.index.cursor_shown(cursor)),
            Err(error) => Err(match error.cursor() {
                Some(cursor) => error.with_cursor(core.index.cursor_shown(cursor)),
                None => error,
            }),
        }
    }

    /// Some live entry that `wanted` accepts, each as likely as any other; which one, `seed` decides. Places of the index are drawn
    /// until one leads to such an entry, a few thousand at most: so `None` where few entries are wanted, or nearly all keys were
    /// just deleted, says nothing. Then walk, from [`StoreOn::cursor_at`] on.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn pick(&self, seed: u64, wanted: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<Option<Value<'_>>> {
        self.core().pick(seed, wanted)
    }

    /// A cursor at a place that `random` picks, for [`StoreOn::scan`].
    #[must_use]
    pub fn cursor_at(&self, random: u64) -> Cursor {
        let index = &self.core().index;
        index.cursor_shown(index.cursor_at(random, &reclaim::pin()))
    }

    /// Calls `visit` for every live entry: each key that is present during the whole call exactly once or,
    /// while the index grows or shrinks, more often.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn for_each(&self, mut visit: impl FnMut(&Value<'_>)) -> Result<()> {
        let mut cursor = 0;
        loop {
            cursor = self.scan(cursor, 1024, &mut visit)?;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Sets `key` to `value`. When it returns, the write survives what the durability and the
    /// medium promise. Reads of this thread that follow come after it for every other thread too; loads of atomics of the
    /// caller's own do only behind a `fence(SeqCst)`.
    ///
    /// # Errors
    /// `InvalidInput` for a key above [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) or a value above
    /// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX); `OutOfSpace`; `Poisoned`; `Io`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.with_pen(|pen, core| pen.put(core, key, value, Meta::default()))
    }

    /// Sets `key` to `value`, with what goes with it.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn put_with(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<()> {
        self.with_pen(|pen, core| pen.put(core, key, value, meta))
    }

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.with_pen(|pen, core| pen.delete(core, key))
    }

    /// Overwrites part of a value: in place where it was put with [`Meta::UPDATABLE`] and the rest allows it, else by a new version of
    /// all of it; the outcome says which. See [`Writer::update`](crate::Writer::update).
    ///
    /// # Errors
    /// As [`Writer::update`](crate::Writer::update).
    pub fn update(&self, key: &[u8], at: usize, bytes: &[u8]) -> Result<crate::Update> {
        self.with_pen(|pen, core| {
            Ok(pen.update(core, key, None, at, bytes)?.unwrap_or(crate::Update::Absent))
        })
    }

    /// Applies a batch, all or nothing.
    ///
    /// # Errors
    /// As [`Writer::apply`](crate::Writer::apply).
    pub fn apply(&self, batch: &Batch) -> Result<Swap> {
        self.with_pen(|pen, core| pen.apply(core, batch))
    }

    /// A writer of its own for one thread (Viper's client).
    ///
    /// # Errors
    /// `Poisoned` when the store refuses writes.
    pub fn writer(&self) -> Result<WriterOn<M>> {
        self.core().epochs.check_writable()?;
        Ok(WriterOn::new(self.clone()))
    }

    /// Live keys; expired ones count until they are swept.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.core().epochs.totals().keys
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How keys are found.
    #[must_use]
    pub fn index_kind(&self) -> IndexKind {
        match self.core().index {
            Index::Hash(_) => IndexKind::Hash,
            Index::Ordered(_) => IndexKind::Ordered,
        }
    }

    /// The durability asked for.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.core().durability()
    }

    /// Changes between `EveryWrite` and `Interval` while the store is open. Where the medium makes each
    /// write durable by itself, it stays so until the next open: more than was asked for.
    ///
    /// # Errors
    /// `InvalidInput` for a change from or to `Manual`, which decides what recovery keeps.
    pub fn set_durability(&self, durability: Durability) -> Result<()> {
        let core = self.core();
        core.epochs.check_process()?;
        if (durability == Durability::Manual) != (core.epochs.regime() == Regime::Manual) {
            return Err(Error::invalid(
                "cannot change durability from or to manual while the store is open: close it and open it again",
            ));
        }
        core.interval_nanos.store(interval_nanos(durability), Relaxed);
        core.epochs.set_wait(durability == Durability::EveryWrite);
        if durability == Durability::EveryWrite && core.epochs.in_use() {
            // What was acknowledged before is covered by the new promise too.
            core.commit()?;
        }
        core.background.hurry();
        Ok(())
    }

    /// Ends the current epoch and makes it durable: with `Manual`, the only way anything ever is.
    ///
    /// # Errors
    /// `Io` when the write-back failed; the store is then poisoned.
    pub fn commit(&self) -> Result<()> {
        self.core().commit()
    }

    /// Makes everything acknowledged so far durable on the medium.
    ///
    /// # Errors
    /// As [`StoreOn::commit`].
    pub fn sync(&self) -> Result<()> {
        self.core().commit()
    }

    /// Does one round of what the background thread does: commits when the interval has passed, sweeps
    /// expired keys, compacts. For stores opened without one.
    ///
    /// # Errors
    /// As [`StoreOn::commit`].
    pub fn maintain(&self) -> Result<()> {
        self.core().epochs.check_process()?;
        self.core().maintain()
    }

    /// Verifies all records that the open did not read because an index image spared it to, instead of leaving that to the
    /// background thread. Time in proportion to their bytes; at once when all were read. Others may go on reading and writing.
    ///
    /// # Errors
    /// `Corrupt` when blocks are damaged, with their places.
    pub fn verify(&self) -> Result<()> {
        let core = self.core();
        core.epochs.check_process()?;
        let damaged = core.verify_all();
        if damaged.is_empty() {
            return Ok(());
        }
        let places = damaged.iter().take(DAMAGE_NAMED_MAX);
        let places: Vec<_> =
            places.map(|&unit| format!("unit {} (offset {})", unit.0, core.offset_of(unit))).collect();
        Err(Error::corrupt(format!(
            "the medium is damaged in {} block{}: at {}{}; close the store and run \"duramen check\" for what is wrong there, \
             and \"duramen check --salvage NEW\" to save what is valid into a new store",
            damaged.len(),
            if damaged.len() == 1 { "" } else { "s" },
            places.join(", "),
            if damaged.len() > places.len() { " and further on" } else { "" },
        )))
    }

    /// Whether writes are taken.
    ///
    /// # Errors
    /// Why not: `Poisoned`, `ReadOnly`, `InUse` in a child that was forked.
    pub fn check_writable(&self) -> Result<()> {
        self.core().epochs.check_writable()
    }

    /// Whether the store's file was deleted while it is open: its content is there until the store is closed or the process ends, and
    /// gone then. A system call.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.core().medium.is_deleted()
    }

    /// Counts anew from the blocks what the store knows of them, and says what differs: nothing does, unless somebody writes
    /// meanwhile. For checkers; takes as long as to read the whole store.
    #[doc(hidden)]
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let core = self.core();
        // In the order in which a checkpoint takes them: the background thread takes no units meanwhile, nor gives any back.
        let _image = lock(&core.image);
        let _paused = core.compaction.pause();
        let _growing = lock(&core.growing);
        let (units, free) = {
            let space = core.space();
            (space.units(), space.runs())
        };
        let accounts = Accounts {
            medium: &core.medium,
            hasher: &core.hasher,
            index: &core.index,
            blocks: &core.blocks,
            unit_bytes: core.unit_bytes,
            units,
            free,
            estimated: core.recovered.estimated,
        };
        accounts.differences()
    }

    /// Numbers of the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(self.core())
    }

    /// One line for people: the medium, and what a write survives.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}; {}", self.core().medium.describe(), self.promise())
    }

    /// What an acknowledged write survives here, in words.
    #[must_use]
    pub fn promise(&self) -> String {
        let power = match (self.core().medium.survives_power(), self.durability()) {
            (false, Durability::Manual) => "a committed write survives kill -9, not a power failure".into(),
            (false, _) => "an acknowledged write survives kill -9, not a power failure".into(),
            (true, Durability::EveryWrite) => {
                "an acknowledged write survives kill -9 and power failure".into()
            }
            (true, Durability::Interval(d)) => {
                format!("an acknowledged write survives kill -9 at once and power failure after {d:?}")
            }
            (true, Durability::Manual) => "a write survives kill -9 and power failure once committed".into(),
        };
        if self.core().medium.survives_process() { power } else { "nothing survives the process".into() }
    }

    /// What recovery found when the store was opened.
    #[must_use]
    pub fn recovery(&self) -> &recovery::Summary {
        &self.core().recovered
    }

    /// Closes the store, when this is its last handle, and tells what went wrong.
    ///
    /// # Errors
    /// `InvalidInput` when other handles or writers are left: the store stays open with them. Otherwise as
    /// [`StoreOn::commit`].
    pub fn close(self) -> Result<()> {
        self.core().epochs.check_process()?;
        let id = self.shared.id;
        let _ = PENS.try_with(|pens| pens.borrow_mut().remove(&id));
        match Arc::try_unwrap(self.shared) {
            Ok(mut shared) => {
                shared.stop();
                shared.core.close()
            }
            Err(_) => Err(Error::invalid(
                "the store has other handles or writers; it is closed when the last of them is dropped",
            )),
        }
    }
}

impl Store {
    /// Advice for the operator about the medium, in one line.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        self.core().medium.small_pages_advice()
    }
}

fn interval_nanos(durability: Durability) -> u64 {
    match durability {
        Durability::Interval(interval) => interval.as_nanos().min(u128::from(u64::MAX)) as u64,
        _ => 0,
    }
}
