//! The metrics by HTTP: what is served, to whom, and that no client holds up another.

#![allow(clippy::panic)] // A panic here is a failed test.

use crate::support::{Client, Server, eventually};
use duramen_server::metrics::table::{NOT_EXPORTED, families, matches};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn start() -> Server {
    Server::with(|config| config.metrics = "127.0.0.1:0".to_owned())
}

/// Sends bytes and reads until the server closes the connection, or answers a request that keeps it open.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> (u16, String, String) {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    answer(&mut stream, bytes.starts_with(b"HEAD"))
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Status, headers and body of an answer, which must be framed as it says.
pub fn answer(stream: &mut TcpStream, is_head: bool) -> (u16, String, String) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap_or_else(|error| {
            panic!("{error} after {:?}", String::from_utf8_lossy(&head));
        });
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; if is_head { 0 } else { length.parse().unwrap() }];
    stream.read_exact(&mut body).unwrap();
    (status, head, String::from_utf8(body).unwrap())
}

fn get(address: SocketAddr, path: &str, accept: &str) -> (u16, String, String) {
    exchange(address, format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n").as_bytes())
}

fn metrics(address: SocketAddr) -> Exposition {
    let (status, head, body) = get(address, "/metrics", "text/plain");
    assert!(status == 200 && head.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    Exposition::parse(&body, false)
}

/// A parsed exposition. Every line must be valid.
#[derive(Debug)]
struct Exposition {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Exposition {
    fn parse(text: &str, is_open: bool) -> Self {
        let (mut kinds, mut samples, mut helped) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.last().is_some_and(|line| *line == "# EOF"), is_open, "{:?}", lines.last());
        for line in lines.iter().take(lines.len() - usize::from(is_open)) {
            if let Some(rest) = line.strip_prefix("# ") {
                let words: Vec<&str> = rest.splitn(3, ' ').collect();
                let [word, name, value] = words[..] else { panic!("{line}") };
                assert!(name.starts_with("duramen_"), "{line}");
                match word {
                    "HELP" => assert!(helped.insert(name.to_owned()), "twice: {line}"),
                    "TYPE" => {
                        assert!(kinds.insert(name.to_owned(), value.to_owned()).is_none(), "twice: {line}")
                    }
                    "UNIT" => assert!(is_open && name.ends_with(&format!("_{value}")), "{line}"),
                    _ => panic!("{line}"),
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(value.is_finite() && value >= 0.0, "{line}");
            let name = series.split('{').next().unwrap();
            let series = format!("{name}{}", labels(&series[name.len()..]));
            let kind_of = |name: &str| kinds.get(name).map(String::as_str);
            let stripped = |end: &str| name.strip_suffix(end).and_then(kind_of);
            let is_typed = match is_open {
                true => kind_of(name) == Some("gauge") || stripped("_total") == Some("counter"),
                false => matches!(kind_of(name), Some("gauge" | "counter")),
            };
            let is_histogram =
                ["_bucket", "_sum", "_count"].iter().any(|end| stripped(end) == Some("histogram"));
            assert!(is_typed || is_histogram, "no type: {line}");
            assert_eq!(name.ends_with("_total"), is_typed && kind_of(name) != Some("gauge"), "{line}");
            assert!(samples.insert(series.to_owned(), value).is_none(), "twice: {line}");
        }
        let typed: BTreeSet<String> = kinds.keys().cloned().collect();
        assert_eq!(helped, typed);
        Self { kinds, samples }
    }

    #[track_caller]
    fn get(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series}"))
    }
}

/// `{name="value",…}` in the order of names, with bounds of buckets as numbers. Nothing here has to be escaped.
fn labels(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let mut labels = BTreeMap::new();
    for label in text.strip_prefix('{').unwrap().strip_suffix("\"}").unwrap().split("\",") {
        let (name, value) = label.split_once("=\"").unwrap_or_else(|| panic!("{text}"));
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{text}");
        assert!(!value.contains(['"', '\\', '\n']), "{text}");
        let value = if name == "le" { value.parse::<f64>().unwrap().to_string() } else { value.to_owned() };
        assert!(labels.insert(name, value).is_none(), "{text}");
    }
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{{{}}}", labels.join(","))
}

#[test]
fn both_formats_are_valid_and_counters_grow_with_commands() {
    let server = start();
    let (address, mut client) = (server.metrics(), server.client());
    let before = metrics(address);
    assert_eq!(before.get("duramen_ready"), 1.0);
    for at in 0..50 {
        client.says(&format!("set key{at} value"), "+OK\r\n");
    }
    client.says("get key1", "$5\r\nvalue\r\n");
    client.says("get none", "$-1\r\n");
    client.says("incr key1", "-ERR value is not an integer or out of range\r\n");
    client.says("client no-evict on", "+OK\r\n");
    let after = metrics(address);
    assert!(after.kinds.values().filter(|kind| *kind == "histogram").count() == 1);
    for (series, wanted) in [
        ("duramen_command_calls_total{command=\"set\"}", 50.0),
        ("duramen_command_calls_total{command=\"client|no-evict\"}", 1.0),
        ("duramen_command_failures_total{command=\"incr\"}", 1.0),
        ("duramen_errors_total{code=\"ERR\"}", 1.0),
        ("duramen_keyspace_hits_total", 1.0),
        ("duramen_keyspace_misses_total", 1.0),
        ("duramen_database_keys{db=\"0\"}", 50.0),
        ("duramen_store_keys", 50.0),
        ("duramen_clients", 1.0),
        ("duramen_connections_total", 1.0),
        ("duramen_out_of_space", 0.0),
        ("duramen_store_poisoned", 0.0),
        ("duramen_command_duration_seconds_count{command=\"set\"}", 50.0),
        ("duramen_command_duration_seconds_bucket{command=\"set\",le=\"inf\"}", 50.0),
    ] {
        assert_eq!(after.get(series), wanted, "{series}");
    }
    // Nothing that was not called has a series.
    assert!(!after.samples.keys().any(|series| series.contains("\"zadd\"")));
    for (series, value) in &before.samples {
        let name = series.split('{').next().unwrap();
        if name.ends_with("_total") {
            assert!(after.get(series) >= *value, "{series} went from {value} to {}", after.get(series));
        }
    }
    // Cumulative buckets, up to the count; the sum is a time within them.
    let buckets: Vec<f64> = buckets_of(&after, "set");
    assert!(buckets.len() == 19 && buckets.is_sorted(), "{buckets:?}");
    let sum = after.get("duramen_command_duration_seconds_sum{command=\"set\"}");
    assert!(sum > 0.0 && sum < 60.0, "{sum}");

    let wants = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let (status, head, body) = get(address, "/metrics", wants);
    assert!(status == 200 && head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    let open = Exposition::parse(&body, true);
    assert_eq!(open.get("duramen_keyspace_hits_total"), 1.0);
    let names = |of: &Exposition| of.samples.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&open), names(&after));
    // CONFIG RESETSTAT resets INFO, not these.
    client.says("config resetstat", "+OK\r\n");
    assert_eq!(metrics(address).get("duramen_keyspace_hits_total"), 1.0);
}

fn buckets_of(exposition: &Exposition, command: &str) -> Vec<f64> {
    let bound = |series: &str| {
        let rest = series.split("le=\"").nth(1)?;
        rest.split('"').next()?.parse::<f64>().ok()
    };
    let of = format!("command=\"{command}\"");
    let buckets =
        exposition.samples.iter().filter(|(series, _)| series.contains("_bucket{") && series.contains(&of));
    let mut buckets: Vec<(f64, f64)> =
        buckets.map(|(series, count)| (bound(series).unwrap(), *count)).collect();
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    buckets.into_iter().map(|(_, count)| count).collect()
}

/// The fields of INFO whose value is a number, or a list of numbers.
fn numbers(client: &mut Client) -> BTreeMap<String, Option<f64>> {
    let info = client.text("info everything");
    let fields = info.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(':'));
    let numeric = fields.filter_map(|(name, value)| match value.trim().parse::<f64>() {
        Ok(number) => Some((name.to_owned(), Some(number))),
        Err(_) => value
            .split(',')
            .all(|part| part.split_once('=').is_some_and(|(_, value)| value.parse::<f64>().is_ok()))
            .then(|| (name.to_owned(), None)),
    });
    numeric.collect()
}

/// A new field of INFO fails this test until it is exported by a family, or named with the reason why not.
#[test]
fn every_number_of_info_is_exported_or_named_with_a_reason() {
    let server = Server::with(|config| {
        config.metrics = "127.0.0.1:0".to_owned();
        config.memcached_socket =
            format!("{}", std::env::temp_dir().join(format!("m{}", std::process::id())).display());
        config.maxmemory = 64 << 20;
    });
    let mut client = server.client();
    client.says("set key value px 100000", "+OK\r\n");
    client.says("incr key", "-ERR value is not an integer or out of range\r\n");
    server.in_process().report("job", duramen_server::hosted_jobs::JobState::Starting, "", None);
    let before = numbers(&mut client);
    let scraped = metrics(server.metrics());
    let after = numbers(&mut client);
    assert!(before.len() > 150, "{}", before.len());
    let excused: Vec<&str> = NOT_EXPORTED.iter().flat_map(|(_, fields)| *fields).copied().collect();
    let exported = |name: &str| families().find(|it| it.info.iter().any(|pattern| matches(pattern, name)));
    let mut compared = 0;
    for (name, value) in &before {
        let is_excused = excused.iter().any(|pattern| matches(pattern, name));
        let Some(family) = exported(name) else {
            assert!(is_excused, "INFO has {name}: export it, or name it in NOT_EXPORTED with the reason");
            continue;
        };
        // The same number, where it is one: between what INFO said before and after.
        let (Some(then), Some(Some(now))) = (value, after.get(name)) else { continue };
        let unit = if name.ends_with("_nanos") { 1e-9 } else { 1.0 };
        let Some(shown) = scraped.samples.get(&family.sample_name()) else { continue };
        let (least, most) = (then.min(*now) * unit, then.max(*now) * unit);
        let slack = match name.as_str() {
            "used_memory_rss" | "duramen_memory_bytes" => (64 << 20) as f64,
            name if name.starts_with("allocator") => (64 << 20) as f64,
            // Whole extents.
            "maxmemory" => (64 << 10) as f64,
            _ => 1e-9,
        };
        if family.name == "process_start_timestamp_seconds" {
            continue;
        }
        assert!(*shown >= least - slack && *shown <= most + slack, "{name}: {then}, {shown}, {now}");
        compared += 1;
    }
    assert!(compared > 70, "{compared}");
    // No excuse and no mapping for a field that is gone.
    let alive =
        |pattern: &str| before.keys().any(|name| matches(pattern, name)) || pattern == "duramen_job_*";
    let is_text = |pattern: &str| ["run_id", "master_replid", "acl_access_denied_auth"].contains(&pattern);
    for pattern in excused.into_iter().chain(families().flat_map(|it| it.info).copied()) {
        assert!(alive(pattern) || is_text(pattern), "INFO has no number {pattern}");
    }
}

#[test]
fn requests_that_are_none_get_their_status() {
    let server = start();
    let address = server.metrics();
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9000));
    for (request, status) in [
        ("GET /health HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("GET /health?x=1 HTTP/1.0\r\n\r\n", 200),
        ("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("GET /ready HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        ("GET /../metrics HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("GET /metrics HTTP/1.1\r\n\r\n", 400),
        ("GET /metrics\r\n\r\n", 400),
        ("*1\r\n$4\r\nPING\r\n", 400),
        ("\u{16}\u{3}\u{1}\u{2}", 400),
        (&long, 431),
    ] {
        let (found, head, body) = exchange(address, request.as_bytes());
        assert_eq!(found, status, "{:.60}: {head}{body}", request.escape_debug());
        assert_eq!(head.contains("Allow: GET, HEAD"), status == 405, "{head}");
        assert!(!body.is_empty() || request.starts_with("HEAD"), "{head}");
    }
    // A connection stays open, and takes requests one after the other and together.
    let mut stream = connect(address);
    for _ in 0..3 {
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(answer(&mut stream, false).0, 200);
    }
    stream.write_all(&b"HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20)).unwrap();
    for _ in 0..20 {
        assert_eq!(answer(&mut stream, true).0, 200);
    }
    // After a body, which nobody reads, the connection ends; the answer arrives whole.
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n").unwrap();
    stream.write_all(&[b'x'; 100_000]).unwrap();
    assert_eq!(answer(&mut stream, false).0, 200);
    assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    assert_eq!(get(address, "/health", "*/*").0, 200);
}

#[test]
fn slow_clients_end_and_block_nobody() {
    let server = start();
    let address = server.metrics();
    // One that sends half a head, one that sends nothing, and one that does not read its answers.
    let mut half = connect(address);
    half.write_all(b"GET /metrics HTTP/1.1\r\nHo").unwrap();
    let mut silent = connect(address);
    let mut deaf = connect(address);
    deaf.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    let _ = deaf.write_all(&request);
    // And one that reads as fast as it asks, thousands of times in one packet.
    let mut greedy = connect(address);
    let mut reader = greedy.try_clone().unwrap();
    let asks = std::thread::spawn(move || {
        greedy.write_all(&b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5000))
    });
    let reads = std::thread::spawn(move || {
        (0..5000).map(|_| answer(&mut reader, true).0).all(|status| status == 200)
    });
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(get(address, "/metrics", "text/plain").0, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let (status, ..) = answer(&mut half, false);
    assert_eq!(status, 408);
    assert_eq!(silent.read(&mut [0; 8]).unwrap(), 0);
    assert!((4..12).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    asks.join().unwrap().unwrap();
    assert!(reads.join().unwrap());
}

#[test]
fn a_thousand_connections_leave_room_for_a_scrape_and_for_clients() {
    let server = start();
    let address = server.metrics();
    let mut client = server.client();
    let idle: Vec<TcpStream> = (0..1000).filter_map(|_| TcpStream::connect(address).ok()).collect();
    assert!(idle.len() > 900, "{}", idle.len());
    let begun = Instant::now();
    assert_eq!(get(address, "/metrics", "text/plain").0, 200);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    client.says("set key value", "+OK\r\n");
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let ours = idle.len();
    eventually("no more than 128 places", || files() < ours + 400);
    drop(idle);
    eventually("they are gone", || get(address, "/health", "*/*").0 == 200);
}

#[test]
fn a_store_that_takes_no_writes_is_not_ready_and_says_why() {
    let server = Server::with(|config| {
        config.metrics = "127.0.0.1:0".to_owned();
        config.maxmemory = 4 << 20;
        config.enable_debug_command = duramen_server::config::Allowed::Yes;
    });
    let (address, mut client) = (server.metrics(), server.client());
    assert_eq!(get(address, "/ready", "*/*"), (200, get(address, "/ready", "*/*").1, "ready\n".to_owned()));
    let mut key = 0;
    for bytes in [1 << 16, 1 << 10, 16] {
        let value = "v".repeat(bytes);
        loop {
            client.send(format!("set key{key} {value}\r\n"));
            if client.line() != "+OK" {
                break;
            }
            key += 1;
        }
    }
    let (status, _, why) = get(address, "/ready", "*/*");
    assert!(status == 503 && why.starts_with("no room: "), "{status} {why}");
    let full = metrics(address);
    assert_eq!((full.get("duramen_out_of_space"), full.get("duramen_ready")), (1.0, 0.0));
    assert!(full.get("duramen_used_bytes") / full.get("duramen_medium_limit_bytes") > 0.8);
    // Without another write: deleting is enough.
    for at in 0..key {
        client.says(&format!("del key{at}"), ":1\r\n");
    }
    eventually("room is found", || get(address, "/ready", "*/*").0 == 200);
    assert_eq!(metrics(address).get("duramen_out_of_space"), 0.0);

    client.send("debug panic write\r\n");
    client.line();
    let (status, _, why) = get(address, "/ready", "*/*");
    assert!(status == 503 && why.starts_with("poisoned store: "), "{status} {why}");
    assert_eq!(metrics(address).get("duramen_store_poisoned"), 1.0);
    assert_eq!(get(address, "/health", "*/*").0, 200);
    drop(client);
    let ended = server.stop();
    assert!(ended.is_err(), "a poisoned store is not closed cleanly");
    assert!(TcpStream::connect(address).is_err());
}
