//! Price-performance: the price of a medium relative to its performance, from a file of prices.
//!
//! ```toml
//! [[medium]]
//! kind = "devdax"              # the medium of the runs that this price is for
//! path = "/dev/dax0.0"         # optional: only of runs at this path or below it
//! name = "DDR5, 2 x 32 GB"
//! devices = 2                  # optional, 1 when absent
//! device_gb = 32.0             # of 10^9 bytes, as they are sold
//! device_euro = 160.0
//!
//! [[figure]]                   # optional: in addition to the built-in ones
//! title = "million gets"
//! words = ["get", "uniform"]   # each begins a word of the measurement's group, name or arguments
//! unit = "op/s"
//! per = 1e6
//! ```
//!
//! For a rate, the figure is price / (rate / per), with the best rate of the run. For a time, it is price × (time /
//! per), with the shortest time of the run, since a division would reward a slow medium. Less is better for both. The
//! price is that of a GB, as in PerMA-Bench; the price of all devices is also shown. A run is billed by each price for
//! its medium. Prices that name its path take precedence over those without a path. Points that the run's verdict left
//! out do not count.

use crate::report::run::{Better, Measurement, Run, Unit};
use crate::report::scale;
use crate::report::text::Table;
use crate::report::{Error, Result};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Prices of media, and the figures to relate them to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    medium: Vec<MediumPrice>,
    #[serde(default)]
    figure: Vec<Figure>,
}

/// The price of one medium.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MediumPrice {
    kind: String,
    #[serde(default)]
    path: Option<PathBuf>,
    name: String,
    #[serde(default = "one")]
    devices: u32,
    device_gb: f64,
    device_euro: f64,
}

/// A figure to relate prices to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    title: String,
    words: Vec<String>,
    unit: Unit,
    per: f64,
}

/// The price of one figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// `GB of capacity`, `GB/s sequential read`.
    pub title: String,
    /// Euro of a GB for one unit of it; for times, euro of a GB × time.
    pub euro: f64,
    /// The same with the price of all devices.
    pub euro_all: f64,
    /// The figure, in words.
    pub found: String,
    /// The measurement that contains it.
    pub point: String,
}

/// The price of one run's medium.
#[derive(Clone, Debug, PartialEq)]
pub struct Bill {
    /// The medium's name in the file of prices.
    pub name: String,
    /// The price of all its devices.
    pub euro: f64,
    /// Capacity first, then each figure of the run.
    pub costs: Vec<Cost>,
}

fn one() -> u32 {
    1
}

/// Title, words, unit and per of the built-in figures.
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
                "cannot read prices from {place}: {error}; docs/internals/bench-report.md shows such a file"
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
                "{place} is not a file of prices: {error}docs/internals/bench-report.md shows such a file"
            ))
        })?;
        for (index, medium) in prices.medium.iter().enumerate() {
            let same = |other: &&MediumPrice| {
                (&other.kind, &other.path, &other.name) == (&medium.kind, &medium.path, &medium.name)
            };
            if prices.medium[..index].iter().any(|other| same(&other)) {
                return Err(Error::new(format!(
                    "{place}: medium {:?} of kind {:?} has two prices; give each a different name or path",
                    medium.name, medium.kind
                )));
            }
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

    /// The bills of `run`'s medium, one for each price for that medium.
    ///
    /// # Errors
    /// When there is no price for the run's medium.
    pub fn bills(&self, run: &Run) -> Result<Vec<Bill>> {
        let of_kind = || self.medium.iter().filter(|medium| medium.kind == run.medium.kind);
        let at_path = |medium: &&MediumPrice| {
            medium.path.as_ref().is_some_and(|path| Path::new(&run.medium.path).starts_with(path))
        };
        let mut prices: Vec<&MediumPrice> = of_kind().filter(at_path).collect();
        if prices.is_empty() {
            prices = of_kind().filter(|medium| medium.path.is_none()).collect();
        }
        if prices.is_empty() {
            let known: Vec<String> = self.medium.iter().map(MediumPrice::place).collect();
            return Err(Error::new(format!(
                "the run is of medium {:?} at {:?}, the file has prices for {}; add a [[medium]] with kind = {:?}",
                run.medium.kind,
                run.medium.path,
                known.join(", "),
                run.medium.kind
            )));
        }
        Ok(prices.into_iter().map(|price| self.bill(price, run)).collect())
    }

    fn bill(&self, price: &MediumPrice, run: &Run) -> Bill {
        let (devices, euro) = (f64::from(price.devices), f64::from(price.devices) * price.device_euro);
        let euro_of_gb = price.device_euro / price.device_gb;
        let mut costs = vec![Cost {
            title: "GB of capacity".to_owned(),
            euro: euro_of_gb,
            euro_all: euro,
            found: format!("{} GB", scale::digits(devices * price.device_gb)),
            point: String::new(),
        }];
        let built_in = FIGURES.iter().map(|(title, words, unit, per)| Figure {
            title: (*title).to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            unit: *unit,
            per: *per,
        });
        let figures = built_in.chain(self.figure.iter().cloned());
        costs.extend(figures.filter_map(|figure| figure.cost(run, euro_of_gb, euro)));
        Bill { name: price.name.clone(), euro, costs }
    }
}

