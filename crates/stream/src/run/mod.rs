//! Runs a compiled job: batches from sources, through code, to sinks, until the input ends or somebody stops it.

mod fill;
mod format;
mod generate;
mod sink;
mod source;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use self::fill::Fill;
use self::fill::now;
pub use self::sink::open as open_sink;
pub use self::source::open as open_source;
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::{Held, Output, Program, Source};
use crate::error::{Error, Result};
use crate::plan::{Node, NodeOp, Sink};

/// Rows of a batch: some thousand, so that what is done once for each costs nothing, and columns stay in the cache.
pub const BATCH_ROWS: usize = 4096;

/// Where a job stands.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Records that were read.
    pub records: u64,
    /// Records that could not be read and were left out, as their table says.
    pub skipped: u64,
    /// Since the job began.
    pub elapsed: Duration,
    /// The least watermark, in microseconds.
    pub watermark: i64,
    /// What breakers hold.
    pub held: Vec<Held>,
}

/// A source of a running job.
struct Feed {
    fill: Box<dyn Fill>,
    batch: Batch,
    more: bool,
}

/// A job that runs.
pub struct Running {
    program: Program,
    feeds: Vec<Feed>,
    records: u64,
    began: Instant,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({} records)", self.records)
    }
}

fn tables(node: &Arc<Node>, found: &mut Vec<Arc<Table>>) {
    if let NodeOp::Scan(scan) = &node.op {
        found.push(scan.table.clone());
    }
    node.inputs().into_iter().for_each(|input| tables(input, found));
}

impl Running {
    /// Compiles a job and opens its sources and sinks. Paths of files are relative to `directory`.
    pub fn start(sinks: &[Sink], directory: &Path) -> Result<Running> {
        let outputs: Result<Vec<Box<dyn Output>>> =
            sinks.iter().map(|sink| open_sink(sink, directory)).collect();
        let plans: Vec<Arc<Node>> = sinks.iter().map(|sink| sink.input.clone()).collect();
        let program = Program::compile(&plans, outputs?)?;
        if let Some(lookup) = program.lookups().first() {
            return Err(Error::unsupported(format!(
                "looking rows up in `{}` in a running job",
                lookup.table
            )));
        }
        let mut named = Vec::new();
        plans.iter().for_each(|plan| tables(plan, &mut named));
        let feed = |source: &Source| -> Result<Feed> {
            let table = named.iter().find(|table| table.name == source.table);
            let table = table.ok_or_else(|| Error::connector(format!("no table `{}`", source.table)))?;
            Ok(Feed {
                fill: open_source(table, source, directory)?,
                batch: Batch::new(&source.types)?,
                more: true,
            })
        };
        let feeds: Result<Vec<Feed>> = program.sources().iter().map(feed).collect();
        Ok(Running { program, feeds: feeds?, records: 0, began: Instant::now() })
    }

    /// The compiled job.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Where the job stands.
    pub fn progress(&self) -> Progress {
        Progress {
            records: self.records,
            skipped: self.feeds.iter().map(|feed| feed.fill.skipped()).sum(),
            elapsed: self.began.elapsed(),
            watermark: self.program.watermark(),
            held: self.program.held(),
        }
    }

    /// One batch of each source; whether there is more.
    fn turn(&mut self) -> Result<bool> {
        let mut more = false;
        for (number, feed) in self.feeds.iter_mut().enumerate() {
            if !feed.more {
                continue;
            }
            feed.batch.clear();
            feed.more = feed.fill.fill(&mut feed.batch, BATCH_ROWS)?;
            more |= feed.more;
            feed.batch.clock = now();
            self.records += feed.batch.rows() as u64;
            if feed.batch.rows() > 0 {
                self.program.run(number, &feed.batch)?;
            }
        }
        Ok(more)
    }

    /// Runs until all input has ended, or `stop` is set: then no window closes that the watermark has not passed.
    /// `report` is called every half second.
    pub fn run(&mut self, stop: &AtomicBool, mut report: impl FnMut(&Progress)) -> Result<Progress> {
        let mut last = Instant::now();
        while self.turn()? {
            if stop.load(Ordering::Relaxed) {
                return Ok(self.progress());
            }
            if last.elapsed() >= Duration::from_millis(500) {
                last = Instant::now();
                report(&self.progress());
            }
        }
        self.program.finish()?;
        Ok(self.progress())
    }
}
