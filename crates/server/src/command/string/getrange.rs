//! GETRANGE key start end: part of a string, both ends included, negative ones from the end.

use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::strings;

pub const SPEC: Spec =
    Spec { arity: 4, flags: Flags::READONLY, keys: Keys::FIRST, ..Spec::new("getrange", getrange) };

pub(super) fn getrange(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (start, end) = (call.args.integer(2)?, call.args.integer(3)?);
    match call.stats.read(call.txn.get_string(call.session.db, call.args.at(1))?) {
        Some(value) => call.reply.bulk(&value[strings::range(value.len(), start, end)]),
        None => call.reply.bulk(b""),
    }
    Ok(())
}
