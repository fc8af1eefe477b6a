//! Consecutive commands with the same key, or equal commands with any keys, may run as one batch: no client notices.

use crate::support::{Client, Server, eventually};
use std::collections::BTreeSet;

fn encoded(words: &[String]) -> String {
    let arguments: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{arguments}", words.len())
}

/// A reply of one line, a bulk, or an array of those.
fn reply(client: &mut Client) -> String {
    let line = client.line();
    let items = match line.split_at_checked(1) {
        Some(("$", len)) if len != "-1" => return format!("{line} {}", client.line()),
        Some(("*", count)) if count != "-1" => count.parse().unwrap(),
        _ => 0,
    };
    (0..items).fold(line, |all, _| all + " " + &reply(client))
}

/// Rows of commands; most change something, and some fail.
fn rows() -> Vec<Vec<Vec<String>>> {
    let row = |count: usize, one: &dyn Fn(usize) -> String| -> Vec<Vec<String>> {
        (0..count).map(|at| one(at).split(' ').map(str::to_owned).collect()).collect()
    };
    let mut rows = Vec::new();
    for round in 0..3 {
        let long = "x".repeat(round * 70);
        rows.extend([
            row(90, &|at| format!("rpush l {long}{}", at % 7)),
            row(30, &|at| format!("LPUSH l {at}{long}")),
            row(25, &|_| "lpop l".to_owned()),
            row(40, &|_| "rpop l".to_owned()),
            row(40, &|at| format!("sadd s {long}{}", at % 23 + round * 10)),
            row(600, &|at| format!("sadd s {at}")),
            row(60, &|at| format!("hset h f{} {long}{at}", at % 40)),
            row(60, &|at| format!("zadd z {} {long}m{}", at % 9, at % 33)),
            row(6, &|at| format!("zadd z {} n{at}", ["1", "x", "nan", "-0", "0", "inf"][at])),
            row(50, &|at| format!("pfadd p {round}.{}", at % 30)),
            row(70, &|at| format!("hget h f{at}")),
            row(70, &|at| format!("zscore z {long}m{at}")),
            row(40, &|at| format!("zrank z {long}m{at}")),
            row(40, &|at| format!("zrevrank z {long}m{at}")),
            row(70, &|at| format!("sismember s {at}")),
            row(5, &|at| format!("hget l {at}")),
            // Of another type, and ids that do not ascend.
            row(5, &|at| format!("lpush h {at}")),
            row(5, &|at| format!("hset l {at} v")),
            row(80, &|at| format!("setbit b {} {}", at * at * 5 % 300 * (round * 60 + 1), at % 3 % 2)),
            row(9, &|at| format!("setbit b {} 1", ["7", "x", "3", "-1", "90", "4", "70000", "8", "7"][at])),
            row(3, &|at| format!("setbit h {at} 1")),
            row(20, &|at| format!("xadd x {}-1 f {long}{at}", round * 100 + at % 15)),
            // Each with its own key, some of them twice in a row, of other types, long, or missing.
            row(100, &|at| format!("set k{} {long}{at}", at * 7 % 40)),
            row(100, &|at| format!("get k{}", at * 3 % 50)),
            row(12, &|at| {
                format!("get {}", ["k1", "l", "k2", "h", "z", "k3", "k4", "s", "x", "no", "k5", "k6"][at])
            }),
            row(6, &|at| format!("append big{at} {}", "y".repeat(6000))),
            row(30, &|at| format!("get {}{}", ["k", "big"][at / 5 % 2], at % 8)),
            row(30, &|at| format!("set {}{at} {long}", ["k", &"k".repeat(70_000)][usize::from(at % 9 == 5)])),
            row(40, &|at| format!("set k{at} {at}{}", [" ex 1000", " nx", " get", "", "", ""][at % 6])),
            row(5, &|at| format!("set {} {at}", ["k1", "l", "h", "k2", "big1"][at])),
            row(2, &|at| format!("del {}", ["l", "h"][at])),
        ]);
    }
    // Registers become dense.
    rows.push(row(3000, &|at| format!("pfadd q {}", at * 7 % 2500)));
    rows.push(row(40, &|at| format!("pfadd q {}", at * 100)));
    rows.extend(["lpop l", "zpopmin l"].map(|one| row(3, &|_| one.to_owned())));
    rows.extend(["lpop l", "zpopmin z", "zpopmax z"].map(|one| row(60, &|_| one.to_owned())));
    rows
}

