//! The value of an expression for a row. This defines the meaning of every expression: constant folding uses it, and
//! compiled code is compared with it.

use super::{Expr, Op};
use crate::error::{Error, Result};
use crate::function::{Call, Clock, bounded, is_json, like, similar};
use crate::types::time::{DAY_MICROS, MILLI_MICROS, Unit};
use crate::types::{DataType, Type, Value, cast, decimal};

/// Computes an expression over a row. AND, OR, CASE and COALESCE stop as soon as the result is known.
pub fn eval(expr: &Expr, row: &[Value], clock: Clock) -> Result<Value> {
    match expr {
        Expr::Column(index, _) => row.get(*index).cloned().ok_or_else(|| {
            Error::evaluation(format!("a row of {} columns has no column {index}", row.len()))
        }),
        Expr::Literal(value, _) => Ok(value.clone()),
        Expr::Call(function, args, ty) => {
            let types: Vec<Type> = args.iter().map(|arg| arg.ty().clone()).collect();
            let args: Result<Vec<Value>> = args.iter().map(|arg| eval(arg, row, clock)).collect();
            function.call(&Call { args: &args?, types: &types, ty, clock })
        }
        Expr::Case(branches, otherwise, _) => {
            for (condition, result) in branches {
                if eval(condition, row, clock)?.as_truth() == Some(true) {
                    return eval(result, row, clock);
                }
            }
            eval(otherwise, row, clock)
        }
        Expr::Cast { expr, ty, safe } => {
            let value = eval(expr, row, clock)?;
            match cast::cast(&value, &expr.ty().data, &ty.data) {
                Err(_) if *safe => Ok(Value::Null),
                other => other,
            }
        }
        Expr::Op(op, args, ty) => operator(*op, args, ty, row, clock),
    }
}

