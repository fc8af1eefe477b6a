//! `cargo xtask …`: the project's own checks, which `.ci/run` calls and a person can repeat.
//!
//! | command | what it holds the project to |
//! |---|---|
//! | `tidy` | documents, dependency edges and sources keep the rules that no compiler checks |
//! | `side-by-side` | `duramen serve` answers as Debian's redis-server does, byte by byte |
//! | `crash` | no power failure or kill at any persist point of a simulated medium breaks a promise |
//! | `bench-mem-check` | `duramen bench mem` agrees with independent tools on the same range |
//! | `torture` | what was acknowledged survives SIGKILL, and nothing else comes back |
//!
//! Exit codes: 0 nothing found, 1 something found, 2 the check could not be run.

#![forbid(unsafe_code)]

mod bench_mem_check;
mod digest;
mod failure;
mod random;
mod server;
mod side_by_side;
mod tidy;
mod torture;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::{Failure, Result};

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
        /// Says this many random commands instead of the transcripts
        #[arg(long, value_name = "COUNT")]
        random: Option<u64>,
        /// Repeats the random commands of an earlier run
        #[arg(long, requires = "random")]
        seed: Option<u64>,
        /// Only the transcripts whose names contain one of these
        #[arg(value_name = "NAME")]
        only: Vec<String>,
    },
    /// Writes, kills the writer at random moments, and compares with what was acknowledged
    Torture {
        /// How long to go on
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Where the store lies
        #[arg(long, value_enum, default_value = "shm")]
        medium: torture::Medium,
        /// The store's durability
        #[arg(long, value_enum, default_value = "every-write")]
        durability: torture::Durability,
        /// Repeats the operations and pauses of an earlier run [default: from the clock]
        #[arg(long)]
        seed: Option<u64>,
        /// Threads that write
        #[arg(long, default_value_t = 4)]
        writers: usize,
        /// Which door is written through
        #[arg(long, value_enum, default_value = "both")]
        part: torture::Part,
        /// The duramen program [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
    },
    /// Crashes the engine on a simulated medium by seed; `--help` behind `--` lists what duramen-crash takes
    Crash {
        /// Plants bugs and shows that each is caught
        #[arg(long)]
        mutants: bool,
        /// What goes to duramen-crash, as `--seed 7 --minutes 20`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Compares duramen bench mem with independent tools in turns; a quiet machine is needed
    #[command(name = "bench-mem-check")]
    MemoryFigures {
        /// Rounds of each tool
        #[arg(long, default_value_t = 7)]
        rounds: usize,
        /// Mebibytes of memory
        #[arg(long, default_value_t = 1024)]
        mebibytes: u64,
        /// Seconds of one run
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// The duramen program [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
    },
    /// The process that the torture kills
    #[command(hide = true)]
    TortureChild(torture::child::Settings),
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
        Check::SideBySide { duramen, redis, record, random, seed, only } => {
            let settings = side_by_side::Settings { duramen, redis, only, record, random, seed };
            side_by_side::run(&repository(), settings)
        }
        Check::Torture { seconds, medium, durability, seed, writers, part, duramen } => {
            let seed = seed.unwrap_or_else(random::fresh_seed);
            torture::run(&torture::Settings { seconds, medium, durability, seed, writers, part, duramen })
        }
        Check::Crash { mutants, arguments } => crash(mutants, &arguments),
        Check::MemoryFigures { rounds, mebibytes, seconds, duramen } => {
            let settings = bench_mem_check::Settings { rounds, mebibytes, seconds, duramen };
            bench_mem_check::run(&repository(), &settings)
        }
        Check::TortureChild(settings) => torture::child::run(&settings),
    }
}

/// Builds the crash driver, with planted bugs only when they are wanted, and runs it.
fn crash(mutants: bool, arguments: &[String]) -> Result<bool> {
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(repository()).args(["run", "--quiet", "--release", "--package", "duramen-crash"]);
    if mutants {
        cargo.args(["--features", "mutants", "--", "--mutants"]);
    } else {
        cargo.arg("--");
    }
    let status =
        cargo.args(arguments).status().map_err(|e| Failure::new(format!("cannot run cargo: {e}")))?;
    Ok(status.success())
}

/// The root of the repository that this program was built from.
fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}
