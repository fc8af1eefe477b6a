//! The names of a store's tables, in DRAM: see [`crate::api::tables`].

use crate::Result;
use crate::records::Records;
use crate::table::tables::Named;
use crate::writer::WriterState;
use duramen_log::format::Owner;
use duramen_log::sync::{Arc, Mutex, MutexGuard, lock, rank};
use duramen_media::Medium;
use std::collections::BTreeMap;

/// The names of a store's tables.
pub(crate) struct Catalog {
    /// Held for a lookup, or for the final step of a change.
    tables: Mutex<BTreeMap<Vec<u8>, Arc<Named>>>,
    /// Writes to the catalog. A thread that creates, clears, drops or swaps tables holds it meanwhile, one at a time.
    writer_state: Mutex<WriterState, { rank::CATALOG }>,
}

impl Catalog {
    /// With the names that recovery found.
    pub(crate) fn new<M: Medium>(records: &Records<M>, names: Vec<(Vec<u8>, Owner)>) -> Result<Self> {
        let mut tables = BTreeMap::new();
        for (name, owner) in names {
            // A table without any record yet has no index.
            let table = records.tables.get_or_insert(owner, |_| {});
            tables.insert(name.clone(), Arc::new(Named::new(name, Some(table))));
        }
        let writer_state = WriterState::new(records.log.epochs()).passing_barrier();
        Ok(Self { tables: Mutex::new(tables), writer_state: Mutex::new(writer_state) })
    }

    /// The table of this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<Named>> {
        lock(&self.tables).get(name).cloned()
    }

    /// As `find`, for a caller of the store: waits for a change of names under way, so that nobody sees it before it is
    /// durable. A thread that holds keys does not wait, since a change of names may wait for those keys.
    pub(crate) fn find_durable<M: Medium>(&self, records: &Records<M>, name: &[u8]) -> Option<Arc<Named>> {
        let _writer_state =
            WriterState::check_unlocked(records, "look up a table").is_ok().then(|| lock(&self.writer_state));
        self.find(name)
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Named>> {
        lock(&self.tables).values().cloned().collect()
    }

    /// Points the name to this table, or to none. The caller holds the writer state.
    pub(crate) fn set(&self, name: &[u8], named: Option<Arc<Named>>) {
        let mut tables = lock(&self.tables);
        match named {
            Some(named) => tables.insert(name.to_vec(), named),
            None => tables.remove(name),
        };
    }

    /// Locks the catalog for a change. That waits for space, for the stripe of a name, and for commits.
    ///
    /// # Errors
    /// `InvalidInput`: this thread holds keys, and the holder of the catalog may wait for one of them.
    pub(crate) fn writer_state<M: Medium>(
        &self,
        records: &Records<M>,
        attempted: &str,
    ) -> Result<MutexGuard<'_, WriterState, { rank::CATALOG }>> {
        WriterState::check_unlocked(records, attempted)?;
        Ok(lock(&self.writer_state))
    }

    /// Releases its writer state, at close.
    pub(crate) fn end<M: Medium>(&self, records: &Records<M>) {
        lock(&self.writer_state).end(records);
    }
}
