//! Publishing and subscribing: across workers, in order, and with clients that go or do not read.

use crate::support::{Client, Server, eventually};
use duramen_server::config::OutputLimit;

fn message(channel: &str, text: &str) -> String {
    format!("*3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n{text}\r\n", channel.len(), text.len())
}

fn subscribed(client: &mut Client, channel: &str) {
    client.says(
        &format!("subscribe {channel}"),
        &format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len()),
    );
}

#[test]
fn all_subscribers_of_all_workers_get_all_messages_in_one_order() {
    let server = Server::with(|config| config.threads = 3);
    let mut listeners: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for listener in &mut listeners {
        subscribed(listener, "c");
    }
    const MESSAGES: usize = 2000;
    std::thread::scope(|scope| {
        for name in ["x", "y", "z"] {
            let mut publisher = server.client();
            scope.spawn(move || {
                for at in 0..MESSAGES {
                    publisher.says(&format!("publish c {name}{at}"), ":6\r\n");
                }
            });
        }
    });
    let mut orders = listeners.iter_mut().map(|listener| {
        (0..3 * MESSAGES).map(|_| (0..7).map(|_| listener.line()).last().unwrap()).collect::<Vec<_>>()
    });
    let first = orders.next().unwrap();
    for name in ["x", "y", "z"] {
        let own: Vec<_> = first.iter().filter(|text| text.starts_with(name)).cloned().collect();
        assert_eq!(own, (0..MESSAGES).map(|at| format!("{name}{at}")).collect::<Vec<_>>());
    }
    for other in orders {
        assert_eq!(other, first);
    }
}

