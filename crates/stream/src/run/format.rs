//! Formats: CSV and JSON lines, to values and back.

use std::path::{Path, PathBuf};

use crate::catalog::Table;
use crate::compile::{Rows, Source};
use crate::error::{Error, Result};
use crate::types::{DataType, Row, Type, Value, cast};

/// A format with its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Values parted by a character, quoted where needed.
    Csv {
        /// What parts values.
        delimiter: u8,
    },
    /// One object on each line.
    Json,
}

impl Format {
    /// The format that a table's options name.
    pub fn of(table: &Table) -> Result<Format> {
        Format::named(table, table.options.get("format").or(table.options.get("value.format")))
    }

    /// The format of this name.
    pub fn named(table: &Table, format: Option<&String>) -> Result<Format> {
        match format.map(String::as_str) {
            Some("csv") => {
                let delimiter = table.options.get("csv.field-delimiter").map_or(",", String::as_str);
                let delimiter = if delimiter == "\\t" { "\t" } else { delimiter };
                match delimiter.as_bytes() {
                    [delimiter] => Ok(Format::Csv { delimiter: *delimiter }),
                    _ => Err(Error::invalid(
                        format!("'csv.field-delimiter' = '{delimiter}' of `{}`", table.name),
                        "one character of ASCII",
                    )),
                }
            }
            Some("json") => Ok(Format::Json),
            other => Err(Error::unsupported(format!(
                "the format '{}' of `{}` in a running job",
                other.unwrap_or(""),
                table.name
            ))
            .hint("there are csv and json")),
        }
    }
}

/// The path of a table of files.
pub fn path(table: &Table, directory: &Path) -> Result<PathBuf> {
    let path = table.options.get("path").ok_or_else(|| {
        Error::invalid(format!("no option 'path' for `{}`", table.name), "'path' = '...' in WITH (...)")
    })?;
    Ok(directory.join(path.strip_prefix("file://").unwrap_or(path)))
}

/// Reads records of a table.
pub struct Reading {
    format: Format,
    /// For each wanted column its place among the physical ones, its name and type.
    wanted: Vec<(usize, String, Type)>,
    /// How many physical columns there are.
    columns: usize,
    null: String,
    fields: Vec<(String, bool)>,
}

impl Reading {
    /// Reads the columns that `source` wants.
    pub fn new(format: Format, table: &Table, source: &Source) -> Result<Reading> {
        let all: Vec<usize> = (0..table.physical.len()).collect();
        Ok(Reading::of_part(format, table, source, &all))
    }

    /// Reads records that have these of the physical columns: those that `source` wants, in its order.
    pub fn of_part(format: Format, table: &Table, source: &Source, columns: &[usize]) -> Reading {
        let name = |read: usize| table.columns[table.physical[read]].name.clone();
        let wanted = source.reads.iter().zip(&source.types).filter_map(|(read, ty)| {
            let place = columns.iter().position(|column| column == read)?;
            Some((place, name(*read), ty.clone()))
        });
        let null = table.options.get("csv.null-literal").cloned().unwrap_or_default();
        Reading { format, wanted: wanted.collect(), columns: columns.len(), null, fields: Vec::new() }
    }

    /// Whether a record goes on behind this line: a quote is open.
    pub fn is_open(&self, line: &[u8]) -> bool {
        matches!(self.format, Format::Csv { .. })
            && line.iter().filter(|byte| **byte == b'"').count() % 2 == 1
    }

    /// The wanted columns of a record.
    pub fn read(&mut self, line: &[u8]) -> Result<Row> {
        let text =
            std::str::from_utf8(line).map_err(|_| Error::connector("found bytes that are not UTF-8"))?;
        match self.format {
            Format::Csv { delimiter } => {
                split(text, delimiter, &mut self.fields);
                if self.fields.len() != self.columns {
                    return Err(Error::invalid(
                        format!("{} values", self.fields.len()),
                        format!("{}, one for each column", self.columns),
                    ));
                }
                let value = |(place, name, ty): &(usize, String, Type)| {
                    let (text, quoted) = &self.fields[*place];
                    // Nothing between two delimiters is NULL, and a text that is quoted never.
                    if !quoted && *text == self.null && (!ty.data.is_character() || ty.nullable) {
                        return some(Value::Null, name, ty);
                    }
                    parse(text, name, ty)
                };
                self.wanted.iter().map(value).collect()
            }
            Format::Json => {
                let object: serde_json::Value = serde_json::from_str(text).map_err(|error| {
                    Error::invalid(format!("no JSON ({error})"), "an object on each line")
                })?;
                let value = |(_, name, ty): &(usize, String, Type)| match object.get(name) {
                    None | Some(serde_json::Value::Null) => some(Value::Null, name, ty),
                    Some(serde_json::Value::String(text)) => parse(text, name, ty),
                    Some(other) => parse(&other.to_string(), name, ty),
                };
                self.wanted.iter().map(value).collect()
            }
        }
    }
}

