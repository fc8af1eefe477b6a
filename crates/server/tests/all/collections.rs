//! Hashes and sets over sockets: what side-by-side cannot compare, since it depends on chance or on several clients.

use crate::support::{Client, Server};
use duramen_server::config::OutputLimit;
use std::collections::BTreeSet;

/// Reads an array of bulk strings.
fn list(client: &mut Client) -> Vec<String> {
    let head = client.line();
    assert!(head.starts_with(['*', '~']), "{head}");
    let count: usize = head[1..].parse().unwrap();
    (0..count)
        .map(|_| {
            assert!(client.line().starts_with('$'));
            client.line()
        })
        .collect()
}

fn asked(client: &mut Client, line: &str) -> Vec<String> {
    client.send(format!("{line}\r\n"));
    list(client)
}

#[test]
fn each_reply_has_its_bytes_in_both_protocols() {
    let server = Server::start();
    let mut client = server.client();
    client.says("zadd z 1.5 a -inf b", ":2\r\n");
    client.says("zrange z 0 -1 withscores", "*4\r\n$1\r\nb\r\n$4\r\n-inf\r\n$1\r\na\r\n$3\r\n1.5\r\n");
    client.says("hset h a 1 b 22", ":2\r\n");
    client.says("hgetall h", "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$2\r\n22\r\n");
    client.says("hrandfield h 2 withvalues", "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$2\r\n22\r\n");
    client.says("hscan h 0", "*2\r\n$1\r\n0\r\n*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$2\r\n22\r\n");
    client.says("hmget h a x", "*2\r\n$1\r\n1\r\n$-1\r\n");
    client.says("sadd s 2 10 1", ":3\r\n");
    client.says("smembers s", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$2\r\n10\r\n");
    client.says("type h\r\ntype s", "+hash\r\n+set\r\n");
    client.says("sadd h m", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
    client.hello_3();
    client.says("zrange z 0 -1 withscores", "*2\r\n*2\r\n$1\r\nb\r\n,-inf\r\n*2\r\n$1\r\na\r\n,1.5\r\n");
    client.says("zpopmax z", "*2\r\n$1\r\na\r\n,1.5\r\n");
    client.says("hgetall h", "%2\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$2\r\n22\r\n");
    client.says(
        "hrandfield h 1000 withvalues",
        "*2\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$1\r\nb\r\n$2\r\n22\r\n",
    );
    client.says("hmget h a x", "*2\r\n$1\r\n1\r\n_\r\n");
    client.says("smembers s", "~3\r\n$1\r\n1\r\n$1\r\n2\r\n$2\r\n10\r\n");
    client.says("srandmember s 3", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$2\r\n10\r\n");
    client.says("spop s 3", "~3\r\n$1\r\n1\r\n$1\r\n2\r\n$2\r\n10\r\n");
    client.says("spop s\r\nexists s", "_\r\n:0\r\n");
}

#[test]
fn clients_that_change_one_hash_at_the_same_time_lose_nothing() {
    let server = Server::start();
    const CLIENTS: usize = 4;
    const EACH: usize = 500;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let mut connection = server.client();
                for at in 0..EACH {
                    connection.send(format!("hincrby h sum 1\r\nsadd s {client}.{at}\r\nsadd all {at}\r\n"));
                    (0..3).for_each(|_| assert!(connection.line().starts_with(':')));
                }
            });
        }
    });
    let mut client = server.client();
    client.says("hget h sum", "$4\r\n2000\r\n");
    client.says("scard s\r\nscard all\r\ndbsize", &format!(":{}\r\n:{EACH}\r\n:3\r\n", CLIENTS * EACH));
}

#[test]
fn a_large_hash_is_scanned_in_parts_while_it_changes() {
    let server = Server::start();
    let mut client = server.client();
    let names: BTreeSet<String> = (0..3000).map(|at| format!("f{at}")).collect();
    let pairs: String = names.iter().map(|name| format!(" {name} v")).collect();
    client.says(&format!("hset h{pairs}"), ":3000\r\n");
    let (mut told, mut cursor, mut calls) = (Vec::new(), "0".to_owned(), 0);
    loop {
        client.send(format!("hscan h {cursor} count 100\r\n"));
        assert_eq!(client.line(), "*2");
        client.line();
        cursor = client.line();
        let part = list(&mut client);
        // What was asked for, and at most the rest of a page.
        assert!(cursor == "0" || (100..=164).contains(&(part.len() / 2)), "{}", part.len() / 2);
        told.extend(part.chunks(2).map(|pair| pair[0].clone()));
        calls += 1;
        if cursor == "0" {
            break;
        }
        client.says(&format!("hset h new{calls} v"), ":1\r\n");
        client.says(&format!("hdel h new{} f", calls - 1), if calls > 1 { ":1\r\n" } else { ":0\r\n" });
    }
    told.retain(|name| name.starts_with('f'));
    told.sort();
    // Some may come twice.
    told.dedup();
    assert!(told.iter().eq(&names));
    assert!((3000 / 164..=32).contains(&calls), "{calls}");
}

