//! A key that cannot be read is answered by an error each time, and the connection stays open: the client may want other keys.

use crate::support::{Client, Server};
use duramen::{MediumKind, OnCorruption};
use duramen_server::config::Allowed;
use std::path::Path;

/// Each `GET` of `key` is answered by an error with `code`, alone and between others, and later requests still work.
fn fails_and_goes_on(client: &mut Client, key: &str, code: &str) {
    for _ in 0..10 {
        client.send(format!("get {key}\r\n"));
        let line = client.line();
        assert!(line.starts_with(code), "{line}");
        client.says("get whole", "$5\r\nvalue\r\n");
        client.send(format!("get whole\r\nget {key}\r\nmget whole {key}\r\nget whole\r\nping\r\n"));
        client.expect("$5\r\nvalue\r\n");
        for _ in 0..2 {
            let line = client.line();
            assert!(line.starts_with(code), "{line}");
        }
        client.expect("$5\r\nvalue\r\n+PONG\r\n");
    }
}

#[test]
fn a_read_of_a_damaged_record_is_an_error_and_the_connection_stays_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let server = || {
        Server::with(|config| {
            (config.medium, config.path, config.on_corruption) =
                (MediumKind::File, path.clone(), OnCorruption::Serve);
        })
    };
    let set = |key: &str, value: &str| {
        let first = server();
        let mut client = first.client();
        client.says("set whole value", "+OK\r\n");
        client.says(&format!("set {key} {value}"), "+OK\r\n");
        drop(client);
        first.stop().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(value.len()).position(|window| window == value.as_bytes()).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    };
    // A store this small has an index checkpoint, which says whose a damaged record is, only where damage was known
    // before.
    set("first", "a-value-of-which-a-bit-is-flipped");
    set("lost", "another-value-of-which-a-bit-is-flipped");
    let server = server();
    for _ in 0..2 {
        fails_and_goes_on(&mut server.client(), "lost", "-CORRUPT ");
    }
    // A transaction deletes key by key, and the damaged one is unknown.
    let mut client = server.client();
    for flush in ["flushdb", "flushall"] {
        client.send(format!("multi\r\n{flush}\r\nexec\r\n"));
        client.expect("+OK\r\n+QUEUED\r\n*1\r\n");
        let line = client.line();
        assert!(line.starts_with("-CORRUPT "), "{line}");
        client.says("get whole", "$5\r\nvalue\r\n");
    }
    client.says("flushall", "+OK\r\n");
    client.says("get lost", "$-1\r\n");
    client.says("dbsize", ":0\r\n");
}

#[test]
fn a_read_of_an_undurable_write_of_a_failed_store_is_an_error_and_the_connection_stays_open() {
    let directory = tempfile::tempdir_in(Path::new("/tmp")).unwrap();
    let server = Server::with(|config| {
        (config.medium, config.path) = (MediumKind::File, directory.path().join("store"));
        config.enable_debug_command = Allowed::Local;
    });
    server.client().says("set whole value", "+OK\r\n");
    // In one turn: the first is written and never becomes durable, since the panic within a write poisons the store.
    let mut client = server.client();
    client.send("SET lost 1\r\nDEBUG PANIC WRITE\r\n");
    assert!(client.line() != "+OK", "it was flushed on its own");
    for _ in 0..4 {
        fails_and_goes_on(&mut server.client(), "lost", "-MISCONF ");
    }
    assert!(server.stop().is_err(), "it cannot be closed cleanly");
}
