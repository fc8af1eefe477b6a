//! `cargo xtask flink`: fetches Flink from Maven Central once, and compares its results for the expressions of
//! testdata/stream/flink with the answers there. The tests of `duramen-stream` compare the engine with the same
//! answers, without Flink.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo;
use crate::failure::{Attempt, Failure, Result};

#[derive(clap::Args)]
pub struct Settings {
    /// The directory for Flink [default: target/flink]
    #[arg(long, value_name = "PATH", default_value_os_t = crate::repository().join("target/flink"), hide_default_value = true)]
    pub cache: PathBuf,
    /// Writes Flink's answers to testdata/stream/flink
    #[arg(long)]
    pub record: bool,
    /// Only the files whose names contain one of these
    #[arg(value_name = "NAME")]
    pub only: Vec<String>,
}

/// The release of Flink that gave the answers.
const VERSION: &str = "2.3.0";
const PACKAGES: [&str; 4] =
    ["flink-table-api-java-bridge", "flink-table-planner-loader", "flink-table-runtime", "flink-clients"];
const PROGRAM: &str = include_str!("Answers.java");
/// Files of expressions.
const FILES: [&str; 4] = ["strings.txt", "numbers.txt", "casts.txt", "times.txt"];
/// Packages that Flink accesses by reflection on Java 17.
const OPENED: [&str; 3] = ["java.base/java.lang", "java.base/java.util", "java.base/java.time"];

/// Runs the comparison. Returns whether all answers are Flink's, and whether the engine's equal them except where a
/// reason for the difference is given.
pub fn run(repository: &Path, settings: &Settings) -> Result<bool> {
    let cache =
        std::path::absolute(&settings.cache).attempt(|| format!("find {}", settings.cache.display()))?;
    install(&cache)?;
    let directory = repository.join("testdata/stream/flink");
    let files: Vec<&str> = FILES
        .into_iter()
        .filter(|file| settings.only.is_empty() || settings.only.iter().any(|part| file.contains(part)))
        .collect();
    let mut java = Command::new("java");
    java.current_dir(&cache).args(["-XX:+UseSerialGC", "-cp", ".:lib/*"]);
    java.args(OPENED.iter().map(|package| format!("--add-opens={package}=ALL-UNNAMED")));
    java.arg("Answers");
    for file in &files {
        java.arg(directory.join(file)).arg(cache.join(file));
    }
    call(&mut java, "run Flink")?;
    let mut is_good = true;
    for file in &files {
        let read = |path: PathBuf| fs::read_to_string(&path).attempt(|| format!("read {}", path.display()));
        let (wanted, found) = (read(directory.join(file))?, read(cache.join(file))?);
        let different = different(&wanted, &found);
        println!("{file}: {} expressions, {} with another result", count(&found), different.len());
        if settings.record {
            let path = directory.join(file);
            fs::write(&path, &found).attempt(|| format!("write {}", path.display()))?;
            continue;
        }
        for (old, new) in &different {
            println!("recorded\n{old}\nnow\n{new}\n");
        }
        is_good &= different.is_empty();
    }
    let mut cargo = cargo(repository);
    cargo.args(["test", "--package", "duramen-stream", "--test", "all", "flink::"]);
    let status = cargo.args(["--", "--nocapture"]).status().attempt(|| "run cargo".to_owned())?;
    Ok(is_good && status.success())
}

/// The differing blocks, in pairs.
fn different<'t>(old: &'t str, new: &'t str) -> Vec<(&'t str, &'t str)> {
    let blocks = |text: &'t str| text.trim_end().split("\n\n").collect::<Vec<&str>>();
    let (old, new) = (blocks(old), blocks(new));
    let pairs = old.iter().copied().zip(new.iter().copied()).filter(|(old, new)| old != new);
    let mut pairs: Vec<(&str, &str)> = pairs.collect();
    if old.len() != new.len() {
        pairs.push(("another number of blocks", ""));
    }
    pairs
}

fn count(text: &str) -> usize {
    text.split("\n\n").filter(|block| block.starts_with("expr\n")).count()
}

/// Fetches Flink if it is missing, and compiles the program.
fn install(cache: &Path) -> Result<()> {
    fs::create_dir_all(cache).attempt(|| format!("make {}", cache.display()))?;
    let whole = cache.join("whole");
    if fs::read_to_string(&whole).is_ok_and(|version| version == VERSION) {
        fs::write(cache.join("Answers.java"), PROGRAM).attempt(|| "write the program".to_owned())?;
        return compile(cache);
    }
    let dependencies: String = PACKAGES
        .iter()
        .map(|package| {
            format!(
                "<dependency><groupId>org.apache.flink</groupId><artifactId>{package}</artifactId>\
                 <version>{VERSION}</version></dependency>"
            )
        })
        .collect();
    let pom = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>answers</groupId><artifactId>answers</artifactId><version>1</version>\
         <dependencies>{dependencies}</dependencies></project>\n"
    );
    fs::write(cache.join("pom.xml"), pom).attempt(|| "write the dependencies".to_owned())?;
    fs::write(cache.join("Answers.java"), PROGRAM).attempt(|| "write the program".to_owned())?;
    let mut maven = Command::new("mvn");
    maven.current_dir(cache);
    maven.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=lib"]);
    call(&mut maven, "get Flink from Maven Central")?;
    compile(cache)?;
    fs::write(&whole, VERSION).attempt(|| format!("write in {}", cache.display()))
}

fn compile(cache: &Path) -> Result<()> {
    call(
        Command::new("javac").current_dir(cache).args(["-cp", "lib/*", "Answers.java"]),
        "compile the program",
    )
}

fn call(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().attempt(|| what.to_owned())?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("cannot {what}: {status}"))) }
}
