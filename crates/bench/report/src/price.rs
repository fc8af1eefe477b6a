//! Price-performance: what a medium costs for what it does, from a file of prices.
//!
//! ```toml
//! [[medium]]
//! kind = "shm"                 # the medium of the runs that this price is for
//! name = "DDR5, 2 x 32 GB"
//! devices = 2                  # optional, 1 when absent
//! device_gb = 32.0             # of 10^9 bytes, as they are sold
//! device_euro = 160.0
//!
//! [[figure]]                   # optional: beside the built-in ones
//! title = "million gets"
//! words = ["get", "uniform"]   # each begins a word of the measurement's group, name or arguments
//! unit = "op/s"
//! per = 1e6
//! ```
//!
//! Rates are bought: euro / (rate / per), the best rate of the run. Time is paid with: euro × (time / per), the
//! shortest of the run, since a division would reward a slow medium. Less is better for both.

use crate::run::{Better, Measurement, Run, Unit};
use crate::scale;
use crate::text::Table;
use crate::{Error, Result};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// Prices of media, and the figures to put them beside.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    medium: Vec<MediumPrice>,
    #[serde(default)]
    figure: Vec<Figure>,
}

/// What one medium costs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MediumPrice {
    kind: String,
    name: String,
    #[serde(default = "one")]
    devices: u32,
    device_gb: f64,
    device_euro: f64,
}

/// A figure that is bought.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    title: String,
    words: Vec<String>,
    unit: Unit,
    per: f64,
}

/// What one figure of one run costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// `GB of capacity`, `GB/s sequential read`.
    pub title: String,
    /// Euro for one of it; for times, euro × time.
    pub euro: f64,
    /// The figure, in words.
    pub found: String,
    /// The measurement that it is from.
    pub point: String,
}

/// What one run's medium costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Bill {
    /// The medium's name in the file of prices.
    pub name: String,
    /// All its devices.
    pub euro: f64,
    /// Capacity first, then each figure that the run has.
    pub costs: Vec<Cost>,
}

fn one() -> u32 {
    1
}

/// Title, words, unit and per of the figures that are always looked for.
const FIGURES: [(&str, &[&str], Unit, f64); 8] = [
    ("GB/s sequential read", &["seq", "read"], Unit::BytesPerSecond, 1e9),
    ("GB/s sequential write", &["seq", "writ"], Unit::BytesPerSecond, 1e9),
    ("GB/s random read", &["random", "read"], Unit::BytesPerSecond, 1e9),
    ("GB/s random write", &["random", "writ"], Unit::BytesPerSecond, 1e9),
    ("100 ns of a read", &["latenc", "read"], Unit::Nanoseconds, 100.0),
    ("100 ns of a write", &["latenc", "writ"], Unit::Nanoseconds, 100.0),
    ("million index lookups/s", &["index", "lookup"], Unit::OperationsPerSecond, 1e6),
    ("million index updates/s", &["index", "update"], Unit::OperationsPerSecond, 1e6),
];

impl Prices {
    /// Prices from a file.
    ///
    /// # Errors
    /// When it cannot be read, is not TOML of this form, or a number in it makes no sense.
    pub fn read(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| {
            Error::new(format!(
                "cannot read prices from {place}: {error}; docs/bench-report.md shows such a file"
            ))
        })?;
        Self::from_toml(&text, &place)
    }

    /// Prices from TOML. `place` names it in errors.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_toml(text: &str, place: &str) -> Result<Self> {
        let prices: Self = toml::from_str(text).map_err(|error| {
            Error::new(format!(
                "{place} is not a file of prices: {error}docs/bench-report.md shows such a file"
            ))
        })?;
        for medium in &prices.medium {
            let numbers = [
                ("device_gb", medium.device_gb),
                ("device_euro", medium.device_euro),
                ("devices", medium.devices.into()),
            ];
            for (name, value) in numbers {
                positive(value, &format!("{place}: medium {:?}: {name}", medium.name))?;
            }
        }
        for figure in &prices.figure {
            positive(figure.per, &format!("{place}: figure {:?}: per", figure.title))?;
            if figure.words.is_empty() {
                return Err(Error::new(format!(
                    "{place}: figure {:?}: words is empty, wanted at least one word of the measurement's name",
                    figure.title
                )));
            }
        }
        Ok(prices)
    }

    /// What the medium of `run` costs for what it does.
    ///
    /// # Errors
    /// When there is no price for the run's medium.
    pub fn bill(&self, run: &Run) -> Result<Bill> {
        let Some(price) = self.medium.iter().find(|medium| medium.kind == run.medium.kind) else {
            let known: Vec<&str> = self.medium.iter().map(|medium| medium.kind.as_str()).collect();
            return Err(Error::new(format!(
                "the run is of medium {:?}, prices are there for {known:?}; add a [[medium]] with kind = {:?}",
                run.medium.kind, run.medium.kind
            )));
        };
        let (devices, euro) = (f64::from(price.devices), f64::from(price.devices) * price.device_euro);
        let mut costs = vec![Cost {
            title: "GB of capacity".to_owned(),
            euro: price.device_euro / price.device_gb,
            found: format!("{} GB", scale::digits(devices * price.device_gb)),
            point: String::new(),
        }];
        let built_in = FIGURES.iter().map(|(title, words, unit, per)| Figure {
            title: (*title).to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            unit: *unit,
            per: *per,
        });
        costs.extend(built_in.chain(self.figure.iter().cloned()).filter_map(|figure| figure.cost(run, euro)));
        Ok(Bill { name: price.name.clone(), euro, costs })
    }
}

