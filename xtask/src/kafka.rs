//! `cargo xtask kafka`: fetches Apache Kafka once, and runs the tests of the connectors against its brokers.
//!
//! Java and Maven must be installed; the tests start and kill brokers on free ports themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::cargo;
use crate::failure::{Attempt, Failure, Result};

#[derive(clap::Args)]
pub struct Settings {
    /// The directory for Kafka's libraries [default: target/kafka]
    #[arg(long, value_name = "PATH", default_value_os_t = crate::repository().join("target/kafka"), hide_default_value = true)]
    pub cache: PathBuf,
    /// Jobs to kill, on one thread; on two threads a third of that
    #[arg(long, default_value_t = 50)]
    pub kills: u32,
    /// Builds the tests with optimisation
    #[arg(long)]
    pub release: bool,
    /// Only the test whose name begins with this
    #[arg(value_name = "NAME")]
    pub only: Option<String>,
}

/// The dependencies: the broker, and the library that writes its log.
const POM: &str = "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
     <groupId>broker</groupId><artifactId>broker</artifactId><version>1</version><dependencies>\
     <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>3.7.2</version></dependency>\
     <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>\
     </dependencies></project>\n";

/// Runs the tests; returns whether all passed.
pub fn run(repository: &Path, settings: &Settings) -> Result<bool> {
    let libraries = libraries(&settings.cache)?;
    let mut cargo = cargo(repository);
    cargo.args(["test", "--package", "duramen-stream", "--features", "kafka", "--test", "all"]);
    if settings.release {
        cargo.arg("--release");
    }
    let only = settings.only.as_deref().map_or("kafka::".to_owned(), |only| format!("kafka::{only}"));
    cargo.arg(only).args(["--", "--ignored", "--nocapture", "--test-threads", "1"]);
    cargo.env("DURAMEN_KAFKA_LIBS", libraries).env("DURAMEN_STREAM_KILLS", settings.kills.to_string());
    let status = cargo.status().attempt(|| "run cargo".to_owned())?;
    Ok(status.success())
}

/// The directory with the libraries, which are fetched if missing.
fn libraries(cache: &Path) -> Result<PathBuf> {
    let cache = std::path::absolute(cache).attempt(|| format!("find {}", cache.display()))?;
    let (libraries, whole) = (cache.join("libs"), cache.join("whole"));
    if whole.exists() {
        return Ok(libraries);
    }
    fs::create_dir_all(&cache).attempt(|| format!("make {}", cache.display()))?;
    fs::write(cache.join("pom.xml"), POM).attempt(|| format!("write pom.xml in {}", cache.display()))?;
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=libs"]);
    let status = maven.current_dir(&cache).stdin(Stdio::null()).status().attempt(|| "run mvn".to_owned())?;
    if !status.success() {
        return Err(Failure::new(format!("mvn has not fetched Kafka: {status}")));
    }
    fs::write(&whole, "").attempt(|| format!("write in {}", cache.display()))?;
    Ok(libraries)
}
