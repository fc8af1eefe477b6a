//! Commands on strings.

mod counter;
mod expiry;
mod get;
mod lcs;
mod many;
mod range;
mod set;

use super::Command;
use crate::server::Server;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("get", get::get).merged_of_any_keys(2),
    Command::new("set", set::set).merged_of_any_keys(3).key_flags(set::key_flags),
    Command::new("setnx", set::setnx),
    Command::new("setex", set::setex),
    Command::new("psetex", set::psetex),
    Command::new("getset", set::getset),
    Command::new("getdel", get::getdel).removes(),
    Command::new("getex", get::getex),
    Command::new("mget", many::mget),
    Command::new("mset", many::mset),
    Command::new("msetnx", many::msetnx),
    Command::new("append", range::append),
    Command::new("strlen", range::strlen),
    Command::new("getrange", range::getrange),
    Command::new("substr", range::getrange),
    Command::new("setrange", range::setrange),
    Command::new("incr", counter::incr),
    Command::new("decr", counter::decr),
    Command::new("incrby", counter::incrby),
    Command::new("decrby", counter::decrby),
    Command::new("incrbyfloat", counter::incrbyfloat),
    Command::new("lcs", lcs::lcs_command),
];

// `proto-max-bulk-len` can be no less, so shorter strings need no look at what all workers share.
const STRING_BYTES_MAX_LEAST: u64 = 1 << 20;

/// The longest string that commands may make (`proto-max-bulk-len`), for one that wants to make one of
/// `wanted` bytes.
pub fn string_bytes_max(server: &Server, wanted: u64) -> u64 {
    if wanted <= STRING_BYTES_MAX_LEAST { STRING_BYTES_MAX_LEAST } else { server.config().proto_max_bulk_len }
}
