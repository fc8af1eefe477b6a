//! Crashes at every persist point of random operations, and of the recoveries from them, on the simulated medium's
//! model of cache lines. Acknowledged writes are there, others are old or new, and the store still works. Processes are
//! also killed, and the power fails in the next one.
//!
//! More seeds: `HYPERKV_SEEDS=100 cargo test -p duramen-hyperkv survive`.

use super::{LEN_MAX, Planted, contents, options, sim};
use crate::{LogKind, Store};
use duramen_media::sim::{Choice, Log, Model, Rng, SimMedium, Walker};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

const KEYS: u64 = 14;
const OPS: usize = 45;
/// Images at one position.
const IMAGES: usize = 10;
/// Killed processes per seed.
const KILLS: usize = 12;

/// One write, with the events at which it began and ended.
struct Step {
    start: usize,
    end: usize,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// Counts of the tested cases.
#[derive(Default, Debug)]
struct Totals {
    points: u64,
    images: u64,
    /// Images whose recovery had entries to redo or undo.
    replayed: u64,
    /// Crashes within a recovery.
    nested: u64,
    /// Processes that were killed, with a power failure in the next one.
    killed: u64,
}

fn key(number: u64) -> Vec<u8> {
    // Nodes of one, two and four lines, so that blocks of several sizes are taken and freed.
    let pad = [0, 40, 170][(number % 3) as usize];
    [vec![b'k', number as u8], vec![b'.'; pad]].concat()
}

/// A random write of a key of thread `thread`.
fn write(rng: &mut Rng, thread: u64, threads: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let key = key(rng.below(KEYS / threads) * threads + thread);
    let byte = rng.bits() as u8;
    let value = (!rng.one_in(3)).then(|| vec![byte; [5, 30, 60, 130][rng.below(4) as usize]]);
    (key, value)
}

fn apply(store: &Store<SimMedium>, rng: &mut Rng, thread: u64, threads: u64, ops: usize) -> Vec<Step> {
    let mut session = store.session().unwrap();
    let mut steps = Vec::new();
    for _ in 0..ops {
        let (key, value) = write(rng, thread, threads);
        let start = store.medium().position();
        match &value {
            Some(value) => session.put(&key, value).unwrap(),
            None => _ = session.delete(&key),
        }
        steps.push(Step { start, end: store.medium().position(), key, value });
    }
    steps
}

/// The values that each key may have after a crash at `position`.
fn allowed(steps: &[Step], position: usize) -> BTreeMap<&[u8], Vec<Option<&[u8]>>> {
    let mut all: BTreeMap<&[u8], Vec<Option<&[u8]>>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.start < position) {
        let may = all.entry(&step.key).or_insert_with(|| vec![None]);
        if step.end <= position {
            may.clear();
        }
        may.push(step.value.as_deref());
    }
    all
}

fn check(found: &Entries, allowed: &BTreeMap<&[u8], Vec<Option<&[u8]>>>) -> Result<(), String> {
    let found: BTreeMap<&[u8], &[u8]> = found.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    if let Some(key) = found.keys().find(|key| !allowed.contains_key(*key)) {
        return Err(format!("key {} was never put", key[1]));
    }
    for (key, may) in allowed {
        let value = found.get(key).copied();
        if !may.contains(&value) {
            let tell = |value: Option<&[u8]>| {
                value.map_or("nothing".into(), |v| format!("{}×{:?}", v.len(), v.first()))
            };
            let wanted: Vec<String> = may.iter().map(|value| tell(*value)).collect();
            return Err(format!("key {} has {}, may have {}", key[1], tell(value), wanted.join(" or ")));
        }
    }
    Ok(())
}

fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let said = payload.downcast_ref::<String>().cloned();
        let said = said.or_else(|| payload.downcast_ref::<&str>().map(|said| (*said).to_owned()));
        Err(format!("panic: {}", said.unwrap_or_default()))
    })
}

/// The state of a run.
struct Explorer {
    log: LogKind,
    planted: Option<Planted>,
    rng: Rng,
    totals: Totals,
}

impl Explorer {
    fn open(&self, medium: SimMedium) -> Result<Store<SimMedium>, String> {
        let mut store = Store::open(medium, &options(self.log)).map_err(|error| error.to_string())?;
        store.planted = self.planted;
        Ok(store)
    }

