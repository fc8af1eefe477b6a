//! `cargo xtask side-by-side-memcached`: compares memcached's protocols with Debian's memcached 1.6.18, byte by byte.
//!
//! The transcripts are `testdata/memcached/*.txt`. A line is a command; ` || ` separates it from the data that follows.
//! `{x*100}` repeats text. `$2` stands for the second CAS number that the server returned. A line that begins with `@`
//! is a directive:
//!
//! | directive | meaning |
//! |---|---|
//! | `@client 2` | client 2 sends the following lines; files begin with client 1 |
//! | `@close` | this client disconnects |
//! | `@sleep 20` | wait 20 milliseconds |
//! | `@near t,exp,l* CMD` | the numbers of these flags may differ by two; those of a flag marked `*` by any amount |
//! | `@any CMD` | compare only the first word of the reply |
//! | `@names a,b CMD` | compare only the presence of these statistics |
//! | `@values a,b CMD` | compare only these statistics |
//! | `@raw "…" "…"*9` | send these bytes as they are; compare all replies, and whether the connection is closed |
//! | `@packet OPCODE key=… extras=HEX value=… cas=… opaque=…` | a packet of the binary protocol |
//!
//! After each command the client sends a `mg` of an absent key, and after each packet a no-op. Everything before their
//! replies belongs to the command. CAS numbers are compared by their order of appearance, not by value.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::intended::Intended;
use super::transcript::words;
use super::{PATIENCE, ask_raw, shortened};
use super::{Tally, read_texts};
use crate::failure::{Attempt, Failure, Result};
use crate::random::{Random, fresh_seed};
use crate::server::{Server, duramen_program, find_program, free_port};
use duramen_resp::{Connection, Ended};

const TRANSCRIPTS: &str = "testdata/memcached";
const INTENDED: &str = "testdata/memcached/intended.txt";
const MARK: &[u8] = b"mg no_item k Omark\r\n";
const MARK_REPLY: &[u8] = b"EN kno_item Omark\r\n";
const NOOP: u8 = 0x0a;
const NOOP_OPAQUE: [u8; 4] = [0xff; 4];
const HEADER_BYTES: usize = 24;
/// Random commands stop after this many differences.
const DIFFERENCES_MAX: u64 = 25;
/// Random commands between two flushes of all items.
const PHASE: u64 = 500;

#[derive(clap::Args)]
pub struct Settings {
    /// The duramen program [default: built now]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// The memcached program [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    pub memcached: Option<PathBuf>,
    /// Prints memcached's replies and compares nothing
    #[arg(long)]
    pub record: bool,
    /// Sends this many random commands instead of the transcripts
    #[arg(long, value_name = "COUNT")]
    pub random: Option<u64>,
    /// Repeats the random commands of an earlier run
    #[arg(long, requires = "random")]
    pub seed: Option<u64>,
    /// Only the transcripts whose names contain one of these
    #[arg(value_name = "NAME")]
    pub only: Vec<String>,
}

/// Runs the transcripts and prints the differences. Returns whether all of them are intended.
pub fn run(root: &Path, settings: Settings) -> Result<bool> {
    let Some(memcached) = settings.memcached.or_else(|| find_program("memcached")) else {
        return Err(Failure::new(
            "cannot find memcached in PATH: install Debian's package memcached, or name one with --memcached",
        ));
    };
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .attempt(|| "make a directory for the servers".to_owned())?;
    let intended = Intended::read(root, INTENDED)?;

    // Whether memcached pads a counter that becomes shorter depends on whether its maintainer thread holds the item.
    let more: &[&str] = if settings.random.is_some() { &["-o", "no_lru_maintainer"] } else { &[] };
    let mut sides = vec![Side::memcached(&memcached, more, directory.path())?];
    if !settings.record {
        let program = duramen_program(settings.duramen)?;
        sides.push(Side::duramen(&program, directory.path())?);
    }
    let mut run = Run { sides, intended, tally: Tally::default() };
    if let Some(count) = settings.random {
        return run.random(count, settings.seed.unwrap_or_else(fresh_seed));
    }
    let transcripts = read_transcripts(root, &settings.only)?;
    for (name, steps) in &transcripts {
        run.play(name, steps)?;
        for side in &mut run.sides {
            if let Some(status) = side.server.exited()? {
                println!("{name}: a server ended unexpectedly ({status}); its last words:");
                println!("{}", side.server.last_words());
                return Ok(false);
            }
        }
    }
    if settings.record {
        return Ok(true);
    }
    let whole = settings.only.is_empty();
    Ok(run.tally.report("side-by-side-memcached", transcripts.len(), &run.intended, INTENDED, whole))
}

