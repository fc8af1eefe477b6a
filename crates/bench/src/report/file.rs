//! Runs as files: JSON that begins with the schema's name and version.
//!
//! Another version is refused, not guessed at: a field with another meaning would be compared silently.

use crate::report::run::{Measurement, Metric, Run};
use crate::report::{Error, Latency, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// The schema's name, the first field of a file.
pub const SCHEMA: &str = "duramen-bench-run";
/// The schema's version. It rises with every change that an older reader would misread.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Written<'a> {
    schema: &'a str,
    schema_version: u32,
    run: &'a Run,
}

/// The fields that every version has.
#[derive(Deserialize)]
struct Head {
    schema: Option<String>,
    schema_version: Option<u64>,
}

#[derive(Deserialize)]
struct Read {
    run: Run,
}

impl Run {
    /// The run as JSON, for people and programs: indented, with a newline at its end.
    ///
    /// # Errors
    /// When a number is not finite, a spread does not contain its median, or two measurements are of the same point.
    pub fn to_json(&self) -> Result<String> {
        self.check("the run to be written")?;
        let written = Written { schema: SCHEMA, schema_version: SCHEMA_VERSION, run: self };
        let mut json = serde_json::to_string_pretty(&written)
            .map_err(|error| Error::new(format!("cannot write a run as JSON: {error}")))?;
        json.push('\n');
        Ok(json)
    }

    /// Writes the run to a file, whole or not at all: a temporary file is renamed to it.
    ///
    /// # Errors
    /// As [`to_json`](Self::to_json), and when the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let json = self.to_json()?;
        write_whole(path, json.as_bytes())
    }

    /// A run from JSON. `place` names it in errors.
    ///
    /// # Errors
    /// When it is not a run, of another version, or breaks an invariant of [`Run`].
    pub fn from_json(json: &str, place: &str) -> Result<Self> {
        let head: Head = serde_json::from_str(json).map_err(|error| not_a_run(place, &error))?;
        if head.schema.as_deref() != Some(SCHEMA) {
            let found = head.schema.map_or("none".to_owned(), |schema| format!("{schema:?}"));
            return Err(Error::new(format!(
                "{place}: \"schema\" is {found}, wanted \"{SCHEMA}\"; give a file that duramen bench wrote with --json"
            )));
        }
        if head.schema_version != Some(SCHEMA_VERSION.into()) {
            let found = head.schema_version.map_or("none".to_owned(), |version| version.to_string());
            return Err(Error::new(format!(
                "{place}: \"schema_version\" is {found}, wanted {SCHEMA_VERSION}; measure again with this duramen, or \
                 compare with the version that wrote the file"
            )));
        }
        let read: Read = serde_json::from_str(json).map_err(|error| not_a_run(place, &error))?;
        read.run.check(place)?;
        Ok(read.run)
    }

    /// A run from a file.
    ///
    /// # Errors
    /// When the file cannot be read, and as [`from_json`](Self::from_json).
    pub fn read(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let json = fs::read_to_string(path).map_err(|error| {
            Error::new(format!(
                "cannot read results from {place}: {error}; give a file that duramen bench wrote with --json"
            ))
        })?;
        Self::from_json(&json, &place)
    }

    fn check(&self, place: &str) -> Result<()> {
        finite(self.elapsed_s, place, "elapsed_s")?;
        let mut seen = HashSet::new();
        for measurement in &self.measurements {
            measurement.check(place)?;
            if !seen.insert(measurement.point()) {
                return Err(Error::new(format!(
                    "{place}: two measurements are of the same point, {}; wanted one with all its samples",
                    measurement.point()
                )));
            }
        }
        Ok(())
    }
}

impl Measurement {
    /// Group, name and arguments in words: they identify a measurement.
    pub fn point(&self) -> String {
        let mut point = format!("{} / {}", self.group, self.name);
        for (name, value) in &self.arguments {
            point.push_str(&format!(", {name} {value}"));
        }
        point
    }

    fn check(&self, place: &str) -> Result<()> {
        let place = format!("{place}: {}", self.point());
        for (name, value) in &self.arguments {
            finite(value.number().unwrap_or(0.0), &place, name)?;
        }
        for (name, metric) in &self.metrics {
            metric.check(&place, name)?;
        }
        for (name, latency) in &self.latency {
            check_latency(latency, &place, name)?;
        }
        for series in &self.series {
            for (x, y) in &series.points {
                finite(*x, &place, &series.name)?;
                finite(*y, &place, &series.name)?;
            }
        }
        for part in &self.breakdown {
            finite(part.ns, &place, &part.name)?;
        }
        if let Some(bound) = &self.bound {
            finite(bound.ns, &place, &bound.name)?;
            finite(bound.ratio, &place, &bound.name)?;
        }
        Ok(())
    }
}

