//! `cargo xtask millions`: compares large values of Redis's types in `duramen serve` on `/dev/shm` and in redis-server
//! without persistence.
//!
//! Each server gets small hashes of ten fields, and then a hash, a list and a sorted set of many elements. Three
//! results are printed: the memory of each, the waits of other clients while the sorted set grows, and the duration of
//! a deletion with the waits of other clients meanwhile.
//!
//! While the sorted set grows by pipelines, and during each deletion, another client sends a request every millisecond,
//! one at a time.

mod items;

use crate::failure::{Attempt, Failure, Result};
use crate::random::step;
use crate::server::{Server, find_program, release_program};
use duramen_resp::{Connection, encode_command};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(600);
/// Fields of each small hash.
const FIELDS: u64 = 10;
/// Commands in flight at once during loading, and elements that each adds.
const PIPELINE: u64 = 16;
const ADDED: u64 = 50;
/// How long the waits of other clients are measured after a deletion.
const AFTERMATH: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Settings {
    /// Elements of each value
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub elements: u64,
    /// The duramen program [default: built now, optimised]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// The redis-server program [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    pub redis: Option<PathBuf>,
    /// The memcached program [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    pub memcached: Option<PathBuf>,
    /// The values to compare
    #[arg(long, value_enum, default_value_t = Measured::Redis)]
    pub content: Measured,
    /// Further arguments of duramen serve, after --
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

/// The server whose values are compared with duramen's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Measured {
    /// Small hashes, a hash, a list and a sorted set, with redis-server
    Redis,
    /// Items of 20 + 100 bytes, with memcached
    Memcached,
}

/// The kinds of loaded values, in this order.
#[derive(Clone, Copy)]
enum Content {
    Hashes,
    Hash,
    List,
    SortedSet,
}

/// A server, and the path of its store.
struct Subject {
    server: Server,
    store: Option<PathBuf>,
}

/// The durations of consecutive requests.
struct Waits(Vec<Duration>);

/// Measures both servers and prints the results. Returns an error if a reply is wrong.
pub fn run(repository: &Path, settings: &Settings) -> Result<bool> {
    if settings.content == Measured::Memcached {
        return items::run(repository, settings);
    }
    let Some(redis) = settings.redis.clone().or_else(|| find_program("redis-server")) else {
        return Err(Failure::new("cannot find redis-server in PATH: install it, or name one with --redis"));
    };
    let program = release_program(repository, settings.duramen.clone(), "")?;
    let directory =
        tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory for the servers".to_owned())?;
    let store = directory.path().join("store");
    let path = store.display().to_string();
    let mut arguments = vec!["--duramen-path", &path];
    arguments.extend(settings.arguments.iter().map(String::as_str));
    let duramen = Server::start_duramen(&program, &arguments, &directory.path().join("log"))?;
    measure("duramen", Subject { server: duramen, store: Some(store) }, settings.elements)?;
    let redis = Server::start_redis(&redis, directory.path())?;
    measure("redis-server", Subject { server: redis, store: None }, settings.elements)?;
    Ok(true)
}

fn measure(name: &str, mut subject: Subject, elements: u64) -> Result<()> {
    subject.server.demand_ready(PATIENCE)?;
    println!("{name}");
    let mut connection = subject.server.connect()?;
    for content in [Content::Hashes, Content::Hash, Content::List, Content::SortedSet] {
        let (dram, medium) = (subject.server.resident_kib()? << 10, subject.medium()?);
        let begun = Instant::now();
        let ((), waits) = beside(
            &subject.server,
            |at| content.asked(at),
            |server| {
                let mut connection = server.connect()?;
                load(&mut connection, elements, content)
            },
        )?;
        let seconds = begun.elapsed().as_secs_f64();
        let dram = (subject.server.resident_kib()? << 10).saturating_sub(dram);
        let medium = subject.medium()?.saturating_sub(medium);
        let each = |bytes: u64| bytes as f64 / elements as f64;
        println!(
            "  {}: DRAM {:.1} bytes an element, medium {:.1}; {seconds:.1} s; another client's {} {waits}",
            content.words(elements),
            each(dram),
            each(medium),
            if matches!(content, Content::SortedSet) { "ZADD" } else { "GET" },
        );
    }
    for (command, key) in [
        (&["UNLINK", "hash"][..], "hash"),
        (&["DEL", "list"], "list"),
        (&["PEXPIRE", "sorted", "1"], "sorted"),
    ] {
        let (took, waits) = beside(
            &subject.server,
            |_| vec!["GET".into(), "nothing".into()],
            |server| {
                let mut connection = server.connect()?;
                let begun = Instant::now();
                said(&mut connection, command)?;
                let took = begun.elapsed();
                std::thread::sleep(AFTERMATH);
                Ok(took)
            },
        )?;
        println!("  {}: {:.3} ms; another client's GET {waits}", command.join(" "), took.as_secs_f64() * 1e3);
        if said(&mut connection, &["EXISTS", key])? != 0 {
            return Err(Failure::new(format!("{key} exists after {}", command.join(" "))));
        }
    }
    Ok(())
}

