//! Limits: a client that asks for too much is cut off, and the others notice nothing.

use crate::support::{Client, Server, eventually};
use duramen::Durability;
use duramen_server::config::{ClientsMemory, OutputLimit};
use socket2::SockRef;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

#[test]
fn one_client_too_many_gets_an_error() {
    let server = Server::with(|config| config.maxclients = 2);
    let (mut one, mut two) = (server.client(), server.client());
    one.says("ping", "+PONG\r\n");
    two.says("ping", "+PONG\r\n");
    let mut three = server.client();
    three.expect("-ERR max number of clients reached\r\n");
    three.expect_end();
    drop(two);
    eventually("there is room again", || {
        let mut client = server.client();
        client.send("ping\r\n");
        client.line() == "+PONG"
    });
    assert!(one.text("info stats").contains("rejected_connections:"));
}

#[test]
fn a_client_that_sends_all_requests_before_it_reads_gets_every_reply() {
    const REQUESTS: usize = 200_000;
    let server = Server::start();
    let mut client = server.client();
    let value = "v".repeat(10 << 10);
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n", value.len()));
    client.expect("+OK\r\n");
    client.send("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(REQUESTS));
    // Time enough to execute all of them, if nothing holds that back.
    std::thread::sleep(Duration::from_secs(3));
    // All that the server holds of it meanwhile: the requests, and a few MiB of replies.
    let mut other = server.client();
    let held = |info: &str| {
        let field = info.lines().find_map(|line| line.strip_prefix("mem_clients_normal:"));
        field.unwrap().parse::<u64>().unwrap()
    };
    assert!(held(&other.text("info memory")) < 32 << 20);
    let reply = format!("${}\r\n{value}\r\n", value.len());
    let mut got = vec![0; reply.len()];
    for index in 0..REQUESTS {
        client.0.read_exact(&mut got).unwrap_or_else(|error| panic!("reply {index}: {error}"));
        assert!(got == reply.as_bytes(), "reply {index}");
    }
    client.says("ping", "+PONG\r\n");
    assert!(other.text("info stats").contains("client_output_buffer_limit_disconnections:0\r\n"));
}

#[test]
fn a_client_that_reads_slowly_gets_every_reply() {
    const BYTES: usize = 64 << 20;
    // Each reply is below the limit; all that are asked for are sixteen times as much.
    let server = Server::with(|config| {
        config.client_output_buffer_limit[0] = OutputLimit { hard_bytes: 4 << 20, ..OutputLimit::default() };
    });
    let mut client = server.client();
    client.says("setrange k 1048575 v", ":1048576\r\n");
    let header = "$1048576\r\n".len();
    client.send("GET k\r\n".repeat(BYTES >> 20));
    let mut got = vec![0; 64 << 10];
    let mut left = (BYTES >> 20) * (header + (1 << 20) + 2);
    while left > 0 {
        std::thread::sleep(Duration::from_millis(2));
        let piece = left.min(got.len());
        client.0.read_exact(&mut got[..piece]).unwrap();
        left -= piece;
    }
    client.says("ping", "+PONG\r\n");
}

#[test]
fn a_client_that_reads_nothing_stops_and_costs_little() {
    let server = Server::start();
    let mut client = server.client();
    client.says("setrange k 999999 v", ":1000000\r\n");
    let mut hungry = server.client();
    hungry.0.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // Until the kernel takes no more: some 64 MiB are read ahead.
    let requests = b"GET k\r\n".repeat(10_000);
    while hungry.0.write_all(&requests).is_ok() {}
    let list = client.text("client list");
    let field = |line: &str, name: &str| {
        let field = line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap();
        field.parse::<u64>().unwrap()
    };
    let address = hungry.0.local_addr().unwrap();
    let line = list.lines().find(|line| line.contains(&format!("addr={address} "))).unwrap();
    assert!(field(line, "obl=") <= 5_100_000, "{line}");
    assert!((60 << 20..66 << 20).contains(&field(line, "qbuf=")), "{line}");
    client.says("strlen k", ":1000000\r\n");
    drop(hungry);
    eventually("it is gone", || client.text("info clients").contains("connected_clients:1\r\n"));
}

#[test]
fn a_client_that_shuts_down_its_sending_side_gets_every_reply() {
    let server = Server::start();
    let mut client = server.client();
    client.says("setrange k 999999 v", ":1000000\r\n");
    client.send(format!("{}SET last 1\r\n", "GET k\r\n".repeat(100)));
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    let mut got = Vec::new();
    client.0.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), 100 * ("$1000000\r\n".len() + 1_000_002) + "+OK\r\n".len());
    server.client().says("get last", "$1\r\n1\r\n");
}

