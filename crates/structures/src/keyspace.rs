//! Numbered databases over one store, shared by all threads, and how many keys they have.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use duramen::Store;

use crate::counting::{Counter, Counting};
use crate::counts::{Counts, Life, Sum};
use crate::error::Result;
use crate::turns::Turns;

/// Databases that Redis has by default.
pub const DATABASES_DEFAULT: u8 = 16;
/// Most databases a keyspace can have. Engine keys that begin with a higher byte are not user keys.
pub const DATABASES_MAX: u8 = 128;
/// Longest user key: the engine's limit less the byte of the database.
pub const KEY_BYTES_MAX: usize = duramen::KEY_BYTES_MAX - 1;

// Where counts are kept over a close: no user key. 4 bytes of the incarnation that kept them, and the counts.
const COUNTS_KEY: &[u8] = &[u8::MAX, b'c', b'o', b'u', b'n', b't', b's'];
// Counted before `Keyspace::open` returns: some 100,000 keys, a hundredth of a second.
const PARTS_AT_OPEN: usize = 64;

/// Databases of keys over one store. Cheap to clone; all clones are the same keyspace.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    // First: its thread has the store too, and is to end before that is closed.
    _counter: Option<Counter>,
    store: Store,
    databases: u8,
    // The keys at open, when they are not known yet.
    counting: Option<Arc<Counting>>,
    // What there was at open, what counting found, and one share per worker. Locked when a worker comes or
    // goes, and when somebody asks for a count.
    pub(crate) counts: Mutex<Vec<Arc<Counts>>>,
    pub(crate) turns: Turns,
    // See `Keyspace::doubt_counts`.
    doubted: AtomicBool,
}

/// Keys of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCount {
    /// All keys.
    pub keys: u64,
    /// Those among them that have an expiry time.
    pub expires: u64,
}

impl Keyspace {
    /// Opens the keyspace in `store`, with `databases` (1 to [`DATABASES_MAX`]) databases. Where the counts were not kept
    /// when it was closed ([`Keyspace::keep_counts`]), a thread visits every record once to count the keys.
    pub fn open(store: Store, databases: u8) -> Result<Self> {
        let databases = databases.clamp(1, DATABASES_MAX);
        let kept = Self::kept_counts(&store, databases)?;
        let counting = kept.is_none().then(|| Arc::new(Counting::new(databases)));
        let mut counts = vec![Arc::new(kept.unwrap_or_else(|| Counts::new(databases)))];
        counts.extend(counting.iter().map(|counting| Arc::clone(&counting.found)));
        // In a small store nobody should see that it is being counted.
        if let Some(counting) = &counting {
            for _ in 0..PARTS_AT_OPEN {
                if !counting.go_on(&store)? {
                    break;
                }
            }
        }
        let uncounted = counting.iter().find(|counting| !counting.is_done());
        let counter = uncounted.map(|counting| Counter::start(Arc::clone(counting), store.clone()));
        Ok(Self {
            shared: Arc::new(Shared {
                _counter: counter,
                store,
                databases,
                counting,
                counts: Mutex::new(counts),
                turns: Turns::default(),
                doubted: AtomicBool::new(false),
            }),
        })
    }

    /// The counts that the last close kept, if nobody has opened the store since. What was kept goes: it is true only now.
    fn kept_counts(store: &Store, databases: u8) -> Result<Option<Counts>> {
        let recovery = store.recovery();
        let Some(kept) = store.get(COUNTS_KEY)?.map(|value| value.to_vec()) else { return Ok(None) };
        store.delete(COUNTS_KEY)?;
        let Some((incarnation, counts)) = kept.split_first_chunk() else { return Ok(None) };
        let is_last =
            recovery.clean && u32::from_le_bytes(*incarnation).checked_add(1) == Some(recovery.incarnation);
        Ok(if is_last { Counts::decode(counts, databases) } else { None })
    }

    /// Keeps the counts in the store, if they are known and no damage is, so that the next open need not count. The last thing to do before
    /// the store is closed: whatever is written later is not counted then.
    pub fn keep_counts(&self) -> Result<()> {
        let doubted = self.shared.doubted.load(Relaxed) || self.shared.store.stats().damaged_blocks > 0;
        if !self.is_counted() || doubted {
            return Ok(());
        }
        let all = Counts::new(self.shared.databases);
        for share in self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            all.absorb(share);
        }
        let Some(counts) = all.encode() else { return Ok(()) };
        let mut kept = self.shared.store.recovery().incarnation.to_le_bytes().to_vec();
        kept.extend_from_slice(&counts);
        Ok(self.shared.store.put(COUNTS_KEY, &kept)?)
    }

    /// Whether the keys have been counted that were there at open; until then [`Keyspace::count`] waits for that.
    pub fn is_counted(&self) -> bool {
        self.counting().is_none()
    }

    /// The counting that is still under way.
    #[inline]
    pub(crate) fn counting(&self) -> Option<&Arc<Counting>> {
        self.shared.counting.as_ref().filter(|counting| !counting.is_done())
    }

    /// Keys in `db` at `now` (Unix milliseconds). Exact when no write is under way, except that where
    /// many keys expire in the same moment some may be counted for 64 ms longer. After an open that has to count, it
    /// returns when that is done; when the store cannot be read, with what was counted until then.
    pub fn count(&self, db: u8, now: u64) -> KeyCount {
        self.sum(db, now).into()
    }

    pub(crate) fn sum(&self, db: u8, now: u64) -> Sum {
        if let Some(counting) = self.counting() {
            while counting.go_on(&self.shared.store).unwrap_or(false) {}
        }
        let counts = self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().fold(Sum::default(), |sum, share| {
            let Sum { persistent, volatile } = share.read(db, now);
            Sum { persistent: sum.persistent + persistent, volatile: sum.volatile + volatile }
        })
    }

    /// How many databases there are.
    pub fn databases(&self) -> u8 {
        self.shared.databases
    }

    /// How a key counts whose record is damaged: visits pass it over, and counts that were kept were of a whole store. With them
    /// it is taken for one without expiry time.
    pub(crate) fn life_of_damaged(&self) -> Life {
        if self.shared.counting.is_some() { Life::Absent } else { Life::Persistent }
    }

    /// The counts may be wrong, since damage is known of: they are not kept, and the next open counts anew.
    pub fn doubt_counts(&self) {
        self.shared.doubted.store(true, Relaxed);
    }

    /// What damaged records say they were, of the keys of `db`.
    pub(crate) fn claimed_keys(&self, db: u8) -> Vec<Vec<u8>> {
        let claimed = self.shared.store.claimed_keys().into_iter();
        claimed
            .filter_map(|key| {
                key.split_first().filter(|(first, _)| **first == db).map(|(_, key)| key.to_vec())
            })
            .collect()
    }

    /// The store below, for its statistics and settings. Keys written past the keyspace are not counted.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }
}

impl From<Sum> for KeyCount {
    fn from(sum: Sum) -> Self {
        // Below zero only while a write that another worker has yet to count is under way.
        let expires = u64::try_from(sum.volatile).unwrap_or(0);
        Self { keys: u64::try_from(sum.persistent).unwrap_or(0) + expires, expires }
    }
}
