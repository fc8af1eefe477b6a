//! `cargo xtask torture`: writes, kills, restarts, and compares the store with the acknowledged operations.
//!
//! It has two parts, which differ only in the interface they write through. [`sockets`] has clients of `duramen serve`;
//! [`library`] and [`child`] have threads of a child process that uses the `duramen` crate. Both are killed by SIGKILL
//! at random times, sometimes while the store is being created or recovered, and restart with the same store.
//! [`history`] defines the states that a crash may leave.
//!
//! SIGKILL tests what survives the process, not what survives power loss: memory and page cache stay whole. The seed
//! repeats the operations and the times between kills, not the scheduler's choices.

pub mod child;
mod content;
mod evicting;
mod examine;
pub mod history;
mod items;
mod journal;
mod known;
mod library;
mod own_bytes;
mod sockets;
mod visitors;
mod waiters;
pub mod witness;
mod workload;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failure::{Attempt, Result};
use crate::server::duramen_program;
use history::{Additions, Fault, History, Promise, Violation, Window};
use workload::{Door, SHARED_COUNTERS};

/// The store's medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Medium {
    /// A directory of /dev/shm
    Shm,
    /// A directory of the file system for temporary files
    File,
}

impl Medium {
    fn name(self) -> &'static str {
        match self {
            Medium::Shm => "shm",
            Medium::File => "file",
        }
    }

    fn kind(self) -> duramen::MediumKind {
        match self {
            Medium::Shm => duramen::MediumKind::Shm,
            Medium::File => duramen::MediumKind::File,
        }
    }
}

/// The store's durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Durability {
    /// Each operation is durable when it returns
    EveryWrite,
    /// Epochs of 50 ms
    Interval,
    /// Only commits make writes durable
    Manual,
}

impl Durability {
    fn name(self) -> &'static str {
        match self {
            Durability::EveryWrite => "every-write",
            Durability::Interval => "50ms",
            Durability::Manual => "manual",
        }
    }

    /// The value as an argument of the child.
    fn argument(self) -> &'static str {
        match self {
            Durability::Interval => "interval",
            other => other.name(),
        }
    }

    fn of_store(self) -> duramen::Durability {
        match self {
            Durability::EveryWrite => duramen::Durability::EveryWrite,
            Durability::Interval => duramen::Durability::Interval(Duration::from_millis(50)),
            Durability::Manual => duramen::Durability::Manual,
        }
    }
}

/// The interface that writers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Clients of `duramen serve`
    Sockets,
    /// The `duramen` crate
    Library,
    /// Clients of `duramen serve` with a memory limit, which evicts
    Evicting,
    /// Sockets and library, half the time each
    Both,
}

#[derive(clap::Args)]
pub struct Settings {
    /// Duration
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Medium of the store
    #[arg(long, value_enum, default_value = "shm")]
    pub medium: Medium,
    /// The store's durability
    #[arg(long, value_enum, default_value = "every-write")]
    pub durability: Durability,
    /// Kind of index: hash or ordered
    #[arg(long, default_value_t = duramen::IndexKind::Hash)]
    pub index: duramen::IndexKind,
    /// Where the index is kept: dram, or persistent (here with a checkpoint for each MiB written)
    #[arg(long, default_value_t = duramen::Residence::Dram)]
    pub residence: duramen::Residence,
    /// Repeats the operations and pauses of an earlier run [default: from the clock]
    #[arg(long, default_value_t = crate::random::fresh_seed(), hide_default_value = true)]
    pub seed: u64,
    /// Threads that write
    #[arg(long, default_value_t = 4)]
    pub writers: usize,
    /// The interface that the writers use
    #[arg(long, value_enum, default_value = "both")]
    pub part: Part,
    /// The duramen program [default: built now]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
}

impl Settings {
    fn promise(&self) -> Promise {
        Promise {
            // The page cache outlives the process, so an interval loses nothing to SIGKILL.
            on_acknowledge: self.durability != Durability::Manual,
            prefix: self.durability != Durability::EveryWrite,
        }
    }

