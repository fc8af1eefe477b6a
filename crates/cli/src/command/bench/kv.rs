//! `duramen bench kv`: named workloads on the engine.

use crate::command::progress_bar;
use crate::{Answer, Failure};
use duramen::{MediumKind, Options, PersistStep};
use duramen_bench_kv::place::Place;
use duramen_bench_kv::{Clock, Shape, Watch, targets};
use indicatif::ProgressBar;
use std::cell::RefCell;
use std::io::Write;
use std::path::PathBuf;

/// Run named workloads on a store of its own, beside the time of their bare memory accesses
#[derive(clap::Args)]
pub struct Args {
    /// Workloads, by name; with --targets, rows of the table
    names: Vec<String>,
    /// Print the project's targets, and whether they are reached
    #[arg(long)]
    targets: bool,
    /// The store to make and remove: nothing may be there [default: a file in /dev/shm]
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// auto, file, shm, fsdax, devdax
    #[arg(long, default_value_t = MediumKind::Auto)]
    medium: MediumKind,
    /// How lines are flushed: clwb, clflushopt, nt-avx512, ... [default: what suits the medium; clwb for --targets]
    #[arg(long, value_name = "STEP")]
    persist_step: Option<PersistStep>,
    /// Records
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    keys: u64,
    /// Operations of each workload but the load [default: the records, at most 5 million]
    #[arg(long)]
    ops: Option<u64>,
    /// Sizes of keys and values, in bytes
    #[arg(long, default_value = "16+200", value_name = "KEY+VALUE")]
    records: Shape,
    /// How often everything is done; medians are printed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Time operations and bounds by the CPU time of their threads, which others on the machine disturb less
    #[arg(long)]
    cpu_time: bool,
    /// Makes keys and their order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(args: Args) -> Result<Answer, Failure> {
    let path = args
        .path
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("/dev/shm/duramen-bench-kv-{}", std::process::id())));
    let persist_step = args.persist_step.or(args.targets.then_some(PersistStep::Clwb));
    let options = Options { medium: args.medium, persist_step, ..Options::default() };
    let settings = targets::Settings {
        place: Place { path, options },
        keys: args.keys,
        ops: args.ops.unwrap_or(args.keys.min(5_000_000)),
        shape: args.records,
        rounds: args.rounds,
        only: args.names,
        clock: if args.cpu_time { Clock::Cpu } else { Clock::Wall },
        seed: args.seed,
    };
    let found = targets::measure(&settings, &Bar::default())?;
    std::io::stdout().lock().write_all(targets::table(&found).as_bytes())?;
    Ok(Answer::Yes)
}

/// A bar on standard error while a workload runs, and lines between them.
#[derive(Default)]
struct Bar(RefCell<Option<ProgressBar>>);

impl Watch for Bar {
    fn begin(&self, what: &str, total: u64) {
        let bar = progress_bar(total, what);
        *self.0.borrow_mut() = Some(bar);
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
