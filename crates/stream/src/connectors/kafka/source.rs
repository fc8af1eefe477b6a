//! A topic as a source. The position is in the checkpoint, not in a consumer group.
//!
//! | option | is |
//! |---|---|
//! | `scan.startup.mode` | `earliest-offset`, `latest-offset`, `timestamp`, `specific-offsets`; by default `group-offsets`: of `properties.group.id` |
//! | `scan.startup.timestamp-millis` | the first moment, for `timestamp` |
//! | `scan.startup.specific-offsets` | `partition:0,offset:42;partition:1,offset:300` |
//! | `scan.bounded.mode` | `unbounded` (default), or `latest-offset`: what is there when the job starts is all |
//! | `scan.topic-partition-discovery.interval` | how often new partitions are looked for, `5 min` by default; `0` for never |
//!
//! Messages of several partitions are merged by their timestamps, as far as they have arrived. So a partition that is
//! read faster than another does not make the other's rows late. Only committed messages are read, unless
//! `'properties.isolation.level'` says otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, OwnedMessage};
use rdkafka::topic_partition_list::Offset;
use rdkafka::{Message, TopicPartitionList};
use serde_json::{Value, json};

use super::broker::{Broker, Context, place_of};
use super::encoding::Fields;
use crate::catalog::options::duration;
use crate::formats::{Format, Reading};
use crate::run::outbox::Outage;
use crate::run::records::{Place, Records};
use crate::run::row_source::{RowSource, place};

use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::Source;
use crate::error::{Error, Result};

/// How long the job's thread waits for a broker before it does other work.
const CALL: Duration = Duration::from_millis(1000);
/// How long to wait before asking a broker again that did not answer.
const REST: Duration = Duration::from_millis(500);

/// Where reading begins.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Startup {
    Earliest,
    Latest,
    /// Milliseconds since 1970.
    Time(i64),
    Offsets(BTreeMap<i32, i64>),
    Group,
}

impl Startup {
    fn of(table: &Table) -> Result<Startup> {
        let option = |name: &str| table.options.get(name).map(String::as_str);
        let wanted = |name: &str, wanted: &str| {
            let found = option(name).unwrap_or("nothing");
            Error::invalid(format!("{found} for '{name}' of `{}`", table.name), wanted.to_owned())
        };
        match option("scan.startup.mode").unwrap_or("group-offsets") {
            "earliest-offset" => Ok(Startup::Earliest),
            "latest-offset" => Ok(Startup::Latest),
            "group-offsets" if option("properties.group.id").is_some() => Ok(Startup::Group),
            "group-offsets" => Err(Error::invalid(
                format!("no option 'properties.group.id' for `{}`", table.name),
                "one, or another 'scan.startup.mode', such as 'earliest-offset'",
            )),
            "timestamp" => {
                let name = "scan.startup.timestamp-millis";
                let time = option(name).and_then(|text| text.parse().ok());
                time.map(Startup::Time).ok_or_else(|| wanted(name, "milliseconds since 1970"))
            }
            "specific-offsets" => {
                let name = "scan.startup.specific-offsets";
                let offsets = option(name).and_then(specific);
                offsets
                    .map(Startup::Offsets)
                    .ok_or_else(|| wanted(name, "partition:0,offset:42;partition:1,..."))
            }
            _ => Err(wanted(
                "scan.startup.mode",
                "'earliest-offset', 'latest-offset', 'group-offsets', 'timestamp' or 'specific-offsets'",
            )),
        }
    }
}

/// Offsets of partitions: `partition:0,offset:42;partition:1,offset:300`.
fn specific(text: &str) -> Option<BTreeMap<i32, i64>> {
    let one = |part: &str| {
        let (partition, offset) = part.split_once(',')?;
        let partition: i32 = partition.trim().strip_prefix("partition:")?.parse().ok()?;
        let offset: i64 = offset.trim().strip_prefix("offset:")?.parse().ok()?;
        (partition >= 0 && offset >= 0).then_some((partition, offset))
    };
    text.split(';').map(str::trim).filter(|part| !part.is_empty()).map(one).collect()
}

