//! Runs operations on a store and records their effects, their times and the state that each one implies.

use crate::check::{accounts, audit, read_all};
use crate::collections::{self, Known};
use crate::entry::Entry;
use crate::oracle::{Allowed, Effects, History, Means, State, Step, apply};
use crate::phases::{Inside, Trace};
use crate::setup::{Change, Op, Promise, Setup, hostile, table_name};
use duramen::{
    Batch, CollectionOn, Error, ErrorKind, IndexKind, Meta, Modified, Stamp, Stats, StoreOn, Swap, TableOn,
    Update, WriterOn,
};
use duramen_media::sim::{Model, Rng, SimMedium};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// An open store and its expected content.
pub struct Session<'s> {
    setup: &'s Setup,
    medium: SimMedium,
    boot: u64,
    store: Option<StoreOn<SimMedium>>,
    writers: [Option<WriterOn<SimMedium>>; 2],
    /// Handles of named tables, including dropped ones.
    tables: Vec<Option<TableOn<SimMedium>>>,
    /// The collection at each place, if there is one.
    collections: Vec<Option<CollectionOn<SimMedium>>>,
    /// A handle of a deleted collection.
    gone: Option<CollectionOn<SimMedium>>,
    current: usize,
    grouped: bool,
    /// A reader keeps a value, so space may not be reclaimed.
    holding: bool,
    state: State,
    committed: State,
    /// For each key: its number of changes, and an observed stamp with that number and the content at the time.
    changes: Vec<u64>,
    seen: Vec<Option<Seen>>,
    next_value: u64,
    /// Position in the log when the current operation had committed everything before it.
    midway: Option<usize>,
    history: History,
    trace: Trace,
}

/// A stamp, its key's number of changes at the time, and the key's content.
type Seen = (Stamp, u64, Option<Arc<Entry>>);

/// The handles of the tables in a store.
fn find_tables(setup: &Setup, store: &StoreOn<SimMedium>) -> Result<Vec<Option<TableOn<SimMedium>>>, String> {
    let find = |table| store.find_table(table_name(table)).map_err(|error| error.to_string());
    (1..=setup.tables).map(find).collect()
}

/// The collections in a store.
fn find_collections(
    setup: &Setup,
    store: &StoreOn<SimMedium>,
    tables: &[Option<TableOn<SimMedium>>],
) -> Result<Vec<Option<CollectionOn<SimMedium>>>, String> {
    let find = |place| match setup.table_of_place(place) {
        0 => collections::find(setup, store, None, place),
        table => match &tables[table - 1] {
            Some(handle) => collections::find(setup, store, Some(handle), place),
            None => Ok(None),
        },
    };
    (0..setup.all_places()).map(find).collect()
}

/// The outcome of an operation.
enum Outcome {
    /// It took effect as intended.
    Done,
    /// It had no effect and was allowed to have none.
    Refused,
}

impl<'s> Session<'s> {
    /// Opens the store on `medium`; `before` is its allowed content, `opened` its required content once open.
    ///
    /// # Errors
    /// Returns a description of the violation.
    pub fn open(
        setup: &'s Setup,
        medium: SimMedium,
        boot: u64,
        before: Allowed,
        opened: &Allowed,
        rng: &mut Rng,
    ) -> Result<Self, String> {
        let start = medium.position();
        let trace = Trace::new(medium.clone());
        let store = StoreOn::open_on(medium.clone(), &setup.options_traced(boot, &trace))
            .map_err(|error| format!("the store does not open: {error}"))?;
        let state = read_all(setup, &store, true, Some(opened))?;
        opened.check(&state, setup.now())?;
        let end = medium.position();
        let history = History::new(setup.case, start..end, setup.now(), before, state.clone());
        let keys = setup.cells();
        let tables = find_tables(setup, &store)?;
        let collections = find_collections(setup, &store, &tables)?;
        Ok(Self {
            setup,
            medium,
            boot,
            store: Some(store),
            writers: [None, None],
            tables,
            collections,
            gone: None,
            current: 0,
            grouped: false,
            holding: false,
            committed: state.clone(),
            state,
            changes: vec![0; keys],
            seen: vec![None; keys],
            next_value: rng.bits() >> 24 << 16,
            midway: None,
            history,
            trace,
        })
    }

    /// The history so far.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Cuts the power: drops the store and keeps the record.
    #[must_use]
    pub fn power_off(mut self) -> (SimMedium, History) {
        self.medium.power_off();
        self.history.spans = self.trace.take();
        self.writers = [None, None];
        self.tables.clear();
        self.collections.clear();
        self.gone = None;
        self.store = None;
        (self.medium.clone(), self.history.clone())
    }