#[test]
fn requests_that_were_read_ahead_are_executed_once_each() {
    const REQUESTS: usize = 400_000;
    let server = Server::start();
    let mut client = server.client();
    client.says("setrange k 99999 v", ":100000\r\n");
    // Replies that stop it, and a count after them.
    client.send("GET k\r\n".repeat(200));
    client.send("INCR n\r\n".repeat(REQUESTS));
    let mut replies = vec![0; 200 * ("$100000\r\n".len() + 100_002)];
    client.0.read_exact(&mut replies).unwrap();
    for index in 1..=REQUESTS {
        client.expect(format!(":{index}\r\n"));
    }
}

#[test]
fn one_command_takes_no_more_than_the_limit() {
    const LIMIT: u64 = 4 << 20;
    let server = Server::with(|config| {
        config.client_output_buffer_limit[0] = OutputLimit { hard_bytes: LIMIT, ..OutputLimit::default() };
    });
    let mut client = server.client();
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{}\r\n", "v".repeat(1_000_000)));
    client.expect("+OK\r\n");
    let mut many = server.client();
    many.send(format!("MGET{}\r\n", " k".repeat(100)));
    many.expect_end();
    let mut transaction = server.client();
    let queued = 102;
    transaction.send(format!("MULTI\r\nSET a 1\r\n{}SET b 2\r\n", "GET k\r\n".repeat(queued - 2)));
    transaction.expect(format!("+OK\r\n{}", "+QUEUED\r\n".repeat(queued)));
    transaction.send("EXEC\r\n");
    transaction.expect_end();
    // All of it was executed, though nothing was sent.
    client.says("mget a b", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    let info = client.text("info everything");
    let field = |name: &str| info.lines().find_map(|l| l.strip_prefix(name)).unwrap().parse::<u64>().unwrap();
    assert_eq!(field("client_output_buffer_limit_disconnections:"), 2);
    let most = field("client_recent_max_output_buffer:");
    assert!(most <= LIMIT + 1_001_000, "{most}");
    // Replies that are not sent may have any length.
    let mut silent = server.client();
    silent.send(format!("CLIENT REPLY SKIP\r\nMGET{}\r\nPING\r\n", " k".repeat(100)));
    silent.expect("+PONG\r\n");
}

#[test]
fn each_client_that_is_cut_off_is_counted_once() {
    const CLIENTS: usize = 8;
    let server = Server::with(|config| {
        config.client_output_buffer_limit[0] = OutputLimit { hard_bytes: 4 << 20, ..OutputLimit::default() };
    });
    let mut client = server.client();
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{}\r\n", "v".repeat(1_000_000)));
    client.expect("+OK\r\n");
    let mut counted = || {
        let info = client.text("info stats");
        let field = info.lines().find_map(|l| l.strip_prefix("client_output_buffer_limit_disconnections:"));
        field.unwrap().parse::<usize>().unwrap()
    };
    for cut_off in 0..CLIENTS {
        // A worker checks all clients ten times a second, after its work. In about half of the runs, the work after
        // these two is what disconnects the client.
        let mut hungry = server.client();
        for _ in 0..2 {
            hungry.says("ping", "+PONG\r\n");
            std::thread::sleep(Duration::from_millis(60));
        }
        hungry.send(format!("MGET{}\r\n", " k".repeat(30)));
        eventually("it is cut off", || counted() > cut_off);
    }
    assert_eq!(counted(), CLIENTS);
}

#[test]
fn a_client_that_always_reads_late_does_not_grow_its_buffer() {
    const BEHIND: usize = 16;
    let value = "v".repeat(1_000_000);
    // The replies that wait at a time are 16 MB, and the kernel takes some; all together they are 160 MB.
    let server = Server::with(|config| config.maxmemory_clients = ClientsMemory::Bytes(80 << 20));
    let mut client = server.client();
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{value}\r\n"));
    client.expect("+OK\r\n");
    SockRef::from(&client.0).set_recv_buffer_size(64 << 10).unwrap();
    client.send("GET k\r\n".repeat(BEHIND));
    let reply = format!("$1000000\r\n{value}\r\n");
    let mut got = vec![0; reply.len()];
    for _ in 0..9 * BEHIND {
        client.0.read_exact(&mut got).unwrap();
        assert!(got == reply.as_bytes());
        client.send("GET k\r\n");
    }
    assert!(server.client().text("info stats").contains("evicted_clients:0\r\n"));
}

#[test]
fn a_soft_limit_may_be_exceeded_for_a_while() {
    let server = Server::with(|config| {
        config.client_output_buffer_limit[0] =
            OutputLimit { soft_bytes: 1 << 20, soft_seconds: 1, hard_bytes: 0 };
    });
    let mut client = server.client();
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{}\r\n", "v".repeat(1_000_000)));
    client.expect("+OK\r\n");
    client.send(format!("MGET{}\r\n", " k".repeat(30)));
    let mut other = server.client();
    assert!(other.text("info stats").contains("client_output_buffer_limit_disconnections:0\r\n"));
    eventually("it is cut off", || {
        other.text("info stats").contains("client_output_buffer_limit_disconnections:1\r\n")
    });
}

#[test]
fn all_clients_together_are_limited() {
    let server = Server::with(|config| config.maxmemory_clients = ClientsMemory::Bytes(20 << 20));
    let mut client = server.client();
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{}\r\n", "v".repeat(1_000_000)));
    client.expect("+OK\r\n");
    // None of them alone is over a limit. The kernel takes some of what they do not read.
    let mut hungry: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for client in &mut hungry {
        client.send("GET k\r\n".repeat(15));
    }
    let mut other = server.client();
    eventually("some are cut off", || !other.text("info stats").contains("evicted_clients:0\r\n"));
    other.says("strlen k", ":1000000\r\n");
    assert!(other.text("client list").lines().count() > 2);
}

#[test]
fn the_largest_client_of_all_workers_is_cut_off() {
    let server = Server::with(|config| config.maxmemory_clients = ClientsMemory::Bytes(20 << 20));
    // Each sends a command in part, which is kept. The innocent ones belong to the worker that has not the hog.
    let part = |bytes: usize| format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${bytes}\r\n{}", "v".repeat(bytes - 1));
    let mut clients: Vec<Client> = (0..16).map(|_| server.client()).collect();
    let (mut hog, mut other) = (clients.remove(0), server.client());
    hog.send(part(12_000_000));
    let kept = |other: &mut Client, least: u64| {
        let info = other.text("info memory");
        let field = info.lines().find_map(|line| line.strip_prefix("mem_clients_normal:")).unwrap();
        field.parse::<u64>().unwrap() >= least
    };
    eventually("it is kept", || kept(&mut other, 12_000_000));
    let mut innocent: Vec<&mut Client> = clients.iter_mut().step_by(2).collect();
    for client in &mut innocent {
        client.send(part(900_000));
    }
    hog.expect_end();
    eventually("it is counted", || other.text("info stats").contains("evicted_clients:1\r\n"));
    for client in innocent {
        client.send("v\r\n");
        client.expect("+OK\r\n");
    }
}

#[test]
fn a_request_without_end_is_cut_off() {
    let server = Server::with(|config| config.client_query_buffer_limit = 1 << 20);
    let mut client = server.client();
    let _ = client.0.write_all(b"*2\r\n$3\r\nSET\r\n$100000000\r\n");
    while client.0.write_all(&[b'v'; 65_536]).is_ok() {}
    // Many small arguments count too, by the table that they need.
    let mut client = server.client();
    let _ = client.0.write_all(b"*1000000\r\n");
    while client.0.write_all(&b"$0\r\n\r\n".repeat(1000)).is_ok() {}
    assert!(server.client().text("info stats").contains("client_query_buffer_limit_disconnections:2\r\n"));
}

#[test]
fn commands_queued_for_exec_count_towards_the_limit() {
    let value = "v".repeat(1_000_000);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{value}\r\n");
    let server = Server::with(|config| {
        config.client_query_buffer_limit = 8 << 20;
        config.maxmemory_clients = ClientsMemory::Bytes(24 << 20);
    });
    // A single one is over the limit of requests.
    let mut one = server.client();
    one.says("multi", "+OK\r\n");
    for _ in 0..8 {
        one.send(&set);
        one.expect("+QUEUED\r\n");
    }
    let field = |list: &str, name: &str| {
        let field = list.split(' ').find_map(|field| field.strip_prefix(name)).unwrap();
        field.parse::<u64>().unwrap()
    };
    let queued = one.0.local_addr().unwrap();
    let mut other = server.client();
    let list = other.text("client list");
    let line = list.lines().find(|line| line.contains(&format!("addr={queued} "))).unwrap();
    assert!((8_000_000..8_010_000).contains(&field(line, "multi-mem=")), "{line}");
    assert!(field(line, "tot-mem=") > 8_000_000, "{line}");
    let _ = one.0.write_all(set.as_bytes());
    one.expect_end();
    assert!(other.text("info stats").contains("client_query_buffer_limit_disconnections:1\r\n"));
    // Several are over that of all clients.
    let mut several: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for client in &mut several {
        let _ = client.0.write_all(format!("MULTI\r\n{}", set.repeat(6)).as_bytes());
    }
    eventually("one is cut off", || !other.text("info stats").contains("evicted_clients:0\r\n"));
    // So do long names of watched keys.
    let mut watcher = server.client();
    watcher.send(format!("WATCH {}\r\n", "k".repeat(50_000)));
    watcher.expect("+OK\r\n");
    let info = watcher.text("client info");
    assert!(field(&info, "multi-mem=") > 50_000, "{info}");
}

#[test]
fn a_large_request_leaves_no_large_buffer() {
    let server = Server::start();
    let request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n{}\r\n", "v".repeat(2_000_000));
    let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for client in &mut clients {
        // With the beginning of the next one.
        client.send(format!("{request}*3\r\n$3"));
        client.expect("+OK\r\n");
    }
    let mut other = server.client();
    // A worker reports a client's state one turn late.
    eventually("all is given back", || {
        let list = other.text("client list");
        list.lines().filter(|line| line.contains(" qbuf=6 qbuf-free=16378 ")).count() == clients.len()
    });
    for client in &mut clients {
        client.send(&request[6..]);
        client.expect("+OK\r\n");
    }
}

#[test]
fn idle_clients_are_disconnected_after_the_timeout() {
    let server = Server::with(|config| config.timeout = 1);
    let mut idle = server.client();
    idle.says("ping", "+PONG\r\n");
    let start = Instant::now();
    idle.expect_end();
    assert!(start.elapsed() >= Duration::from_millis(900));
}

#[test]
fn a_client_that_reads_a_long_reply_is_not_idle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let text = path.to_str().unwrap().to_owned();
    let server = Server::with(move |config| {
        config.timeout = 1;
        config.unixsocket.clone_from(&text);
    });
    server.client().says(&format!("setrange k {} v", 4_000_000 - 1), ":4000000\r\n");
    // The kernel buffers some 200 KB for a Unix socket, and megabytes for TCP.
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    client.write_all(b"GET k\r\n").unwrap();
    let mut got = vec![0; 200_000];
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(75));
        client.read_exact(&mut got).unwrap();
    }
}

