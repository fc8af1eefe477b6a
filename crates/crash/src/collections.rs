//! Collections in a run: their cells in a state, the operations on them, and how they are read.
//!
//! Each table has *places* for collections: a separate key that holds a root, and a few elements. A place has one cell
//! for the root and one for each element; these cells follow those of keys and tables. A root's cell begins with its
//! kind ([`KINDS`], or [`STRING`]: its key holds a plain value).

use crate::entry::Entry;
use crate::oracle::{Effects, State};
use crate::setup::{Change, Setup, value};
use duramen::{Batch, CollectionOn, ElementOrder, ErrorKind, Meta, Reads, StoreOn, TableOn, Value};
use duramen_media::sim::{Rng, SimMedium};
use std::sync::Arc;

type Sim = StoreOn<SimMedium>;

/// Elements that a collection may have.
pub const ELEMENTS: usize = 5;
/// Kinds of collections, by the first byte of the root's value.
pub const KINDS: [ElementOrder; 3] = [ElementOrder::Unordered, ElementOrder::ByValue, ElementOrder::ByKey];
/// Instead of a kind: the key holds a plain value and no collection.
pub const STRING: u8 = 9;

impl Setup {
    /// Places of all tables.
    #[must_use]
    pub fn all_places(&self) -> usize {
        (self.tables + 1) * self.places
    }

    /// The cell of a place's root; those of its elements follow.
    #[must_use]
    pub fn cell_of_root(&self, place: usize) -> usize {
        self.cell(self.tables + 1, self.tables) + place * (ELEMENTS + 1)
    }

    /// All cells of a place: the root's, and the elements'.
    #[must_use]
    pub fn cells_of_place(&self, place: usize) -> std::ops::Range<usize> {
        self.cell_of_root(place)..self.cell_of_root(place + 1)
    }

    /// The cells of all places of a table.
    #[must_use]
    pub fn cells_of_places(&self, table: usize) -> std::ops::Range<usize> {
        self.cell_of_root(table * self.places)..self.cell_of_root((table + 1) * self.places)
    }

    /// The table of a place.
    #[must_use]
    pub fn table_of_place(&self, place: usize) -> usize {
        place / self.places
    }

    /// The key of a place, in its table.
    #[must_use]
    pub fn key_of_place(&self, place: usize) -> Vec<u8> {
        format!("root {}", place % self.places).into_bytes()
    }

    /// Whether a key is that of a place.
    #[must_use]
    pub fn is_key_of_place(&self, key: &[u8]) -> bool {
        (0..self.places).any(|place| self.key_of_place(place) == key)
    }

    /// An operation on a collection.
    #[must_use]
    pub fn collection_op(&self, rng: &mut Rng) -> Change {
        let place = rng.below(self.all_places() as u64) as usize;
        let bytes = |rng: &mut Rng| {
            let bound = [4, 20, 80, 400][rng.below(4) as usize];
            8 + rng.below(bound) as usize
        };
        let element = |rng: &mut Rng| rng.below(ELEMENTS as u64) as usize;
        let ttl = |rng: &mut Rng| rng.one_in(4).then(|| 1 + rng.below(5_000));
        match rng.below(24) {
            0..=4 => {
                let elements = (0..ELEMENTS).filter(|_| rng.one_in(2)).collect::<Vec<_>>().into_iter();
                let elements = elements.map(|element| (element, bytes(rng))).collect();
                Change::Make { place, kind: rng.below(3) as usize, elements, ttl: ttl(rng) }
            }
            5..=17 => {
                let count = if rng.one_in(3) { 1 + rng.below(4) } else { 1 };
                let writes =
                    (0..count).map(|_| (element(rng), (!rng.one_in(3)).then(|| bytes(rng)))).collect();
                Change::Elements { place, writes }
            }
            18 | 19 => {
                let to = rng.below(self.all_places() as u64) as usize;
                Change::Rename { from: place, to }
            }
            20 => Change::Again { place, ttl: ttl(rng) },
            21 => Change::Overwrite { place },
            _ => Change::Delete { place },
        }
    }
}

