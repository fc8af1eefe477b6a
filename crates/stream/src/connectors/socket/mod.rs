//! Sockets: records as lines, over TCP or Unix sockets.
//!
//! | options | are |
//! |---|---|
//! | `hostname`, `port` | where to connect, or to listen (`hostname` is 127.0.0.1 if it is not given) |
//! | `path` | the same for a Unix socket |
//! | `mode` | `connect` (default): the input ends with the connection. `listen`: others connect, any number of them, and the input never ends |
//!
//! Peers of a listening socket are read in turn. Their unfinished records together are bounded, see
//! `source.rs`.
//!
//! Data from a socket cannot be read again: a crash loses the rows read since the last checkpoint.

mod sink;
mod source;
mod stream;

use super::registration::Registration;
use crate::catalog::options::Kind::{Choice, Name, Number};
use crate::catalog::options::{DEAD_LETTER, IDLE, option};
use crate::catalog::{Connector, SinkKind};

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "socket",
    purpose: "Lines over TCP or a Unix socket. A source connects or listens; with `listen` a connection that sends an \
        unreadable record is closed and reported. A sink connects.",
    example: "CREATE TABLE orders (product STRING, pieces INT) WITH (
  'connector' = 'socket',
  'mode' = 'listen',
  'port' = '9000',
  'format' = 'json')",
    options: &[
        option("hostname", Name, "127.0.0.1", "where to connect, or to listen"),
        option("port", Number, "(none)", "the port of TCP; or else `path`"),
        option("path", Name, "(none)", "a Unix socket"),
        option(
            "mode",
            Choice(&["connect", "listen"]),
            "connect",
            "`connect`: the input ends with the connection; `listen`: clients connect, and the input never ends",
        ),
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
pub const REGISTRATION: Registration = Registration::new(
    &CONNECTOR,
    Some(|table, source, place| Ok(Box::new(source::Lines::open(table, source, place)?))),
    Some(|sink, _, place| Ok(Box::new(sink::Sender::open(&sink.table, place)?))),
    None,
);
