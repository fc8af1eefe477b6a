//! `duramen bench price`: price-performance of media.

use super::read_runs;
use crate::{Answer, Failure};
use duramen_bench::report::price::{self, Prices};
use duramen_bench::report::text;
use std::io::Write;
use std::path::PathBuf;

/// Price-performance: euro of a GB, per GB/s, per 100 ns, per million index operations a second
#[derive(clap::Args)]
pub struct Args {
    /// Results that a bench command wrote with --json
    #[arg(required = true, value_name = "RUN.json")]
    runs: Vec<PathBuf>,
    /// The prices of media; docs/internals/bench-report.md shows such a file
    #[arg(long, value_name = "FILE.toml")]
    prices: PathBuf,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let prices = Prices::read(&args.prices)?;
    let runs = read_runs(&args.runs)?;
    let bills = runs.iter().map(|run| prices.bills(run)).collect::<Result<Vec<_>, _>>()?.concat();
    let mut out = std::io::stdout().lock();
    text::warnings(&runs).lines().try_for_each(|line| writeln!(out, "{line}"))?;
    out.write_all(price::text(&bills).as_bytes())?;
    Ok(Answer::Yes)
}
