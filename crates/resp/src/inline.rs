//! Splits a line into arguments by Redis's quoting rules (`sdssplitargs`): inline commands, and lines of
//! redis.conf.
//!
//! Blanks separate. `"…"` knows `\n \r \t \b \a \xHH` and takes any other escaped byte as it is; `'…'` knows
//! only `\'`. A quote may begin inside an argument, but after its end a blank must follow. A zero byte ends
//! the line.

use crate::span::Span;

/// A quote that does not end, or is followed by something other than a blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unbalanced;

/// Splits `line`: the arguments' bytes are appended to `buffer`, their places to `spans`.
///
/// # Errors
/// [`Unbalanced`]; the arguments appended so far stay.
pub fn split(line: &[u8], buffer: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<(), Unbalanced> {
    let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        if at >= line.len() {
            return Ok(());
        }
        let start = buffer.len();
        at = argument(line, at, buffer)?;
        spans.push(Span { start, end: buffer.len() });
    }
}

/// Reads one argument from `at`; gives where it ended.
fn argument(line: &[u8], mut at: usize, buffer: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    while let Some(&byte) = line.get(at) {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => return Ok(at),
            b'"' => return quoted(line, at + 1, buffer, double),
            b'\'' => return quoted(line, at + 1, buffer, single),
            _ => buffer.push(byte),
        }
        at += 1;
    }
    Ok(at)
}

type Escape = fn(&[u8]) -> Option<(u8, usize)>;

/// Reads to the end of a quote; `escape` reads an escape and returns its length.
fn quoted(line: &[u8], mut at: usize, buffer: &mut Vec<u8>, escape: Escape) -> Result<usize, Unbalanced> {
    let quote = line[at - 1];
    loop {
        let rest = line.get(at..).unwrap_or_default();
        if let Some((byte, taken)) = escape(rest) {
            buffer.push(byte);
            at += taken;
            continue;
        }
        match rest {
            [] => return Err(Unbalanced),
            [byte, after @ ..] if *byte == quote => {
                return match after.first() {
                    Some(next) if !is_space(*next) => Err(Unbalanced),
                    _ => Ok(at + 1),
                };
            }
            [byte, ..] => {
                buffer.push(*byte);
                at += 1;
            }
        }
    }
}

fn double(rest: &[u8]) -> Option<(u8, usize)> {
    match rest {
        [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            Some((hex(*high) << 4 | hex(*low), 4))
        }
        [b'\\', escaped, ..] => Some((
            match escaped {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 8,
                b'a' => 7,
                other => *other,
            },
            2,
        )),
        _ => None,
    }
}

fn single(rest: &[u8]) -> Option<(u8, usize)> {
    rest.starts_with(b"\\'").then_some((b'\'', 2))
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// C's `isspace`.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Result<Vec<Vec<u8>>, Unbalanced> {
        let (mut buffer, mut spans) = (Vec::new(), Vec::new());
        split(line.as_bytes(), &mut buffer, &mut spans)?;
        Ok(spans.iter().map(|span| buffer[span.start..span.end].to_vec()).collect())
    }

    #[test]
    fn lines_split_as_redis_splits_them() {
        for (line, wanted) in [
            ("", vec![]),
            ("   ", vec![]),
            ("set k v", vec!["set", "k", "v"]),
            ("  set\tk   v \r", vec!["set", "k", "v"]),
            (r#"set k "a b""#, vec!["set", "k", "a b"]),
            (r#"set k "\x41\n\q\"""#, vec!["set", "k", "A\nq\""]),
            (r"set k 'it\'s \n'", vec!["set", "k", r"it's \n"]),
            (r#"set k """#, vec!["set", "k", ""]),
            (r#"foo"bar" x"#, vec!["foobar", "x"]),
            ("a\0b", vec!["a"]),
            (r#""\x4" "#, vec!["x4"]),
        ] {
            let wanted: Vec<_> = wanted.into_iter().map(|text| text.as_bytes().to_vec()).collect();
            assert_eq!(arguments(line), Ok(wanted), "{line:?}");
        }
    }

    #[test]
    fn open_quotes_are_refused() {
        for line in ["\"abc", "'abc", "\"a\"b", "'a'b", "\"a\\", "\"", "x '\\'"] {
            assert_eq!(arguments(line), Err(Unbalanced), "{line:?}");
        }
    }
}
