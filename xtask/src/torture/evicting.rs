//! The torture of a cache: clients of `duramen serve` with a memory limit; the server is killed while they write.
//! Afterwards each key must have its last value or be absent, never an older value, and a deleted key must be absent.
//! Every other client speaks memcached's protocol ([`super::items`]).

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::history::{Fault, Violation};
use super::items::Items;
use super::known::{DELETES, KEYS, Known, TOGETHER, change_of, value};
use super::own_bytes::OwnBytes;
use super::witness::PATIENCE;
use super::{Settings, StoreDirectory, Tally};
use crate::failure::{Attempt, Failure, Result};
use crate::random::Random;
use crate::server::{Readiness, Server, free_port};
use duramen_resp::{Connection, Ended};

/// The server's memory limit: all writers together reach it within a second, even if each turn waits for a device.
const LIMIT: &str = "8mb";
const POLICIES: [&str; 4] = ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-ttl"];

struct Writer {
    number: usize,
    known: Vec<Known>,
    next: u64,
    acknowledged: u64,
    evicted: u64,
}

impl Writer {
    fn key(&self, key: u64) -> String {
        format!("{}:{key:06}", self.number)
    }

    /// Writes until the server is gone.
    fn write(&mut self, port: u16, store: &Path, seed: u64, stop: &AtomicBool) {
        let mut random = Random::new(seed);
        let mut own = OwnBytes::new(Some(store), random.any());
        let Ok(mut connection) = Connection::open(port) else { return };
        while !stop.load(Ordering::Relaxed) {
            let first = random.below(KEYS - TOGETHER as u64);
            let mut commands = Vec::new();
            for at in first..first + TOGETHER as u64 {
                self.next += 1;
                let key = self.key(at);
                let deletes = random.one_in(DELETES);
                self.known[at as usize].flying = Some(if deletes { 0 } else { self.next });
                let command = match deletes {
                    true => vec![b"DEL".to_vec(), key.into_bytes()],
                    // It never expires in a run, but gives a policy by expiry an order.
                    false => {
                        let value = value(self.next, &mut random, &mut own);
                        let seconds = (100_000 + random.below(100_000)).to_string();
                        vec![b"SET".to_vec(), key.into_bytes(), value, b"EX".to_vec(), seconds.into_bytes()]
                    }
                };
                duramen_resp::encode_command(&mut commands, &command);
            }
            if connection.send(&commands).is_err() {
                return;
            }
            for at in first..first + TOGETHER as u64 {
                match connection.read(PATIENCE) {
                    // There was no room for the value: the key is unchanged.
                    Ok(reply) if reply.kind() == b'-' => self.known[at as usize].flying = None,
                    Ok(_) => {
                        let known = &mut self.known[at as usize];
                        known.last = known.flying.take().unwrap_or(0);
                        self.acknowledged += 1;
                    }
                    Err(_) => return,
                }
            }
        }
    }

    /// Reads all keys, and adds the violations.
    fn verify(&mut self, port: u16, violations: &mut Vec<Violation>) -> Result<()> {
        let mut connection = Connection::open(port).attempt(|| "connect to the server".to_owned())?;
        for first in (0..KEYS).step_by(100) {
            let mut commands = Vec::new();
            for at in first..first + 100 {
                duramen_resp::encode_command(&mut commands, &["GET".to_owned(), self.key(at)]);
            }
            connection.send(&commands).attempt(|| "send to the server".to_owned())?;
            for at in first..first + 100 {
                let reply = connection.read(PATIENCE).map_err(|ended: Ended| {
                    Failure::new(format!("the server answers no GET: {:?}", ended.bytes()))
                })?;
                let value = match reply.bulk() {
                    Some(value) => value,
                    None => return Err(Failure::new(format!("a GET is answered {reply:?}"))),
                };
                let found = value.map_or(Some(0), change_of).unwrap_or(u64::MAX);
                let key = self.key(at);
                let known = &mut self.known[at as usize];
                let wrong = match found {
                    0 => {
                        self.evicted += u64::from(known.last != 0);
                        None
                    }
                    found if found == known.last || Some(found) == known.flying => None,
                    u64::MAX => Some(Fault::Torn),
                    _ => Some(Fault::Resurrected),
                };
                if let Some(fault) = wrong {
                    let what =
                        format!("{key} holds {found}, last was {}, under way {:?}", known.last, known.flying);
                    violations.push(Violation { fault, what });
                }
                *known = Known { last: found, flying: None };
            }
        }
        Ok(())
    }
}

