//! Fields that expire: replies as Redis 8.2 gave them, events, WATCH, scripts, tracking, and stores that are opened
//! again.

use crate::support::{Client, Server, eventually};
use duramen::MediumKind;
use std::collections::BTreeMap;
use std::time::Duration;

const NO_FIELDS: &str = "-ERR Mandatory argument FIELDS is missing or not at the right position\r\n";
const NONE_TO_EXPIRE: &str = "-ERR Parameter `numFields` should be greater than 0\r\n";
const NONE_TO_SHOW: &str = "-ERR Number of fields must be a positive integer\r\n";
const OTHER_COUNT: &str = "-ERR The `numfields` parameter must match the number of arguments\r\n";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

fn codes(codes: &[i64]) -> String {
    let each: String = codes.iter().map(|code| format!(":{code}\r\n")).collect();
    format!("*{}\r\n{each}", codes.len())
}

/// Without the deletion of fields that are over.
fn passive() -> (Server, Client) {
    let server = Server::with(|config| config.enable_debug_command = duramen_server::config::Allowed::Yes);
    let mut client = server.client();
    client.says("debug set-active-expire 0", "+OK\r\n");
    (server, client)
}

#[test]
fn times_are_set_shown_and_taken_away_with_the_codes_and_errors_of_redis() {
    for entries in [0, 512] {
        let server = Server::with(|config| config.thresholds.hash.entries = entries);
        let mut client = server.client();
        client.says("set s x\r\nhset h a 1 b 2 c 3", "+OK\r\n:3\r\n");
        for command in ["hexpire", "hpexpire", "hexpireat", "hpexpireat"] {
            let refused = |client: &mut Client, rest: &str, error: &str| {
                client.says(&format!("{command} {rest}"), error);
            };
            client.says(&format!("{command} none 10 fields 2 a b"), &codes(&[-2, -2]));
            refused(&mut client, "s 10 fields 1 a", WRONG_TYPE);
            refused(&mut client, "s abc foo 0 a", WRONG_TYPE);
            refused(&mut client, "h abc foo 1 a", "-ERR value is not an integer or out of range\r\n");
            refused(&mut client, "h -1 fields 0 a", "-ERR invalid expire time, must be >= 0\r\n");
            let range = format!("-ERR invalid expire time in '{command}' command\r\n");
            refused(&mut client, "h 9223372036854775807 foo 1 a", &range);
            refused(&mut client, "h 70368744177664 fields 1 a", &range);
            for rest in
                ["h 10 nx xx fields 1 a", "h 10 nx 1 a b c", "h 10 foo fields 1 a", "h 10 nx nx fields 1 a"]
            {
                refused(&mut client, rest, NO_FIELDS);
            }
            for count in ["0", "-1", "a", "1.5", "99999999999999999999"] {
                refused(&mut client, &format!("h 10 fields {count} a"), NONE_TO_EXPIRE);
            }
            for rest in ["h 10 fields 2 a", "h 10 nx fields 1 a b", "h 10 fields 1 a nx"] {
                refused(&mut client, rest, OTHER_COUNT);
            }
            let arity = format!("-ERR wrong number of arguments for '{command}' command\r\n");
            refused(&mut client, "h 10 fields 1", &arity);
        }
        for command in ["httl", "hpttl", "hexpiretime", "hpexpiretime", "hpersist"] {
            client.says(&format!("{command} none fields 2 a b"), &codes(&[-2, -2]));
            client.says(&format!("{command} h fields 2 a x"), &codes(&[-1, -2]));
            client.says(&format!("{command} s foo 0 a"), WRONG_TYPE);
            client.says(&format!("{command} none foo 1 a"), NO_FIELDS);
            client.says(&format!("{command} h fields x a"), NONE_TO_SHOW);
            client.says(&format!("{command} h fields 2 a"), OTHER_COUNT);
        }
        client.says("hpexpireat h 9999999999499 fields 3 a b x", &codes(&[1, 1, -2]));
        client.says("hexpiretime h fields 3 a b c", &codes(&[10_000_000_000, 10_000_000_000, -1]));
        client.says("hpexpiretime h fields 1 a", &codes(&[9_999_999_999_499]));
        let encoding = if entries == 0 { "$9\r\nhashtable\r\n" } else { "$10\r\nlistpackex\r\n" };
        client.says("object encoding h", encoding);
        client.says("hpexpireat h 9999999999000 nx fields 2 a c", &codes(&[0, 1]));
        client.says("hpexpireat h 9999999999100 xx fields 2 c x", &codes(&[1, -2]));
        client.says("hpexpireat h 9999999999400 gt fields 2 a c", &codes(&[0, 1]));
        client.says("hpexpireat h 9999999999300 lt fields 2 a c", &codes(&[1, 1]));
        client.says("hpersist h fields 3 a a x", &codes(&[1, -1, -2]));
        client.says(
            "hexpireat h 9999999999 gt fields 1 a\r\nhexpireat h 9999999999 lt fields 1 a",
            &(codes(&[0]) + &codes(&[1])),
        );
        // HSET takes the time away, HINCRBY and HINCRBYFLOAT leave it.
        client.says("hset h a 5\r\nhexpiretime h fields 1 a", &(":0\r\n".to_owned() + &codes(&[-1])));
        client.says("hincrby h b 5\r\nhincrbyfloat h b 0.5", ":7\r\n$3\r\n7.5\r\n");
        client.says("hpexpiretime h fields 1 b", &codes(&[9_999_999_999_499]));
        client.says(
            "hsetnx h b 1\r\nhpexpiretime h fields 1 b",
            &(":0\r\n".to_owned() + &codes(&[9_999_999_999_499])),
        );
        // A time that has passed deletes.
        client.says("hexpire h 0 fields 2 a x\r\nhlen h", &(codes(&[2, -2]) + ":2\r\n"));
        client.says("hexpireat h 1 fields 2 b c\r\nexists h", &(codes(&[2, 2]) + ":0\r\n"));
        // In RESP3, in a transaction and in a script.
        client.hello_3();
        client.says(
            "hset h a 1\r\nhpexpireat h 9999999999499 fields 1 a",
            &(":1\r\n".to_owned() + &codes(&[1])),
        );
        client.says(
            "multi\r\nhexpiretime h fields 1 a\r\nhpersist h fields 1 a\r\nexec",
            &format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n{}{}", codes(&[10_000_000_000]), codes(&[1])),
        );
        client.says(
            "eval \"redis.call('hexpire', KEYS[1], 100, 'fields', 1, 'a'); \
             return redis.call('httl', KEYS[1], 'fields', 2, 'a', 'x')\" 1 h",
            &codes(&[100, -2]),
        );
    }
}

