//! The Redis protocol: requests from `duramen-resp`, and replies, which are written here, in RESP2 or RESP3 as the client asked for.
//!
//! Each method writes one value. Types that RESP2 lacks are written as in Redis: maps and sets as arrays, doubles and
//! big numbers as bulk strings, booleans as integers, null as `$-1` or `*-1`.

use crate::net::{Mark, Output};
use duramen_resp::number::{INTEGER_BYTES_MAX, format_integer};
pub use duramen_resp::{Limits, ProtocolError, Request, Requests, ahead, inline};

/// The protocol version that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// The protocol that every client starts with.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

impl Protocol {
    /// 2 or 3.
    pub const fn number(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Appends replies to a connection's output.
pub struct Reply<'a> {
    out: &'a mut Output,
    /// The protocol in which the following values are written.
    pub protocol: Protocol,
}

impl<'a> Reply<'a> {
    /// Replies that are appended to `out`.
    pub const fn new(out: &'a mut Output, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// The same output, for a command inside a command.
    pub const fn reborrow(&mut self) -> Reply<'_> {
        Reply { out: self.out, protocol: self.protocol }
    }

    /// Where the next value goes.
    #[inline]
    pub const fn mark(&self) -> Mark {
        self.out.mark()
    }

    /// Bytes of all that was written, also before this reply.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Takes back everything written since `mark`.
    #[inline]
    pub fn rollback(&mut self, mark: Mark) {
        self.out.rollback(mark);
    }

    /// Whether a further value has room; if not, the reply is cut, and the command may stop.
    pub const fn takes(&mut self) -> bool {
        self.out.takes()
    }

    /// `+OK`
    #[inline]
    pub fn ok(&mut self) {
        self.out.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// A status: one line that is no error.
    pub fn simple(&mut self, text: &str) {
        self.out.bytes.push(b'+');
        self.out.bytes.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// A status of any bytes.
    pub fn status(&mut self, text: &[u8]) {
        self.out.bytes.push(b'+');
        self.one_line(text);
    }

    /// An error; `text` begins with the code.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.out.bytes.push(b'-');
        self.one_line(text.as_ref());
    }

    /// A line end in a reply of one line would end it early (Redis writes spaces too).
    fn one_line(&mut self, text: &[u8]) {
        self.out
            .bytes
            .extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.end();
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.out.bytes.push(b':');
        self.decimal(value);
        self.end();
    }

    /// A length or count as an integer.
    #[inline]
    pub fn count(&mut self, value: usize) {
        self.integer(value as i64);
    }

    /// Bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if !self.out.takes() {
            return;
        }
        // 24: a '$', 19 digits at most, and two line ends.
        self.out.bytes.reserve(bytes.len() + 24);
        // Most are short, and so are stores of a length that the compiler knows.
        let digit = |value: usize| b'0' + (value % 10) as u8;
        match bytes.len() {
            len @ 0..10 => self.out.bytes.extend_from_slice(&[b'$', digit(len), b'\r', b'\n']),
            len @ 10..100 => {
                self.out.bytes.extend_from_slice(&[b'$', digit(len / 10), digit(len), b'\r', b'\n']);
            }
            len => {
                self.out.bytes.push(b'$');
                self.decimal(len as i64);
                self.end();
            }
        }
        self.out.bytes.extend_from_slice(bytes);
        self.end();
    }

    /// An integer written as a bulk string.
    pub fn bulk_integer(&mut self, value: i64) {
        let mut digits = [0; INTEGER_BYTES_MAX];
        let digits = format_integer(value, &mut digits);
        self.bulk(digits);
    }

    /// The absent value where a bulk string could be.
    #[inline]
    pub fn null(&mut self) {
        self.out.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The absent value where an array could be.
    pub fn null_array(&mut self) {
        self.out.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The head of an array of `count` values, which must follow.
    #[inline]
    pub fn array(&mut self, count: usize) {
        self.head(b'*', count);
    }

    /// The head of an array of the `count` values that were written since `place`.
    pub fn array_since(&mut self, place: Mark, count: usize) {
        let since = self.mark();
        self.array(count);
        self.out.put_before(place, since);
    }

    /// The head of a map of `count` pairs, whose values were written since `place`.
    pub fn map_since(&mut self, place: Mark, count: usize) {
        let since = self.mark();
        self.map(count);
        self.out.put_before(place, since);
    }

    /// The head of a map of `count` pairs: twice as many values must follow.
    pub fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.head(b'*', count * 2),
            Protocol::Resp3 => self.head(b'%', count),
        }
    }

    /// The head of a set of `count` values, which must follow.
    pub fn set(&mut self, count: usize) {
        self.head(if self.protocol == Protocol::Resp2 { b'*' } else { b'~' }, count);
    }

    /// The head of an out-of-band message of `count` values, which must follow.
    pub fn push(&mut self, count: usize) {
        self.head(if self.protocol == Protocol::Resp2 { b'*' } else { b'>' }, count);
    }