impl Subject {
    /// Bytes of the store.
    fn medium(&self) -> Result<u64> {
        self.store.as_deref().map_or(Ok(0), medium_bytes)
    }
}

/// The space that a store's file takes; the file may have holes.
fn medium_bytes(store: &Path) -> Result<u64> {
    let metadata = store.metadata().attempt(|| format!("read the size of {}", store.display()))?;
    Ok(metadata.blocks() * 512)
}

impl Content {
    fn words(self, elements: u64) -> String {
        match self {
            Content::Hashes => format!("{} hashes of {FIELDS} fields", elements / FIELDS),
            Content::Hash => format!("a hash of {elements}"),
            Content::List => format!("a list of {elements}"),
            Content::SortedSet => format!("a sorted set of {elements}"),
        }
    }

    /// The requests of the other client meanwhile: it adds to the sorted set.
    fn asked(self, at: u64) -> Vec<String> {
        match self {
            Content::SortedSet => {
                vec!["ZADD".into(), "sorted".into(), step(at).to_string(), format!("other:{at}")]
            }
            _ => vec!["GET".into(), "nothing".into()],
        }
    }

    /// The command that adds the elements from `from` on, and how many it adds.
    fn adds(self, from: u64, elements: u64) -> (Vec<String>, u64) {
        let (mut words, added) = match self {
            Content::Hashes => (vec!["HSET".into(), format!("user:{}", from / FIELDS)], FIELDS),
            Content::Hash => (vec!["HSET".into(), "hash".into()], ADDED),
            Content::List => (vec!["RPUSH".into(), "list".into()], ADDED),
            Content::SortedSet => (vec!["ZADD".into(), "sorted".into()], 1),
        };
        let to = (from + added).min(elements);
        for at in from..to {
            match self {
                Content::Hashes => words.extend([format!("field:{}", at % FIELDS), format!("value:{at}")]),
                Content::Hash => words.extend([format!("field:{at}"), format!("value:{at}")]),
                Content::List => words.push(format!("item:{at}")),
                Content::SortedSet => words.extend([(step(at) >> 16).to_string(), format!("member:{at}")]),
            }
        }
        (words, to - from)
    }
}

fn load(connection: &mut Connection, elements: u64, content: Content) -> Result<()> {
    let mut from = 0;
    while from < elements {
        let mut bytes = Vec::new();
        let mut commands = 0;
        while commands < PIPELINE && from < elements {
            let (words, added) = content.adds(from, elements);
            encode_command(&mut bytes, &words);
            commands += 1;
            from += added;
        }
        connection.send(&bytes).attempt(|| "send the load".to_owned())?;
        for _ in 0..commands {
            let reply = connection.read(PATIENCE);
            if reply.as_ref().map(|reply| reply.integer().is_none()).unwrap_or(true) {
                return Err(Failure::new(format!("a load was answered {reply:?}, wanted an integer")));
            }
        }
    }
    Ok(())
}

fn said(connection: &mut Connection, command: &[&str]) -> Result<i64> {
    let reply = connection.call(command, PATIENCE);
    let integer = reply.as_ref().ok().and_then(|reply| reply.integer());
    integer.ok_or_else(|| Failure::new(format!("{} was answered {reply:?}, wanted an integer", command[0])))
}

/// Does `work` while another client sends `asked` of 0, 1 and so on, every millisecond.
fn beside<T: Send>(
    server: &Server,
    asked: impl Fn(u64) -> Vec<String> + Sync,
    work: impl FnOnce(&Server) -> Result<T> + Send,
) -> Result<(T, Waits)> {
    let mut connection = server.connect()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut waits = Vec::new();
            let mut at = 0;
            while !over.load(Relaxed) {
                let command = asked(at);
                let begun = Instant::now();
                if let Err(ended) = connection.call(&command, PATIENCE) {
                    return Err(Failure::new(format!("{} was answered {ended:?}", command[0])));
                }
                waits.push(begun.elapsed());
                at += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            waits.sort_unstable();
            Ok(Waits(waits))
        });
        let done = work(server);
        over.store(true, Relaxed);
        let waits = other.join().map_err(|_| Failure::new("the other client's thread panicked"))??;
        Ok((done?, waits))
    })
}

impl std::fmt::Display for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |share: f64| {
            let at = ((self.0.len() as f64 * share) as usize).min(self.0.len().saturating_sub(1));
            self.0.get(at).map_or(0.0, |wait| wait.as_secs_f64() * 1e3)
        };
        write!(
            f,
            "p50 {:.3}, p99.99 {:.3}, longest {:.3} ms of {}",
            ms(0.5),
            ms(0.9999),
            ms(1.0),
            self.0.len()
        )
    }
}
