//! Any bytes as an RDB file: keys, or an error that names the byte; never a panic, nor more memory than the bytes
//! justify.
#![no_main]

use duramen_structures::dump::file::{Flaw, Reader, Skip};
use libfuzzer_sys::fuzz_target;

const STRING_BYTES_MAX: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    // A valid head, so that most inputs get past it.
    let whole = [b"REDIS0010", input].concat();
    for bytes in [input, &whole] {
        if let Err(flaw) = read(bytes) {
            assert!(matches!(flaw, Flaw::Content { offset, .. } if offset <= bytes.len() as u64));
            assert!(flaw.to_string().starts_with("at byte "));
        }
    }
});

fn read(bytes: &[u8]) -> Result<(), Flaw> {
    let mut reader = Reader::new(bytes, Skip { modules: true, functions: true }, STRING_BYTES_MAX)?;
    while reader.next()?.is_some() {}
    Ok(())
}
