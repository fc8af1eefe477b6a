//! Small stores that evict, below a limit: keys are put continuously, pinned by readers, deleted, and read.
//!
//! After a crash a key may hold the last written value, the value of a write in flight, or nothing if it was evicted.
//! It never holds an older value, nor one that was deleted, even if that had been evicted before. Collections are
//! present completely or not at all. Tables that may not evict lose nothing. Without a crash, each key is present until
//! the store reports its eviction.

use crate::explore::{Totals, Violation, caught};
use duramen::tuning::Tuning;
use duramen::{
    Batch, Durability, ElementOrder, ErrorKind, EvictBy, Evicted, Eviction, IndexKind, Meta, Options,
    Residence, StoreOn, TableOn, Value,
};
use duramen_media::sim::{Choice, Log, Memory, Model, Rng, SimMedium, Walker};
use std::sync::{Arc, Mutex, PoisonError};

type Sim = StoreOn<SimMedium>;

/// Tables: the store's own and a named one, which evict, and one that does not.
const TABLES: usize = 3;
const NAMES: [&[u8]; TABLES] = [b"", b"cache", b"kept"];
const KEPT: usize = 2;
/// Elements of a collection.
const ELEMENTS: u64 = 5;
/// Positions of one session that are crashed at, and images at each.
const POINTS: usize = 24;
const IMAGES: usize = 4;
/// An expiry that never comes.
const FAR: u64 = 1 << 50;
const NOW: u64 = 1_000_000;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Plain(Vec<u8>),
    /// The value of each element.
    Elements(Vec<Vec<u8>>),
}

/// One thing that happened to a key.
#[derive(Clone, Debug)]
struct Change {
    start: usize,
    /// When it was acknowledged.
    end: usize,
    /// Nothing: it was deleted, or evicted.
    to: Option<Content>,
    evicted: bool,
}

/// A run.
struct Run {
    seed: u64,
    model: Model,
    extent_bytes: u64,
    extents: u64,
    keys: usize,
    index: IndexKind,
    residence: Residence,
    eviction: Eviction,
    hash_mask: u64,
    image: bool,
    collections: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6576_6963_7400);
        // Recency, the first of all, comes twice.
        let by = EvictBy::ALL[(rng.below(1 + EvictBy::ALL.len() as u64) as usize).saturating_sub(1)];
        let extent_bytes = [512, 512, 1024][rng.below(3) as usize];
        Self {
            seed,
            model: [Model::CacheLine, Model::CacheLine, Model::Byte, Model::Page][rng.below(4) as usize],
            extent_bytes,
            extents: (16u64 << 10).div_ceil(extent_bytes) + 10 + rng.below(14),
            keys: 5 + rng.below(20) as usize,
            index: if rng.one_in(2) { IndexKind::Ordered } else { IndexKind::Hash },
            residence: if rng.one_in(3) { Residence::Persistent } else { Residence::Dram },
            eviction: Eviction { by, volatile_only: by == EvictBy::Expiry || rng.one_in(3) },
            hash_mask: [u64::MAX, u64::MAX, 1 << 63 | 1][rng.below(3) as usize],
            image: rng.one_in(2),
            collections: rng.one_in(2),
        }
    }

    fn len_max(&self) -> u64 {
        // More than the limit, so that it is the limit that counts.
        ((self.extents + 40) * self.extent_bytes).next_multiple_of(4096)
    }

    fn options(&self, boot: u64) -> Options {
        let mut id = [9; 16];
        id[8..].copy_from_slice(&boot.to_le_bytes());
        Options {
            durability: Durability::EveryWrite,
            len_max: self.len_max(),
            limit: self.extents * self.extent_bytes,
            eviction: Some(self.eviction),
            extent_bytes: Some(self.extent_bytes as u32),
            recovery_threads: 1,
            background: false,
            clock: Some(Arc::new(|| NOW)),
            index: self.index,
            residence: self.residence,
            index_cache_slots: 8,
            index_checkpoint: self.image,
            hash_mask: self.hash_mask,
            tuning: Tuning {
                extents_initial: 8,
                growth_bytes_min: self.extent_bytes,
                compaction_bytes_min: Some(self.extent_bytes),
                close_checkpoint_bytes_min: 0,
                checkpoint_bytes_min: 800,
                ..Tuning::default()
            },
            compaction_dead_percent: 10,
            boot_id: Some(id),
            ..Options::default()
        }
    }

    fn cells(&self) -> usize {
        TABLES * self.keys
    }

    fn name(&self, cell: usize) -> Vec<u8> {
        let key = cell % self.keys;
        let mut name = format!("{key:02}").into_bytes();
        name.resize(2 + key % 3 * 9, b'k');
        name
    }

    fn describe(&self) -> String {
        format!(
            "evicting seed {}: {:?}, {:?}, {} extents of {} bytes, {} keys, index {}, residence {:?}",
            self.seed,
            self.model,
            self.eviction,
            self.extents,
            self.extent_bytes,
            self.keys,
            self.index,
            self.residence
        )
    }
}

