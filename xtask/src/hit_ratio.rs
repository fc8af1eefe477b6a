//! `cargo xtask hit-ratio`: measures how much of a trace a cache with a memory limit finds. The caches are duramen
//! serve, Debian's memcached and redis-server, each with the same limit, and simulated LRU and S3-FIFO with the same
//! room for records.
//!
//! A client gets a key and, if it is absent, sets it. Keys are drawn from a zipfian distribution; in a trace with scans
//! one in ten belongs to a sequence that never repeats. Each key has its own size of value: half of them 100 bytes, the
//! others 300, 1,000 and 3,000. The first half of the requests warms up and does not count.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failure::{Attempt, Failure, Result};
use crate::random::{Random, step};
use crate::server::{Server, duramen_program, find_program, free_port};

#[derive(clap::Args)]
pub struct Settings {
    /// The limit of each cache in mebibytes
    #[arg(long, default_value_t = 64)]
    pub limit: u64,
    /// Number of distinct keys
    #[arg(long, default_value_t = 500_000)]
    pub keys: usize,
    /// Requests of each trace
    #[arg(long, default_value_t = 4_000_000)]
    pub requests: u64,
    /// Skews of the zipfian distribution, separated by commas
    #[arg(long, default_value = "0.8,0.9,1.0,1.1", value_delimiter = ',')]
    pub thetas: Vec<f64>,
    /// Repeats the traces of an earlier run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The duramen program [default: built now, optimised]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
}

const PATIENCE: Duration = Duration::from_secs(20);
/// Requests that are in flight at once.
const TOGETHER: usize = 64;
/// In a trace with scans, one request out of this many belongs to a scan.
const SCANNED: u64 = 10;
const KEY_BYTES: u64 = 16;
/// The bytes of duramen's record besides key and value.
const RECORD_BYTES: u64 = 32 + 8;

fn value_bytes(key: u64) -> u64 {
    [100, 100, 100, 100, 300, 300, 1_000, 3_000][(step(key ^ 0x7369_7a65) >> 40) as usize % 8]
}

fn record_bytes(key: u64) -> u64 {
    (RECORD_BYTES + KEY_BYTES + value_bytes(key)).next_multiple_of(8)
}

/// The keys of a trace.
struct Trace {
    random: Random,
    sums: Vec<f64>,
    scans: bool,
    next: u64,
}

impl Trace {
    fn new(seed: u64, keys: usize, theta: f64, scans: bool) -> Self {
        let mut sum = 0.0;
        let weight = |rank: usize| {
            sum += 1.0 / ((rank + 1) as f64).powf(theta);
            sum
        };
        Self { random: Random::new(seed), sums: (0..keys).map(weight).collect(), scans, next: 1 << 40 }
    }

    fn key(&mut self) -> u64 {
        if self.scans && self.random.one_in(SCANNED) {
            self.next += 1;
            return self.next;
        }
        let total = self.sums.last().copied().unwrap_or(1.0);
        let at = (self.random.any() >> 11) as f64 / (1u64 << 53) as f64 * total;
        self.sums.partition_point(|&sum| sum < at) as u64
    }
}

/// A store of keys.
trait Cache {
    /// Which of these keys are present.
    fn get(&mut self, keys: &[u64]) -> Result<Vec<bool>>;
    fn set(&mut self, keys: &[u64]) -> Result<()>;
}

/// The share of requests that find their key, and the time of the second half.
fn hits(cache: &mut dyn Cache, trace: &mut Trace, requests: u64) -> Result<(f64, Duration)> {
    let (mut found, mut begun) = (0, Instant::now());
    let batches = requests / TOGETHER as u64;
    for batch in 0..batches {
        if batch == batches / 2 {
            (found, begun) = (0, Instant::now());
        }
        let keys: Vec<u64> = (0..TOGETHER).map(|_| trace.key()).collect();
        let there = cache.get(&keys)?;
        found += there.iter().filter(|there| **there).count();
        let missing: Vec<u64> =
            keys.iter().zip(there).filter(|(_, there)| !there).map(|(key, _)| *key).collect();
        if !missing.is_empty() {
            cache.set(&missing)?;
        }
    }
    Ok((found as f64 / ((batches - batches / 2) * TOGETHER as u64) as f64, begun.elapsed()))
}

/// A client of a server; both protocols reply in lines.
struct Client {
    name: &'static str,
    reader: BufReader<TcpStream>,
    is_memcached: bool,
    value: String,
}

impl Client {
    fn open(name: &'static str, port: u16, is_memcached: bool) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).attempt(|| format!("connect to {name}"))?;
        stream.set_nodelay(true).attempt(|| "set TCP_NODELAY".to_owned())?;
        stream.set_read_timeout(Some(PATIENCE)).attempt(|| "set a timeout".to_owned())?;
        Ok(Self { name, reader: BufReader::new(stream), is_memcached, value: "v".repeat(4096) })
    }

