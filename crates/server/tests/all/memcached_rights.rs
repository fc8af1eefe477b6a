//! The rights of a user in memcached's protocols: each command, in each protocol, without each of its rights.

use crate::support::{Client, Server};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

const DENIED: &str = "CLIENT_ERROR access denied\r\n";
const MARK: &str = "TOPSECRET";
/// A key that the user may not use; decoded from base64 it is `allowed!!`, which the user may.
const FORBIDDEN: &str = "YWxsb3dlZCEh";
const ALLOWED: &str = "allowed:1";

/// A command: its line, the data after it, and the rights that it needs.
type Sample = (&'static str, &'static str, &'static [&'static str]);

/// Those with a key.
const WITH_KEY: &[Sample] = &[
    ("get {k}", "", &["get"]),
    ("gets {k}", "", &["get"]),
    ("bget {k}", "", &["get"]),
    ("get allowed:1 {k} allowed:2", "", &["get"]),
    ("gets allowed:1 {k}", "", &["get"]),
    ("gat 0 {k}", "", &["expire", "get"]),
    ("gats 0 {k}", "", &["expire", "get"]),
    ("gats 0 allowed:1 {k}", "", &["expire", "get"]),
    ("touch {k} 0", "", &["expire", "get"]),
    ("set {k} 0 0 1", "1", &["set"]),
    ("add {k} 0 0 1", "1", &["set"]),
    ("replace {k} 0 0 1", "1", &["set"]),
    ("append {k} 0 0 1", "1", &["set"]),
    ("prepend {k} 0 0 1", "1", &["set"]),
    ("cas {k} 0 0 1 1", "1", &["set"]),
    ("set {k} 0 0 2000000", "", &["set"]),
    ("incr {k} 1", "", &["incrby"]),
    ("decr {k} 1", "", &["incrby"]),
    ("delete {k}", "", &["del"]),
];

/// The meta commands with a key, without flags of the key's form.
const META: &[Sample] = &[
    ("mg {k} v t s f c h l", "", &["get"]),
    ("mg {k}", "", &["get"]),
    ("mg {k} R30 v", "", &["get"]),
    ("mg {k} T30 v", "", &["expire", "get"]),
    ("mg {k} N30 v", "", &["set", "expire", "get"]),
    ("ms {k} 1", "1", &["set"]),
    ("ms {k} 1 MA", "1", &["set"]),
    ("ms {k} 1 ME T0 F5", "1", &["set"]),
    ("md {k}", "", &["del"]),
    ("md {k} I T30", "", &["del"]),
    ("ma {k}", "", &["incrby"]),
    ("ma {k} N0 J5 v", "", &["incrby"]),
    ("me {k}", "", &["get"]),
];

/// Those without one.
const WITHOUT_KEY: &[Sample] = &[
    ("flush_all", "", &["flushall"]),
    ("flush_all 1000", "", &["flushall"]),
    ("stats", "", &["info"]),
    ("stats items", "", &["info"]),
    ("stats sizes", "", &["info"]),
    ("stats cachedump 1 10", "", &["keys"]),
    ("stats detail dump", "", &["keys"]),
    ("lru_crawler metadump all", "", &["keys"]),
    ("lru_crawler enable", "", &["config|set"]),
    ("lru mode flat", "", &["config|set"]),
    ("slabs automove 0", "", &["config|set"]),
    ("verbosity 0", "", &["config|set"]),
    ("cache_memlimit 1000", "", &["config|set"]),
    ("shutdown", "", &["shutdown"]),
    ("version", "", &[]),
    ("mn", "", &[]),
    ("watch", "", &[]),
    ("refresh_certs", "", &[]),
];

struct Place {
    server: Server,
    port: u16,
}

impl Place {
    fn new() -> Self {
        let port = AtomicU16::new(0);
        let server = Server::with(|config| {
            port.store(
                TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(),
                Ordering::Relaxed,
            );
            config.memcached = port.load(Ordering::Relaxed);
            config.requirepass = "pw".to_owned();
        });
        Self { server, port: port.into_inner() }
    }

    fn admin(&self) -> Client {
        let mut admin = self.server.client();
        admin.says("auth pw", "+OK\r\n");
        admin
    }

    /// A connection of memcached's text protocol, as this user.
    fn text(&self, name: &str, password: &str) -> Client {
        let mut client = Client::connect(self.port);
        let data = format!("{name} {password}");
        client.says(&format!("set auth 0 0 {}\r\n{data}", data.len()), "STORED\r\n");
        client
    }

