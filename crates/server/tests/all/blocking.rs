//! Blocking commands over sockets: several clients, on one worker and on two, that connect, disconnect and are killed.

use crate::support::{Client, Server, eventually};
use duramen::MediumKind;
use duramen_server::config::Allowed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn servers() -> [Server; 2] {
    [1, 2].map(|threads| Server::with(|config| config.threads = threads))
}

/// The number of waiting clients in INFO.
fn waiting(client: &mut Client) -> usize {
    let info = client.text("info clients");
    let line = info.lines().find_map(|line| line.strip_prefix("blocked_clients:")).unwrap();
    line.parse().unwrap()
}

/// Sends a command that waits, and comes back when it does.
fn block(client: &mut Client, line: &str, other: &mut Client) {
    let before = waiting(other);
    client.send(format!("{line}\r\n"));
    eventually("the client waits", || waiting(other) == before + 1);
}

fn pair(key: &str, element: &str) -> String {
    format!("*2\r\n${}\r\n{key}\r\n${}\r\n{element}\r\n", key.len(), element.len())
}

#[test]
fn waiters_are_served_in_order_of_arrival_on_any_workers() {
    for server in servers() {
        let mut writer = server.client();
        for round in 0..3 {
            let mut clients: Vec<Client> = (0..7).map(|_| server.client()).collect();
            for (at, client) in clients.iter_mut().enumerate() {
                let command = ["blpop other q 0", "brpop q 0", "blpop q q 100"][at % 3];
                block(client, command, &mut writer);
            }
            // One by one, several at once, and within MULTI.
            writer.says("rpush q 0\r\nrpush q 1 2", ":1\r\n:2\r\n");
            writer.says(
                "multi\r\nrpush q 3\r\nrpush q 4\r\nexec",
                "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:2\r\n",
            );
            writer.says("rpush q 5 6 rest", ":3\r\n");
            // A client that pops from the right gets the rightmost element at that time.
            for (client, element) in clients.iter_mut().zip(["0", "2", "1", "3", "4", "5", "6"]) {
                client.expect(pair("q", element));
            }
            writer.says("lrange q 0 -1\r\ndel q", "*1\r\n$4\r\nrest\r\n:1\r\n");
            assert_eq!(waiting(&mut writer), 0, "round {round}");
        }
    }
}

#[test]
fn a_disconnected_client_takes_no_element() {
    for server in servers() {
        let mut writer = server.client();
        for command in [
            "blpop a q 0",
            "brpop q 0",
            "bzpopmin q 0",
            "blmove q b left left 0",
            "xread block 0 streams q $",
        ] {
            let mut client = server.client();
            block(&mut client, command, &mut writer);
            drop(client);
            eventually("nobody waits", || waiting(&mut writer) == 0);
            writer.says("rpush q x\r\nllen q\r\ndel q", ":1\r\n:1\r\n:1\r\n");
        }
        // Nor one that ends its sending only, as in the reference.
        let mut client = server.client();
        block(&mut client, "blpop q 0", &mut writer);
        client.0.shutdown(std::net::Shutdown::Write).unwrap();
        client.expect_end();
        writer.says("rpush q x\r\nllen q", ":1\r\n:1\r\n");
    }
}

#[test]
fn elements_for_a_killed_client_are_put_back() {
    for server in servers() {
        let mut writer = server.client();
        writer.says("rpush done x\r\ndel done", ":1\r\n:1\r\n");
        for round in 0..60 {
            let mut client = server.client();
            client.send("client id\r\n");
            let id = client.line()[1..].to_owned();
            let (command, push, left) = match round % 3 {
                0 => ("brpop a q 0", "rpush q 1 2 3", "lrange q 0 -1"),
                1 => ("blmpop 0 1 q left count 2", "rpush q 1 2 3", "lrange q 0 -1"),
                _ => ("bzmpop 0 1 q max count 2", "zadd q 1 1 2 2 3 3", "zrange q 0 -1"),
            };
            block(&mut client, command, &mut writer);
            // Killed before it is served, in one turn: its worker has closed it or not when the push comes.
            writer.says(&format!("client kill id {id}\r\n{push}"), ":1\r\n:3\r\n");
            eventually("all is there", || {
                writer.send(format!("{left}\r\n"));
                let count: usize = writer.line()[1..].parse().unwrap();
                let all: Vec<String> = (0..count)
                    .map(|_| {
                        writer.line();
                        writer.line()
                    })
                    .collect();
                all == ["1", "2", "3"]
            });
            writer.says("del q", ":1\r\n");
            client.expect_end();
        }
        assert_eq!(waiting(&mut writer), 0);
    }
}

