//! Files of a directory that appear when the checkpoint that names them is committed.
//!
//! Each name contains the job's run, which only the store of that job knows (`claim.rs`). So a job never mistakes files
//! of another job, or of a job with its name and another store, for its own.

use std::fs::{DirEntry, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::claim::{Claim, Strangers};
use super::row_sink::{CommitParticipant, JobStore};
use crate::error::{Error, Result};

/// Files of a directory, one for each checkpoint that wrote something: `part-JOB-NUMBER-RUN-EPOCH`. Until its
/// checkpoint is committed, a file's name begins with a dot.
pub struct Parts {
    directory: PathBuf,
    /// The table, for errors.
    table: String,
    /// `part-JOB-NUMBER-`.
    stem: String,
    run: String,
    extension: &'static str,
    epoch: u64,
    open: Option<BufWriter<File>>,
}

impl Parts {
    /// Parts of one writer of a job, created in the final directory.
    pub fn open(
        directory: PathBuf,
        table: &str,
        (job, number): (&str, &str),
        extension: &'static str,
    ) -> Result<Parts> {
        if directory.is_file() {
            return Err(Error::invalid(
                format!("the file {directory:?} for `{table}`"),
                "a directory: a job with checkpoints writes parts",
            ));
        }
        let (table, stem) = (table.to_owned(), format!("part-{job}-{}-", in_name(number)));
        Ok(Parts { directory, table, stem, run: String::new(), extension, epoch: 1, open: None })
    }

    fn failed<'p>(&'p self, what: &'p str) -> impl Fn(std::io::Error) -> Error + 'p {
        move |error| {
            Error::connector(format!(
                "cannot {what} a part of `{}` in {:?}: {error}",
                self.table, self.directory
            ))
        }
    }

    /// The run in the name of a part of this writer, or of another one with the same job and number; `None` for other
    /// names.
    fn run_of<'n>(&self, name: &'n str) -> Option<&'n str> {
        let (run, rest) = name.strip_prefix(&self.stem)?.split_once('-')?;
        let (epoch, _) = rest.split_once('.')?;
        let is_epoch = epoch.len() >= 10 && epoch.bytes().all(|byte| byte.is_ascii_digit());
        (Claim::is_run(run) && is_epoch).then_some(run)
    }

    /// The name of the part of this checkpoint.
    fn part(&self) -> String {
        format!("{}{}-{:010}.{}", self.stem, self.run, self.epoch, self.extension)
    }

    /// Names in the directory, if it exists.
    fn names(&self) -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(self.failed("look for"))?,
        };
        let name = |entry: std::io::Result<DirEntry>| {
            entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect::<std::io::Result<_>>().map_err(self.failed("look for"))
    }

    /// As [`super::row_sink::RowSink::look`].
    pub fn look(&self, claim: &Claim, strangers: &mut Strangers) -> Result<()> {
        let own =
            |run: &str| claim.run == run || claim.adopted.iter().chain(&claim.over).any(|own| own == run);
        for name in self.names()? {
            if let Some(run) = self.run_of(&name).filter(|run| !own(run)) {
                strangers.part(run, &self.directory.join(&name));
            }
        }
        Ok(())
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut file = match self.open.take() {
            Some(file) => file,
            None => {
                let path = self.directory.join(format!(".{}", self.part()));
                BufWriter::with_capacity(1 << 16, File::create(path).map_err(self.failed("create"))?)
            }
        };
        file.write_all(bytes).map_err(self.failed("write"))?;
        self.open = Some(file);
        Ok(())
    }

    /// As [`super::row_sink::RowSink::part`].
    pub fn end_part(&mut self) -> Result<(Value, Option<Box<dyn CommitParticipant>>)> {
        let part = self.part();
        self.epoch += 1;
        let Some(file) = self.open.take() else { return Ok((Value::Null, None)) };
        let file = file.into_inner().map_err(|error| self.failed("write")(error.into_error()))?;
        let publishes = json!({ "part": part });
        Ok((publishes, Some(Box::new(Part { directory: self.directory.clone(), part, file }))))
    }

    /// As [`super::row_sink::RowSink::recover`].
    pub fn recover(&mut self, part: Option<&Value>, epoch: u64, claim: &Claim) -> Result<()> {
        std::fs::create_dir_all(&self.directory).map_err(self.failed("make the directory of"))?;
        (self.epoch, self.run) = (epoch, claim.run.clone());
        if let Some(part) = part.and_then(|part| part["part"].as_str()) {
            let pending = self.directory.join(format!(".{part}"));
            if pending.exists() {
                std::fs::rename(&pending, self.directory.join(part)).map_err(self.failed("rename"))?;
            }
        }
        // Parts of no checkpoint; and, while there is no checkpoint, all parts of earlier runs.
        for name in self.names()? {
            let pending = name.strip_prefix('.');
            let Some(run) = self.run_of(pending.unwrap_or(&name)) else { continue };
            let is_over = part.is_none() && claim.over.iter().any(|over| over == run);
            if is_over || pending.is_some() && run == claim.run {
                std::fs::remove_file(self.directory.join(&name)).map_err(self.failed("delete"))?;
            }
        }
        sync(&self.directory).map_err(self.failed("rename"))
    }
}

/// A text chosen by users, as part of a file's name: letters, digits, `_` and `-`; other bytes become `%2f` and so on.
fn in_name(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    text.bytes().map(byte).collect()
}

/// Makes names of a directory durable.
fn sync(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

/// A part that waits for its checkpoint.
struct Part {
    directory: PathBuf,
    part: String,
    file: File,
}

impl Part {
    fn failed(&self) -> impl Fn(std::io::Error) -> Error {
        let path = self.directory.join(&self.part);
        move |error| Error::connector(format!("cannot write {path:?}: {error}"))
    }
}

impl CommitParticipant for Part {
    fn prepare(&mut self, _: &mut JobStore) -> Result<()> {
        self.file.sync_all().and_then(|()| sync(&self.directory)).map_err(self.failed())
    }

    fn publish(&mut self) -> Result<()> {
        let pending = self.directory.join(format!(".{}", self.part));
        std::fs::rename(pending, self.directory.join(&self.part))
            .and_then(|()| sync(&self.directory))
            .map_err(self.failed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_part_identifies_its_job_and_run() {
        let parts = Parts::open("dir".into(), "t", ("job", "0"), "csv").unwrap();
        let run = "0123456789abcdef0";
        let run_of = |name: &str| parts.run_of(name).map(str::to_owned);
        assert_eq!(run_of(&format!("part-job-0-{run}-0000000001.csv")).as_deref(), Some(run));
        for other in [
            format!("part-job-1-{run}-0000000001.csv"),
            format!("part-job2-0-{run}-0000000001.csv"),
            format!("part-job-0-{run}-1.csv"),
            format!("part-job-0-{run}-0-{run}-0000000001.csv"),
            "part-job-0-0000000001.csv".to_owned(),
            "part-job-0-notes.csv".to_owned(),
        ] {
            assert_eq!(run_of(&other), None, "{other}");
        }
        assert_eq!(in_name("dead-a/../b.é"), "dead-a%2f%2e%2e%2fb%2e%c3%a9");
    }
}
