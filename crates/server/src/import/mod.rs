//! Import and export: data that Redis saved or sends becomes the keys of a store, and the reverse.
//!
//! | module | reads |
//! |---|---|
//! | this one | RDB files |
//! | [`aof`] | append-only files, with or without an RDB file at their start, and the directories of Redis 7.0 |
//! | [`replica`] | a running server: its snapshot, and then its writes |
//! | `commands` | commands of the last two, which the server's own code executes |
//! | `export` | a store, and writes an RDB file |
//!
//! 1. Imported values replace existing keys.
//! 2. Whatever stops an import, all keys before it are in the store, and the error gives their number.

pub mod aof;
mod commands;
pub mod replica;

use crate::clients::unix_millis;
pub use crate::export::Failure;
use crate::observe::log::counted;
use commands::Commands;
use duramen::Store;
pub use duramen_structures::dump::file::Skip;
use duramen_structures::dump::file::{Flaw, Item, Key, Reader};
use duramen_structures::dump::{Restored, functions};
use duramen_structures::{DATABASES_DEFAULT, DATABASES_MAX, Keyspace, Locks, Worker, string_until};
use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

/// The maximum length of a decompressed string: the engine's maximum.
pub const STRING_BYTES_MAX: u64 = 512 << 20;
// The size of a group that becomes durable together.
const GROUP_KEYS: u64 = 256;
const GROUP_BYTES: u64 = 1 << 20;
// The maximum number of skipped things that are named.
const SKIPPED_NAMED_MAX: usize = 20;

/// The progress so far.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Bytes that were read.
    pub bytes: u64,
    /// Keys that were put.
    pub keys: u64,
    /// Keys left out since their time had passed, or since they were collections of nothing.
    pub expired: u64,
    /// Libraries of functions that were put.
    pub libraries: u64,
    /// Commands that were executed.
    pub commands: u64,
    /// Things left out as [`Skip`] allows.
    pub skipped: u64,
    /// The names of the first of them.
    pub skipped_names: Vec<String>,
    /// Databases that keys were put into.
    pub databases: BTreeSet<u8>,
    /// The snapshot of a running server is complete; later commands were written since.
    pub has_snapshot: bool,
    /// Bytes of that snapshot.
    pub snapshot_bytes: Option<u64>,
}

impl Done {
    /// Databases that a server with the default configuration does not serve.
    pub fn databases_beyond_default(&self) -> impl Iterator<Item = u8> + '_ {
        self.databases.iter().copied().filter(|&db| db >= DATABASES_DEFAULT)
    }

    fn skip(&mut self, name: String) {
        self.skipped += 1;
        if self.skipped_names.len() < SKIPPED_NAMED_MAX {
            self.skipped_names.push(name);
        }
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.keys, "key"))?;
        if self.libraries > 0 {
            let noun = if self.libraries == 1 { "library" } else { "libraries" };
            write!(f, ", {} {noun} of functions", self.libraries)?;
        }
        if self.commands > 0 {
            write!(f, ", {}", counted(self.commands, "command"))?;
        }
        if self.expired > 0 {
            write!(f, ", without {} that had expired", self.expired)?;
        }
        Ok(())
    }
}

/// Imports keys into a store.
pub struct Import<'a> {
    worker: Worker,
    commands: Commands,
    skip: Skip,
    done: Done,
    told: &'a mut dyn FnMut(&Done),
    stop: &'a AtomicBool,
}

impl<'a> Import<'a> {
    /// An import into `store`. It calls `told` from time to time with its progress, and ends when `stop` is set.
    ///
    /// # Errors
    /// When the store's tables cannot be had.
    pub fn new(
        store: Store,
        skip: Skip,
        stop: &'a AtomicBool,
        told: &'a mut dyn FnMut(&Done),
    ) -> Result<Self, Failure> {
        let keyspace = Keyspace::open(store, DATABASES_MAX).map_err(Failure::new)?;
        let worker = keyspace.worker().map_err(Failure::new)?;
        let commands = Commands::new(keyspace)?;
        Ok(Self { worker, commands, skip, done: Done::default(), told, stop })
    }

    /// The progress so far.
    pub fn done(&self) -> &Done {
        &self.done
    }