#[test]
fn ten_thousand_idle_connections_slow_no_client_down() {
    // Both ends are in this process.
    let wanted = 10_000;
    if duramen_server::net::open_files::raise(2 * wanted + 200) < 2 * wanted + 200 {
        eprintln!("skipped: the limit of open files allows no more");
        return;
    }
    let server = Server::with(|config| config.maxclients = 20_000);
    let idle: Vec<Client> = (0..wanted).map(|_| server.client()).collect();
    let mut client = server.client();
    eventually("all are connected", || {
        client.text("info clients").contains(&format!("connected_clients:{}\r\n", wanted + 1))
    });
    let start = Instant::now();
    for index in 0..1000 {
        client.says(&format!("set k {index}"), "+OK\r\n");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(client.text("client list").lines().count(), wanted as usize + 1);
    drop(idle);
    eventually("all are gone", || client.text("info clients").contains("connected_clients:1\r\n"));
}

#[test]
fn protected_mode_lets_only_this_machine_in() {
    // From 127.0.0.1 one is always local; the refusal itself needs another address, which the machine may
    // not have. What can be seen here: with protected mode on, local clients are served.
    let server = Server::with(|config| config.protected_mode = true);
    server.client().says("ping", "+PONG\r\n");
}

/// Sends a command of these words; the first line of its reply.
fn send_words<'a>(client: &mut Client, words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes()));
    client.send(bytes);
    client.line()
}