    fn binary(&self, name: &str, password: &str) -> Client {
        let mut client = Client::connect(self.port);
        client.send(packet(0x21, &[], b"PLAIN", format!("\0{name}\0{password}").as_bytes()));
        assert_eq!(packets(&mut client, 1)[0].1, 0, "{name} logs in");
        client
    }
}

fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0, 0, 0]);
    bytes.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    bytes.extend([0; 12]);
    [&bytes, extras, key, value].concat()
}

/// Reads replies until this many have come, or one of NOOP, or the end: opcode, status and body.
fn packets(client: &mut Client, most: usize) -> Vec<(u8, u16, Vec<u8>)> {
    let mut all = Vec::new();
    let mut header = [0; 24];
    while all.len() < most && client.0.read_exact(&mut header).is_ok() {
        let mut body = vec![0; u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize];
        client.0.read_exact(&mut body).unwrap();
        all.push((header[1], u16::from_be_bytes([header[6], header[7]]), body));
        if header[1] == 0x0a {
            break;
        }
    }
    all
}

/// Sends bytes of the text protocol, and returns what is said before the answer to `mn`.
fn answers(client: &mut Client, bytes: &[u8]) -> String {
    client.send([bytes, b"mn\r\n"].concat());
    let mut said = Vec::new();
    let mut room = [0; 4096];
    while !said.ends_with(b"MN\r\n") {
        let read = client.0.read(&mut room).unwrap();
        assert!(read > 0, "closed after {}", bytes.escape_ascii());
        said.extend_from_slice(&room[..read]);
    }
    said.truncate(said.len() - 4);
    String::from_utf8_lossy(&said).into_owned()
}

fn bytes_of(line: &str, data: &str) -> Vec<u8> {
    match data {
        "" if line.contains(" 2000000") => format!("{line}\r\n{}\r\n", "x".repeat(2_000_000)).into_bytes(),
        "" => format!("{line}\r\n").into_bytes(),
        data => format!("{line}\r\n{data}\r\n").into_bytes(),
    }
}

/// Each way by which a line can come, with the number of refusals.
fn ways(line: &str, data: &str) -> Vec<(&'static str, Vec<u8>, usize)> {
    let one = bytes_of(line, data);
    vec![
        ("once", one.clone(), 1),
        ("twice in a pipeline", one.repeat(2), 2),
        ("after blanks", bytes_of(&format!("  {}", line.replace(' ', "   ")), data), 1),
        ("before a zero", bytes_of(&format!("{line}\0 {ALLOWED}"), data), 1),
        ("after an allowed one", [b"mg allowed:0\r\n", &*one].concat(), 1),
    ]
}

#[test]
fn the_samples_have_every_command_of_the_text_protocol() {
    let source = include_str!("../../src/memcached/text.rs");
    let table = source.split("match words.at(0) {").last().unwrap().split("_ => unknown").next().unwrap();
    let known: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.split("=>").next())
        .flat_map(|left| left.split("if ").next().unwrap().split("b\"").skip(1))
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    let sampled: BTreeSet<&str> = [WITH_KEY, META, WITHOUT_KEY]
        .concat()
        .iter()
        .map(|(line, ..)| line.split(' ').next().unwrap())
        .chain(["quit"])
        .collect();
    assert!(known.len() > 30, "{known:?}");
    assert_eq!(known, sampled);
}

#[test]
fn no_way_leads_around_a_right_in_the_text_protocol() {
    let place = Place::new();
    let mut admin = place.admin();
    admin.says("acl setuser limited on >pw +@all ~*", "+OK\r\n");
    let mut client = place.text("limited", "pw");
    let mut count = 0;
    for (line, data, rights) in [WITH_KEY, META, WITHOUT_KEY].concat() {
        let line = line.replace("{k}", ALLOWED);
        for right in rights {
            for rules in [format!("+@all -{right}"), "-@all".to_owned()] {
                admin.says(&format!("acl setuser limited {rules}"), "+OK\r\n");
                for (way, bytes, refusals) in ways(&line, data) {
                    // The one before it needs a right too.
                    let refusals = match way {
                        "after an allowed one" if *right == "get" || rules == "-@all" => 2,
                        _ => refusals,
                    };
                    let said = answers(&mut client, &bytes);
                    assert_eq!(said.matches(DENIED).count(), refusals, "{line}, {way}, {rules}: {said}");
                    let rest = said.replace(DENIED, "").replace("EN\r\n", "").replace("HD\r\n", "");
                    assert_eq!(rest, "", "{line}, {way}, {rules}");
                    count += 1;
                }
            }
        }
        let rules: Vec<String> = rights.iter().map(|right| format!("+{right}")).collect();
        admin.says(&format!("acl setuser limited -@all {}", rules.join(" ")), "+OK\r\n");
        let said = answers(&mut client, &bytes_of(&line, data));
        assert!(!said.contains(DENIED), "{line} needs more than {rights:?}: {said}");
    }
    assert!(count > 400, "{count} ways were tried");
}

