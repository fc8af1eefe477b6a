//! Libraries of functions: the body of FUNCTION DUMP, which is also how a file holds them, and how a store keeps them.
//!
//! For each library: 245, then its code as a string.

use super::input::Input;
use super::{decode, encode};

pub(super) const FUNCTION: u8 = 245;
// As candidates of Redis 7.0 wrote them.
pub(super) const FUNCTION_OF_CANDIDATES: u8 = 246;

/// Why a body is not one of libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLibraries {
    /// Something else is in it.
    OtherType,
    /// Its bytes are damaged, or of a form that nobody reads.
    Malformed,
}

/// The body that holds the codes of libraries.
pub fn write<'c>(codes: impl Iterator<Item = &'c [u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    for code in codes {
        body.push(FUNCTION);
        encode(code, &mut body);
    }
    body
}

/// The codes in a body, of at most so many bytes each.
///
/// # Errors
/// Where it is none.
pub fn read(body: &[u8], bytes_max: u64) -> Result<Vec<Vec<u8>>, NotLibraries> {
    let mut input = Input::new(body);
    let mut codes = Vec::new();
    while let Some([first]) = (!input.is_empty()).then(|| input.take_array()).flatten() {
        match first {
            FUNCTION => codes.push(decode(&mut input, bytes_max).ok_or(NotLibraries::Malformed)?),
            FUNCTION_OF_CANDIDATES => return Err(NotLibraries::Malformed),
            _ => return Err(NotLibraries::OtherType),
        }
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_read_back_and_other_bytes_are_refused() {
        let codes = [&b"#!lua name=a\nx"[..], b"12", &[b'x'; 1000]];
        let body = write(codes.into_iter());
        assert_eq!(read(&body, 1 << 20).unwrap(), codes);
        assert_eq!(read(b"", 1 << 20).unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(read(b"\x00\x01a\x01b", 1 << 20), Err(NotLibraries::OtherType));
        assert_eq!(read(b"\xf6\x01a", 1 << 20), Err(NotLibraries::Malformed));
        for end in 1..body.len() {
            let _ = read(&body[..end], 1 << 20);
        }
        assert_eq!(read(&body[..body.len() - 1], 1 << 20), Err(NotLibraries::Malformed));
    }
}
