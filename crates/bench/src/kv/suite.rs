//! Workloads × record shapes × threads × contenders, in rounds: A B A B.
//!
//! In a round, each contender makes a store for each shape and number of threads, and runs the workloads on it in their
//! given order. A workload may find other keys than those of the load, or values that were not put as it needs them.
//! Then a new store is loaded first, untimed.
//!
//! If all workloads leave their stores unchanged, each contender loads one before the first round and keeps it. The
//! contenders then take turns workload by workload. (Unless they share a device.)

use crate::kv::bound::Scratch;
use crate::kv::contender::{Contender, Opened, Space};
use crate::kv::engine::Watch;
use crate::kv::place::{Place, anonymous_bytes};
use crate::kv::{Clock, Distribution, Latency, Op, Outcome, Pace, Plan, Records, Result, Shape, Workload};
use std::collections::BTreeMap;

/// The matrix to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Workloads, in the order in which they run.
    pub workloads: Vec<Workload>,
    /// Sizes of records.
    pub shapes: Vec<Shape>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// The number of records that the load inserts.
    pub keys: u64,
    /// Operations of each workload except the load.
    pub ops: u64,
    /// The number of rounds.
    pub rounds: u32,
    /// What the clock times.
    pub latency: Latency,
    /// The clock.
    pub clock: Clock,
    /// When operations begin.
    pub pace: Pace,
    /// The seed of keys and order.
    pub seed: u64,
    /// Where bounds are measured, opened like the store; `None` to leave them out.
    pub bounds: Option<Place>,
    /// Whether to check every byte of every value of each store after its workloads.
    pub check_all: bool,
}

/// One point of the matrix, for one contender.
#[derive(Debug)]
pub struct Cell {
    /// The workload.
    pub workload: Workload,
    /// The contender's name.
    pub contender: String,
    /// The failures that its writes survive.
    pub durability: String,
    /// Sizes of records.
    pub shape: Shape,
    /// Threads.
    pub threads: usize,
    /// The number of records that existed or were inserted.
    pub keys: u64,
    /// One per round.
    pub outcomes: Vec<Outcome>,
    /// Nanoseconds per operation of the bare accesses; one per round.
    pub bounds: Vec<f64>,
    /// The space that a load took; one per round.
    pub spaces: Vec<Space>,
}

/// Runs the matrix. Returns the cells in the order of workload, shape, threads, contender, and a line about each
/// contender's store.
///
/// # Errors
/// The first error; no point is left out silently.
pub fn measure(
    contenders: &[&dyn Contender],
    settings: &Settings,
    watch: &dyn Watch,
) -> Result<(Vec<Cell>, Vec<String>)> {
    let mut suite = Suite { settings, watch, cells: Vec::new(), described: Vec::new() };
    if settings.workloads.iter().all(Workload::only_reads) && have_own_places(contenders) {
        suite.read(contenders)?;
        return Ok(suite.end());
    }
    for _ in 0..settings.rounds.max(1) {
        for &shape in &settings.shapes {
            let records = Records::new(shape);
            let bounds = suite.bounds(shape)?;
            for &threads in &settings.threads {
                for contender in contenders {
                    suite.contend(*contender, &records, threads, &bounds)?;
                }
            }
        }
    }
    Ok(suite.end())
}

/// Whether their stores can all exist at once.
fn have_own_places(contenders: &[&dyn Contender]) -> bool {
    let paths: Vec<_> = contenders.iter().filter_map(|contender| contender.path()).collect();
    paths.iter().enumerate().all(|(i, path)| !paths[..i].contains(path))
}

struct Suite<'a> {
    settings: &'a Settings,
    watch: &'a dyn Watch,
    cells: Vec<Cell>,
    described: Vec<String>,
}

