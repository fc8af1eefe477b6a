//! `cargo xtask redis-tests`: runs the tests of Redis's source against `duramen serve` as an external server.
//!
//! The tests' source is not kept here (`apt-get source redis`, or an unpacked tarball).
//! `testdata/protocol/redis-tests.txt` lists the known failures with their reasons; an entry that is no longer needed
//! fails the run. `redis-tests-skipped.txt` in the same directory lists the tests that are not run. With an external
//! server the suite skips tests that start servers themselves, such as those of replication, files and clusters. Units
//! that it would skip whole ([`OWN_SERVERS`]) run in the other mode: the tests start duramen in the place of
//! redis-server. A unit fails the run if none of its tests runs.
//!
//! Units that the given source does not have are left out: `unit/type/hash-field-expire` came with Redis 7.4. Two other
//! units are left out: `unit/networking` (port and addresses cannot be changed while the server runs) and
//! `unit/pendingquerybuf` (replicas).

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::failure::{Attempt, Failure, Result};
use crate::server::{Server, duramen_program, free_port};
use crate::side_by_side::intended::Intended;

/// The units about features that duramen has.
const UNITS: &[&str] = &[
    "unit/type/string",
    "unit/type/incr",
    "unit/type/list",
    "unit/type/list-2",
    "unit/type/list-3",
    "unit/type/set",
    "unit/type/zset",
    "unit/type/hash",
    "unit/type/stream",
    "unit/type/stream-cgroups",
    "unit/keyspace",
    "unit/scan",
    "unit/sort",
    "unit/expire",
    "unit/dump",
    "unit/bitops",
    "unit/bitfield",
    "unit/geo",
    "unit/hyperloglog",
    "unit/multi",
    "unit/pubsub",
    "unit/pubsubshard",
    "unit/tracking",
    "unit/protocol",
    "unit/auth",
    "unit/acl",
    "unit/acl-v2",
    "unit/quit",
    "unit/info",
    "unit/info-command",
    "unit/introspection",
    "unit/introspection-2",
    "unit/slowlog",
    "unit/latency-monitor",
    "unit/pause",
    "unit/limits",
    "unit/obuf-limits",
    "unit/querybuf",
    "unit/replybufsize",
    "unit/lazyfree",
    "unit/scripting",
    "unit/functions",
    "unit/other",
    "unit/type/hash-field-expire",
];

/// The units that only run against servers that they have started.
const OWN_SERVERS: &[&str] = &[
    "unit/auth",
    "unit/acl",
    "unit/acl-v2",
    "unit/info",
    "unit/limits",
    "unit/obuf-limits",
    "unit/pubsubshard",
    "unit/type/hash-field-expire",
];

/// The program that such tests start as redis-server, with the path of a file of directives. The tests read from its
/// output that it is ready, so it prints that line. The store must lie in the directory that the file names. Directives
/// that only Redis's tests use are removed.
const STAND_IN: &str = r#"#!/bin/sh
file=$1
shift
sed -i '/^propagation-error-behavior/d' "$file"
directory=$(sed -n 's/^dir //p' "$file")
echo "Server PID: $$: Server initialized, Ready to accept connections"
exec "$DURAMEN" serve "$file" "$@" --duramen-path "$directory/store" --duramen-threads 1 2>&1
"#;

const KNOWN: &str = "testdata/protocol/redis-tests.txt";
const SKIPPED: &str = "testdata/protocol/redis-tests-skipped.txt";

/// The suite ends a unit that takes longer.
const UNIT_SECONDS_MAX: &str = "300";

#[derive(clap::Args)]
pub struct Settings {
    /// Redis 7.0's source, unpacked: `apt-get source redis` gets it. For `hash-field-expire`, that of 7.4 or 8.0
    #[arg(long, value_name = "DIRECTORY")]
    pub source: PathBuf,
    /// The duramen program [default: built now]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// Only the units whose names contain one of these
    #[arg(value_name = "UNIT")]
    pub only: Vec<String>,
}

/// The results of a unit's tests.
#[derive(Default)]
struct Outcome {
    passed: usize,
    /// Each failed test with the reason that was printed.
    failed: Vec<(String, String)>,
}

/// Runs the units, prints their results, and returns whether they match the known failures.
///
/// # Errors
/// Any failure that prevents the tests from running.
pub fn run(repository: &Path, settings: Settings) -> Result<bool> {
    let helper = settings.source.join("tests/test_helper.tcl");
    if !helper.is_file() {
        return Err(Failure::new(format!(
            "{} is not there: --source wants the source of redis 7.0, unpacked, as `apt-get source redis` gets it",
            helper.display()
        )));
    }
    let known = Intended::read(repository, KNOWN)?;
    let Settings { source, duramen, only } = settings;
    let program = duramen_program(duramen)?;
    let is_wanted = |unit: &str| {
        // Some units came with a later version than the source's.
        source.join(format!("tests/{unit}.tcl")).is_file()
            && (only.is_empty() || only.iter().any(|part| unit.contains(part.as_str())))
    };
    let (mut is_good, mut all) = (true, [0; 3]);
    for unit in UNITS.iter().filter(|unit| is_wanted(unit)) {
        let Outcome { passed, failed } = run_unit(unit, &source, &program, &repository.join(SKIPPED))?;
        let (as_known, new): (Vec<_>, Vec<_>) = failed.iter().partition(|(name, _)| known.covers(unit, name));
        println!("{unit}: {passed} passed, {} failed as known, {} failed", as_known.len(), new.len());
        for (name, why) in &new {
            println!("{unit}: {name} => {why}");
        }
        if passed + failed.len() == 0 {
            println!("{unit}: none of its tests was run");
        }
        is_good &= new.is_empty() && passed + failed.len() > 0;
        for (sum, count) in all.iter_mut().zip([passed, as_known.len(), new.len()]) {
            *sum += count;
        }
    }
    let [passed, as_known, new] = all;
    println!("all: {passed} passed, {as_known} failed as known, {new} failed");
    for (line, test) in known.unused().filter(|(_, test)| test.split(':').next().is_some_and(is_wanted)) {
        println!("{KNOWN}:{line}: {test} does not fail, so the entry is to go");
        is_good = false;
    }
    Ok(is_good)
}

