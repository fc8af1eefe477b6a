//! The order of all messages, and their way from the turn that caused them to the workers of their receivers.
//!
//! A command with a message takes a number for it at once ([`Delivery::add`]). When its turn is durable, the worker
//! puts its messages into one queue ([`Delivery::hand_over`]). A message leaves the head of the queue once all its
//! predecessors have left. So a message waits for the turns of other workers that took earlier numbers; those are
//! short, and no worker waits for it.
//!
//! **Invariant**: every taken number reaches the queue, with a message or without: a failed turn or an undone command
//! leaves its place empty.

use super::message::{Content, Message};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module. All workers share it.
#[derive(Default)]
pub struct Delivery {
    next: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    // The number of the next message to go.
    due: u64,
    waiting: BTreeMap<u64, Option<Letter>>,
}

struct Letter {
    message: Arc<Message>,
    workers: Vec<u32>,
}

/// Messages of one worker's turn.
#[derive(Default)]
pub struct Outgoing {
    letters: Vec<(u64, Option<Letter>)>,
}

impl Outgoing {
    /// How many there are: a place to go back to.
    pub const fn len(&self) -> usize {
        self.letters.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Takes back all but the first `count`.
    pub fn take_back(&mut self, count: usize) {
        for (_, letter) in self.letters.iter_mut().skip(count) {
            *letter = None;
        }
    }
}

impl Delivery {
    /// The number that the next message gets.
    pub fn next(&self) -> u64 {
        // Relaxed: a subscriber enters itself under a lock afterwards, which a publisher takes before it takes a
        // number.
        self.next.load(Ordering::Relaxed)
    }

    /// Adds a message for these workers to a turn's.
    pub fn add(&self, outgoing: &mut Outgoing, content: Content, workers: Vec<u32>) {
        // Room first: nothing fails between taking the number and noting it.
        outgoing.letters.reserve(1);
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        outgoing.letters.push((sequence, None));
        let message = Arc::new(Message { sequence, content });
        if let Some((_, letter)) = outgoing.letters.last_mut() {
            *letter = Some(Letter { message, workers });
        }
    }

    /// Ends a turn: its messages leave after their predecessors, or are dropped if it is not durable. `send` gets each
    /// worker's messages. It is called under the lock, so that all workers get messages in one order.
    pub fn hand_over(
        &self,
        outgoing: &mut Outgoing,
        is_durable: bool,
        mut send: impl FnMut(usize, Vec<Arc<Message>>),
    ) {
        if outgoing.is_empty() {
            return;
        }
        if !is_durable {
            outgoing.take_back(0);
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.extend(outgoing.letters.drain(..));
        let mut batches: BTreeMap<u32, Vec<Arc<Message>>> = BTreeMap::new();
        let mut due = queue.due;
        while let Some(letter) = queue.waiting.remove(&due) {
            due += 1;
            for worker in letter.iter().flat_map(|letter| &letter.workers) {
                let message = letter.iter().map(|letter| Arc::clone(&letter.message));
                batches.entry(*worker).or_default().extend(message);
            }
        }
        queue.due = due;
        for (worker, messages) in batches {
            send(worker as usize, messages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(delivery: &Delivery, outgoing: &mut Outgoing, name: &str, workers: &[u32]) {
        let channel = name.as_bytes().into();
        delivery.add(outgoing, Content::Channel { channel, payload: Box::default() }, workers.to_vec());
    }

    fn names(messages: &[Arc<Message>]) -> String {
        let name = |message: &Arc<Message>| match &message.content {
            Content::Channel { channel, .. } => String::from_utf8(channel.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        messages.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn messages_go_in_the_order_of_their_commands_whichever_turn_is_durable_first() {
        let delivery = Delivery::default();
        let (mut one, mut two) = (Outgoing::default(), Outgoing::default());
        add(&delivery, &mut one, "a", &[0, 1]);
        add(&delivery, &mut two, "b", &[1]);
        add(&delivery, &mut one, "taken-back", &[1]);
        one.take_back(1);
        add(&delivery, &mut one, "c", &[1]);
        let mut sent = Vec::new();
        delivery.hand_over(&mut two, true, |worker, messages| sent.push((worker, names(&messages))));
        assert!(sent.is_empty(), "before its predecessor's turn is durable: {sent:?}");
        delivery.hand_over(&mut one, true, |worker, messages| sent.push((worker, names(&messages))));
        assert_eq!(sent, [(0, "a".to_owned()), (1, "a b c".to_owned())]);
    }

    #[test]
    fn a_failed_turn_sends_nothing_and_delays_no_other() {
        let delivery = Delivery::default();
        let (mut one, mut two) = (Outgoing::default(), Outgoing::default());
        add(&delivery, &mut one, "a", &[0]);
        add(&delivery, &mut two, "b", &[0]);
        let mut sent = Vec::new();
        delivery.hand_over(&mut one, false, |_, messages| sent.push(names(&messages)));
        delivery.hand_over(&mut two, true, |_, messages| sent.push(names(&messages)));
        assert_eq!(sent, ["b"]);
        assert!(one.is_empty() && two.is_empty());
    }
}