#[test]
fn elements_for_a_killed_client_are_put_back_after_a_batch_of_other_commands() {
    for server in servers() {
        let mut writer = server.client();
        for _ in 0..20 {
            let mut client = server.client();
            client.send("client id\r\n");
            let id = client.line()[1..].to_owned();
            block(&mut client, "blmpop 0 1 q left count 2", &mut writer);
            // Once the client is served nobody waits, and the commands after the push run as one.
            let pair = "*3\r\n$5\r\nrpush\r\n$5\r\nother\r\n$1\r\nx\r\n*2\r\n$4\r\nlpop\r\n$5\r\nother\r\n";
            let batch = pair.repeat(10);
            writer.send(format!("client kill id {id}\r\nrpush q 1 2 3\r\n{batch}"));
            let replies: Vec<String> = (0..32).map(|_| writer.line()).collect();
            assert_eq!(replies[..2], [":1", ":3"]);
            eventually("all is there", || {
                writer.send("llen q\r\n");
                writer.line() == ":3"
            });
            writer.says("del q", ":1\r\n");
            client.expect_end();
        }
    }
}

#[test]
fn each_element_of_a_queue_is_popped_once_by_many_waiting_clients() {
    const PRODUCERS: usize = 3;
    const CONSUMERS: usize = 4;
    const EACH: usize = 400;
    for server in servers() {
        let taken: Vec<String> = std::thread::scope(|scope| {
            let consumers: Vec<_> = (0..CONSUMERS)
                .map(|number| {
                    let server = &server;
                    scope.spawn(move || {
                        let (mut client, mut taken) = (server.client(), Vec::new());
                        loop {
                            client.send(["blpop none queue 20\r\n", "brpop queue 20\r\n"][number % 2]);
                            assert_eq!(
                                (client.line(), client.line(), client.line()),
                                ("*2".into(), "$5".into(), "queue".into())
                            );
                            client.line();
                            let element = client.line();
                            if element == "end" {
                                return taken;
                            }
                            taken.push(element);
                        }
                    })
                })
                .collect();
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|number| {
                    let server = &server;
                    scope.spawn(move || {
                        let mut client = server.client();
                        for at in 0..EACH {
                            client.send(format!("rpush queue {number}.{at}\r\n"));
                            assert!(client.line().starts_with(':'));
                        }
                    })
                })
                .collect();
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            let mut client = server.client();
            eventually("all are taken", || {
                client.send("llen queue\r\n");
                client.line() == ":0"
            });
            client.says("rpush queue end end end end", ":4\r\n");
            consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), PRODUCERS * EACH);
        assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), PRODUCERS * EACH);
    }
}

#[test]
fn elements_moved_for_waiting_clients_are_neither_lost_nor_doubled() {
    const EACH: usize = 300;
    for server in servers() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Two clients wait at the ends of a chain, and one holds its middle as often as it can.
            let movers = ["a b", "b c"].map(|keys| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    for _ in 0..EACH {
                        client.send(format!("blmove {keys} left right 20\r\n"));
                        assert!(client.line().starts_with('$'));
                        client.line();
                    }
                })
            });
            let holder = scope.spawn(|| {
                let mut client = server.client();
                while !over.load(Ordering::Relaxed) {
                    client
                        .says("multi\r\nrpush b x\r\nrpop b\r\nexec", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n");
                    assert!(client.line().starts_with(':'));
                    client.expect("$1\r\nx\r\n");
                }
            });
            let mut client = server.client();
            for at in 0..EACH {
                client.send(format!("rpush a {at}\r\n"));
                assert!(client.line().starts_with(':'));
            }
            movers.into_iter().for_each(|mover| mover.join().unwrap());
            over.store(true, Ordering::Relaxed);
            holder.join().unwrap();
            client.says("exists a b", ":0\r\n");
            client.send("lrange c 0 -1\r\n");
            assert_eq!(client.line(), format!("*{EACH}"));
            for at in 0..EACH {
                client.line();
                assert_eq!(client.line(), at.to_string());
            }
        });
    }
}

#[test]
fn replies_before_a_blocked_command_are_sent_and_later_commands_wait() {
    for server in servers() {
        let (mut client, mut writer) = (server.client(), server.client());
        client.says("set a 1\r\nget a\r\nblpop q 0\r\nget a\r\nblpop q 0\r\nping", "+OK\r\n$1\r\n1\r\n");
        eventually("it waits", || waiting(&mut writer) == 1);
        writer.says("set a 2\r\nrpush q x", "+OK\r\n:1\r\n");
        client.expect(format!("{}$1\r\n2\r\n", pair("q", "x")));
        eventually("it waits again", || waiting(&mut writer) == 1);
        // Requests that it sends meanwhile are executed after it, also incomplete ones.
        client.send("echo be");
        std::thread::sleep(Duration::from_millis(30));
        client.send("hind\r\n");
        writer.says("rpush q y", ":1\r\n");
        client.expect(format!("{}+PONG\r\n$6\r\nbehind\r\n", pair("q", "y")));
        let list = {
            block(&mut client, "blpop q 0", &mut writer);
            writer.text("client list")
        };
        assert!(
            list.lines().any(|line| line.contains(" flags=b ") && line.contains(" cmd=blpop ")),
            "{list}"
        );
    }
}

