//! The driver: `cargo xtask crash` runs it.

#![forbid(unsafe_code)]

use clap::Parser;
use duramen_crash::{Case, Effort, Totals, run_seed};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Crashes the engine on a simulated medium and checks what it recovers.
#[derive(Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds; without it, as many as there is time for.
    #[arg(long)]
    seeds: Option<u64>,
    /// How long.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Medium and durability, as "line/every-write"; without it, all in turn.
    #[arg(long)]
    case: Option<String>,
    /// Images at one position.
    #[arg(long, default_value_t = Effort::default().images)]
    images: usize,
    /// Goes on after a violation.
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let case = match &arguments.case {
        None => None,
        Some(name) => match Case::named(name) {
            Some(case) => Some(case),
            None => {
                let names: Vec<&str> = duramen_crash::setup::CASES.iter().map(|case| case.name).collect();
                eprintln!("no case is called {name}; there are: {}", names.join(", "));
                return ExitCode::FAILURE;
            }
        },
    };
    // A panic of the engine is a violation, told with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let effort = Effort { images: arguments.images, ..Effort::default() };
    let begun = Instant::now();
    let until = Duration::from_secs_f64(arguments.minutes * 60.0);
    let (mut totals, mut violations) = (Totals::default(), 0);
    for seed in arguments.seed.. {
        let done = seed - arguments.seed;
        if arguments.seeds.is_some_and(|seeds| done >= seeds)
            || (arguments.seeds.is_none() && begun.elapsed() >= until)
        {
            break;
        }
        match run_seed(seed, case, effort) {
            Ok(more) => totals.add(&more),
            Err(violation) => {
                violations += 1;
                println!("VIOLATION {violation}");
                if !arguments.keep_going {
                    break;
                }
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{} seeds, {} operations, {} points, {} images ({:.0} a second), {} nested sessions, {:.1} s: {violations} violations",
        totals.seeds,
        totals.ops,
        totals.points,
        totals.images,
        totals.images as f64 / seconds,
        totals.nested,
        seconds
    );
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
