//! Sinks that deliver the results of each checkpoint to another system, a broker or a server, exactly once.
//! `docs/internals/decisions/030-kafka-transactions.md` shows why nothing is lost and nothing is delivered twice.
//!
//! # Order
//!
//! 1. The messages of a checkpoint are put into the job's store, in the commit of the checkpoint: the *outbox*. The
//!    head has the name of their delivery: its run and its number.
//! 2. After that commit they are delivered in one atomic step, which also writes a *marker*: the delivery's name.
//! 3. The delivery is complete before the next checkpoint is committed.
//!
//! # Invariants
//!
//! 1. The outbox is replaced only when its delivery is complete: [`CommitParticipant::publish`] of one checkpoint is
//!    done before [`CommitParticipant::prepare`] of the next, and the delivery that a crash left is done before any
//!    row is taken.
//! 2. If the outcome of a delivery is unknown, the writer reconnects. A new connection prevents all earlier ones from
//!    completing deliveries that they have begun, and only then reads the marker: so the marker is final.
//! 3. So a delivery is sent if and only if the marker is that of the delivery before it.

mod messages;
mod outage;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use self::messages::{Messages, append, messages};
pub use self::outage::Outage;
use super::claim::Claim;
use super::records::Place;
use super::row_sink::{CommitParticipant, JobStore, RowSink};
use super::row_source::place;
use crate::catalog::Table;
use crate::compile::{Output, Rows};
use crate::error::{Error, Result};

/// Bytes of messages at which a checkpoint is made early.
const FULL_BYTES: usize = 32 << 20;
/// How long a stopping job waits for a system that does not answer.
const LAST: Duration = Duration::from_secs(5);
/// Between two attempts.
const REST: Duration = Duration::from_millis(300);

/// The value of `'sink.delivery-guarantee'`, if it is set.
pub fn guarantee(table: &Table, place: Place<'_>) -> Result<Option<bool>> {
    let guarantee = table.options.get("sink.delivery-guarantee").map(String::as_str);
    match guarantee {
        None => Ok(None),
        Some("exactly-once") if place.job.is_some() => Ok(Some(true)),
        Some("exactly-once") => Err(Error::invalid(
            format!(
                "'sink.delivery-guarantee' = 'exactly-once' of `{}` in a job without a store",
                table.name
            ),
            "a store for the job: --store PATH",
        )),
        Some("at-least-once" | "none") => Ok(Some(false)),
        Some(other) => Err(Error::invalid(
            format!("'sink.delivery-guarantee' = '{other}' of `{}`", table.name),
            "'exactly-once', 'at-least-once' or 'none'",
        )),
    }
}

/// The name of a delivery: numbers count from 1 in each run of the job from its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The run.
    pub run: String,
    /// Its number.
    pub number: u64,
}

/// Why a delivery failed, as far as known.
pub enum Failure {
    /// A new connection may help.
    Passing(String),
    /// It will never succeed.
    Lasting(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Lasting(error)
    }
}

/// Delivers messages to another system.
pub trait Deliver: Send {
    /// The job begins without a checkpoint. Appends messages that remove the results delivered by earlier runs.
    fn begin(&mut self, job_store: &mut JobStore, claim: &Claim, messages: &mut Messages) -> Result<()> {
        let _ = (job_store, claim, messages);
        Ok(())
    }

    /// After `begin`, and before any row is taken: looks for existing data of others at the places of delivery.
    fn look(&mut self, messages: &mut Messages) -> Result<(), Failure> {
        let _ = messages;
        Ok(())
    }

    /// Prepares messages for delivery after the commit of the checkpoint that is being written. Returns them in their
    /// final form, in as many chunks.
    fn prepare(&mut self, chunks: Vec<Vec<u8>>, job_store: &mut JobStore) -> Result<Vec<Vec<u8>>> {
        let _ = job_store;
        Ok(chunks)
    }

    /// Reconnects, and returns the marker. From now on no earlier connection can complete a delivery.
    fn connect(&mut self) -> Result<Option<Name>, Failure>;

    /// Delivers messages and their marker atomically over the current connection. `before` is the current marker.
    fn deliver(&mut self, name: &Name, before: Option<&Name>, chunks: &[Vec<u8>]) -> Result<(), Failure>;

    /// Drops the connection.
    fn disconnect(&mut self);

    /// An error of this table.
    fn failed(&self, what: &str) -> Error;

    /// The table and the system that it delivers to, for reports.
    fn whom(&self) -> (String, String);
}

