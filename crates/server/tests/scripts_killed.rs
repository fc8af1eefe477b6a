//! Scripts in a server that is killed: each run counts completely or not at all, and acknowledged ones exist.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod support;

use duramen::MediumKind;
use duramen_server::Config;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Client, Server};

/// Names the store in the process that serves.
const STORE: &str = "DURAMEN_KILLED_SCRIPTS_STORE";
const CLIENTS: usize = 3;
const KILLS: usize = 12;

/// One run writes a number to a string, a hash that becomes large, a list and a sorted set, half of them undeclared, and
/// now and then looks at all keys, so that it runs twice. Each third run ends with an error after its last write.
const SCRIPT: &str = "
local n = redis.call('incr', KEYS[1])
redis.call('hset', KEYS[1] .. ':hash', n % 500, n)
if n % 7 == 0 then redis.call('dbsize') end
redis.call('rpush', KEYS[1] .. ':list', n)
if redis.call('llen', KEYS[1] .. ':list') > 300 then redis.call('lpop', KEYS[1] .. ':list') end
redis.call('zadd', KEYS[2], n, n % 400)
if n % 3 == 0 then redis.call('lpush', KEYS[1], 1) end
return n";

fn config(path: &Path) -> impl Fn(&mut Config) + use<'_> {
    move |config| {
        config.medium = MediumKind::Shm;
        config.path = path.to_owned();
        config.small_collection_bytes_max = 128;
    }
}

#[test]
#[ignore = "run by the other test, in its own process"]
fn serves() {
    let path = std::path::PathBuf::from(std::env::var_os(STORE).unwrap());
    let server = Server::with(config(&path));
    println!("port: {}", server.port);
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

/// Runs scripts until the server is gone; gives the last number that was acknowledged.
fn work(port: u16, at: usize) -> u64 {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { return 0 };
    let (key, set) = (format!("c{at}"), format!("c{at}:set"));
    let parts = ["eval", SCRIPT, "2", &key, &set];
    let mut command = format!("*{}\r\n", parts.len());
    parts.iter().for_each(|part| command.push_str(&format!("${}\r\n{part}\r\n", part.len())));
    let (mut writer, mut reader) = (stream.try_clone().unwrap(), BufReader::new(stream));
    let mut last = 0;
    loop {
        let mut line = String::new();
        if writer.write_all(command.as_bytes()).is_err() || !matches!(reader.read_line(&mut line), Ok(1..)) {
            return last;
        }
        if !line.ends_with("\r\n") {
            return last;
        }
        match line.trim_end().strip_prefix(':') {
            Some(number) => last = number.parse().unwrap(),
            None => {
                assert!(line.starts_with("-WRONGTYPE"), "{line}");
                // The run before it was acknowledged, if there was one, and this one is the next.
                last = if last == 0 { 0 } else { last + 1 };
            }
        }
    }
}

/// What there must be of a client's runs.
fn check(client: &mut Client, at: usize, told: u64) -> u64 {
    client.send(format!("get c{at}\r\n"));
    let head = client.line();
    if head == "$-1" {
        assert_eq!(told, 0);
        client.says(&format!("exists c{at}:hash c{at}:list c{at}:set"), ":0\r\n");
        return 0;
    }
    let done: u64 = client.line().parse().unwrap();
    assert!(done >= told, "{told} runs were acknowledged, {done} exist");
    let bulk = |number: u64| format!("${}\r\n{number}\r\n", number.to_string().len());
    client.says(&format!("hget c{at}:hash {}", done % 500), &bulk(done));
    client.says(&format!("hlen c{at}:hash"), &format!(":{}\r\n", done.min(500)));
    client.says(&format!("lindex c{at}:list -1"), &bulk(done));
    client.says(&format!("llen c{at}:list"), &format!(":{}\r\n", done.min(300)));
    client.says(&format!("zscore c{at}:set {}", done % 400), &bulk(done));
    client.says(&format!("zcard c{at}:set"), &format!(":{}\r\n", done.min(400)));
    let next = done + 1;
    // Nothing of a run that did not count.
    client.says(&format!("zcount c{at}:set {next} inf"), ":0\r\n");
    done
}

#[test]
fn each_run_of_a_script_counts_completely_or_not_at_all_after_a_kill() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("store");
    let mut told = [0; CLIENTS];
    for round in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "serves", "--nocapture"])
            .env(STORE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port: u16 = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some(port) = line.strip_prefix("port: ") {
                break port.parse().unwrap();
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..CLIENTS).map(|at| scope.spawn(move || work(port, at))).collect();
            std::thread::sleep(Duration::from_millis(60 + 37 * round as u64));
            child.kill().unwrap();
            child.wait().unwrap();
            for (told, worker) in told.iter_mut().zip(workers) {
                *told = worker.join().unwrap().max(*told);
            }
        });
        let server = Server::with(config(&path));
        let mut client = server.client();
        for (at, told) in told.iter_mut().enumerate() {
            *told = check(&mut client, at, *told);
        }
        drop(client);
        server.stop().unwrap();
    }
    assert!(told.iter().all(|told| *told > 10), "too few runs to show anything: {told:?}");
}
