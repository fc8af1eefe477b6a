//! `redis`: keys of a running server.

mod exactly_once;
mod lookup;
mod sink;

use super::client::{HOSTNAME, PASSWORD, PORT, TLS, TLS_AUTHORITIES, TLS_CERTIFICATE, TLS_KEY, USERNAME};
use super::keyed::{self, DATABASE, KEY, LOOKUP_REFRESH, VALUE};
use super::registration::Registration;
use crate::catalog::options::Kind::Choice;
use crate::catalog::options::{Declared, option};
use crate::catalog::{Connector, SinkKind, Table};

const GUARANTEE: Declared = option(
    "sink.delivery-guarantee",
    Choice(&["exactly-once", "at-least-once", "none"]),
    "at-least-once",
    "`exactly-once` writes after each checkpoint, in one transaction, and needs a job with a store",
);

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "redis",
    purpose: "Keys of a running Redis or Duramen server. Writes the newest row of each primary key. Reads rows in \
        lookup joins.",
    example: "CREATE TABLE total (product STRING, orders BIGINT, PRIMARY KEY (product) NOT ENFORCED) WITH (
  'connector' = 'redis',
  'hostname' = '127.0.0.1',
  'port' = '6379',
  'key' = 'total')",
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
        KEY,
        VALUE,
        LOOKUP_REFRESH,
        GUARANTEE,
    ],
    source: false,
    sink: Some(SinkKind::Upsert),
    lookup: true,
    format: false,
    written: Some(written),
};

/// Its place in the registry.
pub const REGISTRATION: Registration =
    Registration::new(&CONNECTOR, None, Some(sink::open), Some(lookup::open));

fn written(table: &Table) -> String {
    let option = |name: &str, default: &'static str| table.options.get(name).map_or(default, String::as_str);
    format!("{} of {}:{}", keyed::written(table), option("hostname", "127.0.0.1"), option("port", "6379"))
}
