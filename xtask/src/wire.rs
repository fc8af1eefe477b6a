//! The Redis protocol on a client's side: encodes commands and parses replies, without losing a byte.
//!
//! Invariants:
//! 1. [`Reply::encode`] returns exactly the bytes that [`parse`] read: lengths and numbers are kept as their text on
//!    the wire.
//! 2. Whatever a server sends, reading ends: with a reply, or with an [`Ended`] that carries the bytes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// One reply of RESP2 or RESP3.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// `+OK`, `-ERR …`, `:1`, `_`, `#t`, `,1.5`, `(1`, and the nulls `$-1` and `*-1`.
    Line { kind: u8, text: Vec<u8> },
    /// `$3`, `=15`, `!21` with that many bytes.
    Bulk { kind: u8, header: Vec<u8>, bytes: Vec<u8> },
    /// `*2`, `~2`, `>2`, and `%1` with its keys and values in turn.
    Aggregate { kind: u8, header: Vec<u8>, items: Vec<Reply> },
}

impl Reply {
    /// The bytes as they were on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_to(&mut bytes);
        bytes
    }

    fn encode_to(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Line { kind, text } => put_line(out, *kind, text),
            Reply::Bulk { kind, header, bytes } => {
                put_line(out, *kind, header);
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Reply::Aggregate { kind, header, items } => {
                put_line(out, *kind, header);
                items.iter().for_each(|item| item.encode_to(out));
            }
        }
    }

    /// The first byte on the wire.
    pub fn kind(&self) -> u8 {
        match self {
            Reply::Line { kind, .. } | Reply::Bulk { kind, .. } | Reply::Aggregate { kind, .. } => *kind,
        }
    }

    /// The text of a line, or the bytes of a bulk string.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Reply::Line { text, .. } => Some(text),
            Reply::Bulk { bytes, .. } => Some(bytes),
            Reply::Aggregate { .. } => None,
        }
    }

    /// The members of an aggregate.
    pub fn items(&self) -> Option<&[Reply]> {
        match self {
            Reply::Aggregate { items, .. } => Some(items),
            _ => None,
        }
    }

    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Line { kind: b':', text } => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The bytes of a bulk string; `Some(None)` for the nulls.
    pub fn bulk(&self) -> Option<Option<&[u8]>> {
        match self {
            Reply::Bulk { kind: b'$', bytes, .. } => Some(Some(bytes)),
            Reply::Line { kind: b'$' | b'_', .. } => Some(None),
            _ => None,
        }
    }
}

fn put_line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// The beginning of a buffer, parsed.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A reply and its length in bytes.
    Reply(Reply, usize),
    /// The beginning of a reply.
    Partial,
    /// No reply, whatever bytes follow.
    Malformed,
}

// 8: Redis nests COMMAND's replies five deep. Deeper would be an attack on this parser's stack.
const DEPTH_MAX: usize = 8;

/// Reads the reply at the beginning of `buffer`.
pub fn parse(buffer: &[u8]) -> Parsed {
    parse_nested(buffer, 0)
}

fn parse_nested(buffer: &[u8], depth: usize) -> Parsed {
    let Some(&kind) = buffer.first() else { return Parsed::Partial };
    if depth > DEPTH_MAX || !b"+-:$*_#,(=!~>%|".contains(&kind) {
        return Parsed::Malformed;
    }
    let Some(end) = buffer.windows(2).position(|pair| pair == b"\r\n") else { return Parsed::Partial };
    let header = buffer[1..end].to_vec();
    let mut used = end + 2;
    let line = |header| Reply::Line { kind, text: header };
    if !b"$*=!~>%|".contains(&kind) || header == b"-1" {
        return Parsed::Reply(line(header), used);
    }
    let Some(count) = std::str::from_utf8(&header).ok().and_then(|text| text.parse::<usize>().ok()) else {
        return Parsed::Malformed;
    };
    if b"$=!".contains(&kind) {
        let Some(end) = used.checked_add(count).filter(|end| buffer.len() >= end.saturating_add(2)) else {
            return Parsed::Partial;
        };
        if &buffer[end..end + 2] != b"\r\n" {
            return Parsed::Malformed;
        }
        let bytes = buffer[used..end].to_vec();
        return Parsed::Reply(Reply::Bulk { kind, header, bytes }, end + 2);
    }
    let count = if b"%|".contains(&kind) { count.saturating_mul(2) } else { count };
    let mut items = Vec::new();
    for _ in 0..count {
        match parse_nested(&buffer[used..], depth + 1) {
            Parsed::Reply(item, bytes) => {
                items.push(item);
                used += bytes;
            }
            unfinished => return unfinished,
        }
    }
    Parsed::Reply(Reply::Aggregate { kind, header, items }, used)
}

