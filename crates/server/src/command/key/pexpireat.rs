//! PEXPIREAT key unix-milliseconds [NX | XX | GT | LT]: when a key ends; 1 if that was set.

use super::expiry::{Unit, expire_at};
use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: -3,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("pexpireat", pexpireat)
};

fn pexpireat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    expire_at(call, Unit::Millis, 0)
}
