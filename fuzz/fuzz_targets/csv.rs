//! CSV from any bytes: no panic, the same records however the bytes come and wherever reading began, and what is written
//! of them is read again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| duramen_stream::run::fuzzing::csv(data));
