//! Items of a server that is killed: acknowledged items have their flags and their CAS numbers, and no number is given
//! out twice.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CLIENTS: usize = 3;
const KEYS: u64 = 60;
const LIVES: u64 = 5;

struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(directory: &Path) -> Self {
        let socket = directory.join("socket");
        let _ = std::fs::remove_file(&socket);
        let child = Command::new(env!("CARGO_BIN_EXE_duramen"))
            .args(["serve", "--port", "0", "--loglevel", "warning", "--threads", "2", "--memcached-socket"])
            .arg(&socket)
            .arg("--path")
            .arg(directory.join("store"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, socket }
    }

    fn connect(&self) -> Client {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Ok(stream) = UnixStream::connect(&self.socket) {
                return Client(BufReader::new(stream));
            }
            assert!(Instant::now() < end, "nobody listens");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    /// The first line of the reply; `None` when there is none any more.
    fn ask(&mut self, request: &str) -> Option<String> {
        self.0.get_mut().write_all(request.as_bytes()).ok()?;
        self.line()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok()?;
        line.strip_suffix("\r\n").map(str::to_owned)
    }

    /// Value, flags and number of a key.
    fn get(&mut self, key: &str) -> Option<Item> {
        let line = self.ask(&format!("mg {key} v f c\r\n")).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let ["VA", bytes, flags, number] = words[..] else {
            assert_eq!(line, "EN");
            return None;
        };
        let mut value = vec![0; bytes.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut value).unwrap();
        value.truncate(value.len() - 2);
        Some(Item {
            value: String::from_utf8(value).unwrap(),
            flags: flags[1..].parse().unwrap(),
            number: number[1..].parse().unwrap(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    value: String,
    flags: u32,
    number: u64,
}

/// The knowledge of one client: the acknowledged items, and its last request without an answer.
#[derive(Default)]
struct Known {
    items: BTreeMap<String, Item>,
    /// The key, and the value that may be there instead of the acknowledged one; the number is unknown.
    open: Option<(String, Option<(String, u32)>)>,
    numbers: Vec<u64>,
}

/// Writes until the server is gone.
fn write(client: &mut Client, number: usize, known: &mut Known, mut seed: u64) {
    loop {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = |below: u64| (seed >> 33) % below;
        let key = format!("client:{number}:{}", random(KEYS));
        let old = known.items.get(&key).cloned();
        let value = format!("{:x}", seed >> 20);
        let flags = (seed >> 40) as u32 & 0xffff;
        let (request, after) = match (random(7), &old) {
            (0, _) => (format!("md {key} q\r\nmn\r\n"), None),
            (1, Some(old)) => {
                let joined = format!("{}{value}", old.value);
                (format!("ms {key} {} MA c\r\n{value}\r\n", value.len()), Some((joined, old.flags)))
            }
            (2, Some(old)) => {
                let text = format!("ms {key} {} C{} F{flags} c\r\n{value}\r\n", value.len(), old.number);
                (text, Some((value.clone(), flags)))
            }
            // A time alone changes nothing else.
            (3, Some(old)) => (format!("touch {key} 10000\r\n"), Some((old.value.clone(), old.flags))),
            _ => {
                let text = format!("ms {key} {} F{flags} c\r\n{value}\r\n", value.len());
                (text, Some((value.clone(), flags)))
            }
        };
        known.open = Some((key.clone(), after.clone()));
        let Some(reply) = client.ask(&request) else { return };
        match (after, reply.strip_prefix("HD c")) {
            (Some((value, flags)), Some(number)) => {
                let number = number.parse().unwrap();
                known.numbers.push(number);
                known.items.insert(key, Item { value, flags, number });
            }
            (Some(_), None) => assert_eq!(reply, "TOUCHED"),
            (None, _) => {
                // The reply of a delete of a missing item comes before that of `mn`.
                if reply == "NF" && client.line().is_none() {
                    return;
                }
                known.items.remove(&key);
            }
        }
        known.open = None;
    }
}

#[test]
fn acknowledged_items_survive_a_kill_and_no_cas_number_repeats() {
    let directory = tempfile::tempdir().unwrap();
    let mut known: Vec<Known> = (0..CLIENTS).map(|_| Known::default()).collect();
    let mut seen = BTreeSet::new();
    let mut hits = 0;
    for life in 0..LIVES {
        let server = Server::start(directory.path());
        let mut client = server.connect();
        for known in &mut known {
            let open = known.open.take();
            let keys: BTreeSet<String> =
                known.items.keys().cloned().chain(open.iter().map(|(key, _)| key.clone())).collect();
            for key in keys {
                let (found, wanted) = (client.get(&key), known.items.get(&key).cloned());
                hits += u64::from(found.is_some());
                if found == wanted {
                    continue;
                }
                let (_, after) = open
                    .iter()
                    .find(|(open, _)| *open == key)
                    .unwrap_or_else(|| panic!("{key}: acknowledged {wanted:?}, found {found:?}"));
                assert_eq!(found.as_ref().map(|item| (item.value.clone(), item.flags)), *after, "{key}");
                match found {
                    Some(item) => {
                        known.numbers.push(item.number);
                        known.items.insert(key, item);
                    }
                    None => drop(known.items.remove(&key)),
                }
            }
            for number in known.numbers.drain(..) {
                assert!(seen.insert(number), "{number} was given out twice");
            }
        }
        std::thread::scope(|scope| {
            for (number, known) in known.iter_mut().enumerate() {
                let mut client = server.connect();
                scope.spawn(move || write(&mut client, number, known, life * 100 + number as u64 + 1));
            }
            std::thread::sleep(Duration::from_millis(300 + 90 * life));
            server.kill();
        });
    }
    assert!(
        hits > LIVES * KEYS && seen.len() > 300,
        "{hits} hits, {} numbers: too little was done",
        seen.len()
    );
}
