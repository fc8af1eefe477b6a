//! The keys of requests by text that have arrived but not yet run, as [`crate::redis::resp::ahead`] finds those of Redis's: hints that change
//! no reply.

use duramen_structures::AHEAD_MAX;

// No line that is worth looking ahead is longer.
const LINE_BYTES_MAX: usize = 300;

/// Keys found.
#[derive(Default)]
pub struct Ahead<'a> {
    /// The keys of at most this many requests.
    pub keys: [&'a [u8]; AHEAD_MAX],
    /// How many.
    pub count: usize,
    /// Bytes of whole requests that were looked at.
    pub bytes: usize,
}

/// Looks for the first key of each of the next requests in `input`.
pub fn look(input: &[u8]) -> Ahead<'_> {
    let mut ahead = Ahead::default();
    while ahead.count < AHEAD_MAX {
        let Some((key, bytes)) = request(&input[ahead.bytes..]) else { break };
        ahead.keys[ahead.count] = key;
        ahead.count += 1;
        ahead.bytes += bytes;
    }
    ahead
}

/// The key of a request, and its bytes, if it is one of a key and whole.
fn request(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = input.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n')?;
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    let mut words = line.split(|byte| *byte == b' ');
    // The words between the key and the number of bytes of data, if data follow.
    let data_at = match words.next()? {
        b"get" | b"gets" | b"incr" | b"decr" | b"touch" | b"delete" | b"mg" | b"ma" | b"md" | b"me" => None,
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => Some(2),
        b"ms" => Some(0),
        _ => return None,
    };
    let key = words.next()?;
    let Some(between) = data_at else { return Some((key, end + 1)) };
    let data: usize = std::str::from_utf8(words.nth(between)?).ok()?.parse().ok()?;
    let all = data.checked_add(end + 1 + b"\r\n".len())?;
    (all <= input.len()).then_some((key, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_of_whole_requests_are_found() {
        let input = b"get a b\r\nset bb 0 0 3 noreply\r\nx\r\n\r\nms c 2 T0\r\nyy\r\nincr d 1\nmg e v\r\nset f 0 0 9\r\nab";
        let ahead = look(input);
        assert_eq!(ahead.keys[..ahead.count], [&b"a"[..], b"bb", b"c", b"d", b"e"]);
        assert_eq!(ahead.bytes, input.len() - b"set f 0 0 9\r\nab".len());
    }

    #[test]
    fn a_request_without_key_or_end_stops_the_prefetch() {
        for input in [
            &b"stats\r\n"[..],
            b"get",
            b"get a",
            b"set a 0 0 x\r\n",
            b"set a 0 0 18446744073709551615\r\n",
            b"set a 0 0\r\n",
            b"",
        ] {
            assert_eq!((look(input).count, look(input).bytes), (0, 0), "{}", input.escape_ascii());
        }
        assert_eq!(look(&[b"get ".as_slice(), &[b'k'; 400], b"\r\n"].concat()).count, 0);
        assert_eq!(look(&b"get a\r\n".repeat(AHEAD_MAX + 5)).count, AHEAD_MAX);
    }

    proptest! {
        #[test]
        fn a_look_ahead_over_any_bytes_never_panics(input in proptest::collection::vec(
            prop_oneof![Just(b' '), Just(b'\r'), Just(b'\n'), b'a'..=b'z', b'0'..=b'9', any::<u8>()], 0..200)) {
            let ahead = look(&input);
            prop_assert!(ahead.bytes <= input.len() && ahead.count <= AHEAD_MAX);
        }
    }
}
