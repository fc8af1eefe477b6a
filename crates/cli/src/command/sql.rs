//! `duramen sql`: runs a script of continuous SQL.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use duramen::{Create, Durability, MediumKind, Options, Store};
use duramen_server::hosted_jobs::{HostedJobs, JobCheckpoints, JobProgress, JobState};
use duramen_server::import::replica::Origin;
use duramen_server::log::counted;
use duramen_server::metrics::{self, Listening, Observed, Phase};
use duramen_stream::compile::Held;
use duramen_stream::run::{
    Existing, Keep, MemoryLimit, Progress, Running, Start, check_script, open_store, show_notices,
};
use duramen_stream::{Error, ErrorKind, Job, Outcome, Session};
use indicatif::ProgressBar;

use crate::signals::Signals;
use crate::{Answer, Failure};

/// Run a script of continuous SQL: each job until its input ends or it is interrupted
#[derive(clap::Args)]
pub struct Args {
    /// The script; - for standard input
    script: PathBuf,
    /// A store for checkpoints, created if it does not exist: a job resumes from its last checkpoint, also after a
    /// crash
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Medium of the store: auto, file, shm, fsdax, devdax
    #[arg(long, default_value_t = MediumKind::Auto, requires = "store")]
    medium: MediumKind,
    /// Milliseconds between two checkpoints
    #[arg(long, value_name = "MS", default_value_t = 10_000, requires = "store")]
    every: u64,
    /// The job's name in the store [default: the script's name]. A second job of the script is NAME-2
    #[arg(long, requires = "store")]
    name: Option<String>,
    /// Threads of each job that EXPLAIN shows as partitioned by keys [default: from the checkpoint, else the CPU count;
    /// 1 for jobs without keyed state, whose rows stay in order]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// A running server, HOST:PORT or redis[s]://[[USER]:PASSWORD@]HOST[:PORT]: tables of connector 'duramen' are in the
    /// store that it serves. With --store, each checkpoint's results reach it in one transaction, exactly once
    #[arg(long, value_name = "ADDRESS")]
    attach: Option<String>,
    /// Memory for job state, in bytes, for all threads; larger state spills to unlinked files next to the store
    /// [default: half of the memory available to the process]
    #[arg(long, value_name = "BYTES", requires = "store")]
    memory: Option<usize>,
    /// Forget the job's state in the store, delete the job's output, and start again
    #[arg(long, requires = "store")]
    from_start: bool,
    /// Delete existing keys and files where the job will write; by default the job refuses to start. Without --store,
    /// the single file of a sink replaces the existing one when the job succeeds
    #[arg(long, conflicts_with = "adopt")]
    overwrite: bool,
    /// Keep existing keys and files where the job will write, as its own: it replaces the keys that it writes, and
    /// without --store it appends to the single file of a sink
    #[arg(long)]
    adopt: bool,
    /// Serve metrics of the jobs at this address, IP:PORT or a port on loopback: /metrics, /health, /ready
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let script = if args.script == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(&args.script)
    };
    let script = script.map_err(|error| format!("cannot read {}: {error}", args.script.display()))?;
    let store = args.store.as_deref().map(|path| Open::new(path, args.medium)).transpose()?;
    let script = Script {
        title: args.script.display().to_string(),
        text: script,
        name: args.name.clone().unwrap_or_else(|| name_of(&args.script)),
        only: None,
        every: Duration::from_millis(args.every),
        from_start: args.from_start,
        existing: match (args.overwrite, args.adopt) {
            (true, _) => Existing::Overwrite,
            (_, true) => Existing::Adopt,
            _ => Existing::Refuse,
        },
        threads: args.threads.map(usize::from),
        attach: args.attach.clone(),
        memory: args.memory,
        metrics: args.metrics.clone(),
    };
    script.run(store.as_ref())
}

