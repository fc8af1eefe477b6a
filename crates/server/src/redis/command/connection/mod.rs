//! Commands about the connection itself.

mod auth;
mod client;
mod session;

use super::Command;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("auth", auth::auth),
    Command::container("client", client::SUBCOMMANDS),
    Command::new("echo", session::echo),
    Command::new("hello", auth::hello),
    Command::new("ping", session::ping),
    Command::new("quit", session::quit).not_queued(),
    Command::new("reset", session::reset).not_queued(),
    Command::new("select", session::select),
];
