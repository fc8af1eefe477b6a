//! The worker's state that commands use, besides its keys.

use crate::acl::User;
use crate::clients::Client;
use crate::messages::{Content, Kind, Name, Outgoing, Subscribers};
use crate::net::Bystanders;
use crate::observe::keyspace_events::{Absence, Absent, Classes, EXPIRED, KEYEVENT, KEYSPACE, MISS};
use crate::redis::blocking::{Wait, Waiter};
use crate::redis::command::{Args, Flags, OwnedArgs, Spec, redacted};
use crate::redis::session::Session;
use crate::redis::tracking::{Taken, Tracked};
use crate::scripts::{Interpreters, Libraries, Readers, Room};
use crate::server::Server;
use duramen_structures::Random;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// See the module.
#[derive(Default)]
pub struct WorkerState {
    /// The worker's number.
    pub worker: usize,
    /// Its connections that have subscriptions.
    pub subscribers: Subscribers,
    /// Messages of the current turn.
    pub outgoing: Outgoing,
    /// The current command blocks.
    pub wait: Option<Wait>,
    /// How to put back what the current command removed for a blocked client.
    pub put_back: Option<OwnedArgs>,
    /// The current command empties a database.
    pub is_flushed: bool,
    /// The removed tracking entries of the keys that the current command wrote.
    pub untracked: Taken,
    /// How long the client of the current command sleeps: Redis counts it as the command's time.
    pub slept: Duration,
    /// Keys that the current command did not find, if their events are wanted.
    pub absent: Absent,
    /// Events of the current command that stay true if its transaction aborts.
    pub absences: Vec<Absence>,
    /// Waiters that the current command answers once its transaction has committed.
    pub claims: Vec<Claim>,
    /// Invalidations for these waiters' clients, sent after their replies.
    pub behind_replies: Vec<(Arc<Client>, Content)>,
    /// How many commands of the current batch are not done: the last ones, which then run one at a time.
    pub undone: usize,
    /// How many commands of the current batch read the key and found it, and how many did not find it.
    pub reads: (u64, u64),
    /// The part that the current command removes, if it removes in parts; `None`: everything.
    pub share: Option<Share>,
    /// Its interpreters; `None` while a script runs.
    pub interpreters: Option<Box<Interpreters>>,
    /// The worker's other connections, while a script may run.
    pub bystanders: Option<Box<dyn Bystanders>>,
    /// The libraries of functions that it has loaded; `None` while one of them runs.
    pub libraries: Option<Box<Libraries>>,
    /// The current command has changed the libraries in the store; these of their functions only read.
    pub changed_libraries: Option<Readers>,
    /// What scripts of the current command take from outside: the same when it runs again.
    pub chances: Chances,
    /// A script runs: its commands are shown as such, and see its time.
    pub is_in_script: bool,
    /// Memory for the next script.
    pub script_room: Room,
    /// Where the random numbers of scripts come from.
    pub script_seeds: Option<Random>,
    /// Confirmations of subscriptions for a client that gets no replies (CLIENT REPLY): it gets these.
    pub pushed: Vec<u8>,
}

/// What a command takes from outside that it does not get from keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chances {
    /// Where random numbers begin; `None`: no script has begun yet.
    pub seed: Option<u64>,
    /// The time in microseconds when a script first asked.
    pub micros: Option<u64>,
    /// How many scripts have begun: EXEC may run several.
    pub scripts: u64,
}

/// The part that a command removes now.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The maximum number of elements.
    pub most: usize,
    /// The number of elements already removed.
    pub removed: usize,
}

/// A claimed waiter and the reply to its client.
pub struct Claim {
    /// The waiter.
    pub waiter: Arc<Waiter>,
    /// The reply.
    pub reply: Box<[u8]>,
    /// How to put back what was removed for it.
    pub put_back: Option<OwnedArgs>,
    /// Its command, which ran for this key, and how long it took.
    pub ran: Option<(Box<[u8]>, u64)>,
    /// The first word of the error with which its command failed.
    pub failed: Option<String>,
}

impl Claim {
    /// A claim with this reply for a waiter whose command did not run.
    pub fn answered(waiter: Arc<Waiter>, reply: Box<[u8]>) -> Self {
        Self { waiter, reply, put_back: None, ran: None, failed: None }
    }
}

impl WorkerState {
    /// The state of a worker.
    pub fn new(worker: usize) -> Self {
        Self { worker, interpreters: Some(Box::default()), ..Self::default() }
    }