fn reported(what: &str) -> impl Fn(duramen::Error) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// An open store, and its known state.
struct Session<'r> {
    run: &'r Run,
    medium: SimMedium,
    store: Sim,
    tables: Vec<Option<TableOn<SimMedium>>>,
    evicted: Arc<Mutex<Vec<Evicted>>>,
    /// The content of each key, and its history.
    now: Vec<Option<Content>>,
    changes: Vec<Vec<Change>>,
    next_value: u64,
}

fn open(run: &Run, medium: &SimMedium, boot: u64) -> Result<Sim, String> {
    StoreOn::open_on(medium.clone(), &run.options(boot)).map_err(reported("open"))
}

fn tables_of(store: &Sim) -> Result<Vec<Option<TableOn<SimMedium>>>, String> {
    NAMES.iter().map(|name| store.find_table(name).map_err(reported("find a table"))).collect()
}

fn content(store: &Sim, value: &Value<'_>) -> Result<Content, String> {
    let Some(id) = value.meta().collection else { return Ok(Content::Plain(value.to_vec())) };
    let collection = store.collection(id).map_err(reported("a root points to no collection"))?;
    let mut elements = Vec::new();
    for element in 0..ELEMENTS {
        if let Some(value) = collection.get(element.to_be_bytes()).map_err(reported("get an element"))? {
            elements.push(value.to_vec());
        }
    }
    Ok(Content::Elements(elements))
}

/// The content of a store.
fn read(run: &Run, store: &Sim) -> Result<Vec<Option<Content>>, String> {
    let tables = tables_of(store)?;
    let mut all = vec![None; run.cells()];
    let mut counts = [0u64; TABLES];
    for (cell, holds) in all.iter_mut().enumerate() {
        let (table, name) = (cell / run.keys, run.name(cell));
        let value = match (table, &tables[table]) {
            (0, _) => store.get(&name),
            (_, Some(table)) => table.get(&name),
            (_, None) => continue,
        };
        if let Some(value) = value.map_err(reported("get"))? {
            *holds = Some(content(store, &value)?);
            counts[table] += 1;
        }
    }
    for (table, count) in counts.into_iter().enumerate() {
        let len = if table == 0 { store.len() } else { tables[table].as_ref().map_or(0, TableOn::len) };
        if len != count {
            return Err(format!("table {table} counts {len} keys, a scan finds {count}"));
        }
    }
    match store.audit() {
        wrong if wrong.is_empty() => Ok(all),
        wrong => Err(format!("the audit finds wrong counts: {}", wrong.join("; "))),
    }
}

impl<'r> Session<'r> {
    fn open(run: &'r Run, medium: SimMedium, boot: u64, first_value: u64) -> Result<Self, String> {
        let store = open(run, &medium, boot)?;
        let now = read(run, &store)?;
        let at = medium.position();
        let change =
            |to: &Option<Content>| vec![Change { start: at, end: at, to: to.clone(), evicted: false }];
        let changes = now.iter().map(change).collect();
        let evicted = Arc::default();
        let mut session =
            Self { run, medium, store, tables: Vec::new(), evicted, now, changes, next_value: first_value };
        session.begin()?;
        Ok(session)
    }

    /// The common options of every open.
    fn begin(&mut self) -> Result<(), String> {
        let to = Arc::clone(&self.evicted);
        self.store.set_on_evicted(Arc::new(move |evicted| {
            to.lock().unwrap_or_else(PoisonError::into_inner).push(evicted.clone());
        }));
        self.store.set_evictable(Some(0));
        for name in &NAMES[1..] {
            // There may be no space for a name.
            let made = self.store.table(name, self.run.index);
            if made.as_ref().is_err_and(|error| error.kind() != ErrorKind::OutOfSpace) {
                made.map_err(reported("make a table"))?;
            }
        }
        self.tables = tables_of(&self.store)?;
        if let Some(table) = &self.tables[1] {
            table.set_evictable(Some(1));
        }
        Ok(())
    }

