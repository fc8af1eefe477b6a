//! SAVE, BGSAVE [SCHEDULE], LASTSAVE. There is no snapshot to write: saving makes everything so far survive what the
//! medium can survive, whatever the durability. BGSAVE answers when that is done, which takes one wait for the
//! device.

use crate::command::{After, Call, CommandError, Flags, Spec, errors};
use std::sync::atomic::Ordering;

const SAVING: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING);

pub const SAVE: Spec = Spec { flags: SAVING.with(Flags::NO_MULTI), ..Spec::new("save", save) };
pub const BGSAVE: Spec = Spec { arity: -1, flags: SAVING, ..Spec::new("bgsave", bgsave) };
pub const LASTSAVE: Spec =
    Spec { flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST), ..Spec::new("lastsave", lastsave) };

fn save(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    *call.after = After::Save;
    call.reply.ok();
    Ok(())
}

fn bgsave(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.args.len() {
        1 => {}
        2 if call.args.is(1, "schedule") => {}
        _ => return Err(errors::SYNTAX),
    }
    *call.after = After::Save;
    call.reply.simple("Background saving started");
    Ok(())
}

fn lastsave(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.integer(call.server.saved_at.load(Ordering::Relaxed) as i64);
    Ok(())
}
