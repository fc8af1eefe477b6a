//! What is a job's own: the claim that its store has of it, the tables of the keys that it has written, and strangers,
//! which stand where it will write and are not its own.

use std::path::Path;

use duramen::{Store, Table};
use serde_json::{Value, json};

use super::clock::now;
use crate::error::{Error, Result};

/// What a job does with keys and files that stand where it will write, and that its checkpoints do not say it wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Existing {
    /// It does not start, and names some. If they come later, it ends.
    #[default]
    Refuse,
    /// They go when it begins. Those that come later are replaced.
    Overwrite,
    /// They stay, and are its own from then on: it replaces them, and they go when it begins again from its start.
    Adopt,
}

/// Who a job is to its sinks: a record of its store, committed before anything is written elsewhere.
///
/// # Order
///
/// 1. A job without a checkpoint looks for what stands where it will write and is not its own. It refuses that, or
///    enters it here: nothing has been changed yet.
/// 2. The claim is committed, together with the names of keys that are taken over. With it goes the checkpoint that is
///    to be forgotten. A crash before leaves all as it was; a crash behind leaves a job without a checkpoint that knows
///    what is its own.
/// 3. Parts of runs that are over are deleted. A crash leaves some; the next start finds the same claim, and deletes
///    the rest.
/// 4. Keys of runs that are over are deleted, which counts with the commit of the first checkpoint. A crash before
///    leaves them all; the next start deletes them again.
/// 5. Behind that commit the claim says only which parts are the job's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// Names the run of the job from its start; so do its parts.
    pub run: String,
    /// Other runs whose parts are the job's.
    pub adopted: Vec<String>,
    /// Runs that are over: as long as there is no checkpoint, their parts go.
    pub over: Vec<String>,
    /// Whether, as long as there is no checkpoint, keys of the job go.
    pub anew: bool,
}

impl Claim {
    /// That of a run which begins now.
    pub fn new() -> Claim {
        // Of one length, so that names with them are in the order of time.
        let run = format!("{:013x}{:04x}", now(), std::process::id() & 0xffff);
        Claim { run, ..Claim::default() }
    }

    /// Whether these are the letters of a run.
    pub fn is_run(text: &str) -> bool {
        text.len() == 17 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    pub fn to_json(&self) -> String {
        let Claim { run, adopted, over, anew } = self;
        json!({ "version": VERSION, "run": run, "adopted": adopted, "over": over, "anew": anew }).to_string()
    }

    pub fn of(bytes: &[u8]) -> Result<Claim> {
        let damaged = |why: &str| Error::connector(format!("the claim of a job is damaged: {why}"));
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

/// What stands where a job will write, and is not its own.
#[derive(Debug, Default)]
pub struct Strangers {
    /// Keys: the table of those of the sink, and what it has for them.
    pub keys: Vec<(String, Vec<u8>)>,
    /// Runs of other jobs whose parts there are.
    pub runs: Vec<String>,
    /// Names of some, for people.
    names: Vec<String>,
    pub count: usize,
}

impl Strangers {
    /// How many are named.
    const NAMES: usize = 5;

    /// A key, for the table `own` of those of a sink.
    pub fn key(&mut self, own: &str, database: u8, key: &[u8]) {
        self.name(|| format!("key {} of database {database}", String::from_utf8_lossy(key)));
        self.keys.push((own.to_owned(), owned(database, key)));
    }

    /// A part of another run.
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

    /// Why a job does not start over them; nothing if there are none.
    pub fn refused(&self, job: &str) -> Option<Error> {
        (self.count > 0).then(|| strangers_refused(job, self.count, &self.names))
    }
}

/// Why a job does not write over so many things of others, some of which have these names.
pub fn strangers_refused(job: &str, count: usize, names: &[String]) -> Error {
    let more = if count > names.len() { format!(" and {} more", count - names.len()) } else { String::new() };
    Error::connector(format!(
        "job `{job}` would write where others have written: found {}{more}, which no checkpoint of it names; wanted nothing \
         there",
        names.join(", ")
    ))
    .hint(
        "--overwrite deletes what is there, --adopt keeps it and lets the job replace it; or choose another key or path for \
         the table",
    )
}

/// What a table of a job's own keys has for one of them.
pub fn owned(database: u8, key: &[u8]) -> Vec<u8> {
    [&[database], key].concat()
}

/// What begins the names of tables with checkpoints.
pub const PREFIX: &str = "sql.";

/// How records are written; another one is refused.
pub const VERSION: u64 = 2;

pub const KEYS: &str = "keys";
pub const SENT: &str = "sent";

/// The table with the checkpoint of the job of this name.
pub fn table_name(job: &str) -> String {
    format!("{PREFIX}{job}")
}

/// The table of the job's store with the keys that the sink of a table has written there, or to a server.
pub fn keys_table(job: &str, table: &str, in_server: bool) -> String {
    format!("{PREFIX}{job}.{}.{table}", if in_server { SENT } else { KEYS })
}

/// Tables of a store with keys that sinks of a job have written there, also of sinks that it has no more.
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