/// A script to run.
pub struct Script {
    /// The prefix of errors.
    pub title: String,
    pub text: String,
    /// Of its first job.
    pub name: String,
    /// The only one of its jobs, from 1; all if there is none.
    pub only: Option<usize>,
    pub every: Duration,
    pub from_start: bool,
    /// The treatment of existing keys and files where it writes.
    pub existing: Existing,
    /// Threads of each job; `None` for the default.
    pub threads: Option<usize>,
    /// The server that tables of connector 'duramen' are in.
    pub attach: Option<String>,
    /// Bytes of state in memory; `None` for the default.
    pub memory: Option<usize>,
    /// The address of its metrics.
    pub metrics: Option<String>,
}

/// The metrics of the script's jobs.
struct Metrics {
    jobs: Arc<HostedJobs>,
    _listening: Option<Listening>,
}

impl Metrics {
    fn start(address: Option<&str>) -> Result<Self, Failure> {
        let jobs = Arc::new(HostedJobs::default());
        let listen = |text| -> Result<Listening, Failure> {
            let address = metrics::address(text).map_err(|why| Refused(format!("--metrics {why}")))?;
            Ok(Listening::start(address, Box::new(Observed::new(Phase::Jobs(Arc::clone(&jobs)))), None)?)
        };
        let listening = address.map(listen).transpose()?;
        if let Some(listening) = &listening {
            eprintln!("metrics: http://{}/metrics", listening.address());
        }
        Ok(Self { jobs, _listening: listening })
    }
}

/// The server of `--attach`: `HOST:PORT`, or an address as `import --from` takes it.
fn attached(address: &str) -> Result<Origin, String> {
    if address.contains("://") {
        return address.parse();
    }
    let (host, port) = address.rsplit_once(':').ok_or("--attach wants HOST:PORT")?;
    let port = port.parse().map_err(|_| format!("--attach {address}: {port:?} is no port"))?;
    let host = host.trim_matches(['[', ']']).to_owned();
    Ok(Origin { host, port, user: None, password: None, tls: None })
}