    fn ask(&mut self, commands: &str, replies: usize) -> Result<Vec<String>> {
        self.reader.get_mut().write_all(commands.as_bytes()).attempt(|| format!("send to {}", self.name))?;
        let mut lines = Vec::with_capacity(replies);
        for _ in 0..replies {
            let mut line = String::new();
            self.reader.read_line(&mut line).attempt(|| format!("read from {}", self.name))?;
            lines.push(line);
        }
        Ok(lines)
    }
}

impl Cache for Client {
    fn get(&mut self, keys: &[u64]) -> Result<Vec<bool>> {
        let ask = |key: &u64| match self.is_memcached {
            true => format!("mg {key:016x}\r\n"),
            false => format!("strlen {key:016x}\r\n"),
        };
        let commands: String = keys.iter().map(ask).collect();
        let lines = self.ask(&commands, keys.len())?;
        lines
            .iter()
            .map(|line| match line.trim_end() {
                "HD" => Ok(true),
                "EN" | ":0" => Ok(false),
                number if number.starts_with(':') => Ok(true),
                other => Err(Failure::new(format!("{} answers {other:?}", self.name))),
            })
            .collect()
    }

    fn set(&mut self, keys: &[u64]) -> Result<()> {
        let set = |key: &u64| {
            let bytes = value_bytes(*key) as usize;
            let value = &self.value[..bytes];
            match self.is_memcached {
                true => format!("set {key:016x} 0 0 {bytes}\r\n{value}\r\n"),
                false => format!("*3\r\n$3\r\nSET\r\n$16\r\n{key:016x}\r\n${bytes}\r\n{value}\r\n"),
            }
        };
        let commands: String = keys.iter().map(set).collect();
        let lines = self.ask(&commands, keys.len())?;
        match lines.iter().find(|line| !matches!(line.trim_end(), "STORED" | "+OK")) {
            Some(other) => Err(Failure::new(format!("{} answers a set by {other:?}", self.name))),
            None => Ok(()),
        }
    }
}

/// Evicts the least recently used key.
#[derive(Default)]
struct Lru {
    limit: u64,
    bytes: u64,
    turn: u64,
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Lru {
    fn touch(&mut self, key: u64) -> bool {
        self.turn += 1;
        let before = self.used.insert(key, self.turn);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.turn, key);
        before.is_some()
    }
}

impl Cache for Lru {
    fn get(&mut self, keys: &[u64]) -> Result<Vec<bool>> {
        Ok(keys.iter().map(|key| self.used.contains_key(key) && self.touch(*key)).collect())
    }

    fn set(&mut self, keys: &[u64]) -> Result<()> {
        for &key in keys {
            if !self.touch(key) {
                self.bytes += record_bytes(key);
            }
            while self.bytes > self.limit
                && let Some((_, oldest)) = self.order.pop_first()
            {
                self.used.remove(&oldest);
                self.bytes -= record_bytes(oldest);
            }
        }
        Ok(())
    }
}

/// S3-FIFO as in the paper: a small queue of a tenth, a main queue, and ghosts of as many keys as the main queue has.
#[derive(Default)]
struct S3Fifo {
    limit: u64,
    small_bytes: u64,
    main_bytes: u64,
    reads: HashMap<u64, u8>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: HashMap<u64, u64>,
    ghost_order: VecDeque<(u64, u64)>,
    turn: u64,
}

impl S3Fifo {
    fn evict(&mut self) {
        if self.small_bytes * 10 >= self.limit
            && let Some(key) = self.small.pop_front()
        {
            self.small_bytes -= record_bytes(key);
            if self.reads.get(&key).is_some_and(|&reads| reads > 1) {
                self.reads.insert(key, 0);
                self.main_bytes += record_bytes(key);
                self.main.push_back(key);
            } else {
                self.reads.remove(&key);
                self.turn += 1;
                self.ghosts.insert(key, self.turn);
                self.ghost_order.push_back((key, self.turn));
                while self.ghost_order.len() > self.main.len().max(1)
                    && let Some((ghost, turn)) = self.ghost_order.pop_front()
                {
                    if self.ghosts.get(&ghost) == Some(&turn) {
                        self.ghosts.remove(&ghost);
                    }
                }
            }
            return;
        }
        while let Some(key) = self.main.pop_front() {
            match self.reads.get_mut(&key) {
                Some(reads) if *reads > 0 => {
                    *reads -= 1;
                    self.main.push_back(key);
                }
                _ => {
                    self.reads.remove(&key);
                    self.main_bytes -= record_bytes(key);
                    return;
                }
            }
        }
        // The small queue has everything.
        if let Some(key) = self.small.pop_front() {
            self.small_bytes -= record_bytes(key);
            self.reads.remove(&key);
        }
    }
}

