//! Formats: CSV and JSON lines, parsed to values and written from them.

use std::path::{Path, PathBuf};

use super::csv::Csv;
use super::json::{self, Json};
use super::split::Splitter;
use super::texts::{decode, not_null, parse, text};
use crate::catalog::Table;
use crate::compile::{Rows, Source};
use crate::error::{Error, Result};
use crate::options;
use crate::types::{DataType, Row, Type, Value};

/// A format with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Values separated by a character, quoted where needed.
    Csv(Csv),
    /// One object on each line.
    Json(Json),
}

impl Format {
    /// Its options, if it is CSV.
    pub fn csv(&self) -> Option<&Csv> {
        match self {
            Format::Csv(csv) => Some(csv),
            Format::Json(_) => None,
        }
    }

    /// The format of a table's values.
    pub fn of(table: &Table) -> Result<Format> {
        Format::named(table, if table.options.contains_key("format") { "" } else { "value." })
    }

    /// The format named by the option `format` after this prefix.
    pub fn named(table: &Table, prefix: &str) -> Result<Format> {
        let get = |name: &str| {
            let options = &table.options;
            options.get(&format!("{prefix}{name}")).or(options.get(name)).map(String::as_str)
        };
        let is = |name: &str, otherwise: bool| get(name).map_or(otherwise, |value| value == "true");
        match get("format") {
            Some("csv") => {
                let byte = |name: &str, otherwise: Option<u8>| match get(name) {
                    None => Ok(otherwise),
                    Some(text) => character(text).map(Some).ok_or_else(|| {
                        Error::invalid(
                            format!("'{name}' = '{text}' of `{}`", table.name),
                            "one character of ASCII, or \\t or \\uXXXX",
                        )
                    }),
                };
                let quote = byte("csv.quote-character", Some(b'"'))?;
                let csv = Csv {
                    delimiter: byte("csv.field-delimiter", Some(b','))?.unwrap_or(b','),
                    quote: quote.filter(|_| !is("csv.disable-quote-character", false)),
                    escape: byte("csv.escape-character", None)?,
                    comments: is("csv.allow-comments", false),
                    null: get("csv.null-literal").unwrap_or_default().to_owned(),
                };
                match csv.contradiction() {
                    None => Ok(Format::Csv(csv)),
                    Some((found, wanted)) => {
                        Err(Error::invalid(format!("{found} for `{}`", table.name), wanted))
                    }
                }
            }
            Some("json") => Ok(Format::Json(Json {
                fail_on_missing: is("json.fail-on-missing-field", false),
                iso: get("json.timestamp-format.standard") == Some("ISO-8601"),
                plain: is("json.encode.decimal-as-plain-number", true),
            })),
            other => Err(Error::invalid(
                format!("'format' = '{}' of `{}`", other.unwrap_or_default(), table.name),
                options::formats_wanted(),
            )),
        }
    }
}

/// The byte that an option stands for: itself, or one of Java's escapes.
fn character(text: &str) -> Option<u8> {
    let byte = match (text.as_bytes(), text.strip_prefix("\\u")) {
        ([byte], _) => *byte,
        (b"\\t", _) => b'\t',
        (b"\\\\", _) => b'\\',
        (_, Some(digits)) if digits.len() == 4 => u8::from_str_radix(digits, 16).ok()?,
        _ => return None,
    };
    byte.is_ascii().then_some(byte)
}

/// The path of a table of files.
pub fn path(table: &Table, directory: &Path) -> Result<PathBuf> {
    let path = table.options.get("path").ok_or_else(|| {
        Error::invalid(format!("no option 'path' for `{}`", table.name), "'path' = '...' in WITH (...)")
    })?;
    Ok(directory.join(path.strip_prefix("file://").unwrap_or(path)))
}

/// Parses records of a table.
pub struct Reading {
    format: Format,
    /// For each wanted column its index among the physical columns, its name and type.
    wanted: Vec<(usize, String, Type)>,
    /// Number of physical columns.
    columns: usize,
    /// For messages; records of a stream of bytes have separate splitters.
    messages: Splitter,
}

impl Reading {
    /// Reads the columns that `source` wants.
    pub fn new(format: Format, table: &Table, source: &Source) -> Result<Reading> {
        let all: Vec<usize> = (0..table.physical.len()).collect();
        Ok(Reading::of_part(format, table, source, &all))
    }