    fn value(&mut self, bytes: u64) -> Vec<u8> {
        self.next_value += 1;
        crate::setup::hostile(&self.medium, self.next_value, bytes as usize)
    }

    /// Records the evictions since `start`.
    fn note_evicted(&mut self, start: usize) -> Result<(), String> {
        let reported = std::mem::take(&mut *self.evicted.lock().unwrap_or_else(PoisonError::into_inner));
        let end = self.medium.position();
        for evicted in reported {
            let first = evicted.label as usize * self.run.keys;
            let cell = (first..first + self.run.keys).find(|&cell| self.run.name(cell) == evicted.key);
            let Some(cell) = cell.filter(|_| evicted.label < KEPT as u32) else {
                return Err(format!("{evicted:?} was evicted, but no such key was written"));
            };
            if self.now[cell].take().is_none() {
                return Err(format!("key {cell} was evicted, but it was absent before"));
            }
            self.changes[cell].push(Change { start, end, to: None, evicted: true });
        }
        Ok(())
    }

    /// Writes a key, or deletes it.
    fn write(&mut self, cell: usize, to: Option<Content>, expires_at: Option<u64>) -> Result<(), String> {
        let (table, name) = (cell / self.run.keys, self.run.name(cell));
        let handle = if table == 0 { None } else { self.tables[table].clone() };
        if table > 0 && handle.is_none() {
            return Ok(());
        }
        let start = self.medium.position();
        let meta = Meta { expires_at, ..Meta::default() };
        let (done, was) = match &to {
            None => match &handle {
                None => self.store.delete(&name),
                Some(table) => table.delete(&name),
            }
            .map_or_else(|error| (Err(error), None), |was| (Ok(()), Some(was))),
            Some(Content::Plain(value)) => (
                match &handle {
                    None => self.store.put_with(&name, value, meta),
                    Some(table) => table.put_with(&name, value, meta),
                },
                None,
            ),
            Some(Content::Elements(values)) => {
                let collection = self.store.new_collection(ElementOrder::Unordered);
                let mut batch = Batch::new();
                batch.collection(&collection);
                for (at, value) in (0u64..).zip(values) {
                    batch.put(at.to_be_bytes(), value);
                }
                batch.table(handle.as_ref());
                let meta = Meta { collection: Some(collection.id()), ..meta };
                batch.put_with(&name, b"root", meta);
                let done = self.store.apply(&batch).map(|_| ());
                if done.is_err() {
                    collection.abandon();
                }
                (done, None)
            }
        };
        self.note_evicted(start)?;
        match done {
            Ok(()) => {}
            // In a table that may not evict there may be no space, or a reader pins it.
            Err(error) if error.kind() == ErrorKind::OutOfSpace => return Ok(()),
            Err(error) => return Err(format!("write key {cell}: {error}")),
        }
        if was.is_some_and(|was| was != self.now[cell].is_some()) {
            return Err(format!("a delete of key {cell} returned {was:?}, the key had {:?}", self.now[cell]));
        }
        let end = self.medium.position();
        self.changes[cell].push(Change { start, end, to: to.clone(), evicted: false });
        self.now[cell] = to;
        Ok(())
    }

    fn some(&mut self, rng: &mut Rng) -> Result<(), String> {
        let cell = match rng.below(12) {
            0 => KEPT * self.run.keys + rng.below(2) as usize,
            _ => rng.below((KEPT * self.run.keys) as u64) as usize,
        };
        // Of what may be evicted only if it expires, some does not.
        let expires_at =
            (self.run.eviction.volatile_only && rng.below(8) > 0).then_some(FAR + rng.below(1 << 20));
        match rng.below(10) {
            0 | 1 => self.write(cell, None, None),
            2 if self.run.collections => {
                let elements = (0..ELEMENTS).map(|_| self.value(30)).collect();
                self.write(cell, Some(Content::Elements(elements)), expires_at)
            }
            _ => {
                let most = [60, 60, self.run.extent_bytes / 2][rng.below(3) as usize];
                let bytes = 10 + rng.below(most);
                let value = self.value(bytes);
                self.write(cell, Some(Content::Plain(value)), expires_at)
            }
        }
    }

