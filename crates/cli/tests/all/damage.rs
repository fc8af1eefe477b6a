//! A store that is damaged while it is closed: which keys are refused, served and reported.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn duramen(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duramen"));
    command.args(args).current_dir(dir);
    command
}

/// Runs a command that must end with `code`; returns what it printed, both streams.
fn ends(dir: &Path, code: i32, args: &[&str]) -> String {
    let output = duramen(dir, args).output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    said
}

pub struct Server {
    pub child: Child,
    dir: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SERVE: [&str; 7] = ["serve", "--port", "0", "--unixsocket", "socket", "--logfile", "log"];

impl Server {
    pub fn start(dir: &Path, more: &[&str]) -> Self {
        let _ = fs::remove_file(dir.join("socket"));
        let _ = fs::remove_file(dir.join("log"));
        let mut command = duramen(dir, &[&SERVE, more].concat());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let server = Self { child, dir: dir.to_owned() };
        server.await_line("ready; try");
        server
    }

    pub fn await_line(&self, wanted: &str) -> String {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            if let Some(line) = log.lines().find(|line| line.contains(wanted)) {
                return line.to_owned();
            }
            assert!(Instant::now() < end, "no line with {wanted:?}:\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn ask(&self, command: &str) -> String {
        let mut client = UnixStream::connect(self.dir.join("socket")).unwrap();
        client.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        said.strip_suffix("+OK\r\n").unwrap().to_owned()
    }

    pub fn shut_down(mut self) -> String {
        let mut client = UnixStream::connect(self.dir.join("socket")).unwrap();
        client.write_all(b"SHUTDOWN\r\n").unwrap();
        assert!(self.child.wait().unwrap().success());
        fs::read_to_string(self.dir.join("log")).unwrap()
    }
}

/// A closed store with an index checkpoint, so that an open reads no record, in which three values are damaged.
fn damaged_store(dir: &Path, index: &str) {
    let value = "v".repeat(100_000);
    // As a server keeps strings in its database 0.
    let table = format!("{{\"table\":\"redis.0\",\"index\":\"{index}\"}}\n");
    let line = |i| format!("{{\"table\":\"redis.0\",\"key\":\"key{i}\",\"value\":\"{value}\",\"tag\":1}}\n");
    fs::write(dir.join("lines"), table + &(0..800).map(line).collect::<String>()).unwrap();
    ends(dir, 0, &["load", "lines"]);
    if index == "ordered" {
        // Its image is that of another index, which this start rebuilds.
        Server::start(dir, &["--duramen-index", index]).shut_down();
    }
    let path = dir.join("duramen-data");
    let mut bytes = fs::read(&path).unwrap();
    for key in [b"key123vv", b"key400vv", b"key700vv"] {
        let at = bytes.windows(8).position(|part| part == key).unwrap();
        bytes[at + 1000] ^= 1;
    }
    fs::write(&path, &bytes).unwrap();
}

#[test]
fn a_damaged_store_is_refused_or_its_intact_keys_are_served_and_reported() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = dir.path();
    damaged_store(dir, "hash");
    let path = dir.join("duramen-data");

    // Nobody knows yet, and says so; asked for it, it is verified.
    let said = ends(dir, 0, &["stats"]);
    assert!(
        said.contains("\ndamaged_blocks 0\n") && said.contains("bytes are not verified: --verify"),
        "{said}"
    );
    let said = ends(dir, 0, &["stats", "--verify"]);
    assert!(said.contains("\ndamaged_blocks 3\n") && said.contains("\nunverified_bytes 0\n"), "{said}");
    assert!(said.contains("\ndamage: block at extent ") && !said.contains("not verified"), "{said}");
    let before = fs::read(&path).unwrap();
    let said = ends(dir, 3, &[&SERVE[..], &["--duramen-verify-at-start", "yes"]].concat());
    assert!(
        said.contains("no whole record at offset") && said.contains("duramen-on-corruption serve"),
        "{said}"
    );
    assert!(fs::read(&path).unwrap() == before, "a refused start changed the store");

