//! Two protocols in one worker, chosen by the mark of the listener: 0 is the first, and 1 and above belong to the
//! second, which may be a pair itself. Requests of both are in the same turns.

use super::listen::Place;
use super::output::Output;
use super::protocol::{Conversation, Protocol, Refusal};
use super::turn::Turn;
use crate::clients::Client;
use crate::command_error::CommandError;
use crate::config::Config;
use crate::messages::Message;
use crate::server::Server;
use std::sync::Arc;
use std::time::Instant;

/// See the module.
pub struct Pair<A, B>(A, B);

/// A conversation of one of two protocols.
// Stored inside its connection, because every request needs it: no further pointer.
#[allow(clippy::large_enum_variant)]
pub enum Either<A, B> {
    /// In the first.
    First(A),
    /// In the second.
    Second(B),
}

impl<A: Protocol, B: Protocol> Protocol for Pair<A, B> {
    type Conversation = Either<A::Conversation, B::Conversation>;

    fn places(config: &Config) -> Vec<Place<'_>> {
        let second = B::places(config).into_iter().map(|place| Place { mark: place.mark + 1, ..place });
        A::places(config).into_iter().chain(second).collect()
    }

    fn refusal(why: Refusal, mark: u8) -> &'static [u8] {
        mark.checked_sub(1).map_or_else(|| A::refusal(why, 0), |mark| B::refusal(why, mark))
    }

    fn new(server: &Arc<Server>, worker: usize) -> Self {
        Self(A::new(server, worker), B::new(server, worker))
    }

    fn conversation(&self, client: Arc<Client>, mark: u8) -> Self::Conversation {
        match mark.checked_sub(1) {
            None => Either::First(self.0.conversation(client, 0)),
            Some(mark) => Either::Second(self.1.conversation(client, mark)),
        }
    }

    fn identify(&self, conversation: &mut Self::Conversation, name: &[u8]) {
        match conversation {
            Either::First(first) => self.0.identify(first, name),
            Either::Second(second) => self.1.identify(second, name),
        }
    }

    #[inline]
    fn execute(
        &mut self,
        turn: &mut Turn,
        conversation: &mut Self::Conversation,
        input: &[u8],
        output: &mut Output,
        config: &Config,
    ) -> Option<usize> {
        match conversation {
            Either::First(first) => self.0.execute(turn, first, input, output, config),
            Either::Second(second) => self.1.execute(turn, second, input, output, config),
        }
    }

    fn answer_meanwhile(
        server: &Server,
        conversation: &mut Self::Conversation,
        input: &[u8],
        output: &mut Output,
        config: &Config,
    ) -> Option<usize> {
        match conversation {
            Either::First(first) => A::answer_meanwhile(server, first, input, output, config),
            Either::Second(second) => B::answer_meanwhile(server, second, input, output, config),
        }
    }

    fn refuse(conversation: &mut Self::Conversation, failure: &CommandError, output: &mut Output) {
        match conversation {
            Either::First(first) => A::refuse(first, failure, output),
            Either::Second(second) => B::refuse(second, failure, output),
        }
    }

    #[inline]
    fn look_ahead(&mut self, turn: &mut Turn, conversation: &Self::Conversation, input: &[u8]) -> usize {
        match conversation {
            Either::First(first) => self.0.look_ahead(turn, first, input),
            Either::Second(second) => self.1.look_ahead(turn, second, input),
        }
    }

    fn begin_turn(&mut self, turn: &mut Turn) {
        self.0.begin_turn(turn);
        self.1.begin_turn(turn);
    }

    fn end_turn(&mut self, turn: &mut Turn) {
        self.0.end_turn(turn);
        self.1.end_turn(turn);
    }

    fn finish_turn(&mut self, flushed: Result<(), &CommandError>) {
        self.0.finish_turn(flushed);
        self.1.finish_turn(flushed);
    }

    fn has_work(&self) -> bool {
        self.0.has_work() || self.1.has_work()
    }

    fn receivers(&self, message: &Message, clients: &mut Vec<u64>) {
        self.0.receivers(message, clients);
        self.1.receivers(message, clients);
    }

    fn undeliverable(&mut self, message: &Message) {
        self.0.undeliverable(message);
        self.1.undeliverable(message);
    }

    fn expire(&mut self, conversation: &mut Self::Conversation, output: &mut Output) {
        match conversation {
            Either::First(first) => self.0.expire(first, output),
            Either::Second(second) => self.1.expire(second, output),
        }
    }

    fn leave(&mut self, conversation: &mut Self::Conversation) {
        match conversation {
            Either::First(first) => self.0.leave(first),
            Either::Second(second) => self.1.leave(second),
        }
    }
}

/// The same expression of whichever conversation it is.
macro_rules! each {
    ($either:expr, $conversation:ident => $call:expr) => {
        match $either {
            Either::First($conversation) => $call,
            Either::Second($conversation) => $call,
        }
    };
}

impl<A: Conversation, B: Conversation> Conversation for Either<A, B> {
    #[inline]
    fn client(&self) -> &Client {
        each!(self, conversation => conversation.client())
    }

    #[inline]
    fn is_closing(&self) -> bool {
        each!(self, conversation => conversation.is_closing())
    }

    #[inline]
    fn paused_until(&self) -> Option<Instant> {
        each!(self, conversation => conversation.paused_until())
    }

    fn go_on(&mut self) {
        each!(self, conversation => conversation.go_on());
    }

    #[inline]
    fn is_waiting(&self) -> bool {
        each!(self, conversation => conversation.is_waiting())
    }

    fn waits_until(&self) -> Option<Instant> {
        each!(self, conversation => conversation.waits_until())
    }

    fn receive(&mut self, message: &Message, output: &mut Output) -> bool {
        each!(self, conversation => conversation.receive(message, output))
    }

    fn output_class(&self) -> usize {
        each!(self, conversation => conversation.output_class())
    }

    fn may_be_idle(&self) -> bool {
        each!(self, conversation => conversation.may_be_idle())
    }

    fn request_bytes(&self) -> usize {
        each!(self, conversation => conversation.request_bytes())
    }

    fn queued_bytes(&self) -> usize {
        each!(self, conversation => conversation.queued_bytes())
    }

    fn bytes(&self) -> usize {
        each!(self, conversation => conversation.bytes())
    }

    fn publish(&self) {
        each!(self, conversation => conversation.publish());
    }
}
