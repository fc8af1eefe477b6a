//! Streams over sockets: exact bytes, and several clients at once.

use crate::support::{Client, Server};
use std::collections::BTreeSet;

#[test]
fn each_reply_of_a_stream_has_its_bytes_in_both_protocols() {
    let server = Server::start();
    let mut client = server.client();
    client.says("xadd s 1-1 f v\r\nxadd s 2-0 g w", "$3\r\n1-1\r\n$3\r\n2-0\r\n");
    let second = "*2\r\n$3\r\n2-0\r\n*2\r\n$1\r\ng\r\n$1\r\nw\r\n";
    let both = format!("*2\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n{second}");
    client.says("xrange s - +", &both);
    client.says("type s\r\nobject encoding s\r\nxlen s", "+stream\r\n$6\r\nstream\r\n:2\r\n");
    client.says("xread streams s 1-1", &format!("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n{second}"));
    client.says("xread streams s $", "*-1\r\n");
    client.says(
        "xadd s nomkstream maxlen 1 1-9 f v",
        "-ERR The ID specified in XADD is equal or smaller than the target stream top item\r\n",
    );
    client.says("lpush s x", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
    client.says(
        "xgroup create s g 1-1\r\nxreadgroup group g one streams s >",
        &format!("+OK\r\n*1\r\n*2\r\n$1\r\ns\r\n*1\r\n{second}"),
    );
    client.says("xpending s g", "*4\r\n:1\r\n$3\r\n2-0\r\n$3\r\n2-0\r\n*1\r\n*2\r\n$3\r\none\r\n$1\r\n1\r\n");
    client.hello_3();
    client.says("xread streams s 1-1", &format!("%1\r\n$1\r\ns\r\n*1\r\n{second}"));
    client.says("xread streams s $\r\nxadd absent nomkstream * f v", "_\r\n_\r\n");
    client.says("xreadgroup group g one streams s 0", &format!("%1\r\n$1\r\ns\r\n*1\r\n{second}"));
    client.says("xack s g 2-0\r\nxpending s g", ":1\r\n*4\r\n:0\r\n_\r\n_\r\n_\r\n");
    client.says("xautoclaim s g two 0 0", "*3\r\n$3\r\n0-0\r\n*0\r\n*0\r\n");
}

fn id(client: &mut Client) -> (u64, u64) {
    assert!(client.line().starts_with('$'));
    let line = client.line();
    let (ms, seq) = line.split_once('-').unwrap();
    (ms.parse().unwrap(), seq.parse().unwrap())
}

#[test]
fn entries_of_several_clients_have_ids_of_their_own_that_ascend() {
    let server = Server::start();
    const CLIENTS: usize = 4;
    const EACH: usize = 300;
    let all: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    let ids: Vec<_> = (0..EACH)
                        .map(|at| {
                            client.send(format!("xadd s * client {number} at {at}\r\n"));
                            id(&mut client)
                        })
                        .collect();
                    assert!(ids.is_sorted());
                    ids
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), CLIENTS * EACH);
    let mut client = server.client();
    client.says("xlen s", &format!(":{}\r\n", CLIENTS * EACH));
}

#[test]
fn each_entry_is_delivered_to_one_consumer_of_a_group() {
    let server = Server::start();
    const CLIENTS: usize = 4;
    const ENTRIES: usize = 600;
    let mut writer = server.client();
    writer.says("xgroup create s g 0 mkstream", "+OK\r\n");
    let all: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let (mut client, mut read) = (server.client(), Vec::new());
                    loop {
                        client.send(format!("xreadgroup group g c{number} count 3 streams s >\r\n"));
                        if client.line() == "*-1" {
                            std::thread::yield_now();
                            continue;
                        }
                        // The stream, its name, and the entries.
                        for wanted in ["*2", "$1", "s"] {
                            assert_eq!(client.line(), wanted);
                        }
                        let count: usize = client.line()[1..].parse().unwrap();
                        let mut is_last = false;
                        for _ in 0..count {
                            assert_eq!(client.line(), "*2");
                            let entry = id(&mut client);
                            for wanted in ["*2", "$1", "n"] {
                                assert_eq!(client.line(), wanted);
                            }
                            client.line();
                            is_last |= client.line() == "last";
                            client.send(format!("xack s g {}-{}\r\n", entry.0, entry.1));
                            read.push(entry);
                        }
                        for _ in 0..count {
                            assert_eq!(client.line(), ":1");
                        }
                        if is_last {
                            return read;
                        }
                    }
                })
            })
            .collect();
        for at in 0..ENTRIES {
            writer.send(format!("xadd s * n {at}\r\n"));
            id(&mut writer);
        }
        for _ in 0..CLIENTS {
            // One for each reader, which then ends: it reads one entry at a time from then on.
            writer.send("xadd s * n last\r\n");
            id(&mut writer);
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    assert_eq!(all.len(), ENTRIES + CLIENTS);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), ENTRIES + CLIENTS);
    writer.says("xpending s g", "*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n");
}