/// A command as clients send it: an array of bulk strings.
pub fn encode_command<A: AsRef<[u8]>>(out: &mut Vec<u8>, arguments: &[A]) {
    put_line(out, b'*', arguments.len().to_string().as_bytes());
    for argument in arguments {
        let argument = argument.as_ref();
        put_line(out, b'$', argument.len().to_string().as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// The reason why no reply came, with the bytes received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The server closed the connection.
    Closed(Vec<u8>),
    /// No more bytes came in time.
    Silent(Vec<u8>),
    /// The bytes received are not a reply.
    Malformed(Vec<u8>),
}

impl Ended {
    /// The bytes received.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Ended::Closed(bytes) | Ended::Silent(bytes) | Ended::Malformed(bytes) => bytes,
        }
    }
}

/// One client's connection.
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// Bytes of `received` that were already returned as replies.
    used: usize,
}

impl Connection {
    /// Connects to a server on this machine.
    pub fn open(port: u16) -> io::Result<Connection> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        Ok(Connection { stream, received: Vec::new(), used: 0 })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends one command.
    pub fn send_command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, arguments);
        self.send(&bytes)
    }

    /// The next reply.
    pub fn read(&mut self, patience: Duration) -> Result<Reply, Ended> {
        let deadline = Instant::now() + patience;
        loop {
            match parse(&self.received[self.used..]) {
                Parsed::Reply(reply, bytes) => {
                    self.give(bytes);
                    return Ok(reply);
                }
                Parsed::Malformed => return Err(Ended::Malformed(self.take())),
                Parsed::Partial => {}
            }
            self.receive_more(deadline)?;
        }
    }

    /// The next line in another protocol, without its line ending.
    pub fn line(&mut self, patience: Duration) -> Result<String, Ended> {
        let deadline = Instant::now() + patience;
        loop {
            let received = &self.received[self.used..];
            if let Some(end) = received.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&received[..end]).into_owned();
                self.give(end + 2);
                return Ok(line);
            }
            self.receive_more(deadline)?;
        }
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize, patience: Duration) -> Result<Vec<u8>, Ended> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(bytes) = self.received[self.used..].get(..count) {
                let bytes = bytes.to_vec();
                self.give(count);
                return Ok(bytes);
            }
            self.receive_more(deadline)?;
        }
    }

    /// Sends a command and reads its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A], patience: Duration) -> Result<Reply, Ended> {
        match self.send_command(arguments) {
            Ok(()) => self.read(patience),
            Err(_) => Err(Ended::Closed(self.take())),
        }
    }

    /// Reads until the connection ends, until no byte comes for `quiet`, or until `enough` returns true; returns all
    /// bytes.
    pub fn read_all(&mut self, quiet: Duration, enough: impl Fn(&[u8]) -> bool) -> Ended {
        loop {
            match self.receive(Instant::now() + quiet) {
                Received::Bytes if enough(&self.received[self.used..]) => return Ended::Silent(self.take()),
                Received::Bytes => {}
                Received::End => return Ended::Closed(self.take()),
                Received::Nothing => return Ended::Silent(self.take()),
            }
        }
    }

    /// Marks `bytes` bytes as returned.
    fn give(&mut self, bytes: usize) {
        self.used += bytes;
        if self.used == self.received.len() {
            self.received.clear();
            self.used = 0;
        }
    }

    fn receive_more(&mut self, deadline: Instant) -> Result<(), Ended> {
        match self.receive(deadline) {
            Received::Bytes => Ok(()),
            Received::End => Err(Ended::Closed(self.take())),
            Received::Nothing => Err(Ended::Silent(self.take())),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        let bytes = self.received.split_off(self.used);
        self.received.clear();
        self.used = 0;
        bytes
    }

    fn receive(&mut self, deadline: Instant) -> Received {
        let mut buffer = [0; 64 << 10];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
                return Received::Nothing;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Received::End,
                Ok(count) => {
                    self.received.extend_from_slice(&buffer[..count]);
                    return Received::Bytes;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Received::Nothing,
                    // A reset: the server closed and left input unread.
                    _ => return Received::End,
                },
            }
        }
    }
}

enum Received {
    Bytes,
    End,
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_reply_is_given_back_byte_for_byte() {
        let replies: [&[u8]; 12] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":-5\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"_\r\n",
            b"#t\r\n",
            b",1.5\r\n",
            b"$3\r\na\r\n\r\n",
            b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n",
            b"%1\r\n+a\r\n~1\r\n(12345\r\n",
            b"=7\r\ntxt:abc\r\n",
        ];
        for bytes in replies {
            let Parsed::Reply(reply, used) = parse(bytes) else { panic!("{}", bytes.escape_ascii()) };
            assert_eq!((reply.encode().as_slice(), used), (bytes, bytes.len()));
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end]), Parsed::Partial, "{}", bytes[..end].escape_ascii());
            }
        }
    }

    #[test]
    fn bytes_that_are_no_reply_are_reported() {
        for bytes in [&b"OK\r\n"[..], b"$x\r\n", b"*1\r\nx\r\n", b"$1\r\nabc", &b"*1\r\n".repeat(20)] {
            assert_eq!(parse(bytes), Parsed::Malformed, "{}", bytes.escape_ascii());
        }
        assert_eq!(parse(b"$18446744073709551615\r\nx"), Parsed::Partial);
    }

    #[test]
    fn command_is_an_array_of_bulk_strings() {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, &["SET", "k", ""]);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
    }
}
