//! The torture through the library: the parent of the process that is killed.
//!
//! The parent keeps the histories. When a child is gone, the parent reads its journals. Now and then it opens the store
//! itself, reads everything, scans it, and closes it cleanly. Otherwise the next child opens the store as the last one
//! left it, so that crash follows crash.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::child;
use super::content::{self, Content};
use super::history::{Event, Fault, History, Violation, Window, check_shared, now_ms};
use super::journal;
use super::workload::{Door, SHARED_COUNTERS, shared_key};
use super::{Settings, StoreDirectory, Tally};
use crate::failure::{Attempt, Failure, Result};
use crate::random::Random;
use crate::server::wait_for_end;

/// Longest wait for a child to end without a kill.
const PATIENCE: Duration = Duration::from_secs(30);

struct Arena<'a> {
    settings: &'a Settings,
    directory: StoreDirectory,
    histories: Vec<History>,
    shared: Vec<i64>,
}

/// Runs until the time is over or there is a violation.
pub fn run(settings: &Settings, until: Instant) -> Result<Tally> {
    let mut random = Random::new(settings.seed ^ 0x6c69_6272);
    let mut tally = Tally::default();
    let mut arena = Arena::new(settings)?;
    let mut creating = true;
    while creating || (Instant::now() < until && tally.violations.is_empty()) {
        arena.round(&mut random, &mut tally, creating)?;
        creating = false;
        if tally.violations.is_empty() && random.one_in(8) {
            arena.verify(&mut tally, true)?;
            if tally.violations.is_empty() {
                tally.stores += 1;
                tally.add_counts(&arena.histories);
                arena = Arena::new(settings)?;
                creating = true;
            }
        }
    }
    if tally.violations.is_empty() {
        arena.verify(&mut tally, true)?;
    }
    tally.stores += 1;
    tally.add_counts(&arena.histories);
    if !tally.violations.is_empty() {
        tally.kept = Some(arena.directory.keep());
    }
    Ok(tally)
}

