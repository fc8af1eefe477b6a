//! All connections, as other connections may see them: CLIENT LIST, CLIENT KILL, INFO.
//!
//! A connection belongs to one worker. Other workers see it as a [`Client`], which its worker updates once per turn of
//! the event loop, on cache lines that no other connection uses. Only connecting, disconnecting and the commands that
//! list connections take the registry's lock.

use crate::acl::User;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Sizes of a client's first reply buffer and of each further one in Redis.
const REPLY_BUFFER_BYTES: u64 = 16 << 10;

/// The state of a connection that other connections may read.
#[derive(Debug)]
pub struct Client {
    /// Counts up from 1; never used twice.
    pub id: u64,
    /// The worker that serves it.
    pub worker: usize,
    /// Its address: `127.0.0.1:51234`, or `/path.sock:0`.
    pub address: String,
    /// The address that it connected to.
    pub address_local: String,
    /// Connected through a Unix socket.
    pub unix: bool,
    /// File descriptor, as CLIENT LIST shows it.
    pub descriptor: i32,
    /// The mark of its listener.
    pub mark: u8,
    /// Whether it needs no password, because it comes from the server's own process.
    pub trusted: bool,
    /// When it connected.
    pub since: Instant,
    /// The values of CLIENT SETNAME and CLIENT SETINFO.
    pub names: Mutex<Names>,
    // `None`: the server itself.
    user: Mutex<Option<Arc<User>>>,
    /// Unix seconds of its last command.
    pub active_at: AtomicU64,
    /// Selected database.
    pub db: AtomicU8,
    /// 2 or 3.
    pub protocol: AtomicU8,
    /// Queued commands; -1 without MULTI.
    pub queued: AtomicI64,
    /// Watched keys.
    pub watched: AtomicU32,
    /// Subscribed channels, patterns and shard channels.
    pub subscriptions: [AtomicU32; 3],
    /// Bytes received and not yet executed.
    pub input_bytes: AtomicU64,
    /// Free bytes of the input buffer.
    pub input_free_bytes: AtomicU64,
    /// Bytes waiting to be sent.
    pub output_bytes: AtomicU64,
    /// Capacity of the reply buffer.
    pub output_buffer_bytes: AtomicU64,
    /// Bytes of MULTI's queue and of watched keys.
    pub multi_bytes: AtomicU64,
    /// Position of its last command in the command table.
    pub command: AtomicU32,
    /// CLIENT NO-EVICT ON.
    pub no_evict: AtomicBool,
    /// CLIENT NO-TOUCH ON.
    pub no_touch: AtomicBool,
    /// CLIENT TRACKING REDIRECT: the client that receives the invalidations; 0: the client itself, -1: no tracking.
    pub redirect: AtomicI64,
    /// CLIENT TRACKING by prefixes.
    pub broadcast: AtomicBool,
    /// The client that received its invalidations has disconnected.
    pub redirect_broken: AtomicBool,
    /// MONITOR.
    pub monitors: AtomicBool,
    /// Sleeping, as after DEBUG SLEEP.
    pub paused: AtomicBool,
    /// The bytes that [`Buffers`](crate::server::Buffers) counts for it.
    pub charged: AtomicU64,
    // Its worker will close it.
    killed: AtomicBool,
    // See `leave`.
    leaving: AtomicBool,
}

/// What a client has set about itself.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub library: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: Vec<u8>,
}

/// No command yet.
pub const COMMAND_NONE: u32 = u32::MAX;

/// Where a connection comes from, and its worker.
pub struct Origin {
    /// See [`Client::worker`].
    pub worker: usize,
    /// See [`Client::address`].
    pub address: String,
    /// See [`Client::address_local`].
    pub address_local: String,
    /// See [`Client::unix`].
    pub unix: bool,
    /// See [`Client::descriptor`].
    pub descriptor: i32,
    /// See [`Client::mark`].
    pub mark: u8,
    /// See [`Client::trusted`].
    pub trusted: bool,
    /// The user as which it is logged in from the start.
    pub user: Option<Arc<User>>,
}

