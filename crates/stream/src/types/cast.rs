//! CAST: the pairs of types that have one, and the result for a value.

use super::{DataType, Type, Value, decimal, time};
use crate::error::{Error, Result};

/// Whether CAST from one type to another is in the dialect.
pub fn exists(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        (Null, _) => true,
        (a, b) if a == b => true,
        (Array(a), Array(b)) => exists(&a.data, &b.data),
        (Row(a), Row(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|((_, a), (_, b))| exists(&a.data, &b.data))
        }
        // Every type can be cast to a string.
        (_, Char(_) | Varchar(_)) => true,
        (Char(_) | Varchar(_), Array(_) | Row(_)) => false,
        (Char(_) | Varchar(_), to) => !to.is_interval() && !matches!(to, Null),
        (a, b) if a.is_numeric() && b.is_numeric() => true,
        (Boolean, b) => b.is_numeric(),
        (a, Boolean) => a.is_numeric(),
        (Date, b) => b.is_timestamp(),
        (Time(_), b) => matches!(b, Time(_)) || b.is_timestamp(),
        (a, b) if a.is_timestamp() => matches!(b, Date | Time(_)) || b.is_timestamp(),
        (IntervalMillis | IntervalMonths, BigInt | Int) => true,
        _ => false,
    }
}

/// The value cast to type `to`. An integer too large for its type wraps. A DECIMAL too large becomes NULL. A text that
/// is not a value of the type is an error.
pub fn cast(value: &Value, from: &DataType, to: &DataType) -> Result<Value> {
    use DataType::*;
    if value.is_null() || from == to {
        return Ok(value.clone());
    }
    let failed = || Error::evaluation(format!("cannot cast '{}' to {to}", value.text(from)));
    Ok(match (value, to) {
        (Value::Array(values), Array(element)) => {
            let from = match from {
                Array(from) => &from.data,
                _ => return Err(failed()),
            };
            let values: Result<Vec<Value>> =
                values.iter().map(|value| cast(value, from, &element.data)).collect();
            Value::Array(values?.into())
        }
        (Value::Row(values), Row(fields)) => {
            let from: &[(String, Type)] = match from {
                Row(from) => from,
                _ => return Err(failed()),
            };
            let values: Result<Vec<Value>> = values
                .iter()
                .zip(from.iter().zip(fields.iter()))
                .map(|(value, ((_, from), (_, to)))| cast(value, &from.data, &to.data))
                .collect();
            Value::Row(values?.into())
        }
        (_, Char(length)) => {
            let mut text: std::string::String = value.text(from).chars().take(*length as usize).collect();
            let missing = (*length as usize).saturating_sub(text.chars().count());
            // A length near the greatest means "any": the value is not padded.
            if *length < 1 << 20 {
                text.extend(std::iter::repeat_n(' ', missing));
            }
            Value::string(text)
        }
        (_, Varchar(length)) => match value {
            Value::String(text) if text.chars().count() <= *length as usize => value.clone(),
            _ => Value::string(
                value.text(from).chars().take(*length as usize).collect::<std::string::String>(),
            ),
        },
        (Value::String(text), to) => match to {
            // With all its blanks.
            Boolean | Bytes => parse(text, to),
            Date => time::cast_date(text.trim()).map(Value::Int),
            Timestamp(precision) | TimestampLtz(precision) => {
                time::cast_timestamp(text).map(|micros| Value::Int(time::truncate(micros, *precision)))
            }
            to => parse(text.trim(), to),
        }
        .ok_or_else(failed)?,
        (Value::Boolean(value), to) if to.is_numeric() => number(Number::Int(i64::from(*value)), to),
        (Value::Int(value), Boolean) => Value::Boolean(*value != 0),
        (Value::Float(value), Boolean) => Value::Boolean(*value != 0.0),
        (Value::Double(value), Boolean) => Value::Boolean(*value != 0.0),
        (Value::Decimal(value), Boolean) => Value::Boolean(*value != 0),
        (Value::Float(value), to) => number(Number::Approximate(f64::from(*value)), to),
        (Value::Double(value), to) => number(Number::Approximate(*value), to),
        (Value::Decimal(value), to) => {
            let scale = from.as_decimal().map_or(0, |(_, scale)| scale);
            number(Number::Decimal(*value, scale), to)
        }
        (Value::Int(value), to) if to.is_numeric() => number(Number::Int(*value), to),
        (Value::Int(moment), to) => Value::Int(moment_as(*moment, from, to).ok_or_else(failed)?),
        _ => return Err(failed()),
    })
}

