//! What an operator asks and does: CLIENT PAUSE, MONITOR, SLOWLOG, WAIT and the times of commands, over sockets and across workers.

use crate::support::{Client, Server, eventually};
use std::io::Read;
use std::time::{Duration, Instant};

fn clients(server: &Server, count: usize) -> Vec<Client> {
    (0..count).map(|_| server.client()).collect()
}

#[test]
fn requests_are_in_the_query_buffer_and_unlinked_keys_are_counted() {
    let server = Server::start();
    let mut client = server.client();
    let request = "*2\r\n$6\r\nclient\r\n$4\r\ninfo\r\n";
    let info = client.text(request.trim_end());
    assert!(info.contains(&format!(" qbuf={} ", request.len())), "{info}");
    // And a request in the same packet.
    client.send(format!("{request}*1\r\n$4\r\nping\r\n"));
    let bytes = client.line()[1..].parse::<usize>().unwrap();
    let mut info = vec![0; bytes + 2];
    client.0.read_exact(&mut info).unwrap();
    let info = String::from_utf8(info).unwrap();
    assert!(info.contains(&format!(" qbuf={} ", request.len() + 14)), "{info}");
    client.expect("+PONG\r\n");
    assert!(client.field("clients", "client_recent_max_input_buffer") >= request.len() as u64);
    client.says("mset a 1 b 2 c 3 d 4", "+OK\r\n");
    client.says("unlink a absent", ":1\r\n");
    client.says("del b", ":1\r\n");
    assert_eq!(client.field("memory", "lazyfreed_objects"), 1);
    client.says("flushall async", "+OK\r\n");
    assert_eq!(client.field("memory", "lazyfreed_objects"), 3);
    client.says("config resetstat", "+OK\r\n");
    assert_eq!(client.field("memory", "lazyfreed_objects"), 0);
}

#[test]
fn a_pause_holds_writes_of_all_workers_and_lets_reads_continue() {
    let server = Server::with(|config| config.threads = 3);
    let (mut admin, mut writers) = (server.client(), clients(&server, 6));
    admin.says("client pause 60000 write", "+OK\r\n");
    for (at, writer) in writers.iter_mut().enumerate() {
        // What stands before the one that is held is answered.
        writer.send(format!("get k{at}\r\nset k{at} v\r\nget k{at}\r\n"));
        writer.expect("$-1\r\n");
    }
    eventually("six that wait", || admin.text("info clients").contains("blocked_clients:6"));
    for at in 0..6 {
        admin.says(&format!("get k{at}"), "$-1\r\n");
    }
    admin.says("client unpause", "+OK\r\n");
    for writer in &mut writers {
        writer.expect("+OK\r\n$1\r\nv\r\n");
    }
}

