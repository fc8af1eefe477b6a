//! The parts of Lua's C interface that this crate uses.
//!
//! They are declared safe because a [`Stack`] cannot be made from nothing. What a caller must still keep, and the compiler
//! does not check (Lua's own API checks do, in builds with debug assertions):
//!
//! 1. A `Stack` is of a live state: of the one that an `Interpreter` owns, or of a coroutine that is on its stack.
//! 2. A function pops no more than it or its caller pushed, and pushes no more than 20 slots (`LUA_MINSTACK`) or than it
//!    has asked for with `check_stack`.
//! 3. What may raise (see [`Stack`]) is called only below `lua_pcall` or `lua_cpcall`, and only while no frame between
//!    here and there has anything to drop: raising is a `longjmp`.
//! 4. No panic leaves a function that Lua calls: between are C's frames.

#![allow(missing_docs, reason = "they are Lua's, and in its manual")]
#![allow(non_camel_case_types, reason = "C's name")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;

/// A state or a coroutine of it: see the invariants.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Stack(NonNull<Raw>);

/// What a `Stack` points to.
#[repr(C)]
pub struct Raw {
    _private: [u8; 0],
}

pub type CFunction = extern "C-unwind" fn(Stack) -> c_int;
pub type Alloc = extern "C-unwind" fn(*mut c_void, *mut c_void, usize, usize) -> *mut c_void;
pub type Hook = extern "C-unwind" fn(Stack, *mut lua_Debug);
pub type Reader = extern "C-unwind" fn(Stack, *mut c_void, *mut usize) -> *const c_char;

pub const REGISTRY: c_int = -10000;
pub const GLOBALS: c_int = -10002;
pub const MULTIPLE: c_int = -1;

pub const NONE: c_int = -1;
pub const NIL: c_int = 0;
pub const BOOLEAN: c_int = 1;
pub const NUMBER: c_int = 3;
pub const STRING: c_int = 4;
pub const TABLE: c_int = 5;
pub const FUNCTION: c_int = 6;

pub const GC_STOP: c_int = 0;
pub const GC_RESTART: c_int = 1;
pub const GC_COLLECT: c_int = 2;
pub const GC_COUNT: c_int = 3;
pub const GC_COUNT_BYTES: c_int = 4;
pub const GC_STEP: c_int = 5;

pub const MASK_COUNT: c_int = 1 << 3;

/// `lua_Debug`.
#[repr(C)]
pub struct lua_Debug {
    pub event: c_int,
    pub name: *const c_char,
    pub namewhat: *const c_char,
    pub what: *const c_char,
    pub source: *const c_char,
    pub currentline: c_int,
    pub nups: c_int,
    pub linedefined: c_int,
    pub lastlinedefined: c_int,
    pub short_src: [c_char; 60],
    i_ci: c_int,
}

impl Default for lua_Debug {
    fn default() -> Self {
        Self {
            event: 0,
            name: std::ptr::null(),
            namewhat: std::ptr::null(),
            what: std::ptr::null(),
            source: std::ptr::null(),
            currentline: 0,
            nups: 0,
            linedefined: 0,
            lastlinedefined: 0,
            short_src: [0; 60],
            i_ci: 0,
        }
    }
}

