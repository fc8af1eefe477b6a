//! Figures in words: a unit that keeps them short, and three digits, which is as many as a measurement deserves.
//!
//! Sizes go by 1024 (KiB), as they are configured; rates and counts go by 1000 (kB/s, Mop/s), as devices are sold.

use crate::report::{Argument, Unit};
use jiff::Timestamp;

/// How the figures of one column or axis are shown: divided by `factor`, with `label` as the unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) factor: f64,
    pub(crate) label: &'static str,
}

const TIME: [Scale; 5] = [
    Scale { factor: 1.0, label: "ns" },
    Scale { factor: 1e3, label: "µs" },
    Scale { factor: 1e6, label: "ms" },
    Scale { factor: 1e9, label: "s" },
    Scale { factor: 6e10, label: "min" },
];
const BYTES: [Scale; 5] = [
    Scale { factor: 1.0, label: "B" },
    Scale { factor: 1024.0, label: "KiB" },
    Scale { factor: 1_048_576.0, label: "MiB" },
    Scale { factor: 1_073_741_824.0, label: "GiB" },
    Scale { factor: 1_099_511_627_776.0, label: "TiB" },
];
const BYTES_PER_SECOND: [Scale; 4] = [
    Scale { factor: 1.0, label: "B/s" },
    Scale { factor: 1e3, label: "kB/s" },
    Scale { factor: 1e6, label: "MB/s" },
    Scale { factor: 1e9, label: "GB/s" },
];
const OPERATIONS_PER_SECOND: [Scale; 3] = [
    Scale { factor: 1.0, label: "op/s" },
    Scale { factor: 1e3, label: "kop/s" },
    Scale { factor: 1e6, label: "Mop/s" },
];
const COUNT: [Scale; 4] = [
    Scale { factor: 1.0, label: "" },
    Scale { factor: 1e3, label: "k" },
    Scale { factor: 1e6, label: "M" },
    Scale { factor: 1e9, label: "G" },
];

impl Scale {
    /// The scale in which `largest` has one to three digits before the point.
    pub(crate) fn of(largest: f64, unit: Unit) -> Self {
        let fixed = |label| Self { factor: 1.0, label };
        let steps: &[Self] = match unit {
            Unit::Nanoseconds => &TIME,
            Unit::Seconds => return Self::seconds(largest),
            Unit::Bytes => &BYTES,
            Unit::BytesPerSecond => &BYTES_PER_SECOND,
            Unit::OperationsPerSecond => &OPERATIONS_PER_SECOND,
            Unit::Count => &COUNT,
            Unit::Ratio => return fixed("×"),
            Unit::Percent => return fixed("%"),
            Unit::Cycles => return fixed("cycles"),
            Unit::Instructions => return fixed("instructions"),
            Unit::Euro => return fixed("EUR"),
        };
        let fits = |step: &&Self| step.factor <= largest.abs();
        steps.iter().rev().find(fits).or(steps.first()).copied().unwrap_or(fixed(""))
    }

    /// Shown like nanoseconds, but stored in seconds.
    fn seconds(largest: f64) -> Self {
        let scale = Self::of(largest * 1e9, Unit::Nanoseconds);
        Self { factor: scale.factor / 1e9, label: scale.label }
    }

    /// The figure alone; the column or axis has the unit.
    pub(crate) fn number(self, value: f64) -> String {
        digits(value / self.factor)
    }

    /// The figure and its unit.
    pub(crate) fn with_unit(self, value: f64) -> String {
        match self.label {
            "" => self.number(value),
            "×" => format!("{}×", self.number(value)),
            "%" => format!("{} %", self.number(value)),
            label => format!("{} {label}", self.number(value)),
        }
    }
}

/// A figure with its unit.
pub fn figure(value: f64, unit: Unit) -> String {
    Scale::of(value, unit).with_unit(value)
}

