//! Bytes of keys and values as text that shows what they are.

use serde_json::{Value, json};
use std::fmt::Write as _;

/// Bytes as text: `text`, `bytes` (how many there are), whether it is `cut`, and whether it is `escaped`. In escaped text
/// bytes that are no UTF-8, and characters that one cannot see, are `\xNN` or `\u{NNNN}`, and a backslash is two.
pub fn shown(bytes: &[u8], most: usize) -> Value {
    let cut = bytes.len() > most;
    let mut part = &bytes[..bytes.len().min(most)];
    if cut {
        // Not within a character.
        let whole = (1..4).map(|less| part.len().saturating_sub(less)).find(|at| (bytes[*at] & 0xc0) == 0xc0);
        if let Some(at) = whole.filter(|at| std::str::from_utf8(&part[*at..]).is_err()) {
            part = &part[..at];
        }
    }
    let is_plain = std::str::from_utf8(part).is_ok_and(|text| text.chars().all(is_visible));
    let text = if is_plain { String::from_utf8_lossy(part).into_owned() } else { escaped(part) };
    json!({"text": text, "bytes": bytes.len(), "cut": cut, "escaped": !is_plain})
}

/// Whether a character shows as what it is: no control characters but line ends and tabs, and none that change the order
/// of others.
fn is_visible(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        '\u{ad}' | '\u{61c}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => false,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        _ => !c.is_control(),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + bytes.len() / 2);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Writing to a string cannot fail.
            let _ = match c {
                '\\' => write!(text, "\\\\"),
                _ if is_visible(c) => write!(text, "{c}"),
                _ if u32::from(c) < 0x80 => write!(text, "\\x{:02x}", u32::from(c)),
                _ => write!(text, "{}", c.escape_unicode()),
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_it_is_and_everything_else_by_escapes() {
        let of = |bytes: &[u8]| {
            let value = shown(bytes, 12);
            (value["text"].as_str().unwrap().to_owned(), value["escaped"] == true, value["cut"] == true)
        };
        let plain = |text: &str| (text.to_owned(), false, false);
        assert_eq!(of(b"<b>\n\\x41</b"), plain("<b>\n\\x41</b"));
        assert_eq!(of("grün 漢".as_bytes()), plain("grün 漢"));
        assert_eq!(of(b"a\0\\\xff"), ("a\\x00\\\\\\xff".to_owned(), true, false));
        assert_eq!(of("\u{202e}x".as_bytes()), ("\\u{202e}x".to_owned(), true, false));
        assert_eq!(of(b"0123456789abcd"), ("0123456789ab".to_owned(), false, true));
        // A character of three bytes that is cut in the middle is left out, and stays where it ends there.
        assert_eq!(of("0123456789漢".as_bytes()), ("0123456789".to_owned(), false, true));
        assert_eq!(of("012345678漢x".as_bytes()), ("012345678漢".to_owned(), false, true));
        assert_eq!(shown(b"0123456789abcd", 12)["bytes"], 14);
        assert_eq!(of(b""), plain(""));
    }
}
