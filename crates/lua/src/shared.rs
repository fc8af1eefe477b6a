//! The state of an interpreter that C functions find again. Lua keeps its address for the allocator.

use crate::blocks::Blocks;
use crate::ffi::{MASK_COUNT, Stack, lua_Debug, lua_concat, lua_error, lua_pushnil, lua_rawgeti, luaL_where};
use crate::ffi::{REGISTRY, lua_createtable, lua_pushboolean, lua_rawset};
use crate::host::{Host, Interrupt};
use crate::registered::Loading;
use duramen_resp::Span;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Instructions of Lua between two calls of [`Host::interrupt`], as in Redis: half a millisecond.
const INSTRUCTIONS: c_int = 100_000;

/// Names of fields that are looked up often: they are kept as strings of Lua.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Name {
    Err,
    Ok,
    Double,
    BigNumber,
    VerbatimString,
    Format,
    String,
    Map,
    Set,
    Source,
    Line,
    IsCounted,
    Keys,
    Argv,
    Index,
}

/// All of them, in their order.
pub const NAMES: [&str; 15] = [
    "err",
    "ok",
    "double",
    "big_number",
    "verbatim_string",
    "format",
    "string",
    "map",
    "set",
    "source",
    "line",
    "ignore_error_stats_update",
    "KEYS",
    "ARGV",
    "__index",
];

/// How the current run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    #[default]
    Own,
    /// By SCRIPT KILL.
    Killed,
    /// By the host.
    Aborted,
}

/// A table that scripts see instead of another, which they must not change.
#[derive(Clone, Copy)]
pub struct Proxy {
    /// What they see.
    pub shown: *const c_void,
    /// The other, in the registry.
    pub target: c_int,
}

/// See the module.
#[derive(Default)]
pub struct Shared {
    /// Bytes that Lua has.
    pub bytes: Cell<usize>,
    /// Small blocks that it does not use.
    pub blocks: Blocks,
    /// Bytes that it may have.
    pub bytes_max: Cell<usize>,
    /// A `HostRef`, while a script runs.
    host: Cell<Option<*mut c_void>>,
    /// How the run ends.
    pub ending: Cell<Ending>,
    /// A panic of the host: it continues when Lua's frames are left.
    pub panicked: Cell<Option<Box<dyn Any + Send>>>,
    /// The state itself, of which coroutines are others.
    pub main: Cell<Option<Stack>>,
    /// The arguments of a command.
    pub buffer: Cell<Vec<u8>>,
    /// Where each of them is.
    pub spans: Cell<Vec<Span>>,
    /// The state of `math.random`.
    pub random: Cell<u64>,
    /// The script chose RESP3.
    pub resp3: Cell<bool>,
    /// Where the `NAMES` are in the registry.
    pub names: Cell<[c_int; NAMES.len()]>,
    /// What is shown read-only.
    pub proxies: RefCell<Vec<Proxy>>,
    /// How many texts are being compiled: one within the other.
    pub compiling: Cell<u32>,
    /// The library that is being loaded.
    pub loading: RefCell<Option<Loading>>,
    /// When its time is up.
    pub deadline: Cell<Option<Instant>>,
}

/// A host behind a thin pointer.
pub struct HostRef<'h>(pub &'h mut dyn Host);

impl Shared {
    /// Lends `host` to C functions, until `unlend`.
    pub fn lend(&self, host: &mut HostRef<'_>) {
        self.host.set(Some(std::ptr::from_mut(host).cast()));
    }

    /// There is no host any more.
    pub fn unlend(&self) {
        self.host.set(None);
    }

    /// Whether a script runs.
    pub fn is_running(&self) -> bool {
        self.host.get().is_some()
    }

    /// Calls the host; `None` where no script runs, and after a panic, which ends the run.
    pub fn with_host<T>(&self, work: impl FnOnce(&mut dyn Host) -> T) -> Option<T> {
        let host = self.host.get()?;
        // SAFETY: `lend` took it from a reference that lives until `unlend`. It is used only here, and a host does not
        // call Lua, so there are not two of it.
        let host = unsafe { &mut *host.cast::<HostRef<'_>>() };
        match catch_unwind(AssertUnwindSafe(|| work(host.0))) {
            Ok(done) => Some(done),
            Err(panic) => {
                self.panicked.set(Some(panic));
                self.ending.set(Ending::Aborted);
                None
            }
        }
    }

    /// Pushes one of the `NAMES`.
    pub fn push_name(&self, l: Stack, name: Name) {
        lua_rawgeti(l, REGISTRY, self.names.get()[name as usize]);
    }

    /// The target of a proxy.
    pub fn target_of(&self, shown: *const c_void) -> Option<c_int> {
        let proxies = self.proxies.borrow();
        proxies.iter().find(|proxy| proxy.shown == shown).map(|proxy| proxy.target)
    }

    /// Ends the run: from now on each instruction of Lua raises.
    pub fn end(&self, l: Stack, ending: Ending) {
        self.ending.set(ending);
        for stack in [Some(l), self.main.get()].into_iter().flatten() {
            stack.set_hook(on_count, MASK_COUNT, 1);
        }
    }

    /// Lets scripts run again.
    pub fn begin(&self, l: Stack) {
        self.ending.set(Ending::Own);
        self.resp3.set(false);
        l.set_hook(on_count, MASK_COUNT, INSTRUCTIONS);
    }
}

/// Pushes `{err = …}` of a reply's error: `-CODE text`, or a text without a code.
pub fn push_error(l: Stack, error: &[u8]) {
    let trimmed = trim_line_ends(error);
    lua_createtable(l, 0, 2);
    l.shared().push_name(l, Name::Err);
    match trimmed.strip_prefix(b"-") {
        Some(text) if text.contains(&b' ') => l.push_bytes(text),
        Some(text) => l.push_joined(b"ERR ", text),
        None => l.push_joined(b"ERR ", trimmed),
    }
    lua_rawset(l, -3);
}

fn trim_line_ends(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    &text[..end]
}

/// Marks the error on top: a command has counted it.
pub fn mark_counted(l: Stack) {
    l.shared().push_name(l, Name::IsCounted);
    lua_pushboolean(l, 1);
    lua_rawset(l, -3);
}

/// Raises an error of the API.
pub fn raise(l: Stack, error: &str) -> c_int {
    push_error(l, error.as_bytes());
    lua_error(l)
}

/// Raises what ends the run, if anything does: after whatever could have caught it.
pub fn raise_ending(l: Stack) {
    match l.shared().ending.get() {
        Ending::Own => return,
        Ending::Killed => push_error(l, b"Script killed by user with SCRIPT KILL..."),
        Ending::Aborted => lua_pushnil(l),
    }
    lua_error(l);
}

/// Raises a text with the position of the caller before it, as Lua's own functions do.
pub fn raise_text(l: Stack, text: &[u8]) -> c_int {
    raise_ending(l);
    luaL_where(l, 1);
    l.push_bytes(text);
    lua_concat(l, 2);
    lua_error(l)
}

extern "C-unwind" fn on_count(l: Stack, _: *mut lua_Debug) {
    let shared = l.shared();
    raise_ending(l);
    if !shared.is_running() {
        if shared.deadline.get().is_some_and(|deadline| Instant::now() > deadline) {
            raise(l, "FUNCTION LOAD timeout");
        }
        return;
    }
    match shared.with_host(|host| host.interrupt()) {
        Some(Interrupt::Continue) => return,
        Some(Interrupt::Kill) => shared.end(l, Ending::Killed),
        Some(Interrupt::Abort) | None => shared.end(l, Ending::Aborted),
    }
    raise_ending(l);
}