// SAFETY: the declarations are those of lua.h, lauxlib.h and lualib.h of 5.1.5, with a `Stack` for the pointer to a
// state. `C-unwind`, because Lua leaves frames by `longjmp`.
unsafe extern "C-unwind" {
    // May raise: memory.
    pub safe fn lua_checkstack(l: Stack, slots: c_int) -> c_int;
    pub safe fn lua_pushcclosure(l: Stack, function: CFunction, upvalues: c_int);
    pub safe fn lua_createtable(l: Stack, array: c_int, hash: c_int);
    pub safe fn lua_rawset(l: Stack, at: c_int);
    pub safe fn lua_rawseti(l: Stack, at: c_int, n: c_int);
    pub safe fn luaL_ref(l: Stack, at: c_int) -> c_int;
    // Raise: that is what they are for, or they call functions of the script.
    pub safe fn lua_error(l: Stack) -> c_int;
    pub safe fn lua_next(l: Stack, at: c_int) -> c_int;
    pub safe fn lua_concat(l: Stack, count: c_int);
    pub safe fn luaL_checkinteger(l: Stack, at: c_int) -> isize;
    pub safe fn luaL_checktype(l: Stack, at: c_int, kind: c_int);
    pub safe fn luaL_checkany(l: Stack, at: c_int);
    pub safe fn luaL_where(l: Stack, level: c_int);
    pub safe fn lua_call(l: Stack, args: c_int, results: c_int);
    pub safe fn luaopen_base(l: Stack) -> c_int;
    pub safe fn luaopen_table(l: Stack) -> c_int;
    pub safe fn luaopen_string(l: Stack) -> c_int;
    pub safe fn luaopen_math(l: Stack) -> c_int;
    pub safe fn luaopen_os(l: Stack) -> c_int;
    pub safe fn luaopen_cjson(l: Stack) -> c_int;
    pub safe fn luaopen_struct(l: Stack) -> c_int;
    pub safe fn luaopen_cmsgpack(l: Stack) -> c_int;
    pub safe fn luaopen_bit(l: Stack) -> c_int;
    // Never raise.
    pub safe fn lua_pcall(l: Stack, args: c_int, results: c_int, handler: c_int) -> c_int;
    pub safe fn lua_gettop(l: Stack) -> c_int;
    pub safe fn lua_settop(l: Stack, top: c_int);
    pub safe fn lua_pushvalue(l: Stack, at: c_int);
    pub safe fn lua_remove(l: Stack, at: c_int);
    pub safe fn lua_insert(l: Stack, at: c_int);
    pub safe fn lua_replace(l: Stack, at: c_int);
    pub safe fn lua_type(l: Stack, at: c_int) -> c_int;
    pub safe fn lua_isnumber(l: Stack, at: c_int) -> c_int;
    pub safe fn lua_isstring(l: Stack, at: c_int) -> c_int;
    pub safe fn lua_tonumber(l: Stack, at: c_int) -> f64;
    pub safe fn lua_toboolean(l: Stack, at: c_int) -> c_int;
    pub safe fn lua_topointer(l: Stack, at: c_int) -> *const c_void;
    pub safe fn lua_touserdata(l: Stack, at: c_int) -> *mut c_void;
    pub safe fn lua_objlen(l: Stack, at: c_int) -> usize;
    pub safe fn lua_pushnil(l: Stack);
    pub safe fn lua_pushnumber(l: Stack, n: f64);
    pub safe fn lua_pushboolean(l: Stack, b: c_int);
    pub safe fn lua_rawget(l: Stack, at: c_int);
    pub safe fn lua_rawgeti(l: Stack, at: c_int, n: c_int);
    pub safe fn lua_getmetatable(l: Stack, at: c_int) -> c_int;
    pub safe fn lua_setmetatable(l: Stack, at: c_int) -> c_int;
    pub safe fn luaL_unref(l: Stack, at: c_int, reference: c_int);
    pub safe fn lua_atpanic(l: Stack, function: CFunction) -> Option<CFunction>;

    // Pointers besides the state: the caller knows what they are.
    pub fn lua_newstate(alloc: Alloc, context: *mut c_void) -> Option<Stack>;
    pub fn lua_close(l: Stack);
    pub fn lua_cpcall(l: Stack, function: CFunction, context: *mut c_void) -> c_int;
    pub fn lua_getallocf(l: Stack, context: *mut *mut c_void) -> Alloc;
    pub fn lua_gc(l: Stack, what: c_int, data: c_int) -> c_int;
    pub fn lua_sethook(l: Stack, hook: Option<Hook>, mask: c_int, count: c_int) -> c_int;
    pub fn lua_pushlightuserdata(l: Stack, context: *mut c_void);
    pub fn lua_pushlstring(l: Stack, bytes: *const c_char, count: usize);
    pub fn lua_tolstring(l: Stack, at: c_int, count: *mut usize) -> *const c_char;
    pub fn lua_getfield(l: Stack, at: c_int, name: *const c_char);
    pub fn lua_setfield(l: Stack, at: c_int, name: *const c_char);
    pub fn lua_load(l: Stack, reader: Reader, context: *mut c_void, name: *const c_char) -> c_int;
    pub fn lua_getstack(l: Stack, level: c_int, of: *mut lua_Debug) -> c_int;
    pub fn lua_getinfo(l: Stack, what: *const c_char, of: *mut lua_Debug) -> c_int;
    pub fn luaL_checklstring(l: Stack, at: c_int, count: *mut usize) -> *const c_char;
    pub fn luaL_optlstring(l: Stack, at: c_int, default: *const c_char, count: *mut usize) -> *const c_char;
    pub fn luaL_argerror(l: Stack, at: c_int, text: *const c_char) -> c_int;
}
