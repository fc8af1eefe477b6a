//! A run that contains every kind of data.

use duramen_bench::report::{
    Better, Bound, Finding, Latency, Machine, Measurement, Medium, Metric, Part, Run, Series, Unit, Verdict,
};
use hdrhistogram::Histogram;

/// Five samples around `value`, 2 % apart.
fn metric(value: f64, unit: Unit, better: Better) -> Metric {
    let samples = [0.98, 1.0, 1.01, 0.99, 1.02].map(|share| share * value);
    Metric::from_samples(&samples, unit, better).unwrap()
}

fn latency(median: u64) -> Latency {
    let mut histogram = Histogram::new(3).unwrap();
    for index in 1..=20_000_u64 {
        // Most near the median, one in a thousand far from it.
        let tail = if index.is_multiple_of(1000) { median * index / 100 } else { 0 };
        histogram.record(median + index % 97 + tail).unwrap();
    }
    Latency::from_histogram(&histogram).unwrap().unwrap()
}

/// A run with every kind of measurement; throughput is multiplied by `speed`.
pub fn full_run(speed: f64) -> Run {
    let mut measurements = Vec::new();
    for threads in [1_u64, 2, 4] {
        for size in [64_u64, 256, 1024, 4096, 16384] {
            let bandwidth = speed * 1e9 * (threads as f64).sqrt() * (size as f64).log2();
            let mut point =
                Measurement::new("random read", "uniform").with("access_size", size).with("threads", threads);
            point.metrics.insert("bandwidth".into(), metric(bandwidth, Unit::BytesPerSecond, Better::Higher));
            measurements.push(point);
        }
    }
    for size in [64_u64, 4096, 1 << 20] {
        for step in ["clwb", "non-temporal"] {
            let mut point = Measurement::new("sequential write", step).with("access_size", size);
            point
                .metrics
                .insert("latency".into(), metric(size as f64 / speed, Unit::Nanoseconds, Better::Lower));
            measurements.push(point);
        }
    }
    for (name, rate, ns) in [("get", 2.4e6, 400), ("insert", 1.6e6, 600)] {
        let mut point = Measurement::new("operations", name);
        point
            .metrics
            .insert("throughput".into(), metric(rate * speed, Unit::OperationsPerSecond, Better::Higher));
        point.metrics.insert("space".into(), Metric::once(240.9, Unit::Bytes, Better::Lower));
        point.latency.insert(name.into(), latency(ns));
        point.breakdown = [("index", 150.0), ("log", 200.0), ("persist", 80.0)]
            .map(|(name, ns)| Part { name: name.into(), ns })
            .to_vec();
        point.bound = Bound::new("index line and record lines", 250.0, ns as f64);
        point.series.push(Series {
            name: "throughput".into(),
            x_name: "records".into(),
            x_unit: Unit::Count,
            y_unit: Unit::OperationsPerSecond,
            points: (0..40)
                .map(|i| (f64::from(i) * 250_000.0, rate * (1.0 - f64::from(i % 7) / 30.0)))
                .collect(),
        });
        measurements.push(point);
    }
    Run {
        tool: "duramen bench test".into(),
        version: "0.0.0".into(),
        started: 1_700_000_000,
        elapsed_s: 12.5,
        command: vec!["duramen".into(), "bench".into()],
        machine: Machine { cpu: "Test CPU".into(), cores: 4, memory_bytes: 16 << 30, ..Machine::default() },
        medium: Medium {
            kind: "shm".into(),
            path: "/dev/shm/test".into(),
            filesystem: "tmpfs".into(),
            granularity: "cache line".into(),
            page_bytes: 4096,
            huge_pages: "never".into(),
        },
        complete: true,
        notes: vec!["A note.".into()],
        measurements,
        verdict: Some(Verdict {
            summary: "Reads saturate at 4 threads.".into(),
            findings: vec![Finding {
                title: "random read".into(),
                value: "24 GB/s".into(),
                detail: "16 KiB".into(),
            }],
            left_out: Vec::new(),
            settings: [("flush-instruction".to_owned(), "clwb".to_owned())].into_iter().collect(),
        }),
    }
}
