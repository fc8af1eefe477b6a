//! Cells and targets as the measurements of a report.

use crate::kv::bound::Scratch;
use crate::kv::run::LockWaits;
use crate::kv::suite::{Cell, Settings};
use crate::kv::targets::{Counted, Found, Row};
use crate::kv::{Clock, Failure, Op, Outcome, Pace, Result, median};
use crate::report::{
    Better, Bound, Finding, Latency as ReportLatency, Machine, Measurement, Medium, Metric, Run, Series,
    Unit, Verdict,
};
use duramen_media::{Device as _, Mapped, MediaOptions, Persistent as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A run of `tool` that begins now, without measurements.
#[must_use]
pub fn begin(tool: &str) -> Run {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Run {
        tool: tool.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started,
        command: std::env::args().collect(),
        machine: Machine::read(),
        complete: true,
        ..Run::default()
    }
}

/// The medium of a store at `path`. To find out, it makes and removes a small medium there; on a device it makes
/// nothing.
#[must_use]
pub fn medium_of(path: &Path, options: &duramen::Options) -> Medium {
    let mut medium =
        Medium { kind: options.medium.to_string(), path: path.display().to_string(), ..Medium::default() };
    if path.exists() {
        return medium;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".probe");
    let media = MediaOptions {
        kind: options.medium,
        create: duramen::Create::CreateNew,
        flush_instruction: options.flush_instruction,
        ..MediaOptions::default()
    };
    if let Ok(mapped) = Mapped::open(Path::new(&name), &media) {
        medium.granularity = mapped.granularity().to_string();
        // It begins with the kind in a word.
        medium.kind = mapped.describe().split_whitespace().next().unwrap_or("").into();
        drop(mapped);
        let _ = std::fs::remove_file(&name);
    }
    medium
}

fn metric(samples: &[f64], unit: Unit, better: Better) -> Option<Metric> {
    Metric::from_samples(samples, unit, better)
}

/// Nanoseconds of an operation by the selected clock; threads count in parallel.
fn nanos(clock: Clock, outcome: &Outcome, threads: usize) -> f64 {
    match clock {
        Clock::Wall => outcome.nanos_per_op() * threads as f64,
        Clock::Cpu => outcome.cpu_nanos_per_op(),
    }
}

/// A cell as a measurement.
///
/// # Errors
/// When histograms cannot be added up or written.
pub fn measurement(cell: &Cell, settings: &Settings) -> Result<Measurement> {
    let mut found = Measurement::new(cell.workload.name(), &cell.contender)
        .with("durability", cell.durability.as_str())
        .with("record", cell.shape.to_string())
        .with("threads", cell.threads)
        .with("keys", cell.keys)
        .with("distribution", cell.workload.distribution().to_string());
    if let Pace::Open(rate) = settings.pace {
        found = found.with("rate", rate);
    }
    let sampled = |of: &dyn Fn(&Outcome) -> f64| cell.outcomes.iter().map(of).collect::<Vec<f64>>();
    let mut add = |name: &str, metric: Option<Metric>| {
        if let Some(metric) = metric {
            found.metrics.insert(name.into(), metric);
        }
    };
    let rates = sampled(&Outcome::ops_per_second);
    add("throughput", metric(&rates, Unit::OperationsPerSecond, Better::Higher));
    let wall = sampled(&|outcome| nanos(Clock::Wall, outcome, cell.threads));
    add("time of an operation", metric(&wall, Unit::Nanoseconds, Better::Lower));
    if cell.outcomes.iter().any(|outcome| outcome.scanned > 0) {
        let entries = sampled(&|o| o.scanned as f64 / o.elapsed.as_secs_f64().max(1e-9));
        add("entries visited", metric(&entries, Unit::OperationsPerSecond, Better::Higher));
    }
    let waits = |of: &dyn Fn(LockWaits) -> Option<u64>| -> Vec<f64> {
        let counted = cell.outcomes.iter().filter_map(|o| Some((of(o.lock_waits?)?, o.ops)));
        counted.map(|(waits, ops)| waits as f64 * 1e6 / ops.max(1) as f64).collect()
    };
    if !cell.workload.only_reads() {
        let unit = Unit::Count;
        add("key lock waits per million", metric(&waits(&|w| Some(w.keys)), unit, Better::Lower));
        add("leaf lock waits per million", metric(&waits(&|w| w.leaves), unit, Better::Lower));
    }
    let cpu = sampled(&|outcome| nanos(Clock::Cpu, outcome, cell.threads));
    add("CPU time of an operation", metric(&cpu, Unit::Nanoseconds, Better::Lower));
    let dram: Vec<f64> = cell.spaces.iter().filter_map(|space| space.dram).collect();
    add("DRAM per record", metric(&dram, Unit::Bytes, Better::Lower));
    let medium: Vec<f64> = cell.spaces.iter().filter_map(|space| space.medium).collect();
    add("medium per record", metric(&medium, Unit::Bytes, Better::Lower));
    let timed = if settings.clock == Clock::Cpu { &cpu } else { &wall };
    // In an open loop the rate determines the time between operations, not the engine.
    if settings.pace == Pace::Closed {
        bound(&mut found, cell, timed);
    }
    latencies(&mut found, cell)?;
    series(&mut found, cell);
    let rewritten: u64 = cell.outcomes.iter().map(|outcome| outcome.rewritten).sum();
    let updates: u64 = cell.outcomes.iter().map(|outcome| outcome.ops).sum();
    if rewritten > 0 {
        found.notes.push(format!(
            "{rewritten} of {updates} operations wrote the whole value again instead of in place"
        ));
    }
    Ok(found)
}

fn bound(found: &mut Measurement, cell: &Cell, timed: &[f64]) {
    // Each round's time over the bound of the same round.
    let ratios: Vec<f64> = timed.iter().zip(&cell.bounds).map(|(nanos, bound)| nanos / bound).collect();
    let (Some(bound), Some(ratio)) = (median(&cell.bounds), median(&ratios)) else { return };
    let ops: Vec<&str> = cell.workload.mix().iter().map(|(op, _)| Scratch::describe(*op)).collect();
    found.bound = Some(Bound { name: ops.join("; "), ns: bound, ratio });
}

fn latencies(found: &mut Measurement, cell: &Cell) -> Result<()> {
    for op in Op::ALL {
        let mut all = crate::kv::run::histogram()?;
        for outcome in &cell.outcomes {
            if let Some(one) = outcome.latency.get(&op) {
                all.add(one).map_err(|e| Failure::new(format!("cannot add up histograms: {e}")))?;
            }
        }
        let latency = ReportLatency::from_histogram(&all).map_err(|e| Failure::new(e.to_string()))?;
        if let Some(latency) = latency {
            found.latency.insert(op.name().into(), latency);
        }
    }
    Ok(())
}

/// Throughput and longest operation over time, for the last round.
fn series(found: &mut Measurement, cell: &Cell) {
    let Some(outcome) = cell.outcomes.last() else { return };
    if outcome.series.len() < 4 {
        return;
    }
    let line = |name: &str, y_unit, points| Series {
        name: name.into(),
        x_name: "time".into(),
        x_unit: Unit::Seconds,
        y_unit,
        points,
    };
    let slice = crate::kv::SLICE.as_secs_f64();
    // The last slice is shorter than the others.
    let whole = &outcome.series[..outcome.series.len() - 1];
    let rates = whole.iter().map(|s| (s.end_s, s.ops as f64 / slice)).collect();
    found.series.push(line("throughput", Unit::OperationsPerSecond, rates));
    if whole.iter().any(|s| s.nanos_max > 0) {
        let longest = whole.iter().map(|s| (s.end_s, s.nanos_max as f64)).collect();
        found.series.push(line("longest operation", Unit::Nanoseconds, longest));
    }
}

/// The targets as measurements and as a verdict.
#[must_use]
pub fn targets(found: &Found, clock: Clock) -> (Vec<Measurement>, Verdict) {
    let mut all = Vec::new();
    let unit = |name: &str, of: fn(&crate::kv::bound::Units) -> f64| {
        let samples: Vec<f64> = found.units.iter().map(of).collect();
        let mut one = Measurement::new("units", name);
        one.metrics.extend(metric(&samples, Unit::Nanoseconds, Better::Lower).map(|m| ("time".into(), m)));
        one
    };
    all.push(unit("L, random dependent load", |u| u.load));
    all.push(unit("W, 256 bytes in sequence, persisted", |u| u.write));
    all.push(unit("R, 8 random bytes, persisted", |u| u.random));
    all.extend(found.rows.iter().map(row_measurement));
    let judged: Vec<&Row> = found.rows.iter().filter(|row| row.target.is_some()).collect();
    let reached = judged.iter().filter(|row| row.reached() == Some(true)).count();
    let by = if clock == Clock::Cpu { "in CPU time" } else { "in wall-clock time" };
    let findings = judged.iter().map(|row| Finding {
        title: row.name.clone(),
        value: row_value(row),
        detail: format!(
            "target {} {}: {}",
            if row.wants_more() { "at least" } else { "at most" },
            row.target.unwrap_or_default(),
            if row.reached() == Some(true) { "reached" } else { "not reached" }
        ),
    });
    let verdict = Verdict {
        summary: format!(
            "{reached} of {} targets are reached, {by}. L, W and R are times of this machine's memory in the same run: L \
             for a read of a random line whose address the previous read gave, W for appending 256 bytes durably, R \
             for making 8 bytes at a random place durable. A target in L, W or R is a multiple of that time.",
            judged.len()
        ),
        findings: findings.collect(),
        ..Verdict::default()
    };
    (all, verdict)
}

fn row_value(row: &Row) -> String {
    match (median(&row.measured), median(&row.judged)) {
        (Some(measured), Some(judged)) => crate::kv::targets::figure(row.counted, measured, judged),
        _ => String::new(),
    }
}

fn row_measurement(row: &Row) -> Measurement {
    let mut one = Measurement::new("targets", &row.name);
    let better = if row.wants_more() { Better::Higher } else { Better::Lower };
    let (name, unit, factor) = match row.counted {
        Counted::Load | Counted::Write | Counted::Random | Counted::Nanos => ("time", Unit::Nanoseconds, 1.0),
        Counted::Times => ("two threads over one", Unit::Ratio, 1.0),
        Counted::MillionPerSecond => ("rate", Unit::OperationsPerSecond, 1e6),
        Counted::Bytes => ("size", Unit::Bytes, 1.0),
        Counted::Percent => ("cost", Unit::Percent, 1.0),
    };
    let samples: Vec<f64> = row.measured.iter().map(|sample| sample * factor).collect();
    one.metrics.extend(metric(&samples, unit, better).map(|m| (name.into(), m)));
    let in_units = match row.counted {
        Counted::Load => Some("in L"),
        Counted::Write => Some("in W"),
        Counted::Random => Some("in R"),
        _ => None,
    };
    if let Some(name) = in_units {
        one.metrics.extend(metric(&row.judged, Unit::Ratio, better).map(|m| (name.into(), m)));
    }
    one.metrics.extend(metric(&row.bare, Unit::Ratio, better).map(|m| ("bare accesses".into(), m)));
    if let Some(target) = row.target {
        one.metrics.insert(
            "target".into(),
            Metric::once(target * factor, if in_units.is_some() { Unit::Ratio } else { unit }, better),
        );
    }
    one
}
