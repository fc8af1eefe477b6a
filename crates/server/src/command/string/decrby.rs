//! DECRBY key decrement: the integer at a key, 0 without one, minus the decrement.

use super::add;
use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::strings::integer;

pub const SPEC: Spec = Spec {
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("decrby", decrby)
};

fn decrby(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let decrement = call.args.integer(2)?;
    add(call, integer::negate(decrement)?)
}
