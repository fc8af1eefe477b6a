//! The bytes that a write stores on the medium, counted call by call.

use crate::Common;
use duramen_bench::kv::place::Place;
use duramen_bench::kv::probe::{Meter, Mode, Probe};
use duramen_bench::kv::variants::probed;
use duramen_bench::kv::{
    DuramenEngine, Engine, Latency, Options, Pace, FlushInstruction, Plan, Records, Result, Shape, Unwatched,
    Workload, run,
};
use duramen_bench_peers::hyper::{Hyper, medium};
use duramen_hyperkv::LogKind;
use duramen_media::{Create, LINE_BYTES};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const KEY_BYTES: usize = 16;

/// The counts of one operation.
#[derive(Clone, Copy)]
struct Traffic {
    stored_bytes: f64,
    flushed_lines: f64,
    drains: f64,
}

/// The workloads, in the order in which they run on one store.
const WORKLOADS: [&str; 2] = ["insert", "overwrite"];

/// Counts and prints one table for each size of value.
pub fn measure(common: &Common, values: &[usize]) -> Result<()> {
    println!(
        "bytes stored, lines written back or stored past the cache, and drains, an operation; one thread"
    );
    println!(
        "{:<10} {:<10} {:<30} {:>10} {:>8} {:>8}",
        "value", "workload", "engine", "bytes", "lines", "drains"
    );
    for &value in values {
        let redo = hyper(common, value, LogKind::Redo)?;
        let undo = hyper(common, value, LogKind::Undo)?;
        let with = duramen(common, value, true)?;
        let without = duramen(common, value, false)?;
        for (at, workload) in WORKLOADS.into_iter().enumerate() {
            let row = |engine: &str, traffic: &[Traffic]| {
                let Traffic { stored_bytes, flushed_lines, drains } = traffic[at];
                println!(
                    "{value:<10} {workload:<10} {engine:<30} {stored_bytes:>10.1} {flushed_lines:>8.2} {drains:>8.2}"
                );
            };
            row("hyperkv", &redo);
            row("hyperkv-undo", &undo);
            row("duramen, with compaction", &with);
            row("duramen, no background thread", &without);
            let saved = |of: fn(&Traffic) -> f64| (1.0 - of(&redo[at]) / of(&undo[at])) * 100.0;
            println!(
                "{value:<10} {workload:<10} redo saves against undo: {:.1} % of bytes, {:.1} % of lines",
                saved(|traffic| traffic.stored_bytes),
                saved(|traffic| traffic.flushed_lines)
            );
        }
    }
    Ok(())
}

/// Takes a flush instruction by default: write-backs are counted only if the medium asks for them, not if order is
/// enough.
fn step(common: &Common) -> Option<FlushInstruction> {
    common.flush_instruction.or_else(|| FlushInstruction::available().first().copied())
}

fn hyper(common: &Common, value: usize, log: LogKind) -> Result<Vec<Traffic>> {
    let path = common.path.join("hyperkv");
    let meter = Arc::new(Meter::default());
    let medium = medium(&path, Create::CreateNew, step(common))?;
    let probe = Probe::new(medium, Mode::Count, Arc::clone(&meter));
    let engine = Hyper::open(probe, &duramen_hyperkv::Options { log, ..Default::default() })?;
    let counted = count(common, value, &engine, &meter);
    drop(engine);
    let _ = std::fs::remove_file(&path);
    counted
}

fn duramen(common: &Common, value: usize, background: bool) -> Result<Vec<Traffic>> {
    let options = Options { background, flush_instruction: step(common), ..common.duramen() };
    let meter = Arc::new(Meter::default());
    let place = Place { path: common.path.join("duramen"), options };
    let (store, _remove) = probed(&place, Mode::Count, &meter)?;
    count(common, value, &DuramenEngine::new(store, false), &meter)
}

fn count<E: Engine>(common: &Common, value: usize, engine: &E, meter: &Meter) -> Result<Vec<Traffic>> {
    let records = Records::new(Shape::new(KEY_BYTES, value)?);
    let mut all = Vec::new();
    for workload in WORKLOADS {
        let plan = Plan::new(Workload::named(workload)?, common.keys, common.ops(), 1, common.seed)?;
        meter.reset();
        let outcome = run(engine, &records, &plan, Latency::None, Pace::Closed, &Unwatched)?;
        let each = |count: u64| count as f64 / outcome.ops as f64;
        all.push(Traffic {
            stored_bytes: each(meter.stored_bytes.load(Relaxed)),
            flushed_lines: each(meter.flushed_bytes.load(Relaxed) / LINE_BYTES),
            drains: each(meter.drain.calls()),
        });
    }
    Ok(all)
}
