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
//! | `order` | events of keys follow the order of the writes; waiting clients are served in order of arrival |
//! | `crash` | no power failure or kill at any persist point of a simulated medium breaks a promise |
//! | `coverage` | how much of the engine the tests and the crash driver execute |
//! | `loom` | threads of the index, blocks, epochs and growth, in every order |
//! | `miri` | unsafe code of format and index has no undefined behaviour |
//! | `sanitize` | no data race and no memory error under stress |
//! | `stress` | many threads work for a given time, and every read is correct |
//! | `brim` | a full store refuses nothing that Redis does not refuse, regardless of its producers |
//! | `bench-peers` | none: it measures Duramen and other engines |
//! | `restart` | acknowledged data is present after each start; it also measures the time to the first reply |
//! | `datafusion` | random SQL over random streams gives DataFusion's results |
//! | `flink` | expressions give Flink's results, which the tests of SQL contain |
//! | `linear` | SQL scripts with ten thousand of anything take time in proportion |
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
mod checking;
mod clients;
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
mod millions;
mod nexmark;
mod order;
mod planted;
mod power_cut;
mod random;
mod redis_tests;
mod restart;
mod server;
mod side_by_side;
mod target;
mod tidy;
mod torture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

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
    /// Writes the generated parts of docs/configuration.md and docs/sql/, which tests compare
    Docs,
    /// Sends the same commands to redis-server and to duramen serve, and compares the replies
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
        /// Also compares the notifications that each command of the transcripts causes
        #[arg(long)]
        notifications: bool,
        /// Sends this many random commands instead of the transcripts
        #[arg(long, value_name = "COUNT")]
        random: Option<u64>,
        /// Repeats the random commands of an earlier run
        #[arg(long, requires = "random")]
        seed: Option<u64>,
        /// Only the transcripts whose names contain one of these
        #[arg(value_name = "NAME")]
        only: Vec<String>,
    },
    /// Sends the same commands to memcached and to duramen serve, and compares the replies
    SideBySideMemcached {
        /// The duramen program [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
        /// The memcached program [default: the one in PATH]
        #[arg(long, value_name = "PATH")]
        memcached: Option<PathBuf>,
        /// Prints memcached's replies and compares nothing
        #[arg(long)]
        record: bool,
        /// Sends this many random commands instead of the transcripts
        #[arg(long, value_name = "COUNT")]
        random: Option<u64>,
        /// Repeats the random commands of an earlier run
        #[arg(long, requires = "random")]
        seed: Option<u64>,
        /// Only the transcripts whose names contain one of these
        #[arg(value_name = "NAME")]
        only: Vec<String>,
    },
    /// Runs programmes with real client libraries, which it installs from their registries, against duramen serve
    Clients {
        /// The duramen program [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
        /// Runs those of Redis against this redis-server instead
        #[arg(long, value_name = "PATH")]
        redis: Option<PathBuf>,
        /// Runs those of memcached against this memcached instead
        #[arg(long, value_name = "PATH")]
        memcached: Option<PathBuf>,
        /// Where libraries are installed [default: target/clients]
        #[arg(long, value_name = "PATH")]
        cache: Option<PathBuf>,
        /// Only the clients whose names contain one of these
        #[arg(value_name = "NAME")]
        only: Vec<String>,
    },
    /// Runs the tests of Redis's source against duramen serve, and compares the failures with the known ones
    RedisTests {
        /// Redis 7.0's source, unpacked: `apt-get source redis` gets it
        #[arg(long, value_name = "DIRECTORY")]
        source: PathBuf,
        /// The duramen program [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
        /// Only the units whose names contain one of these
        #[arg(value_name = "UNIT")]
        only: Vec<String>,
    },
    /// Compares random SQL queries over random streams with DataFusion, which it installs
    #[command(name = "datafusion")]
    DataFusion {
        /// The directory for DataFusion [default: target/datafusion]
        #[arg(long, value_name = "PATH")]
        cache: Option<PathBuf>,
        /// Number of queries, each with separate rows
        #[arg(long, default_value_t = 20_000)]
        pairs: u64,
        /// Repeats the seed of an earlier run
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Compares SQL expressions with Apache Flink, which it fetches
    Flink {
        /// The directory for Flink [default: target/flink]
        #[arg(long, value_name = "PATH")]
        cache: Option<PathBuf>,
        /// Writes Flink's answers to testdata/stream/flink
        #[arg(long)]
        record: bool,
        /// Only the files whose names contain one of these
        #[arg(value_name = "NAME")]
        only: Vec<String>,
    },
    /// Measures SQL scripts with many of one thing, and with four times as many
    Linear {
        /// The duramen program, built with the feature sql [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
        /// The largest number of each thing
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        /// Only the cases whose names contain one of these
        #[arg(value_name = "NAME")]
        only: Vec<String>,
    },
    /// Measures Nexmark's queries, hand-written loops and DataFusion, which it installs, and prints a table
    Nexmark {
        /// The duramen program, built with the feature sql [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
        /// The directory for DataFusion [default: target/datafusion]
        #[arg(long, value_name = "DIRECTORY")]
        cache: Option<PathBuf>,
        /// Number of events
        #[arg(long, default_value_t = 1_000_000, value_name = "COUNT")]
        events: u64,
        /// How often each query runs; medians are printed
        #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Compares each query's result with DataFusion's, and measures nothing
        #[arg(long)]
        compare: bool,
    },
    /// Fetches Apache Kafka, and runs the tests of the SQL connectors to it, with kills of jobs and brokers
    Kafka {
        /// The directory for Kafka's libraries [default: target/kafka]
        #[arg(long, value_name = "PATH")]
        cache: Option<PathBuf>,
        /// Jobs to kill, on one thread; on two threads a third of that
        #[arg(long, default_value_t = 50)]
        kills: u32,
        /// Builds the tests with optimisation
        #[arg(long)]
        release: bool,
        /// Only the test whose name begins with this
        #[arg(value_name = "NAME")]
        only: Option<String>,
    },
    /// Writes, kills the writer at random times, and checks the acknowledged data
    Torture {
        /// Duration
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Medium of the store
        #[arg(long, value_enum, default_value = "shm")]
        medium: torture::Medium,
        /// The store's durability
        #[arg(long, value_enum, default_value = "every-write")]
        durability: torture::Durability,
        /// Kind of index: hash or ordered
        #[arg(long, default_value_t = duramen::IndexKind::Hash)]
        index: duramen::IndexKind,
        /// Where the index is kept: dram, or persistent (here with a checkpoint for each MiB written)
        #[arg(long, default_value_t = duramen::Residence::Dram)]
        residence: duramen::Residence,
        /// Repeats the operations and pauses of an earlier run [default: from the clock]
        #[arg(long)]
        seed: Option<u64>,
        /// Threads that write
        #[arg(long, default_value_t = 4)]
        writers: usize,
        /// The interface that the writers use
        #[arg(long, value_enum, default_value = "both")]
        part: torture::Part,
        /// The duramen program [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
    },
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
    PowerCut {
        /// Cuts under load for each medium and durability
        #[arg(long, default_value_t = 3)]
        cuts: u64,
        /// Medium of the store [default: all]
        #[arg(long, value_enum)]
        medium: Option<power_cut::Medium>,
        /// The store's durability [default: every-write, and on files also interval]
        #[arg(long, value_enum)]
        durability: Option<power_cut::Durability>,
        /// Repeats the operations and times of an earlier run [default: from the clock]
        #[arg(long)]
        seed: Option<u64>,
        /// Clients that write
        #[arg(long, default_value_t = 4)]
        writers: usize,
        /// How the machine runs [default: KVM if a guest runs with it, else translation]
        #[arg(long, value_enum)]
        accelerator: Option<power_cut::Accelerator>,
        /// The duramen program [default: built now, without shared libraries]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
        /// Injects a failure, which must be found
        #[arg(long, value_enum, hide = true)]
        fault: Option<power_cut::Fault>,
    },
    /// Counts the lines and branches of the engine that its tests and the crash driver execute
    Coverage {
        /// How long the crash driver runs
        #[arg(long, default_value_t = 3.0)]
        minutes: f64,
        /// Lists the lines that were not executed
        #[arg(long)]
        missing: bool,
    },
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
    Order {
        /// Rounds of each kind
        #[arg(long, default_value_t = 10_000)]
        rounds: u64,
        /// The duramen program [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
    },
    /// Measures duramen serve from its start to the first reply, after a clean end and after SIGKILL
    ///
    /// An optimised program loads large stores faster: cargo run --release -p xtask -- restart
    Restart {
        /// Numbers of records, separated by commas
        #[arg(long, default_value = "100000,1000000", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        keys: Vec<u64>,
        /// Kinds of index: hash or ordered, separated by commas
        #[arg(long, default_value = "hash,ordered", value_delimiter = ',')]
        index: Vec<duramen::IndexKind>,
        /// Media of the stores, separated by commas
        #[arg(long, value_enum, default_value = "shm,file", value_delimiter = ',')]
        medium: Vec<restart::Medium>,
        /// The directory for stores on files [default: that for temporary files]
        #[arg(long, value_name = "PATH")]
        directory: Option<PathBuf>,
        /// Measured starts of each kind
        #[arg(long, default_value_t = 3)]
        starts: usize,
        /// Drops a file's pages from the page cache before each start
        #[arg(long)]
        cold: bool,
        /// Repeats the keys of an earlier run
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Writes the results as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// The duramen program [default: built now, optimised]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
        /// Also measures redis-server with AOF always, after SIGKILL
        #[arg(long)]
        redis: bool,
        /// Content of the stores
        #[arg(long, value_enum, default_value_t = restart::Content::Strings)]
        content: restart::Content,
        /// Further arguments of duramen serve, after --
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Compares large hashes, lists and sorted sets with redis-server's: memory, waits of other clients during growth,
    /// and deletions. Or compares the memory of items with memcached's
    Millions {
        /// Elements of each value
        #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        elements: u64,
        /// The duramen program [default: built now, optimised]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
        /// The redis-server program [default: the one in PATH]
        #[arg(long, value_name = "PATH")]
        redis: Option<PathBuf>,
        /// The memcached program [default: the one in PATH]
        #[arg(long, value_name = "PATH")]
        memcached: Option<PathBuf>,
        /// The values to compare
        #[arg(long, value_enum, default_value_t = millions::Measured::Redis)]
        content: millions::Measured,
        /// Further arguments of duramen serve, after --
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Opens thousands of clients at once, on both protocols, and measures their cost
    Connections {
        /// Number of clients
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        /// The duramen program [default: built now]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
    },
    /// Measures every command as its data grows, and compares the times with redis-server's
    Cost {
        /// The duramen program [default: built now, optimised unless --quick]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
        /// The redis-server program [default: the one in PATH]
        #[arg(long, value_name = "PATH")]
        redis: Option<PathBuf>,
        /// Only n = 10,000, with limits that suit the tests' build; quadratic commands still exceed them
        #[arg(long)]
        quick: bool,
        /// Begins no new case after this many seconds; the seed draws the order of the cases
        #[arg(long)]
        seconds: Option<u64>,
        /// Draws the cases of an earlier run with --seconds [default: from the clock]
        #[arg(long, requires = "seconds")]
        seed: Option<u64>,
        /// Only the cases of this family, or whose commands contain this
        #[arg(value_name = "NAME")]
        only: Vec<String>,
    },
    /// Compares the hit ratios of caches with a memory limit: duramen, memcached, redis, and simulated LRU and S3-FIFO
    HitRatio {
        /// The limit of each cache in mebibytes
        #[arg(long, default_value_t = 64)]
        limit: u64,
        /// Number of distinct keys
        #[arg(long, default_value_t = 500_000)]
        keys: usize,
        /// Requests of each trace
        #[arg(long, default_value_t = 4_000_000)]
        requests: u64,
        /// Skews of the zipfian distribution, separated by commas
        #[arg(long, default_value = "0.8,0.9,1.0,1.1", value_delimiter = ',')]
        thetas: Vec<f64>,
        /// Repeats the traces of an earlier run
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The duramen program [default: built now, optimised]
        #[arg(long, value_name = "PATH")]
        duramen: Option<PathBuf>,
    },
    /// Compares duramen bench mem with independent tools in alternating runs; needs a quiet machine
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

/// Returns whether the check has no finding.
fn run(check: Check) -> Result<bool> {
    match check {
        Check::Tidy { bless, wrap } => tidy::run(&repository(), bless, wrap),
        Check::Docs => docs(),
        Check::SideBySide { duramen, redis, record, notifications, random, seed, only } => {
            let settings =
                side_by_side::Settings { duramen, redis, only, record, notifications, random, seed };
            side_by_side::run(&repository(), settings)
        }
        Check::SideBySideMemcached { duramen, memcached, record, random, seed, only } => {
            let settings =
                side_by_side::memcached::Settings { duramen, memcached, only, record, random, seed };
            side_by_side::memcached::run(&repository(), settings)
        }
        Check::RedisTests { source, duramen, only } => {
            redis_tests::run(&repository(), redis_tests::Settings { source, duramen, only })
        }
        Check::Clients { duramen, redis, memcached, cache, only } => {
            let cache = cache.unwrap_or_else(|| repository().join("target/clients"));
            clients::run(&clients::Settings { duramen, redis, memcached, cache, only })
        }
        Check::Connections { count, duramen } => connections::run(&connections::Settings { count, duramen }),
        Check::Cost { duramen, redis, quick, seconds, seed, only } => {
            let part = seconds.map(|seconds| cost::Drawn {
                time: Duration::from_secs(seconds),
                seed: seed.unwrap_or_else(random::fresh_seed),
            });
            cost::run(&repository(), cost::Settings { duramen, redis, quick, part, only })
        }
        Check::HitRatio { limit, keys, requests, thetas, seed, duramen } => {
            hit_ratio::run(hit_ratio::Settings { duramen, limit, keys, requests, thetas, seed })
        }
        Check::DataFusion { cache, pairs, seed } => {
            let cache = cache.unwrap_or_else(|| repository().join("target/datafusion"));
            datafusion::run(&repository(), &datafusion::Settings { cache, pairs, seed })
        }
        Check::Nexmark { duramen, cache, events, rounds, compare } => {
            let cache = cache.unwrap_or_else(|| repository().join("target/datafusion"));
            nexmark::run(&repository(), &nexmark::Settings { duramen, cache, events, rounds, compare })
        }
        Check::Flink { cache, record, only } => {
            let cache = cache.unwrap_or_else(|| repository().join("target/flink"));
            flink::run(&repository(), &flink::Settings { cache, record, only })
        }
        Check::Linear { duramen, count, only } => {
            linear::run(&repository(), &linear::Settings { duramen, count, only })
        }
        Check::Kafka { cache, kills, release, only } => {
            let cache = cache.unwrap_or_else(|| repository().join("target/kafka"));
            kafka::run(&repository(), &kafka::Settings { cache, kills, release, only })
        }
        Check::Torture { seconds, medium, durability, index, residence, seed, writers, part, duramen } => {
            let seed = seed.unwrap_or_else(random::fresh_seed);
            let settings = torture::Settings {
                seconds,
                medium,
                durability,
                index,
                residence,
                seed,
                writers,
                part,
                duramen,
            };
            torture::run(&settings)
        }
        Check::PowerCut { cuts, medium, durability, seed, writers, accelerator, duramen, fault } => {
            let seed = seed.unwrap_or_else(random::fresh_seed);
            let settings =
                power_cut::Settings { cuts, medium, durability, seed, writers, accelerator, duramen, fault };
            power_cut::run(&settings)
        }
        Check::Crash { mutants, arguments } => crash(mutants, &arguments),
        Check::Coverage { minutes, missing } => {
            coverage::run(&repository(), &coverage::Settings { minutes, missing })
        }
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
        Check::Order { rounds, duramen } => order::run(order::Settings { duramen, rounds }),
        Check::BenchPeers { arguments } => bench_peers(&arguments),
        Check::Restart {
            keys,
            index,
            medium,
            directory,
            starts,
            cold,
            seed,
            json,
            duramen,
            redis,
            content,
            arguments,
        } => {
            let settings = restart::Settings {
                content,
                keys,
                indexes: index,
                media: medium,
                directory,
                starts,
                cold,
                seed,
                json,
                duramen,
                redis,
                arguments,
            };
            restart::run(&repository(), &settings)
        }
        Check::Millions { elements, duramen, redis, memcached, content, arguments } => {
            let settings = millions::Settings { elements, duramen, redis, memcached, content, arguments };
            millions::run(&repository(), &settings)
        }
        Check::MemoryFigures { rounds, mebibytes, seconds, duramen } => {
            let settings = bench_mem_check::Settings { rounds, mebibytes, seconds, duramen };
            bench_mem_check::run(&repository(), &settings)
        }
        Check::TortureChild(settings) => torture::child::run(&settings),
    }
}

/// Runs the tests that compare the generated parts of documents, in the mode that writes them.
fn docs() -> Result<bool> {
    let mut written = true;
    for (package, tests) in [("duramen-server", "config::document"), ("duramen-stream", "document::")] {
        let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.current_dir(repository()).env("DURAMEN_BLESS", "1");
        cargo.args(["test", "--quiet", "--package", package, "--lib", tests]);
        let status = cargo.status().attempt(|| format!("run {cargo:?}"))?;
        written &= status.success();
    }
    Ok(written)
}

/// Builds the crash driver, in the copy with planted bugs if requested, and runs it.
fn crash(mutants: bool, arguments: &[String]) -> Result<bool> {
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    if mutants {
        let planted = planted::Planted::of(&repository())?;
        cargo.current_dir(planted.update()?);
        cargo.env("CARGO_TARGET_DIR", planted.build()).env("RUSTFLAGS", "--cfg planted");
    } else {
        cargo.current_dir(repository());
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
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
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
