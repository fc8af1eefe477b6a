//! `cargo xtask restart`: measures `duramen serve` from the start of its process to the first answered GET.
//!
//! A store of each size is loaded, strings through the engine and collections through the server. The real program is
//! then started on it many times: after a clean end (SIGTERM), and after SIGKILL with acknowledged writes. The clock
//! starts before the process is created. It stops when the right value of a random key has arrived by TCP. The client's
//! first bytes are already in the socket when the server begins to accept. After each start some hundred more keys are
//! compared, among them those just written, and the number of keys. One start before the measured ones completes the
//! work that loading left.
//!
//! A file's pages stay in the page cache between two starts, unless `--cold` drops those of the store.
//!
//! With `--redis`, the same is measured of redis-server with AOF always, after SIGKILL.
//!
//! Exit code 1: a value was wrong or missing.

mod content;
mod redis;
mod table;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::failure::{Attempt, Failure, Result};
use crate::random::Random;
use crate::server::{Server, find_program, free_port, release_program};
pub use content::Content;
use content::{Command, Versions, key_of, value_of};
use duramen::{Create, Durability, IndexKind, MediumKind, Meta, Options};
use duramen_resp::{Connection, Reply};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use table::Row;

/// A start that takes longer counts as one that never ends.
const PATIENCE: Duration = Duration::from_secs(600);
/// Records that are written before each SIGKILL.
const WRITTEN: usize = 1000;
/// Keys that are compared after each start, besides the first and those that were written.
const COMPARED: u64 = 200;
/// Puts that share one wait while a store is loaded.
const GROUP: u64 = 256;
/// The server's type tag of a string.
const STRING_TAG: u8 = 1;
/// The table of the server's database 0.
const DATABASE: &[u8] = b"redis.0";

#[derive(clap::Args)]
pub struct Settings {
    /// Numbers of records, separated by commas
    #[arg(long, default_value = "100000,1000000", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub keys: Vec<u64>,
    /// Kinds of index: hash or ordered, separated by commas
    #[arg(long = "index", value_name = "INDEX", default_value = "hash,ordered", value_delimiter = ',')]
    pub indexes: Vec<IndexKind>,
    /// Media of the stores, separated by commas
    #[arg(
        long = "medium",
        value_name = "MEDIUM",
        value_enum,
        default_value = "shm,file",
        value_delimiter = ','
    )]
    pub media: Vec<Medium>,
    /// The directory for stores on files [default: that for temporary files]
    #[arg(long, value_name = "PATH")]
    pub directory: Option<PathBuf>,
    /// Measured starts of each kind
    #[arg(long, default_value_t = 3)]
    pub starts: usize,
    /// Drops a file's pages from the page cache before each start
    #[arg(long)]
    pub cold: bool,
    /// Repeats the keys of an earlier run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Writes the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The duramen program [default: built now, optimised]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// Also measures redis-server with AOF always, after SIGKILL
    #[arg(long)]
    pub redis: bool,
    /// Content of the stores
    #[arg(long, value_enum, default_value_t = Content::Strings)]
    pub content: Content,
    /// Further arguments of duramen serve, after --
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

/// The store's medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Medium {
    /// A file in /dev/shm
    Shm,
    /// A file in --directory
    File,
}

impl Medium {
    fn kind(self) -> MediumKind {
        match self {
            Medium::Shm => MediumKind::Shm,
            Medium::File => MediumKind::File,
        }
    }
}

/// How the previous process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    #[default]
    Close,
    Kill,
}

/// Measures everything and prints the table; returns whether every value was right.
pub fn run(repository: &Path, settings: &Settings) -> Result<bool> {
    let program = release_program(repository, settings.duramen.clone(), "")?;
    let redis = if settings.redis { find_program("redis-server") } else { None };
    if settings.redis && redis.is_none() {
        return Err(Failure::new("found no redis-server in PATH; install it (Debian: redis-server)"));
    }
    let mut rows = Vec::new();
    for &medium in &settings.media {
        let place = match (medium, &settings.directory) {
            (Medium::Shm, _) => tempfile::tempdir_in("/dev/shm"),
            (Medium::File, Some(directory)) => tempfile::tempdir_in(directory),
            (Medium::File, None) => tempfile::tempdir(),
        };
        let place = place.attempt(|| "make a directory for the stores".to_owned())?;
        for &keys in &settings.keys {
            for &index in &settings.indexes {
                let path = place.path().join(format!("store-{keys}-{index}"));
                let mut versions = Versions::default();
                let log = place.path().join("log");
                let restarts = Restarts { settings, program: &program, path: &path, medium, index, log };
                let bytes = restarts.load(keys)?;
                for row in restarts.measure(keys, bytes, &mut versions)? {
                    if rows.is_empty() {
                        println!("{}", table::head());
                    }
                    println!("{}", row.line());
                    if row.wrong > 0 {
                        println!("{} of the values compared in these starts were wrong", row.wrong);
                    }
                    rows.push(row);
                }
                // The next store needs the space.
                std::fs::remove_file(&path).attempt(|| format!("remove {}", path.display()))?;
            }
            if let Some(program) = &redis {
                let directory = tempfile::tempdir_in(place.path());
                let directory = directory.attempt(|| "make a directory for redis-server".to_owned())?;
                let row =
                    redis::measure(program, directory.path(), medium, keys, settings.starts, settings.seed)?;
                println!("{}", row.line());
                rows.push(row);
            }
        }
    }
    if let Some(file) = &settings.json {
        table::write(file, &rows)?;
    }
    let wrong: u64 = rows.iter().map(|row| row.wrong).sum();
    if wrong > 0 {
        println!("{wrong} values were lost or differ from the acknowledged ones");
    }
    Ok(wrong == 0)
}

