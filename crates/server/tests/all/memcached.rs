//! memcached's protocols over sockets: next to Redis's, over restarts, and from slow clients. `cargo xtask
//! side-by-side-memcached` compares the replies of each command with memcached itself.

use crate::support::{Client, Server, eventually};
use duramen::MediumKind;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// A server that speaks nothing else.
fn alone() -> Server {
    alone_with(|_| {})
}

fn alone_with(change: impl Fn(&mut duramen_server::Config)) -> Server {
    Server::with(|config| {
        (config.memcached, config.port) = (config.port, 0);
        change(config);
    })
}

/// One that speaks both, and the port of memcached's protocols.
fn both(change: impl Fn(&mut duramen_server::Config)) -> (Server, u16) {
    let port = AtomicU16::new(0);
    let server = Server::with(|config| {
        let other = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        port.store(other, Ordering::Relaxed);
        config.memcached = other;
        change(config);
    });
    (server, port.into_inner())
}

fn on_file(path: &Path) -> impl Fn(&mut duramen_server::Config) {
    let path = path.to_owned();
    move |config| {
        config.medium = MediumKind::File;
        config.path.clone_from(&path);
    }
}

/// The CAS number of an item.
fn number(client: &mut Client, key: &str) -> u64 {
    client.send(format!("mg {key} c\r\n"));
    client.line().strip_prefix("HD c").unwrap().parse().unwrap()
}

