//! The benchmark on small stores: every workload, engines that return wrong results, the studies, the report.
#![allow(clippy::unwrap_used)] // A panic here is a failed test.

use duramen_bench::kv::contender::{Contender, Duramen, Opened};
use duramen_bench::kv::place::Place;
use duramen_bench::kv::suite::{self, Settings};
use duramen_bench::kv::{
    Clock, Engine, Latency, Op, Options, Pace, Plan, Records, Session, Unwatched, Workload, bound, reporting,
    run, studies, targets, variants,
};
use duramen_bench::report::Run;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

fn place(dir: &Path) -> Place {
    Place { path: dir.join("store"), options: Options { len_max: 1 << 30, ..Options::default() } }
}

/// A directory in memory, where writes do not wait for a disk.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// In anonymous memory: in-place updates work there on every machine.
fn in_memory(dir: &Path) -> Place {
    let place = place(dir);
    Place {
        options: Options { medium: duramen_bench::kv::MediumKind::Volatile, ..place.options.clone() },
        ..place
    }
}

fn settings(workloads: &[&str], keys: u64) -> Settings {
    Settings {
        workloads: workloads.iter().map(|name| Workload::named(name).unwrap().clone()).collect(),
        shapes: vec!["16+200".parse().unwrap()],
        threads: vec![1],
        keys,
        ops: keys,
        rounds: 1,
        latency: Latency::Every,
        clock: Clock::Wall,
        pace: Pace::Closed,
        seed: 1,
        bounds: None,
        check_all: true,
    }
}

fn duramen(place: Place, in_place: bool) -> Duramen {
    Duramen { name: "duramen".into(), place, in_place }
}

/// A map that can be set to return wrong results.
#[derive(Default)]
struct Liar {
    values: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    lie: Option<fn(&mut Vec<u8>)>,
    loses: bool,
    slow: Duration,
}

impl Engine for Liar {
    type Session<'a> = &'a Liar;

    fn session(&self) -> duramen_bench::kv::Result<&Liar> {
        Ok(self)
    }
}

