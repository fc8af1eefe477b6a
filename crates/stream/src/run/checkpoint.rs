//! Checkpoints of a job in a store: what is written, by which thread and in which order.
//! `docs/internals/decisions/026-checkpoints-of-jobs.md` shows why a crash leaves the last checkpoint whole.
//!
//! A separate thread owns the store's writer. It receives pages and, last, the rest of a checkpoint; then it commits,
//! publishes and answers. Nothing is sent between the end of a checkpoint and that answer.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use duramen::{Durability, IndexKind, Options, Store, Table};
use serde_json::{Value, json};

use super::claim::{
    Claim, Existing, KEYS, PREFIX, SENT, Strangers, VERSION, failed, keys_tables, table_name,
};
use super::clock::now;
use super::row_sink::{CommitParticipant, JobStore};
use crate::error::{Error, Result};
use crate::memory::headroom::caught;
use crate::state::{MemoryLimit, Numbers};

/// The store in which a job keeps its checkpoints, and how.
#[derive(Debug, Clone)]
pub struct Keep {
    /// Opened with [`Durability::Manual`]. No other job runs in it and nothing else commits it: another commit would
    /// make half of a checkpoint durable. So a failed job closes it without a commit.
    pub store: Store,
    /// The job's name: letters, digits, `-` and `_`.
    pub name: String,
    /// The interval from one checkpoint to the next.
    pub every: Duration,
    /// Whether to forget the checkpoint under this name, and delete what the job has written.
    pub from_start: bool,
    /// Kept with each checkpoint, for the caller that restarts the job.
    pub note: String,
    /// Where the job's state lies while it runs.
    pub room: MemoryLimit,
}

/// Lowers this thread's priority to about a third of the core's share that row processing gets, where they compete. A
/// thread that the kernel prefers would delay rows by a time slice, some milliseconds. The share is not smaller: a page
/// that rows change before it is written must be copied.
fn give_way() {
    // If the kernel refuses, the job still works, with longer pauses.
    let _ = rustix::process::nice(5);
}

/// Opens a store for jobs. Its background work has a lower priority than rows, like the thread for checkpoints.
///
/// # Errors
/// As [`Options::open`].
pub fn open_store(options: &Options, path: &Path) -> duramen::Result<Store> {
    std::thread::scope(|scope| {
        // The store's thread inherits the priority of the thread that starts it.
        let opening = scope.spawn(|| {
            give_way();
            options.open(path)
        });
        opening.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

const HEAD: &[u8] = b"head";
const STATE: &[u8] = b"state";
const CLAIM: &[u8] = b"claim";
/// The key of the state of the thread with this number.
fn state_key(thread: usize) -> Vec<u8> {
    if thread == 0 { STATE.to_vec() } else { [STATE, format!(".{thread}").as_bytes()].concat() }
}

fn key(number: u64, page: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&page.to_be_bytes());
    key
}

/// A job whose checkpoint is in a store.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// The number of its last checkpoint.
    pub epoch: u64,
    /// Records that were read up to the checkpoint.
    pub records: u64,
    /// Whether its input has ended.
    pub finished: bool,
    /// When the checkpoint was made, in microseconds since 1970.
    pub at: i64,
    /// The note that was kept with it.
    pub note: String,
}

/// The jobs with a checkpoint in a store.
pub fn jobs(store: &Store) -> Result<Vec<Kept>> {
    let mut jobs = Vec::new();
    for table in store.tables() {
        let name = String::from_utf8_lossy(&table.name).into_owned();
        let Some(name) = name.strip_prefix(PREFIX).filter(|name| !name.contains('.')) else { continue };
        let Some(table) = store.find_table(&table.name).map_err(failed("read"))? else { continue };
        if let Some(head) = read_head(&table)? {
            jobs.push(Kept {
                name: name.to_owned(),
                epoch: number(&head, "epoch")?,
                records: number(&head, "records")?,
                finished: head["finished"] == true,
                at: head["at"].as_i64().unwrap_or(0),
                note: head["note"].as_str().unwrap_or_default().to_owned(),
            });
        }
    }
    Ok(jobs)
}

/// Forgets a job and everything kept for it.
pub fn forget(store: &Store, job: &str) -> Result<()> {
    let own = format!("{}.", table_name(job));
    for table in store.tables() {
        if table.name == table_name(job).as_bytes() || table.name.starts_with(own.as_bytes()) {
            store.drop_table(&table.name).map_err(failed("drop tables of"))?;
        }
    }
    store.commit().map_err(failed("commit"))
}

fn read_head(table: &Table) -> Result<Option<Value>> {
    let Some(bytes) = table.get(HEAD).map_err(failed("read"))? else { return Ok(None) };
    let head: Value = serde_json::from_slice(&bytes)
        .map_err(|error| Error::connector(format!("the head of a checkpoint is damaged: {error}")))?;
    if head["version"] != VERSION {
        return Err(Error::connector(format!(
            "a checkpoint of version {}, wanted {VERSION}: another release wrote it",
            head["version"]
        ))
        .hint("--from-start discards it"));
    }
    Ok(Some(head))
}

fn number(head: &Value, field: &str) -> Result<u64> {
    head[field]
        .as_u64()
        .ok_or_else(|| Error::connector(format!("the head of a checkpoint has no number '{field}': {head}")))
}

/// The parts of a checkpoint other than pages.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// Its number, from 1.
    pub epoch: u64,
    /// Records that were read.
    pub records: u64,
    /// Whether the input has ended.
    pub finished: bool,
    /// The job as text: a different job does not resume from it.
    pub plan: String,
    /// For the caller that restarts the job.
    pub note: String,
    /// How far each source was read.
    pub sources: Vec<Value>,
    /// What each sink publishes after the commit, followed by the dead letters of each source.
    pub sinks: Vec<Value>,
}

