//! Keyed sinks in a running server, exactly once: `'sink.delivery-guarantee' = 'exactly-once'` of the connector
//! `redis`, which `duramen sql --attach` gives to tables of the connector `duramen`.
//!
//! The newest rows of a checkpoint are written by one `MULTI`, together with the marker: the string `sql:JOB:SINK` in
//! the sink's database. The marker is watched: if another job of the same name has started meanwhile, the `MULTI` does
//! nothing.
//!
//! The job's store has the keys that the job has written. They are added in the commit of the checkpoint whose results
//! they are. So the job knows which keys are its own:
//!
//! 1. A job that begins looks for existing keys of others where it will write, before it reads a row.
//! 2. A key that is written for the first time is looked for right before the `MULTI`. Another client may still create
//!    it between the two: then it is replaced.
//! 3. A job that starts again without a checkpoint deletes the keys of its earlier runs by its first `MULTI`.

use std::collections::{HashMap, HashSet};

use crate::catalog::Table;
use crate::compile::Rows;
use crate::connectors::client::{Address, Client, Reply, scan, words};
use crate::connectors::keyed::{Changed, KeyedSink};
use crate::error::{Error, Result};
use crate::memory::headroom::{LARGE, require};
use crate::run::claim::{Claim, Existing, keys_table, owned, strangers_refused};
use crate::run::outbox::{Deliver, Encode, Failure, Messages, Name, append, messages};
use crate::run::row_sink::{Content, JobStore};

/// A `MULTI` is in memory as commands and as what is sent of them.
const COPIES: usize = 2;

/// In the server of the same process it is also what was received, the queue, the keys to be locked, which grow by
/// doubling, and the records.
const COPIES_HERE: usize = 8;

/// The prefixes of temporary errors.
const PASSING: [&str; 5] = ["LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN"];

/// The newest row of each key that has changed.
pub struct Newest {
    keyed: KeyedSink,
    changed: Changed,
}

impl Newest {
    /// For a table.
    pub fn of(table: &Table) -> Result<Newest> {
        Ok(Newest { keyed: KeyedSink::of(table)?, changed: Changed::default() })
    }
}

impl Encode for Newest {
    fn encode(&mut self, rows: &Rows<'_>, _: &mut Messages) -> Result<()> {
        self.changed.add(&self.keyed, rows)
    }

    fn end(&mut self, messages: &mut Messages) {
        for (key, kept) in self.changed.take() {
            let kept = kept.map(|content| match content {
                Content::Text(text) => format!("s{text}"),
                Content::Hash(fields) => format!("h{}", serde_json::json!(fields)),
            });
            messages.push(Some(key.as_bytes()), kept.as_deref().map(str::as_bytes));
        }
    }

    fn kept(&self) -> usize {
        self.changed.bytes()
    }
}

/// Delivers the rows.
pub struct Server {
    table: String,
    keyed: KeyedSink,
    job: String,
    address: Address,
    client: Client,
    marker: String,
    /// The name of the table, in the job's store, with the keys that it has written.
    owned: String,
    existing: Existing,
    /// When a job begins: keys that its earlier runs have written.
    before: HashSet<Vec<u8>>,
    /// Keys of others that become its own at the next checkpoint.
    taken_over: Vec<Vec<u8>>,
}

impl Server {
    /// For the sink with this number of a job.
    pub fn of(table: &Table, job: &str, number: usize, existing: Existing) -> Result<Server> {
        let address = Address::of(table)?;
        let keyed = KeyedSink::of(table)?;
        Ok(Server {
            table: table.name.clone(),
            job: job.to_owned(),
            client: Client::new(address.clone(), keyed.database()),
            keyed,
            address,
            marker: format!("sql:{job}:{number}"),
            owned: keys_table(job, &table.name, true),
            existing,
            before: HashSet::new(),
            taken_over: Vec::new(),
        })
    }

    /// The error with which it refuses to write over keys of others.
    fn refused(&self, keys: &[&[u8]]) -> Error {
        let name = |key: &&[u8]| {
            let key = String::from_utf8_lossy(key);
            format!(
                "key {key} of database {} of the server at {}",
                self.keyed.database(),
                self.address.name()
            )
        };
        let names: Vec<String> = keys.iter().take(5).map(name).collect();
        strangers_refused(&self.job, keys.len(), &names)
    }

