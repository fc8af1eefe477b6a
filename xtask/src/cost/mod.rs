//! `cargo xtask cost`: measures each command at n = 1,000, 10,000 and 100,000 of what it can grow with, and compares it
//! with redis-server.
//!
//! Both servers get the same data and the same command ([`cases`]). Two numbers count for each n: the time of the
//! command, and how long another client waits meanwhile. The command's time is the server threads' running time, if
//! that is less. The least of several rounds is taken, because other programs on the machine only add to it.
//!
//! | rule | at |
//! |---|---|
//! | at most [`RATIO`] times redis-server's, or the floor | the n nearest to 10,000 |
//! | if redis-server's time grows at most in proportion to n, so does duramen's | the last two n |
//!
//! A case that breaks a rule is measured again before it counts. So that no new command is forgotten, another rule
//! covers the commands that both servers have. Each must be in a case or in the list of commands that do not grow
//! ([`cases::CONSTANT`]).

mod cases;
mod measure;
mod template;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::digest::digest;
use crate::failure::{Attempt, Failure, Result};
use crate::random::step;
use crate::server::{Server, duramen_program, find_program, release_program};
use cases::{CASES, CONSTANT, Case};
use measure::{Cost, Pair};

#[derive(clap::Args)]
pub struct Settings {
    /// The duramen program [default: built now, optimised unless --quick]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// The redis-server program [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    pub redis: Option<PathBuf>,
    /// Only n = 10,000, with limits that suit the tests' build; quadratic commands still exceed them
    #[arg(long)]
    pub quick: bool,
    /// Begins no new case after this many seconds; the seed draws the order of the cases
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Draws the cases of an earlier run with --seconds [default: from the clock]
    #[arg(long, requires = "seconds")]
    pub seed: Option<u64>,
    /// Only the cases of this family, or whose commands contain this
    #[arg(value_name = "NAME")]
    pub only: Vec<String>,
}

/// The limits for measured times.
struct Rule {
    sizes: &'static [usize],
    ratio: f64,
    /// A time below this is never too long.
    floor: Duration,
    /// A wait below this is never too long: it is the scheduler's.
    wait_floor: Duration,
    rounds: usize,
}

/// A command may take this many times Redis's time.
const RATIO: f64 = 3.0;

const FULL: Rule = Rule {
    sizes: &[1_000, 10_000, 100_000],
    ratio: RATIO,
    // 2 ms: a linear command takes less than that at n = 10,000, or Redis takes as long.
    floor: Duration::from_millis(2),
    wait_floor: Duration::from_millis(2),
    rounds: 5,
};

const QUICK: Rule = Rule {
    sizes: &[10_000],
    // The tests' build is some 3 times slower than the shipped one, in which the slowest command takes 9 times as long
    // as Redis's (docs/benchmarks.md). A quadratic command is slower by a factor of a hundred.
    ratio: 10.0 * RATIO,
    floor: Duration::from_millis(25),
    // On a busy machine a thread waits this long for a processor.
    wait_floor: Duration::from_millis(100),
    // A case that breaks a rule is measured again.
    rounds: 1,
};

