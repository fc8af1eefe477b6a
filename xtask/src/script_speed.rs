//! `cargo xtask script-speed`: measures scripts on duramen and on redis-server, in alternating rounds over one connection.
//!
//! redis-server has no persistence; duramen's store is in `/dev/shm`, and every write is durable before its reply. Each
//! has one thread for commands. The speed is that by the servers' running time, because the connection's own work and
//! other programs hide it; the second figure is that by the clock. Both are redis-server's time for a run of the script
//! by duramen's: 2.0 is twice as fast. Medians of the rounds, with the least and the most.
//!
//! Then a duramen of two threads runs scripts of two connections, each on a key of its own. Each connection is another
//! thread's. The figures are the scripts per time of both to those of one connection alone: 2.0 is no loss. That by
//! running time does not see threads that sleep, that by the clock needs two idle processors.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Attempt, Failure, Result};
use crate::server::{Server, find_program, release_program};
use duramen_resp::{Connection, encode_command};

#[derive(clap::Args)]
pub struct Settings {
    /// The duramen program [default: built now, optimised]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// The redis-server program [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    pub redis: Option<PathBuf>,
    /// Rounds of each case
    #[arg(long, default_value_t = 7)]
    pub rounds: usize,
    /// Milliseconds of a case on one server in one round
    #[arg(long, default_value_t = 300)]
    pub milliseconds: u64,
    /// Only the cases whose names contain one of these
    #[arg(value_name = "NAME")]
    pub only: Vec<String>,
}

const PATIENCE: Duration = Duration::from_secs(20);
/// Runs of a script that a pipeline sends before it reads the replies.
const PIPELINES: [usize; 2] = [1, 16];

/// A script, and the keys and arguments of a run.
struct Case {
    name: &'static str,
    script: &'static str,
    keys: &'static [&'static str],
    /// `@` stands for the number of the run.
    arguments: &'static [&'static str],
    /// Of runs that declare their keys, and of those that do not, for each of [`PIPELINES`]; `None`: not wanted.
    wanted: [[Option<f64>; 2]; 2],
}

const DECLARED: [Option<f64>; 2] = [Some(1.0), Some(1.2)];
const UNDECLARED: [Option<f64>; 2] = [Some(0.9), Some(1.0)];

const CASES: &[Case] = &[
    Case { name: "return 1", script: "return 1", keys: &[], arguments: &[], wanted: [DECLARED, [None; 2]] },
    Case {
        name: "INCR",
        script: "return redis.call('incr', KEYS[1])",
        keys: &["counter"],
        arguments: &[],
        wanted: [DECLARED, UNDECLARED],
    },
    Case {
        name: "sliding window",
        script: "
redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[1] - 100)
redis.call('zadd', KEYS[1], ARGV[1], ARGV[1])
local count = redis.call('zcard', KEYS[1])
redis.call('pexpire', KEYS[1], 60000)
return count",
        keys: &["window"],
        arguments: &["@"],
        wanted: [DECLARED, UNDECLARED],
    },
    // The commands of BullMQ's moveToActive for a queue without a limit, and of the end of a job, so that it goes on.
    Case {
        name: "job",
        script: "
if redis.call('hexists', KEYS[5], 'paused') == 1 then return nil end
local id = redis.call('rpoplpush', KEYS[1], KEYS[2])
if not id then
  id = ARGV[1] % 100
  redis.call('hset', KEYS[3] .. id, 'name', 'job', 'data', ARGV[2], 'opts', '{}', 'timestamp', ARGV[1])
  redis.call('lpush', KEYS[1], id)
  return nil
end
redis.call('set', KEYS[3] .. id .. ':lock', ARGV[1], 'PX', 30000)
redis.call('srem', KEYS[6], id)
redis.call('xadd', KEYS[4], 'MAXLEN', '~', 1000, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
redis.call('hset', KEYS[3] .. id, 'processedOn', ARGV[1])
redis.call('hincrby', KEYS[3] .. id, 'ats', 1)
local job = redis.call('hgetall', KEYS[3] .. id)
redis.call('lrem', KEYS[2], -1, id)
redis.call('lpush', KEYS[1], id)
return {job, id}",
        keys: &["{q}:wait", "{q}:active", "{q}:", "{q}:events", "{q}:meta", "{q}:stalled"],
        arguments: &["@", "some text that an application wants to have with its job"],
        wanted: [DECLARED, UNDECLARED],
    },
    Case {
        name: "10,000 calls",
        script: "for _ = 1, 10000 do redis.call('incr', KEYS[1]) end",
        keys: &["many"],
        arguments: &[],
        wanted: [[Some(1.0), None], [None; 2]],
    },
];

