//! A file that a command writes: whole or not at all, and never over a store.

use crate::Failure;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Refuses a path where a store is: a user who names it means the store, not the output.
pub fn check(path: &Path) -> Result<(), Failure> {
    if is_store(path).unwrap_or(false) {
        return Err(format!(
            "cannot write {}: it is a store, which would be overwritten; name another file for the output (--path \
             names the store)",
            path.display()
        )
        .into());
    }
    Ok(())
}

fn is_store(path: &Path) -> io::Result<bool> {
    // Nothing else is opened: reading a pipe would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Ok(false);
    }
    let mut head = Vec::new();
    File::open(path)?.take(duramen::STORE_HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(duramen::begins_store(&head))
}

/// An output that replaces the file at `path` when it is [kept](Self::keep). Until then it is a temporary file next to
/// it, which is removed if it is not kept. A pipe or a device is written to at once.
pub struct Output {
    path: PathBuf,
    file: File,
    beside: Option<PathBuf>,
}

impl Output {
    pub fn create(path: &Path) -> Result<Self, Failure> {
        check(path)?;
        let fail = |error: io::Error| Failure::from(format!("cannot write {}: {error}", path.display()));
        // The target of a link, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if fs::metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            let file = OpenOptions::new().write(true).open(&path).map_err(fail)?;
            return Ok(Self { path, file, beside: None });
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.part", std::process::id()));
        let beside = PathBuf::from(beside);
        // For its owner only, like a store: it has the same content.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(fail)?;
        Ok(Self { path, file, beside: Some(beside) })
    }

    /// Makes it durable under its name.
    pub fn keep(mut self) -> Result<(), Failure> {
        let fail = |error: io::Error| Failure::from(format!("cannot write {}: {error}", self.path.display()));
        let Some(beside) = &self.beside else { return Ok(()) };
        self.file.sync_all().map_err(fail)?;
        fs::rename(beside, &self.path).map_err(fail)?;
        self.beside = None;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))
            .and_then(|directory| directory.sync_all())
            .map_err(fail)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| {
            // The reader of a pipe has ended: the program ends without a message then.
            if error.kind() == io::ErrorKind::BrokenPipe {
                return error;
            }
            io::Error::new(error.kind(), format!("cannot write {}: {error}", self.path.display()))
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = fs::remove_file(beside);
        }
    }
}
