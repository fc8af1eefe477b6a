//! Loads on real servers if they are installed (otherwise skipped with a message), and on sockets that answer wrongly,
//! late or not at all.
#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

use duramen_bench::server::servers::{Running, Server};
use duramen_bench::server::{Address, Command, Distribution, Length, Plan, Protocol, Versus, compare, run};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

fn plan(address: Address, command: Command) -> Plan {
    Plan {
        keys: 500,
        connections: 4,
        value_bytes: 100,
        length: Length::Commands(3000),
        warm_up: Duration::from_millis(20),
        ..Plan::new(address, command)
    }
}

/// A port that is free now.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The first of two ports that are free now.
fn two_ports() -> u16 {
    (0..100)
        .map(|_| port())
        .find(|port| *port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok())
        .unwrap()
}

fn installed(program: &str) -> bool {
    let there = std::process::Command::new(program).arg("--version").output().is_ok();
    if !there {
        eprintln!("left out: no {program} here");
    }
    there
}

#[test]
fn every_command_runs_against_redis_and_is_verified() {
    if !installed("redis-server") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("redis.sock");
    let text = format!(
        "redis=redis-server --port {{port}} --unixsocket {} --dir {{directory}} --save",
        socket.display()
    );
    let mut server: Server = text.parse().unwrap();
    server.command.push(String::new());
    let running = Running::start(&server, place.path(), port(), None).unwrap();
    for address in [running.address.clone(), Address::Unix(socket)] {
        let strings =
            [Command::Set, Command::Get, Command::Incr, Command::Mset, Command::Mget, Command::Mixed(50)];
        for command in strings {
            for (pipeline, distribution) in [(1, Distribution::Uniform), (16, Distribution::Zipfian(0.99))] {
                let plan = Plan { pipeline, distribution, ..plan(address.clone(), command) };
                let outcome = run(&plan, &()).unwrap();
                assert!(outcome.commands >= 3000, "{command} {}", outcome.commands);
                assert_eq!(outcome.latency.len(), outcome.commands);
                assert!(outcome.rate() > 0.0 && outcome.latency.min() > 0);
            }
        }
    }
    let open = Plan { rate: Some(20_000.0), pipeline: 16, ..plan(running.address.clone(), Command::Get) };
    let outcome = run(&open, &()).unwrap();
    assert!(outcome.rate() < 21_000.0, "no faster than the rate: {}", outcome.rate());
}

#[test]
fn memcached_is_driven_by_its_text_protocol() {
    if !installed("memcached") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let server: Server = "memcached".parse().unwrap();
    let running = Running::start(&server, place.path(), port(), None).unwrap();
    for command in [
        Command::Set,
        Command::Get,
        Command::Incr,
        Command::Mget,
        Command::Cas,
        Command::Touch,
        Command::Mixed(90),
    ] {
        let plan =
            Plan { protocol: Protocol::Memcached, pipeline: 4, ..plan(running.address.clone(), command) };
        assert!(run(&plan, &()).unwrap().commands >= 3000);
    }
}

