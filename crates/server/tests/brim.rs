//! A full store can be consumed: whatever Redis does not refuse where memory is short is not refused here either.
//!
//! A store is filled with all types, small and large, until writes are refused. Then producers push on, and consumers issue random commands
//! of those without the flag `denyoom`: none may be answered `OOM`. By itself, since it keeps both cores busy.
//! `cargo xtask brim` runs it for as long as wanted.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod support;

use duramen::{Durability, MediumKind};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::Server;

/// Seconds for each store, of a run that is to be long.
const SECONDS: &str = "DURAMEN_BRIM_SECONDS";
const SEED: &str = "DURAMEN_BRIM_SEED";
const SECONDS_DEFAULT: u64 = 4;
const STORE_BYTES: u64 = 12 << 20;
const PRODUCERS: u64 = 2;
const CONSUMERS: u64 = 2;
/// The store is full after this many refused writes; each of them compacts.
const FULL: u64 = 30;
/// Writes that are pipelined while it is filled.
const PIPELINED: usize = 200;
/// Large keys of each type; many elements go to each.
const LARGE: u64 = 3;
/// Small ones; few go to each.
const SMALL: u64 = 2000;

#[derive(Debug)]
enum Reply {
    Error(String),
    Other,
    Strings(Vec<String>),
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, command: &[Vec<u8>]) {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command {
            bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes).unwrap();
    }

    fn call(&mut self, command: &[Vec<u8>]) -> Reply {
        self.send(command);
        self.reply()
    }

    /// An array counts as an error if there is one in it.
    fn reply(&mut self) -> Reply {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        match kind {
            "-" => Reply::Error(rest.to_owned()),
            "+" => Reply::Strings(vec![rest.to_owned()]),
            "$" => {
                let Ok(bytes) = rest.parse::<usize>() else { return Reply::Other };
                let mut body = vec![0; bytes + 2];
                self.0.read_exact(&mut body).unwrap();
                Reply::Strings(vec![String::from_utf8_lossy(&body[..bytes]).into_owned()])
            }
            "*" => {
                let count = rest.parse::<i64>().unwrap().max(0);
                let (mut strings, mut error) = (Vec::new(), None);
                for _ in 0..count {
                    match self.reply() {
                        Reply::Error(text) => error = Some(text),
                        Reply::Strings(more) => strings.extend(more),
                        Reply::Other => {}
                    }
                }
                error.map_or(Reply::Strings(strings), Reply::Error)
            }
            _ => Reply::Other,
        }
    }
}

fn command(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A generator of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    /// A key of a type, large or small, and whether it is small.
    fn key(&mut self, type_: &str) -> String {
        match self.below(3) {
            0 => format!("{type_}:small:{}", self.below(SMALL)),
            _ => format!("{type_}:large:{}", self.below(LARGE)),
        }
    }

    /// Bytes of a value, most of them few.
    fn value(&mut self) -> String {
        let bytes = match self.below(40) {
            0 => 300 + self.below(6000),
            1..=9 => 100 + self.below(200),
            _ => self.below(100),
        };
        "v".repeat(bytes as usize)
    }

    fn element(&mut self) -> String {
        format!("{}", self.below(50_000))
    }
}

/// A write of new bytes, of any type.
fn push(random: &mut Random) -> Vec<Vec<u8>> {
    let (value, element) = (random.value(), random.element());
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    match random.below(10) {
        0 => words(&["SET", &format!("str:small:{}", random.below(20 * SMALL)), &value]),
        1 => words(&["HSET", &random.key("hash"), &element, &value]),
        2 => words(&["SADD", &random.key("set"), &format!("{element}:{value}")]),
        3 => words(&["SADD", &random.key("set"), &element]),
        4 => words(&["ZADD", &random.key("zset"), &element, &format!("{element}:{value}")]),
        5 => words(&["XADD", &random.key("stream"), "*", "field", &value]),
        6 => words(&["PFADD", &format!("hll:{}", random.below(20)), &element]),
        7 => words(&[
            "SETRANGE",
            &format!("str:large:{}", random.below(LARGE)),
            &format!("{}", random.below(200_000)),
            &value,
        ]),
        8 => words(&["HEXPIRE", &random.key("hash"), "100000", "FIELDS", "1", &element]),
        _ => words(&[["LPUSH", "RPUSH"][random.below(2) as usize], &random.key("list"), &value]),
    }
}

