//! Commands on strings.

mod append;
mod decr;
mod decrby;
mod expiry;
mod get;
mod getdel;
mod getex;
mod getrange;
mod getset;
mod incr;
mod incrby;
mod incrbyfloat;
mod lcs;
mod mget;
mod mset;
mod msetnx;
mod psetex;
mod set;
mod setex;
mod setnx;
mod setrange;
mod strlen;
mod substr;

pub use expiry::{Clock, Expiry};

use super::{Call, CommandError, Spec};
use crate::server::Server;

/// The commands of this group.
pub const SPECS: &[Spec] = &[
    get::SPEC,
    set::SPEC,
    setnx::SPEC,
    setex::SPEC,
    psetex::SPEC,
    getset::SPEC,
    getdel::SPEC,
    getex::SPEC,
    mget::SPEC,
    mset::SPEC,
    msetnx::SPEC,
    append::SPEC,
    strlen::SPEC,
    getrange::SPEC,
    substr::SPEC,
    setrange::SPEC,
    incr::SPEC,
    decr::SPEC,
    incrby::SPEC,
    decrby::SPEC,
    incrbyfloat::SPEC,
    lcs::SPEC,
];

// `proto-max-bulk-len` can be no less, so shorter strings need no look at what all workers share.
const STRING_BYTES_MAX_LEAST: u64 = 1 << 20;

/// The longest string that commands may make (`proto-max-bulk-len`), for one that wants to make one of
/// `wanted` bytes.
pub fn string_bytes_max(server: &Server, wanted: u64) -> u64 {
    if wanted <= STRING_BYTES_MAX_LEAST { STRING_BYTES_MAX_LEAST } else { server.config().proto_max_bulk_len }
}

/// INCR and its like: adds to the integer at the first argument and replies with the sum.
fn add(call: &mut Call<'_, '_>, increment: i64) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let at_once = if call.in_transaction { None } else { call.txn.add_at_once(db, key, increment)? };
    let sum = match at_once {
        Some(sum) => sum,
        None => call.txn.add(db, key, increment)?,
    };
    call.reply.integer(sum);
    Ok(())
}

/// MSET and MSETNX take a value for each key.
fn pairs_or_arity(call: &Call<'_, '_>, name: &str) -> Result<(), CommandError> {
    if call.args.len().is_multiple_of(2) { Err(CommandError::arity(name)) } else { Ok(()) }
}

fn put_pairs(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    for (key, value) in args.from(1).step_by(2).zip(args.from(2).step_by(2)) {
        call.txn.put(call.session.db, key, value)?;
    }
    Ok(())
}