/// Cases of two workers, and how much faster they are to be than one.
const TOGETHER: [&str; 2] = ["sliding window", "10,000 calls"];
const TOGETHER_WANTED: f64 = 1.7;

/// Runs of a script in some time.
#[derive(Clone, Copy)]
struct Spent {
    runs: u64,
    wall: Duration,
    cpu: Duration,
}

/// Measures all cases; returns whether each is as fast as wanted.
///
/// # Errors
/// When a server cannot be run, or refuses a script.
pub fn run(repository: &Path, settings: Settings) -> Result<bool> {
    let redis = settings.redis.or_else(|| find_program("redis-server"));
    let redis = redis.ok_or_else(|| {
        Failure::new(
            "found no redis-server in PATH; install it (Debian: redis-server) or name one with --redis",
        )
    })?;
    let duramen = release_program(repository, settings.duramen, "")?;
    let place = tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
    let store = place.path().join("store").display().to_string();
    let arguments = ["--duramen-path", &store, "--duramen-threads", "1"];
    let mut own = Server::start_duramen(&duramen, &arguments, &place.path().join("log"))?;
    let mut other = Server::start_redis(&redis, place.path())?;
    own.demand_ready(PATIENCE)?;
    other.demand_ready(PATIENCE)?;
    let (time, rounds) = (Duration::from_millis(settings.milliseconds), settings.rounds.max(1));
    let is_wanted = |case: &&Case| {
        settings.only.is_empty() || settings.only.iter().any(|part| case.name.contains(part.as_str()))
    };
    let mut is_good = true;
    println!(
        "| script | keys | P | duramen, µs | redis, µs | by running time | by the clock | wanted |\n|---|---|---|---|---|---|---|---|"
    );
    for case in CASES.iter().filter(is_wanted) {
        for (are_declared, wanted) in [(true, case.wanted[0]), (false, case.wanted[1])] {
            for (pipeline, wanted) in PIPELINES.into_iter().zip(wanted) {
                let Some(wanted) = wanted else { continue };
                let mut runners = [
                    Runner::new(&own, case, are_declared, "")?,
                    Runner::new(&other, case, are_declared, "")?,
                ];
                let (mut cpu, mut wall, mut micros) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
                for _ in 0..rounds {
                    let spent = [runners[0].run(pipeline, time)?, runners[1].run(pipeline, time)?];
                    let each = |at: usize, what: Duration| what.as_secs_f64() / spent[at].runs as f64;
                    cpu.push(each(1, spent[1].cpu) / each(0, spent[0].cpu));
                    wall.push(each(1, spent[1].wall) / each(0, spent[0].wall));
                    for (at, micros) in micros.iter_mut().enumerate() {
                        micros.push(each(at, spent[at].cpu) * 1e6);
                    }
                }
                let [cpu, wall] = [cpu, wall].map(Figures::of);
                let [ours, theirs] = micros.map(Figures::of);
                let keys = if case.keys.is_empty() {
                    "none"
                } else if are_declared {
                    "declared"
                } else {
                    "undeclared"
                };
                let mark = if cpu.median < wanted { " (missed)" } else { "" };
                is_good &= mark.is_empty();
                println!(
                    "| {} | {keys} | {pipeline} | {:.2} | {:.2} | {} | {} | {wanted}{mark} |",
                    case.name, ours.median, theirs.median, cpu, wall
                );
            }
        }
    }
    drop(own);
    let store = place.path().join("store of two").display().to_string();
    let arguments = ["--duramen-path", &store, "--duramen-threads", "2"];
    let mut own = Server::start_duramen(&duramen, &arguments, &place.path().join("log of two"))?;
    own.demand_ready(PATIENCE)?;
    println!(
        "\n| script | P | two workers to one, by running time | by the clock | wanted |\n|---|---|---|---|---|"
    );
    for case in CASES.iter().filter(is_wanted).filter(|case| TOGETHER.contains(&case.name)) {
        for pipeline in PIPELINES {
            let [cpu, wall] = together(&own, case, pipeline, time, rounds)?;
            let mark = if cpu.median < TOGETHER_WANTED { " (missed)" } else { "" };
            is_good &= mark.is_empty();
            println!("| {} | {pipeline} | {cpu} | {wall} | {TOGETHER_WANTED}{mark} |", case.name);
        }
    }
    Ok(is_good)
}

