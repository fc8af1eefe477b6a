//! Scripts over sockets: on one worker and on several, with keys that they name and keys that they do not.

use crate::support::{Client, Server, eventually};
use std::time::{Duration, Instant};

/// A command in the protocol's form, with arguments of any bytes.
fn command(args: &[&str]) -> String {
    let mut text = format!("*{}\r\n", args.len());
    for arg in args {
        text.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
    }
    text
}

/// Sends EVAL of a script with these keys, without arguments.
fn send(client: &mut Client, script: &str, keys: &[&str]) {
    let count = keys.len().to_string();
    client.send(command(&[&["eval", script, &count], keys].concat()));
}

#[track_caller]
fn evaluates(client: &mut Client, script: &str, keys: &[&str], reply: &str) {
    send(client, script, keys);
    client.expect(reply);
}

#[test]
fn what_a_script_wrote_before_an_error_stays() {
    let server = Server::start();
    let mut client = server.client();
    send(&mut client, "redis.call('set', KEYS[1], '1') redis.call('incr', 'other') error('mine')", &["k"]);
    let reply = client.line();
    assert!(reply.starts_with("-ERR user_script:1: mine script: "), "{reply}");
    assert!(reply.ends_with(", on @user_script:1."), "{reply}");
    client.says("mget k other", "*2\r\n$1\r\n1\r\n$1\r\n1\r\n");
    // Of a command that fails, and of a large value.
    let script = "for i = 1, 2000 do redis.call('rpush', 'l', i) end redis.call('incr', 'l')";
    send(&mut client, script, &["l"]);
    assert!(
        client
            .line()
            .starts_with("-WRONGTYPE Operation against a key holding the wrong kind of value script: ")
    );
    client.says("llen l", ":2000\r\n");
}

#[test]
fn a_script_that_must_run_again_is_seen_once() {
    for threads in [1, 2] {
        let server = Server::with(|config| config.threads = threads);
        let (mut client, mut listener) = (server.client(), server.client());
        listener.says("subscribe c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
        client.says("sadd s a b c d e f g h", ":8\r\n");
        // DBSIZE looks at all keys, so that the run before it does not count.
        let script = "redis.call('publish', 'c', 'm') redis.call('incr', KEYS[1])
            local popped = redis.call('spop', 's')
            local time = redis.call('time')
            math.randomseed(redis.call('time')[2])
            redis.call('rpush', 'seen', popped, time[1] .. time[2], math.random(1000000))
            return redis.call('dbsize')";
        for round in 1..=3 {
            evaluates(&mut client, script, &["n"], ":3\r\n");
            client.says("get n", &format!("$1\r\n{round}\r\n"));
            client.says("scard s", &format!(":{}\r\n", 8 - round));
            client.says("llen seen", &format!(":{}\r\n", 3 * round));
            listener.expect("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
        }
        listener.says("ping x", "*2\r\n$4\r\npong\r\n$1\r\nx\r\n");
    }
}

#[test]
fn time_stands_still_in_a_script() {
    let server = Server::start();
    let mut client = server.client();
    let script = "local t = redis.call('time')
        for i = 1, 100000 do end
        local u = redis.call('time')
        return {t[1] == u[1] and t[2] == u[2]}";
    evaluates(&mut client, script, &[], "*1\r\n:1\r\n");
}

#[test]
fn scripts_of_undeclared_keys_are_transactions() {
    const ROUNDS: usize = 300;
    let server = Server::with(|config| config.threads = 2);
    server.client().says("mset a 0 b 0", "+OK\r\n");
    std::thread::scope(|scope| {
        for at in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                // In both orders, so that each would wait for the other's key if keys were waited for.
                let script = match at % 2 {
                    0 => "redis.call('incr', 'a') return redis.call('incr', 'b') - redis.call('get', 'a')",
                    _ => "redis.call('incr', 'b') return redis.call('incr', 'a') - redis.call('get', 'b')",
                };
                let keys: &[&str] = if at < 2 { &[] } else { &["a"] };
                for _ in 0..ROUNDS {
                    evaluates(&mut client, script, keys, ":0\r\n");
                }
            });
        }
    });
    let all = (4 * ROUNDS).to_string();
    server.client().says("mget a b", &format!("*2\r\n${0}\r\n{all}\r\n${0}\r\n{all}\r\n", all.len()));
}

