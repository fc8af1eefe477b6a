//! SQL's types: the values of a column, whether it may be NULL, and the common types of pairs.
//!
//! Representation is defined here and nowhere else, because persistent state and compiled code depend on it:
//!
//! | type | in memory | bytes in a fixed record |
//! |---|---|---|
//! | BOOLEAN | 0 or 1 | 1 |
//! | TINYINT, SMALLINT, INT, BIGINT | two's complement | 1, 2, 4, 8 |
//! | FLOAT, DOUBLE | IEEE 754 | 4, 8 |
//! | DECIMAL(p, s) | integer in units of 10^-s; p at most 38 | 8 up to p = 18, then 16 |
//! | DATE | days since 1970-01-01 | 4 |
//! | TIME(p) | milliseconds of the day | 4 |
//! | TIMESTAMP(p), TIMESTAMP_LTZ(p) | microseconds since 1970-01-01 00:00; p at most 6 | 8 |
//! | INTERVAL YEAR TO MONTH, DAY TO SECOND | months, milliseconds | 4, 8 |
//! | CHAR, VARCHAR, STRING, BYTES, ARRAY, ROW | variable | (in a list or a tail) |

pub mod cast;
pub mod coerce;
pub mod decimal;
mod scalar;
pub mod time;
mod value;

use std::fmt;
use std::sync::Arc;

pub use scalar::{Scalar, shown, write_int};
pub use value::{OrderedValue, Row, Value};

/// Whether a column is the time of windows and interval joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeAttribute {
    /// Event time, followed by watermarks.
    Rowtime,
    /// Processing time.
    Proctime,
}

/// Length of STRING and BYTES: as long as memory allows.
pub const LENGTH_MAX: u32 = i32::MAX as u32;
/// Digits of the widest DECIMAL: 10^38 < 2^127.
pub const PRECISION_MAX: u8 = 38;
/// Digits after the second that a timestamp has at most.
pub const FRACTION_MAX: u8 = 6;

/// The type of a value, without nullability.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DataType {
    /// The type of a bare NULL.
    Null,
    Boolean,
    TinyInt,
    SmallInt,
    Int,
    BigInt,
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
    },
    /// Padded to its length only by a cast.
    Char(u32),
    /// STRING is VARCHAR([`LENGTH_MAX`]).
    Varchar(u32),
    Bytes,
    Date,
    Time(u8),
    /// Without a zone: a date and a time of day.
    Timestamp(u8),
    /// A point in time, shown in the session's zone.
    TimestampLtz(u8),
    IntervalMonths,
    IntervalMillis,
    Array(Arc<Type>),
    Row(Arc<[(String, Type)]>),
}

/// A [`DataType`] and its nullability.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Type {
    /// The type of its values.
    pub data: DataType,
    /// Whether NULL is allowed.
    pub nullable: bool,
}

impl Type {
    /// A nullable type.
    pub fn nullable(data: DataType) -> Self {
        Type { data, nullable: true }
    }

    /// A type that is never NULL.
    pub fn not_null(data: DataType) -> Self {
        Type { data, nullable: false }
    }

    /// The same type, nullable if it was or if `also` is true.
    #[must_use]
    pub fn or_null(mut self, also: bool) -> Self {
        self.nullable |= also;
        self
    }
}

impl DataType {
    /// STRING.
    pub const STRING: DataType = DataType::Varchar(LENGTH_MAX);

    /// TINYINT to BIGINT.
    pub fn is_integer(&self) -> bool {
        matches!(self, DataType::TinyInt | DataType::SmallInt | DataType::Int | DataType::BigInt)
    }

    /// FLOAT or DOUBLE.
    pub fn is_approximate(&self) -> bool {
        matches!(self, DataType::Float | DataType::Double)
    }

    /// Integers, approximate numbers, DECIMAL.
    pub fn is_numeric(&self) -> bool {
        self.is_integer() || self.is_approximate() || matches!(self, DataType::Decimal { .. })
    }