/// The commands without `denyoom` that write, and those that write although they read. `{type}` is a key of that type,
/// `#` an element or a number, `{id}` the id of some entry.
const CONSUMING: &[&str] = &[
    "LPOP {list}",
    "LPOP {list} 3",
    "RPOP {list}",
    "RPOP {list} 12",
    "LMPOP 2 {list} {list} LEFT",
    "LMPOP 1 {list} RIGHT COUNT 2",
    "BLPOP {list} {list} 0.001",
    "BRPOP {list} 0.001",
    "BLMPOP 0.001 1 {list} LEFT",
    "LTRIM {list} 1 -1",
    "LTRIM {list} 0 -3",
    "LREM {list} 1 v",
    "LREM {list} -1 vvvvvvvv",
    "HDEL {hash} # # #",
    "HPERSIST {hash} FIELDS 2 # #",
    "SPOP {set}",
    "SPOP {set} 4",
    "SREM {set} # # #",
    "SMOVE {set} {set} #",
    "ZREM {zset} # #:v",
    "ZPOPMIN {zset}",
    "ZPOPMAX {zset} 3",
    "ZMPOP 1 {zset} MIN",
    "BZPOPMIN {zset} 0.001",
    "BZPOPMAX {zset} 0.001",
    "BZMPOP 0.001 1 {zset} MAX",
    "ZREMRANGEBYRANK {zset} 5 6",
    "ZREMRANGEBYSCORE {zset} # (#",
    "ZREMRANGEBYSCORE {zset} 100 120",
    "ZREMRANGEBYLEX {zset} [a [b",
    "XDEL {stream} {id}",
    "XDEL {stream} {id} {id}",
    "XTRIM {stream} MAXLEN {less}",
    "XTRIM {stream} MAXLEN ~ {less}",
    "XTRIM {stream} MINID {id}",
    "XREADGROUP GROUP group consumer COUNT 2 STREAMS {stream} >",
    "XREADGROUP GROUP group other COUNT 1 NOACK STREAMS {stream} >",
    "XACK {stream} group {id}",
    "XACK {stream} group {pending}",
    "XACK {stream} group {pending}",
    "XCLAIM {stream} group other 0 {pending}",
    "XAUTOCLAIM {stream} group consumer 0 0 COUNT 2",
    "XGROUP SETID {stream} group {id}",
    "XGROUP DELCONSUMER {stream} group other",
    "XGROUP DESTROY {stream} none",
    "DEL {any}",
    "UNLINK {any}",
    "GETDEL {str}",
    "GETEX {str} EX 1000",
    "GETEX {str} PERSIST",
    "EXPIRE {any} 1000",
    "PEXPIRE {any} 1000000",
    "EXPIREAT {any} 4000000000",
    "PEXPIREAT {any} 4000000000000",
    "PERSIST {any}",
    "RENAME {str} {str}",
    "RENAME {list} list:small:#",
    "RENAMENX {hash} hash:small:#",
    "MOVE {any} 1",
    "SWAPDB 2 3",
    "PFCOUNT hll:1 hll:2",
    "PFCOUNT {hll}",
];

const TYPES: [&str; 7] = ["list", "hash", "set", "zset", "stream", "str", "hll"];

/// One of these commands with its arguments; `client` is asked for ids. And which it is.
fn consume(random: &mut Random, client: &mut Client) -> (&'static str, Vec<Vec<u8>>) {
    let form = CONSUMING[random.below(CONSUMING.len() as u64) as usize];
    let mut stream = String::new();
    let mut arguments = Vec::new();
    for word in form.split(' ') {
        let argument = match word {
            // Large ones are few: were they deleted as often as the others, there were none.
            "{any}" => {
                let type_ = TYPES[random.below(TYPES.len() as u64) as usize];
                format!("{type_}:small:{}", random.below(SMALL))
            }
            "{hll}" => format!("hll:{}", random.below(20)),
            "{str}" => format!("str:small:{}", random.below(20 * SMALL)),
            "{id}" => some_id(random, client, &["XRANGE", &stream, "-", "+", "COUNT", "40"]),
            "{pending}" => some_id(random, client, &["XPENDING", &stream, "group", "-", "+", "40"]),
            "{less}" => {
                let text = command(&format!("XLEN {stream}"));
                client.send(&text);
                let mut line = String::new();
                client.0.read_line(&mut line).unwrap();
                let len = line.trim_start_matches(':').trim_end().parse::<u64>().unwrap_or(0);
                len.saturating_sub(1 + random.below(4)).to_string()
            }
            word if word.starts_with('{') => random.key(&word[1..word.len() - 1]),
            word => word.replace('#', &random.element()),
        };
        if word == "{stream}" {
            stream.clone_from(&argument);
        }
        arguments.push(argument.into_bytes());
    }
    (form, arguments)
}

