//! Checks a store that was opened on an image, and continues to use it.

use crate::audit;
use crate::collections::{ELEMENTS, delete_places, element_key, make_again, read_places};
use crate::entry::Entry;
use crate::oracle::{Allowed, State};
use crate::setup::{Promise, Setup, table_name, value};
use duramen::{Batch, ErrorKind, IndexKind, Meta, Options, Range, StoreOn, TableOn};
use duramen_media::Bytes;
use duramen_media::sim::{Memory, Rng, SimMedium};
use std::sync::Arc;

type Sim = StoreOn<SimMedium>;

fn entry(value: &duramen::Value<'_>) -> Entry {
    let meta = value.meta();
    Entry { value: value.to_vec(), tag: meta.tag, expires_at: meta.expires_at, updatable: meta.updatable }
}

fn is_entry(value: &duramen::Value<'_>, entry: &Entry) -> bool {
    let meta = value.meta();
    (meta.tag, meta.expires_at, meta.updatable) == (entry.tag, entry.expires_at, entry.updatable)
        && value[..] == entry.value[..]
}

/// The store's own table, or a named one.
enum Place<'s> {
    Store(&'s Sim),
    Table(TableOn<SimMedium>),
}

impl Place<'_> {
    fn for_each(&self, visit: impl FnMut(&duramen::Value<'_>)) -> duramen::Result<()> {
        match self {
            Self::Store(store) => store.for_each(visit),
            Self::Table(table) => table.for_each(visit),
        }
    }

    fn get(&self, key: &[u8]) -> duramen::Result<Option<duramen::Value<'_>>> {
        match self {
            Self::Store(store) => store.get(key),
            Self::Table(table) => table.get(key),
        }
    }

    fn range(&self) -> duramen::Result<Range<'_, SimMedium>> {
        match self {
            Self::Store(store) => store.range(..),
            Self::Table(table) => table.range(..),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Store(store) => store.len(),
            Self::Table(table) => table.len(),
        }
    }
}

/// The content of a store, over all tables: by a scan, by reading each key, and by the store's own count; all must
/// agree. `exact`: the store was just opened, so its count excludes expired keys. `like`: the likely content, which
/// saves copies.
///
/// # Errors
/// What does not agree.
pub fn read_all(setup: &Setup, store: &Sim, exact: bool, like: Option<&Allowed>) -> Result<State, String> {
    let mut state: State = vec![None; setup.cells()];
    let is_ordered = setup.index == IndexKind::Ordered;
    let mut roots = read_table(setup, store, &Place::Store(store), 0, is_ordered, exact, like, &mut state)?;
    let mut names = Vec::new();
    for table in 1..=setup.tables {
        let name = table_name(table);
        let Some(found) = store.find_table(&name).map_err(|error| format!("find a table: {error}"))? else {
            continue;
        };
        let kind = found.index_kind().map_err(|error| format!("table {table}: {error}"))?;
        let is_ordered = kind == IndexKind::Ordered;
        state[setup.cell_of_table(table)] = Some(Arc::new(Setup::entry_of_table(is_ordered)));
        roots += read_table(setup, store, &Place::Table(found), table, is_ordered, exact, like, &mut state)
            .map_err(|wrong| format!("table {table}: {wrong}"))?;
        names.push(name);
    }
    let listed: Vec<Vec<u8>> = store.tables().into_iter().map(|table| table.name).collect();
    if listed != names {
        return Err(format!("the store lists the tables {listed:?}, but opens {names:?}"));
    }
    let count = state[..setup.cell(setup.tables + 1, 0)].iter().flatten().count() as u64 + roots;
    if exact && store.stats().keys != count {
        return Err(format!("the store counts {} keys in all, scans find {count}", store.stats().keys));
    }
    Ok(state)
}

