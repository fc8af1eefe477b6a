//! The threads of a run: they follow the plan and record the results of their calls.

use super::history::{Act, Call, History, Shape, Updated};
use super::plan::{Kind, Op, Plan};
use super::section::Places;
use super::touch::Touch;
use super::values::{ABSENT, Id, Values};
use crate::setup::{Setup, hostile, table_name};
use duramen::{
    Batch, Error, ErrorKind, IndexKind, Meta, Modified, Range, Stamp, StoreOn, Swap, TableOn, Update, Value,
    WriterOn,
};
use duramen_media::sim::SimMedium;
use duramen_media::sim::schedule::{self, Point};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Sim = StoreOn<SimMedium>;

/// The record that all threads write to. Its lock is never held at a schedule point.
#[derive(Default)]
pub struct Notes {
    /// The calls.
    pub history: History,
    /// The contents of values.
    pub values: Values,
    /// The first violation.
    pub wrong: Option<String>,
    /// Segments of the index that were merged, where the first thread closed the store.
    pub merges: u64,
}

/// The notes, and the medium whose log they refer to.
#[derive(Clone)]
pub struct Recorder {
    notes: Arc<Mutex<Notes>>,
    medium: SimMedium,
    /// Whether a call that finds no space is a violation.
    roomy: bool,
}

/// The result of a call: nothing if there was no space.
type Reported<T> = Result<Option<T>, String>;

impl Recorder {
    /// For a store on `medium`.
    #[must_use]
    pub fn new(medium: SimMedium, plan: &Plan) -> Self {
        let recorder = Self { notes: Arc::default(), medium, roomy: plan.is_roomy() };
        let places = Places { first: plan.setup.cell_of_root(0), count: plan.setup.all_places() };
        recorder.notes().history.shape =
            Shape { keys: plan.setup.keys.len(), tables: plan.setup.tables, places };
        recorder
    }

    /// The recorded calls.
    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, thread: usize, group: Option<usize>, act: Act) -> usize {
        schedule::say(&act.show());
        let (begun, from) = (schedule::stamp(), self.medium.position());
        let calls = &mut self.notes().history.calls;
        calls.push(Call { thread, act, begun, ended: None, from, to: None, group, void: false });
        calls.len() - 1
    }

    /// Runs `work` as a call; `report` records its result.
    pub(super) fn call<T>(
        &self,
        thread: usize,
        group: Option<usize>,
        act: Act,
        work: impl FnOnce() -> duramen::Result<T>,
        report: impl FnOnce(&mut Act, &T, &mut Values),
    ) -> Reported<T> {
        let at = self.begin(thread, group, act);
        let done = work();
        let (ended, to) = (schedule::stamp(), self.medium.position());
        let notes = &mut *self.notes();
        let call = &mut notes.history.calls[at];
        (call.ended, call.to) = (Some(ended), Some(to));
        match done {
            Ok(reported) => {
                report(&mut call.act, &reported, &mut notes.values);
                Ok(Some(reported))
            }
            // `Conflict`: under locks, a transaction that touched records which compaction was moving.
            Err(error)
                if matches!(error.kind(), ErrorKind::OutOfSpace | ErrorKind::Conflict) && !self.roomy =>
            {
                call.void = true;
                Ok(None)
            }
            // One of its tables was dropped.
            Err(error) if error.kind() == ErrorKind::NotFound && notes.history.shape.tables > 0 => {
                let shape = notes.history.shape;
                let tables: Vec<usize> = match &call.act {
                    Act::Clear { table } => vec![*table],
                    Act::Lead { tables } => tables.to_vec(),
                    act => act.keys().into_iter().map(|cell| shape.table_of(cell)).collect(),
                };
                let cells: Vec<usize> = tables
                    .into_iter()
                    .filter(|&table| table > 0)
                    .map(|table| shape.of_table(table))
                    .collect();
                if cells.is_empty() {
                    return Err(format!("{}: {error}", call.act.show()));
                }
                call.act = Act::Gone { cells };
                Ok(None)
            }
            Err(error) => Err(format!("{}: {error}", call.act.show())),
        }
    }

    /// Runs `work`, which swaps two tables: one of its names is swapped just before the other.
    fn exchange(
        &self,
        thread: usize,
        tables: [usize; 2],
        work: impl FnOnce() -> duramen::Result<()>,
    ) -> Result<(), String> {
        let second = self.begin(thread, None, Act::LeadBack { tables });
        let done = self.call(thread, None, Act::Lead { tables }, work, |_, (), _| {})?;
        let notes = &mut *self.notes();
        let first = &notes.history.calls[second + 1..];
        let Some(first) = first.iter().find(|call| call.thread == thread) else {
            return Err("a call is not in the history".into());
        };
        let (ended, to) = (first.ended, first.to);
        let second = &mut notes.history.calls[second];
        (second.ended, second.to, second.void) = (ended, to, done.is_none());
        Ok(())
    }

    /// Now: what a call begins with.
    pub(super) fn now(&self) -> (u64, usize) {
        (schedule::stamp(), self.medium.position())
    }

    /// Notes that several keys were read within one call.
    fn reads(&self, thread: usize, begun: (u64, usize), found: impl Iterator<Item = (usize, Id)>) {
        self.saw(thread, begun, found.map(|(key, found)| Act::Read { key, found }));
    }

    /// Records the values seen within one call, each at some moment of it.
    pub(super) fn saw(&self, thread: usize, begun: (u64, usize), acts: impl Iterator<Item = Act>) {
        let (ended, to) = (Some(schedule::stamp()), Some(self.medium.position()));
        let mut notes = self.notes();
        let (begun, from) = begun;
        for act in acts {
            notes.history.calls.push(Call { thread, act, begun, ended, from, to, group: None, void: false });
        }
    }

    pub(super) fn id(&self, value: Option<&Value<'_>>) -> Id {
        value.map_or(ABSENT, |value| self.notes().values.id(value, value.tag()))
    }
}

