//! The results, as measurements and compared with the targets.

use std::time::Duration;

use crate::report::{Better, Finding, Measurement, Metric, Unit, Verdict, figure};

use crate::stream::job::Ran;
use crate::stream::restart::Times;
use crate::stream::{Found, Home, Settings, per_window};

/// The results with one store.
pub struct Stored {
    home: String,
    pub runs: Vec<Ran>,
    pub restarts: Vec<Times>,
}

/// The results for one number of keys, by round.
pub struct Row {
    keys: u64,
    pub by_hand: Vec<Ran>,
    pub in_memory: Vec<Ran>,
    pub stored: Vec<Stored>,
    pub threads: Vec<Ran>,
    pub threads_by_hand: Vec<Ran>,
    pub threads_stored: Vec<Ran>,
}

impl Row {
    /// A row without results.
    pub fn new(keys: u64, homes: &[Home]) -> Row {
        let stored =
            |home: &Home| Stored { home: home.medium.to_string(), runs: Vec::new(), restarts: Vec::new() };
        Row {
            keys,
            by_hand: Vec::new(),
            in_memory: Vec::new(),
            stored: homes.iter().map(stored).collect(),
            threads: Vec::new(),
            threads_by_hand: Vec::new(),
            threads_stored: Vec::new(),
        }
    }
}

/// Records per second of wall-clock time.
fn rate(ran: &Ran) -> f64 {
    ran.records as f64 / ran.clock.as_secs_f64().max(1e-9)
}

/// Records per second of CPU time.
fn cpu_rate(ran: &Ran) -> f64 {
    ran.records as f64 / ran.cpu.max(1e-9)
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    Metric::from_samples(&values, Unit::Ratio, Better::Higher).map(|metric| metric.value)
}

/// The median ratio of pairs of runs that ran in turn.
fn ratio(of: &[Ran], to: &[Ran], rate: impl Fn(&Ran) -> f64) -> Option<f64> {
    median(of.iter().zip(to).map(|(of, to)| rate(of) / rate(to)))
}

fn measurement(keys: u64, name: &str, runs: &[Ran], settings: &Settings) -> Measurement {
    let mut found = Measurement::new("tumbling sums by key", name)
        .with("keys", keys)
        .with("window_records", per_window(keys))
        .with("commit_every_ms", settings.every.as_millis() as u64);
    let mut metric = |name: &str, unit: Unit, better: Better, of: &dyn Fn(&Ran) -> f64| {
        let samples: Vec<f64> = runs.iter().map(of).collect();
        found
            .metrics
            .extend(Metric::from_samples(&samples, unit, better).map(|metric| (name.to_owned(), metric)));
    };
    metric("rate", Unit::OperationsPerSecond, Better::Higher, &rate);
    metric("rate of CPU time", Unit::OperationsPerSecond, Better::Higher, &cpu_rate);
    let nanos = |time: Duration| time.as_nanos() as f64;
    if runs.iter().all(|ran| ran.gap_max > Duration::ZERO) {
        metric("longest gap", Unit::Nanoseconds, Better::Lower, &|ran| nanos(ran.gap_max));
    }
    if runs.iter().all(|ran| ran.checkpoints > 0) {
        metric("pause p99", Unit::Nanoseconds, Better::Lower, &|ran| nanos(ran.pause_p99));
        metric("pause max", Unit::Nanoseconds, Better::Lower, &|ran| nanos(ran.pause_max));
        metric("checkpoint", Unit::Nanoseconds, Better::Lower, &|ran| nanos(ran.took));
        metric("checkpoint bytes", Unit::Bytes, Better::Lower, &|ran| ran.bytes as f64);
        metric("checkpoints", Unit::Count, Better::Higher, &|ran| ran.checkpoints as f64);
    }
    found
}