/// The metadata of an element with this value. Its expiry time, if it has one, depends on the value, so that each read
/// can check it: long over, or beyond the run. The store acts on neither.
#[must_use]
pub fn element_meta(value: &[u8]) -> Meta {
    let sum: u64 = value.iter().map(|byte| u64::from(*byte)).sum();
    let expires_at = match sum % 4 {
        0 => Some(1 + sum),
        1 => Some(u64::from(u32::MAX) << 16),
        _ => None,
    };
    Meta { expires_at, ..Meta::default() }
}

/// The key of an element.
#[must_use]
pub fn element_key(element: usize) -> Vec<u8> {
    // Two keys share an order, so the keys decide between them.
    let order = (element as u64 / 2).to_be_bytes();
    [&order[..], &vec![b'e'; element + 1]].concat()
}

/// A value with its metadata, and the collection that it points to.
pub type Root = (Entry, Option<CollectionOn<SimMedium>>);

/// The content of a place's key: the value with its metadata, and the collection that it points to.
fn root_at(store: &Sim, table: Option<&TableOn<SimMedium>>, key: &[u8]) -> Result<Option<Root>, String> {
    let found = match table {
        None => store.get(key),
        Some(table) => table.get(key),
    };
    let found = found.map_err(|error| format!("get of a root: {error}"))?;
    found.map(|found| root_of(store, &found)).transpose()
}

/// The same for content found by a caller that keeps others from writing the key.
///
/// # Errors
/// Returns a description of the violation.
pub fn root_of(store: &Sim, found: &Value<'_>) -> Result<Root, String> {
    let meta = found.meta();
    let entry = Entry {
        value: found.to_vec(),
        tag: meta.tag,
        expires_at: meta.expires_at,
        updatable: meta.updatable,
    };
    let named = meta.collection.map(|id| store.collection(id)).transpose();
    let named = named.map_err(|error| format!("a root refers to a missing collection: {error}"))?;
    let kind = entry.value.first().copied().unwrap_or(STRING);
    match (&named, KINDS.get(usize::from(kind))) {
        (Some(named), Some(kind)) if named.order() == *kind => {}
        (None, None) => {}
        (named, _) => {
            return Err(format!(
                "a root of kind {kind} refers to {:?}",
                named.as_ref().map(CollectionOn::order)
            ));
        }
    }
    Ok((entry, named))
}

/// The collection of a place.
///
/// # Errors
/// Returns a description of the violation.
pub fn find(
    setup: &Setup,
    store: &Sim,
    table: Option<&TableOn<SimMedium>>,
    place: usize,
) -> Result<Option<CollectionOn<SimMedium>>, String> {
    Ok(root_at(store, table, &setup.key_of_place(place))?.and_then(|(_, named)| named))
}

/// Reads the places of a table in every possible way. Returns the number of their keys.
///
/// # Errors
/// What does not agree.
pub fn read_places(
    setup: &Setup,
    store: &Sim,
    table: Option<&TableOn<SimMedium>>,
    number: usize,
    state: &mut State,
) -> Result<u64, String> {
    let mut keys = 0;
    for place in number * setup.places..(number + 1) * setup.places {
        let found = root_at(store, table, &setup.key_of_place(place))?;
        let Some((root, named)) = found else { continue };
        keys += 1;
        let cells = setup.cells_of_place(place);
        let expires_at = root.expires_at;
        state[cells.start] = Some(Arc::new(root));
        if let Some(named) = named {
            read_elements(&named, named.reads(), expires_at, &mut state[cells.start + 1..cells.end])
                .map_err(|wrong| format!("collection of place {place}: {wrong}"))?;
        }
    }
    Ok(keys)
}

/// The keys of all elements.
fn element_keys() -> Vec<Vec<u8>> {
    (0..ELEMENTS).map(element_key).collect()
}

