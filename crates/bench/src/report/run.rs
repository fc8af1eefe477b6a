//! The data of one run. Everything is public and plain: tools fill it in, [`Run::write`] checks it.
//!
//! Invariants, checked when a run is written or read:
//! 1. Every number is finite. A missing measurement is absent, never 0 or NaN.
//! 2. `min <= value <= max` in a metric.
//! 3. No two measurements agree in group, name and arguments.

use crate::report::{Latency, Machine};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One execution of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The tool, by its command: `duramen bench mem`.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// When it began, in seconds since 1970 UTC.
    pub started: u64,
    /// How long it took, in seconds.
    #[serde(default)]
    pub elapsed_s: f64,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// The medium.
    pub medium: Medium,
    /// False if the run was interrupted: the measurements here are valid, and the missing ones were not taken.
    pub complete: bool,
    /// What a reader should know before believing the figures.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The measurements, in the order in which they are shown.
    pub measurements: Vec<Measurement>,
    /// The conclusion, if the tool draws one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// The memory or the storage under measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Medium {
    /// `devdax`, `fsdax`, `shm`, `file`, `volatile`, `dram`.
    pub kind: String,
    /// The path; empty for anonymous memory.
    #[serde(default)]
    pub path: String,
    /// `tmpfs`, `ext4`; empty without a file system.
    #[serde(default)]
    pub filesystem: String,
    /// How a store becomes durable: `byte`, `cache line`, `page`; empty if nothing makes it durable.
    #[serde(default)]
    pub granularity: String,
    /// Bytes in a page of the mapping; 0 when unknown.
    #[serde(default)]
    pub page_bytes: u64,
    /// The settings of huge pages, in the kernel's words.
    #[serde(default)]
    pub huge_pages: String,
}

/// The results at one point of a matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The benchmark: measurements of one group share a section, and their numeric arguments become axes.
    pub group: String,
    /// The line within the group: an operation, a system, a variant. May be the group's name.
    pub name: String,
    /// The point in the matrix. Names that end in `size`, `range` or `bytes` are shown as bytes.
    #[serde(default)]
    pub arguments: IndexMap<String, Argument>,
    /// The figures. The first is plotted and compared first.
    #[serde(default)]
    pub metrics: IndexMap<String, Metric>,
    /// Latency by operation (`get`, `update`, ...).
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub latency: IndexMap<String, Latency>,
    /// Figures over time or growth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// The parts of one operation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakdown: Vec<Part>,
    /// The time of the memory accesses alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// What a reader should know of this measurement alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One coordinate of a point in a matrix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Argument {
    /// Yes or no.
    Flag(bool),
    /// A count or a number of bytes.
    Integer(u64),
    /// Any other number.
    Number(f64),
    /// A word.
    Text(String),
}

/// A figure with its spread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The median of the samples.
    pub value: f64,
    /// The unit.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// The lowest sample.
    pub min: f64,
    /// The highest sample.
    pub max: f64,
    /// Samples in the order in which they were taken; empty when there was one only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
}

/// Units of figures, at the scale at which they are stored. Shown scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// Bytes per second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Operations per second.
    #[serde(rename = "op/s")]
    OperationsPerSecond,
    /// A count of something.
    #[serde(rename = "count")]
    Count,
    /// A quotient of two figures of one unit.
    #[serde(rename = "ratio")]
    Ratio,
    /// Percent.
    #[serde(rename = "%")]
    Percent,
    /// Processor cycles.
    #[serde(rename = "cycles")]
    Cycles,
    /// Instructions.
    #[serde(rename = "instructions")]
    Instructions,
    /// Euro, for price-performance.
    #[serde(rename = "EUR")]
    Euro,
}

/// Which direction of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better: throughput.
    Higher,
    /// Less is better: latency, space.
    Lower,
}

/// A figure over time, or over growth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// The line's name in the legend.
    pub name: String,
    /// The quantity of x: `records`, `time`.
    pub x_name: String,
    /// Unit of x.
    pub x_unit: Unit,
    /// Unit of y.
    pub y_unit: Unit,
    /// Pairs of x and y; x never falls.
    pub points: Vec<(f64, f64)>,
}

/// One part of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// `index`, `log`, `persist`, `epoch`, ...
    pub name: String,
    /// Nanoseconds of one operation, on average.
    pub ns: f64,
}

/// The time of the same memory accesses alone, on the same medium, in the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The accesses: `index line + record lines`.
    pub name: String,
    /// Nanoseconds per operation.
    pub ns: f64,
    /// Measured time / `ns`.
    pub ratio: f64,
}

/// The one-page conclusion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// One or two sentences.
    pub summary: String,
    /// Each finding in a line.
    pub findings: Vec<Finding>,
    /// Points that the conclusion does not count ([`Measurement::point`]): isolated ones, far above all adjacent
    /// points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Recommended settings, by their names in a configuration file.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub settings: IndexMap<String, String>,
}

/// One line of the verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// `sequential read`.
    pub title: String,
    /// `12.3 GB/s`, scaled and with its unit.
    pub value: String,
    /// Its meaning, or its point: `4 KiB, 2 threads`.
    #[serde(default)]
    pub detail: String,
}

impl Metric {
    /// The median, lowest and highest of `samples`; `None` if there are none, or one is not finite.
    pub fn from_samples(samples: &[f64], unit: Unit, better: Better) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        if sorted.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        let middle = sorted.len() / 2;
        let value = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        let samples = if samples.len() > 1 { samples.to_vec() } else { Vec::new() };
        Some(Self { value, unit, better, min, max, samples })
    }

    /// A figure that was measured once.
    pub fn once(value: f64, unit: Unit, better: Better) -> Self {
        Self { value, unit, better, min: value, max: value, samples: Vec::new() }
    }
}

impl Bound {
    /// A bound of `ns` for an operation that took `measured_ns`; `None` when either is not above 0.
    pub fn new(name: impl Into<String>, ns: f64, measured_ns: f64) -> Option<Self> {
        let sound = ns.is_finite() && ns > 0.0 && measured_ns.is_finite() && measured_ns > 0.0;
        sound.then(|| Self { name: name.into(), ns, ratio: measured_ns / ns })
    }
}

impl Measurement {
    /// A measurement without figures.
    pub fn new(group: impl Into<String>, name: impl Into<String>) -> Self {
        Self { group: group.into(), name: name.into(), ..Self::default() }
    }

    /// Adds one coordinate.
    #[must_use]
    pub fn with(mut self, argument: impl Into<String>, value: impl Into<Argument>) -> Self {
        self.arguments.insert(argument.into(), value.into());
        self
    }
}

impl Argument {
    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Number(value) => Some(*value),
            Self::Flag(_) | Self::Text(_) => None,
        }
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

impl From<bool> for Argument {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<usize> for Argument {
    fn from(value: usize) -> Self {
        Self::Integer(value as u64)
    }
}

impl From<f64> for Argument {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for Argument {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Argument {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}
