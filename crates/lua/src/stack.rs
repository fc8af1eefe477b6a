//! Lua's calls with pointers, each wrapped once.

use crate::ffi::*;
use crate::shared::Shared;
use std::ffi::{CStr, c_char, c_int, c_void};

impl Stack {
    /// The state of the interpreter.
    pub fn shared<'s>(self) -> &'s Shared {
        let mut context = std::ptr::null_mut();
        // SAFETY: the state is live, and `context` is a place for one pointer.
        unsafe { lua_getallocf(self, &raw mut context) };
        // SAFETY: the interpreter made the state with the address of its `Shared`, which outlives it. It is never
        // borrowed mutably: its fields are cells.
        unsafe { &*context.cast::<Shared>() }
    }

    /// Removes `count` values. Never raises.
    pub fn pop(self, count: c_int) {
        lua_settop(self, -count - 1);
    }

    /// Pushes a string. May raise: memory.
    pub fn push_bytes(self, bytes: &[u8]) {
        // SAFETY: Lua copies `bytes.len()` bytes from there.
        unsafe { lua_pushlstring(self, bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Pushes one string of two parts. May raise: memory.
    pub fn push_joined(self, first: &[u8], second: &[u8]) {
        self.push_bytes(first);
        self.push_bytes(second);
        lua_concat(self, 2);
    }

    /// Pushes a function. May raise: memory.
    pub fn push_function(self, function: CFunction) {
        lua_pushcclosure(self, function, 0);
    }

    /// The string at `at`; `None` for every other type. It is valid while it stays on the stack, or wherever else the
    /// script cannot drop it: the caller sees to that. Never raises.
    pub fn bytes_at<'s>(self, at: c_int) -> Option<&'s [u8]> {
        if lua_type(self, at) != STRING {
            return None;
        }
        let mut count = 0;
        // SAFETY: the value is a string, so that nothing is converted; `count` is a place for its length.
        let start = unsafe { lua_tolstring(self, at, &raw mut count) };
        // SAFETY: Lua's strings never change, and this one stays while it is on the stack.
        Some(unsafe { std::slice::from_raw_parts(start.cast(), count) })
    }

    /// The string at `at`; a number becomes one in place. May raise: memory.
    pub fn text_at<'s>(self, at: c_int) -> Option<&'s [u8]> {
        if lua_isstring(self, at) == 0 {
            return None;
        }
        if lua_type(self, at) == NUMBER {
            // SAFETY: the value is a number, which becomes a string; the length is not wanted.
            unsafe { lua_tolstring(self, at, std::ptr::null_mut()) };
        }
        self.bytes_at(at)
    }

    /// The argument `at`, which must be a string or a number. Raises if it is not.
    pub fn check_bytes<'s>(self, at: c_int) -> &'s [u8] {
        let mut count = 0;
        // SAFETY: `count` is a place for the length; it raises where there is no string.
        let start = unsafe { luaL_checklstring(self, at, &raw mut count) };
        // SAFETY: as in `bytes_at`: an argument stays on the stack.
        unsafe { std::slice::from_raw_parts(start.cast(), count) }
    }

    /// The argument `at`, a string that ends with a zero; `default` where there is none. Raises for other types.
    pub fn optional_name(self, at: c_int, default: *const c_char) -> *const c_char {
        // SAFETY: `default` is a string that ends with a zero, or the argument before it; no length is wanted.
        unsafe { luaL_optlstring(self, at, default, std::ptr::null_mut()) }
    }

    /// Raises Lua's error of a wrong argument.
    pub fn wrong_argument(self, at: c_int, text: &CStr) -> c_int {
        // SAFETY: `text` ends with a zero.
        unsafe { luaL_argerror(self, at, text.as_ptr()) }
    }

    /// Pushes the field of the table at `at`. Calls a metamethod if there is one.
    pub fn field(self, at: c_int, name: &CStr) {
        // SAFETY: `name` ends with a zero.
        unsafe { lua_getfield(self, at, name.as_ptr()) }
    }

    /// Sets the field of the table at `at` to the value on top. Calls a metamethod if there is one.
    pub fn set_field(self, at: c_int, name: &CStr) {
        // SAFETY: `name` ends with a zero.
        unsafe { lua_setfield(self, at, name.as_ptr()) }
    }

    /// Controls the collector. May run it, which does not raise: scripts have no finalizers but of `newproxy`, whose
    /// errors are raised, so not outside of a protected call.
    pub fn gc(self, what: c_int, data: c_int) -> c_int {
        // SAFETY: no pointers are involved.
        unsafe { lua_gc(self, what, data) }
    }

    /// Calls `hook` after each `count` instructions.
    pub fn set_hook(self, hook: Hook, mask: c_int, count: c_int) {
        // SAFETY: the hook is a function of this crate, and keeps the invariants of `ffi`.
        unsafe { lua_sethook(self, Some(hook), mask, count) };
    }

    /// Calls `function` with an address as its argument, protected.
    pub fn call_protected<T>(self, function: CFunction, context: &mut T) -> c_int {
        // SAFETY: `function` takes its argument as a `&mut T` (see `context`), and the borrow lasts until it returns.
        unsafe { lua_cpcall(self, function, std::ptr::from_mut(context).cast()) }
    }

    /// The same with a function that is in the registry, so that Lua need not make one.
    pub fn call_kept<T>(self, reference: c_int, context: &mut T) -> c_int {
        lua_rawgeti(self, REGISTRY, reference);
        // SAFETY: as in `call_protected`; it is only a value to Lua.
        unsafe { lua_pushlightuserdata(self, std::ptr::from_mut(context).cast()) };
        lua_pcall(self, 1, 0, 0)
    }

    /// The context that `call_protected` or `call_kept` was given.
    ///
    /// # Safety
    /// It was called with a `T` for this function, and this is called once in it.
    pub unsafe fn context<'c, T>(self) -> &'c mut T {
        // SAFETY: the caller's.
        unsafe { &mut *lua_touserdata(self, 1).cast::<T>() }
    }

    /// The position of the function at a level: its source and line; `None` where there is no such level. The flag says
    /// whether it is one of C.
    pub fn position<'s>(self, level: c_int) -> Option<(&'s [u8], c_int, bool)> {
        let mut debug = lua_Debug::default();
        // SAFETY: `debug` has the layout of Lua's.
        if unsafe { lua_getstack(self, level, &raw mut debug) } == 0 {
            return None;
        }
        // SAFETY: `lua_getstack` filled it for a function that is active.
        unsafe { lua_getinfo(self, c"Sl".as_ptr(), &raw mut debug) };
        // SAFETY: Lua sets it to one of its own words.
        let is_c = unsafe { CStr::from_ptr(debug.what) } == c"C";
        // SAFETY: the source's name ends with a zero, and lives as long as the function, which is active.
        let source = unsafe { CStr::from_ptr(debug.source) };
        Some((source.to_bytes(), debug.currentline, is_c))
    }

    /// Compiles what `reader` gives, to a function on top; else to an error's text.
    ///
    /// # Safety
    /// `reader` takes this context, and gives pieces that live until its next call; `name` ends with a zero.
    pub unsafe fn load(self, reader: Reader, context: *mut c_void, name: *const c_char) -> c_int {
        // SAFETY: the caller's.
        unsafe { lua_load(self, reader, context, name) }
    }
}