#[test]
fn scripts_run_within_a_transaction_and_wake_waiting_clients() {
    let server = Server::start();
    let (mut client, mut waiter) = (server.client(), server.client());
    waiter.send("blpop q 0\r\n");
    eventually("the client waits", || client.field("clients", "blocked_clients") == 1);
    client.send("multi\r\n");
    send(&mut client, "redis.call('rpush', 'q', 'x') return redis.call('dbsize')", &[]);
    client.send("set k v\r\nexec\r\n");
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n+OK\r\n");
    waiter.expect("*2\r\n$1\r\nq\r\n$1\r\nx\r\n");
    client.says("llen q\r\nget k", ":0\r\n$1\r\nv\r\n");
}

#[test]
fn a_digest_works_on_every_worker_until_scripts_are_flushed() {
    let server = Server::with(|config| config.threads = 2);
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    clients[0].says(&format!("evalsha {digest} 0"), "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    clients[0].send(command(&["script", "load", "return 1"]));
    clients[0].expect(format!("$40\r\n{digest}\r\n"));
    for client in &mut clients {
        client.says(&format!("evalsha {} 0", digest.to_uppercase()), ":1\r\n");
        client.says(&format!("script exists {digest} ff"), "*2\r\n:1\r\n:0\r\n");
    }
    clients[1].says("script flush", "+OK\r\n");
    for client in &mut clients {
        client.says(&format!("evalsha {digest} 0"), "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    }
    assert_eq!(clients[0].field("memory", "number_of_cached_scripts"), 0);
}

#[test]
fn scripts_that_only_read_write_nothing() {
    let server = Server::start();
    let mut client = server.client();
    for script in ["redis.call('set', 'k', 'v')", "redis.call('publish', 'c', 'm')"] {
        client.send(command(&["eval_ro", script, "0"]));
        let reply = client.line();
        assert!(reply.starts_with("-ERR Write commands are not allowed from read-only scripts."), "{reply}");
    }
    client.send(command(&["eval", "#!lua flags=no-writes\nredis.call('set', 'k', 'v')", "0"]));
    assert!(client.line().contains("Write commands are not allowed from read-only scripts."));
    client.send(command(&["eval_ro", "#!lua\nreturn 1", "0"]));
    client.expect("-ERR Can not execute a script with write flag using *_ro command.\r\n");
    client.says("exists k", ":0\r\n");
}

#[test]
fn a_script_does_not_change_its_client() {
    let server = Server::start();
    let mut client = server.client();
    evaluates(
        &mut client,
        "redis.setresp(3) redis.call('select', 3) redis.call('set', 'k', '3')",
        &["k"],
        "$-1\r\n",
    );
    client.says("exists k\r\nhget none f", ":0\r\n$-1\r\n");
    client.says("select 3\r\nget k", "+OK\r\n$1\r\n3\r\n");
    client.hello_3();
    evaluates(&mut client, "return redis.call('get', 'none')", &["none"], "_\r\n");
    evaluates(&mut client, "redis.setresp(3) return redis.call('hgetall', 'none')", &["none"], "%0\r\n");
    evaluates(&mut client, "return redis.call('hgetall', 'none')", &["none"], "*0\r\n");
}

#[test]
fn a_reply_of_a_megabyte_takes_linear_time() {
    let server = Server::start();
    let mut client = server.client();
    let times = [20_000usize, 200_000].map(|count| {
        let begun = Instant::now();
        send(&mut client, &format!("local t = {{}} for i = 1, {count} do t[i] = 'x' end return t"), &[]);
        client.expect(format!("*{count}\r\n{}", "$1\r\nx\r\n".repeat(count)));
        begun.elapsed()
    });
    assert!(times[1] < times[0] * 60 + Duration::from_millis(200), "{times:?}");
}

/// A server whose scripts are too long after some milliseconds, and a client of each of its two workers.
fn impatient() -> (Server, Client, Client) {
    let server = Server::with(|config| {
        config.threads = 2;
        config.busy_reply_threshold = 10;
    });
    let (first, second) = (server.client(), server.client());
    (server, first, second)
}

const BUSY: &str =
    "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n";

/// Also while a script runs too long, a renamed command is known by its new name alone.
#[test]
fn a_busy_script_is_killed_by_the_name_that_the_command_has() {
    let server = Server::with(|config| {
        config.busy_reply_threshold = 50;
        config.renamed_commands =
            vec![("script".to_owned(), "my-script".to_owned()), ("shutdown".to_owned(), String::new())];
    });
    let (mut first, mut second, mut third) = (server.client(), server.client(), server.client());
    first.send("eval \"while true do end\" 0\r\n");
    until_busy(&mut second);
    third.send("script kill\r\nshutdown nosave\r\n");
    std::thread::sleep(std::time::Duration::from_millis(100));
    until_busy(&mut second);
    second.says("my-script kill", "+OK\r\n");
    assert!(first.line().contains("Script killed by user with SCRIPT KILL"));
    for name in ["script", "shutdown"] {
        assert!(third.line().starts_with(&format!("-ERR unknown command '{name}'")));
    }
    second.says("get k", "$-1\r\n");
}

/// Waits until the client is answered BUSY.
fn until_busy(client: &mut Client) {
    eventually("the script is too long", || {
        client.send("ping\r\n");
        format!("{}\r\n", client.line()) == BUSY
    });
}

#[test]
fn a_script_that_takes_too_long_is_killed_unless_it_has_written() {
    let (_server, mut first, mut second) = impatient();
    second.says("script kill", "-NOTBUSY No scripts in execution right now.\r\n");
    send(&mut first, "while true do pcall(redis.call, 'get', 'k') end", &[]);
    until_busy(&mut second);
    second.says("get k\r\nscript kill", &format!("{BUSY}+OK\r\n"));
    assert!(first.line().starts_with("-ERR Script killed by user with SCRIPT KILL... script: "));
    second.says("ping", "+PONG\r\n");
    send(&mut first, "redis.call('set', 'k', 'v') while redis.call('get', 'stop') == false do end", &[]);
    until_busy(&mut second);
    second.send("script kill\r\n");
    assert!(second.line().starts_with("-UNKILLABLE Sorry the script already executed write commands"));
    second.send("shutdown nosave\r\n");
}

const LIBRARY: &str = "#!lua name=lib
redis.register_function('put', function(keys, args) return redis.call('set', keys[1], args[1]) end)
redis.register_function{function_name='get', callback=function(keys) return redis.call('get', keys[1]) end,
    flags={'no-writes'}, description='reads'}";

fn load(client: &mut Client, args: &[&str], reply: &str) {
    client.send(command(&[&["function", "load"], args].concat()));
    client.expect(reply);
}

#[test]
fn functions_run_on_every_worker_as_soon_as_their_library_is_loaded() {
    let server = Server::with(|config| config.threads = 2);
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    clients[0].says("fcall put 1 k v", "-ERR Function not found\r\n");
    load(&mut clients[0], &[LIBRARY], "$3\r\nlib\r\n");
    load(&mut clients[1], &[LIBRARY], "-ERR Library 'lib' already exists\r\n");
    for (at, client) in clients.iter_mut().enumerate() {
        client.says(&format!("fcall put 1 k {at}"), "+OK\r\n");
        client.says("fcall_ro get 1 k", &format!("$1\r\n{at}\r\n"));
        client.says(
            "fcall_ro put 1 k v",
            "-ERR Can not execute a script with write flag using *_ro command.\r\n",
        );
    }
    let other = LIBRARY.replace("=lib", "=other");
    load(&mut clients[2], &[&other], "-ERR Function put already exists\r\n");
    load(&mut clients[2], &["replace", &LIBRARY.replace("'put'", "'store'")], "$3\r\nlib\r\n");
    for client in &mut clients {
        client.says("fcall put 1 k v", "-ERR Function not found\r\n");
        client.says("fcall store 1 k w", "+OK\r\n");
    }
    clients[3].says("function delete lib\r\nfunction delete lib", "+OK\r\n-ERR Library not found\r\n");
    for client in &mut clients {
        client.says("fcall store 1 k w", "-ERR Function not found\r\n");
    }
}

#[test]
fn a_library_that_was_loaded_in_a_transaction_works_in_it_and_not_if_it_does_not_count() {
    let server = Server::start();
    let mut client = server.client();
    client.send("multi\r\n");
    client.send(command(&["function", "load", LIBRARY]));
    client.send("fcall put 1 k v\r\nfunction flush\r\nfcall put 1 k v\r\nexec\r\n");
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n");
    client.expect("*4\r\n$3\r\nlib\r\n+OK\r\n+OK\r\n-ERR Function not found\r\n");
    client.says("fcall get 1 k", "-ERR Function not found\r\n");
}

#[test]
fn libraries_are_dumped_and_restored() {
    let server = Server::start();
    let mut client = server.client();
    load(&mut client, &[LIBRARY], "$3\r\nlib\r\n");
    client.send("function dump\r\n");
    let head = client.line();
    let mut payload = vec![0; head[1..].parse::<usize>().unwrap() + 2];
    std::io::Read::read_exact(&mut client.0, &mut payload).unwrap();
    payload.truncate(payload.len() - 2);
    let restore = |policy: &[&str]| {
        let mut text = format!("*{}\r\n", 3 + policy.len()).into_bytes();
        for part in [b"function".as_slice(), b"restore", &payload]
            .into_iter()
            .chain(policy.iter().map(|p| p.as_bytes()))
        {
            text.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            text.extend_from_slice(part);
            text.extend_from_slice(b"\r\n");
        }
        text
    };
    client.send(restore(&[]));
    client.expect("-ERR Library lib already exists\r\n");
    for policy in ["replace", "flush"] {
        client.send(restore(&[policy]));
        client.expect("+OK\r\n");
    }
    client.says("function flush\r\nfunction list", "+OK\r\n*0\r\n");
    client.send(restore(&["append"]));
    client.expect("+OK\r\n");
    client.says("fcall put 1 k v", "+OK\r\n");
    assert_eq!(client.field("memory", "number_of_functions"), 2);
    payload[0] ^= 1;
    client.send(command(&["function", "restore", "x"]));
    client.expect("-ERR DUMP payload version or checksum are wrong\r\n");
}

#[test]
fn libraries_survive_the_end_of_the_server_and_flushall() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        Server::with(|config| {
            config.medium = duramen::MediumKind::File;
            config.path = directory.path().join("store");
        })
    };
    let server = start();
    let mut client = server.client();
    load(&mut client, &[LIBRARY], "$3\r\nlib\r\n");
    client.says("flushall", "+OK\r\n");
    drop(client);
    server.stop().unwrap();
    let server = start();
    server.client().says("fcall put 1 k v\r\ndbsize", "+OK\r\n:1\r\n");
}

#[test]
fn a_function_that_takes_too_long_is_killed_by_its_own_command() {
    let (_server, mut first, mut second) = impatient();
    let code = "#!lua name=lib\nredis.register_function('loop', function() while true do end end)";
    load(&mut first, &[code], "$3\r\nlib\r\n");
    first.send("fcall loop 0\r\n");
    eventually("the function is too long", || {
        second.send("ping\r\n");
        second.line().starts_with("-BUSY Redis is busy running a script. You can only call FUNCTION KILL")
    });
    second.send("script kill\r\n");
    assert!(second.line().starts_with("-BUSY"));
    second.send("function stats\r\n");
    second.expect("*4\r\n$14\r\nrunning_script\r\n*6\r\n$4\r\nname\r\n$4\r\nloop\r\n$7\r\ncommand\r\n*3\r\n");
    while second.line() != "$15" {}
    while second.line() != "functions_count" {}
    second.expect(":1\r\n");
    second.says("function kill", "+OK\r\n");
    assert!(
        first
            .line()
            .starts_with("-ERR Script killed by user with SCRIPT KILL... script: loop, on @user_function:2.")
    );
}

#[test]
fn clients_of_the_script_s_own_worker_are_answered_too() {
    let server = Server::with(|config| {
        config.threads = 1;
        config.busy_reply_threshold = 10;
    });
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    // Each is known to the worker before it is busy.
    clients.iter_mut().for_each(|client| client.says("ping", "+PONG\r\n"));
    send(&mut clients[0], "while true do end", &[]);
    std::thread::sleep(Duration::from_millis(100));
    clients[1].says("ping\r\nget k", &BUSY.repeat(2));
    clients[2].send("multi\r\n");
    clients[3].says("set k v\r\nfunction stats\r\nscript kill", &format!("{BUSY}{BUSY}+OK\r\n"));
    assert!(clients[0].line().starts_with("-ERR Script killed by user with SCRIPT KILL... script: "));
    // What was not answered meanwhile is executed now.
    clients[2].expect("+OK\r\n");
    clients[2].says("set k v\r\nexec", "+QUEUED\r\n*1\r\n+OK\r\n");
    clients[1].says("get k", "$1\r\nv\r\n");
}

#[test]
fn a_user_without_the_right_ends_no_script_that_takes_too_long() {
    for threads in [1, 2] {
        let server = Server::with(|config| {
            config.threads = threads;
            config.busy_reply_threshold = 10;
        });
        let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
        clients[0].says("acl setuser ada on nopass ~* +@all -script|kill -shutdown", "+OK\r\n");
        clients[1].says("auth ada x", "+OK\r\n");
        clients[2].says("ping", "+PONG\r\n");
        send(&mut clients[0], "while true do end", &[]);
        std::thread::sleep(Duration::from_millis(100));
        for command in ["script|kill", "shutdown"] {
            let refused = format!("-NOPERM this user has no permissions to run the '{command}' command\r\n");
            let said = if command == "shutdown" { "shutdown nosave" } else { "script kill" };
            clients[1].says(said, &refused);
        }
        clients[1].says("get k", BUSY);
        clients[2].says("script kill", "+OK\r\n");
        assert!(clients[0].line().starts_with("-ERR Script killed by user with SCRIPT KILL... script: "));
        clients[1].says("get k", "$-1\r\n");
    }
}

#[test]
fn a_pause_of_writes_holds_no_function_that_only_reads() {
    let server = Server::with(|config| config.threads = 2);
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    load(&mut clients[0], &[LIBRARY], "$3\r\nlib\r\n");
    clients[0].says("client pause 60000 write", "+OK\r\n");
    clients[1].says("fcall GET 1 k", "$-1\r\n");
    clients[1].send("fcall put 1 k v\r\n");
    eventually("the function that writes is held", || clients[0].field("clients", "blocked_clients") == 1);
    clients[2].says("fcall get 1 k", "$-1\r\n");
    clients[0].says("client unpause", "+OK\r\n");
    clients[1].expect("+OK\r\n");
    // The name is now that of a function that writes.
    let other =
        LIBRARY.replace("'get'", "'put'").replacen("'put'", "'get'", 1).replace("flags={'no-writes'}, ", "");
    load(&mut clients[0], &["replace", &other], "$3\r\nlib\r\n");
    clients[0].says("client pause 60000 write", "+OK\r\n");
    clients[2].send("fcall get 1 k v\r\n");
    eventually("the function that writes now is held", || {
        clients[0].field("clients", "blocked_clients") == 1
    });
    clients[0].says("client unpause", "+OK\r\n");
    clients[2].expect("+OK\r\n");
}