#[test]
fn a_batch_of_commands_is_answered_as_single_commands_are() {
    for packed in [64, 4096] {
        let [rowing, single] =
            [(); 2].map(|()| Server::with(move |config| config.small_collection_bytes_max = packed));
        let (mut client, mut other) = (rowing.client(), single.client());
        for row in rows() {
            client.send(row.iter().map(|words| encoded(words)).collect::<String>());
            for words in row {
                other.send(encoded(&words));
                assert_eq!(reply(&mut client), reply(&mut other), "{words:?}");
            }
        }
        for (command, name) in [
            ("lrange l 0 -1", "l"),
            ("zrange z 0 -1 withscores", "z"),
            ("xrange x - +", "x"),
            ("pfcount p q", "p q"),
            ("bitcount b", "b"),
        ] {
            client.send(format!("{command}\r\n"));
            other.send(format!("{command}\r\n"));
            let count = client.line();
            assert_eq!(count, other.line(), "{name}");
        }
    }
}

#[test]
fn a_batch_of_spops_returns_each_member_once() {
    for packed in [64, 4096] {
        let server = Server::with(move |config| config.small_collection_bytes_max = packed);
        let mut client = server.client();
        for name in ["", "member"] {
            let add: Vec<String> = (0..100).map(|at| format!("{name}{at}")).collect();
            client.says(&format!("sadd s {}", add.join(" ")), ":100\r\n");
            client.send(encoded(&["spop".to_owned(), "s".to_owned()]).repeat(130));
            let replies: Vec<String> = (0..130).map(|_| reply(&mut client)).collect();
            let popped: BTreeSet<&String> = replies[..100].iter().collect();
            assert_eq!(popped.len(), 100);
            assert!(popped.iter().all(|one| add.iter().any(|name| one.ends_with(&format!(" {name}")))));
            assert!(replies[100..].iter().all(|one| one == "$-1"));
            client.says("exists s", ":0\r\n");
        }
    }
}

#[test]
fn ids_of_a_batch_of_entries_ascend() {
    for packed in [64, 4096] {
        let server = Server::with(move |config| config.small_collection_bytes_max = packed);
        let mut client = server.client();
        let mut last = (0, 0);
        for _ in 0..4 {
            let one = encoded(&["xadd", "x", "*", "field", &"v".repeat(100)].map(str::to_owned));
            client.send(one.repeat(50));
            for _ in 0..50 {
                let id = reply(&mut client);
                let id = id.split_once(' ').unwrap().1.split_once('-').unwrap();
                let id: (u64, u64) = (id.0.parse().unwrap(), id.1.parse().unwrap());
                assert!(id > last, "{id:?} behind {last:?}");
                last = id;
            }
        }
        client.says("xlen x", ":200\r\n");
        client.send("xrange x - +\r\n");
        assert_eq!(client.line(), "*200");
    }
}

#[test]
fn a_waiting_client_is_served_by_the_first_command_of_a_batch() {
    let server = Server::start();
    let (mut client, mut waiter) = (server.client(), server.client());
    let push = |at: usize| encoded(&["rpush".to_owned(), "q".to_owned(), at.to_string()]);
    for _ in 0..5 {
        waiter.send("blpop q 0\r\n");
        eventually("it waits", || client.text("info clients").contains("blocked_clients:1\r\n"));
        client.send((0..20).map(push).collect::<String>());
        waiter.expect("*2\r\n$1\r\nq\r\n$1\r\n0\r\n");
        client.expect(format!(":1\r\n{}", (1..20).map(|len| format!(":{len}\r\n")).collect::<String>()));
        client.says("del q", ":1\r\n");
    }
    client.says("config resetstat\r\nset q string", "+OK\r\n+OK\r\n");
    client.send((0..30).map(push).collect::<String>());
    client.expect("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n".repeat(30));
    let stats = client.text("info commandstats");
    let line = stats.lines().find(|line| line.starts_with("cmdstat_rpush:")).unwrap();
    assert!(line.contains("calls=30,") && line.contains("failed_calls=30"), "{line}");
}

