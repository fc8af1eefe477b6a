//! Functions of strings.

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{Engine, alphabet};

use super::Nulls::{Called, Strict, StrictAndMore};
use super::Param::{Any, Integer, Text};
use super::{Call, Function, Returns, function};
use crate::error::{Error, Result};
use crate::types::{DataType, Type, Value};

const STRING: Returns = Returns::Type(&DataType::STRING);
const INT: Returns = Returns::Type(&DataType::Int);

/// Bytes of the longest text that one call may make, the same as for the longest record: data must not be able to fill
/// the memory. Plans do not treat this error as one that a function may fail with, as they do not for exhausted memory.
pub(crate) const MADE_BYTES_MAX: usize = 1 << 26;

pub(super) const FUNCTIONS: &[Function] = &[
    function("UPPER", &[Text], Returns::Argument(0), Strict, |c| Ok(Value::string(c.text(0).to_uppercase()))),
    function("LOWER", &[Text], Returns::Argument(0), Strict, |c| Ok(Value::string(c.text(0).to_lowercase()))),
    function("CHAR_LENGTH", &[Text], INT, Strict, |c| Ok(Value::Int(characters(c.text(0)) as i64))),
    function("OCTET_LENGTH", &[Text], INT, Strict, |c| Ok(Value::Int(c.text(0).len() as i64))),
    function("BTRIM", &[Text, Text], Returns::Rule(varying), Strict, |c| {
        Ok(Value::string(trim(c.text(0), trim_set(c), true, true)))
    })
    .optional(1),
    function("LTRIM", &[Text, Text], Returns::Rule(varying), Strict, |c| {
        Ok(Value::string(trim(c.text(0), trim_set(c), true, false)))
    })
    .optional(1),
    function("RTRIM", &[Text, Text], Returns::Rule(varying), Strict, |c| {
        Ok(Value::string(trim(c.text(0), trim_set(c), false, true)))
    })
    .optional(1),
    function("SUBSTRING", &[Text, Integer, Integer], Returns::Rule(varying), StrictAndMore, |c| {
        let length = (c.args.len() > 2).then(|| c.int(2));
        Ok(substring(c.text(0), c.int(1), length).map_or(Value::Null, Value::string))
    })
    .optional(1),
    function("LEFT", &[Text, Integer], STRING, Strict, |c| Ok(Value::string(left(c.text(0), c.int(1))))),
    function("RIGHT", &[Text, Integer], STRING, Strict, |c| Ok(Value::string(right(c.text(0), c.int(1))))),
    function("POSITION", &[Text, Text], INT, Strict, |c| Ok(Value::Int(position(c.text(0), c.text(1), 1)))),
    function("INSTR", &[Text, Text], INT, Strict, |c| Ok(Value::Int(position(c.text(1), c.text(0), 1)))),
    function("LOCATE", &[Text, Text, Integer], INT, Strict, |c| {
        Ok(Value::Int(position(c.text(0), c.text(1), c.int_or(2, 1))))
    })
    .optional(1),
    function("REPLACE", &[Text, Text, Text], STRING, Strict, |c| {
        let mut out = String::new();
        Ok(match replace(c.text(0), c.text(1), c.text(2), &mut out)? {
            true => Value::string(out),
            false => c.args[0].clone(),
        })
    }),
    function("REPEAT", &[Text, Integer], STRING, Strict, |c| {
        let times = count(c.int(1));
        bounded(c.text(0).len().saturating_mul(times), "REPEAT")?;
        Ok(Value::string(c.text(0).repeat(times)))
    })
    .fails(),
    function("REVERSE", &[Text], STRING, Strict, |c| {
        Ok(Value::string(c.text(0).chars().rev().collect::<String>()))
    }),
    function("LPAD", &[Text, Integer, Text], STRING, StrictAndMore, |c| pad(c, true)).fails(),
    function("RPAD", &[Text, Integer, Text], STRING, StrictAndMore, |c| pad(c, false)).fails(),
    function("INITCAP", &[Text], Returns::Argument(0), Strict, |c| {
        // Only ASCII letters and digits.
        let mut begin = true;
        let mut out = c.text(0).to_owned();
        out.make_ascii_lowercase();
        let mut cased = String::with_capacity(out.len());
        for char in out.chars() {
            cased.push(if begin { char.to_ascii_uppercase() } else { char });
            begin = !char.is_ascii_alphanumeric();
        }
        Ok(Value::string(cased))
    }),
    function("CONCAT", &[Any], STRING, Strict, |c| {
        let texts: Vec<String> = c.args.iter().zip(c.types).map(|(value, ty)| value.text(&ty.data)).collect();
        bounded(texts.iter().map(String::len).sum(), "CONCAT")?;
        Ok(Value::string(texts.concat()))
    })
    .variadic(),
    function("CONCAT_WS", &[Text, Any], STRING, Called, |c| {
        if c.args[0].is_null() {
            return Ok(Value::Null);
        }
        let there = c.args.iter().zip(c.types).skip(1).filter(|(value, _)| !value.is_null());
        let texts: Vec<String> = there.map(|(value, ty)| value.text(&ty.data)).collect();
        let between = c.text(0).len().saturating_mul(texts.len());
        bounded(texts.iter().map(String::len).fold(between, usize::saturating_add), "CONCAT_WS")?;
        Ok(Value::string(texts.join(c.text(0))))
    })
    .variadic(),
    function("SPLIT_INDEX", &[Text, Text, Integer], STRING, StrictAndMore, |c| {
        Ok(split_index(c.text(0), c.text(1), c.int(2)).map_or(Value::Null, Value::string))
    }),
    function("ASCII", &[Text], INT, Strict, |c| {
        // A byte is signed, as in Java.
        Ok(Value::Int(c.text(0).bytes().next().map_or(0, |byte| i64::from(byte as i8))))
    }),
    function("CHR", &[Integer], STRING, Strict, |c| {
        // Codes above 255 are reduced to their last byte.
        let code = c.int(0);
        Ok(Value::string(if code < 0 { String::new() } else { char::from(code as u8).to_string() }))
    }),
    function("OVERLAY", &[Text, Text, Integer, Integer], STRING, Strict, |c| {
        let text: Vec<char> = c.text(0).chars().collect();
        let begin = c.int(2);
        if begin <= 0 || begin as usize > text.len() {
            return Ok(c.args[0].clone());
        }
        let begin = begin as usize - 1;
        let length = count(c.int_or(3, c.text(1).chars().count() as i64));
        let mut out: String = text[..begin].iter().collect();
        out.push_str(c.text(1));
        // Nothing to replace: then nothing is inserted, as in Flink.
        if length > 0 {
            out.extend(text.iter().skip(begin.saturating_add(length)));
        }
        bounded(out.len(), "OVERLAY")?;
        Ok(Value::string(out))
    })
    .optional(1),
    function("TRANSLATE", &[Text, Text, Text], STRING, Strict, |c| {
        let (from, to): (Vec<char>, Vec<char>) = (c.text(1).chars().collect(), c.text(2).chars().collect());
        let replaced =
            c.text(0).chars().filter_map(|char| match from.iter().position(|from| *from == char) {
                Some(index) => to.get(index).copied(),
                None => Some(char),
            });
        Ok(Value::string(replaced.collect::<String>()))
    }),
    function("STARTSWITH", &[Text, Text], Returns::Type(&DataType::Boolean), Strict, |c| {
        Ok(Value::Boolean(c.text(0).starts_with(c.text(1))))
    }),
    function("ENDSWITH", &[Text, Text], Returns::Type(&DataType::Boolean), Strict, |c| {
        Ok(Value::Boolean(c.text(0).ends_with(c.text(1))))
    }),
    function("TO_BASE64", &[Text], STRING, Strict, |c| Ok(Value::string(STANDARD.encode(c.text(0))))),
    function("FROM_BASE64", &[Text], STRING, StrictAndMore, |c| {
        let bytes = from_base64(c.text(0));
        Ok(bytes.map_or(Value::Null, |bytes| Value::string(String::from_utf8_lossy(&bytes))))
    }),
];

