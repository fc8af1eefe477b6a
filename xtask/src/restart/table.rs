//! The results, as lines of a table for the documentation, and as JSON.

use super::After;
use crate::failure::{Attempt, Failure, Result};
use crate::server::Server;
use duramen::MediumKind;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Starts of one kind on one store.
#[derive(Default)]
pub struct Row {
    server: &'static str,
    medium: MediumKind,
    /// The kind of index; empty for another server.
    index: String,
    keys: u64,
    medium_bytes: u64,
    after: After,
    cold: bool,
    /// From the creation of the process to the reply.
    seconds: Vec<f64>,
    /// Of these, the time in which the engine opened the store.
    recovery_seconds: Vec<f64>,
    /// The server's private memory after the last start.
    anonymous_bytes: u64,
    /// Processes that ran or were ready to run, at the first and at the last start: the kernel's mean over a minute.
    load: Vec<f64>,
    /// Wrong values.
    pub wrong: u64,
}

impl Row {
    pub fn new(
        server: &'static str,
        medium: MediumKind,
        index: &str,
        keys: u64,
        medium_bytes: u64,
        after: After,
        cold: bool,
    ) -> Row {
        Row { server, medium, index: index.to_owned(), keys, medium_bytes, after, cold, ..Row::default() }
    }

    /// Adds a start.
    pub fn keep(&mut self, server: &Server, seconds: f64) -> Result<()> {
        let mut connection = server.connect()?;
        let reply = connection.call(&["INFO", "all"], Duration::from_secs(60));
        let text =
            reply.ok().and_then(|reply| reply.text().map(|text| String::from_utf8_lossy(text).into_owned()));
        let text = text.ok_or_else(|| Failure::new("duramen serve did not answer INFO"))?;
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let recovery = field("duramen_recovery_nanos:");
        let recovery = recovery.ok_or_else(|| Failure::new("INFO has no duramen_recovery_nanos"))?;
        self.seconds.push(seconds);
        self.recovery_seconds.push(recovery as f64 / 1e9);
        self.anonymous_bytes = field("duramen_memory_bytes:").unwrap_or(0);
        self.load.extend(load());
        Ok(())
    }

    /// Adds a start of redis-server, all of whose data is private memory.
    pub fn keep_redis(&mut self, server: &Server, seconds: f64) -> Result<()> {
        self.seconds.push(seconds);
        self.anonymous_bytes = server.resident_kib()? << 10;
        self.load.extend(load());
        Ok(())
    }

    /// One line of the table.
    pub fn line(&self) -> String {
        let Some(seconds) = Spread::of(&self.seconds) else { return String::new() };
        let recovery = Spread::of(&self.recovery_seconds)
            .map_or(String::new(), |spread| format!("{:.3}", spread.median));
        let after = match self.after {
            After::Close => "SIGTERM",
            After::Kill => "SIGKILL",
        };
        let load = Spread::of(&self.load).map_or(String::new(), |load| format!("{:.1}", load.median));
        format!(
            "| {} | {} | {} | {} | {after} | {:.3} ({:.3} to {:.3}) | {recovery} | {:.2} | {:.0} | {:.0} | {load} |",
            self.server,
            self.medium,
            self.index,
            self.keys,
            seconds.median,
            seconds.low,
            seconds.high,
            self.keys as f64 / seconds.median / 1e6,
            self.anonymous_bytes as f64 / self.keys as f64,
            self.medium_bytes as f64 / self.keys as f64,
        )
    }

    fn json(&self) -> Value {
        json!({
            "server": self.server,
            "medium": self.medium.to_string(),
            "index": self.index,
            "keys": self.keys,
            "medium_bytes": self.medium_bytes,
            "after": match self.after { After::Close => "SIGTERM", After::Kill => "SIGKILL" },
            "cold": self.cold,
            "seconds": self.seconds,
            "recovery_seconds": self.recovery_seconds,
            "anonymous_bytes": self.anonymous_bytes,
            "load": self.load,
            "wrong": self.wrong,
        })
    }
}

/// The head of the table.
pub fn head() -> &'static str {
    "| server | medium | index | records | after | seconds to the first answer, median (min to max) | of it opening, s | million records/s | \
     DRAM, bytes a record | medium, bytes a record | load |\n|---|---|---|---|---|---|---|---|---|---|---|"
}

struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(samples: &[f64]) -> Option<Spread> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let (a, b) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Spread { median: (a + b) / 2.0, low, high })
    }
}

/// Processes that ran or were ready to run in the last minute.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Writes all rows to `file`.
pub fn write(file: &Path, rows: &[Row]) -> Result<()> {
    let command: Vec<String> = std::env::args().collect();
    let rows: Vec<Value> = rows.iter().map(Row::json).collect();
    let text = format!("{:#}\n", json!({ "command": command, "rows": rows }));
    std::fs::write(file, text).attempt(|| format!("write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        for (samples, median) in [(&[3.0][..], 3.0), (&[9.0, 1.0, 2.0], 2.0), (&[4.0, 1.0, 3.0, 2.0], 2.5)] {
            let spread = Spread::of(samples);
            assert!(spread.is_some_and(|s| s.median == median && s.low <= median && s.high >= median));
        }
        assert!(Spread::of(&[]).is_none());
    }
}