#[test]
fn a_batch_ends_early_when_its_replies_are_long() {
    let server = Server::start();
    let mut client = server.client();
    let long = "v".repeat(300_000);
    for at in 0..12 {
        client.send(encoded(&["hset".to_owned(), "h".to_owned(), format!("f{at}"), long.clone()]));
        client.expect(":1\r\n");
        client.send(encoded(&["rpush".to_owned(), "l".to_owned(), long.clone()]));
        client.line();
    }
    for words in [["hget", "h", "f3"].as_slice(), &["lpop", "l"]] {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        client.send(encoded(&words).repeat(12));
        (0..12).for_each(|_| client.expect(format!("$300000\r\n{long}\r\n")));
    }
    client.says("exists l\r\nhlen h", ":0\r\n:12\r\n");
    let stats = client.text("info commandstats");
    for name in ["hget", "lpop"] {
        assert!(stats.contains(&format!("cmdstat_{name}:calls=12,")), "{stats}");
    }
    assert!(client.text("info stats").contains("keyspace_hits:13\r\n"));
}

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// What may follow each other on one key: `e` is an element, a member or a field, `v` a value, `s` a score.
const FAMILIES: [(&str, &[&str]); 4] = [
    (
        "l",
        &["lpush l e", "RPUSH l e", "lpop l", "rpop l", "LLEN l", "lpush l e e", "lpop l 2", "lrange l 0 -1"],
    ),
    ("h", &["hset h e v", "HDEL h e", "hget h e", "hlen h", "hexists h e", "hset h e v e v", "HSETNX h e v"]),
    ("s", &["sadd s e", "SREM s e", "sismember s e", "scard s", "sadd s e e", "smismember s e e"]),
    (
        "z",
        &[
            "zadd z s e",
            "ZREM z e",
            "zpopmin z",
            "zpopmax z",
            "zscore z e",
            "zrank z e",
            "zrevrank z e",
            "zcard z",
            "zadd z nx s e",
            "zrange z 0 -1 withscores",
        ],
    ),
];

/// A row of commands of one type; most name one key.
fn mixed(random: &mut Random) -> Vec<Vec<String>> {
    let (key, commands) = FAMILIES[random.below(FAMILIES.len())];
    let commands: Vec<&str> = (0..1 + random.below(4)).map(|_| random.of(commands)).collect();
    let (few, long) =
        (random.below(30) + 1, "x".repeat(random.of(&["0", "0", "60", "200"]).parse().unwrap()));
    let count = 2 + random.below(80);
    let one = |_| {
        let form = match random.below(60) {
            0 => format!("expire {key} 10000"),
            1 => format!("lpush {} 1", random.of(&["h", "l", "s"])),
            2 => format!("zadd z {} m", random.of(&["nan", "-0", "0", "inf", "x"])),
            3 => format!("del {key}"),
            _ => random.of(&commands).to_owned(),
        };
        let word = |word: &str| match word {
            "e" => format!("{long}{}", random.below(few)),
            "v" => format!("{}{long}", random.below(9)),
            "s" => random.of(&["0", "1", "2", "-1.5", "-0", "1e20", "abc"]).to_owned(),
            word => word.to_owned(),
        };
        // The key of a sorted set is no score.
        let (name, rest) = form.split_once(' ').unwrap();
        [name.to_owned(), rest[..1].to_owned()].into_iter().chain(rest.split(' ').skip(1).map(word)).collect()
    };
    (0..count).map(one).collect()
}

/// A reply of names and values, by their names.
fn sorted_pairs(reply: &str) -> String {
    let words: Vec<&str> = reply.split(' ').skip(1).collect();
    let mut pairs: Vec<&[&str]> = words.chunks(4).collect();
    pairs.sort();
    pairs.concat().join(" ")
}

/// The calls of each command, and how often keys were found.
fn counts(client: &mut Client) -> Vec<String> {
    let stats = client.text("info commandstats") + &client.text("info stats");
    let calls =
        stats.lines().filter(|line| line.starts_with("cmdstat_") && !line.starts_with("cmdstat_info"));
    let calls = calls.map(|line| {
        let fields = line.split(',').filter(|field| !field.contains("usec"));
        fields.collect::<Vec<_>>().join(",")
    });
    let keys = stats.lines().filter(|line| line.starts_with("keyspace_")).map(str::to_owned);
    let mut all: Vec<String> = calls.chain(keys).collect();
    all.sort();
    all
}

