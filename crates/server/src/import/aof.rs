//! Append-only files: an optional RDB file, and commands after it; Redis 7.0 has several, which a manifest lists in
//! their order.
//!
//! A command that is cut off at the very end was never acknowledged: it is left out, as Redis does with `aof-load-truncated
//! yes`. So is a MULTI without its EXEC.

use super::commands::Step;
use super::{Failure, Import};
use duramen_structures::dump::file::is_begin;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

const READ_BYTES: usize = 256 << 10;
const GROUP_COMMANDS: u64 = 256;

/// A file that holds keys, or lists others that do.
#[derive(Debug)]
pub struct Files {
    /// In the order in which they are read.
    pub paths: Vec<PathBuf>,
    /// The bytes of all of them.
    pub bytes: u64,
}

impl Files {
    /// The files at `path`: an RDB file, an append-only file, a manifest, or a directory with one.
    ///
    /// # Errors
    /// When there is no such file, or it cannot be read.
    pub fn find(path: &Path) -> Result<Self, Failure> {
        let paths = if path.is_dir() {
            read_manifest(&find_manifest(path)?)?
        } else if path.extension().is_some_and(|extension| extension == "manifest") {
            read_manifest(path)?
        } else {
            vec![path.to_owned()]
        };
        let mut bytes = 0;
        for path in &paths {
            bytes += fs::metadata(path).map_err(|error| cannot_read(path, &error))?.len();
        }
        Ok(Self { paths, bytes })
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure(format!("cannot read {}: {error}", path.display()))
}

fn find_manifest(directory: &Path) -> Result<PathBuf, Failure> {
    let entries = fs::read_dir(directory).map_err(|error| cannot_read(directory, &error))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| cannot_read(directory, &error))?.path();
        if path.extension().is_some_and(|extension| extension == "manifest") {
            found.push(path);
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some(path), true) => Ok(path),
        (None, _) => Err(Failure(format!(
            "{} has no manifest of an append-only file (NAME.aof.manifest); name an RDB file, an append-only file, or such a directory",
            directory.display()
        ))),
        (Some(_), false) => {
            Err(Failure(format!("{} has several manifests; name the one to be read", directory.display())))
        }
    }
}

/// The files that a manifest lists: the base, and the increments in their order.
fn read_manifest(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| cannot_read(path, &error))?;
    let mut paths = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A manifest consists of pairs: `file NAME seq NUMBER type b`.
        let word = |name| words.chunks_exact(2).find_map(|pair| (pair[0] == name).then_some(pair[1]));
        match (word("file"), word("type")) {
            // A file that a rewrite has replaced.
            (Some(_), Some("h")) => {}
            (Some(name), Some("b" | "i")) if !name.contains('/') => paths.push(path.with_file_name(name)),
            _ => {
                let (name, number) = (path.display(), index + 1);
                return Err(Failure(format!(
                    "{name} line {number} is no line of a manifest: wanted \"file NAME seq NUMBER type b, h or i\""
                )));
            }
        }
    }
    Ok(paths)
}

