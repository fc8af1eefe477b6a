//! Clients that connect while others write: one pipelines deeply and reads late, and one sends a command that panics.
//!
//! Both must get every reply, and no other client may be affected.

use std::thread;
use std::time::Duration;

use super::history::{Fault, Violation};
use super::witness::PATIENCE;
use crate::random::Random;
use duramen_resp::Connection;

/// The server's directives for these clients: a limit of the output buffer below the total of their replies, which must
/// not disconnect them.
pub const DIRECTIVES: [&str; 7] =
    ["--client-output-buffer-limit", "normal", "8mb", "0", "0", "--enable-debug-command", "yes"];

// A reply to `COMMAND` has some 20 KB; all of them are three times the limit.
const DEEP_REQUESTS: usize = 1500;

/// Runs one of these clients, or none.
pub fn visit(port: u16, random: &mut Random) -> Option<Violation> {
    let visited = match random.below(8) {
        0 => deep_pipeline(port),
        1 | 2 => panic(port, 1 + random.below(8)),
        _ => Ok(()),
    };
    visited.err().map(|what| Violation { fault: Fault::Refused, what })
}

/// Sends all requests at once, and reads the first reply a while later.
fn deep_pipeline(port: u16) -> Result<(), String> {
    let mut connection = Connection::open(port).map_err(|error| format!("a visitor was refused: {error}"))?;
    let requests = b"COMMAND\r\n".repeat(DEEP_REQUESTS);
    connection.send(&requests).map_err(|error| format!("a deep pipeline was refused: {error}"))?;
    thread::sleep(Duration::from_millis(200));
    for reply in 0..DEEP_REQUESTS {
        match connection.read(PATIENCE) {
            Ok(reply) if reply.kind() == b'*' => {}
            other => return Err(format!("reply {reply} of {DEEP_REQUESTS} to a deep pipeline: {other:?}")),
        }
    }
    Ok(())
}

/// Commands before and after one that panics must get their replies.
fn panic(port: u16, times: u64) -> Result<(), String> {
    let mut connection = Connection::open(port).map_err(|error| format!("a visitor was refused: {error}"))?;
    for _ in 0..times {
        connection
            .send(b"PING\r\nDEBUG PANIC\r\nPING\r\n")
            .map_err(|error| format!("during a command that panics: {error}"))?;
        for wanted in [b'+', b'-', b'+'] {
            match connection.read(PATIENCE) {
                Ok(reply) if reply.kind() == wanted => {}
                other => return Err(format!("during a command that panics: {other:?}")),
            }
        }
    }
    Ok(())
}
