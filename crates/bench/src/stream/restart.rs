//! From `kill -9` to the first new result.
//!
//! A process runs the query up to the moment before a window closes, waits there for a checkpoint, reports it, and is
//! killed. Another process resumes the job; its first result belongs to the window that the first process had nearly
//! filled. The whole time in between counts: starting, opening the store, compiling, reading the state back, and the
//! missing records.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::stream::generator::{BATCH, DELAY, SIZE, Watch};
use crate::stream::{Failure, Home, job, per_window};

/// Makes the command of a process that calls [`run`] with this place, these keys and this home.
pub type Start<'s> = dyn Fn(&Path, u64, &Home) -> Command + 's;

/// The process prints these lines when it may be killed, and when it has read its first record after the restart.
const READY: &str = "ready";
const FIRST: &str = "first record";

/// Times since the kill.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The time until the first new record is read.
    pub record: Duration,
    /// The time until the first new result is there.
    pub result: Duration,
}

fn started(command: &mut Command) -> Result<(Child, BufReader<std::process::ChildStdout>), Failure> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let stdout = child.stdout.take().ok_or("a process without an output")?;
    Ok((child, BufReader::new(stdout)))
}

/// The next line of a process's output.
fn line(output: &mut impl BufRead) -> Result<String, Failure> {
    let mut line = String::new();
    match output.read_line(&mut line)? {
        0 => Err("the process ended before it was killed".into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

/// Starts a job, kills it, and starts it again.
pub(crate) fn measure(keys: u64, home: &Home, start: &Start<'_>) -> Result<Times, Failure> {
    let place = tempfile::tempdir_in(&home.directory)?;
    let path = place.path().join("store");
    let (mut child, mut output) = started(&mut start(&path, keys, home))?;
    let said = loop {
        match line(&mut output) {
            Ok(said) if said != READY => {}
            said => break said,
        }
    };
    let began = Instant::now();
    child.kill()?;
    child.wait()?;
    said?;
    let (mut child, mut output) = started(&mut start(&path, keys, home))?;
    let mut times = || -> Result<Times, Failure> {
        let mut record = None;
        loop {
            let said = line(&mut output)?;
            if said == FIRST {
                record = Some(began.elapsed());
            } else if let Some(record) = record {
                return Ok(Times { record, result: began.elapsed() });
            }
        }
    };
    let times = times();
    child.kill()?;
    child.wait()?;
    times
}

/// Waits for a checkpoint shortly before the first window closes.
struct Stop {
    at: u64,
    /// Whether a checkpoint has begun there.
    kept: Arc<AtomicBool>,
    /// Whether it still has to wait; `None` before the first record.
    waits: Option<bool>,
    /// Whether it has given records.
    gave: bool,
}

impl Watch for Stop {
    fn waits(&mut self, made: u64) -> bool {
        // A process that resumes from that checkpoint waits for nothing.
        let waits = self.waits.get_or_insert(made < self.at);
        *waits &= made <= self.at;
        *waits && made == self.at
    }

    fn kept(&self, made: u64) {
        if made == self.at {
            self.kept.store(true, Ordering::Relaxed);
        }
    }

    fn gave(&mut self, made: u64) {
        // Only a process that resumed begins after `at`; the first process prints nothing here.
        if !std::mem::replace(&mut self.gave, true) && made > self.at {
            say(FIRST);
        }
    }
}

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    // The reader of the output may have gone.
    let _ = writeln!(out, "{what}").and_then(|()| out.flush());
}

/// Runs the job in the process, with its results as lines on standard output, until it is killed.
///
/// # Errors
/// When the store cannot be opened, or the job fails.
pub fn run(path: &Path, keys: u64, home: &Home) -> Result<(), Failure> {
    let keep = job::keep(path, home, Duration::from_millis(200))?;
    // One or two batches before the watermark passes the end of the window, within a thousandth of it.
    let records = per_window(keys);
    let close = records + records * DELAY as u64 / SIZE as u64;
    let at = (close - records / 1000) / BATCH as u64 * BATCH as u64;
    let kept = Arc::new(AtomicBool::new(false));
    let mut running = {
        let stop = Stop { at, kept: kept.clone(), waits: None, gave: false };
        job::start(keys, "print", (Some(&keep), 1), stop)?
    };
    let went_on = running.records_before() >= at;
    let mut whole = None;
    running.run(&AtomicBool::new(false), |progress| {
        let count = progress.checkpoints.map_or(0, |kept| kept.count);
        if went_on || !kept.load(Ordering::Relaxed) {
            return;
        }
        // A later checkpoint has completed after the first one began there: the first one is whole.
        if count > *whole.get_or_insert(count) {
            say(READY);
        }
    })?;
    Ok(())
}