impl Import<'_> {
    /// Reads these files, one after the other.
    ///
    /// # Errors
    /// The problem, with its file and position, or the store's error.
    pub fn files(&mut self, files: &Files) -> Result<(), Failure> {
        for (index, path) in files.paths.iter().enumerate() {
            let is_last = index + 1 == files.paths.len();
            let name = path.display();
            let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
            self.file(file, is_last).map_err(|why| Failure(format!("{name}: {why}")))?;
        }
        Ok(())
    }

    fn file(&mut self, mut file: File, is_last: bool) -> Result<(), Failure> {
        let mut begin = Vec::new();
        let read = file.by_ref().take(5).read_to_end(&mut begin);
        read.map_err(|error| Failure(format!("cannot read it: {error}")))?;
        let before = self.done.bytes;
        if !is_begin(&begin) {
            if !matches!(begin.first(), None | Some(b'*' | b'#')) {
                return Err(Failure(format!(
                    "it begins with \"{}\": wanted REDIS or VALKEY of an RDB file, or * or # of an append-only file",
                    begin.escape_ascii()
                )));
            }
            return self.aof(begin, file, before, is_last);
        }
        let (rest, mut source) = self.rdb(begin.chain(file))?;
        let mut rest = rest;
        if rest.is_empty() {
            let read = source.by_ref().take(1).read_to_end(&mut rest);
            read.map_err(|error| Failure(format!("cannot read any further: {error}")))?;
        }
        // Commands may follow. Other bytes do not belong to the file, and cutting it there would lose nothing.
        if !matches!(rest.first(), None | Some(b'*' | b'#')) {
            return Err(Failure(format!(
                "the RDB file ends at byte {}, and no command follows; all {} of it are imported, and the \
                 rest is not part of it",
                self.done.bytes - before,
                self.done
            )));
        }
        self.aof(rest, source, before, is_last)
    }

    /// Executes the commands in `buffer` and then in `source`; `before` is the offset of the first byte in the file.
    fn aof(&mut self, buffer: Vec<u8>, source: impl Read, before: u64, is_last: bool) -> Result<(), Failure> {
        self.commands.group();
        let executed = self.aof_commands(buffer, source, before, is_last);
        let flushed = self.commands.flush_group();
        (self.told)(&self.done);
        executed.map_err(|why| Failure(format!("{why}; imported before it: {}", self.done)))?;
        flushed
    }

    fn aof_commands(
        &mut self,
        mut buffer: Vec<u8>,
        mut source: impl Read,
        before: u64,
        is_last: bool,
    ) -> Result<(), Failure> {
        let (mut at, mut grouped) = (0, 0);
        loop {
            let bytes = match buffer.get(at) {
                // A remark: `#TS:1700000000`.
                Some(b'#') => buffer[at..].iter().position(|&byte| byte == b'\n').map(|end| end + 1),
                Some(b'*') => self.aof_command(&buffer[at..], before)?,
                None => None,
                Some(_) => {
                    let offset = self.done.bytes - before;
                    return Err(Failure(format!(
                        "at byte {offset}: no command begins there; to import the part before it, cut a copy of \
                         the file with redis-check-aof --fix"
                    )));
                }
            };
            if let Some(bytes) = bytes {
                (at, grouped) = (at + bytes, grouped + 1);
                self.done.bytes += bytes as u64;
                if grouped >= GROUP_COMMANDS {
                    grouped = 0;
                    self.commands.flush_group()?;
                    (self.told)(&self.done);
                    if self.stop.load(Ordering::Relaxed) {
                        return Err(Failure(format!(
                            "stopped as asked at byte {}",
                            self.done.bytes - before
                        )));
                    }
                    self.commands.group();
                }
                continue;
            }
            buffer.drain(..at);
            at = 0;
            let (have, offset) = (buffer.len(), self.done.bytes - before);
            buffer.resize(have + READ_BYTES, 0);
            let taken = source.read(&mut buffer[have..]);
            buffer.truncate(have + *taken.as_ref().unwrap_or(&0));
            match taken {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Failure(format!("cannot read any further at byte {offset}: {error}")));
                }
                Ok(0) if buffer.is_empty() && self.commands.is_whole() => return Ok(()),
                Ok(0) if is_last => {
                    self.done.skip(match self.commands.is_whole() {
                        true => format!("{have} bytes of a command that was cut off, at byte {offset}"),
                        false => "a MULTI at the end, whose EXEC is missing".to_owned(),
                    });
                    return Ok(());
                }
                Ok(0) => {
                    let why = format!(
                        "at byte {offset}: the file ends within a command or before EXEC, and it is not the last"
                    );
                    return Err(Failure(why));
                }
                Ok(_) => {}
            }
        }
    }

    fn aof_command(&mut self, input: &[u8], before: u64) -> Result<Option<usize>, Failure> {
        match self.commands.step(input) {
            Ok(Step::Incomplete) => Ok(None),
            Ok(Step::Command { bytes, is_executed }) => {
                self.done.commands += u64::from(is_executed);
                self.done.databases.insert(self.commands.database());
                Ok(Some(bytes))
            }
            Err(why) => Err(Failure(format!("at byte {}: {why}", self.done.bytes - before))),
        }
    }
}
