//! Compiling and running.

use crate::base;
use crate::ffi::*;
use crate::host::{Host, Replies};
use crate::random::seeded;
use crate::registered::{Loading, Registered};
use crate::sandbox::{self, Sandbox};
use crate::shared::{Ending, HostRef, Name, Shared};
use crate::to_reply;
use std::ffi::{CStr, c_int, c_void};
use std::time::{Duration, Instant};

/// Between two steps of the collector by us, as Redis: what a script left behind goes, though later ones make little
/// rubbish. An interpreter of less than `STEP_BYTES_MIN` leaves it to Lua, which collects when the memory has doubled: a
/// step every 50 runs was a fifth of the time of small scripts.
const RUNS_PER_STEP: u32 = 50;
const STEP_BYTES_MIN: usize = 1 << 20;

/// How an interpreter is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most memory that it takes, in bytes.
    pub bytes_max: usize,
    /// `redis.REDIS_VERSION`
    pub version: &'static str,
    /// `redis.REDIS_VERSION_NUM`
    pub version_number: u32,
    /// It loads libraries of functions; else it runs scripts.
    pub is_for_functions: bool,
}

/// A compiled script, or a function of a library. Of the interpreter that made it, which must be told to
/// [`forget`](Interpreter::forget) it.
#[derive(Debug)]
pub struct Function {
    reference: c_int,
}

/// How a script failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// With an error, as most.
    Raised {
        /// Its text, with a code.
        text: Vec<u8>,
        /// The source and the line, where they are known.
        place: Option<(Vec<u8>, Vec<u8>)>,
        /// A command that failed has counted it already.
        is_counted: bool,
    },
    /// Without an error of its own: for lack of memory, for example.
    Failed(Vec<u8>),
    /// The host ended it. Nothing was written to its replies.
    Aborted,
}

/// One state of Lua, with its sandbox.
pub struct Interpreter {
    state: Stack,
    // At an address that Lua knows.
    shared: Box<Shared>,
    sandbox: Sandbox,
    // Where `run_protected` is in the registry.
    run: c_int,
    runs: u32,
}

// SAFETY: a state may be used by any thread, as long as it is one at a time: `&mut self` sees to that. It owns all that it
// points to.
unsafe impl Send for Interpreter {}

/// What a protected function is called for.
struct Run<'r, 'k> {
    sandbox: Sandbox,
    function: c_int,
    out: &'r mut dyn Replies,
    keys: &'r mut dyn Iterator<Item = &'k [u8]>,
    args: &'r mut dyn Iterator<Item = &'k [u8]>,
    is_function: bool,
    failed: Option<RunError>,
}

impl Interpreter {
    /// A new one; `None` for lack of memory.
    pub fn new(options: Options) -> Option<Self> {
        let shared = Box::new(Shared::default());
        shared.bytes_max.set(options.bytes_max);
        // SAFETY: `allocate` takes a `Shared`, which lives in its box as long as the state.
        let state = unsafe { lua_newstate(allocate, std::ptr::from_ref(&*shared).cast_mut().cast()) }?;
        let mut made = Self { state, shared, sandbox: Sandbox::default(), run: 0, runs: 0 };
        lua_atpanic(state, on_panic);
        made.shared.main.set(Some(state));
        let mut making = (Sandbox::default(), options, 0);
        if state.call_protected(build, &mut making) != 0 {
            return None;
        }
        made.sandbox = making.0;
        made.run = making.2;
        made.shared.begin(state);
        Some(made)
    }

    /// Memory that it has now, in bytes.
    pub fn bytes(&self) -> usize {
        self.shared.bytes.get()
    }

    /// Compiles a script whose functions are of `source`, as in `@user_script`.
    ///
    /// # Errors
    /// Lua's text.
    pub fn compile(&mut self, code: &[u8], source: &CStr) -> Result<Function, Vec<u8>> {
        let l = self.state;
        let failed = base::compile(l, code, source.as_ptr());
        if failed != 0 {
            let text = l.bytes_at(-1).unwrap_or_default().to_vec();
            l.pop(1);
            return Err(text);
        }
        let mut reference = 0;
        if l.call_protected(Self::refer, &mut reference) != 0 {
            lua_settop(l, 0);
            return Err(b"not enough memory".to_vec());
        }
        // The place is there; only the value is put into it.
        lua_rawseti(l, REGISTRY, reference);
        Ok(Function { reference })
    }

