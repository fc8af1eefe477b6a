//! `duramen bench kv`: named workloads on the engine.

use crate::command::progress_bar;
use crate::{Answer, Failure};
use duramen::{Durability, FlushInstruction, IndexKind, MediumKind, Options};
use duramen_bench::kv::contender::Contender;
use duramen_bench::kv::place::Place;
use duramen_bench::kv::suite::{self, redistributed};
use duramen_bench::kv::{
    Clock, Distribution, Latency, Pace, Shape, Watch, Workload, reporting, studies, targets, variants,
};
use duramen_bench::report::{Run, html, text};
use indicatif::ProgressBar;
use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Run named workloads on a separate store, next to the time of their bare memory accesses
///
/// NAMES are workloads (--list shows them), studies (growth, recovery, compaction, breakdown, forms), `ablation`, which runs
/// insert, get, update and overwrite on every variant, or `all`. docs/internals/bench-kv.md says what each does.
#[derive(clap::Args)]
pub struct Args {
    /// Workloads and studies [default: insert get get_many update overwrite delete]; rows, with --targets
    names: Vec<String>,
    /// Print the names of workloads, studies and variants
    #[arg(long)]
    list: bool,
    /// Print the project's targets, and whether they are reached
    #[arg(long, conflicts_with_all = ["threads", "distribution", "rate", "variants", "no_latency"])]
    targets: bool,
    /// The store to create and remove; the path must not exist [default: a file in /dev/shm]
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// auto, file, shm, fsdax, devdax, volatile
    #[arg(long, default_value_t = MediumKind::Auto)]
    medium: MediumKind,
    /// every-write, manual, or an interval between two commits such as 1s or 100ms
    #[arg(long, default_value = "every-write", value_parser = durability)]
    durability: Durability,
    /// hash or ordered
    #[arg(long, default_value_t = IndexKind::Hash)]
    index: IndexKind,
    /// Slots of the ordered index's cache, 8 bytes each
    #[arg(long, value_name = "SLOTS")]
    index_cache_slots: Option<usize>,
    /// Flush instruction: clwb, clflushopt, nt-avx512, ... [default: the best for the medium; clwb for --targets]
    #[arg(long, value_name = "STEP")]
    flush_instruction: Option<FlushInstruction>,
    /// Records [default: 1 million; 10 million for --targets]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=u32::MAX as u64))]
    keys: Option<u64>,
    /// Operations of each workload except the load [default: the number of records, at most 5 million]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=u32::MAX as u64))]
    ops: Option<u64>,
    /// Sizes of keys and values in bytes, several with commas; 16+200~ varies around these
    #[arg(long, default_value = "16+200", value_delimiter = ',', value_name = "KEY+VALUE")]
    records: Vec<Shape>,
    /// Numbers of threads, several with commas
    #[arg(long, default_value = "1", value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// uniform, zipfian or latest, instead of each workload's own
    #[arg(long)]
    distribution: Option<Distribution>,
    /// Operations per second of all threads, started on schedule: an open loop [default: closed loop]
    #[arg(long, value_name = "OPS", value_parser = rate)]
    rate: Option<f64>,
    /// Variants of the engine, several with commas, alternately
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    variants: Vec<String>,
    /// How often everything is repeated; medians are printed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Do not time single operations, which costs a clock reading each
    #[arg(long, conflicts_with = "rate")]
    no_latency: bool,
    /// Compare with bounds and targets in CPU time of the threads, which other processes disturb less
    #[arg(long)]
    cpu_time: bool,
    /// Also read and check every byte of every value after each workload
    #[arg(long)]
    check_all: bool,
    /// Seed of the keys and their order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results as JSON, which `duramen bench compare` reads
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<Answer, Failure> {
    if args.list {
        return list();
    }
    for file in [&args.json, &args.html].into_iter().flatten() {
        check_place_of(file)?;
    }
    let begun = Instant::now();
    let mut run =
        reporting::begin(if args.targets { "duramen bench kv --targets" } else { "duramen bench kv" });
    let place = place(&args);
    run.medium = reporting::medium_of(&place.path, &place.options);
    let said =
        if args.targets { find_targets(&args, place, &mut run)? } else { find(&args, &place, &mut run)? };
    run.elapsed_s = begun.elapsed().as_secs_f64();
    std::io::stdout().lock().write_all(said.unwrap_or_else(|| text::run(&run)).as_bytes())?;
    if let Some(file) = &args.json {
        run.write(file)?;
    }
    if let Some(file) = &args.html {
        std::fs::write(file, html::page(&[run]))
            .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    }
    Ok(Answer::Yes)
}

/// Reported before hours of measuring rather than after.
fn check_place_of(file: &Path) -> Result<(), Failure> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if directory.is_dir() && !file.is_dir() {
        return crate::output::check(file);
    }
    let text =
        format!("cannot write {}: its directory does not exist, or the path is a directory", file.display());
    Err(duramen_bench::kv::Failure::usage(text).into())
}

