//! The version of a package: what is packed, and when it was committed.

use std::path::Path;

use super::tool::{output, tool};
use crate::failure::{Attempt, Failure, Result};

/// What is packed.
pub struct Release {
    /// The workspace's version, or before its release with date and commit, such as 0.1.0~202611301730.5c4302f5.
    pub upstream: String,
    /// Debian's: with the revision.
    pub debian: String,
    /// The commit.
    pub commit: String,
    /// Its time in Unix seconds, or `SOURCE_DATE_EPOCH`. Every file and document of a package has it.
    pub epoch: u64,
}

impl Release {
    /// The state of this repository.
    pub fn of(repository: &Path, revision: &str) -> Result<Release> {
        let manifest = repository.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).attempt(|| format!("read {}", manifest.display()))?;
        let manifest: toml::Table = text.parse().attempt(|| format!("read {}", manifest.display()))?;
        let version =
            manifest.get("workspace").and_then(|workspace| workspace.get("package")?.get("version"));
        let version = version.and_then(toml::Value::as_str);
        let version =
            version.ok_or_else(|| Failure::new("Cargo.toml has no version of the workspace"))?.to_owned();
        let git = |arguments: &[&str]| output(tool("git", "git")?.current_dir(repository).args(arguments));
        let commit = git(&["rev-parse", "HEAD"])?;
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => git(&["log", "-1", "--format=%ct"])?,
        };
        let epoch: u64 = epoch.parse().attempt(|| format!("read the time {epoch:?}"))?;
        let is_tagged = git(&["tag", "--points-at", "HEAD"])?.lines().any(|tag| tag == format!("v{version}"));
        let upstream = if is_tagged {
            version
        } else {
            format!("{version}~{}.{}", date(epoch, "+%Y%m%d%H%M")?, &commit[..commit.len().min(8)])
        };
        if !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
            println!(
                "note: the repository has changes that are not committed; the version names the last commit"
            );
        }
        if revision.is_empty() || !revision.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '~')
        {
            return Err(Failure::new(format!("revision {revision:?}: wanted letters, digits, . and ~")));
        }
        let debian = format!("{upstream}-{revision}");
        Ok(Release { upstream, debian, commit, epoch })
    }

    /// The version as a part of file names and of an image's tag, which allow no tilde.
    pub fn tag(&self) -> String {
        self.upstream.replace('~', "-")
    }
}

/// A time by a format of date(1).
pub fn date(epoch: u64, format: &str) -> Result<String> {
    output(tool("date", "coreutils")?.arg("--utc").arg(format!("--date=@{epoch}")).arg(format))
}
