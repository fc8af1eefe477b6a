//! What commands have of the worker that runs them, besides its keys.

use crate::clients::Client;
use crate::command::{Args, Flags, OwnedArgs, Spec, redacted};
use crate::messages::{Content, Kind, Outgoing, Subscribed, Subscribers};
use crate::notifications::{Absence, Absent, Classes, EXPIRED, KEYEVENT, KEYSPACE, MISS};
use crate::server::Server;
use crate::session::Session;
use crate::tracking::{Taken, Tracked};
use crate::waiting::{Wait, Waiter};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// See the module.
#[derive(Default)]
pub struct WorkerState {
    /// The worker's number.
    pub worker: usize,
    /// Its connections that listen to something.
    pub subscribers: Subscribers,
    /// Messages of the turn that runs.
    pub outgoing: Outgoing,
    /// The command that runs waits.
    pub wait: Option<Wait>,
    /// What the command that runs took for a client that waits: how to put it back.
    pub put_back: Option<OwnedArgs>,
    /// The command that runs empties a database.
    pub is_flushed: bool,
    /// What was remembered of keys that the command that runs has written.
    pub untracked: Taken,
    /// How long the client of the command that runs sleeps: Redis counts that as the command's time.
    pub slept: Duration,
    /// Keys that the command that runs has not found, if anybody wants to know.
    pub absent: Absent,
    /// What was told in the command that runs and stays true, whatever becomes of it.
    pub absences: Vec<Absence>,
    /// Who waited and is answered by the command that runs, once its transaction has committed.
    pub claims: Vec<Claim>,
    /// What these are told of keys that were written, behind their replies.
    pub behind_replies: Vec<(Arc<Client>, Content)>,
    /// How many of the commands that run as one are not done: the last ones, which are to run by themselves.
    pub undone: usize,
    /// How many commands of the run that runs read the key and found it, and how many did not.
    pub reads: (u64, u64),
    /// Which part of what it removes the command that runs removes, where it is done in parts; nothing: all.
    pub share: Option<Share>,
    /// What the command that runs tells a client of its subscriptions that gets no replies (CLIENT REPLY): it gets that.
    pub pushed: Vec<u8>,
}

/// Which part of what a command removes it is to remove now.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// So many elements at most.
    pub most: usize,
    /// So many are gone already.
    pub removed: usize,
}

/// A waiter that was claimed, and what its client is told.
pub struct Claim {
    /// Who.
    pub waiter: Arc<Waiter>,
    /// The reply.
    pub reply: Box<[u8]>,
    /// How to put back what was taken for it.
    pub put_back: Option<OwnedArgs>,
    /// Its command, which was run about this key: how long that took.
    pub ran: Option<(Box<[u8]>, u64)>,
    /// The first word of the error with which its command failed.
    pub failed: Option<String>,
}

impl Claim {
    /// A waiter that is told this, though its command was not run.
    pub fn answered(waiter: Arc<Waiter>, reply: Box<[u8]>) -> Self {
        Self { waiter, reply, put_back: None, ran: None, failed: None }
    }
}

impl WorkerState {
    /// That of a worker.
    pub fn new(worker: usize) -> Self {
        Self { worker, ..Self::default() }
    }

    /// Publishes; how often the message is received.
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

    /// Tells of an event of a key, if anybody wants to know.
    #[inline]
    pub fn notify(&mut self, server: &Server, class: Classes, event: &str, db: u8, key: &[u8]) {
        let wanted = server.notifications();
        if wanted & class != 0 && server.subscriptions.are_any() {
            self.notify_wanted(server, wanted, event, db, key);
        }
    }

    /// Tells what stays true.
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

    /// Takes back all messages but the first `count`, and those that stay true. A command that `runs_again` will miss again what
    /// it missed.
    pub fn take_back(&mut self, server: &Server, count: usize, runs_again: bool) {
        self.outgoing.take_back(count);
        self.pushed.clear();
        let mut absences = std::mem::take(&mut self.absences);
        absences.retain(|absence| !(runs_again && matches!(absence, Absence::Missed(..))));
        absences.iter().for_each(|absence| self.notify_absence_now(server, absence));
        self.absences = absences;
    }

