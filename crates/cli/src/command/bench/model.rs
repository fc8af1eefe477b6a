//! `duramen bench model`: Duramen's operations next to the bare memory accesses that they consist of, and next to the
//! patterns of other designs on the same medium.

use super::mem::{Session, begin};
use crate::signals::Signals;
use crate::{Answer, Failure};
use duramen::{Create, FlushInstruction, MediumKind, Options, Store};
use duramen_bench::memory::{Bench, Benchmark, Overrides, PATTERNS, Target, bounds, medium, persist_with};
use duramen_bench::report::{Better, Bound, Measurement, Metric, Run, Unit, html, text, write_whole};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const KEY_BYTES: usize = 16;
/// A record's header, as docs/internals/format.md has it.
const HEADER_BYTES: u64 = 32;
// The index's maximum DRAM for a key (docs/benchmarks.md).
const INDEX_BYTES_PER_KEY: u64 = 24;
const OPERATIONS: [&str; 4] = ["put", "get", "update", "delete"];

/// Run Duramen's get, put, update and delete, and the bare accesses that they consist of, and print real / bound
///
/// The accesses are custom operations (`duramen bench mem duramen.yaml`): an index line in DRAM, and the lines of the
/// record on the medium. Each address depends on the data read before, one operation after the other. The patterns of
/// Dash, FAST+FAIR and FPTree run in the same way.
#[derive(clap::Args)]
pub struct Args {
    /// The directory to make the store in
    #[arg(long, default_value = "/dev/shm")]
    path: PathBuf,
    /// auto, file, shm, fsdax
    #[arg(long, default_value_t = MediumKind::Auto)]
    medium: MediumKind,
    /// How lines are flushed, as with --flush-instruction clwb on DRAM instead of persistent memory
    #[arg(long)]
    flush_instruction: Option<FlushInstruction>,
    /// Keys in the store
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..=1 << 32))]
    keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    value_bytes: u64,
    /// Rounds over all of it, alternately; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let signals = Signals::watch()?;
    let target = Target {
        kind: args.medium,
        path: Some(args.path.clone()),
        overwrite: false,
        flush_instruction: args.flush_instruction,
    };
    let mut bench = Bench::new(target.clone());
    let mut run = begin("duramen bench model", Vec::new());
    let start = Instant::now();
    let patterns = args.patterns(&mut bench, &mut run)?;
    let rounds = args.rounds as usize;
    let mut session = Session::new(patterns.len() * rounds, &signals);
    let mut real: Vec<Vec<f64>> = vec![Vec::new(); OPERATIONS.len()];
    let mut bare: Vec<Vec<Measurement>> = vec![Vec::new(); patterns.len()];
    'rounds: for round in 0..args.rounds {
        session.say("the store itself");
        let Some(times) = args.real(round, &signals)? else { break };
        for (all, time) in real.iter_mut().zip(times) {
            all.push(time);
        }
        for (all, benchmark) in bare.iter_mut().zip(&patterns) {
            let found = session.points(&mut bench, benchmark, 1)?;
            if signals.stop() {
                break 'rounds;
            }
            all.extend(found);
        }
    }
    session.finish();
    run.complete = !signals.stop();
    run.elapsed_s = start.elapsed().as_secs_f64();
    run.medium = medium(&target, bench.medium());
    let time_of = |name: &str| {
        let found = patterns.iter().zip(&bare).find(|(pattern, _)| pattern.name == name)?.1;
        let samples: Vec<f64> = found.iter().filter_map(|m| Some(m.metrics.get("time")?.value)).collect();
        Metric::from_samples(&samples, Unit::Nanoseconds, Better::Lower)
    };
    let mut table = text::Table::new([
        "operation",
        "real",
        "bound",
        "real / bound",
        "Dash-like",
        "FAST+FAIR-like",
        "FPTree-like",
    ]);
    for (operation, samples) in OPERATIONS.iter().zip(&real) {
        let Some(metric) = Metric::from_samples(samples, Unit::Nanoseconds, Better::Lower) else { continue };
        let bound = time_of(&format!("duramen_{operation}"));
        let mut measurement = Measurement::new("model", *operation).with("keys", args.keys);
        measurement.bound = bound
            .as_ref()
            .and_then(|bound| Bound::new("index line + record lines", bound.value, metric.value));
        let ns = |value: f64| duramen_bench::report::figure(value, Unit::Nanoseconds);
        let like = |design: &str| {
            // A new key is what the others call an insertion.
            let name = if *operation == "put" { "insert" } else { operation };
            time_of(&format!("{design}_like_{name}")).map_or(String::new(), |metric| ns(metric.value))
        };
        table.row([
            (*operation).to_owned(),
            ns(metric.value),
            bound.as_ref().map_or(String::new(), |bound| ns(bound.value)),
            measurement.bound.as_ref().map_or(String::new(), |bound| format!("{:.2}", bound.ratio)),
            like("dash"),
            like("fast_fair"),
            like("fptree"),
        ]);
        measurement.metrics.insert("time".to_owned(), metric);
        run.measurements.push(measurement);
    }
    for pattern in &patterns {
        if let Some(metric) = time_of(&pattern.name) {
            let mut measurement = Measurement::new("bare accesses", pattern.name.clone());
            measurement.metrics.insert("time".to_owned(), metric);
            run.measurements.push(measurement);
        }
    }
    if let Some(path) = &args.json {
        run.write(path)?;
    }
    if let Some(path) = &args.html {
        write_whole(path, html::page(std::slice::from_ref(&run)).as_bytes())?;
    }
    let mut out = std::io::stdout().lock();
    for note in &run.notes {
        writeln!(out, "note: {note}")?;
    }
    out.write_all(table.render().as_bytes())?;
    Ok(if run.complete { Answer::Yes } else { Answer::No })
}