fn place(args: &Args) -> Place {
    let own = || PathBuf::from(format!("/dev/shm/duramen-bench-kv-{}", std::process::id()));
    // Only memory can be flushed; the targets on a file are of another kind.
    let flushes =
        args.targets && !matches!(args.medium, MediumKind::File | MediumKind::Devdax | MediumKind::Fsdax);
    let defaults = Options::default();
    let options = Options {
        index: args.index,
        index_cache_slots: args.index_cache_slots.unwrap_or(defaults.index_cache_slots),
        medium: args.medium,
        durability: args.durability,
        flush_instruction: args.flush_instruction.or(flushes.then_some(FlushInstruction::Clwb)),
        ..defaults
    };
    Place { path: args.path.clone().unwrap_or_else(own), options }
}

fn clock(args: &Args) -> Clock {
    if args.cpu_time { Clock::Cpu } else { Clock::Wall }
}

/// The table of targets.
fn find_targets(args: &Args, place: Place, run: &mut Run) -> Result<Option<String>, Failure> {
    let keys = args.keys.unwrap_or(10_000_000);
    let [shape] = args.records[..] else {
        return Err(duramen_bench::kv::Failure::usage("--targets takes one size of records").into());
    };
    let settings = targets::Settings {
        place,
        keys,
        ops: args.ops.unwrap_or(keys.min(5_000_000)),
        shape,
        rounds: args.rounds,
        only: args.names.clone(),
        clock: clock(args),
        seed: args.seed,
    };
    let found = targets::measure(&settings, &Bar::default())?;
    let (measurements, verdict) = reporting::targets(&found, settings.clock);
    run.notes.push(found.describe.clone());
    run.measurements = measurements;
    run.verdict = Some(verdict);
    Ok(Some(targets::table(&found)))
}

const USUAL: [&str; 6] = ["insert", "get", "get_many", "update", "overwrite", "delete"];
const ABLATION: [&str; 4] = ["insert", "get", "update", "overwrite"];

/// Workloads and studies.
fn find(args: &Args, place: &Place, run: &mut Run) -> Result<Option<String>, Failure> {
    let names: Vec<&str> = match args.names.iter().map(String::as_str).collect::<Vec<_>>() {
        names if names.is_empty() => USUAL.into(),
        names if names.contains(&"all") => {
            let workloads = Workload::all().iter().filter(|workload| !workload.asks_for_ranks());
            workloads.map(Workload::name).chain(studies::NAMES).chain(["ablation"]).collect()
        }
        names => names,
    };
    let is_study = |name: &&str| studies::NAMES.contains(name) || *name == "ablation";
    let (special, plain): (Vec<&str>, Vec<&str>) = names.into_iter().partition(is_study);
    let workloads = |names: &[&str]| -> Result<Vec<Workload>, duramen_bench::kv::Failure> {
        names.iter().map(|name| Ok(redistributed(named(name)?, args.distribution))).collect()
    };
    let keys = args.keys.unwrap_or(1_000_000);
    let settings = suite::Settings {
        workloads: workloads(&plain)?,
        shapes: args.records.clone(),
        threads: args.threads.clone(),
        keys,
        ops: args.ops.unwrap_or(keys.min(5_000_000)),
        rounds: args.rounds,
        latency: if args.no_latency { Latency::None } else { Latency::Every },
        clock: clock(args),
        pace: args.rate.map_or(Pace::Closed, Pace::Open),
        seed: args.seed,
        bounds: Some(place.clone()),
        check_all: args.check_all,
    };
    let bar = Bar::default();
    if !plain.is_empty() {
        let variants = if args.variants.is_empty() { vec!["duramen".into()] } else { args.variants.clone() };
        matrix(&variants, place, &settings, &bar, run)?;
    }
    for name in special {
        if let Some(found) = studies::named(name, place, &settings, &bar) {
            run.measurements.extend(found?);
            continue;
        }
        let settings = suite::Settings { workloads: workloads(&ABLATION)?, ..settings.clone() };
        let mut ablated = Run::default();
        matrix(&variants::names(), place, &settings, &bar, &mut ablated)?;
        run.notes.append(&mut ablated.notes);
        for mut one in ablated.measurements {
            one.group = format!("ablation: {}", one.group);
            run.measurements.push(one);
        }
    }
    Ok(None)
}