    /// Publishes a message; returns the number of receivers.
    pub fn publish(&mut self, server: &Server, is_shard: bool, channel: &[u8], payload: &[u8]) -> usize {
        let (count, workers) = server.subscriptions.receivers(is_shard, channel);
        if count > 0 {
            let (channel, payload) = (channel.into(), payload.into());
            let content = match is_shard {
                true => Content::Shard { channel, payload },
                false => Content::Channel { channel, payload },
            };
            server.delivery.add(&mut self.outgoing, content, workers);
        }
        count
    }

    /// Reports an event of a key, if it is wanted.
    #[inline]
    pub fn notify(&mut self, server: &Server, class: Classes, event: &str, db: u8, key: &[u8]) {
        let wanted = server.notifications();
        if wanted & class != 0 && server.subscriptions.are_any() {
            self.notify_wanted(server, wanted, event, db, key);
        }
    }

    /// Sends the events that stay true.
    pub fn notify_absence(&mut self, server: &Server, absence: Absence) {
        self.notify_absence_now(server, &absence);
        self.absences.push(absence);
    }

    fn notify_absence_now(&mut self, server: &Server, absence: &Absence) {
        match absence {
            Absence::Expired(db, key) => self.notify_expired(server, *db, key),
            Absence::Missed(db, key) => self.notify(server, MISS, "keymiss", *db, key),
        }
    }

    /// Drops all messages except the first `count` and those that stay true. With `runs_again` the command will report
    /// its misses again.
    pub fn take_back(&mut self, server: &Server, count: usize, runs_again: bool) {
        self.outgoing.take_back(count);
        self.pushed.clear();
        let mut absences = std::mem::take(&mut self.absences);
        absences.retain(|absence| !(runs_again && matches!(absence, Absence::Missed(..))));
        absences.iter().for_each(|absence| self.notify_absence_now(server, absence));
        self.absences = absences;
    }

    /// Reports the expiry of a key, which no client caused. Tracking clients that read it are notified when its time is
    /// reached.
    pub fn notify_expired(&mut self, server: &Server, db: u8, key: &[u8]) {
        self.notify(server, EXPIRED, "expired", db, key);
        if server.tracking.is_any() {
            self.invalidate_by_prefix(server, 0, &[key.into()]);
        }
    }

    /// Sends the messages that belong to no worker's turn.
    pub fn send_alone(&mut self, server: &Server) {
        server.delivery.hand_over(&mut self.outgoing, true, |worker, messages| {
            if let Some(inbox) = server.inboxes.get(worker) {
                inbox.send_mail(messages, true);
            }
        });
    }

    /// Notifies the clients that track prefixes of these keys; excludes the writer if it asked for that.
    pub fn invalidate_by_prefix(&mut self, server: &Server, writer: u64, keys: &[Box<[u8]>]) {
        for (tracked, keys) in server.tracking.of_prefixes(keys, writer) {
            self.invalidate(server, &tracked, Some(keys));
        }
    }

    /// Tells a client that its copies of these keys, or of all keys, are invalid.
    pub fn invalidate(&mut self, server: &Server, tracked: &Tracked, keys: Option<Vec<Box<[u8]>>>) {
        let own = Arc::clone(&tracked.client);
        let (client, content) = match tracked.redirect.map(|id| (id, server.clients.find(id))) {
            None => (Arc::clone(&own), Content::Invalidate { client: own, redirected: false, keys }),
            Some((_, Some(target))) => {
                (Arc::clone(&target), Content::Invalidate { client: target, redirected: true, keys })
            }
            Some((redirect, None)) => (Arc::clone(&own), Content::RedirectBroken { client: own, redirect }),
        };
        // A client that the current command answers gets the invalidations of its own write after its reply, as any
        // client does.
        if self.claims.iter().any(|claim| claim.waiter.client.id == client.id) {
            self.behind_replies.push((client, content));
        } else {
            server.delivery.add(&mut self.outgoing, content, vec![client.worker as u32]);
        }
    }

    /// The rights of a user have changed: its other clients compare them with what they hear.
    pub fn rights_changed(&mut self, server: &Server, own: &Client, user: &Arc<User>, may_monitor: bool) {
        for client in server.clients.list().into_iter().filter(|client| client.is_user(user)) {
            if client.id != own.id {
                let worker = client.worker as u32;
                let content = Content::RightsChanged { client, user: Arc::clone(user), may_monitor };
                server.delivery.add(&mut self.outgoing, content, vec![worker]);
            }
        }
    }

