//! Records of a source: lines to rows of a batch, and what becomes of those that cannot be read.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::claim::{Claim, Existing, Strangers};
use super::format::{Format, Reading};
use super::parts::Parts;
use super::row_sink::CommitParticipant;
use super::split::Splitter;
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::Source;
use crate::error::{Error, Result};
use crate::types::Row;

/// What a job's sources and sinks have of it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'p> {
    /// Paths are relative to it.
    pub directory: &'p Path,
    /// The name of a job with checkpoints.
    pub job: Option<&'p str>,
    /// What it does with what others have written.
    pub existing: Existing,
    /// Whether it goes on behind a checkpoint.
    pub goes_on: bool,
}

/// Where records go that could not be read, each as an object of JSON with what was wrong: `'dead-letter' = 'path'`.
enum Letters {
    /// With checkpoints: exactly once.
    Parts(Parts),
    /// Without: appended, whole letters at a time, so that several tables may share a file.
    File(File),
}

/// Reads lines.
pub struct Records {
    table: String,
    reading: Reading,
    /// Whether what cannot be read is left out.
    skip: bool,
    skipped: u64,
    letters: Option<Letters>,
}

impl Records {
    /// Of a table with a format.
    pub fn open(table: &Table, source: &Source, place: Place<'_>) -> Result<Records> {
        Records::with(Reading::new(Format::of(table)?, table, source)?, table, place)
    }

    /// The same by a reading of the caller's.
    pub fn with(reading: Reading, table: &Table, place: Place<'_>) -> Result<Records> {
        let skip = table
            .options
            .iter()
            .any(|(option, value)| option.ends_with(".ignore-parse-errors") && value == "true");
        let letters = match table.options.get("dead-letter") {
            None => None,
            Some(path) => {
                let path = place.directory.join(path);
                Some(match place.job {
                    Some(job) => {
                        let number = format!("dead-{}", table.name);
                        Letters::Parts(Parts::open(path, &table.name, (job, &number), "json")?)
                    }
                    None => {
                        // What is there may be letters of a run before.
                        let file = OpenOptions::new().create(true).append(true).open(&path);
                        Letters::File(file.map_err(|error| {
                            Error::connector(format!(
                                "cannot append to {path:?} for `{}`: {error}",
                                table.name
                            ))
                        })?)
                    }
                })
            }
        };
        Ok(Records { table: table.name.clone(), reading, skip, skipped: 0, letters })
    }

    /// Splits an input into records. `begins`: the first byte is the first of the input.
    pub fn splitter(&self, begins: bool) -> Splitter {
        self.reading.splitter(begins)
    }

    /// Takes the record that was split off last; `place` says where it stood.
    pub fn take(
        &mut self,
        record: &Splitter,
        batch: &mut Batch,
        place: impl FnOnce() -> String,
    ) -> Result<()> {
        let read = self.reading.read(record);
        self.took(read, record.record(), batch, place)
    }

    /// The row of a message.
    pub fn read(&mut self, message: &[u8]) -> Result<Row> {
        self.reading.message(message)
    }

    /// Takes the row of a record, or does with the record what is said for those that cannot be read.
    pub fn took(
        &mut self,
        read: Result<Row>,
        record: &[u8],
        batch: &mut Batch,
        place: impl FnOnce() -> String,
    ) -> Result<()> {
        let error = match read {
            Ok(row) => return batch.push(&row),
            Err(error) => error,
        };
        if let Some(letters) = &mut self.letters {
            self.skipped += 1;
            let letter = json!({
                "table": self.table, "place": place(), "error": error.to_string(),
                "record": String::from_utf8_lossy(record),
            });
            let letter = format!("{letter}\n");
            return match letters {
                Letters::Parts(parts) => parts.write(letter.as_bytes()),
                Letters::File(file) => file.write_all(letter.as_bytes()).map_err(|error| {
                    Error::connector(format!("cannot write a dead letter of `{}`: {error}", self.table))
                }),
            };
        }
        if self.skip {
            self.skipped += 1;
            return Ok(());
        }
        Err(Error::connector(format!("{}: {error}", place())).hint(
            "'csv.ignore-parse-errors' or 'json.ignore-parse-errors' = 'true' leaves such records out, \
             'dead-letter' = 'path' keeps them",
        ))
    }

    /// Whether what cannot be read is kept as a dead letter.
    pub fn keeps_letters(&self) -> bool {
        self.letters.is_some()
    }

    /// Records that were left out.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Goes on with so many left out.
    pub fn set_skipped(&mut self, skipped: u64) {
        self.skipped = skipped;
    }

    /// As [`super::row_sink::RowSink::part`], of dead letters.
    pub fn end_part(&mut self) -> Result<(Value, Option<Box<dyn CommitParticipant>>)> {
        match &mut self.letters {
            Some(Letters::Parts(parts)) => parts.end_part(),
            _ => Ok((Value::Null, None)),
        }
    }

    /// As [`super::row_sink::RowSink::look`], of dead letters.
    pub fn look(&self, claim: &Claim, strangers: &mut Strangers) -> Result<()> {
        match &self.letters {
            Some(Letters::Parts(parts)) => parts.look(claim, strangers),
            _ => Ok(()),
        }
    }

    /// As [`super::row_sink::RowSink::recover`], of dead letters.
    pub fn recover(&mut self, part: Option<&Value>, epoch: u64, claim: &Claim) -> Result<()> {
        match &mut self.letters {
            Some(Letters::Parts(parts)) => parts.recover(part, epoch, claim),
            _ => Ok(()),
        }
    }
}
