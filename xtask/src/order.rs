//! `cargo xtask order`: checks events of keys and waiting clients over sockets, on a server of four workers.
//!
//! Each round races two clients of different workers on one key, and compares what other clients see:
//!
//! | round | race | fault |
//! |---|---|---|
//! | events | a write of a key (SET, INCR) and its DEL | the last event is not that of the later command |
//! | arrival | a push, and a second client starting to wait | the first gets no element, or the second not the next |
//! | pushes | two pushes, while two clients wait | one gets nothing, both get the same, or something is left |
//! | expiry | the store's sweep of a key that nobody read, and a SET of it | `expired` comes after `set` |
//!
//! In a round of *expiry* no client listens to events while the keys are written with an expiry. No worker therefore
//! checks the keys when they expire. They are written again while the store sweeps them; the sweep of some thousands
//! takes a second.
//!
//! A client is known to wait by the reply to a PING that it sends with its command: both are executed in one turn.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::failure::{Attempt, Failure, Result};
use crate::server::{Server, duramen_program};
use duramen_resp::{Connection, Reply, encode_command};

#[derive(clap::Args)]
pub struct Settings {
    /// Rounds of each kind
    #[arg(long, default_value_t = 10_000)]
    pub rounds: u64,
    /// The duramen program [default: built now]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
}

const PATIENCE: Duration = Duration::from_secs(10);
const KEY: &str = "raced";
/// Faults that are shown at most.
const SHOWN: u64 = 5;

/// Blocking pops, and the pushes that serve them.
const QUEUES: [(&str, &str); 3] = [("BLPOP", "RPUSH"), ("BRPOP", "LPUSH"), ("BZPOPMIN", "ZADD")];

/// Runs this many rounds and returns the number of faulty ones.
type Check = fn(&Server, u64) -> Result<u64>;

/// Runs all rounds; returns whether there was no fault.
///
/// # Errors
/// When the server cannot be run, or does not answer.
pub fn run(settings: Settings) -> Result<bool> {
    let program = duramen_program(settings.duramen)?;
    let place = tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
    let store = place.path().join("store").display().to_string();
    let arguments = ["--duramen-path", &store, "--duramen-threads", "4"];
    let mut server = Server::start_duramen(&program, &arguments, &place.path().join("log"))?;
    server.demand_ready(PATIENCE)?;
    let mut is_right = true;
    let kinds: [(&str, Check); 4] =
        [("events", events), ("arrival", arrival), ("pushes", pushes), ("expiry", expiry)];
    for (name, check) in kinds {
        let begun = Instant::now();
        let wrong = check(&server, settings.rounds)?;
        let seconds = begun.elapsed().as_secs_f64();
        println!("{name}: {wrong} of {} rounds wrong, {seconds:.0} s", settings.rounds);
        is_right &= wrong == 0;
    }
    Ok(is_right)
}

fn unanswered(what: &str) -> Failure {
    Failure::new(format!("{what}: found no reply, wanted one within {} s", PATIENCE.as_secs()))
}

fn read(connection: &mut Connection, what: &str) -> Result<Reply> {
    connection.read(PATIENCE).map_err(|_| unanswered(what))
}

fn call(connection: &mut Connection, words: &[&str]) -> Result<Reply> {
    connection.call(words, PATIENCE).map_err(|_| unanswered(words[0]))
}

fn send(connection: &mut Connection, words: &[&str]) -> Result<()> {
    connection.send_command(words).attempt(|| format!("send {}", words[0]))
}

fn report(wrong: &mut u64, what: impl FnOnce() -> String) {
    *wrong += 1;
    if *wrong <= SHOWN {
        println!("{}", what());
    }
}

fn events(server: &Server, rounds: u64) -> Result<u64> {
    let (mut writer, mut deleter) = (server.connect()?, server.connect()?);
    let (mut looker, mut listener) = (server.connect()?, server.connect()?);
    call(&mut looker, &["CONFIG", "SET", "notify-keyspace-events", "K$g"])?;
    call(&mut looker, &["DEL", KEY])?;
    call(&mut listener, &["SUBSCRIBE", &format!("__keyspace@0__:{KEY}")])?;
    let mut wrong = 0;
    for round in 0..rounds {
        let write = if round.is_multiple_of(2) { &["SET", KEY, "1"][..] } else { &["INCR", KEY] };
        send(&mut writer, write)?;
        send(&mut deleter, &["DEL", KEY])?;
        read(&mut writer, write[0])?;
        let is_deleted = read(&mut deleter, "DEL")?.integer() == Some(1);
        let mut last = String::new();
        for _ in 0..1 + u64::from(is_deleted) {
            let event = read(&mut listener, "an event")?;
            let name = event.items().and_then(|items| items.last()).and_then(Reply::text);
            last = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
        }
        let is_there = call(&mut looker, &["EXISTS", KEY])?.integer() == Some(1);
        if is_there == (last == "del") {
            report(&mut wrong, || format!("round {round}: the last event is {last}, EXISTS says {is_there}"));
        }
    }
    call(&mut looker, &["CONFIG", "SET", "notify-keyspace-events", ""])?;
    call(&mut looker, &["DEL", KEY])?;
    Ok(wrong)
}

/// Makes a client wait; its PING's reply confirms that it does.
fn come(waiter: &mut Connection, pop: &str) -> Result<()> {
    let mut bytes = Vec::new();
    encode_command(&mut bytes, &["PING"]);
    encode_command(&mut bytes, &[pop, KEY, "0"]);
    waiter.send(&bytes).attempt(|| format!("send {pop}"))
}

