//! `cargo xtask space`: what a server's store takes after most of its keys were deleted.
//!
//! In each cycle all keys are written, nine of ten are deleted, and the space of the file is observed until it is at
//! most [`SHARE`] of what the records take that live, and the floor. On shm the memory of the server that is resident
//! there must be so small too. In every fifth cycle the server is killed at a random moment, started again, and asked
//! for all keys that it must have. After the last cycle the same is seen of an eviction limit that is lowered, and of
//! FLUSHALL.
//!
//! Exit code 1: the space did not come back within a minute, or a value was wrong.

use crate::failure::{Attempt, Failure, Result};
use crate::random::Random;
use crate::server::{Server, duramen_program};
use duramen_resp::{Connection, Reply, encode_command};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The space is at most so many times what lives ...
const SHARE: f64 = 1.3;
/// ... and this: what the store keeps free, which is the server's setting here, and its reserve for deletes.
const FLOOR: u64 = KEEP + (8 << 20);
const KEEP: u64 = 16 << 20;
/// What a record takes besides its value: its head and key.
const RECORD_BYTES: u64 = 48;
const WAIT_MAX: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);
/// One of so many keys stays.
const KEPT: u64 = 10;
/// One of so many cycles has a kill.
const KILLS: u64 = 5;
/// Commands that are sent together.
const BATCH: u64 = 500;
/// A kill comes before the space has been free for as long as the store waits, or a moment later.
const KILL_AFTER_MAX_MS: u64 = 14_000;

#[derive(clap::Args)]
pub struct Settings {
    /// Cycles on each medium
    #[arg(long, default_value_t = 50)]
    pub cycles: u64,
    /// Keys that are written in a cycle
    #[arg(long, default_value_t = 200_000)]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 500)]
    pub value_bytes: usize,
    /// The directories for the stores
    #[arg(long, default_values = ["/dev/shm", "."])]
    pub directory: Vec<PathBuf>,
    /// The program [default: it is built]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// Repeats the kills of an earlier run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Runs all cycles in each directory; returns whether all space came back and all values were right.
pub fn run(settings: &Settings) -> Result<bool> {
    let program = duramen_program(settings.duramen.clone())?;
    println!(
        "| directory | cycle | live, MiB | space when full, MiB | space after, MiB | resident after, MiB | after s |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut is_good = true;
    for directory in &settings.directory {
        let place = tempfile::tempdir_in(directory)
            .attempt(|| format!("make a directory for the store in {}", directory.display()))?;
        let mut store = Store::start(&program, place.path(), settings)?;
        let mut random = Random::new(settings.seed);
        for cycle in 0..settings.cycles {
            store.fill(cycle)?;
            let full = store.space()?;
            store.delete()?;
            let is_killed = cycle % KILLS == KILLS - 1;
            if is_killed {
                thread::sleep(Duration::from_millis(random.below(KILL_AFTER_MAX_MS)));
                store.kill()?;
            }
            let name = format!("{cycle}{}", if is_killed { ", killed" } else { "" });
            let lives = settings.keys.div_ceil(KEPT) * (settings.value_bytes as u64 + RECORD_BYTES);
            is_good &= store.observe(directory, &name, full, (lives as f64 * SHARE) as u64)?;
            is_good &= store.check(cycle)?;
        }
        is_good &= store.evict(directory)?;
        let full = store.space()?;
        store.call(&["FLUSHALL"])?;
        is_good &= store.observe(directory, "FLUSHALL", full, 0)?;
    }
    Ok(is_good)
}

/// A server, and the file of its store.
struct Store<'a> {
    program: &'a Path,
    place: &'a Path,
    path: PathBuf,
    settings: &'a Settings,
    server: Server,
    client: Connection,
}

impl<'a> Store<'a> {
    fn start(program: &'a Path, place: &'a Path, settings: &'a Settings) -> Result<Self> {
        let path = place.join("store");
        let (server, client) = serve(program, place, &path)?;
        Ok(Self { program, place, path, settings, server, client })
    }

    fn kill(&mut self) -> Result<()> {
        self.server.kill()?;
        (self.server, self.client) = serve(self.program, self.place, &self.path)?;
        Ok(())
    }

    fn call(&mut self, arguments: &[&str]) -> Result<Reply> {
        let reply = self.client.call(arguments, PATIENCE);
        reply.map_err(|_| Failure::new(format!("the server did not answer {}", arguments[0])))
    }

    /// Sends `count` commands in batches, and passes each reply on.
    fn call_all(
        &mut self,
        count: u64,
        command: impl Fn(u64) -> Vec<Vec<u8>>,
        mut then: impl FnMut(u64, Reply),
    ) -> Result<()> {
        for from in (0..count).step_by(BATCH as usize) {
            let to = (from + BATCH).min(count);
            let mut bytes = Vec::new();
            (from..to).for_each(|number| encode_command(&mut bytes, &command(number)));
            self.client.send(&bytes).attempt(|| "send commands".to_owned())?;
            for number in from..to {
                let reply = self.client.read(PATIENCE);
                then(number, reply.map_err(|_| Failure::new("the server did not answer"))?);
            }
        }
        Ok(())
    }

