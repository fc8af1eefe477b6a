//! `loom`, `miri`, `sanitize`, `stress` and `brim`: checks of concurrent and of unsafe code, each with a separate tool.
//! See docs/internals/checking.md for what they prove, and what they do not.
//!
//! `miri` and `sanitize` need a nightly toolchain. If it or one of its components is missing, they say so and pass,
//! because there is no finding.

use crate::cargo::any_cargo;
use crate::failure::{Attempt, Failure, Result};
use crate::planted::Planted;
use crate::target::target;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Media and durabilities that `stress` goes through.
const MEDIA: [&str; 3] = ["volatile", "shm", "file"];
const DURABILITIES: [&str; 3] = ["every-write", "interval", "manual"];
/// Seconds that `stress` spends on one of them before the next.
const TURN_SECONDS: u64 = 60;

/// The errors that a sanitizer detects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitizer {
    /// Data races.
    Thread,
    /// Memory that is used after it was freed, accessed beyond its end, or never freed.
    Address,
}

fn run(command: &mut Command) -> Result<bool> {
    let status = command.status().attempt(|| format!("run {command:?}"))?;
    Ok(status.success())
}

/// Runs the models; if `only` is not empty, those whose names contain one of its strings.
pub fn loom(repository: &Path, preemptions: Option<u32>, only: &[String]) -> Result<bool> {
    let planted = Planted::of(repository)?;
    let mut command = any_cargo(&planted.update()?);
    command
        .args(["test", "--quiet", "--release", "--package", "duramen-checks", "--lib"])
        .arg("--")
        .args(["--nocapture", "--test-threads=2"])
        .env("RUSTFLAGS", "--cfg loom --cfg planted")
        .env("RUST_BACKTRACE", "0")
        .env("CARGO_TARGET_DIR", planted.build().join("loom"));
    if let Some(preemptions) = preemptions {
        command.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    }
    command.args(only);
    run(&mut command)
}

/// Whether the command `probe` succeeds; if not, prints that `needs` is missing.
fn nightly_has(repository: &Path, probe: &[&str], needs: &str) -> bool {
    let found = any_cargo(repository).args(probe).output().is_ok_and(|output| output.status.success());
    if !found {
        println!(
            "left out: no {needs} here; \"rustup toolchain install nightly --component miri,rust-src\" brings it"
        );
    }
    found
}

/// Runs unit tests of format, index and space under Miri. `quick` leaves out those that fill a segment of the index,
/// and those of a whole ordered index.
pub fn miri(repository: &Path, quick: bool) -> Result<bool> {
    if !nightly_has(repository, &["+nightly", "miri", "--version"], "nightly toolchain with Miri") {
        return Ok(true);
    }
    let mut command = any_cargo(repository);
    command.args([
        "+nightly",
        "miri",
        "test",
        "--package",
        "duramen-log",
        "--package",
        "duramen-index",
        "--lib",
        "--",
        // Its threads wait by the clock; loom has their models.
        "--skip",
        "durability::",
    ]);
    if quick {
        command.args([
            "--skip",
            "through_splits",
            "--skip",
            "while_segments_split",
            "--skip",
            "an_index_made_for",
            "--skip",
            "find_room_in_buckets",
            "--skip",
            "hashes_that_are_equal",
            "--skip",
            "ordered::tests",
        ]);
    }
    run(command
        // The slots of readers are kept for the life of the process.
        .env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks")
        .env("PROPTEST_CASES", "2")
        .env("CARGO_TARGET_DIR", target(repository, "miri")?))
}

/// Runs the stress program built with a sanitizer, the standard library included.
pub fn sanitize(repository: &Path, sanitizer: Sanitizer, seconds: u64, seed: u64) -> Result<bool> {
    let name = match sanitizer {
        Sanitizer::Thread => "thread",
        Sanitizer::Address => "address",
    };
    let sysroot = Command::new("rustc")
        .args(["+nightly", "--print", "sysroot"])
        .env_remove("RUSTUP_TOOLCHAIN")
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let sources = sysroot.map(|root| Path::new(&root).join("lib/rustlib/src/rust/library/Cargo.toml"));
    if !sources.is_some_and(|sources| sources.exists()) {
        println!(
            "left out: no nightly toolchain with the standard library's sources here; \
             \"rustup toolchain install nightly --component rust-src\" brings it"
        );
        return Ok(true);
    }
    let host = "x86_64-unknown-linux-gnu";
    let target = target(repository, &format!("sanitize-{name}"))?;
    let built = run(any_cargo(repository)
        .args(["+nightly", "build", "--quiet", "--release", "-Zbuild-std", "--target", host])
        .args(["--package", "duramen", "--example", "stress"])
        .env("RUSTFLAGS", format!("-Zsanitizer={name}"))
        .env("CARGO_TARGET_DIR", &target))?;
    if !built {
        return Err(Failure::new(format!("cannot build the stress program with the {name} sanitizer")));
    }
    let program = target.join(host).join("release/examples/stress");
    let mut clean = true;
    let each = (seconds / 9).max(1).to_string();
    for medium in MEDIA {
        for durability in DURABILITIES {
            println!("{name} sanitizer, {medium}, {durability}, {each} s");
            clean &= run(Command::new(&program)
                .args(["--medium", medium, "--durability", durability, "--keys", "1500"])
                .args(["--seconds", &each, "--round-seconds", &each, "--seed", &seed.to_string()])
                .env("TSAN_OPTIONS", "halt_on_error=0 exitcode=66 history_size=7")
                .env("ASAN_OPTIONS", "detect_leaks=0"))?;
        }
    }
    Ok(clean)
}

/// Runs the stress program over media and durabilities in turn, with another seed each time.
pub fn stress(repository: &Path, seed: u64, minutes: u64) -> Result<bool> {
    let built = run(any_cargo(repository).args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "duramen",
        "--example",
        "stress",
    ]))?;
    if !built {
        return Err(Failure::new("cannot build the stress program"));
    }
    let program = target(repository, "release/examples/stress")?;
    let begun = Instant::now();
    let mut turn = 0;
    while begun.elapsed().as_secs() < minutes * 60 {
        let (medium, durability) = (MEDIA[turn % 3], DURABILITIES[turn / 3 % 3]);
        let seed = seed + turn as u64;
        println!("{:>5} s: {medium}, {durability}, seed {seed}", begun.elapsed().as_secs());
        let seconds = TURN_SECONDS.min(minutes * 60).to_string();
        let mut command = Command::new(&program);
        command.args(["--medium", medium, "--durability", durability]);
        command.args(["--seconds", &seconds, "--round-seconds", "15", "--seed", &seed.to_string()]);
        if medium == "shm" && turn % 2 == 1 {
            // Real flushes; the default on shm only orders writes.
            command.args(["--flush-instruction", "clwb"]);
        }
        if !run(&mut command)? {
            return Ok(false);
        }
        turn += 1;
    }
    println!("nothing found in {turn} turns, {} s", begun.elapsed().as_secs());
    Ok(true)
}

/// Consumes full stores while producers write, for `seconds` in all, and prints how often each command succeeded and
/// was refused.
pub fn brim(repository: &Path, seed: u64, seconds: u64) -> Result<bool> {
    // One after the other: see `crates/server/tests/brim.rs`.
    const STORES: u64 = 2;
    run(any_cargo(repository)
        .args(["test", "--quiet", "--package", "duramen-server", "--test", "brim", "--", "--nocapture"])
        .arg("--test-threads=1")
        .env("DURAMEN_BRIM_SECONDS", seconds.div_ceil(STORES).to_string())
        .env("DURAMEN_BRIM_SEED", seed.to_string()))
}
