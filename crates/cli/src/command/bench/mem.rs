//! `duramen bench mem`: measures a memory, by the built-in suite or by workload files.

use crate::signals::Signals;
use crate::{Answer, Failure};
use duramen::{FlushInstruction, MediumKind};
use duramen_bench::memory::{
    Bench, Benchmark, Bounds, Error, Overrides, Target, Watch, benchmarks, built_in, measurements, medium,
    nodes, parse_bytes, profile, suite, verdict,
};
use duramen_bench::report::{Machine, Measurement, Run, html, text, write_whole};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

// 1 GiB: above every cache, and faulted in within a second.
const RANGE_BYTES: u64 = 1 << 30;
const RANGE_BYTES_QUICK: u64 = 256 << 20;
/// Seconds of one point of the suite.
const POINT_S: f64 = 0.3;
const POINT_S_QUICK: f64 = 0.05;
const BOUND_TIME: Duration = Duration::from_millis(300);

/// Measure a memory: bandwidth, latency, persist instructions, index and log patterns
///
/// Without files the built-in suite runs and ends in a verdict. Files describe workloads in YAML, as for
/// PerMA-Bench; docs/internals/bench-memory.md lists every knob. Memory is DRAM unless a medium or a path is given.
/// A file that is made for measuring has no name while it is used; one that is there is not touched without
/// --overwrite.
#[derive(clap::Args)]
pub struct Args {
    /// Workload files, or names of built-in ones (--list)
    #[arg(value_name = "WORKLOAD.yaml")]
    files: Vec<PathBuf>,
    /// dram, shm, file, fsdax, devdax; auto detects it from the path
    #[arg(long, default_value = "auto", value_parser = medium_kind)]
    medium: MediumKind,
    /// A directory to make a file in, a file to make, or with --overwrite an existing file or device
    #[arg(long)]
    path: Option<PathBuf>,
    /// Allow overwriting the content at the path
    #[arg(long)]
    overwrite: bool,
    /// Bytes to use instead of every memory_range, as 1G [default for the suite: 1G, quick 256M]
    #[arg(long, value_parser = bytes)]
    range: Option<u64>,
    /// Bytes of DRAM to use instead of every dram_memory_range
    #[arg(long, value_parser = bytes)]
    dram_range: Option<u64>,
    /// Seconds for each point instead of its run_time [default for the suite: 0.3, quick 0.05]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    run_time: Option<f64>,
    /// Operations instead of every number_operations
    #[arg(long, value_name = "COUNT")]
    operations: Option<u64>,
    /// Runs of each point; the median is shown
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// A smaller range and shorter points: a first look
    #[arg(long)]
    quick: bool,
    /// Only benchmarks whose names contain one of these
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// How the medium's own stores are made durable, for granularity and bounds: clwb, nt-avx512, ...
    #[arg(long)]
    flush_instruction: Option<FlushInstruction>,
    /// NUMA nodes that threads run on
    #[arg(long, value_delimiter = ',', value_name = "NODE")]
    thread_nodes: Vec<usize>,
    /// NUMA nodes that memory is taken from
    #[arg(long, value_delimiter = ',', value_name = "NODE")]
    memory_nodes: Vec<usize>,
    /// Run everything over each pair of a node with cores and a node with memory
    #[arg(long, conflicts_with_all = ["thread_nodes", "memory_nodes"])]
    node_pairs: bool,
    /// Emulate a slower memory: nanoseconds added to each step on the medium
    #[arg(long, value_name = "NS")]
    emulate_latency_ns: Option<u64>,
    /// Emulate a slower memory: bytes per second for all threads together, as 4G
    #[arg(long, value_parser = bytes, value_name = "BYTES")]
    emulate_bandwidth: Option<u64>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the recommended settings as a file for `duramen serve --tune`
    #[arg(long, value_name = "FILE")]
    tune: Option<PathBuf>,
    /// List the built-in workload files, or with files print the points that would run, and stop
    #[arg(long)]
    list: bool,
}