/// The position in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reached {
    /// The offset of the next message.
    next: i64,
    /// The offset at which reading ends.
    until: Option<i64>,
}

/// A partition that is being read.
struct Partition {
    queue: PartitionQueue<Context>,
    /// The next message.
    head: Option<OwnedMessage>,
    /// Whether the broker has no more messages for now.
    at_end: bool,
    /// Whether no more messages of it are wanted.
    ended: bool,
}

/// A consumer with its partitions.
struct Open {
    // Before the consumer, so that they are dropped first.
    partitions: BTreeMap<i32, Partition>,
    consumer: Arc<BaseConsumer<Context>>,
    /// When partitions were last looked for.
    looked: Instant,
}

/// A topic that is read.
pub struct Log {
    broker: Broker,
    startup: Startup,
    bounded: bool,
    discover: Option<Duration>,
    outage: Outage,
    tried: Option<Instant>,
    connecting: Option<BaseConsumer<Context>>,
    open: Option<Open>,
    /// The position in each partition; `None` until the beginnings are known.
    reached: Option<BTreeMap<i32, Reached>>,
    records: Records,
    key: Option<Reading>,
}

impl Log {
    /// The source of a table; it connects when it is first read.
    pub fn open(table: &Table, source: &Source, place: Place<'_>) -> Result<Log> {
        let broker = Broker::of(table)?;
        let fields = Fields::of(table)?;
        let bounded = match table.options.get("scan.bounded.mode").map(String::as_str) {
            None | Some("unbounded") => false,
            Some("latest-offset") => true,
            Some(other) => {
                return Err(Error::unsupported(format!(
                    "'scan.bounded.mode' = '{other}' of `{}`",
                    table.name
                ))
                .hint("supported: 'unbounded' and 'latest-offset'"));
            }
        };
        let interval = table.options.get("scan.topic-partition-discovery.interval");
        let interval = interval.map_or("5 min", String::as_str);
        let discover = duration(interval).ok_or_else(|| {
            Error::invalid(
                format!("'{interval}' as the interval of discovery of `{}`", table.name),
                "a time such as '5 min'",
            )
        })?;
        let key = match (fields.key_format, fields.except_key) {
            (Some(format), true) => Some(Reading::of_part(format, table, source, &fields.key)),
            _ => None,
        };
        let reading = Reading::of_part(Format::of(table)?, table, source, &fields.value);
        let log = Log {
            broker,
            startup: Startup::of(table)?,
            bounded,
            discover: (!discover.is_zero() && !bounded).then_some(discover),
            outage: Outage::default(),
            tried: None,
            connecting: None,
            open: None,
            reached: None,
            records: Records::with(reading, table, place)?,
            key,
        };
        // Wrong settings are reported now.
        log.consumer()?;
        Ok(log)
    }

    fn consumer(&self) -> Result<BaseConsumer<Context>> {
        let own = [
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("enable.partition.eof", "true"),
            // Missing messages are an error; the client must not skip them.
            ("auto.offset.reset", "error"),
        ];
        let mut config = self.broker.client(&own);
        if config.get("group.id").is_none() {
            // No offsets are ever committed to this group.
            config.set("group.id", "duramen");
        }
        config
            .create_with_context(Context::of(&self.outage))
            .map_err(|error| self.broker.failed("read", error))
    }