#[test]
fn servers_are_measured_alternately_and_ratios_are_computed() {
    if !installed("redis-server") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let versus = Versus {
        servers: vec!["redis".parse().unwrap(), "other=redis-always".parse().unwrap()],
        place: place.path().to_owned(),
        port: two_ports(),
        commands: vec![Command::Set],
        pipelines: vec![1, 8],
        rounds: 2,
        plan: plan(Address::Tcp(String::new()), Command::Set),
    };
    let (measurements, notes) = compare(&versus, &|_, _| {}, &|| false).unwrap();
    let names: Vec<String> = measurements.iter().map(|m| format!("{} {}", m.group, m.name)).collect();
    assert_eq!(names[..3], ["SET redis", "SET other", "ratios of SET redis / other"]);
    assert_eq!(names.len(), 6);
    assert_eq!(measurements[2].metrics["throughput"].samples.len(), 2);
    assert!(measurements[0].metrics["server_cpu_time"].value > 0.0);
    assert!(notes.iter().any(|note| note.contains("survives a crash of the machine")), "{notes:?}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "the servers' directories are gone");
}

/// A socket that answers each received chunk of requests with `answer`, until the other side closes.
fn answering(answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    let answer = std::sync::Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            std::thread::spawn(move || {
                let mut buffer = vec![0; 1 << 20];
                while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&answer(&buffer[..bytes])).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_wrong_reply_is_an_error_and_not_a_number() {
    for (answer, shown) in [
        ("$-1\r\n", "found \"$-1\\r\\n\""),
        ("+OK\r\n+OK\r\n", "an unrequested reply"),
        ("-ERR out of memory\r\n", "out of memory"),
        ("HTTP/1.1 400 Bad Request\r\n", "HTTP/1.1"),
    ] {
        let address = answering(move |_| answer.as_bytes().to_vec());
        let plan = Plan { connections: 1, keys: 1, ..plan(address, Command::Set) };
        let error = run(&plan, &()).unwrap_err().to_string();
        assert!(error.contains("wrong reply") && error.contains(shown), "{error}");
    }
}

#[test]
fn a_closed_connection_and_an_absent_server_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let closer = std::thread::spawn(move || drop(listener.accept()));
    let error =
        run(&Plan { connections: 1, ..plan(Address::Tcp(address.clone()), Command::Get) }, &()).unwrap_err();
    assert!(error.to_string().contains(&format!("connection to {address} is lost")), "{error}");
    closer.join().unwrap();
    let error = run(&plan(Address::Tcp(address.clone()), Command::Get), &()).unwrap_err();
    assert!(error.to_string().contains(&format!("cannot connect to {address}")), "{error}");
}

#[test]
fn an_open_loop_counts_the_wait_of_commands_that_were_due_during_a_stall() {
    // Answers each SET and each GET of the one key; once, after 300 requests, it stalls for 400 ms.
    let count = std::sync::atomic::AtomicUsize::new(0);
    let value = std::sync::Mutex::new(Vec::new());
    let address = answering(move |requests| {
        let mut replies = Vec::new();
        for request in requests.split(|byte| *byte == b'*').skip(1) {
            if count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 300 {
                std::thread::sleep(Duration::from_millis(400));
            }
            if request.starts_with(b"3\r\n$3\r\nSET") {
                *value.lock().unwrap() = request[request.len() - 3..request.len() - 2].to_vec();
                replies.extend_from_slice(b"+OK\r\n");
            } else {
                replies.extend_from_slice(b"$1\r\n");
                replies.extend_from_slice(&value.lock().unwrap());
                replies.extend_from_slice(b"\r\n");
            }
        }
        replies
    });
    let plan = Plan {
        connections: 1,
        keys: 1,
        value_bytes: 1,
        pipeline: 1,
        rate: Some(1000.0),
        length: Length::Commands(1500),
        warm_up: Duration::ZERO,
        ..plan(address, Command::Get)
    };
    let outcome = run(&plan, &()).unwrap();
    let slow = outcome.latency.count_between(100_000_000, u64::MAX);
    // 400 commands were due meanwhile; 300 of them waited for more than 100 ms. A closed loop would count one.
    assert!(slow >= 250, "{slow}");
}

#[test]
fn impossible_plans_are_refused() {
    let good = plan(Address::Tcp("127.0.0.1:1".into()), Command::Set);
    for (bad, wanted) in [
        (Plan { pipeline: 0, ..good.clone() }, "pipeline is 0, wanted 1 to 10000"),
        (Plan { connections: 0, ..good.clone() }, "connections is 0"),
        (Plan { value_bytes: 0, ..good.clone() }, "value bytes is 0"),
        (Plan { keys: 0, ..good.clone() }, "keys is 0"),
        (Plan { rate: Some(f64::NAN), ..good.clone() }, "rate is NaN"),
        (Plan { length: Length::Commands(0), ..good.clone() }, "number of commands is 0"),
        (
            Plan { command: Command::Mset, protocol: Protocol::Memcached, ..good.clone() },
            "mset is not a command",
        ),
    ] {
        let error = run(&bad, &()).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(wanted), "{error}");
    }
}
