//! `duramen bench`: measures, and shows results. One file per instrument.

pub mod compare;
pub mod kv;
pub mod mem;
pub mod model;
pub mod price;
pub mod server;
#[cfg(feature = "sql")]
pub mod stream;

use crate::{Answer, Failure};
use std::path::PathBuf;

/// Measure the memory, the engine and servers, and compare the results
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    Kv(kv::Args),
    Mem(Box<mem::Args>),
    Model(model::Args),
    Compare(compare::Args),
    Price(price::Args),
    Server(Box<server::Args>),
    #[cfg(feature = "sql")]
    Stream(stream::Args),
}

pub fn run(args: Args) -> Result<Answer, Failure> {
    match args.bench {
        Bench::Kv(args) => kv::run(args),
        Bench::Mem(args) => mem::run(&args),
        Bench::Model(args) => model::run(&args),
        Bench::Compare(args) => compare::run(&args),
        Bench::Price(args) => price::run(&args),
        Bench::Server(args) => server::run(&args),
        #[cfg(feature = "sql")]
        Bench::Stream(args) => stream::run(&args),
    }
}

/// Reads results, all or none.
fn read_runs(paths: &[PathBuf]) -> Result<Vec<duramen_bench_report::Run>, Failure> {
    let runs: duramen_bench_report::Result<Vec<_>> =
        paths.iter().map(|path| duramen_bench_report::Run::read(path)).collect();
    Ok(runs?)
}
