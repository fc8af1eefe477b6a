//! `upsert-kafka`: the newest row of each primary key, in a topic of Kafka.

use super::kafka::{
    FIELDS_INCLUDE, KAFKA_GUARANTEE, OPEN_SINK, PARTITIONER, PREFIX, PROPERTIES, SERVERS, TOPIC,
};
use super::registration::Registration;
use crate::catalog::{Connector, SinkKind};

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "upsert-kafka",
    purpose: "Writes the newest row of each primary key to a topic of Kafka, and a message without a value for a \
        deleted key. Needs the feature `kafka`.",
    example: "CREATE TABLE total (product STRING, orders BIGINT, PRIMARY KEY (product) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'totals',
  'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json',
  'value.format' = 'json')",
    options: &[TOPIC, SERVERS, PROPERTIES, FIELDS_INCLUDE, KAFKA_GUARANTEE, PREFIX, PARTITIONER],
    source: false,
    sink: Some(SinkKind::Upsert),
    lookup: false,
    format: true,
    written: None,
};

/// Its place in the registry.
pub const REGISTRATION: Registration = Registration::new(&CONNECTOR, None, Some(OPEN_SINK), None);
