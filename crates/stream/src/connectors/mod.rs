//! The connectors of tables. A new one is a file or a folder here, and a line in [`ALL`].
//!
//! | sink | in a job with checkpoints |
//! |---|---|
//! | `filesystem` | exactly once: parts of a directory, each renamed when the checkpoint that names it is committed |
//! | `duramen` | exactly once: keys of the job's store are written in the checkpoint |
//! | `redis` with `'sink.delivery-guarantee' = 'exactly-once'` | exactly once: a transaction after each checkpoint |
//! | `redis` | at least once; writing the same rows again under the same keys gives the same result |
//! | `redis-stream`, `socket` | at least once: written at once, and again for rows read since the last checkpoint |
//! | `kafka`, `upsert-kafka` | exactly once: a transaction after each checkpoint, whose rows are in the checkpoint |
//! | `print`, `blackhole` | at least once: written at once, and again for rows read since the last checkpoint |

mod blackhole;
mod client;
mod datagen;
mod duramen;
mod filesystem;
mod kafka;
pub(crate) mod keyed;
pub mod nexmark;
mod print;
mod redis;
mod redis_stream;
pub(crate) mod registration;
mod socket;
mod upsert_kafka;

use std::sync::Arc;

use ::duramen::Store;

use self::registration::{KeyReader, Registration};
use crate::catalog::{Connector, Table};
use crate::compile::Source;
use crate::error::{Error, Result};
use crate::plan::Sink;
use crate::run::records::Place;
use crate::run::row_sink::RowSink;
use crate::run::row_source::RowSource;

/// All connectors, by name.
const ALL: &[Registration] = &[
    blackhole::REGISTRATION,
    datagen::REGISTRATION,
    duramen::REGISTRATION,
    filesystem::REGISTRATION,
    kafka::REGISTRATION,
    nexmark::REGISTRATION,
    print::REGISTRATION,
    redis::REGISTRATION,
    redis_stream::REGISTRATION,
    socket::REGISTRATION,
    upsert_kafka::REGISTRATION,
];

/// What each declares.
pub(crate) fn declared() -> impl Iterator<Item = &'static Connector> + Clone {
    ALL.iter().map(|one| one.declared)
}

fn find(table: &Table) -> Option<&'static Registration> {
    ALL.iter().find(|one| one.declared.name == table.connector.name)
}

/// The error for a connector without this part.
fn unsupported(what: &str, table: &Table, has: impl Fn(&Registration) -> bool) -> Error {
    let names: Vec<&str> = ALL.iter().filter(|one| has(one)).map(|one| one.declared.name).collect();
    Error::unsupported(format!("{what} the connector '{}'", table.connector.name))
        .hint(format!("supported connectors: {}", names.join(", ")))
}

/// Opens the source of a table. `source` has the columns to read.
pub(crate) fn open_source(table: &Table, source: &Source, place: Place<'_>) -> Result<Box<dyn RowSource>> {
    match find(table).and_then(|one| one.source) {
        Some(open) => open(table, source, place),
        None => Err(unsupported("reading from", table, |one| one.source.is_some())),
    }
}

/// Opens a sink; `number` is that of the sink in its job.
pub(crate) fn open_sink(sink: &Sink, number: usize, place: Place<'_>) -> Result<Box<dyn RowSink>> {
    match find(&sink.table).and_then(|one| one.sink) {
        Some(open) => open(sink, number, place),
        None => Err(unsupported("writing to", &sink.table, |one| one.sink.is_some())),
    }
}

/// Opens a lookup table; `store` is that of the job.
pub(crate) fn open_lookup(table: &Arc<Table>, store: Option<&Store>) -> Result<Box<dyn KeyReader>> {
    match find(table).and_then(|one| one.lookup) {
        Some(open) => open(table, store),
        None => Err(unsupported("looking rows up in", table, |one| one.lookup.is_some())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connectors_are_in_the_order_of_their_names() {
        assert!(ALL.is_sorted_by_key(|one| one.declared.name));
    }

    #[test]
    fn the_default_of_an_option_is_one_of_its_values() {
        for one in declared().flat_map(|one| one.options) {
            assert!(one.has_possible_default(), "{one:?}");
        }
    }
}
