//! `duramen bench stream`: the headline query of continuous SQL.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use duramen::MediumKind;
use duramen_bench::kv::reporting;
use duramen_bench::report::text;
use duramen_bench::stream::beyond::{self, Beyond};
use duramen_bench::stream::nexmark::{self, Nexmark};
use duramen_bench::stream::{Home, Settings, measure, restart};

use crate::{Answer, Failure};

/// Run the headline query of continuous SQL: compiled, in memory and with stores, and by hand
///
/// Sums by key in tumbling windows of 60 s, by event time, over records of 32 bytes that are made in the process. A run
/// with a store is also killed before a window closes, and started again. docs/internals/sql.md has the results.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of keys, several with commas
    #[arg(long, default_value = "15000,10000000", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=u32::MAX as u64))]
    keys: Vec<u64>,
    /// How often everything is repeated; medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 25.0, value_parser = seconds)]
    seconds: f64,
    /// Milliseconds between two checkpoints
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    every: u64,
    /// Threads of the additional runs, next to those on one thread [default: 2, or 1 if the machine has no more]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// A directory in memory for stores
    #[arg(long, default_value = "/dev/shm", value_name = "DIRECTORY")]
    shm: PathBuf,
    /// A directory on a disk for stores
    #[arg(long, default_value = ".", value_name = "DIRECTORY")]
    file: PathBuf,
    /// One round of 3 s with a checkpoint each second: a first look
    #[arg(long, conflicts_with_all = ["rounds", "seconds", "every"])]
    quick: bool,
    /// Instead: a state ten times the memory of the process, of 40 million keys on --file, alone for --seconds
    #[arg(long, conflicts_with_all = ["rounds", "quick", "shm"])]
    beyond_memory: bool,
    /// Instead: Nexmark's queries except q4, q6 and q9, from the texts in this directory, over events that were
    /// generated before
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["seconds", "quick", "every", "beyond_memory"])]
    nexmark: Option<PathBuf>,
    /// Number of events
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT", requires = "nexmark", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    events: u64,
    /// Only the queries with these numbers
    #[arg(long, value_name = "NUMBERS", requires = "nexmark", value_delimiter = ',')]
    queries: Vec<u32>,
    /// Write the results as JSON, which `duramen bench compare` reads
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The store of a process that is to be killed
    #[arg(long, hide = true, requires = "medium")]
    victim: Option<PathBuf>,
    /// Its medium
    #[arg(long, hide = true)]
    medium: Option<MediumKind>,
    /// Bytes of its state on the heap
    #[arg(long, hide = true, requires = "victim")]
    heap: Option<usize>,
    /// Bytes to which it bounds its data
    #[arg(long, hide = true, requires = "heap")]
    bound: Option<u64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    // One second: progress is reported each half second.
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (1.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "wanted seconds, from 1 to 3600".into())
}

fn beyond_memory(args: &Args, keys: u64, home: Home) -> Beyond {
    let (every, time) = (Duration::from_millis(args.every), Duration::from_secs_f64(args.seconds));
    Beyond { keys, threads: args.threads.map_or_else(two_at_most, usize::from), home, every, time }
}

fn two_at_most() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(2))
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    if let (Some(path), Some(medium), [keys], Some(heap)) =
        (&args.victim, args.medium, args.keys.as_slice(), args.heap)
    {
        let home = Home { directory: PathBuf::new(), medium };
        beyond::run(&beyond_memory(args, *keys, home), path, heap, args.bound)?;
        return Ok(Answer::Yes);
    }
    if let (Some(path), Some(medium), [keys]) = (&args.victim, args.medium, args.keys.as_slice()) {
        restart::run(path, *keys, &Home { directory: PathBuf::new(), medium })?;
        return Ok(Answer::Yes);
    }
    if let Some(file) = &args.json {
        crate::output::check(file)?;
    }
    let home = |directory: &Path, medium| Home { directory: directory.to_owned(), medium };
    let (rounds, seconds, every) =
        if args.quick { (1, 3.0, 1000) } else { (args.rounds, args.seconds, args.every) };
    let settings = Settings {
        keys: args.keys.clone(),
        rounds,
        time: Duration::from_secs_f64(seconds),
        every: Duration::from_millis(every),
        threads: args.threads.map_or_else(two_at_most, usize::from),
        homes: vec![home(&args.shm, MediumKind::Shm), home(&args.file, MediumKind::File)],
    };
    let program = std::env::current_exe()?;
    let victim = |path: &Path, keys: u64, home: &Home| {
        let mut command = Command::new(&program);
        command.args(["bench", "stream", "--keys", &keys.to_string(), "--victim"]).arg(path);
        command.args(["--medium", &home.medium.to_string()]);
        command
    };
    let begun = Instant::now();
    let mut run = reporting::begin("duramen bench stream");
    let mut say = |line: &str| eprintln!("{line}");
    let found = if let Some(queries) = &args.nexmark {
        let threads = match settings.threads {
            1 => vec![1],
            more => vec![1, more],
        };
        let (queries, only) = (queries.clone(), args.queries.clone());
        let settings = Nexmark { events: args.events, threads, rounds: args.rounds, queries, only };
        nexmark::measure(&settings, &mut say)?
    } else if args.beyond_memory {
        // Two numbers are the default.
        let keys = if let [keys] = args.keys.as_slice() { *keys } else { 40_000_000 };
        let child = |beyond: &Beyond, path: &Path, heap: u64, bound: Option<u64>| {
            let mut command = victim(path, beyond.keys, &beyond.home);
            command.args(["--heap", &heap.to_string(), "--threads", &beyond.threads.to_string()]);
            command.args(["--every", &beyond.every.as_millis().to_string()]);
            if let Some(bound) = bound {
                command.args(["--bound", &bound.to_string()]);
            }
            command
        };
        beyond::measure(&beyond_memory(args, keys, home(&args.file, MediumKind::File)), &child, &mut say)?
    } else {
        measure(&settings, &victim, &mut say)?
    };
    run.measurements = found.measurements;
    run.verdict = Some(found.verdict);
    run.elapsed_s = begun.elapsed().as_secs_f64();
    std::io::stdout().lock().write_all(text::run(&run).as_bytes())?;
    if let Some(file) = &args.json {
        run.write(file)?;
    }
    Ok(Answer::Yes)
}
