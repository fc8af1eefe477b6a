//! EXPIRETIME key: when a key ends, in Unix seconds; -1 if it never does, -2 if it is not there.

use super::expiry::reply_end;
use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("expiretime", expiretime)
};

fn expiretime(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_end(call, |at, _| (at + 500) / 1000)
}