fn push(producer: &mut Connection, push: &str, element: &str) -> Result<()> {
    match push {
        "ZADD" => send(producer, &[push, KEY, element, element]),
        _ => send(producer, &[push, KEY, element]),
    }
}

/// The element in a pop's reply.
fn element(waiter: &mut Connection, pop: &str) -> Result<String> {
    let reply = read(waiter, pop)?;
    let text = reply.items().and_then(|items| items.get(1)).and_then(Reply::text);
    Ok(String::from_utf8_lossy(text.unwrap_or_default()).into_owned())
}

/// Two clients that wait, and two that push.
fn queue(server: &Server) -> Result<([Connection; 2], [Connection; 2])> {
    Ok(([server.connect()?, server.connect()?], [server.connect()?, server.connect()?]))
}

fn arrival(server: &Server, rounds: u64) -> Result<u64> {
    let ([mut first, mut second], [mut producer, mut other]) = queue(server)?;
    let mut wrong = 0;
    for (round, (pop, pushed)) in (0..rounds).zip(QUEUES.into_iter().cycle()) {
        let (one, two) = (round.to_string(), (rounds + round).to_string());
        come(&mut first, pop)?;
        read(&mut first, "PING")?;
        come(&mut second, pop)?;
        push(&mut producer, pushed, &one)?;
        read(&mut second, "PING")?;
        read(&mut producer, pushed)?;
        push(&mut other, pushed, &two)?;
        read(&mut other, pushed)?;
        let got = (element(&mut first, pop)?, element(&mut second, pop)?);
        if (&got.0, &got.1) != (&one, &two) {
            report(&mut wrong, || format!("round {round}: {pop} gave {got:?}, wanted ({one}, {two})"));
        }
        std::mem::swap(&mut first, &mut second);
    }
    Ok(wrong)
}

fn pushes(server: &Server, rounds: u64) -> Result<u64> {
    let ([mut first, mut second], [mut producer, mut other]) = queue(server)?;
    let mut wrong = 0;
    for (round, (pop, pushed)) in (0..rounds).zip(QUEUES.into_iter().cycle()) {
        let (one, two) = (round.to_string(), (rounds + round).to_string());
        for waiter in [&mut first, &mut second] {
            come(waiter, pop)?;
            read(waiter, "PING")?;
        }
        push(&mut producer, pushed, &one)?;
        push(&mut other, pushed, &two)?;
        read(&mut producer, pushed)?;
        read(&mut other, pushed)?;
        let mut got = [element(&mut first, pop)?, element(&mut second, pop)?];
        got.sort();
        let mut wanted = [one, two];
        wanted.sort();
        let is_left = call(&mut producer, &["EXISTS", KEY])?.integer() != Some(0);
        if got != wanted || is_left {
            report(&mut wrong, || {
                format!("round {round}: {pop} gave {got:?}, wanted {wanted:?}; left: {is_left}")
            });
        }
    }
    Ok(wrong)
}

/// Keys that are swept in one go.
const SWEPT: u64 = 100_000;

/// How many keys were swept so far.
fn swept(looker: &mut Connection) -> Result<Option<u64>> {
    let info = call(looker, &["INFO", "stats"])?;
    let text = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    Ok(text.lines().find_map(|line| line.strip_prefix("expired_keys:")?.trim().parse().ok()))
}

fn expiry(server: &Server, rounds: u64) -> Result<u64> {
    let (mut writer, mut looker, mut listener) = (server.connect()?, server.connect()?, server.connect()?);
    let mut wrong = 0;
    for first in (0..rounds).step_by(SWEPT as usize) {
        let keys: Vec<String> = (first..rounds.min(first + SWEPT)).map(|at| format!("swept{at}")).collect();
        call(&mut looker, &["CONFIG", "SET", "notify-keyspace-events", ""])?;
        call(&mut looker, &["FLUSHALL"])?;
        for key in &keys {
            send(&mut writer, &["SET", key, "1", "PX", "1500"])?;
        }
        for _ in &keys {
            read(&mut writer, "SET")?;
        }
        let before = swept(&mut looker)?;
        call(&mut looker, &["CONFIG", "SET", "notify-keyspace-events", "K$x"])?;
        call(&mut listener, &["PSUBSCRIBE", "__keyspace@0__:swept*"])?;
        // In the order of the sweep, and in the reverse order.
        let order = keys.iter().zip(keys.iter().rev()).flat_map(|(one, other)| [one, other]);
        let mut bytes = Vec::new();
        order.take(keys.len()).for_each(|key| encode_command(&mut bytes, &["SET", key, "2"]));
        let sweep = Instant::now();
        while swept(&mut looker)? == before && sweep.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        for part in bytes.chunks(64 << 10) {
            writer.send(part).attempt(|| "send SET".to_owned())?;
        }
        for _ in &keys {
            read(&mut writer, "SET")?;
        }
        // Time for the remaining events of the sweep.
        std::thread::sleep(Duration::from_millis(100));
        call(&mut looker, &["SET", "swept", "end"])?;
        let mut set = std::collections::HashSet::new();
        loop {
            let event = read(&mut listener, "an event")?;
            let words: Vec<String> = (event.items().unwrap_or_default().iter().filter_map(Reply::text))
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            let [.., channel, name] = &words[..] else { continue };
            let key = channel.trim_start_matches("__keyspace@0__:").to_owned();
            if key == "swept" {
                break;
            }
            if name == "set" {
                set.insert(key);
            } else if set.contains(&key) {
                report(&mut wrong, || format!("{key} expired after it was set without a time"));
            }
        }
        call(&mut listener, &["PUNSUBSCRIBE"])?;
    }
    call(&mut looker, &["CONFIG", "SET", "notify-keyspace-events", ""])?;
    Ok(wrong)
}
