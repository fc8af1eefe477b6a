//! A value that is borrowed from a column or a row, and its text.

use std::borrow::Cow;
use std::fmt::{Debug, LowerExp, Write};
use std::str::FromStr;

use super::{DataType, decimal, time};

/// A value of a type that is not nested. Texts and bytes are borrowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'v> {
    /// NULL of any type.
    Null,
    /// TRUE or FALSE.
    Boolean(bool),
    /// Integers, dates, times and intervals, as in `Value::Int`.
    Int(i64),
    /// FLOAT.
    Float(f32),
    /// DOUBLE.
    Double(f64),
    /// DECIMAL in units of its scale.
    Decimal(i128),
    /// CHAR, VARCHAR, STRING, BYTES.
    Text(&'v [u8]),
}

impl Scalar<'_> {
    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Scalar::Null)
    }

    /// Appends the text that a cast to STRING gives; `NULL` for NULL.
    pub fn write_text(&self, ty: &DataType, out: &mut String) {
        match (*self, ty) {
            (Scalar::Null, _) => out.push_str("NULL"),
            (Scalar::Boolean(value), _) => out.push_str(if value { "TRUE" } else { "FALSE" }),
            (Scalar::Int(days), DataType::Date) => time::write_date(days, out),
            (Scalar::Int(millis), DataType::Time(precision)) => time::write_time(millis, *precision, out),
            (Scalar::Int(micros), DataType::Timestamp(precision) | DataType::TimestampLtz(precision)) => {
                time::write_timestamp(micros, *precision, out);
            }
            (Scalar::Int(months), DataType::IntervalMonths) => {
                out.push_str(&time::interval_months_text(months));
            }
            (Scalar::Int(millis), DataType::IntervalMillis) => {
                out.push_str(&time::interval_millis_text(millis));
            }
            (Scalar::Int(value), _) => write_int(value, out),
            (Scalar::Float(value), _) => write_float(value, out),
            (Scalar::Double(value), _) => write_float(value, out),
            (Scalar::Decimal(value), DataType::Decimal { scale, .. }) => {
                decimal::write_text(value, *scale, out);
            }
            (Scalar::Decimal(value), _) => decimal::write_text(value, 0, out),
            (Scalar::Text(value), _) => out.push_str(&shown(value)),
        }
    }
}

/// The text of these bytes; those of BYTES may be no UTF-8.
pub fn shown(bytes: &[u8]) -> Cow<'_, str> {
    // The lossy conversion goes byte by byte.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Appends the digits of an integer.
pub fn write_int(value: i64, out: &mut String) {
    out.push_str(itoa::Buffer::new().format(value));
}

/// Appends Java's text of a FLOAT or DOUBLE. Numbers below 10^-3 and from 10^7 have an exponent and at least two digits:
/// where one digit would do, the nearest number with two, such as 4.9E-324.
fn write_float<F>(value: F, out: &mut String)
where
    F: Copy + Into<f64> + Debug + LowerExp + FromStr + PartialEq,
{
    let double: f64 = value.into();
    let size = double.abs();
    if double.is_nan() {
        out.push_str("NaN");
    } else if double.is_infinite() {
        out.push_str(if double > 0.0 { "Infinity" } else { "-Infinity" });
    } else if size == 0.0 || (1e-3..1e7).contains(&size) {
        // Writing to a string cannot fail.
        let _ = write!(out, "{value:?}");
    } else {
        let two = format!("{value:.1e}");
        let is_exact = two.parse().is_ok_and(|parsed: F| parsed == value);
        let text = if is_exact { two } else { format!("{value:e}") };
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let point = if digits.contains('.') { "" } else { ".0" };
        let _ = write!(out, "{digits}{point}E{power}");
    }
}
