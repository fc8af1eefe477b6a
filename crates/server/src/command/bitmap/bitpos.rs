//! BITPOS key bit [start [end [BYTE | BIT]]]: the first bit that is set, or clear.

use super::unit;
use crate::command::{Call, CommandError, Flags, Keys, Spec, errors};
use duramen_structures::bits;

pub const SPEC: Spec =
    Spec { arity: -3, flags: Flags::READONLY, keys: Keys::FIRST, ..Spec::new("bitpos", bitpos) };

fn bitpos(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let on = match args.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::new("ERR The bit argument must be 1 or 0.")),
    };
    let Some(value) = call.stats.read(call.txn.get_string(call.session.db, args.at(1))?) else {
        call.reply.integer(if on { -1 } else { 0 });
        return Ok(());
    };
    let (mut start, mut end, mut counted_in) = (0, -1, 8);
    if args.len() > 6 {
        return Err(errors::SYNTAX);
    }
    if args.len() > 3 {
        start = args.integer(3)?;
        counted_in = unit(args, 5)?;
    }
    if args.len() > 4 {
        end = args.integer(4)?;
    }
    let position = match bits::range(value.len(), start, end, counted_in) {
        None => None,
        // Without an end the string counts as followed by zeros.
        Some(range) => bits::position(&value, &range, on)
            .or_else(|| (!on && args.len() < 5).then_some(value.len() as u64 * 8)),
    };
    call.reply.integer(position.map_or(-1, |position| position as i64));
    Ok(())
}