fn moment_as(moment: i64, from: &DataType, to: &DataType) -> Option<i64> {
    use DataType::*;
    Some(match (from, to) {
        (Date, Timestamp(_) | TimestampLtz(_)) => moment * time::DAY_MICROS,
        (Time(_), Time(precision)) => {
            time::truncate(moment * time::MILLI_MICROS, *precision) / time::MILLI_MICROS
        }
        (Time(_), Timestamp(_) | TimestampLtz(_)) => moment * time::MILLI_MICROS,
        (Timestamp(_) | TimestampLtz(_), Date) => moment.div_euclid(time::DAY_MICROS),
        (Timestamp(_) | TimestampLtz(_), Time(precision)) => {
            time::truncate(moment.rem_euclid(time::DAY_MICROS), (*precision).min(3)) / time::MILLI_MICROS
        }
        // The session's zone is UTC, so a timestamp and its local time are the same number.
        (Timestamp(_) | TimestampLtz(_), Timestamp(precision) | TimestampLtz(precision)) => {
            time::truncate(moment, *precision)
        }
        _ => return None,
    })
}

enum Number {
    Int(i64),
    Decimal(i128, u8),
    Approximate(f64),
}

/// An integer truncated to the bits of its type, as Java's narrowing does.
pub fn wrap(value: i64, to: &DataType) -> i64 {
    match to {
        DataType::TinyInt => i64::from(value as i8),
        DataType::SmallInt => i64::from(value as i16),
        DataType::Int => i64::from(value as i32),
        _ => value,
    }
}

fn number(value: Number, to: &DataType) -> Value {
    match to {
        DataType::Float | DataType::Double => {
            let double = match value {
                Number::Int(value) => value as f64,
                // Parses the decimal text, so that the result is rounded only once, to the nearest double.
                Number::Decimal(value, scale) => decimal::text(value, scale).parse().unwrap_or(f64::NAN),
                Number::Approximate(value) => value,
            };
            if matches!(to, DataType::Float) {
                Value::Float(match value {
                    Number::Int(value) => value as f32,
                    _ => double as f32,
                })
            } else {
                Value::Double(double)
            }
        }
        DataType::Decimal { precision, scale } => {
            let units = match value {
                Number::Int(value) => decimal::rescale(value.into(), 0, *scale),
                Number::Decimal(value, from) => decimal::rescale(value, from, *scale),
                Number::Approximate(value) => decimal::parse(&format!("{value:e}"), *scale),
            };
            match units {
                Some(units) if decimal::fits(units, *precision) => Value::Decimal(units),
                _ => Value::Null,
            }
        }
        _ => Value::Int(match value {
            Number::Int(value) => wrap(value, to),
            Number::Decimal(value, scale) => {
                let whole = decimal::power_of_ten(scale.into()).map_or(0, |unit| value / unit);
                wrap(whole as i64, to)
            }
            // Saturates first, as Java does; types narrower than int saturate at the bounds of int.
            Number::Approximate(value) => match to {
                DataType::BigInt => value as i64,
                _ => wrap(i64::from(value as i32), to),
            },
        }),
    }
}

