//! Results as keys: the newest row of each primary key is a hash, or a JSON string, under a key that any Redis client
//! can read.
//!
//! | option | is |
//! |---|---|
//! | `database` | number of the database, 0 by default |
//! | `key` | the prefix of keys, the table's name by default; the values of the primary key follow, each after a `:`
//! ([`join`]) |
//! | `value` | `hash` (default): a field for each column that is not NULL; `json`: the row as a string |
//!
//! `duramen` writes to the job's own store, in the checkpoint, exactly once; `duramen serve` serves that store while
//! the job does not run. `redis` writes to a running server at once: after a crash some keys are written again with the
//! same rows. With `'sink.delivery-guarantee' = 'exactly-once'` it writes after each checkpoint, in one transaction
//! (`server_sink.rs`).

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::claim::{Claim, Existing, Strangers, keys_table, owned, strangers_refused};
use super::resp_client::{Address, Client, words};
use super::row_sink::{CommitParticipant, Content, JobStore, RowSink};
use super::{json, texts};
use crate::catalog::Table;
use crate::compile::{Output, Rows};
use crate::error::{Error, Result};
use crate::plan::changelog::RowKind;
use crate::types::{DataType, Value};

/// How rows become keys and values.
pub struct KeyedSink {
    name: String,
    database: u8,
    prefix: String,
    columns: Vec<String>,
    /// Indexes of the primary key among the columns.
    key: Vec<usize>,
    json: bool,
}

/// The number of a table's database.
pub fn database(table: &Table) -> Result<u8> {
    let text = table.options.get("database").map_or("0", String::as_str);
    text.parse().ok().filter(|database| *database < 128).ok_or_else(|| {
        Error::invalid(format!("'database' = '{text}' of `{}`", table.name), "a number from 0 to 127")
    })
}

/// The prefix of a table's keys.
pub fn prefix(table: &Table) -> String {
    format!("{}:", table.options.get("key").unwrap_or(&table.name))
}

/// The values of a primary key as the part of a key after its prefix, separated by `:`. In all but the last value a `\`
/// precedes each `:` and `\`, so that two primary keys never have the same key. The last value, usually the only one,
/// is not escaped.
pub fn join(values: &[String]) -> String {
    let Some((last, others)) = values.split_last() else { return String::new() };
    let mut joined = String::new();
    for value in others {
        for char in value.chars() {
            if matches!(char, ':' | '\\') {
                joined.push('\\');
            }
            joined.push(char);
        }
        joined.push(':');
    }
    joined + last
}

/// Splits the part of a key after its prefix into `count` values of a primary key; `None` if it has fewer.
pub fn split(rest: &str, count: usize) -> Option<Vec<String>> {
    let (mut values, mut value, mut chars) = (Vec::new(), String::new(), rest.chars());
    while values.len() + 1 < count {
        match chars.next()? {
            ':' => values.push(std::mem::take(&mut value)),
            // Keys written by others may have a literal `\`.
            '\\' => match chars.clone().next() {
                Some(char @ (':' | '\\')) => {
                    chars.next();
                    value.push(char);
                }
                _ => value.push('\\'),
            },
            char => value.push(char),
        }
    }
    values.push(chars.as_str().to_owned());
    Some(values)
}

impl KeyedSink {
    /// From a table's options.
    pub fn of(table: &Table) -> Result<KeyedSink> {
        let key: Vec<usize> = table
            .primary_key
            .iter()
            .filter_map(|column| table.physical.iter().position(|physical| physical == column))
            .collect();
        if key.is_empty() {
            return Err(Error::invalid(
                format!("no PRIMARY KEY for `{}`", table.name),
                "PRIMARY KEY (...) NOT ENFORCED: it becomes the key in the store",
            ));
        }
        let json = match table.options.get("value").map(String::as_str) {
            None | Some("hash") => false,
            Some("json") => true,
            Some(other) => {
                return Err(Error::invalid(
                    format!("'value' = '{other}' of `{}`", table.name),
                    "'hash' or 'json'",
                ));
            }
        };
        Ok(KeyedSink {
            name: table.name.clone(),
            database: database(table)?,
            prefix: prefix(table),
            columns: table.physical.iter().map(|column| table.columns[*column].name.clone()).collect(),
            key,
            json,
        })
    }

    /// The number of its database.
    pub fn database(&self) -> u8 {
        self.database
    }

    /// The prefix of its keys.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether a row may have this key.
    pub fn is_key(&self, key: &[u8]) -> bool {
        let rest = key.strip_prefix(self.prefix.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok());
        rest.is_some_and(|rest| split(rest, self.key.len()).is_some())
    }

    /// The key of a row, and its value; `None` as the value of a deleted row.
    fn entry(&self, kind: RowKind, row: &[Value], types: &[DataType]) -> (String, Option<Content>) {
        let parts: Vec<String> = self.key.iter().map(|column| row[*column].text(&types[*column])).collect();
        let key = format!("{}{}", self.prefix, join(&parts));
        if !kind.adds() {
            return (key, None);
        }
        if self.json {
            let mut text = String::new();
            json::write(&json::Json::default(), &self.columns, types, row, &mut text);
            return (key, Some(Content::Text(text)));
        }
        let fields = self.columns.iter().zip(row.iter().zip(types));
        let fields = fields.filter(|(_, (value, _))| !value.is_null());
        let field = |(name, (value, ty)): (&String, (&Value, &DataType))| match value {
            Value::Bytes(_) => (name.clone(), texts::text(value, ty)),
            value => (name.clone(), value.text(ty)),
        };
        (key, Some(Content::Hash(fields.map(field).collect())))
    }
}

