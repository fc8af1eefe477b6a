//! JSON with the options of Flink's format: parses fields of an object to values, and writes them. Numbers keep the
//! digits of the text. Fields that are not wanted are only scanned for their ends.

use std::borrow::Cow;

use serde_json::de::{Deserializer, StrRead};
use serde_json::value::RawValue;

use super::texts::{decode, not_null, parse};
use crate::error::{Error, Result};
use crate::function::json::{Fields, compact};
use crate::types::{DataType, Row, Type, Value, decimal};

/// The JSON options of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json {
    /// Whether a missing field is an error instead of NULL.
    pub fail_on_missing: bool,
    /// Whether timestamps are written with a `T`.
    pub iso: bool,
    /// Whether DECIMAL is written with all its digits, and never with an exponent.
    pub plain: bool,
}

impl Default for Json {
    fn default() -> Self {
        Json { fail_on_missing: false, iso: false, plain: true }
    }
}

/// The wanted columns of an object: name, type.
pub fn read<'w>(
    json: &Json,
    text: &str,
    wanted: impl Iterator<Item = (&'w str, &'w Type)> + Clone,
) -> Result<Row> {
    if !text.trim_ascii_start().starts_with('{') {
        let what = serde_json::from_str::<&RawValue>(text).map_or("no JSON".to_owned(), kind_of);
        return Err(Error::invalid(what, "an object on each line"));
    }
    let names: Vec<&str> = wanted.clone().map(|(name, _)| name).collect();
    let mut found: Vec<Option<&RawValue>> = vec![None; names.len()];
    let mut reader = Deserializer::new(StrRead::new(text));
    let read = serde::Deserializer::deserialize_map(&mut reader, Fields { names: &names, found: &mut found });
    read.and_then(|()| reader.end())
        .map_err(|error| Error::invalid(format!("no JSON ({error})"), "an object on each line"))?;
    let value = |((name, ty), found): ((&str, &Type), Option<&RawValue>)| match found {
        None if json.fail_on_missing => {
            Err(Error::invalid(format!("no field `{name}`"), "it: 'json.fail-on-missing-field' = 'true'"))
        }
        None => not_null(Value::Null, name, ty),
        Some(found) => value(found.get(), name, ty),
    };
    wanted.zip(found).map(value).collect()
}

/// The kind of a JSON text, for errors.
fn kind_of(json: &RawValue) -> String {
    match json.get().as_bytes().first() {
        Some(b'[') => "an array".to_owned(),
        Some(b'"') => "a string".to_owned(),
        _ => json.get().chars().take(40).collect(),
    }
}

fn value(json: &str, name: &str, ty: &Type) -> Result<Value> {
    match json.as_bytes().first() {
        Some(b'n') => not_null(Value::Null, name, ty),
        Some(b'"') => {
            let text: Cow<'_, str> = match json.get(1..json.len() - 1).filter(|text| !text.contains('\\')) {
                Some(text) => Cow::Borrowed(text),
                None => Cow::Owned(serde_json::from_str(json).map_err(|error| {
                    Error::invalid(format!("{json} for `{name}` ({error})"), "a string of JSON")
                })?),
            };
            if ty.data == DataType::Bytes {
                return decode(&text, name);
            }
            parse(&text, name, ty)
        }
        Some(b'{' | b'[') if ty.data.is_character() => Ok(Value::string(compact(json))),
        Some(b'{' | b'[') => Err(Error::invalid(format!("{json} for `{name}`"), &ty.data)),
        Some(b't' | b'f') => parse(json, name, ty),
        _ if ty.data == DataType::Bytes => {
            Err(Error::invalid(format!("{json} for `{name}`"), "a string of base64"))
        }
        // A whole number may be written with a point or an exponent: 1.0, 1e3.
        _ if ty.data.is_integer() => parse(&whole(json).unwrap_or(Cow::Borrowed(json)), name, ty),
        _ => parse(json, name, ty),
    }
}

