//! The driver: `cargo xtask crash` runs it.

#![forbid(unsafe_code)]

use clap::Parser;
use duramen_crash::phases::NAMES;
use duramen_crash::soak::What;
use duramen_crash::threads::{Counts, IMAGES_MAX, Plan, plan::Kind, run_plan};
use duramen_crash::{Case, Effort, Totals, evicting, run_seed};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A run of at least this many seeds must have crashed inside every phase.
const SEEDS_FOR_ALL: u64 = 60;

/// Crashes the engine on a simulated medium and checks what it recovers.
#[derive(Parser)]
struct Arguments {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds; without it, as many as the time allows
    #[arg(long)]
    seeds: Option<u64>,
    /// Duration
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Medium and durability, as "line/every-write"; without it, all in turn
    #[arg(long)]
    case: Option<String>,
    /// Threads of each run, 2 to 4, scheduled by the seed; 1 means no schedule. Without it, each seed runs with one
    /// thread and then with the number that it selects
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    threads: Option<u8>,
    /// The main work of several threads; without it, the seed selects it
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Images formed at one position
    #[arg(long, default_value_t = Effort::default().images)]
    images: usize,
    /// Plants bugs in the engine, one at a time, and checks that each is caught. Run by `cargo xtask crash --mutants`
    #[arg(long)]
    mutants: bool,
    /// Only the planted bug with this name
    #[arg(long)]
    mutant: Option<String>,
    /// Measures how many images per second are formed, opened and compared completely, by store size
    #[arg(long)]
    measure: bool,
    /// Wears out small stores on real and simulated media instead: nearly full, values kept, damaged while closed
    #[arg(long)]
    soak: bool,
    /// Only stores that evict
    #[arg(long)]
    evicting: bool,
    /// A soak without values that readers keep
    #[arg(long)]
    no_kept: bool,
    /// A soak that damages each closed store without wearing it out first
    #[arg(long)]
    damage_only: bool,
    /// Seeds that a soak runs concurrently
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Directory for a soak's files; without it, the system's temporary directory
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Continues after a violation
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let case = match &arguments.case {
        None => None,
        Some(name) => match Case::named(name) {
            Some(case) => Some(case),
            None => {
                let names: Vec<&str> = duramen_crash::setup::CASES.iter().map(|case| case.name).collect();
                eprintln!("unknown case {name}; known cases: {}", names.join(", "));
                return ExitCode::FAILURE;
            }
        },
    };
    // A panic of the engine is a violation and is reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    if arguments.mutants || arguments.mutant.is_some() {
        return hunt_mutants(&arguments);
    }
    if arguments.soak {
        return soak(&arguments);
    }
    if arguments.measure {
        return match duramen_crash::measure::run() {
            Ok(lines) => {
                lines.iter().for_each(|line| println!("{line}"));
                ExitCode::SUCCESS
            }
            Err(what) => {
                eprintln!("{what}");
                ExitCode::FAILURE
            }
        };
    }
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(arguments.minutes * 60.0);
    // Seeds given explicitly run to their end.
    let until = arguments.seeds.is_none().then_some(until);
    let effort = Effort { images: arguments.images, until, ..Effort::default() };
    let (mut totals, mut counts, mut violations) = (Totals::default(), Counts::default(), 0);
    let mut evicting_totals = Totals::default();
    let threads = arguments.threads.map(usize::from);
    for seed in arguments.seed.. {
        let done = seed - arguments.seed;
        if arguments.seeds.is_some_and(|seeds| done >= seeds)
            || until.is_some_and(|until| Instant::now() >= until)
        {
            break;
        }
        let mut reported = Vec::new();
        // Otherwise one seed in three also runs the evicting store.
        if arguments.evicting || case.is_none() && threads.is_none() && seed.is_multiple_of(3) {
            match evicting::run_seed(seed) {
                Ok(more) => evicting_totals.add(&more),
                Err(violation) => reported.push(violation),
            }
        }
        if !arguments.evicting && threads.is_none_or(|threads| threads == 1) {
            match run_seed(seed, case, effort) {
                Ok(more) => totals.add(&more),
                Err(violation) => reported.push(violation),
            }
        }
        if !arguments.evicting && threads != Some(1) {
            match run_plan(&Plan::new(seed, arguments.kind, case, threads), IMAGES_MAX) {
                Ok(more) => counts.add(&more),
                Err(violation) => reported.push(violation),
            }
        }
        for violation in &reported {
            violations += 1;
            println!("VIOLATION {violation}");
        }
        if !reported.is_empty() && !arguments.keep_going {
            break;
        }
    }
    if evicting_totals.seeds > 0 {
        println!(
            "stores that evict: {} seeds, {} operations, {} persist points, {} images, {} nested sessions (crashes {} deep)",
            evicting_totals.seeds,
            evicting_totals.ops,
            evicting_totals.points,
            evicting_totals.images,
            evicting_totals.nested,
            evicting_totals.depth
        );
    }
    let missed = report(&totals, &counts, violations, begun.elapsed().as_secs_f64());
    // A phase that a short or single-case run does not reach proves nothing.
    let must_reach = case.is_none() && totals.seeds >= SEEDS_FOR_ALL;
    if violations == 0 && !(must_reach && missed) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs seeds of [`duramen_crash::soak`] until they are exhausted or the time is over.
