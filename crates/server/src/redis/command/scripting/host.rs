//! The commands of a script: what they may do, and which keys they use.

use crate::observe::log;
use crate::observe::stats::WorkerStats;
use crate::observe::times::Tick;
use crate::redis::command::rights::{self, RefusedInScript};
use crate::redis::command::spec::{LockSpec, MAY_REPLICATE};
use crate::redis::command::{After, Args, Call, Entry, Flags, Table};
use crate::redis::resp::{Protocol, Reply};
use crate::redis::session::Session;
use crate::redis::worker_state::WorkerState;
use crate::scripts::{Busy, COMPARED_MAX, Room};
use crate::server::Server;
use duramen_lua::{Called, Host, Interrupt};
use duramen_resp::Span;
use duramen_structures::Txn;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a run works on: the parts of its [`Call`], in which each command of the script is one of its own.
pub struct Parts<'h, 'w> {
    pub table: &'static Table,
    pub txn: &'h mut Txn<'w>,
    pub session: &'h mut Session,
    pub server: &'h Server,
    pub worker_state: &'h mut WorkerState,
    pub stats: &'h WorkerStats,
    pub now: u64,
    pub after: &'h mut After,
}

/// So many refusals of a run are noted in ACL LOG, which keeps 128 entries.
const DENIED_MAX: usize = 1024;
/// A run keeps so many bytes of lines for the log. Then it writes them; if it runs again, they are there twice.
const LINES_BYTES_MAX: usize = 1 << 20;

/// See the module.
pub struct ScriptHost<'h, 'w> {
    parts: Parts<'h, 'w>,
    room: Room,
    // The command that runs the script, and how many of its arguments are keys.
    args: Args<'h>,
    keys: usize,
    only_reads: bool,
    // Of a function of a library.
    name: Option<&'h [u8]>,
    refused: &'static str,
    protocol: Protocol,
    // The keys of the arguments, if they are many.
    declared: Option<HashSet<&'h [u8]>>,
    needs_all: bool,
    has_written: bool,
    // Lines for the log, and for ACL LOG: of the run that counts.
    lines: Vec<(u8, Box<[u8]>)>,
    lines_bytes: usize,
    denied: Vec<RefusedInScript>,
    since: Tick,
    busy: Option<Arc<Busy>>,
}

impl<'h, 'w> ScriptHost<'h, 'w> {
    /// The host of a script whose first `keys` arguments after the third are keys.
    pub fn new(
        parts: Parts<'h, 'w>,
        args: Args<'h>,
        keys: usize,
        only_reads: bool,
        name: Option<&'h [u8]>,
    ) -> Self {
        let room = std::mem::take(&mut parts.worker_state.script_room);
        Self {
            parts,
            room,
            args,
            keys,
            only_reads,
            name,
            refused: "",
            protocol: Protocol::Resp2,
            declared: None,
            needs_all: false,
            has_written: false,
            lines: Vec::new(),
            lines_bytes: 0,
            denied: Vec::new(),
            since: Tick::now(),
            busy: None,
        }
    }

    /// The run is over. Returns whether it uses keys that no arguments name, so that it would have to run again alone
    /// each time.
    pub fn finish(mut self) -> bool {
        if !self.parts.txn.wants_all() {
            self.write_lines();
            for denied in &self.denied {
                rights::note_in_script(self.parts.server, self.parts.table, self.parts.session, denied);
            }
        }
        if let Some(busy) = &self.busy {
            self.parts.server.running_scripts.remove(busy);
        }
        self.room.clear();
        self.parts.worker_state.script_room = self.room;
        self.needs_all
    }

    /// Whether the transaction has the command's keys; if not, it begins again.
    fn has_keys(&mut self, entry: &Entry, args: Args<'_>) -> bool {
        if self.parts.txn.is_alone() {
            return true;
        }
        let spec = &entry.spec;
        // Most commands have one key, at a fixed place.
        let only = match spec.locks {
            LockSpec::One(index) => Some(index),
            LockSpec::All => None,
            _ => spec.only_key.map(|key| key.index),
        };
        if let Some(key) = only {
            let key = args.at(key);
            if self.has_key(key) {
                return true;
            }
            self.room.wanted.clear();
            self.room.wanted.add(key);
            return self.name_wanted();
        }
        if !spec.has_keys() && !spec.works_on_any() && spec.locks != LockSpec::All {
            return true;
        }
        let keys = match spec.has_keys() {
            true => spec.keys(args),
            false => None,
        };
        let Some(keys) = keys else {
            self.needs_all = true;
            return self.parts.txn.name_all();
        };
        self.room.wanted.clear();
        for key in keys {
            let key = args.at(key.index);
            if !self.has_key(key) {
                self.room.wanted.add(key);
            }
        }
        self.room.wanted.is_empty() || self.name_wanted()
    }

    /// Names the keys of a command that the run has not named; if another worker holds one, the transaction begins again.
    fn name_wanted(&mut self) -> bool {
        if !self.parts.txn.name_more(&self.room.wanted) {
            return self.parts.txn.name_all();
        }
        let Room { wanted, more, .. } = &mut self.room;
        wanted.iter().for_each(|key| more.add(key));
        true
    }