    /// Makes a place in the registry.
    extern "C-unwind" fn refer(l: Stack) -> c_int {
        // SAFETY: it is called with a `c_int`.
        let reference: &mut c_int = unsafe { l.context() };
        lua_pushboolean(l, 1);
        *reference = luaL_ref(l, REGISTRY);
        0
    }

    /// Drops a function.
    pub fn forget(&mut self, function: Function) {
        luaL_unref(self.state, REGISTRY, function.reference);
    }

    /// Runs a script or a function of a library, and writes its reply. `seed` is where `math.random` begins.
    ///
    /// # Errors
    /// See [`RunError`]; then nothing was written to `out`.
    ///
    /// # Panics
    /// With the panic of the host, if it panics.
    #[allow(clippy::too_many_arguments, reason = "all that a run needs")]
    pub fn run<'k>(
        &mut self,
        function: &Function,
        is_function: bool,
        host: &mut dyn Host,
        out: &mut dyn Replies,
        keys: &mut dyn Iterator<Item = &'k [u8]>,
        args: &mut dyn Iterator<Item = &'k [u8]>,
        seed: u32,
    ) -> Result<(), RunError> {
        let l = self.state;
        self.shared.random.set(seeded(seed));
        self.shared.begin(l);
        let (mut host, sandbox) = (HostRef(host), self.sandbox);
        self.shared.lend(&mut host);
        let function = function.reference;
        let mut run = Run { sandbox, function, out, keys, args, is_function, failed: None };
        let status = l.call_kept(self.run, &mut run);
        let mut failed = run.failed.take();
        self.shared.unlend();
        let ended = self.shared.ending.get();
        if let Some(panic) = self.shared.panicked.take() {
            lua_settop(l, 0);
            std::panic::resume_unwind(panic);
        }
        self.runs = self.runs.wrapping_add(1);
        if status != 0 || matches!(failed, Some(RunError::Failed(_))) {
            // For lack of memory, perhaps; all that it made is rubbish now.
            if status != 0 {
                failed = Some(RunError::Failed(l.bytes_at(-1).unwrap_or(b"execution failure").to_vec()));
            }
            lua_settop(l, 0);
            l.gc(GC_COLLECT, 0);
        } else if self.runs.is_multiple_of(RUNS_PER_STEP) && self.bytes() > STEP_BYTES_MIN {
            l.gc(GC_STEP, RUNS_PER_STEP as c_int);
        }
        let result = match (ended, failed) {
            (Ending::Aborted, _) => Err(RunError::Aborted),
            (_, Some(failed)) => Err(failed),
            (_, None) => Ok(()),
        };
        lua_settop(l, 0);
        result
    }

    /// Lets the globals read from another table: a library's functions keep them, and see more when they run.
    fn show_globals(&self, from: c_int) {
        let l = self.state;
        lua_rawgeti(l, REGISTRY, self.sandbox.globals);
        lua_getmetatable(l, -1);
        self.shared.push_name(l, Name::Index);
        lua_rawgeti(l, REGISTRY, from);
        // The field is there: nothing is allocated, so nothing raises.
        lua_rawset(l, -3);
        l.pop(2);
    }

    /// Loads a library of functions, within `time`.
    ///
    /// # Errors
    /// Redis's text, without a code.
    pub fn load(&mut self, code: &[u8], time: Duration) -> Result<Vec<(Registered, Function)>, Vec<u8>> {
        let l = self.state;
        self.shared.begin(l);
        self.show_globals(self.sandbox.loading);
        let compiled = self.compile(code, c"@user_function");
        let loaded = match compiled {
            Err(error) => Err([b"Error compiling function: ", &error[..]].concat()),
            Ok(main) => {
                self.shared.deadline.set(Some(Instant::now() + time));
                *self.shared.loading.borrow_mut() = Some(Loading::default());
                lua_rawgeti(l, REGISTRY, main.reference);
                let failed = lua_pcall(l, 0, 0, 0);
                self.shared.deadline.set(None);
                let loading = self.shared.loading.borrow_mut().take().unwrap_or_default();
                let result = if failed == 0 { Ok(loading.functions) } else { Err((error_text(l), loading)) };
                self.forget(main);
                match result {
                    Ok(functions) => Ok(functions),
                    Err((text, loading)) => {
                        for function in loading.functions {
                            luaL_unref(l, REGISTRY, function.reference);
                        }
                        Err([b"Error registering functions: ", &text[..]].concat())
                    }
                }
            }
        };
        lua_settop(l, 0);
        self.show_globals(self.sandbox.behind);
        let functions = loaded?;
        Ok(functions
            .into_iter()
            .map(|function| {
                let reference = function.reference;
                (function, Function { reference })
            })
            .collect())
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more; what it points to is dropped after it.
        unsafe { lua_close(self.state) }
    }
}

