//! Converts single values from and to the text of formats.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::error::{Error, Result};
use crate::types::{DataType, Type, Value, cast};

/// Checks that a value is not NULL if its column is NOT NULL.
pub fn not_null(value: Value, name: &str, ty: &Type) -> Result<Value> {
    if value.is_null() && !ty.nullable {
        return Err(Error::invalid(format!("NULL for `{name}`"), format!("a value of {ty}")));
    }
    Ok(value)
}

/// Parses a value; NULL without a text.
pub fn parse_or_null(text: Option<&str>, name: &str, ty: &Type) -> Result<Value> {
    match text {
        Some(text) if ty.data == DataType::Bytes => decode(text, name),
        Some(text) => parse(text, name, ty),
        None => not_null(Value::Null, name, ty),
    }
}

/// Bytes as formats represent them in text.
pub fn decode(text: &str, name: &str) -> Result<Value> {
    match BASE64.decode(text.trim()) {
        Ok(bytes) => Ok(Value::Bytes(bytes.into())),
        Err(error) => Err(Error::invalid(format!("'{text}' for `{name}` ({error})"), "bytes in base64")),
    }
}

/// Parses a value.
pub fn parse(text: &str, name: &str, ty: &Type) -> Result<Value> {
    let value = match &ty.data {
        data if data.is_character() => Some(Value::string(text)),
        DataType::Bytes => Some(Value::Bytes(text.as_bytes().into())),
        // Not like CAST, which drops the digits after the point.
        data if data.is_integer() => {
            text.trim().parse().ok().filter(|value| cast::wrap(*value, data) == *value).map(Value::Int)
        }
        // Parsed directly: by way of DOUBLE it would be rounded twice.
        DataType::Float => match (cast::parse(text.trim(), &ty.data), text.trim().parse()) {
            (Some(_), Ok(float)) => Some(Value::Float(float)),
            (other, _) => other,
        },
        data => cast::parse(text.trim(), data),
    };
    let value = value.ok_or_else(|| Error::invalid(format!("'{text}' for `{name}`"), &ty.data))?;
    not_null(value, name, ty)
}

/// The text of a non-NULL value in a format.
pub fn text(value: &Value, ty: &DataType) -> String {
    match value {
        Value::Boolean(value) => if *value { "true" } else { "false" }.to_owned(),
        Value::Bytes(bytes) => BASE64.encode(bytes),
        Value::Int(_) if matches!(ty, DataType::TimestampLtz(_)) => format!("{}Z", value.text(ty)),
        value => value.text(ty),
    }
}
