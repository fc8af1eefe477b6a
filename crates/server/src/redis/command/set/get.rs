//! The members of one set: SMEMBERS, SISMEMBER, SMISMEMBER, SCARD, SSCAN.

use crate::redis::command::scan::{self, Gathered, Options};
use crate::redis::command::{Call, CommandError};
use std::ops::ControlFlow;

/// SMEMBERS key: all members.
pub fn smembers(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let Some(set) = call.stats.read(call.txn.set(call.session.db, call.args.at(1))?) else {
        call.reply.set(0);
        return Ok(());
    };
    call.reply.set(set.len());
    set.visit(|member, _| {
        call.reply.bulk(member);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// SISMEMBER key member: whether it is one; 1 or 0.
pub fn sismember(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let set = call.txn.set(call.session.db, call.args.at(1))?;
    for member in call.args.from(2) {
        call.stats.read_key(set.is_some());
        let is_there = set.as_ref().map_or(Ok(false), |set| set.has(member))?;
        call.reply.integer(i64::from(is_there));
    }
    Ok(())
}

/// SMISMEMBER key member [member …]: of each whether it is one.
pub fn smismember(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let set = call.stats.read(call.txn.set(call.session.db, call.args.at(1))?);
    call.reply.array(call.args.len() - 2);
    let Some(set) = set else {
        call.args.from(2).for_each(|_| call.reply.integer(0));
        return Ok(());
    };
    set.get_each(call.args.from(2), |found| call.reply.integer(i64::from(found.is_some())))?;
    Ok(())
}

/// SCARD key: how many members there are.
pub fn scard(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let set = call.stats.read(call.txn.set(call.session.db, call.args.at(1))?);
    call.reply.count(set.map_or(0, |set| set.len()));
    Ok(())
}

/// SSCAN key cursor [MATCH pattern] [COUNT count]: members, a few at a time.
pub fn sscan(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let mut cursor = scan::cursor(call.args.at(2))?;
    let mut members = Gathered::default();
    match call.stats.read(call.txn.set(call.session.db, call.args.at(1))?) {
        // Without a key nobody looks at the options, as in the reference.
        None => cursor = 0,
        Some(set) => {
            let options = Options::parse(call.args, 3, false)?;
            cursor = set.scan(cursor, options.count, |member, _| {
                if options.wants(member) {
                    members.push(member);
                }
            })?;
        }
    }
    members.reply_part(&mut call.reply, cursor);
    Ok(())
}