    /// Reads an RDB file to its end. Returns the bytes read after it, and the source.
    ///
    /// # Errors
    /// The problem in the file with its position, or the store's error.
    pub fn rdb<R: Read>(&mut self, source: R) -> Result<(Vec<u8>, R), Failure> {
        let before = self.done.bytes;
        self.worker.group();
        let read = self.rdb_keys(source, before);
        let flushed = self.worker.flush_group();
        (self.told)(&self.done);
        let read = read.map_err(|why| Failure(format!("{why}; imported before it: {}", self.done)))?;
        flushed.map_err(Failure::new)?;
        Ok(read)
    }

    fn rdb_keys<R: Read>(&mut self, source: R, before: u64) -> Result<(Vec<u8>, R), Failure> {
        let mut reader = Reader::new(source, self.skip, STRING_BYTES_MAX).map_err(Failure::new)?;
        let (mut now, mut keys, mut flushed_at) = (unix_millis(), 0, 0);
        while let Some(item) = reader.next().map_err(|flaw| Failure(flaw_text(&flaw)))? {
            match item {
                Item::Key(key) => {
                    self.put(&key, now).map_err(|why| {
                        let (name, db) = (key.key.escape_ascii(), key.db);
                        let shown: String = name.to_string().chars().take(128).collect();
                        Failure(format!(
                            "before byte {}, key '{shown}' of database {db}: {why}",
                            reader.offset()
                        ))
                    })?;
                }
                Item::Library(code) => self.library(code, now).map_err(|why| {
                    Failure(format!("before byte {}, a library of functions: {why}", reader.offset()))
                })?,
                Item::Skipped(name) => self.done.skip(name),
            }
            keys += 1;
            if keys == GROUP_KEYS || reader.offset() - flushed_at >= GROUP_BYTES {
                self.worker.flush_group().map_err(Failure::new)?;
                self.done.bytes = before + reader.offset();
                (self.told)(&self.done);
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Failure(format!("stopped as asked at byte {}", reader.offset())));
                }
                (keys, flushed_at, now) = (0, reader.offset(), unix_millis());
                self.worker.group();
            }
        }
        self.done.bytes = before + reader.offset();
        Ok(reader.into_rest())
    }

    /// Adds a library, or replaces the one with its name.
    fn library(&mut self, code: Vec<u8>, now: u64) -> Result<(), Failure> {
        let (_, name, _) = duramen_lua::library_header(&code).map_err(Failure)?;
        let put = self.worker.run(now, Locks::All, |txn| {
            let body = txn.libraries()?.unwrap_or_default();
            let mut codes = functions::read(&body, STRING_BYTES_MAX).unwrap_or_default();
            codes.retain(|code| duramen_lua::library_header(code).is_ok_and(|(_, other, _)| other != name));
            codes.push(code.clone());
            txn.put_libraries(&functions::write(codes.iter().map(Vec::as_slice)))
        });
        put.map_err(|error: duramen_structures::Error| Failure::new(error))?;
        self.done.libraries += 1;
        Ok(())
    }

    fn put(&mut self, key: &Key, now: u64) -> Result<(), Failure> {
        let Some(db) = u8::try_from(key.db).ok().filter(|&db| db < DATABASES_MAX) else {
            return Err(Failure(format!("there are at most {DATABASES_MAX} databases here, from 0 on")));
        };
        if key.expires_at.is_some_and(|time| time <= now) || key.value.is_empty_collection() {
            self.done.expired += 1;
            return Ok(());
        }
        let put = self.worker.run(now, Locks::One(&key.key), |txn| {
            if let Restored::String(value) = &key.value
                && txn.put_at_once(db, &key.key, value, string_until(key.expires_at))?
            {
                return Ok(());
            }
            txn.put_restored(db, &key.key, &key.value, key.expires_at)
        });
        put.map_err(|error: duramen_structures::Error| Failure::new(error))?;
        self.done.databases.insert(db);
        self.done.keys += 1;
        Ok(())
    }
}

fn flaw_text(flaw: &Flaw) -> String {
    match flaw {
        Flaw::Source(error) => format!("cannot read any further: {error}"),
        flaw => flaw.to_string(),
    }
}
