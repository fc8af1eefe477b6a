//! Records of a source: parses lines into rows of a batch, and handles those that cannot be parsed.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::claim::{Claim, Existing, Strangers};
use super::parts::Parts;
use super::row_sink::CommitParticipant;
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::formats::split::Splitter;
use crate::formats::{Format, Reading};

/// The settings of a job for its sources and sinks.
#[derive(Debug, Clone, Copy)]
pub struct Place<'p> {
    /// The directory for relative paths.
    pub directory: &'p Path,
    /// The name of a job with checkpoints.
    pub job: Option<&'p str>,
    /// How it treats existing data of others.
    pub existing: Existing,
    /// Whether it resumes from a checkpoint.
    pub goes_on: bool,
}

/// The destination of records that could not be read, each as a JSON object with its error: `'dead-letter' = 'path'`.
enum Letters {
    /// With checkpoints: exactly once.
    Parts(Parts),
    /// Without checkpoints: appended, whole letters at a time, so that several tables may share a file.
    File(File),
}

/// Reads lines.
pub struct Records {
    table: String,
    reading: Reading,
    /// Whether records that cannot be read are skipped.
    skip: bool,
    skipped: u64,
    letters: Option<Letters>,
}

impl Records {
    /// For a table with a format.
    pub fn open(table: &Table, source: &Source, place: Place<'_>) -> Result<Records> {
        Records::with(Reading::new(Format::of(table)?, table, source), table, place)
    }

    /// With the caller's parser.
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
                        // The file may have letters of an earlier run.
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

    /// Adds the row of the last record that was split off; `place` is its position.
    pub fn add(
        &mut self,
        record: &Splitter,
        batch: &mut Batch,
        place: impl FnOnce() -> String,
    ) -> Result<()> {
        let read = self.reading.read(record, batch);
        self.complete(read, record.record(), batch, place)
    }

    /// Appends the columns of a message; [`Records::complete`] follows.
    pub fn read(&mut self, message: &[u8], batch: &mut Batch) -> Result<()> {
        self.reading.message(message, batch)
    }

    /// Completes the row that was read from a record. If the record cannot be read, the row is undone, and the record
    /// is skipped, kept as a dead letter or an error, as the options say.
    pub fn complete(
        &mut self,
        read: Result<()>,
        record: &[u8],
        batch: &mut Batch,
        place: impl FnOnce() -> String,
    ) -> Result<()> {
        let Err(error) = read else {
            batch.end_row();
            return Ok(());
        };
        batch.undo_row();
        // Not the record's fault.
        if error.kind() == ErrorKind::Memory {
            return Err(error);
        }
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

    /// Whether records that cannot be read are kept as dead letters.
    pub fn keeps_letters(&self) -> bool {
        self.letters.is_some()
    }

    /// Number of skipped records.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Resumes with this many skipped.
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
