//! Base64, as memcached's meta commands take binary keys.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` in base64, with padding.
pub fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let word =
            group.iter().enumerate().fold(0u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * at) & 63) as usize];
            into.push(if at <= group.len() { digit } else { b'=' });
        }
    }
}

/// Decodes `text` as memcached does: other characters are skipped, and text after the padding is ignored. `None` for
/// incomplete or empty input.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<(u8, bool)> = text.iter().filter_map(|byte| digit(*byte)).collect();
    if digits.is_empty() || !digits.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    for group in digits.chunks(4) {
        let word = group.iter().fold(0u32, |word, (digit, _)| word << 6 | u32::from(*digit));
        bytes.extend_from_slice(&word.to_be_bytes()[1..]);
        let padding = group.iter().filter(|(_, is_padding)| *is_padding).count();
        if padding > 2 {
            return None;
        }
        if padding > 0 {
            bytes.truncate(bytes.len() - padding);
            break;
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

/// The value of a character, and whether it is padding.
fn digit(byte: u8) -> Option<(u8, bool)> {
    if byte == b'=' {
        return Some((0, true));
    }
    ALPHABET.iter().position(|letter| *letter == byte).map(|at| (at as u8, false))
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
