//! `duramen sql`: runs a script of continuous SQL.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use duramen_stream::run::{Progress, Running};
use duramen_stream::{Error, ErrorKind, Job, Outcome, Session};
use indicatif::ProgressBar;

use crate::{Answer, Failure};

/// Run a script of continuous SQL: each job until its input ends or it is interrupted
#[derive(clap::Args)]
pub struct Args {
    /// The script; - for standard input
    script: PathBuf,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let script = if args.script == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(&args.script)
    };
    let script = script.map_err(|error| format!("cannot read {}: {error}", args.script.display()))?;
    let refused = |error| told(&args.script, error);
    let outcomes = Session::default().run(&script).map_err(refused)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends the program at once.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    for outcome in outcomes {
        match outcome {
            Outcome::Done => {}
            Outcome::Text(text) => println!("{}", text.trim_end()),
            Outcome::Job(job) => run_job(&job, &stop).map_err(refused)?,
        }
    }
    Ok(Answer::Yes)
}

/// A script that is wrong, or asks for what is not there.
#[derive(Debug)]
pub struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

fn told(script: &Path, error: Error) -> Failure {
    let text = format!("{}: {error}", script.display());
    match error.kind() {
        ErrorKind::Syntax | ErrorKind::Invalid | ErrorKind::Unsupported => Box::new(Refused(text)),
        // Its files, or its records.
        ErrorKind::Evaluation | ErrorKind::Connector => text.into(),
    }
}

fn run_job(job: &Job, stop: &AtomicBool) -> Result<(), Error> {
    let mut running = Running::start(&job.optimised, Path::new("."))?;
    // Drawn on standard error, when that is a terminal.
    let bar = ProgressBar::new_spinner();
    let progress = running.run(stop, |progress| bar.set_message(line(progress)))?;
    bar.finish_and_clear();
    let compiled = running.program().compiled_in().as_secs_f64() * 1e3;
    eprintln!("compiled in {compiled:.1} ms; {}", line(&progress));
    Ok(())
}

/// Where a job stands, in one line.
fn line(progress: &Progress) -> String {
    let seconds = progress.elapsed.as_secs_f64();
    let rate = progress.records as f64 / seconds.max(1e-9);
    let bytes: usize = progress.held.iter().map(|held| held.bytes).sum();
    let late: u64 = progress.held.iter().map(|held| held.late).sum();
    let mut line = format!(
        "{} records in {seconds:.1} s, {rate:.0}/s, {:.1} MB of state",
        progress.records,
        bytes as f64 / 1e6
    );
    for (count, what) in [(late, "late"), (progress.skipped, "left out")] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    line
}