    /// Refuses a delivery that would replace keys that the job has not written.
    fn check(&mut self, chunks: &[Vec<u8>]) -> Result<(), Failure> {
        let mut new = Vec::new();
        for chunk in chunks {
            for message in messages(chunk) {
                let (key, kept) = message?;
                if let (Some(key), Some(b'S' | b'H')) = (key, kept.and_then(<[u8]>::first)) {
                    new.push(key);
                }
            }
        }
        let exists: Vec<_> = new.iter().map(|key| vec![b"EXISTS".to_vec(), key.to_vec()]).collect();
        let replies = self.run(&exists)?;
        let there = new.iter().zip(&replies).filter(|(_, reply)| reply.text() != Some(b"0"));
        let there: Vec<&[u8]> = there.map(|(key, _)| *key).collect();
        if there.is_empty() { Ok(()) } else { Err(self.refused(&there).into()) }
    }

    fn run(&mut self, commands: &[Vec<Vec<u8>>]) -> Result<Vec<Reply>, Failure> {
        match self.client.once(commands) {
            Ok(Ok(replies)) => Ok(replies),
            // A server that has just started, or waits for another one.
            Ok(Err(refused)) if PASSING.iter().any(|word| refused.starts_with(word)) => {
                Err(Failure::Passing(refused))
            }
            Ok(Err(refused)) => Err(Failure::Lasting(self.failed(&refused))),
            Err(error) => Err(Failure::Passing(error.to_string())),
        }
    }

    /// Watches the marker, and reads it.
    fn look(&mut self) -> Result<Option<Name>, Failure> {
        let marker = self.marker.clone();
        let replies = self.run(&[words(&["WATCH", &marker]), words(&["GET", &marker])])?;
        let Some(text) = replies.get(1).and_then(Reply::text) else { return Ok(None) };
        let text = String::from_utf8_lossy(text).into_owned();
        let name = text
            .split_once(' ')
            .and_then(|(number, run)| Some(Name { run: run.to_owned(), number: number.parse().ok()? }));
        match name {
            Some(name) => Ok(Some(name)),
            None => {
                Err(Failure::Lasting(self.failed(&format!("key {marker} has '{text}', which is no marker"))))
            }
        }
    }
}

/// The commands that set the value of a key to this.
fn commands(key: &[u8], kept: Option<&[u8]>) -> Result<Vec<Vec<Vec<u8>>>> {
    let damaged = || Error::connector("the results of a checkpoint are damaged");
    let delete = vec![b"DEL".to_vec(), key.to_vec()];
    match kept.map(|kept| kept.split_first().ok_or_else(damaged)).transpose()? {
        None => Ok(vec![delete]),
        Some((b's' | b'S', text)) => Ok(vec![vec![b"SET".to_vec(), key.to_vec(), text.to_vec()]]),
        Some((_, fields)) => {
            let fields: Vec<(String, String)> = serde_json::from_slice(fields).map_err(|_| damaged())?;
            let mut set = vec![b"HSET".to_vec(), key.to_vec()];
            for (name, value) in fields {
                set.extend([name.into_bytes(), value.into_bytes()]);
            }
            // Fields that are NULL now must be removed too.
            Ok(vec![delete, set])
        }
    }
}

impl Deliver for Server {
    fn begin(&mut self, job_store: &mut JobStore, claim: &Claim, taken_back: &mut Messages) -> Result<()> {
        let own = job_store.table(&self.owned)?;
        for entry in job_store.entries(&own)? {
            let Some((database, key)) = entry.split_first() else { continue };
            if *database == self.keyed.database() {
                if claim.anew {
                    taken_back.push(Some(key), None);
                }
                self.before.insert(key.to_vec());
            }
        }
        Ok(())
    }