/// Reads the elements of a collection in every possible way, while no thread writes any: all must agree.
///
/// # Errors
/// What does not agree.
pub fn read_elements(
    collection: &CollectionOn<SimMedium>,
    reads: Reads<'_, SimMedium>,
    expires_at: Option<u64>,
    cells: &mut [Option<Arc<Entry>>],
) -> Result<(), String> {
    let keys = element_keys();
    let mut seen: Vec<Vec<Vec<u8>>> = vec![Vec::new(); ELEMENTS];
    let scanned = scan_elements(reads, &mut |at, value| seen[at].push(value.to_vec()));
    scanned.map_err(|error| format!("scan: {error}"))??;
    let mut count = 0;
    for (at, key) in keys.iter().enumerate() {
        let found = reads.get(key).map_err(|error| format!("get: {error}"))?;
        if let Some(found) =
            found.as_ref().filter(|found| found.expires_at() != element_meta(found).expires_at)
        {
            return Err(format!(
                "element {at} has the expiry time {:?} of another value",
                found.expires_at()
            ));
        }
        let found = found.map(|found| found.to_vec());
        if seen[at].first() != found.as_ref() || seen[at].iter().any(|other| Some(other) != found.as_ref()) {
            return Err(format!("element {at}: a scan and a get differ"));
        }
        count += u64::from(found.is_some());
        let entry = |value| Arc::new(Entry { value, tag: 0, expires_at, updatable: false });
        cells[at] = found.map(entry);
    }
    if collection.len() != count {
        return Err(format!("it counts {} elements, a scan finds {count}", collection.len()));
    }
    let is_there = |value: &Value<'_>| {
        let at = keys.iter().position(|key| key == value.key());
        at.and_then(|at| cells[at].as_ref()).is_some_and(|entry| entry.value == value[..])
    };
    let (mut each, mut wrong) = (0, false);
    let visit = &mut |value: &Value<'_>| {
        each += 1;
        wrong |= !is_there(value);
        true
    };
    reads.each(visit).map_err(|error| format!("each: {error}"))?;
    if wrong || each != count {
        return Err(format!("a visit of {count} elements returns {each}, wrong ones: {wrong}"));
    }
    let picked = reads.pick(count << 8 | seen[0].len() as u64, &mut |_| true);
    let picked = picked.map_err(|error| format!("pick: {error}"))?;
    if picked.as_ref().map_or(count > 0, |picked| !is_there(picked)) {
        return Err(format!(
            "a pick among {count} elements returns {:02x?}",
            picked.map(|picked| picked.to_vec())
        ));
    }
    match collection.order() {
        ElementOrder::Unordered => Ok(()),
        _ => read_in_order(collection, reads, cells),
    }
}

/// Scans a collection to its end; the inner result describes wrong content.
///
/// # Errors
/// What the scan says.
pub fn scan_elements(
    reads: Reads<'_, SimMedium>,
    see: &mut dyn FnMut(usize, &[u8]),
) -> duramen::Result<Result<(), String>> {
    let keys = element_keys();
    let (mut cursor, mut unknown) = (0, None);
    loop {
        let visit = &mut |found: &Value<'_>| match keys.iter().position(|key| key == found.key()) {
            Some(at) => see(at, found),
            None => unknown = Some(found.key().to_vec()),
        };
        cursor = reads.scan(cursor, 3, visit)?;
        if let Some(key) = unknown {
            return Ok(Err(format!("a scan returns element {key:02x?}, which was never written")));
        }
        if cursor == 0 {
            return Ok(Ok(()));
        }
    }
}

