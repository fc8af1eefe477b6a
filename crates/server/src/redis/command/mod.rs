//! The commands: one file for each family of related commands, and in it one function for each command, in the order
//! parse, apply, reply.
//!
//! To add a command: write its function in `command/<group>/<family>.rs`, enter it in the `COMMANDS` of the group's
//! module, and describe it in `descriptions/<group>.json` (a redis-server knows how: `description`). Only there are its
//! arity, flags, keys and categories. A test says what is missing.
//!
//! - **Invariant 1**: an `apply` that returns `Ok` has written exactly one reply; one that returns an error may
//!   have written anything, which is taken back.
//! - **Invariant 2**: keys are read and written through [`Call::txn`] only. It is committed after `apply`, which runs
//!   as if it were alone: its keys are locked (`LockSpec`). In two rare cases (no space, no table yet) the reply is taken
//!   back and `apply` runs again.
//! - **Invariant 3**: an `apply` never blocks and never sleeps: it would hold up all connections of its worker. A command that waits says so
//!   ([`Call::waits`]) and replies nothing.

mod args;
pub mod call;
pub mod denied;
mod description;
mod docs;
pub mod errors;
mod flags;
mod groups;
mod keys;
mod many;
mod names;
mod random;
pub mod redacted;
pub mod rights;
mod scan;
pub mod slow;
pub mod spec;
pub mod step;
mod table;

pub mod admin;
pub mod bitmap;
pub mod connection;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod key;
pub mod list;
pub mod pubsub;
pub mod scripting;
pub mod set;
pub mod sort;
mod sorted_set;
mod stream;
pub mod string;
pub mod transaction;

pub use crate::command_error::CommandError;
pub use args::{Args, OwnedArgs, Span, integer};
pub use call::{After, Apply, Call, Command, Entry, MERGED_BYTES_MAX, Table, subcommand_unknown};
pub use description::Description;
pub use flags::{Categories, Flags};
pub use groups::{table, table_renamed};
pub use keys::{Begin, Find, Key, KeyFlags, KeySpec};
pub use spec::Spec;
pub use step::{Done, Step};
