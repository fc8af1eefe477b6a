//! Connections: permissions, how they are listed and ended, and how the server ends.

use crate::support::{Client, Server, eventually};
use std::time::{Duration, Instant};

#[test]
fn without_the_password_nothing_is_shown() {
    let server = Server::with(|config| config.requirepass = "secret".to_owned());
    let mut client = server.client();
    client.says("get k", "-NOAUTH Authentication required.\r\n");
    client.says("foo", "-ERR unknown command 'foo', with args beginning with: \r\n");
    client.says("auth wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client.says("auth alice secret", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client.says("hello", "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time\r\n");
    client.says("auth default secret", "+OK\r\n");
    client.says("get k", "$-1\r\n");
    client.says("reset", "+RESET\r\n");
    client.says("get k", "-NOAUTH Authentication required.\r\n");
    client.says("auth secret", "+OK\r\n");
    client.says("config set requirepass ''", "+OK\r\n");
    client.says("auth x", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n");
    server.client().says("get k", "$-1\r\n");
}

#[test]
fn databases_do_not_share_keys() {
    let server = Server::start();
    let mut client = server.client();
    client.says("set k 0", "+OK\r\n");
    client.says("select 15", "+OK\r\n");
    client.says("get k", "$-1\r\n");
    client.says("set k 15", "+OK\r\n");
    client.says("set l 15", "+OK\r\n");
    client.says("dbsize", ":2\r\n");
    client.says("select 16", "-ERR DB index is out of range\r\n");
    client.says("select -1", "-ERR DB index is out of range\r\n");
    client.says("select x", "-ERR value is not an integer or out of range\r\n");
    assert!(client.text("info keyspace").contains("db0:keys=1,expires=0,avg_ttl=0\r\ndb15:keys=2,"));
    client.says("flushdb", "+OK\r\n");
    client.says("dbsize", ":0\r\n");
    client.says("select 0", "+OK\r\n");
    client.says("get k", "$1\r\n0\r\n");
    client.says("flushall async", "+OK\r\n");
    client.says("dbsize", ":0\r\n");
}

#[test]
fn clients_list_and_kill_each_other() {
    let server = Server::start();
    let (mut one, mut two) = (server.client(), server.client());
    one.says("client setname first", "+OK\r\n");
    two.says("client setname second", "+OK\r\n");
    one.says(
        "client setname 'a b'",
        "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
    );
    one.says("client setinfo lib-name lettuce", "+OK\r\n");
    let list = one.text("client list");
    assert!(list.contains(" name=first ") && list.contains(" name=second "), "{list}");
    assert!(list.contains(" cmd=client|list ") && list.contains(" cmd=client|setname "), "{list}");
    assert!(list.contains(" lib-name=lettuce "), "{list}");
    let id: u64 = {
        two.send("client id\r\n");
        two.line()[1..].parse().unwrap()
    };
    one.says("client kill id 0", "-ERR client-id should be greater than 0\r\n");
    one.says("client kill 1.2.3.4:5", "-ERR No such client\r\n");
    one.says("client kill type pubsub", ":0\r\n");
    one.says(&format!("client kill id {id}"), ":1\r\n");
    two.expect_end();
    let address = one.0.local_addr().unwrap();
    one.says(&format!("client kill addr {address}"), ":0\r\n");
    one.says(&format!("client kill {address}"), "+OK\r\n");
    one.expect_end();
}

#[test]
fn a_killed_client_runs_no_further_command() {
    let server = Server::start();
    // Each has its own worker.
    let (mut busy, mut killer) = (server.client(), server.client());
    busy.send("client id\r\n");
    let id = busy.line()[1..].to_owned();
    busy.says(&format!("mset a {0} b {0}", "ab".repeat(1000)), "+OK\r\n");
    // One read, and so one turn of its worker.
    busy.send("incr k\r\nlcs a b len\r\n".repeat(200));
    eventually("it has begun", || {
        killer.send("exists k\r\n");
        killer.line() == ":1"
    });
    killer.says(&format!("client kill id {id}"), ":1\r\n");
    killer.says(&format!("client kill id {id}"), ":0\r\n");
    assert!(!killer.text("client list").contains(&format!("id={id} ")));
    assert_eq!(killer.text(&format!("client list id {id}")), "");
    let before: u64 = killer.text("get k").parse().unwrap();
    let _ = std::io::Read::read_to_end(&mut busy.0, &mut Vec::new());
    let after: u64 = killer.text("get k").parse().unwrap();
    // One command may have begun before it was killed.
    assert!(after <= before + 1, "{before} {after}");
}

#[test]
fn connections_are_spread_over_the_workers() {
    let server = Server::start();
    let mut all: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for (index, client) in all.iter_mut().enumerate() {
        client.says(&format!("set k{index} {index}"), "+OK\r\n");
    }
    for (index, client) in all.iter_mut().rev().enumerate() {
        client.says(&format!("get k{index}"), &format!("$1\r\n{index}\r\n"));
    }
}

#[test]
fn commands_inside_multi_wait_for_exec() {
    let server = Server::start();
    let (mut one, mut two) = (server.client(), server.client());
    one.says("multi", "+OK\r\n");
    one.says("set k 1", "+QUEUED\r\n");
    one.says("incr k", "+QUEUED\r\n");
    one.says("nosuch", "-ERR unknown command 'nosuch', with args beginning with: \r\n");
    one.says("exec", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    one.says("multi", "+OK\r\n");
    one.says("save", "-ERR Command not allowed inside a transaction\r\n");
    one.says("exec", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    one.says("watch k", "+OK\r\n");
    one.says("multi", "+OK\r\n");
    one.says("set k 1", "+QUEUED\r\n");
    two.says("set k 2", "+OK\r\n");
    one.says("exec", "*-1\r\n");
    one.says("multi", "+OK\r\n");
    one.says("incr k", "+QUEUED\r\n");
    one.says("getex k foo", "+QUEUED\r\n");
    one.says("select 1", "+QUEUED\r\n");
    one.says("get k", "+QUEUED\r\n");
    one.says("exec", "*4\r\n:3\r\n-ERR syntax error\r\n+OK\r\n$-1\r\n");
    one.says("exec", "-ERR EXEC without MULTI\r\n");
    one.says("get k", "$-1\r\n");
}

#[test]
fn counters_from_many_clients_lose_nothing() {
    let server = Server::start();
    let port = server.port;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(port);
                for _ in 0..50 {
                    client.send("multi\r\nincr a\r\nincr b\r\nexec\r\n".repeat(10));
                    for _ in 0..10 {
                        assert_eq!(client.line(), "+OK");
                        assert_eq!((client.line(), client.line()), ("+QUEUED".into(), "+QUEUED".into()));
                        assert_eq!(client.line(), "*2");
                        // Both together or not at all: nobody sees one ahead of the other.
                        assert_eq!(client.line(), client.line());
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    server.client().says("mget a b", "*2\r\n$4\r\n2000\r\n$4\r\n2000\r\n");
}

#[test]
fn debug_sleep_delays_its_client_only() {
    let server = Server::with(|config| config.threads = 1);
    let (mut one, mut two) = (server.client(), server.client());
    let start = Instant::now();
    one.send("debug sleep 0.5\r\nping\r\n");
    two.says("ping", "+PONG\r\n");
    assert!(start.elapsed() < Duration::from_millis(400));
    one.expect("+OK\r\n+PONG\r\n");
    assert!(start.elapsed() >= Duration::from_millis(500));
}

#[test]
fn a_disconnected_client_ends_its_debug_sleep() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let text = path.to_str().unwrap().to_owned();
    let server = Server::with(move |config| config.unixsocket.clone_from(&text));
    let (mut reset, mut other) = (server.client(), server.client());
    let mut closed = std::os::unix::net::UnixStream::connect(&path).unwrap();
    reset.send("debug sleep 1000\r\n");
    closed.write_all(b"debug sleep 1000\r\n").unwrap();
    eventually("both sleep", || other.text("info clients").contains("blocked_clients:2\r\n"));
    // Closing a TCP connection alone looks, from the other side, as if only the sending had ended.
    socket2::SockRef::from(&reset.0).set_linger(Some(Duration::ZERO)).unwrap();
    drop((reset, closed));
    eventually("both are gone", || other.text("info clients").contains("connected_clients:1\r\n"));
}

#[test]
fn quit_answers_the_requests_before_it() {
    let server = Server::start();
    let mut client = server.client();
    client.send("ping\r\nquit\r\nping\r\n");
    client.expect("+PONG\r\n+OK\r\n");
    client.expect_end();
}

#[test]
fn shutdown_ends_the_server_without_a_reply() {
    let server = Server::start();
    let mut client = server.client();
    client.says("shutdown foo", "-ERR syntax error\r\n");
    client.says("shutdown abort", "-ERR No shutdown in progress.\r\n");
    client.send("shutdown nosave\r\n");
    client.expect_end();
    server.wait().unwrap();
}

#[test]
fn writes_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let start = || {
        let path = path.clone();
        Server::with(move |config| {
            config.medium = duramen::MediumKind::File;
            config.dir = path.with_file_name("").display().to_string();
            config.path = path.clone();
            // Where SAVE writes.
            config.dir = path.parent().unwrap().display().to_string();
        })
    };
    let server = start();
    let mut client = server.client();
    client.says("mset a 1 b 2", "+OK\r\n");
    client.says("set c 3 ex 1000", "+OK\r\n");
    client.says("save", "+OK\r\n");
    server.stop().unwrap();
    let server = start();
    let mut client = server.client();
    client.says("mget a b c", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n");
    client.says("dbsize", ":3\r\n");
    assert!(client.text("info keyspace").contains("db0:keys=3,expires=1,"));
}

#[test]
fn a_port_in_use_is_an_error_with_the_address() {
    let server = Server::start();
    let config = duramen_server::Config {
        port: server.port,
        medium: duramen::MediumKind::Volatile,
        ..duramen_server::Config::default()
    };
    let error = duramen_server::Started::start(config).err().unwrap();
    assert_eq!(error.kind(), duramen_server::ErrorKind::Address);
    let text = error.to_string();
    assert!(text.contains(&format!("127.0.0.1:{}", server.port)) && text.contains("--port"), "{text}");
}

#[test]
fn a_unix_socket_is_served() {
    use std::io::{Read, Write};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let text = path.to_str().unwrap().to_owned();
    let server = Server::with(move |config| {
        config.unixsocket.clone_from(&text);
        config.unixsocketperm = 0o600;
    });
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    let list = server.client().text("client list");
    assert!(list.contains(&format!("addr={}:0 ", path.display())) && list.contains("flags=U "), "{list}");
    server.stop().unwrap();
    assert!(!path.exists());
}

#[test]
fn the_configuration_changes_at_run_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    std::fs::write(&file, "# mine\ntimeout 0\n").unwrap();
    let path = file.clone();
    let server = Server::with(move |config| config.file = Some(path.clone()));
    let mut client = server.client();
    client.says(
        "config get maxclients timeout",
        "*4\r\n$7\r\ntimeout\r\n$1\r\n0\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n",
    );
    client.says("config set timeout 77 appendfsync everysec", "+OK\r\n");
    client.says(
        "config get timeout appendfsync",
        "*4\r\n$7\r\ntimeout\r\n$2\r\n77\r\n$11\r\nappendfsync\r\n$8\r\neverysec\r\n",
    );
    client.says("config get duramen-dur*", "*2\r\n$18\r\nduramen-durability\r\n$11\r\ninterval 1s\r\n");
    client.says(
        "config set timeout 5 port 1",
        "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config\r\n",
    );
    client.says("config set timeout 5 maxclients x", "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be parsed into an integer\r\n");
    client.says("config get timeout", "*2\r\n$7\r\ntimeout\r\n$2\r\n77\r\n");
    client.says(
        "config set nosuch 1",
        "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'\r\n",
    );
    client.says("config rewrite", "+OK\r\n");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("# mine\ntimeout 77\n") && text.contains("\nduramen-durability interval 1s\n"),
        "{text}"
    );
}

#[test]
fn info_counts_commands_and_connections() {
    let server = Server::start();
    let mut client = server.client();
    client.says("get k", "$-1\r\n");
    client.says("get", "-ERR wrong number of arguments for 'get' command\r\n");
    client.says("select 99", "-ERR DB index is out of range\r\n");
    let text = client.text("info everything");
    for wanted in [
        "redis_version:7.2.4\r\n",
        "server_name:duramen\r\n",
        "duramen_version:",
        "connected_clients:1\r\n",
        "cmdstat_get:calls=1,",
        ",rejected_calls=1,failed_calls=0\r\n",
        "cmdstat_select:calls=1,",
        "errorstat_ERR:count=2\r\n",
        "total_error_replies:2\r\n",
        "role:master\r\n",
        "cluster_enabled:0\r\n",
    ] {
        assert!(text.contains(wanted), "{wanted:?} is not in {text}");
    }
    client.says("config resetstat", "+OK\r\n");
    let text = client.text("info commandstats");
    assert!(!text.contains("cmdstat_get"), "{text}");
    assert_eq!(client.text("info nosuch"), "");
    eventually("rates are sampled", || client.text("info stats").contains("instantaneous_ops_per_sec:"));
}