    fn has_key(&mut self, key: &[u8]) -> bool {
        let (args, count) = (self.args, self.keys);
        let mut declared = args.from(3).take(count);
        let is_declared = if count <= COMPARED_MAX {
            declared.any(|own| own == key)
        } else {
            self.declared.get_or_insert_with(|| declared.collect()).contains(key)
        };
        is_declared || self.room.more.has(key)
    }

    fn write_lines(&mut self) {
        for (level, line) in self.lines.drain(..) {
            log_line(level, &line);
        }
        self.lines_bytes = 0;
    }

    fn refuse(&mut self, error: &'static str) -> Called {
        self.refused = error;
        self.parts.stats.error("ERR");
        Called::Refused
    }
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, buffer: &[u8], spans: &[Span]) -> Called {
        let args = Args::new(buffer, spans);
        self.refused = "";
        let table = self.parts.table;
        let found = table.find(args).filter(|entry| entry.subcommands.is_empty() || args.len() < 2);
        let Some(entry) = found else {
            return self.refuse("Unknown Redis command called from script");
        };
        let spec = &entry.spec;
        if !spec.arity_allows(args.len()) {
            return self.refuse("Wrong number of args calling Redis command from script");
        }
        if spec.flags.has(Flags::NOSCRIPT) {
            return self.refuse("This Redis command is not allowed from script");
        }
        if let Err((error, denied)) =
            rights::check_in_script(self.parts.server, self.parts.session, entry, args)
        {
            if self.denied.len() < DENIED_MAX {
                self.denied.push(denied);
            }
            return self.refuse(error);
        }
        let writes = spec.flags.has(Flags::WRITE);
        if self.only_reads && (writes || MAY_REPLICATE.contains(&spec.name)) {
            return self.refuse("Write commands are not allowed from read-only scripts.");
        }
        if !self.has_keys(entry, args) {
            return Called::Aborted;
        }
        if writes && !self.has_written {
            self.has_written = true;
            if let Some(busy) = &self.busy {
                busy.has_written.store(true, Ordering::Relaxed);
            }
        }
        self.room.clear_out();
        let Parts { txn, session, server, worker_state, stats, now, after, .. } = &mut self.parts;
        let mut call = Call {
            args,
            entry,
            table,
            txn,
            reply: Reply::new(&mut self.room.out, self.protocol),
            session,
            server,
            worker_state,
            stats,
            now: *now,
            after,
            merged: 1,
            in_transaction: true,
            is_served: false,
        };
        call.run_within();
        // A command that found, while it ran, that it needs more.
        if self.parts.txn.wants_all() { Called::Aborted } else { Called::Replied }
    }

    fn reply(&self) -> &[u8] {
        if self.refused.is_empty() { &self.room.out.bytes } else { self.refused.as_bytes() }
    }

    fn set_resp3(&mut self, resp3: bool) {
        self.protocol = if resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        self.parts.session.protocol = self.protocol;
    }

    fn may_call(&mut self, buffer: &[u8], spans: &[Span]) -> Option<bool> {
        let args = Args::new(buffer, spans);
        let entry = self.parts.table.find(args)?;
        if !entry.subcommands.is_empty() && args.len() > 1 {
            return None;
        }
        let users = &self.parts.server.users;
        Some(self.parts.session.login.check(users, &entry.spec, entry.index, args).is_ok())
    }

    fn log(&mut self, level: u8, text: &[u8]) {
        self.lines_bytes += text.len() + size_of::<(u8, Box<[u8]>)>();
        self.lines.push((level, text.into()));
        if self.lines_bytes > LINES_BYTES_MAX {
            self.write_lines();
        }
    }

    fn interrupt(&mut self) -> Interrupt {
        let server = self.parts.server;
        if let Some(busy) = &self.busy {
            if let Some(bystanders) = &mut self.parts.worker_state.bystanders {
                bystanders.serve();
            }
            if server.stop.is_requested() {
                return Interrupt::Abort;
            }
            return if busy.is_killed() { Interrupt::Kill } else { Interrupt::Continue };
        }
        let limit = server.config().busy_reply_threshold;
        let since = self.since.instant();
        if limit > 0 && since.elapsed().as_millis() as u64 >= limit {
            let command = self.args.iter().map(Box::from).collect();
            let name = self.name.unwrap_or_else(|| self.args.at(1)).into();
            let busy = Busy::new(self.name.is_some(), name, command, since, self.has_written);
            log::warning(format_args!(
                "slow script detected: still in execution after {} milliseconds. You can try killing the script \
                 using the {} command.",
                since.elapsed().as_millis(),
                if self.name.is_some() { "FUNCTION KILL" } else { "SCRIPT KILL" },
            ));
            self.busy = Some(server.running_scripts.add(busy));
        }
        Interrupt::Continue
    }
}

/// Adds a line of a script to the server's log.
pub fn log_line(level: u8, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    match level {
        3 => log::warning(format_args!("{line}")),
        2 => log::notice(format_args!("{line}")),
        1 => log::verbose(format_args!("{line}")),
        _ => log::debug(format_args!("{line}")),
    }
}