impl Head {
    fn to_json(&self, at: i64, threads: usize) -> String {
        json!({
            "version": VERSION, "threads": threads, "epoch": self.epoch, "records": self.records, "finished": self.finished, "at": at,
            "plan": self.plan, "note": self.note, "sources": self.sources, "sinks": self.sinks,
        })
        .to_string()
    }

    fn of(head: &Value) -> Result<Head> {
        let list = |field: &str| head[field].as_array().cloned().unwrap_or_default();
        Ok(Head {
            epoch: number(head, "epoch")?,
            records: number(head, "records")?,
            finished: head["finished"] == true,
            plan: head["plan"].as_str().unwrap_or_default().to_owned(),
            note: head["note"].as_str().unwrap_or_default().to_owned(),
            sources: list("sources"),
            sinks: list("sinks"),
        })
    }
}

/// The checkpoint from which a job resumes.
pub struct Found {
    /// Positions and other fields.
    pub head: Head,
    /// The result of [`crate::compile::Program::freeze`] of each thread.
    pub states: Vec<Vec<u8>>,
}

/// Tables of one job in its store.
pub struct JobTables {
    store: Store,
    name: String,
    from_start: bool,
    table: Table,
    own: HashMap<u64, Table>,
}

impl JobTables {
    /// The tables of the job; missing ones are created.
    pub fn open(keep: &Keep) -> Result<JobTables> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if keep.name.is_empty() || !keep.name.bytes().all(good) {
            return Err(Error::invalid(
                format!("the job's name '{}'", keep.name),
                "letters, digits, - and _",
            ));
        }
        if keep.store.durability() != Durability::Manual {
            return Err(Error::connector("the job's store must be opened with durability manual"));
        }
        let table = keep.store.table(table_name(&keep.name).as_bytes(), IndexKind::Hash);
        Ok(JobTables {
            store: keep.store.clone(),
            name: keep.name.clone(),
            from_start: keep.from_start,
            table: table.map_err(failed("make a table in"))?,
            own: HashMap::new(),
        })
    }

    fn own_name(&self, number: u64) -> String {
        format!("{}.{number}", table_name(&self.name))
    }

    /// The claim that the job has or will have; nothing is written yet.
    pub fn claim(&self) -> Result<Claim> {
        let found = self.table.get(CLAIM).map_err(failed("read"))?;
        let found = match found.map(|bytes| Claim::of(&bytes)).transpose() {
            // Then nothing shows which of the existing keys and parts are the job's own.
            Err(_) if self.from_start => None,
            found => found?,
        };
        Ok(match found {
            None => Claim { anew: self.from_start, ..Claim::new() },
            Some(claim) if !self.from_start => claim,
            Some(mut before) => {
                let has_checkpoint = self.table.get(HEAD).map_err(failed("read"))?.is_some();
                // Runs that had ended at the checkpoint were removed before it.
                let mut over = if has_checkpoint { Vec::new() } else { before.over };
                over.append(&mut before.adopted);
                over.push(before.run);
                Claim { over, anew: true, ..Claim::new() }
            }
        })
    }

    /// Begins without a checkpoint: records the claim and what the job adopts. Both take effect with the commit in
    /// here.
    pub fn begin(
        &mut self,
        job_store: &mut JobStore,
        claim: &mut Claim,
        existing: Existing,
        strangers: Strangers,
    ) -> Result<()> {
        match existing {
            Existing::Refuse => {
                if let Some(error) = strangers.refused(&self.name) {
                    return Err(error);
                }
            }
            Existing::Overwrite => {
                claim.over.extend(strangers.runs);
                claim.anew |= strangers.count > 0;
            }
            Existing::Adopt => claim.adopted.extend(strangers.runs),
        }
        let (own, keys) =
            (format!("{}.", table_name(&self.name)), [KEYS, SENT].map(|kind| format!("{kind}.")));
        for table in self.store.tables() {
            let name = String::from_utf8_lossy(&table.name).into_owned();
            let Some(rest) = name.strip_prefix(&own) else { continue };
            if !keys.iter().any(|kind| rest.starts_with(kind)) {
                self.store.drop_table(&table.name).map_err(failed("drop tables of"))?;
            }
        }
        // Keys that this run has adopted stay; the next run has another name.
        let by = if existing == Existing::Adopt { claim.run.as_bytes() } else { b"" };
        for (table, key) in &strangers.keys {
            let table =
                self.store.table(table.as_bytes(), IndexKind::Hash).map_err(failed("make a table in"))?;
            job_store.writer.table(&table).put(key, by).map_err(failed("write to"))?;
        }
        let mut table = job_store.writer.table(&self.table);
        table.delete(HEAD).map_err(failed("write to"))?;
        table.put(CLAIM, claim.to_json().as_bytes()).map_err(failed("write to"))?;
        self.store.commit().map_err(failed("commit"))
    }

    /// Deletes all keys in this store that are the job's and that this run has not adopted, including those of removed
    /// sinks. The deletion takes effect with the next commit.
    pub fn delete_keys(&mut self, job_store: &mut JobStore, claim: &Claim) -> Result<()> {
        for table in keys_tables(&self.store, &self.name)? {
            let mut keys = Vec::new();
            let mut entry = |value: &duramen::Value<'_>| {
                if value[..] != *claim.run.as_bytes() {
                    keys.push(value.key().to_vec());
                }
            };
            table.for_each(&mut entry).map_err(failed("read"))?;
            for entry in keys {
                if let Some((database, key)) = entry.split_first() {
                    job_store.delete(*database, key)?;
                }
                job_store.writer.table(&table).delete(&entry).map_err(failed("write to"))?;
            }
        }
        Ok(())
    }

    /// The last checkpoint, if the job resumes from it.
    pub fn find(&self) -> Result<Option<Found>> {
        if self.from_start {
            return Ok(None);
        }
        let Some(head) = read_head(&self.table)? else { return Ok(None) };
        let mut states = Vec::new();
        // A head without the field was written by one thread.
        for thread in 0..head["threads"].as_u64().unwrap_or(1).max(1) as usize {
            let state = self.table.get(state_key(thread)).map_err(failed("read"))?;
            let state = state.ok_or_else(|| {
                Error::connector(format!(
                    "a checkpoint has a head and no state of thread {thread}; it is damaged"
                ))
            })?;
            states.push(state.to_vec());
        }
        Ok(Some(Found { head: Head::of(&head)?, states }))
    }

    /// The same tables for another thread.
    pub fn another(&self) -> JobTables {
        JobTables {
            store: self.store.clone(),
            name: self.name.clone(),
            from_start: self.from_start,
            table: self.table.clone(),
            own: HashMap::new(),
        }
    }

    fn own(&mut self, number: u64) -> Result<&Table> {
        if !self.own.contains_key(&number) {
            let name = self.own_name(number);
            let table =
                self.store.table(name.as_bytes(), IndexKind::Hash).map_err(failed("make a table in"))?;
            self.own.insert(number, table);
        }
        Ok(&self.own[&number])
    }

    /// A page of the last checkpoint.
    pub fn get(&mut self, number: u64, page: u32) -> Result<Vec<u8>> {
        let found = if Numbers::has_own_table(number) {
            let table = self.own(number)?;
            table.get(page.to_be_bytes()).map(|found| found.map(|bytes| bytes.to_vec()))
        } else {
            self.table.get(key(number, page)).map(|found| found.map(|bytes| bytes.to_vec()))
        };
        found.map_err(failed("read"))?.ok_or_else(|| {
            Error::connector(format!(
                "page {page} of vector {number} is not in the checkpoint; it is damaged"
            ))
        })
    }

    /// Deletes the vectors and pages that the last checkpoint does not name. Returns the number of pages of each vector
    /// in the shared table.
    fn sweep(&mut self, named: &[u64]) -> Result<HashMap<u64, u32>> {
        let own = self.own_name(0);
        let own = &own[..own.len() - 1];
        for table in self.store.tables() {
            let name = String::from_utf8_lossy(&table.name).into_owned();
            if let Some(number) = name.strip_prefix(own).and_then(|number| number.parse::<u64>().ok())
                && !named.contains(&number)
            {
                self.own.remove(&number);
                self.store.drop_table(&table.name).map_err(failed("drop tables of"))?;
            }
        }
        let (mut pages, mut gone) = (HashMap::new(), Vec::new());
        self.table
            .for_each(|value| {
                let Ok(bytes) = <[u8; 12]>::try_from(value.key()) else { return };
                let number = bytes[..8].try_into().map_or(0, u64::from_be_bytes);
                let page = bytes[8..].try_into().map_or(0, u32::from_be_bytes);
                if named.contains(&number) {
                    let pages = pages.entry(number).or_insert(0);
                    *pages = (page + 1).max(*pages);
                } else {
                    gone.push(bytes);
                }
            })
            .map_err(failed("read"))?;
        for key in gone {
            self.table.delete(key).map_err(failed("write"))?;
        }
        Ok(pages)
    }
}

