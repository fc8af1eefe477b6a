//! Rows of a source in columns, as compiled code reads them.
//!
//! | types | in a column |
//! |---|---|
//! | BOOLEAN | a byte, 0 or 1 |
//! | integers, DATE, TIME, timestamps, intervals | 8 bytes, widened |
//! | FLOAT, DOUBLE | 4, 8 bytes |
//! | DECIMAL | 16 bytes |
//! | CHAR, VARCHAR, STRING, BYTES | place and length, 8 bytes each, in the column's bytes |
//!
//! A column of a nullable type also has a byte for each row: 1 for NULL, and then the value is zero.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::memory::headroom;
use crate::types::{DataType, Scalar, Type, Value};

/// The representation of a value in columns, registers and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Shape {
    Boolean,
    Int,
    Float,
    Double,
    Decimal,
    Text,
}

impl Shape {
    /// The shape of a type; nested types have none yet.
    pub fn of(ty: &DataType) -> Result<Shape> {
        Ok(match ty {
            DataType::Boolean => Shape::Boolean,
            DataType::Float => Shape::Float,
            DataType::Double => Shape::Double,
            DataType::Decimal { .. } => Shape::Decimal,
            DataType::Char(_) | DataType::Varchar(_) | DataType::Bytes => Shape::Text,
            DataType::Array(_) | DataType::Row(_) => {
                return Err(Error::unsupported(format!("compiling values of type {ty}")));
            }
            // A bare NULL is an integer whose value is never used.
            _ => Shape::Int,
        })
    }

    /// Words of 8 bytes in a record.
    pub fn words(self) -> usize {
        match self {
            Shape::Decimal | Shape::Text => 2,
            _ => 1,
        }
    }
}

/// Values of one column.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Values {
    Boolean(Vec<u8>),
    Int(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Decimal(Vec<i128>),
    /// Places and lengths, and the bytes.
    Text(Vec<[u64; 2]>, Vec<u8>),
}

/// A column of a batch.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its values.
    pub values: Values,
    /// For each row 1 if it is NULL; empty if the type has no NULL.
    pub nulls: Vec<u8>,
    nullable: bool,
}

impl Column {
    /// An empty column of this type.
    pub fn new(ty: &Type) -> Result<Column> {
        Ok(Column::empty(Shape::of(&ty.data)?, ty.nullable))
    }

    /// Appends a value of the column's type.
    pub fn push(&mut self, value: &Value) -> Result<()> {
        if value.is_null() && !self.nullable {
            return Err(Error::evaluation("NULL in a column that is NOT NULL"));
        }
        if self.nullable {
            self.nulls.push(u8::from(value.is_null()));
        }
        match (&mut self.values, value) {
            (Values::Boolean(values), Value::Boolean(value)) => values.push(u8::from(*value)),
            (Values::Boolean(values), Value::Null) => values.push(0),
            (Values::Int(values), Value::Int(value)) => values.push(*value),
            (Values::Int(values), Value::Null) => values.push(0),
            (Values::Float(values), Value::Float(value)) => values.push(*value),
            (Values::Float(values), Value::Null) => values.push(0.0),
            (Values::Double(values), Value::Double(value)) => values.push(*value),
            (Values::Double(values), Value::Null) => values.push(0.0),
            (Values::Decimal(values), Value::Decimal(value)) => values.push(*value),
            (Values::Decimal(values), Value::Null) => values.push(0),
            (Values::Text(places, bytes), value) => {
                let text: &[u8] = match value {
                    Value::String(text) => text.as_bytes(),
                    Value::Bytes(text) => text,
                    Value::Null => &[],
                    _ => return Err(Error::evaluation(format!("{value:?} in a column of texts"))),
                };
                headroom::reserve(bytes, text.len())?;
                places.push([bytes.len() as u64, text.len() as u64]);
                bytes.extend_from_slice(text);
            }
            (_, value) => return Err(Error::evaluation(format!("{value:?} in a column of another type"))),
        }
        Ok(())
    }