    fn look(&mut self, taken_back: &mut Messages) -> Result<(), Failure> {
        self.client.disconnect();
        let prefix = self.keyed.prefix().to_owned();
        let found = scan(&prefix, |command| self.run(&[command]))?;
        let is_stranger = |key: &&[u8]| self.keyed.is_key(key) && !self.before.contains(*key);
        let strangers: Vec<&[u8]> = found.iter().map(Vec::as_slice).filter(is_stranger).collect();
        match self.existing {
            Existing::Refuse if !strangers.is_empty() => return Err(self.refused(&strangers).into()),
            Existing::Overwrite => strangers.iter().for_each(|key| taken_back.push(Some(key), None)),
            Existing::Refuse | Existing::Adopt => {}
        }
        self.taken_over = strangers.into_iter().map(<[u8]>::to_vec).collect();
        self.before.clear();
        Ok(())
    }

    /// Adds keys that are written for the first time, and marks their messages by a capital letter. Of several messages
    /// of a key the last one counts; a message that deletes a key the job has not written is dropped.
    fn prepare(&mut self, chunks: Vec<Vec<u8>>, job_store: &mut JobStore) -> Result<Vec<Vec<u8>>> {
        let own = job_store.table(&self.owned)?;
        let database = self.keyed.database();
        for key in std::mem::take(&mut self.taken_over) {
            job_store.enter(&own, &owned(database, &key))?;
        }
        let mut last: HashMap<Vec<u8>, usize> = HashMap::new();
        for (number, message) in chunks.iter().flat_map(|chunk| messages(chunk)).enumerate() {
            last.insert(message?.0.unwrap_or_default().to_vec(), number);
        }
        let (mut prepared, mut number) = (Vec::with_capacity(chunks.len()), 0);
        for chunk in &chunks {
            let mut kept = Vec::with_capacity(chunk.len());
            for message in messages(chunk) {
                let (key, value) = message?;
                let key = key.unwrap_or_default();
                number += 1;
                if last.get(key) != Some(&(number - 1)) {
                    continue;
                }
                let entry = owned(database, key);
                match (value, job_store.has(&own, &entry)?) {
                    (None, false) => {}
                    (None, true) => {
                        job_store.take_out(&own, &entry)?;
                        append(&mut kept, Some(key), None);
                    }
                    (Some(value), true) => append(&mut kept, Some(key), Some(value)),
                    (Some(value), false) => {
                        job_store.enter(&own, &entry)?;
                        let mut new = value.to_vec();
                        new.iter_mut().take(1).for_each(|kind| kind.make_ascii_uppercase());
                        append(&mut kept, Some(key), Some(&new));
                    }
                }
            }
            prepared.push(kept);
        }
        Ok(prepared)
    }

    fn connect(&mut self) -> Result<Option<Name>, Failure> {
        self.client.disconnect();
        self.look()
    }

    fn deliver(&mut self, name: &Name, before: Option<&Name>, chunks: &[Vec<u8>]) -> Result<(), Failure> {
        if self.look()?.as_ref() != before {
            return Err(Failure::Passing("another job has written to it".to_owned()));
        }
        if self.existing == Existing::Refuse {
            self.check(chunks)?;
        }
        let bytes: usize = chunks.iter().map(Vec::len).sum();
        if bytes >= LARGE {
            require(bytes * if self.address.is_in_process() { COPIES_HERE } else { COPIES })
                .map_err(Failure::Lasting)?;
        }
        let mut unit = vec![words(&["MULTI"])];
        for chunk in chunks {
            for message in messages(chunk) {
                let (key, kept) = message.map_err(Failure::Lasting)?;
                unit.extend(commands(key.unwrap_or_default(), kept).map_err(Failure::Lasting)?);
            }
        }
        unit.push(words(&["SET", &self.marker, &format!("{} {}", name.number, name.run)]));
        unit.push(words(&["EXEC"]));
        match self.run(&unit)?.last() {
            Some(Reply::Aggregate { .. }) => Ok(()),
            _ => Err(Failure::Passing("another job has written to it".to_owned())),
        }
    }

    fn disconnect(&mut self) {
        self.client.disconnect();
    }

    fn failed(&self, what: &str) -> Error {
        let name = self.address.name();
        Error::connector(format!("cannot write `{}` to the server at {name}: {what}", self.table))
    }

    fn whom(&self) -> (String, String) {
        (self.table.clone(), self.address.name())
    }
}
