//! Reads keys of the job's own store.

use std::sync::Arc;

use duramen::Store;

use crate::catalog::Table;
use crate::connectors::registration::KeyReader;
use crate::error::Result;
use crate::run::row_sink::{Content, JobStore};

pub fn open(table: &Arc<Table>, store: Option<&Store>) -> Result<Box<dyn KeyReader>> {
    match store {
        Some(store) => Ok(Box::new(Own(JobStore::new(store)?))),
        None => Err(super::without_store(table)),
    }
}

struct Own(JobStore);

impl KeyReader for Own {
    fn read(&mut self, database: u8, prefix: &str, _: bool) -> Result<Vec<(String, Content)>> {
        self.0.kept(database, prefix.as_bytes())
    }
}
