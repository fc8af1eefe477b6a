//! Fields of an object, appended to columns as the parser comes to them. Fields that are not wanted are only scanned
//! for their ends.
//!
//! # Invariants
//!
//! 1. [`Reader::read_directly`] appends what [`Reader::read_carefully`] appends, or fails; then the careful way is
//!    taken, from the first byte. Only the careful way tells what is wrong with a record.
//! 2. Numbers keep the digits of the text: what the parser would round or normalise is read from the text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor,
};
use serde_json::de::{Deserializer, StrRead};
use serde_json::value::RawValue;

use super::Json;
use crate::batch::{Batch, Column};
use crate::error::{Error, Result};
use crate::formats::Wanted;
use crate::formats::texts::{push, push_null};
use crate::function::json::{Fields, PlaceOf, compact};
use crate::types::{DataType, Type, cast, write_int};

/// Reads objects.
pub struct Reader {
    json: Json,
    /// For each wanted column whether its values are read from their texts.
    by_text: Vec<bool>,
}

impl Reader {
    /// A reader of these columns.
    pub fn new(json: Json, wanted: &[Wanted]) -> Reader {
        // The parser does not round to the nearest DOUBLE, and drops digits of a DECIMAL.
        let by_text = |wanted: &Wanted| {
            let ty = &wanted.ty.data;
            ty.is_approximate() || matches!(ty, DataType::Decimal { .. } | DataType::Bytes)
        };
        Reader { json, by_text: wanted.iter().map(by_text).collect() }
    }

    /// Appends the wanted fields of an object.
    pub fn read(&mut self, text: &str, wanted: &[Wanted], batch: &mut Batch) -> Result<()> {
        if self.read_directly(text, wanted, batch) {
            return Ok(());
        }
        batch.undo_row();
        self.read_carefully(text, wanted, batch)
    }

    /// Appends each field as the parser comes to it; returns whether that succeeded.
    pub fn read_directly(&mut self, text: &str, wanted: &[Wanted], batch: &mut Batch) -> bool {
        let mut reader = Deserializer::new(StrRead::new(text));
        let object = Object { wanted, by_text: &mut self.by_text, batch: &mut *batch };
        if reader.deserialize_map(object).and_then(|()| reader.end()).is_err() {
            return false;
        }
        let rows = batch.rows();
        for Wanted { column, ty, .. } in wanted {
            let column = &mut *batch.columns[*column];
            if column.len() == rows {
                if self.json.fail_on_missing || !ty.nullable {
                    return false;
                }
                column.push_null();
            }
        }
        true
    }

    /// Finds the texts of all fields first, and then appends the values in the order of the columns.
    pub fn read_carefully(&self, text: &str, wanted: &[Wanted], batch: &mut Batch) -> Result<()> {
        if !text.trim_ascii_start().starts_with('{') {
            let what = serde_json::from_str::<&RawValue>(text).map_or("no JSON".to_owned(), kind_of);
            return Err(Error::invalid(what, "an object on each line"));
        }
        let mut found: Vec<Option<&RawValue>> = vec![None; wanted.len()];
        let mut reader = Deserializer::new(StrRead::new(text));
        let read = reader.deserialize_map(Fields { names: wanted, found: &mut found });
        read.and_then(|()| reader.end())
            .map_err(|error| Error::invalid(format!("no JSON ({error})"), "an object on each line"))?;
        for (Wanted { column, name, ty, .. }, found) in wanted.iter().zip(found) {
            let column = &mut *batch.columns[*column];
            match found {
                None if self.json.fail_on_missing => {
                    let wanted = "it: 'json.fail-on-missing-field' = 'true'";
                    return Err(Error::invalid(format!("no field `{name}`"), wanted));
                }
                None => push_null(name, ty, column)?,
                Some(found) => push_json(found.get(), name, ty, column)?,
            }
        }
        Ok(())
    }
}

/// The kind of a JSON text, for errors.
fn kind_of(json: &RawValue) -> String {
    match json.get().as_bytes().first() {
        Some(b'[') => "an array".to_owned(),
        Some(b'"') => "a string".to_owned(),
        _ => json.get().chars().take(40).collect(),
    }
}