fn soak(arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(arguments.minutes * 60.0);
    let folder = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
    let what = match (arguments.damage_only, arguments.no_kept) {
        (true, _) => What::Damage,
        (false, true) => What::NoKept,
        (false, false) => What::All,
    };
    let next = AtomicU64::new(arguments.seed);
    let stopped = AtomicU64::new(0);
    let totals = Mutex::new(duramen_crash::soak::Counts::default());
    let seeds = std::thread::scope(|scope| {
        let run = || {
            let mut done = 0u64;
            loop {
                let seed = next.fetch_add(1, Relaxed);
                let over = match arguments.seeds {
                    Some(seeds) => seed - arguments.seed >= seeds,
                    None => Instant::now() >= until,
                };
                if over || stopped.load(Relaxed) > 0 && !arguments.keep_going {
                    return done;
                }
                done += 1;
                match duramen_crash::soak::run_seed(seed, &folder, what) {
                    Ok(counts) => totals.lock().unwrap_or_else(PoisonError::into_inner).add(&counts),
                    Err(violation) => {
                        stopped.fetch_add(1, Relaxed);
                        println!("VIOLATION {violation}");
                    }
                }
            }
        };
        let threads: Vec<_> = (0..arguments.jobs.max(1)).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum::<u64>()
    });
    let violations = stopped.load(Relaxed);
    println!("{}", totals.lock().unwrap_or_else(PoisonError::into_inner));
    println!("{seeds} seeds, {:.1} s, {violations} violations", begun.elapsed().as_secs_f64());
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a summary; returns whether some phase was never crashed.
fn report(totals: &Totals, counts: &Counts, violations: u64, seconds: f64) -> bool {
    if counts.schedules > 0 {
        println!(
            "{} schedules of threads, {} points of choice, {} switches, {} calls in histories, {} merged segments, {} persist points, {} images, {} recoveries crashed",
            counts.schedules,
            counts.steps,
            counts.switches,
            counts.calls,
            counts.merges,
            counts.points,
            counts.images,
            counts.nested
        );
    }
    if totals.seeds == 0 {
        println!("{seconds:.1} s: {violations} violations");
        return false;
    }
    let mut missed = false;
    println!("crash points by the activity that they interrupted:");
    for (name, &count) in NAMES.iter().zip(&totals.inside) {
        println!("  {name:31} {count:10}{}", if count == 0 { "  NONE" } else { "" });
        missed |= count == 0;
    }
    println!(
        "{} seeds, {} operations, {} persist points, {} images ({:.0} a second, {:.0} a second of CPU), {} nested sessions (crashes {} deep), {:.1} s: {violations} violations",
        totals.seeds,
        totals.ops,
        totals.points,
        totals.images,
        totals.images as f64 / seconds,
        totals.images as f64 / duramen_crash::measure::busy().as_secs_f64(),
        totals.nested,
        totals.depth,
        seconds
    );
    missed
}

#[cfg(not(planted))]
fn hunt_mutants(_arguments: &Arguments) -> ExitCode {
    eprintln!("this build has no planted bugs: run \"cargo xtask crash --mutants\"");
    ExitCode::FAILURE
}

/// Prints one line per planted bug. Each bug runs in its own process, because it may abort or leave threads waiting
/// forever.
#[cfg(planted)]
fn hunt_mutants(arguments: &Arguments) -> ExitCode {
    if let Some(name) = &arguments.mutant {
        return hunt_mutant(name, arguments);
    }
    let mut names: Vec<String> = duramen_crash::mutants::all().iter().map(|prey| prey.name()).collect();
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let caught = names.iter().filter(|name| match hunt_apart(name, arguments) {
        Ok(caught) => caught,
        Err(error) => {
            println!("{name:28} NOT CAUGHT: {error}");
            false
        }
    });
    let (caught, total) = (caught.count(), names.len());
    println!("{caught} of {total} planted bugs caught");
    if caught == total { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Hunts for a planted bug in another process and prints its report; returns whether the bug was caught.
#[cfg(planted)]
fn hunt_apart(name: &str, arguments: &Arguments) -> std::io::Result<bool> {
    let output = std::process::Command::new(std::env::current_exe()?)
        .args(["--mutants", "--mutant", name])
        .args(["--seed", &arguments.seed.to_string(), "--minutes", &arguments.minutes.to_string()])
        .stderr(std::process::Stdio::inherit())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with(name)).collect();
    lines.iter().for_each(|line| println!("{line}"));
    if lines.is_empty() {
        return Err(std::io::Error::other(format!("its process ended with {}", output.status)));
    }
    Ok(output.status.success())
}

#[cfg(planted)]
fn hunt_mutant(name: &str, arguments: &Arguments) -> ExitCode {
    let patience = Duration::from_secs_f64(arguments.minutes * 60.0);
    let (mut caught, mut total) = (0, 0);
    for prey in duramen_crash::mutants::all().into_iter().filter(|prey| prey.name() == name) {
        total += 1;
        let found = prey.hunt(arguments.seed, patience);
        let seconds = found.took.as_secs_f64();
        let where_ = if prey.is_among_threads() { ", among threads" } else { "" };
        match found.by {
            Some((seed, violation)) => {
                caught += 1;
                println!("{name:28} caught by seed {seed:4} in {seconds:5.1} s of CPU{where_}");
                println!("{violation}");
            }
            None => println!("{name:28} NOT CAUGHT in {seconds:5.1} s of CPU{where_}"),
        }
    }
    println!("{caught} of {total} planted bugs caught");
    if total > 0 && caught == total { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