/// The result of a run.
pub struct Ended {
    /// The calls.
    pub history: History,
    /// The contents of values.
    pub values: Values,
    /// The content of the reopened store, and the log's position when it had been closed; `None` if it was not
    /// examined.
    pub reopened: Option<(Vec<Id>, usize)>,
    /// Segments of the index that were merged, where the first thread closed the store.
    pub merges: u64,
}

/// The first thread: opens, starts the others, waits, reads everything, closes, and opens again.
///
/// # Errors
/// Returns a description of the violation.
pub fn lead(plan: &Arc<Plan>, recorder: &Recorder) -> Result<(), String> {
    let medium = recorder.medium.clone();
    schedule::say("open");
    let store = Sim::open_on(medium.clone(), &plan.options(1)).map_err(|e| format!("open: {e}"))?;
    recorder.notes().history.opened = medium.position();
    let mut hand = Hand::new(plan, recorder, store, 0, true);
    for table in 1..=plan.setup.tables {
        hand.run(&Op::Make { table, ordered: table % 2 == plan.first.len() % 2 })?;
    }
    for &key in &plan.first {
        hand.run(&Op::Put { key, bytes: 64, updatable: key % 2 == 0 })?;
    }
    plan.then.iter().try_for_each(|op| hand.run(op))?;
    let workers: Vec<_> = (0..plan.threads.len())
        .map(|worker| {
            let (plan, recorder, store) = (Arc::clone(plan), recorder.clone(), hand.store.clone());
            let name = format!("worker {}", worker + 1);
            let spawned = schedule::spawn(&name, move || {
                let (plain, ops) = &plan.threads[worker];
                let mut hand = Hand::new(&plan, &recorder, store, worker + 1, *plain);
                let done = ops.iter().try_for_each(|op| hand.run(op));
                if let Err(what) = done {
                    recorder.notes().wrong.get_or_insert(what);
                }
            });
            spawned.map_err(|_| "no schedule".to_owned())
        })
        .collect::<Result<_, _>>()?;
    if plan.last_closes {
        drop(hand);
        workers.iter().for_each(schedule::Spawned::join);
        return Ok(());
    }
    workers.iter().for_each(schedule::Spawned::join);
    for key in 0..plan.setup.cell(plan.setup.tables + 1, 0) {
        hand.run(&Op::Get { key, hold: 0 })?;
    }
    hand.run(&Op::Scan)?;
    let places = (0..plan.setup.places).collect();
    hand.run(&Op::Touch(Touch::Look { places, keys: Vec::new() }))?;
    let store = hand.store;
    drop(hand.writer);
    // The combined accounts of several writers and the compactor.
    let differences = store.audit();
    if !differences.is_empty() {
        return Err(format!(
            "after all threads ended, counts differ from the blocks: {}",
            differences.join("; ")
        ));
    }
    recorder.notes().merges = store.stats().index_merges;
    schedule::say("close");
    store.close_discarding().map_err(|e| format!("close: {e}"))
}