    /// Runs all of `ops`.
    ///
    /// # Errors
    /// Returns a description of the violation.
    pub fn run(&mut self, ops: &[Op]) -> Result<(), String> {
        for op in ops {
            match op {
                Op::Hold { key, then } => self.hold(*key, then),
                op => self.step(op),
            }
            .map_err(|what| format!("{op:?}: {what}"))?;
        }
        let found = match &self.store {
            Some(store) if !self.grouped => read_all(self.setup, store, false, None)?,
            _ => return Ok(()),
        };
        Allowed::exactly(self.state.clone())
            .check(&found, self.setup.now())
            .map_err(|what| format!("without any crash, {what}"))?;
        accounts(self.store()?).map_err(|wrong| format!("at the end: {wrong}"))
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        let setup = self.setup;
        let mut start = self.medium.position();
        let before = self.store()?.stats();
        let mut effects = Effects::new();
        let mut means = if self.grouped { Means::Grouped } else { Means::Write };
        let outcome = match op {
            Op::Put { key, .. } | Op::Delete { key } | Op::Update { key, .. } | Op::Swap { key, .. }
                if !self.is_there(*key)? =>
            {
                Outcome::Refused
            }
            Op::Put { key, bytes, tag, ttl, updatable } => {
                let expires_at = ttl.map(|ttl| self.setup.now() + ttl);
                let value = self.value(*bytes);
                let entry = Entry { value, tag: *tag, expires_at, updatable: *updatable };
                let meta = Meta { tag: *tag, expires_at, updatable: *updatable, ..Meta::default() };
                let (table, name) = (self.table_of(*key), setup.of_cell(*key).1);
                let writer = self.writer()?;
                let done = match &table {
                    None => writer.put_with(name, &entry.value, meta),
                    Some(table) => writer.table(table).put_with(name, &entry.value, meta),
                };
                effects.push((*key, Some(Arc::new(entry))));
                self.outcome(done)?.0
            }
            Op::Delete { key } => {
                let present = self.visible(*key).is_some();
                let (table, name) = (self.table_of(*key), setup.of_cell(*key).1);
                let writer = self.writer()?;
                let done = match &table {
                    None => writer.delete(name),
                    Some(table) => writer.table(table).delete(name),
                };
                let (outcome, was) = self.outcome(done)?;
                let may_refuse = self.holding || setup.case.promise() == Promise::Uncommitted;
                if matches!(outcome, Outcome::Refused) && !may_refuse {
                    return Err(format!("a delete finds no space: {:?}", self.store()?.stats()));
                }
                if matches!(outcome, Outcome::Done) && was != Some(present) {
                    return Err(format!("delete returned {was:?}, the key was present: {present}"));
                }
                if present {
                    effects.push((*key, None));
                }
                outcome
            }
            Op::Update { key, share, bytes, fresh } => {
                self.update(*key, *share, *bytes, *fresh, &mut effects)?
            }
            Op::Swap { key, fresh, bytes } => self.swap(*key, *fresh, *bytes, &mut effects)?,
            Op::Collection(change) => self.change_collection(change, &mut effects)?,
            Op::Batch { writes, expects } => self.batch(writes, expects, &mut effects)?,
            Op::Make { .. } | Op::Clear { .. } | Op::Drop { .. } | Op::Exchange { .. } => {
                let (outcome, changed) = self.change_tables(op, &mut effects)?;
                means = match setup.case.promise() {
                    Promise::Uncommitted => means,
                    _ if !changed => means,
                    // Where writes wait for their epochs, it commits the current one.
                    Promise::Suffix => Means::Commit,
                    Promise::Nothing if setup.case.model == Model::Page => Means::Commit,
                    Promise::Nothing if self.grouped => Means::Table,
                    Promise::Nothing => Means::Write,
                };
                outcome
            }
            Op::Group => {
                self.writer()?.group();
                self.grouped = true;
                means = Means::Grouped;
                Outcome::Done
            }
            Op::FlushGroup => {
                self.grouped = false;
                means = Means::FlushGroup;
                let done = self.writer()?.flush_group();
                self.outcome(done)?.0
            }
            Op::Advance(millis) => {
                self.setup.clock.fetch_add(*millis, Relaxed);
                Outcome::Done
            }
            Op::Maintain => {
                self.store()?.maintain().map_err(|error| error.to_string())?;
                if self.setup.case.promise() == Promise::Suffix {
                    means = Means::Commit;
                }
                Outcome::Done
            }
            Op::Commit => {
                self.store()?.commit().map_err(|error| error.to_string())?;
                self.committed.clone_from(&self.state);
                means = Means::Commit;
                Outcome::Done
            }
            Op::Reopen => {
                self.reopen(&mut effects)?;
                means = Means::Commit;
                Outcome::Done
            }
            // Holds do not nest.
            Op::Hold { .. } => Outcome::Refused,
            Op::Switch => {
                self.current ^= 1;
                Outcome::Done
            }
            Op::Retire => {
                self.writers[self.current] = None;
                Outcome::Done
            }
        };
        if matches!(outcome, Outcome::Refused) {
            effects.clear();
        }
        for (key, _) in &effects {
            self.changes[*key] += 1;
        }
        apply(&mut self.state, &effects);
        if means == Means::Commit {
            self.committed.clone_from(&self.state);
        }
        let (end, now) = (self.medium.position(), self.setup.now());
        let inside = self.inside(op, &before, means);
        if let Some(end) = self.midway.take() {
            let (effects, means, inside) = (Effects::new(), Means::Commit, inside.clone());
            let what = format!("{op:?}, up to the commit within");
            self.history.steps.push(Step { start, end, effects, means, now, what, inside });
            start = end;
        }
        self.history.steps.push(Step { start, end, effects, means, now, what: format!("{op:?}"), inside });
        Ok(())
    }

