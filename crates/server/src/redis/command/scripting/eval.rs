//! EVAL, EVALSHA, and their forms that only read.

use super::host::{Parts, ScriptHost};
use crate::observe::stats::WorkerStats;
use crate::redis::command::admin::REDIS_VERSION;
use crate::redis::command::{Call, CommandError};
use crate::redis::resp::{Protocol, Reply};
use crate::redis::worker_state::WorkerState;
use crate::scripts::{Compiled, Digest, Interpreters, digest_of, digest_of_text};
use duramen_lua::{Function, Header, Interpreter, Replies, RunError, ScriptFlags, script_header};
use duramen_structures::{Random, with_seed};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

const NO_SCRIPT: CommandError = CommandError::new("NOSCRIPT No matching script. Please use EVAL.");
/// Redis cuts the text of an error that is none of a script's own.
const SHOWN_BYTES_MAX: usize = 100;

/// EVAL script numkeys [key …] [arg …]
pub fn eval(call: &mut Call<'_, '_>, only_reads: bool) -> Result<(), CommandError> {
    let text = call.args.at(1);
    run(call, digest_of_text(text), Some(text), only_reads)
}

/// EVALSHA digest numkeys [key …] [arg …]
pub fn eval_by_digest(call: &mut Call<'_, '_>, only_reads: bool) -> Result<(), CommandError> {
    show(call);
    let digest = digest_of(call.args.at(1)).ok_or(NO_SCRIPT)?;
    run(call, digest, None, only_reads)
}

fn run(
    call: &mut Call<'_, '_>,
    digest: Digest,
    text: Option<&[u8]>,
    only_reads: bool,
) -> Result<(), CommandError> {
    if text.is_some() {
        show(call);
    }
    let keys = key_count(call)?;
    // A panic leaves none: the next script makes new ones.
    let mut own = call.worker_state.interpreters.take().unwrap_or_default();
    let result = run_on(call, &mut own, &digest, text, keys, only_reads);
    call.worker_state.interpreters = Some(own);
    result
}

/// MONITOR shows a script before its commands.
pub fn show(call: &mut Call<'_, '_>) {
    call.worker_state.show_script(call.server, &call.entry.spec, call.args, call.session);
}