    /// Connects, and finds out where partitions begin; returns whether that is done.
    fn connect(&mut self) -> Result<bool> {
        if self.open.is_some() {
            return Ok(true);
        }
        if self.tried.is_some_and(|tried| tried.elapsed() < REST) {
            return Ok(false);
        }
        let consumer = match self.connecting.take() {
            Some(consumer) => consumer,
            None => self.consumer()?,
        };
        let found = self.find(&consumer);
        self.tried = Some(Instant::now());
        match found {
            Ok(reached) => {
                self.reached = Some(reached);
                let consumer = Arc::new(consumer);
                let mut open = Open { partitions: BTreeMap::new(), consumer, looked: Instant::now() };
                self.assign(&mut open)?;
                self.open = Some(open);
                self.outage.is_over();
                Ok(true)
            }
            Err(Missing::Passing(why)) => {
                // The client's errors say more than the timeout of a call.
                let _ = consumer.poll(Duration::ZERO);
                if !self.outage.is_there() || !why.is_empty() {
                    self.outage.is(why);
                }
                self.connecting = Some(consumer);
                Ok(false)
            }
            Err(Missing::Lasting(error)) => Err(error),
        }
    }

    /// The positions of all partitions: where reading stopped, or where they begin.
    fn find(&self, consumer: &BaseConsumer<Context>) -> Result<BTreeMap<i32, Reached>, Missing> {
        let topic = &self.broker.topic;
        let partitions = partitions(consumer, topic)?;
        let mut reached = self.reached.clone().unwrap_or_default();
        let new: Vec<i32> = partitions.into_iter().filter(|id| !reached.contains_key(id)).collect();
        let begun = self.reached.is_some();
        let mut asked = TopicPartitionList::new();
        for id in &new {
            asked.add_partition(topic, *id);
        }
        let asked = match &self.startup {
            Startup::Group if !begun => consumer.committed_offsets(asked, CALL)?,
            Startup::Time(time) if !begun => {
                asked.set_all_offsets(Offset::Offset(*time))?;
                consumer.offsets_for_times(asked, CALL)?
            }
            _ => asked,
        };
        for id in new {
            let (low, high) = consumer.fetch_watermarks(topic, id, CALL)?;
            let answer = || asked.find_partition(topic, id).map(|found| found.offset());
            let next = match &self.startup {
                // A partition that was created meanwhile is read from its beginning.
                _ if begun => low,
                Startup::Earliest => low,
                Startup::Latest => high,
                Startup::Time(_) => match answer() {
                    Some(Offset::Offset(offset)) => offset,
                    // No message is that recent.
                    _ => high,
                },
                Startup::Offsets(offsets) => {
                    *offsets.get(&id).ok_or_else(|| self.no_offset(id, "'scan.startup.specific-offsets'"))?
                }
                Startup::Group => match answer() {
                    Some(Offset::Offset(offset)) => offset,
                    _ => return Err(self.no_offset(id, "the consumer group")),
                },
            };
            reached.insert(id, Reached { next, until: self.bounded.then_some(high) });
        }
        Ok(reached)
    }

    fn no_offset(&self, partition: i32, place: &str) -> Missing {
        let error =
            self.broker.failed("read", format!("found no offset for partition {partition} in {place}"));
        Missing::Lasting(error.hint("'scan.startup.mode' = 'earliest-offset' reads from the beginning"))
    }

    /// Starts reading the partitions that are not being read.
    fn assign(&self, open: &mut Open) -> Result<()> {
        let failed = |error| self.broker.failed("read", error);
        let topic = &self.broker.topic;
        let mut new = TopicPartitionList::new();
        let reached = self.reached.iter().flatten();
        let reached: Vec<_> = reached.filter(|(id, _)| !open.partitions.contains_key(id)).collect();
        for (id, reached) in &reached {
            new.add_partition_offset(topic, **id, Offset::Offset(reached.next)).map_err(failed)?;
        }
        if new.count() == 0 {
            return Ok(());
        }
        // Split before anything is fetched, so that no message arrives in the consumer's own queue.
        for (id, reached) in reached {
            let queue = open.consumer.split_partition_queue(topic, *id);
            let queue = queue.ok_or_else(|| self.broker.failed("read", format!("no partition {id}")))?;
            let ended = reached.until.is_some_and(|until| reached.next >= until);
            open.partitions.insert(*id, Partition { queue, head: None, at_end: false, ended });
        }
        open.consumer.incremental_assign(&new).map_err(failed)
    }

