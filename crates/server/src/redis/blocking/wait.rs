//! Waiting for the first of several keys, as lists and sorted sets do it.

use super::queues::{Awaited, What};
use crate::redis::command::{Call, OwnedArgs};
use std::time::Instant;

/// Waits for any key of a command of the form `NAME key [key …] timeout`.
pub fn wait_for_first(call: &mut Call<'_, '_>, until: Option<Instant>, what: &What) {
    let args = call.args;
    let alone = |key| (key, vec![args.at(0), key, b"0"]);
    wait(call, until, what, args.from(1).take(args.len() - 2).map(alone));
}

/// Waits for any key of a command of the form `NAME timeout numkeys key [key …] …`, which has so many.
pub fn wait_for_many(call: &mut Call<'_, '_>, until: Option<Instant>, what: &What, keys: usize) {
    let args = call.args;
    let behind: Vec<&[u8]> = args.from(3 + keys).collect();
    let alone = |key| (key, [&[args.at(0), b"0", b"1", key], &behind[..]].concat());
    wait(call, until, what, args.from(3).take(keys).map(alone));
}

/// Waits for any of these keys, each with the command that is about it alone. Within EXEC it answers as if its time were up.
fn wait<'a>(
    call: &mut Call<'_, '_>,
    until: Option<Instant>,
    what: &What,
    keys: impl Iterator<Item = (&'a [u8], Vec<&'a [u8]>)>,
) {
    let awaited =
        keys.map(|(key, alone)| Awaited { key: key.into(), what: what.clone(), args: OwnedArgs::of(&alone) });
    if !call.waits(until, awaited.collect()) {
        call.reply.null_array();
    }
}
