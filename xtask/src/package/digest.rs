//! SHA-256 in digits, as SHA256SUMS and container images have it.

use ring::digest::{SHA256, digest};
use std::fmt::Write as _;

/// The digest of these bytes.
pub fn sha256(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, bytes).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
#[test]
fn it_is_that_of_fips_180() {
    assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