#[test]
fn items_are_set_read_and_counted() {
    let server = alone();
    let mut client = server.client();
    client.says("set k 5 0 5\r\nhello", "STORED\r\n");
    client.says("get k nothing", "VALUE k 5 5\r\nhello\r\nEND\r\n");
    client.says("append k 0 0 1\r\n!", "STORED\r\n");
    client.says("mg k v f s", "VA 6 f5 s6\r\nhello!\r\n");
    client.says("incr k 1", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
    client.says("set n 0 0 2\r\n99", "STORED\r\n");
    client.says("incr n 1", "100\r\n");
    client.says("delete n", "DELETED\r\n");
    client.says("quit", "");
    client.expect_end();
}

#[test]
fn a_pipeline_is_answered_in_order_in_all_three_protocols() {
    let server = alone();
    let mut client = server.client();
    let mut wanted = String::new();
    for at in 0..2000 {
        client.send(format!("set k{at} 0 0 4 noreply\r\n{at:04}\r\nget k{at}\r\nmg k{at} v\r\n"));
        wanted += &format!("VALUE k{at} 0 4\r\n{at:04}\r\nEND\r\nVA 4\r\n{at:04}\r\n");
    }
    client.expect(wanted);
    let mut client = server.client();
    let packet = |opcode: u8, key: &str, opaque: u8| {
        let mut bytes =
            vec![0x80, opcode, 0, key.len() as u8, 0, 0, 0, 0, 0, 0, 0, key.len() as u8, opaque, 0, 0, 0];
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(key.as_bytes());
        bytes
    };
    // A miss, quietly, and a no-op after it.
    client.send([packet(0x09, "nothing", 1), packet(0x0a, "", 2)].concat());
    client.expect([&[0x81, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0][..], &[0; 8]].concat());
}

#[test]
fn a_shared_database_has_the_strings_of_both() {
    let (server, port) = both(|config| config.memcached_database = Some(3));
    let (mut redis, mut memcached) = (server.client(), Client::connect(port));
    redis.says("select 3", "+OK\r\n");
    memcached.says("set k 7 0 5\r\nhello", "STORED\r\n");
    redis.says("get k", "$5\r\nhello\r\n");
    redis.says("type k", "+string\r\n");
    redis.says("strlen k", ":5\r\n");
    redis.says("dbsize", ":1\r\n");
    redis.says("scan 0 type string", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n");
    redis.says("set r world", "+OK\r\n");
    memcached.says("get r", "VALUE r 0 5\r\nworld\r\nEND\r\n");
    // Each write of Redis's changes the number.
    let first = number(&mut memcached, "r");
    redis.says("set r world", "+OK\r\n");
    assert_ne!(number(&mut memcached, "r"), first);
    memcached.says(&format!("cas r 0 0 1 {first}\r\nx"), "EXISTS\r\n");
    // Counters of either.
    redis.says("incr n", ":1\r\n");
    memcached.says("incr n 9", "10\r\n");
    redis.says("incrby n 5", ":15\r\n");
    memcached.says("get n", "VALUE n 0 2\r\n15\r\nEND\r\n");
    // One client is asked to recache a value of Redis, too.
    redis.says("set r world ex 10", "+OK\r\n");
    memcached.says("mg r R30 v", "VA 5 W\r\nworld\r\n");
    memcached.says("mg r R30", "HD Z\r\n");
    redis.says("get r", "$5\r\nworld\r\n");
    // What Redis does to an item keeps, or loses, its flags as it does its bytes.
    redis.says("expire k 100", ":1\r\n");
    memcached.says("mg k f v", "VA 5 f7\r\nhello\r\n");
    memcached.send("mg k t\r\n");
    let left: u64 = memcached.line().strip_prefix("HD t").unwrap().parse().unwrap();
    assert!((60..=100).contains(&left), "{left}");
    redis.says("rename k l", "+OK\r\n");
    memcached.says("get l", "VALUE l 7 5\r\nhello\r\nEND\r\n");
    redis.says("multi", "+OK\r\n");
    redis.says("copy l m", "+QUEUED\r\n");
    redis.says("get m", "+QUEUED\r\n");
    redis.says("append m !", "+QUEUED\r\n");
    redis.says("exec", "*3\r\n:1\r\n$5\r\nhello\r\n:6\r\n");
    memcached.says("get m", "VALUE m 0 6\r\nhello!\r\nEND\r\n");
    // A value that is not a string exists, but is no item.
    redis.says("lpush list a", ":1\r\n");
    memcached.says("get list", "END\r\n");
    memcached.says("add list 0 0 1\r\nx", "NOT_STORED\r\n");
    memcached.says("incr list 1", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
    memcached.says("flush_all", "OK\r\n");
    redis.says("dbsize", ":0\r\n");
}

#[test]
fn a_counter_has_a_new_cas_number_after_each_change_by_any_protocol() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let shared = |config: &mut duramen_server::Config| {
        config.memcached_database = Some(0);
        config.medium = MediumKind::Shm;
        config.path = directory.path().join("store");
    };
    let (server, port) = both(shared);
    let (mut redis, mut memcached) = (server.client(), Client::connect(port));
    let mut other = Client::connect(port);
    memcached.says("set n 5 0 3\r\n100", "STORED\r\n");
    let (mut seen, mut last) = (std::collections::HashSet::new(), number(&mut memcached, "n"));
    // More than one record has numbers for; by two connections, which may be of two workers.
    for at in 0..600 {
        let client = if at % 3 == 0 { &mut other } else { &mut memcached };
        client.says("incr n 1", &format!("{}\r\n", 101 + at));
        let now = number(&mut memcached, "n");
        assert!(now > last && seen.insert(now), "{now} after {last}");
        last = now;
    }
    // In place only with the right number, and never with a number that was.
    memcached.says(&format!("ma n C{last} v"), "VA 3\r\n701\r\n");
    memcached.says(&format!("ma n C{last} v"), "EX\r\n");
    memcached.says(&format!("cas n 0 0 1 {last}\r\n7"), "EXISTS\r\n");
    last = number(&mut memcached, "n");
    memcached.says("get n", "VALUE n 5 3\r\n701\r\nEND\r\n");
    // A new time is another record, with the same number; memcached shows a shorter number with blanks after it.
    memcached.says("touch n 1000", "TOUCHED\r\n");
    assert_eq!(number(&mut memcached, "n"), last);
    memcached.says("decr n 700", "1\r\n");
    memcached.says("get n", "VALUE n 5 3\r\n1  \r\nEND\r\n");
    memcached.says("incr n 1", "2\r\n");
    redis.says("get n", "$3\r\n2  \r\n");
    redis.says("type n\r\nstrlen n", "+string\r\n:3\r\n");
    redis.says("incr n", "-ERR value is not an integer or out of range\r\n");
    redis.says("scan 0 type string", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nn\r\n");
    last = number(&mut memcached, "n");
    // WATCH notices a change in place.
    redis.says("watch n\r\nmulti", "+OK\r\n+OK\r\n");
    redis.says("get n", "+QUEUED\r\n");
    memcached.says("incr n 997", "999\r\n");
    redis.says("exec", "*-1\r\n");
    redis.says("incr n\r\ndecr n\r\nset n 41\r\nincr n", ":1000\r\n:999\r\n+OK\r\n:42\r\n");
    // Copies and new names keep flags, as they do of other items.
    memcached.says("set n 5 0 2\r\n41", "STORED\r\n");
    memcached.says("incr n 1\r\nincr n 1", "42\r\n43\r\n");
    redis.says(
        "multi\r\ncopy n m\r\nrename n o\r\ncopy o p\r\nget p",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n",
    );
    redis.says("exec", "*4\r\n:1\r\n+OK\r\n:1\r\n$2\r\n43\r\n");
    memcached.says("get m o p", "VALUE m 5 2\r\n43\r\nVALUE o 5 2\r\n43\r\nVALUE p 5 2\r\n43\r\nEND\r\n");
    memcached.says(
        "incr o 56\r\nincr o 1\r\nincr o 18446744073709551515",
        "99\r\n100\r\n18446744073709551615\r\n",
    );
    memcached.says("incr o 3\r\nincr o 1", "2\r\n3\r\n");
    memcached.says("incr p 1", "44\r\n");
    last = last.max(number(&mut memcached, "p"));
    drop((redis, memcached, other));
    server.stop().unwrap();
    let (_server, port) = both(shared);
    let mut memcached = Client::connect(port);
    memcached.says("get p", "VALUE p 5 2\r\n44\r\nEND\r\n");
    memcached.says("incr p 1", "45\r\n");
    assert!(number(&mut memcached, "p") > last);
}

#[test]
fn items_of_their_own_table_are_in_no_database() {
    let (server, port) = both(|_| {});
    let (mut redis, mut memcached) = (server.client(), Client::connect(port));
    memcached.says("set k 7 0 5\r\nhello", "STORED\r\n");
    redis.says("get k", "$-1\r\n");
    redis.says("dbsize", ":0\r\n");
    redis.says("flushall", "+OK\r\n");
    memcached.says("get k", "VALUE k 7 5\r\nhello\r\nEND\r\n");
    redis.says("set k x", "+OK\r\n");
    memcached.says("flush_all", "OK\r\n");
    redis.says("get k", "$1\r\nx\r\n");
    let info = redis.text("info memcached");
    assert!(info.contains("memcached_cmd_set:1\r\n") && info.contains("memcached_get_hits:1\r\n"), "{info}");
    redis.says("config resetstat", "+OK\r\n");
    assert!(redis.text("info memcached").contains("memcached_cmd_set:0\r\n"));
}

#[test]
fn cas_numbers_are_not_reused_after_a_restart_and_items_remain() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..4 {
        let server = alone_with(on_file(&path));
        let mut client = server.client();
        if round > 0 {
            client.says("get kept", "VALUE kept 9 5\r\nvalue\r\nEND\r\n");
        }
        client.says("set kept 9 0 5\r\nvalue", "STORED\r\n");
        for _ in 0..50 {
            client.says("set k 0 0 1\r\nx", "STORED\r\n");
            assert!(seen.insert(number(&mut client, "k")));
            client.says("incr k 1", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
            client.says("delete k", "DELETED\r\n");
        }
        drop(client);
        server.stop().unwrap();
    }
}

#[test]
fn a_delayed_flush_happens_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let server = alone_with(on_file(&path));
    let mut client = server.client();
    client.says("set k 0 0 1\r\nx", "STORED\r\n");
    client.says("flush_all 3", "OK\r\n");
    client.says("get k", "VALUE k 0 1\r\nx\r\nEND\r\n");
    drop(client);
    server.stop().unwrap();
    std::thread::sleep(Duration::from_millis(3100));
    let server = alone_with(on_file(&path));
    let mut client = server.client();
    client.says("get k", "END\r\n");
    client.says("set k 0 0 1\r\ny", "STORED\r\n");
    client.says("get k", "VALUE k 0 1\r\ny\r\nEND\r\n");
}

#[test]
fn incomplete_lines_and_slow_clients_are_waited_for() {
    let server = alone();
    let (mut slow, mut quick) = (server.client(), server.client());
    for byte in b"set k 0 0 10\r\n0123456789\r\nget k\r\n" {
        slow.send([*byte]);
        quick.says("mn", "MN\r\n");
    }
    slow.expect("STORED\r\nVALUE k 0 10\r\n0123456789\r\nEND\r\n");
    // A line that does not end, and is none that may be long.
    slow.send("x".repeat(5000));
    slow.expect_end();
    // A get may be.
    let mut long = server.client();
    for _ in 0..1000 {
        long.send(format!("get {} ", "nothing ".repeat(100)));
        long.send("\r\n");
        long.expect("END\r\n");
    }
    let mut endless = server.client();
    endless.send("get ");
    for _ in 0..2000 {
        endless.send("nothing k ".repeat(10));
    }
    endless.send("\r\n");
    for _ in 0..20_000 {
        endless.expect("VALUE k 0 10\r\n0123456789\r\n");
    }
    endless.expect("END\r\n");
}

#[test]
fn data_of_too_large_items_is_skipped_without_being_buffered() {
    let server = alone_with(|config| config.memcached_max_item_size = 4096);
    let mut client = server.client();
    client.says("set k 0 0 1\r\nx", "STORED\r\n");
    client.send("set k 0 0 100000000\r\n");
    client.expect("SERVER_ERROR object too large for cache\r\n");
    let part = vec![b'y'; 1 << 20];
    let mut left = 100_000_000usize;
    while left > 0 {
        let bytes = left.min(part.len());
        client.send(&part[..bytes]);
        left -= bytes;
    }
    client.says("\r\nget k", "END\r\n");
    client.says("set k 0 0 4000\r\nshort", "");
    client.send("x".repeat(3993));
    client.expect("");
    client.says("", "STORED\r\n");
    // Keys that are longer than any.
    let key = "k".repeat(2000);
    client.says(&format!("get {key}"), "CLIENT_ERROR bad command line format\r\n");
    client.says(&format!("mg {key}"), "CLIENT_ERROR bad command line format\r\n");
}

#[test]
fn the_password_is_required_in_both_protocols() {
    let (server, port) = both(|config| config.requirepass = "secret".to_owned());
    drop(server.client());
    let mut client = Client::connect(port);
    client.says("get k", "CLIENT_ERROR unauthenticated\r\n");
    client.says("set auth 0 0 14\r\ndefault secrex", "CLIENT_ERROR authentication failure\r\n");
    client.says("set auth 0 0 5\r\nalone", "CLIENT_ERROR bad authentication token format\r\n");
    client.says("set auth 0 0 14\r\ndefault secret", "STORED\r\n");
    client.says("get k", "END\r\n");
    let plain = |password: &str| {
        let value = format!("\0default\0{password}");
        let body = 5 + value.len() as u8;
        let mut bytes = vec![0x80, 0x21, 0, 5, 0, 0, 0, 0, 0, 0, 0, body];
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(b"PLAIN");
        bytes.extend_from_slice(value.as_bytes());
        bytes
    };
    let mut client = Client::connect(port);
    client.send(plain("wrong"));
    client.expect([&[0x81, 0x21, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 13][..], &[0; 12], b"Auth failure."].concat());
    client.send(plain("secret"));
    client.expect([&[0x81, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 13][..], &[0; 12], b"Authenticated"].concat());
    // A version, now that it may ask.
    client.send([&[0x80, 0x0b][..], &[0; 22]].concat());
    client.expect([&[0x81, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6][..], &[0; 12], b"1.6.18"].concat());
    let mut client = Client::connect(port);
    client.send([&[0x80, 0x0a][..], &[0; 22]].concat());
    client.expect([&[0x81, 0x0a, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 13][..], &[0; 12], b"Auth failure."].concat());
    client.expect_end();
}

#[test]
fn a_unix_socket_and_shutdown_serve_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("memcached.sock").display().to_string();
    let server = Server::with(|config| {
        config.memcached_socket.clone_from(&path);
        config.memcached_enable_shutdown = true;
    });
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"set k 0 0 1\r\nx\r\nget k\r\nshutdown x\r\nshutdown\r\n").unwrap();
    let mut said = String::new();
    let _ = client.read_to_string(&mut said);
    assert_eq!(said, "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\nCLIENT_ERROR invalid shutdown mode\r\n");
    server.wait().unwrap();
}

