//! Debian's prometheus-redis-exporter against a server.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::http::get;
use crate::failure::{Failure, Result};
use crate::server::{Server, free_port};

/// Whether it reads the server on this port without an error.
pub fn check(program: &Path, redis: u16, directory: &Path) -> Result<bool> {
    let port = free_port()?;
    let arguments =
        [format!("--redis.addr=redis://127.0.0.1:{redis}"), format!("--web.listen-address=127.0.0.1:{port}")];
    let log = directory.join("exporter.log");
    let mut exporter = Server::start("prometheus-redis-exporter", program, &arguments, port, &log)?;
    exporter.demand_connects(Duration::from_secs(10))?;
    let until = Instant::now() + Duration::from_secs(30);
    let text = loop {
        let (_, text) = get(port, "/metrics")?;
        if text.contains("\nredis_up 1\n") {
            break text;
        }
        if Instant::now() > until {
            return Err(Failure::new(format!("redis_up is not 1\n{}", exporter.last_words())));
        }
        thread::sleep(Duration::from_millis(200));
    };
    let has = |line: &str| text.lines().any(|found| found == line);
    let is_read = has("redis_exporter_last_scrape_error{err=\"\"} 0");
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let errors: Vec<&str> =
        said.lines().filter(|line| line.contains("level=error") || line.contains("level=warning")).collect();
    let count = text.lines().filter(|line| line.starts_with("redis_")).count();
    match is_read && errors.is_empty() {
        true => println!("prometheus-redis-exporter: no error, {count} samples"),
        false => println!("prometheus-redis-exporter: last scrape without error: {is_read}; {errors:?}"),
    }
    exporter.kill()?;
    Ok(is_read && errors.is_empty())
}