impl Script {
    pub fn run(&self, store: Option<&Open>) -> Result<Answer, Failure> {
        let refused = |error| with_title(&self.title, error);
        show_notices(|text| eprintln!("duramen: {text}"));
        let mut session = Session::default();
        if let Some(address) = &self.attach {
            let Origin { host, port, user, password, tls } = attached(address)?;
            let mut options = Vec::new();
            let mut set = |name: &str, value: Option<String>| {
                options.extend(value.map(|value| (name.to_owned(), value)));
            };
            set("username", user);
            set("password", password);
            if let Some(tls) = tls {
                let (cert, key) = tls.certificate.unzip();
                set("tls", Some("true".to_owned()));
                set("tls.cacert", tls.authorities);
                set("tls.cert", cert);
                set("tls.key", key);
            }
            session.attach_with(&host, port, store.is_some(), options);
        }
        let outcomes = session.run(&self.text).map_err(refused)?;
        let jobs = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Job(job) => Some(&job.optimised),
            Outcome::Done | Outcome::Text(_) => None,
        });
        check_script(jobs.flatten(), Path::new(".")).map_err(refused)?;
        let metrics = Metrics::start(self.metrics.as_deref())?;
        let signals = store.map_or_else(Signals::watch, |open| Ok(open.signals.clone()))?;
        let mut number = 0;
        for outcome in outcomes {
            match outcome {
                Outcome::Done => {}
                Outcome::Text(text) => println!("{}", text.trim_end()),
                Outcome::Job(job) => {
                    number += 1;
                    if self.only.is_some_and(|only| only != number) || signals.stop() {
                        continue;
                    }
                    let keep = store.map(|open| self.keep(open, number)).transpose()?;
                    let (name, jobs) = (self.job_name(number), &metrics.jobs);
                    jobs.report(&name, JobState::Starting, "", None);
                    let report = |state, progress: &Progress| {
                        jobs.report(&name, state, "", Some(numbers(progress, self.every)));
                    };
                    self.run_job(&job, keep.as_ref(), signals.flag(), report)
                        .inspect_err(|error| jobs.report(&name, JobState::Failed, &error.to_string(), None))
                        .map_err(refused)?;
                }
            }
        }
        Ok(Answer::Yes)
    }

    /// Runs a job; `report` gets its progress.
    fn run_job(
        &self,
        job: &Job,
        keep: Option<&Keep>,
        stop: &AtomicBool,
        report: impl Fn(JobState, &Progress),
    ) -> Result<(), Error> {
        let own = &mut |_: &_, _: &_| Ok(None);
        let start = Start { existing: self.existing, ..Start::here(keep, self.threads, own) };
        let mut running = Running::start_on(&job.optimised, start)?;
        let before = running.records_before();
        if running.is_finished() {
            let before = counted(before, "record");
            eprintln!("the job has ended already, after {before}; --from-start runs it again");
            report(JobState::Finished, &running.progress());
            return Ok(());
        }
        if before > 0 {
            eprintln!("resumed after {}", counted(before, "record"));
        }
        // Drawn on standard error, when that is a terminal, unless rows are printed there too: the bar would be between
        // two of its lines.
        let prints = job.optimised.iter().any(|sink| sink.table.connector.name == "print");
        let bar = match prints && std::io::stdout().is_terminal() {
            true => ProgressBar::hidden(),
            false => ProgressBar::new_spinner(),
        };
        report(JobState::Running, &running.progress());
        let progress = running.run(stop, |progress| {
            report(JobState::Running, progress);
            bar.set_message(line(progress, before));
        })?;
        bar.finish_and_clear();
        report(if running.is_finished() { JobState::Finished } else { JobState::Stopped }, &progress);
        let compiled = running.program().compiled_in().as_secs_f64() * 1e3;
        let threads = match running.threads() {
            1 => "one thread".to_owned(),
            count => format!("{count} threads"),
        };
        eprintln!("compiled in {compiled:.1} ms; {threads}; {}", line(&progress, before));
        Ok(())
    }

    fn job_name(&self, number: usize) -> String {
        match self.only {
            // It has its number already.
            None if number > 1 => format!("{}-{number}", self.name),
            _ => self.name.clone(),
        }
    }

    fn keep(&self, open: &Open, number: usize) -> Result<Keep, Failure> {
        let name = self.job_name(number);
        let note = Note {
            title: self.title.clone(),
            script: self.text.clone(),
            number,
            directory: std::env::current_dir()?,
            every: self.every.as_millis() as u64,
            attach: self.attach.clone(),
            memory: self.memory,
        };
        Ok(Keep {
            store: open.store.clone(),
            name,
            every: self.every,
            from_start: self.from_start,
            note: serde_json::to_string(&note)?,
            room: MemoryLimit::beside(&open.path, self.memory, 1)
                .map_err(|error| with_title("--memory", error))?,
        })
    }
}

/// The settings with which `duramen jobs --resume` starts a job.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Note {
    pub title: String,
    pub script: String,
    /// The job's number in the script.
    pub number: usize,
    pub directory: PathBuf,
    /// Milliseconds between two checkpoints.
    pub every: u64,
    /// The server that it is attached to.
    #[serde(default)]
    pub attach: Option<String>,
    /// Bytes of state in memory, if given.
    #[serde(default)]
    pub memory: Option<usize>,
}

/// The jobs' store, while this process has it open. A file next to it names the process.
pub struct Open {
    pub store: Store,
    path: PathBuf,
    runs: PathBuf,
    signals: Signals,
}

impl Open {
    pub fn new(path: &Path, medium: MediumKind) -> Result<Open, Failure> {
        let store = open(path, medium)?;
        let runs = runs(path);
        // Before the file is there, from which `jobs --stop` knows which process to send a signal to.
        let signals = Signals::watch()?;
        std::fs::write(&runs, std::process::id().to_string())
            .map_err(|error| format!("cannot write {}: {error}", runs.display()))?;
        Ok(Open { store, path: path.to_owned(), runs, signals })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.runs);
    }
}

