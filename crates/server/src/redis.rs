//! The Redis protocol on the event loop: requests are found by [`resp`](crate::resp) and executed by
//! [`command`](crate::command).

use crate::clients::Client;
use crate::command::{Args, CommandError, Dispatcher};
use crate::config::Config;
use crate::messages::{Content, Kind, Message, Subscribed};
use crate::net::{self, Output, Refusal};
use crate::resp::{Limits, Protocol, Reply, Request, Requests};
use crate::server::Server;
use crate::session::Session;
use crate::stats::WorkerStats;
use duramen_structures::Worker;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
const PROTECTED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is enabled and no \
password is set for the default user. In this mode connections are only accepted from the loopback interface. If \
you want to connect from external computers to Redis you may adopt one of the following solutions: 1) Just disable \
protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to \
Redis from the same host the server is running, however MAKE SURE Redis is not publicly accessible from internet \
if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you can just disable the \
protected mode by editing the Redis configuration file, and setting the protected mode option to 'no', and then \
restarting the server. 3) If you started the server manually just for testing, restart it with the \
'--protected-mode no' option. 4) Setup a an authentication password for the default user. NOTE: You only need to do \
one of the above things in order for the server to start accepting connections from the outside.\r\n";

/// The Redis protocol, as one worker has it.
pub struct Redis {
    dispatcher: Dispatcher,
    server: Arc<Server>,
    stats: Arc<WorkerStats>,
}

impl Redis {
    /// Executes on the keys of `worker`, which is the server's worker with this number.
    pub fn new(server: Arc<Server>, worker: Worker, stats: Arc<WorkerStats>, number: usize) -> Self {
        let dispatcher = Dispatcher::new(Arc::clone(&server), worker, Arc::clone(&stats), number);
        Self { dispatcher, server, stats }
    }
}

/// The state of a connection, and how far its next request was read.
pub struct Conversation {
    session: Session,
    requests: Requests,
}

/// The reply to a refused client.
pub const fn refusal(why: Refusal) -> &'static [u8] {
    match why {
        Refusal::TooMany => TOO_MANY,
        Refusal::Protected => PROTECTED,
    }
}

/// Appends the error that replaces the replies of a failed turn, and closes the conversation.
pub fn refuse(conversation: &mut Conversation, failure: &CommandError, output: &mut Output) {
    Reply::new(output, conversation.session.protocol).error(failure.text());
    conversation.session.closing = true;
}

/// The methods of [`net::Protocol`].
impl Redis {
    /// A client has connected.
    pub fn conversation(&self, client: Arc<Client>) -> Conversation {
        Conversation {
            session: {
                let trusted = client.trusted || self.needs_no_password();
                Session::new(client, trusted)
            },
            requests: Requests::default(),
        }
    }

    /// Whether new clients may run every command.
    pub fn needs_no_password(&self) -> bool {
        self.server.config().requirepass.is_empty()
    }

    /// Begins a turn; sets the store's worker for it, and its time in Unix milliseconds.
    pub fn begin_turn(&mut self) -> (&mut Worker, u64) {
        self.dispatcher.group();
        self.dispatcher.turn()
    }

    /// What reads and writes keys.
    pub const fn worker(&mut self) -> &mut Worker {
        self.dispatcher.turn().0
    }

    /// Records a failure of the store that another protocol met in this turn.
    pub fn note(&mut self, failure: CommandError) {
        self.dispatcher.note(failure);
    }

    /// Records a panic in another protocol in this turn.
    pub fn panicked_elsewhere(&mut self) {
        self.dispatcher.note_panic();
    }

    /// Prefetches what the next requests in `input` need.
    #[inline]
    pub fn look_ahead(&mut self, conversation: &Conversation, input: &[u8]) -> usize {
        self.dispatcher.look_ahead(&conversation.session, input)
    }

    /// Executes the request at the beginning of `input`.
    #[inline]
    pub fn execute(
        &mut self,
        conversation: &mut Conversation,
        input: &[u8],
        output: &mut Output,
        config: &Config,
    ) -> Option<usize> {
        let Conversation { session, requests } = conversation;
        let limits =
            Limits { bulk_bytes_max: config.proto_max_bulk_len, authenticated: session.authenticated };
        match requests.next(input, &limits) {
            Ok(Request::Command { bytes }) => {
                let (mut bytes, mut merged) = (bytes, 1);
                if bytes < input.len() && self.dispatcher.merges(session, Args::of(requests, input)) {
                    (merged, bytes) =
                        self.dispatcher.merge(session, requests, input, &limits).unwrap_or((1, bytes));
                }
                let args = Args::of(requests, input);
                let is_done = match session.client.no_touch.load(Ordering::Relaxed) && !args.is(0, "touch") {
                    false => self.dispatcher.execute(session, args, merged, output),
                    true => duramen::uncounted(|| self.dispatcher.execute(session, args, merged, output)),
                };
                // A held connection retries.
                Some(if is_done { bytes } else { 0 })
            }
            Ok(Request::Nothing { bytes }) => Some(bytes),
            Ok(Request::Incomplete { .. }) => None,
            Err(error) => {
                self.stats.error("ERR");
                Reply::new(output, session.protocol).error(format!("ERR Protocol error: {error}"));
                session.closing = true;
                Some(input.len())
            }
        }
    }

    /// Makes the turn durable.
    ///
    /// When the commit failed.
    /// When that failed.
    pub fn finish_turn(&mut self) -> Result<(), CommandError> {
        self.dispatcher.finish_turn()
    }