    // A start that does not verify finds it while it serves; the end reports it, and the next start refuses.
    let server = Server::start(dir, &[]);
    let told = server.await_line("the store is damaged in 3 blocks");
    assert!(told.contains(" # ") && told.contains("duramen check --path"), "{told}");
    assert!(server.ask("INFO duramen").contains("duramen_damaged_blocks:3\r\n"));
    assert!(
        server.ask("GET key123").starts_with("-CORRUPT the record at offset "),
        "{}",
        server.ask("GET key123")
    );
    assert!(server.ask("GET key124").starts_with("$100000\r\n"));
    let count: u32 = 1 + u32::from(server.ask("STRLEN key123").starts_with("-CORRUPT "));
    let errors = server.ask("INFO errorstats");
    assert!(count == 2 && errors.contains("errorstat_CORRUPT:count=2\r\n"), "{errors}");
    let log = server.shut_down();
    assert!(log.contains("closed with damage in 3 blocks; the next start refuses it"), "{log}");
    let said = ends(dir, 3, &SERVE);
    assert!(said.contains("damaged in 3 places") && said.contains("duramen-on-corruption serve"), "{said}");
    let said = ends(dir, 0, &["stats"]);
    assert!(said.contains("\ndamaged_blocks 3\n"), "{said}");

    // Whose it may be, in text and JSON, and what salvage would leave out.
    let said = ends(dir, 1, &["check", "--json", "found"]);
    assert!(said.contains("may be of key \"key123\": its value is lost"), "{said}");
    let found: serde_json::Value = serde_json::from_slice(&fs::read(dir.join("found")).unwrap()).unwrap();
    let named: Vec<_> =
        found["damaged_records"].as_array().unwrap().iter().map(|record| &record["may_be_key"]).collect();
    assert!(named.len() == 3 && named.contains(&&"key123".into()), "{found}");
    assert_eq!(
        (&found["damaged_records"][0]["remains"], &found["sound"]),
        (&"nothing".into(), &false.into())
    );
    let said = ends(dir, 0, &["check", "--salvage", "saved", "--json", "found"]);
    assert!(said.contains("may be of key \"key123\"") && said.contains("saved "), "{said}");
    let found: serde_json::Value = serde_json::from_slice(&fs::read(dir.join("found")).unwrap()).unwrap();
    assert!(found["saved"].as_u64() >= Some(797), "{found}");
    // In the table that it was in.
    let saved = ends(dir, 0, &["scan", "--path", "saved", "--db", "0"]);
    assert_eq!(Some(saved.lines().count() as u64), found["saved"].as_u64());

    // The rest is served, until the damaged keys are gone.
    let server = Server::start(dir, &["--duramen-on-corruption", "serve"]);
    server.await_line("damaged: block at extent ");
    server.await_line("the store is damaged in 3 blocks");
    assert!(server.ask("CONFIG GET duramen-on-corruption").contains("serve\r\n"));
    assert!(server.ask("GET key123").starts_with("-CORRUPT "));
    assert!(
        (0..800)
            .filter(|number| ![123, 400, 700].contains(number))
            .all(|number| { server.ask(&format!("STRLEN key{number}")) == ":100000\r\n" })
    );
    assert_eq!(server.ask("DEL key123"), ":1\r\n");
    assert_eq!(server.ask("GET key123"), "$-1\r\n");
    assert_eq!(server.ask("SET key400 whole"), "+OK\r\n");
    assert_eq!(server.ask("GET key400"), "$5\r\nwhole\r\n");
    // Several at once are one batch.
    assert_eq!(server.ask("DEL key700 key1 absent"), ":2\r\n");
    assert_eq!(server.ask("EXISTS key700 key1"), ":0\r\n");
    server.await_line("the store is not damaged any more");
    assert!(server.ask("INFO duramen").contains("duramen_damaged_blocks:0\r\n"));
    let log = server.shut_down();
    assert!(!log.contains("closed with damage"), "{log}");
    assert!(ends(dir, 0, &["check"]).contains("sound"));
}

/// All that SCAN returns, over as many calls as it takes.
fn scan(server: &Server) -> Vec<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let said = server.ask(&format!("SCAN {cursor} COUNT 20"));
        assert!(said.starts_with("*2\r\n"), "{said}");
        let mut lines = said.lines().skip(2);
        cursor = lines.next().unwrap().to_owned();
        keys.extend(lines.filter(|line| !line.starts_with(['*', '$'])).map(str::to_owned));
        if cursor == "0" {
            return keys;
        }
    }
}