fn operator(op: Op, args: &[Expr], ty: &Type, row: &[Value], clock: Clock) -> Result<Value> {
    match op {
        // The value that decides the result alone: FALSE for AND, TRUE for OR. NULL decides nothing.
        Op::And | Op::Or => {
            let decides = op == Op::Or;
            let mut unknown = false;
            for arg in args {
                match eval(arg, row, clock)?.as_truth() {
                    Some(value) if value == decides => return Ok(Value::Boolean(decides)),
                    Some(_) => {}
                    None => unknown = true,
                }
            }
            return Ok(if unknown { Value::Null } else { Value::Boolean(!decides) });
        }
        Op::Coalesce => {
            for arg in args {
                let value = eval(arg, row, clock)?;
                if !value.is_null() {
                    return Ok(value);
                }
            }
            return Ok(Value::Null);
        }
        _ => {}
    }
    let values: Result<Vec<Value>> = args.iter().map(|arg| eval(arg, row, clock)).collect();
    let values = values?;
    match (op, values.as_slice()) {
        (Op::IsNull, [value]) => return Ok(Value::Boolean(value.is_null())),
        (Op::IsTrue, [value]) => return Ok(Value::Boolean(value.as_truth() == Some(true))),
        (Op::IsFalse, [value]) => return Ok(Value::Boolean(value.as_truth() == Some(false))),
        (Op::Same, [a, b]) => return Ok(Value::Boolean(a == b)),
        // NULL is not JSON, as in Flink.
        (Op::IsJson, [Value::Null, _]) => return Ok(Value::Boolean(false)),
        (Op::Array, values) => return Ok(Value::Array(values.into())),
        (Op::Row, values) => return Ok(Value::Row(values.into())),
        (Op::In, [value, list @ ..]) => {
            if value.is_null() {
                return Ok(Value::Null);
            }
            if list.iter().any(|item| !item.is_null() && sql_equal(item, value)) {
                return Ok(Value::Boolean(true));
            }
            return Ok(if list.iter().any(Value::is_null) { Value::Null } else { Value::Boolean(false) });
        }
        _ => {}
    }
    if values.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    Ok(match (op, values.as_slice()) {
        (Op::Not, [Value::Boolean(value)]) => Value::Boolean(!value),
        (Op::Equal, [a, b]) => Value::Boolean(sql_equal(a, b)),
        (Op::NotEqual, [a, b]) => Value::Boolean(!sql_equal(a, b)),
        (Op::Less, [a, b]) => Value::Boolean(comparable(a, b) && a.order(b).is_lt()),
        (Op::LessEqual, [a, b]) => Value::Boolean(comparable(a, b) && a.order(b).is_le()),
        (Op::Greater, [a, b]) => Value::Boolean(comparable(a, b) && a.order(b).is_gt()),
        (Op::GreaterEqual, [a, b]) => Value::Boolean(comparable(a, b) && a.order(b).is_ge()),
        (Op::Negate, [value]) => match value {
            Value::Int(value) => Value::Int(cast::wrap(value.wrapping_neg(), &ty.data)),
            Value::Float(value) => Value::Float(-value),
            Value::Double(value) => Value::Double(-value),
            Value::Decimal(value) => Value::Decimal(-value),
            other => other.clone(),
        },
        (Op::Concat, values) => {
            let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            bounded(texts.iter().map(|text| text.len()).sum(), "||")?;
            Value::string(texts.concat())
        }
        (Op::Greatest | Op::Least, [first, rest @ ..]) => {
            let wanted = |a: &Value, b: &Value| {
                if op == Op::Greatest { a.order(b).is_gt() } else { a.order(b).is_lt() }
            };
            rest.iter()
                .fold(first.clone(), |best, value| if wanted(value, &best) { value.clone() } else { best })
        }
        (Op::Like, [text, pattern, escape @ ..]) => Value::Boolean(like(
            text.as_str().unwrap_or_default(),
            pattern.as_str().unwrap_or_default(),
            escape.first().and_then(Value::as_str).and_then(|escape| escape.chars().next()),
        )?),
        (Op::Similar, [text, pattern, escape @ ..]) => Value::Boolean(similar(
            text.as_str().unwrap_or_default(),
            pattern.as_str().unwrap_or_default(),
            escape.first().and_then(Value::as_str).and_then(|escape| escape.chars().next()),
        )?),
        (Op::IsJson, [text, kind]) => {
            Value::Boolean(is_json(text.as_str().unwrap_or_default(), kind.as_str().unwrap_or_default()))
        }
        (Op::Field(index), [Value::Row(fields)]) => fields.get(index).cloned().unwrap_or(Value::Null),
        (Op::Element, [Value::Array(values), Value::Int(index)]) => {
            let place = index.checked_sub(1).and_then(|index| usize::try_from(index).ok());
            place.and_then(|place| values.get(place)).cloned().unwrap_or(Value::Null)
        }
        (Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Remainder, [a, b]) => {
            arithmetic(op, a, b, &args[0].ty().data, &args[1].ty().data, &ty.data)?
        }
        // A longer sum: each operand is added to the partial result of those before it, which has the result's type.
        (Op::Add, [first, second, rest @ ..]) => {
            let mut sum = arithmetic(op, first, second, &args[0].ty().data, &args[1].ty().data, &ty.data)?;
            for (value, arg) in rest.iter().zip(&args[2..]) {
                if sum.is_null() {
                    return Ok(Value::Null);
                }
                sum = arithmetic(op, &sum, value, &ty.data, &arg.ty().data, &ty.data)?;
            }
            sum
        }
        _ => return Err(Error::evaluation(format!("{op:?} is not defined for {values:?}"))),
    })
}

/// Equality in SQL: unlike in grouping, NaN equals nothing.
fn sql_equal(a: &Value, b: &Value) -> bool {
    comparable(a, b) && a == b
}

fn comparable(a: &Value, b: &Value) -> bool {
    let nan = |value: &Value| match value {
        Value::Float(value) => value.is_nan(),
        Value::Double(value) => value.is_nan(),
        _ => false,
    };
    !nan(a) && !nan(b)
}