    /// The clients of this worker that receive a message.
    pub fn receivers(&self, message: &Message, clients: &mut Vec<u64>) {
        self.dispatcher.worker_state().subscribers.receivers(message, clients);
    }

    /// A message arrived for a connection that is closed or cannot receive it.
    pub fn undeliverable(&mut self, message: &Message) {
        if let Content::Reply { put_back: Some(put_back), .. } = &message.content {
            self.dispatcher.put_back(put_back);
        }
    }

    /// Whether the next turn has work even without requests.
    pub fn has_work(&self) -> bool {
        self.dispatcher.has_work()
    }

    /// The time of a waiting connection is reached.
    pub fn expire(&mut self, conversation: &mut Conversation, output: &mut Output) {
        self.dispatcher.expire(&mut conversation.session, output);
    }

    /// A connection has ended.
    pub fn leave(&mut self, conversation: &mut Conversation) {
        self.dispatcher.leave(&mut conversation.session);
    }
}

impl net::Conversation for Conversation {
    #[inline]
    fn client(&self) -> &Client {
        &self.session.client
    }

    #[inline]
    fn is_closing(&self) -> bool {
        self.session.closing
    }

    #[inline]
    fn paused_until(&self) -> Option<Instant> {
        self.session.paused_until
    }

    fn go_on(&mut self) {
        self.session.paused_until = None;
    }

    fn is_waiting(&self) -> bool {
        self.session.waiter.is_some() || self.session.is_held
    }

    fn waits_until(&self) -> Option<Instant> {
        self.session.waits_until
    }

    fn receive(&mut self, message: &Message, output: &mut Output) -> bool {
        if let Content::Reply { waiter, bytes, closes, .. } = &message.content {
            let session = &mut self.session;
            let is_for_it = session.waiter.as_ref().is_some_and(|own| Arc::ptr_eq(own, waiter));
            if is_for_it {
                (session.waiter, session.waits_until) = (None, None);
                // A waiter that was refused in the same turn has its error already.
                if !waiter.is_silent && !session.closing {
                    output.bytes.extend_from_slice(bytes);
                }
                session.closing |= closes;
            }
            return is_for_it;
        }
        if let Content::Monitor { line } = &message.content {
            if self.session.monitors_since.is_some_and(|since| since <= message.sequence) {
                output.bytes.extend_from_slice(line);
            }
            return true;
        }
        match &message.content {
            Content::Invalidate { redirected, keys, .. } => {
                write_invalidation(&mut self.session, *redirected, keys.as_deref(), output);
            }
            Content::RedirectBroken { redirect, .. } => {
                if let Some(tracks) = &mut self.session.tracks {
                    tracks.is_broken = true;
                }
                if self.session.protocol == Protocol::Resp3 {
                    let mut reply = Reply::new(output, Protocol::Resp3);
                    reply.push(2);
                    reply.bulk(b"tracking-redir-broken");
                    reply.integer(*redirect as i64);
                }
            }
            _ => {}
        }
        let Some(subscribed) = &self.session.subscribed else { return true };
        let mut reply = Reply::new(output, self.session.protocol);
        write_message(&mut reply, message, subscribed);
        true
    }

    fn output_class(&self) -> usize {
        const NORMAL: usize = 0;
        const PUBSUB: usize = 2;
        if self.session.subscribed.is_some() { PUBSUB } else { NORMAL }
    }

    fn may_be_idle(&self) -> bool {
        let session = &self.session;
        session.subscribed.is_some()
            || session.waiter.is_some()
            || session.monitors_since.is_some()
            || session.is_held
    }

    fn request_bytes(&self) -> usize {
        self.requests.bytes()
    }

    fn queued_bytes(&self) -> usize {
        self.session.queued_bytes()
    }

    fn bytes(&self) -> usize {
        self.requests.bytes() + self.session.bytes()
    }

    fn publish(&self) {
        self.session.publish();
    }
}

/// Sends a client the invalidated keys. In RESP2 only a subscribed client can receive them, as the target of a
/// redirection.
fn write_invalidation(
    session: &mut Session,
    redirected: bool,
    keys: Option<&[Box<[u8]>]>,
    output: &mut Output,
) {
    let mut reply = Reply::new(output, session.protocol);
    if session.protocol == Protocol::Resp3 {
        reply.push(2);
        reply.bulk(b"invalidate");
    } else if redirected && session.subscribed.is_some() {
        reply.array(3);
        reply.bulk(b"message");
        reply.bulk(b"__redis__:invalidate");
    } else {
        return;
    }
    let Some(keys) = keys else { return reply.null() };
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
}

/// Writes a message once for each of its client's matching subscriptions.
fn write_message(reply: &mut Reply<'_>, message: &Message, subscribed: &Subscribed) {
    let sequence = message.sequence;
    let mut plain = |word: &[u8], channel: &[u8], payload: &[u8]| {
        reply.push(3);
        reply.bulk(word);
        reply.bulk(channel);
        reply.bulk(payload);
    };
    match &message.content {
        Content::Reply { .. }
        | Content::Monitor { .. }
        | Content::Invalidate { .. }
        | Content::RedirectBroken { .. } => {}
        Content::Shard { channel, payload } => {
            if subscribed.hears(Kind::Shard, channel, sequence) {
                plain(b"smessage", channel, payload);
            }
        }
        Content::Channel { channel, payload } => {
            if subscribed.hears(Kind::Channel, channel, sequence) {
                plain(b"message", channel, payload);
            }
            for pattern in subscribed.patterns(channel, sequence) {
                reply.push(4);
                reply.bulk(b"pmessage");
                reply.bulk(pattern);
                reply.bulk(channel);
                reply.bulk(payload);
            }
        }
    }
}
