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

/// The exit code of an instrument's error, if it is one.
pub fn code(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(error) = error.downcast_ref::<duramen_bench::memory::Error>() {
        return Some(if error.kind() == duramen_bench::memory::ErrorKind::InvalidInput { 2 } else { 3 });
    }
    let is_usage = error.downcast_ref().is_some_and(duramen_bench::kv::Failure::is_usage)
        || error.downcast_ref().is_some_and(duramen_bench::server::Failure::is_usage);
    is_usage.then_some(2)
}

/// Reads results, all or none.
fn read_runs(paths: &[PathBuf]) -> Result<Vec<duramen_bench::report::Run>, Failure> {
    let runs: duramen_bench::report::Result<Vec<_>> =
        paths.iter().map(|path| duramen_bench::report::Run::read(path)).collect();
    Ok(runs?)
}