#[test]
fn a_trim_that_finds_only_deleted_entries_changes_nothing_and_fails_nothing() {
    let server = Server::start();
    let mut client = server.client();
    // Large, so that its nodes are elements; the only node is left with entries that are deleted.
    let value = "v".repeat(1030);
    client.says(&format!("xadd x 8-0 a {value}\r\nxadd x 10-0 a b"), "$3\r\n8-0\r\n$4\r\n10-0\r\n");
    client.says("xdel x 10-0\r\nxtrim x minid 10-0", ":1\r\n:1\r\n");
    client.says("xtrim x minid 12-0\r\nxtrim x minid ~ 12-0\r\nxtrim x maxlen 0", ":0\r\n:0\r\n:0\r\n");
    client.says(
        "multi\r\nset other written\r\nxtrim x minid 12-0\r\nincr n\r\nexec",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n:0\r\n:1\r\n",
    );
    client.says("get other\r\nxlen x", "$7\r\nwritten\r\n:0\r\n");
    // With the next entry that goes, they go too.
    client.says("xadd x 13-0 a b\r\nxtrim x minid 14-0\r\nxlen x", "$4\r\n13-0\r\n:1\r\n:0\r\n");
    client.says(
        "xadd x 15-0 a b\r\nxrange x - +",
        "$4\r\n15-0\r\n*1\r\n*2\r\n$4\r\n15-0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n",
    );
}

#[test]
fn a_group_with_many_pending_entries_is_destroyed_at_once_and_cleared_in_the_background() {
    elements_go_behind(&[
        ("xgroup destroy s g\r\nxgroup destroy s g", ":1\r\n:0\r\n"),
        ("xgroup create s g 0\r\nxpending s g", "+OK\r\n*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n"),
    ]);
}

#[test]
fn a_consumer_with_many_pending_entries_is_removed_at_once_and_cleared_in_the_background() {
    elements_go_behind(&[
        ("xgroup delconsumer s g c\r\nxgroup delconsumer s g c", ":3000\r\n:0\r\n"),
        ("xpending s g\r\nxack s g 5-1", "*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n:0\r\n"),
    ]);
}

/// Makes 3,000 entries pending, says what removes them and what shows that, and waits until they take no memory.
fn elements_go_behind(said: &[(&str, &str)]) {
    let server = Server::start();
    let mut client = server.client();
    let add: String = (1..=3_000).map(|at| format!("xadd s {at}-1 f v\r\n")).collect();
    client.send(add);
    (0..6_000).for_each(|_| drop(client.line()));
    client.says("xgroup create s g 0", "+OK\r\n");
    let usage = |client: &mut Client| {
        client.send("memory usage s samples 0\r\n");
        client.line()[1..].trim_end().parse::<u64>().unwrap()
    };
    let before = usage(&mut client);
    let claim: String = (1..=3_000).map(|at| format!("xclaim s g c 0 {at}-1 force justid\r\n")).collect();
    client.send(claim);
    (0..9_000).for_each(|_| drop(client.line()));
    assert!(usage(&mut client) > before);
    said.iter().for_each(|(said, reply)| client.says(said, reply));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while usage(&mut client) > before {
        assert!(std::time::Instant::now() < deadline, "{} > {before}", usage(&mut client));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
