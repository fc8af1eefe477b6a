//! The arguments of LMPOP, ZMPOP and their blocking forms: numkeys key [key …] END [COUNT count].

use super::{Args, CommandError, errors};

/// See the module.
pub struct Many<E> {
    /// The number of keys, from the third argument of LMPOP or ZMPOP on.
    pub keys: usize,
    /// What stands after them.
    pub end: E,
    /// How many elements to take.
    pub count: usize,
}

impl<E> Many<E> {
    /// Reads the arguments of LMPOP or ZMPOP; `end` reads the one after the keys.
    pub fn parse(
        args: Args<'_>,
        end: impl FnOnce(Args<'_>, usize) -> Result<E, CommandError>,
    ) -> Result<Self, CommandError> {
        let keys = args.positive(1).ok_or(errors::NO_KEYS)?;
        let behind = keys.saturating_add(2);
        let end = end(args, behind)?;
        let mut count = None;
        for at in (behind + 1..args.len()).step_by(2) {
            if count.is_some() || !args.is(at, "count") || at + 1 == args.len() {
                return Err(errors::SYNTAX);
            }
            let given = args.positive(at + 1);
            count = Some(given.ok_or(CommandError::new("ERR count should be greater than 0"))?);
        }
        Ok(Self { keys, end, count: count.unwrap_or(1) })
    }
}
