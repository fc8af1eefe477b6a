//! Which changes of keys are told (`notify-keyspace-events`): classes, and their letters.
//!
//! What is told goes the way of every message: see [`messages`](crate::messages).

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
}
