//! TYPE key: the name of a key's type, `none` without one.

use super::type_name;
use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("type", type_)
};

fn type_(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let found = call.stats.read(call.txn.get(call.session.db, call.args.at(1))?);
    call.reply.simple(found.map_or("none", |found| type_name(found.tag())));
    Ok(())
}