/// Appends the value of a JSON text.
fn push_json(json: &str, name: &str, ty: &Type, column: &mut Column) -> Result<()> {
    match json.as_bytes().first() {
        Some(b'n') => push_null(name, ty, column),
        Some(b'"') => {
            let text: Cow<'_, str> = match json.get(1..json.len() - 1).filter(|text| !text.contains('\\')) {
                Some(text) => Cow::Borrowed(text),
                None => Cow::Owned(serde_json::from_str(json).map_err(|error| {
                    Error::invalid(format!("{json} for `{name}` ({error})"), "a string of JSON")
                })?),
            };
            push(&text, name, ty, column)
        }
        Some(b'{' | b'[') if ty.data.is_character() => column.push_text(compact(json).as_bytes()),
        Some(b'{' | b'[') => Err(Error::invalid(format!("{json} for `{name}`"), &ty.data)),
        Some(b't' | b'f') if ty.data == DataType::Bytes => column.push_text(json.as_bytes()),
        Some(b't' | b'f') => push(json, name, ty, column),
        _ if ty.data == DataType::Bytes => {
            Err(Error::invalid(format!("{json} for `{name}`"), "a string of base64"))
        }
        // A whole number may be written with a point or an exponent: 1.0, 1e3.
        _ if ty.data.is_integer() => push(&whole(json).unwrap_or(Cow::Borrowed(json)), name, ty, column),
        _ => push(json, name, ty, column),
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

/// Appends the fields of an object to the columns of a batch.
struct Object<'r> {
    wanted: &'r [Wanted],
    by_text: &'r mut [bool],
    batch: &'r mut Batch,
}

impl<'t> Visitor<'t> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<(), A::Error> {
        let rows = self.batch.rows();
        let mut likely = 0;
        while let Some(found) = map.next_key_seed(PlaceOf { names: self.wanted, likely })? {
            let Some(place) = found else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            likely = place + 1;
            let Wanted { column, name, ty, .. } = &self.wanted[place];
            let column = &mut *self.batch.columns[*column];
            if column.len() > rows {
                return Err(A::Error::custom("the field has come before"));
            }
            map.next_value_seed(Field { name, ty, column, by_text: &mut self.by_text[place] })?;
        }
        Ok(())
    }
}

/// Appends one value to its column.
struct Field<'r> {
    name: &'r str,
    ty: &'r Type,
    column: &'r mut Column,
    by_text: &'r mut bool,
}

impl Field<'_> {
    /// The error for a value whose text is needed: from the next object on it is read from there.
    fn needs_text<E: serde::de::Error>(self) -> Result<(), E> {
        *self.by_text = true;
        Err(E::custom("the text of the value is needed"))
    }

    fn push<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        push(text, self.name, self.ty, self.column).map_err(E::custom)
    }
}

impl<'t> DeserializeSeed<'t> for Field<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'t>>(self, value: D) -> Result<(), D::Error> {
        if !*self.by_text {
            return value.deserialize_any(self);
        }
        let json = <&RawValue>::deserialize(value)?.get();
        push_json(json, self.name, self.ty, self.column).map_err(D::Error::custom)
    }
}

impl<'t> Visitor<'t> for Field<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        push_null(self.name, self.ty, self.column).map_err(E::custom)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.push(text)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.push(if value { "true" } else { "false" })
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        let ty = &self.ty.data;
        if ty.is_integer() && cast::wrap(value, ty) == value {
            return self.column.push_int(value).map_err(E::custom);
        }
        let mut text = String::new();
        write_int(value, &mut text);
        self.push(&text)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.needs_text(),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.needs_text()
    }

    fn visit_map<A: MapAccess<'t>>(self, _: A) -> Result<(), A::Error> {
        self.needs_text()
    }

    fn visit_seq<A: serde::de::SeqAccess<'t>>(self, _: A) -> Result<(), A::Error> {
        self.needs_text()
    }
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
}