/// A page to be written: vector number, page number, bytes.
type Page = (u64, u32, Vec<u8>);

enum Order {
    Pages(Vec<Page>),
    End {
        head: Box<Head>,
        states: Vec<Vec<u8>>,
        participants: Vec<Box<dyn CommitParticipant>>,
        named: Vec<u64>,
    },
}

/// The result of a checkpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done {
    /// Bytes of pages that were written.
    pub bytes: u64,
    /// How long the commit took.
    pub commit: Duration,
}

/// A sender of pages of checkpoints.
#[derive(Clone)]
pub struct Pages(SyncSender<Order>);

impl Pages {
    /// Sends pages; gives them back if the queue is full.
    pub fn send(&self, pages: Vec<Page>) -> Result<Option<Vec<Page>>> {
        match self.0.try_send(Order::Pages(pages)) {
            Ok(()) => Ok(None),
            Err(TrySendError::Full(Order::Pages(pages))) => Ok(Some(pages)),
            Err(_) => Err(gone()),
        }
    }

    /// Sends pages; waits while the queue is full.
    pub fn send_waiting(&self, pages: Vec<Page>) -> Result<()> {
        self.0.send(Order::Pages(pages)).map_err(|_| gone())
    }
}

fn gone() -> Error {
    Error::connector("the thread for checkpoints has ended")
}

