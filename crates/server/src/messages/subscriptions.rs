//! Subscriptions: the counts that all workers share, and those of one connection.

use duramen_structures::glob;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

/// Kinds of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    counts: RwLock<[HashMap<Box<[u8]>, Counts>; 3]>,
}

/// How many connections of each worker.
#[derive(Debug, Default)]
struct Counts(Vec<u32>);

impl Counts {
    fn total(&self) -> usize {
        self.0.iter().map(|count| *count as usize).sum()
    }

    fn at(&mut self, worker: usize) -> &mut u32 {
        if self.0.len() <= worker {
            self.0.resize(worker + 1, 0);
        }
        &mut self.0[worker]
    }

    fn workers(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(|(worker, _)| worker as u32)
    }
}

impl Subscriptions {
    /// A connection of `worker` begins to listen.
    pub fn add(&self, kind: Kind, name: &[u8], worker: usize) {
        let mut counts = self.counts.write().unwrap_or_else(PoisonError::into_inner);
        let names = &mut counts[kind as usize];
        let of = match names.get_mut(name) {
            Some(of) => of,
            None => names.entry(name.into()).or_default(),
        };
        *of.at(worker) += 1;
        if kind != Kind::Shard {
            self.any.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It ends to.
    pub fn remove(&self, kind: Kind, name: &[u8], worker: usize) {
        let mut counts = self.counts.write().unwrap_or_else(PoisonError::into_inner);
        let names = &mut counts[kind as usize];
        let Some(of) = names.get_mut(name) else { return };
        let count = of.at(worker);
        *count = count.saturating_sub(1);
        if of.total() == 0 {
            names.remove(name);
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

    fn read(&self) -> RwLockReadGuard<'_, [HashMap<Box<[u8]>, Counts>; 3]> {
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
    pub fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let names = self.read();
        let wanted = |name: &&[u8]| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        names[kind as usize].keys().map(|name| &**name).filter(wanted).map(Box::from).collect()
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
    names: [BTreeMap<Box<[u8]>, u64>; 3],
}

impl Subscribed {
    /// Begins to listen; false when it did before.
    pub fn add(&mut self, kind: Kind, name: &[u8], since: u64) -> bool {
        let names = &mut self.names[kind as usize];
        !names.contains_key(name) && names.insert(name.into(), since).is_none()
    }

    /// Ends to listen; whether it did.
    pub fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        self.names[kind as usize].remove(name).is_some()
    }

    /// How many names of a kind it listens to.
    pub fn count(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    /// Those names.
    pub fn names(&self, kind: Kind) -> Vec<Box<[u8]>> {
        self.names[kind as usize].keys().cloned().collect()
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

    /// Memory that it takes, about.
    pub fn bytes(&self) -> usize {
        // The name is here and with the client; 64: a map's approximate overhead per entry.
        self.names.iter().flatten().map(|(name, _)| 2 * (name.len() + 64)).sum()
    }
}
