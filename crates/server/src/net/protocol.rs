//! The event loop's interface to a protocol: find requests in the received bytes, execute them, and report a failed
//! turn to the client. The bytes and the meaning of a request belong to the protocol.
//!
//! A worker runs one type of protocol, so every call below is a direct one. A server of several protocols gives its
//! workers an enum of them.
//!
//! - **Invariant 1**: requests of a connection are executed in the order of their bytes, and their replies are appended
//!   to its output in that order. Between [`Protocol::begin_turn`] and [`Protocol::finish_turn`] none of them is sent.
//! - **Invariant 2**: after a failed [`Protocol::finish_turn`], nothing that was appended since [`Protocol::begin_turn`] is sent.
//!   The output is taken back, and [`Protocol::refuse`] appends the error.

use super::output::Output;
use crate::clients::Client;
use crate::config::Config;
use crate::messages::Message;
use std::sync::Arc;
use std::time::Instant;

/// A protocol, as one worker has it.
pub trait Protocol {
    /// The protocol's state of one connection.
    type Conversation: Conversation;
    /// Why a turn could not be made durable.
    type Failure;

    /// The reply to a refused client, by the mark of its listener.
    fn refusal(why: Refusal, mark: u8) -> &'static [u8];

    /// A connection has come; [`Client::mark`] is its listener's.
    fn conversation(&self, client: Arc<Client>) -> Self::Conversation;

    /// Begins a turn: all that is executed until [`Self::finish_turn`] becomes durable together.
    fn begin_turn(&mut self);

    /// Prefetches for the next requests in `input` while earlier ones execute; changes nothing. Returns the bytes of
    /// the requests that it looked at.
    fn look_ahead(&mut self, conversation: &Self::Conversation, input: &[u8]) -> usize;

    /// Executes the request at the beginning of `input` and appends its reply. Returns how many bytes to skip, which
    /// may be meaningless ones; `None` when the request is incomplete. After `None` the next call has the same bytes
    /// and more. A malformed request is answered, and closes the conversation.
    fn execute(
        &mut self,
        conversation: &mut Self::Conversation,
        input: &[u8],
        output: &mut Output,
        config: &Config,
    ) -> Option<usize>;

    /// Makes the turn's writes, and those of others that it read, durable. Replies may leave after it.
    ///
    /// # Errors
    /// When that failed: the turn's effects must not be shown.
    fn finish_turn(&mut self) -> Result<(), Self::Failure>;

    /// The clients of this worker that get a message.
    fn receivers(&self, message: &Message, clients: &mut Vec<u64>);

    /// A message has come for a connection that is not there any more, or cannot take it.
    fn undeliverable(&mut self, message: &Message);

    /// Whether the next turn has work even without requests.
    fn has_work(&self) -> bool;

    /// The time of [`Conversation::waits_until`] has come. It may be another one afterwards.
    fn expire(&mut self, conversation: &mut Self::Conversation, output: &mut Output);

    /// A connection has ended, or is about to: nothing more of it is executed. May be called again.
    fn leave(&mut self, conversation: &mut Self::Conversation);

    /// Appends the error that replaces the replies of a failed turn, and closes the conversation.
    fn refuse(conversation: &mut Self::Conversation, failure: &Self::Failure, output: &mut Output);
}

/// The protocol's state of one connection, as far as the event loop needs it.
pub trait Conversation {
    /// The part that other connections may read.
    fn client(&self) -> &Client;

    /// Nothing further is executed, and the connection ends when the replies so far are sent.
    fn is_closing(&self) -> bool;

    /// Nothing further is executed, and nothing sent, before this moment.
    fn paused_until(&self) -> Option<Instant>;

    /// The pause is over.
    fn go_on(&mut self);

    /// Its last request is not answered yet: nothing further is executed before a message answers it, or its time has come.
    fn is_waiting(&self) -> bool;

    /// When that is.
    fn waits_until(&self) -> Option<Instant>;

    /// Appends a message to the client's output, if it is for it. The writes that caused it are durable. False when it
    /// is for no client.
    fn receive(&mut self, message: &Message, output: &mut Output) -> bool;

    /// Which of the limits of output it falls under: its position in [`OUTPUT_CLASSES`](crate::config::OUTPUT_CLASSES).
    fn output_class(&self) -> usize;

    /// Whether it may be silent for ever.
    fn may_be_idle(&self) -> bool;

    /// Bytes of an incomplete request's state, besides its input.
    fn request_bytes(&self) -> usize;

    /// Bytes of requests that are queued for a later one.
    fn queued_bytes(&self) -> usize;

    /// All that it takes, besides input and output.
    fn bytes(&self) -> usize;

    /// Publishes its state to other connections; once in a turn.
    fn publish(&self);
}

/// The reason for refusing a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are `maxclients` already.
    TooMany,
    /// It comes from another machine, where no password is set and `protected-mode` is on.
    Protected,
}
