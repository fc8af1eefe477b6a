//! `cargo xtask …`: the project's own checks, which `.ci/run` calls and a person can repeat.
//!
//! | command | requirement that it checks |
//! |---|---|
//! | `tidy` | documents, dependencies, imports and sources keep the rules that no compiler checks |
//! | `docs` | none: it writes the generated parts of documents |
//! | `side-by-side` | `duramen serve` answers as Debian's redis-server does, byte by byte |
//! | `side-by-side-memcached` | `duramen serve` answers as Debian's memcached does, byte by byte |
//! | `clients` | real client libraries, installed from their registries, do what applications do with them |
//! | `connections` | thousands of clients at once get replies, and clients that never end a line disturb no others |
//! | `cost` | no command exceeds its time limit relative to redis-server as its data grows |
//! | `script-speed` | scripts are as fast as on redis-server |
//! | `order` | events of keys follow the order of the writes; waiting clients are served in order of arrival |
//! | `crash` | no power failure or kill at any persist point of a simulated medium breaks a promise |
//! | `coverage` | how much of the engine the tests and the crash driver execute |
//! | `loom` | threads of the index, blocks, epochs and growth, in every order |
//! | `miri` | unsafe code of format and index has no undefined behaviour |
//! | `sanitize` | no data race and no memory error under stress |
//! | `stress` | many threads work for a given time, and every read is correct |
//! | `brim` | a full store refuses nothing that Redis does not refuse, regardless of its producers |
//! | `bench-peers` | none: it measures Duramen and other engines |
//! | `space` | space of deleted keys goes back to the file system, within a minute |
//! | `cold` | a store that is not in the page cache reads little more than what is asked for |
//! | `restart` | acknowledged data is present after each start; it also measures the time to the first reply |
//! | `datafusion` | random SQL over random streams gives DataFusion's results |
//! | `flink` | expressions give Flink's results, which the tests of SQL contain |
//! | `linear` | SQL scripts with ten thousand of anything take time in proportion |
//! | `package` | the archives of one commit are the same when they are made again, and crates can be published |
//! | `package-life` | Debian's package keeps its data through upgrades and removal, and a purge leaves nothing |
//! | `metrics` | every alert fires when it is provoked, and every query of the dashboard returns data |
//! | `kafka` | jobs over a real broker lose and repeat nothing, even if a job or the broker is killed |
//! | `nexmark` | with `--compare`: Nexmark's queries give DataFusion's results; without, it measures both |
//! | `hit-ratio` | none: it measures the hit ratio of caches with a memory limit |
//! | `bench-mem-check` | `duramen bench mem` agrees with independent tools on the same range |
//! | `torture` | acknowledged data survives SIGKILL, and nothing else reappears |
//! | `power-cut` | the same when a machine with a real DAX device, DAX file system or disk loses power |
//!
//! Exit codes: 0 no findings, 1 findings, 2 the check could not be run.

#![forbid(unsafe_code)]

mod bench_mem_check;
mod cargo;
mod certificates;
mod checking;
mod clients;
mod cold;
mod connections;
mod cost;
mod coverage;
mod datafusion;
mod digest;
mod failure;
mod flink;
mod hit_ratio;
mod kafka;
mod linear;
mod metrics;
mod millions;
mod nexmark;
mod order;
mod package;
mod planted;
mod power_cut;
mod random;
mod redis_tests;
mod restart;
mod script_speed;
mod server;
mod side_by_side;
mod space;
mod target;
mod tidy;
mod torture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::{Attempt, Failure, Result};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own checks")]
struct Arguments {
    #[command(subcommand)]
    check: Check,
}

