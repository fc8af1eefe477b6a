//! A sink whose messages are in the topic at least once: `'sink.delivery-guarantee' = 'at-least-once'`, the default in
//! a job without a store. Messages are sent at once; a checkpoint is complete only when all messages before it are
//! delivered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::Value;

use super::broker::{Broker, Context, lock};
use super::encoding::Encoding;
use crate::compile::{Output, Rows};
use crate::error::Result;
use crate::run::outbox::Outage;
use crate::run::row_sink::{CommitParticipant, JobStore, RowSink};

/// How long a job that is being stopped, or ends, waits for the broker.
const LAST: Duration = Duration::from_secs(30);

/// The sink.
pub struct Producing {
    encoding: Encoding,
    shared: Arc<Shared>,
}

/// The part that checkpoints use too.
struct Shared {
    broker: Broker,
    outage: Outage,
    producer: BaseProducer<Context>,
    stopping: AtomicBool,
    /// When the stop was first noticed.
    stopped: Mutex<Option<Instant>>,
}

impl Producing {
    /// A sink, which connects when it is first used.
    pub fn open(broker: Broker, encoding: Encoding) -> Result<Producing> {
        let outage = Outage::default();
        let own = [
            ("partitioner", "murmur2_random"),
            // Keeps the order, and no duplicates when the client retries.
            ("enable.idempotence", "true"),
            // Retries for ever.
            ("message.timeout.ms", "0"),
        ];
        let producer = broker.client(&own).create_with_context(Context::of(&outage));
        let producer = producer.map_err(|error| broker.failed("write to", error))?;
        let shared =
            Shared { broker, outage, producer, stopping: AtomicBool::new(false), stopped: Mutex::new(None) };
        Ok(Producing { encoding, shared: Arc::new(shared) })
    }
}

impl Drop for Producing {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Waits for messages on their way; an error if one was not delivered.
    fn wait(&self, time: Duration) -> Result<()> {
        self.producer.poll(time);
        if let Some(error) = lock(&self.producer.context().lost).take() {
            return Err(self.broker.failed("write to", error));
        }
        if self.stopping.load(Ordering::Relaxed)
            && lock(&self.stopped).get_or_insert_with(Instant::now).elapsed() >= LAST
        {
            return Err(self
                .broker
                .failed("write to", "it did not accept the remaining messages before the job stopped"));
        }
        Ok(())
    }

    fn send(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> Result<()> {
        loop {
            let mut record = BaseRecord::<[u8], [u8]>::to(&self.broker.topic);
            record.key = key;
            record.payload = value;
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    self.wait(Duration::from_millis(20))?;
                }
                Err((error, _)) => return Err(self.broker.failed("write to", error)),
            }
        }
    }

    fn flush(&self) -> Result<()> {
        while self.producer.in_flight_count() > 0 {
            self.wait(Duration::from_millis(20))?;
        }
        self.wait(Duration::ZERO)
    }
}

impl Output for Producing {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.encoding.each(rows, |key, value| self.shared.send(key, value))?;
        self.shared.wait(Duration::ZERO)
    }
}

impl RowSink for Producing {
    fn end_part(&mut self) -> Result<(Value, Option<Box<dyn CommitParticipant>>)> {
        Ok((Value::Null, Some(Box::new(Sent(self.shared.clone())))))
    }

    fn waits(&self) -> Option<String> {
        self.shared.outage.report(&self.shared.broker.table, &self.shared.broker.servers)
    }

    fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }

    fn end(&mut self) -> Result<()> {
        self.stop();
        self.shared.flush()
    }
}

/// The messages sent before a checkpoint.
struct Sent(Arc<Shared>);

impl CommitParticipant for Sent {
    fn prepare(&mut self, _: &mut JobStore) -> Result<()> {
        self.0.flush()
    }

    fn publish(&mut self) -> Result<()> {
        Ok(())
    }
}
