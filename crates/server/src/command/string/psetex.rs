//! PSETEX key milliseconds value: SET with an expiry time.

use crate::command::string::{Clock, Expiry};
use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::string_until;

pub const SPEC: Spec = Spec {
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: Keys::FIRST,
    ..Spec::new("psetex", psetex)
};

fn psetex(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let expiry = Expiry::At(Clock::MillisFromNow, call.args.at(2));
    let expires_at = expiry.deadline(call.now, "psetex")?;
    call.txn.put_with(call.session.db, call.args.at(1), call.args.at(3), string_until(expires_at))?;
    call.reply.ok();
    Ok(())
}
