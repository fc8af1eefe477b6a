//! `duramen bench`: measures. One file per instrument.

pub mod kv;

use crate::{Answer, Failure};

/// Measure the engine, beside what the memory itself takes
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    Kv(kv::Args),
}

pub fn run(args: Args) -> Result<Answer, Failure> {
    match args.bench {
        Bench::Kv(args) => kv::run(args),
    }
}
