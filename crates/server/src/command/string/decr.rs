//! DECR key: the integer at a key, 0 without one, minus 1.

use super::add;
use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: 2,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("decr", decr)
};

fn decr(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    add(call, -1)
}
