//! Builds a job from its text, for programs.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use super::{Job, Outcome, Session};
use crate::catalog::Table;
use crate::compile::Source;
use crate::error::{Error, Result};
use crate::run::{Existing, Keep, Progress, RowSource, Running, Start};

/// Makes the source of a table, given the columns to read.
type Make<'p> = Box<dyn FnMut(&Table, &Source) -> Result<Box<dyn RowSource>> + 'p>;

/// A job to run, and its settings.
///
/// ```
/// use duramen_stream::Pipeline;
///
/// # let directory = std::env::temp_dir().join(format!("duramen-pipeline-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory).unwrap();
/// std::fs::write(directory.join("orders.csv"), "1,5\n2,6\n1,7\n").unwrap();
/// let script = "
///     CREATE TABLE orders (id BIGINT, price BIGINT)
///       WITH ('connector' = 'filesystem', 'path' = 'orders.csv', 'format' = 'csv');
///     CREATE TABLE large (id BIGINT, price BIGINT)
///       WITH ('connector' = 'filesystem', 'path' = 'large.csv', 'format' = 'csv');
///     INSERT INTO large SELECT id, price FROM orders WHERE price > 5;";
/// let progress = Pipeline::from_sql(script)?.directory(&directory).run()?;
/// assert_eq!(progress.records, 3);
/// assert_eq!(std::fs::read_to_string(directory.join("large.csv")).unwrap(), "2,6\n1,7\n");
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok::<(), duramen_stream::Error>(())
/// ```
pub struct Pipeline<'p> {
    job: Job,
    directory: PathBuf,
    keep: Option<Keep>,
    threads: Option<usize>,
    existing: Existing,
    sources: Vec<(String, Make<'p>)>,
}

impl<'p> Pipeline<'p> {
    /// The only job of a script: an INSERT or a statement set, after the statements that it needs.
    pub fn from_sql(script: &str) -> Result<Pipeline<'p>> {
        let jobs = Session::default().run(script)?.into_iter().filter_map(|outcome| match outcome {
            Outcome::Job(job) => Some(job),
            Outcome::Done | Outcome::Text(_) => None,
        });
        let mut jobs: Vec<Job> = jobs.collect();
        match (jobs.pop(), jobs.len()) {
            (Some(job), 0) => Ok(Pipeline {
                job,
                directory: PathBuf::new(),
                keep: None,
                threads: None,
                existing: Existing::Refuse,
                sources: Vec::new(),
            }),
            (last, before) => Err(Error::invalid(
                format!("a script with {} jobs", before + usize::from(last.is_some())),
                "one INSERT, or one statement set",
            )),
        }
    }

    /// The directory for relative paths of files. Default: the working directory of the process.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = directory.into();
        self
    }

    /// The directory of its checkpoints; the job resumes from the last one there.
    #[must_use]
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = Some(keep);
        self
    }

    /// The number of threads, as in [`Start::threads`].
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// How to treat existing keys and files at the places where the job will write but did not write before. By default
    /// the job does not start.
    #[must_use]
    pub fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Replaces the connector of a table by the caller's source.
    #[must_use]
    pub fn source(
        mut self,
        table: &str,
        make: impl FnMut(&Table, &Source) -> Result<Box<dyn RowSource>> + 'p,
    ) -> Self {
        self.sources.push((table.to_owned(), Box::new(make)));
        self
    }

    /// Compiles the job, and opens its sources and sinks.
    pub fn start(self) -> Result<Running> {
        let Pipeline { job, directory, keep, threads, existing, mut sources } = self;
        let mut own = |table: &Table, source: &Source| {
            let make = sources.iter_mut().find(|(name, _)| *name == table.name);
            make.map(|(_, make)| make(table, source)).transpose()
        };
        let start = Start { directory: &directory, keep: keep.as_ref(), threads, existing, own: &mut own };
        Running::start_on(&job.optimised, start)
    }

    /// Runs it until its input has ended.
    pub fn run(self) -> Result<Progress> {
        self.start()?.run(&AtomicBool::new(false), |_| ())
    }
}
