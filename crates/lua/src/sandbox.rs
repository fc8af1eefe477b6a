//! The globals of a script, which nobody can change.
//!
//! Tables that scripts see are proxies. The functions that look past metatables (`rawset`, `rawget`, `next`, `pairs`,
//! `setmetatable`, `table.insert`) are ours, in `base`, and know proxies.
//!
//! ```text
//! script's environment ─► globals (proxy) ─► globals behind: KEYS, ARGV, functions, and
//!                                              redis (proxy) ─► redis behind: call, pcall …
//!                                              string (proxy) ─► …
//! ```

use crate::api;
use crate::base;
use crate::ffi::*;
use crate::library;
use crate::proxy::{push_nonexistent, push_proxy, push_proxy_of_globals};
use crate::random;
use crate::shared::NAMES;
use std::ffi::{CStr, c_int};

/// Libraries, in the order in which Redis loads them.
const LIBRARIES: [(CFunction, &CStr); 9] = [
    (open_base, c""),
    (open_table, c"table"),
    (open_string, c"string"),
    (open_math, c"math"),
    (open_os, c"os"),
    (open_cjson, c"cjson"),
    (open_struct, c"struct"),
    (open_cmsgpack, c"cmsgpack"),
    (open_bit, c"bit"),
];

/// Globals of Lua's that scripts do not have.
const WITHOUT: [&CStr; 8] = [
    c"dofile",
    c"loadfile",
    c"print",
    c"module",
    c"require",
    // Redis has them only with `lua-enable-deprecated-api`.
    c"getfenv",
    c"setfenv",
    c"newproxy",
];

/// Globals that are tables.
const TABLES: [&CStr; 10] =
    [c"redis", c"table", c"string", c"math", c"os", c"cjson", c"struct", c"cmsgpack", c"bit", c"coroutine"];

/// Where the parts of a sandbox are in the registry.
#[derive(Clone, Copy, Default)]
pub struct Sandbox {
    /// The globals that scripts see.
    pub globals: c_int,
    /// Those behind.
    pub behind: c_int,
    /// The globals while a library of functions is loaded, if this interpreter does that.
    pub loading: c_int,
    /// The handler of errors.
    pub handler: c_int,
}

macro_rules! opens {
    ($($name:ident: $open:ident),*) => {
        $(extern "C-unwind" fn $name(l: Stack) -> c_int {
            $open(l)
        })*
    };
}
opens!(
    open_base: luaopen_base,
    open_table: luaopen_table,
    open_string: luaopen_string,
    open_math: luaopen_math,
    open_os: luaopen_os,
    open_cjson: luaopen_cjson,
    open_struct: luaopen_struct,
    open_cmsgpack: luaopen_cmsgpack,
    open_bit: luaopen_bit
);

/// Makes the globals of a new state. Raises only for lack of memory.
pub fn build(l: Stack, version: (&str, u32), is_for_functions: bool) -> Sandbox {
    let shared = l.shared();
    let mut names = [0; NAMES.len()];
    for (at, name) in NAMES.iter().enumerate() {
        l.push_bytes(name.as_bytes());
        names[at] = luaL_ref(l, REGISTRY);
    }
    shared.names.set(names);

    for (open, name) in LIBRARIES {
        l.push_function(open);
        l.push_bytes(name.to_bytes());
        lua_call(l, 1, 0);
    }
    for name in WITHOUT {
        lua_pushnil(l);
        l.set_field(GLOBALS, name);
    }
    base::replace(l);
    for (name, function) in [(c"random", random::random as CFunction), (c"randomseed", random::seed)] {
        l.field(GLOBALS, c"math");
        l.push_function(function);
        l.set_field(-2, name);
        l.pop(1);
    }
    // `os` keeps its clock.
    l.field(GLOBALS, c"os");
    l.field(-1, c"clock");
    lua_createtable(l, 0, 1);
    lua_insert(l, -2);
    l.set_field(-2, c"clock");
    l.set_field(GLOBALS, c"os");
    l.pop(1);
    api::register(l, version, is_for_functions);

    protect_strings(l);
    for name in TABLES {
        l.field(GLOBALS, name);
        push_proxy(l);
        l.set_field(GLOBALS, name);
    }
    // A name that is no global raises.
    lua_pushvalue(l, GLOBALS);
    push_nonexistent(l);
    lua_setmetatable(l, -2);
    lua_pushvalue(l, -1);
    let behind = luaL_ref(l, REGISTRY);
    push_proxy_of_globals(l);
    lua_pushvalue(l, -1);
    l.set_field(GLOBALS, c"_G");
    lua_pushvalue(l, -1);
    let globals = luaL_ref(l, REGISTRY);
    lua_replace(l, GLOBALS);

    let loading = if is_for_functions { library::globals(l, version) } else { 0 };
    l.push_function(on_error);
    let handler = luaL_ref(l, REGISTRY);
    Sandbox { globals, behind, loading, handler }
}

/// `("").method` works, and shows no table that can be changed.
fn protect_strings(l: Stack) {
    l.push_bytes(b"");
    if lua_getmetatable(l, -1) != 0 {
        // What `getmetatable("")` gives.
        lua_createtable(l, 0, 1);
        l.field(GLOBALS, c"string");
        push_proxy(l);
        l.set_field(-2, c"__index");
        push_proxy(l);
        l.set_field(-2, c"__metatable");
        l.pop(1);
    }
    l.pop(1);
}

/// Makes a table of each error, with the place that raised it: for a function of C, that of its caller.
extern "C-unwind" fn on_error(l: Stack) -> c_int {
    use crate::shared::Name;
    let shared = l.shared();
    lua_settop(l, 1);
    if lua_type(l, 1) != TABLE {
        lua_createtable(l, 0, 3);
        shared.push_name(l, Name::Err);
        match lua_type(l, 1) {
            STRING | NUMBER => {
                l.push_bytes(b"ERR ");
                lua_pushvalue(l, 1);
                lua_concat(l, 2);
            }
            _ => {
                // Lua's own words for the value.
                l.push_bytes(b"ERR ");
                l.field(GLOBALS, c"tostring");
                lua_pushvalue(l, 1);
                if lua_pcall(l, 1, 1, 0) != 0 || lua_isstring(l, -1) == 0 {
                    l.pop(1);
                    l.push_bytes(b"?");
                }
                lua_concat(l, 2);
            }
        }
        lua_rawset(l, -3);
    }
    let place = match l.position(1) {
        Some((_, _, true)) => l.position(2),
        place => place,
    };
    // A proxy stays as it is.
    if let Some((source, line, _)) = place
        && shared.target_of(lua_topointer(l, -1)).is_none()
    {
        shared.push_name(l, Name::Source);
        l.push_bytes(source);
        lua_rawset(l, -3);
        shared.push_name(l, Name::Line);
        lua_pushnumber(l, f64::from(line));
        lua_rawset(l, -3);
    }
    1
}