impl Args {
    /// The record's bytes on the medium, rounded to whole lines and a power of two, which an access needs.
    fn record_bytes(&self) -> u64 {
        (HEADER_BYTES + KEY_BYTES as u64 + self.value_bytes).next_power_of_two().max(64)
    }

    /// All patterns, over a medium of the store's size, with the fastest persist instructions for it.
    fn patterns(&self, bench: &mut Bench, run: &mut Run) -> Result<Vec<Benchmark>, Failure> {
        let range = (self.keys * self.record_bytes()).next_multiple_of(64 << 20);
        let dram = (self.keys * INDEX_BYTES_PER_KEY).next_multiple_of(1 << 20);
        let found = bounds(bench.medium_of(range)?, 0..range, Duration::from_millis(200));
        run.notes.push(format!(
            "L {:.0} ns, W {:.0} ns by {}, R {:.0} ns by {}; each record persisted by the cheaper of these",
            found.load_ns,
            found.append_ns,
            found.append_persist.instruction(),
            found.store_ns,
            found.store_persist.instruction()
        ));
        if bench.is_paged() {
            run.notes
                .push("writes to this medium wait for the device, which no memory access shows".to_owned());
        }
        let overrides = Overrides {
            memory_range: Some(range),
            dram_memory_range: Some(dram),
            run_time: Some(0.3),
            ..Overrides::default()
        };
        let mut all = Vec::new();
        for (name, text) in PATTERNS {
            // The record of the file is one of 256 bytes.
            let text = match name {
                "duramen.yaml" => text.replace("_256", &format!("_{}", self.record_bytes())),
                _ => text.to_owned(),
            };
            let mut found_here = duramen_bench::memory::benchmarks(name, &text, &overrides)?;
            for part in found_here.iter_mut().flat_map(|benchmark| &mut benchmark.parts) {
                persist_with(&mut part.workload, found.store_persist, found.append_persist);
                part.workload.dependent_operations = true;
            }
            all.extend(found_here);
        }
        Ok(all)
    }

    /// Nanoseconds of each operation in [`OPERATIONS`] on a fresh store; `None` when interrupted.
    fn real(&self, round: u32, signals: &Signals) -> Result<Option<[f64; 4]>, Failure> {
        let path = self.path.join(format!("duramen-bench-model-{}.tmp", std::process::id()));
        let options = Options {
            medium: self.medium,
            create: Create::CreateNew,
            flush_instruction: self.flush_instruction,
            ..Options::default()
        };
        let store = options.open(&path)?;
        // The open file stays until the store is closed, however this process ends.
        std::fs::remove_file(&path)?;
        operations(&store, self.keys, self.value_bytes as usize, u64::from(round), signals)
    }
}

/// One key in a scrambled order: the `index`th of `keys`, each once.
fn key(index: u64, keys: u64, round: u64) -> [u8; KEY_BYTES] {
    // Odd and prime: visits every number below `keys` once.
    let number = (u128::from(index + round) * 11_400_714_819_323_198_549 % u128::from(keys)) as u64;
    let mut key = *b"key:\0\0\0\0\0\0\0\0\0\0\0\0";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn operations(
    store: &Store,
    keys: u64,
    value_bytes: usize,
    round: u64,
    signals: &Signals,
) -> Result<Option<[f64; 4]>, Failure> {
    let mut writer = store.writer()?;
    let mut value = vec![0x5A; value_bytes];
    let mut times = [0.0; 4];
    for (which, time) in times.iter_mut().enumerate() {
        let start = Instant::now();
        let mut sum = 0u64;
        for index in 0..keys {
            let key = key(index, keys, round.wrapping_add(which as u64 * 7919));
            match which {
                0 => writer.put(key, &value)?,
                1 => {
                    let found = store.get(key)?.ok_or("a key that was put is missing")?;
                    sum += u64::from(found.bytes()[0]);
                }
                2 => {
                    value[0] = index as u8;
                    writer.put(key, &value)?;
                }
                _ => {
                    writer.delete(key)?;
                }
            }
            if index % 4096 == 0 && signals.stop() {
                return Ok(None);
            }
        }
        std::hint::black_box(sum);
        *time = start.elapsed().as_nanos() as f64 / keys as f64;
    }
    Ok(Some(times))
}