    /// Looks for new partitions, if the interval has passed.
    fn discover(&mut self) -> Result<()> {
        let (Some(interval), Some(open)) = (self.discover, &self.open) else { return Ok(()) };
        if open.looked.elapsed() < interval {
            return Ok(());
        }
        let Some(mut open) = self.open.take() else { return Ok(()) };
        open.looked = Instant::now();
        let found = self.find(&open.consumer);
        if let Ok(reached) = found {
            self.reached = Some(reached);
            self.assign(&mut open)?;
        }
        self.open = Some(open);
        Ok(())
    }

    /// Handles the client's events; after an outage, asks whether the broker is reachable again.
    fn listen(&mut self) -> Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        // The context received the error too.
        if let Some(Ok(message)) = open.consumer.poll(Duration::ZERO) {
            return Err(self.broker.failed(
                "read",
                format!("found a message of an unassigned partition: {}", place_of(&message)),
            ));
        }
        if self.outage.is_there() && self.tried.is_none_or(|tried| tried.elapsed() >= REST) {
            if open.consumer.fetch_metadata(Some(&self.broker.topic), CALL / 5).is_ok() {
                self.outage.is_over();
            }
            self.tried = Some(Instant::now());
        }
        Ok(())
    }
}

/// The reason why something could not be found out.
enum Missing {
    Passing(String),
    Lasting(Error),
}

impl std::convert::From<KafkaError> for Missing {
    fn from(error: KafkaError) -> Missing {
        Missing::Passing(error.to_string())
    }
}

fn partitions(consumer: &BaseConsumer<Context>, topic: &str) -> Result<Vec<i32>, Missing> {
    let metadata = consumer.fetch_metadata(Some(topic), CALL)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let found = found.filter(|found| found.error().is_none() && !found.partitions().is_empty());
    let found = found.ok_or_else(|| Missing::Passing(format!("there is no topic {topic}")))?;
    Ok(found.partitions().iter().map(|partition| partition.id()).collect())
}

impl Partition {
    /// Gets the next message, if there is one.
    fn look(&mut self, broker: &Broker, outage: &Outage) -> Result<()> {
        while self.head.is_none() {
            let polled: Option<KafkaResult<BorrowedMessage<'_>>> = self.queue.poll(Duration::ZERO);
            match polled {
                None => return Ok(()),
                Some(Ok(message)) => {
                    self.head = Some(message.detach());
                    self.at_end = false;
                    if outage.is_there() {
                        outage.is_over();
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    self.at_end = true;
                    return Ok(());
                }
                Some(Err(error)) => match error.rdkafka_error_code() {
                    Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
                        let error = broker
                            .failed("read", format!("the next message was deleted from the topic: {error}"));
                        return Err(error.hint("--from-start reads the topic again"));
                    }
                    _ if matches!(error, KafkaError::MessageConsumptionFatal(_)) => {
                        return Err(broker.failed("read", error));
                    }
                    _ => outage.is(error.to_string()),
                },
            }
        }
        Ok(())
    }
}

/// The bytes of the messages of one batch.
const READ_BYTES: usize = 4 << 20;