impl Figure {
    fn cost(&self, run: &Run, euro: f64) -> Option<Cost> {
        let figures = run.measurements.iter().filter(|m| self.is_of(m)).flat_map(|measurement| {
            let of_unit =
                measurement.metrics.values().filter(|metric| metric.unit == self.unit && metric.value > 0.0);
            of_unit.map(move |metric| (measurement, metric))
        });
        let (measurement, metric) = figures.reduce(|best, next| {
            let better = match best.1.better {
                Better::Higher => next.1.value > best.1.value,
                Better::Lower => next.1.value < best.1.value,
            };
            if better { next } else { best }
        })?;
        let quantity = metric.value / self.per;
        let cost = match metric.better {
            Better::Higher => euro / quantity,
            Better::Lower => euro * quantity,
        };
        Some(Cost {
            title: self.title.clone(),
            euro: cost,
            found: crate::figure(metric.value, metric.unit),
            point: measurement.point(),
        })
    }

    /// Whether each word of the figure begins a word of the measurement's.
    fn is_of(&self, measurement: &Measurement) -> bool {
        let point = measurement.point().to_lowercase();
        let words: Vec<&str> = point.split(|c: char| !c.is_alphanumeric()).collect();
        self.words.iter().all(|wanted| words.iter().any(|word| word.starts_with(&wanted.to_lowercase())))
    }
}

/// Bills as text: a table for each run.
pub fn text(bills: &[Bill]) -> String {
    let mut text = String::new();
    for bill in bills {
        text.push_str(&format!("{}: EUR {}\n", bill.name, scale::digits(bill.euro)));
        let mut table = Table::new(["EUR per", "EUR", "found", "in"]);
        for cost in &bill.costs {
            table.row([&cost.title, &scale::digits(cost.euro), &cost.found, &cost.point]);
        }
        text.push_str(&table.render());
        text.push('\n');
    }
    text
}

fn positive(value: f64, place: &str) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(Error::new(format!("{place} is {value}, wanted a number above 0")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metric;

    const PRICES: &str = "
[[medium]]
kind = 'shm'
name = 'DRAM'
devices = 2
device_gb = 32.0
device_euro = 160.0

[[figure]]
title = 'million gets/s'
words = ['get']
unit = 'op/s'
per = 1e6
";

    fn run() -> Run {
        let mut run = Run::default();
        run.medium.kind = "shm".into();
        for (group, size, value, unit, better) in [
            ("sequential_reads", 64_u64, 5e9, Unit::BytesPerSecond, Better::Higher),
            ("sequential_reads", 4096, 10e9, Unit::BytesPerSecond, Better::Higher),
            ("operation latency: read", 64, 200.0, Unit::Nanoseconds, Better::Lower),
            ("operation latency: read", 4096, 900.0, Unit::Nanoseconds, Better::Lower),
            ("gets", 8, 4e6, Unit::OperationsPerSecond, Better::Higher),
        ] {
            let mut measurement = Measurement::new(group, "n").with("access_size", size);
            measurement.metrics.insert("m".into(), Metric::once(value, unit, better));
            run.measurements.push(measurement);
        }
        run
    }

    #[test]
    fn rates_are_divided_by_and_times_multiplied_with() {
        let bill = Prices::from_toml(PRICES, "p.toml").unwrap().bill(&run()).unwrap();
        let costs: Vec<(&str, f64)> =
            bill.costs.iter().map(|cost| (cost.title.as_str(), cost.euro)).collect();
        assert_eq!(
            costs,
            [
                ("GB of capacity", 5.0),
                ("GB/s sequential read", 32.0),
                ("100 ns of a read", 640.0),
                ("million gets/s", 80.0)
            ]
        );
        assert!(bill.costs[1].point.ends_with("access_size 4096"), "the best of the matrix");
        assert!(text(&[bill]).contains("EUR 320"));
    }

    #[test]
    fn bad_files_are_refused_with_the_place() {
        for (from, to, wanted) in [
            ("device_gb = 32.0", "device_gb = 0.0", "device_gb is 0"),
            ("device_euro = 160.0", "device_euro = nan", "device_euro is NaN"),
            ("device_euro = 160.0", "", "device_euro"),
            ("kind", "kinds", "kinds"),
            ("per = 1e6", "per = -1.0", "per is -1"),
            ("['get']", "[]", "words is empty"),
            ("'op/s'", "'furlong'", "furlong"),
        ] {
            let error = Prices::from_toml(&PRICES.replace(from, to), "p.toml").unwrap_err().to_string();
            assert!(error.starts_with("p.toml") && error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_medium_without_a_price_is_said() {
        let prices = Prices::from_toml(PRICES, "p.toml").unwrap();
        let error = prices.bill(&Run::default()).unwrap_err().to_string();
        assert!(error.contains("prices are there for [\"shm\"]"), "{error}");
    }
}