/// The file that names the process with a store of jobs.
pub fn runs(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".runs");
    PathBuf::from(name)
}

/// The jobs' store: its content counts from commit to commit.
pub fn open(path: &Path, medium: MediumKind) -> duramen::Result<Store> {
    let durability = Durability::Manual;
    open_store(&Options { medium, create: Create::OpenOrCreate, durability, ..Options::default() }, path)
}

/// The name of a job of this script, unless one is given.
pub fn name_of(script: &Path) -> String {
    let stem = script.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let from_script =
        |char: char| if char.is_ascii_alphanumeric() || "-_".contains(char) { char } else { '_' };
    stem.chars().map(from_script).collect()
}

/// A script that is wrong, or that needs a missing feature.
#[derive(Debug)]
pub struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

fn with_title(title: &str, error: Error) -> Failure {
    let text = format!("{title}: {error}");
    match error.kind() {
        ErrorKind::Syntax | ErrorKind::Invalid | ErrorKind::Unsupported => Box::new(Refused(text)),
        // Its files, or its records.
        ErrorKind::Evaluation | ErrorKind::Connector | ErrorKind::Memory => text.into(),
    }
}

/// The numbers of a job for metrics, with the time between two checkpoints.
pub fn numbers(progress: &Progress, every: Duration) -> JobProgress {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let sum = |of: fn(&Held) -> u64| progress.held.iter().map(of).sum();
    JobProgress {
        records_read: progress.records,
        records_written: progress.written,
        records_skipped: progress.skipped,
        records_late: sum(|held| held.late),
        records_timeless: sum(|held| held.timeless),
        // At the ends of the range there is none: before the first event time, and after the end of the input.
        watermark: WATERMARKS.contains(&progress.watermark).then(|| progress.watermark as f64 / 1e6),
        state_bytes: sum(|held| held.bytes as u64),
        state_keys: sum(|held| held.keys as u64),
        checkpoints: progress.checkpoints.map(|kept| JobCheckpoints {
            count: kept.count,
            at: now - kept.at.map_or(0.0, |at| at.elapsed().as_secs_f64()),
            took: kept.took.as_secs_f64(),
            commit: kept.commit.as_secs_f64(),
            bytes: kept.bytes,
            pause_max: kept.pause_max.as_secs_f64(),
            every: every.as_secs_f64(),
        }),
    }
}

/// Microseconds of watermarks that are times: within 10,000 years of 1970.
const WATERMARKS: std::ops::Range<i64> = -315_576_000_000_000_000..315_576_000_000_000_000;

/// The state of a job, in one line.
pub fn line(progress: &Progress, before: u64) -> String {
    let seconds = progress.elapsed.as_secs_f64();
    let records = progress.records - before;
    let rate = records as f64 / seconds.max(1e-9);
    let bytes: usize = progress.held.iter().map(|held| held.bytes).sum();
    let late: u64 = progress.held.iter().map(|held| held.late).sum();
    let mut line =
        format!("{records} records in {seconds:.1} s, {rate:.0}/s, {:.1} MB of state", bytes as f64 / 1e6);
    let timeless: u64 = progress.held.iter().map(|held| held.timeless).sum();
    let counts = [(late, "late"), (timeless, "without an event time"), (progress.skipped, "left out")];
    for (count, what) in counts {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    for waits in &progress.waits {
        line.push_str(&format!("; {waits}"));
    }
    if let Some(kept) = &progress.checkpoints {
        line.push_str(&format!(
            ", {} checkpoints (the last {:.1} MB in {:.0} ms; pauses up to {:.1} ms)",
            kept.count,
            kept.bytes as f64 / 1e6,
            kept.took.as_secs_f64() * 1e3,
            kept.pause_max.as_secs_f64() * 1e3
        ));
    }
    line
}
