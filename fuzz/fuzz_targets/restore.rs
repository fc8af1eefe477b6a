//! Any bytes as RESTORE's payload: a value, or an error; never a panic.
#![no_main]

use duramen_structures::dump;
use libfuzzer_sys::fuzz_target;

const STRING_BYTES_MAX: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let _ = dump::restore(input, STRING_BYTES_MAX);
    // With the right version and checksum, so that the value itself is parsed.
    if let Ok(value) = dump::restore(&dump::signed(input.to_vec()), STRING_BYTES_MAX) {
        assert!(!value.is_empty_collection());
    }
});