#[test]
fn no_way_leads_to_a_forbidden_key_in_the_text_protocol() {
    let place = Place::new();
    let mut admin = place.admin();
    admin.says("acl setuser limited on >pw +@all -flushall -keys ~allowed*", "+OK\r\n");
    let mut all = place.text("default", "pw");
    let state = format!("mg {FORBIDDEN} v f t c s\r\n");
    answers(&mut all, format!("set {FORBIDDEN} 7 0 9\r\n{MARK}\r\n").as_bytes());
    let before = answers(&mut all, state.as_bytes());
    assert!(before.contains(MARK));
    let mut client = place.text("limited", "pw");
    let mut count = 0;
    for (line, data, _) in [WITH_KEY, META].concat() {
        let plain = line.replace("{k}", FORBIDDEN);
        for (way, bytes, refusals) in ways(&plain, data) {
            let said = answers(&mut client, &bytes);
            assert_eq!(said.matches(DENIED).count(), refusals, "{plain}, {way}: {said}");
            let rest = said.replace(DENIED, "").replace("EN\r\n", "").replace("HD\r\n", "");
            assert_eq!(rest, "", "{plain}, {way}");
            count += 1;
        }
        // A quiet one says nothing at most; what it did shows in the state.
        for quiet in [" noreply", " q"] {
            answers(&mut client, &bytes_of(&format!("{plain}{quiet}"), data));
            count += 1;
        }
    }
    // A key in base64, and flags that only look so.
    for (line, data, _) in META {
        for (key, is_denied) in [
            (FORBIDDEN, false),
            ("WVd4c2IzZGxaQ0Vo", true),
            ("WVd4c2IzZGxaQ0Vo====", true),
            ("Zm9yYmlkZGVu", true),
        ] {
            let said = answers(&mut client, &bytes_of(&(line.replace("{k}", key) + " b"), data));
            if *line == "me {k}" || !is_denied {
                assert!(!said.contains(MARK), "{line}, {key}: {said}");
            }
            if is_denied && !said.starts_with("CLIENT_ERROR") {
                assert_eq!(said, "", "{line}, {key}");
            }
            count += 1;
        }
        for flags in [" x", " bx", " x b", " b b", " Ob", " kb", " b x", "  bb"] {
            let said = answers(&mut client, &bytes_of(&(line.replace("{k}", FORBIDDEN) + flags), data));
            assert!(
                !said.contains(MARK) && !said.contains(&format!("ME {FORBIDDEN}")),
                "{line}{flags}: {said}"
            );
            count += 1;
        }
    }
    assert_eq!(answers(&mut all, state.as_bytes()), before);
    for (line, data, _) in [WITH_KEY, META].concat() {
        let said = answers(&mut client, &bytes_of(&line.replace("{k}", ALLOWED), data));
        assert!(!said.contains(DENIED), "{line}: {said}");
    }
    assert!(count > 300, "{count} ways were tried");
}