impl Origin {
    /// A client without a connection.
    pub(crate) fn nowhere() -> Self {
        Self {
            worker: 0,
            address: "nowhere".to_owned(),
            address_local: String::new(),
            unix: false,
            descriptor: 0,
            mark: 0,
            trusted: false,
            user: None,
        }
    }
}

impl Client {
    fn new(id: u64, origin: Origin) -> Self {
        Self {
            id,
            worker: origin.worker,
            address: origin.address,
            address_local: origin.address_local,
            unix: origin.unix,
            descriptor: origin.descriptor,
            mark: origin.mark,
            trusted: origin.trusted,
            since: Instant::now(),
            names: Mutex::default(),
            user: Mutex::new(origin.user),
            active_at: AtomicU64::new(unix_seconds()),
            db: AtomicU8::new(0),
            protocol: AtomicU8::new(2),
            queued: AtomicI64::new(-1),
            watched: AtomicU32::new(0),
            subscriptions: Default::default(),
            input_bytes: AtomicU64::new(0),
            input_free_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            output_buffer_bytes: AtomicU64::new(0),
            multi_bytes: AtomicU64::new(0),
            command: AtomicU32::new(COMMAND_NONE),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            redirect: AtomicI64::new(-1),
            broadcast: AtomicBool::new(false),
            redirect_broken: AtomicBool::new(false),
            monitors: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            charged: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
        }
    }

    /// A client for the server's own work.
    pub fn nobody() -> Arc<Self> {
        Arc::new(Self::new(0, Origin::nowhere()))
    }

    /// Kills it: it runs no further command. False if it was killed before.
    pub fn kill(&self) -> bool {
        // Relaxed: it publishes nothing. A client that has the reply to its CLIENT KILL sends its next command later.
        !self.killed.swap(true, Ordering::Relaxed)
    }