#[derive(Subcommand)]
enum Check {
    /// Checks documents, dependencies between crates, imports between files, and rules on source files
    Tidy {
        /// Records the digest of the format's sources in docs/internals/format.md
        #[arg(long)]
        bless: bool,
        /// Breaks lines of documents that are too long
        #[arg(long)]
        wrap: bool,
    },
    /// Writes the generated parts of docs/configuration.md, docs/metrics.md and docs/sql/, which tests compare
    Docs,
    /// Sends the same commands to redis-server and to duramen serve, and compares the replies
    SideBySide(side_by_side::Settings),
    /// Sends the same commands to memcached and to duramen serve, and compares the replies
    SideBySideMemcached(side_by_side::memcached::Settings),
    /// Runs programmes with real client libraries, which it installs from their registries, against duramen serve
    Clients(clients::Settings),
    /// Runs the tests of Redis's source against duramen serve, and compares the failures with the known ones
    RedisTests(redis_tests::Settings),
    /// Compares random SQL queries over random streams with DataFusion, which it installs
    #[command(name = "datafusion")]
    DataFusion(datafusion::Settings),
    /// Compares SQL expressions with Apache Flink, which it fetches
    Flink(flink::Settings),
    /// Measures SQL scripts with many of one thing, and with four times as many
    Linear(linear::Settings),
    /// Starts a real Prometheus: each alert is provoked, and each query of the dashboard returns data
    Metrics(metrics::Settings),
    /// Makes a static program, a Debian package, a container image, an SBOM and checksums
    Package(package::Settings),
    /// Installs, upgrades, removes and purges the Debian package in a clean system with systemd; needs root
    PackageLife(package::life::Settings),
    /// Measures Nexmark's queries, hand-written loops and DataFusion, which it installs, and prints a table
    Nexmark(nexmark::Settings),
    /// Fetches Apache Kafka, and runs the tests of the SQL connectors to it, with kills of jobs and brokers
    Kafka(kafka::Settings),
    /// Writes, kills the writer at random times, and checks the acknowledged data
    Torture(torture::Settings),
    /// Crashes the engine on a simulated medium by seed; `-- --help` lists the options of duramen-crash
    Crash {
        /// Plants bugs and shows that each is caught
        #[arg(long)]
        mutants: bool,
        /// Arguments of duramen-crash, such as `--seed 7 --minutes 20`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures Duramen, RocksDB, LMDB, redb, fjall and a hash map; `-- --help` lists the options
    BenchPeers {
        /// Arguments of bench-peers, such as `insert get --durability every-write`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Cuts the power of a virtual machine under load, and checks the acknowledged data
    PowerCut(power_cut::Settings),
    /// Counts the lines and branches of the engine that its tests and the crash driver execute
    Coverage(coverage::Settings),
    /// Copies the tree with the planted bugs of `crates/checks/planted`, to `target/planted/tree`
    Planted {
        /// Writes the patches from the copy, which was edited
        #[arg(long)]
        save: bool,
    },
    /// Runs the loom models of the engine, each also with planted bugs that it must detect
    Loom {
        /// Preemptions to try at most [default: 2 or 3, set by each model]
        #[arg(long)]
        preemptions: Option<u32>,
        /// Only the models whose names contain one of these
        #[arg(value_name = "NAME")]
        only: Vec<String>,
    },
    /// Runs unit tests of format, index and space under Miri
    Miri {
        /// Leaves out the tests that fill a segment of the index, which take minutes
        #[arg(long)]
        quick: bool,
    },
    /// Runs the stress program with a sanitizer
    Sanitize {
        /// Looks for data races
        #[arg(long, required_unless_present = "address")]
        thread: bool,
        /// Looks for memory errors
        #[arg(long)]
        address: bool,
        /// Duration, over all media and durabilities
        #[arg(long, default_value_t = 90)]
        seconds: u64,
        /// Repeats the threads' operations of an earlier run
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Runs many threads on one store and verifies every read, over all media and durabilities
    Stress {
        /// Repeats the threads' operations of an earlier run
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Duration
        #[arg(long, default_value_t = 9)]
        minutes: u64,
    },
    /// Consumes full stores of all types while producers write: no command that Redis accepts may be refused
    Brim {
        /// Repeats the clients' commands of an earlier run
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Duration, over all stores
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Races clients of four workers on one key, and checks the order of its events and of its waiting clients
    Order(order::Settings),
    /// Measures duramen serve from its start to the first reply, after a clean end and after SIGKILL
    ///
    /// An optimised program loads large stores faster: cargo run --release -p xtask -- restart
    Restart(restart::Settings),
    /// Measures what a store reads from its device while nothing of it is in the page cache
    Cold(cold::Settings),
    /// One step of that, in a process of its own
    #[command(hide = true)]
    ColdChild(cold::ChildSettings),
    /// Measures what a store takes after most of its keys were deleted, cycle after cycle, with kills
    Space(space::Settings),
    /// Compares large hashes, lists and sorted sets with redis-server's: memory, waits of other clients during growth,
    /// and deletions. Or compares the memory of items with memcached's
    Millions(millions::Settings),
    /// Opens thousands of clients at once, on both protocols, and measures their cost
    Connections(connections::Settings),
    /// Measures every command as its data grows, and compares the times with redis-server's
    Cost(cost::Settings),
    /// Measures scripts on duramen and on redis-server in alternating rounds
    ScriptSpeed(script_speed::Settings),
    /// Compares the hit ratios of caches with a memory limit: duramen, memcached, redis, and simulated LRU and S3-FIFO
    HitRatio(hit_ratio::Settings),
    /// Compares duramen bench mem with independent tools in alternating runs; needs a quiet machine
    #[command(name = "bench-mem-check")]
    MemoryFigures(bench_mem_check::Settings),
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

/// Returns whether the check has no finding.
fn run(check: Check) -> Result<bool> {
    match check {
        Check::Tidy { bless, wrap } => tidy::run(&repository(), bless, wrap),
        Check::Docs => docs(),
        Check::SideBySide(settings) => side_by_side::run(&repository(), settings),
        Check::SideBySideMemcached(settings) => side_by_side::memcached::run(&repository(), settings),
        Check::RedisTests(settings) => redis_tests::run(&repository(), settings),
        Check::Clients(settings) => clients::run(&settings),
        Check::Connections(settings) => connections::run(&settings),
        Check::Cost(settings) => cost::run(&repository(), settings),
        Check::ScriptSpeed(settings) => script_speed::run(&repository(), settings),
        Check::HitRatio(settings) => hit_ratio::run(settings),
        Check::DataFusion(settings) => datafusion::run(&repository(), &settings),
        Check::Nexmark(settings) => nexmark::run(&repository(), &settings),
        Check::Flink(settings) => flink::run(&repository(), &settings),
        Check::Linear(settings) => linear::run(&repository(), &settings),
        Check::Metrics(settings) => metrics::run(&repository(), settings),
        Check::Package(settings) => package::run(&repository(), settings),
        Check::PackageLife(settings) => package::life::run(&repository(), settings),
        Check::Kafka(settings) => kafka::run(&repository(), &settings),
        Check::Torture(settings) => torture::run(&settings),
        Check::PowerCut(settings) => power_cut::run(&settings),
        Check::Crash { mutants, arguments } => crash(mutants, &arguments),
        Check::Coverage(settings) => coverage::run(&repository(), &settings),
        Check::Planted { save } => {
            let planted = planted::Planted::of(&repository())?;
            if save {
                planted.save()?;
            } else {
                println!("{}", planted.update()?.display());
            }
            Ok(true)
        }
        Check::Loom { preemptions, only } => checking::loom(&repository(), preemptions, &only),
        Check::Miri { quick } => checking::miri(&repository(), quick),
        Check::Sanitize { thread, address, seconds, seed } => {
            let wanted = [(thread, checking::Sanitizer::Thread), (address, checking::Sanitizer::Address)];
            let mut clean = true;
            for (_, sanitizer) in wanted.into_iter().filter(|(wanted, _)| *wanted) {
                clean &= checking::sanitize(&repository(), sanitizer, seconds, seed)?;
            }
            Ok(clean)
        }
        Check::Stress { seed, minutes } => checking::stress(&repository(), seed, minutes),
        Check::Brim { seed, seconds } => checking::brim(&repository(), seed, seconds),
        Check::Order(settings) => order::run(settings),
        Check::BenchPeers { arguments } => bench_peers(&arguments),
        Check::Restart(settings) => restart::run(&repository(), &settings),
        Check::Cold(settings) => cold::run(&settings),
        Check::ColdChild(settings) => cold::run_child(&settings),
        Check::Space(settings) => space::run(&settings),
        Check::Millions(settings) => millions::run(&repository(), &settings),
        Check::MemoryFigures(settings) => bench_mem_check::run(&repository(), &settings),
        Check::TortureChild(settings) => torture::child::run(&settings),
    }
}

/// Runs the tests that compare the generated parts of documents, in the mode that writes them.
fn docs() -> Result<bool> {
    let mut written = true;
    for (package, tests) in [
        ("duramen-server", "config::document"),
        ("duramen-server", "metrics::document"),
        ("duramen-stream", "document::"),
    ] {
        let mut cargo = cargo::cargo(&repository());
        cargo.env("DURAMEN_BLESS", "1");
        cargo.args(["test", "--quiet", "--package", package, "--lib", tests]);
        let status = cargo.status().attempt(|| format!("run {cargo:?}"))?;
        written &= status.success();
    }
    Ok(written)
}

/// Builds the crash driver, in the copy with planted bugs if requested, and runs it.
fn crash(mutants: bool, arguments: &[String]) -> Result<bool> {
    let mut cargo = cargo::cargo(&repository());
    if mutants {
        let planted = planted::Planted::of(&repository())?;
        cargo.current_dir(planted.update()?);
        cargo.env("CARGO_TARGET_DIR", planted.build()).env("RUSTFLAGS", "--cfg planted");
    }
    cargo.args(["run", "--quiet", "--release", "--package", "duramen-crash", "--"]);
    if mutants {
        cargo.arg("--mutants");
    }
    let status =
        cargo.args(arguments).status().map_err(|e| Failure::new(format!("cannot run cargo: {e}")))?;
    Ok(status.success())
}

/// Builds the adapters to other engines, which are a separate workspace, and runs them in the current directory.
///
/// RocksDB is taken from the system if installed (Debian: librocksdb-dev, libclang-dev), else built from source, which
/// takes long.
fn bench_peers(arguments: &[String]) -> Result<bool> {
    let manifest = repository().join("crates/bench-peers/Cargo.toml");
    let mut cargo = cargo::cargo(Path::new("."));
    cargo.args(["run", "--quiet", "--release", "--manifest-path"]).arg(manifest).arg("--").args(arguments);
    let here = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    if std::env::var_os("ROCKSDB_LIB_DIR").is_none() && Path::new(&here).join("librocksdb.so").exists() {
        cargo.env("ROCKSDB_LIB_DIR", here).env("ROCKSDB_INCLUDE_DIR", "/usr/include");
    }
    let status = cargo.status().map_err(|e| Failure::new(format!("cannot run cargo: {e}")))?;
    Ok(status.success())
}

/// The root of the repository that this program was built from.
fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}
