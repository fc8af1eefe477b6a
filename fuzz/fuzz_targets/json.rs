//! Lines of JSON from any bytes: no panic, the same records however the bytes come, and the values that are read of them are
//! written so that they are read again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| duramen_stream::run::fuzzing::json(data));