    /// The histories of writers that have written nothing yet.
    fn histories(&self, door: Door) -> Vec<History> {
        let history = |writer| History::new(self.promise(), workload::units(writer, door), SHARED_COUNTERS);
        (0..self.writers).map(history).collect()
    }

    /// Opens a store that nobody has open, reports counts that differ from its blocks, and closes it.
    fn audit(&self, path: &Path, tally: &mut Tally) -> Result<()> {
        let store = match child::open(path, self.medium, self.durability, self.index, self.residence) {
            Ok(store) => store,
            Err(failure) => {
                tally.violations.push(Violation { fault: Fault::Refused, what: failure.to_string() });
                return Ok(());
            }
        };
        tally.audit(&store);
        store.close_discarding().attempt(|| "close the store".to_owned())
    }

    /// Longest time between two kills: at least ten kills in the shortest run.
    fn working_ms_max(&self) -> u64 {
        (self.seconds * 1000 / 20).clamp(100, 1500)
    }
}

/// The work and the findings of a part.
#[derive(Default)]
struct Tally {
    kills: u64,
    /// Kills while the store was created or recovered.
    kills_starting: u64,
    clean_stops: u64,
    stores: u64,
    acknowledged: u64,
    reads: u64,
    /// Stores whose counts were compared with their blocks.
    audits: u64,
    /// Stores that were checked in the state that a kill left.
    checks: u64,
    /// Salvaged copies of them with the same content as the store.
    salvaged: u64,
    violations: Vec<Violation>,
    /// The directory of the store that has a finding.
    kept: Option<PathBuf>,
}

impl Tally {
    fn add_counts(&mut self, histories: &[History]) {
        for (acknowledged, reads) in histories.iter().map(History::counts) {
            self.acknowledged += acknowledged;
            self.reads += reads;
        }
    }

    /// Compares the counts of a store that nobody writes to with its blocks.
    fn audit(&mut self, store: &duramen::Store) {
        self.audits += 1;
        let violation = |what| Violation { fault: Fault::Miscounted, what };
        self.violations.extend(store.audit().into_iter().map(violation));
    }

    fn print(&self, part: &str) {
        // A broken store breaks many promises at once; the first few suffice.
        const SHOWN: usize = 12;
        for violation in self.violations.iter().take(SHOWN) {
            println!("{part}: {violation}");
        }
        if self.violations.len() > SHOWN {
            println!("{part}: and {} more", self.violations.len() - SHOWN);
        }
        if let Some(directory) = &self.kept {
            println!("{part}: the store is kept in {}", directory.display());
        }
        let count = |fault| self.violations.iter().filter(|violation| violation.fault == fault).count();
        println!(
            "{part}: {} kills ({} while starting), {} clean stops, {} stores, {} acknowledged operations, \
             {} reads checked, {} audits, {} stores checked after a kill, {} salvaged: {} lost, {} resurrected, {} torn, \
             {} broken batches, {} holes, {} refused, {} miscounted, {} repeated, {} damaged",
            self.kills,
            self.kills_starting,
            self.clean_stops,
            self.stores,
            self.acknowledged,
            self.reads,
            self.audits,
            self.checks,
            self.salvaged,
            count(Fault::Lost),
            count(Fault::Resurrected),
            count(Fault::Torn),
            count(Fault::BrokenBatch),
            count(Fault::Hole),
            count(Fault::Refused),
            count(Fault::Miscounted),
            count(Fault::Repeated),
            count(Fault::Damaged),
        );
    }
}

/// Runs the torture and prints the results. Returns whether there were no findings.
pub fn run(settings: &Settings) -> Result<bool> {
    println!(
        "torture: medium {}, durability {}, index {}, residence {}, {} writers, {} s, seed {}",
        settings.medium.name(),
        settings.durability.name(),
        settings.index,
        settings.residence,
        settings.writers,
        settings.seconds,
        settings.seed
    );
    let share = match settings.part {
        Part::Both => Duration::from_secs(settings.seconds) / 2,
        _ => Duration::from_secs(settings.seconds),
    };
    let mut clean = true;
    if settings.part == Part::Evicting {
        let program = duramen_program(settings.duramen.clone())?;
        let tally = evicting::run(settings, &program, Instant::now() + share)?;
        tally.print("evicting");
        clean &= tally.violations.is_empty();
    }
    if matches!(settings.part, Part::Sockets | Part::Both) {
        let program = duramen_program(settings.duramen.clone())?;
        let tally = sockets::run(settings, &program, Instant::now() + share)?;
        tally.print("sockets");
        clean &= tally.violations.is_empty();
    }
    if matches!(settings.part, Part::Library | Part::Both) {
        let tally = library::run(settings, Instant::now() + share)?;
        tally.print("library");
        clean &= tally.violations.is_empty();
    }
    if !clean {
        println!("torture: run again with --seed {}", settings.seed);
    }
    Ok(clean)
}

