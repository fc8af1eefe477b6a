//! `cargo xtask bench-peers`: the workloads of `duramen bench kv`, on Duramen and its peers in turn.
//!
//! Exit codes: 0 done; 2 wrong usage; 3 an engine or the place could not be used, or gave a wrong value.
#![forbid(unsafe_code)]

use clap::Parser;
use duramen_bench::kv::contender::Contender;
use duramen_bench::kv::suite::{self, redistributed};
use duramen_bench::kv::{
    Clock, Distribution, Failure, IndexKind, Latency, Options, Outcome, Pace, FlushInstruction, Result, Shape,
    Watch, Workload, reporting,
};
use duramen_bench_peers::contenders::Peer;
use duramen_bench_peers::{Level, Name};
use duramen_bench::report::{Run, html, text};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Compare Duramen with RocksDB, LMDB, redb, fjall and a hash map, alternately, each at the same durability
#[derive(Parser)]
#[command(name = "cargo xtask bench-peers", version)]
struct Args {
    /// Workloads of duramen bench kv
    #[arg(default_values = ["insert", "get", "overwrite", "delete"])]
    names: Vec<String>,
    /// A directory to make and remove, on the disk to be measured
    #[arg(long, default_value = "bench-peers.tmp", value_name = "PATH")]
    path: PathBuf,
    /// every-write, interval or none: only engines that have it take part
    #[arg(long, default_value = "interval")]
    durability: Level,
    /// Engines, several with commas [default: all that have the durability, but hyperkv and hyperkv-undo, which lie on
    /// memory alone]
    #[arg(long, value_delimiter = ',')]
    engines: Vec<Name>,
    /// Duramen's index: hash or ordered [default: ordered where entries are visited in their order, else hash]
    #[arg(long)]
    index: Option<IndexKind>,
    /// How Duramen and hyperkv make lines durable, as clwb [default: as the medium needs]
    #[arg(long, value_name = "STEP")]
    flush_instruction: Option<FlushInstruction>,
    /// Records [default: 1 million; 20 thousand for every-write, where each waits for the device]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=u32::MAX as u64))]
    keys: Option<u64>,
    /// Operations of each workload but the load [default: as many as records]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=u32::MAX as u64))]
    ops: Option<u64>,
    /// Sizes of keys and values in bytes, several with commas
    #[arg(long, default_value = "16+200", value_delimiter = ',')]
    records: Vec<Shape>,
    /// Numbers of threads, several with commas
    #[arg(long, default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// uniform, zipfian or latest, instead of each workload's own
    #[arg(long)]
    distribution: Option<Distribution>,
    /// How often all engines take their turn; medians are printed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Makes keys and their order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench-peers: {failure}");
            ExitCode::from(if failure.is_usage() { 2 } else { 3 })
        }
    }
}

/// Removed with its whole content.
struct Everything(PathBuf);