fn arithmetic(
    op: Op,
    a: &Value,
    b: &Value,
    left: &DataType,
    right: &DataType,
    ty: &DataType,
) -> Result<Value> {
    let by_zero = || Error::evaluation("division by zero");
    Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) if right.is_interval() || left.is_interval() => {
            Value::Int(moment(op, *a, *b, left, right))
        }
        (Value::Int(a), Value::Int(b)) => {
            let value = match op {
                Op::Add => a.wrapping_add(*b),
                Op::Subtract => a.wrapping_sub(*b),
                Op::Multiply => a.wrapping_mul(*b),
                Op::Divide if *b == 0 => return Err(by_zero()),
                Op::Divide => a.wrapping_div(*b),
                _ if *b == 0 => return Err(by_zero()),
                _ => a.wrapping_rem(*b),
            };
            Value::Int(cast::wrap(value, ty))
        }
        (Value::Float(a), Value::Float(b)) => Value::Float(match op {
            Op::Add => a + b,
            Op::Subtract => a - b,
            Op::Multiply => a * b,
            Op::Divide => a / b,
            _ => a % b,
        }),
        (Value::Double(a), Value::Double(b)) => Value::Double(match op {
            Op::Add => a + b,
            Op::Subtract => a - b,
            Op::Multiply => a * b,
            Op::Divide => a / b,
            _ => a % b,
        }),
        (Value::Decimal(a), Value::Decimal(b)) => {
            let scale_of = |ty: &DataType| ty.as_decimal().map_or(0, |(_, scale)| scale);
            let (scale_a, scale_b) = (scale_of(left), scale_of(right));
            let (precision, scale) = ty.as_decimal().unwrap_or((38, 0));
            // Sums are exact in the finer unit and then rounded once.
            let fine = scale_a.max(scale_b);
            let aligned =
                || Some((decimal::rescale(*a, scale_a, fine)?, decimal::rescale(*b, scale_b, fine)?));
            let units = match op {
                Op::Add => aligned()
                    .and_then(|(a, b)| a.checked_add(b))
                    .and_then(|sum| decimal::rescale(sum, fine, scale)),
                Op::Subtract => aligned()
                    .and_then(|(a, b)| a.checked_sub(b))
                    .and_then(|sum| decimal::rescale(sum, fine, scale)),
                Op::Multiply => decimal::multiply(*a, scale_a, *b, scale_b, scale),
                _ if *b == 0 => return Err(by_zero()),
                Op::Divide => decimal::divide(*a, scale_a, *b, scale_b, scale),
                _ => aligned().map(|(a, b)| a % b).and_then(|rest| decimal::rescale(rest, fine, scale)),
            };
            match units {
                Some(units) if decimal::fits(units, precision) => Value::Decimal(units),
                _ => Value::Null,
            }
        }
        _ => return Err(Error::evaluation(format!("{op:?} is not defined for {left} and {right}"))),
    })
}

/// A date, time, timestamp or interval plus or minus an interval, or an interval times a number.
fn moment(op: Op, a: i64, b: i64, left: &DataType, right: &DataType) -> i64 {
    let b = if op == Op::Subtract { b.wrapping_neg() } else { b };
    match (left, right) {
        _ if op == Op::Multiply => a.wrapping_mul(b),
        (DataType::Date, DataType::IntervalMonths) => {
            Unit::Month.add(a.wrapping_mul(DAY_MICROS), b).div_euclid(DAY_MICROS)
        }
        (DataType::Date, _) => a.wrapping_add(b.div_euclid(DAY_MICROS / MILLI_MICROS)),
        (DataType::Time(_), _) => a.wrapping_add(b).rem_euclid(DAY_MICROS / MILLI_MICROS),
        (left, DataType::IntervalMonths) if left.is_timestamp() => Unit::Month.add(a, b),
        (left, _) if left.is_timestamp() => a.wrapping_add(b.wrapping_mul(MILLI_MICROS)),
        _ => a.wrapping_add(b),
    }
}
