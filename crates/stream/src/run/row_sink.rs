//! The interface of sinks.

use std::collections::BTreeMap;

use duramen::{IndexKind, Store, Table, Writer};
use duramen_structures::{DATABASES_MAX, Keyspace, Locks, Txn, Type, Worker};
use serde_json::Value;
use serde_json::value::RawValue;

use super::claim::{Claim, Strangers, keys_tables};
use super::clock::now;
use crate::compile::Output;
use crate::error::{Error, Result};
use crate::function::json::compact;

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Fields and their values.
    Hash(Vec<(String, String)>),
    /// A string.
    Text(String),
}

impl Content {
    /// Its bytes in memory, roughly.
    pub fn bytes(&self) -> usize {
        match self {
            Content::Hash(fields) => fields.iter().map(|(name, value)| name.len() + value.len() + 64).sum(),
            Content::Text(text) => text.len(),
        }
    }

    /// The fields; a string is parsed as a JSON object.
    pub fn fields(&self) -> Result<Vec<(String, String)>> {
        let text = match self {
            Content::Hash(fields) => return Ok(fields.clone()),
            Content::Text(text) => text,
        };
        let wrong = |error| Error::invalid(format!("no JSON ({error})"), "an object, or a hash");
        let object: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(wrong)?;
        let field = |(name, value): (String, &RawValue)| match value.get() {
            "null" => None,
            text if text.starts_with('"') => Some(serde_json::from_str(text).map(|text| (name, text))),
            // Numbers keep their digits.
            text => Some(Ok((name, compact(text).into_owned()))),
        };
        object.into_iter().filter_map(field).collect::<Result<_, _>>().map_err(wrong)
    }
}

/// The sink of a running job. Only one thread uses it at a time.
pub trait RowSink: Output + Send {
    /// Ends the part of a checkpoint: later rows belong to the next one. Returns what must be known after a crash, and
    /// the participant in the commit.
    fn end_part(&mut self) -> Result<(Value, Option<Box<dyn CommitParticipant>>)> {
        Ok((Value::Null, None))
    }

    /// Finds existing data at its places that is not the job's. It changes nothing.
    fn look(&mut self, job_store: &mut JobStore, claim: &Claim, strangers: &mut Strangers) -> Result<()> {
        let _ = (job_store, claim, strangers);
        Ok(())
    }

    /// Resumes from a checkpoint of this sink, or starts if there is none: what a crash left is published or deleted.
    /// `epoch` is the number of the checkpoint to which rows taken now will belong.
    fn recover(
        &mut self,
        part: Option<&Value>,
        epoch: u64,
        job_store: &mut JobStore,
        claim: &Claim,
    ) -> Result<()> {
        let _ = (part, epoch, job_store, claim);
        Ok(())
    }

    /// All sources are finite.
    fn input_ends(&mut self) {}

    /// Whether a crash left something that [`RowSink::publish_left`] must publish.
    fn is_unpublished(&self) -> bool {
        false
    }

