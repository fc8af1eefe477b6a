//! Commands that other clients, a full store or another option of theirs get in the way of.

use crate::support::{Client, Server};
use duramen::MediumKind;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn field(client: &mut Client, section: &str, name: &str) -> u64 {
    let info = client.text(&format!("info {section}"));
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap().parse().unwrap()
}

#[test]
fn a_long_command_ends_though_another_client_changes_one_of_its_keys_all_the_time() {
    let server = Server::start();
    // Of two workers, one each.
    let (mut hot, mut long) = (server.client(), server.client());
    long.says("set hot 0", "+OK\r\n");
    let keys: Vec<String> = (0..20_000).map(|key| format!("k{key}")).collect();
    for keys in keys.chunks(1000) {
        long.says(
            &format!("mset {}", keys.iter().map(|key| format!("{key} v ")).collect::<String>()),
            "+OK\r\n",
        );
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                hot.send(b"incr hot\r\n".repeat(200));
                (0..200).for_each(|_| assert!(hot.line().starts_with(':')));
            }
        });
        let begin = Instant::now();
        for _ in 0..3 {
            long.send(format!("mget hot {}\r\n", keys.join(" ")));
            assert_eq!(long.line(), "*20001");
            let mut replies = vec![0; 20_000 * "$1\r\nv\r\n".len()];
            assert!(["$", ":"].iter().any(|kind| long.line().starts_with(kind)));
            long.line();
            long.0.read_exact(&mut replies).unwrap();
        }
        long.says("flushdb", "+OK\r\n");
        let took = begin.elapsed();
        over.store(true, Ordering::Relaxed);
        assert!(took < Duration::from_secs(10), "{took:?}");
    });
}

#[test]
fn a_full_store_is_emptied() {
    let server = Server::with(|config| config.maxmemory = 8 << 20);
    let mut client = server.client();
    let value = "v".repeat(1000);
    let mut keys = 0;
    loop {
        client.send(format!("set k{keys} {value}\r\n"));
        match client.line().as_str() {
            "+OK" => keys += 1,
            refused => break assert!(refused.starts_with("-OOM"), "{refused}"),
        }
    }
    assert!(keys > 1000);
    // All at once would need more than is kept back for deletes.
    let mut there = keys / 2;
    for command in ["del", "unlink"] {
        let half: String = (0..keys / 2).map(|key| format!(" k{key}")).collect();
        client.says(&format!("{command} {half} k0 absent"), &format!(":{there}\r\n"));
        let set_again = |key: &i32| {
            client.send(format!("set k{key} {value}\r\n"));
            client.line() == "+OK"
        };
        there = (0..keys / 2).take_while(set_again).count() as i32;
        assert!(there > keys / 2 * 95 / 100, "{there} of {keys}");
    }
    client.says("flushall", "+OK\r\n");
    client.says("dbsize", ":0\r\n");
    client.says("set k v", "+OK\r\n");
}

#[test]
fn a_full_store_refuses_each_command_of_a_pipeline_and_transactions_until_there_is_room() {
    const FULL: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
    let server = Server::with(|config| config.maxmemory = 8 << 20);
    let mut client = server.client();
    let element = "e".repeat(20);
    (0..20).for_each(|count| client.says(&format!("rpush l {element}"), &format!(":{}\r\n", count + 1)));
    let refused = |client: &mut Client, line: &str| {
        client.send(format!("{line}\r\n"));
        let reply = client.line();
        assert!(reply == FULL || !reply.starts_with('-'), "{reply}");
        reply == FULL
    };
    let value = "v".repeat(1000);
    (0..).find(|key| refused(&mut client, &format!("set k{key} {value}")));
    let push = format!("lpush l {element}");
    while !refused(&mut client, &push) {}
    // What is popped may be room for what is pushed next.
    client.send(format!("{push}\r\nrpop l\r\n").repeat(8));
    assert_eq!(client.line(), FULL);
    // A pop of a large list may find no room either.
    let pop = |client: &mut Client| match client.line().as_str() {
        "$20" => assert_eq!(client.line(), element),
        refused => assert_eq!(refused, FULL),
    };
    pop(&mut client);
    for _ in 0..7 {
        client.line();
        pop(&mut client);
    }
    while !refused(&mut client, &push) {}
    client.says("multi", "+OK\r\n");
    client.says(&push, &format!("{FULL}\r\n"));
    client.says("get k1", &format!("{FULL}\r\n"));
    client.says("exec", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    let keys: String = (0..1000).map(|key| format!(" k{key}")).collect();
    client.says(&format!("del{keys}"), ":1000\r\n");
    client.says("multi", "+OK\r\n");
    client.says(&format!("set k1 {value}"), "+QUEUED\r\n");
    client.says("exec", "*1\r\n+OK\r\n");
}

#[test]
fn a_change_of_settings_that_fails_leaves_the_durability_as_it_was() {
    const WRITES: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let server = Server::with(|config| {
        config.medium = MediumKind::File;
        config.path.clone_from(&path);
    });
    let mut client = server.client();
    client.send("config set appendfsync no maxclients 4000000000\r\n");
    let refused = client.line();
    assert!(refused.contains("'maxclients'"), "{refused}");
    let before = field(&mut client, "duramen", "duramen_epoch");
    (0..WRITES).for_each(|_| client.says("set k v", "+OK\r\n"));
    // Each was committed before its reply left.
    assert!(field(&mut client, "duramen", "duramen_epoch") >= before + WRITES);
}

#[test]
fn a_restored_key_whose_time_to_live_is_beyond_counting_has_expired() {
    let server = Server::start();
    let mut client = server.client();
    client.says("set k v", "+OK\r\n");
    client.send("dump k\r\n");
    let bytes = client.line()[1..].parse::<usize>().unwrap();
    let mut payload = vec![0; bytes + 2];
    client.0.read_exact(&mut payload).unwrap();
    let mut restore =
        format!("*4\r\n$7\r\nrestore\r\n$1\r\nr\r\n$19\r\n{}\r\n${bytes}\r\n", i64::MAX).into_bytes();
    restore.extend_from_slice(&payload);
    client.send(restore);
    client.expect("+OK\r\n");
    client.says("pexpiretime r", ":-2\r\n");
}