/// Returns the number of keys that belong to places for collections.
#[expect(clippy::too_many_arguments, reason = "a part of `read_all`")]
fn read_table(
    setup: &Setup,
    store: &Sim,
    place: &Place<'_>,
    table: usize,
    is_ordered: bool,
    exact: bool,
    like: Option<&Allowed>,
    state: &mut State,
) -> Result<u64, String> {
    let (mut wrong, mut roots) = (None, 0);
    place
        .for_each(|value| match setup.number(value.key()) {
            None if setup.is_key_of_place(value.key()) => roots += 1,
            None => wrong = Some(format!("a scan returns key {:02x?}, which was never written", value.key())),
            Some(key) => {
                let cell = setup.cell(table, key);
                let likely = like.and_then(|like| like.likely(cell)).filter(|likely| is_entry(value, likely));
                let found = likely.map_or_else(|| Arc::new(entry(value)), Arc::clone);
                if state[cell].replace(found).is_some() {
                    wrong = Some(format!("a scan returns key {key} twice"));
                }
            }
        })
        .map_err(|error| format!("scan: {error}"))?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let handle = match place {
        Place::Store(_) => None,
        Place::Table(table) => Some(table),
    };
    let read = read_places(setup, store, handle, table, state)?;
    if roots != read {
        return Err(format!("a scan returns {roots} keys of collections, single reads return {read}"));
    }
    let state = &state[setup.cells_of(table)];
    for (key, name) in setup.keys.iter().enumerate() {
        let found = place.get(name).map_err(|error| format!("get: {error}"))?;
        let agree = match (&found, &state[key]) {
            (None, None) => true,
            (Some(value), Some(entry)) => is_entry(value, entry),
            _ => false,
        };
        if !agree {
            return Err(format!("key {key}: a scan and a get differ"));
        }
    }
    if is_ordered {
        check_order(setup, place, state)?;
    }
    let count = state.iter().flatten().count() as u64 + roots;
    if exact && place.len() != count {
        return Err(format!("the table counts {} keys, a scan finds {count}", place.len()));
    }
    Ok(roots)
}

/// Iterates from both ends, and compares with the content read by other means.
fn check_order(setup: &Setup, place: &Place<'_>, state: &[Option<Arc<Entry>>]) -> Result<(), String> {
    let mut sorted: Vec<usize> = (0..setup.keys.len()).filter(|&key| state[key].is_some()).collect();
    sorted.sort_by_key(|&key| &setup.keys[key]);
    for reverse in [false, true] {
        let mut range = place.range().map_err(|error| format!("range: {error}"))?;
        let mut wanted = sorted.iter();
        while let Some(value) = if reverse { range.next_back() } else { range.next() } {
            let value = value.map_err(|error| format!("range: {error}"))?;
            if setup.is_key_of_place(value.key()) {
                continue;
            }
            let key = if reverse { wanted.next_back() } else { wanted.next() };
            let agree = key.is_some_and(|&key| {
                setup.keys[key] == value.key() && state[key].as_ref().is_some_and(|e| is_entry(&value, e))
            });
            if !agree {
                return Err(format!("an iterator returns {:02x?}, wanted key {key:?}", value.key()));
            }
        }
        if wanted.next().is_some() {
            return Err("an iterator ends before the last key".into());
        }
    }
    Ok(())
}

/// Runs the offline check of a closed store: it must be in order, or there must be none.
///
/// # Errors
/// What it finds.
pub fn sound(medium: &SimMedium, options: &Options) -> Result<(), String> {
    // The crash came before the medium had any bytes: an open creates the store again.
    if medium.len() == 0 {
        return Ok(());
    }
    let report = match duramen::check_on(medium, options) {
        Ok(report) => report,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("a check fails: {error}")),
    };
    let records = report.damaged_records.iter().map(|record| format!("{record:?}"));
    // A crash may come while one of the two copies of the superblock is written; the other one is intact then.
    let damage = report.damage.into_iter().filter(|damage| !damage.starts_with("superblock copy"));
    let found: Vec<String> = damage.chain(records).chain(report.differences).collect();
    if found.is_empty() { Ok(()) } else { Err(format!("a check finds {}", found.join("; "))) }
}

/// Opens an image and compares its content.
///
/// # Errors
/// Returns a description of the violation.
pub fn open_and_look(
    setup: &Setup,
    medium: &SimMedium,
    boot: u64,
    allowed: &Allowed,
) -> Result<(Sim, State), String> {
    let store = StoreOn::open_on(medium.clone(), &setup.options(boot))
        .map_err(|error| format!("the store does not open: {error}"))?;
    let state = read_all(setup, &store, true, Some(allowed))?;
    allowed.check(&state, setup.now())?;
    accounts(&store).map_err(|wrong| format!("after recovery: {wrong}"))?;
    Ok((store, state))
}