/// A line of a transcript.
struct Step {
    line: usize,
    text: String,
    action: Action,
}

enum Action {
    Client(u32),
    Close,
    Sleep(Duration),
    Text(Treatment, String),
    Packet(Packet),
    Raw(Vec<u8>),
}

#[derive(Clone)]
enum Treatment {
    Exact,
    Near(Vec<String>),
    Any,
    Names(Vec<String>),
    Values(Vec<String>),
}

#[derive(Clone, Default)]
struct Packet {
    opcode: u8,
    key: String,
    extras: Vec<u8>,
    value: String,
    cas: String,
    opaque: u32,
}

fn read_transcripts(root: &Path, only: &[String]) -> Result<Vec<(String, Vec<Step>)>> {
    let parse = |(path, name, text): (String, String, String)| {
        let lines =
            (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let steps = lines.map(|(number, line)| match action(line) {
            Ok(action) => Ok(Step { line: number, text: line.to_owned(), action }),
            Err(why) => Err(Failure::new(format!("cannot read {path}:{number}: {why}"))),
        });
        Ok((name, steps.collect::<Result<_>>()?))
    };
    read_texts(root, TRANSCRIPTS, only)?.into_iter().map(parse).collect()
}

fn action(line: &str) -> std::result::Result<Action, String> {
    let Some(directive) = line.strip_prefix('@') else {
        return Ok(Action::Text(Treatment::Exact, line.to_owned()));
    };
    let (name, rest) = directive.split_once(' ').unwrap_or((directive, ""));
    let (own, after) = rest.split_once(' ').unwrap_or((rest, ""));
    let list = || own.split(',').map(str::to_owned).collect();
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("no number: {text}"));
    Ok(match name {
        "client" => Action::Client(number(rest)?),
        "close" => Action::Close,
        "sleep" => Action::Sleep(Duration::from_millis(number(rest)?.into())),
        "near" => Action::Text(Treatment::Near(list()), after.to_owned()),
        "any" => Action::Text(Treatment::Any, rest.to_owned()),
        "names" => Action::Text(Treatment::Names(list()), after.to_owned()),
        "values" => Action::Text(Treatment::Values(list()), after.to_owned()),
        "raw" => Action::Raw(words(rest)?.concat()),
        "packet" => Action::Packet(packet(rest)?),
        _ => return Err(format!("no such directive: @{name}")),
    })
}

fn packet(text: &str) -> std::result::Result<Packet, String> {
    let mut parts = text.split(' ');
    let opcode = parts.next().and_then(|opcode| u8::from_str_radix(opcode, 16).ok());
    let mut packet = Packet { opcode: opcode.ok_or("no opcode")?, ..Packet::default() };
    for part in parts {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("no value: {part}"))?;
        match name {
            "key" => packet.key = value.to_owned(),
            "value" => packet.value = value.to_owned(),
            "cas" => packet.cas = value.to_owned(),
            "opaque" => packet.opaque = value.parse().map_err(|_| format!("no number: {value}"))?,
            "extras" => {
                for digits in value.as_bytes().chunks(2) {
                    let digits = std::str::from_utf8(digits).ok();
                    let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                    packet.extras.push(byte.ok_or_else(|| format!("no bytes: {value}"))?);
                }
            }
            _ => return Err(format!("no such part: {name}")),
        }
    }
    Ok(packet)
}