/// The changes of rows by key: the newest counts. A row that replaces another is preceded by the old row. The old row
/// is deleted if no new row follows under its key, because a filter dropped it.
fn changes(keyed: &KeyedSink, rows: &Rows<'_>, mut each: impl FnMut(String, Option<Content>)) {
    for (kind, row) in rows.iter() {
        let (key, kept) = keyed.entry(kind, &row, rows.types());
        each(key, kept);
    }
}

/// The newest rows by key, and their bytes.
#[derive(Default)]
pub struct Changed {
    rows: BTreeMap<String, Option<Content>>,
    bytes: usize,
}

impl Changed {
    /// Adds the changes of rows.
    pub fn add(&mut self, keyed: &KeyedSink, rows: &Rows<'_>) {
        // A key and its place in the tree.
        const KEY: usize = 100;
        let bytes = |content: &Option<Content>| content.as_ref().map_or(0, Content::bytes);
        changes(keyed, rows, |key, kept| {
            let new = key.len() + KEY;
            self.bytes += bytes(&kept);
            match self.rows.insert(key, kept) {
                Some(old) => self.bytes -= bytes(&old),
                None => self.bytes += new,
            }
        });
    }

    /// Their bytes in memory, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes all of them.
    pub fn take(&mut self) -> BTreeMap<String, Option<Content>> {
        self.bytes = 0;
        std::mem::take(&mut self.rows)
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
        self.changed.add(&self.keyed, rows);
        Ok(())
    }
}

impl RowSink for Own {
    fn end_part(&mut self) -> Result<(Json, Option<Box<dyn CommitParticipant>>)> {
        let part = OwnPart {
            name: self.keyed.name.clone(),
            job: self.job.clone(),
            database: self.keyed.database,
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
        let database = self.keyed.database;
        // Keys of a sink that now has another name belong to the job too.
        let own = job_store.keys_tables(&self.job)?;
        for (key, _) in job_store.with_prefix(database, self.keyed.prefix.as_bytes())? {
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

/// A keyed sink in a running server.
pub struct Remote {
    keyed: KeyedSink,
    client: Client,
}

impl Remote {
    /// For a table of connector 'redis'; it connects when the first row comes.
    pub fn open(table: &Table) -> Result<Remote> {
        let keyed = KeyedSink::of(table)?;
        let client = Client::new(Address::of(table)?, keyed.database);
        Ok(Remote { keyed, client })
    }
}

impl Output for Remote {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        // Of several changes of one key in a batch only the newest is written.
        let mut changed = BTreeMap::new();
        changes(&self.keyed, rows, |key, kept| {
            changed.insert(key, kept);
        });
        let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
        for (key, kept) in &changed {
            match kept {
                None => commands.push(words(&["DEL", key])),
                Some(Content::Text(text)) => commands.push(words(&["SET", key, text])),
                Some(Content::Hash(fields)) => {
                    let mut set = words(&["HSET", key]);
                    for (name, value) in fields {
                        set.push(name.as_bytes().to_vec());
                        set.push(value.as_bytes().to_vec());
                    }
                    // Fields that are NULL now.
                    let gone = |name: &&String| !fields.iter().any(|(field, _)| field == *name);
                    let gone: Vec<&str> =
                        self.keyed.columns.iter().filter(gone).map(String::as_str).collect();
                    commands.push(set);
                    if !gone.is_empty() {
                        commands.push(words(&[&["HDEL", key.as_str()], gone.as_slice()].concat()));
                    }
                }
            }
        }
        self.client
            .run(&commands)
            .map(|_| ())
            .map_err(|error| Error::connector(format!("cannot write `{}`: {error}", self.keyed.name)))
    }
}

impl RowSink for Remote {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_primary_keys_have_different_key_names_that_read_back() {
        let values = ["", "a", ":", "\\", "a:b", "b:c", "\\:", ":\\", "a\\", "NULL"];
        let mut seen = std::collections::BTreeSet::new();
        for first in values {
            for second in values {
                for third in values {
                    let key = [first, second, third].map(str::to_owned);
                    let joined = join(&key);
                    assert_eq!(split(&joined, 3).as_deref(), Some(&key[..]), "{joined}");
                    assert!(seen.insert(joined), "{key:?}");
                }
            }
        }
        // A primary key of one column is not escaped.
        for value in values {
            assert_eq!(join(&[value.to_owned()]), value);
            assert_eq!(split(value, 1), Some(vec![value.to_owned()]));
        }
        assert_eq!(split("a", 2), None);
        assert_eq!(split("a\\x:b", 2), Some(vec!["a\\x".to_owned(), "b".to_owned()]));
    }
}
