//! A command that panics is answered by an error, and ends nothing else.

use crate::support::{Client, Server};
use duramen::MediumKind;
use duramen_server::config::Allowed;
use std::path::Path;

const PANICKED: &str =
    "-ERR internal error: command crashed; its effect is unknown, see the server's log\r\n";

fn server(medium: MediumKind, path: &Path) -> Server {
    Server::with(|config| {
        (config.medium, config.path) = (medium, path.to_owned());
        config.enable_debug_command = Allowed::Local;
    })
}

#[test]
fn a_panicking_command_is_answered_and_all_clients_continue() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(MediumKind::File, &directory.path().join("store"));
    // Two of each worker.
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for round in 0..20 {
        for at in 0..4 {
            // In the middle of a pipeline, which is one turn.
            clients[at].send(format!("SET a{at} {round}\r\nDEBUG PANIC\r\nINCR n{at}\r\nGET a{at}\r\n"));
            let text = round.to_string();
            let counted = round + 1;
            clients[at].expect(format!("+OK\r\n{PANICKED}:{counted}\r\n${}\r\n{text}\r\n", text.len()));
            let next = (at + 1) % 4;
            clients[next].says("ping", "+PONG\r\n");
        }
    }
    let info = clients[0].text("info errorstats");
    assert!(info.contains("errorstat_ERR:count=80\r\n"), "{info}");
    let info = clients[0].text("info commandstats");
    assert!(info.contains("cmdstat_debug:calls=80,") && info.contains("failed_calls=80\r\n"), "{info}");
    clients[0].says("dbsize", ":8\r\n");
    drop(clients);
    server.stop().unwrap();
    let store = duramen::Options::default().open(directory.path().join("store")).unwrap();
    assert!(store.recovery().clean);
    let database = store.find_table(b"redis.0").unwrap().unwrap();
    assert_eq!(database.get(b"a3").unwrap().as_deref(), Some(&b"19"[..]));
}

#[test]
fn a_panic_leaves_a_transaction_as_an_error_does() {
    let server = server(MediumKind::Volatile, Path::new("volatile"));
    let (mut client, mut other) = (server.client(), server.client());
    // Inside of EXEC: nothing of it was written, and it is over.
    client.says("mset a 1 b 1", "+OK\r\n");
    client.send("MULTI\r\nSET a 2\r\nSELECT 3\r\nDEBUG PANIC\r\nSET b 2\r\nEXEC\r\n");
    client.expect(format!("+OK\r\n{}{PANICKED}", "+QUEUED\r\n".repeat(4)));
    client.says("mget a b", "*2\r\n$1\r\n1\r\n$1\r\n1\r\n");
    client.says("exec", "-ERR EXEC without MULTI\r\n");
    // What was watched before it stays watched.
    client.says("watch a", "+OK\r\n");
    client.says("debug panic", PANICKED);
    other.says("set a 3", "+OK\r\n");
    client.send("MULTI\r\nSET b 3\r\nEXEC\r\n");
    client.expect("+OK\r\n+QUEUED\r\n*-1\r\n");
    client.says("get b", "$1\r\n1\r\n");
}

#[test]
fn a_panic_within_a_write_poisons_the_store_and_no_write_that_is_not_durable_is_acknowledged() {
    for medium in [MediumKind::Shm, MediumKind::File] {
        let parent = if medium == MediumKind::Shm { Path::new("/dev/shm") } else { Path::new("/tmp") };
        let directory = tempfile::tempdir_in(parent).unwrap();
        let path = directory.path().join("store");
        let server = server(medium, &path);
        let (mut client, mut other) = (server.client(), server.client());
        client.says("set kept 1", "+OK\r\n");
        client.send("SET before 1\r\nDEBUG PANIC WRITE\r\nSET behind 1\r\n");
        let acknowledged = client.line() == "+OK";
        if acknowledged {
            // Each write is durable at once.
            client.expect(PANICKED);
            assert!(client.line().starts_with("-MISCONF "));
        }
        // Reads still work, on both workers; writes are refused.
        other.says("get kept", "$1\r\n1\r\n");
        other.send("set k 1\r\n");
        assert!(other.line().starts_with("-MISCONF "));
        // Nothing that it did is in doubt, so it stays connected.
        assert!(other.text("info persistence").contains("aof_last_write_status:err\r\n"));
        other.says("get kept", "$1\r\n1\r\n");
        server.client().says("get kept", "$1\r\n1\r\n");
        drop((client, other));
        assert!(server.stop().is_err(), "it cannot be closed cleanly");
        let store = duramen::Options::default().open(&path).unwrap();
        assert!(!store.recovery().clean);
        let database = store.find_table(b"redis.0").unwrap().unwrap();
        assert!(database.get(b"kept").unwrap().is_some());
        assert!(!acknowledged || database.get(b"before").unwrap().is_some(), "{medium}");
        assert!(database.get(b"behind").unwrap().is_none() && database.get(b"k").unwrap().is_none());
        store.put(b"again", b"1").unwrap();
    }
}

#[test]
fn a_directive_says_which_clients_may_panic_on_purpose() {
    let server = Server::start();
    let mut client = server.client();
    client.send("debug panic\r\n");
    assert!(client.line().starts_with("-ERR DEBUG command not allowed."));
    client.says("debug sleep 0", "+OK\r\n");
    client.says("config get enable-debug-command", "*2\r\n$20\r\nenable-debug-command\r\n$2\r\nno\r\n");
}
