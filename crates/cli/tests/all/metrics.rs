//! Metrics of jobs of SQL: in the server, and of `duramen sql`.

use crate::sql::start;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// The answer to a request, once somebody listens; empty if nobody does.
fn get(port: &str, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(format!("127.0.0.1:{port}")) else { return String::new() };
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The value of a series, if there is one.
fn value(port: &str, series: &str) -> Option<f64> {
    let text = get(port, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

#[track_caller]
fn until(what: &str, port: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        let text = get(port, "/metrics");
        let jobs: Vec<&str> = text.lines().filter(|line| line.contains("sql_job")).collect();
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}\n{}", jobs.join("\n"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

const SCRIPT: &str = "
    CREATE TABLE i (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem',
      'path' = 'in.csv', 'format' = 'csv', 'source.monitor-interval' = '5 ms');
    CREATE TABLE o (k BIGINT, wend TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO o SELECT k, window_end, COUNT(*)
      FROM TABLE(TUMBLE(TABLE i, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end;";

/// Lines for this minute of an hour in 2026, one for each of five keys.
fn append(directory: &Path, minute: u32) {
    let lines: String = (0..5).map(|k| format!("{k},2026-01-05 10:{minute:02}:00\n")).collect();
    let mut file =
        std::fs::OpenOptions::new().create(true).append(true).open(directory.join("in.csv")).unwrap();
    file.write_all(lines.as_bytes()).unwrap();
}

fn job_has_its_numbers(directory: &Path, port: &str) {
    let of = |name: &str| value(port, &format!("duramen_sql_job_{name}{{sql_job=\"good\"}}")).unwrap_or(-1.0);
    until("the job runs", port, || {
        value(port, "duramen_sql_job_state{sql_job=\"good\",state=\"running\"}") == Some(1.0)
    });
    append(directory, 1);
    until("five records are read", port, || of("records_read_total") == 5.0);
    until("five keys are kept", port, || of("state_keys") == 5.0);
    assert!(of("state_bytes") > 0.0);
    assert_eq!(of("records_written_total"), 0.0);
    append(directory, 2);
    until("the window of five keys is written", port, || of("records_written_total") == 5.0);
    assert_eq!(of("records_read_total"), 10.0);
    append(directory, 1);
    until("five rows were late", port, || of("records_late_total") == 5.0);
    // 2026-01-05 10:02:00.
    let watermark = of("watermark_timestamp_seconds");
    assert!((watermark - 1_767_607_320.0).abs() < 1.0, "{watermark}");
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((of("watermark_lag_seconds") - (now - watermark)).abs() < 30.0);
    until("a checkpoint", port, || of("checkpoints_total") >= 2.0);
    assert!(of("checkpoint_age_seconds") < 30.0 && of("checkpoint_age_seconds") >= 0.0);
    assert!(of("checkpoint_duration_seconds") > 0.0);
    assert_eq!(of("checkpoint_interval_seconds"), 0.05);
    assert!(get(port, "/ready").starts_with("HTTP/1.1 200"));
    assert!(get(port, "/health").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_job_of_sql_shows_its_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let (dir, port) = (directory.path(), free_port());
    std::fs::write(dir.join("good.sql"), SCRIPT).unwrap();
    std::fs::write(dir.join("in.csv"), "").unwrap();
    let args = ["sql", "good.sql", "--store", "jobs", "--every", "50", "--metrics", &port];
    let mut job = start(dir, &args);
    job_has_its_numbers(dir, &port);
    // A checkpoint keeps the number of records read, so the count continues after a kill.
    job.0.kill().unwrap();
    job.0.wait().unwrap();
    let _job = start(dir, &args);
    until("it resumes", &port, || {
        value(&port, "duramen_sql_job_records_read_total{sql_job=\"good\"}").is_some_and(|read| read >= 10.0)
    });
    // Nothing of a server is shown, since there is none.
    assert!(!get(&port, "/metrics").contains("duramen_clients"));
    let refused = Command::new(env!("CARGO_BIN_EXE_duramen"))
        .args(["sql", "good.sql", "--metrics", "nowhere"])
        .current_dir(dir)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn jobs_of_the_server_show_their_numbers_and_a_failed_one_its_state() {
    let directory = tempfile::tempdir().unwrap();
    let (dir, port, metrics) = (directory.path(), free_port(), free_port());
    std::fs::write(dir.join("good.sql"), SCRIPT).unwrap();
    std::fs::write(dir.join("in.csv"), "").unwrap();
    std::fs::write(dir.join("bad.sql"), SCRIPT.replace("in.csv", "absent/in.csv")).unwrap();
    let jobs = ["--duramen-sql", "good.sql", "bad.sql", "--duramen-sql-every", "50"];
    let _server = start(dir, &[&["serve", "--port", &port, "--metrics", &metrics][..], &jobs].concat());
    job_has_its_numbers(dir, &metrics);
    until("the other one failed", &metrics, || {
        value(&metrics, "duramen_sql_job_state{sql_job=\"bad\",state=\"failed\"}") == Some(1.0)
    });
    assert_eq!(value(&metrics, "duramen_sql_job_state{sql_job=\"good\",state=\"failed\"}"), Some(0.0));
}
