//! Literals: numbers, texts, intervals, units of time.

use sqlparser::ast::{self, DateTimeField};

use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::types::time::Unit;
use crate::types::{DataType, Type, Value, decimal};

/// An integer literal.
pub(super) fn integer(value: i64) -> Expr {
    let data = if i32::try_from(value).is_ok() { DataType::Int } else { DataType::BigInt };
    Expr::Literal(Value::Int(value), Type::not_null(data))
}

/// A literal that the library parsed.
pub(super) fn literal(value: &ast::Value) -> Result<Expr> {
    Ok(match value {
        ast::Value::Number(digits, _) => number(digits)?,
        ast::Value::SingleQuotedString(text) | ast::Value::NationalStringLiteral(text) => Expr::text(text),
        ast::Value::Boolean(value) => Expr::boolean(*value),
        ast::Value::Null => Expr::null(DataType::Null),
        ast::Value::HexStringLiteral(digits) => {
            let bytes: Option<Vec<u8>> = (0..digits.len())
                .step_by(2)
                .map(|at| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
                .collect();
            let bytes =
                bytes.ok_or_else(|| Error::syntax(format!("X'{digits}'"), "pairs of hexadecimal digits"))?;
            Expr::Literal(Value::Bytes(bytes.into()), Type::not_null(DataType::Bytes))
        }
        other => {
            return Err(Error::syntax(
                format!("`{other}`"),
                "a number, a text in single quotes, TRUE, FALSE or NULL",
            ));
        }
    })
}

/// An integer is INT or BIGINT, a number with a point is DECIMAL, one with an exponent DOUBLE.
pub(super) fn number(digits: &str) -> Result<Expr> {
    let too_long = || Error::invalid(format!("the number {digits}"), "at most 38 digits");
    if digits.contains(['e', 'E']) {
        let value: f64 = digits.parse().map_err(|_| Error::syntax(digits, "a number"))?;
        return Ok(Expr::Literal(Value::Double(value), Type::not_null(DataType::Double)));
    }
    if !digits.contains('.')
        && let Ok(value) = digits.parse()
    {
        return Ok(integer(value));
    }
    let scale = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let scale = u8::try_from(scale).map_err(|_| too_long())?;
    let units =
        decimal::parse(digits, scale).filter(|units| decimal::fits(*units, 38)).ok_or_else(too_long)?;
    if scale > 38 {
        return Err(too_long());
    }
    let count = units.unsigned_abs().checked_ilog10().unwrap_or(0) as u8 + 1;
    let data = DataType::Decimal { precision: count.max(scale).max(1), scale };
    Ok(Expr::Literal(Value::Decimal(units), Type::not_null(data)))
}

/// A unit of time as the text that functions expect.
pub(super) fn unit(field: &DateTimeField) -> Result<Expr> {
    unit_named(&field.to_string())
}

/// As above, by its name.
pub(super) fn unit_named(name: &str) -> Result<Expr> {
    let units = ["SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "MILLISECOND"];
    match Unit::parse(name) {
        Some(_) => Ok(Expr::text(&name.to_ascii_uppercase())),
        None => Err(Error::invalid(format!("unit `{name}`"), "a unit of time").did_you_mean(name, units)),
    }
}

/// `INTERVAL '10' SECOND`, `INTERVAL '1 02:03' DAY TO MINUTE`.
pub(super) fn interval_literal(interval: &ast::Interval) -> Result<Expr> {
    const UNITS: [(&str, i64, bool); 7] = [
        ("YEAR", 12, true),
        ("MONTH", 1, true),
        ("DAY", 86_400_000, false),
        ("HOUR", 3_600_000, false),
        ("MINUTE", 60_000, false),
        ("SECOND", 1000, false),
        ("WEEK", 604_800_000, false),
    ];
    let wrong = |found: &str| {
        Error::invalid(
            format!("INTERVAL '{found}'"),
            "numbers for its units, as in INTERVAL '1 02:03' DAY TO MINUTE",
        )
    };
    let ast::Expr::Value(value) = &*interval.value else {
        return Err(Error::syntax(
            format!("INTERVAL {}", interval.value),
            "a text, as in INTERVAL '10' SECOND",
        ));
    };
    let ast::Value::SingleQuotedString(text) = &value.value else {
        return Err(Error::syntax(
            format!("INTERVAL {}", interval.value),
            "a text, as in INTERVAL '10' SECOND",
        ));
    };
    let place = |field: &Option<DateTimeField>| {
        let name = field.as_ref()?.to_string().to_ascii_uppercase();
        let name = name.strip_suffix('S').unwrap_or(&name);
        UNITS.iter().position(|(unit, ..)| *unit == name)
    };
    let Some(first) = place(&interval.leading_field) else {
        return Err(Error::syntax(
            "an interval without a unit that Flink has",
            "SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR",
        ));
    };
    let last = if interval.last_field.is_some() {
        place(&interval.last_field).ok_or_else(|| wrong(text))?
    } else {
        first
    };
    let months = UNITS[first].2;
    if last < first || UNITS[last].2 != months {
        return Err(wrong(text));
    }
    let (negative, digits) = match text.trim().strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.trim()),
    };
    let mut total: i64 = 0;
    let parts: Vec<&str> = digits.split([' ', ':', '-']).collect();
    if parts.len() != last - first + 1 {
        return Err(wrong(text));
    }
    for (part, (name, factor, _)) in parts.iter().zip(&UNITS[first..=last]) {
        let scale = if *name == "SECOND" { 3 } else { 0 };
        let whole = part.contains('.') && scale == 0;
        let amount = decimal::parse(part, scale).filter(|_| !whole).ok_or_else(|| wrong(text))?;
        let amount = i64::try_from(amount).map_err(|_| wrong(text))?;
        let amount = if scale == 3 { Some(amount) } else { amount.checked_mul(*factor) };
        total = amount.and_then(|amount| total.checked_add(amount)).ok_or_else(|| wrong(text))?;
    }
    // A million years in months, a thousand in days: sums of timestamps and intervals stay within 64 bits of
    // microseconds.
    let limit = if months { 12_000_000 } else { 31_556_952_000_000 };
    if total > limit {
        return Err(wrong(text));
    }
    let data = if months { DataType::IntervalMonths } else { DataType::IntervalMillis };
    Ok(Expr::Literal(Value::Int(if negative { -total } else { total }), Type::not_null(data)))
}
