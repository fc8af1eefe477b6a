//! Commands that other clients, a full store or another option of theirs get in the way of.

use crate::support::{Client, Server};
use duramen::MediumKind;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
fn a_full_store_is_emptied_in_parts() {
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
    // A pop may make room for the next push.
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
    let before = client.field("duramen", "duramen_epoch");
    (0..WRITES).for_each(|_| client.says("set k v", "+OK\r\n"));
    // Each was committed before its reply left.
    assert!(client.field("duramen", "duramen_epoch") >= before + WRITES);
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

#[test]
fn object_refcount_of_a_collection_is_always_one() {
    let server = Server::start();
    let mut client = server.client();
    for count in 1..=200 {
        client.says(&format!("rpush l element-{count}"), &format!(":{count}\r\n"));
        client.says(&format!("sadd s member-{count}"), ":1\r\n");
        client.says(
            &format!("xadd x {count}-1 f v"),
            &format!("${}\r\n{count}-1\r\n", count.to_string().len() + 2),
        );
        client.says("object refcount l\r\nobject refcount s\r\nobject refcount x", ":1\r\n:1\r\n:1\r\n");
    }
    client.says("set n 7", "+OK\r\n");
    client.says("object refcount n", ":2147483647\r\n");
}

#[test]
fn commands_of_redis_7_2_answer_as_documented() {
    let server = Server::start();
    let mut client = server.client();
    client.says("zadd z 1 a 2.5 b 3 c", ":3\r\n");
    client.says("zrank z b withscore", "*2\r\n:1\r\n$3\r\n2.5\r\n");
    client.says("zrevrank z a WITHSCORE", "*2\r\n:2\r\n$1\r\n1\r\n");
    client.says(
        "zrank z absent withscore\r\nzrank none a withscore\r\nzrank z absent",
        "*-1\r\n*-1\r\n$-1\r\n",
    );
    client.says("zrank z b other\r\nzrank z b withscore more", "-ERR syntax error\r\n-ERR syntax error\r\n");
    client.says("zrank z a\r\nzrank z b\r\nzrank z c", ":0\r\n:1\r\n:2\r\n");
    // A consumer that has got nothing yet is seen and was not active.
    client.says("xgroup create s g 0 mkstream\r\nxgroup createconsumer s g idle", "+OK\r\n:1\r\n");
    client.says("xadd s 1-1 f v", "$3\r\n1-1\r\n");
    client.send("xreadgroup group g busy streams s >\r\nxinfo consumers s g\r\n");
    let lines: Vec<String> = (0..13 + 1 + 2 * 14).map(|_| client.line()).collect();
    let (read, told) = lines.split_at(13);
    assert!(read[0] == "*1" && told[0] == "*2", "{lines:?}");
    let inactive: Vec<&str> = told
        .iter()
        .zip(told.iter().skip(1))
        .filter(|(name, _)| *name == "inactive")
        .map(|(_, value)| value.as_str())
        .collect();
    assert!(inactive[1] == ":-1" && inactive[0].starts_with(":") && inactive[0] != ":-1", "{told:?}");
    // The store is its own append-only file.
    client.says("set k v\r\nwaitaof 1 0 0\r\nwaitaof 0 0 0", "+OK\r\n*2\r\n:1\r\n:0\r\n*2\r\n:1\r\n:0\r\n");
    let begun = std::time::Instant::now();
    client.says("waitaof 1 1 150", "*2\r\n:1\r\n:0\r\n");
    assert!(begun.elapsed() >= std::time::Duration::from_millis(150));
    client.says("waitaof 2 0 0", "-ERR value is out of range, value must between 0 and 1\r\n");
    client.says("waitaof 0 -1 0", "-ERR value is out of range, must be positive\r\n");
    client.says("multi\r\nwaitaof 1 1 0\r\nexec", "+OK\r\n+QUEUED\r\n*1\r\n*2\r\n:1\r\n:0\r\n");
    client.says("cluster myshardid", "-ERR This instance has cluster support disabled\r\n");
    // And with 7.4.
    client
        .says("hset h a 1 b 2\r\nhscan h 0 novalues", ":2\r\n*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    client.says("hscan h 0 match b novalues count 5", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nb\r\n");
    client.says("zscan z 0 novalues", "-ERR syntax error\r\n");
    client.says("xadd s 2-1 g w", "$3\r\n2-1\r\n");
    let last = "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n2-1\r\n*2\r\n$1\r\ng\r\n$1\r\nw\r\n";
    client.says("xread streams s +", last);
    client.says("xread count 10 streams s +", last);
    client.says("xread streams absent +", "*-1\r\n");
}
