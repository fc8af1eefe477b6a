//! Opens sinks.

use super::broker::Broker;
use super::encoding::Encoding;
use super::producing::Producing;
use super::transactions::Transactions;
use crate::error::{Error, Result};
use crate::plan::Sink;
use crate::run::outbox::{Outage, Outbox, guarantee};
use crate::run::records::Place;
use crate::run::row_sink::RowSink;

pub fn open(sink: &Sink, number: usize, place: Place<'_>) -> Result<Box<dyn RowSink>> {
    let table = &sink.table;
    let broker = Broker::of(table)?;
    let encoding = Encoding::of(table)?;
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
        _ => Ok(Box::new(Producing::open(broker, encoding)?)),
    }
}
