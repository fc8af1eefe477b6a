//! The tracking clients, and which keys they are to be notified of.

use crate::clients::{Client, unix_millis};
use crate::redis::blocking::lock;
use hashbrown::HashTable;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

const SHARDS: usize = 64;

/// How a client tracks.
#[derive(Clone, Debug, Default)]
pub struct Tracks {
    /// By prefixes.
    pub broadcast: bool,
    /// OPTIN: only keys read after CLIENT CACHING YES.
    pub opt_in: bool,
    /// OPTOUT: all keys except those read after CLIENT CACHING NO.
    pub opt_out: bool,
    /// NOLOOP: not the client's own changes.
    pub no_loop: bool,
    /// REDIRECT: the client that gets the invalidations.
    pub redirect: Option<u64>,
    /// That client has disconnected.
    pub is_broken: bool,
    /// CLIENT CACHING was sent for the next command.
    pub caching: bool,
    /// Prefixes of BCAST; none is a prefix of another.
    pub prefixes: BTreeSet<Box<[u8]>>,
}

impl Tracks {
    /// Whether the keys of the current read are remembered.
    pub const fn remembers(&self) -> bool {
        let is_meant = if self.opt_in { self.caching } else { !(self.opt_out && self.caching) };
        is_meant && !self.broadcast
    }
}

/// Entries taken from the table.
pub type Taken = Vec<Remembered>;

/// The entry of a key. For one client without an expiry time it allocates only the key.
pub struct Remembered {
    hash: u64,
    key: Box<[u8]>,
    /// A client that has read it ...
    first: u64,
    /// ... and the others.
    others: BTreeSet<u64>,
    /// When it will expire, by database.
    expiry_timers: Vec<(u8, u64)>,
}

impl Remembered {
    fn clients(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    fn add(&mut self, client: u64) {
        if client != self.first {
            self.others.insert(client);
        }
    }
}

type Expiry = (u64, u8, Box<[u8]>);

type Shard = HashTable<Remembered>;

/// All that is tracked. Readers and writers skip it while no client tracks.
pub struct Tracking {
    count: AtomicUsize,
    prefixes_count: AtomicUsize,
    clients: RwLock<HashMap<u64, Tracked>>,
    // By prefix.
    prefixes: RwLock<BTreeMap<Box<[u8]>, BTreeSet<u64>>>,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    keys: AtomicUsize,
    // Remembered keys that will expire, by Unix milliseconds and database.
    expiry_timers: Mutex<BTreeSet<Expiry>>,
    next_expiry: AtomicU64,
}

/// What a writer needs to know of a tracking client.
#[derive(Clone)]
pub struct Tracked {
    /// The client.
    pub client: Arc<Client>,
    /// See [`Tracks::broadcast`].
    pub broadcast: bool,
    /// See [`Tracks::no_loop`].
    pub no_loop: bool,
    /// See [`Tracks::redirect`].
    pub redirect: Option<u64>,
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            count: AtomicUsize::default(),
            prefixes_count: AtomicUsize::default(),
            clients: RwLock::default(),
            prefixes: RwLock::default(),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            keys: AtomicUsize::default(),
            expiry_timers: Mutex::default(),
            next_expiry: AtomicU64::new(u64::MAX),
        }
    }
}

impl Tracking {
    /// Whether a client tracks.
    #[inline]
    pub fn is_any(&self) -> bool {
        // Acquire: pairs with the Release in `begin`. A client that received OK has been counted before.
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether a client tracks a prefix, and so needs keys that it has not read.
    #[inline]
    pub fn follows_prefixes(&self) -> bool {
        // Acquire: as in `is_any`.
        self.prefixes_count.load(Ordering::Acquire) > 0
    }

    /// How many clients track.
    pub fn clients_count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The number of remembered keys, of their clients together, and of prefixes.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let items = self
            .shards
            .iter()
            .map(|shard| lock(shard).iter().map(|it| 1 + it.others.len()).sum::<usize>())
            .sum();
        let prefixes = self.prefixes.read().unwrap_or_else(PoisonError::into_inner).len();
        (self.keys.load(Ordering::Relaxed), items, prefixes)
    }

