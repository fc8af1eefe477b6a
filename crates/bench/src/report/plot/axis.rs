//! Axes: the places of values, and the named values.

use crate::report::Unit;
use crate::report::scale::{Scale, digits};

/// One axis; values lie between 0 (its start) and 1 (its end).
pub(crate) struct Axis {
    pub(crate) title: String,
    low: f64,
    high: f64,
    log: bool,
    /// Value and label.
    pub(crate) ticks: Vec<(f64, String)>,
}

// 30: over a smaller range, small values still have a visible height on a linear axis.
const LOG_FROM: f64 = 30.0;

impl Axis {
    /// An axis for figures in `unit`: linear from 0, or logarithmic when they differ by a factor of more than 30.
    pub(crate) fn of_figures(title: &str, unit: Unit, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = extent(values);
        let scale = Scale::of(low.abs().max(high.abs()), unit);
        let title = match (title, scale.label) {
            (title, "") => title.to_owned(),
            ("", unit) => unit.to_owned(),
            (title, unit) => format!("{title} ({unit})"),
        };
        if low > 0.0 && high / low > LOG_FROM {
            // A decade is named in the unit that suits it: 100 ns, 1 µs, 10 ms.
            let name = |value: f64| Scale::of(value, unit).with_unit(value);
            let base = title.rsplit_once(" (").map_or(title.clone(), |(name, _)| name.to_owned());
            return Self::logarithmic(base + ", log", low, high, name);
        }
        let low = low.min(0.0);
        let high = if high > low { high } else { low + scale.factor };
        let step = nice_step((high - low) / scale.factor / 5.0) * scale.factor;
        let (low, high) = ((low / step).floor() * step, (high / step - 1e-9).ceil() * step);
        let count = ((high - low) / step).round() as usize;
        let ticks = (0..=count).map(|index| low + step * index as f64);
        let ticks = ticks.map(|value| (value, plain(value / scale.factor))).collect();
        Self { title, low, high, log: false, ticks }
    }

    /// An axis with a tick at each of `values`, as far as there is room. It is logarithmic if the values are sizes or
    /// counts that grow by factors.
    pub(crate) fn of_points(title: &str, values: &[f64], name: impl Fn(f64) -> String) -> Self {
        let mut values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (low, high) = extent(values.iter().copied());
        let log = low > 0.0 && high / low >= 8.0;
        // A little room, so that the first and last marks do not sit on the frame.
        let (low, high) = match (low < high, log) {
            (true, true) => (low / (high / low).powf(0.03), high * (high / low).powf(0.03)),
            (true, false) => (low - (high - low) * 0.03, high + (high - low) * 0.03),
            (false, _) => (low - 1.0, high + 1.0),
        };
        let mut axis = Self { title: title.to_owned(), low, high, log, ticks: Vec::new() };
        let mut end = f64::NEG_INFINITY;
        for value in values {
            let (text, at) = (name(value), axis.at(value) * 350.0);
            let half = super::text_width(&text) / 2.0 + 4.0;
            if at - half > end {
                end = at + half;
                axis.ticks.push((value, text));
            }
        }
        axis
    }

    /// Logarithmic over whole decades.
    pub(crate) fn logarithmic(title: String, low: f64, high: f64, name: impl Fn(f64) -> String) -> Self {
        let (first, last) = (low.log10().floor() as i32, (high.log10() - 1e-9).ceil() as i32);
        let last = last.max(first + 1);
        // At most eight decades are named.
        let every = ((last - first) as usize).div_ceil(8);
        let ticks = (first..=last).step_by(every).map(|power| 10_f64.powi(power));
        let ticks = ticks.map(|value| (value, name(value))).collect();
        Self { title, low: 10_f64.powi(first), high: 10_f64.powi(last), log: true, ticks }
    }

    /// An axis of percentiles on which each nine takes as much room as the first: 0, 90, 99, 99.9 ...
    pub(crate) fn of_percentiles(nines: usize) -> Self {
        let mut ticks = vec![(0.0, "0".to_owned()), (2_f64.log10(), "50".to_owned())];
        ticks.extend((1..=nines).map(|nine| (nine as f64, percent_of_nines(nine))));
        let high = nines as f64;
        Self { title: "percentile in %, log of the part above".to_owned(), low: 0.0, high, log: false, ticks }
    }

    /// The place of a value, from 0 to 1; smaller or greater if it is outside.
    pub(crate) fn at(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Whether a value can be shown.
    pub(crate) fn holds(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }
}

/// `90`, `99`, `99.9`.
fn percent_of_nines(nines: usize) -> String {
    match nines {
        1 => "90".to_owned(),
        2 => "99".to_owned(),
        more => format!("99.{}", "9".repeat(more - 2)),
    }
}

/// The lowest and highest finite value; 0 and 0 if there is none.
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite
        .fold(None, |extent, value| match extent {
            None => Some((value, value)),
            Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
        })
        .unwrap_or((0.0, 0.0))
}

/// The smallest of 1, 2, 5, 10, 20, ... that is not below `step`.
fn nice_step(step: f64) -> f64 {
    if !(step.is_finite() && step > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(step.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|nice| nice * power >= step * (1.0 - 1e-9));
    nice.unwrap_or(10.0) * power
}

/// A round number as on a tick: without unneeded digits.
fn plain(value: f64) -> String {
    let value = if value.abs() < 1e-12 { 0.0 } else { value };
    if value.abs() >= 1000.0 || (value != 0.0 && value.abs() < 0.001) {
        return digits(value);
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn a_linear_axis_starts_at_zero_and_has_round_ticks() {
        let axis = Axis::of_figures("bandwidth", Unit::BytesPerSecond, [3.1e9, 9.7e9]);
        assert_eq!(axis.title, "bandwidth (GB/s)");
        assert_eq!(names(&axis), ["0", "2", "4", "6", "8", "10"]);
        assert!((axis.at(5e9) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn wide_ranges_have_a_logarithmic_axis_in_matching_units() {
        let axis = Axis::of_figures("latency", Unit::Nanoseconds, [150.0, 2e7]);
        assert_eq!(names(&axis), ["100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms"]);
        assert!(!axis.holds(0.0));
    }

    #[test]
    fn zeros_one_point_and_no_point_have_an_axis() {
        for values in [vec![], vec![0.0], vec![0.0, 0.0], vec![5.0], vec![-3.0], vec![f64::NAN]] {
            let axis = Axis::of_figures("x", Unit::Count, values.clone());
            assert!(
                axis.ticks.len() > 1 && axis.ticks.iter().all(|(at, _)| axis.at(*at).is_finite()),
                "{values:?}"
            );
            let axis = Axis::of_points("x", &values, |value| value.to_string());
            assert!(axis.ticks.iter().all(|(at, _)| axis.at(*at).is_finite()), "{values:?}");
        }
    }

    #[test]
    fn sizes_are_spaced_by_factors_and_ticks_do_not_overlap() {
        let sizes: Vec<f64> = (6..=26).map(|power| f64::from(1 << power)).collect();
        let axis = Axis::of_points("size", &sizes, |size| format!("{size} bytes"));
        assert!(axis.ticks.len() < sizes.len() && axis.ticks.len() > 3, "{:?}", names(&axis));
        let gap = axis.at(128.0) - axis.at(64.0);
        assert!((axis.at(1024.0) - axis.at(512.0) - gap).abs() < 1e-9);
    }
}
