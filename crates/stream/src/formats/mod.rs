//! Formats: CSV and JSON lines. Records are read into the columns of a batch, and written from rows.

mod csv;
pub mod fuzzing;
pub(crate) mod json;
pub(crate) mod split;
pub(crate) mod texts;

use self::csv::Csv;
use self::json::Json;
use self::split::Splitter;
use crate::batch::Batch;
use crate::catalog::Table;
use crate::catalog::options;
use crate::compile::{Rows, Source};
use crate::error::{Error, Result};
use crate::types::{DataType, Scalar, Type};

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

/// A column to read.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its place among the values of a record, where these have no names.
    pub field: usize,
    /// Its place in the batch.
    pub column: usize,
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// Its name, by which the fields of an object are found.
impl AsRef<str> for Wanted {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

/// Reads records of a table into columns.
pub struct Reading {
    format: FormatReader,
    wanted: Vec<Wanted>,
    /// Number of physical columns.
    columns: usize,
    /// For messages; records of a stream of bytes have separate splitters.
    messages: Splitter,
}

enum FormatReader {
    Csv(Csv),
    Json(json::Reader),
}

impl Reading {
    /// Reads the columns that `source` wants.
    pub fn new(format: Format, table: &Table, source: &Source) -> Reading {
        let all: Vec<usize> = (0..table.physical.len()).collect();
        Reading::of_part(format, table, source, &all)
    }

    /// Reads records that have only these of the physical columns: those that `source` wants.
    pub fn of_part(format: Format, table: &Table, source: &Source, columns: &[usize]) -> Reading {
        let wanted = source.reads.iter().zip(&source.types).enumerate().filter_map(|(place, (read, ty))| {
            Some(Wanted {
                field: columns.iter().position(|column| column == read)?,
                column: place,
                name: table.columns[table.physical[*read]].name.clone(),
                ty: ty.clone(),
            })
        });
        Reading::of(format, wanted.collect(), columns.len())
    }

    /// Reads these of so many columns.
    pub fn of(format: Format, wanted: Vec<Wanted>, columns: usize) -> Reading {
        let messages = Splitter::new(format.csv(), columns, true);
        let format = match format {
            Format::Csv(csv) => FormatReader::Csv(csv),
            Format::Json(json) => FormatReader::Json(json::Reader::new(json, &wanted)),
        };
        Reading { format, wanted, columns, messages }
    }

    /// Splits an input into records. `begins`: the first byte is the first of the input.
    pub fn splitter(&self, begins: bool) -> Splitter {
        let csv = match &self.format {
            FormatReader::Csv(csv) => Some(csv),
            FormatReader::Json(_) => None,
        };
        Splitter::new(csv, self.columns, begins)
    }

    /// Appends the wanted columns of a message. After an error the row is not complete.
    pub fn message(&mut self, message: &[u8], batch: &mut Batch) -> Result<()> {
        self.messages.message(message)?;
        read(&mut self.format, &self.messages, self.columns, &self.wanted, batch)
    }

    /// Appends the wanted columns of the last record that was split off. After an error the row is not complete.
    pub fn read(&mut self, record: &Splitter, batch: &mut Batch) -> Result<()> {
        read(&mut self.format, record, self.columns, &self.wanted, batch)
    }
}

fn read(
    format: &mut FormatReader,
    record: &Splitter,
    columns: usize,
    wanted: &[Wanted],
    batch: &mut Batch,
) -> Result<()> {
    match (format, record.csv()) {
        (FormatReader::Csv(csv), Some(fields)) => {
            csv::read(csv, fields, record.record(), columns, wanted, batch)
        }
        (FormatReader::Json(reader), _) => {
            let text = std::str::from_utf8(record.record()).map_err(|_| csv::not_utf8())?;
            reader.read(text, wanted, batch)
        }
        (FormatReader::Csv(_), None) => Err(Error::connector("a record of another format")),
    }
}

/// Writes rows as records.
#[derive(Debug, Clone)]
pub struct Writing {
    format: Format,
    /// The names of the columns.
    names: Vec<String>,
    /// The text before each value.
    before: Vec<String>,
    text: String,
}

impl Writing {
    /// For all columns of a table.
    pub fn new(format: Format, table: &Table) -> Writing {
        Writing::of(format, table.physical.iter().map(|column| table.columns[*column].name.clone()).collect())
    }

    /// For columns with these names.
    pub fn of(format: Format, names: Vec<String>) -> Writing {
        let before = |(place, name): (usize, &String)| match &format {
            Format::Csv(_) if place == 0 => String::new(),
            Format::Csv(csv) => char::from(csv.delimiter).to_string(),
            Format::Json(_) => {
                let mut before = if place == 0 { "{" } else { "," }.to_owned();
                json::write_string(name, &mut before);
                before + ":"
            }
        };
        let before = names.iter().enumerate().map(before).collect();
        Writing { format, names, before, text: String::new() }
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
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        for row in rows.borrowed() {
            self.record(row.fields(), &mut text)?;
            text.push('\n');
        }
        self.text = text;
        Ok(&self.text)
    }

    /// Appends a record, without the end of a line.
    pub fn record<'v>(
        &self,
        fields: impl Iterator<Item = (Scalar<'v>, &'v DataType)>,
        out: &mut String,
    ) -> Result<()> {
        let begin = out.len();
        for (place, ((value, ty), before)) in fields.zip(&self.before).enumerate() {
            out.push_str(before);
            match &self.format {
                Format::Csv(csv) if value.is_null() => out.push_str(&csv.null),
                Format::Csv(csv) => {
                    let start = out.len();
                    texts::write(value, ty, out);
                    csv.end_value(start, place == 0, out).map_err(|error| {
                        Error::connector(format!("column `{}`: {error}", self.names[place]))
                    })?;
                }
                Format::Json(json) => json.write(value, ty, out),
            }
        }
        if let Format::Json(_) = self.format {
            out.push_str(if out.len() == begin { "{}" } else { "}" });
        }
        Ok(())
    }
}