impl Cache for S3Fifo {
    fn get(&mut self, keys: &[u64]) -> Result<Vec<bool>> {
        let mut read = |key: &u64| match self.reads.get_mut(key) {
            Some(reads) => {
                *reads = (*reads + 1).min(3);
                true
            }
            None => false,
        };
        Ok(keys.iter().map(&mut read).collect())
    }

    fn set(&mut self, keys: &[u64]) -> Result<()> {
        for &key in keys {
            if self.reads.contains_key(&key) {
                continue;
            }
            while self.small_bytes + self.main_bytes + record_bytes(key) > self.limit {
                self.evict();
            }
            self.reads.insert(key, 0);
            if self.ghosts.remove(&key).is_some() {
                self.main_bytes += record_bytes(key);
                self.main.push_back(key);
            } else {
                self.small_bytes += record_bytes(key);
                self.small.push_back(key);
            }
        }
        Ok(())
    }
}

/// Starts a server with the limit.
fn start(which: &'static str, program: &Path, limit: u64, directory: &Path) -> Result<(Server, Client)> {
    let port = free_port()?;
    let (number, megabytes) = (port.to_string(), limit.to_string());
    let log = directory.join(format!("{which}.log"));
    let store = directory.join("store").display().to_string();
    let redis_limit = format!("{limit}mb");
    let (arguments, is_memcached): (Vec<&str>, bool) = match which {
        "memcached" => (vec!["-u", "nobody", "-p", &number, "-U", "0", "-m", &megabytes, "-t", "1"], true),
        "redis" => {
            let keep = ["--save", "", "--appendonly", "no", "--maxmemory-policy", "allkeys-lru"];
            let limit = ["--port", &number, "--bind", "127.0.0.1", "--maxmemory", &redis_limit];
            (limit.into_iter().chain(keep).collect(), false)
        }
        policy => {
            let where_to =
                ["serve", "--port", &number, "--bind", "127.0.0.1", "--path", &store, "--threads", "1"];
            let limit = ["--maxmemory", &redis_limit, "--maxmemory-policy"];
            let policy = policy.strip_prefix("duramen ").unwrap_or("allkeys-lru");
            (where_to.into_iter().chain(limit).chain([policy]).collect(), false)
        }
    };
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    let _ = std::fs::remove_file(&store);
    let server = Server::start(which, program, &arguments, port, &log)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Client::open(which, port, is_memcached) {
            Ok(client) => return Ok((server, client)),
            Err(failure) if Instant::now() >= deadline => return Err(failure),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Runs all traces, and prints a table.
pub fn run(settings: Settings) -> Result<bool> {
    let need =
        |name: &str| find_program(name).ok_or_else(|| Failure::new(format!("cannot find {name} in PATH")));
    let (memcached, redis) = (need("memcached")?, need("redis-server")?);
    let duramen = duramen_program(settings.duramen)?;
    let directory = tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
    let servers: [(&'static str, &Path); 4] = [
        ("duramen allkeys-lru", &duramen),
        ("duramen allkeys-lfu", &duramen),
        ("memcached", &memcached),
        ("redis", &redis),
    ];
    println!(
        "{} requests, {} keys, {} MiB each; hits in the second half, in percent (thousand requests a second)",
        settings.requests, settings.keys, settings.limit
    );
    println!(
        "{:22}{:>12}{:>12}{}",
        "trace",
        "LRU",
        "S3-FIFO",
        servers.map(|(name, _)| format!("{name:>24}")).concat()
    );
    for &theta in &settings.thetas {
        for scans in [false, true] {
            let trace = || Trace::new(settings.seed, settings.keys, theta, scans);
            let limit = settings.limit << 20;
            let mut lru = Lru { limit, ..Lru::default() };
            let mut fifo = S3Fifo { limit, ..S3Fifo::default() };
            let mut line = format!("zipfian {theta}{}", if scans { ", scans" } else { "" });
            line = format!("{line:22}");
            for cache in [&mut lru as &mut dyn Cache, &mut fifo] {
                let (share, _) = hits(cache, &mut trace(), settings.requests)?;
                line += &format!("{:>12.2}", share * 100.0);
            }
            for (name, program) in servers {
                let (_server, mut client) = start(name, program, settings.limit, directory.path())?;
                let (share, took) = hits(&mut client, &mut trace(), settings.requests)?;
                let rate = settings.requests as f64 / 2_000.0 / took.as_secs_f64();
                line += &format!("{:>24}", format!("{:.2} ({rate:.0})", share * 100.0));
            }
            println!("{line}");
        }
    }
    Ok(true)
}
