//! Subscriptions: the counts that all workers share, and those of one connection.

use duramen_structures::glob;
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// The name of a channel or a pattern. One copy serves all its subscribers.
pub type Name = Arc<[u8]>;

type Names = [HashMap<Name, Counts, RandomState>; 3];

/// Kinds of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SUBSCRIBE: a channel.
    Channel,
    /// PSUBSCRIBE: all channels that a pattern matches.
    Pattern,
    /// SSUBSCRIBE: a channel of a shard, which is a name apart.
    Shard,
}

impl Kind {
    /// The words that confirm a subscription and its end.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Channel => ("subscribe", "unsubscribe"),
            Self::Pattern => ("psubscribe", "punsubscribe"),
            Self::Shard => ("ssubscribe", "sunsubscribe"),
        }
    }
}

/// How many connections of each worker said MONITOR.
#[derive(Default)]
pub struct Monitors {
    any: AtomicUsize,
    counts: Mutex<Counts>,
}

impl Monitors {
    /// A connection of `worker` begins to, or ends to.
    pub fn change(&self, worker: usize, is_more: bool) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.at(worker);
        *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
        self.any.store(counts.total(), Ordering::Relaxed);
    }

    /// Whether there is one.
    #[inline]
    pub fn are_any(&self) -> bool {
        // Relaxed: a client that comes at this moment may come before or after.
        self.any.load(Ordering::Relaxed) > 0
    }

    /// The workers that have some.
    pub fn workers(&self) -> Vec<u32> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).workers().collect()
    }
}

/// How many connections subscribe to each name, and on which workers. Publishers lock it for reading.
#[derive(Default)]
pub struct Subscriptions {
    // The number of subscriptions to channels and patterns: publishers skip the search while it is 0.
    any: AtomicUsize,
    counts: RwLock<Names>,
}

/// How many connections of each worker. The first workers need no memory of their own: most names have one subscriber.
#[derive(Debug, Default)]
struct Counts {
    first: [u32; 4],
    others: Vec<u32>,
}

impl Counts {
    fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.first.iter().chain(&self.others).copied()
    }

    fn total(&self) -> usize {
        self.all().map(|count| count as usize).sum()
    }

    fn at(&mut self, worker: usize) -> &mut u32 {
        let Some(other) = worker.checked_sub(self.first.len()) else { return &mut self.first[worker] };
        if self.others.len() <= other {
            self.others.resize(other + 1, 0);
        }
        &mut self.others[other]
    }

    fn workers(&self) -> impl Iterator<Item = u32> + '_ {
        self.all().enumerate().filter(|(_, count)| *count > 0).map(|(worker, _)| worker as u32)
    }
}

impl Subscriptions {
    /// A connection of `worker` begins to listen. Returns the copy of the name that all subscribers share.
    pub fn add(&self, kind: Kind, name: &[u8], worker: usize) -> Name {
        let mut counts = self.counts.write().unwrap_or_else(PoisonError::into_inner);
        let mut entry = match counts[kind as usize].entry_ref(name) {
            EntryRef::Occupied(entry) => entry,
            EntryRef::Vacant(entry) => entry.insert_entry_with_key(Arc::from(name), Counts::default()),
        };
        *entry.get_mut().at(worker) += 1;
        if kind != Kind::Shard {
            self.any.fetch_add(1, Ordering::Relaxed);
        }
        Arc::clone(entry.key())
    }

