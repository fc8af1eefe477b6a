//! `cargo xtask metrics`: a real Prometheus (Debian: prometheus) scrapes real servers.
//!
//! 1. Each server does one thing wrong (see [`scenes`]), and two do nothing wrong. One of these is scraped by https, with
//!    certificates on both sides.
//! 2. Every alert of dist/prometheus/duramen.rules.yml must fire at the server that provokes it, and none at those two.
//!    In the copy of the rules that is used every `for:` is 0 s; nothing else is changed.
//! 3. Every query of dist/grafana/duramen.json must return data, with `$__rate_interval` as 30 s and all instances.
//! 4. `promtool check metrics` finds nothing wrong with the exposition.
//! 5. prometheus-redis-exporter (Debian: prometheus-redis-exporter) reads the calm server without an error. Debian has
//!    no exporter for memcached.
//!
//! With `--cost PAIRS` it only measures the processor time of GETs and SETs (redis-benchmark, pipelined by 16), in
//! alternating rounds with metrics that are scraped each second, and without metrics.

mod cost;
mod exporter;
mod http;
mod prometheus;
mod scenes;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Attempt, Failure, Result};
use crate::server::{duramen_program, find_program};
use prometheus::Prometheus;
use scenes::Scenes;

#[derive(clap::Args)]
pub struct Settings {
    /// The duramen program, with the feature sql [default: built now]
    #[arg(long, value_name = "PATH")]
    duramen: Option<PathBuf>,
    /// Measures the cost in this many pairs of rounds instead
    #[arg(long, value_name = "PAIRS")]
    cost: Option<usize>,
    /// Commands of a round of the measurement
    #[arg(long, default_value_t = 4_000_000)]
    commands: usize,
}

/// How long alerts and queries may take until they are as wanted.
const PATIENCE: Duration = Duration::from_secs(120);
/// The calm servers must be without alerts after so long: rates need some scrapes.
const SETTLED: Duration = Duration::from_secs(20);

/// Runs the check; returns whether there is no finding.
pub fn run(repository: &Path, settings: Settings) -> Result<bool> {
    let directory = tempfile::tempdir().attempt(|| "make a directory".to_owned())?;
    if let Some(pairs) = settings.cost {
        let program = crate::server::release_program(repository, settings.duramen, "")?;
        return cost::run(&program, directory.path(), pairs, settings.commands);
    }
    let program = duramen_program(settings.duramen)?;
    let need = |name: &str| {
        let package = if name == "promtool" { "prometheus" } else { name };
        find_program(name)
            .ok_or_else(|| Failure::new(format!("found no {name}; install Debian's package {package}")))
    };
    let (server, tool, strace) = (need("prometheus")?, need("promtool")?, need("strace")?);
    let exporter = need("prometheus-redis-exporter")?;
    let rules = repository.join("dist/prometheus/duramen.rules.yml");
    let rules = std::fs::read_to_string(&rules).attempt(|| format!("read {}", rules.display()))?;
    let dashboard = repository.join("dist/grafana/duramen.json");
    let dashboard =
        std::fs::read_to_string(&dashboard).attempt(|| format!("read {}", dashboard.display()))?;

    let mut scenes = Scenes::start(&program, &strace, directory.path())?;
    let (targets, certificates) = (scenes.targets(), scenes.certificates());
    let prometheus = Prometheus::start(&server, &targets, &certificates, &at_once(&rules), directory.path())?;
    let begun = Instant::now();
    scenes.provoke(&prometheus)?;
    let mut clean = alerts(&rules, &prometheus)?;
    thread::sleep(SETTLED.saturating_sub(begun.elapsed()));
    clean &= calm(&prometheus)?;
    clean &= queries(&dashboard, &prometheus)?;
    clean &= lint(&tool, scenes.calm_metrics())?;
    clean &= exporter::check(&exporter, scenes.calm_port(), directory.path())?;
    Ok(clean)
}

/// The rules, with alerts that fire at once.
fn at_once(rules: &str) -> String {
    let line = |line: &str| match line.trim_start().strip_prefix("for:") {
        Some(_) => format!("{}for: 0s\n", &line[..line.len() - line.trim_start().len()]),
        None => format!("{line}\n"),
    };
    rules.lines().map(line).collect()
}