/// Reads the elements of an ordered collection, which are in `cells`, by their order and their ranks.
fn read_in_order(
    collection: &CollectionOn<SimMedium>,
    reads: Reads<'_, SimMedium>,
    cells: &[Option<Arc<Entry>>],
) -> Result<(), String> {
    let keys = element_keys();
    let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |order| u64::from_be_bytes(*order));
    let order = |at: usize| match (collection.order(), &cells[at]) {
        (ElementOrder::ByValue, Some(entry)) => number(&entry.value),
        _ => number(&keys[at]),
    };
    let mut sorted: Vec<usize> = (0..ELEMENTS).filter(|&at| cells[at].is_some()).collect();
    sorted.sort_by_key(|&at| (order(at), &keys[at]));
    for reverse in [false, true] {
        let mut walked = Vec::new();
        let visit = &mut |found: &Value<'_>| {
            walked.push((found.key().to_vec(), found.to_vec()));
            true
        };
        let from = if reverse { (sorted.len() as u64).saturating_sub(1) } else { 0 };
        reads.ranked(from, reverse, visit).map_err(|error| format!("in order: {error}"))?;
        if reverse {
            walked.reverse();
        }
        let wanted = sorted.iter().map(|&at| {
            (keys[at].clone(), cells[at].as_ref().map_or_else(Vec::new, |entry| entry.value.clone()))
        });
        if !walked.iter().cloned().eq(wanted) {
            return Err(format!(
                "a walk in order (reverse: {reverse}) returns {walked:02x?}, wanted elements {sorted:?}"
            ));
        }
    }
    for (rank, &at) in sorted.iter().enumerate() {
        let found = reads.rank(&keys[at]).map_err(|error| format!("rank: {error}"))?;
        if found != Some(rank as u64) {
            return Err(format!("element {at} has rank {found:?}, wanted {rank}"));
        }
        let nth = reads.nth(rank as u64).map_err(|error| format!("nth: {error}"))?;
        if nth.as_ref().is_none_or(|nth| nth.key() != keys[at]) {
            return Err(format!("rank {rank} has {:02x?}, wanted element {at}", nth.map(|nth| nth.to_vec())));
        }
        let below = collection.rank_of_order(order(at).to_be_bytes(), false);
        let wanted = sorted.iter().filter(|&&other| order(other) < order(at)).count() as u64;
        if below.as_ref().ok() != Some(&wanted) {
            return Err(format!("below the order of element {at} are {below:?}, wanted {wanted}"));
        }
    }
    let behind = reads.nth(sorted.len() as u64).map_err(|error| format!("nth: {error}"))?;
    if let Some(behind) = behind {
        return Err(format!("found {:02x?} after the last element", behind.key()));
    }
    Ok(())
}

/// The effect of a change: its batch, or its deletes, and the changes to cells.
pub struct Plan {
    /// The writes to apply.
    pub batch: Batch,
    /// The element's number and value, if a single element is put or deleted outside a batch.
    pub alone: Option<(usize, Option<Vec<u8>>)>,
    /// Otherwise the elements' numbers and values, which may also be written by one call of a transaction.
    pub together: Vec<(usize, Option<Vec<u8>>)>,
    /// The changes to cells.
    pub effects: Effects,
    /// The collection at the place afterwards.
    pub leads: Vec<(usize, Option<CollectionOn<SimMedium>>)>,
    /// It needs no space beyond the reserve for it.
    pub deletes: bool,
}

/// The known state of collections while a store is in use.
pub struct Known<'k> {
    /// The run.
    pub setup: &'k Setup,
    /// The store.
    pub store: &'k Sim,
    /// The handles of named tables.
    pub tables: &'k [Option<TableOn<SimMedium>>],
    /// The collection at each place.
    pub collections: &'k [Option<CollectionOn<SimMedium>>],
    /// The content of all cells.
    pub state: &'k State,
    /// A group is open.
    pub grouped: bool,
}

