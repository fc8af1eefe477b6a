//! The names of a store's tables, in DRAM: see [`super::tables`].

use crate::Result;
use crate::format::Owner;
use crate::read::Records;
use crate::read::table::Named;
use crate::sync::{Arc, Mutex, lock};
use crate::write::Pen;
use duramen_media::Medium;
use std::collections::BTreeMap;

/// The names of a store's tables.
pub(super) struct Catalog(pub(super) Mutex<Names>);

pub(super) struct Names {
    pub(super) tables: BTreeMap<Vec<u8>, Arc<Named>>,
    /// Writes to the catalog.
    pub(super) pen: Pen,
}

impl Catalog {
    /// Of the names that recovery found.
    pub(super) fn new<M: Medium>(records: &Records<M>, names: Vec<(Vec<u8>, Owner)>) -> Result<Self> {
        let mut tables = BTreeMap::new();
        for (name, owner) in names {
            // One that had no record yet has no index.
            let table = records.tables.met(owner, |_| {});
            tables.insert(name.clone(), Arc::new(Named::new(name, Some(table))));
        }
        Ok(Self(Mutex::new(Names { tables, pen: Pen::new(records.log.epochs()).passing_gate() })))
    }

    /// Gives up what it writes with, at close.
    pub(super) fn end<M: Medium>(&self, records: &Records<M>) {
        lock(&self.0).pen.end(records);
    }
}
