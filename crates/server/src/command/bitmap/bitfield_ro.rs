//! BITFIELD_RO key [GET type offset …]: BITFIELD that only reads.

use super::bitfield::{Action, parse, read};
use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: -2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("bitfield_ro", bitfield_ro)
};

fn bitfield_ro(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let steps = parse(call)?;
    if steps.iter().any(|step| !matches!(step.action, Action::Get)) {
        return Err(CommandError::new("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read(call, &steps)
}