/// The starts on one store.
struct Restarts<'a> {
    settings: &'a Settings,
    program: &'a Path,
    path: &'a Path,
    medium: Medium,
    index: IndexKind,
    log: PathBuf,
}

/// The results of one start.
struct Start {
    server: Server,
    seconds: f64,
}

impl Restarts<'_> {
    /// Makes a store of `keys` records; returns its size in bytes.
    fn load(&self, keys: u64) -> Result<u64> {
        let begun = Instant::now();
        match self.settings.content {
            Content::Strings | Content::Memcached => load_strings(self.path, self.medium, self.index, keys)?,
            Content::Collections => {
                let arguments =
                    [self.arguments(), vec!["--duramen-durability".to_owned(), "1s".to_owned()]].concat();
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                let mut server = Server::start_duramen(self.program, &arguments, &self.log)?;
                server.demand_ready(PATIENCE)?;
                let mut connection = server.connect()?;
                for command in content::collections(keys) {
                    demand(&mut connection, &command)?;
                }
                self.close(&mut server)?;
            }
        }
        let attempt = || format!("read the size of {}", self.path.display());
        // A file may have holes.
        let bytes = self.path.metadata().attempt(attempt)?.blocks() * 512;
        let (seconds, mebibytes) = (begun.elapsed().as_secs_f64(), bytes >> 20);
        eprintln!("{}: loaded {keys} records in {seconds:.1} s, {mebibytes} MiB", self.medium.kind());
        Ok(bytes)
    }

    /// The server's arguments for this store.
    fn arguments(&self) -> Vec<String> {
        let (path, medium, index) =
            (self.path.display().to_string(), self.medium.kind().to_string(), self.index.to_string());
        let mut arguments = ["--duramen-path", &path, "--duramen-medium", &medium, "--index", &index]
            .map(str::to_owned)
            .to_vec();
        arguments.extend(self.settings.arguments.iter().cloned());
        arguments
    }

    fn measure(&self, keys: u64, bytes: u64, versions: &mut Versions) -> Result<[Row; 2]> {
        let mut random = Random::new(self.settings.seed ^ keys);
        let index = self.index.to_string();
        let row =
            |after| Row::new("duramen", self.medium.kind(), &index, keys, bytes, after, self.settings.cold);
        let (mut closed, mut killed) = (row(After::Close), row(After::Kill));
        let mut first = self.start(keys, &mut random, versions, &mut closed)?;
        self.close(&mut first.server)?;
        for _ in 0..self.settings.starts.max(1) {
            let mut start = self.start(keys, &mut random, versions, &mut closed)?;
            closed.keep(&start.server, start.seconds)?;
            self.write(&start.server, keys, &mut random, versions)?;
            start.server.kill()?;
            let mut start = self.start(keys, &mut random, versions, &mut killed)?;
            killed.keep(&start.server, start.seconds)?;
            self.close(&mut start.server)?;
        }
        Ok([closed, killed])
    }

    /// Starts the server, reads a key, and compares more keys after the clock has stopped.
    fn start(&self, keys: u64, random: &mut Random, versions: &Versions, row: &mut Row) -> Result<Start> {
        if self.settings.cold && self.medium == Medium::File {
            forget_pages(self.path)?;
        }
        let content = self.settings.content;
        let number = random.below(keys);
        let memcached = if self.settings.content == Content::Memcached { Some(free_port()?) } else { None };
        let memcached_text = memcached.unwrap_or_default().to_string();
        let mut arguments = self.arguments();
        if memcached.is_some() {
            arguments
                .extend(["--memcached", &memcached_text, "--memcached-database", "0"].map(str::to_owned));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let begun = Instant::now();
        let mut server = Server::start_duramen(self.program, &arguments, &self.log)?;
        let mut connection = loop {
            let connection = Connection::open(memcached.unwrap_or(server.port()));
            if let Ok(connection) = connection {
                break connection;
            }
            if let Some(status) = server.exited()? {
                return Err(Failure::new(format!(
                    "duramen serve ended ({status}) instead of answering; its last words:\n{}",
                    server.last_words()
                )));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::new(format!("duramen serve did not listen within {PATIENCE:?}")));
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        let first = match memcached {
            None => answers(&mut connection, &content.read(number, versions.of(number))),
            Some(_) => first_hit(&mut connection, &key_of(number), &value_of(number, versions.of(number))),
        };
        let seconds = begun.elapsed().as_secs_f64();
        let is_right = first.map_err(|ended| {
            let words = server.last_words();
            Failure::new(format!("duramen serve did not answer ({ended}); its last words:\n{words}"))
        })?;
        let mut wrong = u64::from(!is_right);
        if memcached.is_some() {
            connection = server.connect()?;
        }
        let more: Vec<u64> = (0..COMPARED).map(|_| random.below(keys)).chain(versions.numbers()).collect();
        for number in more {
            let right = answers(&mut connection, &content.read(number, versions.of(number)));
            wrong += u64::from(!right.is_ok_and(|right| right));
        }
        for count in content.count(keys) {
            let reply = connection.call(&count.arguments, PATIENCE).ok();
            if reply.as_ref().and_then(Reply::text) != Some(&count.reply) {
                eprintln!(
                    "{} says {reply:?}, wanted {}",
                    count.name(),
                    String::from_utf8_lossy(&count.reply)
                );
                wrong += 1;
            }
        }
        row.wrong += wrong;
        Ok(Start { server, seconds })
    }

    /// Overwrites some records; waits for each acknowledgement.
    fn write(&self, server: &Server, keys: u64, random: &mut Random, versions: &mut Versions) -> Result<()> {
        let mut connection = server.connect()?;
        for _ in 0..WRITTEN {
            let number = random.below(keys);
            demand(&mut connection, &self.settings.content.overwrite(number, versions.of(number) + 1))?;
            versions.next(number);
        }
        Ok(())
    }

    fn close(&self, server: &mut Server) -> Result<()> {
        match server.terminate(PATIENCE)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Failure::new(format!(
                "duramen serve ended with {status} at SIGTERM; its last words:\n{}",
                server.last_words()
            ))),
            None => Err(Failure::new(format!("duramen serve did not end within {PATIENCE:?} of SIGTERM"))),
        }
    }
}

