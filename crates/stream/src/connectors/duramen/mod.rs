//! `duramen`: keys of the job's own store.

mod lookup;
mod sink;

use super::keyed::{DATABASE, KEY, LOOKUP_REFRESH, VALUE, written};
use super::registration::Registration;
use crate::catalog::{Connector, SinkKind, Table};
use crate::error::Error;

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "duramen",
    purpose: "Keys of the job's own store, of the server that runs the job, or of the server that `--attach` names. \
        Writes the newest row of each primary key, exactly once. Reads rows in lookup joins.",
    example: "CREATE TABLE total (product STRING, orders BIGINT, PRIMARY KEY (product) NOT ENFORCED) WITH (
  'connector' = 'duramen',
  'value' = 'json')",
    options: &[DATABASE, KEY, VALUE, LOOKUP_REFRESH],
    source: false,
    sink: Some(SinkKind::Upsert),
    lookup: true,
    format: false,
    written: Some(written),
};

/// Its place in the registry.
pub const REGISTRATION: Registration =
    Registration::new(&CONNECTOR, None, Some(sink::open), Some(lookup::open));

fn without_store(table: &Table) -> Error {
    Error::invalid(
        format!("`{}` of connector 'duramen' in a job without a store", table.name),
        "a store for the job: --store PATH",
    )
}
