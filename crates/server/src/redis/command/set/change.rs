//! Adds members and removes them: SADD, SREM, SMOVE.

use crate::observe::keyspace_events::SET;
use crate::redis::command::{Args, Call, CommandError, Done};
use crate::redis::resp::Reply;
use duramen_structures::Edit;

/// SADD key member [member …]: how many are new.
pub fn sadd(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    if args.len() == 3 {
        call.edits_one();
    }
    let mut set = call.txn.edit_set(db, args.at(1))?;
    let added = set.insert_all(args.from(2).map(|member| (member, &b""[..])))?;
    if added > 0 {
        set.save()?;
        call.notify(SET, "sadd", args.at(1));
    }
    call.reply.count(added);
    Ok(())
}

/// SADD in a run, of one member.
pub fn sadd_step(
    set: &mut Edit<'_, '_>,
    reply: &mut Reply<'_>,
    args: Args<'_>,
) -> Result<Done, CommandError> {
    let is_new = set.insert(args.at(0), b"")?;
    reply.integer(i64::from(is_new));
    Ok(if is_new { Done::Changed("sadd") } else { Done::Nothing })
}

/// SREM key member [member …]: how many were there. Without members the key goes too.
pub fn srem(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    if args.len() == 3 {
        call.edits_one();
    }
    let mut set = call.txn.edit_set(db, args.at(1))?;
    let removed = set.remove_all(args.from(2))?;
    if removed > 0 {
        let is_gone = set.is_empty();
        set.save()?;
        call.notify_or_gone(SET, "srem", args.at(1), is_gone);
    }
    call.reply.count(removed);
    Ok(())
}

/// SMOVE source destination member: from one set to another; 1 or 0.
pub fn smove(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let (from, to, member) = (args.at(1), args.at(2), args.at(3));
    let source = call.txn.set(db, from)?;
    // Without a source nobody looks at the destination, as in the reference.
    let is_there = match source.map(|source| source.has(member)).transpose()? {
        None => false,
        Some(is_there) => {
            // Before anything is removed: in MULTI an error takes back nothing.
            call.txn.set(db, to)?;
            is_there
        }
    };
    if is_there && from != to {
        let mut source = call.txn.edit_set(db, from)?;
        source.remove(member)?;
        let is_gone = source.is_empty();
        source.save()?;
        call.notify_or_gone(SET, "srem", from, is_gone);
        let mut destination = call.txn.edit_set(db, to)?;
        if destination.insert(member, b"")? {
            destination.save()?;
            call.notify(SET, "sadd", to);
        }
    }
    call.reply.integer(i64::from(is_there));
    Ok(())
}