extern "C-unwind" fn build(l: Stack) -> c_int {
    // SAFETY: it is called with this type.
    let (sandbox, options, run): &mut (Sandbox, Options, c_int) = unsafe { l.context() };
    *sandbox = sandbox::build(l, (options.version, options.version_number), options.is_for_functions);
    l.push_function(run_protected);
    *run = luaL_ref(l, REGISTRY);
    0
}

extern "C-unwind" fn run_protected(l: Stack) -> c_int {
    // SAFETY: it is called with this type; no reference in it outlives the call.
    let run: &mut Run<'_, '_> = unsafe { l.context() };
    let shared = l.shared();
    lua_settop(l, 0);
    lua_rawgeti(l, REGISTRY, run.sandbox.handler);
    lua_rawgeti(l, REGISTRY, run.function);
    if run.is_function {
        push_array(l, run.keys);
        push_array(l, run.args);
    } else {
        lua_rawgeti(l, REGISTRY, run.sandbox.behind);
        shared.push_name(l, Name::Keys);
        push_array(l, run.keys);
        lua_rawset(l, -3);
        shared.push_name(l, Name::Argv);
        push_array(l, run.args);
        lua_rawset(l, -3);
        l.pop(1);
    }
    let arguments = if run.is_function { 2 } else { 0 };
    let status = lua_pcall(l, arguments, 1, 1);
    if shared.ending.get() == Ending::Aborted {
        return 0;
    }
    if status == 0 {
        to_reply::write(l, run.out, shared.resp3.get());
    } else {
        run.failed = Some(failure(l));
    }
    0
}

/// Pushes a table of strings.
fn push_array(l: Stack, values: &mut dyn Iterator<Item = &[u8]>) {
    let count = values.size_hint().0;
    lua_createtable(l, c_int::try_from(count).unwrap_or_default(), 0);
    for (at, value) in values.enumerate() {
        l.push_bytes(value);
        lua_rawseti(l, -2, at as c_int + 1);
    }
}

/// The error on top.
fn failure(l: Stack) -> RunError {
    if lua_type(l, -1) != TABLE {
        return RunError::Failed(l.bytes_at(-1).unwrap_or(b"execution failure").to_vec());
    }
    let shared = l.shared();
    for name in [Name::Err, Name::Source, Name::Line, Name::IsCounted] {
        shared.push_name(l, name);
        lua_rawget(l, 2);
    }
    // A number becomes a text before anything is copied: from here on nothing raises.
    for at in 3..=5 {
        l.text_at(at);
    }
    let text = l.bytes_at(3).unwrap_or(b"ERR unknown error").to_vec();
    let place = l.bytes_at(4).zip(l.bytes_at(5)).map(|(source, line)| (source.to_vec(), line.to_vec()));
    RunError::Raised { text, place, is_counted: lua_toboolean(l, 6) != 0 }
}

/// The text of an error that no handler has seen, which is on top.
fn error_text(l: Stack) -> Vec<u8> {
    match lua_type(l, -1) {
        TABLE => {
            l.shared().push_name(l, Name::Err);
            lua_rawget(l, -2);
            l.bytes_at(-1).unwrap_or_default().to_vec()
        }
        // Redis gives it a code.
        _ => [b"ERR ", l.bytes_at(-1).unwrap_or_default()].concat(),
    }
}

/// Lua's allocator: counts, and refuses what goes beyond the limit.
extern "C-unwind" fn allocate(
    context: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: the state was made with it, and it outlives the state.
    let shared = unsafe { &*context.cast::<Shared>() };
    let bytes = shared.bytes.get() - old + new;
    if new == 0 {
        shared.bytes.set(bytes);
        // SAFETY: Lua got it from here with this size, or it is null.
        unsafe { shared.blocks.release(block, old) };
        return std::ptr::null_mut();
    }
    if new > old && bytes > shared.bytes_max.get() {
        return std::ptr::null_mut();
    }
    let moved = match block.is_null() {
        true => shared.blocks.allocate(new),
        // SAFETY: as above, and it is not null.
        false => unsafe { shared.blocks.resize(block, old, new) },
    };
    if !moved.is_null() {
        shared.bytes.set(bytes);
    }
    moved
}

/// An error outside of a protected call: there is none, but Lua would leave the process without a word.
extern "C-unwind" fn on_panic(_: Stack) -> c_int {
    std::process::abort()
}
