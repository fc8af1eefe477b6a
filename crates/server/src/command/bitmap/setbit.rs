//! SETBIT key offset value: sets or clears one bit; what it was.

use super::bit_offset;
use crate::command::integer;
use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::{bits, string_until};

pub const SPEC: Spec = Spec {
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: Keys::FIRST,
    ..Spec::new("setbit", setbit)
};

fn setbit(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let offset = bit_offset(call, call.args.at(2), None)?;
    let on = match integer(call.args.at(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(CommandError::new("ERR bit is not an integer or out of range")),
    };
    let (mut bytes, expires_at) = match call.txn.get_string(db, key)? {
        // Redis 7.2 too writes nothing when nothing changes.
        Some(old) if bits::get(&old, offset) == on && offset >> 3 < old.len() as u64 => {
            call.reply.integer(i64::from(on));
            return Ok(());
        }
        Some(old) => (old.to_vec(), old.expires_at()),
        None => (Vec::new(), None),
    };
    let was = bits::set(&mut bytes, offset, on);
    call.txn.put_vec(db, key, bytes, string_until(expires_at))?;
    call.reply.integer(i64::from(was));
    Ok(())
}
