//! The checks before a command runs.

use super::Dispatcher;
use super::room::{find_room, needs_room};
use crate::acl::Denied;
use crate::acl::log::Context;
use crate::clients::unix_millis;
use crate::command_error::CommandError;
use crate::net::{Output, Turn};
use crate::redis::command::call::subcommand_error;
use crate::redis::command::errors::{self, SHOWN_BYTES_MAX, shown_of};
use crate::redis::command::scripting::may_write;
use crate::redis::command::scripting::script::busy_error;
use crate::redis::command::spec::{LockSpec, MAY_REPLICATE};
use crate::redis::command::{Args, Entry, Flags, denied, rights, table};
use crate::redis::resp::Reply;
use crate::redis::session::Session;
use std::time::{Duration, Instant};

// A held command is checked again after this time, to notice CLIENT UNPAUSE.
const LOOK_AT_PAUSE: Duration = Duration::from_millis(20);

impl Dispatcher {
    /// Checks whether the command may run here, and runs it, queues it or refuses it. The checks are in Redis's order,
    /// because each has its own error and clients see the first.
    pub(super) fn admit(&mut self, turn: &mut Turn, session: &mut Session, args: Args<'_>, out: &mut Output) {
        // In a pipeline the next command is usually the same one.
        let again = self.batch.next.take().or(self.running).filter(|entry| entry.is_called(args.at(0)));
        // The server's own clients, those of SQL's jobs, also know the first names.
        let first_name = || session.client.trusted.then(|| table().find(args)).flatten();
        let Some(entry) = again.or_else(|| self.table.find(args)).or_else(first_name) else {
            if args.is(0, "post") || args.is(0, "host:") {
                // A browser that was tricked into talking to us: not one of its lines may be a command.
                session.closing = true;
                return;
            }
            return self.reject(None, session, unknown_command(args), out);
        };
        let spec = &entry.spec;
        let count = if self.batch.merged > 1 { spec.merged_args } else { args.len() };
        if !spec.arity_allows(count) {
            return self.reject(Some(entry), session, CommandError::arity(spec.name), out);
        }
        if !entry.subcommands.is_empty() && args.len() > 1 {
            // `find` gives the container only when the subcommand is unknown.
            return self.reject(Some(entry), session, subcommand_error(entry, args), out);
        }
        if !session.authenticated && !spec.flags.has(Flags::NO_AUTH) && !self.server.users.is_open() {
            return self.reject(Some(entry), session, errors::NO_AUTH, out);
        }
        if session.transaction.is_some() && spec.flags.has(Flags::NO_MULTI) {
            return self.reject(Some(entry), session, errors::NOT_IN_TRANSACTION, out);
        }
        if !session.login.is_unlimited(&self.server.users) {
            if self.batch.merged > 1 {
                if !self.may_run_batch(session, args) {
                    return self.admit_each(turn, session, args, out);
                }
            } else if let Err(why) = self.check_rights(session, entry, args) {
                return self.reject(Some(entry), session, denied::denied(why, spec.name), out);
            }
        }
        if session.only_listens() && !may_listen(spec.name) {
            let error = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                spec.name
            );
            return self.reject(Some(entry), session, CommandError::with(error), out);
        }
        if self.server.running_scripts.are_any()
            && !spec.flags.has(Flags::ALLOW_BUSY)
            && let Some(busy) = self.server.running_scripts.first()
        {
            return self.reject(Some(entry), session, busy_error(&busy), out);
        }
        if self.server.pause.is_any() && self.is_held(entry, session, args) {
            (session.is_held, session.waits_until) = (true, Some(Instant::now() + LOOK_AT_PAUSE));
            return;
        }
        if let Some(transaction) = &mut session.transaction {
            if self.server.may_be_full()
                && needs_room(self.table, spec, transaction)
                && let Err(error) = find_room(&self.server, &mut turn.keys)
            {
                let error = self.report_full(error);
                return self.reject(Some(entry), session, error, out);
            }
            if !spec.flags.has(Flags::NOT_QUEUED) {
                if !transaction.aborted {
                    transaction.push(entry.index, args);
                }
                Reply::new(out, session.protocol).simple("QUEUED");
                return;
            }
        }
        self.run(turn, entry, session, args, out);
    }

    /// Whether CLIENT PAUSE holds a command.
    #[cold]
    fn is_held(&self, entry: &Entry, session: &Session, args: Args<'_>) -> bool {
        let writes = |entry: &Entry, args: Args<'_>| {
            entry.spec.flags.has(Flags::WRITE)
                || MAY_REPLICATE.contains(&entry.spec.name)
                || entry.spec.locks == LockSpec::Script && may_write(&self.server, entry, args)
        };
        let is_exec = entry.spec.name == "exec";
        let mut queue = session.transaction.iter().flat_map(|transaction| &transaction.queue);
        let writes = writes(entry, args)
            || is_exec && queue.any(|queued| writes(self.table.entry(queued.command), queued.args.args()));
        self.server.pause.holds(unix_millis(), writes)
    }

    fn check_rights(&self, session: &mut Session, entry: &Entry, args: Args<'_>) -> Result<(), Denied> {
        let context = if session.transaction.is_some() { Context::Multi } else { Context::TopLevel };
        rights::check(&self.server, self.table, session, entry, args, context)
    }

    /// Refuses a command before it runs; an open MULTI is then spoilt, and by EXEC itself ended.
    fn reject(
        &self,
        entry: Option<&Entry>,
        session: &mut Session,
        mut error: CommandError,
        out: &mut Output,
    ) {
        if entry.is_some_and(|entry| entry.spec.name == "exec") {
            session.transaction_drop();
            error = error.aborting();
        }
        if let Some(transaction) = &mut session.transaction {
            transaction.aborted = true;
        }
        if let Some(entry) = entry {
            self.stats.commands[entry.index].rejected.add(1);
        }
        self.stats.error(error.code());
        Reply::new(out, session.protocol).error(error.text());
    }
}

/// The commands that a subscribed client may send in RESP2.
fn may_listen(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "ping",
        "subscribe",
        "ssubscribe",
        "sunsubscribe",
        "psubscribe",
        "unsubscribe",
        "punsubscribe",
        "quit",
        "reset",
    ];
    NAMES.contains(&name)
}

fn unknown_command(args: Args<'_>) -> CommandError {
    let name = shown_of(args.at(0));
    let mut error = CommandError::showing("ERR unknown command '", name, "', with args beginning with: ");
    // Of all arguments together.
    let mut shown = 0;
    for argument in args.from(1) {
        if shown >= SHOWN_BYTES_MAX {
            break;
        }
        let before = error.text().len();
        let room = SHOWN_BYTES_MAX - shown;
        error = error.and_showing("'", &argument[..argument.len().min(room)], "' ");
        shown += error.text().len() - before;
    }
    error
}