/// The type of a substring of the first argument.
fn varying(types: &[Type]) -> DataType {
    match types.first().map(|ty| &ty.data) {
        Some(DataType::Char(length) | DataType::Varchar(length)) => DataType::Varchar(*length),
        _ => DataType::STRING,
    }
}

fn count(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

fn trim_set<'a>(c: &'a Call<'_>) -> &'a str {
    if c.args.len() > 1 { c.text(1) } else { " " }
}

/// Refuses to make a text longer than [`MADE_BYTES_MAX`].
pub(crate) fn bounded(length: usize, name: &str) -> Result<()> {
    if length > MADE_BYTES_MAX {
        return Err(Error::evaluation(format!(
            "{name} would make a text of {length} bytes; at most {MADE_BYTES_MAX} are allowed"
        )));
    }
    Ok(())
}

/// Appends a text with every `from` replaced; returns whether there was one. An empty `from` matches before, between
/// and after all characters.
pub(super) fn replace(text: &str, from: &str, to: &str, out: &mut String) -> Result<bool> {
    let begin = out.len();
    let mut push = |parts: [&str; 2]| {
        bounded(out.len() - begin + parts[0].len() + parts[1].len(), "REPLACE")?;
        parts.into_iter().for_each(|part| out.push_str(part));
        Ok::<(), Error>(())
    };
    if from.is_empty() {
        push([to, ""])?;
        let mut buffer = [0; 4];
        for char in text.chars() {
            push([char.encode_utf8(&mut buffer), to])?;
        }
        return Ok(true);
    }
    let place = |text: &str| match from.as_bytes() {
        [byte] => place_of(text.as_bytes(), *byte, 0),
        _ => text.find(from),
    };
    let mut rest = text;
    while let Some(at) = place(rest) {
        push([&rest[..at], to])?;
        rest = &rest[at + from.len()..];
    }
    if rest.len() == text.len() {
        return Ok(false);
    }
    push([rest, ""])?;
    Ok(true)
}

pub(super) fn trim<'t>(text: &'t str, set: &str, start: bool, end: bool) -> &'t str {
    let text = if start { text.trim_start_matches(|char| set.contains(char)) } else { text };
    if end { text.trim_end_matches(|char| set.contains(char)) } else { text }
}

