//! Which keys there are: KEYS, SCAN, RANDOMKEY.

use super::type_name;
use crate::command::{Args, Call, CommandError, errors};
use crate::resp::Reply;
use duramen_structures::glob;

/// KEYS pattern: all keys that fit. Reads every key of every database or, with an ordered index, those of its own that
/// begin as the pattern does; what others write meanwhile may or may not be seen.
pub fn keys(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, pattern) = (call.session.db, call.args.at(1));
    let mut keys = KeyList::default();
    call.txn.scan_prefix(db, glob::literal_prefix(pattern), |key, _| {
        if glob::matches(pattern, key) {
            keys.push(key);
        }
    })?;
    keys.reply(&mut call.reply);
    Ok(())
}

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]: keys, a few at a time. A key that is there from
/// the first call to the last is returned at least once.
pub fn scan(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let db = call.session.db;
    let mut cursor = parse_cursor(call.args.at(1)).ok_or(errors::INVALID_CURSOR)?;
    let options = Options::parse(call.args)?;
    let mut keys = KeyList::default();
    // COUNT says how much work to do, not how many keys to find; but a client should not have to ask
    // again and again because the index is sparse or other databases are larger than its own.
    for _ in 0..ROUNDS_MAX {
        cursor = call.txn.scan(db, cursor, options.count, |key, tag| {
            if options.pattern.is_none_or(|pattern| glob::matches(pattern, key))
                && options.type_name.is_none_or(|name| name.eq_ignore_ascii_case(type_name(tag).as_bytes()))
            {
                keys.push(key);
            }
        })?;
        if cursor == 0 || keys.len() >= options.count {
            break;
        }
    }
    call.reply.array(2);
    call.reply.bulk(cursor.to_string().as_bytes());
    keys.reply(&mut call.reply);
    Ok(())
}

/// RANDOMKEY: some key.
pub fn randomkey(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.txn.random_key(call.session.db)? {
        Some(key) => call.reply.bulk(&key),
        None => call.reply.null(),
    }
    Ok(())
}

// Redis too looks at up to ten times COUNT places.
const ROUNDS_MAX: usize = 10;
const COUNT_DEFAULT: usize = 10;
// More at once would only hold up the other connections of the worker.
const COUNT_MAX: i64 = 1 << 20;

struct Options<'a> {
    pattern: Option<&'a [u8]>,
    type_name: Option<&'a [u8]>,
    count: usize,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let mut options = Self { pattern: None, type_name: None, count: COUNT_DEFAULT };
        for at in (2..args.len()).step_by(2) {
            let value = args.get(at + 1).ok_or(errors::SYNTAX)?;
            if args.is(at, "count") {
                let count = args.integer(at + 1)?;
                if count < 1 {
                    return Err(errors::SYNTAX);
                }
                options.count = count.min(COUNT_MAX) as usize;
            } else if args.is(at, "match") {
                options.pattern = Some(value);
            } else if args.is(at, "type") {
                options.type_name = Some(value);
            } else {
                return Err(errors::SYNTAX);
            }
        }
        Ok(options)
    }
}

/// As `strtoul` reads it: an optional sign, then digits; the empty text is 0.
fn parse_cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return text.is_empty().then_some(0);
    }
    let cursor = digits.iter().try_fold(0u64, |cursor, digit| {
        digit.is_ascii_digit().then_some(())?;
        cursor.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })?;
    Some(if negative { cursor.wrapping_neg() } else { cursor })
}

/// Keys gathered for a reply that begins with their number.
#[derive(Default)]
struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn reply(&self, reply: &mut Reply<'_>) {
        reply.array(self.ends.len());
        let mut start = 0;
        for &end in &self.ends {
            reply.bulk(&self.bytes[start..end]);
            start = end;
        }
    }
}
