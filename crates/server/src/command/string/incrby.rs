//! INCRBY key increment: the integer at a key, 0 without one, plus the increment.

use super::add;
use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("incrby", incrby)
};

fn incrby(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let increment = call.args.integer(2)?;
    add(call, increment)
}
