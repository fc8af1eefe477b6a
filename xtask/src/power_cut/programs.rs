//! Programs of the system, and the files that they leave in directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Attempt, Failure, Result};
use crate::server::find_program;

/// The path of a program that is installed.
pub fn program(name: &str) -> Result<PathBuf> {
    let beyond_path = ["/usr/sbin", "/sbin"].map(|directory| Path::new(directory).join(name));
    find_program(name)
        .or_else(|| beyond_path.into_iter().find(|path| path.is_file()))
        .ok_or_else(|| Failure::new(format!("cannot find the program {name} in PATH")))
}

/// The entry of a directory whose name fits.
pub fn find_in(directory: &Path, fits: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let entries = fs::read_dir(directory).attempt(|| format!("list {}", directory.display()))?;
    let found = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&fits));
    found.ok_or_else(|| Failure::new(format!("cannot find the wanted file in {}", directory.display())))
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().attempt(|| format!("run {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::new(format!("{name} failed ({}): {words}", output.status)))
}
