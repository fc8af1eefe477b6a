//! Writes one file; in a job with checkpoints parts of a directory, each renamed when the checkpoint that names it is
//! committed.

use serde_json::Value;

use super::one_file::OneFile;
use crate::compile::{Output, Rows};
use crate::error::{Error, Result};
use crate::formats::{Format, Writing};
use crate::plan::Sink;
use crate::run::claim::{Claim, Strangers};
use crate::run::parts::Parts;
use crate::run::records::Place;
use crate::run::row_sink::{CommitParticipant, JobStore, RowSink};
use crate::run::writers::path;

pub fn open(sink: &Sink, number: usize, place: Place<'_>) -> Result<Box<dyn RowSink>> {
    let table = &sink.table;
    let name = &table.name;
    let writing = Writing::new(Format::of(table)?, table);
    let mut path = path(table, place.directory)?;
    if let Some(job) = place.job {
        let parts = Parts::open(path, name, (job, &number.to_string()), writing.extension())?;
        return Ok(Box::new(Files { parts, writing }));
    }
    // A directory has a single file.
    if path.is_dir() || table.options.get("path").is_some_and(|path| path.ends_with('/')) {
        std::fs::create_dir_all(&path)
            .map_err(|error| Error::connector(format!("cannot make {path:?} for `{name}`: {error}")))?;
        path = path.join("part-0");
    }
    Ok(Box::new(OneFile::open(&path, writing, name, place.existing)?))
}

/// Files of a directory.
struct Files {
    parts: Parts,
    writing: Writing,
}

impl Output for Files {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.parts.write(self.writing.text(rows)?.as_bytes())
    }
}

impl RowSink for Files {
    fn end_part(&mut self) -> Result<(Value, Option<Box<dyn CommitParticipant>>)> {
        self.parts.end_part()
    }

    fn look(&mut self, _: &mut JobStore, claim: &Claim, strangers: &mut Strangers) -> Result<()> {
        self.parts.look(claim, strangers)
    }

    fn recover(&mut self, part: Option<&Value>, epoch: u64, _: &mut JobStore, claim: &Claim) -> Result<()> {
        self.parts.recover(part, epoch, claim)
    }
}
