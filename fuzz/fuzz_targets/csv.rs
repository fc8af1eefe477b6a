//! CSV from any bytes: no panic; the same records however the bytes arrive and wherever reading began; records that
//! were written are read back.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| duramen_stream::fuzzing::csv(data));