    /// The phases that contain a crash during the step that just ended.
    fn inside(&self, op: &Op, before: &Stats, means: Means) -> Vec<Inside> {
        let mut inside = Vec::new();
        if means == Means::Grouped {
            inside.push(Inside::Group);
        }
        match op {
            Op::Batch { .. } | Op::Collection(_) => inside.push(Inside::Batch),
            Op::Update { .. } => inside.push(Inside::Update),
            Op::Delete { .. } => inside.push(Inside::Delete),
            Op::Make { .. } | Op::Clear { .. } | Op::Drop { .. } | Op::Exchange { .. } => {
                inside.push(Inside::Tables);
            }
            Op::Put { bytes, .. } if *bytes as u64 > u64::from(self.setup.extent_bytes) => {
                inside.push(Inside::Large);
            }
            _ => {}
        }
        let Some(store) = &self.store else { return inside };
        let now = store.stats();
        // A reopened store counts from zero; recovery builds its index.
        let reopened = matches!(op, Op::Reopen);
        let grew = |before: u64, now: u64| now > if reopened { 0 } else { before };
        let seen = [
            (Inside::Split, grew(before.index_splits, now.index_splits)),
            (Inside::Doubling, grew(before.index_doublings, now.index_doublings)),
            (Inside::Sweep, grew(before.expired_keys, now.expired_keys)),
            (Inside::Background, matches!(op, Op::Maintain) && now.compactions > before.compactions),
        ];
        inside.extend(seen.into_iter().filter(|(_, seen)| *seen).map(|(inside, _)| inside));
        inside
    }

    /// Keeps a value that was read while other operations run.
    fn hold(&mut self, key: usize, then: &[Op]) -> Result<(), String> {
        if !self.is_there(key)? {
            return then.iter().try_for_each(|op| self.step(op));
        }
        let store = self.store()?.clone();
        let (table, name) = (self.table_of(key), self.setup.of_cell(key).1);
        let held = match &table {
            None => store.get(name),
            Some(table) => table.get(name),
        };
        let held = held.map_err(|error| error.to_string())?;
        let wanted = self.visible(key);
        self.holding = true;
        let done = then.iter().try_for_each(|op| self.step(op));
        self.holding = false;
        done?;
        if held.as_deref() != wanted.as_ref().map(|entry| &entry.value[..]) {
            return Err("a value changed while it was being read".into());
        }
        Ok(())
    }