    /// Begins tracking for a client, or changes its options.
    pub fn begin(&self, client: &Arc<Client>, tracks: &Tracks) {
        let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        for prefix in &tracks.prefixes {
            prefixes.entry(prefix.clone()).or_default().insert(client.id);
        }
        self.prefixes_count.store(prefixes.len(), Ordering::Release);
        drop(prefixes);
        let tracked = Tracked {
            client: Arc::clone(client),
            broadcast: tracks.broadcast,
            no_loop: tracks.no_loop,
            redirect: tracks.redirect,
        };
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.insert(client.id, tracked);
        self.count.store(clients.len(), Ordering::Release);
    }

    /// Ends tracking for a client. Its remembered keys are forgotten when they are written.
    pub fn end(&self, client: u64, tracks: &Tracks) {
        let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        for prefix in &tracks.prefixes {
            if let Some(clients) = prefixes.get_mut(prefix) {
                clients.remove(&client);
                if clients.is_empty() {
                    prefixes.remove(prefix);
                }
            }
        }
        self.prefixes_count.store(prefixes.len(), Ordering::Release);
        drop(prefixes);
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.remove(&client);
        if clients.is_empty() {
            // No writer looks any more.
            self.shards.iter().for_each(|shard| lock(shard).clear());
            self.keys.store(0, Ordering::Relaxed);
            lock(&self.expiry_timers).clear();
            self.next_expiry.store(u64::MAX, Ordering::Relaxed);
        }
        self.count.store(clients.len(), Ordering::Release);
    }

    /// All tracking clients.
    pub fn all(&self) -> Vec<Tracked> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Those of these clients that still track keys one by one, or by prefixes. Excludes the writer if it set NOLOOP.
    fn invalidated(&self, ids: impl Iterator<Item = u64>, broadcast: bool, writer: u64) -> Vec<Tracked> {
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        let found = ids.filter_map(|id| clients.get(&id));
        let wants = |it: &&Tracked| it.broadcast == broadcast && !(it.no_loop && it.client.id == writer);
        found.filter(wants).cloned().collect()
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The table of a shard finds by the other bits.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// Remembers that a client has read a key of a database, and when that key will expire. The caller holds the key's
    /// lock.
    pub fn remember(&self, key: &[u8], client: u64, db: u8, expires_at: Option<u64>) {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        let remembered = match shard.find_mut(hash, |it| *it.key == *key) {
            Some(remembered) => {
                remembered.add(client);
                remembered
            }
            None => {
                self.keys.fetch_add(1, Ordering::Relaxed);
                let entry = Remembered {
                    hash,
                    key: key.into(),
                    first: client,
                    others: BTreeSet::new(),
                    expiry_timers: Vec::new(),
                };
                shard.insert_unique(hash, entry, |it| it.hash).into_mut()
            }
        };
        let old = remembered.expiry_timers.iter().position(|(its, _)| *its == db);
        if old.map(|old| remembered.expiry_timers[old].1) == expires_at {
            return;
        }
        let old = old.map(|old| remembered.expiry_timers.swap_remove(old));
        let new = expires_at.map(|at| (db, at));
        remembered.expiry_timers.extend(new);
        self.change_expiries(key, old, new);
    }

    /// Replaces the expiry times of a key. The caller holds the lock of its shard.
    fn change_expiries(
        &self,
        key: &[u8],
        old: impl IntoIterator<Item = (u8, u64)>,
        new: impl IntoIterator<Item = (u8, u64)>,
    ) {
        let mut expiry_timers = lock(&self.expiry_timers);
        for (db, at) in old {
            expiry_timers.remove(&(at, db, key.into()));
        }
        expiry_timers.extend(new.into_iter().map(|(db, at)| (at, db, key.into())));
        self.next_expiry.store(expiry_timers.first().map_or(u64::MAX, |first| first.0), Ordering::Relaxed);
    }

    /// Whether a remembered key may have expired by `now`.
    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        self.next_expiry.load(Ordering::Relaxed) <= now
    }

    /// Like [`is_due`](Self::is_due) for the current time; reads the clock only if there are times.
    pub fn is_due_by_now(&self) -> bool {
        let next = self.next_expiry.load(Ordering::Relaxed);
        next != u64::MAX && next <= unix_millis()
    }