#[test]
fn a_large_sorted_set_is_scanned_in_parts() {
    let server = Server::start();
    let mut client = server.client();
    let members: BTreeSet<String> = (0..1000).map(|at| format!("m{at}")).collect();
    let pairs: String = members.iter().map(|member| format!(" {} {member}", &member[1..])).collect();
    client.says(&format!("zadd z{pairs}"), ":1000\r\n");
    let (mut told, mut cursor, mut calls) = (BTreeSet::new(), "0".to_owned(), 0);
    loop {
        client.send(format!("zscan z {cursor} count 100\r\n"));
        assert_eq!(client.line(), "*2");
        client.line();
        cursor = client.line();
        let part = list(&mut client);
        for pair in part.chunks(2) {
            assert_eq!(pair[0][1..], pair[1]);
            told.insert(pair[0].clone());
        }
        calls += 1;
        assert!(cursor == "0" || (200..=328).contains(&part.len()), "call {calls} tells {}", part.len());
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(told, members);
}

#[test]
fn random_pops_and_draws_return_existing_members() {
    let server = Server::start();
    let mut client = server.client();
    let all: BTreeSet<String> = (0..100).map(|at| format!("m{at}")).collect();
    let members: Vec<&str> = all.iter().map(String::as_str).collect();
    client.says(&format!("sadd s {}", members.join(" ")), ":100\r\n");
    let drawn = asked(&mut client, "srandmember s -1000");
    assert!(drawn.len() == 1000 && drawn.iter().all(|member| all.contains(member)));
    let distinct = drawn.iter().collect::<BTreeSet<_>>().len();
    assert!(distinct > 80, "{distinct}");
    let sample = asked(&mut client, "srandmember s 60");
    assert_eq!(sample.iter().filter(|member| all.contains(*member)).collect::<BTreeSet<_>>().len(), 60);
    let mut popped: BTreeSet<String> = asked(&mut client, "spop s 40").into_iter().collect();
    assert_eq!(popped.len(), 40);
    client.says("scard s", ":60\r\n");
    for _ in 0..60 {
        assert!(popped.insert(client.text("spop s")));
    }
    assert_eq!(popped, all);
    client.says("spop s\r\nexists s", "$-1\r\n:0\r\n");
}

#[test]
fn a_count_beyond_all_bounds_takes_no_more_than_the_limit() {
    const LIMIT: u64 = 4 << 20;
    let server = Server::with(|config| {
        config.client_output_buffer_limit[0] = OutputLimit { hard_bytes: LIMIT, ..OutputLimit::default() };
    });
    let mut client = server.client();
    client.says("sadd s a b c\r\nhset h f v g w\r\nzadd z 1 m 2 n", ":3\r\n:2\r\n:2\r\n");
    for command in [
        "srandmember s -9223372036854775807",
        "hrandfield h -9223372036854775807",
        "hrandfield h -4611686018427387903 withvalues",
        "zrandmember z -9223372036854775807",
    ] {
        let mut greedy = server.client();
        greedy.send(format!("{command}\r\n"));
        greedy.expect_end();
    }
    let info = client.text("info clients");
    let most = info.lines().find_map(|line| line.strip_prefix("client_recent_max_output_buffer:")).unwrap();
    assert!(most.parse::<u64>().unwrap() <= LIMIT + 1000, "{most}");
    client.says("srandmember s 9223372036854775807", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
    client.says("scard s\r\nspop s 9223372036854775807", ":3\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
}

#[test]
fn large_values_in_transactions_under_watch_and_scanned_while_they_change() {
    let server = Server::with(|config| config.small_collection_bytes_max = 256);
    let (mut client, mut other) = (server.client(), server.client());
    for at in 0..500 {
        client
            .says(&format!("hset a f{at} v{at}\r\nhset b f{at} v{at}\r\nsadd s m{at}"), ":1\r\n:1\r\n:1\r\n");
    }
    // What another client changed of an element counts as a change of the key.
    client.says("watch a\r\nmulti", "+OK\r\n+OK\r\n");
    other.says("hset a f1 other", ":0\r\n");
    client.says("hset a f2 mine\r\nhset b f2 mine\r\nexec", "+QUEUED\r\n+QUEUED\r\n*-1\r\n");
    client.says("hget a f2\r\nhget b f2", "$2\r\nv2\r\n$2\r\nv2\r\n");
    client.says("watch a b\r\nmulti", "+OK\r\n+OK\r\n");
    other.says("hget a f1\r\nhdel a nothing", "$5\r\nother\r\n:0\r\n");
    client.says(
        "hset a f2 mine x 1\r\nhdel b f2 f3\r\nset plain 1\r\nhlen b\r\nlpush a v\r\nexec",
        "+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*5\r\n:1\r\n:2\r\n+OK\r\n:498\r\n\
         -WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    );
    other.says("hget a f2\r\nhexists b f2\r\nget plain\r\nhlen a", "$4\r\nmine\r\n:0\r\n$1\r\n1\r\n:501\r\n");

    // Every member that stays is returned, whatever is added and removed.
    let (mut told, mut cursor, mut round) = (BTreeSet::new(), "0".to_owned(), 0);
    loop {
        client.send(format!("sscan s {cursor} count 20\r\n"));
        assert_eq!(client.line(), "*2");
        client.line();
        cursor = client.line();
        let part = list(&mut client);
        assert!(part.len() < 200, "{} at once", part.len());
        told.extend(part);
        if cursor == "0" {
            break;
        }
        for at in 0..10 {
            other.says(&format!("sadd s new{round}.{at}\r\nsrem s m{}", 400 + round % 100), {
                if at == 0 && round < 100 { ":1\r\n:1\r\n" } else { ":1\r\n:0\r\n" }
            });
        }
        round += 1;
    }
    assert!((0..400).all(|at| told.contains(&format!("m{at}"))), "{} told", told.len());

    client.send("memory usage a\r\nmemory usage a samples 0\r\n");
    for _ in 0..2 {
        let bytes: usize = client.line()[1..].parse().unwrap();
        assert!((501 * 20..501 * 200).contains(&bytes), "{bytes}");
    }
    client.says(
        "object encoding a\r\nrename a c\r\ncopy c d\r\ndel c",
        "$8\r\nlistpack\r\n+OK\r\n:1\r\n:1\r\n",
    );
    client.says("hlen d\r\nhget d f2\r\nexists a c", ":501\r\n$4\r\nmine\r\n:0\r\n");
}
