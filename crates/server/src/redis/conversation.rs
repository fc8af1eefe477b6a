//! A connection that speaks the Redis protocol, and the messages that it gets without a request.

use super::resp::{Protocol, Reply, Requests};
use super::session::Session;
use crate::clients::Client;
use crate::messages::{Content, Kind, Message, Subscribed};
use crate::net::{self, Output};
use std::sync::Arc;
use std::time::Instant;

/// The state of a connection, and how far its next request was read.
pub struct Conversation {
    pub(super) session: Session,
    pub(super) requests: Requests,
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
            Content::RightsChanged { user, may_monitor, .. } => {
                self.session.closing |= self.session.hears_beyond(user, *may_monitor);
                return true;
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
        | Content::RedirectBroken { .. }
        | Content::RightsChanged { .. } => {}
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