    /// Whether it may run no further command.
    #[inline]
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// It sent QUIT or is closed for an error: it gets its last reply and nothing else.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    fn is_there(&self) -> bool {
        !self.is_killed() && !self.leaving.load(Ordering::Relaxed)
    }

    /// It is logged in as this user.
    pub fn set_user(&self, user: Option<Arc<User>>) {
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = user;
    }

    /// The user that it is logged in as.
    pub fn user(&self) -> Option<Arc<User>> {
        self.user.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is logged in as this user.
    pub fn is_user(&self, user: &Arc<User>) -> bool {
        let own = self.user.lock().unwrap_or_else(PoisonError::into_inner);
        own.as_ref().is_some_and(|own| Arc::ptr_eq(own, user))
    }

    /// The name of its user, as CLIENT LIST shows it.
    pub fn user_name(&self) -> Vec<u8> {
        let user = self.user.lock().unwrap_or_else(PoisonError::into_inner);
        user.as_ref().map_or_else(|| b"(superuser)".to_vec(), |user| user.name.to_vec())
    }

    /// Whether it has subscriptions, as of the end of its last turn.
    pub fn listens(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Bytes of its buffers and of the commands queued for EXEC.
    pub fn buffered(&self) -> u64 {
        let parts = [&self.input_bytes, &self.input_free_bytes, &self.output_bytes, &self.multi_bytes];
        parts.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// A copy of what the client has set about itself.
    pub fn names(&self) -> Names {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what the client has set about itself.
    pub fn rename(&self, change: impl FnOnce(&mut Names)) {
        change(&mut self.names.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The line of CLIENT LIST and CLIENT INFO, without line end. `command` is the full name of the last
    /// command, or `NULL`.
    pub fn line(&self, command: &str) -> String {
        let names = self.names();
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let mut flags = String::new();
        for (on, flag) in [
            (self.monitors.load(Ordering::Relaxed), 'O'),
            (self.listens(), 'P'),
            (self.queued.load(Ordering::Relaxed) >= 0, 'x'),
            (self.paused.load(Ordering::Relaxed), 'b'),
            (self.redirect.load(Ordering::Relaxed) >= 0, 't'),
            (self.redirect_broken.load(Ordering::Relaxed), 'R'),
            (self.broadcast.load(Ordering::Relaxed), 'B'),
            (self.unix, 'U'),
            (self.no_evict.load(Ordering::Relaxed), 'e'),
            (self.no_touch.load(Ordering::Relaxed), 'T'),
        ] {
            if on {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let (input, input_free, output) =
            (get(&self.input_bytes), get(&self.input_free_bytes), get(&self.output_bytes));
        // Unsent reply bytes, split as in Redis: one buffer, and a list of further ones.
        let (first, listed) = (output.min(REPLY_BUFFER_BYTES), output.saturating_sub(REPLY_BUFFER_BYTES));
        let buffers = listed.div_ceil(REPLY_BUFFER_BYTES);
        // Arguments stay in the input buffer, so the input's bytes include them.
        let (multi, buffer) = (get(&self.multi_bytes), get(&self.output_buffer_bytes));
        let mut line = String::with_capacity(320);
        // Writing to a string cannot fail.
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} \
             multi={} qbuf={input} qbuf-free={input_free} argv-mem=0 multi-mem={multi} rbs={buffer} rbp={buffer} \
             obl={first} oll={buffers} omem={listed} tot-mem={} events=r cmd={command} user={} redir={} resp={} \
             lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.address_local,
            self.descriptor,
            String::from_utf8_lossy(&names.name),
            self.since.elapsed().as_secs(),
            unix_seconds().saturating_sub(get(&self.active_at)),
            self.db.load(Ordering::Relaxed),
            self.subscriptions[0].load(Ordering::Relaxed),
            self.subscriptions[1].load(Ordering::Relaxed),
            self.subscriptions[2].load(Ordering::Relaxed),
            self.queued.load(Ordering::Relaxed),
            input + input_free + buffer + multi + std::mem::size_of::<Self>() as u64,
            String::from_utf8_lossy(&self.user_name()),
            self.redirect.load(Ordering::Relaxed),
            self.protocol.load(Ordering::Relaxed),
            String::from_utf8_lossy(&names.library),
            String::from_utf8_lossy(&names.library_version),
        );
        line
    }
}

/// All connections.
#[derive(Debug, Default)]
pub struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
    accepted: AtomicU64,
    rejected: AtomicU64,
}

impl Clients {
    /// Enters a new connection.
    pub fn enter(&self, origin: Origin) -> Arc<Client> {
        // Relaxed: the number only has to be unique.
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client::new(id, origin));
        self.lock().insert(id, Arc::clone(&client));
        client
    }

    /// Removes a connection that has ended.
    pub fn leave(&self, id: u64) {
        self.lock().remove(&id);
    }

    /// Counts a connection that was refused.
    pub fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// All connections that are neither killed nor leaving, the oldest first.
    pub fn list(&self) -> Vec<Arc<Client>> {
        self.lock().values().filter(|client| client.is_there()).cloned().collect()
    }

    /// The connection with this number, unless it is killed or leaving.
    pub fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.lock().get(&id).filter(|client| client.is_there()).cloned()
    }

    /// The connection with the largest count, among those that may be closed for it.
    pub fn largest(&self) -> Option<Arc<Client>> {
        let may_go = |client: &Client| !client.is_killed() && !client.no_evict.load(Ordering::Relaxed);
        let all = self.lock();
        let charged = all.values().map(|client| (client.charged.load(Ordering::Relaxed), client));
        let largest =
            charged.filter(|(bytes, client)| *bytes > 0 && may_go(client)).max_by_key(|(bytes, _)| *bytes);
        largest.map(|(_, client)| Arc::clone(client))
    }

    /// The number of connections.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Resets the count of connections.
    pub fn history_reset(&self) {
        self.accepted.store(0, Ordering::Relaxed);
        self.rejected.store(0, Ordering::Relaxed);
    }

    /// Connections since the start or since [`Self::history_reset`], and how many of them were refused.
    pub fn history(&self) -> (u64, u64) {
        (self.accepted.load(Ordering::Relaxed), self.rejected.load(Ordering::Relaxed))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Milliseconds since 1970.
pub fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