/// The thread that writes checkpoints.
pub struct Keeper {
    orders: Option<SyncSender<Order>>,
    answers: Receiver<Result<Done>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread. `named` are the vectors of the last checkpoint.
    pub fn start(job_tables: JobTables, named: Vec<u64>) -> Result<Keeper> {
        // At most 16 times 256 KiB wait.
        let (orders, taken) = sync_channel(16);
        let (answer, answers) = channel();
        let thread = std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || {
                give_way();
                let done = |done| {
                    // The caller may have dropped the receiver.
                    let _ = answer.send(Ok(done));
                };
                if let Err(error) = caught(|| work(job_tables, named, &taken, &done)) {
                    let _ = answer.send(Err(error));
                }
            })
            .map_err(|error| Error::connector(format!("cannot start the thread for checkpoints: {error}")))?;
        Ok(Keeper { orders: Some(orders), answers, thread: Some(thread) })
    }

    /// A sender of pages for other threads.
    pub fn pages(&self) -> Option<Pages> {
        self.orders.clone().map(Pages)
    }

    /// Sends pages; gives them back if the queue is full.
    pub fn send(&self, pages: Vec<Page>) -> Result<Option<Vec<Page>>> {
        match self.pages() {
            Some(orders) => orders.send(pages).map_err(|_| self.why()),
            None => Ok(None),
        }
    }

    /// Sends pages; waits while the queue is full.
    pub fn send_waiting(&self, pages: Vec<Page>) -> Result<()> {
        match self.pages() {
            Some(orders) => orders.send_waiting(pages).map_err(|_| self.why()),
            None => Ok(()),
        }
    }

    /// Sends the end of a checkpoint, after all pages that any thread has sent before.
    pub fn end(
        &self,
        head: Head,
        states: Vec<Vec<u8>>,
        participants: Vec<Box<dyn CommitParticipant>>,
        named: Vec<u64>,
    ) -> Result<()> {
        let Some(orders) = &self.orders else { return Ok(()) };
        orders.send(Order::End { head: Box::new(head), states, participants, named }).map_err(|_| self.why())
    }

    fn why(&self) -> Error {
        match self.answers.recv() {
            Ok(Err(error)) => error,
            _ => gone(),
        }
    }

    /// The result of the checkpoint that was ended, if it is complete.
    pub fn done(&self) -> Result<Option<Done>> {
        match self.answers.try_recv() {
            Ok(done) => done.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(gone()),
        }
    }

    /// Waits until the checkpoint that was ended is complete.
    pub fn wait(&self) -> Result<Done> {
        self.answers.recv().unwrap_or_else(|_| Err(gone()))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's loop; it runs until all senders are dropped.
fn work(
    mut job_tables: JobTables,
    named: Vec<u64>,
    orders: &Receiver<Order>,
    done: &dyn Fn(Done),
) -> Result<()> {
    let mut job_store = JobStore::new(&job_tables.store)?;
    let mut pages = job_tables.sweep(&named)?;
    let (mut before, mut bytes) = (named, 0);
    while let Ok(order) = orders.recv() {
        match order {
            Order::Pages(sent) => {
                for (number, page, content) in sent {
                    bytes += content.len() as u64;
                    put(&mut job_tables, &mut job_store, &mut pages, (number, page), &content)?;
                }
            }
            Order::End { head, states, mut participants, named } => {
                for participant in &mut participants {
                    participant.prepare(&mut job_store)?;
                }
                let mut table = job_store.writer.table(&job_tables.table);
                for (thread, state) in states.iter().enumerate() {
                    table.put(state_key(thread), state).map_err(failed("write to"))?;
                }
                table.put(HEAD, head.to_json(now(), states.len()).as_bytes()).map_err(failed("write to"))?;
                let began = Instant::now();
                job_tables.store.commit().map_err(failed("commit"))?;
                let commit = began.elapsed();
                for participant in &mut participants {
                    participant.publish()?;
                }
                for number in before.iter().filter(|number| !named.contains(number)) {
                    drop_vector(&mut job_tables, &mut job_store, &mut pages, *number)?;
                }
                before = named;
                done(Done { bytes: std::mem::take(&mut bytes), commit });
            }
        }
    }
    Ok(())
}

fn put(
    job_tables: &mut JobTables,
    job_store: &mut JobStore,
    pages: &mut HashMap<u64, u32>,
    (number, page): (u64, u32),
    content: &[u8],
) -> Result<()> {
    let put = if Numbers::has_own_table(number) {
        job_store.writer.table(job_tables.own(number)?).put(page.to_be_bytes(), content)
    } else {
        let pages = pages.entry(number).or_insert(0);
        *pages = (page + 1).max(*pages);
        job_store.writer.table(&job_tables.table).put(key(number, page), content)
    };
    put.map_err(failed("write to"))
}

fn drop_vector(
    job_tables: &mut JobTables,
    job_store: &mut JobStore,
    pages: &mut HashMap<u64, u32>,
    number: u64,
) -> Result<()> {
    if Numbers::has_own_table(number) {
        job_tables.own.remove(&number);
        let name = job_tables.own_name(number);
        job_tables.store.drop_table(name.as_bytes()).map_err(failed("drop tables of"))?;
        return Ok(());
    }
    for page in 0..pages.remove(&number).unwrap_or(0) {
        job_store.writer.table(&job_tables.table).delete(key(number, page)).map_err(failed("write to"))?;
    }
    Ok(())
}
