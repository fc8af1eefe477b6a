//! Redis streams: each entry is a row, and its fields are columns by name.
//!
//! | option | meaning |
//! |---|---|
//! | `stream` | the key, the table's name by default |
//! | `from` | the id after which to begin, `0` by default; `$` reads only new entries |
//! | `hostname`, `port`, `password`, `database` | the server |
//!
//! A source resumes from the id in the checkpoint, and never ends. A sink adds an entry for each row, at least once:
//! after a crash some entries repeat.

mod sink;
mod source;

use super::client::{
    Address, Client, HOSTNAME, PASSWORD, PORT, TLS, TLS_AUTHORITIES, TLS_CERTIFICATE, TLS_KEY, USERNAME,
};
use super::keyed::{DATABASE, database};
use super::registration::Registration;
use crate::catalog::options::Kind::{Flag, Name, Text};
use crate::catalog::options::{IDLE, option};
use crate::catalog::{Connector, SinkKind, Table};
use crate::error::Result;

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "redis-stream",
    purpose: "A stream of a Redis or Duramen server (XREAD, XADD). Each field of an entry is a column.",
    example: "CREATE TABLE orders (product STRING, pieces INT) WITH (
  'connector' = 'redis-stream',
  'hostname' = '127.0.0.1',
  'stream' = 'orders',
  'from' = '0')",
    options: &[
        HOSTNAME,
        PORT,
        USERNAME,
        PASSWORD,
        TLS,
        TLS_AUTHORITIES,
        TLS_CERTIFICATE,
        TLS_KEY,
        DATABASE,
        option("stream", Name, "(the table's name)", "the key of the stream"),
        option("from", Text, "0", "the id after which reading begins; `$` reads only new entries"),
        option("csv.ignore-parse-errors", Flag, "false", "skip and count entries that cannot be read"),
        option("json.ignore-parse-errors", Flag, "false", "the same"),
        IDLE,
    ],
    source: true,
    sink: Some(SinkKind::Append),
    lookup: false,
    format: false,
    written: None,
};

/// Its place in the registry.
pub const REGISTRATION: Registration = Registration::new(
    &CONNECTOR,
    Some(|table, source, _| Ok(Box::new(source::Entries::open(table, source)?))),
    Some(|sink, _, _| Ok(Box::new(sink::Adding::open(&sink.table)?))),
    None,
);

fn client(table: &Table) -> Result<(Client, String)> {
    let client = Client::new(Address::of(table)?, database(table)?);
    Ok((client, table.options.get("stream").unwrap_or(&table.name).clone()))
}