    /// Runs random operations.
    fn work(&mut self, rng: &mut Rng, steps: u64, boot: u64) -> Result<(), String> {
        for _ in 0..steps {
            match rng.below(40) {
                0..=2 => {
                    let start = self.medium.position();
                    self.store.maintain().map_err(reported("maintain"))?;
                    self.note_evicted(start)?;
                }
                3..=5 => {
                    // A value that is kept during other writes pins its block.
                    let cell = rng.below(self.run.keys as u64) as usize;
                    let (store, name) = (self.store.clone(), self.run.name(cell));
                    let held = store.get(&name).map_err(reported("get"))?;
                    let was = held.as_ref().map(|value| value.to_vec());
                    for _ in 0..rng.below(25) {
                        self.some(rng)?;
                    }
                    if held.as_deref().map(<[u8]>::to_vec) != was {
                        return Err("a value changed while it was pinned".to_owned());
                    }
                }
                6..=9 => {
                    for _ in 0..4 {
                        let cell = rng.below(self.run.keys as u64) as usize;
                        let found = self.store.get(self.run.name(cell)).map_err(reported("get"))?;
                        let found = found.map(|value| content(&self.store, &value)).transpose()?;
                        if found != self.now[cell] {
                            return Err(format!("key {cell} holds {found:?}, wanted {:?}", self.now[cell]));
                        }
                    }
                }
                10 if rng.one_in(6) => self.reopen(boot)?,
                _ => self.some(rng)?,
            }
        }
        let found = read(self.run, &self.store)?;
        if let Some(cell) = (0..found.len()).find(|&cell| found[cell] != self.now[cell]) {
            return Err(format!(
                "without any crash, key {cell} holds {:?}, wanted {:?}",
                found[cell], self.now[cell]
            ));
        }
        Ok(())
    }

    fn reopen(&mut self, boot: u64) -> Result<(), String> {
        let start = self.medium.position();
        self.tables.clear();
        let medium = self.medium.clone();
        // Dropping the handle also drops the store.
        let other = SimMedium::resume(Log::empty(self.run.model, self.run.len_max()));
        let nothing = open(self.run, &other, boot)?;
        let store = std::mem::replace(&mut self.store, nothing);
        store.close_discarding().map_err(|error| reported("close")(error.into()))?;
        self.note_evicted(start)?;
        self.store = open(self.run, &medium, boot)?;
        self.begin()?;
        let end = self.medium.position();
        let found = read(self.run, &self.store)?;
        for (cell, found) in found.into_iter().enumerate() {
            if found == self.now[cell] {
                continue;
            }
            // A block that is not freed yet still holds evicted records.
            if !allowed(self.run, &self.changes[cell], end).contains(&found) {
                return Err(format!(
                    "after a clean close, key {cell} holds {found:?}, wanted {:?}",
                    self.now[cell]
                ));
            }
            self.changes[cell].push(Change { start, end, to: found.clone(), evicted: false });
            self.now[cell] = found;
        }
        Ok(())
    }
}

/// The allowed content of a key after a crash at `position`. An eviction before it is permanent, except where it is a
/// tombstone that the next commit makes durable.
fn allowed(run: &Run, changes: &[Change], position: usize) -> Vec<Option<Content>> {
    let is_certain =
        |change: &Change| change.end <= position && (!change.evicted || run.model != Model::Page);
    let floor = changes.iter().rposition(is_certain).unwrap_or(0);
    changes[floor..]
        .iter()
        .filter(|change| change.start <= position)
        .map(|change| change.to.clone())
        .collect()
}

fn check(
    run: &Run,
    found: &[Option<Content>],
    changes: &[Vec<Change>],
    position: usize,
) -> Result<(), String> {
    for (cell, found) in found.iter().enumerate() {
        let allowed = allowed(run, &changes[cell], position);
        if !allowed.contains(found) {
            return Err(format!(
                "key {cell} of table {} holds {found:?}, allowed: {allowed:?}",
                cell / run.keys
            ));
        }
    }
    Ok(())
}

/// A medium with these bytes.
fn medium_of(run: &Run, memory: Arc<Memory>, len: u64) -> SimMedium {
    SimMedium::from_image(run.model, run.len_max(), memory, len)
}