#[test]
fn a_pause_of_all_clients_ends_and_a_held_client_that_disconnects_did_nothing() {
    let server = Server::start();
    let mut clients = clients(&server, 2);
    let begun = Instant::now();
    clients[0].says("client pause 300 all", "+OK\r\n");
    clients[1].send("set k v\r\n");
    drop(clients.pop());
    clients[0].says("get k", "$-1\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    // A transaction that writes nothing is not held, one that does is, and EXEC too.
    clients[0].says("multi", "+OK\r\n");
    clients[0].says("set k w", "+QUEUED\r\n");
    let mut admin = server.client();
    admin.says("client pause 60000 write", "+OK\r\n");
    clients[0].send("exec\r\n");
    eventually("one that waits", || admin.text("info clients").contains("blocked_clients:1"));
    admin.says("multi", "+OK\r\n");
    admin.says("get k", "+QUEUED\r\n");
    admin.says("exec", "*1\r\n$-1\r\n");
    admin.says("client unpause", "+OK\r\n");
    clients[0].expect("*1\r\n+OK\r\n");
}

#[test]
fn a_monitor_is_shown_commands_of_all_workers_in_their_order() {
    let server = Server::with(|config| config.threads = 3);
    let mut monitors = clients(&server, 3);
    for monitor in &mut monitors {
        monitor.says("monitor", "+OK\r\n");
    }
    const COMMANDS: usize = 300;
    std::thread::scope(|scope| {
        for name in ["x", "y", "z"] {
            let mut client = server.client();
            scope.spawn(move || {
                (0..COMMANDS).for_each(|at| client.says(&format!("set {name} {at}"), "+OK\r\n"))
            });
        }
    });
    let mut orders = monitors.iter_mut().map(|monitor| {
        let lines = (0..3 * COMMANDS).map(|_| monitor.line().split_once("] ").unwrap().1.to_owned());
        lines.collect::<Vec<_>>()
    });
    let first = orders.next().unwrap();
    for name in ["x", "y", "z"] {
        let of = format!("\"set\" \"{name}\" ");
        let own: Vec<_> = first.iter().filter(|line| line.starts_with(&of)).cloned().collect();
        assert_eq!(own, (0..COMMANDS).map(|at| format!("{of}\"{at}\"")).collect::<Vec<_>>());
    }
    assert!(orders.all(|other| other == first));
    // A monitor that leaves is forgotten; one that stays is shown the following commands.
    let last = monitors.pop();
    drop(last);
    server.client().says("get none", "$-1\r\n");
    assert!(monitors[0].line().ends_with("\"get\" \"none\""));
    assert!(server.client().text("client list").matches("flags=O").count() >= 2);
}

#[test]
fn the_slow_log_has_each_command_of_a_pipeline_with_its_time() {
    let server = Server::start();
    let mut client = server.client();
    client.says("config set slowlog-log-slower-than 0", "+OK\r\n");
    client.says("slowlog reset", "+OK\r\n");
    client.send("set a 1\r\nset a 2\r\nget a\r\n");
    client.expect("+OK\r\n+OK\r\n$1\r\n2\r\n");
    // Of three and SLOWLOG RESET itself.
    client.says("slowlog len", ":4\r\n");
    client.send("slowlog get 4\r\n");
    let lines: Vec<String> =
        (0..4 * 14 + 1).map(|_| client.line()).take_while(|line| line != "+end").collect();
    let text = lines.join(" ");
    assert!(text.starts_with("*4 *6 "), "{text}");
    for args in ["$7 slowlog $3 len", "$3 get $1 a", "$3 set $1 a $1 2", "$3 set $1 a $1 1"] {
        assert!(text.contains(args), "{args}: {text}");
    }
}

#[test]
fn wait_is_answered_at_its_timeout_and_earlier_commands_at_once() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.says("wait 0 60000", ":0\r\n");
    let begun = Instant::now();
    client.send("set k v\r\nwait 1 300\r\nget k\r\n");
    client.expect("+OK\r\n");
    assert!(begun.elapsed() < Duration::from_millis(250));
    client.expect(":0\r\n$1\r\nv\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    client.says("client id", ":1\r\n");
    client.send("wait 1 0\r\n");
    eventually("one that waits", || other.text("info clients").contains("blocked_clients:1"));
    other.says("client unblock 1", ":1\r\n");
    client.expect(":0\r\n");
}

#[test]
fn times_of_commands_are_counted_until_they_are_reset() {
    let server = Server::start();
    let mut clients = clients(&server, 4);
    let of_get = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("latency_percentiles_usec_get:"));
        line.map(|line| {
            line.split(['=', ',']).skip(1).step_by(2).map(|us| us.parse().unwrap()).collect::<Vec<f64>>()
        })
    };
    assert_eq!(of_get(&clients[0].text("info latencystats")), None);
    for client in &mut clients {
        client.send("get k\r\n".repeat(100));
        client.expect("$-1\r\n".repeat(100));
    }
    let percentiles = of_get(&clients[0].text("info latencystats")).unwrap();
    assert!(percentiles.len() == 3 && percentiles[0] > 0.0 && percentiles.is_sorted(), "{percentiles:?}");
    clients[0].send("latency histogram get\r\n");
    clients[0].expect("*2\r\n$3\r\nget\r\n*4\r\n$5\r\ncalls\r\n:400\r\n");
    let mut client = server.client();
    client.says("config resetstat", "+OK\r\n");
    client.says("latency histogram get", "*0\r\n");
    client.says("config set latency-tracking no", "+OK\r\n");
    client.says("get k", "$-1\r\n");
    client.says("latency histogram get", "*0\r\n");
}

#[test]
fn a_shorter_pause_does_not_shorten_a_longer_one() {
    let server = Server::start();
    let (mut admin, mut client) = (server.client(), server.client());
    let begun = Instant::now();
    admin.says("client pause 1500 write\r\nclient pause 10 write", "+OK\r\n+OK\r\n");
    std::thread::sleep(Duration::from_millis(50));
    client.send("set k v\r\n");
    eventually("one that waits", || admin.text("info clients").contains("blocked_clients:1"));
    // All is more than writes, until the end of both.
    admin.says("client pause 100 all\r\nget k", "+OK\r\n");
    assert!(admin.line().starts_with('$') && begun.elapsed() >= Duration::from_millis(1500));
    client.expect("+OK\r\n");
    // One that is over has no say.
    let mut other = server.client();
    other.says("client pause 20 all\r\nget absent", "+OK\r\n$-1\r\n");
    other.says("client pause 60000 write\r\nget absent\r\nclient unpause", "+OK\r\n$-1\r\n+OK\r\n");
}

