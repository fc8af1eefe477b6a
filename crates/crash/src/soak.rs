//! Long soak runs of small stores on real and simulated media, by seed: nearly full, and damaged while closed.
//!
//! The crash driver ([`crate::explore`]) cuts the power at every point of short runs. This driver makes long runs that
//! wear a store out: it fills a store until puts are refused, overwrites, deletes, refills, closes and reopens it.
//! Meanwhile readers keep values. Some stores are damaged between a close and the next open. Values hold bytes of their
//! own store ([`hostile`]).
//!
//! Requirements, for every mix of sizes, extents, fill, medium, index, residence and durability:
//!
//! 1. A delete succeeds at any fill (P8), and so does deleting everything, one key at a time.
//! 2. Space is reclaimed: after everything is deleted, about as much fits as at first.
//! 3. A value that a reader keeps pins at most its own block, and no space of another store.
//! 4. Each read returns the last written value or, where the store was damaged, `Corrupt` (P10): never another value,
//!    an older one, absence, or a panic. A delete makes a key permanently absent. It returns true exactly if the key
//!    was present or a get returned `Corrupt`.
//! 5. A store without a readable head is refused, and none of its bytes changes.
//! 6. Known damage stays known: each later open that refuses damage refuses the store until all damaged data was
//!    written again. An open that serves the rest keeps requirement 4 if it used an image; otherwise only the data
//!    written after it is guaranteed.
//! 7. Between phases, the store's accounts equal the content of its blocks ([`StoreOn::audit`]).

use crate::explore::caught;
use crate::{hostile, setup};
use duramen::tuning::Tuning;
use duramen::{
    Batch, Create, Durability, ErrorKind, IndexKind, MediumKind, OnCorruption, Options, Residence, StoreOn,
};
use duramen_media::sim::{Log, Memory, Model, Rng, SimMedium};
use duramen_media::{Bytes, Mapped, Medium};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After everything was deleted, at least this percentage of the first fill must fit again.
const REFILL_PERCENT: usize = 80;
/// Bytes at the beginning of a medium that hold its superblocks and marks.
const HEAD_BYTES: usize = 16 << 10;
/// Time for a store's background thread to free space before a put is retried.
const FLUSH_GROUP_MAX: Duration = Duration::from_secs(5);

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Stores made.
    pub stores: u64,
    /// Puts, deletes and batches that were acknowledged.
    pub writes: u64,
    /// Puts refused because the store was full.
    pub refused: u64,
    /// Deletes in a store that had just refused a put.
    pub deletes_full: u64,
    /// Values read and compared.
    pub reads: u64,
    /// Times that a store was closed and opened.
    pub reopened: u64,
    /// Values that a reader kept over many writes.
    pub kept: u64,
    /// Stores damaged while closed.
    pub damaged: u64,
    /// ... and were refused at open.
    pub refused_opens: u64,
    /// Reads and writes answered with `Corrupt`.
    pub reported: u64,
    /// Deletes of keys whose presence was unknown.
    pub unknown: u64,
    /// Damaged stores whose rest was served, with an image and without.
    pub served: [u64; 2],
    /// Stores that lost their head.
    pub heads_lost: u64,
}

impl Counts {
    /// Adds the counts of another run.
    pub fn add(&mut self, more: &Self) {
        self.stores += more.stores;
        self.writes += more.writes;
        self.refused += more.refused;
        self.deletes_full += more.deletes_full;
        self.reads += more.reads;
        self.reopened += more.reopened;
        self.kept += more.kept;
        self.damaged += more.damaged;
        self.refused_opens += more.refused_opens;
        self.reported += more.reported;
        self.unknown += more.unknown;
        self.served[0] += more.served[0];
        self.served[1] += more.served[1];
        self.heads_lost += more.heads_lost;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} stores, {} writes, {} puts refused for space, {} deletes in full stores, {} reads, {} reopened, {} values \
             kept, {} damaged while closed ({} opens refused, {} calls answered Corrupt, {} deletes of keys that may have been there, the rest served {} times by image and {} without), {} heads lost",
            self.stores,
            self.writes,
            self.refused,
            self.deletes_full,
            self.reads,
            self.reopened,
            self.kept,
            self.damaged,
            self.refused_opens,
            self.reported,
            self.unknown,
            self.served[0],
            self.served[1],
            self.heads_lost
        )
    }
}