    /// It ends to.
    pub fn remove(&self, kind: Kind, name: &[u8], worker: usize) {
        let mut counts = self.counts.write().unwrap_or_else(PoisonError::into_inner);
        let EntryRef::Occupied(mut entry) = counts[kind as usize].entry_ref(name) else { return };
        let count = entry.get_mut().at(worker);
        *count = count.saturating_sub(1);
        if entry.get().total() == 0 {
            entry.remove();
        }
        if kind != Kind::Shard {
            self.any.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether any client subscribes to channels or patterns.
    #[inline]
    pub fn are_any(&self) -> bool {
        // Relaxed: a client that subscribes at this moment may come before or after.
        self.any.load(Ordering::Relaxed) > 0
    }

    fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.counts.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The receivers of a message to `channel` (of a shard or not): their number, and their workers.
    pub fn receivers(&self, is_shard: bool, channel: &[u8]) -> (usize, Vec<u32>) {
        if !is_shard && !self.are_any() {
            return (0, Vec::new());
        }
        let names = self.read();
        let plain = &names[if is_shard { Kind::Shard } else { Kind::Channel } as usize];
        let patterns = names[Kind::Pattern as usize].iter();
        let matching = patterns.filter(|(pattern, _)| !is_shard && glob::matches(pattern, channel));
        let mut total = 0;
        let mut workers = Vec::new();
        for counts in plain.get(channel).into_iter().chain(matching.map(|(_, counts)| counts)) {
            total += counts.total();
            workers.extend(counts.workers());
        }
        workers.sort_unstable();
        workers.dedup();
        (total, workers)
    }

    /// The names that are listened to.
    pub fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Name> {
        let names = self.read();
        let wanted = |name: &&Name| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        names[kind as usize].keys().filter(wanted).map(Arc::clone).collect()
    }

    /// How many names are listened to.
    pub fn names_count(&self, kind: Kind) -> usize {
        self.read()[kind as usize].len()
    }

    /// How many connections listen to this name.
    pub fn count(&self, kind: Kind, name: &[u8]) -> usize {
        self.read()[kind as usize].get(name).map_or(0, Counts::total)
    }
}

/// The subscriptions of one connection, each since a number of [`Delivery`](super::Delivery): earlier messages are not
/// for it.
#[derive(Debug, Default)]
pub struct Subscribed {
    names: [BTreeMap<Name, u64>; 3],
}

impl Subscribed {
    /// Whether it listens to this name.
    pub fn has(&self, kind: Kind, name: &[u8]) -> bool {
        self.names[kind as usize].contains_key(name)
    }

    /// Begins to listen.
    pub fn add(&mut self, kind: Kind, name: Name, since: u64) {
        self.names[kind as usize].insert(name, since);
    }

    /// Ends to listen to this name, which is returned if it did.
    pub fn remove(&mut self, kind: Kind, name: &[u8]) -> Option<Name> {
        self.names[kind as usize].remove_entry(name).map(|(name, _)| name)
    }

    /// Ends to listen to one of the names of a kind, if there is one.
    pub fn remove_any(&mut self, kind: Kind) -> Option<Name> {
        self.names[kind as usize].pop_first().map(|(name, _)| name)
    }

    /// How many names of a kind it listens to.
    pub fn count(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    /// Whether it listens to nothing.
    pub fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeMap::is_empty)
    }

    /// Whether it listens to this name since before this message.
    pub fn hears(&self, kind: Kind, name: &[u8], sequence: u64) -> bool {
        self.names[kind as usize].get(name).is_some_and(|since| *since <= sequence)
    }

    /// Its patterns that match a channel, since before this message.
    pub fn patterns<'a>(&'a self, channel: &'a [u8], sequence: u64) -> impl Iterator<Item = &'a [u8]> {
        let patterns = self.names[Kind::Pattern as usize].iter();
        let mine =
            patterns.filter(move |(pattern, since)| **since <= sequence && glob::matches(pattern, channel));
        mine.map(|(pattern, _)| &**pattern)
    }

    /// All names, with their kinds.
    pub fn all(&self) -> impl Iterator<Item = (Kind, &[u8])> {
        let kinds = [Kind::Channel, Kind::Pattern, Kind::Shard].into_iter();
        kinds.flat_map(|kind| self.names[kind as usize].keys().map(move |name| (kind, &**name)))
    }

    /// Memory that it takes, about.
    pub fn bytes(&self) -> usize {
        // 64: a map's approximate overhead per entry.
        self.names.iter().flatten().map(|(name, _)| name.len() + 64).sum()
    }
}
