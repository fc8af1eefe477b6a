//! The arguments of a command that are keys, and their use: Redis's key specifications.
//!
//! This is the one place that answers it: for COMMAND GETKEYS, and for whatever has to know the keys of a command
//! before it runs.

use super::args::{Args, integer};
use super::names::named_set;
use std::ops::Range;

named_set! {
    /// How a key is used: a set.
    KeyFlags {
        /// Its value is read, and not changed.
        RO = 0, "RO";
        /// Its value is changed, whatever it was or in dependence of it.
        RW = 1, "RW";
        /// Its value is replaced without being read.
        OW = 2, "OW";
        /// It is removed.
        RM = 3, "RM";
        /// The reply depends on the value.
        ACCESS = 4, "access";
        /// The value is changed.
        UPDATE = 5, "update";
        /// Something is added to the value.
        INSERT = 6, "insert";
        /// The value, or something of it, is deleted.
        DELETE = 7, "delete";
        /// Found as a key is, but a channel.
        NOT_KEY = 8, "not_key";
        /// There may be more keys than the specification finds.
        INCOMPLETE = 9, "incomplete";
        /// Depends on the arguments; these flags are the most that can be.
        VARIABLE_FLAGS = 10, "variable_flags";
    }
}

/// A key among the arguments of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Which argument.
    pub index: usize,
    /// How it is used.
    pub flags: KeyFlags,
}

/// Tells some of a command's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// A remark on the flags.
    pub notes: Option<String>,
    /// How the keys are used.
    pub flags: KeyFlags,
    /// Where to begin.
    pub begin: Begin,
    /// Which are keys, from there on.
    pub find: Find,
}

/// Where the search for keys begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this argument.
    Index(i64),
    /// Behind this word, which may be missing. Looked for from this argument on; from the end, and towards the
    /// begin, when negative.
    Keyword(String, i64),
    /// Not given.
    Unknown,
}

/// Which arguments are keys, counted from where the search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Every `step`-th up to `last`, which counts from the end of all arguments when negative; with a `limit` above 1
    /// only the first of that many parts of the rest are keys.
    Range {
        /// Index of the last key.
        last: i64,
        /// Distance from one key to the next.
        step: i64,
        /// In how many parts the rest is divided; 0 and 1 mean one.
        limit: i64,
    },
    /// An argument is the number of keys.
    Number {
        /// Index of that argument.
        number: i64,
        /// Index of the first key.
        first: i64,
        /// Distance from one key to the next.
        step: i64,
    },
    /// Not given.
    Unknown,
}

impl KeySpec {
    /// The positions of the keys among `args`; `None` when they cannot be determined, or arguments are missing.
    #[inline]
    pub fn places(&self, args: Args<'_>) -> Option<std::iter::StepBy<Range<usize>>> {
        let count = args.len() as i64;
        let begin = match &self.begin {
            Begin::Index(index) => *index,
            Begin::Keyword(word, from) => match keyword(args, word, *from) {
                Some(index) => index as i64 + 1,
                None => return Some((0..0).step_by(1)),
            },
            Begin::Unknown => return None,
        };
        let (first, last, step) = match self.find {
            Find::Range { last, step, .. } if last >= 0 => (begin, begin + last, step),
            Find::Range { last, step, limit: 0 | 1 } => (begin, count + last, step),
            Find::Range { last, step, limit } => (begin, begin + (count - begin) / limit + last, step),
            Find::Number { number, first, step } => {
                let number = args.get(usize::try_from(begin + number).ok()?)?;
                // The command refuses such a number later. Before that, Redis takes its first digits, and checks the keys.
                let keys = integer(number).or_else(|| first_digits(number))?;
                if keys == 0 {
                    return Some((0..0).step_by(1));
                }
                // No more keys than there are arguments, whatever the number says.
                let keys = Some(keys).filter(|keys| (1..=count).contains(keys))?;
                (begin + first, begin + first + (keys - 1) * step, step)
            }
            Find::Unknown => return None,
        };
        (0 < first && first <= last && last < count && step > 0)
            .then(|| (first as usize..last as usize + 1).step_by(step as usize))
    }
}

/// The number with which a text begins, as C's `atoi` reads it.
fn first_digits(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..count]).ok()?.parse().ok()
}

/// The index of `word`, after which another argument must follow.
fn keyword(args: Args<'_>, word: &str, from: i64) -> Option<usize> {
    let end = args.len().saturating_sub(1);
    let distance = usize::try_from(from.unsigned_abs()).ok()?;
    if from >= 0 {
        (distance.max(1)..end).find(|&index| args.is(index, word))
    } else {
        (1..args.len().saturating_sub(distance) + 1).rev().find(|&index| index < end && args.is(index, word))
    }
}
