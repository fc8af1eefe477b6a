//! Commands from the bytes that a client sent. Pure, resumable, and without copies.
//!
//! ```text
//!            '*'             count > 0        '$'        length        length + 2 bytes
//! start ────────────► count ───────────► bulk head ────────────► bulk ───────┐
//!   │                   │ count <= 0        ▲                                │ arguments missing
//!   │ other             ▼                   └────────────────────────────────┤
//!   └────► inline ──► nothing or a command ◄─────────────────────────────────┘ none missing
//! ```
//!
//! - **Invariant 1**: the commands found do not depend on how the input was cut into reads.
//! - **Invariant 2**: no byte of an argument is looked at twice, however many reads it takes to arrive: the parser
//!   continues where it stopped.
//! - **Invariant 3**: memory is taken for bytes that have arrived, never for bytes that were announced.
//!
//! The rules, limits and error texts are those of Redis 7.0's `processMultibulkBuffer` and `processInlineBuffer`, with
//! their peculiarities: the two bytes after a bulk are not checked, and a line whose head contains a zero byte never
//! ends.

use crate::inline;
use crate::number::integer;
use crate::span::Span;
use std::fmt;

/// The limits of a client's requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `proto-max-bulk-len`.
    pub bulk_bytes_max: u64,
    /// Before AUTH only small requests are read.
    pub authenticated: bool,
}

// A head or an inline request without line end is refused beyond this (PROTO_INLINE_MAX_SIZE).
const LINE_BYTES_MAX: usize = 64 << 10;
// Before AUTH: enough for HELLO with all its options.
const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
const UNAUTHENTICATED_BULK_BYTES_MAX: i64 = 16 << 10;
// Commands of a batch begin in few ways, and have few arguments: see `merge`.
const HEADS: usize = 4;
const JOINED_ARGUMENTS_MAX: usize = 8;
// A command with more arguments gives their table back when it is done: 16 KiB stay.
const SPANS_KEPT: usize = 1024;

/// The content of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A command of this many bytes; [`Requests::arguments`] gives its arguments.
    Command {
        /// Bytes of input that it took.
        bytes: usize,
    },
    /// No command, only bytes to skip: an empty line or an empty array.
    Nothing {
        /// Bytes of input to pass over.
        bytes: usize,
    },
    /// The command does not end yet.
    Incomplete {
        /// How many bytes are missing at least, as far as known.
        missing_bytes: usize,
    },
}

/// A malformed request; the connection ends after the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// An array head without an end.
    CountTooLong,
    /// An array length that is no number, or too large.
    CountInvalid,
    /// Too many arguments before AUTH.
    CountUnauthenticated,
    /// A bulk head without an end.
    BulkTooLong,
    /// Something other than a bulk where one must be.
    BulkExpected(u8),
    /// A bulk length that is no number, or too large.
    BulkInvalid,
    /// Too long an argument before AUTH.
    BulkUnauthenticated,
    /// An inline request without an end.
    InlineTooLong,
    /// Quotes in an inline request that do not match.
    InlineUnbalanced,
}

impl fmt::Display for ProtocolError {
    /// Redis's text, after `ERR Protocol error: `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CountTooLong => "too big mbulk count string",
            Self::CountInvalid => "invalid multibulk length",
            Self::CountUnauthenticated => "unauthenticated multibulk length",
            Self::BulkTooLong => "too big bulk count string",
            Self::BulkExpected(byte) => return write!(f, "expected '$', got '{}'", char::from(*byte)),
            Self::BulkInvalid => "invalid bulk length",
            Self::BulkUnauthenticated => "unauthenticated bulk length",
            Self::InlineTooLong => "too big inline request",
            Self::InlineUnbalanced => "unbalanced quotes in request",
        })
    }
}

/// Finds commands in a connection's input and remembers how far it came.
#[derive(Debug, Default)]
pub struct Requests {
    spans: Vec<Span>,
    // Arguments of an inline command, unquoted; `spans` then point in here.
    inline: Vec<u8>,
    is_inline: bool,
    // Bytes of the current command that need not be looked at again.
    at: usize,
    // Bytes from `at` that hold no line end.
    searched: usize,
    // Arguments of the current command that are still to come.
    arguments_missing: usize,
    // Length of the argument at `at`, once its head is read.
    bulk_bytes: Option<usize>,
    finished: bool,
}