    fn notify_wanted(&mut self, server: &Server, wanted: Classes, event: &str, db: u8, key: &[u8]) {
        if wanted & KEYSPACE != 0 {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
            self.publish(server, false, &channel, event.as_bytes());
        }
        if wanted & KEYEVENT != 0 {
            let channel = format!("__keyevent@{db}__:{event}");
            self.publish(server, false, channel.as_bytes(), key);
        }
    }

    /// A connection subscribes to `name`.
    pub fn subscribe(&mut self, server: &Server, session: &mut Session, kind: Kind, name: &[u8]) {
        // First: a publisher that finds the connection among the subscribers takes a later number.
        let since = server.delivery.next();
        let subscribed = session.subscribed.get_or_insert_default();
        if !subscribed.has(kind, name) {
            let name = server.subscriptions.add(kind, name, self.worker);
            self.subscribers.add(kind, Arc::clone(&name), session.client.id);
            subscribed.add(kind, name, since);
        }
    }

    /// A connection unsubscribes from `name`, if it is subscribed.
    pub fn unsubscribe(&mut self, server: &Server, session: &mut Session, kind: Kind, name: &[u8]) {
        let subscribed = session.subscribed.as_mut();
        if let Some(name) = subscribed.and_then(|subscribed| subscribed.remove(kind, name)) {
            self.forget_subscription(server, session, kind, &name);
        }
    }

    /// A connection unsubscribes from one of its names of a kind. None: it has no more.
    pub fn unsubscribe_any(&mut self, server: &Server, session: &mut Session, kind: Kind) -> Option<Name> {
        let name = session.subscribed.as_mut()?.remove_any(kind)?;
        self.forget_subscription(server, session, kind, &name);
        Some(name)
    }

    /// After a name was removed from a connection's own list.
    fn forget_subscription(&mut self, server: &Server, session: &mut Session, kind: Kind, name: &Name) {
        session.subscribed.take_if(|subscribed| subscribed.is_empty());
        self.subscribers.remove(kind, name, session.client.id);
        server.subscriptions.remove(kind, name, self.worker);
    }

    /// A connection unsubscribes from everything.
    pub fn unsubscribe_all(&mut self, server: &Server, session: &mut Session) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            while self.unsubscribe_any(server, session, kind).is_some() {}
        }
    }

    /// A connection stops tracking keys.
    pub fn track_no_more(&mut self, server: &Server, session: &mut Session) {
        if let Some(tracks) = session.tracks.take() {
            server.tracking.end(session.client.id, &tracks);
            server.listen_to_store();
        }
    }

    /// A connection starts MONITOR.
    pub fn monitor(&mut self, server: &Server, session: &mut Session) {
        // First, as in `subscribe`.
        session.monitors_since = Some(server.delivery.next());
        self.subscribers.monitors.insert(session.client.id);
        server.monitors.change(self.worker, true);
    }

    /// It no longer monitors.
    pub fn unmonitor(&mut self, server: &Server, session: &mut Session) {
        if session.monitors_since.take().is_some() {
            self.subscribers.monitors.remove(&session.client.id);
            server.monitors.change(self.worker, false);
        }
    }

    /// Shows a completed command to the MONITOR clients.
    #[inline]
    pub fn show(&mut self, server: &Server, spec: &Spec, args: Args<'_>, session: &Session) {
        if server.monitors.are_any() && !spec.flags.has_any(Flags::SKIP_MONITOR.with(Flags::ADMIN)) {
            self.show_to(server, spec, args, session);
        }
    }

    /// Shows a command that runs a script, before the commands of the script.
    pub fn show_script(&mut self, server: &Server, spec: &Spec, args: Args<'_>, session: &Session) {
        if server.monitors.are_any() {
            self.show_to(server, spec, args, session);
        }
    }

    #[cold]
    fn show_to(&mut self, server: &Server, spec: &Spec, args: Args<'_>, session: &Session) {
        let micros = unix_micros();
        let client = &session.client;
        let address = match client.unix {
            _ if self.is_in_script => "lua".to_owned(),
            true => format!("unix:{}", server.config().unixsocket),
            false => client.address.clone(),
        };
        let line = redacted::monitored(spec, args, micros, session.db, &address);
        server.delivery.add(&mut self.outgoing, Content::Monitor { line }, server.monitors.workers());
    }

    /// A connection has ended.
    pub fn leave(&mut self, server: &Server, session: &mut Session) {
        self.unsubscribe_all(server, session);
        self.unmonitor(server, session);
        self.track_no_more(server, session);
    }
}

/// Microseconds since 1970.
pub fn unix_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
