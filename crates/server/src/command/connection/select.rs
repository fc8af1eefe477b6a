//! SELECT index: which database the following commands are about.

use crate::command::{Call, CommandError, Flags, Spec, errors};

pub const SPEC: Spec = Spec {
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
    ..Spec::new("select", select)
};

fn select(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let index = call.args.integer(1)?;
    if i32::try_from(index).is_err() {
        return Err(CommandError::new(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    let databases = call.server.keyspace.databases();
    call.session.db = u8::try_from(index).ok().filter(|db| *db < databases).ok_or(errors::DB_OUT_OF_RANGE)?;
    call.reply.ok();
    Ok(())
}
