//! BITOP AND | OR | XOR | NOT destination key [key …]: combines bitmaps; the length of the result.

use crate::command::{Call, CommandError, Flags, Keys, Spec, errors};
use duramen_structures::bits::Operation;
use duramen_structures::string_until;

pub const SPEC: Spec = Spec {
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: Keys::range(2, -1, 1),
    ..Spec::new("bitop", bitop)
};

fn bitop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let (db, destination) = (call.session.db, args.at(2));
    let operation = Operation::of_name(args.at(1)).ok_or(errors::SYNTAX)?;
    if operation == Operation::Not && args.len() != 4 {
        return Err(CommandError::new("ERR BITOP NOT must be called with a single source key."));
    }
    let mut result: Option<Vec<u8>> = None;
    for key in args.from(3) {
        let source = call.stats.read(call.txn.get_string(db, key)?);
        let source = source.as_deref().unwrap_or_default();
        match &mut result {
            None => result = Some(operation.first(source)),
            Some(result) => operation.combine(result, source),
        }
    }
    let result = result.unwrap_or_default();
    call.reply.count(result.len());
    if result.is_empty() {
        call.txn.delete(db, destination)?;
    } else {
        call.txn.put_vec(db, destination, result, string_until(None))?;
    }
    Ok(())
}
