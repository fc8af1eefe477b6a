//! `blackhole`: discards every change.

use super::registration::Registration;
use crate::catalog::{Connector, SinkKind};
use crate::compile::{Output, Rows};
use crate::error::Result;
use crate::run::row_sink::RowSink;

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "blackhole",
    purpose: "Discards every change. Use it to measure a query.",
    example: "CREATE TABLE nothing (product STRING, pieces INT) WITH ('connector' = 'blackhole')",
    options: &[],
    source: false,
    sink: Some(SinkKind::Retract),
    lookup: false,
    format: false,
    written: None,
};

/// Its place in the registry.
pub const REGISTRATION: Registration =
    Registration::new(&CONNECTOR, None, Some(|_, _, _| Ok(Box::new(Blackhole))), None);

struct Blackhole;

impl Output for Blackhole {
    fn take(&mut self, _: &Rows<'_>) -> Result<()> {
        Ok(())
    }
}

impl RowSink for Blackhole {}