fn member(n: usize) -> String {
    format!("a-member-whose-tombstone-takes-some-room-{n:06}")
}

/// Adds some members from this one on, or removes them.
fn change(client: &mut Client, command: &str, key: &str, members: std::ops::Range<usize>) -> String {
    let words = members.flat_map(|n| match command {
        "ZADD" => vec![n.to_string(), member(n)],
        "HSET" => vec![member(n), String::new()],
        _ => vec![member(n)],
    });
    let words: Vec<String> = [command.to_owned(), key.to_owned()].into_iter().chain(words).collect();
    send_words(client, words.iter().map(String::as_str))
}

/// Adds members to `zset`, from this one on, until there is no more room; returns the number after the last.
fn fill(client: &mut Client, mut from: usize) -> usize {
    let mut refused = 0;
    while refused < 3 {
        let reply = change(client, "ZADD", "zset", from..from + 10);
        if reply.starts_with(':') {
            from += 10;
        } else {
            assert!(reply.starts_with("-OOM"), "{reply}");
            refused += 1;
        }
    }
    from
}

#[test]
fn a_full_store_does_a_removal_of_many_elements_in_parts() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let server = Server::with(|config| {
        (config.maxmemory, config.durability) = (4 << 20, Durability::EveryWrite);
        config.path = directory.path().join("full.store");
    });
    let client = &mut server.client();
    for from in (0..3000).step_by(100) {
        assert_eq!(change(client, "HSET", "hash", from..from + 100), ":100");
        assert_eq!(change(client, "SADD", "set", from..from + 100), ":100");
    }
    for _ in 0..200 {
        send_words(client, ["RPUSH", "list"].into_iter().chain(["same"; 50]));
    }
    let members = fill(client, 0);
    assert!(members > 5000, "{members}");
    // The tombstones of all these are longer than the reserve for deletes.
    let half = members / 2;
    client.says(&format!("ZREMRANGEBYSCORE zset 100 {}", 100 + half - 1), &format!(":{half}\r\n"));
    client.says("ZCARD zset", &format!(":{}\r\n", members - half));
    let mut left = members - half + fill(client, members) - members;
    client.says("ZREMRANGEBYRANK zset -2000 -11", ":1990\r\n");
    left = left - 1990 + fill(client, 2 * members) - 2 * members;
    client.says("ZREMRANGEBYRANK zset 50 2049", ":2000\r\n");
    client.says("ZCARD zset", &format!(":{}\r\n", left - 2000));
    left = left - 2000 + fill(client, 3 * members) - 3 * members;
    assert_eq!(change(client, "HDEL", "hash", 0..2995), ":2995");
    client.says("HLEN hash", ":5\r\n");
    left = left + fill(client, 4 * members) - 4 * members;
    assert_eq!(change(client, "SREM", "set", 0..2995), ":2995");
    client.says("SCARD set", ":5\r\n");
    left = left + fill(client, 5 * members) - 5 * members;
    client.says("LREM list -9990 same", ":9990\r\n");
    client.says("LLEN list", ":10\r\n");
    // In a transaction it is all or nothing.
    left = left + fill(client, 6 * members) - 6 * members;
    let first = format!("ZREMRANGEBYRANK zset 10 {}", left - 100);
    client.says("MULTI", "+OK\r\n");
    assert!(send_words(client, first.split(' ')).starts_with("-OOM"));
    client.says("DISCARD", "+OK\r\n");
    client.says("ZCARD zset", &format!(":{left}\r\n"));
    // A pop takes fewer.
    client.send(format!("ZPOPMIN zset {}\r\n", left - 100));
    let popped: usize = client.line()[1..].parse::<usize>().unwrap() / 2;
    (0..4 * popped).for_each(|_| drop(client.line()));
    assert!(popped > 0 && popped < left - 100, "{popped} of {left}");
    client.says("ZCARD zset", &format!(":{}\r\n", left - popped));
    server.stop().unwrap();
}