/// Reads a text as a value of a type; `None` if it is not one.
pub fn parse(text: &str, to: &DataType) -> Option<Value> {
    Some(match to {
        DataType::Boolean => match text.to_ascii_lowercase().as_str() {
            "t" | "true" | "y" | "yes" | "1" => Value::Boolean(true),
            "f" | "false" | "n" | "no" | "0" => Value::Boolean(false),
            _ => return None,
        },
        DataType::TinyInt | DataType::SmallInt | DataType::Int | DataType::BigInt => {
            // Digits after the point are dropped.
            let value = match text.parse::<i64>() {
                Ok(value) => value,
                Err(_) => {
                    let (whole, fraction) = text.split_once('.')?;
                    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
                        return None;
                    }
                    match whole {
                        "" | "+" | "-" if !fraction.is_empty() => 0,
                        whole => whole.parse().ok()?,
                    }
                }
            };
            if wrap(value, to) != value {
                return None;
            }
            Value::Int(value)
        }
        DataType::Float => Value::Float(parse_float(text)? as f32),
        DataType::Double => Value::Double(parse_float(text)?),
        DataType::Decimal { precision, scale } => match decimal::parse(text, *scale) {
            Some(units) if decimal::fits(units, *precision) => Value::Decimal(units),
            Some(_) => Value::Null,
            // A number with more digits than 128 bits hold is also too large; any other text is not a number.
            None if text.parse::<f64>().is_ok_and(f64::is_finite) => Value::Null,
            None => return None,
        },
        DataType::Bytes => Value::Bytes(text.as_bytes().into()),
        DataType::Date => {
            Value::Int(time::parse_timestamp(text).map(|micros| micros.div_euclid(time::DAY_MICROS))?)
        }
        DataType::Time(precision) => {
            Value::Int(time::truncate(time::parse_time(text)? * time::MILLI_MICROS, *precision) / 1000)
        }
        DataType::Timestamp(precision) | DataType::TimestampLtz(precision) => {
            Value::Int(time::truncate(time::parse_timestamp(text)?, *precision))
        }
        _ => return None,
    })
}

fn parse_float(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" | "+Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        // Rust reads other spellings of infinity than Java, which does not. A letter for the type may follow at the
        // end.
        _ if text.bytes().any(|byte| byte.is_ascii_digit()) => {
            text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text).parse().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::*;

    fn text_of(value: Value, from: DataType, to: DataType) -> std::string::String {
        match cast(&value, &from, &to) {
            Ok(value) => value.text(&to),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn numbers_are_narrowed_as_in_java() {
        assert_eq!(text_of(Value::Int(300), Int, TinyInt), "44");
        assert_eq!(text_of(Value::Double(3e10), Double, Int), "2147483647");
        assert_eq!(text_of(Value::Double(-1.9), Double, Int), "-1");
        assert_eq!(text_of(Value::Decimal(12345), Decimal { precision: 5, scale: 2 }, Int), "123");
        assert_eq!(text_of(Value::Int(1000), Int, Decimal { precision: 3, scale: 0 }), "NULL");
        assert_eq!(text_of(Value::Double(1.005), Double, Decimal { precision: 5, scale: 2 }), "1.01");
    }

    #[test]
    fn a_cast_parses_a_text_or_fails() {
        assert_eq!(text_of(Value::string(" 12 "), DataType::STRING, Int), "12");
        assert_eq!(text_of(Value::string("1x"), DataType::STRING, Int), "cannot cast '1x' to INT");
        assert_eq!(text_of(Value::string("300"), DataType::STRING, TinyInt), "cannot cast '300' to TINYINT");
        assert_eq!(text_of(Value::string("2020-02-29"), DataType::STRING, Date), "2020-02-29");
        assert_eq!(text_of(Value::string("abc"), DataType::STRING, Char(5)), "abc  ");
        assert_eq!(text_of(Value::string("abcdef"), DataType::STRING, Varchar(3)), "abc");
        assert_eq!(text_of(Value::Boolean(true), Boolean, DataType::STRING), "TRUE");
        assert_eq!(text_of(Value::Double(1e10), Double, DataType::STRING), "1.0E10");
    }
}