impl Requests {
    /// Looks for a command at the beginning of `input`. After [`Request::Incomplete`] the next call must have the same
    /// bytes and more; after the other two the input must have moved on by `bytes`.
    ///
    /// # Errors
    /// The error of the request. Parsing cannot continue after it.
    #[inline]
    pub fn next(&mut self, input: &[u8], limits: &Limits) -> Result<Request, ProtocolError> {
        if self.finished {
            self.restart();
        }
        if self.arguments_missing == 0 {
            match input.first() {
                None => return Ok(Request::Incomplete { missing_bytes: 1 }),
                Some(b'*') => {}
                Some(_) => return self.next_inline(input),
            }
            let Some(count) = self.head(input, ProtocolError::CountTooLong)? else {
                return Ok(Request::Incomplete { missing_bytes: 1 });
            };
            let count = count.ok_or(ProtocolError::CountInvalid)?;
            if count > i64::from(i32::MAX) {
                return Err(ProtocolError::CountInvalid);
            }
            if !limits.authenticated && count > UNAUTHENTICATED_ARGUMENTS_MAX {
                return Err(ProtocolError::CountUnauthenticated);
            }
            if count <= 0 {
                self.finished = true;
                return Ok(Request::Nothing { bytes: self.at });
            }
            self.arguments_missing = count as usize;
        }
        self.next_arguments(input, limits)
    }

