//! Engines as contenders of a suite: each is opened again for each round, in its own directory.

use crate::engine::Directory;
use crate::fjall_engine::Fjall;
use crate::hyper::Placed;
use crate::level::{Level, Name};
use crate::lmdb::Lmdb;
use crate::map::Map;
use crate::red::Red;
use crate::rocks::Rocks;
use duramen_bench::kv::contender::{Contender, Held, Opened};
use duramen_bench::kv::place::Place;
use duramen_bench::kv::{Durability, IndexKind, MediumKind, Options, FlushInstruction, Result};
use duramen_hyperkv::LogKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One engine at one durability level.
pub struct Peer {
    name: Name,
    level: Level,
    durability: &'static str,
    directory: PathBuf,
    /// The index of Duramen.
    index: IndexKind,
    /// How lines become durable, for the engines on mapped memory.
    flush_instruction: Option<FlushInstruction>,
}

impl Peer {
    /// `name` at `level` in `directory`, which exists; `None` if the engine does not have the level. Duramen is opened
    /// with `index`.
    pub fn new(
        name: Name,
        level: Level,
        directory: &Path,
        index: IndexKind,
        flush_instruction: Option<FlushInstruction>,
    ) -> Option<Self> {
        let (durability, directory) = (name.durability(level)?, directory.to_owned());
        Some(Self { name, level, durability, directory, index, flush_instruction })
    }

    /// Whether its scans are in key order.
    pub fn is_ordered(&self) -> bool {
        match self.name {
            Name::Duramen => self.index == IndexKind::Ordered,
            Name::Papaya => false,
            Name::RocksDb | Name::Lmdb | Name::Redb | Name::Fjall | Name::HyperKv | Name::HyperKvUndo => true,
        }
    }

    fn duramen(&self) -> Place {
        let durability = match self.level {
            Level::EveryWrite | Level::None => Durability::EveryWrite,
            Level::Interval => Durability::Interval(Duration::from_secs(1)),
        };
        // Without durability there is no medium either: all in memory, like the map.
        let medium = if self.level == Level::None { MediumKind::Volatile } else { MediumKind::Auto };
        Place {
            path: self.directory.join("duramen"),
            options: Options {
                durability,
                medium,
                index: self.index,
                flush_instruction: self.flush_instruction,
                ..Options::default()
            },
        }
    }

    fn hyper(&self, path: &Path, log: LogKind) -> Result<Placed> {
        Placed::make(path, &duramen_hyperkv::Options { log, ..Default::default() }, self.flush_instruction)
    }
}

fn held<'a, E: duramen_bench::kv::Engine + 'a>(
    engine: E,
    describe: &str,
    directory: fn(&E) -> &Directory,
) -> Box<dyn Opened + 'a> {
    let describe = format!("{describe}, in {}", directory(&engine).path().display());
    Box::new(Held { engine, medium_bytes: move |engine: &E| Some(directory(engine).bytes()), describe })
}

impl Contender for Peer {
    fn name(&self) -> String {
        self.name.text().into()
    }

    fn durability(&self) -> String {
        self.durability.into()
    }

    fn distinguishes_updates(&self) -> bool {
        self.name == Name::Duramen
    }

    fn open(&self, updates: bool) -> Result<Box<dyn Opened + '_>> {
        let path = self.directory.join(self.name.text());
        Ok(match self.name {
            Name::Duramen => Box::new(self.duramen().fresh(updates)?),
            Name::RocksDb => held(Rocks::open(&path, self.level)?, "RocksDB 7.8", |engine| &engine.directory),
            Name::Lmdb => {
                held(Lmdb::open(&path, self.level)?, "LMDB through heed 0.22", |engine| &engine.directory)
            }
            Name::Redb => held(Red::open(&path, self.level)?, "redb 4", |engine| &engine.directory),
            Name::Fjall => held(Fjall::open(&path, self.level)?, "fjall 3", |engine| &engine.directory),
            Name::HyperKv => {
                let engine = self.hyper(&path, LogKind::Redo)?;
                held(engine, "persistent skip list, redo log", |engine| &engine.directory)
            }
            Name::HyperKvUndo => {
                let engine = self.hyper(&path, LogKind::Undo)?;
                held(engine, "persistent skip list, undo log", |engine| &engine.directory)
            }
            Name::Papaya => Box::new(Held {
                engine: Map::default(),
                medium_bytes: |_: &Map| None,
                describe: "papaya 0.2, in memory".into(),
            }),
        })
    }
}
