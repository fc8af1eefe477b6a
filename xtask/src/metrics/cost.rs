//! What metrics cost: processor time of the server for each command, with and without them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::http::get;
use crate::failure::{Attempt, Failure, Result};
use crate::server::{Server, find_program, free_port};

/// The bound: metrics that are scraped each second may cost so much more.
const MORE_MAX: f64 = 1.02;

/// Prints the ratio of each pair and their median; returns whether that is within the bound.
pub fn run(program: &Path, directory: &Path, pairs: usize, commands: usize) -> Result<bool> {
    let benchmark = find_program("redis-benchmark")
        .ok_or_else(|| Failure::new("found no redis-benchmark; install Debian's package redis-tools"))?;
    let metrics = free_port()?;
    let address = metrics.to_string();
    let start = |name: &str, more: &[&str]| -> Result<Server> {
        let path = Path::new("/dev/shm").join(format!("duramen-cost-{}-{name}", std::process::id()));
        let path = path.display().to_string();
        let options = [&["--path", path.as_str()][..], more].concat();
        let mut server = Server::start_duramen(program, &options, &directory.join(format!("{name}.log")))?;
        // The file has no name from here on: nothing is left after the process.
        server.demand_ready(Duration::from_secs(20))?;
        std::fs::remove_file(&path).attempt(|| format!("remove {path}"))?;
        Ok(server)
    };
    let servers = [start("without", &[])?, start("with", &["--metrics", &address])?];
    let round = |server: &Server| -> Result<f64> {
        let before = server.cpu_time()?;
        let status = Command::new(&benchmark)
            .args(["-p", &server.port().to_string(), "-q", "-t", "set,get", "-P", "16", "-r", "100000"])
            .args(["-n", &(commands / 2).to_string()])
            .stdout(Stdio::null())
            .status()
            .attempt(|| "run redis-benchmark".to_owned())?;
        if !status.success() {
            return Err(Failure::new(format!("redis-benchmark: {status}")));
        }
        Ok((server.cpu_time()? - before).as_secs_f64() * 1e9 / commands as f64)
    };
    let ends = AtomicBool::new(false);
    let mut ratios = thread::scope(|scope| -> Result<Vec<f64>> {
        let scraper = scope.spawn(|| {
            let mut scrapes = 0u64;
            while !ends.load(Ordering::Relaxed) {
                scrapes += u64::from(get(metrics, "/metrics").is_ok_and(|(status, _)| status == 200));
                thread::sleep(Duration::from_secs(1));
            }
            scrapes
        });
        let measure = || -> Result<Vec<f64>> {
            // Both fill their keys first.
            servers.iter().try_for_each(|server| round(server).map(drop))?;
            let mut ratios = Vec::new();
            for pair in 0..pairs {
                // Which comes first alternates.
                let first = pair % 2;
                let mut nanos = [0.0; 2];
                for which in [first, 1 - first] {
                    nanos[which] = round(&servers[which])?;
                }
                println!("ns of processor time a command: without {:.1}, with {:.1}", nanos[0], nanos[1]);
                ratios.push(nanos[1] / nanos[0]);
            }
            Ok(ratios)
        };
        let ratios = measure();
        ends.store(true, Ordering::Relaxed);
        let scrapes = scraper.join().unwrap_or_default();
        println!("{scrapes} scrapes");
        ratios
    })?;
    ratios.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (ratios.first(), ratios.last()) else {
        return Err(Failure::new("no pair was measured"));
    };
    let median = ratios[ratios.len() / 2];
    println!("with metrics / without: median {median:.4}, {least:.4} to {most:.4}");
    Ok(median <= MORE_MAX)
}
