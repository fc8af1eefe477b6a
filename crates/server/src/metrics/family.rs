//! Families of metrics and their texts, by the crate prometheus-client.

use super::facts::{Facts, ServerFacts};
use crate::hosted_jobs::JobReport;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fmt;

/// The prefix of all names.
pub const PREFIX: &str = "duramen_";

/// What the number of a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often a time was at most so long.
    Histogram,
}

impl Kind {
    /// Its word in the formats.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A number of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// A count or bytes.
    Whole(u64),
    /// Seconds or a ratio.
    Real(f64),
    /// Sum in seconds, and the counts of each bucket: bound in seconds and how many are above the bound before.
    Histogram(f64, Vec<(f64, u64)>),
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<usize> for Number {
    fn from(number: usize) -> Self {
        Self::Whole(number as u64)
    }
}

impl From<bool> for Number {
    fn from(holds: bool) -> Self {
        Self::Whole(u64::from(holds))
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

/// Where a family's numbers come from.
#[derive(Clone, Copy)]
pub enum Source {
    /// The process itself, in every state.
    Process(fn(&Facts, &mut Samples)),
    /// An open store with its clients.
    Server(fn(&ServerFacts<'_>, &mut Samples)),
    /// Each job of SQL; the label `sql_job` is its name. (Prometheus itself sets a label `job`.)
    Job(fn(&JobReport) -> Option<Number>),
    /// The same with one more label.
    JobSamples(fn(&JobReport, &mut Samples)),
}

/// One family: a name, and samples that differ in their labels.
pub struct Family {
    /// Its name with the unit, without [`PREFIX`] and without `_total`.
    pub name: &'static str,
    /// What its number is.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it counts, in a sentence.
    pub help: &'static str,
    /// The fields of INFO that it has; a star stands for any letters.
    pub info: &'static [&'static str],
    /// Its numbers.
    pub source: Source,
}

impl Family {
    /// The name of its samples, or of a histogram without `_bucket`, `_sum` and `_count`.
    pub fn sample_name(&self) -> String {
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{PREFIX}{}{total}", self.name)
    }

    /// The base unit that its name ends in.
    pub fn unit(&self) -> Option<&'static str> {
        ["bytes", "seconds"].into_iter().find(|unit| self.name.ends_with(&format!("_{unit}")))
    }

    fn collect(&self, facts: &Facts) -> Samples {
        let mut samples = Samples::default();
        match self.source {
            Source::Process(collect) => collect(facts, &mut samples),
            Source::Server(collect) => {
                if let Some(server) = facts.server.as_ref() {
                    collect(&server.facts(), &mut samples);
                }
            }
            Source::Job(number) => facts.jobs.iter().for_each(|(name, report)| {
                if let Some(number) = number(report) {
                    samples.labelled([name], number);
                }
            }),
            Source::JobSamples(collect) => facts.jobs.iter().for_each(|(name, report)| {
                let mut of_job = Samples::default();
                collect(report, &mut of_job);
                for (labels, number) in of_job.0 {
                    samples.0.push((std::iter::once(name.clone()).chain(labels).collect(), number));
                }
            }),
        }
        samples
    }
}

/// Samples of one family: the values of its labels, and the number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(Vec<(Vec<String>, Number)>);

impl Samples {
    /// The only sample.
    pub fn set(&mut self, number: impl Into<Number>) {
        self.0.push((Vec::new(), number.into()));
    }

    /// A sample with these values of its labels.
    pub fn labelled<const N: usize>(&mut self, labels: [&str; N], number: impl Into<Number>) {
        self.0.push((labels.map(str::to_owned).into(), number.into()));
    }
}

/// The numbers of these families by name, as JSON for the console: a number, or numbers by the value of the only label.
/// A histogram is an object of `sum` and `buckets`, which are pairs of a bound in seconds (`null`: none) and a count.
pub fn values<'a>(families: impl Iterator<Item = &'a Family>, facts: &Facts) -> Value {
    let value = |number: &Number| match number {
        Number::Whole(number) => json!(number),
        Number::Real(number) => json!(number),
        Number::Histogram(sum, buckets) => {
            let buckets: Vec<Value> = buckets
                .iter()
                .map(|(bound, count)| json!([bound.is_finite().then_some(bound), count]))
                .collect();
            json!({"sum": sum, "buckets": buckets})
        }
    };
    let mut all = Map::new();
    for family in families {
        let samples = family.collect(facts).0;
        let of_family = match family.labels {
            [] => samples.first().map_or(Value::Null, |(_, number)| value(number)),
            _ => samples.iter().map(|(labels, number)| (labels.join("|"), value(number))).collect(),
        };
        all.insert(family.name.to_owned(), of_family);
    }
    Value::Object(all)
}

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Prometheus,
}

/// The media type of OpenMetrics, without its parameters.
pub const OPEN_METRICS: &str = "application/openmetrics-text";

impl Format {
    /// The media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// The text of all families that have samples.
///
/// # Errors
/// None that is known: a string takes every text.
pub fn text(
    families: impl Iterator<Item = &'static Family>,
    facts: &Facts,
    format: Format,
) -> Result<String, fmt::Error> {
    let collected = families.map(|family| (family, family.collect(facts)));
    let collected = Collected(collected.filter(|(_, samples)| !samples.0.is_empty()).collect());
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collected));
    let mut out = String::with_capacity(64 << 10);
    match format {
        Format::OpenMetrics => text::encode(&mut out, &registry)?,
        Format::Prometheus => prometheus_text::encode(&mut out, &registry)?,
    }
    Ok(out)
}

/// What one scrape has found.
struct Collected(Vec<(&'static Family, Samples)>);

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collected({} families)", self.0.len())
    }
}

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (family, samples) in &self.0 {
            let name = format!("{PREFIX}{}", family.name);
            // The encoder adds the unit again.
            let (name, unit) = match family.unit() {
                Some("bytes") => (name.trim_end_matches("_bytes"), Some(Unit::Bytes)),
                Some(_) => (name.trim_end_matches("_seconds"), Some(Unit::Seconds)),
                None => (name.as_str(), None),
            };
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(name, family.help, unit.as_ref(), kind)?;
            for (values, number) in &samples.0 {
                let labels: Vec<(&str, &str)> =
                    family.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                let mut metric = metric.encode_family(&labels)?;
                match (family.kind, number) {
                    (Kind::Counter, Number::Whole(number)) => {
                        metric.encode_counter(number, None::<&Exemplar<NoLabelSet, f64>>)?;
                    }
                    (Kind::Counter, Number::Real(number)) => {
                        metric.encode_counter(number, None::<&Exemplar<NoLabelSet, f64>>)?;
                    }
                    (_, Number::Whole(number)) => match i64::try_from(*number) {
                        Ok(number) => metric.encode_gauge(&number)?,
                        Err(_) => metric.encode_gauge(&(*number as f64))?,
                    },
                    (_, Number::Real(number)) => metric.encode_gauge(number)?,
                    (_, Number::Histogram(sum, buckets)) => {
                        let count = buckets.iter().map(|(_, count)| count).sum();
                        let none = None::<&HashMap<usize, Exemplar<NoLabelSet, f64>>>;
                        metric.encode_histogram(*sum, count, buckets, none)?;
                    }
                }
            }
        }
        Ok(())
    }
}