/// Number of characters of a text.
pub(super) fn characters(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// The byte at which the character with this number begins, from 0; the text's end if it has fewer characters.
fn byte_of(text: &str, number: usize) -> usize {
    if text.is_ascii() {
        return number.min(text.len());
    }
    text.char_indices().nth(number).map_or(text.len(), |(byte, _)| byte)
}

pub(super) fn left(text: &str, length: i64) -> &str {
    &text[..byte_of(text, count(length))]
}

pub(super) fn right(text: &str, length: i64) -> &str {
    &text[byte_of(text, characters(text).saturating_sub(count(length)))..]
}

/// The position of the `number`-th occurrence of a byte, from 0. Tests eight bytes at once: the texts are too short for
/// a search with a setup cost.
pub(super) fn place_of(bytes: &[u8], byte: u8, number: usize) -> Option<usize> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f * EACH;
    let mut left = number;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let other = u64::from_le_bytes(*word) ^ (u64::from(byte) * EACH);
        // Sets the highest bit of each byte that is zero, and no other bit.
        let mut found = !(((other & LOW) + LOW) | other | LOW);
        let count = found.count_ones() as usize;
        if left >= count {
            left -= count;
            continue;
        }
        for _ in 0..left {
            found &= found - 1;
        }
        return Some(at * 8 + found.trailing_zeros() as usize / 8);
    }
    let found = rest.iter().enumerate().filter(|(_, other)| **other == byte).nth(left);
    found.map(|(at, _)| words.len() * 8 + at)
}