    fn outcome<T>(&self, done: duramen::Result<T>) -> Result<(Outcome, Option<T>), String> {
        match done {
            Ok(value) => Ok((Outcome::Done, Some(value))),
            Err(error) if error.kind() == ErrorKind::OutOfSpace => Ok((Outcome::Refused, None)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn update(
        &mut self,
        key: usize,
        share: usize,
        bytes: usize,
        fresh: Option<bool>,
        effects: &mut Effects,
    ) -> Result<Outcome, String> {
        let old = self.visible(key);
        let len = old.as_ref().map_or(bytes, |entry| entry.value.len());
        if bytes > len {
            return Ok(Outcome::Refused);
        }
        let mut at = share * (len - bytes) / 255;
        if share.is_multiple_of(2) {
            at -= at % 8;
        }
        let new = self.value(bytes);
        if let (Some(true), Ok(field)) = (fresh, <[u8; 8]>::try_from(&new[..]))
            && share.is_multiple_of(3)
        {
            return self.modify(key, at, field, effects);
        }
        let stamp = fresh.map(|fresh| self.stamp(key, fresh)).transpose()?;
        let setup = self.setup;
        let (table, name) = (self.table_of(key), setup.of_cell(key).1);
        let writer = self.writer()?;
        let done = match (stamp, &table) {
            (None, None) => writer.update(name, at, &new).map(Some),
            (None, Some(table)) => writer.table(table).update(name, at, &new).map(Some),
            (Some((stamp, _)), None) => writer.compare_and_update(name, stamp, at, &new),
            (Some((stamp, _)), Some(table)) => writer.table(table).compare_and_update(name, stamp, at, &new),
        };
        let (outcome, did) = self.outcome(done)?;
        let changed = stamp.is_some_and(|(_, changed)| changed);
        match (did.flatten(), old) {
            (Some(Update::InPlace | Update::NewVersion), _) if changed => {
                Err("an update succeeded although the key had changed".into())
            }
            (None, _) if matches!(outcome, Outcome::Done) && stamp.is_some() => Ok(Outcome::Refused),
            (Some(Update::Absent), Some(_)) => Err("an update reports an existing key as absent".into()),
            (Some(Update::InPlace | Update::NewVersion), None) => {
                Err("an update of an absent key succeeded".into())
            }
            (_, None) => Ok(outcome),
            (_, Some(old)) => {
                let mut entry = Entry::clone(&old);
                entry.value[at..at + bytes].copy_from_slice(&new);
                effects.push((key, Some(Arc::new(entry))));
                Ok(outcome)
            }
        }
    }

    /// Updates the value that it is shown, in place or not at all.
    fn modify(
        &mut self,
        key: usize,
        at: usize,
        field: [u8; 8],
        effects: &mut Effects,
    ) -> Result<Outcome, String> {
        let (setup, mut shown) = (self.setup, None);
        let (table, name) = (self.table_of(key), setup.of_cell(key).1);
        let change = |meta, value: &[u8]| {
            let Meta { tag, expires_at, updatable, .. } = meta;
            shown = Some(Entry { value: value.to_vec(), tag, expires_at, updatable });
            Some((at, field))
        };
        let writer = self.writer()?;
        let done = match &table {
            None => writer.modify_in_place(name, change),
            Some(table) => writer.table(table).modify_in_place(name, change),
        };
        if shown.is_some() && shown.as_ref() != self.visible(key).as_deref() {
            return Err("an update in place got no value of an existing key".into());
        }
        match (self.outcome(done)?, shown) {
            ((outcome, Some(Modified::InPlace)), Some(mut entry)) => {
                entry.value[at..at + 8].copy_from_slice(&field);
                effects.push((key, Some(Arc::new(entry))));
                Ok(outcome)
            }
            _ => Ok(Outcome::Refused),
        }
    }

    /// A stamp of `key`, and whether the key changed after that stamp was observed.
    fn stamp(&mut self, key: usize, fresh: bool) -> Result<(Stamp, bool), String> {
        let now = self.visible(key);
        if !fresh && let Some((stamp, count, then)) = &self.seen[key] {
            // A key that was absent, put and deleted may have its old stamp again. So may a cell that has its old bytes
            // again.
            let changed = *count != self.changes[key] && now != *then;
            return Ok((*stamp, changed));
        }
        let setup = self.setup;
        let (table, name) = (self.table_of(key), setup.of_cell(key).1);
        let writer = self.writer()?;
        let (stamp, is_present) = match &table {
            None => writer.get_stamped(name).map(|(stamp, value)| (stamp, value.is_some())),
            Some(table) => {
                writer.table(table).get_stamped(name).map(|(stamp, value)| (stamp, value.is_some()))
            }
        }
        .map_err(|error| error.to_string())?;
        if is_present != now.is_some() {
            return Err(format!("a read finds the key present: {is_present}, wanted {}", now.is_some()));
        }
        self.seen[key] = Some((stamp, self.changes[key], now));
        Ok((stamp, false))
    }

    fn swap(
        &mut self,
        key: usize,
        fresh: bool,
        bytes: Option<usize>,
        effects: &mut Effects,
    ) -> Result<Outcome, String> {
        let (stamp, changed) = self.stamp(key, fresh)?;
        let value = bytes.map(|bytes| self.value(bytes));
        let new = value.as_deref().map(|value| (value, Meta { tag: 3, ..Meta::default() }));
        let setup = self.setup;
        let (table, name) = (self.table_of(key), setup.of_cell(key).1);
        let writer = self.writer()?;
        let done = match &table {
            None => writer.compare_and_swap(name, stamp, new),
            Some(table) => writer.table(table).compare_and_swap(name, stamp, new),
        };
        let (_, swap) = self.outcome(done)?;
        match swap {
            Some(Swap::Done) if changed => Err("a swap succeeded although the key had changed".into()),
            Some(Swap::Done) => {
                if value.is_some() || self.visible(key).is_some() {
                    let entry = |value| Entry { value, tag: 3, expires_at: None, updatable: false };
                    effects.push((key, value.map(|value| Arc::new(entry(value)))));
                }
                Ok(Outcome::Done)
            }
            // Compaction may also change a stamp.
            Some(Swap::Changed) | None => Ok(Outcome::Refused),
        }
    }

    fn batch(
        &mut self,
        writes: &[(usize, Option<usize>, Option<u64>)],
        expects: &[(usize, bool)],
        effects: &mut Effects,
    ) -> Result<Outcome, String> {
        let mut batch = Batch::new();
        let mut changed = false;
        for key in writes.iter().map(|(key, ..)| key).chain(expects.iter().map(|(key, _)| key)) {
            if !self.is_there(*key)? {
                return Ok(Outcome::Refused);
            }
        }
        for (key, fresh) in expects {
            let (stamp, now) = self.stamp(*key, *fresh)?;
            changed |= now;
            let name = self.setup.of_cell(*key).1;
            batch.table(self.table_of(*key).as_ref()).expect(name, stamp);
        }
        for (key, bytes, ttl) in writes {
            let name = self.setup.of_cell(*key).1;
            batch.table(self.table_of(*key).as_ref());
            match bytes {
                Some(bytes) => {
                    let expires_at = ttl.map(|ttl| self.setup.now() + ttl);
                    let value = self.value(*bytes);
                    batch.put_with(name, &value, Meta { tag: 9, expires_at, ..Meta::default() });
                    let entry = Entry { value, tag: 9, expires_at, updatable: false };
                    effects.push((*key, Some(Arc::new(entry))));
                }
                None => {
                    batch.delete(name);
                    effects.push((*key, None));
                }
            }
        }
        let is_closure = (self.setup.spans || self.setup.seed.is_multiple_of(3)) && expects.is_empty();
        let done = if is_closure {
            // Over the same keys; some transactions are aborted first.
            if writes.len().is_multiple_of(if self.setup.spans { 2 } else { 3 }) {
                let _ = self.transaction(writes, effects, true)?;
            }
            self.transaction(writes, effects, false)?
        } else {
            self.writer()?.apply(&batch)
        };
        match self.outcome(done)?.1 {
            Some(Swap::Done) if changed => Err("a batch was applied although a key had changed".into()),
            Some(Swap::Done) => Ok(Outcome::Done),
            Some(Swap::Changed) if expects.is_empty() => Err("a batch without conditions failed".into()),
            Some(Swap::Changed) | None => Ok(Outcome::Refused),
        }
    }

    fn change_collection(&mut self, change: &Change, effects: &mut Effects) -> Result<Outcome, String> {
        let (setup, store) = (self.setup, self.store()?.clone());
        if let Some(gone) = &self.gone {
            collections::check_gone(gone)?;
        }
        let known = Known {
            setup,
            store: &store,
            tables: &self.tables,
            collections: &self.collections,
            state: &self.state,
            grouped: self.grouped,
        };
        let mut number = self.next_value;
        let plan = known.plan(change, |bytes| {
            number += 1;
            hostile(&self.medium, number, bytes)
        });
        self.next_value = number;
        let Some(plan) = plan else { return Ok(Outcome::Refused) };
        let done = match (&plan.alone, change) {
            (Some((at, value)), Change::Elements { place, .. }) => {
                let present = self.visible(setup.cell_of_root(*place) + 1 + at).is_some();
                let Some(collection) = self.collections[*place].clone() else {
                    return Err("no handle".into());
                };
                let key = collections::element_key(*at);
                let mut writer = self.writer()?.collection(&collection);
                match value {
                    Some(value) => writer.put_with(&key, value, collections::element_meta(value)),
                    None => match writer.delete(&key) {
                        Ok(was) if was != present => {
                            return Err(format!(
                                "a delete returned {was}, the element was present: {present}"
                            ));
                        }
                        done => done.map(|_| ()),
                    },
                }
            }
            (None, Change::Elements { place, .. }) if number.is_multiple_of(2) => {
                // Some such transactions are aborted first.
                if number.is_multiple_of(4) {
                    let _ = self.write_together(*place, &plan.together, true)?;
                }
                self.write_together(*place, &plan.together, false)?
            }
            _ => match self.writer()?.apply(&plan.batch) {
                Ok(Swap::Changed) => return Err("a batch without conditions failed".into()),
                done => done.map(|_| ()),
            },
        };
        let outcome = self.outcome(done)?.0;
        if matches!(outcome, Outcome::Refused) {
            let may_refuse = self.holding || setup.case.promise() == Promise::Uncommitted;
            if plan.deletes && !may_refuse {
                return Err(format!("a delete finds no space: {:?}", self.store()?.stats()));
            }
            if let (Change::Make { .. }, Some((_, Some(made)))) = (change, plan.leads.into_iter().next()) {
                made.abandon();
            }
            return Ok(outcome);
        }
        *effects = plan.effects;
        let mut left: Vec<_> = Vec::new();
        for (place, now) in plan.leads {
            left.extend(std::mem::replace(&mut self.collections[place], now));
        }
        left.retain(|gone| self.collections.iter().flatten().all(|other| other.id() != gone.id()));
        self.gone = left.pop().or_else(|| self.gone.take());
        if let Some(gone) = &self.gone {
            collections::check_gone(gone)?;
        }
        Ok(outcome)
    }

    /// Writes elements of the collection at a place by one call, in a transaction of their own.
    fn write_together(
        &mut self,
        place: usize,
        writes: &[(usize, Option<Vec<u8>>)],
        gives_up: bool,
    ) -> Result<duramen::Result<()>, String> {
        let cell = self.setup.cell_of_root(place) + 1;
        let mut present: Vec<bool> =
            (0..collections::ELEMENTS).map(|at| self.visible(cell + at).is_some()).collect();
        let mut were_there = 0;
        for (at, value) in writes {
            were_there += u64::from(std::mem::replace(&mut present[*at], value.is_some()));
        }
        let Some(collection) = self.collections[place].clone() else { return Err("no handle".into()) };
        let keys: Vec<_> = writes.iter().map(|(at, _)| collections::element_key(*at)).collect();
        let writes: Vec<_> =
            keys.iter().zip(writes).map(|(key, (_, value))| (&key[..], value.as_deref())).collect();
        let done = self.writer()?.transaction_unchecked(|transaction| {
            let mut elements = transaction.collection(&collection);
            let meta = |value: Option<&[u8]>| value.map(collections::element_meta).unwrap_or_default();
            let found = if writes.iter().any(|(_, value)| meta(*value).expires_at.is_some()) {
                writes.iter().try_fold(0, |found, &(key, value)| {
                    let old = elements.replace(key, value.map(|value| (value, meta(Some(value)))))?;
                    duramen::Result::Ok(found + u64::from(old.is_some()))
                })?
            } else {
                elements.replace_all(&writes, Meta::default())?
            };
            if gives_up { Err(Error::aborted("on purpose")) } else { Ok(found) }
        });
        match done {
            Ok(found) if found != were_there => {
                Err(format!("a call found {found} elements, {were_there} were there"))
            }
            Err(error) if error.kind() == ErrorKind::Aborted => Ok(Ok(())),
            done => Ok(done.map(|_| ())),
        }
    }

    /// Applies the writes of a batch with known effects as a transaction that reads its own writes.
    fn transaction(
        &mut self,
        writes: &[(usize, Option<usize>, Option<u64>)],
        effects: &Effects,
        gives_up: bool,
    ) -> Result<duramen::Result<Swap>, String> {
        let keys: Vec<_> =
            writes.iter().map(|(key, ..)| (self.table_of(*key), self.setup.of_cell(*key).1)).collect();
        let mut wrong = None;
        let written = &effects[effects.len() - writes.len()..];
        // The transaction's earlier writes belong to an epoch that is committed at this point; its commit record does
        // not.
        let commits = self.setup.spans && !self.grouped && writes.len() == 3;
        let (store, medium) = (self.store()?.clone(), self.medium.clone());
        let mut committed = None;
        let done = self.writer()?.transaction(|transaction| {
            for (number, ((table, name), (_, entry))) in keys.iter().zip(written).enumerate() {
                if commits && number == 2 {
                    store.commit()?;
                    committed = Some(medium.position());
                }
                let mut keys = match table {
                    Some(table) => transaction.table(table),
                    None => transaction.store(),
                };
                match entry {
                    Some(entry) => {
                        let meta = Meta { tag: 9, expires_at: entry.expires_at, ..Meta::default() };
                        keys.put_with(name, &entry.value, meta)?;
                    }
                    None => {
                        keys.delete(name)?;
                    }
                }
                let found = keys.get(name)?.map(|value| value.to_vec());
                if found != entry.as_ref().map(|entry| entry.value.clone()) {
                    wrong =
                        Some(format!("a transaction reads {found:?} from {name:?}, wanted its own write"));
                }
            }
            if gives_up { Err(Error::aborted("on purpose")) } else { Ok(Swap::Done) }
        });
        if committed.is_some() {
            self.committed.clone_from(&self.state);
            self.midway = committed;
        }
        match (wrong, done) {
            (Some(wrong), _) => Err(wrong),
            (None, Err(error)) if error.kind() == ErrorKind::Aborted => Ok(Ok(Swap::Done)),
            (None, done) => Ok(done),
        }
    }

    fn reopen(&mut self, effects: &mut Effects) -> Result<(), String> {
        self.writers = [None, None];
        self.tables.clear();
        self.collections.clear();
        self.gone = None;
        self.seen.fill(None);
        let Some(store) = self.store.take() else { return Err("no store".into()) };
        store.close_discarding().map_err(|error| format!("close: {error}"))?;
        if self.setup.case.promise() == Promise::Uncommitted {
            // Uncommitted effects are dropped.
            let kept = self.committed.iter().cloned().enumerate();
            effects.extend(kept.filter(|(key, entry)| self.state[*key] != *entry));
        }
        let mut wanted = self.state.clone();
        apply(&mut wanted, effects);
        let options = self.setup.options_traced(self.boot, &self.trace);
        let store = StoreOn::open_on(self.medium.clone(), &options)
            .map_err(|error| format!("the store does not open after a clean close: {error}"))?;
        let found = read_all(self.setup, &store, true, None)?;
        Allowed::exactly(wanted)
            .check(&found, self.setup.now())
            .map_err(|what| format!("after a clean close, {what}"))?;
        // The audit also compares the live bytes at the close with the image's accounts.
        audit(self.setup, &store, &self.medium, &found)
            .map_err(|what| format!("after a clean close, {what}"))?;
        self.tables = find_tables(self.setup, &store)?;
        self.collections = find_collections(self.setup, &store, &self.tables)?;
        self.store = Some(store);
        Ok(())
    }

    fn store(&self) -> Result<&StoreOn<SimMedium>, String> {
        self.store.as_ref().ok_or_else(|| "no store".into())
    }

    fn writer(&mut self) -> Result<&mut WriterOn<SimMedium>, String> {
        let at = self.current;
        if self.writers[at].is_none() {
            let made = self.store()?.writer().map_err(|error| error.to_string())?;
            self.writers[at] = Some(made);
        }
        self.writers[at].as_mut().ok_or_else(|| "no writer".into())
    }

    /// The handle of a cell's table; `None` is the store's own table.
    fn table_of(&self, cell: usize) -> Option<TableOn<SimMedium>> {
        let table = self.setup.of_cell(cell).0;
        self.tables.get(table.checked_sub(1)?).cloned().flatten()
    }

    /// Whether a cell's table exists; a handle of a dropped table must report that.
    fn is_there(&self, cell: usize) -> Result<bool, String> {
        let (table, name) = self.setup.of_cell(cell);
        if table == 0 || self.state[self.setup.cell_of_table(table)].is_some() {
            return Ok(true);
        }
        if let Some(handle) = &self.tables[table - 1] {
            let said = [handle.get(name).map(|_| ()), handle.put(name, b"never"), handle.clear()];
            // A put looks for space first.
            let is_reported = |at: usize| {
                let kind = said[at].as_ref().err().map(duramen::Error::kind);
                kind == Some(ErrorKind::NotFound) || at == 1 && kind == Some(ErrorKind::OutOfSpace)
            };
            if let Some(other) = (0..said.len()).find(|&at| !is_reported(at)) {
                return Err(format!("a handle of a dropped table returns {:?}", said[other]));
            }
        }
        Ok(false)
    }

    /// Changes whole tables; also returns whether it changed anything.
    fn change_tables(&mut self, op: &Op, effects: &mut Effects) -> Result<(Outcome, bool), String> {
        let setup = self.setup;
        let store = self.store()?.clone();
        let is_there = |table: usize| self.state[setup.cell_of_table(table)].is_some();
        let emptied = |table: usize, effects: &mut Effects| {
            let cells = setup.cells_of(table).chain(setup.cells_of_places(table));
            let kept = cells.filter(|&cell| self.state[cell].is_some());
            effects.extend(kept.map(|cell| (cell, None)));
        };
        let mut made = None;
        let done = match *op {
            Op::Make { table, ordered } => {
                let kind = if ordered { IndexKind::Ordered } else { IndexKind::Hash };
                let entry = Arc::new(Setup::entry_of_table(ordered));
                let done = store.table(table_name(table), kind);
                match &self.state[setup.cell_of_table(table)] {
                    Some(there) if *there != entry => {
                        return match done {
                            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                                Ok((Outcome::Refused, false))
                            }
                            done => Err(format!("a table was opened with the wrong kind of index: {done:?}")),
                        };
                    }
                    Some(_) => {}
                    None => effects.push((setup.cell_of_table(table), Some(entry))),
                }
                done.map(|handle| made = Some((table, handle)))
            }
            Op::Clear { table } | Op::Drop { table } if !is_there(table) => {
                return match store.drop_table(table_name(table)) {
                    Ok(false) => Ok((Outcome::Refused, false)),
                    done => Err(format!("a missing table was dropped: {done:?}")),
                };
            }
            Op::Clear { table } => {
                emptied(table, effects);
                let Some(handle) = &self.tables[table - 1] else { return Err("no handle".into()) };
                handle.clear()
            }
            Op::Drop { table } => {
                emptied(table, effects);
                effects.push((setup.cell_of_table(table), None));
                store.drop_table(table_name(table)).map(|_| ())
            }
            Op::Exchange { tables: [a, b] } => {
                let done = store.swap_tables(&table_name(a), &table_name(b));
                if !is_there(a) || !is_there(b) {
                    return match done {
                        Err(error) if error.kind() == ErrorKind::NotFound => Ok((Outcome::Refused, false)),
                        done => Err(format!("a missing table was swapped: {done:?}")),
                    };
                }
                let own = std::iter::once((setup.cell_of_table(a), setup.cell_of_table(b)));
                let places = setup.cells_of_places(a).zip(setup.cells_of_places(b));
                for (a, b) in setup.cells_of(a).zip(setup.cells_of(b)).chain(own).chain(places) {
                    if self.state[a] != self.state[b] {
                        effects.extend([(a, self.state[b].clone()), (b, self.state[a].clone())]);
                    }
                }
                done
            }
            _ => return Err("not about tables".into()),
        };
        let (outcome, _) = self.outcome(done)?;
        let may_refuse = self.holding || setup.case.promise() == Promise::Uncommitted;
        if matches!(outcome, Outcome::Refused) && !may_refuse && !matches!(op, Op::Make { .. }) {
            return Err(format!("found no space: {:?}", store.stats()));
        }
        if let Some((table, handle)) = made {
            self.tables[table - 1] = Some(handle);
        }
        // Nothing is written when there is nothing to change.
        let is_idle = match *op {
            Op::Make { .. } => effects.is_empty(),
            Op::Exchange { tables: [a, b] } => a == b,
            _ => false,
        };
        let changed = matches!(outcome, Outcome::Done) && !is_idle;
        let places_of = |table: usize| table * setup.places..(table + 1) * setup.places;
        match *op {
            // They are removed with their table, at some later time.
            Op::Clear { table } | Op::Drop { table } if changed => {
                self.collections[places_of(table)].fill(None)
            }
            Op::Exchange { tables: [a, b] } if changed => {
                places_of(a).zip(places_of(b)).for_each(|(a, b)| self.collections.swap(a, b));
            }
            _ => {}
        }
        Ok((outcome, changed))
    }

    fn visible(&self, key: usize) -> Option<Arc<Entry>> {
        let now = self.setup.now();
        self.state[key].clone().filter(|entry| entry.expires_at.is_none_or(|at| at > now))
    }

    /// A value that no other operation writes.
    fn value(&mut self, bytes: usize) -> Vec<u8> {
        self.next_value += 1;
        hostile(&self.medium, self.next_value, bytes)
    }
}