#[test]
fn alternating_commands_are_answered_as_single_commands_are() {
    for (packed, seed) in [(64, 1), (0, 2), (4096, 10), (300, 7)] {
        let [rowing, single] =
            [(); 2].map(|()| Server::with(move |config| config.small_collection_bytes_max = packed));
        let (mut client, mut other) = (rowing.client(), single.client());
        let mut random = Random(seed);
        for round in 0..100 {
            let row = mixed(&mut random);
            client.send(row.iter().map(|words| encoded(words)).collect::<String>());
            for words in &row {
                other.send(encoded(words));
                let (said, wanted) = (reply(&mut client), reply(&mut other));
                assert_eq!(said, wanted, "{words:?} of round {round} with seed {seed} in {row:?}");
            }
            for command in ["lrange l 0 -1", "zrange z 0 -1 withscores", "sort s alpha", "hgetall h"]
                .into_iter()
                .chain(["l", "h", "s", "z"].map(|key| &*format!("object encoding {key}").leak()))
                .chain(["l", "h", "s", "z"].map(|key| &*format!("expiretime {key}").leak()))
            {
                let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
                client.send(encoded(&words));
                other.send(encoded(&words));
                let (mut said, mut wanted) = (reply(&mut client), reply(&mut other));
                if command.starts_with("hgetall") {
                    // In any order.
                    (said, wanted) = (sorted_pairs(&said), sorted_pairs(&wanted));
                }
                // The times of two calls may lie on either side of a second's end.
                if command.starts_with("expiretime") && said.len() > 5 {
                    assert_eq!(
                        said.len(),
                        wanted.len(),
                        "{command} after round {round} with seed {seed}: {row:?}"
                    );
                } else {
                    assert_eq!(said, wanted, "{command} after round {round} with seed {seed}: {row:?}");
                }
            }
        }
        assert_eq!(counts(&mut client), counts(&mut other), "with seed {seed}");
    }
}

#[test]
fn alternating_spops_and_sadds_pop_existing_members() {
    for packed in [64, 4096] {
        let server = Server::with(move |config| config.small_collection_bytes_max = packed);
        let (mut client, mut random, mut model) = (server.client(), Random(5), BTreeSet::new());
        let mut next = 0;
        for _ in 0..60 {
            let (likely, name) = (random.below(4), ["", "member"][random.below(2)]);
            let row: Vec<String> = (0..60)
                .map(|_| match random.below(5) {
                    at if at <= likely => {
                        next += 1;
                        format!("sadd s {name}{next}")
                    }
                    4 => "scard s".to_owned(),
                    _ => "spop s".to_owned(),
                })
                .collect();
            let words = |one: &str| one.split(' ').map(str::to_owned).collect::<Vec<_>>();
            client.send(row.iter().map(|one| encoded(&words(one))).collect::<String>());
            for one in &row {
                let said = reply(&mut client);
                match words(one).get(2) {
                    Some(member) => {
                        assert_eq!(said, ":1");
                        model.insert(member.clone());
                    }
                    None if one == "scard s" => assert_eq!(said, format!(":{}", model.len())),
                    None => match said.split_once(' ') {
                        Some((_, member)) => assert!(model.remove(member), "{member}"),
                        None => assert!(model.is_empty() && said == "$-1", "{said}"),
                    },
                }
            }
        }
    }
}

#[test]
fn a_watching_client_notices_a_batch_that_adds_and_removes() {
    for (packed, filled) in [(64, 0), (64, 100), (4096, 0), (4096, 20)] {
        let server = Server::with(move |config| config.small_collection_bytes_max = packed);
        let (mut client, mut other) = (server.client(), server.client());
        for (key, put, take) in [
            ("l", "lpush l new", "lpop l"),
            ("h", "hset h new 1", "hdel h new"),
            ("s", "sadd s new", "srem s new"),
            ("z", "zadd z -1 new", "zpopmin z"),
        ] {
            for at in 0..filled {
                let fill = match key {
                    "l" => format!("rpush l {at}"),
                    "h" => format!("hset h {at} {at}"),
                    "s" => format!("sadd s {at}"),
                    _ => format!("zadd z {at} {at}"),
                };
                client.send(format!("{fill}\r\n"));
                client.line();
            }
            other.says(&format!("watch {key}\r\nmulti\r\nping"), "+OK\r\n+OK\r\n+QUEUED\r\n");
            let words = |one: &str| one.split(' ').map(str::to_owned).collect::<Vec<_>>();
            client.send([encoded(&words(put)), encoded(&words(take))].concat().repeat(3));
            (0..6).for_each(|_| drop(reply(&mut client)));
            other.says("exec", "*-1\r\n");
            client.says(&format!("exists {key}"), if filled > 0 { ":1\r\n" } else { ":0\r\n" });
            // Commands that only read change nothing.
            other.says(&format!("watch {key}\r\nmulti\r\nping"), "+OK\r\n+OK\r\n+QUEUED\r\n");
            let reads = match key {
                "l" => ["llen l", "llen l"],
                "h" => ["hlen h", "hget h none"],
                "s" => ["scard s", "srem s none"],
                _ => ["zcard z", "zrem z none"],
            };
            client.send(reads.map(|one| encoded(&words(one))).concat().repeat(3));
            (0..6).for_each(|_| drop(reply(&mut client)));
            other.says("exec", "*1\r\n+PONG\r\n");
        }
    }
}
