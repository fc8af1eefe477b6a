//! `datagen`: random rows and sequences.

use std::time::Instant;

use super::registration::Registration;
use crate::batch::Batch;
use crate::catalog::options::Kind::{Choice, Number};
use crate::catalog::options::{IDLE, option};
use crate::catalog::{Connector, Table};
use crate::compile::Source;
use crate::error::{Error, Result};
use crate::run::clock::now;
use crate::run::row_source::{RowSource, place};
use crate::types::{DataType, Row, Value, decimal};

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "datagen",
    purpose: "Generates random rows or sequences, for tests and measurements.",
    example: "CREATE TABLE orders (id BIGINT, product STRING, pieces INT) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '1000',
  'fields.id.kind' = 'sequence',
  'fields.product.length' = '8',
  'fields.pieces.min' = '1',
  'fields.pieces.max' = '20')",
    options: &[
        option("number-of-rows", Number, "(no end)", "the number of rows"),
        option("rows-per-second", Number, "(as fast as they are taken)", "the number of rows per second"),
        option("seed", Number, "1", "the seed of random values"),
        option("fields.#.kind", Choice(&["random", "sequence"]), "random", "random values or a sequence"),
        option("fields.#.min", Number, "(the type's)", "the least random number"),
        option("fields.#.max", Number, "(the type's)", "the greatest random number"),
        option("fields.#.start", Number, "0", "the first number of a sequence"),
        option(
            "fields.#.end",
            Number,
            "(the type's)",
            "the last number of a sequence, where the source ends",
        ),
        option("fields.#.length", Number, "100", "the number of characters of a random string"),
        IDLE,
    ],
    source: true,
    sink: None,
    lookup: false,
    format: false,
    written: None,
};

/// Its place in the registry.
pub const REGISTRATION: Registration = Registration::new(
    &CONNECTOR,
    Some(|table, source, _| Ok(Box::new(Datagen::new(table, source)?))),
    None,
    None,
);

/// The number that an option has.
pub fn number<T: std::str::FromStr>(table: &Table, name: &str) -> Result<Option<T>> {
    match table.options.get(name) {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(Error::invalid(format!("'{name}' = '{text}' of `{}`", table.name), "a number")),
        },
    }
}

/// How the values of a column are generated.
enum Kind {
    Random {
        min: i64,
        max: i64,
    },
    Sequence {
        start: i64,
        end: i64,
    },
    Text {
        length: usize,
    },
    /// The time at which the row is generated.
    Now,
}

/// Random rows and sequences, with Flink's options: `number-of-rows`, `rows-per-second`, `fields.f.kind`, `.min`,
/// `.max`, `.start`, `.end`, `.length`; and `seed`.
pub struct Datagen {
    columns: Vec<(Kind, DataType)>,
    rows: Option<u64>,
    made: u64,
    /// Rows that had been generated when it began.
    before: u64,
    per_second: Option<u64>,
    began: Instant,
    random: u64,
}