/// Reads a key by memcached's protocol; returns whether it has this value.
fn first_hit(connection: &mut Connection, key: &[u8], value: &[u8]) -> std::result::Result<bool, String> {
    let wanted = [value, b"\r\n"].concat();
    let sent = format!("mg {} v b\r\n", STANDARD.encode(key));
    connection.send(sent.as_bytes()).map_err(|error| error.to_string())?;
    let head = format!("VA {}", value.len());
    let found = connection.read_all(PATIENCE, |found| found.len() > wanted.len() && found.ends_with(b"\r\n"));
    Ok(found.bytes().starts_with(head.as_bytes()) && found.bytes().ends_with(&wanted))
}

/// Whether a command gets the expected reply.
fn answers(connection: &mut Connection, command: &Command) -> std::result::Result<bool, String> {
    let reply = connection.call(&command.arguments, PATIENCE).map_err(|ended| format!("{ended:?}"))?;
    Ok(reply.text() == Some(&command.reply))
}

/// Sends a command, and fails unless it gets the expected reply.
fn demand(connection: &mut Connection, command: &Command) -> Result<()> {
    let reply = connection.call(&command.arguments, PATIENCE);
    if reply.as_ref().is_ok_and(|reply| reply.text() == Some(&command.reply)) {
        return Ok(());
    }
    let (name, wanted) = (command.name(), String::from_utf8_lossy(&command.reply));
    Err(Failure::new(format!("{name} was answered {reply:?}, wanted {wanted}")))
}

/// Puts `keys` strings into a store, in the server's format.
fn load_strings(path: &Path, medium: Medium, index: IndexKind, keys: u64) -> Result<()> {
    let attempt = || format!("load {}", path.display());
    // On a file, no put waits for the disk.
    let durability = Durability::Interval(Duration::from_secs(1));
    let options =
        Options { create: Create::CreateNew, medium: medium.kind(), durability, index, ..Options::default() };
    let store = options.open(path).attempt(attempt)?;
    let database = store.table(DATABASE, index).attempt(attempt)?;
    let mut writer = store.writer().attempt(attempt)?;
    let meta = Meta { tag: STRING_TAG, ..Meta::default() };
    for from in (0..keys).step_by(GROUP as usize) {
        writer.group();
        for number in from..(from + GROUP).min(keys) {
            let (key, value) = (key_of(number), value_of(number, 0));
            writer.table(&database).put_with(key, value, meta).attempt(attempt)?;
        }
        writer.flush_group().attempt(attempt)?;
    }
    drop((writer, database));
    store.close().attempt(attempt)
}

/// Makes a file's pages durable, and drops them from the page cache.
pub fn forget_pages(path: &Path) -> Result<()> {
    let attempt = || format!("drop the cached pages of {}", path.display());
    let file = File::open(path).attempt(attempt)?;
    file.sync_all().attempt(attempt)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).attempt(attempt)
}
