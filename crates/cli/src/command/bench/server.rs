//! `duramen bench server`: load over sockets for one server, or for several servers next to each other.

use crate::signals::Signals;
use crate::{Answer, Failure};
use duramen_bench::report::{Better, Latency, Machine, Measurement, Medium, Metric, Run, Unit, html, text};
use duramen_bench::server::servers::Server;
use duramen_bench::server::{
    Address, Command, Distribution, Length, Outcome, Plan, Protocol, Versus, Watch, compare,
};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Drive a Redis or memcached server over its socket, or compare servers alternately
///
/// Without --server, the server at --address is driven as it is; its keys key:* and num:* are overwritten. With
/// --server, each one is started here on a separate core, and the ratios compare the first with the others.
#[derive(clap::Args)]
pub struct Args {
    /// Start this server and compare: duramen, duramen-1s, duramen-flush, redis, redis-everysec, redis-always,
    /// memcached, or NAME=COMMAND with {port} and {directory} in it; may be repeated
    #[arg(long = "server", value_name = "SERVER", conflicts_with = "address")]
    servers: Vec<Server>,
    /// Address of a running server: HOST:PORT, the path of a Unix socket, or redis[s]://[USER:PASSWORD@]HOST:PORT, with
    /// ?cacert=FILE&cert=FILE&key=FILE for TLS
    #[arg(long, default_value = "127.0.0.1:6379")]
    address: Address,
    /// redis or memcached
    #[arg(long, default_value_t = Protocol::Redis)]
    protocol: Protocol,
    /// set, get, incr, mset, mget, mixed:N (N gets in a hundred); memcached's cas and touch; lpush, lpop, lrange_100, sadd, spop, sinter, hset, hget, zadd,
    /// zrange_100, xadd, pfadd, setbit and others: a name that is wrong lists all
    #[arg(long, value_delimiter = ',', default_value = "set,get,incr")]
    commands: Vec<Command>,
    /// Commands that a connection pipelines
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    pipeline: Vec<u32>,
    /// Connections
    #[arg(long, default_value_t = 50)]
    connections: u32,
    /// Bytes of a value
    #[arg(long, default_value_t = 200)]
    value_size: usize,
    /// Keys
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// uniform, zipfian, zipfian:THETA
    #[arg(long, default_value_t = Distribution::Uniform)]
    distribution: Distribution,
    /// Commands per second, in an open loop: latency counts from when a command was due [default: closed loop]
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0, conflicts_with = "count")]
    seconds: f64,
    /// Commands of each measurement
    #[arg(long)]
    count: Option<u64>,
    /// Seconds of warm-up before it
    #[arg(long, default_value_t = 0.3)]
    warm_up: f64,
    /// The servers evict: a key that was set may be absent, and none is read back
    #[arg(long)]
    evicting: bool,
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Directory for the data of started servers
    #[arg(long, default_value = "/dev/shm", value_name = "DIRECTORY")]
    place: PathBuf,
    /// The first port of started servers
    #[arg(long, default_value_t = 17_380)]
    port: u16,
    /// Seed of the choice of keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let signals = Signals::watch()?;
    let (began, machine) = (Instant::now(), Machine::read());
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let bar = Bar::new();
    let stopped = || signals.stop();
    let (measurements, mut notes) = if args.servers.is_empty() {
        (one(args, &bar, &stopped)?, Vec::new())
    } else {
        let versus = Versus {
            servers: args.servers.clone(),
            place: args.place.clone(),
            port: args.port,
            commands: args.commands.clone(),
            pipelines: args.pipeline.clone(),
            rounds: args.rounds,
            plan: plan(args, Command::Set, 1)?,
        };
        compare(&versus, &|what, share| bar.at(what, share), &stopped)?
    };
    bar.0.finish_and_clear();
    notes.push(match args.rate {
        Some(rate) => format!("open loop: {rate} commands a second, latency from when each was due"),
        None => "closed loop: each connection waits for all replies of its batch before it sends the next"
            .to_owned(),
    });
    notes.push(match args.evicting {
        true => "every reply was compared with the expected one; a get may be a miss".to_owned(),
        false => {
            "every reply was compared with the expected one, and up to 10,000 keys read back after each turn"
                .to_owned()
        }
    });
    let medium = if args.servers.is_empty() { Medium::default() } else { medium(&args.place) };
    let run = Run {
        tool: "duramen bench server".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        elapsed_s: began.elapsed().as_secs_f64(),
        command: std::env::args().collect(),
        machine,
        medium,
        complete: !stopped(),
        notes,
        measurements,
        verdict: None,
    };
    std::io::stdout().lock().write_all(text::run(&run).as_bytes())?;
    if let Some(path) = &args.json {
        run.write(path)?;
    }
    if let Some(path) = &args.html {
        duramen_bench::report::write_whole(path, html::page(std::slice::from_ref(&run)).as_bytes())?;
    }
    Ok(Answer::Yes)
}