/// One of the two servers, and the CAS numbers that it returned, in that order.
struct Side {
    server: Server,
    port: u16,
    numbers: Vec<u64>,
}

/// A server's reply.
#[derive(PartialEq, Eq)]
struct Said {
    bytes: Vec<u8>,
    is_closed: bool,
}

impl Side {
    fn memcached(program: &Path, more: &[&str], directory: &Path) -> Result<Self> {
        let port = free_port()?;
        let server = Server::start_memcached(program, port, more, directory)?;
        let mut side = Self { server, port, numbers: Vec::new() };
        side.wait_ready()?;
        Ok(side)
    }

    fn duramen(program: &Path, directory: &Path) -> Result<Self> {
        let port = free_port()?;
        let store = directory.join("store").display().to_string();
        let number = port.to_string();
        let log = directory.join("duramen.log");
        let settings = ["--memcached", &number, "--duramen-path", &store];
        let server = Server::start_duramen(program, &settings, &log)?;
        let mut side = Self { server, port, numbers: Vec::new() };
        side.wait_ready()?;
        Ok(side)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.server.exited()? {
                let words = self.server.last_words();
                return Err(Failure::new(format!("a server ended unexpectedly ({status}): {words}")));
            }
            if let Ok(mut connection) = Connection::open(self.port)
                && connection.send(MARK).is_ok()
                && connection.read_all(PATIENCE, |received| received == MARK_REPLY).bytes() == MARK_REPLY
            {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(Failure::new(format!("no server answers on port {}: {}", self.port, self.server.last_words())))
    }

    fn connect(&self) -> Result<Connection> {
        Connection::open(self.port).attempt(|| format!("connect to port {}", self.port))
    }

    /// Expands the repetitions and CAS numbers in a text.
    fn filled(&self, text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '$']) {
            bytes.extend_from_slice(&rest.as_bytes()[..at]);
            let (special, after) = rest[at..].split_at(1);
            let digits = after.chars().take_while(char::is_ascii_digit).count();
            let braces = after.split_once('}').and_then(|(inner, after)| {
                let (text, count) = inner.rsplit_once('*')?;
                Some((text, count.parse::<usize>().ok()?, after))
            });
            match (special, braces) {
                ("{", Some((text, count, after))) => {
                    bytes.extend_from_slice(text.repeat(count).as_bytes());
                    rest = after;
                }
                ("$", _) if digits > 0 => {
                    let index = after[..digits].parse::<usize>().unwrap_or(0);
                    let number = self.numbers.get(index.wrapping_sub(1)).copied().unwrap_or(0);
                    bytes.extend_from_slice(number.to_string().as_bytes());
                    rest = &after[digits..];
                }
                _ => {
                    bytes.extend_from_slice(special.as_bytes());
                    rest = after;
                }
            }
        }
        bytes.extend_from_slice(rest.as_bytes());
        bytes
    }

    /// The index of this CAS number, from 1.
    fn index(&mut self, number: u64) -> usize {
        let found = self.numbers.iter().position(|other| *other == number);
        found.unwrap_or_else(|| {
            self.numbers.push(number);
            self.numbers.len() - 1
        }) + 1
    }

    fn say(&mut self, connection: &mut Connection, text: &str) -> Said {
        let mut bytes = Vec::new();
        for part in text.split(" || ") {
            bytes.extend_from_slice(&self.filled(part));
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(MARK);
        let _ = connection.send(&bytes);
        let ended = connection.read_all(PATIENCE, |received| received.ends_with(MARK_REPLY));
        let is_closed = !matches!(ended, Ended::Silent(_));
        let bytes = ended.bytes();
        let reply = bytes.strip_suffix(MARK_REPLY).unwrap_or(bytes);
        Said { bytes: self.named(reply), is_closed }
    }

    fn say_packet(&mut self, connection: &mut Connection, packet: &Packet) -> Said {
        let key = self.filled(&packet.key);
        let value = self.filled(&packet.value);
        let cas = String::from_utf8_lossy(&self.filled(&packet.cas)).parse().unwrap_or(0u64);
        let mut bytes = Vec::new();
        let mut put = |opcode: u8, opaque: [u8; 4], cas: u64, extras: &[u8], key: &[u8], value: &[u8]| {
            bytes.extend_from_slice(&[0x80, opcode]);
            bytes.extend_from_slice(&(key.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
            bytes.extend_from_slice(&((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
            bytes.extend_from_slice(&opaque);
            bytes.extend_from_slice(&cas.to_be_bytes());
            [extras, key, value].iter().for_each(|part| bytes.extend_from_slice(part));
        };
        put(packet.opcode, packet.opaque.to_be_bytes(), cas, &packet.extras, &key, &value);
        put(NOOP, NOOP_OPAQUE, 0, &[], &[], &[]);
        let _ = connection.send(&bytes);
        let is_noop = |received: &[u8]| {
            received
                .last_chunk::<HEADER_BYTES>()
                .is_some_and(|last| last[..2] == [0x81, NOOP] && last[12..16] == NOOP_OPAQUE)
        };
        let ended = connection.read_all(PATIENCE, is_noop);
        let is_closed = !matches!(ended, Ended::Silent(_));
        let mut bytes = ended.bytes().to_vec();
        if is_noop(&bytes) {
            bytes.truncate(bytes.len() - HEADER_BYTES);
        }
        // Replace CAS numbers by their indexes.
        let mut at = 0;
        while let Some(header) = bytes.get(at..at + HEADER_BYTES) {
            let body = header[8..12].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes)) as usize;
            let number = header[16..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            let index = if number == 0 { 0 } else { self.index(number) };
            bytes[at + 16..at + HEADER_BYTES].copy_from_slice(&(index as u64).to_be_bytes());
            at += HEADER_BYTES + body;
        }
        Said { bytes, is_closed }
    }

    /// Replaces the CAS numbers of a reply by names.
    fn named(&mut self, reply: &[u8]) -> Vec<u8> {
        let mut named = Vec::new();
        let mut rest = reply;
        while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            let parts: Vec<&str> = line.split(' ').collect();
            let (mut text, mut data) = (line.clone(), None);
            match parts.as_slice() {
                ["VALUE", _, _, bytes, numbers @ ..] => {
                    data = bytes.parse::<usize>().ok();
                    if let [number] = numbers
                        && let Ok(number) = number.parse()
                    {
                        text = format!("{} C{}", parts[..4].join(" "), self.index(number));
                    }
                }
                ["HD" | "VA" | "EX" | "NF" | "NS" | "EN" | "ME", ..] => {
                    if parts[0] == "VA" {
                        data = parts.get(1).and_then(|bytes| bytes.parse::<usize>().ok());
                    }
                    let named: Vec<String> = parts
                        .iter()
                        .map(|part| {
                            let number = part.strip_prefix("cas=").or_else(|| part.strip_prefix('c'));
                            match number.and_then(|number| number.parse().ok()) {
                                Some(number) => format!("c=C{}", self.index(number)),
                                None => (*part).to_owned(),
                            }
                        })
                        .collect();
                    text = named.join(" ");
                }
                _ => {}
            }
            named.extend_from_slice(text.as_bytes());
            named.extend_from_slice(b"\r\n");
            rest = &rest[end + 2..];
            if let Some(bytes) = data {
                let (value, after) = rest.split_at((bytes + 2).min(rest.len()));
                named.extend_from_slice(value);
                rest = after;
            }
        }
        named.extend_from_slice(rest);
        named
    }
}

struct Run {
    /// The reference, and duramen unless recording.
    sides: Vec<Side>,
    intended: Intended,
    tally: Tally,
}

impl Run {
    fn empty(&mut self) -> Result<()> {
        for side in &mut self.sides {
            let mut connection = side.connect()?;
            side.say(&mut connection, "flush_all");
        }
        Ok(())
    }

    fn connect(&self) -> Result<Vec<Connection>> {
        self.sides.iter().map(Side::connect).collect()
    }

    fn play(&mut self, name: &str, steps: &[Step]) -> Result<()> {
        self.empty()?;
        for side in &mut self.sides {
            side.numbers.clear();
        }
        let mut clients: HashMap<u32, Vec<Connection>> = HashMap::new();
        let mut current = 1;
        for step in steps {
            match &step.action {
                Action::Client(number) => current = *number,
                Action::Close => drop(clients.remove(&current)),
                Action::Sleep(time) => thread::sleep(*time),
                action => {
                    let mut connections = match clients.remove(&current) {
                        Some(connections) => connections,
                        None => self.connect()?,
                    };
                    let mut said: Vec<Said> = Vec::new();
                    for (side, connection) in self.sides.iter_mut().zip(&mut connections) {
                        said.push(match action {
                            Action::Packet(packet) => side.say_packet(connection, packet),
                            Action::Raw(bytes) => {
                                let reference = said.first().map(|said| match said.is_closed {
                                    true => Ended::Closed(said.bytes.clone()),
                                    false => Ended::Silent(said.bytes.clone()),
                                });
                                let ended = ask_raw(connection, bytes, reference.as_ref());
                                let is_closed = matches!(ended, Ended::Closed(_));
                                Said { bytes: ended.bytes().to_vec(), is_closed }
                            }
                            Action::Text(_, text) => side.say(connection, text),
                            Action::Client(_) | Action::Close | Action::Sleep(_) => {
                                Said { bytes: Vec::new(), is_closed: false }
                            }
                        });
                    }
                    let treatment = match action {
                        Action::Text(treatment, _) => treatment.clone(),
                        _ => Treatment::Exact,
                    };
                    let place = format!("{TRANSCRIPTS}/{name}.txt:{}", step.line);
                    let good = self.judge(&place, name, &step.text, &treatment, &said);
                    if good {
                        clients.insert(current, connections);
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts and prints; returns whether the connections are still usable.
    fn judge(&mut self, place: &str, name: &str, text: &str, treatment: &Treatment, said: &[Said]) -> bool {
        let is_open = said.iter().all(|said| !said.is_closed);
        let [reference, subject] = said else {
            said.iter().for_each(|said| println!("{place}: {}\n    {}", shortened(text), shown(said)));
            return is_open;
        };
        self.tally.compared += 1;
        if !same(treatment, reference, subject) {
            if self.intended.covers(name, text) {
                self.tally.meant += 1;
            } else {
                self.tally.differ += 1;
                println!(
                    "{place}: {}\n    memcached: {}\n    duramen:   {}",
                    shortened(text),
                    shown(reference),
                    shown(subject)
                );
            }
        }
        is_open
    }

    fn random(&mut self, count: u64, seed: u64) -> Result<bool> {
        println!("side-by-side-memcached: --random {count} --seed {seed}");
        let mut random = Random::new(seed);
        let mut said_before: Vec<String> = Vec::new();
        let mut connections = [self.connect()?, self.connect()?];
        for at in 0..count {
            if at % PHASE == 0 {
                self.empty()?;
                said_before.clear();
                for side in &mut self.sides {
                    side.numbers.clear();
                }
            }
            let numbers = self.sides.iter().map(|side| side.numbers.len()).min().unwrap_or(0);
            let is_packet = random.below(4) == 0;
            let (text, said) = if is_packet {
                let packet = random_packet(&mut random, numbers);
                let text = format!(
                    "@packet {:02x} key={} extras={} value={} cas={}",
                    packet.opcode,
                    packet.key,
                    packet.extras.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
                    packet.value,
                    packet.cas
                );
                let pairs = self.sides.iter_mut().zip(&mut connections[1]);
                (text, pairs.map(|(side, it)| side.say_packet(it, &packet)).collect::<Vec<_>>())
            } else {
                let text = random_line(&mut random, numbers);
                let pairs = self.sides.iter_mut().zip(&mut connections[0]);
                let said = pairs.map(|(side, it)| side.say(it, &text)).collect();
                (text, said)
            };
            let differ = self.tally.differ;
            // From an item's second fetch, memcached sets `l` and `la` in a background thread, at an unpredictable
            // time.
            let treatment = Treatment::Near(["t", "exp", "l*", "la*"].map(str::to_owned).to_vec());
            let good = self.judge(&format!("random {at}"), "random", &text, &treatment, &said);
            if self.tally.differ > differ {
                println!("    after: {}", said_before.join(" ; "));
                self.empty()?;
                said_before.clear();
                if self.tally.differ >= DIFFERENCES_MAX {
                    break;
                }
            }
            if !good {
                connections[usize::from(is_packet)] = self.connect()?;
            }
            said_before.push(text);
            if said_before.len() > 8 {
                said_before.remove(0);
            }
        }
        println!(
            "side-by-side-memcached: {} replies compared, {} differ",
            self.tally.compared, self.tally.differ
        );
        Ok(self.tally.differ == 0)
    }
}

fn same(treatment: &Treatment, reference: &Said, subject: &Said) -> bool {
    if reference.is_closed != subject.is_closed {
        return false;
    }
    let first = |said: &Said| said.bytes.split(|byte| byte.is_ascii_whitespace()).next().map(<[u8]>::to_vec);
    match treatment {
        Treatment::Exact => reference.bytes == subject.bytes,
        Treatment::Any => first(reference) == first(subject),
        Treatment::Names(names) => {
            let present = |said: &Said| {
                let text = String::from_utf8_lossy(&said.bytes).into_owned();
                let has = |name: &String| text.contains(&format!("STAT {name} "));
                names.iter().map(has).collect::<Vec<_>>()
            };
            present(reference) == present(subject)
        }
        Treatment::Values(names) => {
            let values = |said: &Said| {
                let text = String::from_utf8_lossy(&said.bytes).into_owned();
                let value = |name: &String| {
                    let line = text.lines().find(|line| line.starts_with(&format!("STAT {name} ")));
                    line.map(str::to_owned)
                };
                names.iter().map(value).collect::<Vec<_>>()
            };
            values(reference) == values(subject)
        }
        Treatment::Near(letters) => {
            let (a, numbers_a) = apart(&reference.bytes, letters);
            let (b, numbers_b) = apart(&subject.bytes, letters);
            a == b && numbers_a.iter().zip(&numbers_b).all(|(a, b)| a.abs_diff(*b) <= 2)
        }
    }
}

/// Separates the numbers of these flags from a reply; returns the rest and the numbers.
fn apart(reply: &[u8], letters: &[String]) -> (String, Vec<i64>) {
    let text = String::from_utf8_lossy(reply).into_owned();
    let mut numbers = Vec::new();
    let parts: Vec<String> = text
        .split(' ')
        .map(|part| {
            let (word, end) = part.split_at(part.find('\r').unwrap_or(part.len()));
            let number = letters.iter().find_map(|letter| {
                let (letter, is_any) =
                    letter.strip_suffix('*').map_or((letter.as_str(), false), |it| (it, true));
                let rest = word.strip_prefix(letter)?;
                Some((rest.strip_prefix('=').unwrap_or(rest).parse::<i64>().ok()?, is_any))
            });
            match number {
                Some((number, is_any)) => {
                    numbers.push(if is_any { 0 } else { number });
                    format!("#{end}")
                }
                None => part.to_owned(),
            }
        })
        .collect();
    (parts.join(" "), numbers)
}

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len() as u64) as usize]
}

const KEYS: &[&str] = &["a", "b", "c", "d", "longer_key_1"];
// No number from 2^63: for those memcached looks for a minus, even past the item's end. Transcripts cover some.
const VALUES: &[&str] = &["", "x", "10", "99", "0", "4294967296", "hello", "5  ", "12a", "-1", "{v*300}"];
const TIMES: &[&str] = &["0", "0", "0", "100", "-1", "4000000000", "2592000"];
const FLAGS: &[&str] = &["0", "1", "65536", "4294967295"];

fn random_number(random: &mut Random, numbers: usize) -> String {
    match numbers {
        0 => "77".to_owned(),
        // Recent numbers are the likeliest to belong to an item.
        _ => format!("${}", numbers as u64 - random.below((numbers as u64).min(6))),
    }
}

fn random_line(random: &mut Random, numbers: usize) -> String {
    let key = pick(random, KEYS);
    let value = pick(random, VALUES);
    let bytes = if value.starts_with('{') { 300 } else { value.len() };
    let (time, flags) = (pick(random, TIMES), pick(random, FLAGS));
    let number = random_number(random, numbers);
    let quiet = if random.below(8) == 0 { " noreply" } else { "" };
    match random.below(20) {
        0 | 1 => format!("set {key} {flags} {time} {bytes}{quiet} || {value}"),
        2 => format!("{} {key} {flags} {time} {bytes}{quiet} || {value}", pick(random, &["add", "replace"])),
        3 => {
            format!("{} {key} {flags} {time} {bytes}{quiet} || {value}", pick(random, &["append", "prepend"]))
        }
        4 => format!("cas {key} {flags} {time} {bytes} {number}{quiet} || {value}"),
        5 => format!("get {key} {}", pick(random, KEYS)),
        6 => format!("gets {key} {} {}", pick(random, KEYS), pick(random, KEYS)),
        7 => format!("{} {time} {key}", pick(random, &["gat", "gats"])),
        8 => format!("incr {key} {}{quiet}", pick(random, &["1", "5", "100", "x", "-1"])),
        9 => format!("decr {key} {}{quiet}", pick(random, &["1", "5", "100", "x"])),
        10 => format!("touch {key} {time}{quiet}"),
        11 => format!("delete {key}{quiet}"),
        12 | 13 => {
            let mut flags = String::new();
            // R60, because no item's remaining time reaches it within a run: the seconds of the two servers begin at
            // different times.
            for _ in 0..random.below(4) {
                flags.push_str(pick(
                    random,
                    &[" v", " t", " c", " f", " s", " k", " Oabc", " q", " N30", " R60", " T100", " u"],
                ));
            }
            format!("mg {key}{flags}")
        }
        14 | 15 => {
            let mut flags = String::new();
            for _ in 0..random.below(4) {
                let flag = pick(
                    random,
                    &[" c", " k", " Oxyz", " q", " F5", " T100", " I", " MA", " MP", " ME", " MR", " C"],
                );
                flags.push_str(flag);
                if flag == " C" {
                    flags.push_str(&number);
                }
            }
            format!("ms {key} {bytes}{flags} || {value}")
        }
        16 => {
            let flags = pick(random, &["", " q", " I", " I T30", " k Oab", " x"]);
            let cas = if random.below(3) == 0 { format!(" C{number}") } else { String::new() };
            format!("md {key}{flags}{cas}")
        }
        17 | 18 => {
            let flags = pick(
                random,
                &[
                    "",
                    " v",
                    " v c",
                    " N0 J13 v",
                    " MD D3 v",
                    // No T: memcached drops it if the number becomes longer (`intended.txt`).
                    " t v",
                    " t q",
                    " D5 MI v k",
                    " M+ v",
                    " Mx",
                ],
            );
            let cas = if random.below(4) == 0 { format!(" C{number}") } else { String::new() };
            format!("ma {key}{flags}{cas}")
        }
        _ => pick(
            random,
            &["mn", "version", "bogus", "get", "mg", "set a", "verbosity 1", "flush_all 0 noreply"],
        )
        .to_owned(),
    }
}

fn random_packet(random: &mut Random, numbers: usize) -> Packet {
    const SIMPLE: &[u8] = &[0x00, 0x09, 0x0c, 0x0d, 0x04, 0x14];
    const STORES: &[u8] = &[0x01, 0x02, 0x03, 0x11, 0x12, 0x13];
    const JOINS: &[u8] = &[0x0e, 0x0f, 0x19, 0x1a];
    const COUNTS: &[u8] = &[0x05, 0x06, 0x15, 0x16];
    const TOUCHES: &[u8] = &[0x1c, 0x1d, 0x1e, 0x23, 0x24];
    let mut any = |opcodes: &[u8]| opcodes[random.below(opcodes.len() as u64) as usize];
    let picks = [any(SIMPLE), any(STORES), any(JOINS), any(COUNTS), any(TOUCHES)];
    let kind = random.below(5) as usize;
    let mut packet = Packet { opcode: picks[kind], key: pick(random, KEYS).to_owned(), ..Packet::default() };
    packet.opaque = random.below(1 << 20) as u32;
    if kind < 4 && random.below(4) == 0 && !matches!(kind, 0) {
        packet.cas = random_number(random, numbers);
    }
    let time = [0u32, 100, 0xffff_ffff, 4_000_000_000][random.below(4) as usize];
    match kind {
        1 => {
            packet.extras = [7u32.to_be_bytes(), time.to_be_bytes()].concat();
            packet.value = pick(random, VALUES).to_owned();
        }
        2 => packet.value = pick(random, VALUES).to_owned(),
        3 => {
            let by = random.below(20).to_be_bytes();
            packet.extras = [&by[..], &33u64.to_be_bytes(), &time.to_be_bytes()].concat();
        }
        4 => packet.extras = time.to_be_bytes().to_vec(),
        _ => {}
    }
    packet
}

// 400: the beginning of a long reply is enough to recognize it.
const SHOWN_BYTES: usize = 400;

fn shown(said: &Said) -> String {
    let bytes = &said.bytes;
    let dots = if bytes.len() > SHOWN_BYTES { "…" } else { "" };
    let end = if said.is_closed { " (closed, or not whole in time)" } else { "" };
    format!("{}{dots}{end}", bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcached_lines_and_packets_are_parsed() {
        assert!(matches!(action("get a"), Ok(Action::Text(Treatment::Exact, _))));
        assert!(
            matches!(action("@near t,l mg a t"), Ok(Action::Text(Treatment::Near(letters), _)) if letters.len() == 2)
        );
        assert!(
            action("@nothing").is_err() && action("@packet xx").is_err() && action("@packet 00 key").is_err()
        );
        let Ok(Action::Packet(packet)) = action("@packet 1c key=k extras=0000000a cas=$1 opaque=9") else {
            panic!()
        };
        assert_eq!((packet.opcode, packet.extras.as_slice(), packet.opaque), (0x1c, &[0, 0, 0, 10][..], 9));
    }

    #[test]
    fn numeric_flags_may_differ_slightly() {
        let said = |text: &str| Said { bytes: text.as_bytes().to_vec(), is_closed: false };
        let near = Treatment::Near(vec!["t".to_owned(), "exp".to_owned()]);
        assert!(same(&near, &said("HD t99 c=C1\r\n"), &said("HD t100 c=C1\r\n")));
        assert!(!same(&near, &said("HD t99\r\n"), &said("HD t90\r\n")));
        assert!(!same(&near, &said("HD t99 c=C1\r\n"), &said("HD t99 c=C2\r\n")));
        assert!(same(&near, &said("ME k exp=-5 la=0\r\n"), &said("ME k exp=-6 la=0\r\n")));
        let any = Treatment::Near(vec!["l*".to_owned()]);
        assert!(same(&any, &said("HD h1 l0\r\n"), &said("HD h1 l30\r\n")));
        assert!(!same(&any, &said("HD h1 l0\r\n"), &said("HD h0 l0\r\n")));
        assert!(!same(&Treatment::Exact, &said("A\r\n"), &said("B\r\n")));
    }
}