/// The n at which the ratio is checked.
const JUDGED: usize = 10_000;
/// The limit for the growth of time at ten times n: 10 is linear, 100 quadratic.
const GROWTH: f64 = 30.0;
/// How often a case that breaks a rule is measured again.
const AGAIN: usize = 2;
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs all cases; returns whether no rule was broken.
///
/// # Errors
/// When a server cannot be run, or refuses a command.
pub fn run(repository: &Path, settings: Settings) -> Result<bool> {
    let redis = settings.redis.or_else(|| find_program("redis-server"));
    let redis = redis.ok_or_else(|| {
        Failure::new(
            "found no redis-server in PATH; install it (Debian: redis-server) or name one with --redis",
        )
    })?;
    let rule = if settings.quick { &QUICK } else { &FULL };
    let duramen = match settings.quick {
        true => duramen_program(settings.duramen)?,
        false => release_program(repository, settings.duramen, "")?,
    };
    let place = tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
    let begun = Instant::now();
    let pair = start(&duramen, &redis, place.path())?;
    let is_whole = settings.only.is_empty();
    let mut broken = 0;
    let both = in_both(&pair)?;
    if is_whole {
        for name in forgotten(both.clone()) {
            println!("{name}: no case names the command; add one to xtask/src/cost/cases.rs");
            broken += 1;
        }
    }
    println!(
        "| family | command | n of | n | duramen, ms | redis, ms | ratio | wait, ms | redis's wait, ms | |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let wanted = |case: &&Case| {
        is_whole
            || settings.only.iter().any(|part| case.family == part || case.title().contains(part.as_str()))
    };
    let mut cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    // Those of a later version than the reference's have nothing to be compared with.
    let before = cases.len();
    cases.retain(|case| case.commands().all(|name| both.contains(&name)));
    if cases.len() < before {
        println!("cost: {} cases left out, which redis-server does not know", before - cases.len());
    }
    let all = cases.len();
    let seed = settings.seed.unwrap_or_else(crate::random::fresh_seed);
    let time = settings.seconds.map(Duration::from_secs);
    if time.is_some() {
        cases.sort_by_cached_key(|case| step(seed ^ digest(case.title().as_bytes())));
    }
    let mut count = 0;
    for case in cases {
        if time.is_some_and(|time| begun.elapsed() >= time) {
            break;
        }
        count += 1;
        match believed(&pair, case, rule) {
            Ok((costs, violation)) => {
                broken += usize::from(violation.is_some());
                print_rows(case, &costs, violation.unwrap_or_default());
            }
            Err(failure) => {
                broken += 1;
                println!(
                    "| {} | {} | {} | | | | | | | **{failure}** |",
                    case.family,
                    case.title(),
                    case.grows
                );
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("\ncost: {count} of {all} cases, {broken} break a rule, {seconds:.0} s");
    if time.is_some() {
        println!("cost: the same cases with --seed {seed}");
    }
    Ok(broken == 0)
}

fn start(duramen: &Path, redis: &Path, place: &Path) -> Result<Pair> {
    allow_files();
    let store = place.join("store").display().to_string();
    let settings = ["--duramen-path", &store, "--maxclients", "5000", "--enable-debug-command", "yes"];
    let mut subject = Server::start_duramen(duramen, &settings, &place.join("duramen.log"))?;
    let mut reference = Server::start_redis(redis, place)?;
    subject.demand_ready(PATIENCE)?;
    reference.demand_ready(PATIENCE)?;
    let _ = reference.connect()?.call(&["CONFIG", "SET", "maxclients", "5000"], PATIENCE);
    Ok(Pair { subject, reference })
}

/// Raises the limit of open files, for this program and the servers that it starts, to the system's maximum. If that is
/// not enough, the cases with many connections fail and say so.
fn allow_files() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, most);
}

/// The commands of both servers.
fn in_both(pair: &Pair) -> Result<BTreeSet<String>> {
    let names = |server: &Server| -> Result<BTreeSet<String>> {
        let reply = server.connect()?.call(&["COMMAND", "LIST"], PATIENCE);
        let reply = reply.map_err(|_| Failure::new("a server does not answer COMMAND LIST"))?;
        let names = reply.items().unwrap_or_default().iter().filter_map(|name| name.text());
        Ok(names.map(|name| String::from_utf8_lossy(name).replace('|', " ")).collect())
    };
    Ok(names(&pair.subject)?.intersection(&names(&pair.reference)?).cloned().collect())
}

/// Commands of both servers that are in no case.
fn forgotten(mut both: BTreeSet<String>) -> BTreeSet<String> {
    for name in CASES.iter().flat_map(Case::names).chain(CONSTANT.iter().map(|&name| name.to_owned())) {
        both.remove(&name);
    }
    both
}

/// The costs of a case, and the rule that it breaks in repeated measurements too.
fn believed(pair: &Pair, case: &Case, rule: &Rule) -> Result<(Vec<Cost>, Option<&'static str>)> {
    let mut costs = measured(pair, case, rule)?;
    for _ in 0..AGAIN {
        if violation(&costs, rule).is_none() {
            break;
        }
        for (cost, again) in costs.iter_mut().zip(measured(pair, case, rule)?) {
            cost.take_least(&again);
        }
    }
    let violation = violation(&costs, rule);
    Ok((costs, violation))
}

fn measured(pair: &Pair, case: &Case, rule: &Rule) -> Result<Vec<Cost>> {
    let sizes = rule.sizes.iter().map(|&n| n.min(case.most));
    let sizes: BTreeSet<usize> = sizes.collect();
    sizes.into_iter().map(|n| measure::measure(pair, case, n, rule.rounds)).collect()
}

/// The rule that these costs break.
fn violation(costs: &[Cost], rule: &Rule) -> Option<&'static str> {
    let judged = costs.iter().rfind(|cost| cost.n <= JUDGED)?;
    let exceeds = |ours: Duration, theirs: Duration| ours.as_secs_f64() > rule.ratio * theirs.as_secs_f64();
    let is_too_long = |ours: Duration, theirs: Duration| ours > rule.floor && exceeds(ours, theirs);
    if is_too_long(judged.time.ours, judged.time.theirs) {
        return Some("**too slow**");
    }
    let their_wait = judged.wait.theirs.max(judged.time.theirs);
    if judged.wait.ours > rule.wait_floor && exceeds(judged.wait.ours, their_wait) {
        return Some("**others wait**");
    }
    let [.., before, last] = costs else { return None };
    let growth = |from: Duration, to: Duration| {
        let steps = (last.n as f64 / before.n as f64).log10();
        (to.as_secs_f64() / from.as_secs_f64().max(1e-6)).powf(1.0 / steps)
    };
    let grows_alone = growth(before.time.ours, last.time.ours) > GROWTH
        && growth(before.time.theirs, last.time.theirs) <= GROWTH
        && is_too_long(last.time.ours, last.time.theirs);
    grows_alone.then_some("**not linear**")
}

