//! CLIENT TRACKING over sockets: no copy remains without an invalidation, on any workers.

use crate::support::{Client, Server, eventually};

fn tracking(server: &Server, options: &str) -> Client {
    let mut client = server.client();
    client.hello_3();
    client.says(&format!("client tracking on {options}"), "+OK\r\n");
    client
}

fn invalidation(keys: &[&str]) -> String {
    let keys: String = keys.iter().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect();
    format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n{keys}")
}

#[test]
fn a_cached_copy_is_invalidated_during_concurrent_writes() {
    let server = Server::with(|config| config.threads = 3);
    const WRITES: usize = 500;
    // On all workers.
    let mut readers: Vec<Client> = (0..3).map(|_| tracking(&server, "")).collect();
    std::thread::scope(|scope| {
        for reader in &mut readers {
            scope.spawn(|| {
                // Reads whenever it has no copy, and is notified again after each copy until the last one.
                let mut copy = String::new();
                while copy != (3 * WRITES).to_string() {
                    reader.send("get n\r\n");
                    let mut is_told = false;
                    loop {
                        let line = reader.line();
                        match line.as_str() {
                            ">2" => {
                                (0..5).for_each(|_| drop(reader.line()));
                                // Before its own reply it is about a copy that is none any more.
                                is_told = true;
                            }
                            "$-1" | "_" => copy.clear(),
                            _ if line.starts_with('$') => copy = reader.line(),
                            other => panic!("{other}"),
                        }
                        // The last value is not invalidated.
                        if copy == (3 * WRITES).to_string() || is_told {
                            break;
                        }
                    }
                }
            });
        }
        for _ in 0..3 {
            let mut writer = server.client();
            scope.spawn(move || {
                for _ in 0..WRITES {
                    writer.send("incr n\r\n");
                    assert!(writer.line().starts_with(':'));
                }
            });
        }
    });
}

#[test]
fn writes_of_elements_and_by_served_clients_invalidate() {
    let server = Server::with(|config| config.small_collection_bytes_max = 64);
    let (mut reader, mut writer, mut waits) = (tracking(&server, ""), server.client(), server.client());
    let fields: String = (0..200).map(|at| format!(" f{at} v{at}")).collect();
    writer.says(&format!("hset h{fields}"), ":200\r\n");
    for (command, reply) in [
        ("hset h f7 w", ":0\r\n"),
        ("hset h new w", ":1\r\n"),
        ("hdel h f9", ":1\r\n"),
        ("expire h 100", ":1\r\n"),
    ] {
        reader.says("hget h f1", "$2\r\nv1\r\n");
        writer.says(command, reply);
        reader.expect(invalidation(&["h"]));
    }
    reader.says("llen to", ":0\r\n");
    waits.send("blmove from to left left 0\r\n");
    eventually("one that waits", || writer.text("info clients").contains("blocked_clients:1"));
    writer.says("rpush from x", ":1\r\n");
    waits.expect("$1\r\nx\r\n");
    reader.expect(invalidation(&["to"]));
}

#[test]
fn a_resp2_redirection_gets_invalidations_and_its_end_is_reported() {
    let server = Server::start();
    let (mut listener, mut writer) = (server.client(), server.client());
    listener.says("client id", ":1\r\n");
    listener.says(
        "subscribe __redis__:invalidate",
        "*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n:1\r\n",
    );
    let mut reader = server.client();
    reader.says("client tracking on redirect 1", "+OK\r\n");
    reader.says("client getredir", ":1\r\n");
    reader.says("get k", "$-1\r\n");
    writer.says("set k v", "+OK\r\n");
    listener.expect("*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\nk\r\n");
    writer.says("flushall", "+OK\r\n");
    listener.expect("*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n$-1\r\n");
    let mut third = tracking(&server, "redirect 1");
    third.says("get k", "_\r\n");
    drop(listener);
    eventually("the listener gone", || !writer.text("client list").contains("id=1 "));
    writer.says("set k v", "+OK\r\n");
    third.expect(">2\r\n$21\r\ntracking-redir-broken\r\n:1\r\n");
    assert!(third.text("client list").contains("flags=tR"));
}