/// A directory for a store and its logs, removed at the end unless the run found a fault in it.
struct StoreDirectory(tempfile::TempDir);

impl StoreDirectory {
    fn new(medium: Medium) -> Result<StoreDirectory> {
        let parent = match medium {
            Medium::Shm => PathBuf::from("/dev/shm"),
            Medium::File => std::env::temp_dir(),
        };
        let directory = tempfile::Builder::new()
            .prefix("duramen-torture-")
            .tempdir_in(&parent)
            .attempt(|| format!("make a directory for the store in {}", parent.display()))?;
        Ok(StoreDirectory(directory))
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    /// The directory for a salvaged copy of the store.
    fn salvaged(&self) -> PathBuf {
        self.0.path().join("salvaged")
    }

    fn log(&self) -> PathBuf {
        self.0.path().join("log")
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn keep(self) -> PathBuf {
        self.0.keep()
    }
}

fn sum_additions(histories: &[History], counter: usize) -> Additions {
    let mut sum = Additions::default();
    for additions in histories.iter().filter_map(|history| history.additions().get(counter)) {
        sum.sent += additions.sent;
        sum.acked += additions.acked;
        sum.committed += additions.committed;
    }
    sum
}

/// Checks that a scan returns exactly the keys that must be there.
fn check_scan(
    histories: &[History],
    keys: &HashSet<Vec<u8>>,
    window: Window,
    violations: &mut Vec<Violation>,
) {
    for key in keys {
        let known = histories.iter().find_map(|history| history.in_scan(key, window));
        let shared = (0..SHARED_COUNTERS).any(|counter| workload::shared_key(counter) == *key);
        if !shared && !known.is_some_and(|(may, _)| may) {
            violations.push(Violation {
                fault: Fault::Resurrected,
                what: format!("a scan returns {}, which a read does not find", key.escape_ascii()),
            });
        }
    }
    for history in histories {
        for key in history.units().flat_map(|unit| &unit.keys) {
            if history.in_scan(key, window).is_some_and(|(_, must)| must) && !keys.contains(key) {
                violations.push(Violation {
                    fault: Fault::Lost,
                    what: format!("a scan does not return {}, which a read finds", key.escape_ascii()),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::content::{Content, Form};
    use super::history::{Event, State, Unit};
    use super::*;

    #[test]
    fn scan_that_shows_too_much_or_too_little_is_reported() {
        let promise = Promise { on_acknowledge: true, prefix: false };
        let unit = |key: &str| Unit { form: Form::Stamped, keys: vec![key.as_bytes().to_vec()] };
        let mut history = History::new(promise, vec![unit("here"), unit("gone")], 0);
        let states = vec![State::lasting(Content::Stamped { seq: 1, len: 50 })];
        history.apply(&Event::Sent { op: 1, unit: 0, at: 5, states });
        history.apply(&Event::Acked { op: 1, at: 6 });
        let histories = [history];
        let faults = |keys: &[&str]| {
            let keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
            let mut violations = Vec::new();
            check_scan(&histories, &keys, Window { from: 10, to: 11 }, &mut violations);
            violations.into_iter().map(|violation| violation.fault).collect::<Vec<_>>()
        };
        assert_eq!(faults(&["here", "shared:0"]), []);
        assert_eq!(faults(&["here", "gone"]), [Fault::Resurrected]);
        assert_eq!(faults(&["here", "stranger"]), [Fault::Resurrected]);
        assert_eq!(faults(&[]), [Fault::Lost]);
    }
}
