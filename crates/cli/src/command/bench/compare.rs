//! `duramen bench compare`: two runs next to each other, as text; any number of runs as a page.

use super::read_runs;
use crate::{Answer, Failure};
use duramen_bench::report::compare::compare;
use duramen_bench::report::price::Prices;
use duramen_bench::report::{html, price, text};
use std::io::Write;
use std::path::PathBuf;

/// Show results, or compare them with the first: ratios with their spread, or that the difference is not significant
#[derive(clap::Args)]
pub struct Args {
    /// Results that a bench command wrote with --json; one is shown, others are compared with the first
    #[arg(required = true, value_name = "RUN.json")]
    runs: Vec<PathBuf>,
    /// Write a page with tables and plots of all of them
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Add price-performance from this file
    #[arg(long, value_name = "FILE.toml")]
    prices: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let runs = read_runs(&args.runs)?;
    let mut bills = Vec::new();
    if let Some(path) = &args.prices {
        let prices = Prices::read(path)?;
        bills = runs.iter().map(|run| prices.bills(run)).collect::<Result<Vec<_>, _>>()?.concat();
    }
    let mut out = std::io::stdout().lock();
    if let [run] = runs.as_slice() {
        out.write_all(text::run(run).as_bytes())?;
    }
    for (other, path) in runs.iter().zip(&args.runs).skip(1) {
        writeln!(out, "first: {}\nsecond: {}", args.runs[0].display(), path.display())?;
        out.write_all(compare(&runs[0], other).text().as_bytes())?;
    }
    if !bills.is_empty() {
        write!(out, "\n{}", price::text(&bills))?;
    }
    if let Some(path) = &args.html {
        duramen_bench::report::write_whole(path, html::page_with_prices(&runs, &bills).as_bytes())?;
    }
    Ok(Answer::Yes)
}
