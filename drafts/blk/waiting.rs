//! Clients that wait for a key to get something: BLPOP and its like.
//!
//! ```text
//!            somebody tries its command            it found something
//!   WAITING ───────────────────────────► TRYING ──────────────────────► DONE
//!      ▲  ▲        found nothing            │  ▲                          ▲
//!      │  └──────────────────────────────── │  │ tried again              │
//!      │                 a key was written  ▼  │                          │
//!      │                             TRYING_AGAIN                         │
//!      └── time is up, the client went, CLIENT UNBLOCK ───────────────────┘
//! ```
//!
//! A client enters itself in the queues of its keys, looks once more whether there is something now, and waits. Whoever writes to a
//! key runs the commands of those who wait for it, in the order in which they came, until one finds nothing; the replies leave as
//! messages when that turn has settled.
//!
//! - **Invariant 1**: whoever leaves WAITING is the only one who may answer the client.
//! - **Invariant 2**: no wake-up is lost: a key that was written while its waiter was being tried makes it be tried again.

use crate::command::OwnedArgs;
use crate::resp::Protocol;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An element of a list.
    List,
    /// A member of a sorted set.
    SortedSet,
}

const KINDS: [Kind; 2] = [Kind::List, Kind::SortedSet];

const WAITING: u8 = 0;
const TRYING: u8 = 1;
const TRYING_AGAIN: u8 = 2;
const DONE: u8 = 3;

/// A client that waits.
pub struct Waiter {
    /// Which client.
    pub client: u64,
    /// On which worker.
    pub worker: usize,
    /// Its command, by its position in the table.
    pub command: usize,
    /// With which arguments.
    pub args: OwnedArgs,
    /// In which database.
    pub db: u8,
    /// In which protocol it is answered.
    pub protocol: Protocol,
    /// What it waits for.
    pub kind: Kind,
    /// Its keys: the first of these arguments, and how many.
    pub keys: (usize, usize),
    /// When it has waited for long enough.
    pub until: Option<Instant>,
    /// Whether what comes when it has is a null array, or a null.
    pub null_is_array: bool,
    state: AtomicU8,
}

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It waits on.
    Waits,
    /// A key was written meanwhile.
    Again,
}

impl Waiter {
    /// One that is being tried, by whoever makes it.
    #[expect(clippy::too_many_arguments, reason = "each is a field")]
    pub fn new(
        client: u64,
        worker: usize,
        command: usize,
        args: OwnedArgs,
        db: u8,
        protocol: Protocol,
        wait: Wait,
    ) -> Self {
        let Wait { kind, keys, until, null_is_array } = wait;
        let state = AtomicU8::new(TRYING);
        Self { client, worker, command, args, db, protocol, kind, keys, until, null_is_array, state }
    }

    /// Begins to try its command; false when somebody else does, who tries again then, or it waits no more.
    pub fn begin(&self) -> bool {
        loop {
            // SeqCst: rare, and one order of all that happens to it is easy to follow.
            if self.swap(WAITING, TRYING) {
                return true;
            }
            match self.state.load(Ordering::SeqCst) {
                WAITING => {}
                TRYING if !self.swap(TRYING, TRYING_AGAIN) => {}
                _ => return false,
            }
        }
    }

    /// Its command found nothing.
    pub fn found_nothing(&self) -> Tried {
        if self.swap(TRYING, WAITING) {
            return Tried::Waits;
        }
        self.state.store(TRYING, Ordering::SeqCst);
        Tried::Again
    }

    /// Its command has found something.
    pub fn done(&self) {
        self.state.store(DONE, Ordering::SeqCst);
    }

    /// Ends its wait without its command; false when somebody tries that, or it was ended.
    pub fn end(&self) -> bool {
        self.swap(WAITING, DONE)
    }

    fn swap(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn places(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let args = self.args.args();
        args.from(self.keys.0).take(self.keys.1).map(|key| place(self.db, key)).collect::<Vec<_>>().into_iter()
    }

    /// Memory that it takes, about.
    pub fn bytes(&self) -> usize {
        // 128: what the queues take for a key, about.
        size_of::<Self>() + self.args.bytes() + self.keys.1 * 128
    }
}

/// How a command waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// See [`Waiter::kind`].
    pub kind: Kind,
    /// See [`Waiter::keys`].
    pub keys: (usize, usize),
    /// See [`Waiter::until`].
    pub until: Option<Instant>,
    /// See [`Waiter::null_is_array`].
    pub null_is_array: bool,
}

/// All that wait.
#[derive(Default)]
pub struct Waiting {
    // Nobody who writes need look while there are none.
    count: AtomicUsize,
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    last: u64,
    // By database and key, for each kind by the order in which they came.
    by_key: HashMap<Vec<u8>, [BTreeMap<u64, Arc<Waiter>>; KINDS.len()]>,
    by_client: HashMap<u64, (u64, Arc<Waiter>)>,
}

fn place(db: u8, key: &[u8]) -> Vec<u8> {
    [&[db][..], key].concat()
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> usize {
        // SeqCst: a waiter counts itself before it looks once more; a writer has written before it looks here.
        self.count.load(Ordering::SeqCst)
    }

    /// Enters a waiter in the queues of its keys.
    pub fn enter(&self, waiter: &Arc<Waiter>) {
        let mut queues = self.lock();
        queues.last += 1;
        let number = queues.last;
        for place in waiter.places() {
            let kinds = queues.by_key.entry(place).or_default();
            kinds[waiter.kind as usize].insert(number, Arc::clone(waiter));
        }
        queues.by_client.insert(waiter.client, (number, Arc::clone(waiter)));
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes a waiter out.
    pub fn leave(&self, waiter: &Waiter) {
        let mut queues = self.lock();
        let Some((number, _)) = queues.by_client.remove(&waiter.client) else { return };
        for place in waiter.places() {
            if let Some(kinds) = queues.by_key.get_mut(&place) {
                kinds[waiter.kind as usize].remove(&number);
                if kinds.iter().all(BTreeMap::is_empty) {
                    queues.by_key.remove(&place);
                }
            }
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Who came first of those who wait for something of this kind at a key.
    pub fn first(&self, db: u8, key: &[u8], kind: Kind) -> Option<Arc<Waiter>> {
        let queues = self.lock();
        let kinds = queues.by_key.get(&place(db, key))?;
        kinds[kind as usize].first_key_value().map(|(_, waiter)| Arc::clone(waiter))
    }

    /// The keys of a database that are waited for.
    pub fn keys(&self, db: u8) -> Vec<Vec<u8>> {
        let queues = self.lock();
        let of_db = queues.by_key.keys().filter(|place| place.first() == Some(&db));
        of_db.map(|place| place[1..].to_vec()).collect()
    }

    /// What a client waits for.
    pub fn of_client(&self, client: u64) -> Option<Arc<Waiter>> {
        self.lock().by_client.get(&client).map(|(_, waiter)| Arc::clone(waiter))
    }

    /// All kinds of what can be waited for.
    pub const fn kinds() -> [Kind; 2] {
        KINDS
    }
}
