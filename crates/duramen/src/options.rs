//! Options of opening a store: each field with its meaning, unit, bound and default.

use crate::{Error, Result};
use duramen_log::durability::{Clock, Durability};
use duramen_log::sync::Arc;
use duramen_media::{Create, FlushInstruction, Granularity, Mapped, MediaOptions, Medium, MediumKind};
use std::path::Path;

/// Dead bytes among the used ones, in percent, at which background compaction begins, by default.
pub(crate) const DEAD_PERCENT: u32 = 25;
/// The most threads that may move records at the same time.
const COMPACTORS_MAX: usize = 64;

/// The kind of index. A property of the open, not of the bytes: the log is the same, and each open rebuilds the
/// requested index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// By the hashes of the keys: the fastest point reads and writes, and some 12 bytes of DRAM for each key.
    #[default]
    Hash,
    /// In the order of the keys: ranges, prefixes, first and last as well. Some 40 bytes for each key, and the cache.
    Ordered,
}

impl IndexKind {
    /// Its name, as [`str::parse`] takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Ordered => "ordered",
        }
    }
}

impl std::fmt::Display for IndexKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for IndexKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "hash" => Ok(Self::Hash),
            "ordered" => Ok(Self::Ordered),
            _ => Err(Error::invalid(format!("index \"{text}\" is unknown; use hash or ordered"))),
        }
    }
}

/// How much of the index survives a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residence {
    /// Nothing: the index is in DRAM, and an open after a crash reads the whole store. A clean close writes a
    /// checkpoint of the index.
    #[default]
    Dram,
    /// All but recent writes: the store also writes a checkpoint of the index while it runs. It does so whenever an
    /// eighth of its used space, and at least 64 MiB, was written since the last. After a crash only the later writes
    /// and the checkpoint are read. The checkpoint takes space on the medium all the time, and twice that while one is
    /// written.
    Persistent,
}

impl Residence {
    /// Its name, as [`str::parse`] takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dram => "dram",
            Self::Persistent => "persistent",
        }
    }
}

impl std::fmt::Display for Residence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Residence {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "dram" => Ok(Self::Dram),
            "persistent" => Ok(Self::Persistent),
            _ => Err(Error::invalid(format!("residence \"{text}\" is unknown; use dram or persistent"))),
        }
    }
}

/// How an open handles a store with known damage, or damage that the open finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCorruption {
    /// It fails with `Corrupt`, and changes nothing.
    #[default]
    Refuse,
    /// It serves the rest: a read that needs a damaged record fails with `Corrupt`, all other keys work normally.
    /// [`Summary::damage`](crate::Summary) and [`Stats::damaged_blocks`](crate::Stats::damaged_blocks) report the
    /// damage, and damaged blocks are neither written nor reused while a key may need them.
    ///
    /// With an index checkpoint this is exact: the index knows which key each damaged record belongs to. A clean close
    /// of a store with known damage writes a checkpoint however small the store is. **Without one** (after a crash with
    /// residence `dram`, or with `index_checkpoint: false`) all records are read, and the keys of the damaged ones are
    /// unknown. Then a key whose newest record is damaged is shown with an older value, or as absent, and a deleted key
    /// may reappear. [`check`](crate::check) lists such keys as far as the damaged bytes contain them.
    Serve,
}

impl OnCorruption {
    /// Its name, as [`str::parse`] takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Serve => "serve",
        }
    }
}

impl std::fmt::Display for OnCorruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for OnCorruption {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "serve" => Ok(Self::Serve),
            _ => Err(Error::invalid(format!("on-corruption \"{text}\" is unknown; use refuse or serve"))),
        }
    }
}

/// The progress of recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Blocks read.
    pub blocks: u64,
    /// Blocks to read.
    pub blocks_total: u64,
    /// Records found valid.
    pub records: u64,
}

/// Called occasionally from recovery's threads.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Which keys a full store evicts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictBy {
    /// Keys that were not read recently.
    Recency,
    /// The same keys as [`Recency`](Self::Recency), which counts reads too, but without the times of reads (4 MiB).
    Frequency,
    /// Random keys.
    Chance,
    /// Keys that expire first; keys without an expiry are never evicted.
    Expiry,
}