/// The medium of a store between two opens.
trait Ground {
    type Medium: Medium;
    fn open(&mut self, options: &Options) -> duramen::Result<StoreOn<Self::Medium>>;
    /// Overwrites parts of a value with bytes of the store, which may be open ([`hostile`]).
    fn copy(&self, value: &mut [u8], rng: &mut Rng);
    /// The bytes of the closed store.
    fn bytes(&self) -> Result<Vec<u8>, String>;
    fn set_bytes(&mut self, bytes: &[u8]) -> Result<(), String>;
}

/// A file, on a disk or in shared memory.
struct File(PathBuf);

impl Ground for File {
    type Medium = Mapped;

    fn open(&mut self, options: &Options) -> duramen::Result<StoreOn<Mapped>> {
        options.open(&self.0)
    }

    fn copy(&self, value: &mut [u8], rng: &mut Rng) {
        // A volatile store has no file.
        let Ok(file) = std::fs::File::open(&self.0) else { return };
        let len = file.metadata().map_or(0, |metadata| metadata.len());
        hostile::copy(
            value,
            len,
            |bound| rng.below(bound),
            |at, to| {
                // Bytes that cannot be read stay unchanged.
                let _ = file.read_at(to, at);
            },
        );
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.0).map_err(|error| error.to_string())
    }

    fn set_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        std::fs::write(&self.0, bytes).map_err(|error| error.to_string())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The file may not exist.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A simulated medium.
struct Simulated {
    model: Model,
    len_max: u64,
    medium: SimMedium,
}

impl Simulated {
    fn new(model: Model, len_max: u64) -> Self {
        Self { model, len_max, medium: SimMedium::resume(Log::empty(model, len_max)) }
    }

    fn lines(&self) -> Vec<[u64; 8]> {
        self.medium.memory().snapshot()
    }

    fn set_lines(&mut self, lines: &[[u64; 8]], len: u64) {
        let memory = Arc::new(Memory::from_lines(lines, self.len_max));
        self.medium = SimMedium::from_image(self.model, self.len_max, memory, len);
    }
}

impl Ground for Simulated {
    type Medium = SimMedium;

    fn open(&mut self, options: &Options) -> duramen::Result<StoreOn<SimMedium>> {
        // The log of earlier stores is not needed here.
        let (lines, len) = (self.lines(), self.medium.len());
        self.set_lines(&lines, len);
        StoreOn::open_on(self.medium.clone(), options)
    }

    fn copy(&self, value: &mut [u8], rng: &mut Rng) {
        let read = |at, to: &mut [u8]| setup::read(&self.medium, at, to);
        hostile::copy(value, self.medium.len(), |bound| rng.below(bound), read);
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        let bytes = self.lines().into_iter().flatten().flat_map(u64::to_le_bytes);
        Ok(bytes.take(self.medium.len() as usize).collect())
    }

    fn set_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        let word =
            |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0)));
        let line = |bytes: &[u8]| std::array::from_fn(|i| bytes.get(i * 8..).map_or(0, word));
        let lines: Vec<[u64; 8]> = bytes.chunks(64).map(line).collect();
        self.set_lines(&lines, bytes.len() as u64);
        Ok(())
    }
}

/// The parameters of a run, from its seed.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    place: Place,
    /// Minimum and maximum bytes of a value.
    sizes: (u64, u64),
    keys: u64,
    rounds: u64,
    options: Options,
    damage: Option<Damage>,
    what: What,
}

/// The scope of a soak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum What {
    /// Everything, with values that readers keep.
    #[default]
    All,
    /// Everything but kept values.
    NoKept,
    /// Each store is filled and then damaged while it is closed.
    Damage,
}