    /// CHAR, VARCHAR, STRING.
    pub fn is_character(&self) -> bool {
        matches!(self, DataType::Char(_) | DataType::Varchar(_))
    }

    /// TIMESTAMP, with local zone or without.
    pub fn is_timestamp(&self) -> bool {
        matches!(self, DataType::Timestamp(_) | DataType::TimestampLtz(_))
    }

    /// An interval of either kind.
    pub fn is_interval(&self) -> bool {
        matches!(self, DataType::IntervalMonths | DataType::IntervalMillis)
    }

    /// Bytes of a value in a fixed record; `None` if the length varies.
    pub fn fixed_bytes(&self) -> Option<usize> {
        Some(match self {
            DataType::Null => 0,
            DataType::Boolean | DataType::TinyInt => 1,
            DataType::SmallInt => 2,
            DataType::Int
            | DataType::Float
            | DataType::Date
            | DataType::Time(_)
            | DataType::IntervalMonths => 4,
            DataType::BigInt
            | DataType::Double
            | DataType::Timestamp(_)
            | DataType::TimestampLtz(_)
            | DataType::IntervalMillis => 8,
            // 10^18 < 2^63 < 10^19
            DataType::Decimal { precision, .. } => {
                if *precision <= 18 {
                    8
                } else {
                    16
                }
            }
            DataType::Char(_)
            | DataType::Varchar(_)
            | DataType::Bytes
            | DataType::Array(_)
            | DataType::Row(_) => return None,
        })
    }

    /// The DECIMAL that holds every value of an exact number type.
    pub fn as_decimal(&self) -> Option<(u8, u8)> {
        Some(match self {
            DataType::TinyInt => (3, 0),
            DataType::SmallInt => (5, 0),
            DataType::Int => (10, 0),
            DataType::BigInt => (19, 0),
            DataType::Decimal { precision, scale } => (*precision, *scale),
            _ => return None,
        })
    }

    /// Whether values have an order, so that they may be compared, sorted and be MIN or MAX.
    pub fn is_ordered(&self) -> bool {
        !matches!(self, DataType::Array(_) | DataType::Row(_))
    }

    /// Whether values may be compared for equality and be keys.
    pub fn is_key(&self) -> bool {
        true
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Null => f.write_str("NULL"),
            DataType::Boolean => f.write_str("BOOLEAN"),
            DataType::TinyInt => f.write_str("TINYINT"),
            DataType::SmallInt => f.write_str("SMALLINT"),
            DataType::Int => f.write_str("INT"),
            DataType::BigInt => f.write_str("BIGINT"),
            DataType::Float => f.write_str("FLOAT"),
            DataType::Double => f.write_str("DOUBLE"),
            DataType::Decimal { precision, scale } => write!(f, "DECIMAL({precision}, {scale})"),
            DataType::Char(length) => write!(f, "CHAR({length})"),
            DataType::Varchar(LENGTH_MAX) => f.write_str("STRING"),
            DataType::Varchar(length) => write!(f, "VARCHAR({length})"),
            DataType::Bytes => f.write_str("BYTES"),
            DataType::Date => f.write_str("DATE"),
            DataType::Time(precision) => write!(f, "TIME({precision})"),
            DataType::Timestamp(precision) => write!(f, "TIMESTAMP({precision})"),
            DataType::TimestampLtz(precision) => write!(f, "TIMESTAMP_LTZ({precision})"),
            DataType::IntervalMonths => f.write_str("INTERVAL YEAR TO MONTH"),
            DataType::IntervalMillis => f.write_str("INTERVAL DAY TO SECOND"),
            DataType::Array(element) => write!(f, "ARRAY<{element}>"),
            DataType::Row(fields) => {
                f.write_str("ROW<")?;
                for (index, (name, ty)) in fields.iter().enumerate() {
                    write!(f, "{}`{name}` {ty}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str(">")
            }
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.data, if self.nullable { "" } else { " NOT NULL" })
    }
}