    /// Tells that a key has expired, which was no client's doing. Clients that read it are told when its time has come.
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

    /// Tells clients that track prefixes of these keys, but for the writer, if it does not want to know.
    pub fn invalidate_by_prefix(&mut self, server: &Server, writer: u64, keys: &[Box<[u8]>]) {
        for (tracked, keys) in server.tracking.of_prefixes(keys, writer) {
            self.invalidate(server, &tracked, Some(keys));
        }
    }

    /// Tells a client that what it keeps of these keys, or of all, is old.
    pub fn invalidate(&mut self, server: &Server, tracked: &Tracked, keys: Option<Vec<Box<[u8]>>>) {
        let own = Arc::clone(&tracked.client);
        let (client, content) = match tracked.redirect.map(|id| (id, server.clients.find(id))) {
            None => (Arc::clone(&own), Content::Invalidate { client: own, redirected: false, keys }),
            Some((_, Some(target))) => {
                (Arc::clone(&target), Content::Invalidate { client: target, redirected: true, keys })
            }
            Some((redirect, None)) => (Arc::clone(&own), Content::RedirectBroken { client: own, redirect }),
        };
        // Who is answered by the command that runs is told of what its own wrote behind its reply, as any client is.
        if self.claims.iter().any(|claim| claim.waiter.client.id == client.id) {
            self.behind_replies.push((client, content));
        } else {
            server.delivery.add(&mut self.outgoing, content, vec![client.worker as u32]);
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

    /// A connection begins to listen to `name`.
    pub fn subscribe(&mut self, server: &Server, session: &mut Session, kind: Kind, name: &[u8]) {
        // First: who finds it among the subscriptions takes a later number.
        let since = server.delivery.next();
        if session.subscribed.get_or_insert_default().add(kind, name, since) {
            self.subscribers.add(kind, name, session.client.id);
            server.subscriptions.add(kind, name, self.worker);
        }
    }

    /// A connection ends to listen to `name`; whether it did.
    pub fn unsubscribe(&mut self, server: &Server, session: &mut Session, kind: Kind, name: &[u8]) -> bool {
        let Some(subscribed) = &mut session.subscribed else { return false };
        if !subscribed.remove(kind, name) {
            return false;
        }
        if subscribed.is_empty() {
            session.subscribed = None;
        }
        self.subscribers.remove(kind, name, session.client.id);
        server.subscriptions.remove(kind, name, self.worker);
        true
    }

    /// A connection ends to listen to anything.
    pub fn unsubscribe_all(&mut self, server: &Server, session: &mut Session) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for name in
                session.subscribed.as_deref().map_or_else(Vec::new, |all: &Subscribed| all.names(kind))
            {
                self.unsubscribe(server, session, kind, &name);
            }
        }
    }

    /// A connection tracks keys no more.
    pub fn track_no_more(&mut self, server: &Server, session: &mut Session) {
        if let Some(tracks) = session.tracks.take() {
            server.tracking.end(session.client.id, &tracks);
            server.listen_to_store();
        }
    }

    /// A connection is sent what all clients do.
    pub fn monitor(&mut self, server: &Server, session: &mut Session) {
        // First, as in `subscribe`.
        session.monitors_since = Some(server.delivery.next());
        self.subscribers.monitors.insert(session.client.id);
        server.monitors.change(self.worker, true);
    }

    /// It is not any more.
    pub fn unmonitor(&mut self, server: &Server, session: &mut Session) {
        if session.monitors_since.take().is_some() {
            self.subscribers.monitors.remove(&session.client.id);
            server.monitors.change(self.worker, false);
        }
    }

    /// Shows a command that has run to those who said MONITOR.
    #[inline]
    pub fn show(&mut self, server: &Server, spec: &Spec, args: Args<'_>, session: &Session) {
        if server.monitors.are_any() && !spec.flags.has_any(Flags::SKIP_MONITOR.with(Flags::ADMIN)) {
            self.show_to(server, spec, args, session);
        }
    }

    #[cold]
    fn show_to(&mut self, server: &Server, spec: &Spec, args: Args<'_>, session: &Session) {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let client = &session.client;
        let address = match client.unix {
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
