//! What sinks have in common.

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

/// What is kept under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Fields and their values.
    Hash(Vec<(String, String)>),
    /// A string.
    Text(String),
}

impl Content {
    /// The fields: a string is an object of JSON.
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

/// What a running job gives rows to. One thread at a time does.
pub trait RowSink: Output + Send {
    /// Ends what was taken for a checkpoint: what follows belongs to the next. Returns what is to be known after a
    /// crash, and what is to be done when the checkpoint is written.
    fn end_part(&mut self) -> Result<(Value, Option<Box<dyn CommitParticipant>>)> {
        Ok((Value::Null, None))
    }

    /// Finds what stands where it will write and is not the job's. It changes nothing.
    fn look(&mut self, job_store: &mut JobStore, claim: &Claim, strangers: &mut Strangers) -> Result<()> {
        let _ = (job_store, claim, strangers);
        Ok(())
    }

    /// Goes on behind a checkpoint of this sink, or from the start if there is none: what a crash left is published or
    /// deleted. `epoch` is the number of the checkpoint that what is taken now will belong to.
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

    /// All sources end by themselves.
    fn input_ends(&mut self) {}

    /// Whether something of a crash is left that [`RowSink::settle`] publishes.
    fn is_unsettled(&self) -> bool {
        false
    }

    /// Tries once to publish what a crash left, before anything is taken; whether that is done.
    fn settle(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Whether so much waits for a checkpoint that one shall be made before more is read.
    fn is_full(&self) -> bool {
        false
    }

    /// What it waits for, if it has waited a while.
    fn waits(&self) -> Option<String> {
        None
    }

    /// The job is being stopped: what waits for others does so no longer than needed.
    fn stop(&mut self) {}

    /// Sees to it that all is given. No checkpoint follows.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What was taken for one checkpoint.
pub trait CommitParticipant: Send {
    /// Makes it last; what is written to the store belongs to the checkpoint.
    fn prepare(&mut self, job_store: &mut JobStore) -> Result<()>;

    /// The checkpoint is committed. After a crash, [`RowSink::recover`] does this again.
    fn publish(&mut self) -> Result<()>;
}

/// What writes to a job's store, in one thread.
pub struct JobStore {
    store: Store,
    /// For tables of the engine.
    pub writer: Writer,
    /// For keys as Redis has them, once they are asked for.
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

    /// Replaces all records of a table of the job's store by these, under their numbers.
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

    /// The first records of a table of the job's store, so many.
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

    /// Does `change` to a key.
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

    /// Makes a hash of these fields, of which there are some, the value of a key.
    pub fn put_hash(&mut self, database: u8, key: &[u8], fields: &[(String, String)]) -> Result<()> {
        let pairs: Vec<(&[u8], &[u8])> =
            fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        self.change(key, |txn| txn.put_hash(database, key, &pairs))
    }

    /// Makes a string the value of a key.
    pub fn put_string(&mut self, database: u8, key: &[u8], text: &[u8]) -> Result<()> {
        self.change(key, |txn| txn.put(database, key, text))
    }

    /// Deletes a key.
    pub fn delete(&mut self, database: u8, key: &[u8]) -> Result<()> {
        self.change(key, |txn| txn.delete(database, key).map(|_| ()))
    }

    /// The keys that begin so, in their order, and whether each is a hash.
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

    /// A table of the job's store, made if it is not there.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.store.table(name.as_bytes(), IndexKind::Hash).map_err(failed)
    }

    /// Tables of the job's store with the keys that it has written there.
    pub fn keys_tables(&self, job: &str) -> Result<Vec<Table>> {
        keys_tables(&self.store, job)
    }

    /// Whether a table has this.
    pub fn has(&self, table: &Table, key: &[u8]) -> Result<bool> {
        table.get(key).map(|found| found.is_some()).map_err(failed)
    }

    /// Enters this in a table.
    pub fn enter(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.writer.table(table).put(key, b"").map(|_| ()).map_err(failed)
    }

    /// Takes this out of a table.
    pub fn take_out(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.writer.table(table).delete(key).map(|_| ()).map_err(failed)
    }

    /// All that is in a table.
    pub fn entries(&self, table: &Table) -> Result<Vec<Vec<u8>>> {
        let mut entries = Vec::new();
        table.for_each(|value| entries.push(value.key().to_vec())).map_err(failed)?;
        Ok(entries)
    }

    /// Whether there is a key.
    pub fn exists(&mut self, database: u8, key: &[u8]) -> Result<bool> {
        let (_, worker) = self.keys()?;
        worker.begin_on(now() as u64 / 1000, Locks::One(key)).exists(database, key).map_err(failed)
    }

    /// The keys that begin so, and what is under them.
    pub fn kept(&mut self, database: u8, prefix: &[u8]) -> Result<Vec<(String, Content)>> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let found = self.with_prefix(database, prefix)?;
        let (_, worker) = self.keys()?;
        let mut kept = Vec::new();
        for (key, is_hash) in found {
            let mut txn = worker.begin_on(now() as u64 / 1000, Locks::One(&key));
            let content = if is_hash {
                let Some(hash) = txn.hash(database, &key).map_err(failed)? else { continue };
                let pairs = hash.pairs().map_err(failed)?;
                Content::Hash(pairs.into_iter().map(|(name, value)| (text(name), text(value))).collect())
            } else {
                match txn.get_string(database, &key).map_err(failed)? {
                    Some(value) => Content::Text(text(&value)),
                    None => continue,
                }
            };
            kept.push((text(&key), content));
        }
        Ok(kept)
    }
}
