//! Replies as they arrive at a client.
//!
//! Invariants:
//! 1. [`Reply::encode`] returns exactly the bytes that were read: lengths and numbers are kept as their text on the
//!    wire.
//! 2. Memory is taken for bytes that have arrived, never for bytes that were announced.
//! 3. The replies found do not depend on how the bytes were cut into reads, and the work is linear in them.

/// One reply of RESP2 or RESP3.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// `+OK`, `-ERR …`, `:1`, `_`, `#t`, `,1.5`, `(1`, and the nulls `$-1` and `*-1`.
    Line {
        /// The first byte.
        kind: u8,
        /// The rest of the line.
        text: Vec<u8>,
    },
    /// `$3`, `=15`, `!21` with that many bytes.
    Bulk {
        /// The first byte.
        kind: u8,
        /// The number of bytes, as text.
        header: Vec<u8>,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// `*2`, `~2`, `>2`, and `%1` with its keys and values in turn.
    Aggregate {
        /// The first byte.
        kind: u8,
        /// The number of members, or of pairs, as text.
        header: Vec<u8>,
        /// The members.
        items: Vec<Reply>,
    },
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

    /// Whether it is one of the nulls.
    pub fn is_null(&self) -> bool {
        matches!(self, Reply::Line { kind: b'$' | b'*' | b'_', .. })
    }

    /// The error that it is, or that one of its members is: an EXEC has both.
    pub fn error(&self) -> Option<&[u8]> {
        match self {
            Reply::Line { kind: b'-', text } | Reply::Bulk { kind: b'!', bytes: text, .. } => Some(text),
            Reply::Aggregate { items, .. } => items.iter().find_map(Reply::error),
            _ => None,
        }
    }

    /// The bytes of all texts in it.
    pub fn text_bytes(&self) -> usize {
        match self {
            Reply::Aggregate { items, .. } => items.iter().map(Reply::text_bytes).sum(),
            reply => reply.text().map_or(0, <[u8]>::len),
        }
    }

    /// The text of a line, or the bytes of a bulk string; none for the nulls.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            reply if reply.is_null() => None,
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

/// Bytes that begin no reply, whatever follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

// 8: Redis nests COMMAND's replies five deep. Deeper would be an attack on this parser's stack.
const DEPTH_MAX: usize = 8;
/// The longest line and the longest bulk string: Redis's limit.
const BYTES_MAX: usize = 512 << 20;

/// What follows the line at the head of a value.
enum Rest {
    Nothing,
    Bytes(usize),
    Values(usize),
}

impl Rest {
    fn of(kind: u8, header: &[u8]) -> Result<Rest, Malformed> {
        if !b"$*=!~>%|".contains(&kind) || header == b"-1" {
            return Ok(Rest::Nothing);
        }
        let count: Option<usize> = std::str::from_utf8(header).ok().and_then(|text| text.parse().ok());
        match (kind, count.ok_or(Malformed)?) {
            (b'$' | b'=' | b'!', bytes) if bytes <= BYTES_MAX => Ok(Rest::Bytes(bytes)),
            (b'$' | b'=' | b'!', _) => Err(Malformed),
            (b'%' | b'|', pairs) => Ok(Rest::Values(pairs.saturating_mul(2))),
            (_, values) => Ok(Rest::Values(values)),
        }
    }
}

/// Where the first reply of a buffer ends. No byte is looked at twice, however many reads it takes to arrive.
#[derive(Debug, Default)]
struct End {
    /// All before is known.
    at: usize,
    /// From `at` up to here there is no line end.
    searched: usize,
    /// Bytes of the bulk string at `at`, after its head.
    bulk: Option<usize>,
    /// Values that each begun aggregate still misses.
    missing: Vec<usize>,
}

impl End {
    fn find(&mut self, buffer: &[u8]) -> Result<Option<usize>, Malformed> {
        loop {
            if let Some(bytes) = self.bulk {
                let Some(line_end) = buffer.get(self.at + bytes..self.at + bytes + 2) else {
                    return Ok(None);
                };
                if line_end != b"\r\n" {
                    return Err(Malformed);
                }
                self.at += bytes + 2;
                self.bulk = None;
            } else {
                let Some(&kind) = buffer.get(self.at) else { return Ok(None) };
                if !b"+-:$*_#,(=!~>%|".contains(&kind) {
                    return Err(Malformed);
                }
                let from = self.searched.max(self.at + 1).min(buffer.len());
                let Some(length) = buffer[from..].windows(2).position(|pair| pair == b"\r\n") else {
                    self.searched = buffer.len() - 1;
                    return if buffer.len() - self.at > BYTES_MAX { Err(Malformed) } else { Ok(None) };
                };
                let header = &buffer[self.at + 1..from + length];
                self.at = from + length + 2;
                match Rest::of(kind, header)? {
                    Rest::Bytes(bytes) => {
                        self.bulk = Some(bytes);
                        continue;
                    }
                    Rest::Values(_) if self.missing.len() == DEPTH_MAX => return Err(Malformed),
                    Rest::Values(count) if count > 0 => {
                        self.missing.push(count);
                        continue;
                    }
                    Rest::Values(_) | Rest::Nothing => {}
                }
            }
            // A value ended, and with it all aggregates whose last it was.
            while let Some(missing) = self.missing.last_mut() {
                *missing -= 1;
                if *missing > 0 {
                    break;
                }
                self.missing.pop();
            }
            if self.missing.is_empty() {
                return Ok(Some(self.at));
            }
        }
    }
}

/// Takes the reply at the beginning of `buffer`, which is complete.
fn take(buffer: &mut &[u8]) -> Result<Reply, Malformed> {
    let kind = *buffer.first().ok_or(Malformed)?;
    let end = buffer.windows(2).position(|pair| pair == b"\r\n").ok_or(Malformed)?;
    let header = buffer[1..end].to_vec();
    *buffer = &buffer[end + 2..];
    Ok(match Rest::of(kind, &header)? {
        Rest::Nothing => Reply::Line { kind, text: header },
        Rest::Bytes(count) => {
            let (bytes, rest) = buffer.split_at_checked(count).ok_or(Malformed)?;
            *buffer = rest.get(2..).ok_or(Malformed)?;
            Reply::Bulk { kind, header, bytes: bytes.to_vec() }
        }
        Rest::Values(count) => {
            let items = (0..count).map(|_| take(buffer)).collect::<Result<_, _>>()?;
            Reply::Aggregate { kind, header, items }
        }
    })
}

/// The bytes that arrived at a client, and the replies in them.
#[derive(Debug, Default)]
pub struct Replies {
    received: Vec<u8>,
    /// Bytes of `received` that were already returned.
    used: usize,
    end: End,
}

impl Replies {
    /// Adds bytes that arrived.
    pub fn add(&mut self, bytes: &[u8]) {
        // Half of a large buffer is worth moving the rest.
        if self.used > 1 << 20 && self.used > self.received.len() / 2 {
            self.received.drain(..self.used);
            self.used = 0;
        }
        self.received.extend_from_slice(bytes);
    }

    /// The next reply, once all of it has arrived.
    ///
    /// # Errors
    /// When there is none, whatever follows.
    pub fn reply(&mut self) -> Result<Option<Reply>, Malformed> {
        let unread = &self.received[self.used..];
        let Some(end) = self.end.find(unread)? else { return Ok(None) };
        let reply = take(&mut &unread[..end])?;
        self.skip(end);
        Ok(Some(reply))
    }

    /// The bytes that were not returned.
    pub fn unread(&self) -> &[u8] {
        &self.received[self.used..]
    }

    /// Drops the first `bytes` bytes that were not returned.
    pub fn skip(&mut self, bytes: usize) {
        self.used += bytes;
        self.end = End::default();
        if self.used == self.received.len() {
            self.received.clear();
            self.used = 0;
        }
    }

    /// Takes the bytes that were not returned.
    pub fn take(&mut self) -> Vec<u8> {
        let bytes = self.received.split_off(self.used);
        *self = Replies::default();
        bytes
    }
}

/// The reply at the beginning of `buffer`, and its length in bytes; nothing if it is not complete.
///
/// # Errors
/// When there is none, whatever follows.
pub fn parse(buffer: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    let Some(end) = End::default().find(buffer)? else { return Ok(None) };
    Ok(Some((take(&mut &buffer[..end])?, end)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    const KINDS: [&[u8]; 12] = [
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

    #[test]
    fn every_kind_of_reply_is_given_back_byte_for_byte() {
        for bytes in KINDS {
            let (reply, used) = parse(bytes).unwrap().unwrap();
            assert_eq!((reply.encode().as_slice(), used), (bytes, bytes.len()));
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end]), Ok(None), "{}", bytes[..end].escape_ascii());
            }
        }
    }

    #[test]
    fn bytes_that_are_no_reply_are_reported() {
        for bytes in [&b"OK\r\n"[..], b"$x\r\n", b"*1\r\nx\r\n", b"$1\r\nabc", &b"*1\r\n".repeat(20)] {
            assert_eq!(parse(bytes), Err(Malformed), "{}", bytes.escape_ascii());
        }
        assert_eq!(parse(b"$18446744073709551615\r\nx"), Err(Malformed));
        assert_eq!(parse(b"*18446744073709551615\r\n"), Ok(None));
    }

    #[test]
    fn nulls_and_errors_are_no_text() {
        let reply = |bytes: &[u8]| parse(bytes).unwrap().unwrap().0;
        for null in [&b"$-1\r\n"[..], b"*-1\r\n", b"_\r\n"] {
            assert_eq!((reply(null).text(), reply(null).is_null()), (None, true));
        }
        let exec = reply(b"*2\r\n+OK\r\n*1\r\n-ERR no\r\n");
        assert_eq!((exec.error(), exec.text_bytes()), (Some(&b"ERR no"[..]), 8));
        assert_eq!(reply(b"!2\r\nno\r\n").error(), Some(&b"no"[..]));
        assert_eq!(reply(b"*1\r\n+OK\r\n").error(), None);
    }

    proptest! {
        #[test]
        fn replies_do_not_depend_on_how_they_are_cut(
            kinds in proptest::collection::vec(0..KINDS.len(), 1..20),
            cuts in proptest::collection::vec(1..9usize, 1..40),
        ) {
            let bytes: Vec<u8> = kinds.iter().flat_map(|kind| KINDS[*kind].iter().copied()).collect();
            let (mut replies, mut found, mut at) = (Replies::default(), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(bytes.len());
                replies.add(&bytes[at..end]);
                at = end;
                while let Some(reply) = replies.reply().unwrap() {
                    found.push(reply.encode());
                }
                if at == bytes.len() {
                    break;
                }
            }
            prop_assert_eq!((found.len(), found.concat()), (kinds.len(), bytes));
            prop_assert_eq!(replies.unread(), b"");
        }

        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(
            prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), b'0'..=b'9', any::<u8>()], 0..200)) {
            if let Ok(Some((reply, used))) = parse(&bytes) {
                prop_assert_eq!(reply.encode(), &bytes[..used]);
            }
        }
    }
}