/// The id of some entry in this command's reply.
fn some_id(random: &mut Random, client: &mut Client, words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let Reply::Strings(strings) = client.call(&words) else { return "1-1".to_owned() };
    let is_id = |text: &&String| {
        text.split_once('-').is_some_and(|(ms, seq)| ms.parse::<u64>().is_ok() && seq.parse::<u64>().is_ok())
    };
    let ids: Vec<_> = strings.iter().filter(is_id).collect();
    ids.get(random.below(ids.len().max(1) as u64) as usize).map_or("1-1".to_owned(), ToString::to_string)
}

fn is_refusal(text: &str) -> bool {
    text.starts_with("OOM") || text.contains("space")
}

/// What was done in a store.
#[derive(Default)]
struct Tally {
    /// By form: how often it was done, and how often it was refused.
    commands: Mutex<BTreeMap<&'static str, (u64, u64)>>,
    refusals: Mutex<Vec<String>>,
    others: Mutex<BTreeSet<String>>,
    pushed: AtomicU64,
    push_refused: AtomicU64,
    transactions: AtomicU64,
}

impl Tally {
    fn note(&self, form: &'static str, shown: &dyn Fn() -> String, reply: Reply) {
        let mut commands = self.commands.lock().unwrap();
        let (done, refused) = commands.entry(form).or_default();
        *done += 1;
        let Reply::Error(text) = reply else { return };
        if is_refusal(&text) {
            *refused += 1;
            let mut refusals = self.refusals.lock().unwrap();
            if refusals.len() < 20 {
                refusals.push(format!("{}: {text}", shown()));
            }
        } else {
            self.others.lock().unwrap().insert(format!("{form}: {}", text.split(' ').next().unwrap()));
        }
    }
}

fn shown(command: &[Vec<u8>]) -> String {
    let words: Vec<_> =
        command.iter().map(|word| String::from_utf8_lossy(&word[..word.len().min(30)])).collect();
    words.join(" ")
}

/// Fills the store until writes are refused.
fn fill(server: &Server, random: &mut Random) {
    let mut client = Client::connect(server.port);
    for number in 0..LARGE {
        client.call(&command(&format!("XGROUP CREATE stream:large:{number} group 0 MKSTREAM")));
    }
    for number in 0..SMALL / 10 {
        client.call(&command(&format!("XGROUP CREATE stream:small:{number} group 0 MKSTREAM")));
    }
    let mut refused = 0;
    while refused < FULL {
        // One by one where the end is near: each that is refused takes time.
        let together = if refused == 0 { PIPELINED } else { 1 };
        (0..together).for_each(|_| client.send(&push(random)));
        for _ in 0..together {
            match client.reply() {
                Reply::Error(text) if is_refusal(&text) => refused += 1,
                Reply::Error(text) => panic!("{text}"),
                _ => {}
            }
        }
    }
}

