//! The common part of SCAN, HSCAN, SSCAN and ZSCAN: the cursor, the options, the reply.

use super::{Args, CommandError, errors};
use crate::redis::resp::Reply;
use duramen_structures::glob;

const COUNT_DEFAULT: usize = 10;
// More at once would only hold up the other connections of the worker.
const COUNT_MAX: i64 = 1 << 20;

/// [MATCH pattern] [COUNT count] [TYPE type]
pub struct Options<'a> {
    pattern: Option<&'a [u8]>,
    /// Only keys of this type; SCAN's alone.
    pub type_name: Option<&'a [u8]>,
    /// Fields without their values; HSCAN's alone.
    pub no_values: bool,
    /// How much is to be looked at.
    pub count: usize,
}

impl<'a> Options<'a> {
    /// The options from the argument at `first` on.
    ///
    /// # Errors
    /// Redis's, for one that there is not.
    pub fn parse(args: Args<'a>, first: usize, has_type: bool) -> Result<Self, CommandError> {
        Self::parse_of(args, first, has_type, false)
    }

    /// The same of HSCAN.
    ///
    /// # Errors
    /// As [`Options::parse`].
    pub fn parse_of_hash(args: Args<'a>, first: usize) -> Result<Self, CommandError> {
        Self::parse_of(args, first, false, true)
    }

    fn parse_of(
        args: Args<'a>,
        first: usize,
        has_type: bool,
        has_values: bool,
    ) -> Result<Self, CommandError> {
        let mut options = Self { pattern: None, type_name: None, no_values: false, count: COUNT_DEFAULT };
        let mut at = first;
        while at < args.len() {
            if has_values && args.is(at, "novalues") {
                options.no_values = true;
                at += 1;
                continue;
            }
            let value = args.get(at + 1).ok_or(errors::SYNTAX)?;
            if args.is(at, "count") {
                let count = args.integer(at + 1)?;
                if count < 1 {
                    return Err(errors::SYNTAX);
                }
                options.count = count.min(COUNT_MAX) as usize;
            } else if args.is(at, "match") {
                options.pattern = Some(value);
            } else if has_type && args.is(at, "type") {
                options.type_name = Some(value);
            } else {
                return Err(errors::SYNTAX);
            }
            at += 2;
        }
        Ok(options)
    }

    /// Whether the pattern fits.
    pub fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// A cursor as `strtoul` reads it: an optional sign, then digits; the empty text is 0.
///
/// # Errors
/// Redis's, for one that is none.
pub fn cursor(text: &[u8]) -> Result<u64, CommandError> {
    parse_cursor(text).ok_or(errors::INVALID_CURSOR)
}

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

/// Byte strings gathered for a reply that begins with their number.
#[derive(Default)]
pub struct Gathered {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Gathered {
    /// One more.
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Replies with an array of all.
    pub fn reply(&self, reply: &mut Reply<'_>) {
        reply.array(self.ends.len());
        self.reply_bare(reply);
    }

    /// Replies with all, whose number was written before.
    pub fn reply_bare(&self, reply: &mut Reply<'_>) {
        let mut start = 0;
        for &end in &self.ends {
            reply.bulk(&self.bytes[start..end]);
            start = end;
        }
    }

    /// Replies with all as a part of a scan that continues at `cursor`.
    pub fn reply_part(&self, reply: &mut Reply<'_>, cursor: u64) {
        reply.array(2);
        reply.bulk(cursor.to_string().as_bytes());
        self.reply(reply);
    }
}