#[test]
fn a_pipeline_of_messages_arrives_whole_and_binary_safe() {
    let server = Server::start();
    let (mut listener, mut publisher) = (server.client(), server.client());
    subscribed(&mut listener, "c");
    let mut request = Vec::new();
    let mut wanted = Vec::new();
    for at in 0..1000 {
        let text = format!("\r\n\0{at}").repeat(at % 50 + 1);
        request.extend(format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n${}\r\n{text}\r\n", text.len()).bytes());
        wanted.extend(message("c", &text).bytes());
    }
    publisher.send(&request);
    publisher.expect(":1\r\n".repeat(1000));
    listener.expect(&wanted);
}

#[test]
fn a_subscriber_that_leaves_is_not_counted_and_the_others_get_the_rest() {
    let server = Server::start();
    let (mut stays, mut goes, mut publisher) = (server.client(), server.client(), server.client());
    subscribed(&mut stays, "c");
    subscribed(&mut goes, "c");
    publisher.says("publish c 1", ":2\r\n");
    goes.expect(message("c", "1"));
    let id = {
        let list = publisher.text("client list type pubsub");
        assert_eq!(list.lines().count(), 2, "{list}");
        let line = list.lines().last().unwrap();
        assert!(line.contains(" sub=1 psub=0 ssub=0 ") && line.contains(" flags=P "), "{line}");
        line.split(' ').next().unwrap().strip_prefix("id=").unwrap().to_owned()
    };
    publisher.says(&format!("client kill id {id}"), ":1\r\n");
    goes.expect_end();
    eventually("the subscription ends", || {
        publisher.send("pubsub numsub c\r\n");
        (0..4).map(|_| publisher.line()).last().unwrap() == ":1"
    });
    publisher.says("publish c 2", ":1\r\n");
    stays.expect(message("c", "1") + &message("c", "2"));
    drop(stays);
    eventually("nobody listens", || {
        publisher.send("publish c 3\r\n");
        publisher.line() == ":0"
    });
    publisher.says("pubsub channels", "*0\r\n");
}

#[test]
fn a_client_that_does_not_read_is_disconnected_at_the_limit_of_its_class() {
    let server = Server::with(|config| {
        config.client_output_buffer_limit[2] =
            OutputLimit { hard_bytes: 1 << 20, soft_bytes: 0, soft_seconds: 0 };
    });
    let (mut lazy, mut reads, mut publisher) = (server.client(), server.client(), server.client());
    subscribed(&mut lazy, "c");
    subscribed(&mut reads, "c");
    let text = "x".repeat(100_000);
    let mut left = false;
    for _ in 0..400 {
        // Not inline: a line that has not arrived whole may be 64 KiB at most.
        publisher.send(format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n${}\r\n{text}\r\n", text.len()));
        reads.expect(message("c", &text));
        left |= publisher.line() == ":1";
    }
    assert!(left, "40 MB are more than the limit and what sockets hold");
    assert!(publisher.text("info stats").contains("client_output_buffer_limit_disconnections:1\r\n"));
}

#[test]
fn a_message_after_the_end_of_a_subscription_does_not_come() {
    let server = Server::start();
    let (mut listener, mut publisher) = (server.client(), server.client());
    let done = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                publisher.send("publish c x\r\n");
                publisher.line();
            }
        });
        for _ in 0..300 {
            subscribed(&mut listener, "c");
            listener.send("unsubscribe c\r\nping\r\n");
            // Messages, then the end, and then nothing but the reply.
            loop {
                let lines: Vec<_> = (0..3).map(|_| listener.line()).collect();
                if lines[2] == "unsubscribe" {
                    break;
                }
                assert_eq!(lines[2], "message");
                for _ in 0..4 {
                    listener.line();
                }
            }
            listener.expect("$1\r\nc\r\n:0\r\n+PONG\r\n");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn each_expired_key_is_reported_once_whether_it_is_read_or_not() {
    const KEYS: usize = 3000;
    let server = Server::with(|config| config.threads = 2);
    let (mut listener, mut client) = (server.client(), server.client());
    client.says("config set notify-keyspace-events Ex", "+OK\r\n");
    subscribed(&mut listener, "__keyevent@0__:expired");
    let mut request = String::new();
    for at in 0..KEYS {
        let command = if at % 3 == 0 {
            format!("hset k:{at} f v\r\npexpire k:{at}")
        } else {
            format!("set k:{at} v px")
        };
        request.push_str(&format!("{command} {}\r\n", 200 + at % 700));
    }
    client.send(&request);
    (0..KEYS + KEYS.div_ceil(3)).for_each(|_| drop(client.line()));
    std::thread::scope(|scope| {
        for name in 0..2 {
            let mut reader = server.client();
            scope.spawn(move || {
                for round in 0..40 {
                    let keys: Vec<usize> =
                        (0..KEYS).filter(|at| at % 2 == 0 && (at + round) % 5 != 0).collect();
                    reader.send(keys.iter().map(|at| format!("exists k:{at}\r\n")).collect::<String>());
                    keys.iter().for_each(|_| drop(reader.line()));
                    std::thread::sleep(std::time::Duration::from_millis(25 + name));
                }
            });
        }
    });
    let next = |listener: &mut Client| (0..7).map(|_| listener.line()).last().unwrap();
    let mut told: Vec<String> = (0..KEYS).map(|_| next(&mut listener)).collect();
    client.says("publish __keyevent@0__:expired end", ":1\r\n");
    assert_eq!(next(&mut listener), "end", "no key is reported twice");
    told.sort_by_key(|name| name[2..].parse::<usize>().unwrap());
    assert_eq!(told, (0..KEYS).map(|at| format!("k:{at}")).collect::<Vec<_>>());
    // A write to an expired key reports the expiry first; a key that is set again or deleted before its time has not
    // expired.
    client.says("set w v px 30", "+OK\r\n");
    client.says("set stays v px 30", "+OK\r\n");
    client.says("persist stays", ":1\r\n");
    client.says("set goes v px 30", "+OK\r\n");
    client.says("del goes", ":1\r\n");
    std::thread::sleep(std::time::Duration::from_millis(50));
    client.says("config set notify-keyspace-events Ex$", "+OK\r\n");
    let mut setter = server.client();
    subscribed(&mut setter, "__keyevent@0__:set");
    client.says("set w again", "+OK\r\n");
    assert_eq!((next(&mut listener), next(&mut setter)), ("w".to_owned(), "w".to_owned()));
    std::thread::sleep(std::time::Duration::from_millis(2500));
    client.says("publish __keyevent@0__:expired end", ":1\r\n");
    assert_eq!(next(&mut listener), "end");
}

#[test]
fn a_client_without_replies_gets_subscriptions_and_messages() {
    let server = Server::start();
    let mut other = server.client();
    for first in ["*", ">"] {
        let mut client = server.client();
        if first == ">" {
            client.hello_3();
        }
        client.send("client reply off\r\nping\r\nsubscribe c\r\npsubscribe d*\r\n");
        client.expect(format!("{first}3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"));
        client.expect(format!("{first}3\r\n$10\r\npsubscribe\r\n$2\r\nd*\r\n:2\r\n"));
        other.says("publish c x", ":1\r\n");
        client.expect(format!("{first}3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"));
        client.send("subscribe\r\nunsubscribe c\r\npunsubscribe\r\n");
        client.expect(format!("{first}3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:1\r\n"));
        client.expect(format!("{first}3\r\n$12\r\npunsubscribe\r\n$2\r\nd*\r\n:0\r\n"));
        // Where replies are on again at its end, EXEC has them all.
        client.send("multi\r\nsubscribe c\r\nclient reply on\r\nexec\r\n");
        client.expect("*2\r\n+OK\r\n");
        client.expect(format!("{first}3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"));
        // That the server notices its end may take a while.
        client.send("unsubscribe\r\n");
        client.expect(format!("{first}3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n"));
    }
}

fn event(listener: &mut Client) -> String {
    (0..7).map(|_| listener.line()).last().unwrap()
}

#[test]
fn the_last_event_of_a_key_is_of_the_write_that_won() {
    let server = Server::with(|config| config.threads = 4);
    let (mut admin, mut listener) = (server.client(), server.client());
    admin.says("config set notify-keyspace-events K$gx", "+OK\r\n");
    subscribed(&mut listener, "__keyspace@0__:k");
    // On workers of their own.
    let (mut one, mut two) = (server.client(), server.client());
    for (write, name) in [("set k v", "set"), ("incr k", "incrby"), ("set k v px 100000", "expire")] {
        let events = if name == "expire" { 2 } else { 1 };
        for round in 0..1500 {
            one.send(format!("{write}\r\n"));
            two.send("del k\r\n");
            one.line();
            let deleted = two.line() == ":1";
            let told: Vec<_> = (0..events + usize::from(deleted)).map(|_| event(&mut listener)).collect();
            admin.send("exists k\r\n");
            let is_there = admin.line() == ":1";
            let last = told.last().unwrap();
            assert_eq!(last == name, is_there, "round {round} of {write}: {told:?}");
            if is_there {
                admin.says("del k", ":1\r\n");
                assert_eq!(event(&mut listener), "del");
            }
        }
    }
    // A key that is set again when its time has come has expired before that.
    for round in 0..60 {
        one.says("set k v px 5", "+OK\r\n");
        std::thread::sleep(std::time::Duration::from_micros(4500 + 30 * round));
        two.says("set k w px 60000", "+OK\r\n");
        assert_eq!([(); 2].map(|()| event(&mut listener)), ["set", "expire"]);
        let mut next = event(&mut listener);
        if next == "expired" {
            next = event(&mut listener);
        }
        assert_eq!((next.as_str(), event(&mut listener).as_str()), ("set", "expire"), "round {round}");
    }
}

#[test]
fn an_expired_key_is_reported_in_time() {
    let server = Server::start();
    let (mut client, mut listener) = (server.client(), server.client());
    client.says("config set notify-keyspace-events Ex", "+OK\r\n");
    subscribed(&mut listener, "__keyevent@0__:expired");
    let begun = std::time::Instant::now();
    const WAYS: [&str; 4] = ["set K v px MS", "hset K f v\r\npexpire K MS", "set K v\r\ngetex K px MS", ""];
    for at in 0..40 {
        let way = match WAYS[at % 4] {
            "" => format!("set from{at} v px MS\r\nrename from{at} K"),
            way => way.to_owned(),
        };
        let ms = (200 + 20 * at).to_string();
        client.send(format!("{}\r\n", way.replace('K', &format!("k{at}")).replace("MS", &ms)));
        let replies = if at % 4 == 0 { 1 } else { 2 };
        let lines = replies + usize::from(at % 4 == 2);
        (0..lines).for_each(|_| drop(client.line()));
    }
    let late: Vec<i64> = (0..40)
        .map(|_| {
            let key: i64 = event(&mut listener)[1..].parse().unwrap();
            begun.elapsed().as_millis() as i64 - (200 + 20 * key)
        })
        .collect();
    // 100 ms: how often workers look.
    assert!(late.iter().all(|late| (-20..400).contains(late)), "{late:?}");
}

#[test]
fn no_key_expires_while_writes_are_paused() {
    let server = Server::start();
    let (mut client, mut listener) = (server.client(), server.client());
    client.says("config set notify-keyspace-events Ex", "+OK\r\n");
    subscribed(&mut listener, "__keyevent@0__:expired");
    client.says("set k v px 100\r\nset l v px 100\r\nclient pause 1800 write", "+OK\r\n+OK\r\n+OK\r\n");
    let begun = std::time::Instant::now();
    std::thread::sleep(std::time::Duration::from_millis(150));
    client.says("get k", "$-1\r\n");
    let told = [event(&mut listener), event(&mut listener)];
    assert!(begun.elapsed() >= std::time::Duration::from_millis(1700), "{told:?} in {:?}", begun.elapsed());
    assert!(told.contains(&"k".to_owned()) && told.contains(&"l".to_owned()), "{told:?}");
}

#[test]
fn a_client_that_has_quit_is_unsubscribed() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    subscribed(&mut client, "c");
    client.says("quit", "+OK\r\n");
    // Its socket is still open.
    eventually_at_once("it listens no more", || {
        other.send("publish c x\r\n");
        other.line() == ":0"
    });
    assert_eq!(other.text("client list").matches("id=").count(), 1);
    client.expect_end();
}

/// Waits until `happened`, for less than the server waits for a client to close its connection.
#[track_caller]
fn eventually_at_once(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !happened() {
        assert!(begun.elapsed() < std::time::Duration::from_millis(400), "not at once: {what}");
    }
}