/// The binary commands, by opcode: the extras, a value, and the rights.
fn binary_samples() -> Vec<(u8, usize, &'static [u8], &'static [&'static str])> {
    let mut all: Vec<(u8, usize, &[u8], &[&str])> = Vec::new();
    all.extend([0x00, 0x09, 0x0c, 0x0d].map(|opcode| (opcode, 0, &b""[..], &["get"][..])));
    all.extend([0x1c, 0x1d, 0x1e, 0x23, 0x24].map(|opcode| (opcode, 4, &b""[..], &["expire", "get"][..])));
    all.extend([0x01, 0x02, 0x03, 0x11, 0x12, 0x13].map(|opcode| (opcode, 8, &b"1"[..], &["set"][..])));
    all.extend([0x0e, 0x0f, 0x19, 0x1a].map(|opcode| (opcode, 0, &b"1"[..], &["set"][..])));
    all.extend([0x04, 0x14].map(|opcode| (opcode, 0, &b""[..], &["del"][..])));
    all.extend([0x05, 0x06, 0x15, 0x16].map(|opcode| (opcode, 20, &b""[..], &["incrby"][..])));
    all
}

#[test]
fn no_way_leads_around_a_right_in_the_binary_protocol() {
    let place = Place::new();
    let mut admin = place.admin();
    admin.says("acl setuser limited on >pw +@all ~allowed*", "+OK\r\n");
    let mut all = place.text("default", "pw");
    let state = format!("mg {FORBIDDEN} v f t c s\r\n");
    answers(&mut all, format!("set {FORBIDDEN} 7 0 9\r\n{MARK}\r\n").as_bytes());
    let before = answers(&mut all, state.as_bytes());
    let mut client = place.binary("limited", "pw");
    let noop = packet(0x0a, &[], &[], &[]);
    let mut count = 0;
    let statuses = |client: &mut Client, bytes: &[u8]| -> Vec<u16> {
        client.send([bytes, &noop].concat());
        let mut said = packets(client, 1000);
        assert_eq!(said.pop().map(|(opcode, ..)| opcode), Some(0x0a), "it is still connected");
        said.into_iter().map(|(_, status, _)| status).collect()
    };
    for (opcode, extras, value, rights) in binary_samples() {
        let extras = vec![0; extras];
        let one = |key: &str| packet(opcode, &extras, key.as_bytes(), value);
        for right in rights {
            for rules in [format!("+@all -{right}"), "-@all".to_owned()] {
                admin.says(&format!("acl setuser limited {rules}"), "+OK\r\n");
                assert_eq!(
                    statuses(&mut client, &one(ALLOWED).repeat(2)),
                    [0x20, 0x20],
                    "{opcode:#x}, {rules}"
                );
                count += 1;
            }
        }
        admin.says("acl setuser limited +@all", "+OK\r\n");
        assert_eq!(statuses(&mut client, &one(FORBIDDEN).repeat(2)), [0x20, 0x20], "{opcode:#x}");
        assert!(!statuses(&mut client, &one(ALLOWED)).contains(&0x20), "{opcode:#x}");
        count += 1;
    }
    for (opcode, key, right) in
        [(0x08, "", "flushall"), (0x18, "", "flushall"), (0x10, "", "info"), (0x10, "items", "info")]
    {
        admin.says(&format!("acl setuser limited +@all -{right}"), "+OK\r\n");
        let said = statuses(&mut client, &packet(opcode, &[], key.as_bytes(), &[]));
        assert_eq!(said, [0x20], "{opcode:#x} {key}");
    }
    assert!(count > 60, "{count} ways were tried");
    // Any opcode with any lengths.
    admin.says("acl setuser limited +@all -flushall", "+OK\r\n");
    for opcode in 0..=255 {
        for extras in [0, 4, 8, 20] {
            for value in [&b""[..], b"1"] {
                let bytes = packet(opcode, &vec![0; extras], FORBIDDEN.as_bytes(), value);
                client.send([&*bytes, &noop].concat());
                let said = packets(&mut client, 1000);
                let shows = |body: &[u8]| body.windows(MARK.len()).any(|part| part == MARK.as_bytes());
                assert!(!said.iter().any(|(_, _, body)| shows(body)), "{opcode:#x} with {extras}");
                if said.last().is_none_or(|(opcode, ..)| *opcode != 0x0a) {
                    client = place.binary("limited", "pw");
                }
            }
        }
    }
    assert_eq!(answers(&mut all, state.as_bytes()), before);
}

#[test]
fn a_connection_that_is_not_logged_in_gets_nothing() {
    let place = Place::new();
    place.admin().says("acl setuser gone on >pw +@all ~*", "+OK\r\n");
    for (line, data, _) in [WITH_KEY, META, WITHOUT_KEY].concat() {
        let mut client = Client::connect(place.port);
        client.send(format!("{}\r\n", line.replace("{k}", ALLOWED)));
        if line.starts_with("set ") && line.ends_with(" 1") {
            // The form of a login.
            client.send(format!("{data}\r\n"));
            client.expect("CLIENT_ERROR bad authentication token format\r\n");
        } else {
            client.expect("CLIENT_ERROR unauthenticated\r\n");
        }
    }
    for opcode in (0..=255).filter(|opcode| !matches!(opcode, 0x0b | 0x20..=0x22)) {
        let mut client = Client::connect(place.port);
        client.send(packet(opcode, &[], b"", b""));
        let said = packets(&mut client, 2);
        assert!(said.iter().all(|(_, status, _)| *status == 0x20), "{opcode:#x}: {said:?}");
    }
    // The connections of a deleted user end, in both protocols.
    let (mut text, mut binary) = (place.text("gone", "pw"), place.binary("gone", "pw"));
    place.admin().says("acl deluser gone", ":1\r\n");
    text.expect_end();
    binary.expect_end();
}
