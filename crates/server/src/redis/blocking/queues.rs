//! The waiters of each key, in the order in which they are served.
//!
//! ```text
//!              claim                     done
//!   WAITING ──────────────► CLAIMED ──────────────► DONE
//!      ▲        release        │
//!      └───────────────────────┘
//! ```
//!
//! - **Invariant 1**: the holder of the locks of its keys enters a waiter.
//! - **Invariant 2**: only the worker that has claimed a waiter may answer its client or release it.
//! - **Invariant 3**: a waiter that is done is in no queue.

use crate::acl::User;
use crate::clients::Client;
use crate::key_list::KeyList;
use crate::redis::command::OwnedArgs;
use crate::redis::resp::Protocol;
use duramen_structures::stream::StreamId;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

// More than the number of workers, so that two keys seldom share one.
const SHARDS: usize = 64;

const WAITING: u8 = 0;
const CLAIMED: u8 = 1;
const DONE: u8 = 2;

/// The wait of a blocking command.
pub struct Wait {
    /// The deadline; `None`: never.
    pub until: Option<Instant>,
    /// Its keys.
    pub keys: Vec<Awaited>,
    /// Without keys it waits for replicas to write their files (WAITAOF), or to receive the writes (WAIT).
    pub is_for_file: bool,
}

/// A key that is waited for.
#[derive(Debug)]
pub struct Awaited {
    /// The key.
    pub key: Box<[u8]>,
    /// What it must contain.
    pub what: What,
    /// The command to run then: the blocked command, for this key alone.
    pub args: OwnedArgs,
}

/// The awaited content of a key.
#[derive(Clone, Debug)]
pub enum What {
    /// An element of a list.
    List,
    /// A member of a sorted set.
    SortedSet,
    /// An entry of a stream after this one.
    Entry(StreamId),
    /// An entry of a stream that this group has not read.
    Unread(Box<[u8]>),
}

impl What {
    const fn kind(&self) -> Kind {
        match self {
            Self::List => Kind::List,
            Self::SortedSet => Kind::SortedSet,
            Self::Entry(_) | Self::Unread(_) => Kind::Stream,
        }
    }
}

/// The awaited type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Lists.
    List,
    /// Sorted sets.
    SortedSet,
    /// Streams.
    Stream,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::List, Self::SortedSet, Self::Stream];
}

/// A client that waits.
#[derive(Debug)]
pub struct Waiter {
    /// The client.
    pub client: Arc<Client>,
    /// Its user; `None`: the server itself.
    pub user: Option<Arc<User>>,
    /// Its command, by its position in the table.
    pub command: usize,
    /// In which database.
    pub db: u8,
    /// The protocol of its reply.
    pub protocol: Protocol,
    /// It wants no reply (CLIENT REPLY).
    pub is_silent: bool,
    /// See [`Wait::until`].
    pub until: Option<Instant>,
    /// Its keys, each once, ascending.
    pub keys: Vec<Awaited>,
    /// See [`Wait::is_for_file`].
    pub is_for_file: bool,
    state: AtomicU8,
}

impl Waiter {
    /// A waiter that is in no queue yet.
    pub fn new(
        (client, user): (Arc<Client>, Option<Arc<User>>),
        command: usize,
        (db, protocol, is_silent): (u8, Protocol, bool),
        wait: Wait,
    ) -> Self {
        let Wait { until, mut keys, is_for_file } = wait;
        // For a key that is named twice the first place counts: the sort keeps the order of equals.
        keys.sort_by(|a, b| a.key.cmp(&b.key));
        keys.dedup_by(|again, before| again.key == before.key);
        let state = AtomicU8::new(WAITING);
        Self { client, user, command, db, protocol, is_silent, until, keys, is_for_file, state }
    }

    /// Claims it for the caller; false if it is claimed or was answered.
    pub fn claim(&self) -> bool {
        self.swap(WAITING, CLAIMED)
    }

    /// Releases it: it keeps waiting, and any worker may claim it.
    pub fn release(&self) {
        self.swap(CLAIMED, WAITING);
    }

    fn done(&self) {
        self.swap(CLAIMED, DONE);
    }

