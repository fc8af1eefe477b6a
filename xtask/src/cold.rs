//! `cargo xtask cold`: what a store on a file reads from its device when nothing of it is in the page cache.
//!
//! For each number of records a store is filled and closed. Then its pages are dropped from the page cache, a process
//! of its own does one thing, and reports the bytes that it read (`read_bytes` of `/proc/self/io`) and its time:
//!
//! | step | the process |
//! |---|---|
//! | start after a clean end | opens the store and gets one record |
//! | start after a kill | the same, after a process that wrote some records was killed |
//! | gets | gets records at random |
//! | overwrites | overwrites records at random |
//! | overwrites of read records | the same, after it got them: only the space for the new ones is cold |
//!
//! The file must lie on a real disk: in memory nothing is read. Exit code 1: a value was wrong, or, with `--demand`, a
//! limit is exceeded.

use crate::failure::{Attempt, Failure, Result};
use crate::random::Random;
use crate::restart::forget_pages;
use duramen::{Durability, MediumKind, Options, Residence, Store};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Puts that share one wait while the store is filled.
const GROUP: u64 = 256;
const VALUE_BYTES: usize = 100;
/// One record of this length, which is deleted again, for each so many records.
const LONG_BYTES: usize = 180_000;
const LONG_EACH: u64 = 8192;
/// A start reads at most this share of the store ...
const START_SHARE: f64 = 60.0 / 300.0;
/// ... a get or an overwrite of a cold record at most so many bytes ...
const RECORD_BYTES: f64 = 8192.0;
/// ... and an overwrite of a record in the page cache none: this allows for the page of a block's header here and there.
const OVERWRITE_BYTES: f64 = 64.0;

#[derive(clap::Args)]
pub struct Settings {
    /// Numbers of records, separated by commas
    #[arg(long, default_value = "1000000,4000000", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    pub keys: Vec<u64>,
    /// Records that are read, and then overwritten
    #[arg(long, default_value_t = 10_000)]
    pub operations: u64,
    /// The directory for the stores [default: that for temporary files]
    #[arg(long, value_name = "PATH")]
    pub directory: Option<PathBuf>,
    /// Repeats the keys of an earlier run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Fails if a limit is exceeded
    #[arg(long)]
    pub demand: bool,
}

/// One step, in a process of its own.
#[derive(clap::Args)]
pub struct ChildSettings {
    #[arg(long)]
    pub store: PathBuf,
    #[arg(long, value_enum)]
    pub step: Step,
    #[arg(long)]
    pub keys: u64,
    #[arg(long)]
    pub operations: u64,
    #[arg(long)]
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// Opens the store and gets one record
    Start,
    /// Writes some records, says so, and waits to be killed
    Write,
    /// Overwrites records at random
    Overwrite,
    /// Gets records at random, and then overwrites them
    Use,
}

/// The cost of a step.
struct Cost {
    seconds: f64,
    read_bytes: u64,
}

/// Measures and prints a table; returns whether all values were right and all limits kept.
pub fn run(settings: &Settings) -> Result<bool> {
    let directory = settings.directory.clone().unwrap_or_else(std::env::temp_dir);
    let place = tempfile::tempdir_in(&directory)
        .attempt(|| format!("make a directory for the stores in {}", directory.display()))?;
    println!("| records | store, MiB | step | MiB read | bytes read, each | s |\n|---|---|---|---|---|---|");
    let mut holds = true;
    for &keys in &settings.keys {
        let path = place.path().join(format!("store-{keys}"));
        fill(&path, keys)?;
        let bytes = path.metadata().attempt(|| format!("read the size of {}", path.display()))?.len();
        let run = |step| child(&path, step, keys, settings);
        let mut row = |step: &str, cost: &Cost, each: u64, limit: f64| {
            let each = cost.read_bytes as f64 / each as f64;
            let is_within = each <= limit;
            println!(
                "| {keys} | {} | {step} | {:.2} | {each:.0}{} | {:.3} |",
                bytes >> 20,
                cost.read_bytes as f64 / f64::from(1 << 20),
                if is_within { String::new() } else { format!(" (more than {limit:.0})") },
                cost.seconds
            );
            holds &= is_within || !settings.demand;
        };
        let start_limit = bytes as f64 * START_SHARE;
        row("start after a clean end", &costs(run(Step::Start)?)?[0], 1, start_limit);
        killed(run(Step::Write)?)?;
        row("start after a kill", &costs(run(Step::Start)?)?[0], 1, start_limit);
        row("overwrites", &costs(run(Step::Overwrite)?)?[0], settings.operations, RECORD_BYTES);
        let used = costs(run(Step::Use)?)?;
        let [gets, overwrites] = &used[..] else {
            return Err(Failure::new("the child reported no two costs"));
        };
        row("gets", gets, settings.operations, RECORD_BYTES);
        row("overwrites of read records", overwrites, settings.operations, OVERWRITE_BYTES);
        std::fs::remove_file(&path).attempt(|| format!("remove {}", path.display()))?;
    }
    Ok(holds)
}

