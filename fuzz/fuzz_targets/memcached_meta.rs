//! memcached's meta commands: each line of the input holds the flags of one command, on a few keys.

#![no_main]

mod memcached;

use libfuzzer_sys::fuzz_target;

const COMMANDS: [&[u8]; 8] = [b"mg a ", b"mg b ", b"ms a 2 ", b"ms b 2 ", b"md a ", b"ma a ", b"ma b ", b"me "];

fuzz_target!(|data: &[u8]| {
    let Some((&head, input)) = data.split_first() else { return };
    let mut lines = Vec::new();
    for line in input.split(|byte| *byte == b'\n') {
        let Some((&first, flags)) = line.split_first() else { continue };
        let command = COMMANDS[usize::from(first) % COMMANDS.len()];
        lines.extend_from_slice(command);
        lines.extend_from_slice(flags);
        lines.extend_from_slice(b"\r\n");
        if command.starts_with(b"ms") {
            lines.extend_from_slice(b"12\r\n");
        }
    }
    memcached::compare(&lines, usize::from(head) % 13 + 1);
});