/// A thread with its writer.
pub(super) struct Hand<'p> {
    pub(super) plan: &'p Plan,
    pub(super) recorder: &'p Recorder,
    pub(super) thread: usize,
    /// Made when it is needed.
    pub(super) writer: Option<WriterOn<SimMedium>>,
    pub(super) store: Sim,
    /// Writes through the handle.
    plain: bool,
    pub(super) group: Option<usize>,
    /// It holds the keys of its operations.
    locked: bool,
    pub(super) count: u64,
}

impl<'p> Hand<'p> {
    fn new(plan: &'p Plan, recorder: &'p Recorder, store: Sim, thread: usize, plain: bool) -> Self {
        Self { plan, recorder, thread, writer: None, store, plain, group: None, locked: false, count: 0 }
    }

    /// Bytes that no other thread writes.
    pub(super) fn bytes(&mut self, bytes: usize) -> Vec<u8> {
        self.count += 1;
        let number = (self.thread as u64) << 24 | self.count;
        if bytes < 8 {
            return number.to_le_bytes()[..bytes].to_vec();
        }
        let mut content = hostile(&self.recorder.medium, number | 1 << 40, bytes);
        content[..8].copy_from_slice(&number.to_le_bytes());
        content
    }

    /// Makes sure that there is a writer, unless writes go through the handle.
    fn ready(&mut self) -> Result<(), String> {
        if self.writer.is_none() && (!self.plain || self.group.is_some()) {
            self.writer = Some(self.store.writer().map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    fn run(&mut self, op: &Op) -> Result<(), String> {
        let plan = self.plan;
        let key = |key: usize| plan.setup.of_cell(key).1;
        match op {
            Op::Put { key: k, bytes, updatable } => self.put(*k, *bytes, *updatable),
            Op::Delete { key: k } => {
                self.ready()?;
                let Some(table) = self.table_of(*k)? else { return Ok(()) };
                let (store, writer) = (&self.store, &mut self.writer);
                let work = || match (writer, &table) {
                    (Some(writer), None) => writer.delete(key(*k)),
                    (Some(writer), Some(table)) => writer.table(table).delete(key(*k)),
                    (None, None) => store.delete(key(*k)),
                    (None, Some(table)) => table.delete(key(*k)),
                };
                let report = |act: &mut Act, reported: &bool, _: &mut Values| {
                    if let Act::Delete { was, .. } = act {
                        *was = Some(*reported);
                    }
                };
                let act = Act::Delete { key: *k, was: None };
                self.recorder.call(self.thread, self.group, act, work, report).map(|_| ())
            }
            Op::Update { key: k, at, size, on_condition } => self.update(*k, at * 8, *size, *on_condition),
            Op::Swap { key: k, bytes } => self.batch(&[(*k, *bytes)], &[*k], true),
            Op::Batch { writes, expects } => self.batch(writes, expects, false),
            Op::Get { key: k, hold } => {
                let (found, _) = self.get(*k, *hold)?;
                if self.locked {
                    let (again, _) = self.get(*k, 0)?;
                    if again != found {
                        return Err(format!("key {k}: another thread wrote it while it was locked"));
                    }
                }
                Ok(())
            }
            Op::GetMany { keys } => {
                let begun = (schedule::stamp(), self.recorder.medium.position());
                let keys: Vec<usize> = keys.iter().map(|&k| k % plan.setup.keys.len()).collect();
                let names: Vec<&[u8]> = keys.iter().map(|&k| key(k)).collect();
                let found = self.store.get_many(&names).map_err(|e| format!("get_many: {e}"))?;
                let ids: Vec<Id> = found.iter().map(|value| self.recorder.id(value.as_ref())).collect();
                self.recorder.reads(self.thread, begun, keys.iter().copied().zip(ids));
                Ok(())
            }
            Op::Scan => self.scan(),
            Op::Make { .. } | Op::Clear { .. } | Op::Drop { .. } | Op::Exchange { .. } => {
                self.change_tables(op)
            }
            Op::Walk { table } => self.walk_table(*table),
            Op::Touch(touch) => self.touch(touch),
            Op::Group(ops) => self.grouped(ops),
            Op::Locked(ops) => self.locked(ops),
            Op::Commit => {
                let store = &self.store;
                let nothing = |_: &mut Act, _: &(), _: &mut Values| {};
                let done = self.recorder.call(self.thread, None, Act::Commit, || store.commit(), nothing);
                done.map(|_| ())
            }
            Op::Maintain => {
                schedule::say("maintain");
                self.store.maintain().map_err(|e| format!("maintain: {e}"))
            }
            Op::Retire => {
                schedule::say("give up the writer");
                self.writer = None;
                Ok(())
            }
        }
    }

    /// The handle of a cell's table (`None`: the store's own); nothing if the table does not exist.
    fn table_of(&self, cell: usize) -> Reported<Option<TableOn<SimMedium>>> {
        let setup = &self.plan.setup;
        let table = setup.of_cell(cell).0;
        if table == 0 {
            return Ok(Some(None));
        }
        let report = |act: &mut Act, reported: &Option<TableOn<SimMedium>>, _: &mut Values| {
            if let Act::Look { there, .. } = act {
                *there = reported.is_some();
            }
        };
        let act = Act::Look { cell: setup.cell_of_table(table), there: false };
        let find = || self.store.find_table(table_name(table));
        let found = self.recorder.call(self.thread, None, act, find, report)?;
        Ok(found.flatten().map(Some))
    }

    fn change_tables(&mut self, op: &Op) -> Result<(), String> {
        let (store, setup) = (self.store.clone(), &self.plan.setup);
        let nothing = |_: &mut Act, _: &(), _: &mut Values| {};
        match *op {
            Op::Make { table, ordered } => {
                let kind_of = |ordered| {
                    let entry = Setup::entry_of_table(ordered);
                    self.recorder.notes().values.id(&entry.value, entry.tag)
                };
                let (kind, other) = (kind_of(ordered), kind_of(!ordered));
                let act = Act::Make { table, kind };
                let work = || {
                    let kind = if ordered { IndexKind::Ordered } else { IndexKind::Hash };
                    match store.table(table_name(table), kind) {
                        Ok(_) => Ok(true),
                        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(false),
                        Err(error) => Err(error),
                    }
                };
                let cell = setup.cell_of_table(table);
                let report = |act: &mut Act, made: &bool, _: &mut Values| {
                    if !made {
                        *act = Act::Read { key: cell, found: other };
                    }
                };
                self.recorder.call(self.thread, None, act, work, report).map(|_| ())
            }
            Op::Clear { table } => {
                let Some(Some(handle)) = self.table_of(setup.cell(table, 0))? else { return Ok(()) };
                let act = Act::Clear { table };
                self.recorder.call(self.thread, None, act, || handle.clear(), nothing).map(|_| ())
            }
            Op::Drop { table } => {
                let report = |act: &mut Act, reported: &bool, _: &mut Values| {
                    if let Act::Drop { was, .. } = act {
                        *was = Some(*reported);
                    }
                };
                let act = Act::Drop { table, was: None };
                let work = || store.drop_table(table_name(table));
                self.recorder.call(self.thread, None, act, work, report).map(|_| ())
            }
            Op::Exchange { tables: [a, b] } => self
                .recorder
                .exchange(self.thread, [a, b], || store.swap_tables(&table_name(a), &table_name(b))),
            _ => Ok(()),
        }
    }

    /// Iterates over a table, which may be cleared or dropped meanwhile.
    fn walk_table(&self, table: usize) -> Result<(), String> {
        let Some(Some(handle)) = self.table_of(self.plan.setup.cell(table, 0))? else { return Ok(()) };
        schedule::say("iterate over a table");
        let begun = (schedule::stamp(), self.recorder.medium.position());
        let mut found = Vec::new();
        let mut wrong = None;
        let mut see = |value: &Value<'_>| match self.plan.setup.number(value.key()) {
            Some(key) => found.push((self.plan.setup.cell(table, key), self.recorder.id(Some(value)))),
            None => wrong = Some("an iterator returned a key that was never written"),
        };
        match handle.range(..) {
            Ok(range) => walk(range, self.count % 2 == 1, &mut see)?,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {
                return Ok(());
            }
            Err(error) => return Err(format!("range: {error}")),
        }
        if let Some(wrong) = wrong {
            return Err(wrong.into());
        }
        let missing: Vec<usize> = self
            .plan
            .setup
            .cells_of(table)
            .filter(|cell| found.iter().all(|(other, _)| other != cell))
            .collect();
        found.extend(missing.into_iter().map(|cell| (cell, ABSENT)));
        self.recorder.reads(self.thread, begun, found.into_iter());
        Ok(())
    }

    fn put(&mut self, key: usize, bytes: usize, updatable: bool) -> Result<(), String> {
        self.ready()?;
        let Some(table) = self.table_of(key)? else { return Ok(()) };
        let content = self.bytes(bytes);
        let tag = (self.count % 7) as u8;
        let meta = Meta { tag, updatable, ..Meta::default() };
        let act = Act::Put { key, value: self.recorder.notes().values.id(&content, tag) };
        let name = self.plan.setup.of_cell(key).1;
        let (store, writer) = (&self.store, &mut self.writer);
        let work = || match (writer, &table) {
            (Some(writer), None) => writer.put_with(name, &content, meta),
            (Some(writer), Some(table)) => writer.table(table).put_with(name, &content, meta),
            (None, None) => store.put_with(name, &content, meta),
            (None, Some(table)) => table.put_with(name, &content, meta),
        };
        self.recorder.call(self.thread, self.group, act, work, |_, (), _| {}).map(|_| ())
    }

    fn update(&mut self, key: usize, at: usize, size: u32, on_condition: bool) -> Result<(), String> {
        self.ready()?;
        let mut bytes = self.bytes(if size == 5 { 24 } else { 1 << size });
        if self.plan.kind == Kind::Cells && size == 3 && self.count.is_multiple_of(4) {
            // One of two values, so that a cell gets its earlier value again.
            bytes = vec![(self.count / 4 % 2) as u8; 8];
        }
        let seen = match (&self.writer, on_condition) {
            (Some(_), true) => {
                let (found, stamp) = self.get(key, 2)?;
                stamp.map(|stamp| (found, stamp))
            }
            _ => None,
        };
        if size == 3 && seen.is_some() && !self.count.is_multiple_of(2) {
            return self.modify(key, at, &bytes);
        }
        let Some(table) = self.table_of(key)? else { return Ok(()) };
        let name = self.plan.setup.of_cell(key).1;
        let (store, writer) = (&self.store, &mut self.writer);
        let work = || {
            let done = match (writer, seen, &table) {
                (Some(writer), Some((_, stamp)), None) => writer.compare_and_update(name, stamp, at, &bytes),
                (Some(writer), Some((_, stamp)), Some(table)) => {
                    writer.table(table).compare_and_update(name, stamp, at, &bytes)
                }
                (Some(writer), None, None) => writer.update(name, at, &bytes).map(Some),
                (Some(writer), None, Some(table)) => writer.table(table).update(name, at, &bytes).map(Some),
                (None, _, None) => store.update(name, at, &bytes).map(Some),
                (None, _, Some(table)) => table.update(name, at, &bytes).map(Some),
            };
            match done {
                Ok(None) => Ok(Updated::Changed),
                Ok(Some(Update::Absent)) => Ok(Updated::Absent),
                Ok(Some(Update::InPlace | Update::NewVersion)) => Ok(Updated::Done),
                Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(Updated::Short),
                Err(error) => Err(error),
            }
        };
        let report = |act: &mut Act, what: &Updated, _: &mut Values| {
            if let Act::Update { reported, .. } = act {
                *reported = Some(*what);
            }
        };
        let seen = seen.map(|(found, _)| found);
        let act = Act::Update { key, seen, at, bytes: bytes.clone(), reported: None };
        self.recorder.call(self.thread, self.group, act, work, report).map(|_| ())
    }

    /// Reads and updates in one step, in place or not at all.
    fn modify(&mut self, key: usize, at: usize, bytes: &[u8]) -> Result<(), String> {
        let Some(table) = self.table_of(key)? else { return Ok(()) };
        let name = self.plan.setup.of_cell(key).1;
        let Some(writer) = &mut self.writer else { return Err("no writer".into()) };
        let Ok(field) = bytes.try_into() else { return Err("a field has 8 bytes".into()) };
        let work = || {
            let mut found = None;
            let change = |meta: Meta, value: &[u8]| {
                found = Some((value.to_vec(), meta.tag));
                Some((at, field))
            };
            let done = match &table {
                None => writer.modify_in_place(name, change),
                Some(table) => writer.table(table).modify_in_place(name, change),
            };
            match done {
                Ok(Modified::InPlace) => Ok((found, Updated::Done)),
                Ok(Modified::Declined | Modified::NotInPlace) => Ok((None, Updated::Nothing)),
                Err(error) if error.kind() == ErrorKind::InvalidInput => Ok((found, Updated::Short)),
                Err(error) => Err(error),
            }
        };
        let report =
            |act: &mut Act, (found, what): &(Option<(Vec<u8>, u8)>, Updated), values: &mut Values| {
                if let Act::Update { reported, seen, .. } = act {
                    *reported = Some(*what);
                    *seen = found.as_ref().map(|(value, tag)| values.id(value, *tag));
                }
            };
        let act = Act::Update { key, seen: None, at, bytes: bytes.to_vec(), reported: None };
        self.recorder.call(self.thread, self.group, act, work, report).map(|_| ())
    }

    /// Reads a key, checks that the value does not change while it is kept, and returns it with its stamp.
    fn get(&self, key: usize, hold: u64) -> Result<(Id, Option<Stamp>), String> {
        let Some(table) = self.table_of(key)? else { return Ok((ABSENT, None)) };
        let name = self.plan.setup.of_cell(key).1;
        let act = Act::Read { key, found: ABSENT };
        let work = || match (&self.writer, &table) {
            (_, Some(table)) => table.get(name).map(|value| (value.as_ref().map(Value::stamp), value)),
            (Some(writer), None) => writer.get_stamped(name).map(|(stamp, value)| (Some(stamp), value)),
            (None, None) => self.store.get(name).map(|value| (value.as_ref().map(Value::stamp), value)),
        };
        let report = |act: &mut Act, (_, value): &(Option<Stamp>, Option<Value<'_>>), values: &mut Values| {
            if let Act::Read { found, .. } = act {
                *found = value.as_ref().map_or(ABSENT, |value| values.id(value, value.tag()));
            }
        };
        let Some((stamp, value)) = self.recorder.call(self.thread, self.group, act, work, report)? else {
            // The table was dropped.
            return Ok((ABSENT, None));
        };
        let copy = value.as_ref().map(|value| value.to_vec());
        for _ in 0..hold {
            schedule::point(Point::Other, 0);
            if value.as_deref() != copy.as_deref() {
                return Err(format!("key {key}: a value changed while it was being read"));
            }
        }
        Ok((self.recorder.id(value.as_ref()), stamp))
    }

    /// Several writes on conditions; `single`: by `compare_and_swap`, where there is a writer.
    fn batch(
        &mut self,
        writes: &[(usize, Option<usize>)],
        expects: &[usize],
        single: bool,
    ) -> Result<(), String> {
        self.ready()?;
        let mut batch = Batch::new();
        let mut seen = Vec::new();
        for &key in expects {
            let (found, stamp) = self.get(key, 2)?;
            // Without a writer, only a value has a stamp.
            if let Some(stamp) = stamp {
                let Some(table) = self.table_of(key)? else { return Ok(()) };
                batch.table(table.as_ref()).expect(self.plan.setup.of_cell(key).1, stamp);
                seen.push((key, found, stamp));
            }
        }
        let (mut new, mut tables) = (Vec::new(), Vec::new());
        for &(key, bytes) in writes {
            let name = self.plan.setup.of_cell(key).1;
            let content = bytes.map(|bytes| self.bytes(bytes));
            let Some(table) = self.table_of(key)? else { return Ok(()) };
            batch.table(table.as_ref());
            match &content {
                Some(content) => batch.put_with(name, content, Meta { tag: 9, ..Meta::default() }),
                None => batch.delete(name),
            };
            new.push((key, content));
            tables.push(table);
        }
        let ids = {
            let values = &mut self.recorder.notes().values;
            new.iter()
                .map(|(key, content)| (*key, content.as_ref().map_or(ABSENT, |c| values.id(c, 9))))
                .collect()
        };
        let act = Act::Swap {
            expects: seen.iter().map(|&(key, found, _)| (key, found)).collect(),
            writes: ids,
            reported: None,
        };
        let table = match (&new[..], single) {
            ([(key, _)], true) => match self.table_of(*key)? {
                Some(table) => table,
                None => return Ok(()),
            },
            _ => None,
        };
        let (setup, locked) = (&self.plan.setup, self.locked);
        let (store, writer) = (&self.store, &mut self.writer);
        let work = || match (writer, &new[..], &seen[..]) {
            (Some(writer), [(key, content)], [(_, _, stamp)]) if single => {
                let new = content.as_deref().map(|content| (content, Meta { tag: 9, ..Meta::default() }));
                let name = setup.of_cell(*key).1;
                match &table {
                    None => writer.compare_and_swap(name, *stamp, new),
                    Some(table) => writer.table(table).compare_and_swap(name, *stamp, new),
                }
            }
            // A transaction that is retried after a conflict; some are aborted first.
            (Some(writer), writes, []) if self.thread % 2 == 1 && tables.len() == writes.len() => {
                let mut gives_up = writes.len().is_multiple_of(2);
                loop {
                    let done = writer.transaction_unchecked(|transaction| {
                        for ((key, content), table) in writes.iter().zip(&tables) {
                            let mut keys = match table {
                                Some(table) => transaction.table(table),
                                None => transaction.store(),
                            };
                            let name = setup.of_cell(*key).1;
                            match content {
                                Some(content) => {
                                    keys.put_with(name, content, Meta { tag: 9, ..Meta::default() })?;
                                }
                                None => {
                                    keys.delete(name)?;
                                }
                            }
                        }
                        if gives_up { Err(Error::aborted("on purpose")) } else { Ok(Swap::Done) }
                    });
                    match done {
                        Err(error) if error.kind() == ErrorKind::Aborted => gives_up = false,
                        Err(error) if error.kind() == ErrorKind::Conflict && !locked => {
                            let _ = schedule::relax();
                        }
                        done => break done,
                    }
                }
            }
            (Some(writer), ..) => writer.apply(&batch),
            (None, ..) => store.apply(&batch),
        };
        let report = |act: &mut Act, swap: &Swap, _: &mut Values| {
            if let Act::Swap { reported, .. } = act {
                *reported = Some(*swap == Swap::Done);
            }
        };
        self.recorder.call(self.thread, self.group, act, work, report).map(|_| ())
    }

    /// Each key that a scan shows was present at some moment, and each key that it does not show was absent at some
    /// moment.
    fn scan(&self) -> Result<(), String> {
        schedule::say("scan");
        let begun = (schedule::stamp(), self.recorder.medium.position());
        // Of the store's own table.
        let setup = &self.plan.setup;
        let keys = &setup.keys;
        // With their cells, including roots.
        let roots = (0..setup.places).map(|place| (setup.key_of_place(place), setup.cell_of_root(place)));
        let names: Vec<(Vec<u8>, usize)> = keys.iter().cloned().zip(0..).chain(roots).collect();
        let mut found = Vec::new();
        let mut wrong = None;
        let mut see = |value: &Value<'_>| match names.iter().find(|(name, _)| name == value.key()) {
            Some((_, cell)) => found.push((*cell, self.recorder.id(Some(value)))),
            None => wrong = Some("a scan returned a key that was never written"),
        };
        if self.plan.setup.index == IndexKind::Ordered && !self.count.is_multiple_of(3) {
            let range = self.store.range(..).map_err(|e| format!("range: {e}"))?;
            walk(range, self.count % 3 == 2, &mut see)?;
        } else {
            self.store.for_each(see).map_err(|e| format!("scan: {e}"))?;
        }
        if let Some(wrong) = wrong {
            return Err(wrong.into());
        }
        let missing: Vec<usize> = names
            .iter()
            .map(|(_, cell)| *cell)
            .filter(|cell| found.iter().all(|(other, _)| other != cell))
            .collect();
        found.extend(missing.into_iter().map(|key| (key, ABSENT)));
        self.recorder.reads(self.thread, begun, found.into_iter());
        Ok(())
    }

    fn grouped(&mut self, ops: &[Op]) -> Result<(), String> {
        let group = self.begin_group()?;
        if let Some(writer) = &mut self.writer {
            writer.group();
        }
        let done = ops.iter().try_for_each(|op| self.run(op));
        schedule::say("flush_group");
        if let Some(writer) = &mut self.writer {
            writer.flush_group().map_err(|e| format!("flush_group: {e}"))?;
        }
        self.end_group(group);
        done
    }

    /// Writes made while keys are locked are flushed when the keys are unlocked.
    fn locked(&mut self, ops: &[Op]) -> Result<(), String> {
        let group = self.begin_group()?;
        let setup = &self.plan.setup;
        let names: Vec<&[u8]> = ops.iter().flat_map(Op::keys).map(|key| setup.of_cell(key).1).collect();
        schedule::say("lock");
        if let Some(writer) = &mut self.writer {
            writer.lock(names.iter().copied()).map_err(|e| format!("lock: {e}"))?;
        }
        self.locked = true;
        let mut done = Ok(());
        for op in ops {
            done = self.run(op);
            if done.is_err() || self.writer.as_ref().is_some_and(WriterOn::wants_room) {
                break;
            }
        }
        self.locked = false;
        schedule::say("unlock");
        if let Some(writer) = &mut self.writer {
            writer.unlock().map_err(|e| format!("unlock: {e}"))?;
            if writer.wants_room() {
                schedule::say("make room");
                match writer.make_room() {
                    Err(error) if error.kind() != ErrorKind::OutOfSpace => {
                        return Err(format!("make room: {error}"));
                    }
                    _ => {}
                }
            }
        }
        self.end_group(group);
        done
    }

    fn begin_group(&mut self) -> Result<usize, String> {
        let group = {
            let flushed = &mut self.recorder.notes().history.flushed;
            flushed.push(None);
            flushed.len() - 1
        };
        self.group = Some(group);
        self.ready()?;
        Ok(group)
    }

    fn end_group(&mut self, group: usize) {
        self.group = None;
        let position = self.recorder.medium.position();
        self.recorder.notes().history.flushed[group] = Some(position);
    }
}

/// Goes through an iterator, which shows each key once at most, and in order.
fn walk(
    mut range: Range<'_, SimMedium>,
    reverse: bool,
    see: &mut dyn FnMut(&Value<'_>),
) -> Result<(), String> {
    let mut last: Option<Vec<u8>> = None;
    while let Some(value) = if reverse { range.next_back() } else { range.next() } {
        let value = value.map_err(|e| format!("range: {e}"))?;
        let follows =
            |last: &Vec<u8>| if reverse { value.key() < &last[..] } else { value.key() > &last[..] };
        if last.as_ref().is_some_and(|last| !follows(last)) {
            return Err(format!("an iterator returned key {:02x?} out of order, or twice", value.key()));
        }
        last = Some(value.key().to_vec());
        see(&value);
    }
    Ok(())
}
