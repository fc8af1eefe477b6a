//! Compares the forms of a write with a plain put: under a lock, in a transaction, updatable, and of whole collections
//! and tables.
//! collections and tables.

use crate::kv::bound::batches;
use crate::kv::place::Place;
use crate::kv::suite::Settings;
use crate::kv::{Failure, Records, Result, median};
use crate::report::{Better, Measurement, Metric, Unit};
use duramen::{Batch, ElementOrder, IndexKind, Meta, Stats, Store, Swap, Writer};
use std::time::{Duration, Instant};

/// Space counts as free when `1 / DEAD_SHARE` of the live bytes is dead at most, or `DEAD_BYTES`, as a small store
/// leaves.
const DEAD_SHARE: u64 = 2;
const DEAD_BYTES: u64 = 64 << 20;
const FREE_WITHIN: Duration = Duration::from_secs(60);

/// Samples by name, in the order in which they were first added.
#[derive(Default)]
struct Samples(Vec<(&'static str, Vec<f64>)>);

impl Samples {
    fn add(&mut self, name: &'static str, value: f64) {
        match self.0.iter_mut().find(|(other, _)| *other == name) {
            Some((_, samples)) => samples.push(value),
            None => self.0.push((name, vec![value])),
        }
    }

    fn median(&self, name: &str) -> Option<f64> {
        let (_, samples) = self.0.iter().find(|(other, _)| *other == name)?;
        median(samples)
    }

    fn measurement(&self, name: &str, unit: Unit) -> Measurement {
        let mut one = Measurement::new("forms", name);
        let metrics = self.0.iter().filter_map(|(name, samples)| {
            Some(((*name).into(), Metric::from_samples(samples, unit, Better::Lower)?))
        });
        one.metrics.extend(metrics);
        one
    }
}

/// The study, see `docs/internals/bench-kv.md`.
pub(crate) fn forms(place: &Place, settings: &Settings) -> Result<Vec<Measurement>> {
    let mut all = Vec::new();
    for &shape in &settings.shapes {
        let records = Records::new(shape);
        let forms = Forms { settings, records: &records };
        let (mut writes, mut calls) = (Samples::default(), Samples::default());
        for _ in 0..settings.rounds.max(1) {
            let fresh = place.fresh(false)?;
            let store = fresh.engine().store();
            forms.writes(store, &mut writes)?;
            forms.calls(store, &mut calls)?;
        }
        let calls = calls.measurement("calls", Unit::Seconds);
        let measured = [writes.with_ratios(), calls];
        all.extend(measured.map(|one| one.with("record", shape.to_string()).with("keys", settings.keys)));
    }
    Ok(all)
}

impl Samples {
    /// The times of writes, and the ratio of each to the write it is compared with.
    fn with_ratios(&self) -> Measurement {
        let mut one = self.measurement("writes", Unit::Nanoseconds);
        for (form, plain) in COMPARED {
            if let (Some(form_nanos), Some(plain_nanos)) = (self.median(form), self.median(plain)) {
                let ratio = Metric::once(form_nanos / plain_nanos, Unit::Ratio, Better::Lower);
                one.metrics.insert(format!("{form} / {plain}"), ratio);
            }
        }
        one
    }
}

const PUT: &str = "overwrite";
const LOCKED: &str = "overwrite under its key's lock";
const UNIT: &str = "transaction of two overwrites";
const INSERT: &str = "insert";
const INSERT_UPDATABLE: &str = "insert, updatable";
const GET: &str = "get";
const GET_UPDATABLE: &str = "get, updatable";
const ONE_COLLECTION: &str = "element, one thread";
const TWO_COLLECTIONS: &str = "element, two threads on two collections";

const COMPARED: [(&str, &str); 5] = [
    (LOCKED, PUT),
    (UNIT, PUT),
    (INSERT_UPDATABLE, INSERT),
    (GET_UPDATABLE, GET),
    // One half, if nothing is shared.
    (TWO_COLLECTIONS, ONE_COLLECTION),
];

struct Forms<'a> {
    settings: &'a Settings,
    records: &'a Records,
}

impl Forms<'_> {
    /// Nanoseconds of each of `count` operations; returns the first error.
    fn time(&self, count: u64, mut one: impl FnMut(u64) -> Result<()>) -> Result<f64> {
        let mut failed = None;
        let nanos = batches(self.settings.clock, count, |at| {
            if failed.is_none() {
                failed = one(at).err();
            }
        });
        failed.map_or(Ok(nanos), Err)
    }

    /// A key of those that were loaded, in an order that no prefetcher follows.
    fn key(&self, at: u64, key: &mut Vec<u8>) {
        self.records.key(at.wrapping_mul(0x9E37_79B9_7F4A_7C15) % self.settings.keys.max(1), key);
    }

    fn writes(&self, store: &Store, into: &mut Samples) -> Result<()> {
        let (keys, ops) = (self.settings.keys, self.settings.ops);
        let mut writer = store.writer()?;
        let (mut key, mut other, mut value) = (Vec::new(), Vec::new(), Vec::new());
        self.records.value(0, 0, &mut value);
        let updatable = store.table(b"updatable", store.index_kind())?;
        into.add(
            INSERT,
            self.time(keys, |at| {
                self.records.key(at, &mut key);
                Ok(writer.put(&key, &value)?)
            })?,
        );
        let meta = Meta { updatable: true, ..Meta::default() };
        into.add(
            INSERT_UPDATABLE,
            self.time(keys, |at| {
                self.records.key(at, &mut key);
                Ok(writer.table(&updatable).put_with(&key, &value, meta)?)
            })?,
        );
        let mut found = Vec::new();
        let there = |found: bool| match found {
            true => Ok(()),
            false => Err(Failure::new("a key that was put is missing: no figures are given")),
        };
        into.add(
            GET,
            self.time(ops, |at| {
                self.key(at, &mut key);
                found.clear();
                there(store.get_into(&key, &mut found)?)
            })?,
        );
        into.add(
            GET_UPDATABLE,
            self.time(ops, |at| {
                self.key(at, &mut key);
                found.clear();
                there(updatable.get_into(&key, &mut found)?)
            })?,
        );
        into.add(
            PUT,
            self.time(ops, |at| {
                self.key(at, &mut key);
                Ok(writer.put(&key, &value)?)
            })?,
        );
        into.add(
            LOCKED,
            self.time(ops, |at| {
                self.key(at, &mut key);
                writer.locked([&key[..]], |writer: &mut Writer| Ok(writer.put(&key, &value)?))
            })?,
        );
        let mut batch = Batch::new();
        into.add(
            UNIT,
            self.time(ops / 2, |at| {
                self.key(2 * at, &mut key);
                self.key(2 * at + 1, &mut other);
                batch.clear();
                batch.put(&key, &value).put(&other, &value);
                match writer.apply(&batch)? {
                    Swap::Done => Ok(()),
                    Swap::Changed => {
                        Err(Failure::new("a transaction without conditions failed because a key had changed"))
                    }
                }
            })?,
        );
        self.threads(store, into)
    }

    /// Elements of one thread, and of two threads with a collection each. The space that they write to was written
    /// before: new memory takes longer than an element, and that is the kernel's work.
    fn threads(&self, store: &Store, into: &mut Samples) -> Result<()> {
        let ops = self.settings.ops;
        let two = [(&b"first"[..], 0), (b"second", ops)];
        let live = store.stats().live_bytes;
        self.fill(store, &two)?;
        Self::empty(store, live)?;
        into.add(ONE_COLLECTION, self.fill(store, &two[..1])?);
        Self::empty(store, live)?;
        into.add(TWO_COLLECTIONS, self.fill(store, &two)?);
        Ok(())
    }

    /// Fills new collections of these names, each from its own thread and with its own keys, from a number on. With
    /// equal keys, threads would contend for the same locks. Returns wall-clock nanoseconds per element.
    fn fill(&self, store: &Store, collections: &[(&[u8], u64)]) -> Result<f64> {
        let ops = self.settings.ops;
        let work = |name: &[u8], from: u64| -> Result<()> {
            let mut writer = store.writer()?;
            let collection = named(store, &mut writer, name)?;
            let (mut key, mut value) = (Vec::new(), Vec::new());
            self.records.value(0, 0, &mut value);
            for at in from..from + ops {
                self.records.key(at, &mut key);
                writer.collection(&collection).put(&key, &value)?;
            }
            Ok(())
        };
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                collections.iter().map(|&(name, from)| scope.spawn(move || work(name, from))).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(Failure::new("a thread that put elements panicked")))
            })
        })?;
        Ok(begun.elapsed().as_nanos() as f64 / (ops * collections.len() as u64) as f64)
    }

    /// Deletes the collections of [`Self::fill`] and waits until their space is free, but for what compaction leaves.
    /// `live`: live bytes before.
    fn empty(store: &Store, live: u64) -> Result<()> {
        store.delete(b"first")?;
        store.delete(b"second")?;
        let begun = Instant::now();
        let is_free = |stats: Stats| {
            stats.live_bytes <= live + live / 64 && stats.dead_bytes <= (live / DEAD_SHARE).max(DEAD_BYTES)
        };
        while !is_free(store.stats()) {
            if begun.elapsed() > FREE_WITHIN {
                return Err(Failure::new(
                    "the space of deleted collections was not freed: no figures are given",
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Calls whose time does not depend on the size of the collection or table.
    fn calls(&self, store: &Store, into: &mut Samples) -> Result<()> {
        let mut timed = |name, call: &mut dyn FnMut() -> Result<()>| -> Result<()> {
            let begun = Instant::now();
            call()?;
            into.add(name, begun.elapsed().as_secs_f64());
            Ok(())
        };
        let table = store.table(b"updatable", IndexKind::Hash)?;
        timed("delete of a collection", &mut || Ok(store.delete(b"first").map(drop)?))?;
        timed("overwrite of a collection by a string", &mut || Ok(store.put(b"second", b"string")?))?;
        timed("clear of a table", &mut || Ok(table.clear()?))
    }
}

/// A new collection called `name`.
fn named(store: &Store, writer: &mut Writer, name: &[u8]) -> Result<duramen::Collection> {
    let collection = store.new_collection(ElementOrder::Unordered);
    let meta = Meta { collection: Some(collection.id()), ..Meta::default() };
    writer.put_with(name, b"", meta)?;
    Ok(collection)
}