fn medium_kind(name: &str) -> Result<MediumKind, String> {
    match name {
        "dram" => Ok(MediumKind::Volatile),
        _ => name.parse().map_err(|error: duramen_bench::memory::MediumError| error.to_string()),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text:?} is not from 0.001 to 86400 seconds")),
    }
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let is_suite = args.files.is_empty();
    let overrides = args.overrides(is_suite);
    let (mut all, notes) = if is_suite { suite(&overrides)? } else { args.read_files(&overrides)? };
    if !args.only.is_empty() {
        all.retain(|benchmark| args.only.iter().any(|name| benchmark.name.contains(name.as_str())));
    }
    if all.is_empty() {
        return Err("no benchmark is left; look at --list and --only".into());
    }
    if args.list {
        return list(is_suite, &all);
    }
    let signals = Signals::watch()?;
    let target = Target {
        kind: args.medium,
        path: args.path.clone(),
        overwrite: args.overwrite,
        flush_instruction: args.flush_instruction,
    };
    let mut bench = Bench::new(target.clone());
    let mut run = begin("duramen bench mem", notes);
    let start = Instant::now();
    let placements = args.placements(&mut run.notes);
    let mut session = Session::new(all.len() * placements.len() * args.repeat as usize, &signals);
    let mut bounds = None;
    let result = (|| -> Result<(), Error> {
        for (label, thread_nodes, memory_nodes) in &placements {
            for benchmark in &all {
                let mut benchmark = benchmark.clone();
                for part in &mut benchmark.parts {
                    if !label.is_empty() {
                        part.workload.thread_nodes.clone_from(thread_nodes);
                        part.workload.memory_nodes.clone_from(memory_nodes);
                    }
                }
                for mut found in session.points(&mut bench, &benchmark, args.repeat)? {
                    if !label.is_empty() {
                        found.arguments.insert("nodes".to_owned(), label.as_str().into());
                    }
                    run.measurements.push(found);
                }
                if signals.stop() {
                    return Ok(());
                }
            }
        }
        if is_suite && args.only.is_empty() && !args.node_pairs {
            session.say("bounds");
            let bytes = overrides.memory_range.unwrap_or(RANGE_BYTES);
            bounds = Some(duramen_bench::memory::bounds(bench.medium_of(bytes)?, 0..bytes, BOUND_TIME));
        }
        Ok(())
    })();
    session.finish();
    run.elapsed_s = start.elapsed().as_secs_f64();
    run.complete = !signals.stop() && result.is_ok();
    run.medium = medium(&target, bench.medium());
    conclude(&mut run, &bench, is_suite && !args.node_pairs, bounds.as_ref());
    // Keep the measurements made before an error, and still report it.
    if !run.measurements.is_empty() {
        args.write(&run)?;
    }
    result?;
    Ok(if run.complete { Answer::Yes } else { Answer::No })
}

/// Prints the verdict, if there are enough measurements for it.
fn conclude(run: &mut Run, bench: &Bench, is_suite: bool, bounds: Option<&Bounds>) {
    if let Some(advice) = bench.advice() {
        run.notes.push(advice);
    }
    if let Some(granularity) = bench.granularity()
        && is_suite
        && run.complete
    {
        run.verdict = Some(verdict(run, granularity, bounds));
    }
}

/// An empty run of `tool`, now and here.
pub fn begin(tool: &str, notes: Vec<String>) -> Run {
    Run {
        tool: tool.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        command: std::env::args().collect(),
        machine: Machine::read(),
        notes,
        ..Run::default()
    }
}

impl Args {
    fn overrides(&self, is_suite: bool) -> Overrides {
        let (range, point) = match self.quick {
            true => (RANGE_BYTES_QUICK, POINT_S_QUICK),
            false => (RANGE_BYTES, POINT_S),
        };
        let scaled = is_suite || self.quick;
        Overrides {
            memory_range: self.range.or(scaled.then_some(range)),
            dram_memory_range: self.dram_range.or(scaled.then_some(range / 4)),
            run_time: self.run_time.or(scaled.then_some(point)),
            number_operations: self.operations,
            instruction_set: None,
            thread_nodes: self.thread_nodes.clone(),
            memory_nodes: self.memory_nodes.clone(),
            emulate_latency_ns: self.emulate_latency_ns,
            emulate_bandwidth: self.emulate_bandwidth,
        }
    }