impl What {
    /// The option's value.
    const fn argument(self) -> &'static str {
        match self {
            Self::All => "",
            Self::NoKept => " --no-kept",
            Self::Damage => " --damage-only",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Line,
    Page,
    Shm,
    File,
    Volatile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// This many bits in blocks are flipped.
    Bits(u64),
    /// A run of lines is zeroed.
    Lines(u64),
    /// The head is zeroed.
    Head,
}

impl Plan {
    fn new(seed: u64, what: What) -> Self {
        let mut rng = Rng::new(seed ^ 0x50a4);
        let mut pick = |of: &[u64]| of[rng.below(of.len() as u64) as usize];
        let place = [Place::Line, Place::Page, Place::Shm, Place::File, Place::Volatile]
            [pick(&[0, 1, 2, 2, 3, 4]) as usize];
        // A volatile store has no bytes to damage while closed.
        let place = if what == What::Damage && place == Place::Volatile { Place::Line } else { place };
        let extent_bytes = pick(&[512, 1024, 4096, 4096, 24 << 10, 64 << 10]);
        let sizes =
            [(0, 60), (100, 1000), (3 << 10, 5 << 10), (10 << 10, 20 << 10), (1, 100 << 10), (0, 8 << 10)];
        let sizes = sizes[pick(&[0, 1, 2, 3, 4, 5]) as usize];
        // Room for at least some dozens of the largest values and extents.
        let len_max =
            (extent_bytes * pick(&[24, 40, 100, 400])).max(sizes.1 * pick(&[20, 40, 80])).max(128 << 10);
        let simulated = matches!(place, Place::Line | Place::Page);
        let len_max = len_max.min(if simulated { 2 << 20 } else { 32 << 20 }).next_multiple_of(4096);
        let index = if pick(&[0, 1]) == 0 { IndexKind::Hash } else { IndexKind::Ordered };
        let residence = if pick(&[0, 0, 1]) == 0 { Residence::Dram } else { Residence::Persistent };
        // Only one in three runs waits for the device on each write; otherwise waiting would dominate.
        let durability = match (place, pick(&[0, 0, 1])) {
            (Place::File, _) | (_, 1) => Durability::Interval(Duration::from_millis(20)),
            _ => Durability::EveryWrite,
        };
        let background = pick(&[0, 1]) == 1;
        let bits = pick(&[1, 1, 3, 40]);
        let drawn = match what {
            What::Damage => pick(&[1, 1, 2, 2, 3]),
            What::All | What::NoKept => pick(&[0, 0, 0, 1, 2, 3]),
        };
        let damage = match drawn {
            1 => Some(Damage::Bits(bits)),
            2 => Some(Damage::Lines(1 + bits)),
            3 => Some(Damage::Head),
            _ => None,
        };
        let tuning = Tuning {
            close_checkpoint_bytes_min: pick(&[0, 0, u64::MAX]),
            checkpoint_bytes_min: 16 << 10,
            extents_initial: 8,
            growth_bytes_min: extent_bytes,
            ..Tuning::default()
        };
        let medium = match place {
            Place::Shm => MediumKind::Shm,
            Place::File => MediumKind::File,
            Place::Volatile => MediumKind::Volatile,
            Place::Line | Place::Page => MediumKind::Auto,
        };
        let options = Options {
            medium,
            create: Create::OpenOrCreate,
            durability,
            index,
            residence,
            len_max,
            extent_bytes: Some(extent_bytes as u32),
            recovery_threads: 1,
            prefault: false,
            background,
            compaction_dead_percent: pick(&[5, 25, 25, 90]) as u32,
            compactors: pick(&[1, 2, 4]) as usize,
            boot_id: simulated.then_some([1; 16]),
            tuning,
            ..Options::default()
        };
        let mean = (sizes.0 + sizes.1) / 2 + 64;
        let damage = damage.filter(|_| place != Place::Volatile);
        Self {
            seed,
            place,
            sizes,
            keys: 2 * len_max / mean + 8,
            rounds: if what == What::Damage { 0 } else { 2 + pick(&[0, 1, 2]) },
            options,
            damage,
            what,
        }
    }
}

/// The keys and their values.
type Content = BTreeMap<u64, Rc<[u8]>>;

fn key(number: u64) -> Vec<u8> {
    format!("key:{number:08}").into_bytes()
}

struct Run<'p, G: Ground> {
    plan: &'p Plan,
    ground: G,
    rng: Rng,
    next: u64,
    content: Content,
    counts: Counts,
    /// The store was damaged, so `Corrupt` is a valid result.
    damaged: bool,
    /// A reader keeps a value.
    keeping: bool,
}