    fn swap(&self, from: u8, to: u8) -> bool {
        // SeqCst: rare, and one total order of its states is easy to follow.
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// What it waits for at this key.
    pub fn awaited(&self, key: &[u8]) -> Option<&Awaited> {
        let at = self.keys.binary_search_by(|awaited| (*awaited.key).cmp(key)).ok()?;
        self.keys.get(at)
    }

    /// Approximate bytes of memory.
    pub fn bytes(&self) -> usize {
        // 128: the queues' share for a key.
        let of_key =
            |awaited: &Awaited| awaited.key.len() * 2 + awaited.args.bytes() + size_of::<Awaited>() + 128;
        size_of::<Self>() + self.keys.iter().map(of_key).sum::<usize>()
    }
}

/// The waiters for each kind, in order of arrival.
type Queues = [BTreeMap<u64, Arc<Waiter>>; Kind::ALL.len()];

/// All waiters. See the module.
pub struct Waiting {
    // Writers skip the queues while this is 0.
    count: AtomicUsize,
    tickets: AtomicU64,
    hasher: RandomState,
    // By database and key.
    shards: [Mutex<HashMap<Box<[u8]>, Queues>>; SHARDS],
    by_client: Mutex<HashMap<u64, Entered>>,
    /// Keys that were removed without a command while a client waited for them.
    pub gone: KeyList,
}

struct Entered {
    ticket: u64,
    waiter: Arc<Waiter>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            count: AtomicUsize::default(),
            tickets: AtomicU64::default(),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            by_client: Mutex::default(),
            gone: KeyList::default(),
        }
    }
}

/// Locks, also after a panic of an earlier holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A key of a database as one row of bytes.
pub fn place(db: u8, key: &[u8]) -> Box<[u8]> {
    [&[db], key].concat().into()
}

impl Waiting {
    /// The number of waiting clients.
    #[inline]
    pub fn count(&self) -> usize {
        // Relaxed: a writer of a key holds its lock, under which its waiters are entered.
        self.count.load(Ordering::Relaxed)
    }

