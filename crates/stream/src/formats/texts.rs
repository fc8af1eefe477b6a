//! Converts single values from and to the text of formats.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::batch::Column;
use crate::error::{Error, Result};
use crate::types::{DataType, Scalar, Type, Value, cast};

/// Appends NULL to a column that may have it.
pub fn push_null(name: &str, ty: &Type, column: &mut Column) -> Result<()> {
    if !ty.nullable {
        return Err(Error::invalid(format!("NULL for `{name}`"), format!("a value of {ty}")));
    }
    column.push_null();
    Ok(())
}

/// Parses a value and appends it to its column; NULL without a text.
pub fn push_or_null(text: Option<&str>, name: &str, ty: &Type, column: &mut Column) -> Result<()> {
    match text {
        Some(text) => push(text, name, ty, column),
        None => push_null(name, ty, column),
    }
}

/// Parses a value and appends it to its column.
pub fn push(text: &str, name: &str, ty: &Type, column: &mut Column) -> Result<()> {
    let value = match &ty.data {
        data if data.is_character() => return column.push_text(text.as_bytes()),
        DataType::Bytes => return column.push_text(&decode(text, name)?),
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
    match value {
        Some(Value::Int(value)) => column.push_int(value),
        Some(Value::Null) => push_null(name, ty, column),
        Some(value) => column.push(&value),
        None => Err(Error::invalid(format!("'{text}' for `{name}`"), &ty.data)),
    }
}

/// Bytes as formats represent them in text.
fn decode(text: &str, name: &str) -> Result<Vec<u8>> {
    BASE64
        .decode(text.trim())
        .map_err(|error| Error::invalid(format!("'{text}' for `{name}` ({error})"), "bytes in base64"))
}

/// Appends the text of a value in a format.
pub fn write(value: Scalar<'_>, ty: &DataType, out: &mut String) {
    match (value, ty) {
        (Scalar::Boolean(value), _) => out.push_str(if value { "true" } else { "false" }),
        (Scalar::Text(bytes), DataType::Bytes) => BASE64.encode_string(bytes, out),
        (value, DataType::TimestampLtz(_)) => {
            value.write_text(ty, out);
            out.push('Z');
        }
        (value, _) => value.write_text(ty, out),
    }
}