/// A workload, or the error for a name that is neither a workload nor a study.
fn named(name: &str) -> Result<&'static Workload, duramen_bench::kv::Failure> {
    let also = studies::NAMES.into_iter().chain(["ablation", "all"]);
    Workload::named_among(name, also)
}

fn matrix(
    variants: &[String],
    place: &Place,
    settings: &suite::Settings,
    bar: &Bar,
    run: &mut Run,
) -> Result<(), Failure> {
    let contenders = variants
        .iter()
        .map(|name| variants::named(name, place))
        .collect::<Result<Vec<Box<dyn Contender>>, _>>()?;
    let contenders: Vec<&dyn Contender> = contenders.iter().map(AsRef::as_ref).collect();
    let (cells, described) = suite::measure(&contenders, settings, bar)?;
    run.notes.extend(described);
    for cell in &cells {
        run.measurements.push(reporting::measurement(cell, settings)?);
    }
    Ok(())
}

fn list() -> Result<Answer, Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "workloads:")?;
    for workload in Workload::all() {
        writeln!(out, "  {:<22} {} ({})", workload.name(), workload.about(), workload.distribution())?;
    }
    writeln!(out, "studies:\n  {}, ablation", studies::NAMES.join(", "))?;
    writeln!(out, "variants:\n  {}", variants::names().join(", "))?;
    writeln!(out, "records:\n  {}, and any KEY+VALUE", Shape::NAMES.join(", "))?;
    Ok(Answer::Yes)
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "every-write" => return Ok(Durability::EveryWrite),
        "manual" => return Ok(Durability::Manual),
        _ => {}
    }
    let number = |suffix: &str| text.strip_suffix(suffix).and_then(|number| number.parse::<u64>().ok());
    let interval = number("ms").map(Duration::from_millis).or_else(|| number("s").map(Duration::from_secs));
    match interval {
        Some(interval) if !interval.is_zero() => Ok(Durability::Interval(interval)),
        _ => Err("use every-write, manual, or a time such as 1s or 100ms".into()),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    // 1024: far more than any machine's cores is a typing mistake.
    text.parse()
        .ok()
        .filter(|n| (1..=1024).contains(n))
        .ok_or_else(|| "wanted a number from 1 to 1024".into())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok();
    rate.filter(|r| (1.0..=1e9).contains(r))
        .ok_or_else(|| "wanted operations per second, from 1 to 1000000000".into())
}

/// A bar on standard error while a workload runs, and lines between them.
#[derive(Default)]
struct Bar(RefCell<Option<ProgressBar>>);

impl Watch for Bar {
    fn begin(&self, what: &str, total: u64) {
        *self.0.borrow_mut() = Some(progress_bar(total, what));
    }

    fn at(&self, done: u64) {
        if let Some(bar) = &*self.0.borrow() {
            bar.set_position(done);
        }
    }

    fn end(&self) {
        if let Some(bar) = self.0.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }

    fn say(&self, line: &str) {
        eprintln!("{line}");
    }
}