impl Datagen {
    /// Generates the columns that `source` wants.
    pub fn new(table: &Table, source: &Source) -> Result<Datagen> {
        let mut columns = Vec::new();
        let mut rows: Option<u64> = number(table, "number-of-rows")?;
        for (read, ty) in source.reads.iter().zip(&source.types) {
            let name = &table.columns[table.physical[*read]].name;
            let field = |what: &str| format!("fields.{name}.{what}");
            let kind = match table.options.get(&field("kind")).map_or("random", String::as_str) {
                "sequence" => {
                    let start = number(table, &field("start"))?.unwrap_or(0);
                    let end = number(table, &field("end"))?.unwrap_or(i64::MAX);
                    // A sequence ends the source.
                    let count = u64::try_from(i128::from(end) - i128::from(start) + 1).unwrap_or(u64::MAX);
                    rows = Some(rows.map_or(count, |rows| rows.min(count)));
                    Kind::Sequence { start, end }
                }
                "random" => match &ty.data {
                    data if data.is_character() => {
                        Kind::Text { length: number(table, &field("length"))?.unwrap_or(100) }
                    }
                    data if data.is_timestamp() => Kind::Now,
                    DataType::TinyInt => bounds(table, &field, i64::from(i8::MAX))?,
                    DataType::SmallInt => bounds(table, &field, i64::from(i16::MAX))?,
                    DataType::Int => bounds(table, &field, i64::from(i32::MAX))?,
                    DataType::Boolean => Kind::Random { min: 0, max: 1 },
                    DataType::Decimal { precision, .. } => {
                        let most = decimal::power_of_ten(u32::from(*precision).min(18)).unwrap_or(1) - 1;
                        bounds(table, &field, most as i64)?
                    }
                    DataType::BigInt | DataType::Float | DataType::Double => bounds(table, &field, i64::MAX)?,
                    other => {
                        return Err(Error::unsupported(format!("making random values of type {other}")));
                    }
                },
                other => {
                    return Err(Error::invalid(
                        format!("'{}' = '{other}'", field("kind")),
                        "'random' or 'sequence'",
                    ));
                }
            };
            columns.push((kind, ty.data.clone()));
        }
        let per_second = number(table, "rows-per-second")?;
        let random = number(table, "seed")?.unwrap_or(1);
        Ok(Datagen { columns, rows, made: 0, before: 0, per_second, began: Instant::now(), random })
    }

    // SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn bounds(table: &Table, field: &dyn Fn(&str) -> String, most: i64) -> Result<Kind> {
    let min = number(table, &field("min"))?.unwrap_or(-most);
    let max = number(table, &field("max"))?.unwrap_or(most);
    if min > max {
        return Err(Error::invalid(
            format!("'{}' = {min} above {max}", field("min")),
            "a least below the greatest",
        ));
    }
    Ok(Kind::Random { min, max })
}

impl RowSource for Datagen {
    fn ends(&self) -> bool {
        self.rows.is_some()
    }

    fn read_rows(&mut self, batch: &mut Batch, rows: usize) -> Result<bool> {
        let mut wanted = rows as u64;
        if let Some(rows) = self.rows {
            wanted = wanted.min(rows - self.made);
        }
        if let Some(per_second) = self.per_second {
            let due = self.before + (self.began.elapsed().as_secs_f64() * per_second as f64) as u64;
            wanted = wanted.min(due.saturating_sub(self.made));
        }
        let now = now();
        for _ in 0..wanted {
            let mut row = Row::new();
            for column in 0..self.columns.len() {
                let random = self.next();
                let (kind, ty) = &self.columns[column];
                let number = match kind {
                    Kind::Random { min, max } => {
                        let count = max.wrapping_sub(*min).wrapping_add(1) as u64;
                        if count == 0 { random as i64 } else { min.wrapping_add((random % count) as i64) }
                    }
                    Kind::Sequence { start, end } => start.wrapping_add(self.made as i64).min(*end),
                    Kind::Now => now / 1000 * 1000,
                    Kind::Text { length } => {
                        let length = *length;
                        let digit = |place: usize| {
                            char::from(b"0123456789abcdef"[(random >> (place % 16 * 4)) as usize % 16])
                        };
                        row.push(Value::string((0..length).map(digit).collect::<String>()));
                        continue;
                    }
                };
                row.push(match ty {
                    DataType::Boolean => Value::Boolean(number & 1 != 0),
                    DataType::Float => Value::Float(number as f32),
                    DataType::Double => Value::Double(number as f64),
                    DataType::Decimal { .. } => Value::Decimal(number.into()),
                    data if data.is_character() => Value::string(number.to_string()),
                    _ => Value::Int(number),
                });
            }
            batch.push(&row)?;
            self.made += 1;
        }
        Ok(self.rows.is_none_or(|rows| self.made < rows))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::json!({ "rows": self.made, "random": self.random })
    }

    fn seek(&mut self, position: &serde_json::Value) -> Result<()> {
        self.made = place(position, "rows")?;
        self.before = self.made;
        self.random = place(position, "random")?;
        Ok(())
    }
}
