//! The wire, byte for byte: requests of every form and every kind of malformed one.

use crate::support::{Client, Server, eventually};
use std::time::Duration;

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = Server::start();
    let mut client = server.client();
    let (mut request, mut wanted) = (String::new(), String::new());
    for index in 0..5000 {
        request += &format!("*3\r\n$3\r\nSET\r\n$5\r\nk{index:04}\r\n$4\r\n{index:04}\r\n");
        request += &format!("*2\r\n$3\r\nget\r\n$5\r\nk{index:04}\r\n");
        wanted += &format!("+OK\r\n$4\r\n{index:04}\r\n");
    }
    let mut writer = Client(client.0.try_clone().unwrap());
    let sender = std::thread::spawn(move || writer.send(request));
    client.expect(wanted);
    sender.join().unwrap();
}

#[test]
fn a_request_may_arrive_byte_by_byte() {
    let server = Server::start();
    let mut client = server.client();
    for byte in b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n" {
        client.send([*byte]);
    }
    client.expect("+OK\r\n$3\r\na\r\n\r\n+PONG\r\n");
}

#[test]
fn inline_commands_have_quotes() {
    let server = Server::start();
    let mut client = server.client();
    client.says(r#"set k "a \x41\n" "#, "+OK\r\n");
    client.says("get 'k'", "$4\r\na A\n\r\n");
    client.says("\r\n   \r\nPING", "+PONG\r\n");
    client.says("EcHo ''", "$0\r\n\r\n");
    client.send("PING\n");
    client.expect("+PONG\r\n");
}

#[test]
fn malformed_requests_get_the_error_of_redis_and_the_end() {
    let server = Server::start();
    let long = "1".repeat(70_000);
    for (request, error) in [
        ("*x\r\n".to_owned(), "invalid multibulk length"),
        ("*99999999999\r\n".to_owned(), "invalid multibulk length"),
        ("*1\r\n:3\r\n".to_owned(), "expected '$', got ':'"),
        ("*1\r\n\r\n".to_owned(), "expected '$', got ' '"),
        ("*1\r\n$x\r\n".to_owned(), "invalid bulk length"),
        ("*1\r\n$-1\r\n".to_owned(), "invalid bulk length"),
        ("*1\r\n$629145600\r\n".to_owned(), "invalid bulk length"),
        ("set 'a' \"b\"c\r\n".to_owned(), "unbalanced quotes in request"),
        (format!("*{long}"), "too big mbulk count string"),
        (format!("*1\r\n${long}"), "too big bulk count string"),
        (long, "too big inline request"),
    ] {
        let mut client = server.client();
        client.send(format!("PING\r\n{request}"));
        client.expect(format!("+PONG\r\n-ERR Protocol error: {error}\r\n"));
        client.expect_end();
    }
}

#[test]
fn an_error_reply_arrives_though_more_was_sent() {
    let server = Server::start();
    let mut client = server.client();
    client.send(b"*2\r\n$3\r\nGET\r\n$629145600\r\n");
    // The client does not know yet, and continues; the server must not reset the connection for it.
    for _ in 0..64 {
        if std::io::Write::write_all(&mut client.0, &[b'x'; 16 << 10]).is_err() {
            break;
        }
    }
    client.expect("-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn an_http_request_ends_the_connection_without_effect() {
    let server = Server::start();
    for request in ["POST / HTTP/1.1\r\nHost: x\r\n\r\nset k v\r\n", "Host: x\r\n"] {
        let mut client = server.client();
        client.send(request);
        client.expect_end();
    }
    server.client().says("get k", "$-1\r\n");
}

#[test]
fn before_auth_requests_must_be_small() {
    let server = Server::with(|config| config.requirepass = "secret".to_owned());
    for (request, error) in [
        ("*11\r\n", "unauthenticated multibulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.send(request);
        client.expect(format!("-ERR Protocol error: {error}\r\n"));
        client.expect_end();
    }
}

#[test]
fn values_of_many_megabytes_are_set_and_read() {
    let server = Server::start();
    let mut client = server.client();
    let value = vec![b'v'; 20 << 20];
    client.send(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n", value.len()));
    client.send(&value);
    client.send("\r\nSTRLEN big\r\nGET big\r\n");
    client.expect(format!("+OK\r\n:{}\r\n${}\r\n", value.len(), value.len()));
    client.expect(&value);
    client.expect("\r\n");
}

#[test]
fn hello_changes_the_protocol() {
    let server = Server::start();
    let mut client = server.client();
    client.says("get none", "$-1\r\n");
    client.send("HELLO 3\r\n");
    client.expect("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.4\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:");
    client.line();
    client.expect("$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n");
    client.says("get none", "_\r\n");
    client.says("config get port nothing", &format!("%1\r\n$4\r\nport\r\n$5\r\n{}\r\n", server.port));
    client.says("HELLO 4", "-NOPROTO unsupported protocol version\r\n");
    client.says("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n");
    client.says("HELLO 3 foo", "-ERR Syntax error in HELLO option 'foo'\r\n");
    client.says("reset", "+RESET\r\n");
    client.says("get none", "$-1\r\n");
}

#[test]
fn unknown_commands_show_their_arguments() {
    let server = Server::start();
    let mut client = server.client();
    client.says("foo a b", "-ERR unknown command 'foo', with args beginning with: 'a' 'b' \r\n");
    client.says("client foo", "-ERR unknown subcommand 'foo'. Try CLIENT HELP.\r\n");
    client.says("client", "-ERR wrong number of arguments for 'client' command\r\n");
    client.says("config get", "-ERR wrong number of arguments for 'config|get' command\r\n");
    let long = "x".repeat(200);
    let cut = &long[..128];
    client.says(
        &format!("{long} {long} b"),
        &format!("-ERR unknown command '{cut}', with args beginning with: '{cut}' \r\n"),
    );
}

#[test]
fn a_client_that_stops_sending_still_gets_its_replies() {
    let server = Server::start();
    let mut client = server.client();
    client.send("PING\r\nPING\r\n");
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    client.expect("+PONG\r\n+PONG\r\n");
    client.expect_end();
    // And its connection does not remain.
    let mut other = server.client();
    eventually("the connection is gone", || other.text("client list").lines().count() == 1);
}

#[test]
fn replies_can_be_switched_off() {
    let server = Server::start();
    let mut client = server.client();
    client.send("client reply off\r\nping\r\nclient reply skip\r\nping\r\nclient reply on\r\nping\r\n");
    client.expect("+OK\r\n+PONG\r\n");
    client.send("client reply skip\r\nping\r\necho a\r\n");
    client.expect("$1\r\na\r\n");
    client.says("client reply foo", "-ERR syntax error\r\n");
    client.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(std::io::Read::read(&mut client.0, &mut [0]).is_err());
}

#[test]
fn an_ordered_index_gives_keys_in_order_and_a_scan_misses_none_among_deletes() {
    let server = Server::with(|config| config.index = duramen::IndexKind::Ordered);
    let mut client = server.client();
    for key in ["b:2", "a:1", "b:1", "c", "b:3"] {
        client.says(&format!("set {key} v"), "+OK\r\n");
    }
    client.says("keys b:*", "*3\r\n$3\r\nb:1\r\n$3\r\nb:2\r\n$3\r\nb:3\r\n");
    client.says("keys b:?", "*3\r\n$3\r\nb:1\r\n$3\r\nb:2\r\n$3\r\nb:3\r\n");
    client.says("keys nothing*", "*0\r\n");
    client.says("select 1", "+OK\r\n");
    for n in 0..2000 {
        client.says(&format!("set key:{n:04} v"), "+OK\r\n");
    }
    // A client empties a keyspace by SCAN; leaves merge after the cursor, and before it.
    let (mut cursor, mut seen) = ("0".to_owned(), std::collections::BTreeSet::new());
    loop {
        client.send(format!("scan {cursor} count 50\r\n"));
        assert_eq!(client.line(), "*2");
        client.line();
        cursor = client.line();
        let count: usize = client.line()[1..].parse().unwrap();
        for _ in 0..count {
            client.line();
            seen.insert(client.line());
        }
        for key in
            seen.iter().rev().take(count).filter(|key| !key.ends_with('7')).cloned().collect::<Vec<_>>()
        {
            client.send(format!("del {key}\r\n"));
            client.line();
        }
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 2000);
    client.says("dbsize", ":200\r\n");
}
