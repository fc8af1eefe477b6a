//! Commands on keys, whatever their type.

mod dump;
mod expiry;
mod list;
mod presence;
mod relocate;

use super::{Call, Command, CommandError, errors};
use duramen_structures::Type;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("del", presence::delete).removes(),
    Command::new("unlink", presence::delete).removes(),
    Command::new("exists", presence::exists),
    Command::new("touch", presence::exists),
    Command::new("type", presence::type_),
    Command::new("keys", list::keys),
    Command::new("scan", list::scan),
    Command::new("rename", relocate::rename),
    Command::new("renamenx", relocate::renamenx),
    Command::new("copy", relocate::copy),
    Command::new("move", relocate::move_),
    Command::new("randomkey", list::randomkey),
    Command::new("expire", expiry::expire),
    Command::new("pexpire", expiry::pexpire),
    Command::new("expireat", expiry::expireat),
    Command::new("pexpireat", expiry::pexpireat),
    Command::new("ttl", expiry::ttl),
    Command::new("pttl", expiry::pttl),
    Command::new("expiretime", expiry::expiretime),
    Command::new("pexpiretime", expiry::pexpiretime),
    Command::new("persist", expiry::persist),
    Command::new("dump", dump::dump_command),
    Command::new("restore", dump::restore),
];

/// A type as TYPE spells it. An unknown tag is that of a later version.
fn type_name(tag: u8) -> &'static str {
    Type::of_tag(tag).map_or("unknown", Type::name)
}

/// The database that the argument at `index` names.
pub fn database(call: &Call<'_, '_>, index: usize) -> Result<u8, CommandError> {
    let number = call.args.integer(index)?;
    if i32::try_from(number).is_err() {
        return Err(CommandError::new(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    u8::try_from(number).ok().filter(|&db| db < call.txn.databases()).ok_or(errors::DB_OUT_OF_RANGE)
}
