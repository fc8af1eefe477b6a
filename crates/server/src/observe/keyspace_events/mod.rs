//! Keyspace events (`notify-keyspace-events`): their classes and letters.
//!
//! Events are sent like all messages: see [`messages`](crate::messages).
//!
//! Commands report what they do to keys. Expired, missed and new keys are reported in one place for all commands
//! ([`Call::apply`](crate::redis::command::Call::apply)). If these events are wanted, the keys of a command are looked up
//! before it runs. Expired keys are swept and reported; absent keys are recorded ([`Absent`]). An absent key is new
//! when the command reports another event of it, and missed when the command counts a miss. Other keys are reported
//! when they expire ([`expiry_timers`](crate::observe::keyspace_events::expiry_timers)). Keys that were written before the events were wanted are
//! reported when the store sweeps them, a second or two later.

pub mod eviction_listener;
pub mod expiry_listener;
pub mod expiry_timers;

use std::collections::HashSet;

/// Classes of events and their channels, as a set of bits.
pub type Classes = u32;

/// Published in `__keyspace@db__:key`.
pub const KEYSPACE: Classes = 1;
/// Published in `__keyevent@db__:event`.
pub const KEYEVENT: Classes = 1 << 1;
/// Of keys of any type.
pub const GENERIC: Classes = 1 << 2;
/// Of strings.
pub const STRING: Classes = 1 << 3;
/// Of lists.
pub const LIST: Classes = 1 << 4;
/// Of sets.
pub const SET: Classes = 1 << 5;
/// Of hashes.
pub const HASH: Classes = 1 << 6;
/// Of sorted sets.
pub const SORTED_SET: Classes = 1 << 7;
/// A key has expired.
pub const EXPIRED: Classes = 1 << 8;
/// A key was evicted.
pub const EVICTED: Classes = 1 << 9;
/// Of streams.
pub const STREAM: Classes = 1 << 10;
/// A missing key was read.
pub const MISS: Classes = 1 << 11;
/// Of module types, which do not exist here.
pub const MODULE: Classes = 1 << 12;
/// A key is new.
pub const NEW: Classes = 1 << 13;

// `A`: all but MISS and NEW.
const ALL: Classes = GENERIC | STRING | LIST | SET | HASH | SORTED_SET | EXPIRED | EVICTED | STREAM | MODULE;

// In the order in which CONFIG GET writes them.
const LETTERS: [(char, Classes); 14] = [
    ('g', GENERIC),
    ('$', STRING),
    ('l', LIST),
    ('s', SET),
    ('h', HASH),
    ('z', SORTED_SET),
    ('x', EXPIRED),
    ('e', EVICTED),
    ('t', STREAM),
    ('d', MODULE),
    ('n', NEW),
    ('K', KEYSPACE),
    ('E', KEYEVENT),
    ('m', MISS),
];

/// Keys of the current command that were absent before it, in the order of its arguments.
#[derive(Default)]
pub struct Absent {
    keys: Vec<AbsentKey>,
    // By database and key: absent keys not yet reported as new.
    untold: HashSet<(u8, Box<[u8]>)>,
    // The number of counted misses that are reported, or belong to none of these keys.
    misses: u64,
    // The first key that may be missed next.
    next: usize,
}

struct AbsentKey {
    db: u8,
    key: Box<[u8]>,
    // The command reads it, so it may be missed.
    is_read: bool,
}

impl Absent {
    /// No absent keys yet, at this number of counted misses.
    pub fn since(misses: u64) -> Self {
        Self { misses, ..Self::default() }
    }

    /// Records an absent key.
    pub fn add(&mut self, db: u8, key: &[u8], is_read: bool) {
        self.keys.push(AbsentKey { db, key: key.into(), is_read });
        self.untold.insert((db, key.into()));
    }

    /// Whether there is an absent key.
    #[inline]
    pub fn is_any(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The next missed key, at this number of counted misses.
    pub fn next_missed(&mut self, misses: u64) -> Option<(u8, Box<[u8]>)> {
        if self.misses >= misses {
            return None;
        }
        self.misses += 1;
        // Search again from the beginning: some commands look twice.
        let (before, rest) = self.keys.split_at(self.next);
        let found = rest.iter().chain(before).position(|it| it.is_read)?;
        let at = (self.next + found) % self.keys.len();
        self.next = at + 1;
        self.keys.get(at).map(|it| (it.db, it.key.clone()))
    }

    /// The counted miss belongs to none of these keys.
    pub fn skip_miss(&mut self) {
        self.misses += 1;
    }

    /// Whether the key was absent and is not yet reported as new.
    pub fn may_be_new(&self, db: u8, key: &[u8]) -> bool {
        self.is_any() && self.untold.contains(&(db, key.into()))
    }

    /// Marks the key as reported new.
    pub fn note_new(&mut self, db: u8, key: &[u8]) {
        self.untold.remove(&(db, key.into()));
    }
}

/// An event that is true even if the transaction that noticed it aborts.
pub enum Absence {
    /// A key has expired.
    Expired(u8, Box<[u8]>),
    /// A key was missed.
    Missed(u8, Box<[u8]>),
}

/// Parses the letters of classes.
///
/// # Errors
/// Redis's text.
pub fn parse(text: &str) -> Result<Classes, String> {
    let mut classes = 0;
    for letter in text.chars() {
        classes |= match LETTERS.iter().find(|(known, _)| *known == letter) {
            Some((_, class)) => *class,
            None if letter == 'A' => ALL,
            None => return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()),
        };
    }
    Ok(classes)
}

/// Formats classes as letters.
pub fn text(classes: Classes) -> String {
    let all = classes & ALL == ALL;
    let mut text = String::from(if all { "A" } else { "" });
    let told = LETTERS.iter().filter(|(_, class)| classes & class != 0 && !(all && ALL & class != 0));
    // As in Redis: NEW is not written after `A`.
    text.extend(told.filter(|(_, class)| !(all && *class == NEW)).map(|(letter, _)| letter));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_flags_read_back() {
        for (given, wanted) in
            [("", ""), ("KEA", "AKE"), ("Kgx", "gxK"), ("g$lshzxetdE", "AE"), ("mKl", "lKm"), ("KA", "AK")]
        {
            assert_eq!(text(parse(given).unwrap()), wanted, "{given}");
        }
        assert!(parse("Kq").is_err());
    }

    #[test]
    fn reads_of_absent_keys_are_misses_in_order() {
        let mut absent = Absent::since(5);
        absent.add(0, b"to", false);
        absent.add(0, b"one", true);
        absent.add(0, b"two", true);
        assert!(absent.next_missed(5).is_none());
        assert_eq!(absent.next_missed(8).unwrap().1.as_ref(), b"one");
        // A letter that is none of these.
        absent.skip_miss();
        assert_eq!(absent.next_missed(8).unwrap().1.as_ref(), b"two");
        assert!(absent.next_missed(8).is_none());
        assert_eq!(absent.next_missed(9).unwrap().1.as_ref(), b"one");
        assert!(absent.may_be_new(0, b"to") && !absent.may_be_new(1, b"to") && !absent.may_be_new(0, b"x"));
        absent.note_new(0, b"to");
        assert!(!absent.may_be_new(0, b"to"));
    }
}
