//! Eviction, as clients of both protocols see it.

use crate::support::{Client, Server, eventually};
use duramen::{EvictBy, Eviction};
use duramen_server::config::policy::Policy;
use std::collections::HashMap;
use std::io::Read;
use std::time::Duration;

const LIMIT: u64 = 16 << 20;

fn fill(client: &mut Client, keys: std::ops::Range<u32>) -> u32 {
    let value = "v".repeat(400);
    let keys: Vec<u32> = keys.collect();
    let mut stored = 0;
    for keys in keys.chunks(200) {
        let commands: String = keys.iter().map(|key| format!("set key:{key} {value}\r\n")).collect();
        client.send(commands);
        stored += keys.iter().filter(|_| client.line() == "+OK").count() as u32;
    }
    stored
}

fn ask(client: &mut Client, line: &str) -> String {
    client.send(format!("{line}\r\n"));
    client.line()
}

#[test]
fn a_policy_set_at_run_time_evicts_and_reports_it() {
    let server = Server::with(|config| config.maxmemory = LIMIT);
    let mut client = server.client();
    let full = fill(&mut client, 0..60_000);
    assert!(full > 20_000 && full < 40_000, "{full}");
    assert_eq!(client.field("stats", "evicted_keys"), 0);
    client.says("config set maxmemory-policy allkeys-lri", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument must be one of the following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction\r\n");
    // Before reads are counted.
    let mut tracker = server.client();
    tracker.hello_3();
    tracker.says("client tracking on", "+OK\r\n");
    tracker.says("strlen key:5", ":400\r\n");
    client.says("config set maxmemory-policy allkeys-lru notify-keyspace-events Ee", "+OK\r\n");
    client.says("config get maxmemory-policy", "*2\r\n$16\r\nmaxmemory-policy\r\n$11\r\nallkeys-lru\r\n");
    let mut listener = server.client();
    listener.says(
        "subscribe __keyevent@0__:evicted",
        "*3\r\n$9\r\nsubscribe\r\n$22\r\n__keyevent@0__:evicted\r\n:1\r\n",
    );
    client.says("set hot value", "+OK\r\n");
    for round in 0..100 {
        assert_eq!(fill(&mut client, 100_000 + round * 600..100_600 + round * 600), 600);
        client.says("get hot", "$5\r\nvalue\r\n");
    }
    let evicted = client.field("stats", "evicted_keys");
    assert!(evicted > 20_000, "{evicted}");
    tracker.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nkey:5\r\n");
    let (_, kind, channel) =
        (listener.line(), (listener.line(), listener.line()), (listener.line(), listener.line()));
    assert_eq!((&*kind.1, &*channel.1), ("message", "__keyevent@0__:evicted"));
    let name = (listener.line(), listener.line()).1;
    assert!(name.starts_with("key:"), "{name}");
    client.says(&format!("exists {name}"), ":0\r\n");
    client.says("config set maxmemory-policy noeviction", "+OK\r\n");
    assert!(fill(&mut client, 300_000..330_000) < 20_000);
    client.says("config set maxmemory 64mb", "+OK\r\n");
    assert_eq!(fill(&mut client, 400_000..420_000), 20_000);
}

#[test]
fn idle_time_and_frequency_are_reported_where_they_are_kept() {
    let server = Server::with(|config| config.maxmemory_policy = Some(Policy::named("allkeys-lru").unwrap()));
    let mut client = server.client();
    client.says("set k v", "+OK\r\n");
    let idle = |client: &mut Client| {
        ask(client, "object idletime k").trim_start_matches(':').parse::<u64>().unwrap()
    };
    // The features of the whole workspace leave no clock.
    if duramen::tuning::HAS_CLOCK {
        eventually("it is idle", || idle(&mut client) >= 2);
        assert!(idle(&mut client) >= 2, "to ask is not to read it");
    }
    client.says("get k", "$1\r\nv\r\n");
    assert!(idle(&mut client) <= 1);
    client.says("object idletime absent", "$-1\r\n");
    assert!(ask(&mut client, "object freq k").starts_with("-ERR An LFU maxmemory policy is not selected"));
    client.says("config set maxmemory-policy volatile-lfu", "+OK\r\n");
    assert!(ask(&mut client, "object idletime k").starts_with("-ERR An LFU maxmemory policy is selected"));
    // Records that lie within 4 KiB may share a count.
    let far = |client: &mut Client| client.says(&format!("set far {}", "f".repeat(5000)), "+OK\r\n");
    far(&mut client);
    client.says("set other v", "+OK\r\n");
    (0..2).for_each(|_| client.says("get other", "$1\r\nv\r\n"));
    client.says("object freq other", ":2\r\n");
    client.says("object freq other", ":2\r\n");
    client.says("object freq absent", "$-1\r\n");
    // Reads of a client that asks for that do not count; TOUCH does.
    client.says("client no-touch on", "+OK\r\n");
    (0..3).for_each(|_| client.says("get other", "$1\r\nv\r\n"));
    client.says("object freq other", ":2\r\n");
    client.says("touch other", ":1\r\n");
    client.says("object freq other", ":3\r\n");
    client.says("client no-touch off", "+OK\r\n");
    client.says("get other", "$1\r\nv\r\n");
    client.says("object freq other", ":3\r\n");
    // The count goes on with the key, and a key that comes from elsewhere was not read here.
    client.says("set other w", "+OK\r\n");
    client.says("object freq other", ":3\r\n");
    far(&mut client);
    client.send("dump other\r\n");
    let bytes = client.line()[1..].parse::<usize>().unwrap();
    let mut payload = vec![0; bytes + 2];
    client.0.read_exact(&mut payload).unwrap();
    client.send(format!("*6\r\n$7\r\nrestore\r\n$1\r\nr\r\n$1\r\n0\r\n${bytes}\r\n"));
    client.send(payload);
    client.send("$4\r\nfreq\r\n$1\r\n9\r\n");
    client.expect("+OK\r\n");
    client.says("object freq r", ":0\r\n");
}

#[test]
fn collections_go_as_a_whole_and_volatile_policies_leave_the_rest() {
    let volatile = Eviction { by: EvictBy::Recency, volatile_only: true };
    let server = Server::with(|config| {
        config.maxmemory = LIMIT;
        config.small_collection_bytes_max = 512;
        config.maxmemory_policy = Some(Policy::of(volatile));
    });
    let mut client = server.client();
    let elements: String = (0..100).map(|at| format!(" element-{at:040}")).collect();
    for list in 0..4_000 {
        client.says(&format!("rpush list:{list}{elements}"), ":100\r\n");
        client.says(&format!("expire list:{list} 100000"), ":1\r\n");
        if list % 100 == 0 {
            client.says(&format!("rpush kept:{list}{elements}"), ":100\r\n");
        }
    }
    let mut there = 0;
    for list in 0..4_000 {
        match ask(&mut client, &format!("llen list:{list}")).as_str() {
            ":0" => {}
            length => {
                assert_eq!(length, ":100");
                client.says(&format!("lindex list:{list} -1"), &format!("$48\r\nelement-{:040}\r\n", 99));
                there += 1;
            }
        }
    }
    assert!(there > 300 && there < 3_900, "{there}");
    (0..40).for_each(|list| client.says(&format!("llen kept:{}", list * 100), ":100\r\n"));
}

#[test]
fn memcached_options_set_the_eviction() {
    let with = |policy: &'static str| {
        Server::with(move |config| {
            (config.memcached, config.port) = (config.port, 0);
            config.maxmemory = LIMIT;
            config.maxmemory_policy = Some(Policy::named(policy).unwrap());
        })
    };
    let fill = |client: &mut Client, keys: std::ops::Range<u32>| -> Vec<String> {
        let value = "v".repeat(400);
        let set = |key| {
            client.send(format!("set key:{key} 0 0 400\r\n{value}\r\n"));
            client.line()
        };
        keys.map(set).filter(|reply| reply != "STORED").collect()
    };
    let stats = |client: &mut Client| -> HashMap<String, String> {
        client.send("stats\r\n");
        let lines = std::iter::from_fn(|| Some(client.line()).filter(|line| line != "END"));
        let pair = |line: String| {
            let (name, value) = line.strip_prefix("STAT ").unwrap().split_once(' ').unwrap();
            (name.to_owned(), value.to_owned())
        };
        lines.map(pair).collect()
    };
    let stat = |client: &mut Client, name: &str| -> u64 { stats(client)[name].parse().unwrap() };
    let server = with("noeviction");
    let refused = fill(&mut server.client(), 0..60_000);
    assert_eq!(refused.first().map(String::as_str), Some("SERVER_ERROR out of memory storing object"));
    let server = with("allkeys-lru");
    let mut client = server.client();
    client.says("get key:1 key:1", "END\r\n");
    assert_eq!(fill(&mut client, 0..80_000), Vec::<String>::new());
    let shown = stats(&mut client);
    let [evictions, unfetched] =
        ["evictions", "evicted_unfetched"].map(|name| shown[name].parse::<u64>().unwrap());
    assert!(evictions > 30_000 && unfetched <= evictions && unfetched > 0, "{evictions} {unfetched}");
    assert!(stat(&mut client, "curr_items") > 20_000);
    client.says("cache_memlimit 64", "OK\r\n");
    assert_eq!(stat(&mut client, "limit_maxbytes"), 64 << 20);
    // What was begun with the smaller limit may still end.
    let mut before = stat(&mut client, "evictions");
    eventually("no more evictions", || {
        std::thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut before, stat(&mut client, "evictions")) == before
    });
    assert_eq!(fill(&mut client, 100_000..120_000), Vec::<String>::new());
    assert_eq!(stat(&mut client, "evictions"), before);
}
