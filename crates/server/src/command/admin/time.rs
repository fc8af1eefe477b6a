//! TIME: seconds since 1970, and microseconds.

use super::EARLY;
use crate::command::{Call, CommandError, Flags, Spec};
use std::time::{SystemTime, UNIX_EPOCH};

pub const SPEC: Spec = Spec { flags: EARLY.with(Flags::FAST), ..Spec::new("time", time) };

fn time(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    call.reply.array(2);
    call.reply.bulk_integer(since.as_secs() as i64);
    call.reply.bulk_integer(i64::from(since.subsec_micros()));
    Ok(())
}