impl Metric {
    fn check(&self, place: &str, name: &str) -> Result<()> {
        for value in [self.value, self.min, self.max].iter().chain(&self.samples) {
            finite(*value, place, name)?;
        }
        if self.min > self.value || self.value > self.max {
            return Err(Error::new(format!(
                "{place}: {name} has median {} outside its spread {} to {}; wanted min <= value <= max",
                self.value, self.min, self.max
            )));
        }
        Ok(())
    }
}

fn check_latency(latency: &Latency, place: &str, name: &str) -> Result<()> {
    finite(latency.mean, place, name)?;
    latency.to_histogram().map_err(|error| Error::new(format!("{place}: latency of {name}: {error}")))?;
    Ok(())
}

fn finite(value: f64, place: &str, name: &str) -> Result<()> {
    if value.is_finite() {
        return Ok(());
    }
    Err(Error::new(format!("{place}: {name} is {value}, wanted a finite number; omit unmeasured figures")))
}

fn not_a_run(place: &str, error: &serde_json::Error) -> Error {
    Error::new(format!(
        "{place} is not a file of results: {error}; wanted JSON that duramen bench wrote with --json"
    ))
}

/// Writes `bytes` to a temporary file next to `path` and renames it: a reader sees the old file or the new one.
///
/// # Errors
/// When the file cannot be written; it says what to do.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let fail = |error: std::io::Error| {
        Error::new(format!(
            "cannot write {}: {error}; give a file in a directory that exists and can be written",
            path.display()
        ))
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    fs::write(&beside, bytes).map_err(fail)?;
    fs::rename(&beside, path).map_err(|error| {
        let _ = fs::remove_file(&beside);
        fail(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Better, Machine, Unit};

    fn run() -> Run {
        let mut measurement = Measurement::new("read", "sequential")
            .with("access_size", 64_u64)
            .with("skew", 0.99)
            .with("huge", true);
        measurement.metrics.insert(
            "bandwidth".into(),
            Metric::from_samples(&[3.0, 1.0, 2.0], Unit::BytesPerSecond, Better::Higher).unwrap(),
        );
        let mut histogram = hdrhistogram::Histogram::new(3).unwrap();
        histogram.record(77).unwrap();
        measurement.latency.insert("read".into(), Latency::from_histogram(&histogram).unwrap().unwrap());
        Run { tool: "t".into(), machine: Machine::read(), measurements: vec![measurement], ..Run::default() }
    }

    #[test]
    fn a_run_reads_back_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.json");
        run().write(&path).unwrap();
        assert_eq!(Run::read(&path).unwrap(), run());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left next to it");
    }

    #[test]
    fn another_version_or_form_is_refused_with_what_was_wanted() {
        let json = run().to_json().unwrap();
        for (from, to, wanted) in [
            ("\"schema_version\": 1", "\"schema_version\": 2", "\"schema_version\" is 2, wanted 1"),
            ("\"schema_version\": 1,", "", "\"schema_version\" is none"),
            ("duramen-bench-run", "other", "\"schema\" is \"other\""),
            ("\"unit\": \"B/s\"", "\"unit\": \"furlong\"", "furlong"),
            ("\"tool\"", "\"toll\"", "unknown field `toll`"),
            ("\"min\": 1.0", "\"min\": 2.5", "outside its spread"),
            ("\"mean\"", "\"mean\": 1e999, \"x\"", "line"),
        ] {
            assert!(json.contains(from), "{from}");
            let error = Run::from_json(&json.replace(from, to), "file.json").unwrap_err().to_string();
            assert!(error.starts_with("file.json") && error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn truncated_json_is_refused_at_every_length() {
        let json = run().to_json().unwrap();
        for length in 0..json.trim_end().len() {
            assert!(Run::from_json(&json[..length], "file.json").is_err(), "{length}");
        }
    }

    #[test]
    fn nan_and_infinity_are_not_written() {
        let mut run = run();
        run.measurements[0].metrics[0].max = f64::INFINITY;
        assert!(run.to_json().unwrap_err().to_string().contains("bandwidth is inf"));
    }

    #[test]
    fn one_point_measured_twice_is_refused() {
        let mut run = run();
        run.measurements.push(run.measurements[0].clone());
        assert!(run.to_json().unwrap_err().to_string().contains("same point"));
    }
}
