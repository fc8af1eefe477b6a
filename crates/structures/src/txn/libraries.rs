//! Libraries of functions: one value in a table of its own, which no command on keys reaches.

use super::Txn;
use crate::error::Result;
use crate::keyspace::LIBRARIES;
use crate::locks::Keys;

impl Txn<'_> {
    /// The libraries of functions, as [`dump::functions`](crate::dump::functions) writes them; all of them are one value, so
    /// that a change of several is one too. `None`, and the transaction begins again, where their key is another worker's.
    pub fn libraries(&mut self) -> Result<Option<Vec<u8>>> {
        if !self.is_alone() {
            let mut key = Keys::default();
            key.add(LIBRARIES);
            // They may be large, and a large value is read under its lock.
            if !self.name_more(&key) {
                self.name_all();
                return Ok(None);
            }
        }
        let db = self.worker.keyspace.functions();
        Ok(Some(self.get(db, LIBRARIES)?.map(|found| found.to_vec()).unwrap_or_default()))
    }

    /// Replaces the libraries of functions. For a transaction that is alone.
    pub fn put_libraries(&mut self, body: &[u8]) -> Result<()> {
        debug_assert!(self.is_alone(), "libraries change while nobody runs their functions");
        let db = self.worker.keyspace.functions();
        self.put(db, LIBRARIES, body)
    }
}
