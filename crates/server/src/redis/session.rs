//! The state of one connection: its name, its database, its open transaction.

use crate::acl::{Login, User, Users};
use crate::clients::Client;
use crate::messages::{Kind, Subscribed};
use crate::redis::blocking::Waiter;
use crate::redis::command::{Args, CommandError, OwnedArgs};
use crate::redis::resp::Protocol;
use crate::redis::tracking::Tracks;
use duramen_structures::Watched;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Whether replies are sent (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// All replies are sent.
    #[default]
    On,
    /// No replies are sent.
    Off,
    /// `CLIENT REPLY SKIP` itself: the reply of the next command will be dropped.
    SkipNext,
    /// The reply of this command is dropped.
    Skip,
}

/// A command that waits for EXEC.
pub struct Queued {
    /// Which command, by its position in the table.
    pub command: usize,
    /// With which arguments.
    pub args: OwnedArgs,
}

/// The transaction that MULTI opened.
#[derive(Default)]
pub struct Transaction {
    /// In order of arrival.
    pub queue: Vec<Queued>,
    /// A command could not be queued: EXEC must refuse.
    pub aborted: bool,
    /// Bytes of the queue.
    pub bytes: usize,
}

impl Transaction {
    /// Queues a command for EXEC.
    pub fn push(&mut self, command: usize, args: Args<'_>) {
        let args = args.to_owned();
        self.bytes += size_of::<Queued>() + args.bytes();
        self.queue.push(Queued { command, args });
    }
}

/// Keys under WATCH, each once.
#[derive(Default)]
pub struct WatchedKeys {
    // By database and key.
    keys: HashMap<(u8, Box<[u8]>), Watched>,
    bytes: usize,
}

impl WatchedKeys {
    /// Whether a key of a database is watched.
    pub fn has(&self, db: u8, key: &[u8]) -> bool {
        !self.keys.is_empty() && self.keys.contains_key(&(db, key.into()))
    }

    /// Adds a key that is not among them.
    pub fn add(&mut self, db: u8, key: &[u8], watched: Watched) {
        // The key is in both.
        self.bytes += watched.bytes() + size_of::<(u8, Box<[u8]>)>() + key.len();
        self.keys.insert((db, key.into()), watched);
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Watched> {
        self.keys.values()
    }

    /// Clears them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The state of one connection between commands.
pub struct Session {
    /// The part that other connections may read.
    pub client: Arc<Client>,
    /// The database that SELECT chose.
    pub db: u8,
    /// The protocol that HELLO chose.
    pub protocol: Protocol,
    /// Its user, whom rights are checked for.
    pub login: Login,
    /// Whether commands other than AUTH and HELLO are allowed.
    pub authenticated: bool,
    /// Whether replies are sent.
    pub reply_mode: ReplyMode,
    /// MONITOR is on since this message number.
    pub monitors_since: Option<u64>,
    /// CLIENT TRACKING.
    pub tracks: Option<Box<Tracks>>,
    /// CLIENT PAUSE holds its next command.
    pub is_held: bool,
    /// Its command puts back what was removed for a disconnected client.
    pub puts_back: bool,
    /// Its subscriptions, if any.
    pub subscribed: Option<Box<Subscribed>>,
    /// Open since MULTI.
    pub transaction: Option<Transaction>,
    /// Since WATCH. Cleared by EXEC, DISCARD, UNWATCH and RESET.
    pub watched: WatchedKeys,
    /// Set by EXEC and DISCARD: once their own transaction is committed, the dispatcher drops `transaction` and
    /// `watched`. Until then both stay, so that EXEC can run again.
    pub transaction_over: bool,
    /// The connection ends when the replies so far are sent.
    pub closing: bool,
    /// Position of its last command in the table.
    pub command_last: u32,
    /// The failure of the store that a command inside EXEC received; the dispatcher handles it.
    pub store_failure: Option<CommandError>,
    /// No further command, and no reply, before this moment: DEBUG SLEEP, or a login that failed.
    pub paused_until: Option<Instant>,
    /// It waits for a key: no further command runs before that is answered.
    pub waiter: Option<Arc<Waiter>>,
    /// When the waiter's time is up.
    pub waits_until: Option<Instant>,
}

impl Session {
    /// A session of the server's own work, for a client or for nobody.
    pub fn trusted(client: Arc<Client>) -> Self {
        Self::new(client, Login::trusted(), true)
    }

    /// The session of a client that has just connected: of the user that it came with, else of the default user, if
    /// that needs no password.
    pub fn of_client(client: Arc<Client>, users: &Users) -> Self {
        if client.trusted {
            return Self::trusted(client);
        }
        if let Some(user) = client.user() {
            return Self::new(client, Login::of(user, users), true);
        }
        let user = users.default_user();
        client.set_user(Some(Arc::clone(user)));
        Self::new(client, Login::of(Arc::clone(user), users), users.is_open())
    }

    /// It is the session of this user from now on.
    pub fn log_in(&mut self, user: Arc<User>, users: &Users) {
        self.client.set_user(Some(Arc::clone(&user)));
        self.login = Login::of(user, users);
        self.authenticated = true;
    }

    /// It is again as [`Self::of_client`] makes it.
    pub fn log_out(&mut self, users: &Users) {
        if !self.client.trusted {
            let user = users.default_user();
            self.client.set_user(Some(Arc::clone(user)));
            self.login = Login::of(Arc::clone(user), users);
            self.authenticated = users.is_open();
        }
    }

    /// A new session.
    pub fn new(client: Arc<Client>, login: Login, authenticated: bool) -> Self {
        Self {
            client,
            login,
            db: 0,
            protocol: Protocol::Resp2,
            authenticated,
            reply_mode: ReplyMode::On,
            monitors_since: None,
            tracks: None,
            is_held: false,
            puts_back: false,
            subscribed: None,
            transaction: None,
            watched: WatchedKeys::default(),
            transaction_over: false,
            closing: false,
            command_last: crate::clients::COMMAND_NONE,
            store_failure: None,
            paused_until: None,
            waiter: None,
            waits_until: None,
        }
    }

    /// Drops the open transaction and its watched keys.
    pub fn transaction_drop(&mut self) {
        self.transaction = None;
        self.watched.clear();
        self.transaction_over = false;
    }

    /// Bytes of MULTI's queue.
    pub fn queued_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, |open| open.bytes)
    }

