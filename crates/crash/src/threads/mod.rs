//! Several threads on one store, scheduled by a seed, and crashed.
//!
//! ```text
//!  seed ──▶ Plan: what each thread does, and how it is scheduled
//!             │
//!             ▼
//!  schedule: real threads, one at a time; a Recorder notes each call: when it began and ended, what it told
//!             │
//!             ├─▶ linear: can all that was told have happened one call after the other? (all keys at once)
//!             ├─▶ the store was closed: does it hold what it held?
//!             └─▶ crash: images along the medium's log; does what recovery finds follow from what was told?
//! ```
//!
//! The criterion after a crash is durable linearizability: every acknowledged write and every write that a reader saw
//! (promise P7) happened; a call in flight may have happened. With `Interval` the state is a prefix of such an order
//! from the last commit on (P6), with `Manual` the state at the last commit.
//!
//! Readers see all of a batch or nothing: its writes happen at one moment. Calls that read several keys (`get_many`,
//! scans) read them one at a time: each key at some moment of the call.

pub mod crash;
mod draft;
mod elements;
pub mod history;
pub mod linear;
mod peek;
pub mod plan;
pub mod section;
pub mod touch;
pub mod values;
pub mod work;

pub use plan::Plan;

use crate::explore::{Violation, caught};
use crate::setup::TIME_BEGIN;
use crash::{End, Looked, check_found, check_run, ids};
use duramen::StoreOn;
use duramen_media::sim::schedule::{self, Report};
use duramen_media::sim::{Log, Rng, SimMedium};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use work::{Ended, Recorder, lead};

/// Counts of the runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Runs, each with its own schedule.
    pub schedules: u64,
    /// Points at which the scheduler could have switched threads.
    pub steps: u64,
    /// ... and the number of switches.
    pub switches: u64,
    /// Calls in the histories.
    pub calls: u64,
    /// Positions crashed at.
    pub points: u64,
    /// Images opened.
    pub images: u64,
    /// Recoveries that were crashed.
    pub nested: u64,
    /// Segments of the index that were merged.
    pub merges: u64,
}

impl Counts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.steps += other.steps;
        self.switches += other.switches;
        self.calls += other.calls;
        self.points += other.points;
        self.images += other.images;
        self.nested += other.nested;
        self.merges += other.merges;
    }
}

/// Images of one run.
pub const IMAGES_MAX: u64 = 60;

/// Runs one plan.
///
/// # Errors
/// The first promise that was broken.
pub fn run_plan(plan: &Plan, images_max: u64) -> Result<Counts, Box<Violation>> {
    let setup = &plan.setup;
    setup.clock.store(TIME_BEGIN, Relaxed);
    let (report, ended, log) = scheduled(plan);
    judge(plan, &report, ended, &log, images_max).map_err(|what| {
        Box::new(Violation {
            setup: plan.describe(),
            what,
            command: format!(
                "cargo xtask crash --threads {} --kind {} --seed {} --case {} --seeds 1",
                plan.threads.len(),
                format!("{:?}", plan.kind).to_lowercase(),
                setup.seed,
                setup.case.name
            ),
        })
    })
}

/// Runs the threads. Returns the report, their history or the violation, and the medium's log.
pub fn scheduled(plan: &Plan) -> (Report, Result<Ended, String>, Log) {
    let setup = &plan.setup;
    duramen::schedule::finish_reclamation();
    let medium = SimMedium::resume(Log::empty(setup.case.model, setup.len_max));
    medium.flush_short(setup.flush_short);
    let recorder = Recorder::new(medium.clone(), plan);
    let (shared, notes) = (Arc::new(plan.clone()), recorder.clone());
    let report = schedule::run(&plan.schedule, move || {
        if let Err(what) = lead(&shared, &notes) {
            notes.notes().wrong.get_or_insert(what);
        }
    });
    let closed = medium.position();
    let mut notes = std::mem::take(&mut *recorder.notes());
    let mut ended = Ok(Ended {
        history: std::mem::take(&mut notes.history),
        values: std::mem::take(&mut notes.values),
        reopened: None,
        merges: notes.merges,
    });
    if let Some(what) = report.failure.clone().or(notes.wrong) {
        ended = Err(what);
    }
    let log = medium.log();
    if let Ok(ended) = &mut ended {
        let found = caught(|| {
            let store = StoreOn::open_on(medium.clone(), &setup.options(1))
                .map_err(|error| format!("the store does not open after a clean close: {error}"))?;
            let state = crate::check::read_all(setup, &store, true, None)?;
            crate::check::audit(setup, &store, &medium, &state)?;
            Ok(state)
        });
        match found {
            Ok(state) => ended.reopened = Some((ids(&state, &mut ended.values), closed)),
            Err(what) => return (report, Err(format!("after a clean close, {what}")), log),
        }
    }
    medium.power_off();
    (report, ended, log)
}

/// Checks the results of a run.
fn judge(
    plan: &Plan,
    report: &Report,
    ended: Result<Ended, String>,
    log: &Log,
    images_max: u64,
) -> Result<Counts, String> {
    let mut ended = ended?;
    check_run(&ended.history, &mut ended.values)?;
    if let Some((found, closed)) = ended.reopened.take() {
        check_found(&ended.history, plan.setup.case, closed, End::Close, &found, &mut ended.values)
            .map_err(|what| format!("after a clean close, {what}"))?;
    }
    let mut rng = Rng::new(plan.setup.seed ^ 0x0069_6d61_6765);
    let (calls, merges) = (ended.history.calls.len() as u64, ended.merges);
    let Looked { points, images, nested } = crash::crash(plan, log, &mut ended, images_max, &mut rng)?;
    let (steps, switches) = (report.steps, report.switches);
    Ok(Counts { schedules: 1, steps, switches, calls, points, images, nested, merges })
}