    /// Opens an image and checks it; sometimes it also writes, to check that free blocks are free.
    fn look(&mut self, medium: SimMedium) -> Result<Entries, String> {
        let (goes_on, mut rng) = (self.rng.one_in(4), self.rng.fork());
        let (found, replayed) = caught(|| {
            let store = self.open(medium)?;
            let found = contents(&store);
            store.verify().map_err(|error| error.to_string())?;
            if goes_on {
                let mut model: BTreeMap<Vec<u8>, Vec<u8>> = found.iter().cloned().collect();
                for step in apply(&store, &mut rng, 0, 1, 30) {
                    match step.value {
                        Some(value) => _ = model.insert(step.key, value),
                        None => _ = model.remove(&step.key),
                    }
                }
                if !contents(&store).into_iter().eq(model) {
                    return Err("writes after recovery changed other keys".into());
                }
                store.verify().map_err(|error| error.to_string())?;
            }
            Ok((found, store.replayed()))
        })?;
        self.totals.images += 1;
        self.totals.replayed += u64::from(replayed > 0);
        Ok(found)
    }

    /// Crashes everywhere in `log` from `begin` on; `allowed` gives the values that a crash at a position may leave.
    fn crash_everywhere<'s>(
        &mut self,
        log: &Log,
        begin: usize,
        allowed: impl Fn(usize) -> BTreeMap<&'s [u8], Vec<Option<&'s [u8]>>>,
    ) -> Result<(), String> {
        let mut walker = Walker::new(log);
        walker.advance(begin);
        while let Some(position) = walker.next_point() {
            self.totals.points += 1;
            let allowed = allowed(position);
            for choice in walker.choices(&mut self.rng, IMAGES) {
                let told = |what| format!("at event {position}: {what}; {choice:?}");
                let (memory, len) = walker.form(&choice);
                let image = SimMedium::from_image(Model::CacheLine, LEN_MAX, memory, len);
                let found = self.look(image).map_err(told)?;
                check(&found, &allowed).map_err(told)?;
                if self.rng.one_in(12) {
                    self.crash_again(&mut walker, &choice, &found).map_err(told)?;
                }
            }
        }
        Ok(())
    }

    /// Kills the process at some positions. The next process sees every store of the first, durable or not; then the
    /// power fails in it.
    fn kill_somewhere(&mut self, log: &Log, steps: &[Step]) -> Result<(), String> {
        for _ in 0..KILLS {
            let killed = self.rng.below(log.events.len() as u64) as usize;
            let told = |what| format!("process killed at event {killed}: {what}");
            let (medium, mut rng) = (SimMedium::resume(log.up_to(killed)), self.rng.fork());
            let before = allowed(steps, killed);
            let (opened, after) = caught(|| {
                let store = self.open(medium.clone())?;
                let (opened, found) = (medium.position(), contents(&store));
                check(&found, &before)?;
                let found: BTreeMap<_, _> = found.into_iter().collect();
                let mut after: Vec<Step> = Vec::new();
                for key in before.keys() {
                    let value = found.get(*key).cloned();
                    after.push(Step { start: 0, end: opened, key: key.to_vec(), value });
                }
                after.extend(apply(&store, &mut rng, 0, 1, 4));
                Ok((opened, after))
            })
            .map_err(told)?;
            let log = medium.take_log();
            drop(medium);
            let may = |position| if position < opened { before.clone() } else { allowed(&after, position) };
            self.crash_everywhere(&log, killed, may).map_err(told)?;
            self.totals.killed += 1;
        }
        Ok(())
    }

    /// Crashes everywhere in the recovery of an image. The next recovery must find the same entries as the undisturbed
    /// one.
    fn crash_again(
        &mut self,
        walker: &mut Walker<'_>,
        choice: &Choice,
        wanted: &Entries,
    ) -> Result<(), String> {
        let (memory, len) = walker.form(choice);
        let medium = SimMedium::resume(Log::on(Model::CacheLine, LEN_MAX, memory.snapshot(), len));
        drop(memory);
        caught(|| self.open(medium.clone()).map(drop))?;
        let log = medium.take_log();
        let mut walker = Walker::new(&log);
        while let Some(position) = walker.next_point() {
            for choice in walker.choices(&mut self.rng, IMAGES / 2) {
                let (memory, len) = walker.form(&choice);
                let image = SimMedium::from_image(Model::CacheLine, LEN_MAX, memory, len);
                let told = |what| format!("crashed again at event {position} of the recovery: {what}");
                let found = self.look(image).map_err(told)?;
                self.totals.nested += 1;
                if found != *wanted {
                    return Err(told("it found other entries than before".into()));
                }
            }
        }
        Ok(())
    }
}