/// Starts a process for a step, on a store whose pages are not in the page cache.
fn child(path: &Path, step: Step, keys: u64, settings: &Settings) -> Result<Child> {
    forget_pages(path)?;
    let own = std::env::current_exe().attempt(|| "find this program".to_owned())?;
    // Other keys than in the steps before, whose new records lie together.
    let seed = settings.seed.wrapping_mul(16) + step as u64;
    let step = clap::ValueEnum::to_possible_value(&step)
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
    let numbers = [keys, settings.operations, seed].map(|number| number.to_string());
    let mut command = Command::new(own);
    command.arg("cold-child").arg("--store").arg(path).args(["--step", &step, "--keys", &numbers[0]]);
    command.args(["--operations", &numbers[1], "--seed", &numbers[2]]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .attempt(|| "start a process for a step".to_owned())
}

/// The costs that a process reports before it ends.
fn costs(mut child: Child) -> Result<Vec<Cost>> {
    drop(child.stdin.take());
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut text).attempt(|| "read what a step cost".to_owned())?;
    }
    let status = child.wait().attempt(|| "wait for a step".to_owned())?;
    if !status.success() {
        return Err(Failure::new(format!("a step ended with {status}")));
    }
    let cost = |line: &str| {
        let (seconds, bytes) = line.split_once(' ')?;
        Some(Cost { seconds: seconds.parse().ok()?, read_bytes: bytes.parse().ok()? })
    };
    let found: Option<Vec<Cost>> = text.lines().map(cost).collect();
    found
        .filter(|costs| !costs.is_empty())
        .ok_or_else(|| Failure::new(format!("a step reported {text:?}, wanted its costs")))
}

/// Waits for the process's word that its writes are acknowledged, and kills it.
fn killed(mut child: Child) -> Result<()> {
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).attempt(|| "read from a step".to_owned())?;
    }
    child.kill().attempt(|| "kill a step".to_owned())?;
    child.wait().attempt(|| "wait for a step".to_owned())?;
    if line.trim() != "written" {
        return Err(Failure::new(format!("the writing step said {line:?}, wanted \"written\"")));
    }
    Ok(())
}

/// One step: prints what it cost.
pub fn run_child(settings: &ChildSettings) -> Result<bool> {
    let attempt = || format!("use {}", settings.store.display());
    let begun = Begun::now()?;
    // Without its thread, the store reads nothing but what the step needs.
    let options = Options { background: settings.step == Step::Write, ..options() };
    let store = options.open(&settings.store).attempt(attempt)?;
    let mut random = Random::new(settings.seed);
    let numbers: Vec<u64> = (0..settings.operations).map(|_| random.below(settings.keys)).collect();
    match settings.step {
        Step::Start => {
            demand(&store, numbers[0])?;
            begun.report()?;
            // The next step finds what a start leaves.
            store.close().attempt(attempt)?;
        }
        Step::Write => {
            for &number in &numbers[..100] {
                store.put(key_of(number), value_of(number)).attempt(attempt)?;
            }
            println!("written");
            let _ = std::io::stdin().read(&mut [0]);
        }
        Step::Overwrite | Step::Use => {
            if settings.step == Step::Use {
                let begun = Begun::now()?;
                numbers.iter().try_for_each(|&number| demand(&store, number))?;
                begun.report()?;
            }
            let begun = Begun::now()?;
            for &number in &numbers {
                store.put(key_of(number), value_of(number)).attempt(attempt)?;
            }
            begun.report()?;
            numbers.iter().try_for_each(|&number| demand(&store, number))?;
            store.close().attempt(attempt)?;
        }
    }
    Ok(true)
}

/// The beginning of a measured part of a step.
struct Begun {
    at: Instant,
    read_bytes: u64,
}

impl Begun {
    fn now() -> Result<Self> {
        Ok(Self { at: Instant::now(), read_bytes: read_bytes()? })
    }

    fn report(&self) -> Result<()> {
        let seconds = self.at.elapsed().as_secs_f64();
        println!("{seconds:.6} {}", read_bytes()? - self.read_bytes);
        Ok(())
    }
}

/// The bytes that this process has caused to be read from devices.
fn read_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io").attempt(|| "read /proc/self/io".to_owned())?;
    let found = text.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse().ok());
    found.ok_or_else(|| Failure::new("/proc/self/io has no read_bytes"))
}

fn options() -> Options {
    Options {
        medium: MediumKind::File,
        residence: Residence::Persistent,
        durability: Durability::Interval(Duration::from_secs(1)),
        ..Options::default()
    }
}

fn key_of(number: u64) -> Vec<u8> {
    format!("{number:016}").into_bytes()
}

fn value_of(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(VALUE_BYTES, b'v');
    value
}

/// Gets a record, and fails unless it has its value.
fn demand(store: &Store, number: u64) -> Result<()> {
    let found = store.get(key_of(number)).attempt(|| "get a record".to_owned())?;
    if found.is_some_and(|found| *found == *value_of(number)) {
        return Ok(());
    }
    Err(Failure::new(format!("record {number} is missing or has another value")))
}

/// Fills a store with `keys` records. Longer ones between them are deleted again, so that free space lies among them.
fn fill(path: &Path, keys: u64) -> Result<()> {
    let attempt = || format!("fill {}", path.display());
    let store = Options { compaction_dead_percent: 5, ..options() }.open(path).attempt(attempt)?;
    let mut writer = store.writer().attempt(attempt)?;
    let long = vec![b'l'; LONG_BYTES];
    for from in (0..keys).step_by(GROUP as usize) {
        writer.group();
        for number in from..(from + GROUP).min(keys) {
            writer.put(key_of(number), value_of(number)).attempt(attempt)?;
        }
        if from % LONG_EACH == 0 {
            writer.put(long_key(from), &long).attempt(attempt)?;
        }
        writer.flush_group().attempt(attempt)?;
    }
    for from in (0..keys).step_by(LONG_EACH as usize) {
        writer.delete(long_key(from)).attempt(attempt)?;
    }
    drop(writer);
    for _ in 0..100 {
        store.maintain().attempt(attempt)?;
    }
    store.close().attempt(attempt)
}

fn long_key(number: u64) -> Vec<u8> {
    format!("long-{number}").into_bytes()
}