fn print_rows(case: &Case, costs: &[Cost], violation: &str) {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    for (at, cost) in costs.iter().enumerate() {
        let ratio = cost.time.ours.as_secs_f64() / cost.time.theirs.as_secs_f64().max(1e-9);
        let note = if at + 1 == costs.len() { violation } else { "" };
        println!(
            "| {} | {} | {} | {} | {:.2} | {:.2} | {ratio:.1} | {:.2} | {:.2} | {note} |",
            case.family,
            case.title(),
            case.grows,
            cost.n,
            millis(cost.time.ours),
            millis(cost.time.theirs),
            millis(cost.wait.ours),
            millis(cost.wait.theirs),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::measure::Both;
    use super::*;

    fn cost(n: usize, ours: u64, theirs: u64) -> Cost {
        let both =
            |ours, theirs| Both { ours: Duration::from_millis(ours), theirs: Duration::from_millis(theirs) };
        Cost { n, time: both(ours, theirs), wait: both(1, 1) }
    }

    #[test]
    fn a_command_over_three_times_redis_or_with_a_worse_growth_breaks_a_rule() {
        let good = [cost(1_000, 1, 1), cost(10_000, 29, 10), cost(100_000, 290, 100)];
        assert_eq!(violation(&good, &FULL), None);
        let slow = [cost(1_000, 1, 1), cost(10_000, 31, 10), cost(100_000, 290, 100)];
        assert_eq!(violation(&slow, &FULL), Some("**too slow**"));
        let tiny = [cost(10_000, 2, 0)];
        assert_eq!(violation(&tiny, &FULL), None);
        let steep = [cost(1_000, 1, 1), cost(10_000, 10, 10), cost(100_000, 1_000, 100)];
        assert_eq!(violation(&steep, &FULL), Some("**not linear**"));
        // Redis's time grows as much.
        let both = [cost(1_000, 1, 1), cost(10_000, 10, 10), cost(100_000, 1_000, 900)];
        assert_eq!(violation(&both, &FULL), None);
    }

    #[test]
    fn a_client_that_waits_longer_than_redis_takes_breaks_a_rule() {
        let mut cost = cost(10_000, 10, 10);
        cost.wait.ours = Duration::from_millis(40);
        assert_eq!(violation(&[cost], &FULL), Some("**others wait**"));
    }

    #[test]
    fn the_commands_of_a_case_include_those_that_prepare_its_data() {
        let timed =
            CASES.iter().find(|case| case.family == "hash with times" && case.ask == ["HLEN h"]).unwrap();
        assert!(timed.commands().any(|name| name == "hexpire"));
        assert!(timed.commands().any(|name| name == "hlen"));
        let blocked = CASES.iter().find(|case| case.fill == ["blocked: BLPOP l 0"]).unwrap();
        assert!(blocked.commands().any(|name| name == "blpop"));
    }

    #[test]
    fn every_case_can_be_written_out() {
        for case in CASES {
            for line in case.fill.iter().chain(case.ask) {
                let commands = template::Line::of(line, 3).commands;
                assert!(!commands.is_empty(), "{line}");
                // Brackets are part of the language of scripts.
                let left: &[&str] = match case.ask.iter().any(|ask| ask.contains("{s}")) {
                    true => &["{s}", "{1}", "{n}", "{i}"],
                    false => &["{", "}", "[", "]"],
                };
                let mut words = commands.iter().flatten();
                assert!(words.all(|word| left.iter().all(|left| !word.contains(left))), "{line}");
            }
        }
    }
}
