//! Writes keys of the job's own store, in the checkpoint.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::catalog::Table;
use crate::compile::{Output, Rows};
use crate::connectors::keyed::{Changed, KeyedSink};
use crate::error::{Error, Result};
use crate::plan::Sink;
use crate::run::claim::{Claim, Existing, Strangers, keys_table, owned, strangers_refused};
use crate::run::records::Place;
use crate::run::row_sink::{CommitParticipant, Content, JobStore, RowSink};

pub fn open(sink: &Sink, _: usize, place: Place<'_>) -> Result<Box<dyn RowSink>> {
    match place.job {
        Some(job) => Ok(Box::new(Own::open(&sink.table, job, place.existing)?)),
        None => Err(super::without_store(&sink.table)),
    }
}

/// When the newest rows take this many bytes, a checkpoint is made.
const FULL_BYTES: usize = 256 << 20;

/// A keyed sink in the job's own store. A separate table has the keys that the job has written: it never changes
/// others, unless an option says so.
pub struct Own {
    keyed: KeyedSink,
    job: String,
    /// The name of the table of its keys.
    owned: String,
    existing: Existing,
    changed: Changed,
}

impl Own {
    /// A sink of a job, a table of connector 'duramen'.
    pub fn open(table: &Table, job: &str, existing: Existing) -> Result<Own> {
        Ok(Own {
            keyed: KeyedSink::of(table)?,
            job: job.to_owned(),
            owned: keys_table(job, &table.name, false),
            existing,
            changed: Changed::default(),
        })
    }
}

impl Output for Own {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.changed.add(&self.keyed, rows)
    }
}

impl RowSink for Own {
    fn end_part(&mut self) -> Result<(Json, Option<Box<dyn CommitParticipant>>)> {
        let part = OwnPart {
            name: self.keyed.name().to_owned(),
            job: self.job.clone(),
            database: self.keyed.database(),
            owned: self.owned.clone(),
            existing: self.existing,
            changed: self.changed.take(),
        };
        Ok((Json::Null, Some(Box::new(part))))
    }

    fn is_full(&self) -> bool {
        self.changed.bytes() >= FULL_BYTES
    }

    fn look(&mut self, job_store: &mut JobStore, _: &Claim, strangers: &mut Strangers) -> Result<()> {
        let database = self.keyed.database();
        // Keys of a sink that now has another name belong to the job too.
        let own = job_store.keys_tables(&self.job)?;
        for (key, _) in job_store.with_prefix(database, self.keyed.prefix().as_bytes())? {
            let entry = owned(database, &key);
            let mut is_own = false;
            for table in &own {
                is_own |= job_store.has(table, &entry)?;
            }
            if self.keyed.is_key(&key) && !is_own {
                strangers.key(&self.owned, database, &key);
            }
        }
        Ok(())
    }
}

struct OwnPart {
    name: String,
    job: String,
    database: u8,
    owned: String,
    existing: Existing,
    changed: BTreeMap<String, Option<Content>>,
}

impl OwnPart {
    /// Writes a key, and records that it belongs to the job. Both take effect with the checkpoint.
    fn write(
        &self,
        job_store: &mut JobStore,
        own: &duramen::Table,
        key: &[u8],
        kept: Option<&Content>,
    ) -> Result<()> {
        let entry = owned(self.database, key);
        let is_own = job_store.has(own, &entry)?;
        let Some(kept) = kept else {
            if is_own {
                job_store.take_out(own, &entry)?;
                job_store.delete(self.database, key)?;
            }
            return Ok(());
        };
        if !is_own {
            if self.existing == Existing::Refuse && job_store.exists(self.database, key)? {
                let name = format!("key {} of database {}", String::from_utf8_lossy(key), self.database);
                return Err(strangers_refused(&self.job, 1, &[name]));
            }
            job_store.enter(own, &entry)?;
        }
        match kept {
            Content::Text(text) => job_store.put_string(self.database, key, text.as_bytes()),
            Content::Hash(fields) => job_store.put_hash(self.database, key, fields),
        }
    }
}

impl CommitParticipant for OwnPart {
    fn prepare(&mut self, job_store: &mut JobStore) -> Result<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let own = job_store.table(&self.owned)?;
        for (key, kept) in &self.changed {
            self.write(job_store, &own, key.as_bytes(), kept.as_ref())
                .map_err(|error| Error::connector(format!("cannot write `{}`: {error}", self.name)))?;
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        Ok(())
    }
}
