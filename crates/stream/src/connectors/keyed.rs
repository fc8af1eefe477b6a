//! Results as keys: the newest row of each primary key is a hash, or a JSON string, under a key that any Redis client
//! can read.
//!
//! | option | is |
//! |---|---|
//! | `database` | number of the database, 0 by default |
//! | `key` | the prefix of keys, the table's name by default; the values of the primary key follow, each after a `:`
//! ([`join`]) |
//! | `value` | `hash` (default): a field for each column that is not NULL; `json`: the row as a string |
//!
//! `duramen` writes to the job's own store, in the checkpoint, exactly once; `duramen serve` serves that store while
//! the job does not run. `redis` writes to a running server at once: after a crash some keys are written again with the
//! same rows. With `'sink.delivery-guarantee' = 'exactly-once'` it writes after each checkpoint, in one transaction
//! (`redis/exactly_once.rs`).

use std::collections::BTreeMap;

use crate::catalog::Table;
use crate::catalog::options::Kind::{Choice, Number, Text, Time};
use crate::catalog::options::{Declared, option};
use crate::compile::{RowRef, Rows};
use crate::error::{Error, Result};
use crate::formats::json::Json;
use crate::formats::{Format, Writing, texts};
use crate::run::row_sink::Content;
use crate::types::{DataType, Scalar};

/// The option of all connectors with keys.
pub const DATABASE: Declared = option("database", Number, "0", "the number of the database");

/// The option of all connectors with keys.
pub const LOOKUP_REFRESH: Declared =
    option("lookup.refresh", Time, "(once)", "how often a lookup join reads the table again");

/// The option of all connectors with keys.
pub const KEY: Declared = option("key", Text, "(the table's name)", "the prefix of the keys, before a `:`");

/// The option of all connectors with keys.
pub const VALUE: Declared = option(
    "value",
    Choice(&["hash", "json"]),
    "hash",
    "a hash with one field per column that is not NULL, or the row as a JSON string",
);

/// How rows become keys and values.
pub struct KeyedSink {
    name: String,
    database: u8,
    prefix: String,
    columns: Vec<String>,
    /// Indexes of the primary key among the columns.
    key: Vec<usize>,
    /// Writes values that are JSON strings.
    json: Option<Writing>,
}

/// The number of a table's database.
pub fn database(table: &Table) -> Result<u8> {
    let text = table.options.get("database").map_or("0", String::as_str);
    text.parse().ok().filter(|database| *database < 128).ok_or_else(|| {
        Error::invalid(format!("'database' = '{text}' of `{}`", table.name), "a number from 0 to 127")
    })
}

/// The prefix of a table's keys.
pub fn prefix(table: &Table) -> String {
    format!("{}:", table.options.get("key").unwrap_or(&table.name))
}

/// The keys that a table writes, for people.
pub fn written(table: &Table) -> String {
    let database = table.options.get("database").map_or("0", String::as_str);
    format!("the keys {}* of database {database}", prefix(table))
}

/// The values of a primary key as the part of a key after its prefix, separated by `:`. In all but the last value a `\`
/// precedes each `:` and `\`, so that two primary keys never have the same key. The last value, usually the only one,
/// is not escaped.
pub fn join(values: &[String]) -> String {
    let Some((last, others)) = values.split_last() else { return String::new() };
    let mut joined = String::new();
    for value in others {
        for char in value.chars() {
            if matches!(char, ':' | '\\') {
                joined.push('\\');
            }
            joined.push(char);
        }
        joined.push(':');
    }
    joined + last
}

/// Splits the part of a key after its prefix into `count` values of a primary key; `None` if it has fewer.
pub fn split(rest: &str, count: usize) -> Option<Vec<String>> {
    let (mut values, mut value, mut chars) = (Vec::new(), String::new(), rest.chars());
    while values.len() + 1 < count {
        match chars.next()? {
            ':' => values.push(std::mem::take(&mut value)),
            // Keys written by others may have a literal `\`.
            '\\' => match chars.clone().next() {
                Some(char @ (':' | '\\')) => {
                    chars.next();
                    value.push(char);
                }
                _ => value.push('\\'),
            },
            char => value.push(char),
        }
    }
    values.push(chars.as_str().to_owned());
    Some(values)
}

