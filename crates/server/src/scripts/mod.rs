//! Scripts, as all workers share them: their texts by digest, and which of them run too long.
//!
//! | module | is about |
//! |---|---|
//! | `texts` | digest to text; what SCRIPT LOAD, EXISTS and FLUSH work on |
//! | `running` | scripts over `busy-reply-threshold`: BUSY, SCRIPT KILL |
//! | `compiled` | a worker's interpreter and what it has compiled |
//! | `room` | the memory of a run |
//! | `libraries` | libraries of functions: what a worker has loaded of those in the store |
//!
//! Running a script is a command: `redis/command/scripting`.

mod compiled;
mod libraries;
mod room;
mod running;
mod texts;

pub use compiled::{Compiled, Interpreters};
pub use libraries::{Known, Libraries, Library, Readers, Refused, Words, check, readers};
pub use room::{COMPARED_MAX, Room};
pub use running::{Busy, NotKilled, Running};
pub use texts::{Digest, Script, Scripts, digest_of, digest_of_text};
