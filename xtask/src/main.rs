//! `cargo xtask …`: the project's own checks, which `.ci/run` calls and a person can repeat.
//!
//! | command | what it holds the project to |
//! |---|---|
//! | `tidy` | documents, dependency edges and sources keep the rules that no compiler checks |
//! | `side-by-side` | `duramen serve` answers as Debian's redis-server does, byte by byte |
//!
//! Exit codes: 0 nothing found, 1 something found, 2 the check could not be run.

#![forbid(unsafe_code)]

mod failure;
mod server;
mod side_by_side;
mod tidy;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Result;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own checks")]
struct Arguments {
    #[command(subcommand)]
    check: Check,
}

#[derive(Subcommand)]
enum Check {
    /// Checks links and paths in documents, dependency edges, and rules on source files
    Tidy {
        /// Records the digest of the format's sources in docs/format.md
        #[arg(long)]
        bless: bool,
    },
    /// Says the same to redis-server and to duramen serve, and compares the replies
    SideBySide {
        /// The duramen program [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
        /// The redis-server program [default: the one in PATH]
        #[arg(long, value_name = "PATH")]
        redis: Option<PathBuf>,
        /// Prints redis-server's replies and compares nothing
        #[arg(long)]
        record: bool,
        /// Only the transcripts whose names contain one of these
        #[arg(value_name = "NAME")]
        only: Vec<String>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.check) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether the check found nothing.
fn run(check: Check) -> Result<bool> {
    match check {
        Check::Tidy { bless } => tidy::run(&repository(), bless),
        Check::SideBySide { duramen, redis, record, only } => {
            side_by_side::run(&repository(), side_by_side::Settings { duramen, redis, only, record })
        }
    }
}

/// The root of the repository that this program was built from.
fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}
