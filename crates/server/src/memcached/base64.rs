//! Base64, as memcached's meta commands take binary keys.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Appends `bytes` in base64, with padding.
pub fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(STANDARD.encode(bytes).as_bytes());
}

/// Decodes `text` as memcached does: other characters are skipped, and text after the padding is ignored. `None` for
/// incomplete or empty input.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let mut digits: Vec<u8> = text.iter().copied().filter(is_digit).collect();
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    // The group of the first padding is the last.
    let mut padding = 0;
    if let Some(first) = digits.iter().position(|digit| *digit == b'=') {
        digits.truncate(first / 4 * 4 + 4);
        for digit in digits.iter_mut().filter(|digit| **digit == b'=') {
            (*digit, padding) = (b'A', padding + 1);
        }
    }
    let mut bytes = STANDARD.decode(&digits).ok().filter(|_| padding <= 2)?;
    bytes.truncate(bytes.len() - padding);
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_texts_are_read_and_written() {
        for (bytes, text) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            let mut written = Vec::new();
            encode(bytes.as_bytes(), &mut written);
            assert_eq!(written, text.as_bytes());
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
        for text in ["", "Z", "Zg=", "Zg", "====", "Z==="] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decode(b"Zm-9v").as_deref(), Some(&b"foo"[..]));
        // Bits after the last byte, padding that is none, and what follows the padding are ignored.
        for (text, bytes) in [("Zh==", "f"), ("Zg==Zg==", "f"), ("Zm=v", "f`"), ("Z\r\ng==", "f")] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(decode(b"Zg==Z"), None);
    }

    proptest! {
        #[test]
        fn encoded_bytes_decode_unchanged(bytes in prop::collection::vec(any::<u8>(), 1..100)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(decode(&text), Some(bytes));
        }
    }
}
