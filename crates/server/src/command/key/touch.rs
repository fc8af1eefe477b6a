//! TOUCH key [key …]: EXISTS. There is no time of last access to renew.

use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: -2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: Keys::ALL,
    ..Spec::new("touch", touch)
};

fn touch(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let mut count = 0;
    for key in call.args.from(1) {
        count += i64::from(call.stats.read_key(call.txn.exists(call.session.db, key)?));
    }
    call.reply.integer(count);
    Ok(())
}
