//! Compares two runs: which figures are better, which are worse, and which differences cannot be decided.
//!
//! A difference counts only when the spreads do not touch: every sample of one lies on one side of every sample of the
//! other. A figure that was measured once has no spread, and nothing is concluded from it. Ratios are second / first.

pub use crate::report::judgement::Judgement;
use crate::report::judgement::has_spread;
use crate::report::judgement::judge;
use crate::report::run::{Better, Measurement, Metric, Run, Unit};
use crate::report::scale::{self, Scale, figure};
use crate::report::text::Table;
use crate::report::{Argument, Medium};
use indexmap::IndexMap;

/// Percentiles of latency that are compared.
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// The result of comparing two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// How the circumstances of the two runs differ: machine, medium, tool. Each is a sentence.
    pub circumstances: Vec<String>,
    /// One row for each figure that both runs have.
    pub rows: Vec<Row>,
    /// Points of the first run that the second does not have.
    pub only_first: Vec<String>,
    /// Points of the second run that the first does not have.
    pub only_second: Vec<String>,
}

/// One figure of both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The group.
    pub group: String,
    /// The line within the group.
    pub name: String,
    /// The point in the matrix.
    pub arguments: IndexMap<String, Argument>,
    /// The figure's name.
    pub metric: String,
    /// In the first run.
    pub first: Metric,
    /// In the second run.
    pub second: Metric,
    /// Second / first, by the medians; absent when the first is 0.
    pub ratio: Option<f64>,
    /// The lowest and the highest ratio that the samples allow; absent if nothing was measured twice, or a figure is 0.
    pub ratio_spread: Option<(f64, f64)>,
    /// The judgement of the difference.
    pub judgement: Judgement,
}

/// Compares two runs, figure by figure.
pub fn compare(first: &Run, second: &Run) -> Comparison {
    let mut rows = Vec::new();
    let mut only_first = Vec::new();
    for measurement in &first.measurements {
        match second.measurements.iter().find(|other| same_point(measurement, other)) {
            Some(other) => rows.extend(compare_point(measurement, other)),
            None => only_first.push(measurement.point()),
        }
    }
    let missing = |m: &&Measurement| !first.measurements.iter().any(|other| same_point(m, other));
    let only_second = second.measurements.iter().filter(missing).map(Measurement::point).collect();
    Comparison { circumstances: circumstances(first, second), rows, only_first, only_second }
}

/// Whether both are of the same point; the order of arguments does not matter.
pub(crate) fn same_point(a: &Measurement, b: &Measurement) -> bool {
    a.group == b.group && a.name == b.name && a.arguments == b.arguments
}

fn compare_point(a: &Measurement, b: &Measurement) -> Vec<Row> {
    let row = |name: &str, first: &Metric, second: &Metric| Row {
        group: a.group.clone(),
        name: a.name.clone(),
        arguments: a.arguments.clone(),
        metric: scale::words(name),
        first: first.clone(),
        second: second.clone(),
        ratio: ratio(first, second),
        ratio_spread: ratio_spread(first, second),
        judgement: judge(first, second),
    };
    let mut rows: Vec<Row> = a
        .metrics
        .iter()
        .filter_map(|(name, first)| b.metrics.get(name).map(|second| row(name, first, second)))
        .collect();
    for (operation, first) in &a.latency {
        let Some(second) = b.latency.get(operation) else { continue };
        for percent in PERCENTILES {
            let Some((x, y)) = first.percentile(percent).zip(second.percentile(percent)) else { continue };
            let once = |ns: u64| Metric::once(ns as f64, Unit::Nanoseconds, Better::Lower);
            rows.push(row(&format!("{operation} p{percent}"), &once(x), &once(y)));
        }
    }
    rows
}

fn ratio(first: &Metric, second: &Metric) -> Option<f64> {
    (first.unit == second.unit && first.value != 0.0).then(|| second.value / first.value)
}

fn ratio_spread(first: &Metric, second: &Metric) -> Option<(f64, f64)> {
    let known = has_spread(first) && has_spread(second) && first.unit == second.unit;
    (known && first.min > 0.0 && second.min >= 0.0).then(|| (second.min / first.max, second.max / first.min))
}

