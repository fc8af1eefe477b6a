//! What the registry knows of a connector.

use std::sync::Arc;

use duramen::Store;

use crate::catalog::{Connector, Table};
use crate::compile::Source;
use crate::error::Result;
use crate::plan::Sink;
use crate::run::records::Place;
use crate::run::row_sink::{Content, RowSink};
use crate::run::row_source::RowSource;

/// Opens the source of a table. The [`Source`] has the columns to read.
pub type OpenSource = fn(&Table, &Source, Place<'_>) -> Result<Box<dyn RowSource>>;
/// Opens a sink. The number is that of the sink in its job.
pub type OpenSink = fn(&Sink, usize, Place<'_>) -> Result<Box<dyn RowSink>>;
/// Opens the keys of a lookup table; the store is that of the job, if it has one.
pub type OpenLookup = fn(&Arc<Table>, Option<&Store>) -> Result<Box<dyn KeyReader>>;

/// Reads the keys of a lookup table.
pub trait KeyReader {
    /// All keys with this prefix, and their values: JSON texts, or else hashes.
    fn read(&mut self, database: u8, prefix: &str, json: bool) -> Result<Vec<(String, Content)>>;
}

/// A connector: what it declares, and how its parts are opened.
pub struct Registration {
    /// Its name, options and capabilities.
    pub declared: &'static Connector,
    /// Opens its sources.
    pub source: Option<OpenSource>,
    /// Opens its sinks.
    pub sink: Option<OpenSink>,
    /// Opens its lookup tables.
    pub lookup: Option<OpenLookup>,
}

impl Registration {
    /// The compiler refuses a connector that declares other capabilities than it has.
    pub const fn new(
        declared: &'static Connector,
        source: Option<OpenSource>,
        sink: Option<OpenSink>,
        lookup: Option<OpenLookup>,
    ) -> Registration {
        assert!(declared.source == source.is_some());
        assert!(declared.sink.is_some() == sink.is_some());
        assert!(declared.lookup == lookup.is_some());
        Registration { declared, source, sink, lookup }
    }
}