#[test]
fn refused_connections_get_an_error_of_their_protocol() {
    let server = alone_with(|config| config.maxclients = 1);
    let mut first = server.client();
    first.says("mn", "MN\r\n");
    let mut second = server.client();
    second.expect("ERROR Too many open connections\r\n");
    second.expect_end();
    drop(first);
    eventually("a connection is let in again", || {
        let mut client = server.client();
        client.send("mn\r\n");
        let mut byte = [0];
        client.0.read(&mut byte).is_ok() && byte == *b"M"
    });
}

#[test]
fn items_are_listed_by_both_commands_and_a_long_list_delays_no_client() {
    let server = alone();
    let (mut client, mut other) = (server.client(), server.client());
    client.send("set a:1 5 0 3\r\nabc\r\nset b% 0 1000 1\r\nx\r\nget a:1\r\n");
    client.expect("STORED\r\nSTORED\r\nVALUE a:1 5 3\r\nabc\r\nEND\r\n");
    client.send("stats cachedump 1 0\r\n");
    let mut items: Vec<String> = (0..3).map(|_| client.line()).collect();
    items.sort();
    assert!(
        items[0] == "END" && items[1] == "ITEM a:1 [3 b; 0 s]" && items[2].starts_with("ITEM b% [1 b; "),
        "{items:?}"
    );
    client.send("stats cachedump 1 1\r\n");
    assert!(client.line().starts_with("ITEM ") && client.line() == "END");
    client.says("stats cachedump 2 0\r\nstats cachedump 64 0", "END\r\nCLIENT_ERROR Illegal slab id\r\n");
    client.says(
        "stats cachedump\r\nstats cachedump x 1",
        "CLIENT_ERROR bad command line\r\nCLIENT_ERROR bad command line format\r\n",
    );
    client.says("lru_crawler metadump 2\r\nlru_crawler metadump x", "END\r\nBADCLASS invalid class id\r\n");
    const ITEMS: usize = 30_000;
    let all: String = (0..ITEMS).map(|at| format!("set k{at} 0 0 1 noreply\r\nx\r\n")).collect();
    other.send(all);
    other.says("version", "VERSION 1.6.18\r\n");
    for which in ["all", "1,3"] {
        client.send(format!("lru_crawler metadump {which}\r\nversion\r\n"));
        let mut text = String::new();
        let mut buffer = [0; 65536];
        while !text.ends_with("END\r\nVERSION 1.6.18\r\n") {
            let bytes = client.0.read(&mut buffer).unwrap();
            text.push_str(std::str::from_utf8(&buffer[..bytes]).unwrap());
            other.says("get none", "END\r\n");
        }
        let keys: std::collections::BTreeSet<&str> =
            text.split('\n').filter_map(|line| line.strip_prefix("key=")?.split(' ').next()).collect();
        assert!(keys.len() == ITEMS + 2 && keys.contains("a%3A1") && keys.contains("b%25"), "{}", keys.len());
        let first = text.split('\n').find(|line| line.starts_with("key=a%3A1 ")).unwrap();
        assert!(first.contains(" exp=-1 la=") && first.ends_with(" fetch=yes cls=1 size=69"), "{first}");
    }
    // The same in packets, of the other subject that has a name of two words.
    let mut packets = server.client();
    for (key, named) in [("detail on", ""), ("detail dump", "detailed"), ("detail off", "")] {
        let mut packet = vec![0; 24];
        (packet[0], packet[1], packet[3], packet[11]) = (0x80, 0x10, key.len() as u8, key.len() as u8);
        packet.extend_from_slice(key.as_bytes());
        packets.send(packet);
        let mut names = Vec::new();
        loop {
            let mut head = [0; 24];
            packets.0.read_exact(&mut head).unwrap();
            assert_eq!(head[6..8], [0, 0], "{key}");
            let mut body = vec![0; head[11] as usize];
            packets.0.read_exact(&mut body).unwrap();
            if head[3] == 0 {
                break;
            }
            names.push(String::from_utf8(body[..head[3] as usize].to_vec()).unwrap());
        }
        assert_eq!(names.join(" "), named, "{key}");
    }
}
