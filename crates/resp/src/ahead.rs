//! The keys of commands that have arrived but not yet run: the engine can fetch their lines from memory while earlier
//! commands execute.
//!
//! The result is only a hint. It may be wrong (an argument that is no key) or empty (an inline, malformed or incomplete
//! command), and changes no reply.

use crate::span::Span;

/// At most `MAX` keys.
pub struct Ahead<const MAX: usize> {
    /// Where they lie.
    pub keys: [Span; MAX],
    /// How many.
    pub count: usize,
    /// Bytes of whole commands that were looked at.
    pub bytes: usize,
}

/// Looks for the first key of each of the next commands in `input`.
#[inline]
pub fn look<const MAX: usize>(input: &[u8]) -> Ahead<MAX> {
    let mut ahead = Ahead { keys: [Span { start: 0, end: 0 }; MAX], count: 0, bytes: 0 };
    while ahead.count < MAX {
        let Some((key, end)) = command(input, ahead.bytes) else { break };
        ahead.keys[ahead.count] = key;
        ahead.count += 1;
        ahead.bytes = end;
    }
    ahead
}

/// The first argument of the command at `at`, and where the command ends.
fn command(input: &[u8], at: usize) -> Option<(Span, usize)> {
    let (arguments, mut at) = head(input, at, b'*')?;
    let mut key = None;
    for index in 0..arguments {
        let (bytes, start) = head(input, at, b'$')?;
        let end = start.checked_add(bytes)?;
        if index == 1 {
            key = Some(Span { start, end });
        }
        at = end + 2;
        if at > input.len() {
            return None;
        }
    }
    Some((key?, at))
}

/// A number between a sign and a line end, of at most seven digits: larger ones are not worth looking ahead.
fn head(input: &[u8], at: usize, sign: u8) -> Option<(usize, usize)> {
    let line = input.get(at..)?;
    if *line.first()? != sign {
        return None;
    }
    let mut value = 0;
    for (index, byte) in line.iter().enumerate().skip(1).take(8) {
        match byte {
            b'0'..=b'9' => value = value * 10 + usize::from(byte - b'0'),
            b'\r' => return Some((value, at + index + 2)),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 16;

    fn keys(input: &[u8]) -> (Vec<&[u8]>, usize) {
        let ahead = look::<MAX>(input);
        (ahead.keys[..ahead.count].iter().map(|key| &input[key.start..key.end]).collect(), ahead.bytes)
    }

    #[test]
    fn first_keys_of_whole_commands_are_found() {
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nSET\r\n$2\r\nbb\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$9\r\nabc";
        assert_eq!(keys(input), (vec![&b"a"[..], b"bb"], 47));
    }

    #[test]
    fn a_command_without_key_or_inline_stops_the_prefetch() {
        for input in [
            &b"PING\r\n"[..],
            b"*1\r\n$4\r\nPING\r\n",
            b"*2\r\n+OK\r\n",
            b"*2\r\n$99999999999999999999\r\n",
            b"",
        ] {
            assert_eq!(keys(input), (vec![], 0), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn no_more_than_a_window_is_looked_at() {
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n".repeat(MAX + 5);
        assert_eq!(keys(&input).0.len(), MAX);
    }

    proptest! {
        #[test]
        fn a_look_ahead_over_any_bytes_never_panics(input in proptest::collection::vec(
            prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), b'0'..=b'9', any::<u8>()], 0..200)) {
            let (keys, bytes) = keys(&input);
            prop_assert!(bytes <= input.len() && keys.len() <= MAX);
        }
    }
}