impl KeyedSink {
    /// From a table's options.
    pub fn of(table: &Table) -> Result<KeyedSink> {
        let key: Vec<usize> = table
            .primary_key
            .iter()
            .filter_map(|column| table.physical.iter().position(|physical| physical == column))
            .collect();
        if key.is_empty() {
            return Err(Error::invalid(
                format!("no PRIMARY KEY for `{}`", table.name),
                "PRIMARY KEY (...) NOT ENFORCED: it becomes the key in the store",
            ));
        }
        let json = match table.options.get("value").map(String::as_str) {
            None | Some("hash") => false,
            Some("json") => true,
            Some(other) => {
                return Err(Error::invalid(
                    format!("'value' = '{other}' of `{}`", table.name),
                    "'hash' or 'json'",
                ));
            }
        };
        let columns: Vec<String> =
            table.physical.iter().map(|column| table.columns[*column].name.clone()).collect();
        Ok(KeyedSink {
            name: table.name.clone(),
            database: database(table)?,
            prefix: prefix(table),
            json: json.then(|| Writing::of(Format::Json(Json::default()), columns.clone())),
            columns,
            key,
        })
    }

    /// The name of its table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of its columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The number of its database.
    pub fn database(&self) -> u8 {
        self.database
    }

    /// The prefix of its keys.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether a row may have this key.
    pub fn is_key(&self, key: &[u8]) -> bool {
        let rest = key.strip_prefix(self.prefix.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok());
        rest.is_some_and(|rest| split(rest, self.key.len()).is_some())
    }

    /// The key of a row, and its value; `None` as the value of a deleted row.
    fn entry(&self, row: RowRef<'_>) -> Result<(String, Option<Content>)> {
        let text = |(value, ty): (Scalar<'_>, &DataType)| {
            let mut text = String::new();
            value.write_text(ty, &mut text);
            text
        };
        let parts: Vec<String> = self.key.iter().map(|column| text(row.field(*column))).collect();
        let key = format!("{}{}", self.prefix, join(&parts));
        if !row.kind().adds() {
            return Ok((key, None));
        }
        if let Some(json) = &self.json {
            let mut text = String::new();
            json.record(row.fields(), &mut text)?;
            return Ok((key, Some(Content::Text(text))));
        }
        let fields = self.columns.iter().zip(row.fields()).filter(|(_, (value, _))| !value.is_null());
        let field = |(name, (value, ty)): (&String, (Scalar<'_>, &DataType))| {
            let mut written = String::new();
            match ty {
                DataType::Bytes => texts::write(value, ty, &mut written),
                _ => value.write_text(ty, &mut written),
            }
            (name.clone(), written)
        };
        Ok((key, Some(Content::Hash(fields.map(field).collect()))))
    }
}

/// The changes of rows by key: the newest counts. A row that replaces another is preceded by the old row. The old row
/// is deleted if no new row follows under its key, because a filter dropped it.
pub fn changes(
    keyed: &KeyedSink,
    rows: &Rows<'_>,
    mut each: impl FnMut(String, Option<Content>),
) -> Result<()> {
    for row in rows.borrowed() {
        let (key, kept) = keyed.entry(row)?;
        each(key, kept);
    }
    Ok(())
}

/// The newest rows by key, and their bytes.
#[derive(Default)]
pub struct Changed {
    rows: BTreeMap<String, Option<Content>>,
    bytes: usize,
}

impl Changed {
    /// Adds the changes of rows.
    pub fn add(&mut self, keyed: &KeyedSink, rows: &Rows<'_>) -> Result<()> {
        // A key and its place in the tree.
        const KEY: usize = 100;
        let bytes = |content: &Option<Content>| content.as_ref().map_or(0, Content::bytes);
        changes(keyed, rows, |key, kept| {
            let new = key.len() + KEY;
            self.bytes += bytes(&kept);
            match self.rows.insert(key, kept) {
                Some(old) => self.bytes -= bytes(&old),
                None => self.bytes += new,
            }
        })
    }

    /// Their bytes in memory, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes all of them.
    pub fn take(&mut self) -> BTreeMap<String, Option<Content>> {
        self.bytes = 0;
        std::mem::take(&mut self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_primary_keys_have_different_key_names_that_read_back() {
        let values = ["", "a", ":", "\\", "a:b", "b:c", "\\:", ":\\", "a\\", "NULL"];
        let mut seen = std::collections::BTreeSet::new();
        for first in values {
            for second in values {
                for third in values {
                    let key = [first, second, third].map(str::to_owned);
                    let joined = join(&key);
                    assert_eq!(split(&joined, 3).as_deref(), Some(&key[..]), "{joined}");
                    assert!(seen.insert(joined), "{key:?}");
                }
            }
        }
        // A primary key of one column is not escaped.
        for value in values {
            assert_eq!(join(&[value.to_owned()]), value);
            assert_eq!(split(value, 1), Some(vec![value.to_owned()]));
        }
        assert_eq!(split("a", 2), None);
        assert_eq!(split("a\\x:b", 2), Some(vec!["a\\x".to_owned(), "b".to_owned()]));
    }
}
