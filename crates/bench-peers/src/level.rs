//! The failures that a write survives: engines are compared only at the same level.

use std::fmt;
use std::str::FromStr;

/// When an acknowledged write survives which failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A power failure, when the call returns.
    EveryWrite,
    /// A power failure some time later; [`Name::durability`] says what each engine survives at once.
    Interval,
    /// Nothing: everything is in memory.
    None,
}

impl FromStr for Level {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "every-write" => Ok(Self::EveryWrite),
            "interval" => Ok(Self::Interval),
            "none" => Ok(Self::None),
            _ => Err(format!("durability {name:?} is unknown; use every-write, interval or none")),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EveryWrite => "every-write",
            Self::Interval => "interval",
            Self::None => "none",
        })
    }
}

/// The engines, in the order in which they take their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// This project's.
    Duramen,
    /// A log-structured merge tree.
    RocksDb,
    /// A copy-on-write tree in a memory map.
    Lmdb,
    /// A copy-on-write tree in Rust.
    Redb,
    /// A log-structured merge tree in Rust.
    Fjall,
    /// A concurrent hash map in memory.
    Papaya,
    /// A persistent skip list in place, with a redo log of actions. It takes part only if named.
    HyperKv,
    /// The same skip list with an undo log of copies.
    HyperKvUndo,
}

impl Name {
    /// All engines.
    pub const ALL: [Self; 8] = [
        Self::Duramen,
        Self::RocksDb,
        Self::Lmdb,
        Self::Redb,
        Self::Fjall,
        Self::Papaya,
        Self::HyperKv,
        Self::HyperKvUndo,
    ];

    /// Whether it takes part only if named: it runs on memory alone, and the default is a disk.
    pub fn lies_on_memory_alone(self) -> bool {
        matches!(self, Self::HyperKv | Self::HyperKvUndo)
    }

    /// The name in options and tables.
    pub fn text(self) -> &'static str {
        match self {
            Self::Duramen => "duramen",
            Self::RocksDb => "rocksdb",
            Self::Lmdb => "lmdb",
            Self::Redb => "redb",
            Self::Fjall => "fjall",
            Self::Papaya => "papaya",
            Self::HyperKv => "hyperkv",
            Self::HyperKvUndo => "hyperkv-undo",
        }
    }

    /// The failures that its writes survive at `level`, in words; `None` if it does not have the level.
    pub fn durability(self, level: Level) -> Option<&'static str> {
        use Level::{EveryWrite, Interval};
        Some(match (self, level) {
            (Self::Papaya | Self::Duramen, Level::None) => "none: in memory",
            (_, Level::None) | (Self::Papaya, _) => return None,
            (Self::HyperKv, EveryWrite) => "every-write: in place, redo log, three drains",
            (Self::HyperKvUndo, EveryWrite) => "every-write: in place, undo log, three drains",
            (Self::HyperKv | Self::HyperKvUndo, Interval) => return None,
            (Self::Duramen, EveryWrite) => "every-write: a wait for the device shared by a group",
            (Self::RocksDb, EveryWrite) => "every-write: WAL synced, group commit",
            (Self::Lmdb, EveryWrite) => "every-write: each transaction synced",
            (Self::Redb, EveryWrite) => "every-write: Durability::Immediate",
            (Self::Fjall, EveryWrite) => "every-write: journal, SyncData",
            (Self::Duramen, Interval) => "kill at once, power after 1 s, a prefix in time",
            (Self::RocksDb, Interval) => "kill at once, power when the kernel wrote the WAL, a prefix",
            (Self::Lmdb, Interval) => "kill at once; NOSYNC: power may damage the whole",
            (Self::Redb, Interval) => "kill and power after 1 s: Durability::None, one Immediate a second",
            (Self::Fjall, Interval) => "kill at once, power when the kernel wrote the journal",
        })
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|engine| engine.text() == name).ok_or_else(|| {
            let all: Vec<&str> = Self::ALL.into_iter().map(Self::text).collect();
            format!("engine {name:?} is unknown; use {}", all.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_in_memory_is_not_compared_with_one_on_a_disk() {
        for level in [Level::EveryWrite, Level::Interval] {
            assert_eq!(Name::Papaya.durability(level), None);
            let on_disk = |name: &&Name| name.durability(level).is_some() && !name.lies_on_memory_alone();
            assert!(Name::ALL.iter().filter(on_disk).count() == 5);
        }
        assert_eq!(Name::RocksDb.durability(Level::None), None);
    }

    #[test]
    fn names_read_back_and_unknown_ones_are_reported() {
        for name in Name::ALL {
            assert_eq!(name.text().parse::<Name>(), Ok(name));
        }
        assert!("mysql".parse::<Name>().unwrap_err().contains("rocksdb"));
        assert!("never".parse::<Level>().unwrap_err().contains("every-write"));
    }
}