    /// Tries once to publish what a crash left, before any row is taken; returns whether that is done.
    fn publish_left(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Whether so much waits for a checkpoint that one must be made before more is read.
    fn is_full(&self) -> bool {
        false
    }

    /// What it waits for, if it has waited for a while.
    fn waits(&self) -> Option<String> {
        None
    }

    /// The job is being stopped: waits for other systems must be short.
    fn stop(&mut self) {}

    /// Writes everything out. No checkpoint follows.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A sink's part of one checkpoint, for its commit.
pub trait CommitParticipant: Send {
    /// Makes the part durable; its writes to the store belong to the checkpoint.
    fn prepare(&mut self, job_store: &mut JobStore) -> Result<()>;

    /// Publishes the part after the checkpoint is committed. After a crash, [`RowSink::recover`] does this again.
    fn publish(&mut self) -> Result<()>;
}

/// Writes to a job's store, from one thread.
pub struct JobStore {
    store: Store,
    /// For tables of the engine.
    pub writer: Writer,
    /// For Redis keys, once they are used.
    keys: Option<(Keyspace, Worker)>,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::connector(format!("cannot write to the job's store: {error}"))
}

impl JobStore {
    /// The store, for writes of this thread.
    pub fn new(store: &Store) -> Result<JobStore> {
        Ok(JobStore { store: store.clone(), writer: store.writer().map_err(failed)?, keys: None })
    }

    /// Replaces all records of a table of the job's store by these, numbered in order.
    pub fn replace(&mut self, table: &str, records: &[Vec<u8>]) -> Result<()> {
        let table = self.store.table(table.as_bytes(), IndexKind::Hash).map_err(failed)?;
        let mut number = records.len() as u32;
        while table.get(number.to_be_bytes()).map_err(failed)?.is_some() {
            self.writer.table(&table).delete(number.to_be_bytes()).map_err(failed)?;
            number += 1;
        }
        for (number, record) in (0u32..).zip(records) {
            self.writer.table(&table).put(number.to_be_bytes(), record).map_err(failed)?;
        }
        Ok(())
    }

    /// The first `count` records of a table of the job's store.
    pub fn records(&self, table: &str, count: usize) -> Result<Vec<Vec<u8>>> {
        let found = self.store.find_table(table.as_bytes()).map_err(failed)?;
        let record = |number: usize| {
            let found = match &found {
                Some(table) => table.get((number as u32).to_be_bytes()).map_err(failed)?,
                None => None,
            };
            found.map(|bytes| bytes.to_vec()).ok_or_else(|| {
                Error::connector(format!("record {number} of {count} is not in `{table}` of the job's store"))
            })
        };
        (0..count).map(record).collect()
    }

    fn keys(&mut self) -> Result<&mut (Keyspace, Worker)> {
        let keys = match self.keys.take() {
            Some(keys) => keys,
            None => {
                let keyspace = Keyspace::open(self.store.clone(), DATABASES_MAX).map_err(failed)?;
                let worker = keyspace.worker().map_err(failed)?;
                (keyspace, worker)
            }
        };
        Ok(self.keys.insert(keys))
    }

    /// Applies `change` to a key.
    fn change(
        &mut self,
        key: &[u8],
        change: impl FnMut(&mut Txn<'_>) -> duramen_structures::Result<()>,
    ) -> Result<()> {
        let (_, worker) = self.keys()?;
        worker
            .run::<_, duramen_structures::Error>(now() as u64 / 1000, Locks::One(key), change)
            .map_err(failed)
    }

    /// Sets the value of a key to a hash of these fields, of which there is at least one.
    pub fn put_hash(&mut self, database: u8, key: &[u8], fields: &[(String, String)]) -> Result<()> {
        let pairs: Vec<(&[u8], &[u8])> =
            fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        self.change(key, |txn| txn.put_hash(database, key, &pairs))
    }

    /// Sets the value of a key to a string.
    pub fn put_string(&mut self, database: u8, key: &[u8], text: &[u8]) -> Result<()> {
        self.change(key, |txn| txn.put(database, key, text))
    }

    /// Deletes a key.
    pub fn delete(&mut self, database: u8, key: &[u8]) -> Result<()> {
        self.change(key, |txn| txn.delete(database, key).map(|_| ()))
    }

    /// The keys with this prefix, in order, and whether each is a hash.
    pub fn with_prefix(&mut self, database: u8, prefix: &[u8]) -> Result<Vec<(Vec<u8>, bool)>> {
        let mut found = Vec::new();
        if let Some(table) = self.keys()?.0.table(database) {
            table
                .for_each(|value| {
                    if value.key().starts_with(prefix) {
                        found.push((value.key().to_vec(), value.tag() == Type::Hash.tag()));
                    }
                })
                .map_err(failed)?;
        }
        found.sort();
        Ok(found)
    }

    /// A table of the job's store, created if it does not exist.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.store.table(name.as_bytes(), IndexKind::Hash).map_err(failed)
    }

    /// The tables of the job's store with the keys that the job has written.
    pub fn keys_tables(&self, job: &str) -> Result<Vec<Table>> {
        keys_tables(&self.store, job)
    }

    /// Whether a table has this entry.
    pub fn has(&self, table: &Table, key: &[u8]) -> Result<bool> {
        table.get(key).map(|found| found.is_some()).map_err(failed)
    }

    /// Adds this entry to a table.
    pub fn enter(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.writer.table(table).put(key, b"").map(|_| ()).map_err(failed)
    }

    /// Removes this entry from a table.
    pub fn take_out(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.writer.table(table).delete(key).map(|_| ()).map_err(failed)
    }

    /// All entries of a table.
    pub fn entries(&self, table: &Table) -> Result<Vec<Vec<u8>>> {
        let mut entries = Vec::new();
        table.for_each(|value| entries.push(value.key().to_vec())).map_err(failed)?;
        Ok(entries)
    }

    /// Whether a key exists.
    pub fn exists(&mut self, database: u8, key: &[u8]) -> Result<bool> {
        let (_, worker) = self.keys()?;
        worker.begin_on(now() as u64 / 1000, Locks::One(key)).exists(database, key).map_err(failed)
    }

    /// The keys with this prefix, and their values.
    pub fn kept(&mut self, database: u8, prefix: &[u8]) -> Result<Vec<(String, Content)>> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let found = self.with_prefix(database, prefix)?;
        let (_, worker) = self.keys()?;
        let mut kept = Vec::new();
        for (key, is_hash) in found {
            let mut txn = worker.begin_on(now() as u64 / 1000, Locks::One(&key));
            let of_key = |error| Error::connector(format!("key {}: {error}", text(&key)));
            let content = if is_hash {
                let Some(hash) = txn.hash(database, &key).map_err(of_key)? else { continue };
                let pairs = hash.pairs().map_err(of_key)?;
                Content::Hash(pairs.into_iter().map(|(name, value)| (text(name), text(value))).collect())
            } else {
                match txn.get_string(database, &key).map_err(of_key)? {
                    Some(value) => Content::Text(text(&value)),
                    None => continue,
                }
            };
            kept.push((text(&key), content));
        }
        Ok(kept)
    }
}
