//! Jobs of continuous SQL in the server process: directive `duramen-sql`. `docs/internals/decisions/031-jobs-in-the-server.md`
//! explains why their state is not in the served store.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use duramen::{Durability, MediumKind};
use duramen_server::hosted_jobs::{JobProgress, JobState};
use duramen_server::{Config, Error, ErrorKind, InProcessClient, log};
use duramen_stream::catalog::Attachment;
use duramen_stream::run::{Existing, Keep, MemoryLimit, Running, Start, check_script, show_notices};
use duramen_stream::{Job, Outcome, Session};

use super::sql::{line, name_of, numbers, open};
use crate::Failure;

/// The jobs, and their directory.
pub struct Settings {
    scripts: Vec<PathBuf>,
    directory: PathBuf,
    every: Duration,
    existing: Existing,
}

impl Settings {
    /// From the directives.
    ///
    /// # Errors
    /// When the served store may lose acknowledged writes in a crash.
    pub fn of(config: &Config) -> Result<Settings, Failure> {
        if !config.sql.is_empty() && config.durability == Durability::Manual {
            let message = "duramen-sql with duramen-durability manual: a crash would undo results that the jobs count \
                           as written; choose every-write, or an interval";
            return Err(Error::new(ErrorKind::Configuration, message).into());
        }
        let scripts: Vec<PathBuf> = config.sql.iter().map(PathBuf::from).collect();
        let same_name = |(at, script): (usize, &PathBuf)| {
            let before = scripts[..at].iter().find(|other| name_of(other) == name_of(script))?;
            Some(format!(
                "duramen-sql: {} and {} would both be job {}; rename one of the files",
                before.display(),
                script.display(),
                name_of(script)
            ))
        };
        if let Some(message) = scripts.iter().enumerate().find_map(same_name) {
            return Err(Error::new(ErrorKind::Configuration, message).into());
        }
        let mut beside = config.path.as_os_str().to_owned();
        beside.push(".jobs");
        let directory = match config.sql_directory.as_str() {
            "" if !scripts.is_empty()
                && config.path.starts_with("/dev/")
                && !config.path.starts_with("/dev/shm") =>
            {
                let message = format!(
                    "duramen-sql with a store on the device {}: its jobs keep their own state in files; set \
                     duramen-sql-directory to a directory for them",
                    config.path.display()
                );
                return Err(Error::new(ErrorKind::Configuration, message).into());
            }
            "" => PathBuf::from(beside),
            directory => PathBuf::from(directory),
        };
        let existing = match config.sql_existing.as_str() {
            "overwrite" => Existing::Overwrite,
            "adopt" => Existing::Adopt,
            _ => Existing::Refuse,
        };
        Ok(Settings { scripts, directory, every: Duration::from_millis(config.sql_every), existing })
    }

    /// Starts all jobs. A failing job is reported; the server and the other jobs continue.
    pub fn start(self, in_process: InProcessClient) -> Jobs {
        show_notices(|text| log::notice(format_args!("{text}")));
        let mut jobs = Jobs { stop: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        let mut all = Vec::new();
        for script in &self.scripts {
            let name = name_of(script);
            // A script must not end the server, whatever it contains.
            let parsed = std::panic::catch_unwind(AssertUnwindSafe(|| parse(script, &in_process)));
            match parsed.unwrap_or_else(|_| Err("it made the planner panic; please report this".to_owned())) {
                Err(why) => report_failed(&in_process, &name, &why),
                Ok(parsed) => all.extend((1..).zip(parsed).map(|(number, job)| {
                    let name = if number > 1 { format!("{name}-{number}") } else { name.clone() };
                    (name, script, job)
                })),
            }
        }
        let count = all.len();
        for (name, script, job) in all {
            let run = Run {
                name: name.clone(),
                job,
                store: self.directory.join(format!("{name}.store")),
                jobs: count,
                every: self.every,
                existing: self.existing,
                note: script.display().to_string(),
                in_process: in_process.clone(),
                stop: Arc::clone(&jobs.stop),
            };
            let thread = std::thread::Builder::new().name(format!("sql {name}"));
            match thread.spawn(move || run.run_until_it_ends()) {
                Ok(thread) => jobs.threads.push(thread),
                Err(error) => report_failed(&in_process, &name, &error.to_string()),
            }
        }
        jobs
    }
}

/// The jobs of a script.
fn parse(script: &Path, in_process: &InProcessClient) -> Result<Vec<Job>, String> {
    let text = std::fs::read_to_string(script)
        .map_err(|error| format!("cannot read {}: {error}", script.display()))?;
    let mut session = Session::default();
    let way = in_process.clone();
    session.attach_here(Attachment::new(move || way.connect()));
    let outcomes = session.run(&text).map_err(|error| format!("{}: {error}", script.display()))?;
    let jobs = outcomes.into_iter().filter_map(|outcome| match outcome {
        Outcome::Job(job) => Some(job),
        Outcome::Done | Outcome::Text(_) => None,
    });
    let jobs: Vec<Job> = jobs.collect();
    check_script(jobs.iter().flat_map(|job| &job.optimised), Path::new("."))
        .map_err(|error| format!("{}: {error}", script.display()))?;
    Ok(jobs)
}

fn report_failed(in_process: &InProcessClient, name: &str, why: &str) {
    log::warning(format_args!("job {name} has failed; the server keeps running without it: {why}"));
    in_process.report(name, JobState::Failed, &format!("error={why}"), None);
}

/// Running jobs; when they are dropped, they make a last checkpoint, publish its results, and end.
pub struct Jobs {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A job that panicked has reported it.
            let _ = thread.join();
        }
    }
}

/// One job.
struct Run {
    name: String,
    job: Job,
    store: PathBuf,
    /// The number of jobs.
    jobs: usize,
    every: Duration,
    existing: Existing,
    note: String,
    in_process: InProcessClient,
    stop: Arc<AtomicBool>,
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            report_failed(&self.in_process, &self.name, "it has panicked; please report this");
        }
    }
}

impl Run {
    fn run_until_it_ends(self) {
        match self.run() {
            Ok((state, text, progress)) => {
                log::notice(format_args!("job {}: state={},{text}", self.name, state.word()));
                self.in_process.report(&self.name, state, &text, Some(progress));
            }
            Err(error) => report_failed(&self.in_process, &self.name, &error.to_string()),
        }
    }

    fn run(&self) -> Result<(JobState, String, JobProgress), Failure> {
        self.in_process.report(&self.name, JobState::Starting, "", None);
        self.in_process.report_plan(&self.name, &self.job.explain()?);
        if let Some(directory) = self.store.parent() {
            std::fs::create_dir_all(directory)
                .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        }
        let keep = Keep {
            store: open(&self.store, MediumKind::Auto)?,
            name: self.name.clone(),
            every: self.every,
            from_start: false,
            note: self.note.clone(),
            room: MemoryLimit::beside(&self.store, None, self.jobs)?,
        };
        let own = &mut |_: &_, _: &_| Ok(None);
        let start = Start { existing: self.existing, ..Start::here(Some(&keep), None, own) };
        let mut running = Running::start_on(&self.job.optimised, start)?;
        let before = running.records_before();
        log::notice(format_args!("job {}: resumed after {}", self.name, log::counted(before, "record")));
        let ended = running.run(&self.stop, |progress| {
            let (text, numbers) = (line(progress, before), numbers(progress, self.every));
            self.in_process.report(&self.name, JobState::Running, &text, Some(numbers));
        })?;
        let state = if running.is_finished() { JobState::Finished } else { JobState::Stopped };
        Ok((state, line(&ended, before), numbers(&ended, self.every)))
    }
}
