//! Writes commands as clients send them: arrays of bulk strings.

use crate::number::digits;

/// Appends a command.
#[inline]
pub fn encode_command<A: AsRef<[u8]>>(to: &mut Vec<u8>, arguments: &[A]) {
    head(b'*', arguments.len(), to);
    arguments.iter().for_each(|argument| bulk_string(argument.as_ref(), to));
}

/// Appends a bulk string.
#[inline]
pub fn bulk_string(bytes: &[u8], to: &mut Vec<u8>) {
    head(b'$', bytes.len(), to);
    to.extend_from_slice(bytes);
    to.extend_from_slice(b"\r\n");
}

#[inline]
fn head(sign: u8, count: usize, to: &mut Vec<u8>) {
    to.push(sign);
    decimal(count as u64, to);
    to.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal.
#[inline]
pub fn decimal(number: u64, to: &mut Vec<u8>) {
    to.extend_from_slice(digits(number, &mut [0; 20]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, &["SET", "k", ""]);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
        bytes.clear();
        encode_command(&mut bytes, &[[b'x'; 1234]]);
        assert!(bytes.starts_with(b"*1\r\n$1234\r\nx") && bytes.len() == 4 + 7 + 1234 + 2);
    }
}
