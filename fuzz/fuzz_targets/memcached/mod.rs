//! Shared parts of the targets for memcached's protocols.

use duramen_server::memcached::Offline;
use std::cell::RefCell;

// For a longer line without an end, the result depends on how many bytes have arrived.
const INPUT_BYTES_MAX: usize = 2000;

thread_local! {
    /// Two servers that receive the same input, so that their CAS numbers are the same too.
    static SERVERS: RefCell<[Offline; 2]> = RefCell::new([server(), server()]);
}

fn server() -> Offline {
    Offline::new().expect("memory for a store")
}

/// Sends `input` to both servers: to one at once, and to the other in pieces.
pub fn compare(input: &[u8], piece_bytes: usize) {
    let input = &input[..input.len().min(INPUT_BYTES_MAX)];
    SERVERS.with_borrow_mut(|[whole, parts]| {
        let at_once = whole.replies(input, input.len()).expect("a store in memory does not fail");
        let in_pieces = parts.replies(input, piece_bytes).expect("a store in memory does not fail");
        assert_eq!(at_once, in_pieces, "in pieces of {piece_bytes}");
    });
}