impl Known<'_> {
    /// The handle of a place's table; `Err` if it does not exist.
    fn table(&self, place: usize) -> Result<Option<&TableOn<SimMedium>>, ()> {
        match self.setup.table_of_place(place) {
            0 => Ok(None),
            table if self.state[self.setup.cell_of_table(table)].is_some() => {
                self.tables[table - 1].as_ref().map(Some).ok_or(())
            }
            _ => Err(()),
        }
    }

    fn root(&self, place: usize) -> Option<&Arc<Entry>> {
        let entry = self.state[self.setup.cell_of_root(place)].as_ref();
        entry.filter(|entry| entry.expires_at.is_none_or(|at| at > self.setup.now()))
    }

    /// The collection of a place, with its root, if there is one that has not expired.
    fn collection(&self, place: usize) -> Option<(&Arc<Entry>, &CollectionOn<SimMedium>)> {
        self.root(place).zip(self.collections[place].as_ref())
    }

    fn emptied(&self, place: usize, effects: &mut Effects) {
        let cells = self.setup.cells_of_place(place).filter(|&cell| self.state[cell].is_some());
        effects.extend(cells.map(|cell| (cell, None)));
    }

    /// The writes that make a change; `None` if it is not possible now.
    #[must_use]
    pub fn plan(&self, change: &Change, mut next: impl FnMut(usize) -> Vec<u8>) -> Option<Plan> {
        let setup = self.setup;
        let mut plan = Plan {
            batch: Batch::new(),
            alone: None,
            together: Vec::new(),
            effects: Effects::new(),
            leads: Vec::new(),
            deletes: false,
        };
        let root_of = |kind: u8, ttl: Option<u64>, nonce: Vec<u8>| Entry {
            value: [&[kind][..], &nonce].concat(),
            tag: 5,
            expires_at: ttl.map(|ttl| setup.now() + ttl),
            updatable: false,
        };
        let meta = |root: &Entry, named: Option<&CollectionOn<SimMedium>>| Meta {
            tag: root.tag,
            expires_at: root.expires_at,
            collection: named.map(CollectionOn::id),
            ..Meta::default()
        };
        let element =
            |value: Vec<u8>, expires_at| Arc::new(Entry { value, tag: 0, expires_at, updatable: false });
        match change {
            Change::Make { place, kind, elements, ttl } => {
                let table = self.table(*place).ok()?;
                let made = self.store.new_collection(KINDS[*kind]);
                let root = root_of(*kind as u8, *ttl, next(6));
                let key = setup.key_of_place(*place);
                plan.batch.table(table).put_with(&key, &root.value, meta(&root, Some(&made)));
                plan.batch.collection(&made);
                self.emptied(*place, &mut plan.effects);
                let cell = setup.cell_of_root(*place);
                for (at, bytes) in elements {
                    let value = next(*bytes);
                    plan.batch.put_with(element_key(*at), &value, element_meta(&value));
                    plan.effects.push((cell + 1 + at, Some(element(value, root.expires_at))));
                }
                plan.effects.push((cell, Some(Arc::new(root))));
                plan.leads.push((*place, Some(made)));
            }
            Change::Elements { place, writes } => {
                let (root, collection) = self.collection(*place)?;
                let cell = setup.cell_of_root(*place) + 1;
                plan.batch.collection(collection);
                for (at, bytes) in writes {
                    let value = bytes.map(&mut next);
                    match &value {
                        Some(value) => plan.batch.put_with(element_key(*at), value, element_meta(value)),
                        None => plan.batch.delete(element_key(*at)),
                    };
                    plan.together.push((*at, value.clone()));
                    plan.effects.push((cell + at, value.map(|value| element(value, root.expires_at))));
                }
                if writes.len() == 1 {
                    plan.alone = plan.together.pop();
                }
                plan.deletes = writes.iter().all(|(_, bytes)| bytes.is_none());
            }
            Change::Rename { from, to } => {
                let (root, collection) = self.collection(*from)?;
                let (source, target) = (self.table(*from).ok()?, self.table(*to).ok()?);
                if from == to || self.grouped {
                    return None;
                }
                plan.batch.table(source).delete(setup.key_of_place(*from));
                let key = setup.key_of_place(*to);
                plan.batch.table(target).put_with(&key, &root.value, meta(root, Some(collection)));
                let cells = setup.cells_of_place(*from).zip(setup.cells_of_place(*to));
                for (from, to) in cells {
                    plan.effects.push((to, self.state[from].clone()));
                    plan.effects.push((from, None));
                }
                plan.leads = vec![(*from, None), (*to, Some(collection.clone()))];
            }
            Change::Again { place, ttl } => {
                let (root, collection) = self.collection(*place)?;
                let table = self.table(*place).ok()?;
                if self.grouped {
                    return None;
                }
                let root = root_of(root.value[0], *ttl, next(9));
                let key = setup.key_of_place(*place);
                plan.batch.table(table).put_with(&key, &root.value, meta(&root, Some(collection)));
                for cell in setup.cells_of_place(*place).skip(1) {
                    if let Some(old) = &self.state[cell] {
                        plan.effects.push((cell, Some(element(old.value.clone(), root.expires_at))));
                    }
                }
                plan.effects.push((setup.cell_of_root(*place), Some(Arc::new(root))));
            }
            Change::Overwrite { place } => {
                let table = self.table(*place).ok()?;
                let root = root_of(STRING, None, next(30));
                plan.batch.table(table).put_with(setup.key_of_place(*place), &root.value, meta(&root, None));
                self.emptied(*place, &mut plan.effects);
                plan.effects.push((setup.cell_of_root(*place), Some(Arc::new(root))));
                plan.leads.push((*place, None));
            }
            Change::Delete { place } => {
                let table = self.table(*place).ok()?;
                self.root(*place)?;
                plan.batch.table(table).delete(setup.key_of_place(*place));
                self.emptied(*place, &mut plan.effects);
                plan.leads.push((*place, None));
                plan.deletes = true;
            }
        }
        Some(plan)
    }
}