/// The speed of two connections at once to that of one, by running time and by the clock.
fn together(
    server: &Server,
    case: &Case,
    pipeline: usize,
    time: Duration,
    rounds: usize,
) -> Result<[Figures; 2]> {
    // The workers get connections in turn.
    let mut one = Runner::new(server, case, true, " one")?;
    let mut two = Runner::new(server, case, true, " two")?;
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let alone = one.run(pipeline, time)?;
        let ran = server.cpu_time()?;
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| one.run(pipeline, time));
            let second = two.run(pipeline, time);
            (first.join(), second)
        });
        let first = first.map_err(|_| Failure::new("a client panicked"))??;
        let both = [first, second?];
        let ran = server.cpu_time()?.saturating_sub(ran).as_secs_f64();
        let runs: u64 = both.iter().map(|spent| spent.runs).sum();
        cpu.push(2.0 * (alone.cpu.as_secs_f64() / alone.runs as f64) / (ran / runs as f64));
        let speed = |spent: &Spent| spent.runs as f64 / spent.wall.as_secs_f64();
        wall.push(both.iter().map(speed).sum::<f64>() / speed(&alone));
    }
    Ok([cpu, wall].map(Figures::of))
}

/// The median of some figures, their least and their most.
struct Figures {
    median: f64,
    least: f64,
    most: f64,
}

impl Figures {
    fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |index: usize| all.get(index).copied().unwrap_or_default();
        Self { median: at(all.len() / 2), least: at(0), most: at(all.len().saturating_sub(1)) }
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.median, self.least, self.most)
    }
}

/// A connection that runs a case on one server.
struct Runner<'s> {
    server: &'s Server,
    connection: Connection,
    /// The command, with `@` for the number of the run.
    words: Vec<String>,
    runs: u64,
}

impl<'s> Runner<'s> {
    /// `own` makes its keys different from those of others.
    fn new(server: &'s Server, case: &Case, are_declared: bool, own: &str) -> Result<Self> {
        let mut connection = server.connect()?;
        let keys = case.keys.len();
        // Without a declaration they are the first of the arguments.
        let script = match are_declared {
            true => case.script.to_owned(),
            false => format!(
                "local KEYS = {{unpack(ARGV, 1, {keys})}} local ARGV = {{unpack(ARGV, {})}} {}",
                keys + 1,
                case.script
            ),
        };
        let mut call = |words: &[&str]| {
            let reply = connection.call(words, PATIENCE);
            reply.map_err(|_| Failure::new(format!("{}: {} is not answered", case.name, words[0])))
        };
        call(&["FLUSHALL"])?;
        let loaded = call(&["SCRIPT", "LOAD", &script])?;
        let digest = String::from_utf8_lossy(loaded.text().unwrap_or_default()).into_owned();
        let count = if are_declared { keys } else { 0 };
        let mut words = vec!["EVALSHA".to_owned(), digest, count.to_string()];
        words.extend(case.keys.iter().map(|key| format!("{key}{own}")));
        words.extend(case.arguments.iter().map(|&word| word.to_owned()));
        Ok(Self { server, connection, words, runs: 0 })
    }

    fn run(&mut self, pipeline: usize, time: Duration) -> Result<Spent> {
        let (begun, ran, first) = (Instant::now(), self.server.cpu_time()?, self.runs);
        let mut bytes = Vec::new();
        while begun.elapsed() < time {
            bytes.clear();
            for _ in 0..pipeline {
                self.runs += 1;
                let number = self.runs.to_string();
                let words: Vec<&str> =
                    self.words.iter().map(|word| if word == "@" { &number } else { word.as_str() }).collect();
                encode_command(&mut bytes, &words);
            }
            self.connection.send(&bytes).attempt(|| "send scripts".to_owned())?;
            for _ in 0..pipeline {
                let reply = self.connection.read(PATIENCE).map_err(|_| Failure::new("a script: no reply"))?;
                if let Some(error) = reply.error() {
                    let error = String::from_utf8_lossy(error);
                    return Err(Failure::new(format!("a script was answered {error}")));
                }
            }
        }
        let wall = begun.elapsed();
        // The kernel updates the running time when a thread is at rest.
        thread::sleep(Duration::from_millis(2));
        Ok(Spent { runs: self.runs - first, wall, cpu: self.server.cpu_time()?.saturating_sub(ran) })
    }
}
