//! Commands about the server: what it is, how it is configured, what it holds.

mod command;
mod config;
mod dbsize;
mod debug;
mod flush;
mod info;
mod memory;
mod object;
mod save;
mod shutdown;
mod time;

use super::{Flags, Spec};

/// The version of Redis whose clients and tools know what to expect here.
pub const REDIS_VERSION: &str = "7.2.4";

/// The commands of this group.
pub const SPECS: &[Spec] = &[
    command::SPEC,
    config::SPEC,
    dbsize::SPEC,
    debug::SPEC,
    flush::FLUSHDB,
    flush::FLUSHALL,
    info::SPEC,
    memory::SPEC,
    object::SPEC,
    save::SAVE,
    save::BGSAVE,
    save::LASTSAVE,
    shutdown::SPEC,
    time::SPEC,
];

/// Allowed while the store is being opened and on a lone replica.
const EARLY: Flags = Flags::LOADING.with(Flags::STALE);
const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(EARLY);
