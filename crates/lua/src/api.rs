//! The `redis` table.

use crate::ffi::*;
use crate::from_reply;
use crate::host::Called;
use crate::shared::{Ending, Name, Shared, mark_counted, push_error, raise, raise_ending};
use duramen_resp::Span;
use duramen_resp::number::{INTEGER_BYTES_MAX, format_integer};
use std::ffi::{CStr, c_int};

const FUNCTIONS: [(&CStr, CFunction); 8] = [
    (c"call", call),
    (c"pcall", pcall),
    (c"setresp", set_resp),
    (c"sha1hex", sha1_hex),
    (c"error_reply", error_reply),
    (c"status_reply", status_reply),
    (c"set_repl", set_repl),
    (c"acl_check_cmd", acl_check_cmd),
];

// Of EVAL only.
const DEBUGGING: [(&CStr, CFunction); 3] =
    [(c"breakpoint", breakpoint), (c"debug", debug), (c"replicate_commands", replicate_commands)];

const REPLICATION: [(&CStr, u32); 5] =
    [(c"REPL_NONE", 0), (c"REPL_AOF", 1), (c"REPL_SLAVE", 2), (c"REPL_REPLICA", 2), (c"REPL_ALL", 3)];

const LOG_LEVELS: [(&CStr, u32); 4] =
    [(c"LOG_DEBUG", 0), (c"LOG_VERBOSE", 1), (c"LOG_NOTICE", 2), (c"LOG_WARNING", 3)];

/// Registers it as a global. Raises only for lack of memory.
pub fn register(l: Stack, version: (&str, u32), is_for_functions: bool) {
    lua_createtable(l, 0, 32);
    set_functions(l, &FUNCTIONS);
    if !is_for_functions {
        set_functions(l, &DEBUGGING);
    }
    for (name, value) in REPLICATION {
        lua_pushnumber(l, f64::from(value));
        l.set_field(-2, name);
    }
    set_log_and_version(l, version);
    l.set_field(GLOBALS, c"redis");
}

/// The parts that a library has too, while it is loaded.
pub fn set_log_and_version(l: Stack, version: (&str, u32)) {
    set_functions(l, &[(c"log", log)]);
    for (name, value) in LOG_LEVELS {
        lua_pushnumber(l, f64::from(value));
        l.set_field(-2, name);
    }
    l.push_bytes(version.0.as_bytes());
    l.set_field(-2, c"REDIS_VERSION");
    lua_pushnumber(l, f64::from(version.1));
    l.set_field(-2, c"REDIS_VERSION_NUM");
}

/// Sets functions in the table on top.
pub fn set_functions(l: Stack, functions: &[(&CStr, CFunction)]) {
    for (name, function) in functions {
        l.push_function(*function);
        l.set_field(-2, name);
    }
}

extern "C-unwind" fn call(l: Stack) -> c_int {
    match command(l) {
        Command::Returns => 1,
        Command::Fails => lua_error(l),
    }
}

extern "C-unwind" fn pcall(l: Stack) -> c_int {
    command(l);
    1
}

/// What of a command is on top.
enum Command {
    /// Its reply.
    Returns,
    /// Its error.
    Fails,
}

/// Executes the command that is the arguments.
fn command(l: Stack) -> Command {
    let shared = l.shared();
    if !shared.is_running() {
        raise(l, "redis.call/pcall can only be called inside a script invocation");
    }
    raise_ending(l);
    let called = match execute(l, shared) {
        Ok(called) => called,
        Err(error) => {
            lua_settop(l, 0);
            push_error(l, error.as_bytes());
            return Command::Fails;
        }
    };
    // As Redis, which so has room for the reply.
    lua_settop(l, 0);
    let reply = shared.with_host(|host| std::ptr::from_ref(host.reply()));
    match (called, reply) {
        (Some(Called::Replied), Some(reply)) => {
            // SAFETY: the host's reply stays until its next `call`, which only this function makes.
            let reply = unsafe { &*reply };
            from_reply::push(l, reply);
            if reply.first() == Some(&b'-') { Command::Fails } else { Command::Returns }
        }
        (Some(Called::Refused), Some(reply)) => {
            // SAFETY: as above.
            push_error(l, unsafe { &*reply });
            mark_counted(l);
            Command::Fails
        }
        _ => {
            shared.end(l, Ending::Aborted);
            raise_ending(l);
            Command::Fails
        }
    }
}

/// Gives the arguments to the host; `None`: it panicked. Raises nothing.
fn execute(l: Stack, shared: &Shared) -> Result<Option<Called>, &'static str> {
    with_arguments(l, shared, |buffer, spans| shared.with_host(|host| host.call(buffer, spans)))
}

/// Calls `work` with the arguments of a command. Raises nothing.
fn with_arguments<T>(
    l: Stack,
    shared: &Shared,
    work: impl FnOnce(&[u8], &[Span]) -> T,
) -> Result<T, &'static str> {
    let count = lua_gettop(l);
    if count == 0 {
        return Err("Please specify at least one argument for this redis lib call");
    }
    // Whatever happens meanwhile, they are empty for others; only their memory would be lost.
    let (mut buffer, mut spans) = (shared.buffer.take(), shared.spans.take());
    buffer.clear();
    spans.clear();
    let mut are_strings = true;
    for at in 1..=count {
        let start = buffer.len();
        match lua_type(l, at) {
            STRING => buffer.extend_from_slice(l.bytes_at(at).unwrap_or_default()),
            NUMBER => push_number(&mut buffer, lua_tonumber(l, at)),
            _ => {
                are_strings = false;
                break;
            }
        }
        spans.push(Span { start, end: buffer.len() });
    }
    let done = match are_strings {
        true => Ok(work(&buffer, &spans)),
        false => Err("Lua redis lib command arguments must be strings or integers"),
    };
    // One large argument does not keep its memory.
    buffer.shrink_to(BUFFER_BYTES_KEPT);
    shared.buffer.set(buffer);
    shared.spans.set(spans);
    done
}