    fn read_files(&self, overrides: &Overrides) -> Result<(Vec<Benchmark>, Vec<String>), Failure> {
        let mut all = Vec::new();
        let mut notes = Vec::new();
        for path in &self.files {
            let name = path.display().to_string();
            let found = match (std::fs::read_to_string(path), built_in(&name)) {
                (Ok(text), _) => benchmarks(&name, &text, overrides)?,
                (Err(_), Some(text)) => benchmarks(&name, text, overrides)?,
                (Err(error), None) => {
                    return Err(format!(
                        "cannot read workload file {name}: {error}; --list shows built-in ones"
                    )
                    .into());
                }
            };
            for benchmark in &found {
                if let Some(other) = all.iter().find(|other: &&Benchmark| {
                    let same = |a: &Benchmark, b: &Benchmark| {
                        a.name == b.name && a.parts.iter().zip(&b.parts).all(|(a, b)| a.point == b.point)
                    };
                    same(other, benchmark)
                }) {
                    return Err(format!(
                        "{name}: benchmark `{}` is in an earlier file too; rename one",
                        other.name
                    )
                    .into());
                }
            }
            all.extend(found);
        }
        let cores = duramen_bench::memory::allowed_cores().len() as u64;
        let most = all.iter().flat_map(|b| &b.parts).map(|part| part.workload.number_threads).max();
        if let Some(threads) = most.filter(|threads| *threads > cores) {
            notes.push(format!(
                "up to {threads} threads share {cores} cores: such points show the scheduler as well"
            ));
        }
        Ok((all, notes))
    }

    /// Label, thread nodes and memory nodes of each round; a round without a label uses those of the files.
    fn placements(&self, notes: &mut Vec<String>) -> Vec<(String, Vec<usize>, Vec<usize>)> {
        let nodes = nodes();
        if !self.node_pairs || nodes.len() < 2 {
            if self.node_pairs {
                notes.push("this machine has one NUMA node: --node-pairs needs two".to_owned());
            }
            return vec![(String::new(), Vec::new(), Vec::new())];
        }
        let with_cores = nodes.iter().filter(|node| !node.cores.is_empty());
        with_cores
            .flat_map(|from| {
                let memory = nodes.iter().filter(|to| to.has_memory);
                memory.map(|to| (format!("{}-{}", from.node, to.node), vec![from.node], vec![to.node]))
            })
            .collect()
    }

    fn write(&self, run: &Run) -> Result<(), Failure> {
        if let Some(path) = &self.json {
            run.write(path)?;
        }
        if let Some(path) = &self.html {
            write_whole(path, html::page(std::slice::from_ref(run)).as_bytes())?;
        }
        if let Some(path) = &self.tune {
            match profile(run) {
                Some(text) => write_whole(path, text.as_bytes())?,
                None => eprintln!(
                    "duramen: no settings in {}: they need a complete run of the suite",
                    path.display()
                ),
            }
        }
        std::io::stdout().lock().write_all(text::run(run).as_bytes())?;
        Ok(())
    }
}

fn list(is_suite: bool, all: &[Benchmark]) -> Result<Answer, Failure> {
    let mut out = std::io::stdout().lock();
    if is_suite {
        for (name, text) in duramen_bench::memory::SUITE.iter().chain(&duramen_bench::memory::PATTERNS) {
            let about: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("# ")).collect();
            writeln!(out, "{name}: {}", about.join(" "))?;
        }
        return Ok(Answer::Yes);
    }
    for benchmark in all {
        for part in &benchmark.parts {
            let point: Vec<String> =
                part.point.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
            writeln!(out, "{} {} {}", benchmark.name, part.name, point.join(" "))?;
        }
    }
    Ok(Answer::Yes)
}

/// The points of a run, with a bar.
pub struct Session<'s> {
    bar: ProgressBar,
    done: u64,
    signals: &'s Signals,
}

/// Steps of the bar for one run of one point.
const STEPS: u64 = 1000;

impl<'s> Session<'s> {
    pub fn new(runs: usize, signals: &'s Signals) -> Self {
        let bar = ProgressBar::new(runs as u64 * STEPS);
        if !std::io::stderr().is_terminal() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{bar:30} {percent}%, {eta} left, {msg}");
        Self {
            bar: style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style)),
            done: 0,
            signals,
        }
    }

    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Runs one point `repeat` times.
    pub fn points(
        &mut self,
        bench: &mut Bench,
        benchmark: &Benchmark,
        repeat: u32,
    ) -> Result<Vec<Measurement>, Error> {
        self.say(&benchmark.name);
        let mut repeats = Vec::new();
        for _ in 0..repeat {
            repeats.push(bench.run(benchmark, self)?);
            self.done += STEPS;
            if self.signals.stop() {
                break;
            }
        }
        measurements(benchmark, &repeats)
    }
}

impl Watch for Session<'_> {
    fn stop(&self) -> bool {
        self.signals.stop()
    }

    fn progress(&self, share: f64) {
        self.bar.set_position(self.done + (share * STEPS as f64) as u64);
    }
}