impl RowSource for Log {
    fn read_rows(&mut self, batch: &mut Batch, rows: usize) -> Result<bool> {
        if !self.connect()? {
            return Ok(true);
        }
        self.discover()?;
        self.listen()?;
        let Log { open, reached, broker, outage, records, key, .. } = self;
        let (Some(open), Some(reached)) = (open, reached) else { return Ok(true) };
        for partition in open.partitions.values_mut().filter(|partition| !partition.ended) {
            partition.look(broker, outage)?;
        }
        let mut left = READ_BYTES;
        while batch.rows() < rows && left > 0 {
            let (mut first, mut waits, mut more) = (None, false, false);
            for (id, partition) in &mut open.partitions {
                if partition.ended {
                    continue;
                }
                if partition.head.is_none() && !partition.at_end {
                    partition.look(broker, outage)?;
                }
                let until = reached.get(id).and_then(|reached| reached.until);
                let over = |head: &OwnedMessage| until.is_some_and(|until| head.offset() >= until);
                if partition.head.as_ref().map_or(partition.at_end && until.is_some(), over) {
                    partition.ended = true;
                    continue;
                }
                more = true;
                match &partition.head {
                    Some(head) => {
                        let time = head.timestamp().to_millis().unwrap_or(-1);
                        first = first.min(Some((time, *id))).or(Some((time, *id)));
                    }
                    None => waits |= !partition.at_end,
                }
            }
            if !more {
                return Ok(false);
            }
            // Another partition may have an older message.
            let (Some((_, id)), false) = (first, waits) else { return Ok(true) };
            let message = open.partitions.get_mut(&id).and_then(|partition| partition.head.take());
            let Some(message) = message else { continue };
            if let Some(reached) = reached.get_mut(&id) {
                reached.next = message.offset() + 1;
            }
            let value = message.payload();
            left = left.saturating_sub(value.map_or(0, <[u8]>::len));
            let read = match (value, &mut *key) {
                (None, _) => Err(Error::connector("found a message without a value")),
                (Some(value), None) => records.read(value, batch),
                (Some(value), Some(key)) => both(key, records, &message, value, batch),
            };
            records.complete(read, value.unwrap_or_default(), batch, || place_of(&message))?;
        }
        Ok(true)
    }

    fn skipped(&self) -> u64 {
        self.records.skipped()
    }

    fn waits(&self) -> Option<String> {
        self.outage.report(&self.broker.table, &self.broker.servers)
    }

    fn position(&self) -> Value {
        let partitions = self.reached.as_ref().map(|reached| {
            let one = |(id, reached): (&i32, &Reached)| {
                (id.to_string(), json!({ "next": reached.next, "until": reached.until }))
            };
            reached.iter().map(one).collect::<serde_json::Map<String, Value>>()
        });
        json!({ "topic": self.broker.topic, "partitions": partitions, "skipped": self.records.skipped() })
    }

    fn seek(&mut self, position: &Value) -> Result<()> {
        self.records.set_skipped(place(position, "skipped")?);
        let topic = position["topic"].as_str().unwrap_or_default();
        if topic != self.broker.topic {
            let error = self.broker.failed("read", format!("found a checkpoint of topic {topic}"));
            return Err(error.hint("--from-start reads the topic again"));
        }
        self.reached = None;
        if let Some(partitions) = position["partitions"].as_object() {
            let mut reached = BTreeMap::new();
            for (id, found) in partitions {
                let id = id.parse().map_err(|_| {
                    Error::connector(format!(
                        "the checkpoint has a partition '{id}' in the position {position}"
                    ))
                })?;
                let next = place(found, "next")? as i64;
                reached.insert(id, Reached { next, until: found["until"].as_i64() });
            }
            self.reached = Some(reached);
        }
        Ok(())
    }

    fn letters(&mut self) -> Option<&mut Records> {
        Some(&mut self.records)
    }
}

/// Appends the columns of a message whose keys and values have different ones.
fn both(
    key: &mut Reading,
    records: &mut Records,
    message: &OwnedMessage,
    value: &[u8],
    batch: &mut Batch,
) -> Result<()> {
    let of_key = message.key().ok_or_else(|| Error::connector("found a message without a key"))?;
    key.message(of_key, batch)?;
    records.read(value, batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_partitions_are_parsed_and_other_texts_are_refused() {
        let found = specific("partition:0,offset:42; partition:1,offset:300;").unwrap();
        assert_eq!(found, BTreeMap::from([(0, 42), (1, 300)]));
        for wrong in
            ["0:42", "partition:0", "partition:0,offset:-1", "partition:x,offset:1", "offset:1,partition:0"]
        {
            assert_eq!(specific(wrong), None, "{wrong}");
        }
    }
}
