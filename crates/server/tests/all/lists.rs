//! Lists over sockets: exact bytes, and several clients at once.

use crate::support::Server;
use std::collections::BTreeSet;

#[test]
fn each_reply_of_a_list_has_its_bytes_in_both_protocols() {
    let server = Server::start();
    let mut client = server.client();
    client.says("rpush l a b c", ":3\r\n");
    client.says("lpush l y x", ":5\r\n");
    client.says("lrange l 0 -1", "*5\r\n$1\r\nx\r\n$1\r\ny\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
    client.says("type l\r\nobject encoding l", "+list\r\n$9\r\nquicklist\r\n");
    client.says("lpop l\r\nrpop l 2", "$1\r\nx\r\n*2\r\n$1\r\nc\r\n$1\r\nb\r\n");
    client.says("lmpop 2 absent l left count 9", "*2\r\n$1\r\nl\r\n*2\r\n$1\r\ny\r\n$1\r\na\r\n");
    client.says("exists l\r\nlpop l\r\nlpop l 1\r\nlmpop 1 l left", ":0\r\n$-1\r\n*-1\r\n*-1\r\n");
    client.hello_3();
    client.says("lpop l\r\nlpop l 1\r\nlmpop 1 l left\r\nlindex l 0", "_\r\n_\r\n_\r\n_\r\n");
    client.says("lrange l 0 -1", "*0\r\n");
}

#[test]
fn a_queue_gives_each_element_to_one_client() {
    let server = Server::start();
    const CLIENTS: usize = 4;
    const EACH: usize = 200;
    let taken: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let server = &server;
                scope.spawn(move || {
                    let mut connection = server.client();
                    let mut taken = Vec::new();
                    for at in 0..EACH {
                        connection.send(format!("lpush queue {client}.{at}\r\n"));
                        assert!(connection.line().starts_with(':'));
                        // There is at least the one that this client put and nobody has taken for it.
                        connection.send("lmove queue done right left\r\n");
                        assert!(connection.line().starts_with('$'));
                        taken.push(connection.line());
                    }
                    taken
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(taken.len(), CLIENTS * EACH);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), CLIENTS * EACH);
    let mut client = server.client();
    client.says("llen queue\r\nllen done\r\ndbsize", &format!(":0\r\n:{}\r\n:1\r\n", CLIENTS * EACH));
}