#[test]
fn a_field_that_is_over_is_hidden_counted_and_replaced() {
    for entries in [0, 512] {
        let (server, mut client) = passive();
        client.says(&format!("config set hash-max-listpack-entries {entries}"), "+OK\r\n");
        let over = |client: &mut Client| {
            client.send("del h\r\nhset h a 1 b 2 c 3\r\nhpexpire h 1 fields 1 a\r\n");
            (0..4).for_each(|_| drop(client.line()));
            std::thread::sleep(Duration::from_millis(5));
        };
        over(&mut client);
        client.says("hlen h\r\nhexists h a\r\nhget h a\r\nhstrlen h a", ":3\r\n:0\r\n$-1\r\n:0\r\n");
        client.says("hmget h a b\r\nhttl h fields 1 a", "*2\r\n$-1\r\n$1\r\n2\r\n*1\r\n:-2\r\n");
        client.says("hkeys h\r\nhvals h", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n*2\r\n$1\r\n2\r\n$1\r\n3\r\n");
        client.says("hgetall h", "*4\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\nc\r\n$1\r\n3\r\n");
        client.says("hscan h 0", "*2\r\n$1\r\n0\r\n*4\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\nc\r\n$1\r\n3\r\n");
        client.says("hrandfield h 9", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n");
        client.says(
            "hpersist h fields 1 a\r\nhexpire h 100 fields 1 a\r\nhlen h",
            "*1\r\n:-2\r\n*1\r\n:-2\r\n:2\r\n",
        );
        over(&mut client);
        client.says("hset h a x\r\nhget h a\r\nhlen h", ":0\r\n$1\r\nx\r\n:3\r\n");
        over(&mut client);
        client.says("hdel h a\r\nhlen h", ":1\r\n:2\r\n");
        over(&mut client);
        client.says("hsetnx h a y\r\nhget h a\r\nhttl h fields 1 a", ":1\r\n$1\r\ny\r\n*1\r\n:-1\r\n");
        over(&mut client);
        client.says("hincrby h a 5\r\nhttl h fields 1 a", ":5\r\n*1\r\n:-1\r\n");
        over(&mut client);
        client.says("hincrbyfloat h a 2.5\r\nhlen h", "$3\r\n2.5\r\n:3\r\n");
        // All are over: the key is there until the last is deleted.
        client.says("del h\r\nhset h a 1\r\nhpexpire h 1 fields 1 a", ":1\r\n:1\r\n*1\r\n:1\r\n");
        std::thread::sleep(Duration::from_millis(5));
        client.says("exists h\r\nhgetall h\r\nhrandfield h\r\nhrandfield h -3", ":1\r\n*0\r\n$-1\r\n*0\r\n");
        client.says("hscan h 0\r\ndump h", "*2\r\n$1\r\n0\r\n*0\r\n$-1\r\n");
        client.says("copy h to\r\nhlen to", ":1\r\n:1\r\n");
        client.says("debug set-active-expire 1", "+OK\r\n");
        eventually("both keys are gone", || {
            client.send("exists h to\r\n");
            client.line() == ":0"
        });
        drop(server);
    }
}

fn events(listener: &mut Client, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| {
            let lines: Vec<String> = (0..9).map(|_| listener.line()).collect();
            format!("{} {}", lines[6].rsplit(':').next().unwrap(), lines[8])
        })
        .collect()
}

#[test]
fn deletion_is_timely_and_heard_by_subscribers_watchers_and_tracking_clients() {
    let server = Server::with(|config| config.notify_keyspace_events = u32::MAX);
    let (mut client, mut listener, mut watcher, mut tracker) =
        (server.client(), server.client(), server.client(), server.client());
    listener
        .says("psubscribe __keyspace@0__:*", "*3\r\n$10\r\npsubscribe\r\n$16\r\n__keyspace@0__:*\r\n:1\r\n");
    client.says("hset h a 1 b 2 c 3", ":3\r\n");
    tracker.hello_3();
    tracker.says("client tracking on\r\nhget h b", "+OK\r\n$1\r\n2\r\n");
    client.says("hexpire h 100 fields 2 a c\r\nhpersist h fields 1 c", &(codes(&[1, 1]) + &codes(&[1])));
    tracker.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nh\r\n");
    tracker.says("hget h b", "$1\r\n2\r\n");
    watcher.says("watch h", "+OK\r\n");
    client.says("hpexpire h 30 fields 2 a b", &codes(&[1, 1]));
    tracker.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nh\r\n");
    tracker.says("hget h c", "$1\r\n3\r\n");
    let wanted = ["h new", "h hset", "h hexpire", "h hpersist", "h hexpire", "h hexpired"];
    assert_eq!(events(&mut listener, wanted.len()), wanted);
    tracker.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nh\r\n");
    watcher.says("multi\r\nping\r\nexec", "+OK\r\n+QUEUED\r\n*-1\r\n");
    client.says("hlen h", ":1\r\n");
    // The watched deletion of the last.
    client.says("hpexpire h 200 fields 1 c", &codes(&[1]));
    watcher.says("watch h", "+OK\r\n");
    assert_eq!(events(&mut listener, 3), ["h hexpire", "h hexpired", "h del"]);
    watcher.says("multi\r\nping\r\nexec", "+OK\r\n+QUEUED\r\n*-1\r\n");
    client.says("dbsize", ":0\r\n");
    assert_eq!(client.field("stats", "expired_subkeys"), 3);
    client.says("config resetstat", "+OK\r\n");
    assert_eq!(client.field("stats", "expired_subkeys"), 0);
    // One of many.
    client.says("hset h a 1 b 2\r\nhpexpire h 1 fields 1 a", &(":2\r\n".to_owned() + &codes(&[1])));
    assert_eq!(events(&mut listener, 4), ["h new", "h hset", "h hexpire", "h hexpired"]);
    client.says("hsetnx h a 1\r\nhexpire h 0 fields 1 a", &(":1\r\n".to_owned() + &codes(&[2])));
    assert_eq!(events(&mut listener, 2), ["h hset", "h hdel"]);
}

#[test]
fn times_survive_an_open_and_what_came_due_meanwhile_is_deleted() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let start = || {
        Server::with(|config| {
            (config.medium, config.path) = (MediumKind::Shm, path.clone());
            config.enable_debug_command = duramen_server::config::Allowed::Yes;
        })
    };
    let server = start();
    let mut client = server.client();
    client.says("debug set-active-expire 0", "+OK\r\n");
    client.says("hset h a 1 b 2 c 3\r\nhset over x 1", ":3\r\n:1\r\n");
    client.says("hpexpireat h 9999999999499 fields 1 b\r\nhpexpire h 1 fields 1 a", &codes(&[1]).repeat(2));
    client.says("hpexpire over 1 fields 1 x", &codes(&[1]));
    std::thread::sleep(Duration::from_millis(5));
    client.says("hlen h\r\nexists over", ":3\r\n:1\r\n");
    drop(client);
    server.stop().unwrap();
    let server = start();
    let mut client = server.client();
    client.says(
        "hget h a\r\nhpexpiretime h fields 3 a b c",
        &("$-1\r\n".to_owned() + &codes(&[-2, 9_999_999_999_499, -1])),
    );
    // No timer is left: the store finds them.
    eventually("what is over is deleted", || {
        client.send("hlen h\r\nexists over\r\n");
        (client.line(), client.line()) == (":2".to_owned(), ":0".to_owned())
    });
    assert_eq!(client.field("stats", "expired_subkeys"), 2);
}

/// Many short times in many hashes: every field goes, and no other.
#[test]
fn ten_thousand_fields_go_in_time() {
    let server = Server::start();
    let mut client = server.client();
    let mut wanted = BTreeMap::new();
    for hash in 0..100 {
        let pairs: String = (0..200).map(|field| format!(" f{field} v")).collect();
        client.says(&format!("hset h{hash}{pairs}"), ":200\r\n");
        let fields: String = (0..100).map(|field| format!(" f{field}")).collect();
        client.says(&format!("hpexpire h{hash} {} fields 100{fields}", 1 + hash), &codes(&[1; 100]));
        wanted.insert(hash, ":100");
    }
    eventually("all are deleted", || {
        wanted.iter().all(|(hash, count)| {
            client.send(format!("hlen h{hash}\r\n"));
            client.line() == *count
        })
    });
    assert_eq!(client.field("stats", "expired_subkeys"), 10_000);
    client.says("hexists h5 f99\r\nhexists h5 f100", ":0\r\n:1\r\n");
}
