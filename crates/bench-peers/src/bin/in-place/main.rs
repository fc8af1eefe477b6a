//! Costs and savings of a persistent skip list in place, compared with Duramen's index in DRAM, that throughput alone
//! does not show. Throughput is `cargo xtask bench-peers … --engines duramen,hyperkv,hyperkv-undo`.
//!
//! Exit codes: 0 done; 2 wrong usage; 3 an engine or the place could not be used, or gave a wrong value.
#![forbid(unsafe_code)]

mod cache;
mod open;
mod traffic;

use clap::{Args, Parser, Subcommand};
use duramen_bench::kv::median;
use duramen_bench::kv::{IndexKind, Options, FlushInstruction, Result, Shape};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure a persistent skip list in place (hyperkv) next to Duramen
#[derive(Parser)]
#[command(name = "in-place", version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Bytes stored and lines written back for each insert and overwrite, counted: redo log, undo log, Duramen
    Traffic {
        #[command(flatten)]
        common: Common,
        /// Bytes of a value, several with commas
        #[arg(long, default_value = "128,1024,2048,4096", value_delimiter = ',')]
        values: Vec<usize>,
    },
    /// Gets by the slots of the cache of direct references, uniform and zipfian, in turn
    Cache {
        #[command(flatten)]
        common: Common,
        /// Sizes of key and value
        #[arg(long, default_value = "16+100")]
        record: Shape,
    },
    /// From the call of open to the first value read
    Open {
        #[command(flatten)]
        common: Common,
        /// Sizes of key and value
        #[arg(long, default_value = "16+100")]
        record: Shape,
    },
}

/// Arguments of all measurements.
#[derive(Args)]
pub struct Common {
    /// A directory to make and remove, on /dev/shm or a DAX file system
    #[arg(long, default_value = "/dev/shm/in-place.tmp", value_name = "PATH")]
    path: PathBuf,
    /// Records
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=u32::MAX as u64))]
    keys: u64,
    /// Operations of a workload [default: as many as records]
    #[arg(long)]
    ops: Option<u64>,
    /// How often all take their turn; medians are printed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How lines become durable [default: as the medium needs; traffic: clwb, so that write-backs are asked for]
    #[arg(long, value_name = "STEP")]
    flush_instruction: Option<FlushInstruction>,
    /// Makes keys and their order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Common {
    fn ops(&self) -> u64 {
        self.ops.unwrap_or(self.keys)
    }

    /// Duramen with an ordered index.
    fn duramen(&self) -> Options {
        Options { index: IndexKind::Ordered, flush_instruction: self.flush_instruction, ..Options::default() }
    }
}

fn main() -> ExitCode {
    let measured = match Arguments::parse().what {
        What::Traffic { common, values } => inside(common, |common| traffic::measure(common, &values)),
        What::Cache { common, record } => inside(common, |common| cache::measure(common, record)),
        What::Open { common, record } => inside(common, |common| open::measure(common, record)),
    };
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("in-place: {failure}");
            ExitCode::from(if failure.is_usage() { 2 } else { 3 })
        }
    }
}

/// Measures in a directory that is made and removed, and prints how busy the machine was.
fn inside(common: Common, measure: impl FnOnce(&Common) -> Result<()>) -> Result<()> {
    let _directory = duramen_bench_peers::engine::Directory::new(&common.path)?;
    println!("load at the beginning: {}", load());
    let measured = measure(&common);
    println!("load at the end: {}", load());
    measured
}

/// Threads that want to run, over one, five and fifteen minutes.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Median, lowest and highest, with `digits` digits.
fn spread(samples: &[f64], digits: usize) -> String {
    let low = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let high = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.digits$} ({low:.digits$} to {high:.digits$})", median(samples).unwrap_or_default())
}