fn plan(args: &Args, command: Command, pipeline: u32) -> Result<Plan, Failure> {
    let seconds = |name: &str, seconds: f64| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|error| format!("{name} {seconds}: {error}; give seconds, such as 2.5"))
    };
    Ok(Plan {
        protocol: args.protocol,
        pipeline,
        evicts: args.evicting,
        connections: args.connections,
        value_bytes: args.value_size,
        keys: args.keys,
        distribution: args.distribution,
        rate: args.rate,
        length: match args.count {
            Some(count) => Length::Commands(count),
            None => Length::Time(seconds("--seconds", args.seconds)?),
        },
        warm_up: seconds("--warm-up", args.warm_up)?,
        seed: args.seed,
        ..Plan::new(args.address.clone(), command)
    })
}

/// The server at the address, unchanged.
fn one(args: &Args, bar: &Bar, stopped: &dyn Fn() -> bool) -> Result<Vec<Measurement>, Failure> {
    let mut all = Vec::new();
    let mut loaded = false;
    for command in &args.commands {
        for pipeline in &args.pipeline {
            let mut outcomes: Vec<Outcome> = Vec::new();
            for round in 0..args.rounds {
                if stopped() {
                    return Ok(all);
                }
                bar.at(&format!("{command} × {pipeline}, round {}", round + 1), 0.0);
                let plan = plan(args, *command, *pipeline)?;
                outcomes.push(duramen_bench::server::run(&Plan { load: !loaded, ..plan }, bar)?);
                loaded |= command.sets_keys();
            }
            all.push(measurement(args, *command, *pipeline, &outcomes)?);
        }
    }
    Ok(all)
}

fn measurement(
    args: &Args,
    command: Command,
    pipeline: u32,
    outcomes: &[Outcome],
) -> Result<Measurement, Failure> {
    // Like those of a comparison: a group for each command, with points for a server.
    let mut measurement = Measurement::new(command.to_string(), "server")
        .with("pipeline", pipeline)
        .with("connections", args.connections)
        .with("value_size", args.value_size)
        .with("keys", args.keys);
    let rates: Vec<f64> = outcomes.iter().map(Outcome::rate).collect();
    let busy: Vec<f64> = outcomes.iter().map(|outcome| outcome.client_busy * 100.0).collect();
    let metrics = [
        ("throughput", Metric::from_samples(&rates, Unit::OperationsPerSecond, Better::Higher)),
        ("client_busy", Metric::from_samples(&busy, Unit::Percent, Better::Lower)),
    ];
    for (name, metric) in metrics {
        measurement.metrics.extend(metric.map(|metric| (name.to_owned(), metric)));
    }
    if let [first, others @ ..] = outcomes {
        let mut latency = first.latency.clone();
        for other in others {
            latency.add(&other.latency)?;
        }
        if let Some(latency) = Latency::from_histogram(&latency)? {
            measurement.latency.insert(command.to_string(), latency);
        }
    }
    Ok(measurement)
}

/// The kernel's description of the servers' medium.
fn medium(place: &Path) -> Medium {
    let real = std::fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // The medium is that of the longest mount point above the place.
    let filesystem = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let point = words.next()?.replace("\\040", " ");
            real.starts_with(&point).then(|| (point.len(), words.next().unwrap_or("").to_owned()))
        })
        .max_by_key(|(length, _)| *length)
        .map_or(String::new(), |(_, kind)| kind);
    let kind = if filesystem == "tmpfs" { "shm" } else { "file" };
    Medium { kind: kind.to_owned(), path: place.display().to_string(), filesystem, ..Medium::default() }
}

/// A bar on standard error, when that is a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::new(1000);
        Self(match ProgressStyle::with_template("{bar:40} {percent} %, {eta} left, {msg}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    fn at(&self, what: &str, share: f64) {
        self.0.set_message(what.to_owned());
        self.0.set_position((share * 1000.0) as u64);
    }
}

impl Watch for Bar {
    fn progress(&self, share: f64) {
        self.0.set_position((share * 1000.0) as u64);
    }
}
