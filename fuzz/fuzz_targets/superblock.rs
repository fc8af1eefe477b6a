//! A superblock from any bytes: an error or a superblock, never a panic. Bytes whose checksum is mended
//! first reach the checks behind it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    duramen::fuzzing::superblock(data);
    let mut mended = data.to_vec();
    duramen::fuzzing::mend_superblock(&mut mended);
    duramen::fuzzing::superblock(&mended);
});