/// Runs until the time is over or there is a violation.
pub fn run(settings: &Settings, program: &Path, until: Instant) -> Result<Tally> {
    let mut random = Random::new(settings.seed);
    let mut tally = Tally::default();
    let (mut evicted, mut changes) = (0, 0);
    while Instant::now() < until && tally.violations.is_empty() {
        let directory = StoreDirectory::new(settings.medium)?;
        let policy = POLICIES[random.below(POLICIES.len() as u64) as usize];
        let mut items: Vec<Items> = (1..settings.writers).step_by(2).map(Items::new).collect();
        let mut numbers = HashSet::new();
        let mut writers: Vec<Writer> = (0..settings.writers)
            .step_by(2)
            .map(|number| Writer {
                number,
                known: vec![Known::default(); KEYS as usize],
                next: 0,
                acknowledged: 0,
                evicted: 0,
            })
            .collect();
        tally.stores += 1;
        for _ in 0..6 {
            let store = directory.store().display().to_string();
            let memcached = free_port()?;
            let memcached_port = memcached.to_string();
            let arguments = [
                "--memcached",
                &memcached_port,
                "--duramen-path",
                &store,
                "--duramen-medium",
                settings.medium.name(),
                "--duramen-durability",
                settings.durability.name(),
                "--duramen-index",
                settings.index.name(),
                "--duramen-residence",
                settings.residence.name(),
                "--maxmemory",
                LIMIT,
                "--maxmemory-policy",
                policy,
            ];
            let mut server = Server::start_duramen(program, &arguments, &directory.log())?;
            let readiness = server.wait_ready(PATIENCE)?;
            if !matches!(readiness, Readiness::Ready) {
                let what = format!("the store did not open ({readiness}):\n{}", server.last_words());
                tally.violations.push(Violation { fault: Fault::Refused, what });
                break;
            }
            for writer in &mut writers {
                writer.verify(server.port(), &mut tally.violations)?;
            }
            for items in &mut items {
                items.verify(memcached, &mut numbers, &mut tally.violations)?;
            }
            if !tally.violations.is_empty() {
                break;
            }
            let (port, stop) = (server.port(), AtomicBool::new(false));
            let working = Duration::from_millis(100 + random.below(1_500));
            let path = directory.store();
            thread::scope(|scope| -> Result<()> {
                for writer in &mut writers {
                    let (seed, stop, path) = (random.any(), &stop, &path);
                    scope.spawn(move || writer.write(port, path, seed, stop));
                }
                for items in &mut items {
                    let (seed, stop, path) = (random.any(), &stop, &path);
                    scope.spawn(move || items.write(memcached, path, seed, stop));
                }
                thread::sleep(working);
                tally.kills += 1;
                let killed = server.kill();
                stop.store(true, Ordering::Relaxed);
                killed
            })?;
        }
        tally.acknowledged += writers.iter().map(|writer| writer.acknowledged).sum::<u64>();
        tally.acknowledged += items.iter().map(|items| items.acknowledged).sum::<u64>();
        evicted += writers.iter().map(|writer| writer.evicted).sum::<u64>();
        evicted += items.iter().map(|items| items.evicted).sum::<u64>();
        changes += numbers.len();
        tally.reads += (writers.len() + items.len()) as u64 * KEYS * 6;
        if !tally.violations.is_empty() {
            tally.kept = Some(directory.keep());
        }
    }
    println!(
        "evicting: {evicted} keys were evicted; each of {changes} changes of items had a different CAS number"
    );
    if evicted == 0 && tally.kills > 6 {
        return Err(Failure::new("nothing was evicted, so nothing was tested"));
    }
    Ok(tally)
}