impl<'a> Arena<'a> {
    fn new(settings: &'a Settings) -> Result<Arena<'a>> {
        Ok(Arena {
            settings,
            directory: StoreDirectory::new(settings.medium)?,
            histories: settings.histories(Door::Library),
            shared: vec![0; SHARED_COUNTERS],
        })
    }

    /// Runs children that are killed early, then one that works for a while.
    fn round(&mut self, random: &mut Random, tally: &mut Tally, creating: bool) -> Result<()> {
        let cut_short = if creating || random.one_in(4) { random.below(3) } else { 0 };
        for _ in 0..cut_short {
            tally.kills_starting += 1;
            self.child(random.any(), Duration::from_micros(random.below(40_000)), false, tally)?;
        }
        let working = Duration::from_millis(30 + random.below(self.settings.working_ms_max()));
        self.child(random.any(), working, random.one_in(8), tally)?;
        if random.one_in(3) {
            self.verify(tally, random.one_in(4))?;
        }
        Ok(())
    }

    /// Runs one child for a time, ends it, and reads its journals.
    fn child(&mut self, seed: u64, time: Duration, end_cleanly: bool, tally: &mut Tally) -> Result<()> {
        if !tally.violations.is_empty() {
            return Ok(());
        }
        for number in 0..self.settings.writers {
            let path = child::journal_path(self.directory.path(), number);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Failure::new(format!("cannot remove {}: {error}", path.display())));
                }
                _ => {}
            }
        }
        let log = self.directory.log();
        let stderr = File::create(&log).attempt(|| format!("write {}", log.display()))?;
        let own = std::env::current_exe().attempt(|| "find this program's own path".to_owned())?;
        let first_op = self.histories.iter().map(History::next_op).max().unwrap_or(1);
        let mut child = Command::new(own)
            .arg("torture-child")
            .arg("--store")
            .arg(self.directory.store())
            .args(["--medium", self.settings.medium.name()])
            .args(["--durability", self.settings.durability.argument()])
            .args(["--index", self.settings.index.name()])
            .args(["--residence", self.settings.residence.name()])
            .args(["--writers", &self.settings.writers.to_string(), "--seed", &seed.to_string()])
            .arg("--journals")
            .arg(self.directory.path())
            .args(["--first-op", &first_op.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .attempt(|| "start the child".to_owned())?;
        thread::sleep(time);
        let with_kind = |what: &str| {
            let words = fs::read(&log).unwrap_or_default();
            Violation { fault: Fault::Refused, what: format!("{what}: {}", String::from_utf8_lossy(&words)) }
        };
        if child.try_wait().attempt(|| "wait for the child".to_owned())?.is_some() {
            tally.violations.push(with_kind("the child ended unexpectedly"));
        } else if end_cleanly {
            tally.clean_stops += 1;
            // The child has audited, and would have failed otherwise.
            tally.audits += 1;
            drop(child.stdin.take());
            let status = wait_for_end(&mut child, PATIENCE).attempt(|| "wait for the child".to_owned())?;
            if !status.is_some_and(|status| status.success()) {
                tally
                    .violations
                    .push(with_kind(&format!("the child should close the store and end, found {status:?}")));
            }
        } else {
            tally.kills += 1;
        }
        // Fails only if the child is gone already.
        let _ = child.kill();
        child.wait().attempt(|| "wait for the child".to_owned())?;
        self.take_in(tally)?;
        self.settings.check(&self.directory.store(), tally);
        Ok(())
    }

    fn take_in(&mut self, tally: &mut Tally) -> Result<()> {
        for (number, history) in self.histories.iter_mut().enumerate() {
            history.crashed();
            let path = child::journal_path(self.directory.path(), number);
            // A child killed early has not created its journal.
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let events = journal::parse(&text)
                .map_err(|line| Failure::new(format!("cannot read {}: {line}", path.display())))?;
            events.iter().for_each(|event| history.apply(event));
            tally.violations.append(&mut history.take_violations());
        }
        Ok(())
    }

    /// Compares the whole store with the histories, and before that the whole salvaged copy.
    fn verify(&mut self, tally: &mut Tally, salvage: bool) -> Result<()> {
        let (store, salvaged) = (self.directory.store(), self.directory.salvaged());
        if salvage && tally.violations.is_empty() && self.settings.salvage(&store, &salvaged, tally) {
            self.verify_at(&salvaged, tally)?;
            fs::remove_file(&salvaged).attempt(|| format!("remove {}", salvaged.display()))?;
        }
        self.verify_at(&store, tally)
    }

    /// Opens a store and compares all of it with the histories.
    fn verify_at(&mut self, path: &Path, tally: &mut Tally) -> Result<()> {
        if !tally.violations.is_empty() {
            return Ok(());
        }
        let settings = self.settings;
        let store =
            match child::open(path, settings.medium, settings.durability, settings.index, settings.residence)
            {
                Ok(store) => store,
                Err(failure) => {
                    tally.violations.push(Violation { fault: Fault::Refused, what: failure.to_string() });
                    return Ok(());
                }
            };
        let read = |form, key: &[u8]| -> Result<Content> {
            let value = store.get(key).attempt(|| format!("read {}", key.escape_ascii()))?;
            Ok(content::decode(form, key, value.as_ref().map(|value| value.bytes())))
        };
        for history in &mut self.histories {
            history.crashed();
            for number in 0..history.units().count() {
                let Some(unit) = history.unit(number) else { continue };
                let from = now_ms();
                let found: Result<Vec<Content>> =
                    unit.keys.iter().enumerate().map(|(at, key)| read(unit.form_of(at), key)).collect();
                let (found, window) = (found?, Window { from, to: now_ms() });
                history.apply(&Event::Recovered { unit: number, window, found });
            }
            tally.violations.append(&mut history.take_violations());
        }
        for (counter, base) in self.shared.iter_mut().enumerate() {
            let found = read(content::Form::Word, &shared_key(counter))?;
            let additions = super::sum_additions(&self.histories, counter);
            tally.violations.extend(check_shared(counter, *base, &found, additions));
            *base = if let Content::Number(number) = found { number } else { 0 };
        }
        self.histories.iter_mut().for_each(History::forget_additions);

        let from = now_ms();
        let mut keys = HashSet::new();
        let mut cursor = 0;
        loop {
            let mut visit = |value: &duramen::Value<'_>| {
                keys.insert(value.key().to_vec());
            };
            cursor = store.scan(cursor, 500, &mut visit).attempt(|| "scan the store".to_owned())?;
            if cursor == 0 {
                break;
            }
        }
        super::check_scan(&self.histories, &keys, Window { from, to: now_ms() }, &mut tally.violations);
        tally.audit(&store);
        store.close_discarding().attempt(|| "close the store".to_owned())
    }
}