/// Runs one seed with so many threads.
fn run(seed: u64, log: LogKind, threads: u64, planted: Option<Planted>) -> Result<Totals, String> {
    let mut explorer = Explorer { log, planted, rng: Rng::new(seed), totals: Totals::default() };
    let medium = sim();
    let rngs: Vec<Rng> = (0..threads).map(|_| explorer.rng.fork()).collect();
    let steps = caught(|| {
        let store = explorer.open(medium.clone())?;
        let steps: Vec<Step> = std::thread::scope(|scope| {
            let work = |(thread, mut rng): (usize, Rng)| {
                let store = &store;
                scope.spawn(move || {
                    caught(|| Ok(apply(store, &mut rng, thread as u64, threads, OPS / threads as usize)))
                })
            };
            let running: Vec<_> = rngs.into_iter().enumerate().map(work).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<Vec<_>, _>>()
        })?
        .into_iter()
        .flatten()
        .collect();
        check(&contents(&store), &allowed(&steps, usize::MAX))
            .map_err(|what| format!("before a crash: {what}"))?;
        store.verify().map_err(|error| error.to_string())?;
        Ok(steps)
    })?;
    let log = medium.take_log();
    drop(medium);
    explorer.crash_everywhere(&log, 0, |position| allowed(&steps, position))?;
    explorer.kill_somewhere(&log, &steps)?;
    Ok(explorer.totals)
}

/// The seed in `HYPERKV_SEED`; otherwise as many seeds as `HYPERKV_SEEDS` says, or else `count`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let said = |name| std::env::var(name).ok().and_then(|said| said.parse::<u64>().ok());
    match said("HYPERKV_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + said("HYPERKV_SEEDS").unwrap_or(count),
    }
}

fn keeps_its_promises(test: &str, log: LogKind, threads: u64, count: u64) {
    let mut all = Totals::default();
    for seed in seeds(count) {
        let totals = run(seed, log, threads, None).unwrap_or_else(|what| {
            panic!(
                "seed {seed}: {what}\n  repeat with: HYPERKV_SEED={seed} cargo test -p duramen-hyperkv {test}"
            )
        });
        all.points += totals.points;
        all.images += totals.images;
        all.replayed += totals.replayed;
        all.nested += totals.nested;
        all.killed += totals.killed;
    }
    println!("{log:?}, {threads} threads: {all:?}");
    // Without entries to recover the test would prove nothing.
    assert!(all.replayed * 20 > all.images && all.nested > 0 && all.killed > 0, "{all:?}");
}

#[test]
fn the_redo_log_store_survives_a_crash_at_every_event() {
    keeps_its_promises("the_redo_log_store_survives_a_crash_at_every_event", LogKind::Redo, 1, 12);
}

#[test]
fn the_undo_log_store_survives_a_crash_at_every_event() {
    keeps_its_promises("the_undo_log_store_survives_a_crash_at_every_event", LogKind::Undo, 1, 12);
}

/// The seed does not determine how threads interleave: a failure may not repeat.
#[test]
fn the_writes_of_two_threads_survive_a_crash_at_every_event() {
    keeps_its_promises("the_writes_of_two_threads_survive_a_crash_at_every_event", LogKind::Redo, 2, 8);
    keeps_its_promises("the_writes_of_two_threads_survive_a_crash_at_every_event", LogKind::Undo, 2, 8);
}

fn is_caught(planted: Planted, log: LogKind) {
    let caught = (1..=40).find_map(|seed| run(seed, log, 1, Some(planted)).err().map(|what| (seed, what)));
    match caught {
        Some((seed, what)) => {
            println!("{planted:?} ({log:?}) is caught by seed {seed}: {}", what.lines().next().unwrap_or(""))
        }
        None => panic!("{planted:?} ({log:?}) is not caught by 40 seeds"),
    }
}

#[test]
fn an_entry_that_is_active_before_its_checksum_is_durable_is_caught() {
    is_caught(Planted::ActiveBeforeChecksum, LogKind::Redo);
    is_caught(Planted::ActiveBeforeChecksum, LogKind::Undo);
}

#[test]
fn a_node_that_is_linked_before_it_is_persisted_is_caught() {
    is_caught(Planted::LinkedBeforePersisted, LogKind::Redo);
}

#[test]
fn a_free_list_that_hands_a_block_out_twice_is_caught() {
    is_caught(Planted::HandedOutTwice, LogKind::Redo);
    is_caught(Planted::HandedOutTwice, LogKind::Undo);
}
