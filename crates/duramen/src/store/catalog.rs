//! The names of a store's tables, in DRAM: see [`super::tables`].

use crate::Result;
use crate::format::Owner;
use crate::read::Records;
use crate::read::table::Named;
use crate::sync::{Arc, Mutex, MutexGuard, lock, rank};
use crate::write::WriterState;
use duramen_media::Medium;
use std::collections::BTreeMap;

/// The names of a store's tables.
pub(super) struct Catalog {
    /// Held for a look, or to change it when all else is done.
    tables: Mutex<BTreeMap<Vec<u8>, Arc<Named>>>,
    /// Writes to the catalog. Who makes, clears, drops or swaps tables holds it meanwhile, one at a time.
    writer_state: Mutex<WriterState, { rank::CATALOG }>,
}

impl Catalog {
    /// Of the names that recovery found.
    pub(super) fn new<M: Medium>(records: &Records<M>, names: Vec<(Vec<u8>, Owner)>) -> Result<Self> {
        let mut tables = BTreeMap::new();
        for (name, owner) in names {
            // One that had no record yet has no index.
            let table = records.tables.get_or_insert(owner, |_| {});
            tables.insert(name.clone(), Arc::new(Named::new(name, Some(table))));
        }
        let writer_state = WriterState::new(records.log.epochs()).passing_barrier();
        Ok(Self { tables: Mutex::new(tables), writer_state: Mutex::new(writer_state) })
    }

    /// The table of this name.
    pub(super) fn find(&self, name: &[u8]) -> Option<Arc<Named>> {
        lock(&self.tables).get(name).cloned()
    }

    /// The same for a caller of the store: a change of names that is under way is waited for, so that nobody sees it before it is as
    /// durable as such a change becomes. A thread that holds keys does not wait: whoever changes names may wait for them.
    pub(super) fn find_durable<M: Medium>(&self, records: &Records<M>, name: &[u8]) -> Option<Arc<Named>> {
        let _writer_state =
            WriterState::check_unlocked(records, "look up a table").is_ok().then(|| lock(&self.writer_state));
        self.find(name)
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<Arc<Named>> {
        lock(&self.tables).values().cloned().collect()
    }

    /// The name points to this table from now on, or to none. For who has the writer state.
    pub(super) fn set(&self, name: &[u8], named: Option<Arc<Named>>) {
        let mut tables = lock(&self.tables);
        match named {
            Some(named) => tables.insert(name.to_vec(), named),
            None => tables.remove(name),
        };
    }

    /// To change the catalog, and nobody else does meanwhile. It waits for space, for the stripe of a name, and for commits.
    ///
    /// # Errors
    /// `InvalidInput`: this thread holds keys, for one of which whoever changes the catalog may wait.
    pub(super) fn writer_state<M: Medium>(
        &self,
        records: &Records<M>,
        attempted: &str,
    ) -> Result<MutexGuard<'_, WriterState, { rank::CATALOG }>> {
        WriterState::check_unlocked(records, attempted)?;
        Ok(lock(&self.writer_state))
    }

    /// Gives up what it writes with, at close.
    pub(super) fn end<M: Medium>(&self, records: &Records<M>) {
        lock(&self.writer_state).end(records);
    }
}
