//! Commands on keys, whatever their type.

mod copy;
mod del;
mod dump;
mod exists;
mod expire;
mod expireat;
mod expiretime;
mod expiry;
mod keys;
mod move_;
mod persist;
mod pexpire;
mod pexpireat;
mod pexpiretime;
mod pttl;
mod randomkey;
mod rename;
mod renamenx;
mod restore;
mod scan;
mod touch;
mod ttl;
mod type_;
mod unlink;

use super::{Call, CommandError, Spec, errors};
use crate::resp::Reply;
use duramen_structures::Type;

/// The commands of this group.
pub const SPECS: &[Spec] = &[
    del::SPEC,
    unlink::SPEC,
    exists::SPEC,
    touch::SPEC,
    type_::SPEC,
    keys::SPEC,
    scan::SPEC,
    rename::SPEC,
    renamenx::SPEC,
    copy::SPEC,
    move_::SPEC,
    randomkey::SPEC,
    expire::SPEC,
    pexpire::SPEC,
    expireat::SPEC,
    pexpireat::SPEC,
    ttl::SPEC,
    pttl::SPEC,
    expiretime::SPEC,
    pexpiretime::SPEC,
    persist::SPEC,
    dump::SPEC,
    restore::SPEC,
];

/// A type as TYPE spells it. A tag that no type has is that of a later version.
fn type_name(tag: u8) -> &'static str {
    Type::of_tag(tag).map_or("unknown", Type::name)
}

/// The database that the argument at `index` names.
fn database(call: &Call<'_, '_>, index: usize) -> Result<u8, CommandError> {
    let number = call.args.integer(index)?;
    if i32::try_from(number).is_err() {
        return Err(CommandError::new(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    u8::try_from(number).ok().filter(|&db| db < call.txn.databases()).ok_or(errors::DB_OUT_OF_RANGE)
}

/// Keys gathered for a reply that begins with their number.
#[derive(Default)]
struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn reply(&self, reply: &mut Reply<'_>) {
        reply.array(self.ends.len());
        let mut start = 0;
        for &end in &self.ends {
            reply.bulk(&self.bytes[start..end]);
            start = end;
        }
    }
}