/// Consumes at the brim, for so long.
fn consume_beside_producers(server: &Server, seed: u64, time: Duration) -> Tally {
    let (tally, over) = (Tally::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..PRODUCERS {
            let (tally, over) = (&tally, &over);
            scope.spawn(move || {
                let (mut random, mut client) = (Random(seed ^ number << 32), Client::connect(server.port));
                while !over.load(Ordering::Relaxed) {
                    match client.call(&push(&mut random)) {
                        Reply::Error(text) if is_refusal(&text) => &tally.push_refused,
                        _ => &tally.pushed,
                    }
                    .fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|number| {
                let tally = &tally;
                scope.spawn(move || {
                    let seed = seed ^ (PRODUCERS + number) << 32;
                    let (mut random, mut client) = (Random(seed), Client::connect(server.port));
                    let begun = Instant::now();
                    while begun.elapsed() < time && tally.refusals.lock().unwrap().is_empty() {
                        if random.below(20) == 0 {
                            transaction(&mut random, &mut client, tally);
                            continue;
                        }
                        let (form, words) = consume(&mut random, &mut client);
                        let reply = client.call(&words);
                        tally.note(form, &|| shown(&words), reply);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = consumers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    tally
}

/// Some commands between MULTI and EXEC. To queue them takes memory, so that may be refused, as in Redis; EXEC not.
fn transaction(random: &mut Random, client: &mut Client, tally: &Tally) {
    let commands: Vec<_> = (0..1 + random.below(3)).map(|_| consume(random, client)).collect();
    client.call(&command("MULTI"));
    let mut is_queued = true;
    for (_, words) in &commands {
        is_queued &= !matches!(client.call(words), Reply::Error(_));
    }
    if !is_queued {
        client.call(&command("DISCARD"));
        return;
    }
    let reply = client.call(&command("EXEC"));
    tally.transactions.fetch_add(1, Ordering::Relaxed);
    let all = || commands.iter().map(|(_, words)| shown(words)).collect::<Vec<_>>().join("; ");
    tally.note("EXEC", &|| format!("EXEC of {}", all()), reply);
}

/// Every command of the server that writes without `denyoom` is among those that are issued.
fn assert_all_are_issued(server: &Server) {
    let mut client = Client::connect(server.port);
    client.send(&command("COMMAND"));
    let mut names = BTreeSet::new();
    collect(&mut client, &mut names);
    let issued: BTreeSet<_> = CONSUMING.iter().map(|form| name_of(form)).collect();
    // These empty the store, or are about functions, which do not exist.
    let others = ["flushall", "flushdb", "function|delete", "function|flush"].map(str::to_owned);
    let missing: Vec<_> =
        names.iter().filter(|name| !issued.contains(*name) && !others.contains(name)).collect();
    assert!(missing.is_empty(), "commands without denyoom that the test does not issue: {missing:?}");
    assert!(names.len() > 40, "COMMAND lists {} that write without denyoom", names.len());
}

fn name_of(form: &str) -> String {
    let words: Vec<_> = form.split(' ').collect();
    match words[0] {
        "XGROUP" => format!("xgroup|{}", words[1].to_lowercase()),
        name => name.to_lowercase(),
    }
}

/// Reads a reply of COMMAND, or a part of it; notes the names of those that write and may not be refused.
fn collect(client: &mut Client, names: &mut BTreeSet<String>) {
    /// The strings of a reply, and of those within it; and whether it is an integer.
    fn read(client: &mut Client, names: &mut BTreeSet<String>) -> (Vec<String>, bool) {
        let mut line = String::new();
        client.0.read_line(&mut line).unwrap();
        let line = line.trim_end();
        match line.as_bytes().first() {
            Some(b'*') => {
                let (mut strings, mut flags, mut is_command) = (Vec::new(), Vec::new(), false);
                for at in 0..line[1..].parse::<usize>().unwrap_or(0) {
                    let (own, is_integer) = read(client, names);
                    match at {
                        // Its arity.
                        1 => is_command = is_integer,
                        2 => flags.clone_from(&own),
                        _ => {}
                    }
                    strings.extend(own);
                }
                let has = |flag: &str| flags.iter().any(|other| other == flag);
                if is_command && has("write") && !has("denyoom") {
                    names.insert(strings[0].clone());
                }
                (strings, false)
            }
            Some(b'$') => {
                let mut body = vec![0; line[1..].parse::<usize>().unwrap() + 2];
                client.0.read_exact(&mut body).unwrap();
                body.truncate(body.len() - 2);
                (vec![String::from_utf8(body).unwrap()], false)
            }
            Some(b':') => (Vec::new(), true),
            _ => (vec![line[1..].to_owned()], false),
        }
    }
    read(client, names);
}

fn at_the_brim(name: &str, medium: MediumKind, durability: Durability, directory: &std::path::Path) {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let time = Duration::from_secs(number(SECONDS, SECONDS_DEFAULT));
    let seed = number(SEED, u64::from(std::process::id()));
    let server = Server::with(|config| {
        (config.medium, config.durability, config.maxmemory) = (medium, durability, STORE_BYTES);
        config.path = directory.join("brim.store");
    });
    assert_all_are_issued(&server);
    let mut random = Random(seed);
    fill(&server, &mut random);
    let tally = consume_beside_producers(&server, seed, time);
    let commands = tally.commands.into_inner().unwrap();
    let done: u64 = commands.values().map(|(done, _)| done).sum();
    let refused: u64 = commands.values().map(|(_, refused)| refused).sum();
    println!(
        "{name}, seed {seed}: {done} commands without denyoom, {refused} refused, {} transactions; {} pushes, {} refused",
        tally.transactions.into_inner(),
        tally.pushed.into_inner(),
        tally.push_refused.into_inner()
    );
    if time.as_secs() > SECONDS_DEFAULT {
        for (form, (done, refused)) in &commands {
            println!("  {done:9} {refused:5}  {form}");
        }
        tally.others.into_inner().unwrap().iter().for_each(|other| println!("  other errors: {other}"));
    }
    let refusals = tally.refusals.into_inner().unwrap();
    assert!(
        refusals.is_empty(),
        "{name}: refused in a full store, with {SEED}={seed}:\n{}",
        refusals.join("\n")
    );
    server.stop().unwrap();
}

#[test]
fn a_full_store_in_shared_memory_refuses_nothing_that_redis_does_not() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    at_the_brim("shm", MediumKind::Shm, Durability::EveryWrite, directory.path());
}

#[test]
fn a_full_store_in_a_file_refuses_nothing_that_redis_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let interval = Durability::Interval(Duration::from_millis(50));
    at_the_brim("file, 50ms", MediumKind::File, interval, directory.path());
}