/// Encodes rows as messages.
pub trait Encode: Send {
    /// Appends the messages of rows.
    fn encode(&mut self, rows: &Rows<'_>, messages: &mut Messages) -> Result<()>;

    /// Appends the messages that it has kept until the end of the checkpoint.
    fn end(&mut self, messages: &mut Messages) {
        let _ = messages;
    }

    /// Bytes that it keeps until then.
    fn kept(&self) -> usize {
        0
    }
}

/// The sink.
pub struct Outbox<D: Deliver> {
    encode: Box<dyn Encode>,
    waiting: Messages,
    /// The last delivery that was begun.
    last: Name,
    /// The table of the job's store.
    table: String,
    /// Left by a crash: the messages of `last`, if they are not delivered.
    left: Option<Vec<Vec<u8>>>,
    /// Whether it must still look for existing data of others at the places of delivery.
    blind: bool,
    writer: Arc<Mutex<Writer<D>>>,
    whom: (String, String),
    outage: Outage,
    stopping: Arc<AtomicBool>,
}

impl<D: Deliver> Outbox<D> {
    /// The sink with this number in its job. `outage` is shared with `deliver`, which also reports to it.
    pub fn new(
        deliver: D,
        encode: Box<dyn Encode>,
        outage: Outage,
        number: usize,
        place: Place<'_>,
    ) -> Outbox<D> {
        let stopping = Arc::new(AtomicBool::new(false));
        let whom = deliver.whom();
        let writer = Writer { deliver, at: None, outage: outage.clone(), stopping: stopping.clone() };
        Outbox {
            encode,
            waiting: Messages::default(),
            last: Name { run: String::new(), number: 0 },
            table: format!("sql.{}.out.{number}", place.job.unwrap_or_default()),
            left: None,
            blind: false,
            writer: Arc::new(Mutex::new(writer)),
            whom,
            outage,
            stopping,
        }
    }
}

impl<D: Deliver> Drop for Outbox<D> {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl<D: Deliver> Output for Outbox<D> {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.encode.encode(rows, &mut self.waiting)
    }
}

impl<D: Deliver + 'static> RowSink for Outbox<D> {
    fn end_part(&mut self) -> Result<(Value, Option<Box<dyn CommitParticipant>>)> {
        self.encode.end(&mut self.waiting);
        let messages = std::mem::take(&mut self.waiting);
        self.last.number += u64::from(!messages.is_empty());
        let Name { run, number } = &self.last;
        let publishes = json!({ "run": run, "number": number, "chunks": messages.chunks.len() });
        if messages.is_empty() {
            return Ok((publishes, None));
        }
        let delivery = Delivery {
            name: self.last.clone(),
            chunks: messages.chunks,
            table: self.table.clone(),
            writer: self.writer.clone(),
        };
        Ok((publishes, Some(Box::new(delivery))))
    }

    fn recover(
        &mut self,
        part: Option<&Value>,
        _: u64,
        job_store: &mut JobStore,
        claim: &Claim,
    ) -> Result<()> {
        let Some(part) = part else {
            self.last = Name { run: claim.run.clone(), number: 0 };
            self.blind = true;
            lock(&self.writer).deliver.begin(job_store, claim, &mut self.waiting)?;
            return Ok(());
        };
        let run = part["run"].as_str().unwrap_or_default().to_owned();
        self.last = Name { run, number: place(part, "number")? };
        let chunks = place(part, "chunks")? as usize;
        self.left = if chunks > 0 { Some(job_store.records(&self.table, chunks)?) } else { None };
        Ok(())
    }

    fn is_unpublished(&self) -> bool {
        self.left.is_some() || self.blind
    }

    fn publish_left(&mut self) -> Result<bool> {
        if self.blind {
            self.blind = !lock(&self.writer).look(&mut self.waiting)?;
            return Ok(!self.blind);
        }
        let Some(chunks) = &self.left else { return Ok(true) };
        let is_published = lock(&self.writer).once(&self.last, chunks)?;
        if is_published {
            self.left = None;
        }
        Ok(is_published)
    }

    fn is_full(&self) -> bool {
        self.waiting.bytes + self.encode.kept() >= FULL_BYTES
    }

    fn waits(&self) -> Option<String> {
        self.outage.report(&self.whom.0, &self.whom.1)
    }

    fn stop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// The messages of a checkpoint.
struct Delivery<D: Deliver> {
    name: Name,
    chunks: Vec<Vec<u8>>,
    table: String,
    writer: Arc<Mutex<Writer<D>>>,
}

impl<D: Deliver> CommitParticipant for Delivery<D> {
    fn prepare(&mut self, job_store: &mut JobStore) -> Result<()> {
        self.chunks = lock(&self.writer).deliver.prepare(std::mem::take(&mut self.chunks), job_store)?;
        job_store.replace(&self.table, &self.chunks)
    }