#[test]
fn timeouts_end_in_the_order_of_their_deadlines() {
    for server in servers() {
        let started = Instant::now();
        let mut clients = BTreeMap::new();
        for millis in [300u64, 50, 200, 120] {
            let mut client = server.client();
            client.send(format!("blpop q {}\r\n", millis as f64 / 1000.0));
            clients.insert(millis, client);
        }
        let mut long = server.client();
        long.send("blpop long 100\r\n");
        for (millis, client) in &mut clients {
            client.expect("*-1\r\n");
            let took = started.elapsed();
            assert!(took >= Duration::from_millis(*millis), "{took:?} of {millis}");
            // Far more than it should ever take, far less than the next tick but one.
            assert!(took < Duration::from_millis(*millis + 2000), "{took:?} of {millis}");
            client.says("ping", "+PONG\r\n");
        }
        let mut client = server.client();
        client.says("rpush q x\r\nllen q", ":1\r\n:1\r\n");
        assert_eq!(waiting(&mut client), 1);
    }
}

#[test]
fn a_wait_is_ended_by_client_unblock() {
    for server in servers() {
        let mut other = server.client();
        for (how, said) in [
            ("", "*-1\r\n"),
            (" timeout", "*-1\r\n"),
            (" error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"),
        ] {
            for command in
                ["blpop a b 0", "blmove a b left left 0", "bzpopmax a 100", "xread block 0 streams s $"]
            {
                let mut client = server.client();
                client.send("client id\r\n");
                let id = client.line()[1..].to_owned();
                other.says(&format!("client unblock {id}"), ":0\r\n");
                block(&mut client, command, &mut other);
                other.says(
                    &format!("multi\r\nclient unblock {id}{how}\r\nping\r\nexec"),
                    "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n+PONG\r\n",
                );
                client.expect(said);
                client.says("ping", "+PONG\r\n");
                other.says(&format!("client unblock {id}"), ":0\r\n");
                other.says("rpush a x\r\nllen a\r\ndel a", ":1\r\n:1\r\n:1\r\n");
            }
        }
        assert_eq!(waiting(&mut other), 0);
    }
}

#[test]
fn an_entry_goes_to_all_readers_of_a_stream_and_to_one_of_a_group() {
    for server in servers() {
        let mut writer = server.client();
        writer.says("xgroup create s g $ mkstream", "+OK\r\n");
        let mut readers: Vec<Client> = (0..3).map(|_| server.client()).collect();
        let mut consumers: Vec<Client> = (0..3).map(|_| server.client()).collect();
        for reader in &mut readers {
            block(reader, "xread block 0 streams other s $ $", &mut writer);
        }
        for (at, consumer) in consumers.iter_mut().enumerate() {
            block(consumer, &format!("xreadgroup group g c{at} count 1 block 0 streams s >"), &mut writer);
        }
        let told = |ms: u32| {
            format!("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n{ms}-0\r\n*2\r\n$1\r\nf\r\n$1\r\n{ms}\r\n")
        };
        for ms in 1..=4u32 {
            writer.says(&format!("xadd s {ms} f {ms}"), &format!("$3\r\n{ms}-0\r\n"));
        }
        readers.iter_mut().for_each(|reader| reader.expect(told(1)));
        for (at, consumer) in consumers.iter_mut().enumerate() {
            consumer.expect(told(at as u32 + 1));
        }
        let of = |consumer| format!("*2\r\n$2\r\n{consumer}\r\n$1\r\n1\r\n");
        let pending = ["c0", "c1", "c2"].map(of).concat();
        writer.says("xpending s g", &format!("*4\r\n:3\r\n$3\r\n1-0\r\n$3\r\n3-0\r\n*3\r\n{pending}"));
        consumers[0].says("xreadgroup group g c0 block 0 streams s >", &told(4));
    }
}