#[test]
fn a_command_that_waits_is_in_the_slow_log_once_when_it_is_served() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    other.says("config set slowlog-log-slower-than 0\r\nslowlog reset", "+OK\r\n+OK\r\n");
    client.send("blpop q 0\r\n");
    eventually("one that waits", || other.text("info clients").contains("blocked_clients:1"));
    let entries = |other: &mut Client| {
        other.send("slowlog get -1\r\nping\r\n");
        let lines: Vec<_> =
            std::iter::from_fn(|| Some(other.line()).filter(|line| line != "+PONG")).collect();
        lines.iter().filter(|line| *line == "blpop").count()
    };
    assert_eq!(entries(&mut other), 0);
    other.says("rpush q x", ":1\r\n");
    client.expect("*2\r\n$1\r\nq\r\n$1\r\nx\r\n");
    assert_eq!(entries(&mut other), 1);
    // One whose time runs out is in none.
    other.says("slowlog reset", "+OK\r\n");
    client.says("blpop q 0.01", "*-1\r\n");
    assert_eq!(entries(&mut other), 0);
}

#[test]
fn save_writes_a_file_that_another_server_imports_and_replaces_no_other() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::with(|config| config.dir = place.path().display().to_string());
    let mut client = server.client();
    let changes = |client: &mut Client| {
        let text = client.text("info persistence");
        let line = text.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:")).unwrap();
        line.parse::<u64>().unwrap()
    };
    client.says("set a 1\r\nrpush l x y\r\nincr n\r\nincr n", "+OK\r\n:2\r\n:1\r\n:2\r\n");
    client.says("select 3\r\nset b 2 px 100000000\r\nselect 0", "+OK\r\n+OK\r\n+OK\r\n");
    assert_eq!(changes(&mut client), 5);
    client.send("bgsave\r\n");
    assert!(client.line().starts_with("-ERR BGSAVE is not supported, no file was written: SAVE "));
    assert!(!place.path().join("dump.rdb").exists());
    let dir = place.path().display().to_string();
    client.says("config get dir", &format!("*2\r\n$3\r\ndir\r\n${}\r\n{dir}\r\n", dir.len()));
    for _ in 0..2 {
        client.says("save", "+OK\r\n");
        assert_eq!(changes(&mut client), 0);
        client.says("set a 1", "+OK\r\n");
        assert_eq!(changes(&mut client), 1);
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "the file alone");
    let file = std::fs::File::open(place.path().join("dump.rdb")).unwrap();
    let store = duramen::Options { medium: duramen::MediumKind::Volatile, ..Default::default() };
    let store = store.open(place.path().join("store")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut told = |_: &duramen_server::import::Done| ();
    let mut import =
        duramen_server::import::Import::new(store, Default::default(), &stop, &mut told).unwrap();
    import.rdb(file).map(drop).unwrap();
    assert_eq!(import.done().keys, 4);
    // What another program wrote stays.
    std::fs::write(
        place.path().join("dump.rdb"),
        b"REDIS0010\xfa\x09redis-ver\x057.0.1 and more than is looked at",
    )
    .unwrap();
    client.send("save\r\n");
    let refused = client.line();
    assert!(refused.contains("another program wrote") && refused.contains("--dbfilename"), "{refused}");
    assert!(std::fs::read(place.path().join("dump.rdb")).unwrap().starts_with(b"REDIS0010\xfa\x09redis-ver"));
}

#[test]
fn info_reports_the_used_memory_and_expired_keys() {
    let server = Server::start();
    let mut client = server.client();
    let before = client.field("everything", "used_memory");
    let value = "v".repeat(50_000);
    client.send(format!("set k {value}\r\n").repeat(100));
    client.expect("+OK\r\n".repeat(100));
    client.says("set gone v px 1", "+OK\r\n");
    eventually("it has expired", || client.field("everything", "expired_keys") == 1);
    let after = client.field("everything", "used_memory");
    assert!(
        after >= before + 50_000 && client.field("everything", "used_memory_peak") >= after,
        "{before} {after}"
    );
    assert_eq!(after, client.field("everything", "duramen_used_bytes"));
    client.says("config resetstat", "+OK\r\n");
    assert_eq!(
        (client.field("everything", "expired_keys"), client.field("everything", "evicted_keys")),
        (0, 0)
    );
    if duramen::tuning::HAS_CLOCK {
        eventually("it is idle", || {
            client.send("object idletime k\r\n");
            client.line()[1..].parse::<u64>().unwrap() >= 2
        });
    }
    for (name, value) in [
        ("maxmemory-clients", "10%"),
        ("maxmemory-clients", "1048576"),
        ("save", "3600 1 300 100"),
        ("save", ""),
        ("bind-source-addr", "127.0.0.1"),
    ] {
        client.says(&format!("config set {name} '{value}'"), "+OK\r\n");
        client.says(
            &format!("config get {name}"),
            &format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n", name.len(), value.len()),
        );
    }
    client.says(
        "config set appendonly no\r\nconfig get appendonly",
        "+OK\r\n*2\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n",
    );
    client.says(
        "config set maxmemory-clients 101%",
        "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - percentage argument must be less or equal to 100\r\n",
    );
}