impl Drop for Everything {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn measure(args: &Args) -> Result<()> {
    let begun = Instant::now();
    let mut run = reporting::begin("cargo xtask bench-peers");
    let workloads =
        args.names.iter().map(|name| Ok(redistributed(Workload::named(name)?, args.distribution)));
    let keys = args.keys.unwrap_or(if args.durability == Level::EveryWrite { 20_000 } else { 1_000_000 });
    let settings = suite::Settings {
        workloads: workloads.collect::<Result<_>>()?,
        shapes: args.records.clone(),
        threads: args.threads.iter().map(|threads| usize::from(*threads)).collect(),
        keys,
        ops: args.ops.unwrap_or(keys),
        rounds: args.rounds,
        latency: Latency::Every,
        clock: Clock::Wall,
        pace: Pace::Closed,
        seed: args.seed,
        bounds: None,
        check_all: false,
    };
    let scans = settings.workloads.iter().any(Workload::visits);
    let index = args.index.unwrap_or(if scans { IndexKind::Ordered } else { IndexKind::Hash });
    let mut asked = args.engines.clone();
    if asked.is_empty() {
        asked.extend(Name::ALL.into_iter().filter(|name| !name.lies_on_memory_alone()));
    }
    let step = args.flush_instruction;
    let peer = |name: &Name| Peer::new(*name, args.durability, &args.path, index, step);
    let peers: Vec<Peer> = asked.iter().filter_map(peer).collect();
    if let Some(name) = args.engines.iter().find(|name| name.durability(args.durability).is_none()) {
        let text = format!(
            "{} has no durability {}, so a comparison would be unfair; choose another engine or level",
            name.text(),
            args.durability
        );
        return Err(Failure::usage(text));
    }
    if let (true, Some(name)) = (scans, peers.iter().find(|peer| !peer.is_ordered()).map(Contender::name)) {
        let text = format!(
            "{name} scans in hash order: omit the scans, name only ordered --engines, or omit --index hash"
        );
        return Err(Failure::usage(text));
    }
    std::fs::create_dir(&args.path).map_err(|error| {
        Failure::usage(format!("cannot create {}: {error}; give a --path that does not exist", args.path.display()))
    })?;
    let _everything = Everything(args.path.clone());
    run.medium = reporting::medium_of(
        &args.path.join("medium"),
        &Options { flush_instruction: step, ..Options::default() },
    );
    let contenders: Vec<&dyn Contender> = peers.iter().map(|peer| peer as &dyn Contender).collect();
    let (cells, described) = suite::measure(&contenders, &settings, &Bar::default())?;
    run.notes.extend(described);
    run.notes
        .push(format!("durability {}: each row says which failures the engine's writes survive", args.durability));
    for cell in &cells {
        run.measurements.push(reporting::measurement(cell, &settings)?);
    }
    run.notes.extend(ratios(&cells));
    run.elapsed_s = begun.elapsed().as_secs_f64();
    print!("{}", text::run(&run));
    write(args, run)
}

/// Duramen's throughput over each peer's, in the same round, and the peer's CPU time over Duramen's: median, minimum
/// and maximum. CPU time is that of the working threads; the engines' background work is not in it.
fn ratios(cells: &[suite::Cell]) -> Vec<String> {
    let ours = cells.iter().filter(|cell| cell.contender == Name::Duramen.text());
    let mut lines = Vec::new();
    for own in ours {
        let same = |cell: &&suite::Cell| {
            cell.workload == own.workload && cell.shape == own.shape && cell.threads == own.threads
        };
        for peer in cells.iter().filter(same).filter(|cell| cell.contender != own.contender) {
            let ratio = |of: fn(&Outcome, &Outcome) -> f64| {
                let pairs = own.outcomes.iter().zip(&peer.outcomes);
                spread(pairs.map(|(own, peer)| of(own, peer)).collect())
            };
            lines.push(format!(
                "{}, {}, {} threads: duramen {} times {} in {} rounds; by CPU time {}",
                own.workload.name(),
                own.shape,
                own.threads,
                ratio(|own, peer| own.ops_per_second() / peer.ops_per_second()),
                peer.contender,
                own.outcomes.len(),
                ratio(|own, peer| peer.cpu_nanos_per_op() / own.cpu_nanos_per_op()),
            ));
        }
    }
    lines
}

/// Median, minimum and maximum.
fn spread(mut samples: Vec<f64>) -> String {
    samples.sort_by(f64::total_cmp);
    let median = duramen_bench::kv::median(&samples).unwrap_or_default();
    let (low, high) = (samples.first().copied(), samples.last().copied());
    format!("{median:.2} (from {:.2} to {:.2})", low.unwrap_or_default(), high.unwrap_or_default())
}

fn write(args: &Args, run: Run) -> Result<()> {
    if let Some(file) = &args.json {
        run.write(file).map_err(|error| Failure::new(error.to_string()))?;
    }
    if let Some(file) = &args.html {
        std::fs::write(file, html::page(&[run]))
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", file.display())))?;
    }
    Ok(())
}

/// A bar on standard error.
#[derive(Default)]
struct Bar(RefCell<Option<ProgressBar>>);

impl Watch for Bar {
    fn begin(&self, what: &str, total: u64) {
        let template = format!("{{bar:40}} {{pos}}/{{len}} {what}, {{per_sec}}, {{eta}} left");
        let bar = ProgressBar::new(total);
        *self.0.borrow_mut() = Some(match ProgressStyle::with_template(&template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        });
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