pub(super) fn split_index<'t>(text: &'t str, by: &str, index: i64) -> Option<&'t str> {
    let index = usize::try_from(index).ok()?;
    if text.is_empty() {
        return None;
    }
    match by.as_bytes() {
        // An empty separator means any blank, as in Flink.
        [] => text.split(is_blank).nth(index),
        [byte] if byte.is_ascii() => {
            let from = if index == 0 { 0 } else { place_of(text.as_bytes(), *byte, index - 1)? + 1 };
            let rest = text.get(from..)?;
            rest.get(..place_of(rest.as_bytes(), *byte, 0).unwrap_or(rest.len()))
        }
        _ => text.split(by).nth(index),
    }
}

/// White space in Java.
fn is_blank(char: char) -> bool {
    char.is_whitespace() && !matches!(char, '\u{85}' | '\u{a0}' | '\u{2007}' | '\u{202f}')
        || matches!(char, '\u{1c}'..='\u{1f}')
}

/// A substring; `None` if its length is negative.
pub(super) fn substring(text: &str, start: i64, size: Option<i64>) -> Option<&str> {
    if size.is_some_and(|size| size < 0) {
        return None;
    }
    let length = characters(text) as i64;
    let start = match start {
        0 => 0,
        start if start > 0 => start - 1,
        // Counted from the end; positions before the beginning are empty.
        start => match length.saturating_add(start) {
            before if before < 0 => return Some(""),
            start => start,
        },
    };
    if start >= length {
        return Some("");
    }
    let end = size.map_or(length, |size| start.saturating_add(size).min(length));
    Some(&text[byte_of(text, start as usize)..byte_of(text, end as usize)])
}

/// The position of `part` in `text`, in characters from 1, not before `from`; 0 if there is none.
fn position(part: &str, text: &str, from: i64) -> i64 {
    if part.is_empty() {
        return 1;
    }
    if from < 1 {
        return 0;
    }
    let skip = (from - 1) as usize;
    let Some((begin, _)) = text.char_indices().chain([(text.len(), ' ')]).nth(skip) else { return 0 };
    match text[begin..].find(part) {
        Some(offset) => text[..begin + offset].chars().count() as i64 + 1,
        None => 0,
    }
}

fn pad(c: &Call<'_>, left: bool) -> Result<Value> {
    let (length, fill) = (c.int(1), c.text(2));
    if length < 0 || fill.is_empty() {
        return Ok(Value::Null);
    }
    bounded(count(length).saturating_mul(4), "padding")?;
    let length = length as usize;
    let present = c.text(0).chars().count();
    let filling: String = fill.chars().cycle().take(length.saturating_sub(present)).collect();
    let text: String = c.text(0).chars().take(length).collect();
    Ok(Value::string(if left { filling + &text } else { text + &filling }))
}

/// Decodes base64 with any padding, and with any bits after the last byte.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone);
    const LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    LENIENT.decode(text.trim_end_matches('=')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_found_at_any_position() {
        let text = b"//ab/\xff..././/////////0.\xaf\x2e";
        for length in 0..=text.len() {
            let text = &text[..length];
            for byte in [b'/', b'.', b'b', 0, 0xff, 0x80] {
                let places: Vec<usize> = (0..length).filter(|at| text[*at] == byte).collect();
                for number in 0..=length {
                    assert_eq!(place_of(text, byte, number), places.get(number).copied());
                }
            }
        }
    }

    #[test]
    fn decoded_base64_equals_the_encoded_bytes() {
        for text in ["", "a", "ab", "abc", "hello, world"] {
            assert_eq!(from_base64(&STANDARD.encode(text)).unwrap(), text.as_bytes());
        }
        for (text, bytes) in
            [("YWI=", Some("ab")), ("YWI", Some("ab")), ("YWJ===", Some("ab")), ("Y", None), ("?", None)]
        {
            assert_eq!(from_base64(text).as_deref(), bytes.map(str::as_bytes), "{text}");
        }
    }
}