#[test]
fn a_client_served_by_a_failed_turn_gets_the_error_and_is_disconnected() {
    let directory = tempfile::tempdir().unwrap();
    for threads in [1, 2] {
        let server = Server::with(|config| {
            (config.medium, config.path) =
                (MediumKind::File, directory.path().join(format!("store{threads}")));
            (config.threads, config.enable_debug_command) = (threads, Allowed::Local);
        });
        let mut writer = server.client();
        let mut clients: Vec<Client> = (0..2).map(|_| server.client()).collect();
        for client in &mut clients {
            block(client, "blpop q 0", &mut writer);
        }
        writer.send("rpush q x y\r\ndebug panic write\r\n");
        assert!(writer.line().starts_with("-MISCONF"));
        for mut client in clients {
            assert!(client.line().starts_with("-MISCONF"));
            client.expect_end();
        }
        // The store is poisoned, so it cannot be closed cleanly.
        let _ = server.stop();
    }
}

#[test]
fn a_served_command_is_counted_and_recorded_as_the_waiting_clients() {
    for server in servers() {
        let (mut writer, mut client) = (server.client(), server.client());
        let mut others = server.client();
        writer.says("xgroup create s g $ mkstream\r\nconfig resetstat", "+OK\r\n+OK\r\n");
        block(&mut client, "xreadgroup group g c block 0 streams s >", &mut others);
        writer.says("xgroup destroy s g", ":1\r\n");
        assert!(client.line().starts_with("-NOGROUP "));
        let field = |client: &mut Client, section: &str, name: &str| {
            let info = client.text(&format!("info {section}"));
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::to_owned)
        };
        assert_eq!(field(&mut writer, "errorstats", "errorstat_NOGROUP").as_deref(), Some("count=1"));
        let counted = field(&mut writer, "commandstats", "cmdstat_xreadgroup").unwrap();
        assert!(counted.starts_with("calls=1,") && counted.ends_with("failed_calls=1"), "{counted}");

        writer.says("config set slowlog-log-slower-than 0\r\nslowlog reset", "+OK\r\n+OK\r\n");
        block(&mut client, "blpop q 0", &mut others);
        writer.says("config set slowlog-log-slower-than -1\r\nslowlog reset", "+OK\r\n+OK\r\n");
        writer.says("multi", "+OK\r\n");
        writer.says(
            "config set slowlog-log-slower-than 0\r\nrpush q x\r\nexec",
            "+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n:1\r\n",
        );
        client.expect(pair("q", "x"));
        writer.send("slowlog get -1\r\n");
        eventually("the command that waited is noted", || writer.line() == "blpop");
    }
}

#[test]
fn a_client_waiting_for_a_group_gets_an_error_when_the_stream_expires() {
    const GONE: &str = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option\r\n";
    for server in servers() {
        let (mut writer, mut client, mut others) = (server.client(), server.client(), server.client());
        for before in [true, false] {
            writer.says("xgroup create s g $ mkstream", "+OK\r\n");
            let begun = Instant::now();
            if before {
                writer.says("pexpire s 300", ":1\r\n");
            }
            block(&mut client, "xreadgroup group g c block 0 streams s >", &mut others);
            if !before {
                writer.says("pexpire s 300", ":1\r\n");
            }
            client.expect(GONE);
            let waited = begun.elapsed();
            assert!((290..800).contains(&(waited.as_millis() as u64)), "{waited:?}");
            assert_eq!(waiting(&mut others), 0);
        }
        // A time that is moved is another time.
        writer.says("xgroup create s g $ mkstream\r\npexpire s 200", "+OK\r\n:1\r\n");
        block(&mut client, "xreadgroup group g c block 0 streams s >", &mut others);
        writer.says("pexpire s 60000", ":1\r\n");
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(waiting(&mut others), 1);
        writer.says("persist s\r\npexpire s 1", ":1\r\n:1\r\n");
        client.expect(GONE);
    }
}

#[test]
fn a_client_waiting_for_a_group_gets_an_error_when_the_stream_is_evicted() {
    let server = Server::with(|config| {
        config.maxmemory = 16 << 20;
        config.maxmemory_policy =
            Some(duramen_server::config::policy::Policy::named("allkeys-random").unwrap());
    });
    let (mut writer, mut client) = (server.client(), server.client());
    writer.says("xgroup create s g $ mkstream", "+OK\r\n");
    client.0.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    client.send("xreadgroup group g c block 0 streams s >\r\n");
    let value = "v".repeat(400);
    const GONE: &str = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option\r\n";
    let mut told = [0; 128];
    for at in 0..400 {
        let some = (0..250).map(|key| format!("set k:{at}:{key} {value}\r\n")).collect::<String>();
        writer.send(&some);
        writer.expect("+OK\r\n".repeat(250));
        if let Ok(bytes) = std::io::Read::read(&mut client.0, &mut told) {
            assert_eq!(String::from_utf8_lossy(&told[..bytes]), GONE);
            writer.says("exists s", ":0\r\n");
            return;
        }
    }
    writer.says("exists s", ":0\r\n");
    client.0.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    client.expect(GONE);
}
