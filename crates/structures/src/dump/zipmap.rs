//! The zipmap, a small hash of Redis 2.4 and before. It is read, and never written.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | fields; 254 and more: not given |
//! | … | of each field: its length, its bytes, the value's length, a byte: how many are free, the value's bytes, the free ones |
//! | 1 | 255 |
//!
//! A length is a byte, or 4 after the byte 254, little-endian.

use super::input::Input;

const END: u8 = 0xff;
const LENGTH_LONG: u8 = 0xfe;
const COUNT_NOT_TOLD: u8 = 0xfe;

/// Alternating fields and values, if it is a zipmap.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = Input::new(bytes);
    let [count] = rest.take_array()?;
    let mut strings = Vec::new();
    while rest.first()? != END {
        let field = length(&mut rest)?;
        strings.push(rest.take(field)?.to_vec());
        let value = length(&mut rest)?;
        let [free] = rest.take_array()?;
        strings.push(rest.take(value)?.to_vec());
        rest.take(free.into())?;
    }
    let is_whole = rest.len() == 1 && (count >= COUNT_NOT_TOLD || usize::from(count) == strings.len() / 2);
    is_whole.then_some(strings)
}

fn length(rest: &mut Input<'_>) -> Option<u64> {
    match rest.take_array()? {
        [END] => None,
        [LENGTH_LONG] => Some(u64::from(u32::from_le_bytes(rest.take_array()?))),
        [length] => Some(length.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_redis_is_read() {
        // The example at the head of zipmap.c: "foo" => "bar", "hello" => "world", and three free bytes after "bar".
        let bytes = b"\x02\x03foo\x03\x03bar\0\0\0\x05hello\x05\0world\xff";
        let wanted = [&b"foo"[..], b"bar", b"hello", b"world"].map(<[u8]>::to_vec).to_vec();
        assert_eq!(decode(bytes), Some(wanted));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None);
        }
        assert_eq!(decode(b"\x01\xfe\x01\0\0\0a\x01\0b\xff"), Some(vec![b"a".to_vec(), b"b".to_vec()]));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
