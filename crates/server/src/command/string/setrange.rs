//! SETRANGE key offset value: overwrites part of a string, zeros filling a gap; the new length.

use super::string_bytes_max;
use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::{Error, string_until, strings};

pub const SPEC: Spec = Spec {
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: Keys::FIRST,
    ..Spec::new("setrange", setrange)
};

fn setrange(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key, patch) = (call.session.db, call.args.at(1), call.args.at(3));
    let offset = call.args.integer(2)?;
    if offset < 0 {
        return Err(Error::OffsetRange.into());
    }
    let bytes_max = string_bytes_max(call.server, (offset as u64).saturating_add(patch.len() as u64));
    let old = call.txn.get_string(db, key)?;
    if patch.is_empty() {
        call.reply.count(old.map_or(0, |old| old.len()));
        return Ok(());
    }
    let expires_at = old.as_ref().and_then(|old| old.expires_at());
    let new = strings::set_range(old.as_deref().unwrap_or_default(), offset, patch, bytes_max)?;
    call.reply.count(new.len());
    call.txn.put_vec(db, key, new, string_until(expires_at))?;
    Ok(())
}