    /// Appends NULL; the type is nullable.
    pub fn push_null(&mut self) {
        debug_assert!(self.nullable, "NULL in a column that is NOT NULL");
        self.nulls.push(1);
        match &mut self.values {
            Values::Boolean(values) => values.push(0),
            Values::Int(values) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Double(values) => values.push(0.0),
            Values::Decimal(values) => values.push(0),
            Values::Text(places, bytes) => places.push([bytes.len() as u64, 0]),
        }
    }

    /// Appends a text to a column of texts.
    pub fn push_text(&mut self, text: &[u8]) -> Result<()> {
        let Values::Text(places, bytes) = &mut self.values else {
            return Err(Error::evaluation("a text in a column of another type"));
        };
        headroom::reserve(bytes, text.len())?;
        places.push([bytes.len() as u64, text.len() as u64]);
        bytes.extend_from_slice(text);
        if self.nullable {
            self.nulls.push(0);
        }
        Ok(())
    }

    /// Appends an integer, a date or a time to a column of these.
    pub fn push_int(&mut self, value: i64) -> Result<()> {
        let Values::Int(values) = &mut self.values else {
            return Err(Error::evaluation("an integer in a column of another type"));
        };
        values.push(value);
        if self.nullable {
            self.nulls.push(0);
        }
        Ok(())
    }

    /// The value of a row.
    pub fn get(&self, row: usize) -> Scalar<'_> {
        if self.nullable && self.nulls[row] != 0 {
            return Scalar::Null;
        }
        match &self.values {
            Values::Boolean(values) => Scalar::Boolean(values[row] != 0),
            Values::Int(values) => Scalar::Int(values[row]),
            Values::Float(values) => Scalar::Float(values[row]),
            Values::Double(values) => Scalar::Double(values[row]),
            Values::Decimal(values) => Scalar::Decimal(values[row]),
            Values::Text(places, bytes) => {
                let [start, length] = places[row].map(|word| word as usize);
                Scalar::Text(&bytes[start..start + length])
            }
        }
    }

    /// Removes all values after the first `rows`.
    fn truncate(&mut self, rows: usize) {
        self.nulls.truncate(rows);
        match &mut self.values {
            Values::Boolean(values) => values.truncate(rows),
            Values::Int(values) => values.truncate(rows),
            Values::Float(values) => values.truncate(rows),
            Values::Double(values) => values.truncate(rows),
            Values::Decimal(values) => values.truncate(rows),
            Values::Text(places, bytes) => {
                if let Some([start, _]) = places.get(rows) {
                    bytes.truncate(*start as usize);
                }
                places.truncate(rows);
            }
        }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        match &self.values {
            Values::Boolean(values) => values.len(),
            Values::Int(values) => values.len(),
            Values::Float(values) => values.len(),
            Values::Double(values) => values.len(),
            Values::Decimal(values) => values.len(),
            Values::Text(values, _) => values.len(),
        }
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shape of its values.
    pub fn shape(&self) -> Shape {
        match &self.values {
            Values::Boolean(_) => Shape::Boolean,
            Values::Int(_) => Shape::Int,
            Values::Float(_) => Shape::Float,
            Values::Double(_) => Shape::Double,
            Values::Decimal(_) => Shape::Decimal,
            Values::Text(..) => Shape::Text,
        }
    }

    /// Whether the type is nullable.
    pub fn nullable(&self) -> bool {
        self.nullable
    }

    fn empty(shape: Shape, nullable: bool) -> Column {
        let values = match shape {
            Shape::Boolean => Values::Boolean(Vec::new()),
            Shape::Int => Values::Int(Vec::new()),
            Shape::Float => Values::Float(Vec::new()),
            Shape::Double => Values::Double(Vec::new()),
            Shape::Decimal => Values::Decimal(Vec::new()),
            Shape::Text => Values::Text(Vec::new(), Vec::new()),
        };
        Column { values, nulls: Vec::new(), nullable }
    }

    fn clear(&mut self) {
        self.nulls.clear();
        match &mut self.values {
            Values::Boolean(values) => values.clear(),
            Values::Int(values) => values.clear(),
            Values::Float(values) => values.clear(),
            Values::Double(values) => values.clear(),
            Values::Decimal(values) => values.clear(),
            Values::Text(values, bytes) => {
                values.clear();
                bytes.clear();
            }
        }
    }
}