    /// The arguments of the command that was found at the beginning of `input`: the buffer in which they lie, and their
    /// places there.
    #[inline]
    pub fn spans<'a>(&'a self, input: &'a [u8]) -> (&'a [u8], &'a [Span]) {
        (if self.is_inline { &self.inline } else { input }, &self.spans)
    }

    /// The same arguments, one after the other.
    pub fn arguments<'a>(&'a self, input: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let (buffer, spans) = self.spans(input);
        spans.iter().map(|span| &buffer[span.start..span.end])
    }

    /// Extends the command at the beginning of `input` by the commands that follow it, as long as they have the same
    /// key as their second argument and `joins` accepts them. `joins` gets the name and the number of arguments; its
    /// results are pushed to `joined`. The other arguments of each are appended to those of the first, and the bytes
    /// are those of all. Returns the number of commands, at most `most`, and where the last one ends. An inline command
    /// stays alone, and so does one that begins differently from those before.
    pub fn merge<T: Copy>(
        &mut self,
        input: &[u8],
        limits: &Limits,
        most: usize,
        joined: &mut Vec<T>,
        mut joins: impl FnMut(&[u8], usize) -> Option<T>,
    ) -> Option<(usize, usize)> {
        let key = *self.spans.get(1).filter(|_| !self.is_inline)?;
        let first = &input[self.spans[0].start..self.spans[0].end];
        // All bytes before the arguments after the key, and their number: most commands equal an earlier one.
        let mut heads: [Option<(&[u8], usize, T)>; HEADS] = [None; HEADS];
        let mut known = 0;
        if let Some(own) = joins(first, self.spans.len()) {
            (heads[0], known) = (Some((&input[..key.end + 2], self.spans.len() - 2, own)), 1);
        }
        let mut count = 1;
        while count < most {
            let (at, spans, rest) = (self.at, self.spans.len(), &input[self.at..]);
            let like = heads[..known].iter().flatten().find(|(head, ..)| rest.starts_with(head));
            let new = if let Some(&(head, others, own)) = like {
                self.joins(input, limits, at + head.len(), others).then_some(own)
            } else if known == HEADS || rest.starts_with(&input[..key.start]) {
                // The last is the same command with another key.
                None
            } else {
                let own = self.other(input, limits, &input[key.start..key.end], &mut joins);
                if let Some((own, others)) = own {
                    let end = self.spans[spans + 1].end + 2;
                    self.spans.drain(spans..spans + 2);
                    (heads[known], known) = (Some((&input[at..end], others, own)), known + 1);
                }
                own.map(|(own, _)| own)
            };
            let Some(own) = new else {
                self.leave(at, spans);
                break;
            };
            joined.push(own);
            count += 1;
        }
        self.finished = true;
        Some((count, self.at))
    }

    /// Like [`merge`](Self::merge) for commands with the same name and number of arguments and any keys: all arguments
    /// after the name are appended.
    pub fn merge_of_any_keys(
        &mut self,
        input: &[u8],
        limits: &Limits,
        most: usize,
    ) -> Option<(usize, usize)> {
        let name = self.spans.first().filter(|_| !self.is_inline)?;
        let (head, others) = (&input[..name.end + 2], self.spans.len() - 1);
        let mut count = 1;
        while count < most && input[self.at..].starts_with(head) {
            let (at, spans) = (self.at, self.spans.len());
            if !self.joins(input, limits, at + head.len(), others) {
                self.leave(at, spans);
                break;
            }
            count += 1;
        }
        self.finished = true;
        Some((count, self.at))
    }

    /// Adds this many arguments of the next command, which begin at `at`; returns whether all of them have arrived.
    #[inline]
    fn joins(&mut self, input: &[u8], limits: &Limits, at: usize, arguments: usize) -> bool {
        (self.at, self.arguments_missing) = (at, arguments);
        matches!(self.next_arguments(input, limits), Ok(Request::Command { .. }))
    }

    /// Leaves the command at `at`, after this many arguments, to the next call, which parses it again.
    fn leave(&mut self, at: usize, spans: usize) {
        self.spans.truncate(spans);
        (self.at, self.arguments_missing, self.bulk_bytes, self.searched) = (at, 0, None, 0);
    }

    /// Adds the arguments of the next command, if it names this key and may join. Returns its tag and the number of
    /// arguments after the key.
    fn other<T>(
        &mut self,
        input: &[u8],
        limits: &Limits,
        key: &[u8],
        joins: &mut impl FnMut(&[u8], usize) -> Option<T>,
    ) -> Option<(T, usize)> {
        if input.get(self.at) != Some(&b'*') {
            return None;
        }
        let spans = self.spans.len();
        let count = usize::try_from(self.head(input, ProtocolError::CountTooLong).ok()???).ok()?;
        if !(2..=JOINED_ARGUMENTS_MAX).contains(&count) {
            return None;
        }
        self.arguments_missing = count;
        if !matches!(self.next_arguments(input, limits), Ok(Request::Command { .. })) {
            return None;
        }
        let [name, other] = [0, 1].map(|at| &input[self.spans[spans + at].start..self.spans[spans + at].end]);
        let own = joins(name, count).filter(|_| other == key)?;
        Some((own, count - 2))
    }

    /// Memory that the command's arguments take besides the input.
    pub fn bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.inline.capacity()
    }

    fn restart(&mut self) {
        self.spans.clear();
        if self.spans.capacity() > SPANS_KEPT {
            self.spans.shrink_to(SPANS_KEPT);
        }
        if self.is_inline {
            self.inline = Vec::new();
            self.is_inline = false;
        }
        self.at = 0;
        self.searched = 0;
        self.arguments_missing = 0;
        self.bulk_bytes = None;
        self.finished = false;
    }

    #[inline]
    fn next_arguments(&mut self, input: &[u8], limits: &Limits) -> Result<Request, ProtocolError> {
        while self.arguments_missing > 0 {
            let length = match self.bulk_bytes {
                Some(length) => length,
                None => {
                    match input.get(self.at) {
                        Some(b'$') => {}
                        Some(&other) => {
                            // Redis looks for the line's end first.
                            if line_end(&input[self.at..]).is_none() {
                                return self.unfinished_head(input, ProtocolError::BulkTooLong);
                            }
                            return Err(ProtocolError::BulkExpected(other));
                        }
                        None => return Ok(Request::Incomplete { missing_bytes: 1 }),
                    }
                    let Some(length) = self.head(input, ProtocolError::BulkTooLong)? else {
                        return Ok(Request::Incomplete { missing_bytes: 1 });
                    };
                    let length = length.ok_or(ProtocolError::BulkInvalid)?;
                    if length < 0 || length as u64 > limits.bulk_bytes_max {
                        return Err(ProtocolError::BulkInvalid);
                    }
                    if !limits.authenticated && length > UNAUTHENTICATED_BULK_BYTES_MAX {
                        return Err(ProtocolError::BulkUnauthenticated);
                    }
                    self.bulk_bytes = Some(length as usize);
                    length as usize
                }
            };
            let end = self.at + length;
            if input.len() < end + 2 {
                return Ok(Request::Incomplete { missing_bytes: end + 2 - input.len() });
            }
            self.spans.push(Span { start: self.at, end });
            self.at = end + 2;
            self.bulk_bytes = None;
            self.arguments_missing -= 1;
        }
        self.finished = true;
        Ok(Request::Command { bytes: self.at })
    }

    /// Parses a head at `at`: a sign, a number, a line end. `None` when the line end has not arrived; `Some(None)` when
    /// the number is invalid.
    #[inline]
    fn head(&mut self, input: &[u8], too_long: ProtocolError) -> Result<Option<Option<i64>>, ProtocolError> {
        let line = &input[self.at + 1..];
        // Almost every head is one to three digits and a line end.
        let mut value = 0;
        for (index, byte) in line.iter().take(4).enumerate() {
            match byte {
                b'0'..=b'9' if index == 0 || value > 0 => value = value * 10 + i64::from(byte - b'0'),
                b'\r' if index > 0 && index + 1 < line.len() => {
                    self.at += index + 3;
                    self.searched = 0;
                    return Ok(Some(Some(value)));
                }
                _ => break,
            }
        }
        self.head_slow(input, too_long)
    }

    #[cold]
    fn head_slow(
        &mut self,
        input: &[u8],
        too_long: ProtocolError,
    ) -> Result<Option<Option<i64>>, ProtocolError> {
        let line = &input[self.at..];
        let unseen = line.get(self.searched..).unwrap_or_default();
        let Some(length) = line_end(unseen).map(|end| end + self.searched) else {
            // Where a '\r' waits for its '\n', or a zero byte hides the rest, the next search begins.
            self.searched += unseen.iter().position(|byte| ends_search(*byte)).unwrap_or(unseen.len());
            return self.unfinished_head(input, too_long).map(|_| None);
        };
        let number = integer(&line[1..length.max(1)]);
        self.at += length + 2;
        self.searched = 0;
        Ok(Some(number))
    }

    fn unfinished_head(&self, input: &[u8], too_long: ProtocolError) -> Result<Request, ProtocolError> {
        let head = &input[self.at..];
        let waits_for_newline = || head.iter().find(|byte| ends_search(**byte)) == Some(&b'\r');
        if head.len() > LINE_BYTES_MAX && !waits_for_newline() {
            return Err(too_long);
        }
        Ok(Request::Incomplete { missing_bytes: 1 })
    }

    fn next_inline(&mut self, input: &[u8]) -> Result<Request, ProtocolError> {
        let unseen = &input[self.searched..];
        let found = unseen.iter().position(|byte| matches!(byte, b'\n' | 0));
        let end = match found {
            Some(end) if unseen[end] == b'\n' => self.searched + end,
            found => {
                // A zero byte stays where it is: every later search stops at it again.
                self.searched += found.unwrap_or(unseen.len());
                if input.len() > LINE_BYTES_MAX {
                    return Err(ProtocolError::InlineTooLong);
                }
                return Ok(Request::Incomplete { missing_bytes: 1 });
            }
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        self.is_inline = true;
        self.finished = true;
        inline::split(line, &mut self.inline, &mut self.spans)
            .map_err(|inline::Unbalanced| ProtocolError::InlineUnbalanced)?;
        Ok(if self.spans.is_empty() {
            Request::Nothing { bytes: end + 1 }
        } else {
            Request::Command { bytes: end + 1 }
        })
    }
}

