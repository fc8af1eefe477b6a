//! Deliveries as Kafka transactions: `'sink.delivery-guarantee' = 'exactly-once'`, the default in a job with a store.
//! The transactional id is PREFIX-JOB-SINK; the prefix is `'sink.transactional-id-prefix'`, by default `duramen`.
//!
//! The marker is a position, in the topic, of the consumer group with the name of the transactional id: its offset is
//! the delivery's number and its metadata the run. It is sent within the transaction. A new producer fences the old
//! one, and waits until the old transaction is committed or aborted, before the marker is read.

use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::Offset;

use super::broker::{Broker, Context};
use super::encoding::Encoding;
use crate::compile::Rows;
use crate::error::{Error, Result};
use crate::run::outbox::{Deliver, Encode, Failure, Messages, Name, Outage, messages};

/// How long a call to the broker may take before the delivery starts over.
const CALL: Duration = Duration::from_secs(10);

impl Encode for Encoding {
    fn encode(&mut self, rows: &Rows<'_>, messages: &mut Messages) -> Result<()> {
        self.each(rows, |key, value| {
            messages.push(key, value);
            Ok(())
        })
    }
}

/// Delivers by transactions.
pub struct Transactions {
    broker: Broker,
    id: String,
    outage: Outage,
    open: Option<Open>,
}

/// A producer without an open transaction, and the group of the markers.
struct Open {
    producer: BaseProducer<Context>,
    group: BaseConsumer<Context>,
}

impl Transactions {
    /// Connects under this transactional id.
    pub fn new(broker: Broker, id: String, outage: Outage) -> Transactions {
        Transactions { broker, id, outage, open: None }
    }

    fn failure(&self, what: &str, error: &KafkaError) -> Failure {
        let lasting = match error {
            KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) => true,
            KafkaError::Transaction(error) => [
                RDKafkaErrorCode::Fenced,
                RDKafkaErrorCode::ProducerFenced,
                RDKafkaErrorCode::InvalidProducerEpoch,
                RDKafkaErrorCode::TransactionalIdAuthorizationFailed,
            ]
            .contains(&error.code()),
            KafkaError::MessageProduction(code) => [
                RDKafkaErrorCode::MessageSizeTooLarge,
                RDKafkaErrorCode::InvalidMessageSize,
                RDKafkaErrorCode::Fenced,
            ]
            .contains(code),
            _ => false,
        };
        if lasting {
            let failed = self.broker.failed(what, error);
            return Failure::Lasting(failed.hint(format!("its transactional id is {}", self.id)));
        }
        Failure::Passing(format!("cannot {what} topic {}: {error}", self.broker.topic))
    }

    /// The last delivery that was committed.
    fn marker(&self, open: &Open) -> Result<Option<Name>, Failure> {
        let failure = |error| self.failure("read what was written to", &error);
        let mut asked = TopicPartitionList::new();
        asked.add_partition(&self.broker.topic, 0);
        let found = open.group.committed_offsets(asked, CALL).map_err(failure)?;
        let Some(found) = found.find_partition(&self.broker.topic, 0) else { return Ok(None) };
        found.error().map_err(failure)?;
        Ok(match found.offset() {
            Offset::Offset(number) => Some(Name { run: found.metadata().to_owned(), number: number as u64 }),
            _ => None,
        })
    }

    /// Passes a message to the producer when it has room.
    fn put(
        &self,
        producer: &BaseProducer<Context>,
        record: BaseRecord<'_, [u8], [u8]>,
    ) -> Result<(), Failure> {
        let mut record = Some(record);
        let began = Instant::now();
        while let Some(one) = record.take() {
            match producer.send(one) {
                Ok(()) => {}
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    if began.elapsed() >= CALL * 3 {
                        return Err(Failure::Passing("no message was taken".to_owned()));
                    }
                    producer.poll(Duration::from_millis(20));
                    record = Some(back);
                }
                Err((error, _)) => return Err(self.failure("write to", &error)),
            }
        }
        Ok(())
    }
}

impl Deliver for Transactions {
    fn connect(&mut self) -> Result<Option<Name>, Failure> {
        self.open = None;
        let failure = |error| self.failure("begin to write to", &error);
        let own = [("transactional.id", self.id.as_str()), ("partitioner", "murmur2_random")];
        let context = Context::of(&self.outage);
        let producer: BaseProducer<Context> =
            self.broker.client(&own).create_with_context(context).map_err(failure)?;
        let own = [
            ("group.id", self.id.as_str()),
            ("enable.auto.commit", "false"),
            // So that a position of an unfinished transaction is not read.
            ("isolation.level", "read_committed"),
        ];
        let context = Context::of(&self.outage);
        let group: BaseConsumer<Context> =
            self.broker.client(&own).create_with_context(context).map_err(failure)?;
        producer.init_transactions(CALL).map_err(failure)?;
        let open = Open { producer, group };
        let marker = self.marker(&open)?;
        self.open = Some(open);
        Ok(marker)
    }

    fn deliver(&mut self, name: &Name, _: Option<&Name>, chunks: &[Vec<u8>]) -> Result<(), Failure> {
        let Some(Open { producer, group }) = &self.open else {
            return Err(Failure::Passing("the connection is gone".to_owned()));
        };
        let failure = |error| self.failure("write to", &error);
        producer.begin_transaction().map_err(failure)?;
        for chunk in chunks {
            for message in messages(chunk) {
                let (key, value) = message.map_err(Failure::Lasting)?;
                let mut record = BaseRecord::<[u8], [u8]>::to(&self.broker.topic);
                record.key = key;
                record.payload = value;
                self.put(producer, record)?;
            }
            producer.poll(Duration::ZERO);
        }
        // With partition 0 of the topic itself, which exists whenever the topic does.
        let mut marker = TopicPartitionList::new();
        marker
            .add_partition_offset(&self.broker.topic, 0, Offset::Offset(name.number as i64))
            .map_err(failure)?;
        if let Some(mut marker) = marker.find_partition(&self.broker.topic, 0) {
            marker.set_metadata(&name.run);
        }
        let group = group.group_metadata();
        let group = group.ok_or_else(|| Failure::Passing("the client has no group".to_owned()))?;
        producer.send_offsets_to_transaction(&marker, &group, CALL).map_err(failure)?;
        // It flushes, and fails if a message was not delivered.
        producer.commit_transaction(CALL * 3).map_err(failure)
    }

    fn disconnect(&mut self) {
        self.open = None;
    }

    fn failed(&self, what: &str) -> Error {
        self.broker.failed("write to", what).hint(format!("its transactional id is {}", self.id))
    }

    fn whom(&self) -> (String, String) {
        (self.broker.table.clone(), self.broker.servers.clone())
    }
}
