//! The results, in the types of the report.

use crate::memory::error::Result;
use crate::memory::place::Target;
use crate::memory::plan::{Benchmark, Part};
use crate::memory::run::Outcome;
use crate::memory::workload::{Mode, Workload};
use crate::report::{Argument, Better, Latency, Measurement, Medium, Metric, Unit};
use duramen_media::{Mapped, MediumKind, Persistent as _};

/// A measurement for each workload of a benchmark, from `repeats` outcomes of each.
pub fn measurements(benchmark: &Benchmark, repeats: &[Vec<Outcome>]) -> Result<Vec<Measurement>> {
    let mut found = Vec::new();
    for (index, part) in benchmark.parts.iter().enumerate() {
        let outcomes: Vec<&Outcome> = repeats.iter().filter_map(|outcomes| outcomes.get(index)).collect();
        let mut measurement = Measurement::new(benchmark.name.clone(), part.name.clone());
        for other in &benchmark.parts {
            // If two workloads run at once, the point consists of both workloads' coordinates.
            let prefix = if benchmark.parts.len() > 1 { format!("{}.", other.name) } else { String::new() };
            for (knob, value) in &other.point {
                measurement.arguments.insert(format!("{prefix}{knob}"), argument(knob, value));
            }
        }
        fill(&mut measurement, part, &outcomes)?;
        found.push(measurement);
    }
    Ok(found)
}

/// A number if the knob's value is one, so that it becomes an axis.
fn argument(knob: &str, value: &str) -> Argument {
    let number = match knob {
        "access_size" | "memory_range" | "dram_memory_range" | "min_io_chunk_size" | "emulate_bandwidth" => {
            crate::memory::plan::parse_bytes(value).ok()
        }
        _ => value.replace('_', "").parse().ok(),
    };
    number.map_or_else(
        || value.parse::<f64>().map_or_else(|_| Argument::from(value), Argument::from),
        Argument::from,
    )
}

fn fill(measurement: &mut Measurement, part: &Part, outcomes: &[&Outcome]) -> Result<()> {
    let workload = &part.workload;
    let done: Vec<&&Outcome> = outcomes.iter().filter(|outcome| outcome.operations > 0).collect();
    let samples =
        |of: &dyn Fn(&Outcome) -> f64| -> Vec<f64> { done.iter().map(|outcome| of(outcome)).collect() };
    let mut metric = |name: &str, samples: Vec<f64>, unit, better| {
        if let Some(metric) = Metric::from_samples(&samples, unit, better) {
            measurement.metrics.insert(name.to_owned(), metric);
        }
    };
    let bandwidth = samples(&Outcome::bandwidth);
    let rate = samples(&Outcome::rate);
    let time = samples(&|outcome| outcome.operation_ns(workload.number_threads));
    if matches!(workload.exec_mode, Mode::Custom | Mode::DependentReads) {
        if workload.latency_sample_frequency > 0 {
            metric("time", time, Unit::Nanoseconds, Better::Lower);
            metric("rate", rate, Unit::OperationsPerSecond, Better::Higher);
        } else {
            metric("rate", rate, Unit::OperationsPerSecond, Better::Higher);
            metric("time", time, Unit::Nanoseconds, Better::Lower);
        }
        metric("bandwidth", bandwidth, Unit::BytesPerSecond, Better::Higher);
    } else {
        metric("bandwidth", bandwidth, Unit::BytesPerSecond, Better::Higher);
        metric("rate", rate, Unit::OperationsPerSecond, Better::Higher);
        metric("time", time, Unit::Nanoseconds, Better::Lower);
    }
    if !workload.prefault_memory {
        metric("page faults", samples(&|o| o.page_faults as f64), Unit::Count, Better::Lower);
        let each = done.iter().filter(|o| o.page_faults > 0).map(|o| o.seconds * 1e9 / o.page_faults as f64);
        metric("time of a fault", each.collect(), Unit::Nanoseconds, Better::Lower);
    }
    let mut latencies = done.iter().filter_map(|outcome| outcome.latencies.clone());
    if let Some(mut all) = latencies.next() {
        for other in latencies {
            // All have the same bounds.
            let _ = all.add(other);
        }
        if let Some(latency) =
            Latency::from_histogram(&all).map_err(|error| crate::memory::Error::system(error.to_string()))?
        {
            measurement.latency.insert("operation".to_owned(), latency);
        }
        let clock = done.iter().map(|outcome| outcome.clock_ns).fold(f64::MAX, f64::min);
        measurement.notes.push(format!("each latency includes {clock:.0} ns of reading the counter"));
    }
    if outcomes.iter().any(|outcome| !outcome.complete) {
        measurement.notes.push("interrupted: measured until the interruption".to_owned());
    }
    if workload.emulate_latency_ns > 0 || workload.emulate_bandwidth > 0 {
        measurement.notes.push(emulation(workload));
    }
    Ok(())
}

fn emulation(workload: &Workload) -> String {
    let cap = match workload.emulate_bandwidth {
        0 => "no cap".to_owned(),
        bytes => crate::report::figure(bytes as f64, Unit::BytesPerSecond),
    };
    format!(
        "emulated slower memory: {} ns added to each step on the medium, {cap}",
        workload.emulate_latency_ns
    )
}

/// The medium, for the report.
pub fn medium(target: &Target, medium: Option<&Mapped>) -> Medium {
    let Some(mapped) = medium else {
        return Medium { kind: target.kind.to_string(), ..Medium::default() };
    };
    let volatile = mapped.kind() == MediumKind::Volatile;
    let path = target.path.clone().unwrap_or_else(|| mapped.path().to_owned());
    let sys = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"))
            .unwrap_or_default();
        text.split(['[', ']']).nth(1).unwrap_or_default().to_owned()
    };
    Medium {
        kind: if volatile { "dram".to_owned() } else { mapped.kind().to_string() },
        path: if volatile { String::new() } else { path.display().to_string() },
        filesystem: if volatile { String::new() } else { filesystem(&path) },
        granularity: mapped.granularity().to_string(),
        page_bytes: if mapped.small_pages_advice().is_some() { 4096 } else { 0 },
        huge_pages: match mapped.kind() {
            MediumKind::Shm => sys("shmem_enabled"),
            MediumKind::Volatile => sys("enabled"),
            _ => String::new(),
        },
    }
}

/// The type of the file system under `path`: the longest mount point above it.
fn filesystem(path: &std::path::Path) -> String {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind.to_owned())
        .unwrap_or_default()
}
