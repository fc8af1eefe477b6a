//! Kafka, by librdkafka. `docs/internals/decisions/030-kafka-transactions.md` shows why each row is in a topic exactly
//! once, whichever process is killed at whatever time.
//!
//! | option | is |
//! |---|---|
//! | `topic` | the topic |
//! | `properties.bootstrap.servers` | the brokers |
//! | `properties.*` | any other setting of librdkafka |
//! | `format`, `value.format` | how values are written: `csv`, `json` |
//! | `key.format`, `key.fields` | how keys are written, and the columns that they have: `a;b` |
//! | `value.fields-include` | `ALL` (default) columns are in the value, or `EXCEPT_KEY` |
//! | `scan.*` | of sources: see `source.rs` |
//! | `sink.*` | of sinks: see `transactions.rs` and `producing.rs` |

#[cfg(feature = "kafka")]
mod broker;
#[cfg(feature = "kafka")]
mod encoding;
#[cfg(feature = "kafka")]
mod producing;
#[cfg(feature = "kafka")]
mod sink;
#[cfg(feature = "kafka")]
mod source;
#[cfg(feature = "kafka")]
mod transactions;

use super::registration::{OpenSink, OpenSource, Registration};
use crate::catalog::options::Kind::{Choice, Name, Number, Text, Time};
use crate::catalog::options::{DEAD_LETTER, Declared, IDLE, REQUIRED, option};
use crate::catalog::{Connector, SinkKind};

/// An option of both connectors.
pub const TOPIC: Declared = option("topic", Name, REQUIRED, "the topic");

/// An option of both connectors.
pub const SERVERS: Declared = option("properties.bootstrap.servers", Name, REQUIRED, "its brokers");

/// An option of both connectors.
pub const PROPERTIES: Declared = option(
    "properties.*",
    Text,
    "(librdkafka's)",
    "any other librdkafka setting; sources read committed records unless `properties.isolation.level` is set",
);

/// An option of both connectors.
pub const KAFKA_GUARANTEE: Declared = option(
    "sink.delivery-guarantee",
    Choice(&["exactly-once", "at-least-once", "none"]),
    "(`exactly-once` in a job with a store)",
    "one transaction after each checkpoint, or send at once",
);

/// An option of both connectors.
pub const PREFIX: Declared =
    option("sink.transactional-id-prefix", Text, "duramen", "the prefix of transactional ids");

/// An option of both connectors.
pub const PARTITIONER: Declared =
    option("sink.partitioner", Choice(&["default"]), "default", "partition by the key, as Kafka does");

/// An option of both connectors.
pub const FIELDS_INCLUDE: Declared = option(
    "value.fields-include",
    Choice(&["ALL", "EXCEPT_KEY"]),
    "ALL",
    "whether the value repeats the columns of the key",
);

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "kafka",
    purpose: "A topic of Kafka, with `csv` or `json` for keys and values. Partitions are merged by the timestamps of \
        their messages. Needs the feature `kafka`.",
    example: "\
CREATE TABLE orders (product STRING, ts TIMESTAMP(3), pieces INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json')",
    options: &[
        TOPIC,
        SERVERS,
        option("properties.group.id", Text, "(none)", "the consumer group"),
        PROPERTIES,
        option("key.fields", Text, "(none)", "the columns of the key, as `a;b`; needs `key.format`"),
        FIELDS_INCLUDE,
        option(
            "scan.startup.mode",
            Choice(&[
                "group-offsets",
                "earliest-offset",
                "latest-offset",
                "timestamp",
                "specific-offsets",
            ]),
            "group-offsets",
            "where reading begins; `group-offsets` are the offsets of `properties.group.id`",
        ),
        option(
            "scan.startup.timestamp-millis",
            Number,
            "(none)",
            "the start in milliseconds since 1970, for `timestamp`",
        ),
        option(
            "scan.startup.specific-offsets",
            Text,
            "(none)",
            "the start per partition, as `partition:0,offset:42;partition:1,offset:300`, for `specific-offsets`",
        ),
        option(
            "scan.bounded.mode",
            Choice(&["unbounded", "latest-offset"]),
            "unbounded",
            "`latest-offset`: the job ends at the offsets that the topic had when the job started",
        ),
        option(
            "scan.topic-partition-discovery.interval",
            Time,
            "5 min",
            "how often the source looks for new partitions",
        ),
        KAFKA_GUARANTEE,
        PREFIX,
        PARTITIONER,
        DEAD_LETTER,
        IDLE,
    ],
    source: true,
    sink: Some(SinkKind::Append),
    lookup: false,
    format: true,
    written: None,
};

/// Its place in the registry.
pub const REGISTRATION: Registration =
    Registration::new(&CONNECTOR, Some(OPEN_SOURCE), Some(OPEN_SINK), None);

/// Opens sources.
#[cfg(feature = "kafka")]
const OPEN_SOURCE: OpenSource = |table, source, place| Ok(Box::new(source::Log::open(table, source, place)?));
#[cfg(not(feature = "kafka"))]
const OPEN_SOURCE: OpenSource = |table, _, _| Err(absent(table));

/// Opens sinks of both connectors.
#[cfg(feature = "kafka")]
pub const OPEN_SINK: OpenSink = sink::open;
#[cfg(not(feature = "kafka"))]
pub const OPEN_SINK: OpenSink = |sink, _, _| Err(absent(&sink.table));

/// The error for a connector that is not compiled into this program.
#[cfg(not(feature = "kafka"))]
fn absent(table: &crate::catalog::Table) -> crate::error::Error {
    let name = table.connector.name;
    crate::error::Error::unsupported(format!("the connector '{name}' of `{}` in this build", table.name))
        .hint("a build with the feature kafka has it: cargo build --release --features kafka")
}