/// The differences other than the measurements, each as a sentence.
pub(crate) fn circumstances(first: &Run, second: &Run) -> Vec<String> {
    let mut all = Vec::new();
    let mut differ = |what: &str, a: &str, b: &str| {
        if a != b {
            let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
            all.push(format!("{what} differs: {} and {}", known(a), known(b)));
        }
    };
    let (a, b) = (&first.machine, &second.machine);
    differ("the tool", &first.tool, &second.tool);
    differ("the tool's version", &first.version, &second.version);
    differ("the CPU", &a.cpu, &b.cpu);
    differ("the number of cores", &a.cores.to_string(), &b.cores.to_string());
    differ("the memory", &bytes(a.memory_bytes), &bytes(b.memory_bytes));
    differ("the kernel", &a.kernel, &b.kernel);
    differ("huge pages of memory", &a.huge_pages, &b.huge_pages);
    differ("huge pages of shared memory", &a.huge_pages_shm, &b.huge_pages_shm);
    differ("the governor", a.governor.as_deref().unwrap_or(""), b.governor.as_deref().unwrap_or(""));
    let nodes = |nodes: usize| nodes.to_string();
    differ("the number of NUMA nodes", &nodes(a.numa_nodes.len()), &nodes(b.numa_nodes.len()));
    for (what, a, b) in medium_fields(&first.medium, &second.medium) {
        differ(what, &a, &b);
    }
    for (which, run) in [("first", first), ("second", second)] {
        if !run.complete {
            all.push(format!("the {which} run was interrupted: missing points were not measured"));
        }
        if let Some(load) = run.machine.busy() {
            let (load, cores) = (scale::digits(load), run.machine.cores);
            all.push(format!(
                "the {which} run began on a busy machine: {load} runnable threads on {cores} cores"
            ));
        }
    }
    all
}

