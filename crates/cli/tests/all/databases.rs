//! Databases of a server that is killed: emptied, swapped and written keys are right, and counted right at once.

use crate::damage::Server;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const DATABASES: usize = 3;
type Databases = [BTreeSet<u32>; DATABASES];

/// What a command is to the model.
#[derive(Clone, Copy, Debug)]
enum Step {
    Set(usize, u32),
    Delete(usize, u32),
    Flush(usize),
    FlushAll,
    Swap(usize, usize),
    /// Two databases in one transaction.
    Both(u32),
}

impl Step {
    fn random(random: &mut impl FnMut(u32) -> u32) -> Self {
        let db = random(DATABASES as u32) as usize;
        match random(100) {
            0..3 => Self::Flush(db),
            3 => Self::FlushAll,
            4..8 => Self::Swap(db, random(DATABASES as u32) as usize),
            8..20 => Self::Both(random(500)),
            20..30 => Self::Delete(db, random(500)),
            _ => Self::Set(db, random(500)),
        }
    }

    /// Requests, and the last reply.
    fn request(self) -> (String, &'static str) {
        match self {
            Self::Set(db, key) => (format!("SELECT {db}\r\nSET {key} v\r\n"), "+OK\r\n+OK\r\n"),
            Self::Delete(db, key) => (format!("SELECT {db}\r\nDEL {key}\r\n"), "+OK\r\n:N\r\n"),
            Self::Flush(db) => (format!("SELECT {db}\r\nFLUSHDB\r\n"), "+OK\r\n+OK\r\n"),
            Self::FlushAll => ("FLUSHALL\r\n".into(), "+OK\r\n"),
            Self::Swap(a, b) => (format!("SWAPDB {a} {b}\r\n"), "+OK\r\n"),
            Self::Both(key) => (
                format!("MULTI\r\nSELECT 0\r\nSET {key} v\r\nSELECT 1\r\nSET {key} v\r\nEXEC\r\n"),
                "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*4\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
            ),
        }
    }

    fn apply(self, databases: &mut Databases) {
        match self {
            Self::Set(db, key) => {
                databases[db].insert(key);
            }
            Self::Delete(db, key) => {
                databases[db].remove(&key);
            }
            Self::Flush(db) => databases[db].clear(),
            Self::FlushAll => databases.iter_mut().for_each(BTreeSet::clear),
            Self::Swap(a, b) => databases.swap(a, b),
            Self::Both(key) => {
                databases[0].insert(key);
                databases[1].insert(key);
            }
        }
    }
}

/// Whether the step was answered, and so done.
fn is_done(client: &mut UnixStream, step: Step) -> bool {
    let (request, answer) = step.request();
    if client.write_all(request.as_bytes()).is_err() {
        return false;
    }
    let mut said = vec![0; answer.len()];
    if client.read_exact(&mut said).is_err() {
        return false;
    }
    let said = String::from_utf8(said).unwrap();
    let said = if answer.contains(":N") { said.replace(['0', '1'], "N") } else { said };
    assert_eq!(said, answer, "{step:?}");
    true
}

fn found(server: &Server) -> Databases {
    std::array::from_fn(|db| {
        let said = server.ask(&format!("SELECT {db}\r\nDBSIZE\r\nKEYS *"));
        let mut lines = said.lines().skip(1);
        let count: usize = lines.next().unwrap()[1..].parse().unwrap();
        let keys: BTreeSet<u32> =
            lines.filter(|line| !line.starts_with(['*', '$'])).map(|line| line.parse().unwrap()).collect();
        assert_eq!(count, keys.len(), "DBSIZE and KEYS of database {db}");
        keys
    })
}

fn rounds(dir: &Path, seed: u32) {
    let mut state = seed;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let mut wanted = Databases::default();
    let mut in_flight = None;
    for round in 0..6 {
        let mut server = Server::start(dir, &[]);
        let now = found(&server);
        if let Some(step) = in_flight.take()
            && now != wanted
        {
            // All of it or nothing.
            let before = wanted.clone();
            Step::apply(step, &mut wanted);
            let is_part = matches!(step, Step::FlushAll)
                && (0..DATABASES).all(|db| now[db].is_empty() || now[db] == before[db]);
            if is_part {
                wanted.clone_from(&now);
            }
        }
        assert_eq!(now, wanted, "seed {seed}, round {round}");
        let mut client = UnixStream::connect(dir.join("socket")).unwrap();
        let pid = server.child.id();
        let after = Duration::from_millis(u64::from(20 + random(120)));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(after);
            assert!(
                std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success()
            );
        });
        loop {
            let step = Step::random(&mut random);
            if !is_done(&mut client, step) {
                in_flight = Some(step);
                break;
            }
            step.apply(&mut wanted);
        }
        killer.join().unwrap();
        server.child.wait().unwrap();
    }
    let server = Server::start(dir, &[]);
    found(&server);
    server.shut_down();
}

#[test]
fn databases_are_as_acknowledged_and_counted_right_after_each_kill() {
    for (place, seed) in [("/dev/shm", 1), ("/tmp", 2)] {
        let dir = tempfile::tempdir_in(place).unwrap();
        rounds(dir.path(), seed);
    }
}

/// What earlier builds kept in the store's own table, and what programs do, is in no database, and the log says so.
#[test]
fn keys_of_the_stores_own_table_are_reported_and_kept() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = dir.path();
    let duramen = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_duramen"));
        let output = command.args(args).current_dir(dir).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    duramen(&["put", "own", "value"]);
    let server = Server::start(dir, &[]);
    server.await_line("the store's own table, which is not a database, holds 1 key:");
    assert_eq!(server.ask("DBSIZE"), ":0\r\n");
    assert_eq!(server.ask("SET key value"), "+OK\r\n");
    assert_eq!(server.ask("FLUSHALL"), "+OK\r\n");
    assert_eq!(server.ask("SET key value"), "+OK\r\n");
    server.shut_down();
    assert_eq!(duramen(&["get", "own"]), "value");
    assert_eq!(duramen(&["scan", "--db", "0"]), "key\n");
}