    /// Reads records that have only these of the physical columns: those that `source` wants, in its order.
    pub fn of_part(format: Format, table: &Table, source: &Source, columns: &[usize]) -> Reading {
        let name = |read: usize| table.columns[table.physical[read]].name.clone();
        let wanted = source.reads.iter().zip(&source.types).filter_map(|(read, ty)| {
            let place = columns.iter().position(|column| column == read)?;
            Some((place, name(*read), ty.clone()))
        });
        let messages = Splitter::new(format.csv(), columns.len(), true);
        Reading { format, wanted: wanted.collect(), columns: columns.len(), messages }
    }

    /// Splits an input into records. `begins`: the first byte is the first of the input.
    pub fn splitter(&self, begins: bool) -> Splitter {
        Splitter::new(self.format.csv(), self.columns, begins)
    }

    /// The wanted columns of a message.
    pub fn message(&mut self, message: &[u8]) -> Result<Row> {
        self.messages.message(message)?;
        self.read(&self.messages)
    }

    /// The wanted columns of the last record that was split off.
    pub fn read(&self, record: &Splitter) -> Result<Row> {
        match (&self.format, record.csv()) {
            (Format::Csv(csv), Some(fields)) => {
                let text = fields.text()?;
                // The values alone do not show that a byte was escaped.
                if csv.escape.is_some() && std::str::from_utf8(record.record()).is_err() {
                    return Err(super::csv::not_utf8());
                }
                // All columns of a message may be in its key. Otherwise an empty text is one empty value.
                let is_none = self.columns == 0 && record.record().is_empty();
                let count = if is_none { 0 } else { fields.count() };
                if count != self.columns {
                    return Err(Error::invalid(
                        format!("{count} values"),
                        format!("{}, one for each column", self.columns),
                    ));
                }
                let value = |(place, name, ty): &(usize, String, Type)| {
                    let (text, quoted) = fields.get(text, *place)?;
                    // An empty value between two delimiters is NULL, but a quoted text never is.
                    if !quoted && text == csv.null && (!ty.data.is_character() || ty.nullable) {
                        return not_null(Value::Null, name, ty);
                    }
                    match ty.data {
                        DataType::Bytes => decode(text, name),
                        _ => parse(text, name, ty),
                    }
                };
                self.wanted.iter().map(value).collect()
            }
            (Format::Json(json), _) => {
                let text = std::str::from_utf8(record.record()).map_err(|_| super::csv::not_utf8())?;
                json::read(json, text, self.wanted.iter().map(|(_, name, ty)| (name.as_str(), ty)))
            }
            (Format::Csv(_), None) => Err(Error::connector("a record of another format")),
        }
    }
}

/// Appends a row as a record of a format, without the end of a line.
pub fn write_record(
    format: &Format,
    names: &[String],
    types: &[DataType],
    row: &[Value],
    out: &mut String,
) -> Result<()> {
    match format {
        Format::Csv(csv) => {
            for (index, (value, ty)) in row.iter().zip(types).enumerate() {
                if index > 0 {
                    out.push(char::from(csv.delimiter));
                }
                match value {
                    Value::Null => out.push_str(&csv.null),
                    value => csv.write(&text(value, ty), index == 0, out).map_err(|error| {
                        match names.get(index) {
                            Some(name) => Error::connector(format!("column `{name}`: {error}")),
                            None => error,
                        }
                    })?,
                }
            }
        }
        Format::Json(json) => json::write(json, names, types, row, out),
    }
    Ok(())
}

/// Encodes rows as records.
pub struct Writing {
    format: Format,
    columns: Vec<String>,
    text: String,
}

impl Writing {
    /// For a table.
    pub fn new(format: Format, table: &Table) -> Writing {
        let columns = table.physical.iter().map(|column| table.columns[*column].name.clone()).collect();
        Writing { format, columns, text: String::new() }
    }

    /// The suffix of the names of files with such records.
    pub fn extension(&self) -> &'static str {
        match self.format {
            Format::Csv(_) => "csv",
            Format::Json(_) => "json",
        }
    }

    /// The records of these rows.
    pub fn text(&mut self, rows: &Rows<'_>) -> Result<&str> {
        self.text.clear();
        for (_, row) in rows.iter() {
            write_record(&self.format, &self.columns, rows.types(), &row, &mut self.text)?;
            self.text.push('\n');
        }
        Ok(&self.text)
    }
}