/// A handle of a deleted collection must report that.
///
/// # Errors
/// What it says instead.
pub fn check_gone(handle: &CollectionOn<SimMedium>) -> Result<(), String> {
    let key = element_key(0);
    let said = [
        handle.get(&key).map(|_| ()),
        handle.put(&key, b"never written"),
        handle.scan(0, 3, &mut |_| ()).map(|_| ()),
    ];
    for (at, said) in said.into_iter().enumerate() {
        let kind = said.as_ref().err().map(duramen::Error::kind);
        // A put looks for space first.
        if kind != Some(ErrorKind::NotFound) && !(at == 1 && kind == Some(ErrorKind::OutOfSpace)) {
            return Err(format!("a handle of a reclaimed collection returns {said:?}"));
        }
    }
    Ok(())
}

/// Deletes the content of a table's places, key by key.
///
/// # Errors
/// What a delete says.
pub fn delete_places(
    setup: &Setup,
    delete: impl Fn(&[u8]) -> duramen::Result<bool>,
    number: usize,
    state: &mut State,
) -> duramen::Result<()> {
    for place in number * setup.places..(number + 1) * setup.places {
        delete(&setup.key_of_place(place))?;
    }
    state[setup.cells_of_places(number)].fill(None);
    Ok(())
}

/// Creates a collection of two elements at a place of the store's own table, for the use of the store after a recovery.
///
/// # Errors
/// What the batch says.
pub fn make_again(setup: &Setup, store: &Sim, place: usize, state: &mut State) -> duramen::Result<()> {
    let made = store.new_collection(KINDS[place % 3]);
    let root = Entry { value: vec![(place % 3) as u8], tag: 5, expires_at: None, updatable: false };
    let mut batch = Batch::new();
    let meta = Meta { tag: 5, collection: Some(made.id()), ..Meta::default() };
    batch.put_with(setup.key_of_place(place), &root.value, meta).collection(&made);
    let cell = setup.cell_of_root(place);
    for at in 0..2 {
        let value = value((place * 2 + at) as u64 + 7700, 12);
        batch.put_with(element_key(at), &value, element_meta(&value));
        state[cell + 1 + at] = Some(Arc::new(Entry { value, tag: 0, expires_at: None, updatable: false }));
    }
    let _ = store.apply(&batch)?;
    state[cell] = Some(Arc::new(root));
    Ok(())
}
