//! Programs of the system that the packages need.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::failure::{Attempt, Failure, Result};
use crate::server::find_program;

/// A command of this program, which a package of Debian has.
pub fn tool(name: &str, package: &str) -> Result<Command> {
    let found = find_program(name).or_else(|| {
        // Not in the path of all users.
        let path = Path::new("/usr/sbin").join(name);
        path.is_file().then_some(path)
    });
    let path = found.ok_or_else(|| {
        Failure::new(format!("found no program {name}; install Debian's package {package}"))
    })?;
    let mut command = Command::new(path);
    // Dates, orders and messages do not depend on the user.
    command.env("LC_ALL", "C").env("TZ", "UTC");
    Ok(command)
}

/// Runs a command to its end and returns its output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().attempt(|| format!("run {command:?}"))?;
    if !output.status.success() {
        return Err(Failure::new(format!(
            "{command:?} ended with {}:\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Packs a directory: the same files give the same bytes. `more` are further options of tar.
pub fn tar<A: AsRef<OsStr>>(root: &Path, archive: &Path, epoch: u64, more: &[A]) -> Result<()> {
    let mut tar = tool("tar", "tar")?;
    tar.args(["--format=gnu", "--sort=name", "--numeric-owner", "--owner=0", "--group=0"]);
    tar.arg(format!("--mtime=@{epoch}")).args(more).arg("--file").arg(archive).arg("--directory").arg(root);
    output(tar.arg(".")).map(drop)
}

/// Compresses a file in place of itself: the name ends with `.gz`.
pub fn gzip(path: &Path) -> Result<()> {
    output(tool("gzip", "gzip")?.args(["-9", "--no-name", "--force"]).arg(path)).map(drop)
}