    /// Bytes of MULTI's queue and of the watched keys.
    pub fn multi_bytes(&self) -> usize {
        self.queued_bytes() + self.watched.bytes
    }

    /// The number of its subscriptions of a kind.
    pub fn subscriptions(&self, kind: Kind) -> usize {
        self.subscribed.as_ref().map_or(0, |subscribed| subscribed.count(kind))
    }

    /// Whether it is the session of this user, and hears of what that may not: by a channel, MONITOR, or a prefix of keys.
    pub fn hears_beyond(&self, user: &Arc<User>, may_monitor: bool) -> bool {
        if self.login.user().is_none_or(|own| !Arc::ptr_eq(own, user)) {
            return false;
        }
        let rules = user.rules();
        let mut names = self.subscribed.iter().flat_map(|subscribed| subscribed.all());
        let mut prefixes = self.tracks.iter().flat_map(|tracks| &tracks.prefixes);
        self.monitors_since.is_some() && !may_monitor
            || names.any(|(kind, name)| !rules.may_listen(name, kind == Kind::Pattern))
            || prefixes.any(|prefix| !rules.may_read_all_with(prefix))
    }

    /// Whether it may only send commands that change its subscriptions: in RESP2 a message looks like a reply.
    pub fn only_listens(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscribed.is_some()
    }

    /// Bytes of memory, besides the struct itself.
    pub fn bytes(&self) -> usize {
        self.multi_bytes()
            + self.subscribed.as_ref().map_or(0, |subscribed| subscribed.bytes())
            + self.waiter.as_ref().map_or(0, |waiter| waiter.bytes())
    }

    /// Publishes its state to other connections.
    pub fn publish(&self) {
        let client = &self.client;
        client.db.store(self.db, Ordering::Relaxed);
        client.protocol.store(self.protocol.number(), Ordering::Relaxed);
        let queued = self.transaction.as_ref().map_or(-1, |open| open.queue.len() as i64);
        client.queued.store(queued, Ordering::Relaxed);
        client.watched.store(self.watched.iter().len() as u32, Ordering::Relaxed);
        client.multi_bytes.store(self.multi_bytes() as u64, Ordering::Relaxed);
        client.command.store(self.command_last, Ordering::Relaxed);
        for (count, kind) in client.subscriptions.iter().zip([Kind::Channel, Kind::Pattern, Kind::Shard]) {
            count.store(self.subscriptions(kind) as u32, Ordering::Relaxed);
        }
        let tracks = self.tracks.as_deref();
        let redirect = tracks.map_or(-1, |tracks| tracks.redirect.unwrap_or(0) as i64);
        client.redirect.store(redirect, Ordering::Relaxed);
        client.broadcast.store(tracks.is_some_and(|tracks| tracks.broadcast), Ordering::Relaxed);
        client.redirect_broken.store(tracks.is_some_and(|tracks| tracks.is_broken), Ordering::Relaxed);
        client.monitors.store(self.monitors_since.is_some(), Ordering::Relaxed);
        let waits = self.paused_until.is_some() || self.waiter.is_some() || self.is_held;
        client.paused.store(waits, Ordering::Relaxed);
    }
}