impl Session for &Liar {
    fn put(&mut self, key: &[u8], value: &[u8]) -> duramen_bench::kv::Result<()> {
        if !self.loses || key[0] != 7 {
            self.values.lock().unwrap().insert(key.into(), value.into());
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> duramen_bench::kv::Result<bool> {
        std::thread::sleep(self.slow);
        let values = self.values.lock().unwrap();
        let Some(value) = values.get(key) else { return Ok(false) };
        into.clone_from(value);
        if let Some(lie) = self.lie {
            lie(into);
        }
        Ok(true)
    }

    fn delete(&mut self, key: &[u8]) -> duramen_bench::kv::Result<bool> {
        Ok(self.values.lock().unwrap().remove(key).is_some())
    }

    fn scan(
        &mut self,
        _: &[u8],
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> duramen_bench::kv::Result<usize> {
        Ok(self.values.lock().unwrap().iter().take(count).map(|(key, value)| visit(key, value)).count())
    }
}

fn on_liar(
    liar: &Liar,
    name: &str,
    pace: Pace,
    ops: u64,
) -> duramen_bench::kv::Result<duramen_bench::kv::Outcome> {
    let records = Records::new("16+200".parse().unwrap());
    let load = Plan::new(Workload::named("insert").unwrap(), 2000, 2000, 1, 1).unwrap();
    run(liar, &records, &load, Latency::None, Pace::Closed, &Unwatched)?;
    let plan = Plan::new(Workload::named(name).unwrap(), 2000, ops, 1, 1).unwrap();
    run(liar, &records, &plan, Latency::Every, pace, &Unwatched)
}

#[test]
fn every_workload_runs_on_every_shape_and_is_checked() {
    let dir = directory();
    let workloads = Workload::all().iter().filter(|workload| !workload.asks_for_ranks());
    let names: Vec<&str> = workloads.map(Workload::name).collect();
    let shapes = ["8+8", "100+900", "16+4096", "16+200~"];
    let settings = Settings {
        shapes: shapes.iter().map(|shape| shape.parse().unwrap()).collect(),
        threads: vec![1, 2],
        bounds: Some(in_memory(dir.path())),
        ..settings(&names, 500)
    };
    let contender = duramen(in_memory(dir.path()), true);
    let (cells, described) = suite::measure(&[&contender], &settings, &Unwatched).unwrap();
    assert_eq!(cells.len(), names.len() * shapes.len() * 2);
    assert_eq!(described.len(), 1, "{described:?}");
    let mut found = reporting::begin("test");
    for cell in &cells {
        assert_eq!(cell.outcomes.len(), 1);
        let outcome = &cell.outcomes[0];
        let timed: u64 = outcome.latency.values().map(hdrhistogram::Histogram::len).sum();
        let calls = if cell.workload.has(Op::GetMany) { outcome.ops.div_ceil(32) } else { outcome.ops };
        assert!(timed >= calls && timed <= calls + 1, "{}: {timed} of {calls}", cell.workload.name());
        if cell.workload.name() == "update" {
            assert_eq!(outcome.rewritten, 0, "updates of {} are in place", cell.shape);
        }
        let measurement = reporting::measurement(cell, &settings).unwrap();
        let bounded = !cell.workload.visits();
        assert_eq!(measurement.bound.is_some(), bounded, "{}", cell.workload.name());
        found.measurements.push(measurement);
    }
    // The report's own reader accepts the written file. Figures may differ in the last digit of their text.
    let read = Run::from_json(&found.to_json().unwrap(), "memory").unwrap();
    assert_eq!(read.measurements.len(), found.measurements.len());
    for (read, written) in read.measurements.iter().zip(&found.measurements) {
        assert_eq!(
            (&read.group, &read.name, &read.arguments),
            (&written.group, &written.name, &written.arguments)
        );
        assert!(read.latency.keys().eq(written.latency.keys()), "{}", read.group);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "stores and bounds are removed");
}

#[test]
fn rounds_are_taken_in_turn_and_all_kept() {
    let dir = directory();
    let settings = Settings { rounds: 3, ..settings(&["insert", "update"], 300) };
    let in_place = variants::named("hybrid", &in_memory(dir.path())).unwrap();
    let anew = variants::named("new-versions", &in_memory(dir.path())).unwrap();
    let contenders: [&dyn Contender; 2] = [&*in_place, &*anew];
    let (cells, _) = suite::measure(&contenders, &settings, &Unwatched).unwrap();
    assert_eq!(cells.len(), 4);
    assert!(cells.iter().all(|cell| cell.outcomes.len() == 3));
    let rewritten = |name: &str| {
        let cell = cells.iter().find(|c| c.contender == name && c.workload.name() == "update").unwrap();
        cell.outcomes.iter().map(|outcome| outcome.rewritten).sum::<u64>()
    };
    assert_eq!((rewritten("hybrid"), rewritten("new-versions")), (0, 900));
    let measurement = reporting::measurement(&cells[0], &settings).unwrap();
    let throughput = &measurement.metrics["throughput"];
    assert_eq!(throughput.samples.len(), 3);
    assert!(throughput.min <= throughput.value && throughput.value <= throughput.max);
}

/// An ordered store visits each key once, whatever the length of a visit. A store that loses keys gets no figures.
#[test]
fn visits_are_counted_in_entries_and_read_only_stores_are_reused() {
    let dir = directory();
    let names = ["range-10", "range-100", "range-1000", "sequential"];
    let settings = Settings { rounds: 2, ops: 20_000, ..settings(&names, 10_000) };
    let variants =
        ["ordered", "ordered-cache-0", "hash"].map(|name| variants::named(name, &place(dir.path())));
    let variants = variants.map(Result::unwrap);
    let contenders: Vec<&dyn Contender> = variants.iter().map(AsRef::as_ref).collect();
    let watch = Loads::default();
    let (cells, _) = suite::measure(&contenders, &settings, &watch).unwrap();
    assert_eq!(watch.0.take(), 3, "each store is loaded once for all rounds");
    assert_eq!(cells.len(), 4 * 3);
    for cell in &cells {
        let entries = cell.workload.entries(10_000).unwrap();
        for outcome in &cell.outcomes {
            assert_eq!(outcome.ops, 20_000 / entries, "{} {}", cell.workload.name(), cell.contender);
            // A visit that begins near the end is shorter; a hash index has no end in key order.
            let most = outcome.ops * entries;
            let whole = cell.workload.name() == "sequential";
            assert!(outcome.scanned == most || !whole && outcome.scanned > most / 2, "{}", outcome.scanned);
        }
    }
    let short = Liar { loses: true, ..Liar::default() };
    let failure = on_liar(&short, "sequential", Pace::Closed, 2_000).unwrap_err();
    assert!(failure.to_string().contains("wanted 2000"), "{failure}");
}

/// Elements of an ordered collection have ranks; other collections return an error that says so.
#[test]
fn ranks_are_those_of_ordered_collections() {
    let dir = directory();
    let measured = |name: &str| {
        let contender = variants::named(name, &place(dir.path())).unwrap();
        let settings = settings(&["rank", "nth"], 3_000);
        suite::measure(&[contender.as_ref()], &settings, &Unwatched)
    };
    let (cells, _) = measured("collection-ordered").unwrap();
    assert!(cells.iter().all(|cell| cell.outcomes.iter().all(|outcome| outcome.ops > 0)), "{}", cells.len());
    let failure = measured("collection").unwrap_err();
    assert!(failure.is_usage() && failure.to_string().contains("collection-ordered"), "{failure}");
}

/// Counts the loads of a run.
#[derive(Default)]
struct Loads(std::cell::Cell<u32>);

impl duramen_bench::kv::Watch for Loads {
    fn begin(&self, what: &str, _: u64) {
        self.0.set(self.0.get() + u32::from(what == "insert"));
    }

    fn at(&self, _: u64) {}

    fn end(&self) {}

    fn say(&self, _: &str) {}
}

#[test]
fn every_variant_works() {
    let dir = directory();
    let on_file = place(dir.path());
    let on_memory = in_memory(dir.path());
    for name in variants::names() {
        // Forced flush instructions reach memory only.
        let place = if name.starts_with("step-") { &on_memory } else { &on_file };
        let variant = variants::named(&name, place).unwrap();
        let settings = settings(&["insert", "get", "update", "overwrite", "delete"], 300);
        let (cells, _) = suite::measure(&[&*variant], &settings, &Unwatched).unwrap();
        assert_eq!(cells.len(), 5, "{name}");
    }
    let failure = variants::named("stp-clwb", &on_file).map(|_| ()).unwrap_err();
    assert!(failure.is_usage() && failure.to_string().contains("did you mean"), "{failure}");
}

#[test]
fn an_engine_that_returns_wrong_bytes_gets_no_figures() {
    let lies: [fn(&mut Vec<u8>); 3] =
        [|value| value[199] ^= 1, |value| _ = value.pop(), |value| value[3] ^= 1];
    for lie in lies {
        let liar = Liar { lie: Some(lie), ..Liar::default() };
        let failure = on_liar(&liar, "get", Pace::Closed, 100).unwrap_err();
        assert!(failure.to_string().contains("wrong value"), "{failure}");
        assert!(on_liar(&liar, "get_many", Pace::Closed, 100).is_err());
    }
}

#[test]
fn an_engine_that_loses_a_key_gets_no_figures() {
    let liar = Liar { loses: true, ..Liar::default() };
    for name in ["get", "get_many", "delete", "update"] {
        let failure = on_liar(&liar, name, Pace::Closed, 2000).unwrap_err();
        assert!(failure.to_string().contains("did not find key"), "{name}: {failure}");
    }
}

#[test]
fn an_open_loop_counts_the_wait_of_late_operations() {
    // 2 ms each, due every millisecond: the last of 100 waits about 100 ms, though none took more than a few.
    let liar = Liar { slow: Duration::from_millis(2), ..Liar::default() };
    let open = on_liar(&liar, "get", Pace::Open(1000.0), 100).unwrap().latency_all().unwrap();
    let closed = on_liar(&liar, "get", Pace::Closed, 100).unwrap().latency_all().unwrap();
    assert!(open.max() > 90_000_000, "{}", open.max());
    assert!(
        open.value_at_quantile(0.5) > 4 * closed.value_at_quantile(0.5),
        "{} {}",
        open.max(),
        closed.max()
    );
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let outcome = on_liar(&Liar::default(), "get", Pace::Open(2000.0), 1000).unwrap();
    // 1000 at 2000 a second: half a second, and not less.
    assert!(outcome.elapsed >= Duration::from_millis(490), "{:?}", outcome.elapsed);
}

#[test]
fn each_study_returns_its_measurements() {
    let dir = directory();
    let settings = Settings { threads: vec![1, 2], ops: 3000, ..settings(&[], 3000) };
    for name in studies::NAMES {
        let found = studies::named(name, &place(dir.path()), &settings, &Unwatched).unwrap().unwrap();
        assert!(!found.is_empty(), "{name}");
        assert!(found.iter().all(|one| one.group == name), "{name}");
        let all = Run { measurements: found, ..reporting::begin("test") };
        all.to_json().unwrap();
        match name {
            "recovery" => assert_eq!(all.measurements.len(), 6),
            "breakdown" => {
                let insert = all.measurements.iter().find(|one| one.name == "insert").unwrap();
                let flushed = insert.metrics["flushed per byte written"].value;
                // 240 bytes for 216, flushed by lines and not by bytes; the page medium also flushes, in pages.
                assert!((1.1..4.0).contains(&flushed), "{flushed}");
                let parts: Vec<&str> = insert.breakdown.iter().map(|part| part.name.as_str()).collect();
                assert_eq!(parts, ["index", "log", "persist", "epoch", "rest"]);
            }
            _ => {}
        }
    }
    assert!(studies::named("gorwth", &place(dir.path()), &settings, &Unwatched).is_none());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn targets_are_measured_and_judged() {
    let dir = directory();
    let place = place(dir.path());
    let settings = targets::Settings {
        place,
        keys: 2000,
        ops: 2000,
        shape: "16+200".parse().unwrap(),
        rounds: 2,
        only: vec![],
        clock: Clock::Cpu,
        seed: 1,
    };
    let found = targets::measure(&settings, &Unwatched).unwrap();
    assert_eq!(found.units.len(), 2);
    assert!(
        found.rows.iter().all(|row| row.judged.len() == 2 || row.name == "DRAM per key"),
        "{:?}",
        found.rows
    );
    let bare = found.rows.iter().filter(|row| row.bare.len() == 2 && row.bare.iter().all(|&bare| bare > 0.0));
    assert_eq!(bare.count(), 12, "{:?}", found.rows);
    let table = targets::table(&found);
    for name in
        ["insert", "get_many", "delete, two threads", "DRAM per key", "recovery, per thread, 2 threads"]
    {
        assert!(table.contains(name), "{table}");
    }
    let (measurements, verdict) = reporting::targets(&found, settings.clock);
    let run = Run { measurements, verdict: Some(verdict), ..reporting::begin("test") };
    run.to_json().unwrap();
    let unknown = targets::Settings { only: vec!["inser".into()], ..settings };
    let failure = targets::measure(&unknown, &Unwatched).unwrap_err();
    assert!(failure.is_usage() && failure.to_string().contains("did you mean insert?"), "{failure}");
}

#[test]
fn an_existing_path_is_left_unchanged() {
    let dir = directory();
    let place = place(dir.path());
    let store = place.options.open(&place.path).unwrap();
    store.put(b"mine", b"!").unwrap();
    let refused = |what: &str| {
        let failure = duramen(place.clone(), false).open(false).map(|_| ()).unwrap_err();
        assert!(
            failure.is_usage() && failure.to_string().contains("--path that does not exist"),
            "{what}: {failure}"
        );
    };
    refused("in use");
    store.close().unwrap();
    refused("closed");
    assert_eq!(&*place.options.open(&place.path).unwrap().get(b"mine").unwrap().unwrap(), b"!");
}

#[test]
fn hardware_bounds_are_plausible() {
    let dir = directory();
    let place = place(dir.path());
    let shape = "16+200".parse().unwrap();
    let scratch = bound::Scratch::new(&place.path, &place.options, shape, 10_000).unwrap();
    for op in [Op::Get, Op::Insert, Op::Update, Op::Delete, Op::Overwrite, Op::ReadModifyWrite] {
        let nanos = scratch.accesses(Clock::Wall, op, shape).unwrap();
        assert!((0.5..100_000.0).contains(&nanos), "{op}: {nanos}");
    }
    assert!(scratch.accesses(Clock::Wall, Op::Scan, shape).is_none());
}

/// Records how each of its stores is opened.
struct Noting {
    inner: Duramen,
    opened: Mutex<Vec<bool>>,
}

impl Contender for Noting {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn durability(&self) -> String {
        self.inner.durability()
    }

    fn distinguishes_updates(&self) -> bool {
        self.inner.distinguishes_updates()
    }

    fn open(&self, updates: bool) -> duramen_bench::kv::Result<Box<dyn Opened + '_>> {
        self.opened.lock().unwrap().push(updates);
        self.inner.open(updates)
    }
}

#[test]
fn only_updates_find_values_that_were_put_to_be_updated() {
    let dir = directory();
    let names = ["insert", "get", "update", "get_many", "overwrite", "update"];
    for (in_place, wanted) in [(true, vec![false, true, false, true]), (false, vec![false])] {
        let noting =
            Noting { inner: duramen(in_memory(dir.path()), in_place), opened: Mutex::new(Vec::new()) };
        suite::measure(&[&noting], &settings(&names, 200), &Unwatched).unwrap();
        assert_eq!(*noting.opened.lock().unwrap(), wanted);
    }
}
