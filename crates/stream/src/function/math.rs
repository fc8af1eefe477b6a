//! Numeric functions.

use super::Nulls::{Strict, StrictAndMore};
use super::Param::{Double, Integer, Number};
use super::{Call, Function, Returns, function};
use crate::types::{DataType, PRECISION_MAX, Type, Value, cast, decimal};

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
            // Zero keeps its sign.
            Value::Float(value) => Value::Float(if *value == 0.0 { *value } else { value.signum() }),
            Value::Double(value) => Value::Double(if *value == 0.0 { *value } else { value.signum() }),
            Value::Decimal(value) => {
                let scale = c.types[0].data.as_decimal().map_or(0, |(_, scale)| scale);
                let one = decimal::power_of_ten(scale.into()).unwrap_or(0);
                // A type without digits before the point cannot represent one.
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

/// The type of a number without digits after the point. Rounding up may need one digit more before the point.
fn whole(types: &[Type]) -> DataType {
    match types.first().map(|ty| &ty.data) {
        Some(DataType::Decimal { precision, .. }) => DataType::Decimal { precision: *precision, scale: 0 },
        Some(other) => other.clone(),
        None => DataType::Null,
    }
}

/// The type of ROUND and TRUNCATE of a DECIMAL: `count` digits remain after the point, if `count` is constant.
pub(crate) fn rounded(precision: u8, scale: u8, count: i64) -> DataType {
    let whole = precision - scale + 1;
    match u8::try_from(count) {
        Ok(count) if count >= scale => DataType::Decimal { precision, scale },
        // One digit more before the point: 9.99 rounds up to 10.
        Ok(count) => DataType::Decimal { precision: whole + count, scale: count },
        Err(_) if count > 0 => DataType::Decimal { precision, scale },
        Err(_) => DataType::Decimal { precision: whole.min(PRECISION_MAX), scale: 0 },
    }
}

fn round_to(c: &Call<'_>, float: fn(f64) -> f64, away: i128) -> Value {
    match &c.args[0] {
        Value::Float(value) => Value::Float(float((*value).into()) as f32),
        Value::Double(value) => Value::Double(float(*value)),
        Value::Decimal(value) => {
            let scale = c.types[0].data.as_decimal().map_or(0, |(_, scale)| scale);
            let unit = decimal::power_of_ten(scale.into()).unwrap_or(1);
            // Rounds towards the direction `away`: -1 is down, 1 is up.
            let floor = value.div_euclid(unit);
            Value::Decimal(if away > 0 && value.rem_euclid(unit) != 0 { floor + 1 } else { floor })
        }
        other => other.clone(),
    }
}

/// A number rounded to this many digits after the point; before it, if the count is negative.
fn digits(c: &Call<'_>, nearest: bool) -> Value {
    let count = c.int_or(1, 0).clamp(-40, 400) as i32;
    let float = |value: f64| round_digits(value, count, nearest);
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
            let from = c.types[0].data.as_decimal().map_or(0, |(_, scale)| scale);
            let (precision, scale) = c.ty.data.as_decimal().unwrap_or((38, 0));
            // The digits to cut off are zero by now.
            match exact(*value, from.into()).and_then(|value| decimal::rescale(value, from, scale)) {
                Some(value) if decimal::fits(value, precision) => Value::Decimal(value),
                _ => Value::Null,
            }
        }
        other => other.clone(),
    }
}

/// A double rounded to this many digits after the point of its shortest decimal text: 2.675 becomes 2.68, though the
/// double is less than that. Zero has no sign. NaN and infinity stay.
fn round_digits(value: f64, count: i32, nearest: bool) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    // The number of digits that remain; the first one is `exponent` places before the point.
    let kept = exponent.saturating_add(1).saturating_add(count);
    if kept >= digits.len() as i32 {
        return value + 0.0;
    }
    let Ok(kept) = usize::try_from(kept) else { return 0.0 };
    let mut whole: u128 = digits[..kept].iter().fold(0, |whole, digit| whole * 10 + u128::from(digit - b'0'));
    if nearest && digits[kept] >= b'5' {
        whole += 1;
    }
    let rounded = format!("{whole}e{}", -count).parse().unwrap_or(value);
    if whole == 0 { 0.0 } else { f64::copysign(rounded, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_rounded_by_their_shortest_text() {
        for (value, count, nearest, wanted) in [
            (2.675, 2, true, 2.68),
            (2.675, 2, false, 2.67),
            (-2.5, 0, true, -3.0),
            (-0.0, 3, true, 0.0),
            (0.05, 0, true, 0.0),
            (0.95, 0, true, 1.0),
            (950.0, -2, true, 1000.0),
            (49.0, -2, true, 0.0),
            (4.9e-324, 1, true, 0.0),
            (f64::MAX, 1, true, f64::MAX),
            (1.5, 400, true, 1.5),
        ] {
            let found = round_digits(value, count, nearest);
            assert_eq!(found.to_bits(), f64::to_bits(wanted), "{value} with {count} digits: {found}");
        }
        assert!(round_digits(f64::NAN, 1, true).is_nan());
    }

    #[test]
    fn a_rounded_decimal_has_room_for_one_digit_more() {
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        assert_eq!(rounded(3, 2, 1), decimal(3, 1));
        assert_eq!(rounded(10, 3, -2), decimal(8, 0));
        assert_eq!(rounded(38, 0, -1), decimal(38, 0));
        assert_eq!(rounded(10, 3, 5), decimal(10, 3));
        assert_eq!(rounded(10, 3, 1000), decimal(10, 3));
    }
}
