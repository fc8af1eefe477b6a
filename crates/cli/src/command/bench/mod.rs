//! `duramen bench`: measures, and shows what was measured. One file per instrument.

pub mod compare;
pub mod price;
pub mod server;

use crate::{Answer, Failure};
use std::path::PathBuf;

/// Measure the memory, the engine and servers, and compare what was found
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    Compare(compare::Args),
    Price(price::Args),
    Server(Box<server::Args>),
}

pub fn run(args: Args) -> Result<Answer, Failure> {
    match args.bench {
        Bench::Compare(args) => compare::run(&args),
        Bench::Price(args) => price::run(&args),
        Bench::Server(args) => server::run(&args),
    }
}

/// Reads results, all or none.
fn read_runs(paths: &[PathBuf]) -> Result<Vec<duramen_bench_report::Run>, Failure> {
    let runs: duramen_bench_report::Result<Vec<_>> =
        paths.iter().map(|path| duramen_bench_report::Run::read(path)).collect();
    Ok(runs?)
}
