//! The cost of commands as their data grows: a command that is linear in Redis is linear here, and a command on a part
//! takes no longer for the rest. `cargo xtask cost` measures all commands next to Redis; these are the ones that once
//! failed.
//!
//! Times are compared with times of the same command on less data, alternately, and the least of some rounds counts: so
//! a busy machine makes no test fail.

use crate::support::{Client, Server};
use std::io::Read as _;
use std::time::{Duration, Instant};

const END: &[u8] = b"$4\r\nthe.\r\n";

/// A command as bytes.
fn command(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    [format!("*{}\r\n", words.len())].into_iter().chain(words).collect::<String>().into_bytes()
}

/// The words of a line; `[…]` is repeated for each i below n, as `{i}`.
fn line(line: &str, n: usize) -> Vec<u8> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some((before, group)) = rest.split_once('[') {
        words.extend(before.split_whitespace().map(str::to_owned));
        let (group, behind) = group.split_once(']').unwrap();
        for i in 0..n {
            words.extend(group.split_whitespace().map(|word| word.replace("{i}", &format!("{i:07}"))));
        }
        rest = behind;
    }
    words.extend(rest.split_whitespace().map(str::to_owned));
    command(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Sends the requests, waits for all replies, and returns them.
fn ask(client: &mut Client, bytes: &[u8]) -> Vec<u8> {
    client.send([bytes, &command(&["ECHO", "the."])].concat());
    let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while !got.ends_with(END) {
        let read = client.0.read(&mut buffer).unwrap();
        assert!(read > 0, "the connection ended");
        got.extend_from_slice(&buffer[..read]);
    }
    assert!(!got.starts_with(b"-"), "{}", String::from_utf8_lossy(&got[..got.len().min(200)]));
    got
}

/// The least time of some rounds of `small` and of `large`, taken by turns.
fn least(mut small: impl FnMut() -> Duration, mut large: impl FnMut() -> Duration) -> (Duration, Duration) {
    let mut least = (Duration::MAX, Duration::MAX);
    for _ in 0..5 {
        least = (least.0.min(small()), least.1.min(large()));
    }
    least
}

fn timed(client: &mut Client, bytes: &[u8]) -> Duration {
    let begun = Instant::now();
    ask(client, bytes);
    begun.elapsed()
}

/// A command on eight times as much takes at most thrice eight times as long: 64 times would be quadratic.
#[track_caller]
fn demand_linear(server: &Server, before: &str, asked: &str, n: usize) {
    let mut client = server.client();
    let bytes = [n, 8 * n].map(|n| line(asked, n));
    let mut times = [&bytes[0], &bytes[1]].map(|bytes| {
        ask(&mut client, before.as_bytes());
        timed(&mut client, bytes)
    });
    // What takes time in n² takes seconds for `8 * n`; a third of one is what the scheduler adds where the machine is
    // busy.
    let is_linear = |[small, large]: [Duration; 2]| large < small * 24 + Duration::from_millis(300);
    for _ in 0..15 {
        if is_linear(times) {
            return;
        }
        for (time, bytes) in times.iter_mut().zip(&bytes) {
            ask(&mut client, before.as_bytes());
            *time = (*time).min(timed(&mut client, bytes));
        }
    }
    assert!(is_linear(times), "{asked}: {:?} for {n}, {:?} for eight times", times[0], times[1]);
}

/// What a command takes depends little on how much there is.
#[track_caller]
fn demand_constant(prepare: &[&str], asked: &str, (few, many): (usize, usize)) {
    let prepared = [few, many].map(|n| {
        let server = Server::start();
        let mut client = server.client();
        for prepare in prepare {
            match prepare.strip_prefix("each ") {
                None => drop(ask(&mut client, &line(prepare, n))),
                Some(each) => {
                    let all = (0..n).map(|i| line(&each.replace("{i}", &format!("{i:07}")), 0));
                    ask(&mut client, &all.collect::<Vec<_>>().concat());
                }
            }
        }
        (server, client)
    });
    let [(_few_server, mut few_client), (_many_server, mut many_client)] = prepared;
    let bytes = line(asked, 0);
    let (small, large) = least(|| timed(&mut few_client, &bytes), || timed(&mut many_client, &bytes));
    let bound = small * 6 + Duration::from_millis(3);
    assert!(large < bound, "{asked}: {small:?} where there are {few}, {large:?} where there are {many}");
}

#[test]
fn commands_on_many_keys_take_time_in_proportion_to_them() {
    let server = Server::start();
    for asked in [
        "BLPOP [k{i}] 0.001",
        "BRPOP [k{i}] [k{i}] 0.001",
        "BZPOPMIN [k{i}] 0.001",
        "XREAD BLOCK 1 STREAMS [k{i}] [$]",
        "WATCH [k{i}]",
    ] {
        demand_linear(&server, "", asked, 2_500);
    }
    // A client subscribes to the events of new keys.
    let mut listener = server.client();
    listener.send("SUBSCRIBE nobody\r\n");
    server.client().says("config set notify-keyspace-events KEAn", "+OK\r\n");
    demand_linear(&server, "FLUSHALL\r\n", "MSET [n{i} v]", 2_000);
}

#[test]
fn a_write_takes_no_longer_where_many_keys_are_watched() {
    let prepare = ["HSET h [f{i} v]", "WATCH [k{i}]"];
    demand_constant(&prepare, "HINCRBY h count 1", (500, 20_000));
}

#[test]
fn a_geo_search_reads_only_its_area_and_a_limited_count_only_its_members() {
    let prepare = ["SADD s [m{i}]", "ZADD z [{i} m{i}]", "GEOADD g 13.361389 38.115556 here"];
    demand_constant(&prepare, "SINTERCARD 2 s s LIMIT 3", (500, 30_000));
    demand_constant(&prepare, "ZINTERCARD 2 z z LIMIT 3", (500, 30_000));
    demand_constant(&prepare, "GEOSEARCH z FROMLONLAT 13 38 BYRADIUS 1 km", (500, 30_000));
    demand_constant(&prepare, "GEORADIUSBYMEMBER_RO z m0000100 1 m COUNT 1 ANY", (500, 30_000));
}

const GROUPS: &[&str] = &["each XGROUP CREATE x g{i} 0 MKSTREAM", "each XADD x * f v"];
const PENDING: &[&str] = &[
    "each XADD x * f v",
    "XGROUP CREATE x g 0",
    "XREADGROUP GROUP g many COUNT 7000 STREAMS x >",
    "XADD x * f v",
    "XREADGROUP GROUP g one STREAMS x >",
];

#[test]
fn a_consumers_read_costs_nothing_for_other_groups_and_consumers() {
    demand_constant(GROUPS, "XREADGROUP GROUP g0000007 c COUNT 1 STREAMS x >", (50, 3_000));
    demand_constant(GROUPS, "XACK x g0000007 1-1", (50, 3_000));
    let consumers =
        ["XGROUP CREATE x g 0 MKSTREAM", "each XGROUP CREATECONSUMER x g c{i}", "each XADD x * f v"];
    demand_constant(&consumers, "XREADGROUP GROUP g c0000007 COUNT 1 STREAMS x >", (50, 5_000));
    demand_constant(PENDING, "XREADGROUP GROUP g one COUNT 10 STREAMS x 0", (100, 7_000));
    demand_constant(PENDING, "XPENDING x g - + 10 one", (100, 7_000));
}

#[test]
fn an_xadd_takes_time_in_proportion_to_the_waiting_consumers() {
    let times = [25, 200].map(|n| {
        let server = Server::start();
        let mut client = server.client();
        ask(&mut client, b"XGROUP CREATE x g 0 MKSTREAM\r\n");
        let waiting: Vec<Client> = (0..n)
            .map(|i| {
                let mut client = server.client();
                client.send(format!("XREADGROUP GROUP g c{i} COUNT 1 BLOCK 0 STREAMS x >\r\n"));
                client
            })
            .collect();
        crate::support::eventually("all wait", || {
            client.text("info clients").contains(&format!("blocked_clients:{n}\r"))
        });
        let least = (0..5).map(|_| timed(&mut client, b"XADD x * f v\r\n")).min().unwrap();
        drop(waiting);
        least
    });
    assert!(
        times[1] < times[0] * 24 + Duration::from_millis(3),
        "{times:?} for 25 and for 200 waiting clients"
    );
}

#[test]
fn a_hole_in_a_string_costs_nothing() {
    let server = Server::start();
    let mut client = server.client();
    // 256 MiB.
    for asked in [
        "SETBIT far 2147483640 1\r\n",
        "BITCOUNT far\r\n",
        "BITPOS far 1\r\n",
        "COPY far copy\r\n",
        "BITOP OR both far copy\r\n",
        "BITFIELD fields SET u8 0 1 GET u8 2147483640\r\n",
        "BITFIELD fields SET u8 2147483640 1 GET u8 8\r\n",
    ] {
        let time = timed(&mut client, asked.as_bytes());
        assert!(time < Duration::from_millis(150), "{asked}: {time:?}");
    }
    client.says("strlen both\r\nbitcount both\r\nstrlen fields", ":268435456\r\n:1\r\n:268435456\r\n");
}

#[test]
fn strings_with_holes_answer_as_those_without() {
    let server = Server::start();
    let mut client = server.client();
    // 40 KiB with three bits, in different places, and whole copies of them.
    for (key, bits) in [("a", [9, 81_919, 327_000]), ("b", [5, 81_919, 300_000])] {
        for bit in bits {
            client.says(&format!("setbit {key} {bit} 1"), ":0\r\n");
        }
        let reply = ask(&mut client, format!("get {key}\r\n").as_bytes());
        // As it is in the reply, with its length.
        let value = &reply[..reply.len() - END.len()];
        client.send([format!("*3\r\n$3\r\nSET\r\n$2\r\nd{key}\r\n").as_bytes(), value].concat());
        client.expect("+OK\r\n");
    }
    let mut both = |asked: &str| {
        let said = [("", "a", "b"), ("d", "da", "db")].map(|(to, a, b)| {
            let asked = asked.replace("TO", &format!("{to}to")).replace('A', a).replace('B', b);
            ask(&mut client, format!("{asked}\r\n").as_bytes())
        });
        assert!(
            said[0] == said[1],
            "{asked}: {:?}",
            said.map(|said| String::from_utf8_lossy(&said).into_owned())
        );
    };
    let ends = [
        "0", "1", "2", "1023", "1024", "5000", "10239", "10240", "37500", "40874", "40875", "-1", "-3",
        "-40875",
    ];
    for start in ends {
        both(&format!("bitpos A 0 {start}"));
        both(&format!("bitpos A 1 {start}"));
        for end in ends {
            for unit in ["byte", "bit"] {
                both(&format!("bitcount A {start} {end} {unit}"));
                both(&format!("bitpos A 0 {start} {end} {unit}"));
                both(&format!("bitpos A 1 {start} {end} {unit}"));
            }
        }
    }
    for operation in ["and", "or", "xor"] {
        for keys in ["A B", "A A", "B none", "none A", "A B A"] {
            both(&format!("bitop {operation} TO {keys}"));
            both("get TO");
            both("strlen TO");
        }
    }
    both("bitop not TO A");
    both("get TO");
    both("copy A TO replace");
    both("get TO");
    both(
        "bitfield A set u8 81900 7 get i64 81911 incrby u4 326990 3 get u8 1 overflow fail incrby u2 81918 3",
    );
    both("get A");
    both("setrange A 60000 x");
    both("append A y");
    both("get A");
}