/// Runs a unit against a new server, because some units leave changed settings.
fn run_unit(unit: &str, source: &Path, program: &Path, skipped: &Path) -> Result<Outcome> {
    let directory = tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
    let mut tests = Command::new("tclsh");
    tests.args(["tests/test_helper.tcl", "--single", unit, "--durable", "--timeout", UNIT_SECONDS_MAX]);
    let mut server = None;
    if OWN_SERVERS.contains(&unit) {
        lay_out(directory.path(), source)?;
        tests.current_dir(directory.path()).env("DURAMEN", program).args(["--clients", "1"]);
    } else {
        let store = directory.path().join("store").display().to_string();
        let settings =
            ["--medium", "auto", "--path", &store, "--enable-debug-command", "yes", "--threads", "1"];
        let server = server.insert(Server::start_duramen(program, &settings, &directory.path().join("log"))?);
        server.demand_ready(Duration::from_secs(10))?;
        let port = server.port().to_string();
        tests.current_dir(source).args(["--host", "127.0.0.1", "--port", &port]);
    }
    let output = tests
        // The suite's default port is the same for every run, and a process of another run may still hold it.
        .args(["--baseport", &free_port()?.to_string()])
        .args(["--tags", "-needs:repl -needs:save -cluster"])
        .arg("--skipfile")
        .arg(skipped)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .attempt(|| "start tclsh (Debian's package tcl)".to_owned())?;
    Ok(outcome(&String::from_utf8_lossy(&output.stdout)))
}

/// Prepares a directory for tests that start servers: `tests` is copied, because another run may use the `tmp` of the
/// source at the same time, and [`STAND_IN`] takes the place of redis-server.
fn lay_out(directory: &Path, source: &Path) -> Result<()> {
    let stand_in = directory.join("src/redis-server");
    let laid_out = || -> std::io::Result<()> {
        fs::create_dir(directory.join("src"))?;
        fs::create_dir_all(directory.join("tests/tmp"))?;
        for part in fs::read_dir(source.canonicalize()?.join("tests"))? {
            let part = part?;
            if part.file_name() != "tmp" {
                symlink(part.path(), directory.join("tests").join(part.file_name()))?;
            }
        }
        fs::write(&stand_in, STAND_IN)?;
        fs::set_permissions(&stand_in, Permissions::from_mode(0o755))
    };
    laid_out().attempt(|| format!("make {}", stand_in.display()))
}

/// Parses the tests' output, without its colours.
fn outcome(text: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let mut is_over = false;
    for line in text.lines() {
        let mut plain = String::new();
        let mut parts = line.split('\u{1b}');
        plain.push_str(parts.next().unwrap_or_default());
        parts.for_each(|part| plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest)));
        // The list at the end repeats the failures.
        is_over |= plain.contains("The End");
        if is_over {
            break;
        }
        if plain.starts_with("[ok]: ") {
            outcome.passed += 1;
        } else if let Some(failed) = plain.strip_prefix("[err]: ") {
            let name = failed.rsplit_once(" in tests/").map_or(failed, |(name, _)| name);
            outcome.failed.push((name.to_owned(), String::new()));
        } else if let Some(failed) = plain.strip_prefix("[exception]: ") {
            outcome.failed.push((failed.to_owned(), String::new()));
        } else if let Some((_, why)) = outcome.failed.last_mut()
            && why.is_empty()
            && !plain.starts_with('[')
        {
            // Only the first line; the following lines give the location.
            why.push_str(&plain);
        }
    }
    if !is_over {
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let why = format!("it did not finish; its last line is: {last}");
        outcome.failed.push(("the unit itself".to_owned(), why));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_redis_tests_is_parsed() {
        let text = "\u{1b}[0;32m[ok]\u{1b}[0m: one (3 ms)\n[ok]: two (0 ms)\n[err]: three in tests/unit/a.tcl\nExpected 1\n\
                    [ok]: four (1 ms)\nThe End\n*** [err]: three in tests/unit/a.tcl\n";
        let outcome = outcome(text);
        assert_eq!(outcome.passed, 3);
        assert_eq!(outcome.failed, [("three".to_owned(), "Expected 1".to_owned())]);
    }
}