const BUFFER_BYTES_KEPT: usize = 64 << 10;

/// A number as Redis gives it to a command: an integer, else as `%.17g`.
fn push_number(buffer: &mut Vec<u8>, number: f64) {
    // Beyond, not every integer has a double.
    const EXACT: f64 = 4_503_599_627_370_496.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        buffer.extend_from_slice(format_integer(number as i64, &mut [0; INTEGER_BYTES_MAX]));
        return;
    }
    let mut text = [0u8; 64];
    // SAFETY: the format takes one double, and the result, with its zero, fits: sign, 17 digits, point, exponent.
    let count = unsafe { libc::snprintf(text.as_mut_ptr().cast(), text.len(), c"%.17g".as_ptr(), number) };
    buffer.extend_from_slice(&text[..usize::try_from(count).unwrap_or_default().min(text.len() - 1)]);
}

extern "C-unwind" fn acl_check_cmd(l: Stack) -> c_int {
    let shared = l.shared();
    if !shared.is_running() {
        return raise(l, "redis.acl_check_cmd can only be called inside a script invocation");
    }
    let may = with_arguments(l, shared, |buffer, spans| {
        shared.with_host(|host| host.may_call(buffer, spans)).flatten()
    });
    match may {
        Err(error) => raise(l, error),
        Ok(None) => raise(l, "Invalid command passed to redis.acl_check_cmd()"),
        Ok(Some(may)) => {
            lua_pushboolean(l, c_int::from(may));
            1
        }
    }
}

extern "C-unwind" fn set_resp(l: Stack) -> c_int {
    let shared = l.shared();
    if !shared.is_running() {
        return raise(l, "redis.setresp can only be called inside a script invocation");
    }
    if lua_gettop(l) != 1 {
        return raise(l, "redis.setresp() requires one argument.");
    }
    let version = lua_tonumber(l, 1) as i32;
    if version != 2 && version != 3 {
        return raise(l, "RESP version must be 2 or 3.");
    }
    shared.resp3.set(version == 3);
    shared.with_host(|host| host.set_resp3(version == 3));
    0
}

extern "C-unwind" fn sha1_hex(l: Stack) -> c_int {
    if lua_gettop(l) != 1 {
        return raise(l, "wrong number of arguments");
    }
    let text = l.text_at(1).unwrap_or_default();
    let digest = sha1(text);
    l.push_bytes(&digest);
    1
}

/// The digest in hexadecimal digits.
fn sha1(text: &[u8]) -> [u8; 40] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut sum = sha1_smol::Sha1::new();
    sum.update(text);
    let mut digest = [0; 40];
    for (pair, byte) in digest.chunks_exact_mut(2).zip(sum.digest().bytes()) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    digest
}

/// The one argument, if it is a string; else an error is pushed.
fn only_string<'s>(l: Stack) -> Option<&'s [u8]> {
    if lua_gettop(l) == 1
        && let Some(text) = l.bytes_at(1)
    {
        return Some(text);
    }
    push_error(l, b"wrong number or type of arguments");
    None
}

extern "C-unwind" fn error_reply(l: Stack) -> c_int {
    if let Some(text) = only_string(l) {
        // A text of C.
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        if text.starts_with(b"-") {
            push_error(l, text);
        } else {
            l.push_joined(b"-", text);
            push_error(l, l.bytes_at(-1).unwrap_or_default());
        }
    }
    1
}

extern "C-unwind" fn status_reply(l: Stack) -> c_int {
    if only_string(l).is_some() {
        lua_createtable(l, 0, 1);
        l.shared().push_name(l, Name::Ok);
        lua_pushvalue(l, 1);
        lua_rawset(l, -3);
    }
    1
}

/// Nothing is replicated by commands, so the choice has no effect.
extern "C-unwind" fn set_repl(l: Stack) -> c_int {
    if !l.shared().is_running() {
        return raise(l, "redis.set_repl can only be called inside a script invocation");
    }
    if lua_gettop(l) != 1 {
        return raise(l, "redis.set_repl() requires two arguments.");
    }
    if lua_tonumber(l, 1) as i32 & !3 != 0 {
        return raise(l, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
    }
    0
}

extern "C-unwind" fn log(l: Stack) -> c_int {
    let count = lua_gettop(l);
    if count < 2 {
        return raise(l, "redis.log() requires two arguments or more.");
    }
    if lua_isnumber(l, 1) == 0 {
        return raise(l, "First argument must be a number (log level).");
    }
    let level = lua_tonumber(l, 1) as i32;
    let Some(level) = u8::try_from(level).ok().filter(|level| *level <= 3) else {
        return raise(l, "Invalid debug level.");
    };
    // Put together on Lua's stack.
    lua_checkstack(l, 2 * count);
    let mut parts = 0;
    for at in 2..=count {
        if lua_isstring(l, at) != 0 {
            if parts > 0 {
                l.push_bytes(b" ");
                parts += 1;
            }
            lua_pushvalue(l, at);
            parts += 1;
        }
    }
    lua_concat(l, parts);
    let text = l.bytes_at(-1).unwrap_or_default();
    l.shared().with_host(|host| host.log(level, text));
    0
}

/// There is no debugger.
extern "C-unwind" fn breakpoint(l: Stack) -> c_int {
    lua_pushboolean(l, 0);
    1
}

extern "C-unwind" fn debug(_: Stack) -> c_int {
    0
}

extern "C-unwind" fn replicate_commands(l: Stack) -> c_int {
    lua_pushboolean(l, 1);
    1
}
