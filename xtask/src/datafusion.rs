//! `cargo xtask datafusion`: installs DataFusion for Python once, and compares random queries with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo;
use crate::failure::{Attempt, Failure, Result};

#[derive(clap::Args)]
pub struct Settings {
    /// The directory for DataFusion [default: target/datafusion]
    #[arg(long, value_name = "PATH", default_value_os_t = crate::repository().join("target/datafusion"), hide_default_value = true)]
    pub cache: PathBuf,
    /// Number of queries, each with separate rows
    #[arg(long, default_value_t = 20_000)]
    pub pairs: u64,
    /// Repeats the seed of an earlier run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The name in Python's registry.
const PACKAGE: &str = "datafusion==55.0.0";

/// Runs the comparison; returns whether there is no difference.
pub fn run(repository: &Path, settings: &Settings) -> Result<bool> {
    let python = python(&settings.cache)?;
    let mut cargo = cargo(repository);
    cargo.args(["test", "--package", "duramen-stream", "--test", "all", "datafusion::"]);
    cargo.args(["--", "--ignored", "--nocapture"]).env("DURAMEN_DATAFUSION_PYTHON", python);
    cargo.env("DURAMEN_STREAM_PAIRS", settings.pairs.to_string());
    cargo.env("DURAMEN_STREAM_SEED", settings.seed.to_string());
    let status = cargo.status().attempt(|| "run cargo".to_owned())?;
    Ok(status.success())
}

/// A Python with DataFusion, which is installed if missing.
pub fn python(cache: &Path) -> Result<PathBuf> {
    let cache = std::path::absolute(cache).attempt(|| format!("find {}", cache.display()))?;
    let (python, whole) = (cache.join("bin/python"), cache.join("whole"));
    if whole.exists() {
        return Ok(python);
    }
    let call = |command: &mut Command, what: &str| {
        let status = command.status().attempt(|| what.to_owned())?;
        if status.success() { Ok(()) } else { Err(Failure::new(format!("cannot {what}: {status}"))) }
    };
    call(Command::new("python3").args(["-m", "venv"]).arg(&cache), "make a virtual environment of Python")?;
    call(Command::new(&python).args(["-m", "pip", "install", "--quiet", PACKAGE]), "install DataFusion")?;
    fs::write(&whole, "").attempt(|| format!("write in {}", cache.display()))?;
    Ok(python)
}