/// Damaged records do not block: a walk over all keys skips them, and deleting all keys deletes them too. Within a
/// transaction, which deletes key by key, it is refused, and nothing is deleted.
#[test]
fn a_server_scans_past_damaged_keys_and_flushes_them() {
    for index in ["hash", "ordered"] {
        for flush in ["FLUSHALL", "FLUSHDB"] {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let dir = dir.path();
            damaged_store(dir, index);
            let server = Server::start(dir, &["--duramen-on-corruption", "serve", "--duramen-index", index]);
            server.await_line("the store is damaged in 3 blocks");
            let keys = |number: usize| format!("key{number}");
            let whole: BTreeSet<String> =
                (0..800).filter(|number| ![123, 400, 700].contains(number)).map(keys).collect();
            let scanned: BTreeSet<String> = scan(&server).into_iter().collect();
            assert_eq!(scanned, whole, "{index}");
            for pattern in ["*", "key*"] {
                let said = server.ask(&format!("KEYS {pattern}"));
                assert!(said.starts_with("*797\r\n"), "{index}: {}", &said[..80.min(said.len())]);
            }
            for _ in 0..20 {
                let said = server.ask("RANDOMKEY");
                assert!(whole.contains(said.lines().nth(1).unwrap_or_default()), "{said}");
            }
            // All but one whole key goes.
            let rest: Vec<&String> = whole.iter().skip(1).collect();
            for keys in rest.chunks(100) {
                let keys: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
                assert_eq!(server.ask(&format!("DEL {}", keys.join(" "))), format!(":{}\r\n", keys.len()));
            }
            for _ in 0..20 {
                assert!(server.ask("RANDOMKEY").contains(whole.first().unwrap()));
            }
            let said = server.ask("GET key123");
            assert!(said.starts_with("-CORRUPT "), "{index} {flush}: {said}");
            for all in ["FLUSHALL", "FLUSHDB"] {
                let said = server.ask(&format!("MULTI\r\n{all}\r\nEXEC"));
                assert!(said.contains("*1\r\n-CORRUPT "), "{index} {all}: {said}");
            }
            assert!(server.ask("RANDOMKEY").contains(whole.first().unwrap()));
            assert!(server.ask(flush).ends_with("+OK\r\n"), "{flush}");
            for key in [123, 400, 700] {
                assert_eq!(server.ask(&format!("GET key{key}")), "$-1\r\n");
            }
            assert_eq!(server.ask("KEYS *"), "*0\r\n");
            assert_eq!(server.ask("RANDOMKEY"), "$-1\r\n");
            server.await_line("the store is not damaged any more");
            assert_eq!(server.ask("DBSIZE"), ":0\r\n", "{index} {flush}");
            assert_eq!(server.ask("SET key123 new"), "+OK\r\n");
            assert_eq!(server.ask("DBSIZE"), ":1\r\n", "{index} {flush}");
            server.shut_down();
            assert!(ends(dir, 0, &["check"]).contains("sound"));
            let server = Server::start(dir, &["--duramen-index", index]);
            assert_eq!(scan(&server), ["key123"]);
        }
    }
}

/// The mapping ends with the file: access to a missing page ends the process, which names the page.
#[test]
fn a_server_whose_file_is_truncated_names_it_before_it_ends() {
    use std::os::unix::process::ExitStatusExt;
    for place in ["/dev/shm", "/tmp"] {
        let dir = tempfile::tempdir_in(place).unwrap();
        let dir = dir.path();
        let mut server = Server::start(dir, &["--duramen-durability", "1s"]);
        let value = "v".repeat(1000);
        for key in 0..2000 {
            assert_eq!(server.ask(&format!("SET key{key} {value}")), "+OK\r\n");
        }
        let path = dir.join("duramen-data");
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let mut client = UnixStream::connect(dir.join("socket")).unwrap();
        // Some of them are after the cut; the first ends the server.
        let gets: String = (0..2000).map(|key| format!("GET key{key}\r\n")).collect();
        let _ = client.write_all(gets.as_bytes());
        let _ = client.read_to_end(&mut Vec::new());
        let status = server.child.wait().unwrap();
        assert_eq!(status.signal(), Some(7), "{status:?}");
        let log = fs::read_to_string(dir.join("log")).unwrap();
        let line =
            log.lines().find(|line| line.contains("ends with SIGBUS: ")).unwrap_or_else(|| panic!("{log}"));
        let offset = line.split("the page at offset 0x").nth(1).unwrap().split(' ').next().unwrap();
        assert!(u64::from_str_radix(offset, 16).unwrap() >= 1 << 20, "{line}");
        assert!(
            line.contains(&format!("of {}", path.display()))
                || line.contains("of duramen-data could")
                || line.contains("of ./duramen-data could"),
            "{line}"
        );
        assert_eq!(log.matches("ends with SIGBUS").count(), 1, "{log}");
    }
}
