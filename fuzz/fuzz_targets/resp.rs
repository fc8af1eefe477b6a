//! Requests from any bytes: no panic, and the commands found do not depend on how the bytes arrive.

#![no_main]

use duramen_resp::{Limits, Request, Requests};
use libfuzzer_sys::fuzz_target;

type Commands = Vec<Vec<Vec<u8>>>;

/// The commands in `input` when it arrives in pieces of `piece_bytes`, and the error that ended them.
fn commands(input: &[u8], piece_bytes: usize, limits: &Limits) -> (Commands, Option<String>) {
    let mut requests = Requests::default();
    let mut commands = Vec::new();
    let (mut start, mut end) = (0, 0);
    loop {
        let arrived = &input[start..end];
        match requests.next(arrived, limits) {
            Ok(Request::Command { bytes }) => {
                assert!(bytes <= arrived.len(), "a command ends within the input");
                let arguments = requests.arguments(arrived).map(<[u8]>::to_vec).collect::<Vec<_>>();
                assert!(!arguments.is_empty(), "a command has a name");
                commands.push(arguments);
                start += bytes;
            }
            Ok(Request::Nothing { bytes }) => {
                assert!(bytes > 0 && bytes <= arrived.len(), "what is passed over is there");
                start += bytes;
            }
            Ok(Request::Incomplete { missing_bytes }) => {
                assert!(missing_bytes > 0, "something is missing");
                if end == input.len() {
                    return (commands, None);
                }
                end = (end + piece_bytes).min(input.len());
            }
            Err(error) => return (commands, Some(error.to_string())),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&head, input)) = data.split_first() else { return };
    let limits = Limits { bulk_bytes_max: 512 << 20, authenticated: head & 1 == 0 };
    let piece_bytes = usize::from(head >> 1) % 13 + 1;
    let at_once = commands(input, input.len().max(1), &limits);
    assert_eq!(at_once, commands(input, piece_bytes, &limits), "in pieces of {piece_bytes}");
});