impl EvictBy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Recency, Self::Frequency, Self::Chance, Self::Expiry];

    /// Whether reads of keys must be counted.
    pub(crate) fn asks_for_reads(self) -> bool {
        matches!(self, Self::Recency | Self::Frequency)
    }
}

/// The eviction policy of a store that has reached its [limit](Options::limit), or the end of its medium: instead of
/// refusing writes it evicts keys, including whole collections, of the tables that allow it
/// ([`TableOn::set_evictable`](crate::TableOn::set_evictable)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The order of eviction.
    pub by: EvictBy,
    /// Evict only keys that expire.
    pub volatile_only: bool,
}

impl Eviction {
    /// The policy as a number, which is not 0.
    pub(crate) fn code(self) -> u64 {
        (self.by as u64 + 1) << 1 | u64::from(self.volatile_only || self.by == EvictBy::Expiry)
    }

    /// The policy of a number that [`code`](Self::code) made.
    pub(crate) fn of_code(code: u64) -> Option<Self> {
        let by = EvictBy::ALL.into_iter().find(|by| *by as u64 + 1 == code >> 1)?;
        Some(Self { by, volatile_only: code & 1 != 0 })
    }
}

/// Options of opening a store.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let store = duramen::Options::default().open(dir.path().join("store"))?;
/// store.put(b"greeting", b"hello")?;
/// assert_eq!(&*store.get(b"greeting")?.unwrap(), b"hello");
/// # Ok::<(), duramen::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    /// The kind of medium. Default `Auto`: detected from the path.
    pub medium: MediumKind,
    /// Whether the store must exist, must not exist, or either. Default: either.
    pub create: Create,
    /// Whether to leave the store on the medium untouched. It must exist, others may read it at the same time while
    /// nobody writes, and the repairs of recovery stay in this process. Writes are refused with `ReadOnly`, and there
    /// is no background thread. `Unsupported` on a DAX device. A medium of the caller
    /// ([`StoreOn::open_on`](crate::StoreOn::open_on)) decides itself whether it keeps the stores private. Default
    /// false.
    pub read_only: bool,
    /// When a write survives a power failure. Default `EveryWrite`.
    pub durability: Durability,
    /// The kind of index. Default `Hash`. Any open may choose another one.
    pub index: IndexKind,
    /// Slots of the ordered index's cache, which maps hashes to places: a point read of a cached key needs no descent.
    /// 8 bytes each, rounded up to a power of two, 0 for none. Default 2^20. Ignored with `Hash`.
    pub index_cache_slots: usize,
    /// How much of the index survives a crash. Default `Dram`. Any open may choose another value. With
    /// `Durability::Manual` always as `Dram`.
    pub residence: Residence,
    /// With `Residence::Persistent`: bytes of records written between two checkpoints of the index, which bounds the
    /// reading after a crash. Default 0: an eighth of the store's used space, at least 64 MiB.
    pub checkpoint_bytes: u64,
    /// Whether a clean close of a store of 64 MiB or more writes the index to the medium, so that the next open reads
    /// that instead of every record. It takes some 8 bytes for each key there (ordered: some 20), while the store is
    /// closed. Default true. Records are then verified in the background: damage is found some time after the open, and
    /// reported by [`Stats::damaged_blocks`](crate::Stats::damaged_blocks). [`check`](crate::check) reads everything.
    pub index_checkpoint: bool,
    /// How to handle a store with known damage, or damage that the open finds. Default `Refuse`.
    pub on_corruption: OnCorruption,
    /// Whether an open by checkpoint verifies all records before it returns, on as many threads as recovery has,
    /// instead of the background thread afterwards. The open then takes as long as reading the store. `on_corruption`
    /// decides about damage that it finds. Default false. An open without a checkpoint always reads everything.
    pub verify_at_open: bool,
    /// Maximum size of the store on the medium, in bytes. Default 1 TiB; at most 8 TiB. Only address space is reserved.
    /// Ignored on devices, which have a size.
    pub len_max: u64,
    /// The size up to which the store grows, in bytes; can be changed while it is open
    /// ([`StoreOn::set_limit`](crate::StoreOn::set_limit)). At least the size of the smallest store. Default 0: the
    /// size of the medium.
    pub limit: u64,
    /// The eviction when there is no more room. Default `None`: no eviction, writes are refused with `OutOfSpace`.
    pub eviction: Option<Eviction>,
    /// Bytes of one extent, the unit of space and the smallest block: a multiple of 64, 512 bytes to 64 MiB. Default:
    /// the device's stripe times its ways (4 KiB × 6), and eight times that on page media, where fewer and larger
    /// blocks mean fewer waits. Ignored when the store exists.
    pub extent_bytes: Option<u32>,
    /// How lines are flushed. Default: the best instruction of the CPU and the device, and none where stores survive
    /// without a flush. Set it for measurements, and where an unneeded flush is faster: `duramen bench mem --tune`
    /// measures that.
    pub flush_instruction: Option<FlushInstruction>,
    /// Bytes of one interleave stripe of the device. Default: the value in sysfs, else 4 KiB.
    pub stripe_bytes: Option<u64>,
    /// Number of interleaved stripes. Default: the value in sysfs, else 6.
    pub ways: Option<u32>,
    /// Maps new space when the store grows, and in the background after an open the parts that it did not read, instead
    /// of at first touch. Default true.
    pub prefault: bool,
    /// Whether each page of the process stays in memory once it was used: of the medium, the index and all else. They
    /// must fit. Needs an unlimited RLIMIT_MEMLOCK or CAP_IPC_LOCK. Default false.
    pub lock_memory: bool,
    /// Threads that recovery uses; 0 means one per core. Default 0.
    pub recovery_threads: usize,
    /// Called with recovery's progress.
    pub on_progress: Option<OnProgress>,
    /// Bytes per second that background compaction may read; 0 means no limit. Default 0: it yields to the foreground
    /// on its own, and a writer that finds no space compacts regardless.
    pub compaction_bytes_per_second: u64,
    /// The share of used space, in percent, that may be dead before background compaction begins. Default 25, from 5 to
    /// 90: lower saves space, higher saves work. In a small store 45 percent may be dead, up to 64 MiB or a sixteenth
    /// of `len_max`, until the medium has no more room, unless less than 25 is requested.
    pub compaction_dead_percent: u32,
    /// The most threads that compact at the same time when compaction falls behind the writers, at most 64; 0 means one
    /// for each four cores, at most 8, and without a background thread one. Default 0. One of them serves two to three
    /// writers.
    pub compactors: usize,
    /// Free space that the store keeps, in bytes, besides a sixteenth of what it uses and the reserve for deletes. What
    /// is free beyond that for some seconds is given back to the file system, by punching holes: the file stays as
    /// long as it was, and takes less space (on tmpfs: less memory). Growth takes it back first. Default 64 MiB;
    /// `u64::MAX`: nothing is given back. Ignored on DAX devices.
    pub keep_free_bytes: u64,
    /// Whether the store has a background thread that commits, compacts and sweeps. Default true. Without it, call
    /// [`Store::maintain`](crate::Store::maintain).
    pub background: bool,
    /// The source of the current time.
    pub clock: Option<Clock>,
    /// Hash bits that are used; fewer cause collisions, for tests.
    #[doc(hidden)]
    pub hash_mask: u64,
    /// Limits that tests lower.
    #[doc(hidden)]
    pub tuning: crate::tuning::Tuning,
    /// Replaces the kernel's boot id, for tests: another one means a reboot. A new store's id is derived from it too,
    /// so that a test repeats.
    #[doc(hidden)]
    pub boot_id: Option<[u8; 16]>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            medium: MediumKind::Auto,
            create: Create::OpenOrCreate,
            read_only: false,
            durability: Durability::EveryWrite,
            index: IndexKind::Hash,
            index_cache_slots: duramen_index::ordered::CACHE_SLOTS,
            residence: Residence::Dram,
            checkpoint_bytes: 0,
            index_checkpoint: true,
            on_corruption: OnCorruption::Refuse,
            verify_at_open: false,
            len_max: 1 << 40,
            limit: 0,
            eviction: None,
            extent_bytes: None,
            flush_instruction: None,
            stripe_bytes: None,
            ways: None,
            prefault: true,
            lock_memory: false,
            recovery_threads: 0,
            on_progress: None,
            compaction_bytes_per_second: 0,
            compaction_dead_percent: DEAD_PERCENT,
            compactors: 0,
            keep_free_bytes: 64 << 20,
            background: true,
            clock: None,
            hash_mask: u64::MAX,
            tuning: crate::tuning::Tuning::default(),
            boot_id: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("medium", &self.medium)
            .field("durability", &self.durability)
            .field("index", &self.index)
            .field("len_max", &self.len_max)
            .field("extent_bytes", &self.extent_bytes)
            .field("flush_instruction", &self.flush_instruction)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Options from the text of a profile, as `duramen bench mem --tune FILE` writes it; fields that it does not name
    /// keep their defaults.
    ///
    /// A profile is a small subset of TOML: comments, `[medium]` and `[engine]`, and lines of `key = value` with a word
    /// in quotes, a number, or true or false. `medium`: `kind`, `flush-instruction`, `stripe-bytes`, `ways`,
    /// `prefault`. `engine`: `recovery-threads`, `extent-bytes`, and `threads`, which is for the server and ignored
    /// here.
    ///
    /// ```
    /// let options = duramen::Options::from_profile("[medium]\nkind = \"shm\"\n[engine]\nrecovery-threads = 2\n")?;
    /// assert_eq!(options.recovery_threads, 2);
    /// # Ok::<(), duramen::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput`, with the line, what was found and what is allowed.
    pub fn from_profile(text: &str) -> Result<Self> {
        let mut options = Self::default();
        let mut section = "";
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = |why: String| Error::invalid(format!("profile line {}: {line:?}: {why}", index + 1));
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name;
                if !matches!(section, "medium" | "engine") {
                    return Err(wrong("found another section, wanted [medium] or [engine]".to_owned()));
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                return Err(wrong("wanted key = value".to_owned()));
            };
            let (key, value) = (key.trim(), value.trim());
            let value = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
            options.set_from_profile(section, key, value).map_err(wrong)?;
        }
        Ok(options)
    }

    fn set_from_profile(&mut self, section: &str, key: &str, value: &str) -> std::result::Result<(), String> {
        fn parsed<T: std::str::FromStr>(value: &str, wanted: &str) -> std::result::Result<T, String> {
            value.parse().map_err(|_| format!("found {value:?}, wanted {wanted}"))
        }
        match (section, key) {
            ("medium", "kind") => {
                self.medium = value.parse().map_err(|error: duramen_media::Error| error.to_string())?;
            }
            ("medium", "flush-instruction") if value == "auto" => self.flush_instruction = None,
            ("medium", "flush-instruction") => {
                let step = value.parse().map_err(|error: duramen_media::Error| error.to_string())?;
                self.flush_instruction = Some(step);
            }
            ("medium", "stripe-bytes") => self.stripe_bytes = Some(parsed(value, "a number of bytes")?),
            ("medium", "ways") => self.ways = Some(parsed(value, "a number")?),
            ("medium", "prefault") => self.prefault = parsed(value, "true or false")?,
            ("engine", "recovery-threads") => self.recovery_threads = parsed(value, "a number")?,
            ("engine", "extent-bytes") => self.extent_bytes = Some(parsed(value, "a number of bytes")?),
            ("engine", "threads") => {
                parsed::<usize>(value, "a number")?;
            }
            ("medium", _) => {
                return Err("wanted kind, flush-instruction, stripe-bytes, ways or prefault".to_owned());
            }
            ("engine", _) => return Err("wanted recovery-threads, extent-bytes or threads".to_owned()),
            _ => return Err("it precedes any section; begin with [medium] or [engine]".to_owned()),
        }
        Ok(())
    }

    /// Opens only the medium.
    pub(crate) fn open_medium(&self, path: &Path) -> Result<Mapped> {
        let media = MediaOptions {
            kind: self.medium,
            create: self.create,
            read_only: self.read_only,
            len_max: self.len_max,
            flush_instruction: self.flush_instruction,
            stripe_bytes: self.stripe_bytes,
            ways: self.ways,
            prefault: self.prefault,
            fault_later: true,
            back_later: true,
            ..MediaOptions::default()
        };
        Ok(Mapped::open(path, &media)?)
    }

    /// The extent of a new store on `medium`.
    pub(crate) fn extent_for<M: Medium>(&self, medium: &M) -> Result<u32> {
        use duramen_log::format::superblock::{EXTENT_BYTES_MAX, EXTENT_BYTES_MIN};
        let (stripe, ways) = medium.interleave();
        let factor = if medium.granularity() == Granularity::Page { 8 } else { 1 };
        let default = (stripe * u64::from(ways) * factor)
            .clamp(u64::from(EXTENT_BYTES_MIN), u64::from(EXTENT_BYTES_MAX));
        let extent = self.extent_bytes.unwrap_or(default as u32 & !63);
        if !(EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&extent) || !extent.is_multiple_of(64) {
            return Err(Error::invalid(format!(
                "extent_bytes is {extent}; it must be a multiple of 64 from {EXTENT_BYTES_MIN} \
                 to {EXTENT_BYTES_MAX}"
            )));
        }
        Ok(extent)
    }

    /// The kernel's boot id, which shows whether the machine was rebooted since the last open.
    pub(crate) fn boot_id_now(&self) -> [u8; 16] {
        if let Some(id) = self.boot_id {
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

    pub(crate) fn check(&self) -> Result<()> {
        if !(5..=90).contains(&self.compaction_dead_percent) {
            return Err(Error::invalid(format!(
                "compaction_dead_percent is {}; it must be from 5 to 90",
                self.compaction_dead_percent
            )));
        }
        if self.compactors > COMPACTORS_MAX {
            return Err(Error::invalid(format!(
                "compactors is {}; it must be at most {COMPACTORS_MAX}, or 0 for one for each four cores",
                self.compactors
            )));
        }
        if let Durability::Interval(interval) = self.durability
            && interval.is_zero()
        {
            return Err(Error::invalid(
                "durability interval is 0; use EveryWrite to make each write durable",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_sets_the_fields_that_it_names() {
        let text = "# made by bench mem\n\n[medium]\nkind = \"devdax\"\nflush-instruction = \"order-only\"\nways=12\n\
                    prefault = false\n[engine]\nrecovery-threads = 3\nthreads = 8\nextent-bytes = 4096\n";
        let options = Options::from_profile(text).unwrap();
        assert_eq!(
            (options.medium, options.flush_instruction),
            (MediumKind::Devdax, Some(FlushInstruction::OrderOnly))
        );
        assert_eq!((options.ways, options.prefault, options.recovery_threads), (Some(12), false, 3));
        assert_eq!(options.extent_bytes, Some(4096));
        let options = Options::from_profile("[medium]\nflush-instruction = \"auto\"\n").unwrap();
        assert_eq!(options.flush_instruction, None);
    }

    /// On `shm` nothing must be flushed; a flush instruction that was measured to pay off is used nevertheless.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_store_uses_the_flush_instruction_of_its_profile() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        for (step, wanted) in
            [("auto", FlushInstruction::OrderOnly), ("nt-sse2", FlushInstruction::NonTemporalSse2)]
        {
            let profile = format!("[medium]\nkind = \"shm\"\nflush-instruction = \"{step}\"\n");
            let options = Options { background: false, ..Options::from_profile(&profile).unwrap() };
            let path = directory.path().join(step);
            let store = options.open(&path).unwrap();
            assert_eq!(store.log().medium.flush_instruction(), wanted);
            // The instruction's stores write the records: they are whole, also after the next open.
            (0..100u8).for_each(|key| store.put([key], [key; 300]).unwrap());
            store.close().unwrap();
            let store = options.open(&path).unwrap();
            assert!((0..100u8).all(|key| store.get([key]).unwrap().as_deref() == Some(&[key; 300][..])));
        }
    }

    #[test]
    fn a_wrong_profile_names_line_found_and_wanted() {
        for (text, wanted) in [
            (
                "[medium]\nkind = \"floppy\"\n",
                "profile line 2: \"kind = \\\"floppy\\\"\": medium \"floppy\" is unknown",
            ),
            ("\n[mdium]\n", "profile line 2: \"[mdium]\": found another section"),
            ("ways = 3\n", "begin with [medium]"),
            ("[medium]\nspeed = 3\n", "wanted kind, flush-instruction"),
            ("[engine]\nrecovery-threads = many\n", "found \"many\", wanted a number"),
            ("[engine]\nnothing\n", "wanted key = value"),
        ] {
            let error = Options::from_profile(text).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(wanted), "{text}: {error}");
        }
    }
}
