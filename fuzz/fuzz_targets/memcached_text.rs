//! memcached's text protocol from any bytes: no panic, and the replies do not depend on how the bytes arrive.

#![no_main]

mod memcached;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&head, input)) = data.split_first() else { return };
    // Input that begins as a binary packet is for another target; statistics change from moment to moment.
    if input.first() != Some(&0x80) && !input.windows(5).any(|word| word == b"stats") {
        memcached::compare(input, usize::from(head) % 13 + 1);
    }
});
