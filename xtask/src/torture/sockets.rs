//! The torture over sockets: clients of `duramen serve`; the server is killed while they write.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::history::{Fault, Violation};
use super::waiters::Queue;
use super::witness::{PATIENCE, Witness};
use super::{Durability, Settings, StoreDirectory, Tally, visitors};
use crate::failure::{Attempt, Result};
use crate::random::Random;
use crate::server::{Readiness, Server};

/// Longest time between two audits.
const AUDIT_TIME_MAX: Duration = Duration::from_secs(60);

/// A store, its server while one runs, and the records of all writes to it.
struct Arena<'a> {
    settings: &'a Settings,
    program: &'a PathBuf,
    directory: StoreDirectory,
    witness: Witness,
    queue: Queue,
    audited: Instant,
}

/// Runs until the time is over or there is a violation.
pub fn run(settings: &Settings, program: &PathBuf, until: Instant) -> Result<Tally> {
    let mut random = Random::new(settings.seed);
    let mut tally = Tally::default();
    let mut arena = Arena::new(settings, program)?;
    arena.round(&mut random, &mut tally, true)?;
    while Instant::now() < until && tally.violations.is_empty() {
        if random.one_in(8) {
            // During creation crashes are least expected.
            tally.stores += 1;
            tally.add_counts(&arena.witness.histories);
            arena = Arena::new(settings, program)?;
            arena.round(&mut random, &mut tally, true)?;
        } else {
            arena.round(&mut random, &mut tally, false)?;
        }
    }
    tally.stores += 1;
    tally.add_counts(&arena.witness.histories);
    if !tally.violations.is_empty() {
        tally.kept = Some(arena.directory.keep());
    }
    Ok(tally)
}

impl<'a> Arena<'a> {
    fn new(settings: &'a Settings, program: &'a PathBuf) -> Result<Arena<'a>> {
        Ok(Arena {
            settings,
            program,
            directory: StoreDirectory::new(settings.medium)?,
            witness: Witness::new(settings.promise(), settings.writers),
            queue: Queue::default(),
            audited: Instant::now(),
        })
    }

    fn start(&self) -> Result<Server> {
        self.start_at(&self.directory.store())
    }

    fn start_at(&self, store: &Path) -> Result<Server> {
        let store = store.display().to_string();
        let checkpoint_bytes = super::child::CHECKPOINT_BYTES.to_string();
        let settings = [
            "--duramen-path",
            &store,
            "--duramen-medium",
            self.settings.medium.name(),
            "--duramen-durability",
            self.settings.durability.name(),
            "--duramen-index",
            self.settings.index.name(),
            "--duramen-residence",
            self.settings.residence.name(),
            "--duramen-checkpoint-bytes",
            &checkpoint_bytes,
        ];
        let settings = [&settings[..], &visitors::DIRECTIVES].concat();
        Server::start_duramen(self.program, &settings, &self.directory.log())
    }

    /// Starts a server on the store at `path` and verifies its content; `None` if there is a violation.
    fn verified(&mut self, path: &Path, tally: &mut Tally) -> Result<Option<Server>> {
        if !tally.violations.is_empty() {
            return Ok(None);
        }
        let mut server = self.start_at(path)?;
        let readiness = server.wait_ready(PATIENCE)?;
        if !matches!(readiness, Readiness::Ready) {
            let words = server.last_words();
            let what = format!("the store did not open again ({readiness}); last words:\n{words}");
            tally.violations.push(Violation { fault: Fault::Refused, what });
            return Ok(None);
        }
        tally.violations.append(&mut self.witness.verify(server.port())?);
        if self.settings.promise().on_acknowledge {
            tally.violations.append(&mut self.queue.verify(server.port()));
        }
        Ok(tally.violations.is_empty().then_some(server))
    }

    /// The salvaged copy must equal the store, which is verified next.
    fn salvage(&mut self, tally: &mut Tally) -> Result<()> {
        let (store, salvaged) = (self.directory.store(), self.directory.salvaged());
        if self.settings.salvage(&store, &salvaged, tally)
            && let Some(mut server) = self.verified(&salvaged, tally)?
        {
            server.kill()?;
            fs::remove_file(&salvaged).attempt(|| format!("remove {}", salvaged.display()))?;
        }
        Ok(())
    }

    /// Starts the server (perhaps after starts that were cut short), verifies, writes, and ends the server cleanly or
    /// by a kill.
    fn round(&mut self, random: &mut Random, tally: &mut Tally, creating: bool) -> Result<()> {
        let cut_short = if creating || random.one_in(4) { random.below(3) } else { 0 };
        for _ in 0..cut_short {
            let mut server = self.start()?;
            thread::sleep(Duration::from_micros(random.below(60_000)));
            server.kill()?;
            tally.kills += 1;
            tally.kills_starting += 1;
        }
        let store = self.directory.store();
        if !creating {
            self.settings.check(&store, tally);
            if random.one_in(8) {
                self.salvage(tally)?;
            }
        }
        let Some(mut server) = self.verified(&store, tally)? else { return Ok(()) };
        let working = Duration::from_millis(10 + random.below(self.settings.working_ms_max()));
        let end_cleanly = random.one_in(8);
        let commits = self.settings.durability == Durability::Manual;
        let port = server.port();
        let mut visitors = Random::new(random.any());
        let (witness, queue) = (&mut self.witness, &mut self.queue);
        let end = || -> Result<()> {
            tally.violations.extend(visitors::visit(port, &mut visitors));
            thread::sleep(working);
            if end_cleanly {
                tally.clean_stops += 1;
                match server.terminate(PATIENCE)? {
                    Some(status) if status.success() => {}
                    other => tally.violations.push(Violation {
                        fault: Fault::Refused,
                        what: format!(
                            "SIGTERM should end the server cleanly, found {other:?}:\n{}",
                            server.last_words()
                        ),
                    }),
                }
            } else {
                if let Some(status) = server.exited()? {
                    tally.violations.push(Violation {
                        fault: Fault::Refused,
                        what: format!("the server ended unexpectedly ({status}):\n{}", server.last_words()),
                    });
                }
                tally.kills += 1;
            }
            // This also ends the writers.
            server.kill()
        };
        queue.work(port, || witness.write(port, Some(&store), random, commits, end))?;
        tally.violations.append(&mut self.witness.take_violations());
        // A clean end leaves the server's counts in the index checkpoint; after a kill they come from recovery.
        if end_cleanly || self.audited.elapsed() >= AUDIT_TIME_MAX {
            self.audited = Instant::now();
            self.settings.audit(&self.directory.store(), tally)?;
        }
        Ok(())
    }
}
