//! BITCOUNT key [start end [BYTE | BIT]]: how many bits are set.

use super::unit;
use crate::command::{Call, CommandError, Flags, Keys, Spec, errors};
use duramen_structures::bits;

pub const SPEC: Spec =
    Spec { arity: -2, flags: Flags::READONLY, keys: Keys::FIRST, ..Spec::new("bitcount", bitcount) };

fn bitcount(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let Some(value) = call.stats.read(call.txn.get_string(call.session.db, args.at(1))?) else {
        call.reply.integer(0);
        return Ok(());
    };
    let range = match args.len() {
        2 => bits::range(value.len(), 0, -1, 8),
        4 | 5 => {
            let (start, end) = (args.integer(2)?, args.integer(3)?);
            if start < 0 && end < 0 && start > end {
                None
            } else {
                bits::range(value.len(), start, end, unit(args, 4)?)
            }
        }
        _ => return Err(errors::SYNTAX),
    };
    call.reply.integer(range.map_or(0, |range| bits::count(&value, &range) as i64));
    Ok(())
}