/// The digits of an integer in any notation.
fn whole(json: &str) -> Option<Cow<'_, str>> {
    if !json.contains(['.', 'e', 'E']) {
        return Some(Cow::Borrowed(json));
    }
    let (mantissa, exponent) = json.split_once(['e', 'E']).unwrap_or((json, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{before}{after}");
    let digits = digits.trim_end_matches('0');
    if digits.trim_start_matches('0').is_empty() {
        return Some(Cow::Borrowed("0"));
    }
    let point = i64::try_from(before.len()).ok()?.checked_add(exponent.parse::<i64>().ok()?)?;
    let zeros = usize::try_from(point).ok()?.checked_sub(digits.len()).filter(|zeros| *zeros < 40)?;
    Some(Cow::Owned(format!("{sign}{digits}{}", "0".repeat(zeros))))
}

/// Appends an object with a field for each value.
pub fn write(json: &Json, names: &[String], types: &[DataType], row: &[Value], out: &mut String) {
    let mut before = '{';
    for (name, (value, ty)) in names.iter().zip(row.iter().zip(types)) {
        out.push(before);
        before = ',';
        put_text(name, out);
        out.push(':');
        put(json, value, ty, out);
    }
    out.push_str(if before == '{' { "{}" } else { "}" });
}

fn put_text(text: &str, out: &mut String) {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::Value::from(text).to_string());
    }
}

fn put(json: &Json, value: &Value, ty: &DataType, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) if ty.is_integer() => out.push_str(&value.to_string()),
        // As in Flink: JSON has no notation for NaN and infinity.
        Value::Float(number) if !number.is_finite() => put_text(&value.text(ty), out),
        Value::Double(number) if !number.is_finite() => put_text(&value.text(ty), out),
        Value::Float(number) => out.push_str(&format!("{number:?}")),
        Value::Double(number) => out.push_str(&format!("{number:?}")),
        Value::Decimal(_) if json.plain => out.push_str(&value.text(ty)),
        Value::Decimal(units) => {
            out.push_str(&exponent_text(*units, ty.as_decimal().map_or(0, |(_, scale)| scale)));
        }
        value => {
            let mut text = super::texts::text(value, ty);
            if json.iso && ty.is_timestamp() {
                text = text.replacen(' ', "T", 1);
            }
            put_text(&text, out);
        }
    }
}

/// As Java writes a `BigDecimal` without trailing zeros: `1E+2`, `2.7E-8`.
fn exponent_text(units: i128, scale: u8) -> String {
    let digits = units.unsigned_abs().to_string();
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    // Digits after the point; negative if zeros are missing before it.
    let behind = i64::from(scale) - (digits.len() - significant.len()) as i64;
    let power = significant.len() as i64 - 1 - behind;
    if behind >= 0 && power >= -6 {
        let short = units / 10i128.pow((digits.len() - significant.len()) as u32);
        return decimal::text(short, behind as u8);
    }
    let (first, rest) = significant.split_at(1);
    let (sign, point) = (if units < 0 { "-" } else { "" }, if rest.is_empty() { "" } else { "." });
    format!("{sign}{first}{point}{rest}E{power:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_recognized_in_every_notation() {
        for (json, digits) in [
            ("12", Some("12")),
            ("1.0", Some("1")),
            ("-1.50e1", Some("-15")),
            ("1e3", Some("1000")),
            ("0.0", Some("0")),
            ("120e-1", Some("12")),
            ("1.9", None),
            ("1e-1", None),
            ("1e400", None),
        ] {
            assert_eq!(whole(json).as_deref(), digits, "{json}");
        }
    }

    #[test]
    fn decimals_with_exponents_are_written_as_in_java() {
        for (units, scale, text) in [
            (1250, 2, "12.5"),
            (10_000, 2, "1E+2"),
            (27, 9, "2.7E-8"),
            (-27, 9, "-2.7E-8"),
            (1, 6, "0.000001"),
            (0, 5, "0"),
            (12, 0, "12"),
        ] {
            assert_eq!(exponent_text(units, scale), text);
        }
    }
}
