//! Commands about the server: its version, its configuration, its contents.

mod acl;
mod alone;
mod command;
mod config;
mod debug;
mod digest;
mod info;
mod keyspace;
mod latency;
mod memory;
mod monitor;
mod object;
mod save;
mod server;
mod shutdown;
mod slowlog;

use super::Command;

pub use crate::observe::info::REDIS_VERSION;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::container("acl", acl::SUBCOMMANDS),
    Command::new("asking", alone::no_cluster),
    Command::new("bgrewriteaof", alone::bgrewriteaof),
    Command::container("cluster", alone::CLUSTER),
    Command::new("command", command::all).or(command::SUBCOMMANDS),
    Command::container("config", config::SUBCOMMANDS),
    Command::new("dbsize", keyspace::dbsize),
    Command::new("debug", debug::debug),
    Command::new("failover", alone::failover),
    Command::new("flushdb", keyspace::flushdb),
    Command::new("flushall", keyspace::flushall),
    Command::container("function", super::scripting::function::SUBCOMMANDS),
    Command::new("swapdb", keyspace::swapdb),
    Command::new("info", info::info),
    Command::container("latency", latency::SUBCOMMANDS),
    Command::new("lolwut", server::lolwut),
    Command::container("memory", memory::SUBCOMMANDS),
    Command::container("module", alone::MODULE),
    Command::new("monitor", monitor::monitor),
    Command::container("object", object::SUBCOMMANDS),
    Command::new("readonly", alone::no_cluster),
    Command::new("readwrite", alone::no_cluster),
    Command::new("replicaof", alone::replicaof),
    Command::new("role", alone::role),
    Command::container("script", super::scripting::script::SUBCOMMANDS),
    Command::new("save", save::save),
    Command::new("bgsave", save::bgsave),
    Command::new("lastsave", save::lastsave),
    Command::new("shutdown", shutdown::shutdown),
    Command::new("slaveof", alone::replicaof),
    Command::container("slowlog", slowlog::SUBCOMMANDS),
    Command::new("wait", alone::wait),
    Command::new("waitaof", alone::waitaof),
    Command::new("time", server::time),
];