    fn publish(&mut self) -> Result<()> {
        let mut writer = lock(&self.writer);
        let mut stopped = None;
        while !writer.once(&self.name, &self.chunks)? {
            if writer.stopping.load(Ordering::Relaxed)
                && stopped.get_or_insert_with(Instant::now).elapsed() >= LAST
            {
                let error = writer.deliver.failed("no client took the last results before the job stopped");
                return Err(error.hint("they remain in the job's store and are sent when the job resumes"));
            }
        }
        Ok(())
    }
}

fn lock<D: Deliver>(writer: &Mutex<Writer<D>>) -> MutexGuard<'_, Writer<D>> {
    // A thread that panicked has reported it; the job ends.
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of a delivery, according to the marker.
#[derive(Debug, PartialEq, Eq)]
enum Marked {
    Delivered,
    Missing,
    Unknown,
}

/// Compares the marker with the name of a delivery.
fn judge(marker: Option<&Name>, wanted: &Name) -> Marked {
    match marker {
        Some(marker) if marker == wanted => Marked::Delivered,
        Some(marker) if marker.run == wanted.run && marker.number + 1 == wanted.number => Marked::Missing,
        Some(marker) if marker.run == wanted.run => Marked::Unknown,
        // The first delivery of its run: the marker is that of another run, or there is none.
        _ if wanted.number == 1 => Marked::Missing,
        _ => Marked::Unknown,
    }
}

/// Ensures that each delivery happens exactly once.
struct Writer<D: Deliver> {
    deliver: D,
    /// The current marker, while nothing is uncertain on the connection.
    at: Option<Option<Name>>,
    outage: Outage,
    /// Whether the job is stopping, so that waits must be short.
    stopping: Arc<AtomicBool>,
}

impl<D: Deliver> Writer<D> {
    /// Tries once to complete a delivery; returns whether it is complete. After a temporary failure it waits a moment.
    fn once(&mut self, name: &Name, chunks: &[Vec<u8>]) -> Result<bool> {
        let done = self.attempt(name, chunks);
        self.is_done(done)
    }

    /// Tries once to look for data of others; returns whether that is done.
    fn look(&mut self, messages: &mut Messages) -> Result<bool> {
        let done = self.deliver.look(messages);
        self.is_done(done)
    }

    fn is_done(&mut self, done: Result<(), Failure>) -> Result<bool> {
        match done {
            Ok(()) => {
                self.outage.is_over();
                Ok(true)
            }
            Err(failure) => {
                self.at = None;
                self.deliver.disconnect();
                match failure {
                    Failure::Lasting(error) => Err(error),
                    Failure::Passing(why) => {
                        self.outage.is(why);
                        std::thread::sleep(REST);
                        Ok(false)
                    }
                }
            }
        }
    }

    fn attempt(&mut self, name: &Name, chunks: &[Vec<u8>]) -> Result<(), Failure> {
        let at = match self.at.take() {
            Some(at) => at,
            None => self.deliver.connect()?,
        };
        match judge(at.as_ref(), name) {
            Marked::Delivered => {}
            Marked::Missing => self.deliver.deliver(name, at.as_ref(), chunks)?,
            Marked::Unknown => return Err(Failure::Lasting(self.unknown(at.as_ref(), name))),
        }
        self.at = Some(Some(name.clone()));
        Ok(())
    }

    fn unknown(&self, marker: Option<&Name>, wanted: &Name) -> Error {
        let found = match marker {
            Some(marker) => format!("number {} of run {}", marker.number, marker.run),
            None => "none".to_owned(),
        };
        let Name { run, number } = wanted;
        let error = self.deliver.failed(&format!(
            "cannot tell whether delivery {number} of run {run} has arrived: found the marker {found}, wanted that delivery or \
             the one before it"
        ));
        error.hint("the marker was lost, or another job has the same name; --from-start starts the job again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_sent_only_if_the_marker_names_its_predecessor() {
        let name = |run: &str, number| Name { run: run.to_owned(), number };
        let judge = |marker: Option<Name>, number| judge(marker.as_ref(), &name("b", number));
        assert_eq!(judge(Some(name("b", 7)), 7), Marked::Delivered);
        assert_eq!(judge(Some(name("b", 6)), 7), Marked::Missing);
        // The first delivery of a run.
        assert_eq!(judge(None, 1), Marked::Missing);
        assert_eq!(judge(Some(name("a", 1)), 1), Marked::Missing);
        assert_eq!(judge(Some(name("b", 1)), 1), Marked::Delivered);
        // The marker was lost, or belongs to a copy of the job that ran elsewhere, or to another job.
        assert_eq!(judge(None, 2), Marked::Unknown);
        assert_eq!(judge(Some(name("b", 5)), 7), Marked::Unknown);
        assert_eq!(judge(Some(name("b", 8)), 7), Marked::Unknown);
        assert_eq!(judge(Some(name("b", 2)), 1), Marked::Unknown);
        assert_eq!(judge(Some(name("a", 6)), 7), Marked::Unknown);
    }
}
