//! Scripts: EVAL and its forms, SCRIPT, and functions of libraries. What runs them is `duramen-lua`; their texts are in
//! [`scripts`](crate::scripts).
//!
//! A script is one transaction. The dispatcher locks the keys that its arguments name before it runs. A key that it uses
//! besides is locked when it comes to it, if no other worker holds it. If one does, and for commands on keys that no
//! arguments name, nothing of the run counts: the script begins again alone ([`Txn::name_all`]), with the same time and
//! random numbers. Nobody has seen anything of the first run: its writes, messages and reply are taken back.
//!
//! What a script wrote before an error stays, as in Redis, and is committed with the error as reply.
//!
//! [`Txn::name_all`]: duramen_structures::Txn::name_all

mod eval;
pub mod function;
mod host;
pub mod script;

use super::{Args, Command, Entry, Flags, Table, denied, rights};
use crate::acl::log::Context;
use crate::net::Output;
use crate::redis::resp::Reply;
use crate::redis::session::{ReplyMode, Session};
use crate::scripts::digest_of;
use crate::server::Server;
use duramen_lua::{ScriptFlags, script_header};

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("eval", |call| eval::eval(call, false)),
    Command::new("evalsha", |call| eval::eval_by_digest(call, false)),
    Command::new("eval_ro", |call| eval::eval(call, true)),
    Command::new("evalsha_ro", |call| eval::eval_by_digest(call, true)),
    Command::new("fcall", |call| function::fcall(call, false)),
    Command::new("fcall_ro", |call| function::fcall(call, true)),
];

/// Answers a client of a worker whose script runs too long: BUSY to most. False: the command waits until it ends.
pub fn answer_meanwhile(
    table: &'static Table,
    server: &Server,
    session: &mut Session,
    args: Args<'_>,
    output: &mut Output,
) -> bool {
    let Some(entry) = table.find(args) else { return false };
    let is_plain = (session.authenticated || server.users.is_open())
        && session.reply_mode == ReplyMode::On
        && !session.only_listens()
        && entry.spec.arity_allows(args.len());
    if !is_plain {
        return false;
    }
    let result = rights::check(server, table, session, entry, args, Context::TopLevel);
    let mut reply = Reply::new(output, session.protocol);
    let result = match entry.spec.name {
        _ if let Err(why) = result => Err(denied::denied(why, entry.spec.name)),
        // They are queued, when the worker is free.
        _ if session.transaction.is_some() && entry.spec.flags.has(Flags::ALLOW_BUSY) => return false,
        "script|kill" => script::kill_running(server, false),
        "function|kill" => script::kill_running(server, true),
        "function|stats" => match server.running_scripts.first().filter(|busy| !busy.is_function) {
            Some(busy) => Err(script::busy_error(&busy)),
            None => {
                function::write_stats(server, &mut reply);
                return true;
            }
        },
        "shutdown" if args.len() == 2 && args.is(1, "nosave") => {
            server.stop.request();
            return true;
        }
        _ if entry.spec.flags.has(Flags::ALLOW_BUSY) => return false,
        _ => match server.running_scripts.first() {
            Some(busy) => Err(script::busy_error(&busy)),
            None => return false,
        },
    };
    match result {
        Ok(()) => reply.ok(),
        Err(error) => {
            if let Some(transaction) = &mut session.transaction {
                transaction.aborted = true;
            }
            reply.error(error.text());
        }
    }
    true
}

/// Whether a command's script may write, as far as its first line says, or its function's flags.
pub fn may_write(server: &Server, entry: &Entry, args: Args<'_>) -> bool {
    let header = match entry.spec.name {
        "eval" => script_header(args.at(1)).ok(),
        "evalsha" => {
            digest_of(args.at(1)).and_then(|digest| server.scripts.find(&digest)).map(|script| script.header)
        }
        "fcall" => return !server.libraries.only_reads(args.at(1)),
        _ => return false,
    };
    header.is_none_or(|header| !header.flags.has(ScriptFlags::NO_WRITES))
}