/// How many arguments after the second are keys.
pub fn key_count(call: &Call<'_, '_>) -> Result<usize, CommandError> {
    let keys = call.args.integer(2)?;
    if keys > call.args.len() as i64 - 3 {
        return Err(CommandError::new("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(keys).map_err(|_| CommandError::new("ERR Number of keys can't be negative"))
}

fn run_on(
    call: &mut Call<'_, '_>,
    own: &mut Interpreters,
    digest: &Digest,
    text: Option<&[u8]>,
    keys: usize,
    only_reads: bool,
) -> Result<(), CommandError> {
    let scripts = &call.server.scripts;
    if own.find(scripts, digest).is_none() {
        let known = scripts.find(digest);
        let (text, header) = match (&known, text) {
            (Some(known), _) => (&known.text[..], known.header),
            (None, Some(text)) => (text, header_of(text)?),
            (None, None) => return Err(NO_SCRIPT),
        };
        let function = compile(own, text, header)?;
        let script = known.clone().unwrap_or_else(|| scripts.add(*digest, text, header, false));
        own.keep(script, function);
    }
    let Some((Compiled { script, function, .. }, lua)) = own.find(scripts, digest) else {
        return Err(NO_SCRIPT);
    };
    script.note_use();
    let flags = script.header.flags;
    check_flags(flags, only_reads)?;
    let only_reads = only_reads || flags.has(ScriptFlags::NO_WRITES);
    let result = run_function(call, lua, function, keys, only_reads, None);
    if call.txn.wants_all() && result.needs_all {
        scripts.note_alone(script);
    }
    result.reply(call, digest)
}

/// The header of a script.
pub fn header_of(text: &[u8]) -> Result<Header, CommandError> {
    script_header(text).map_err(|error| CommandError::with(format!("ERR {error}")))
}

/// Compiles a script's code.
pub fn compile(own: &mut Interpreters, text: &[u8], header: Header) -> Result<Function, CommandError> {
    own.compile(&text[header.code..], REDIS_VERSION)
        .map_err(|error| CommandError::ending("ERR Error compiling script (new function): ", &error))
}

/// What a script says of itself against what it is called for.
pub fn check_flags(flags: ScriptFlags, only_reads: bool) -> Result<(), CommandError> {
    let is_declared = !flags.has(ScriptFlags::COMPATIBLE);
    if is_declared && only_reads && !flags.has(ScriptFlags::NO_WRITES) {
        return Err(CommandError::new("ERR Can not execute a script with write flag using *_ro command."));
    }
    Ok(())
}

/// The end of a run.
pub struct Ran {
    result: Result<(), RunError>,
    /// It is to run again alone, and would have to each time.
    needs_all: bool,
}

impl Ran {
    /// Writes the error of a run that failed; `name` is the script's.
    pub fn reply(self, call: &mut Call<'_, '_>, name: &[u8]) -> Result<(), CommandError> {
        let (text, is_counted) = match self.result {
            Ok(()) => return Ok(()),
            Err(RunError::Raised { text, place: Some((source, line)), is_counted }) => {
                let place = [b" script: ", name, b", on ", &source[..], b":", &line[..], b"."].concat();
                ([text, place].concat(), is_counted)
            }
            Err(RunError::Raised { text, place: None, is_counted }) => (text, is_counted),
            Err(RunError::Failed(text)) => {
                let shown = &text[..text.len().min(SHOWN_BYTES_MAX)];
                ([b"ERR Error running script ", name, b", ", shown].concat(), false)
            }
            // Whatever the text: it runs again, or the server ends.
            Err(RunError::Aborted) => return Err(CommandError::new("ERR script aborted")),
        };
        // As an error of the command it would take back what the script wrote.
        let text = without_line_end(&text);
        call.stats.commands[call.entry.index].failed.add(1);
        if !is_counted {
            call.stats.error(code_of(text));
        }
        call.reply.error(text);
        Ok(())
    }
}

/// As Redis drops line ends of an error.
fn without_line_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
    &text[..end.map_or(0, |last| last + 1)]
}

/// The first word of an error.
fn code_of(text: &[u8]) -> &str {
    let word = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(word).unwrap_or("ERR")
}

/// Runs a compiled function with the call's keys and arguments. Its reply is written; an error is not.
pub fn run_function(
    call: &mut Call<'_, '_>,
    lua: &mut Interpreter,
    function: &Function,
    keys: usize,
    only_reads: bool,
    name: Option<&[u8]>,
) -> Ran {
    let mark = call.reply.mark();
    let (db, protocol) = (call.session.db, call.session.protocol);
    let WorkerState { chances, script_seeds, .. } = &mut *call.worker_state;
    let seeds = script_seeds.get_or_insert_with(|| Random::new(RandomState::new().hash_one(())));
    chances.scripts += 1;
    let seed = chances.seed.get_or_insert_with(|| seeds.any()).wrapping_add(chances.scripts);
    call.worker_state.is_in_script = true;
    // Commands answer scripts in RESP2 until they ask for RESP3.
    call.session.protocol = Protocol::Resp2;
    let args = call.args;
    let mut key_list = args.part(3..3 + keys).from(0);
    let mut arg_list = args.from(3 + keys);
    let mut out = ScriptReply { reply: call.reply.reborrow(), stats: call.stats };
    let parts = Parts {
        table: call.table,
        txn: &mut *call.txn,
        session: &mut *call.session,
        server: call.server,
        worker_state: &mut *call.worker_state,
        stats: call.stats,
        now: call.now,
        after: &mut *call.after,
    };
    let mut host = ScriptHost::new(parts, args, keys, only_reads, name);
    let is_function = name.is_some();
    let result = with_seed(seed, || {
        lua.run(function, is_function, &mut host, &mut out, &mut key_list, &mut arg_list, seed as u32)
    });
    let needs_all = host.finish();
    call.worker_state.is_in_script = false;
    (call.session.db, call.session.protocol) = (db, protocol);
    if result.is_err() {
        call.reply.rollback(mark);
    }
    Ran { result, needs_all }
}

/// Writes a script's reply to its client.
struct ScriptReply<'r> {
    reply: Reply<'r>,
    stats: &'r WorkerStats,
}

impl Replies for ScriptReply<'_> {
    fn bulk(&mut self, bytes: &[u8]) {
        self.reply.bulk(bytes);
    }

    fn null(&mut self) {
        self.reply.null();
    }

    fn boolean(&mut self, value: bool) {
        self.reply.boolean(value);
    }

    fn integer(&mut self, value: i64) {
        self.reply.integer(value);
    }

    fn double(&mut self, value: f64) {
        self.reply.double(&duramen_structures::string::double::text(value));
    }

    fn big_number(&mut self, digits: &[u8]) {
        let digits = String::from_utf8_lossy(digits).replace(['\r', '\n'], " ");
        self.reply.big_number(&digits);
    }

    fn verbatim(&mut self, format: &[u8], bytes: &[u8]) {
        let mut three = *b"   ";
        three.iter_mut().zip(format).for_each(|(to, from)| *to = *from);
        self.reply.verbatim_as(three, bytes);
    }

    fn status(&mut self, text: &[u8]) {
        self.reply.status(text);
    }

    fn error(&mut self, text: &[u8], is_counted: bool) {
        if !is_counted {
            self.stats.error(code_of(text));
        }
        self.reply.error(without_line_end(text));
    }

    fn array(&mut self, count: usize) {
        self.reply.array(count);
    }

    fn map(&mut self, count: usize) {
        self.reply.map(count);
    }

    fn set(&mut self, count: usize) {
        self.reply.set(count);
    }
}