impl<G: Ground> Run<'_, G> {
    fn size(&mut self) -> usize {
        let (least, most) = self.plan.sizes;
        (least + self.rng.below(most - least + 1)) as usize
    }

    fn some_key(&mut self) -> Option<u64> {
        let from = self.rng.below(self.plan.keys);
        let mut around = self.content.range(from..).chain(self.content.iter());
        around.next().map(|(&key, _)| key)
    }

    /// A unique value that contains bytes of the store.
    fn value(&mut self, bytes: usize) -> Rc<[u8]> {
        self.next += 1;
        let mut value = setup::value(self.next, bytes);
        self.ground.copy(&mut value, &mut Rng::new(!self.next));
        value.into()
    }

    /// Whether an error is allowed at this point.
    fn is_reported(&mut self, error: &duramen::Error) -> bool {
        let reported = self.damaged && error.kind() == ErrorKind::Corrupt;
        self.counts.reported += u64::from(reported);
        reported
    }

    /// Puts a new value under `number`; returns whether there was space.
    fn put(&mut self, store: &StoreOn<G::Medium>, number: u64) -> Result<bool, String> {
        let bytes = self.size();
        let value = self.value(bytes);
        match store.put(key(number), &value) {
            Ok(()) => {
                self.counts.writes += 1;
                self.content.insert(number, value);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                self.counts.refused += 1;
                Ok(false)
            }
            Err(error) if self.is_reported(&error) => Ok(true),
            Err(error) => Err(format!("a put of key {number} failed: {error}")),
        }
    }

    fn delete(&mut self, store: &StoreOn<G::Medium>, number: u64) -> Result<(), String> {
        // Only if a get returned `Corrupt` is the key's presence unknown.
        let is_unknown =
            self.damaged && store.get(key(number)).is_err_and(|error| error.kind() == ErrorKind::Corrupt);
        match store.delete(key(number)) {
            Ok(was) => {
                self.counts.writes += 1;
                self.counts.unknown += u64::from(is_unknown);
                let had = self.content.remove(&number).is_some();
                if was != (had || is_unknown) {
                    return Err(format!(
                        "a delete of key {number} returned {was}, the key was present: {had}, a get was Corrupt: {is_unknown}"
                    ));
                }
                match self.damaged.then(|| store.get(key(number))) {
                    None | Some(Ok(None)) => Ok(()),
                    Some(found) => Err(format!("key {number} is deleted, and a get returns {found:?}")),
                }
            }
            // Damage never makes a delete fail.
            Err(error) => Err(format!(
                "a delete of key {number} failed, with a pinned value: {}: {error} ({:?})",
                self.keeping,
                store.stats()
            )),
        }
    }

    /// Puts new keys until the store is full; returns the number of bytes in it.
    fn fill(&mut self, store: &StoreOn<G::Medium>) -> Result<usize, String> {
        let mut number = self.rng.below(self.plan.keys);
        let mut refused = 0;
        for _ in 0..self.plan.keys {
            number = (number + 1) % self.plan.keys;
            if self.content.contains_key(&number) {
                continue;
            }
            if !self.put(store, number)? {
                refused += 1;
                // A smaller value may still fit.
                if refused > 2 {
                    break;
                }
            }
        }
        Ok(self.content.values().map(|value| value.len() + 64).sum())
    }

    /// Checks that the store's accounts equal the content of its blocks.
    fn audit(&self, store: &StoreOn<G::Medium>) -> Result<(), String> {
        let differences = if self.damaged { Vec::new() } else { store.audit() };
        if differences.is_empty() {
            return Ok(());
        }
        Err(format!("counts differ from the blocks: {}", differences.join("; ")))
    }

    /// Alternates deletes and puts in a full store.
    fn churn(&mut self, store: &StoreOn<G::Medium>) -> Result<(), String> {
        let turns = 200 + self.rng.below(800);
        let policy = self.rng.below(4);
        for turn in 0..turns {
            let full = match policy {
                // Delete one key, put one key.
                0 => {
                    if let Some(old) = self.some_key() {
                        self.delete(store, old)?;
                    }
                    let new = self.rng.below(self.plan.keys);
                    !self.put(store, new)?
                }
                // Overwrite until refused, then delete some.
                1 => {
                    let Some(old) = self.some_key() else { break };
                    !self.put(store, old)?
                }
                // Batches of a put and a delete.
                2 => self.batch(store)?,
                // Random operations.
                _ => {
                    let number = self.rng.below(self.plan.keys);
                    !self.put(store, number)?
                }
            };
            if full {
                for _ in 0..=self.rng.below(3) {
                    if let Some(old) = self.some_key() {
                        self.counts.deletes_full += 1;
                        self.delete(store, old)?;
                    }
                }
            }
            if turn % 64 == 0 {
                self.look(store, 16)?;
                self.maintain(store)?;
            }
        }
        Ok(())
    }

    /// A batch of two puts and a delete; returns whether it was refused because the store was full.
    fn batch(&mut self, store: &StoreOn<G::Medium>) -> Result<bool, String> {
        let (a, b) = (self.rng.below(self.plan.keys), self.rng.below(self.plan.keys));
        let Some(gone) = self.some_key() else { return Ok(false) };
        if a == b || gone == a || gone == b {
            return Ok(false);
        }
        let mut batch = Batch::new();
        let mut puts = Vec::new();
        for number in [a, b] {
            let bytes = self.size() / 2;
            let value = self.value(bytes);
            batch.put(key(number), &value);
            puts.push((number, value));
        }
        batch.delete(key(gone));
        match store.apply(&batch) {
            Ok(_) => {
                self.counts.writes += 1;
                self.content.extend(puts);
                self.content.remove(&gone);
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::OutOfSpace => Ok(true),
            Err(error) if self.is_reported(&error) => Ok(false),
            Err(error) => Err(format!("a batch failed: {error}")),
        }
    }

    fn maintain(&mut self, store: &StoreOn<G::Medium>) -> Result<(), String> {
        if self.plan.options.background {
            return Ok(());
        }
        match store.maintain() {
            Ok(()) => Ok(()),
            Err(error) if self.is_reported(&error) => Ok(()),
            Err(error) => Err(format!("maintain failed: {error}")),
        }
    }

    fn check(&mut self, store: &StoreOn<G::Medium>, number: u64) -> Result<(), String> {
        self.counts.reads += 1;
        let wanted = self.content.get(&number).map(|value| &value[..]);
        match store.get(key(number)) {
            Ok(found) => {
                if found.as_deref() == wanted {
                    return Ok(());
                }
                let lengths = (found.as_ref().map(|f| f.len()), wanted.map(<[u8]>::len));
                Err(format!("key {number} is wrong: found and wanted have {lengths:?} bytes"))
            }
            Err(error) if self.is_reported(&error) => Ok(()),
            Err(error) => Err(format!("a get of key {number} failed: {error}")),
        }
    }

    /// Reads some keys, present or absent.
    fn look(&mut self, store: &StoreOn<G::Medium>, count: u64) -> Result<(), String> {
        for _ in 0..count {
            let number = self.rng.below(self.plan.keys);
            self.check(store, number)?;
        }
        Ok(())
    }

    /// Reads everything, by gets and by a scan.
    fn look_at_all(&mut self, store: &StoreOn<G::Medium>) -> Result<(), String> {
        for number in 0..self.plan.keys {
            self.check(store, number)?;
        }
        let mut wrong = None;
        let mut seen = std::collections::BTreeSet::new();
        let scanned = store.for_each(|found| {
            let number =
                std::str::from_utf8(found.key()).ok().and_then(|key| key.strip_prefix("key:")?.parse().ok());
            let wanted = number.and_then(|number: u64| self.content.get(&number));
            seen.extend(number);
            if wanted.map(|value| &value[..]) != Some(found.bytes()) {
                wrong = Some(format!("a scan returned a wrong value of {:?}", found.key()));
            }
        });
        match (wrong, scanned) {
            (Some(wrong), _) => Err(wrong),
            (None, Ok(())) if seen.len() == self.content.len() || self.damaged => Ok(()),
            (None, Ok(())) => Err(format!("a scan returned {} of {} keys", seen.len(), self.content.len())),
            (None, Err(error)) if self.is_reported(&error) => Ok(()),
            (None, Err(error)) => Err(format!("a scan failed: {error}")),
        }
    }

    /// Deletes every key.
    fn clear(&mut self, store: &StoreOn<G::Medium>) -> Result<(), String> {
        let numbers: Vec<u64> = self.content.keys().copied().collect();
        for number in numbers {
            self.counts.deletes_full += 1;
            self.delete(store, number)?;
        }
        Ok(())
    }

    /// Fills a store after everything was deleted: about as much must fit as at first.
    fn refill(&mut self, store: &StoreOn<G::Medium>, first: usize) -> Result<(), String> {
        let begun = Instant::now();
        self.audit(store)?;
        loop {
            self.maintain(store)?;
            let now = self.fill(store)?;
            if now * 100 >= first * REFILL_PERCENT || self.damaged {
                return Ok(());
            }
            if begun.elapsed() > FLUSH_GROUP_MAX {
                return Err(format!(
                    "{first} bytes fitted at first, {now} after everything was deleted: {:?}",
                    store.stats()
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A reader keeps a value while others write: the writes succeed, and the value stays unchanged.
    fn keep(&mut self, store: &StoreOn<G::Medium>) -> Result<(), String> {
        let Some(number) = self.some_key() else { return Ok(()) };
        let kept = match store.get(key(number)) {
            Ok(kept) => kept,
            Err(error) if self.is_reported(&error) => return Ok(()),
            Err(error) => return Err(format!("a get of key {number} failed: {error}")),
        };
        let Some(kept) = kept else { return Err(format!("key {number} is absent")) };
        let before = kept.to_vec();
        self.counts.kept += 1;
        self.keeping = true;
        self.churn(store)?;
        self.keeping = false;
        if kept.bytes() == before { Ok(()) } else { Err(format!("the pinned value of key {number} changed")) }
    }

    fn open(&mut self) -> Result<StoreOn<G::Medium>, String> {
        self.counts.reopened += 1;
        self.ground.open(&self.plan.options).map_err(|error| format!("the store does not open: {error}"))
    }

    fn close(&mut self, store: StoreOn<G::Medium>) -> Result<(), String> {
        match store.close_discarding() {
            Ok(()) => Ok(()),
            Err(error) if self.is_reported(&error) => Ok(()),
            Err(error) => Err(format!("the store does not close: {error}")),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.counts.stores += 1;
        let mut store = self.open()?;
        let first = self.fill(&store)?;
        for _ in 0..self.plan.rounds {
            self.churn(&store)?;
            self.audit(&store)?;
            if self.plan.what == What::All {
                self.keep(&store)?;
            }
            if self.plan.place != Place::Volatile {
                self.close(store)?;
                store = self.open()?;
            }
            self.look_at_all(&store)?;
            self.clear(&store)?;
            self.look_at_all(&store)?;
            self.refill(&store, first)?;
        }
        self.close(store)?;
        match self.plan.damage {
            None => Ok(()),
            Some(Damage::Head) => self.lose_head(),
            Some(damage) => self.damage(damage),
        }
    }

    /// Zeroes the head: the open is refused, and no byte changes.
    fn lose_head(&mut self) -> Result<(), String> {
        self.counts.heads_lost += 1;
        let mut bytes = self.ground.bytes()?;
        bytes[..HEAD_BYTES].fill(0);
        self.ground.set_bytes(&bytes)?;
        match self.ground.open(&self.plan.options) {
            Ok(_) => return Err("a store whose head is lost was opened as an empty one".into()),
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(format!("a store whose head is lost: {error}")),
        }
        if self.ground.bytes()? == bytes {
            Ok(())
        } else {
            Err("opening a store whose head is lost changed it".into())
        }
    }

    fn damage(&mut self, damage: Damage) -> Result<(), String> {
        self.counts.damaged += 1;
        self.damaged = true;
        let mut bytes = self.ground.bytes()?;
        let room = (bytes.len() - HEAD_BYTES) as u64;
        match damage {
            Damage::Bits(count) => {
                for _ in 0..count {
                    let at = HEAD_BYTES + self.rng.below(room) as usize;
                    bytes[at] ^= 1 << self.rng.below(8);
                }
            }
            Damage::Lines(count) => {
                let at = HEAD_BYTES + self.rng.below(room) as usize / 64 * 64;
                let end = (at + 64 * count as usize).min(bytes.len());
                bytes[at..end].fill(0);
            }
            Damage::Head => bytes[..HEAD_BYTES].fill(0),
        }
        self.ground.set_bytes(&bytes)?;
        let store = match self.ground.open(&self.plan.options) {
            Ok(store) => store,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.counts.refused_opens += 1;
                let store = self.serve()?;
                return self.serve_what_is_whole(store);
            }
            Err(error) => return Err(format!("a damaged store does not open: {error}")),
        };
        // Immediately, while the rest is being verified, and again later.
        self.look(&store, 64)?;
        self.churn_damaged(&store)?;
        self.look_at_all(&store)?;
        for _ in 0..20 {
            self.maintain(&store)?;
        }
        self.look_at_all(&store)?;
        let Some(store) = self.serve_again(store)? else { return Ok(()) };
        self.look_at_all(&store)?;
        self.churn_damaged(&store)?;
        self.clear(&store)?;
        self.look(&store, 64)?;
        self.close(store)
    }

    /// Opens a store that a strict open refuses.
    fn serve(&mut self) -> Result<StoreOn<G::Medium>, String> {
        let options = Options { on_corruption: OnCorruption::Serve, ..self.plan.options.clone() };
        let store = self.ground.open(&options);
        let store = store.map_err(|error| format!("the rest of a damaged store is not served: {error}"))?;
        let reported = (store.stats().damaged_blocks, store.recovery().damage.len());
        if (reported.0 == 0) != (reported.1 == 0) {
            return Err(format!("{} blocks are damaged, and {} places are reported", reported.0, reported.1));
        }
        Ok(store)
    }

    /// Closes a store with known damage, then checks that opens refuse it or serve its rest. Returns `None` when
    /// nothing is left to check.
    fn serve_again(&mut self, store: StoreOn<G::Medium>) -> Result<Option<StoreOn<G::Medium>>, String> {
        let begun = Instant::now();
        while store.stats().unverified_bytes > 0 && begun.elapsed() < FLUSH_GROUP_MAX {
            self.maintain(&store)?;
        }
        let damaged = store.stats().damaged_blocks;
        self.close(store)?;
        match self.ground.open(&self.plan.options) {
            // The background thread may just have repaired the last damage.
            Ok(store) if damaged == 0 || self.plan.options.background => return Ok(Some(store)),
            Ok(_) => {
                return Err(format!(
                    "{damaged} blocks were damaged at the close, and the store opens without an error"
                ));
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => self.counts.refused_opens += 1,
            Err(error) => return Err(format!("a damaged store does not open: {error}")),
        }
        let store = self.serve()?;
        if store.recovery().checkpointed > 0 {
            self.counts.served[0] += 1;
            return Ok(Some(store));
        }
        self.serve_what_is_whole(store).map(|()| None)
    }

    /// Without an image the owners of the damaged records are unknown. Newly written data holds, and so does the
    /// damage.
    fn serve_what_is_whole(&mut self, store: StoreOn<G::Medium>) -> Result<(), String> {
        self.counts.served[1] += 1;
        let damaged = store.stats().damaged_blocks;
        for number in 0..self.plan.keys.min(64) {
            self.content.clear();
            if number % 2 == 0 && self.put(&store, number)? && self.content.contains_key(&number) {
                self.check(&store, number)?;
            }
            if store.delete(key(number)).is_err() || !matches!(store.get(key(number)), Ok(None)) {
                return Err(format!("key {number} is deleted, but found"));
            }
        }
        for _ in 0..4 {
            self.maintain(&store)?;
        }
        let now = store.stats().damaged_blocks;
        self.close(store)?;
        match self.ground.open(&self.plan.options) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(()),
            Err(error) => Err(format!("a damaged store does not open: {error}")),
            // It opened by an image from the preceding close, so all damage was known and has been written again.
            Ok(_) if damaged == 0 || now == 0 => Ok(()),
            Ok(_) => Err(format!(
                "{damaged} damaged blocks were served and {now} remain, and the store opens without an error"
            )),
        }
    }

    /// As in `churn`, with writes that may be refused as `Corrupt`.
    fn churn_damaged(&mut self, store: &StoreOn<G::Medium>) -> Result<(), String> {
        for turn in 0..300 {
            let number = self.rng.below(self.plan.keys);
            if turn % 3 == 0 {
                self.delete(store, number)?;
            } else if !self.put(store, number)? {
                let Some(old) = self.some_key() else { break };
                self.delete(store, old)?;
            }
            if turn % 64 == 0 {
                self.maintain(store)?;
            }
        }
        Ok(())
    }
}

/// Runs the seed; files are created in `folder` and in `/dev/shm`.
///
/// # Errors
/// Returns a description of the violation, with the seed and its parameters.
pub fn run_seed(seed: u64, folder: &Path, what: What) -> Result<Counts, String> {
    let plan = Plan::new(seed, what);
    let name = format!("duramen-soak-{}-{seed}", std::process::id());
    let outcome = caught(|| match plan.place {
        Place::Line => run(&plan, Simulated::new(Model::CacheLine, plan.options.len_max)),
        Place::Page => run(&plan, Simulated::new(Model::Page, plan.options.len_max)),
        Place::Shm => run(&plan, File(Path::new("/dev/shm").join(name))),
        Place::File | Place::Volatile => run(&plan, File(folder.join(name))),
    });
    let wrong = match outcome {
        Ok(counts) => return Ok(counts),
        Err(wrong) => wrong,
    };
    Err(format!(
        "seed {seed} ({:?}, {:?}, {:?}, values of {:?} bytes, extents of {:?}, {} bytes, {:?}, \
         background {}, damage {:?}): {wrong}\n  \
         cargo xtask crash -- --soak --seed {seed} --seeds 1{}",
        plan.place,
        plan.options.index,
        plan.options.residence,
        plan.sizes,
        plan.options.extent_bytes,
        plan.options.len_max,
        plan.options.durability,
        plan.options.background,
        plan.damage,
        what.argument()
    ))
}

fn run<G: Ground>(plan: &Plan, ground: G) -> Result<Counts, String> {
    let rng = Rng::new(plan.seed);
    let content = Content::new();
    let mut run = Run {
        plan,
        ground,
        rng,
        next: plan.seed << 32,
        content,
        counts: Counts::default(),
        damaged: false,
        keeping: false,
    };
    run.run()?;
    Ok(run.counts)
}
