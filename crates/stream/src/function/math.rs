//! Functions of numbers.

use super::Nulls::{Strict, StrictAndMore};
use super::Param::{Double, Integer, Number};
use super::{Call, Function, Returns, function};
use crate::types::{DataType, Type, Value, cast, decimal};

const DOUBLE: Returns = Returns::Type(&DataType::Double);
const STRING: Returns = Returns::Type(&DataType::STRING);

pub(super) const FUNCTIONS: &[Function] = &[
    function("ABS", &[Number], Returns::Argument(0), Strict, |c| {
        Ok(match &c.args[0] {
            Value::Int(value) => Value::Int(cast::wrap(value.wrapping_abs(), &c.ty.data)),
            Value::Float(value) => Value::Float(value.abs()),
            Value::Double(value) => Value::Double(value.abs()),
            Value::Decimal(value) => Value::Decimal(value.abs()),
            other => other.clone(),
        })
    }),
    function("SIGN", &[Number], Returns::Argument(0), StrictAndMore, |c| {
        Ok(match &c.args[0] {
            Value::Int(value) => Value::Int(value.signum()),
            Value::Float(value) => Value::Float(if *value == 0.0 { 0.0 } else { value.signum() }),
            Value::Double(value) => Value::Double(if *value == 0.0 { 0.0 } else { value.signum() }),
            Value::Decimal(value) => {
                let scale = c.types[0].data.as_decimal().map_or(0, |(_, scale)| scale);
                let one = decimal::power_of_ten(scale.into()).unwrap_or(0);
                // A type without digits before the point has no one.
                let sign = value.signum().saturating_mul(one);
                let precision = c.types[0].data.as_decimal().map_or(0, |(precision, _)| precision);
                if decimal::fits(sign, precision) { Value::Decimal(sign) } else { Value::Null }
            }
            other => other.clone(),
        })
    }),
    function("FLOOR", &[Number], Returns::Rule(whole), Strict, |c| Ok(round_to(c, f64::floor, -1))),
    function("CEIL", &[Number], Returns::Rule(whole), Strict, |c| Ok(round_to(c, f64::ceil, 1))),
    function("ROUND", &[Number, Integer], Returns::Argument(0), StrictAndMore, |c| Ok(digits(c, true)))
        .optional(1),
    function("TRUNCATE", &[Number, Integer], Returns::Argument(0), StrictAndMore, |c| Ok(digits(c, false)))
        .optional(1),
    function("POWER", &[Double, Double], DOUBLE, Strict, |c| {
        Ok(Value::Double(c.double(0).powf(c.double(1))))
    }),
    function("SQRT", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).sqrt()))),
    function("EXP", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).exp()))),
    function("LN", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).ln()))),
    function("LOG10", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).log10()))),
    function("LOG2", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).log2()))),
    function("LOG", &[Double, Double], DOUBLE, Strict, |c| {
        Ok(Value::Double(match c.args.len() {
            1 => c.double(0).ln(),
            _ => c.double(1).ln() / c.double(0).ln(),
        }))
    })
    .optional(1),
    function("SIN", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).sin()))),
    function("COS", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).cos()))),
    function("TAN", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).tan()))),
    function("ASIN", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).asin()))),
    function("ACOS", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).acos()))),
    function("ATAN", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).atan()))),
    function("ATAN2", &[Double, Double], DOUBLE, Strict, |c| {
        Ok(Value::Double(c.double(0).atan2(c.double(1))))
    }),
    function("DEGREES", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).to_degrees()))),
    function("RADIANS", &[Double], DOUBLE, Strict, |c| Ok(Value::Double(c.double(0).to_radians()))),
    function("PI", &[], DOUBLE, Strict, |_| Ok(Value::Double(std::f64::consts::PI))),
    function("E", &[], DOUBLE, Strict, |_| Ok(Value::Double(std::f64::consts::E))),
    function("BIN", &[Integer], STRING, Strict, |c| Ok(Value::string(format!("{:b}", c.int(0))))),
    function("HEX", &[Integer], STRING, Strict, |c| Ok(Value::string(format!("{:X}", c.int(0))))),
];

/// The type of a number without digits after the point.
fn whole(types: &[Type]) -> DataType {
    match types.first().map(|ty| &ty.data) {
        Some(DataType::Decimal { precision, scale }) => {
            DataType::Decimal { precision: (precision - scale).max(1), scale: 0 }
        }
        Some(other) => other.clone(),
        None => DataType::Null,
    }
}

fn round_to(c: &Call<'_>, float: fn(f64) -> f64, away: i128) -> Value {
    match &c.args[0] {
        Value::Float(value) => Value::Float(float((*value).into()) as f32),
        Value::Double(value) => Value::Double(float(*value)),
        Value::Decimal(value) => {
            let scale = c.types[0].data.as_decimal().map_or(0, |(_, scale)| scale);
            let unit = decimal::power_of_ten(scale.into()).unwrap_or(1);
            // Toward the side of `away`: -1 is down, 1 is up.
            let floor = value.div_euclid(unit);
            Value::Decimal(if away > 0 && value.rem_euclid(unit) != 0 { floor + 1 } else { floor })
        }
        other => other.clone(),
    }
}

/// A number with so many digits after the point; before it, if the count is negative.
fn digits(c: &Call<'_>, nearest: bool) -> Value {
    let count = c.int_or(1, 0).clamp(-40, 400) as i32;
    let float = |value: f64| {
        let unit = 10f64.powi(count);
        let scaled = value * unit;
        let cut = if nearest { scaled.round() } else { scaled.trunc() };
        if scaled.is_finite() && unit != 0.0 { cut / unit } else { value }
    };
    let exact = |value: i128, scale: i32| {
        if count >= scale {
            return Some(value);
        }
        let Some(unit) = decimal::power_of_ten((scale - count).unsigned_abs()) else { return Some(0) };
        let (cut, rest) = (value / unit, (value % unit).unsigned_abs());
        let up = nearest && rest * 2 >= unit.unsigned_abs();
        (cut + if up { value.signum() } else { 0 }).checked_mul(unit)
    };
    match &c.args[0] {
        Value::Float(value) => Value::Float(float((*value).into()) as f32),
        Value::Double(value) => Value::Double(float(*value)),
        Value::Int(value) => {
            let rounded = exact((*value).into(), 0).unwrap_or(0);
            Value::Int(cast::wrap(rounded as i64, &c.ty.data))
        }
        Value::Decimal(value) => {
            let (precision, scale) = c.types[0].data.as_decimal().unwrap_or((38, 0));
            match exact(*value, scale.into()) {
                Some(value) if decimal::fits(value, precision) => Value::Decimal(value),
                _ => Value::Null,
            }
        }
        other => other.clone(),
    }
}