/// Deletes everything, and opens the store that a dead process would leave: it must be empty.
fn delete_all(run: &Run, store: Sim, medium: &SimMedium, boot: u64) -> Result<(), String> {
    use duramen_media::Bytes;
    for (at, table) in tables_of(&store)?.into_iter().enumerate() {
        for key in 0..run.keys {
            let name = run.name(key);
            match &table {
                Some(table) => table.delete(&name).map(|_| ()),
                None if at == 0 => store.delete(&name).map(|_| ()),
                None => Ok(()),
            }
            .map_err(reported("delete after recovery"))?;
        }
    }
    for _ in 0..3 {
        store.maintain().map_err(reported("maintain"))?;
    }
    medium.power_off();
    drop(store);
    let medium = medium_of(run, medium.memory(), medium.len());
    let store = open(run, &medium, boot)?;
    let found = read(run, &store)?;
    medium.power_off();
    match found.iter().position(Option::is_some) {
        Some(cell) => {
            Err(format!("after deleting everything and a kill: key {cell} holds {:?}", found[cell]))
        }
        None => Ok(()),
    }
}

struct Explorer<'r> {
    run: &'r Run,
    rng: Rng,
    boot: u64,
    totals: Totals,
}

impl Explorer<'_> {
    /// Runs a session on a medium, and crashes it.
    fn session(&mut self, medium: SimMedium, depth: u32) -> Result<(), String> {
        self.boot += 1;
        let mut rng = self.rng.fork();
        let first_value = (self.boot << 32) + self.run.seed;
        let mut session = Session::open(self.run, medium, self.boot, first_value)?;
        let begun = session.medium.position();
        let steps = if depth == 0 { 150 + rng.below(200) } else { 30 + rng.below(60) };
        let boot = self.boot;
        let worked = session.work(&mut rng, steps, boot);
        session.medium.power_off();
        let Session { medium, changes, store, tables, .. } = session;
        drop((store, tables));
        worked?;
        self.totals.ops += steps;
        let log = medium.log();
        let span = (log.events.len() - begun).max(1) as u64;
        let mut points: Vec<usize> =
            (0..POINTS >> (2 * depth)).map(|_| begun + rng.below(span) as usize).collect();
        points.push(log.events.len());
        points.sort_unstable();
        let mut walker = Walker::new(&log);
        for point in points {
            walker.advance(point);
            let at = match walker.next_point() {
                Some(at) => at,
                None => walker.at(),
            };
            self.totals.points += 1;
            for choice in walker.choices(&mut rng, IMAGES) {
                self.crash(&mut walker, &choice, &changes, at, depth)
                    .map_err(|what| format!("at event {at} of {}, {what}", log.events.len()))?;
            }
        }
        Ok(())
    }

    fn crash(
        &mut self,
        walker: &mut Walker<'_>,
        choice: &Choice,
        changes: &[Vec<Change>],
        at: usize,
        depth: u32,
    ) -> Result<(), String> {
        self.totals.images += 1;
        self.boot += 1;
        let run = self.run;
        let (memory, len) = walker.form(choice);
        let medium = medium_of(run, memory, len);
        let store = open(run, &medium, self.boot)?;
        let found = read(run, &store)?;
        check(run, &found, changes, at)?;
        match self.rng.below(8) {
            0 => delete_all(run, store, &medium, self.boot),
            1 if depth < 2 && self.rng.one_in(2) => {
                use duramen_media::Bytes;
                medium.power_off();
                drop(store);
                self.totals.nested += 1;
                self.totals.depth = self.totals.depth.max(u64::from(depth) + 1);
                // A second recovery must find the same content.
                let log = Log::on(run.model, run.len_max(), medium.memory().snapshot(), medium.len());
                self.session(SimMedium::resume(log), depth + 1)
            }
            _ => {
                medium.power_off();
                Ok(())
            }
        }
    }
}

/// Runs a seed.
///
/// # Errors
/// The first promise that was not kept.
pub fn run_seed(seed: u64) -> Result<Totals, Box<Violation>> {
    let run = Run::new(seed);
    let mut totals = Totals { seeds: 1, ..Totals::default() };
    caught(|| {
        let mut explorer = Explorer {
            run: &run,
            rng: Rng::new(seed),
            boot: 1,
            totals: Totals { seeds: 1, ..Totals::default() },
        };
        let medium = SimMedium::resume(Log::empty(run.model, run.len_max()));
        let done = explorer.session(medium, 0);
        totals = explorer.totals;
        done
    })
    .map_err(|what| {
        Box::new(Violation {
            setup: run.describe(),
            what,
            command: format!("cargo xtask crash --evicting --seed {seed} --seeds 1"),
        })
    })?;
    Ok(totals)
}