#[test]
fn keys_beyond_the_table_limit_are_invalidated() {
    let server = Server::with(|config| config.tracking_table_max_keys = 10);
    let mut reader = tracking(&server, "");
    let mut told = 0;
    for at in 0..50 {
        reader.send(format!("get k{at}\r\n"));
        loop {
            match reader.line().as_str() {
                "_" => break,
                ">2" => told += 1,
                _ => {}
            }
        }
    }
    eventually("those beyond ten", || {
        reader.send("echo end\r\n");
        loop {
            match reader.line().as_str() {
                "end" => break,
                ">2" => told += 1,
                _ => {}
            }
        }
        told == 40
    });
    let text = server.client().text("info everything");
    assert!(text.contains("tracking_clients:1\r\n") && text.contains("tracking_total_keys:10\r\n"));
    drop(reader);
    eventually("nothing remembered", || {
        server.client().text("info stats").contains("tracking_total_keys:0\r\n")
    });
}

#[test]
fn prefix_tracking_reports_expired_keys_of_any_writer() {
    let server = Server::start();
    // NOLOOP is about what a client writes itself, and to expire is nobody's doing.
    let mut client = tracking(&server, "bcast noloop");
    let mut other = server.client();
    client.says("set swept x px 1", "+OK\r\n");
    client.expect(invalidation(&["swept"]));
    other.says("debug sleep 0", "+OK\r\n");
    client.says("set met x px 1", "+OK\r\n");
    std::thread::sleep(std::time::Duration::from_millis(5));
    // Whether its reader or the store finds it first, it is reported once.
    other.says("get met", "$-1\r\n");
    client.expect(invalidation(&["met"]));
    client.says("ping", "+PONG\r\n");
}

#[test]
fn a_client_is_notified_at_once_when_its_redirection_quits() {
    let server = Server::start();
    let (mut target, mut other) = (server.client(), server.client());
    target.send("client id\r\n");
    let id = target.line()[1..].to_owned();
    target.says(
        "subscribe __redis__:invalidate",
        "*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n:1\r\n",
    );
    let mut client = tracking(&server, &format!("redirect {id}"));
    client.says("get k", "_\r\n");
    // The connection itself stays until its client closes it, or a second.
    target.says("quit", "+OK\r\n");
    assert!(!other.text("client list").contains(&format!("id={id} ")));
    other.says("set k 1", "+OK\r\n");
    client.expect(format!(">2\r\n$21\r\ntracking-redir-broken\r\n:{id}\r\n"));
}

#[test]
fn a_flush_forgets_all_keys_and_invalidates_with_null() {
    let server = Server::start();
    let mut client = tracking(&server, "");
    let mut other = server.client();
    for flush in ["flushall", "flushdb", "multi\r\nflushdb\r\nexec"] {
        other.says("set a 1", "+OK\r\n");
        client.says("get a", "$1\r\n1\r\n");
        let said = if flush.starts_with("multi") { "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n" } else { "+OK\r\n" };
        other.says(flush, said);
        client.expect(">2\r\n$10\r\ninvalidate\r\n_\r\n");
        assert!(other.text("info stats").contains("tracking_total_keys:0\r\n"), "{flush}");
        // It keeps nothing of it any more.
        other.says("set a 1", "+OK\r\n");
        client.says("ping", "+PONG\r\n");
    }
}

#[test]
fn a_served_client_gets_the_invalidation_of_its_own_write_after_its_reply() {
    let server = Server::start();
    let (mut waits, mut writer) = (tracking(&server, ""), server.client());
    waits.says("llen from\r\nllen to", ":0\r\n:0\r\n");
    waits.send("blmove from to left left 0\r\n");
    eventually("one that waits", || writer.text("info clients").contains("blocked_clients:1"));
    writer.says("rpush from x", ":1\r\n");
    waits.expect("$1\r\nx\r\n");
    let told = [invalidation(&["from"]), invalidation(&["to"])];
    let mut first = vec![0; told[0].len()];
    std::io::Read::read_exact(&mut waits.0, &mut first).unwrap();
    waits.expect(if first == told[0].as_bytes() { &told[1] } else { &told[0] });
}