    fn shard(&self, place: &[u8]) -> MutexGuard<'_, HashMap<Box<[u8]>, Queues>> {
        let hash = self.hasher.hash_one(place) as usize;
        lock(&self.shards[hash % SHARDS])
    }

    /// Enters a waiter in the queues of its keys, whose locks the caller holds.
    pub fn enter(&self, waiter: &Arc<Waiter>) {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed) + 1;
        for awaited in &waiter.keys {
            let place = place(waiter.db, &awaited.key);
            let mut shard = self.shard(&place);
            let queues = shard.entry(place).or_default();
            queues[awaited.what.kind() as usize].insert(ticket, Arc::clone(waiter));
        }
        // Last: another worker that finds it here, without the locks of its keys, may take it out.
        let entered = Entered { ticket, waiter: Arc::clone(waiter) };
        lock(&self.by_client).insert(waiter.client.id, entered);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a waiter that the caller has claimed, permanently.
    pub fn leave(&self, waiter: &Waiter) {
        waiter.done();
        let mut by_client = lock(&self.by_client);
        // A newer waiter of the client may be there.
        let is_same = |entered: &Entered| std::ptr::eq(&*entered.waiter, waiter);
        let Some(ticket) = by_client.get(&waiter.client.id).filter(|it| is_same(it)).map(|it| it.ticket)
        else {
            return;
        };
        by_client.remove(&waiter.client.id);
        drop(by_client);
        for awaited in &waiter.keys {
            let place = place(waiter.db, &awaited.key);
            let mut shard = self.shard(&place);
            if let Some(queues) = shard.get_mut(&place) {
                queues[awaited.what.kind() as usize].remove(&ticket);
                if queues.iter().all(BTreeMap::is_empty) {
                    shard.remove(&place);
                }
            }
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// The first waiter for this kind at a key that came after `ticket`.
    pub fn next(&self, db: u8, key: &[u8], kind: Kind, ticket: u64) -> Option<(u64, Arc<Waiter>)> {
        let place = place(db, key);
        let shard = self.shard(&place);
        let (ticket, waiter) = shard.get(&place)?[kind as usize].range(ticket + 1..).next()?;
        Some((*ticket, Arc::clone(waiter)))
    }

    /// Whether any client waits for a key.
    pub fn is_awaited(&self, db: u8, key: &[u8]) -> bool {
        let place = place(db, key);
        self.shard(&place).contains_key(&place)
    }

    /// Records that the store has removed a key: a worker checks its waiters soon.
    pub fn note_gone(&self, db: u8, key: &[u8]) {
        if self.count() > 0 && self.is_awaited(db, key) {
            self.gone.add(db, key);
        }
    }

    /// The awaited keys of a database.
    pub fn keys(&self, db: u8) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            keys.extend(lock(shard).keys().filter(|place| place[0] == db).map(|place| place[1..].to_vec()));
        }
        keys
    }

    /// The number of awaited keys, and for how many of them their removal is awaited too.
    pub fn keys_count(&self) -> (usize, usize) {
        let may_go = |queues: &Queues| {
            let waiters = queues[Kind::Stream as usize].values();
            waiters.flat_map(|waiter| &waiter.keys).any(|awaited| matches!(awaited.what, What::Unread(_)))
        };
        self.shards.iter().map(|shard| lock(shard)).fold((0, 0), |(all, going), shard| {
            (all + shard.len(), going + shard.values().filter(|queues| may_go(queues)).count())
        })
    }

    /// The content that a client waits for.
    pub fn of_client(&self, client: u64) -> Option<Arc<Waiter>> {
        lock(&self.by_client).get(&client).map(|entered| Arc::clone(&entered.waiter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Clients, Origin};

    fn waiter(clients: &Clients, keys: &[(&str, What)]) -> Arc<Waiter> {
        let awaited = |(key, what): &(&str, What)| {
            let args = OwnedArgs::of(&[b"BLPOP", key.as_bytes(), b"0"]);
            Awaited { key: key.as_bytes().into(), what: what.clone(), args }
        };
        let wait = Wait { until: None, keys: keys.iter().map(awaited).collect(), is_for_file: false };
        Arc::new(Waiter::new((clients.enter(Origin::nowhere()), None), 0, (3, Protocol::Resp2, false), wait))
    }

    fn queue(waiting: &Waiting, key: &str, kind: Kind) -> Vec<u64> {
        let mut clients = Vec::new();
        let mut ticket = 0;
        while let Some((next, waiter)) = waiting.next(3, key.as_bytes(), kind, ticket) {
            ticket = next;
            clients.push(waiter.client.id);
        }
        clients
    }

    #[test]
    fn a_key_has_its_waiters_in_the_order_in_which_they_came() {
        let (waiting, clients) = (Waiting::default(), Clients::default());
        let all = [
            waiter(&clients, &[("a", What::List), ("b", What::List), ("a", What::List)]),
            waiter(&clients, &[("b", What::SortedSet)]),
            waiter(&clients, &[("b", What::List)]),
        ];
        all.iter().for_each(|waiter| waiting.enter(waiter));
        assert_eq!((waiting.count(), all[0].keys.len()), (3, 2));
        assert_eq!(queue(&waiting, "a", Kind::List), [1]);
        assert_eq!(queue(&waiting, "b", Kind::List), [1, 3]);
        assert_eq!(queue(&waiting, "b", Kind::SortedSet), [2]);
        assert!(waiting.next(0, b"b", Kind::List, 0).is_none(), "of another database");
        let mut keys = waiting.keys(3);
        keys.sort();
        assert_eq!(keys, [b"a", b"b"]);
        // A finished waiter is in no queue; removing it again does not affect another waiter of its client.
        assert!(all[0].claim() && !all[0].claim());
        waiting.leave(&all[0]);
        all[0].release();
        assert!(!all[0].claim());
        waiting.leave(&all[0]);
        assert_eq!(queue(&waiting, "b", Kind::List), [3]);
        assert!(!waiting.is_awaited(3, b"a") && waiting.is_awaited(3, b"b"));
        assert!(waiting.of_client(1).is_none() && waiting.of_client(2).is_some());
        for waiter in &all[1..] {
            assert!(waiter.claim());
            waiting.leave(waiter);
        }
        assert_eq!((waiting.count(), waiting.keys(3).len()), (0, 0));
    }

    #[test]
    fn a_waiter_that_is_released_waits_in_its_old_place() {
        let (waiting, clients) = (Waiting::default(), Clients::default());
        let all = [(); 2].map(|()| waiter(&clients, &[("a", What::List)]));
        all.iter().for_each(|waiter| waiting.enter(waiter));
        assert!(all[0].claim());
        all[0].release();
        assert_eq!(queue(&waiting, "a", Kind::List), [1, 2]);
        assert!(all[0].claim());
    }

    #[test]
    fn one_of_many_concurrent_claims_of_a_waiter_succeeds() {
        let clients = Clients::default();
        for _ in 0..200 {
            let waiter = waiter(&clients, &[("a", What::List)]);
            let claimed: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| usize::from(waiter.claim()))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(claimed, 1);
        }
    }
}
