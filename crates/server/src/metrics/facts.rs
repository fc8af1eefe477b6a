//! The numbers of one scrape, each read once.

use crate::clients::unix_millis;
use crate::config::Config;
use crate::hosted_jobs::JobReport;
use crate::observe::process::{self, Process};
use crate::observe::stats::Totals;
use crate::server::Server;
use duramen::{BlockCounts, Stats};
use duramen_structures::KeyCount;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a scrape shows.
pub struct Facts {
    /// The kernel's numbers.
    pub process: Process,
    /// Whether clients may write.
    pub is_ready: bool,
    /// An open store, with clients.
    pub server: Option<Collected>,
    /// Jobs of SQL.
    pub jobs: Vec<(String, JobReport)>,
}

impl Facts {
    /// The present ones.
    pub fn now(
        server: Option<(&Arc<Server>, &BlockCache)>,
        is_ready: bool,
        jobs: Vec<(String, JobReport)>,
    ) -> Self {
        let server = server.map(|(server, blocks)| Collected::of(server, blocks));
        Self { process: process::read(), is_ready, server, jobs }
    }
}

/// The numbers of a server.
pub struct Collected {
    server: Arc<Server>,
    config: Arc<Config>,
    totals: Totals,
    store: Stats,
    blocks: BlockCounts,
    databases: Vec<(u8, KeyCount, u64)>,
    available_bytes: Option<u64>,
    is_full: bool,
}

/// The same, as families read them.
#[derive(Clone, Copy)]
pub struct ServerFacts<'a> {
    /// The server.
    pub server: &'a Server,
    /// Its directives.
    pub config: &'a Config,
    /// Sums over its workers since it started: CONFIG RESETSTAT does not change them.
    pub totals: &'a Totals,
    /// The engine's.
    pub store: &'a Stats,
    /// Blocks by state, as of some seconds ago.
    pub blocks: &'a BlockCounts,
    /// Databases with keys: number, keys, and the average time to live in milliseconds.
    pub databases: &'a [(u8, KeyCount, u64)],
    /// Bytes that the file system of a file has left.
    pub available_bytes: Option<u64>,
    /// Writes are refused for lack of space.
    pub is_full: bool,
}

impl Collected {
    fn of(server: &Arc<Server>, blocks: &BlockCache) -> Self {
        let now = unix_millis();
        let keys = &server.keyspace;
        let of = |db| {
            let count = keys.count(db, now);
            let ttl = if count.expires > 0 { keys.ttl_average(db, now) } else { 0 };
            (db, count, ttl)
        };
        Self {
            config: server.config(),
            totals: server.totals_ever(),
            store: keys.store().stats(),
            blocks: blocks.counts(keys.store()),
            available_bytes: available(&server.config()),
            is_full: server.is_full(),
            databases: (0..keys.databases()).map(of).filter(|(_, count, _)| count.keys > 0).collect(),
            server: Arc::clone(server),
        }
    }

    /// As families read them.
    pub fn facts(&self) -> ServerFacts<'_> {
        ServerFacts {
            server: &self.server,
            config: &self.config,
            totals: &self.totals,
            store: &self.store,
            blocks: &self.blocks,
            databases: &self.databases,
            available_bytes: self.available_bytes,
            is_full: self.is_full,
        }
    }
}

/// A count of blocks takes 100 times as long to grow old as it took: a walk over the blocks of a large store.
const AGE_FACTOR: u32 = 100;

/// The last count of blocks.
#[derive(Default)]
pub struct BlockCache(Mutex<Option<(Instant, Duration, BlockCounts)>>);

impl BlockCache {
    fn counts(&self, store: &duramen::Store) -> BlockCounts {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, took, counts)) = *last
            && at.elapsed() < took * AGE_FACTOR
        {
            return counts;
        }
        let begun = Instant::now();
        let counts = store.block_counts();
        *last = Some((Instant::now(), begun.elapsed(), counts));
        counts
    }
}

/// Bytes that the file system of the store's file has left for this process.
fn available(config: &Config) -> Option<u64> {
    let is_file = std::fs::metadata(&config.path).is_ok_and(|found| found.is_file() || found.is_dir());
    let found = rustix::fs::statvfs(&config.path).ok().filter(|_| is_file)?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