fn some(value: Value, name: &str, ty: &Type) -> Result<Value> {
    if value.is_null() && !ty.nullable {
        return Err(Error::invalid(format!("NULL for `{name}`"), format!("a value of {ty}")));
    }
    Ok(value)
}

/// A value by its text; NULL without one.
pub fn parse_or_null(text: Option<&str>, name: &str, ty: &Type) -> Result<Value> {
    match text {
        Some(text) => parse(text, name, ty),
        None => some(Value::Null, name, ty),
    }
}

fn parse(text: &str, name: &str, ty: &Type) -> Result<Value> {
    let value = match &ty.data {
        data if data.is_character() => Some(Value::string(text)),
        DataType::Bytes => Some(Value::Bytes(text.as_bytes().into())),
        data => cast::parse(text.trim(), data),
    };
    let value = value.ok_or_else(|| Error::invalid(format!("'{text}' for `{name}`"), &ty.data))?;
    some(value, name, ty)
}

/// The values of a record of CSV, and whether each was quoted.
fn split(line: &str, delimiter: u8, fields: &mut Vec<(String, bool)>) {
    fields.clear();
    let delimiter = char::from(delimiter);
    let mut chars = line.chars().peekable();
    loop {
        let mut field = String::new();
        let quoted = chars.peek() == Some(&'"');
        if quoted {
            chars.next();
            while let Some(char) = chars.next() {
                match char {
                    '"' if chars.peek() == Some(&'"') => {
                        chars.next();
                        field.push('"');
                    }
                    '"' => break,
                    other => field.push(other),
                }
            }
        }
        let ended = loop {
            match chars.next() {
                None => break true,
                Some(char) if char == delimiter => break false,
                Some(char) => field.push(char),
            }
        };
        fields.push((field, quoted));
        if ended {
            return;
        }
    }
}

/// Appends a row as a record of a format, with the end of the line.
pub fn write(format: Format, names: &[String], types: &[DataType], row: &[Value], out: &mut String) {
    write_record(format, names, types, row, out);
    out.push('\n');
}

/// The same without the end of the line.
pub fn write_record(format: Format, names: &[String], types: &[DataType], row: &[Value], out: &mut String) {
    match format {
        Format::Csv { delimiter } => {
            for (index, (value, ty)) in row.iter().zip(types).enumerate() {
                if index > 0 {
                    out.push(char::from(delimiter));
                }
                match value {
                    Value::Null => {}
                    Value::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
                    value => quote(&value.text(ty), delimiter, out),
                }
            }
        }
        Format::Json => {
            let object: serde_json::Map<String, serde_json::Value> = names
                .iter()
                .zip(row.iter().zip(types))
                .map(|(name, (value, ty))| (name.clone(), json(value, ty)))
                .collect();
            out.push_str(&serde_json::Value::Object(object).to_string());
        }
    }
}

/// How rows become records.
pub struct Writing {
    format: Format,
    columns: Vec<String>,
    text: String,
}

impl Writing {
    /// Of a table.
    pub fn new(format: Format, table: &Table) -> Writing {
        let columns = table.physical.iter().map(|column| table.columns[*column].name.clone()).collect();
        Writing { format, columns, text: String::new() }
    }

    /// What the names of files with such records end in.
    pub fn extension(&self) -> &'static str {
        match self.format {
            Format::Csv { .. } => "csv",
            Format::Json => "json",
        }
    }

    /// The records of these rows.
    pub fn text(&mut self, rows: &Rows<'_>) -> &str {
        self.text.clear();
        for (_, row) in rows.iter() {
            write(self.format, &self.columns, rows.types(), &row, &mut self.text);
        }
        &self.text
    }
}

fn quote(text: &str, delimiter: u8, out: &mut String) {
    let special = |byte: u8| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r');
    // An empty text is quoted: bare it would be NULL.
    if text.is_empty() || text.bytes().any(special) {
        out.push('"');
        out.push_str(&text.replace('"', "\"\""));
        out.push('"');
    } else {
        out.push_str(text);
    }
}

fn json(value: &Value, ty: &DataType) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Boolean(value) => (*value).into(),
        Value::Int(value) if ty.is_integer() => (*value).into(),
        Value::Float(value) => f64::from(*value).into(),
        Value::Double(value) => (*value).into(),
        Value::Decimal(_) => {
            let text = value.text(ty);
            serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text))
        }
        value => value.text(ty).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Vec<(String, bool)> {
        let mut fields = Vec::new();
        split(line, b',', &mut fields);
        fields
    }

    #[test]
    fn quotes_hold_delimiters_and_quotes() {
        let field = |text: &str, quoted| (text.to_owned(), quoted);
        assert_eq!(fields("a,,b"), [field("a", false), field("", false), field("b", false)]);
        assert_eq!(fields("\"a,\"\"b\"\"\",\"\""), [field("a,\"b\"", true), field("", true)]);
        assert_eq!(fields(""), [field("", false)]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["", "a", "a,b", "\"", "line\nline", "é"] {
            let mut out = String::new();
            quote(text, b',', &mut out);
            assert_eq!(fields(&out)[0].0, text);
        }
    }
}