/// Three significant digits; whole numbers and large ones in full, with thin groups of three.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if !size.is_finite() {
        "–".to_owned()
    } else if size >= 999.5 {
        thousands(value)
    } else if size >= 99.95 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else if size >= 0.9995 {
        format!("{value:.2}")
    } else if size >= 0.001 {
        let places = (-size.log10().floor()) as usize + 2;
        format!("{value:.places$}").trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.2e}")
    }
}

/// A whole number with its digits in groups of three.
fn thousands(value: f64) -> String {
    let plain = format!("{:.0}", value.abs());
    let mut grouped = String::with_capacity(plain.len() * 4 / 3 + 1);
    if value < 0.0 {
        grouped.push('-');
    }
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A coordinate as shown: bytes scaled if its name says that it is bytes, and exact.
pub(crate) fn argument(name: &str, value: &Argument) -> String {
    match value {
        Argument::Integer(bytes) if is_bytes(name) => exact_bytes(*bytes),
        Argument::Integer(count) => thousands(*count as f64),
        Argument::Number(number) => digits(*number),
        Argument::Flag(true) => "yes".to_owned(),
        Argument::Flag(false) => "no".to_owned(),
        Argument::Text(text) => text.clone(),
    }
}

/// A number on an axis of this argument.
pub(crate) fn coordinate(name: &str, value: f64) -> String {
    if value >= 0.0 && value.fract() == 0.0 && is_bytes(name) {
        exact_bytes(value as u64)
    } else {
        digits(value)
    }
}

fn is_bytes(name: &str) -> bool {
    ["size", "range", "bytes"].iter().any(|end| name.ends_with(end))
}

fn exact_bytes(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", thousands((bytes >> shift) as f64));
        }
    }
    format!("{} B", thousands(bytes as f64))
}

/// `snake_case` names of arguments and metrics as words.
pub(crate) fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// Seconds since 1970 as `2026-01-31 23:59 UTC`.
pub(crate) fn time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_get_a_unit_that_keeps_them_short() {
        for (value, unit, wanted) in [
            (0.0, Unit::Nanoseconds, "0 ns"),
            (0.25, Unit::Nanoseconds, "0.25 ns"),
            (148.4, Unit::Nanoseconds, "148 ns"),
            (1234.0, Unit::Nanoseconds, "1.23 µs"),
            (5_050_367.0, Unit::Nanoseconds, "5.05 ms"),
            (0.002, Unit::Seconds, "2 ms"),
            (4096.0, Unit::Bytes, "4 KiB"),
            (12_345_678_901.0, Unit::BytesPerSecond, "12.3 GB/s"),
            (64.0, Unit::BytesPerSecond, "64 B/s"),
            (2_400_000.0, Unit::OperationsPerSecond, "2.40 Mop/s"),
            (123_000_000.0, Unit::OperationsPerSecond, "123 Mop/s"),
            (1_234_567_890.0, Unit::OperationsPerSecond, "1,235 Mop/s"),
            (1.5, Unit::Ratio, "1.50×"),
            (12.0, Unit::Percent, "12 %"),
            (12.0, Unit::Count, "12"),
            (-1500.0, Unit::Count, "-1.50 k"),
            (1e-7, Unit::Ratio, "1.00e-7×"),
        ] {
            assert_eq!(figure(value, unit), wanted, "{value} {unit:?}");
        }
    }

    #[test]
    fn arguments_that_are_bytes_are_shown_exactly() {
        assert_eq!(argument("access_size", &64_u64.into()), "64 B");
        assert_eq!(argument("access_size", &4096_u64.into()), "4 KiB");
        assert_eq!(argument("access_size", &4104_u64.into()), "4,104 B");
        assert_eq!(argument("total_memory_range", &(10_u64 << 30).into()), "10 GiB");
        assert_eq!(argument("threads", &4096_u64.into()), "4,096");
        assert_eq!(argument("access_size", &0_u64.into()), "0 B");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, wanted) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(time(seconds), wanted);
        }
    }
}
