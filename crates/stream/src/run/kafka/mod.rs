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
//! | `scan.*` | of sources: see [`source`] |
//! | `sink.*` | of sinks: see [`transactions`] and [`producing`] |

mod broker;
mod encoding;
mod producing;
mod source;
mod transactions;

pub use self::source::Log;

use self::broker::Broker;
use self::transactions::Transactions;
use super::outbox::{Outage, Outbox, guarantee};
use super::records::Place;
use super::row_sink::RowSink;
use crate::catalog::Table;
use crate::error::{Error, Result};

/// Opens a sink.
pub fn sink(table: &Table, number: usize, place: Place<'_>) -> Result<Box<dyn RowSink>> {
    let broker = Broker::of(table)?;
    let encoding = encoding::Encoding::of(table)?;
    if let Some(partitioner) = table.options.get("sink.partitioner").filter(|name| *name != "default") {
        return Err(Error::unsupported(format!("'sink.partitioner' = '{partitioner}' of `{}`", table.name))
            .hint("supported: 'default', which partitions by the key, as Kafka does"));
    }
    let exactly = guarantee(table, place)?.unwrap_or(place.job.is_some());
    match place.job {
        Some(job) if exactly => {
            let prefix = table.options.get("sink.transactional-id-prefix").map_or("duramen", String::as_str);
            let id = format!("{prefix}-{job}-{number}");
            let outage = Outage::default();
            let transactions = Transactions::new(broker, id, outage.clone());
            Ok(Box::new(Outbox::new(transactions, Box::new(encoding), outage, number, place)))
        }
        _ => Ok(Box::new(producing::Producing::open(broker, encoding)?)),
    }
}
