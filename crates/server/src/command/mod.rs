//! The commands: one file per command (or per container with its subcommands), each of which holds its
//! [`Spec`] and the function behind it, in the order parse, apply, reply.
//!
//! To add a command: write `command/<group>/<name>.rs` with a `pub const SPEC: Spec`, enter it in the
//! group's `SPECS`, and add its line to `reference.jsonl` when Redis 7.0 has it.
//!
//! - **Invariant 1**: an `apply` that returns `Ok` has written exactly one reply; one that returns an error may
//!   have written anything, which is taken back.
//! - **Invariant 2**: keys are read and written through [`Call::txn`] only. It is committed after `apply`; when the
//!   commit meets a conflict the reply is taken back and `apply` runs again.
//! - **Invariant 3**: an `apply` never blocks and never sleeps: it would hold up all connections of its worker.

mod args;
mod call;
mod dispatch;
pub mod errors;
mod spec;
mod table;

pub mod admin;
pub mod bitmap;
pub mod connection;
pub mod key;
pub mod reference;
pub mod string;
pub mod transaction;

pub use args::{Args, OwnedArgs, Span, integer};
pub use call::{After, Call};
pub use dispatch::{Dispatcher, subcommand_unknown};
pub use errors::CommandError;
pub use spec::{Apply, Flags, Keys, Spec};
pub use table::{Entry, Table};

/// Every group of commands. Each group's module lists its own.
const GROUPS: &[&[Spec]] =
    &[connection::SPECS, admin::SPECS, string::SPECS, bitmap::SPECS, key::SPECS, transaction::SPECS];
