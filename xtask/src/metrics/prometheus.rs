//! A Prometheus that scrapes each second.

use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::http::{get, quoted};
use crate::failure::{Attempt, Failure, Result};
use crate::server::{Server, free_port};

/// A target: the job of its configuration, its name as the label `instance`, and its port.
pub struct Target {
    pub job: &'static str,
    pub instance: &'static str,
    pub port: u16,
}

/// The job whose targets speak TLS, and ask for a certificate.
pub const TLS_JOB: &str = "duramen-https";

/// An alert that fires.
#[derive(Debug)]
pub struct Firing {
    pub name: String,
    pub instance: String,
}

/// A running Prometheus.
pub struct Prometheus {
    server: Server,
}

impl Prometheus {
    /// Starts it with these targets and rules; `certificates` has those of [`crate::certificates`].
    pub fn start(
        program: &Path,
        targets: &[Target],
        certificates: &Path,
        rules: &str,
        directory: &Path,
    ) -> Result<Prometheus> {
        let mut config = String::from(
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n\
             rule_files: [duramen.rules.yml]\nscrape_configs:\n",
        );
        let files = certificates.display();
        for job in ["duramen", "duramen-sql", TLS_JOB] {
            // Writing to a string cannot fail.
            let _ = writeln!(config, "  - job_name: {job}");
            if job == TLS_JOB {
                let _ = writeln!(
                    config,
                    "    scheme: https\n    tls_config: {{ca_file: {files}/ca.crt, cert_file: {files}/ada.crt, \
                     key_file: {files}/ada.key}}"
                );
            }
            let _ = writeln!(config, "    static_configs:");
            for target in targets.iter().filter(|target| target.job == job) {
                let Target { instance, port, .. } = target;
                let _ = writeln!(config, "      - targets: [\"127.0.0.1:{port}\"]");
                let _ = writeln!(config, "        labels: {{instance: {instance}}}");
            }
        }
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).attempt(|| format!("write {}", path.display()))
        };
        write("prometheus.yml", &config)?;
        write("duramen.rules.yml", rules)?;
        let port = free_port()?;
        let arguments = [
            format!("--config.file={}", directory.join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", directory.join("tsdb").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let mut server =
            Server::start("prometheus", program, &arguments, port, &directory.join("prometheus.log"))?;
        let until = Instant::now() + Duration::from_secs(30);
        while get(port, "/-/ready").ok().is_none_or(|(status, _)| status != 200) {
            if let Some(status) = server.exited()? {
                return Err(Failure::new(format!("prometheus ended: {status}\n{}", server.last_words())));
            }
            if Instant::now() > until {
                return Err(Failure::new(format!("prometheus is not ready\n{}", server.last_words())));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(Prometheus { server })
    }

    fn ask(&self, path: &str) -> Result<serde_json::Value> {
        let (status, body) = get(self.server.port(), path)?;
        let answer: serde_json::Value =
            serde_json::from_str(&body).attempt(|| format!("read the answer to {path}"))?;
        if status != 200 || answer["status"] != "success" {
            return Err(Failure::new(format!("prometheus answers {path} with {status}: {body}")));
        }
        Ok(answer["data"].clone())
    }

    /// The number of series that a query returns.
    pub fn query(&self, query: &str) -> Result<usize> {
        let data = self.ask(&format!("/api/v1/query?query={}", quoted(query)))?;
        let result = data["result"].as_array().map_or(0, Vec::len);
        Ok(result)
    }

    /// The alerts that fire.
    pub fn firing(&self) -> Result<Vec<Firing>> {
        let data = self.ask("/api/v1/alerts")?;
        let alerts = data["alerts"].as_array().into_iter().flatten();
        let label = |alert: &serde_json::Value, name: &str| {
            alert["labels"][name].as_str().unwrap_or_default().to_owned()
        };
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        Ok(firing
            .map(|alert| Firing { name: label(alert, "alertname"), instance: label(alert, "instance") })
            .collect())
    }

    /// Waits until a query returns a series.
    pub fn demand(&self, query: &str) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(30);
        while self.query(query)? == 0 {
            if Instant::now() > until {
                return Err(Failure::new(format!("{query} returns nothing")));
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}
