//! SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]: a key becomes a string.

use crate::command::Args;
use crate::command::string::Expiry;
use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::string_until;

pub const SPEC: Spec =
    Spec { arity: -3, flags: Flags::WRITE.with(Flags::DENYOOM), keys: Keys::FIRST, ..Spec::new("set", set) };

fn set(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key, value) = (call.session.db, call.args.at(1), call.args.at(2));
    let options = Options::parse(call.args)?;
    let mut expires_at = options.expiry.deadline(call.now, "set")?;
    if options.get || options.condition.is_some() || options.expiry == Expiry::Keep {
        let old = if options.get {
            call.stats.read(call.txn.get_string(db, key)?)
        } else {
            call.txn.get(db, key)?
        };
        let exists = old.is_some();
        if options.expiry == Expiry::Keep {
            expires_at = old.as_ref().and_then(|old| old.expires_at());
        }
        if options.get {
            match old {
                Some(old) => call.reply.bulk(&old),
                None => call.reply.null(),
            }
        }
        if options.condition.is_some_and(|condition| exists != (condition == Condition::Exists)) {
            if !options.get {
                call.reply.null();
            }
            return Ok(());
        }
    }
    let meta = string_until(expires_at);
    // Whoever looked at the key before has the transaction compare it.
    if call.in_transaction || !call.txn.put_at_once(db, key, value, meta)? {
        call.txn.put_with(db, key, value, meta)?;
    }
    if !options.get {
        call.reply.ok();
    }
    Ok(())
}

/// When SET writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Exists,
    Absent,
}

struct Options<'a> {
    condition: Option<Condition>,
    get: bool,
    expiry: Expiry<'a>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let mut options = Self { condition: None, get: false, expiry: Expiry::None };
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "nx") && options.condition != Some(Condition::Exists) {
                options.condition = Some(Condition::Absent);
            } else if args.is(at, "xx") && options.condition != Some(Condition::Absent) {
                options.condition = Some(Condition::Exists);
            } else if args.is(at, "get") {
                options.get = true;
            } else if args.is(at, "keepttl") && matches!(options.expiry, Expiry::None | Expiry::Keep) {
                options.expiry = Expiry::Keep;
            } else {
                options.expiry = options.expiry.parse(args, &mut at)?;
            }
            at += 1;
        }
        Ok(options)
    }
}