fn medium_fields(a: &Medium, b: &Medium) -> [(&'static str, String, String); 5] {
    [
        ("the kind of medium", a.kind.clone(), b.kind.clone()),
        ("the file system of the medium", a.filesystem.clone(), b.filesystem.clone()),
        ("the granularity of the medium", a.granularity.clone(), b.granularity.clone()),
        ("the page size of the medium", bytes(a.page_bytes), bytes(b.page_bytes)),
        ("huge pages of the medium", a.huge_pages.clone(), b.huge_pages.clone()),
    ]
}

fn bytes(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { figure(bytes as f64, Unit::Bytes) }
}

impl Row {
    /// The point in words, without the group.
    pub fn point(&self) -> String {
        let arguments = self
            .arguments
            .iter()
            .map(|(name, value)| format!(", {} {}", scale::words(name), scale::argument(name, value)));
        self.name.clone() + &arguments.collect::<String>()
    }

    /// Both figures in one scale.
    pub(crate) fn scale(&self) -> Scale {
        Scale::of(self.first.value.abs().max(self.second.value.abs()), self.first.unit)
    }

    /// `1.25 (1.10 to 1.40)`, or nothing when there is no ratio.
    pub fn ratio_words(&self) -> String {
        match (self.ratio, self.ratio_spread) {
            (Some(ratio), Some((low, high))) => {
                format!("{} ({} to {})", scale::digits(ratio), scale::digits(low), scale::digits(high))
            }
            (Some(ratio), None) => scale::digits(ratio),
            (None, _) => String::new(),
        }
    }
}

impl Comparison {
    /// The comparison as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for sentence in &self.circumstances {
            text.push_str(&format!("careful: {sentence}\n"));
        }
        let mut groups: IndexMap<&str, Table> = IndexMap::new();
        for row in &self.rows {
            let table = groups.entry(&row.group).or_insert_with(|| {
                Table::new(["what", "figure", "first", "second", "second / first", "judgement"])
            });
            let scale = row.scale();
            table.row([
                row.point(),
                row.metric.clone(),
                scale.with_unit(row.first.value),
                if row.judgement == Judgement::OtherUnit {
                    figure(row.second.value, row.second.unit)
                } else {
                    scale.with_unit(row.second.value)
                },
                row.ratio_words(),
                row.judgement.words().to_owned(),
            ]);
        }
        for (group, table) in &groups {
            text.push_str(&format!("\n{}\n{}", group.replace(char::is_control, "\u{fffd}"), table.render()));
        }
        if self.rows.is_empty() {
            text.push_str(
                "the two runs have no measurement in common: group, name and arguments must agree\n",
            );
        }
        for (which, points) in [("first", &self.only_first), ("second", &self.only_second)] {
            if !points.is_empty() {
                text.push_str(&format!("\nonly in the {which} run: {}\n", points.len()));
            }
            for point in points {
                text.push_str(&format!("  {}\n", point.replace(char::is_control, "\u{fffd}")));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(samples: &[f64], better: Better) -> Metric {
        Metric::from_samples(samples, Unit::OperationsPerSecond, better).unwrap()
    }

    fn measurement(samples: &[f64]) -> Measurement {
        let mut m = Measurement::new("get", "uniform").with("threads", 1_u64).with("value_size", 200_u64);
        m.metrics.insert("throughput".into(), metric(samples, Better::Higher));
        m
    }

    #[test]
    fn only_a_change_beyond_the_spread_is_a_difference() {
        use Judgement::{Better as B, NoDifference, UnknownSpread, Worse};
        for (a, b, higher, lower) in [
            (&[1.0, 2.0][..], &[3.0, 4.0][..], B, Worse),
            (&[3.0, 4.0], &[1.0, 2.0], Worse, B),
            (&[1.0, 3.0], &[2.0, 4.0], NoDifference, NoDifference),
            (&[1.0, 2.0], &[2.0, 3.0], NoDifference, NoDifference),
            (&[1.0, 3.0], &[2.0], NoDifference, NoDifference),
            (&[1.0, 3.0], &[4.0], UnknownSpread, UnknownSpread),
            (&[1.0], &[1.0], UnknownSpread, UnknownSpread),
            (&[0.0, 0.0], &[0.0, 0.0], NoDifference, NoDifference),
        ] {
            assert_eq!(judge(&metric(a, Better::Higher), &metric(b, Better::Higher)), higher, "{a:?} {b:?}");
            assert_eq!(judge(&metric(a, Better::Lower), &metric(b, Better::Lower)), lower, "{a:?} {b:?}");
        }
    }

    #[test]
    fn points_are_matched_whatever_the_order_of_their_arguments() {
        let a = Run { measurements: vec![measurement(&[1.0, 2.0])], complete: true, ..Run::default() };
        let mut other = measurement(&[4.0, 6.0]);
        other.arguments.swap_indices(0, 1);
        let extra = Measurement::new("put", "uniform");
        let b = Run { measurements: vec![extra, other], complete: true, ..Run::default() };
        let comparison = compare(&a, &b);
        assert_eq!(comparison.rows.len(), 1);
        assert_eq!(comparison.rows[0].ratio, Some(5.0 / 1.5));
        assert_eq!(comparison.rows[0].ratio_spread, Some((2.0, 6.0)));
        assert_eq!(comparison.only_second, ["put / uniform"]);
        assert!(comparison.only_first.is_empty() && comparison.circumstances.is_empty());
        assert!(comparison.text().contains("3.33 (2 to 6)"), "{}", comparison.text());
    }

    #[test]
    fn other_machines_media_and_interruptions_are_reported() {
        let a = Run { complete: true, ..Run::default() };
        let mut b = Run::default();
        b.machine.cpu = "Other".into();
        b.medium.page_bytes = 4096;
        let reported = compare(&a, &b).circumstances.join("\n");
        for part in [
            "the CPU differs: unknown and Other",
            "page size of the medium differs",
            "second run was interrupted",
        ] {
            assert!(reported.contains(part), "{reported}");
        }
    }

    #[test]
    fn disjoint_runs_and_zeros_are_reported_instead_of_divided() {
        let empty = Run::default();
        assert!(compare(&empty, &empty).text().contains("no measurement in common"));
        let zero = Run { measurements: vec![measurement(&[0.0, 0.0])], ..Run::default() };
        let comparison = compare(&zero, &zero);
        assert_eq!((comparison.rows[0].ratio, comparison.rows[0].ratio_spread), (None, None));
        assert!(!comparison.text().contains("NaN"));
    }
}