/// Measurements of all rows, and the targets of `docs/internals/sql.md` that they cover.
pub fn found(rows: &[Row], settings: &Settings) -> Found {
    let mut found = Found::default();
    let mut reached = (0, 0);
    let verdict: &mut Verdict = &mut found.verdict;
    let mut target = |title: String, value: Option<f64>, unit: Unit, better: Better, bound: f64| {
        let Some(value) = value else { return };
        let is_reached = if better == Better::Higher { value >= bound } else { value <= bound };
        reached = (reached.0 + u32::from(is_reached), reached.1 + 1);
        let most = if better == Better::Higher { "at least" } else { "at most" };
        let end = if is_reached { "reached" } else { "missed" };
        verdict.findings.push(Finding {
            title,
            value: figure(value, unit),
            detail: format!("{most} {}: {end}", figure(bound, unit)),
        });
    };
    for row in rows {
        let keys = row.keys;
        let least = if keys > 1_000_000 { 10e6 } else { 45e6 };
        let higher = |runs: &[Ran]| median(runs.iter().map(rate));
        found.measurements.push(measurement(keys, "by hand", &row.by_hand, settings));
        found.measurements.push(measurement(keys, "in memory", &row.in_memory, settings));
        target(
            format!("{keys} keys, in memory : by hand, of CPU time"),
            ratio(&row.in_memory, &row.by_hand, cpu_rate),
            Unit::Ratio,
            Better::Higher,
            0.8,
        );
        if !row.threads.is_empty() {
            let count = settings.threads;
            let name = |what: &str| format!("{count} threads, {what}");
            found.measurements.push(measurement(keys, &name("by hand"), &row.threads_by_hand, settings));
            found.measurements.push(measurement(keys, &name("in memory"), &row.threads, settings));
            found.measurements.push(measurement(keys, &name("store"), &row.threads_stored, settings));
            // 1.8 for two: nine tenths of the rate without loss.
            let bound = 0.9 * count as f64;
            let title = |what: &str| format!("{keys} keys, {count} threads : one, {what}");
            let by_hand = ratio(&row.threads_by_hand, &row.by_hand, rate);
            target(title("by hand"), by_hand, Unit::Ratio, Better::Higher, bound);
            let in_memory = ratio(&row.threads, &row.in_memory, rate);
            target(title("in memory"), in_memory, Unit::Ratio, Better::Higher, bound);
            if let Some(stored) = row.stored.first() {
                let ratio = ratio(&row.threads_stored, &stored.runs, rate);
                target(title(&stored.home), ratio, Unit::Ratio, Better::Higher, bound);
            }
        }
        let first = row.stored.first();
        for stored in &row.stored {
            let home = &stored.home;
            let mut one = measurement(keys, &format!("store, {home}"), &stored.runs, settings);
            let mut restart = |name: &str, of: fn(&Times) -> Duration| {
                let samples: Vec<f64> =
                    stored.restarts.iter().map(|times| of(times).as_nanos() as f64).collect();
                let metric = Metric::from_samples(&samples, Unit::Nanoseconds, Better::Lower);
                one.metrics.extend(metric.map(|metric| (name.to_owned(), metric)));
            };
            restart("kill to record", |times| times.record);
            restart("kill to result", |times| times.result);
            found.measurements.push(one);
            let title = |what: &str| format!("{keys} keys, {home}: {what}");
            target(
                title("records a second"),
                higher(&stored.runs),
                Unit::OperationsPerSecond,
                Better::Higher,
                least,
            );
            target(
                title("in memory : with the store"),
                ratio(&row.in_memory, &stored.runs, rate),
                Unit::Ratio,
                Better::Lower,
                1.3,
            );
            if let Some(first) = first
                && first.home != *home
            {
                let title = title(&format!("rate : that on {}", first.home));
                target(title, ratio(&stored.runs, &first.runs, rate), Unit::Ratio, Better::Higher, 0.9);
            }
            let worst = stored.runs.iter().map(|ran| ran.pause_max).max().unwrap_or_default();
            target(
                title("longest pause"),
                Some(worst.as_nanos() as f64),
                Unit::Nanoseconds,
                Better::Lower,
                5e6,
            );
            let result = median(stored.restarts.iter().map(|times| times.result.as_nanos() as f64));
            target(title("kill to the first new result"), result, Unit::Nanoseconds, Better::Lower, 1e9);
        }
    }
    verdict.summary = format!("{} of {} targets are reached.", reached.0, reached.1);
    found
}
