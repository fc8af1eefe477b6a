//! Tables that scripts can read and not change.
//!
//! Lua 5.1 has none. So scripts see *proxies*: empty tables whose metatable reads from the table behind and refuses
//! writes.

use crate::ffi::*;
use crate::shared::{Proxy, raise_text};
use std::ffi::c_int;

/// Replaces the table on top by a proxy of it.
pub fn push_proxy(l: Stack) {
    push_proxy_with(l, |l| lua_pushboolean(l, 0));
}

/// The same for globals: their metatable can be looked at, as in Redis.
pub fn push_proxy_of_globals(l: Stack) {
    push_proxy_with(l, |l| {
        push_nonexistent(l);
        push_proxy(l);
    });
}

fn push_proxy_with(l: Stack, push_metatable: fn(Stack)) {
    // target ─► target, proxy, metatable
    lua_createtable(l, 0, 0);
    lua_createtable(l, 0, 3);
    lua_pushvalue(l, -3);
    l.set_field(-2, c"__index");
    l.push_function(refuse_write);
    l.set_field(-2, c"__newindex");
    push_metatable(l);
    l.set_field(-2, c"__metatable");
    lua_setmetatable(l, -2);
    lua_pushvalue(l, -2);
    let target = luaL_ref(l, REGISTRY);
    // It lives as long as the state, since the target does not go and it is never dropped.
    lua_pushvalue(l, -1);
    luaL_ref(l, REGISTRY);
    l.shared().proxies.borrow_mut().push(Proxy { shown: lua_topointer(l, -1), target });
    lua_remove(l, -2);
}

/// A metatable that raises for what is not there.
pub fn push_nonexistent(l: Stack) {
    lua_createtable(l, 0, 1);
    l.push_function(nonexistent);
    l.set_field(-2, c"__index");
}

extern "C-unwind" fn refuse_write(l: Stack) -> c_int {
    raise_text(l, READ_ONLY)
}

/// Redis's error.
pub const READ_ONLY: &[u8] = b"Attempt to modify a readonly table";

extern "C-unwind" fn nonexistent(l: Stack) -> c_int {
    if lua_gettop(l) != 2 {
        return raise_text(l, b"Wrong number of arguments to luaProtectedTableError");
    }
    let Some(name) = l.text_at(2) else {
        return raise_text(l, b"Second argument to luaProtectedTableError must be a string or number");
    };
    luaL_where(l, 1);
    l.push_bytes(b"Script attempted to access nonexistent global variable '");
    l.push_bytes(name);
    l.push_bytes(b"'");
    lua_concat(l, 4);
    lua_error(l)
}
