//! The content of the stores of `cargo xtask restart`, and the commands that read and write it. A record is derived
//! from a number and a version.

use crate::random::step;
use std::collections::BTreeMap;

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
/// Bytes of an element's value.
const ELEMENT_BYTES: usize = 16;
/// Elements that one command adds while a store is loaded.
const ADDED: u64 = 100;
/// The collections' keys, and the commands that count their elements.
const COLLECTIONS: [(&str, &str); 3] = [("hash", "HLEN"), ("list", "LLEN"), ("sorted", "ZCARD")];

/// The content of a store, and the protocol of the first read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Content {
    /// Strings: keys of 16 bytes, values of 100
    Strings,
    /// The same strings; the first read uses memcached's protocol
    Memcached,
    /// A hash, a list and a sorted set with a third of the records each: names of 16 bytes, values of 16
    Collections,
}

/// A command, and the text of the expected reply.
pub struct Command {
    pub arguments: Vec<Vec<u8>>,
    pub reply: Vec<u8>,
}

impl Command {
    fn new<const N: usize>(arguments: [&[u8]; N], reply: &[u8]) -> Command {
        Command { arguments: arguments.map(<[u8]>::to_vec).into(), reply: reply.to_vec() }
    }

    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.arguments[0])
    }
}

impl Content {
    /// Reads record `number`, which must have this version's value.
    pub fn read(self, number: u64, version: u32) -> Command {
        let (key, value) = (key_of(number), value_of(number, version));
        let element = &value[..ELEMENT_BYTES];
        match self {
            Content::Strings | Content::Memcached => Command::new([b"GET", &key], &value),
            Content::Collections => match Element::of(number) {
                Element::Field => Command::new([b"HGET", b"hash", &key], element),
                Element::Item(at) => Command::new([b"LINDEX", b"list", at.to_string().as_bytes()], element),
                Element::Member => {
                    Command::new([b"ZSCORE", b"sorted", &key], score_of(number, version).as_bytes())
                }
            },
        }
    }

    /// Overwrites the existing record `number` with this version's value.
    pub fn overwrite(self, number: u64, version: u32) -> Command {
        let (key, value) = (key_of(number), value_of(number, version));
        let element = &value[..ELEMENT_BYTES];
        match self {
            Content::Strings | Content::Memcached => Command::new([b"SET", &key, &value], b"OK"),
            Content::Collections => match Element::of(number) {
                Element::Field => Command::new([b"HSET", b"hash", &key, element], b"0"),
                Element::Item(at) => {
                    Command::new([b"LSET", b"list", at.to_string().as_bytes(), element], b"OK")
                }
                Element::Member => {
                    Command::new([b"ZADD", b"sorted", score_of(number, version).as_bytes(), &key], b"0")
                }
            },
        }
    }

    /// Counts the records, which must be `records`.
    pub fn count(self, records: u64) -> Vec<Command> {
        match self {
            Content::Strings | Content::Memcached => {
                vec![Command::new([b"DBSIZE"], records.to_string().as_bytes())]
            }
            Content::Collections => (0..)
                .zip(COLLECTIONS)
                .map(|(at, (key, command))| {
                    let elements = (records + 2 - at) / 3;
                    Command::new([command.as_bytes(), key.as_bytes()], elements.to_string().as_bytes())
                })
                .collect(),
        }
    }
}

/// Fills the collections with `records` elements in all.
pub fn collections(records: u64) -> impl Iterator<Item = Command> {
    (0..records).step_by(3 * ADDED as usize).flat_map(move |from| {
        let mut lists = [["HSET", "hash"], ["RPUSH", "list"], ["ZADD", "sorted"]]
            .map(|words| words.map(|word| word.as_bytes().to_vec()).to_vec());
        let [fields, items, members] = &mut lists;
        let numbers = from..(from + 3 * ADDED).min(records);
        for number in numbers.clone() {
            let (key, value) = (key_of(number).to_vec(), value_of(number, 0)[..ELEMENT_BYTES].to_vec());
            match Element::of(number) {
                Element::Field => fields.extend([key, value]),
                Element::Item(_) => items.push(value),
                Element::Member => members.extend([score_of(number, 0).into_bytes(), key]),
            }
        }
        let replies = [(fields.len() as u64 - 2) / 2, (numbers.end + 1) / 3, (members.len() as u64 - 2) / 2];
        let commands = lists.into_iter().zip(replies);
        commands
            .filter(|(arguments, _)| arguments.len() > 2)
            .map(|(arguments, reply)| Command { arguments, reply: reply.to_string().into_bytes() })
    })
}

/// The place of a record in the collections.
enum Element {
    Field,
    /// With its place in the list.
    Item(u64),
    Member,
}

impl Element {
    fn of(number: u64) -> Element {
        match number % 3 {
            0 => Element::Field,
            1 => Element::Item(number / 3),
            _ => Element::Member,
        }
    }
}

/// A whole number that a double can hold, in an order that differs from that of the records' numbers.
fn score_of(number: u64, version: u32) -> String {
    ((step(number) >> 16) + u64::from(version)).to_string()
}

/// Keys in an order that differs from that of their numbers.
pub fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&step(number).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

pub fn value_of(number: u64, version: u32) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    let mut state = step(number) ^ u64::from(version);
    for part in value.chunks_mut(8) {
        state = step(state);
        part.copy_from_slice(&state.to_le_bytes()[..part.len()]);
    }
    value
}

/// The version of each key that was written since the load.
#[derive(Default)]
pub struct Versions(BTreeMap<u64, u32>);

impl Versions {
    pub fn of(&self, number: u64) -> u32 {
        self.0.get(&number).copied().unwrap_or(0)
    }

    pub fn next(&mut self, number: u64) {
        *self.0.entry(number).or_default() += 1;
    }

    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }
}