    /// The head of an attribute of `count` pairs, which must follow, and then the value that it is about; RESP3 only.
    pub fn attribute(&mut self, count: usize) {
        self.head(b'|', count);
    }

    /// A number of any length, in decimal.
    pub fn big_number(&mut self, digits: &str) {
        self.number_as(b'(', digits);
    }

    /// A truth value.
    pub fn boolean(&mut self, value: bool) {
        self.out.bytes.extend_from_slice(match (self.protocol, value) {
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
        });
    }

    /// A floating-point number that has been written out as `text` (how is the type's matter).
    pub fn double(&mut self, text: &str) {
        self.number_as(b',', text);
    }

    /// A number that RESP2 has no type for: there it is a bulk string.
    fn number_as(&mut self, mark: u8, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.out.bytes.push(mark);
                self.out.bytes.extend_from_slice(text.as_bytes());
                self.end();
            }
        }
    }

    /// Text for users: `txt` in RESP3, a bulk string in RESP2.
    pub fn verbatim(&mut self, text: &str) {
        self.verbatim_as(*b"txt", text.as_bytes());
    }

    /// Text for users in a format of three letters.
    pub fn verbatim_as(&mut self, format: [u8; 3], text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 if !self.out.takes() => {}
            Protocol::Resp3 => {
                self.out.bytes.push(b'=');
                self.decimal(text.len() as i64 + 4);
                self.end();
                self.out.bytes.extend_from_slice(&format);
                self.out.bytes.push(b':');
                self.out.bytes.extend_from_slice(text);
                self.end();
            }
        }
    }

    /// The lines of a HELP subcommand, as statuses.
    pub fn lines(&mut self, lines: &[&str]) {
        self.array(lines.len());
        for line in lines {
            self.simple(line);
        }
    }

    fn head(&mut self, sign: u8, count: usize) {
        self.out.bytes.push(sign);
        self.decimal(count as i64);
        self.end();
    }

    #[inline]
    fn decimal(&mut self, value: i64) {
        if (0..10).contains(&value) {
            self.out.bytes.push(b'0' + value as u8);
        } else {
            let mut digits = [0; INTEGER_BYTES_MAX];
            self.out.bytes.extend_from_slice(format_integer(value, &mut digits));
        }
    }

    #[inline]
    fn end(&mut self) {
        self.out.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply<'_>)) -> String {
        let mut out = Output::default();
        write(&mut Reply::new(&mut out, protocol));
        String::from_utf8(out.bytes).unwrap()
    }

    #[test]
    fn each_value_has_its_bytes_in_both_protocols() {
        type Case = (&'static str, &'static str, fn(&mut Reply<'_>));
        let both: [Case; 11] = [
            ("+OK\r\n", "+OK\r\n", |r| r.ok()),
            ("-ERR a b \r\n", "-ERR a b \r\n", |r| r.error("ERR a\nb\r")),
            (":-12\r\n", ":-12\r\n", |r| r.integer(-12)),
            ("$-1\r\n", "_\r\n", |r| r.null()),
            ("*-1\r\n", "_\r\n", |r| r.null_array()),
            ("$3\r\nabc\r\n", "$3\r\nabc\r\n", |r| r.bulk(b"abc")),
            ("*4\r\n", "%2\r\n", |r| r.map(2)),
            ("*2\r\n", "~2\r\n", |r| r.set(2)),
            ("*12\r\n", ">12\r\n", |r| r.push(12)),
            ("$3\r\n1.5\r\n", ",1.5\r\n", |r| r.double("1.5")),
            ("$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n", |r| r.verbatim("hi")),
        ];
        for (resp2, resp3, write) in both {
            assert_eq!(written(Protocol::Resp2, write), resp2);
            assert_eq!(written(Protocol::Resp3, write), resp3);
        }
    }

    #[test]
    fn integers_of_every_size_are_written() {
        for value in [0, 9, 10, -1, i64::MAX, i64::MIN, 1_000_000] {
            assert_eq!(written(Protocol::Resp2, |r| r.integer(value)), format!(":{value}\r\n"));
        }
    }

    #[test]
    fn bytes_that_were_taken_back_are_gone() {
        let text = written(Protocol::Resp2, |reply| {
            reply.ok();
            let mark = reply.mark();
            reply.bulk(b"never");
            reply.rollback(mark);
            reply.null();
        });
        assert_eq!(text, "+OK\r\n$-1\r\n");
    }

    #[test]
    fn output_beyond_the_limit_is_dropped_and_reported() {
        let mut out = Output::default();
        out.limit(10);
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        reply.array(3);
        reply.bulk(b"goes beyond it");
        let before = reply.mark();
        reply.bulk(b"dropped");
        reply.rollback(before);
        assert!(!out.is_cut());
        let mut reply = Reply::new(&mut out, Protocol::Resp3);
        reply.verbatim("dropped");
        let after = reply.mark();
        reply.error("ERR");
        reply.rollback(after);
        assert!(out.is_cut());
        assert_eq!(out.bytes, b"*3\r\n$14\r\ngoes beyond it\r\n");
        out.truncate(0);
        assert!(!out.is_cut());
    }
}