    /// Keys that may have expired; the caller looks at them.
    pub fn due(&self, now: u64) -> Vec<(u8, Box<[u8]>)> {
        let mut expiry_timers = lock(&self.expiry_timers);
        let mut due = Vec::new();
        while expiry_timers.first().is_some_and(|(at, ..)| *at <= now) {
            due.extend(expiry_timers.pop_first().map(|(_, db, key)| (db, key)));
        }
        self.next_expiry.store(expiry_timers.first().map_or(u64::MAX, |first| first.0), Ordering::Relaxed);
        // The lock of a shard is taken before this one.
        drop(expiry_timers);
        for (db, key) in &due {
            let hash = self.hash(key);
            if let Some(remembered) = self.shard(hash).find_mut(hash, |it| it.key == *key) {
                remembered.expiry_timers.retain(|(its, at)| its != db || *at > now);
            }
        }
        due
    }

    /// Forgets all keys when a database was emptied. All tracking clients are notified.
    pub fn forget_all(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            self.keys.fetch_sub(shard.len(), Ordering::Relaxed);
            for Remembered { key, expiry_timers, .. } in shard.drain() {
                if !expiry_timers.is_empty() {
                    self.change_expiries(&key, expiry_timers, []);
                }
            }
        }
    }

    /// Forgets a key, whose lock the caller holds, and adds its entry to `taken`. Returns the clients to notify.
    pub fn take(&self, key: &[u8], writer: u64, taken: &mut Taken) -> Vec<Tracked> {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        let Ok(found) = shard.find_entry(hash, |it| *it.key == *key) else { return Vec::new() };
        let (remembered, _) = found.remove();
        if !remembered.expiry_timers.is_empty() {
            self.change_expiries(key, remembered.expiry_timers.iter().copied(), []);
        }
        drop(shard);
        self.keys.fetch_sub(1, Ordering::Relaxed);
        let told = self.invalidated(remembered.clients(), false, writer);
        taken.push(remembered);
        told
    }

    /// Remembers the taken entries again.
    pub fn put_back(&self, taken: Taken) {
        for entry in taken {
            let mut shard = self.shard(entry.hash);
            match shard.find_mut(entry.hash, |it| it.key == entry.key) {
                // It was read again. That read knows the newest expiry time of its database, and no other.
                Some(remembered) => {
                    entry.clients().for_each(|client| remembered.add(client));
                    for timer @ (db, _) in entry.expiry_timers {
                        if remembered.expiry_timers.iter().all(|(its, _)| *its != db) {
                            remembered.expiry_timers.push(timer);
                            self.change_expiries(&entry.key, [], [timer]);
                        }
                    }
                }
                None => {
                    self.keys.fetch_add(1, Ordering::Relaxed);
                    self.change_expiries(&entry.key, [], entry.expiry_timers.iter().copied());
                    shard.insert_unique(entry.hash, entry, |it| it.hash);
                }
            }
        }
    }

    /// The clients to notify of these keys by prefix: for each prefix its keys.
    pub fn of_prefixes(&self, keys: &[Box<[u8]>], writer: u64) -> Vec<(Tracked, Vec<Box<[u8]>>)> {
        let prefixes = self.prefixes.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for (prefix, ids) in prefixes.iter() {
            let matching: BTreeSet<_> = keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
            if !matching.is_empty() {
                let keys: Vec<_> = matching.into_iter().collect();
                all.extend(
                    self.invalidated(ids.iter().copied(), true, writer)
                        .into_iter()
                        .map(|tracked| (tracked, keys.clone())),
                );
            }
        }
        all
    }

    /// A key to forget when there are too many.
    pub fn surplus(&self, keys_max: usize) -> Option<Box<[u8]>> {
        if keys_max == 0 || self.keys.load(Ordering::Relaxed) <= keys_max {
            return None;
        }
        let begin = self.hasher.hash_one(self.keys.load(Ordering::Relaxed)) as usize;
        (0..SHARDS)
            .find_map(|at| lock(&self.shards[(begin + at) % SHARDS]).iter().next().map(|it| it.key.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Clients, Origin};

    fn client(clients: &Clients) -> Arc<Client> {
        clients.enter(Origin::nowhere())
    }

    fn ids(told: &[Tracked]) -> Vec<u64> {
        told.iter().map(|it| it.client.id).collect()
    }

    #[test]
    fn a_key_is_invalidated_once_and_again_after_it_was_put_back() {
        let (tracking, clients) = (Tracking::default(), Clients::default());
        let both = [client(&clients), client(&clients)];
        tracking.begin(&both[0], &Tracks::default());
        tracking.begin(&both[1], &Tracks { no_loop: true, ..Tracks::default() });
        for client in &both {
            tracking.remember(b"k", client.id, 0, None);
        }
        assert_eq!(tracking.sizes(), (1, 2, 0));
        let mut taken = Taken::new();
        assert_eq!(ids(&tracking.take(b"k", 9, &mut taken)), [1, 2]);
        assert!(tracking.take(b"k", 9, &mut Taken::new()).is_empty());
        tracking.put_back(taken);
        assert_eq!(ids(&tracking.take(b"k", 2, &mut Taken::new())), [1], "what 2 wrote it knows");
        tracking.remember(b"k", 1, 0, None);
        tracking.end(1, &Tracks::default());
        assert!(tracking.take(b"k", 9, &mut Taken::new()).is_empty() && tracking.is_any());
        tracking.end(2, &Tracks::default());
        assert!(!tracking.is_any());
    }

    #[test]
    fn prefixes_get_every_write_of_each_key() {
        let (tracking, clients) = (Tracking::default(), Clients::default());
        let both = [client(&clients), client(&clients)];
        let of = |prefixes: &[&[u8]]| Tracks {
            broadcast: true,
            prefixes: prefixes.iter().map(|prefix| Box::from(*prefix)).collect(),
            ..Tracks::default()
        };
        let tracks = [of(&[b"a:", b"b:"]), of(&[b""])];
        both.iter().zip(&tracks).for_each(|(client, tracks)| tracking.begin(client, tracks));
        let told = |keys: &[&str]| {
            let keys: Vec<Box<[u8]>> = keys.iter().map(|key| key.as_bytes().into()).collect();
            let text = |(it, keys): (Tracked, Vec<Box<[u8]>>)| {
                format!("{}:{}", it.client.id, String::from_utf8(keys.join(&b' ')).unwrap())
            };
            tracking.of_prefixes(&keys, 9).into_iter().map(text).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            assert_eq!(told(&["c", "b:", "a:2", "a:1"]), ["2:a:1 a:2 b: c", "1:a:1 a:2", "1:b:"]);
        }
        tracking.end(2, &tracks[1]);
        assert_eq!((told(&["b:x"]), told(&["c"])), (vec!["1:b:x".to_owned()], vec![]));
    }

    #[test]
    fn a_key_of_too_many_is_found_and_expiries_come_in_their_order() {
        let tracking = Tracking::default();
        for at in 0..3u8 {
            tracking.remember(&[at], 1, 0, Some(u64::from(30 - at)));
        }
        assert!(
            tracking.surplus(3).is_none() && tracking.surplus(0).is_none() && tracking.surplus(2).is_some()
        );
        assert!(!tracking.is_due(27) && tracking.is_due(28));
        assert_eq!(tracking.due(29), [(0, Box::from([2])), (0, Box::from([1]))]);
        assert!(!tracking.is_due(29) && tracking.is_due(30));
    }

    #[test]
    fn a_key_has_at_most_one_expiry_time_and_none_once_it_is_forgotten() {
        let tracking = Tracking::default();
        let times = || lock(&tracking.expiry_timers).len();
        for at in 0..1_000 {
            tracking.remember(b"session", 1, 0, Some(5_000 + at));
            tracking.remember(b"session", 1, 3, Some(9_000));
        }
        assert_eq!(times(), 2, "one in each database");
        assert!(!tracking.is_due(5_998) && tracking.is_due(5_999));
        let mut taken = Taken::new();
        tracking.take(b"session", 9, &mut taken);
        assert!(times() == 0 && !tracking.is_due(u64::MAX - 1));
        tracking.put_back(taken);
        assert!(times() == 2 && tracking.is_due(5_999));
        // Read again in one database before it is put back: that time is newer, and the other database keeps its own.
        let mut taken = Taken::new();
        tracking.take(b"session", 9, &mut taken);
        tracking.remember(b"session", 2, 0, Some(6_500));
        tracking.put_back(taken);
        assert!(times() == 2 && !tracking.is_due(6_499) && tracking.is_due(6_500));
        tracking.remember(b"session", 1, 0, None);
        assert!(times() == 1 && !tracking.is_due(8_999), "it stays permanently now");
        // A worker that finds a due key still present may set the same time again.
        assert_eq!(tracking.due(9_000), [(3, Box::from(&b"session"[..]))]);
        tracking.remember(b"session", 1, 3, Some(9_000));
        assert!(tracking.is_due(9_000));
    }
}