impl Suite<'_> {
    /// The time of each operation's bare accesses on records of `shape`.
    fn bounds(&self, shape: Shape) -> Result<BTreeMap<Op, f64>> {
        let Some(place) = &self.settings.bounds else { return Ok(BTreeMap::new()) };
        let scratch = Scratch::new(&place.path, &place.options, shape, self.settings.keys)?;
        let ops = Op::ALL.into_iter().filter(|op| self.settings.workloads.iter().any(|w| w.has(*op)));
        let bounds = ops.filter_map(|op| Some((op, scratch.accesses(self.settings.clock, op, shape)?)));
        Ok(bounds.collect())
    }

    /// All rounds on stores that the workloads leave unchanged.
    fn read(&mut self, contenders: &[&dyn Contender]) -> Result<()> {
        let settings = self.settings;
        for &shape in &settings.shapes {
            let records = Records::new(shape);
            let mut stores: Vec<(&dyn Contender, Box<dyn Opened + '_>)> = Vec::new();
            for &contender in contenders {
                let opened = self.load(contender, &records, 1, false)?;
                opened.finish_background()?;
                stores.push((contender, opened));
            }
            for _ in 0..settings.rounds.max(1) {
                let bounds = self.bounds(shape)?;
                for &threads in &settings.threads {
                    for workload in &settings.workloads {
                        let plan = Plan::new(workload, settings.keys, settings.ops, threads, settings.seed)?;
                        for (contender, opened) in &stores {
                            let outcome =
                                opened.run(&records, &plan, settings.latency, settings.pace, self.watch)?;
                            self.keep(workload, *contender, &records, threads, outcome, None, &bounds);
                        }
                    }
                }
            }
            if settings.check_all {
                stores.iter().try_for_each(|(_, opened)| opened.check_all(&records, settings.keys))?;
            }
        }
        Ok(())
    }

    /// The cells in order, and the lines about the stores.
    fn end(self) -> (Vec<Cell>, Vec<String>) {
        let Suite { settings, mut cells, described, .. } = self;
        cells.sort_by_key(|cell| {
            let workload = settings.workloads.iter().position(|w| *w == cell.workload);
            let shape = settings.shapes.iter().position(|s| *s == cell.shape);
            (workload, shape, cell.threads)
        });
        (cells, described)
    }

    fn contend(
        &mut self,
        contender: &dyn Contender,
        records: &Records,
        threads: usize,
        bounds: &BTreeMap<Op, f64>,
    ) -> Result<()> {
        let settings = self.settings;
        // The flag: whether its values are put to be updated in place.
        let mut store: Option<(bool, Box<dyn Opened + '_>)> = None;
        for workload in &settings.workloads {
            let plan = Plan::new(workload, settings.keys, settings.ops, threads, settings.seed)?;
            let updates = workload.has(Op::Update) && contender.distinguishes_updates();
            if workload.is_load() {
                drop(store.take());
                let before = self.described.is_empty().then(anonymous_bytes);
                let opened = contender.open(updates)?;
                self.describe(contender, &*opened);
                let outcome = opened.run(records, &plan, settings.latency, settings.pace, self.watch)?;
                let space = Space::of(&*opened, before, settings.keys);
                store = Some((updates, opened));
                self.keep(workload, contender, records, threads, outcome, Some(space), bounds);
                continue;
            }
            let opened = match store.take() {
                Some((as_it_needs, opened)) if as_it_needs == updates => opened,
                other => {
                    drop(other);
                    self.load(contender, records, threads, updates)?
                }
            };
            let outcome = opened.run(records, &plan, settings.latency, settings.pace, self.watch)?;
            self.keep(workload, contender, records, threads, outcome, None, bounds);
            let deletes = workload.has(Op::Delete);
            if settings.check_all && !deletes {
                opened.check_all(records, settings.keys)?;
            }
            if !workload.changes_keys() {
                store = Some((updates, opened));
            }
        }
        Ok(())
    }

    /// Loads a store with all keys, without reporting it.
    fn load<'c>(
        &mut self,
        contender: &'c dyn Contender,
        records: &Records,
        threads: usize,
        updates: bool,
    ) -> Result<Box<dyn Opened + 'c>> {
        let settings = self.settings;
        let plan =
            Plan::new(Workload::named("insert")?, settings.keys, settings.ops, threads, settings.seed)?;
        let opened = contender.open(updates)?;
        self.describe(contender, &*opened);
        opened.run(records, &plan, Latency::None, Pace::Closed, self.watch)?;
        Ok(opened)
    }

    fn describe(&mut self, contender: &dyn Contender, opened: &dyn Opened) {
        let line = format!("{}: {}", contender.name(), opened.describe());
        if !self.described.contains(&line) {
            self.described.push(line);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a row of the table has so many parts")]
    fn keep(
        &mut self,
        workload: &Workload,
        contender: &dyn Contender,
        records: &Records,
        threads: usize,
        outcome: Outcome,
        space: Option<Space>,
        bounds: &BTreeMap<Op, f64>,
    ) {
        let (name, shape) = (contender.name(), records.shape());
        let found = self.cells.iter_mut().position(|cell| {
            cell.workload == *workload
                && cell.contender == name
                && cell.shape == shape
                && cell.threads == threads
        });
        let at = found.unwrap_or_else(|| {
            self.cells.push(Cell {
                workload: workload.clone(),
                contender: name,
                durability: contender.durability(),
                shape,
                threads,
                keys: self.settings.keys,
                outcomes: vec![],
                bounds: vec![],
                spaces: vec![],
            });
            self.cells.len() - 1
        });
        let cell = &mut self.cells[at];
        cell.outcomes.push(outcome);
        cell.spaces.extend(space);
        // The bound of a mix is that of its operations, in their shares.
        let shares =
            workload.mix().iter().map(|(op, percent)| Some(bounds.get(op)? * f64::from(*percent) / 100.0));
        cell.bounds.extend(shares.sum::<Option<f64>>());
    }
}

/// The workload with another distribution, unless it has none to change.
#[must_use]
pub fn redistributed(workload: &Workload, distribution: Option<Distribution>) -> Workload {
    match distribution {
        Some(distribution) if !workload.is_load() && !workload.has(Op::Delete) => {
            workload.with_distribution(distribution)
        }
        _ => workload.clone(),
    }
}