/// Compares the store's accounts with the content of its blocks.
///
/// # Errors
/// What differs.
pub fn accounts(store: &Sim) -> Result<(), String> {
    match store.audit() {
        differences if differences.is_empty() => Ok(()),
        differences => Err(format!("the audit finds wrong counts: {}", differences.join("; "))),
    }
}

/// The same medium for a new process.
fn again(setup: &Setup, medium: &SimMedium) -> SimMedium {
    use duramen_media::Bytes;
    let memory: Arc<Memory> = medium.memory();
    SimMedium::from_image(setup.case.model, setup.len_max, memory, medium.len())
}

fn reported(what: &'static str) -> impl Fn(duramen::Error) -> String {
    move |error| format!("after recovery, cannot {what}: {error}")
}

/// Whether `found` is `all` without some of the parts, or none.
fn is_less_some(all: u64, found: u64, parts: &[u64]) -> bool {
    match parts {
        [] => all == found,
        [part, rest @ ..] => is_less_some(all, found, rest) || is_less_some(all - part, found, rest),
    }
}

/// Compares the medium with the state that the store reports.
///
/// # Errors
/// What differs.
pub fn audit(setup: &Setup, store: &Sim, medium: &SimMedium, state: &State) -> Result<(), String> {
    let stats = store.stats();
    let found = audit::read(medium)?;
    let free = stats.free_bytes / stats.extent_bytes;
    if found.free_extents != free {
        return Err(format!(
            "{} extents are free on the medium, the store counts {free}",
            found.free_extents
        ));
    }
    if found.unsealed > 0 {
        return Err(format!("{} blocks are not sealed after recovery", found.unsealed));
    }
    if found.bytes != stats.used_bytes + stats.free_bytes + stats.given_back_bytes {
        return Err(format!(
            "the superblock says {} bytes, the store {} used, {} free, and {} given back",
            found.bytes, stats.used_bytes, stats.free_bytes, stats.given_back_bytes
        ));
    }
    let used = found.record_bytes;
    let (live, unreclaimed) = found.live_bytes(setup.now());
    let dead = used - live + found.room_bytes;
    // A recovery that reads all records reclaims the collections of expired roots. A recovery by an image leaves that
    // to the compactor.
    let may_be_counted: &[u64] = if store.recovery().checkpointed > 0 { &unreclaimed } else { &[] };
    let is_right = is_less_some(dead, stats.dead_bytes, may_be_counted);
    if !is_right && !store.recovery().estimated {
        return Err(format!(
            "{dead} bytes are dead, of {used} of records and {} of room, the store counts {}",
            found.room_bytes, stats.dead_bytes
        ));
    }
    for table in 0..=setup.tables {
        let owner = if table == 0 { Some(audit::STORE) } else { found.owner(&table_name(table)) };
        if table > 0 && owner.is_some() != state[setup.cell_of_table(table)].is_some() {
            return Err(format!("table {table}: the catalog on the medium records owner {owner:?} for it"));
        }
        let Some(owner) = owner else { continue };
        for (key, name) in setup.keys.iter().enumerate() {
            let newest = found.newest(owner, name, setup.now());
            let shown = state[setup.cell(table, key)].as_ref().map(|entry| &entry.value[..]);
            if newest.as_deref() != shown {
                return Err(format!(
                    "key {key} of table {table}: the newest record on the medium differs from the value that the store returns"
                ));
            }
        }
        for place in table * setup.places..(table + 1) * setup.places {
            let root = found.root(owner, &setup.key_of_place(place), setup.now());
            let cells = setup.cells_of_place(place);
            let value_of = |cell: usize| state[cell].as_ref().map(|entry| entry.value.clone());
            if root.as_ref().map(|(_, value)| value.clone()) != value_of(cells.start) {
                return Err(format!(
                    "place {place}: the newest root on the medium differs from the value that the store returns"
                ));
            }
            let elements = root.and_then(|(names, _)| names);
            for at in 0..ELEMENTS {
                let newest = elements.and_then(|owner| found.newest(owner, &element_key(at), setup.now()));
                if newest != value_of(cells.start + 1 + at) {
                    return Err(format!(
                        "element {at} of place {place}: the newest record on the medium differs from the value that the store returns"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Empties all named tables: by clearing, by dropping, and key by key.
fn empty_tables(setup: &Setup, store: &Sim, manual: bool, state: &mut State) -> Result<(), String> {
    let delete = |name: &[u8]| retry(store, manual, || store.delete(name));
    delete_places(setup, delete, 0, state).map_err(reported("delete a root"))?;
    let mut dropped = Vec::new();
    for table in 1..=setup.tables {
        let name = table_name(table);
        let Some(handle) = store.find_table(&name).map_err(reported("find a table"))? else { continue };
        match (setup.seed + table as u64) % 3 {
            0 => {
                retry(store, manual, || store.drop_table(&name)).map_err(reported("drop a table"))?;
                dropped.push(setup.cell_of_table(table));
            }
            1 => retry(store, manual, || handle.clear()).map_err(reported("clear a table"))?,
            _ => {
                for name in &setup.keys {
                    retry(store, manual, || handle.delete(name)).map_err(reported("delete in a table"))?;
                }
                let delete = |name: &[u8]| retry(store, manual, || handle.delete(name));
                delete_places(setup, delete, table, state).map_err(reported("delete a root in a table"))?;
            }
        }
        state[setup.cells_of_places(table)].fill(None);
    }
    dropped.into_iter().for_each(|cell| state[cell] = None);
    Ok(())
}

/// Deletes everything, reopens, expects an empty store, and writes again.
///
/// # Errors
/// Returns a description of the violation.
pub fn delete_all(
    setup: &Setup,
    store: Sim,
    medium: &SimMedium,
    boot: u64,
    state: &State,
) -> Result<(), String> {
    let manual = setup.case.promise() == Promise::Uncommitted;
    for (key, name) in setup.keys.iter().enumerate() {
        let was = retry(&store, manual, || store.delete(name)).map_err(reported("delete"))?;
        if was != state[key].is_some() {
            return Err(format!("delete of key {key} returned {was}, wanted {}", state[key].is_some()));
        }
    }
    let mut empty: State = state.clone();
    empty[..setup.cell(setup.tables + 1, 0)].fill(None);
    empty_tables(setup, &store, manual, &mut empty)?;
    if setup.case.promise() == Promise::Uncommitted {
        store.commit().map_err(reported("commit"))?;
    }
    medium.power_off();
    drop(store);
    let medium = again(setup, medium);
    let (store, mut state) = open_and_look(setup, &medium, boot, &Allowed::exactly(empty))
        .map_err(|what| format!("after deleting everything and a kill: {what}"))?;
    for (key, name) in setup.keys.iter().enumerate() {
        let value = value(key as u64 + 77, 12);
        retry(&store, manual, || store.put(name, &value)).map_err(reported("put"))?;
        state[key] = Some(Arc::new(Entry { value, tag: 0, expires_at: None, updatable: false }));
    }
    if setup.places > 0 {
        let make = || {
            let mut state = state.clone();
            make_again(setup, &store, 0, &mut state).map(|()| state)
        };
        state = retry(&store, manual, make).map_err(reported("make a collection"))?;
    }
    // One key in each table; some of the tables are created again.
    for table in 1..=setup.tables {
        let kind = [IndexKind::Hash, IndexKind::Ordered]
            [usize::from(state[setup.cell_of_table(table)].as_ref().is_some_and(|kind| kind.value == [1]))];
        let handle =
            retry(&store, manual, || store.table(table_name(table), kind)).map_err(reported("make"))?;
        let value = value(table as u64 + 770, 12);
        retry(&store, manual, || handle.put(&setup.keys[0], &value)).map_err(reported("put in a table"))?;
        state[setup.cell_of_table(table)] = Some(Arc::new(Setup::entry_of_table(kind == IndexKind::Ordered)));
        state[setup.cell(table, 0)] =
            Some(Arc::new(Entry { value, tag: 0, expires_at: None, updatable: false }));
    }
    if setup.case.promise() == Promise::Uncommitted {
        store.commit().map_err(reported("commit"))?;
    }
    medium.power_off();
    drop(store);
    let medium = again(setup, &medium);
    let (store, _) = open_and_look(setup, &medium, boot, &Allowed::exactly(state))
        .map_err(|what| format!("after deleting and rewriting everything and a kill: {what}"))?;
    medium.power_off();
    drop(store);
    Ok(())
}

/// With `Manual`, space is reclaimed only after the caller commits. Each commit frees the blocks that compaction
/// emptied before it. In a store that is two thirds live, the next moves take most of that space: in `--seed 9960028
/// --case page/manual` the fourth commit was the first to gain an extent.
fn retry<T>(store: &Sim, manual: bool, work: impl Fn() -> duramen::Result<T>) -> duramen::Result<T> {
    const COMMITS_MAX: u32 = 8;
    for _ in 0..COMMITS_MAX {
        match work() {
            Err(error) if manual && error.kind() == duramen::ErrorKind::OutOfSpace => store.commit()?,
            done => return done,
        }
    }
    work()
}

/// Overwrites everything, closes cleanly, reopens, and overwrites a few keys until the space
/// has been used several times.
///
/// # Errors
/// Returns a description of the violation.
pub fn overwrite_all(
    setup: &Setup,
    store: Sim,
    medium: &SimMedium,
    boot: u64,
    before: &State,
    rng: &mut Rng,
) -> Result<(), String> {
    let manual = setup.case.promise() == Promise::Uncommitted;
    let mut state: State = vec![None; setup.cells()];
    let tables = setup.cell(setup.tables + 1, 0)..;
    state[tables.clone()].clone_from_slice(&before[tables]);
    // Deleting first frees space.
    for name in &setup.keys {
        retry(&store, manual, || store.delete(name)).map_err(reported("delete"))?;
    }
    empty_tables(setup, &store, manual, &mut state)?;
    let mut kept = state.clone();
    if manual {
        store.commit().map_err(reported("commit"))?;
    }
    for (key, name) in setup.keys.iter().enumerate() {
        let value = value(rng.bits(), 16);
        let updatable = key % 3 == 0;
        let put = || store.put_with(name, &value, Meta { updatable, ..Meta::default() });
        let committed = store.stats().epoch_committed;
        retry(&store, manual, put).map_err(reported("put"))?;
        if store.stats().epoch_committed != committed {
            kept.clone_from(&state);
        }
        state[key] = Some(Arc::new(Entry { value, tag: 0, expires_at: None, updatable }));
    }
    store.close_discarding().map_err(|error| reported("close")(error.into()))?;
    let next = again(setup, medium);
    let store = if manual {
        // The next open drops uncommitted writes.
        open_and_look(setup, &next, boot, &Allowed::exactly(kept))
            .map_err(|what| format!("after a close without a commit: {what}"))?
            .0
    } else {
        open_and_look(setup, &next, boot, &Allowed::exactly(state))
            .map_err(|what| format!("after overwriting everything and a close: {what}"))?
            .0
    };
    let rounds = 3 * setup.len_max / 60;
    let few = setup.keys.len().min(4);
    let mut last = vec![Vec::new(); few];
    let make = || store.table(table_name(1), IndexKind::Hash);
    let table = match store.find_table(table_name(1)).map_err(reported("find a table"))? {
        Some(table) => Some(table),
        None if setup.tables > 0 => Some(retry(&store, manual, make).map_err(reported("make a table"))?),
        None => None,
    };
    for round in 0..rounds {
        let key = rng.below(few as u64) as usize;
        last[key] = value(rng.bits(), 20);
        if let Some(table) = table.as_ref().filter(|_| round % 5 == 0) {
            retry(&store, manual, || table.put(&setup.keys[key], &last[key]))
                .map_err(reported("writing to a table"))?;
            if round % 25 == 0 {
                retry(&store, manual, || table.clear())
                    .map_err(reported("clearing a table again and again"))?;
            }
        }
        if setup.places > 0 && round % 11 == 0 {
            // Replaces the existing collection.
            let make = || make_again(setup, &store, 0, &mut vec![None; setup.cells()]);
            retry(&store, manual, make).map_err(reported("making a collection again and again"))?;
        }
        if round % 7 == 0 {
            let mut batch = Batch::new();
            batch.put(&setup.keys[key], &last[key]);
            retry(&store, manual, || store.apply(&batch).map(|_| ())).map_err(reported("batch"))?;
        } else {
            let put = || store.put(&setup.keys[key], &last[key]);
            retry(&store, manual, put).map_err(reported("overwriting a few keys"))?;
        }
    }
    for (key, value) in last.iter().enumerate().filter(|(_, value)| !value.is_empty()) {
        let found = store.get(&setup.keys[key]).map_err(reported("get"))?;
        if found.as_deref() != Some(&value[..]) {
            return Err(format!("after recovery, key {key} differs from the value written last"));
        }
    }
    drop(table);
    next.power_off();
    drop(store);
    Ok(())
}
