//! Which changes of keys are told (`notify-keyspace-events`): classes, and their letters.
//!
//! What is told goes the way of every message: see [`messages`](crate::messages).
//!
//! Commands tell of what they do to keys. That a key has expired, was looked for in vain, or is new is told for all of them in one place
//! ([`Call::apply`](crate::command::Call::apply)): if somebody wants to know, the keys of a command are looked at before it runs.
//! What has expired is swept and told of; what is absent is noted ([`Absent`]). It is new when the command tells something else of it,
//! and was missed when the command counts a miss. Keys that nobody asks for are told of in their time
//! ([`expiry_timers`](crate::expiry_timers)); those that were written before somebody wanted to know, when the store
//! sweeps them, a second or two later.

use std::collections::HashSet;

/// Classes of events, and where they are told: a set of bits.
pub type Classes = u32;

/// Told in `__keyspace@db__:key`.
pub const KEYSPACE: Classes = 1;
/// Told in `__keyevent@db__:event`.
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
/// A key was read that is not there.
pub const MISS: Classes = 1 << 11;
/// Of modules' types, of which there are none.
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

/// Keys of the command that runs that were absent before it, in the order of its arguments.
#[derive(Default)]
pub struct Absent {
    keys: Vec<AbsentKey>,
    // By database and key: nobody was told yet that they are new.
    untold: HashSet<(u8, Box<[u8]>)>,
    // So many misses had been counted that were told of, or were none of these keys.
    misses: u64,
    // The first key that may be missed next.
    next: usize,
}

struct AbsentKey {
    db: u8,
    key: Box<[u8]>,
    // The command looks for it, so it may be missed.
    is_read: bool,
}

impl Absent {
    /// Of none yet, when so many misses have been counted.
    pub fn since(misses: u64) -> Self {
        Self { misses, ..Self::default() }
    }

    /// A key was absent.
    pub fn add(&mut self, db: u8, key: &[u8], is_read: bool) {
        self.keys.push(AbsentKey { db, key: key.into(), is_read });
        self.untold.insert((db, key.into()));
    }

    /// Whether there was one.
    #[inline]
    pub fn is_any(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The next key that was missed, when so many misses have been counted.
    pub fn next_missed(&mut self, misses: u64) -> Option<(u8, Box<[u8]>)> {
        if self.misses >= misses {
            return None;
        }
        self.misses += 1;
        // From the beginning again: there are commands that look twice.
        let (before, rest) = self.keys.split_at(self.next);
        let found = rest.iter().chain(before).position(|it| it.is_read)?;
        let at = (self.next + found) % self.keys.len();
        self.next = at + 1;
        self.keys.get(at).map(|it| (it.db, it.key.clone()))
    }

    /// A miss that was counted was of no key among these.
    pub fn skip_miss(&mut self) {
        self.misses += 1;
    }

    /// Whether the key was absent, and nobody was told since that it is new.
    pub fn may_be_new(&self, db: u8, key: &[u8]) -> bool {
        self.is_any() && self.untold.contains(&(db, key.into()))
    }

    /// Everybody is told that the key is new.
    pub fn note_new(&mut self, db: u8, key: &[u8]) {
        self.untold.remove(&(db, key.into()));
    }
}

/// What is true whatever becomes of the transaction that noticed.
pub enum Absence {
    /// A key has expired.
    Expired(u8, Box<[u8]>),
    /// A key was missed.
    Missed(u8, Box<[u8]>),
}

/// The classes of these letters.
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

/// The letters of these classes.
pub fn text(classes: Classes) -> String {
    let all = classes & ALL == ALL;
    let mut text = String::from(if all { "A" } else { "" });
    let told = LETTERS.iter().filter(|(_, class)| classes & class != 0 && !(all && ALL & class != 0));
    // As Redis: NEW is not written beside `A`.
    text.extend(told.filter(|(_, class)| !(all && *class == NEW)).map(|(letter, _)| letter));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_and_written() {
        for (given, wanted) in
            [("", ""), ("KEA", "AKE"), ("Kgx", "gxK"), ("g$lshzxetdE", "AE"), ("mKl", "lKm"), ("KA", "AK")]
        {
            assert_eq!(text(parse(given).unwrap()), wanted, "{given}");
        }
        assert!(parse("Kq").is_err());
    }

    #[test]
    fn of_absent_keys_those_that_are_read_are_missed_in_their_order() {
        let mut absent = Absent::since(5);
        absent.add(0, b"to", false);
        absent.add(0, b"one", true);
        absent.add(0, b"two", true);
        assert!(absent.next_missed(5).is_none());
        assert_eq!(absent.next_missed(8).unwrap().1.as_ref(), b"one");
        // One that is none of these.
        absent.skip_miss();
        assert_eq!(absent.next_missed(8).unwrap().1.as_ref(), b"two");
        assert!(absent.next_missed(8).is_none());
        assert_eq!(absent.next_missed(9).unwrap().1.as_ref(), b"one");
        assert!(absent.may_be_new(0, b"to") && !absent.may_be_new(1, b"to") && !absent.may_be_new(0, b"x"));
        absent.note_new(0, b"to");
        assert!(!absent.may_be_new(0, b"to"));
    }
}