/// Names of the alerts.
fn names(rules: &str) -> BTreeSet<&str> {
    rules.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect()
}

fn alerts(rules: &str, prometheus: &Prometheus) -> Result<bool> {
    let wanted = names(rules);
    let provoked: BTreeSet<&str> = scenes::PROVOKED.iter().map(|(alert, _)| *alert).collect();
    if wanted != provoked {
        println!(
            "alerts that are not provoked, or do not exist: {:?}",
            wanted.symmetric_difference(&provoked)
        );
        return Ok(false);
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let firing = prometheus.firing()?;
        let is_there = |alert: &str, scene: &str| {
            firing.iter().any(|found| found.name == alert && found.instance == scene)
        };
        let silent: Vec<_> =
            scenes::PROVOKED.iter().filter(|(alert, scene)| !is_there(alert, scene)).collect();
        if silent.is_empty() {
            println!("alerts: all {} fire where they are provoked", wanted.len());
            return Ok(true);
        }
        if Instant::now() > until {
            println!(
                "alerts that do not fire at the server that provokes them: {silent:?}; firing: {firing:?}"
            );
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(500));
    }
}

fn calm(prometheus: &Prometheus) -> Result<bool> {
    // The calm servers share their file system with one that fills it.
    let is_wrong = |found: &prometheus::Firing| {
        ["calm", "tls"].contains(&found.instance.as_str()) && found.name != "DuramenFileSystemFullSoon"
    };
    let wrong: Vec<_> = prometheus.firing()?.into_iter().filter(is_wrong).collect();
    match wrong.is_empty() {
        true => println!("alerts: none fires at the servers that do nothing wrong"),
        false => println!("alerts that fire at the servers that do nothing wrong: {wrong:?}"),
    }
    Ok(wrong.is_empty())
}

fn queries(dashboard: &str, prometheus: &Prometheus) -> Result<bool> {
    let dashboard: serde_json::Value =
        serde_json::from_str(dashboard).attempt(|| "read the dashboard".to_owned())?;
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.flat_map(|panel| {
        let title = panel["title"].as_str().unwrap_or_default();
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.filter_map(move |target| Some((title, target["expr"].as_str()?)))
    });
    let mut waiting: Vec<(&str, &str)> = targets.collect();
    let (count, until) = (waiting.len(), Instant::now() + PATIENCE);
    if count == 0 {
        return Err(Failure::new("the dashboard has no queries"));
    }
    loop {
        let mut left = Vec::new();
        for (title, query) in waiting {
            let asked = query.replace("$__rate_interval", "30s").replace("$instance", ".*");
            if prometheus.query(&asked)? == 0 {
                left.push((title, query));
            }
        }
        if left.is_empty() {
            println!("dashboard: all {count} queries return data");
            return Ok(true);
        }
        if Instant::now() > until {
            println!("queries of the dashboard without data:");
            left.iter().for_each(|(title, query)| println!("  {title}: {query}"));
            return Ok(false);
        }
        waiting = left;
        thread::sleep(Duration::from_secs(1));
    }
}

/// What promtool says about the exposition.
fn lint(tool: &Path, port: u16) -> Result<bool> {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let (_, text) = http::get(port, "/metrics")?;
    let mut child = Command::new(tool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .attempt(|| "start promtool".to_owned())?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes()).attempt(|| "write to promtool".to_owned())?;
    }
    let output = child.wait_with_output().attempt(|| "wait for promtool".to_owned())?;
    let said = [output.stdout, output.stderr].concat();
    match output.status.success() {
        true => println!("promtool: no objection to {} lines", text.lines().count()),
        false => println!("promtool: {}", String::from_utf8_lossy(&said)),
    }
    Ok(output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_durations_of_alerts_are_rewritten() {
        let rules = "  - alert: One\n    expr: rate(x[5m]) > 0\n    for: 5m\n    labels: {a: b}\n";
        assert_eq!(at_once(rules), rules.replace("for: 5m", "for: 0s"));
        assert_eq!(names(rules), BTreeSet::from(["One"]));
    }
}