impl MediumPrice {
    /// The media for which the price is, in words.
    fn place(&self) -> String {
        match &self.path {
            Some(path) => format!("{:?} at {:?}", self.kind, path),
            None => format!("{:?}", self.kind),
        }
    }
}

impl Figure {
    fn cost(&self, run: &Run, euro_of_gb: f64, euro_all: f64) -> Option<Cost> {
        let left_out = run.verdict.as_ref().map_or(&[][..], |verdict| &verdict.left_out);
        let counts = |m: &&Measurement| self.is_of(m) && !left_out.contains(&m.point());
        let figures = run.measurements.iter().filter(counts).flat_map(|measurement| {
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
        let cost = |euro: f64| match metric.better {
            Better::Higher => euro / quantity,
            Better::Lower => euro * quantity,
        };
        Some(Cost {
            title: self.title.clone(),
            euro: cost(euro_of_gb),
            euro_all: cost(euro_all),
            found: crate::report::figure(metric.value, metric.unit),
            point: measurement.point(),
        })
    }

    /// Whether each word of the figure is the beginning of a word of the measurement.
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
        let mut table = Table::new(["for", "EUR of a GB", "EUR of all", "found", "in"]);
        for cost in &bill.costs {
            let (euro, euro_all) = (scale::digits(cost.euro), scale::digits(cost.euro_all));
            table.row([&cost.title, &euro, &euro_all, &cost.found, &cost.point]);
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
    use crate::report::Metric;

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
        let bills = Prices::from_toml(PRICES, "p.toml").unwrap().bills(&run()).unwrap();
        let [bill] = &bills[..] else { panic!("{bills:?}") };
        let costs: Vec<(&str, f64, f64)> =
            bill.costs.iter().map(|cost| (cost.title.as_str(), cost.euro, cost.euro_all)).collect();
        // The price of a GB first: a second device of the same kind does not change it.
        assert_eq!(
            costs,
            [
                ("GB of capacity", 5.0, 320.0),
                ("GB/s sequential read", 0.5, 32.0),
                ("100 ns of a read", 10.0, 640.0),
                ("million gets/s", 1.25, 80.0)
            ]
        );
        assert!(bill.costs[1].point.ends_with("access_size 4096"), "the best of the matrix");
        assert!(text(&bills).contains("EUR 320"));
    }

    #[test]
    fn every_price_for_the_medium_counts_and_those_of_its_path_before_others() {
        let second = "[[medium]]
kind = 'shm'
name = 'CXL'
device_gb = 64.0
device_euro = 64.0
";
        let names = |second: &str, path: &str| -> Vec<String> {
            let mut run = run();
            run.medium.path = path.into();
            let prices = Prices::from_toml(&format!("{PRICES}{second}"), "p.toml").unwrap();
            prices.bills(&run).unwrap().into_iter().map(|bill| bill.name).collect()
        };
        assert_eq!(names(second, "/dev/shm/store"), ["DRAM", "CXL"]);
        let of_path = second.replace("name", "path = '/mnt/cxl'\nname");
        assert_eq!(names(&of_path, "/mnt/cxl/store"), ["CXL"]);
        assert_eq!(names(&of_path, "/dev/shm/store"), ["DRAM"]);
        let error = Prices::from_toml(&format!("{second}{second}"), "p.toml").unwrap_err().to_string();
        assert!(error.contains("medium \"CXL\" of kind \"shm\" has two prices"), "{error}");
    }

    #[test]
    fn a_point_excluded_by_the_verdict_is_not_priced() {
        let mut run = run();
        let left_out = vec![run.measurements[1].point()];
        run.verdict = Some(crate::report::Verdict { left_out, ..crate::report::Verdict::default() });
        let bills = Prices::from_toml(PRICES, "p.toml").unwrap().bills(&run).unwrap();
        let read = &bills[0].costs[1];
        assert!((read.euro - 1.0).abs() < 1e-9 && read.point.ends_with("access_size 64"), "{read:?}");
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
    fn a_medium_without_a_price_is_reported() {
        let prices = Prices::from_toml(PRICES, "p.toml").unwrap();
        let error = prices.bills(&Run::default()).unwrap_err().to_string();
        assert!(error.contains("the file has prices for \"shm\""), "{error}");
    }
}
