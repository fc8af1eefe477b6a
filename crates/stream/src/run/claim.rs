//! Which keys and files belong to a job: the claim in its store, the tables of the keys that it has written, and
//! strangers. Strangers are keys or files at the places where the job will write that do not belong to it.

use std::path::Path;

use duramen::{Store, Table};
use serde_json::{Value, json};

use super::clock::now;
use crate::error::{Error, Result};

/// What a job does with keys and files at the places where it will write, if its checkpoints do not name them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Existing {
    /// The job does not start, and names some of them. If they appear later, it ends.
    #[default]
    Refuse,
    /// They are deleted when the job begins. Later ones are replaced.
    Overwrite,
    /// They stay and become the job's own: it replaces them, and deletes them when it begins again from its start.
    Adopt,
}

/// A job's identity for its sinks: a record in its store, committed before anything is written elsewhere.
///
/// # Order
///
/// 1. A job without a checkpoint looks for strangers at the places where it will write. It refuses them, or records
///    them here: nothing has been changed yet.
/// 2. The claim is committed, together with the names of adopted keys and the removal of the checkpoint to be
///    forgotten. A crash before the commit leaves everything as it was. A crash after it leaves a job without a
///    checkpoint that knows what belongs to it.
/// 3. Parts of ended runs are deleted. A crash leaves some; the next start finds the same claim, and deletes the rest.
/// 4. Keys of ended runs are deleted, which takes effect with the commit of the first checkpoint. A crash before it
///    leaves them all; the next start deletes them again.
/// 5. After that commit the claim only says which parts are the job's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// The name of the job's run from its start; its parts carry the same name.
    pub run: String,
    /// Other runs whose parts are the job's.
    pub adopted: Vec<String>,
    /// Ended runs, whose parts are deleted as long as there is no checkpoint.
    pub over: Vec<String>,
    /// Whether the job's keys are deleted as long as there is no checkpoint.
    pub anew: bool,
}

impl Claim {
    /// The claim of a run that begins now.
    pub fn new() -> Claim {
        // Of a fixed length, so that names with them sort by time.
        let run = format!("{:013x}{:04x}", now(), std::process::id() & 0xffff);
        Claim { run, ..Claim::default() }
    }

    /// Whether a text has the form of a run's name.
    pub fn is_run(text: &str) -> bool {
        text.len() == 17 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    pub fn to_json(&self) -> String {
        let Claim { run, adopted, over, anew } = self;
        json!({ "version": VERSION, "run": run, "adopted": adopted, "over": over, "anew": anew }).to_string()
    }

    pub fn of(bytes: &[u8]) -> Result<Claim> {
        let damaged =
            |why: &str| Error::connector(format!("the record of the data that a job owns is damaged: {why}"));
        let claim: Value = serde_json::from_slice(bytes).map_err(|error| damaged(&error.to_string()))?;
        let runs = |field: &str| -> Result<Vec<String>> {
            let runs =
                claim[field].as_array().ok_or_else(|| damaged(&format!("it has no list '{field}'")))?;
            Ok(runs.iter().filter_map(|run| run.as_str().map(str::to_owned)).collect())
        };
        let run =
            claim["run"].as_str().filter(|run| Claim::is_run(run)).ok_or_else(|| damaged("it has no run"))?;
        Ok(Claim {
            run: run.to_owned(),
            adopted: runs("adopted")?,
            over: runs("over")?,
            anew: claim["anew"] == true,
        })
    }
}

/// Keys and files where a job will write that do not belong to it.
#[derive(Debug, Default)]
pub struct Strangers {
    /// Keys: for each, the sink's table of owned keys and the entry in it.
    pub keys: Vec<(String, Vec<u8>)>,
    /// Runs of other jobs with parts at these places.
    pub runs: Vec<String>,
    /// Names of some, for the error.
    names: Vec<String>,
    pub count: usize,
}

impl Strangers {
    /// How many are named in the error.
    const NAMES: usize = 5;

    /// Adds a key, for the sink's table `own` of owned keys.
    pub fn key(&mut self, own: &str, database: u8, key: &[u8]) {
        self.name(|| format!("key {} of database {database}", String::from_utf8_lossy(key)));
        self.keys.push((own.to_owned(), owned(database, key)));
    }

    /// Adds a part of another run.
    pub fn part(&mut self, run: &str, path: &Path) {
        self.name(|| path.display().to_string());
        if !self.runs.iter().any(|other| other == run) {
            self.runs.push(run.to_owned());
        }
    }

    fn name(&mut self, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.names.len() < Strangers::NAMES {
            self.names.push(name());
        }
    }

    /// The error with which a job refuses to start over them; nothing if there are none.
    pub fn refused(&self, job: &str) -> Option<Error> {
        (self.count > 0).then(|| strangers_refused(job, self.count, &self.names))
    }
}

/// The error for a job that would write over `count` keys or files of others, some of which have these names.
pub fn strangers_refused(job: &str, count: usize, names: &[String]) -> Error {
    let more = if count > names.len() { format!(" and {} more", count - names.len()) } else { String::new() };
    Error::connector(format!(
        "job `{job}` would overwrite data that it did not write: found {}{more}, which none of its checkpoints names; \
         wanted no such data",
        names.join(", ")
    ))
    .hint(
        "--overwrite deletes it, --adopt keeps it and lets the job replace it; or choose another key or path for the \
         table",
    )
}

/// The entry for a key in a job's table of owned keys.
pub fn owned(database: u8, key: &[u8]) -> Vec<u8> {
    [&[database], key].concat()
}

/// The prefix of the names of tables with checkpoints.
pub const PREFIX: &str = "sql.";

/// The version of the records; others are refused.
pub const VERSION: u64 = 2;

pub const KEYS: &str = "keys";
pub const SENT: &str = "sent";

/// The table with the checkpoint of the job of this name.
pub fn table_name(job: &str) -> String {
    format!("{PREFIX}{job}")
}

/// The table in the job's store with the keys that the sink of a table has written, to that store or to a server.
pub fn keys_table(job: &str, table: &str, in_server: bool) -> String {
    format!("{PREFIX}{job}.{}.{table}", if in_server { SENT } else { KEYS })
}

/// The tables in a store with the keys that the sinks of a job have written, including removed sinks.
pub fn keys_tables(store: &Store, job: &str) -> Result<Vec<Table>> {
    let own = keys_table(job, "", false);
    let tables = store.tables();
    let tables = tables.iter().filter(|table| table.name.starts_with(own.as_bytes()));
    let found: duramen::Result<Vec<Option<Table>>> =
        tables.map(|table| store.find_table(&table.name)).collect();
    Ok(found.map_err(failed("read"))?.into_iter().flatten().collect())
}

pub fn failed(what: &str) -> impl Fn(duramen::Error) -> Error {
    move |error| Error::connector(format!("cannot {what} the job's store: {error}"))
}
