//! `cargo xtask redis-tests`: the tests that come with Redis's source, run against `duramen serve` as against any server.
//!
//! Their source is not kept here (`apt-get source redis`, or an unpacked tarball). What is known to fail stands with its reason in
//! `testdata/protocol/redis-tests.txt`; an entry that nothing needs any more fails the run. One whose reason begins with [`SKIPPED`] is not
//! run: it would hang now and then. In that mode the tests leave out what starts
//! servers of its own, as all about replication, files and clusters.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::failure::{Attempt, Failure, Result};
use crate::server::{Server, duramen_program, free_port};

/// The units about what duramen has.
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
    "unit/pendingquerybuf",
    "unit/networking",
    "unit/replybufsize",
    "unit/lazyfree",
    "unit/other",
];

/// So begins the reason of a test that is not run.
const SKIPPED: &str = "skipped: ";

/// A unit that hangs is ended then.
const UNIT_SECONDS_MAX: &str = "300";

/// What is run.
pub struct Settings {
    /// Redis's source, unpacked.
    pub source: PathBuf,
    /// The duramen program.
    pub duramen: Option<PathBuf>,
    /// Only the units whose names contain one of these.
    pub only: Vec<String>,
}

/// How the tests of a unit ended.
#[derive(Default)]
struct Outcome {
    passed: usize,
    /// Each with what was told of it.
    failed: Vec<(String, String)>,
}

/// Runs the units, prints how each went, and tells whether all went as it is known.
///
/// # Errors
/// What keeps the tests from being run.
pub fn run(repository: &Path, settings: Settings) -> Result<bool> {
    let helper = settings.source.join("tests/test_helper.tcl");
    if !helper.is_file() {
        return Err(Failure::new(format!(
            "{} is not there: --source wants the source of redis 7.0, unpacked, as `apt-get source redis` gets it",
            helper.display()
        )));
    }
    let known = known(&repository.join("testdata/protocol/redis-tests.txt"))?;
    let Settings { source, duramen, only } = settings;
    let program = duramen_program(duramen)?;
    let mut is_good = true;
    for unit in UNITS {
        if !only.is_empty() && !only.iter().any(|part| unit.contains(part.as_str())) {
            continue;
        }
        let of_unit =
            || known.iter().filter(|((of, _), _)| of == unit).map(|((_, name), why)| (name.as_str(), why));
        let skipped = of_unit().filter(|(_, why)| why.starts_with(SKIPPED)).map(|(name, _)| name);
        let outcome = run_unit(unit, &source, &program, skipped)?;
        let is_known = |name: &str| known.contains_key(&(unit.to_string(), name.to_owned()));
        let (as_known, new): (Vec<_>, Vec<_>) = outcome.failed.iter().partition(|(name, _)| is_known(name));
        println!(
            "{unit}: {} passed, {} failed as known, {} failed",
            outcome.passed,
            as_known.len(),
            new.len()
        );
        for (name, why) in &new {
            println!("{unit}: {name} => {why}");
        }
        is_good &= new.is_empty();
        let fails = |name: &str| outcome.failed.iter().any(|(failed, _)| failed == name);
        let fixed = of_unit().filter(|(name, why)| !why.starts_with(SKIPPED) && !fails(name));
        for (name, _) in fixed {
            println!("{unit}: {name}: does not fail, so its entry is to go");
            is_good = false;
        }
    }
    Ok(is_good)
}

/// Tests that fail, by unit and name, and why.
fn known(path: &Path) -> Result<BTreeMap<(String, String), String>> {
    let text = fs::read_to_string(path).attempt(|| format!("read {}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(at, line)| {
            let entry = line.split_once(" => ").and_then(|(test, why)| Some((test.split_once(": ")?, why)));
            let ((unit, name), why) = entry.ok_or_else(|| {
                Failure::new(format!("{}:{}: wanted UNIT: TEST => REASON", path.display(), at + 1))
            })?;
            Ok(((unit.to_owned(), name.to_owned()), why.to_owned()))
        })
        .collect()
}

/// Runs a unit against a server of its own, since some leave settings as they made them.
fn run_unit<'a>(
    unit: &str,
    source: &Path,
    program: &Path,
    skipped: impl Iterator<Item = &'a str>,
) -> Result<Outcome> {
    let directory = tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
    let store = directory.path().join("store").display().to_string();
    let settings_of_server =
        ["--medium", "auto", "--path", &store, "--enable-debug-command", "yes", "--threads", "1"];
    let mut server = Server::start_duramen(program, &settings_of_server, &directory.path().join("log"))?;
    server.demand_ready(Duration::from_secs(10))?;
    let output = Command::new("tclsh")
        .current_dir(source)
        .args(["tests/test_helper.tcl", "--host", "127.0.0.1", "--port", &server.port().to_string()])
        .args(["--single", unit, "--durable", "--timeout", UNIT_SECONDS_MAX])
        // Theirs is one for all, and what another run left behind may have it.
        .args(["--baseport", &free_port()?.to_string()])
        .args(["--tags", "-needs:repl -needs:save -cluster"])
        .args(skipped.flat_map(|name| ["--skiptest", name]))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .attempt(|| "start tclsh (Debian's package tcl)".to_owned())?;
    Ok(outcome(&String::from_utf8_lossy(&output.stdout)))
}

/// What the tests printed, read. Colours are taken off.
fn outcome(text: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let mut is_over = false;
    for line in text.lines() {
        let mut plain = String::new();
        let mut parts = line.split('\u{1b}');
        plain.push_str(parts.next().unwrap_or_default());
        parts.for_each(|part| plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest)));
        // The list at the end repeats what failed.
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
            // The first line; what follows is where.
            why.push_str(&plain);
        }
    }
    if !is_over {
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let why = format!("it did not come to its end; its last line is: {last}");
        outcome.failed.push(("the unit itself".to_owned(), why));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tests_print_is_read() {
        let text = "\u{1b}[0;32m[ok]\u{1b}[0m: one (3 ms)\n[ok]: two (0 ms)\n[err]: three in tests/unit/a.tcl\nExpected 1\n\
                    [ok]: four (1 ms)\nThe End\n*** [err]: three in tests/unit/a.tcl\n";
        let outcome = outcome(text);
        assert_eq!(outcome.passed, 3);
        assert_eq!(outcome.failed, [("three".to_owned(), "Expected 1".to_owned())]);
    }
}