/// The position of the line end's `\r`, once the byte after it has arrived. A zero byte hides the bytes after it.
fn line_end(line: &[u8]) -> Option<usize> {
    let end = line.iter().position(|byte| ends_search(*byte))?;
    (line[end] == b'\r' && end + 1 < line.len()).then_some(end)
}

const fn ends_search(byte: u8) -> bool {
    matches!(byte, b'\r' | 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { bulk_bytes_max: 512 << 20, authenticated: true };

    type Outcome = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

    /// All commands in `input`, which arrives in pieces that end at `cuts`.
    fn parse(input: &[u8], cuts: &[usize], limits: &Limits) -> Outcome {
        let mut requests = Requests::default();
        let mut commands = Vec::new();
        let mut start = 0;
        for end in cuts.iter().copied().chain([input.len()]) {
            loop {
                match requests.next(&input[start..end], limits) {
                    Ok(Request::Command { bytes }) => {
                        commands.push(requests.arguments(&input[start..end]).map(<[u8]>::to_vec).collect());
                        start += bytes;
                    }
                    Ok(Request::Nothing { bytes }) => start += bytes,
                    Ok(Request::Incomplete { missing_bytes }) => {
                        assert!(missing_bytes > 0);
                        break;
                    }
                    Err(error) => return (commands, Some(error)),
                }
            }
        }
        (commands, None)
    }

    fn error_of(input: &[u8]) -> String {
        parse(input, &[], &LIMITS).1.map_or_else(String::new, |error| error.to_string())
    }

    /// Has LPUSH of one element joined.
    fn merge(requests: &mut Requests, input: &[u8], most: usize) -> Option<(usize, usize)> {
        requests.merge(input, &LIMITS, most, &mut Vec::new(), |name, count| {
            (name == b"LPUSH" && count == 3).then_some(7)
        })
    }

    #[test]
    fn commands_on_one_key_are_merged_alternately() {
        let command = |words: &[&str]| {
            let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
            format!("*{}\r\n{words}", words.matches('$').count())
        };
        let row = [
            &["push", "key", "1"][..],
            &["POP", "key"],
            &["push", "key", "22"],
            &["pop", "key"],
            &["POP", "key"],
            &["set", "key", "name", "value"],
            &["push", "key", ""],
        ];
        let joins = |name: &[u8], count| match (&name.to_ascii_lowercase()[..], count) {
            (b"push", 3) => Some(1),
            (b"pop", 2) => Some(2),
            (b"set", 4) => Some(3),
            _ => None,
        };
        let all: Vec<u8> = row.iter().flat_map(|words| command(words).into_bytes()).collect();
        let ends = [
            &["push", "other", "1"][..],
            &["push", "yek", "1"],
            &["pop", "key", "2"],
            &["get", "key"],
            &["ping"],
        ];
        for end in ends.map(command).into_iter().chain([String::new(), "ping\r\n".to_owned()]) {
            for cut in 0..=end.len() {
                let input = [&all, &end.as_bytes()[..cut]].concat();
                let (mut requests, mut joined) = (Requests::default(), Vec::new());
                requests.next(&input, &LIMITS).unwrap();
                let merged = requests.merge(&input, &LIMITS, 64, &mut joined, joins);
                assert_eq!((merged, &joined[..]), (Some((7, all.len())), &[2, 1, 2, 2, 3, 1][..]));
                let args: Vec<_> = requests.arguments(&input).map(<[u8]>::to_vec).collect();
                assert_eq!(args, [&b"push"[..], b"key", b"1", b"22", b"name", b"value", b""]);
                // The rest is parsed as usual, however much of it has arrived.
                let is_whole = cut > 0 && cut == end.len();
                let next = requests.next(&input[all.len()..], &LIMITS).unwrap();
                assert_eq!(matches!(next, Request::Command { .. }), is_whole, "{end}");
            }
        }
        // No more than four beginnings.
        let many = ["a", "b", "c", "d", "e", "a"].map(|name| command(&[name, "key"])).concat();
        let (mut requests, mut joined) = (Requests::default(), Vec::new());
        requests.next(many.as_bytes(), &LIMITS).unwrap();
        let merged = requests.merge(many.as_bytes(), &LIMITS, 64, &mut joined, |_, _| Some(0));
        assert_eq!(merged.map(|(count, _)| count), Some(4));
    }

    #[test]
    fn commands_with_the_same_beginning_are_merged_as_far_as_they_are_complete() {
        let one = |words: &[&str]| {
            let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
            words
        };
        let push = |value| format!("*3\r\n{}", one(&["LPUSH", "key", value]));
        let alike = [push("a"), push("bb"), push("")].concat();
        let others =
            ["*2\r\n".to_owned() + &one(&["LPOP", "key"]), format!("*3\r\n{}", one(&["LPUSH", "ke", "a"]))];
        let cut = push("long").len() - 3;
        let ends = [String::new(), others[0].clone(), others[1].clone(), push("long")[..cut].to_owned()];
        for end in ends {
            let input = alike.clone() + &end;
            let mut requests = Requests::default();
            assert!(matches!(requests.next(input.as_bytes(), &LIMITS), Ok(Request::Command { .. })));
            assert_eq!(merge(&mut requests, input.as_bytes(), 64), Some((3, alike.len())));
            let args: Vec<_> = requests.arguments(input.as_bytes()).map(<[u8]>::to_vec).collect();
            assert_eq!(args, [&b"LPUSH"[..], b"key", b"a", b"bb", b""]);
            // The rest is parsed as usual.
            let left = &input.as_bytes()[alike.len()..];
            let next = requests.next(left, &LIMITS).unwrap();
            assert_eq!(matches!(next, Request::Command { .. }), !end.is_empty() && end.len() != cut);
        }
        let mut requests = Requests::default();
        assert!(matches!(requests.next(alike.as_bytes(), &LIMITS), Ok(Request::Command { .. })));
        assert_eq!(merge(&mut requests, alike.as_bytes(), 2), Some((2, push("a").len() + push("bb").len())));
        let inline = b"lpush key a\r\nlpush key b\r\n";
        assert_eq!(Requests::default().next(inline, &LIMITS), Ok(Request::Command { bytes: 13 }));
        let mut requests = Requests::default();
        requests.next(inline, &LIMITS).unwrap();
        assert_eq!(merge(&mut requests, inline, 64), None);
    }

    #[test]
    fn commands_of_one_name_are_merged_whatever_their_keys() {
        let set = |key: &str| format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$1\r\nv\r\n", key.len());
        let row = [set("a"), set("bb"), set("")].concat();
        let longer = "*5\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nv\r\n$2\r\nPX\r\n$1\r\n1\r\n".to_owned();
        for end in [set("cut"), longer, set("x").to_lowercase(), "ping\r\n".to_owned()] {
            // A whole SET would be merged too.
            for cut in 0..end.len() {
                let input = row.clone() + &end[..cut];
                let mut requests = Requests::default();
                requests.next(input.as_bytes(), &LIMITS).unwrap();
                let merged = requests.merge_of_any_keys(input.as_bytes(), &LIMITS, 64);
                assert_eq!(merged, Some((3, row.len())), "{}", &end[..cut]);
                let args: Vec<_> = requests.arguments(input.as_bytes()).map(<[u8]>::to_vec).collect();
                assert_eq!(args, [&b"SET"[..], b"a", b"v", b"bb", b"v", b"", b"v"]);
                let next = requests.next(&input.as_bytes()[row.len()..], &LIMITS).unwrap();
                assert!(!matches!(next, Request::Command { .. }));
            }
        }
        let mut requests = Requests::default();
        requests.next(row.as_bytes(), &LIMITS).unwrap();
        let merged = requests.merge_of_any_keys(row.as_bytes(), &LIMITS, 2);
        assert_eq!(merged, Some((2, set("a").len() + set("bb").len())));
    }

    #[test]
    fn malformed_requests_have_the_texts_of_redis() {
        for (input, wanted) in [
            (&b"*x\r\n"[..], "invalid multibulk length"),
            (b"*\r\n", "invalid multibulk length"),
            (b"*01\r\n", "invalid multibulk length"),
            (b"*+1\r\n", "invalid multibulk length"),
            (b"*1 \r\n", "invalid multibulk length"),
            (b"*1\nPING\r\n", "invalid multibulk length"),
            (b"*2147483648\r\n", "invalid multibulk length"),
            (b"*1\r\n:3\r\n", "expected '$', got ':'"),
            (b"*1\r\n$x\r\n", "invalid bulk length"),
            (b"*1\r\n$\r\n", "invalid bulk length"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$04\r\n", "invalid bulk length"),
            (b"*1\r\n$629145600\r\n", "invalid bulk length"),
            (b"\"abc\r\n", "unbalanced quotes in request"),
            (b"*2147483647\r\n", ""),
            (b"*1\r\n$536870912\r\n", ""),
            (b"PING\0abc\r\n", ""),
        ] {
            assert_eq!(error_of(input), wanted, "{:?}", String::from_utf8_lossy(input));
        }
        let long = vec![b'1'; 70_000];
        assert_eq!(error_of(&[b"*", &long[..]].concat()), "too big mbulk count string");
        assert_eq!(error_of(&[b"*1\r\n$", &long[..]].concat()), "too big bulk count string");
        assert_eq!(error_of(&long), "too big inline request");
    }

    #[test]
    fn before_auth_requests_must_be_small() {
        let limits = Limits { authenticated: false, ..LIMITS };
        let error = |input: &[u8]| parse(input, &[], &limits).1;
        assert_eq!(error(b"*11\r\n"), Some(ProtocolError::CountUnauthenticated));
        assert_eq!(error(b"*10\r\n"), None);
        assert_eq!(error(b"*1\r\n$16385\r\n"), Some(ProtocolError::BulkUnauthenticated));
        assert_eq!(error(b"*1\r\n$16384\r\n"), None);
    }

    #[test]
    fn empty_requests_are_passed_over() {
        let (commands, error) = parse(b"\r\n*0\r\n*-5\r\n   \r\n*1\r\n$4\r\nPINGxxPING\n", &[], &LIMITS);
        assert_eq!(error, None);
        assert_eq!(commands, [[b"PING".to_vec()], [b"PING".to_vec()]]);
    }

    #[test]
    fn a_large_argument_in_many_reads_is_scanned_once() {
        // If the parser started again at each read, this would take 2^40 steps.
        let bytes = 8 << 20;
        let mut input = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${bytes}\r\n").into_bytes();
        input.resize(input.len() + bytes, b'v');
        input.extend_from_slice(b"\r\n");
        let cuts: Vec<usize> = (1..input.len()).step_by(16).collect();
        let (commands, _) = parse(&input, &cuts, &LIMITS);
        assert_eq!(commands[0][2].len(), bytes);
    }

    fn command() -> impl Strategy<Value = Vec<u8>> {
        let argument = prop::collection::vec(any::<u8>(), 0..40);
        let array = prop::collection::vec(argument, 0..6).prop_map(|arguments| {
            let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
            for argument in arguments {
                bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
                bytes.extend_from_slice(&argument);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes
        });
        let inline = "[a-z \"'\\\\x]{0,20}\r?\n".prop_map(String::into_bytes);
        let noise = "[*$0-9:\\-\r\n\0a]{1,12}".prop_map(String::into_bytes);
        prop_oneof![6 => array, 2 => inline, 1 => noise]
    }

    proptest! {
        // No file of past failures: a failure worth keeping becomes a named test.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_cut_into_reads_gives_the_same_commands(
            commands in prop::collection::vec(command(), 0..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let input = commands.concat();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
            cuts.sort_unstable();
            let every_byte: Vec<usize> = (0..input.len()).collect();
            let whole = parse(&input, &[], &LIMITS);
            prop_assert_eq!(&parse(&input, &cuts, &LIMITS), &whole);
            prop_assert_eq!(&parse(&input, &every_byte, &LIMITS), &whole);
        }

        #[test]
        fn every_input_is_parsed_or_refused_without_a_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
            parse(&input, &[], &LIMITS);
        }
    }
}
