//! Lines of JSON from any bytes: no panic, and the same records however the bytes arrive. Values that were read can be
//! written and read back.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| duramen_stream::fuzzing::json(data));