/// A column of the batch, or one that it shares with other owners.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Held {
    Own(Column),
    Shared(Arc<Column>),
}

impl Held {
    /// Makes later clones share the values at no cost.
    pub fn share(&mut self) {
        if let Held::Own(column) = self {
            let empty = Column::empty(column.shape(), column.nullable);
            *self = Held::Shared(Arc::new(std::mem::replace(column, empty)));
        }
    }
}

impl Deref for Held {
    type Target = Column;

    fn deref(&self) -> &Column {
        match self {
            Held::Own(column) => column,
            Held::Shared(column) => column,
        }
    }
}

impl DerefMut for Held {
    /// Copies a shared column first.
    fn deref_mut(&mut self) -> &mut Column {
        if let Held::Shared(column) = self {
            *self = Held::Own(Column::clone(column));
        }
        match self {
            Held::Own(column) => column,
            Held::Shared(_) => unreachable!("it was made the batch's own"),
        }
    }
}

/// A batch: rows that arrived together.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Columns, all of one length.
    pub columns: Vec<Held>,
    /// Number of rows: a batch without columns has rows too.
    rows: usize,
    /// The processing time of all of them, in microseconds.
    pub clock: i64,
}

impl Batch {
    /// An empty batch of these columns.
    pub fn new<'t>(types: impl IntoIterator<Item = &'t Type>) -> Result<Batch> {
        let columns: Result<Vec<Held>> =
            types.into_iter().map(|ty| Ok(Held::Own(Column::new(ty)?))).collect();
        Ok(Batch { columns: columns?, rows: 0, clock: 0 })
    }

    /// Completes a row whose values were appended to all columns.
    pub fn end_row(&mut self) {
        self.rows += 1;
        debug_assert!(self.columns.iter().all(|column| column.len() == self.rows), "a value for each column");
    }

    /// Removes the values of a row that is not complete.
    pub fn undo_row(&mut self) {
        for column in &mut self.columns {
            if column.len() > self.rows {
                column.truncate(self.rows);
            }
        }
    }

    /// Appends a row.
    pub fn push(&mut self, row: &[Value]) -> Result<()> {
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(value)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Sets the number of rows, after the columns were filled directly.
    pub fn set_rows(&mut self, rows: usize) {
        self.rows = rows;
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        for column in &mut self.columns {
            match column {
                Held::Own(column) => column.clear(),
                Held::Shared(shared) => *column = Held::Own(Column::empty(shared.shape(), shared.nullable)),
            }
        }
        self.rows = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_row_leaves_nothing_in_any_column() {
        let types = [Type::nullable(DataType::STRING), Type::not_null(DataType::Int)];
        let mut batch = Batch::new(&types).unwrap();
        for text in ["a", "bc"] {
            batch.columns[0].push_text(text.as_bytes()).unwrap();
            batch.columns[1].push_int(7).unwrap();
            batch.end_row();
            // The rest of the row is missing.
            batch.columns[0].push_text(b"undone").unwrap();
            batch.undo_row();
        }
        assert_eq!((batch.rows(), batch.columns[0].len(), batch.columns[1].len()), (2, 2, 2));
        assert_eq!([0, 1].map(|row| batch.columns[0].get(row)), [Scalar::Text(b"a"), Scalar::Text(b"bc")]);
        let Values::Text(_, bytes) = &batch.columns[0].values else { panic!() };
        assert_eq!(bytes, b"abc");
        assert_eq!(batch.columns[0].nulls, [0, 0]);
    }
}
