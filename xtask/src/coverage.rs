//! `cargo xtask coverage`: which lines and branches of the engine its tests and the crash driver execute.
//!
//! cargo-llvm-cov does the work; it and the toolchain's component `llvm-tools` are installed if missing. Branches are
//! counted on the nightly toolchain only; without it, only lines are counted.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cargo::any_cargo;
use crate::failure::{Attempt, Failure, Result};

#[derive(clap::Args)]
pub struct Settings {
    /// How long the crash driver runs
    #[arg(long, default_value_t = 3.0)]
    pub minutes: f64,
    /// Lists the lines that were not executed
    #[arg(long)]
    pub missing: bool,
}

/// Lines and branches: all, and those executed.
#[derive(Clone, Copy, Default)]
struct Counts {
    lines: [u64; 2],
    branches: [u64; 2],
}

/// Measures and prints. There is no finding: people decide which share is enough.
pub fn run(repository: &Path, settings: &Settings) -> Result<bool> {
    let cargo = Cargo::find(repository)?;
    cargo.llvm_cov(&["clean", "--workspace"])?;
    let tested = [
        "-p",
        "duramen",
        "-p",
        "duramen-index",
        "-p",
        "duramen-log",
        "-p",
        "duramen-crash",
        "-p",
        "duramen-media",
        "--features",
        "duramen-media/sim",
    ];
    cargo.llvm_cov(&[&["test", "--no-report", "--no-fail-fast"][..], &tested].concat())?;
    let minutes = settings.minutes.to_string();
    cargo.llvm_cov(&["run", "--no-report", "-p", "duramen-crash", "--", "--minutes", &minutes])?;
    let report = cargo.report(&["--json", "--summary-only"])?;
    print(&parse(&report, repository)?, cargo.branches);
    if settings.missing {
        let text = cargo.report(&["--show-missing-lines"])?;
        // The table of all files comes first; each line of the list begins with a file's path.
        text.lines()
            .filter(|line| {
                line.starts_with('/')
                    && CRATES.iter().any(|krate| line.contains(&format!("crates/{krate}/src/")))
            })
            .for_each(|line| println!("{line}"));
    }
    Ok(true)
}

/// The engine's crates.
const CRATES: [&str; 3] = ["duramen", "index", "log"];

/// The crate and the path of a source of the engine, from its path in the repository: `log/space.rs`.
fn source(path: &str) -> Option<String> {
    let (krate, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    CRATES.contains(&krate).then(|| format!("{krate}/{file}"))
}

struct Cargo<'r> {
    repository: &'r Path,
    toolchain: Option<&'static str>,
    branches: bool,
}

impl<'r> Cargo<'r> {
    fn find(repository: &'r Path) -> Result<Self> {
        let runs = |arguments: &[&str]| {
            let mut command = Command::new("cargo");
            command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let branches = runs(&["+nightly", "--version"]);
        if !branches {
            eprintln!("no nightly toolchain: branches are not counted (rustup toolchain install nightly)");
        }
        if !runs(&["llvm-cov", "--version"]) {
            eprintln!("cargo-llvm-cov is missing: installing it");
            must(
                Command::new("cargo").args(["install", "cargo-llvm-cov", "--locked"]),
                "install cargo-llvm-cov",
            )?;
        }
        let toolchain = if branches { "nightly" } else { "stable" };
        let component = ["component", "add", "llvm-tools", "--toolchain", toolchain];
        must(Command::new("rustup").args(component), "add the component llvm-tools")?;
        Ok(Self { repository, toolchain: branches.then_some("+nightly"), branches })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = any_cargo(self.repository);
        command.args(self.toolchain).arg("llvm-cov").args(arguments);
        command
    }

    fn llvm_cov(&self, arguments: &[&str]) -> Result<()> {
        let mut command = self.command(&arguments[..1]);
        if self.branches && arguments[0] != "clean" {
            command.arg("--branch");
        }
        must(command.args(&arguments[1..]), &format!("cargo llvm-cov {}", arguments.join(" ")))
    }

    fn report(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(&["report"]);
        if self.branches {
            command.arg("--branch");
        }
        let output = command.args(arguments).output().attempt(|| "run cargo llvm-cov report".into())?;
        if !output.status.success() {
            return Err(Failure::new(format!(
                "cargo llvm-cov report failed: {}",
                String::from_utf8_lossy(&output.stderr)
            )));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Runs a command that must succeed; its output goes to standard error.
fn must(command: &mut Command, attempt: &str) -> Result<()> {
    let status = command.stdout(std::io::stderr()).status().attempt(|| attempt.to_owned())?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("cannot {attempt}: {status}"))) }
}

/// The engine's files, each with its executed lines and branches.
fn parse(report: &str, repository: &Path) -> Result<Vec<(String, Counts)>> {
    let report: Value = serde_json::from_str(report).attempt(|| "read the report of llvm-cov".into())?;
    let files = report["data"][0]["files"].as_array().map(Vec::as_slice).unwrap_or_default();
    let number = |file: &Value, what: &str, which: &str| file["summary"][what][which].as_u64().unwrap_or(0);
    let root = format!("{}/", repository.display());
    let mut found: Vec<(String, Counts)> = files
        .iter()
        .filter_map(|file| {
            let name = file["filename"].as_str()?;
            let name = source(name.strip_prefix(&root).unwrap_or(name))?;
            let pair = |what| [number(file, what, "count"), number(file, what, "covered")];
            Some((name, Counts { lines: pair("lines"), branches: pair("branches") }))
        })
        .collect();
    if found.is_empty() {
        return Err(Failure::new(format!("the report of llvm-cov names no file of {CRATES:?}")));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

fn print(files: &[(String, Counts)], branches: bool) {
    let share = |[all, executed]: [u64; 2]| match all {
        0 => "-".to_owned(),
        _ => format!("{executed} of {all} ({:.1} %)", executed as f64 * 100.0 / all as f64),
    };
    let mut total = Counts::default();
    for (name, counts) in files {
        for i in 0..2 {
            total.lines[i] += counts.lines[i];
            total.branches[i] += counts.branches[i];
        }
        println!("{name:28} lines {:24} branches {}", share(counts.lines), share(counts.branches));
    }
    let counted = if branches { share(total.branches) } else { "not counted".into() };
    println!("{:28} lines {:24} branches {counted}", "all of the engine", share(total.lines));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_engine_are_read_from_a_coverage_report() {
        let report = r#"{"data": [{"files": [
            {"filename": "/r/crates/log/src/space.rs", "summary":
                {"lines": {"count": 10, "covered": 9}, "branches": {"count": 4, "covered": 3}}},
            {"filename": "/r/crates/media/src/lib.rs", "summary": {"lines": {"count": 1, "covered": 1}}}
        ]}]}"#;
        let files = parse(report, Path::new("/r")).unwrap();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].0, "log/space.rs");
        assert_eq!((files[0].1.lines, files[0].1.branches), ([10, 9], [4, 3]));
        assert!(parse("{}", Path::new("/r")).is_err());
    }
}
