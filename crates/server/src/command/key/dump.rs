//! DUMP key: the value in Redis's own payload format, for RESTORE here or there.

use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::dump;

pub const SPEC: Spec =
    Spec { arity: 2, flags: Flags::READONLY, keys: Keys::FIRST, ..Spec::new("dump", dump_command) };

fn dump_command(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.stats.read(call.txn.get_string(call.session.db, call.args.at(1))?) {
        Some(value) => call.reply.bulk(&dump::string(&value)),
        None => call.reply.null(),
    }
    Ok(())
}
