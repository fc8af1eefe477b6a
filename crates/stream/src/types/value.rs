//! A value and a row, as the reference interpreter and constant folding see them.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{DataType, Scalar, shown};

/// A row of values, in the order of its schema.
pub type Row = Vec<Value>;

/// One value. Its [`DataType`] is known from the context and not stored: an `Int` may be of any integer type. A
/// `Decimal` has the scale of its type.
#[derive(Debug, Clone)]
pub enum Value {
    /// NULL of any type.
    Null,
    /// TRUE or FALSE.
    Boolean(bool),
    /// TINYINT to BIGINT, DATE (days), TIME (milliseconds), timestamps (microseconds), intervals
    /// (months, milliseconds).
    Int(i64),
    /// FLOAT, already rounded to single precision.
    Float(f32),
    /// DOUBLE.
    Double(f64),
    /// DECIMAL in units of its scale.
    Decimal(i128),
    /// CHAR, VARCHAR, STRING.
    String(Arc<str>),
    /// BYTES.
    Bytes(Arc<[u8]>),
    /// ARRAY.
    Array(Arc<[Value]>),
    /// ROW.
    Row(Arc<[Value]>),
}

impl Value {
    /// A string.
    pub fn string(text: impl AsRef<str>) -> Self {
        Value::String(Arc::from(text.as_ref()))
    }

    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The integer, if it is an integer, date or time.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(value) => Some(value),
            _ => None,
        }
    }

    /// Three-valued truth: `None` for NULL.
    pub fn as_truth(&self) -> Option<bool> {
        match self {
            Value::Boolean(value) => Some(*value),
            _ => None,
        }
    }

    /// Order of two values of one type, NULL first; NaN is the greatest number and equal to itself, and the two
    /// zeros are equal. This is also the equality of grouping.
    pub fn order(&self, other: &Value) -> Ordering {
        use Value::*;
        fn float(a: f64, b: f64) -> Ordering {
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        match (self, other) {
            (Boolean(a), Boolean(b)) => a.cmp(b),
            (Int(a), Int(b)) => a.cmp(b),
            (Float(a), Float(b)) => float((*a).into(), (*b).into()),
            (Double(a), Double(b)) => float(*a, *b),
            (Decimal(a), Decimal(b)) => a.cmp(b),
            (String(a), String(b)) => a.cmp(b),
            (Bytes(a), Bytes(b)) => a.cmp(b),
            (Array(a), Array(b)) | (Row(a), Row(b)) => a
                .iter()
                .zip(b.iter())
                .map(|(a, b)| a.order(b))
                .find(|order| *order != Ordering::Equal)
                .unwrap_or_else(|| a.len().cmp(&b.len())),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Value::Null => 0,
            Value::Boolean(_) => 1,
            Value::Int(_) => 2,
            Value::Float(_) => 3,
            Value::Double(_) => 4,
            Value::Decimal(_) => 5,
            Value::String(_) => 6,
            Value::Bytes(_) => 7,
            Value::Array(_) => 8,
            Value::Row(_) => 9,
        }
    }

    /// The text that a cast to STRING gives; `NULL` for NULL.
    pub fn text(&self, ty: &DataType) -> String {
        match (self, ty) {
            (Value::Array(values), DataType::Array(element)) => {
                let texts: Vec<String> = values.iter().map(|value| value.text(&element.data)).collect();
                format!("[{}]", texts.join(", "))
            }
            (Value::Row(values), DataType::Row(fields)) => {
                let texts: Vec<String> =
                    values.iter().zip(fields.iter()).map(|(value, (_, ty))| value.text(&ty.data)).collect();
                format!("({})", texts.join(", "))
            }
            _ => match Scalar::of(self) {
                Some(scalar) => {
                    let mut text = String::new();
                    scalar.write_text(ty, &mut text);
                    text
                }
                None => format!("{self:?}"),
            },
        }
    }
}

impl<'v> Scalar<'v> {
    /// The same value, if it is not nested.
    pub fn of(value: &'v Value) -> Option<Scalar<'v>> {
        Some(match value {
            Value::Null => Scalar::Null,
            Value::Boolean(value) => Scalar::Boolean(*value),
            Value::Int(value) => Scalar::Int(*value),
            Value::Float(value) => Scalar::Float(*value),
            Value::Double(value) => Scalar::Double(*value),
            Value::Decimal(value) => Scalar::Decimal(*value),
            Value::String(value) => Scalar::Text(value.as_bytes()),
            Value::Bytes(value) => Scalar::Text(value),
            Value::Array(_) | Value::Row(_) => return None,
        })
    }

    /// The value with memory of its own.
    pub fn to_value(self, ty: &DataType) -> Value {
        match self {
            Scalar::Null => Value::Null,
            Scalar::Boolean(value) => Value::Boolean(value),
            Scalar::Int(value) => Value::Int(value),
            Scalar::Float(value) => Value::Float(value),
            Scalar::Double(value) => Value::Double(value),
            Scalar::Decimal(value) => Value::Decimal(value),
            Scalar::Text(bytes) if *ty == DataType::Bytes => Value::Bytes(bytes.into()),
            Scalar::Text(bytes) => Value::string(shown(bytes)),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.order(other) == Ordering::Equal
    }
}

impl Eq for Value {}

/// Values of one type as keys of ordered maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedValue(pub Vec<Value>);

impl PartialOrd for OrderedValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedValue {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0
            .iter()
            .zip(&other.0)
            .map(|(a, b)| a.order(b))
            .find(|order| *order != Ordering::Equal)
            .unwrap_or_else(|| self.0.len().cmp(&other.0.len()))
    }
}
