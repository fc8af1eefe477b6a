//! memcached's binary protocol: the input is headers and bodies. Only the magic byte and the upper halves of lengths
//! are corrected, so that packets end within the input.

#![no_main]

mod memcached;

use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 24;
// Statistics change from moment to moment.
const STAT: u8 = 0x10;
const NOOP: u8 = 0x0a;

fuzz_target!(|data: &[u8]| {
    let Some((&head, mut input)) = data.split_first() else { return };
    let mut packets = Vec::new();
    while let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() {
        let mut header = *header;
        let body = rest.len().min(usize::from(header[11]));
        header[0] = 0x80;
        header[2] = 0;
        if header[1] == STAT {
            header[1] = NOOP;
        }
        header[8..11].fill(0);
        header[11] = body as u8;
        packets.extend_from_slice(&header);
        packets.extend_from_slice(&rest[..body]);
        input = &rest[body..];
    }
    packets.extend_from_slice(input);
    if packets.first() == Some(&0x80) {
        memcached::compare(&packets, usize::from(head) % 13 + 1);
    }
});
