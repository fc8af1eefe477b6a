//! Commands about the server: what it is, how it is configured, what it holds.

mod command;
mod config;
mod debug;
mod info;
mod keyspace;
mod memory;
mod object;
mod server;
mod shutdown;

use super::Command;

/// The version of Redis whose clients and tools know what to expect here.
pub const REDIS_VERSION: &str = "7.2.4";

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("command", command::all).or(command::SUBCOMMANDS),
    Command::container("config", config::SUBCOMMANDS),
    Command::new("dbsize", keyspace::dbsize),
    Command::new("debug", debug::debug),
    Command::new("flushdb", keyspace::flushdb),
    Command::new("flushall", keyspace::flushall),
    Command::new("swapdb", keyspace::swapdb),
    Command::new("info", info::info),
    Command::container("memory", memory::SUBCOMMANDS),
    Command::container("object", object::SUBCOMMANDS),
    Command::new("save", server::save),
    Command::new("bgsave", server::bgsave),
    Command::new("lastsave", server::lastsave),
    Command::new("shutdown", shutdown::shutdown),
    Command::new("time", server::time),
];