    fn value(&self, key: u64, cycle: u64) -> Vec<u8> {
        let mut value = format!("{key}:{cycle}:").into_bytes();
        value.resize(self.settings.value_bytes.max(value.len()), b'v');
        value
    }

    fn fill(&mut self, cycle: u64) -> Result<()> {
        let values: Vec<Vec<u8>> = (0..self.settings.keys).map(|key| self.value(key, cycle)).collect();
        let set = |key: u64| vec![b"SET".to_vec(), name(key), values[key as usize].clone()];
        let mut refused = None;
        self.call_all(self.settings.keys, set, |_, reply| {
            if reply.kind() == b'-' {
                refused = Some(reply);
            }
        })?;
        match refused {
            Some(reply) => Err(Failure::new(format!("SET was refused: {reply:?}"))),
            None => Ok(()),
        }
    }

    fn delete(&mut self) -> Result<()> {
        let groups = self.settings.keys.div_ceil(KEPT);
        let del = |group: u64| {
            let keys = (group * KEPT + 1..(group + 1) * KEPT).map(name);
            std::iter::once(b"DEL".to_vec()).chain(keys).collect()
        };
        self.call_all(groups, del, |_, _| ())
    }

    /// Whether each key that stayed has the value of this cycle, and no other key has one.
    fn check(&mut self, cycle: u64) -> Result<bool> {
        let wanted: Vec<Vec<u8>> =
            (0..self.settings.keys).step_by(KEPT as usize).map(|key| self.value(key, cycle)).collect();
        let mut wrong = 0;
        self.call_all(
            self.settings.keys,
            |key| vec![b"GET".to_vec(), name(key)],
            |key, reply| {
                let is_right = match reply {
                    Reply::Bulk { bytes, .. } => key % KEPT == 0 && bytes == wanted[(key / KEPT) as usize],
                    _ => key % KEPT != 0,
                };
                wrong += u64::from(!is_right);
            },
        )?;
        if wrong > 0 {
            println!("\ncycle {cycle}: {wrong} keys have a wrong value\n");
        }
        Ok(wrong == 0)
    }

    /// Bytes that the file takes on its file system.
    fn space(&self) -> Result<u64> {
        let found = self.path.metadata().attempt(|| format!("look at {}", self.path.display()))?;
        Ok(found.blocks() * 512)
    }

    fn number(&mut self, field: &str) -> Result<u64> {
        let text = match self.call(&["INFO", "duramen"])? {
            Reply::Bulk { bytes, .. } => String::from_utf8_lossy(&bytes).into_owned(),
            other => return Err(Failure::new(format!("INFO answered {other:?}"))),
        };
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| Failure::new(format!("INFO has no number {field}")))
    }

    /// Waits until the file, and what of it is resident on shm, take at most `most` bytes and the floor; prints a line.
    fn observe(&mut self, directory: &Path, name: &str, full: u64, most: u64) -> Result<bool> {
        let begun = Instant::now();
        loop {
            let (space, live) = (self.space()?, self.number("duramen_live_bytes")?);
            let is_small = space.max(self.server.shm_kib()? << 10) <= most + FLOOR;
            if is_small || begun.elapsed() > WAIT_MAX {
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                println!(
                    "| {} | {name} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1}{} |",
                    directory.display(),
                    mib(live),
                    mib(full),
                    mib(space),
                    self.server.shared_kib()? as f64 / 1024.0,
                    begun.elapsed().as_secs_f64(),
                    if is_small { "" } else { " (too much)" }
                );
                return Ok(is_small);
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Fills the store and lowers its limit to half.
    fn evict(&mut self, directory: &Path) -> Result<bool> {
        self.fill(self.settings.cycles)?;
        let full = self.space()?;
        let limit = self.number("duramen_used_bytes")? / 2;
        self.call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
        self.call(&["CONFIG", "SET", "maxmemory", &limit.to_string()])?;
        let is_good = self.observe(directory, "limit halved", full, limit)?;
        self.call(&["CONFIG", "SET", "maxmemory", "0"])?;
        Ok(is_good)
    }
}

fn name(key: u64) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

fn serve(program: &Path, place: &Path, path: &Path) -> Result<(Server, Connection)> {
    let (path, keep) = (path.display().to_string(), KEEP.to_string());
    let settings = ["--duramen-path", &path, "--duramen-keep-free", &keep];
    let mut server = Server::start_duramen(program, &settings, &place.join("log"))?;
    server.demand_ready(PATIENCE)?;
    let client = server.connect()?;
    Ok((server, client))
}
