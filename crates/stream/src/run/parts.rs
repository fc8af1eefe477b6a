//! Files of a directory that appear when the checkpoint that names them is committed.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::take::{Cut, Desk};
use crate::error::{Error, Result};

/// Files of a directory, one for each checkpoint in which something was written: `part-JOB-NUMBER-EPOCH`. Until its
/// checkpoint is committed a file's name begins with a dot.
pub struct Parts {
    directory: PathBuf,
    /// The table that they are of, for errors.
    table: String,
    /// `part-JOB-NUMBER-`.
    stem: String,
    extension: &'static str,
    epoch: u64,
    open: Option<BufWriter<File>>,
}

impl Parts {
    /// Parts of one writer of a job, made where they shall be.
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
        std::fs::create_dir_all(&directory)
            .map_err(|error| Error::connector(format!("cannot make {directory:?} for `{table}`: {error}")))?;
        let (table, stem) = (table.to_owned(), format!("part-{job}-{number}-"));
        Ok(Parts { directory, table, stem, extension, epoch: 1, open: None })
    }

    fn failed<'p>(&'p self, what: &'p str) -> impl Fn(std::io::Error) -> Error + 'p {
        move |error| {
            Error::connector(format!(
                "cannot {what} a part of `{}` in {:?}: {error}",
                self.table, self.directory
            ))
        }
    }

    /// Whether this is a name of a part of this writer.
    fn is_own(&self, name: &str) -> bool {
        let epoch = name.strip_prefix(&self.stem).and_then(|rest| rest.split_once('.'));
        epoch.is_some_and(|(epoch, _)| epoch.len() == 10 && epoch.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// The name of the part of this checkpoint.
    fn part(&self) -> String {
        format!("{}{:010}.{}", self.stem, self.epoch, self.extension)
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

    /// As [`super::take::Take::cut`].
    pub fn cut(&mut self) -> Result<(Value, Option<Box<dyn Cut>>)> {
        let part = self.part();
        self.epoch += 1;
        let Some(file) = self.open.take() else { return Ok((Value::Null, None)) };
        let file = file.into_inner().map_err(|error| self.failed("write")(error.into_error()))?;
        let told = json!({ "part": part });
        Ok((told, Some(Box::new(Part { directory: self.directory.clone(), part, file }))))
    }

    /// As [`super::take::Take::recover`].
    pub fn recover(&mut self, cut: Option<&Value>, epoch: u64) -> Result<()> {
        self.epoch = epoch;
        if let Some(part) = cut.and_then(|cut| cut["part"].as_str()) {
            let pending = self.directory.join(format!(".{part}"));
            if pending.exists() {
                std::fs::rename(&pending, self.directory.join(part)).map_err(self.failed("rename"))?;
            }
        }
        // What belongs to no checkpoint; and from the start all that the job wrote before.
        for entry in std::fs::read_dir(&self.directory).map_err(self.failed("look for"))? {
            let entry = entry.map_err(self.failed("look for"))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let pending = name.strip_prefix('.').is_some_and(|name| self.is_own(name));
            if pending || cut.is_none() && self.is_own(&name) {
                std::fs::remove_file(entry.path()).map_err(self.failed("delete"))?;
            }
        }
        sync(&self.directory).map_err(self.failed("rename"))
    }
}

/// Makes names of a directory last.
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

impl Cut for Part {
    fn prepare(&mut self, _: &mut Desk) -> Result<()> {
        self.file.sync_all().and_then(|()| sync(&self.directory)).map_err(self.failed())
    }

    fn publish(&mut self) -> Result<()> {
        let pending = self.directory.join(format!(".{}", self.part));
        std::fs::rename(pending, self.directory.join(&self.part))
            .and_then(|()| sync(&self.directory))
            .map_err(self.failed())
    }
}
