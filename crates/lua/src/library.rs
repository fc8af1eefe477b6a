//! `redis.register_function`: what a library of functions does while it is loaded.

use crate::api;
use crate::ffi::*;
use crate::flags::ScriptFlags;
use crate::proxy::{push_nonexistent, push_proxy};
use crate::registered::Registered;
use crate::shared::{push_error, raise_ending};
use std::ffi::c_int;

/// Pushes nothing: makes the globals of a library that is being loaded, and gives their place in the registry. It has
/// nothing but `redis`, and of that what needs no keys. Raises only for lack of memory.
pub fn globals(l: Stack, version: (&str, u32)) -> c_int {
    lua_createtable(l, 0, 1);
    lua_createtable(l, 0, 16);
    api::set_functions(l, &[(c"register_function", register_function)]);
    api::set_log_and_version(l, version);
    push_nonexistent(l);
    lua_setmetatable(l, -2);
    push_proxy(l);
    l.set_field(-2, c"redis");
    push_nonexistent(l);
    lua_setmetatable(l, -2);
    luaL_ref(l, REGISTRY)
}

extern "C-unwind" fn register_function(l: Stack) -> c_int {
    raise_ending(l);
    let is_loading = l.shared().loading.borrow().is_some();
    let error = match is_loading {
        false => Err("redis.register_function can only be called on FUNCTION LOAD command"),
        true => register(l),
    };
    match error {
        Ok(()) => 0,
        Err(error) => {
            push_error(l, error.as_bytes());
            lua_error(l)
        }
    }
}

/// Registers the function of the arguments. May raise, so what it owns is in `Shared`.
fn register(l: Stack) -> Result<(), &'static str> {
    match lua_gettop(l) {
        1 => by_name(l),
        2 => by_place(l),
        _ => Err("wrong number of arguments to redis.register_function"),
    }
}

fn by_place(l: Stack) -> Result<(), &'static str> {
    if lua_isstring(l, 1) == 0 {
        return Err("first argument to redis.register_function must be a string");
    }
    if lua_type(l, 2) != FUNCTION {
        return Err("second argument to redis.register_function must be a function");
    }
    l.text_at(1);
    add(l, 1, 0, 2, ScriptFlags::default())
}

fn by_name(l: Stack) -> Result<(), &'static str> {
    if lua_type(l, 1) != TABLE {
        return Err(
            "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
        );
    }
    // Places for the name, the description and the callback.
    lua_settop(l, 4);
    let mut flags = ScriptFlags::default();
    lua_pushnil(l);
    while lua_next(l, 1) != 0 {
        if lua_type(l, -2) == NUMBER {
            return Err("unknown argument given to redis.register_function");
        }
        if lua_type(l, -2) != STRING {
            return Err("named argument key given to redis.register_function is not a string");
        }
        let key = l.bytes_at(-2).unwrap_or_default();
        let is = |name: &str| key.eq_ignore_ascii_case(name.as_bytes());
        if is("function_name") {
            if l.text_at(-1).is_none() {
                return Err("function_name argument given to redis.register_function must be a string");
            }
            lua_pushvalue(l, -1);
            lua_replace(l, 2);
        } else if is("description") {
            if l.text_at(-1).is_none() {
                return Err("description argument given to redis.register_function must be a string");
            }
            lua_pushvalue(l, -1);
            lua_replace(l, 3);
        } else if is("callback") {
            if lua_type(l, -1) != FUNCTION {
                return Err("callback argument given to redis.register_function must be a function");
            }
            lua_pushvalue(l, -1);
            lua_replace(l, 4);
        } else if is("flags") {
            if lua_type(l, -1) != TABLE {
                return Err(
                    "flags argument to redis.register_function must be a table representing function flags",
                );
            }
            flags = read_flags(l).ok_or("unknown flag given")?;
        } else {
            return Err("unknown argument given to redis.register_function");
        }
        l.pop(1);
    }
    if lua_type(l, 2) == NIL {
        return Err("redis.register_function must get a function name argument");
    }
    if lua_type(l, 4) == NIL {
        return Err("redis.register_function must get a callback argument");
    }
    let description = if lua_type(l, 3) == NIL { 0 } else { 3 };
    add(l, 2, description, 4, flags)
}

/// The flags of the table on top.
fn read_flags(l: Stack) -> Option<ScriptFlags> {
    let mut flags = ScriptFlags::default();
    let mut at = 1;
    loop {
        lua_rawgeti(l, -1, at);
        if lua_type(l, -1) == NIL {
            l.pop(1);
            return Some(flags);
        }
        flags = flags.with(ScriptFlags::named(l.text_at(-1)?, true)?);
        l.pop(1);
        at += 1;
    }
}

/// Adds a function whose name, description (0: none) and callback are at these places. Raises nothing after the first of
/// its own values is made.
fn add(
    l: Stack,
    name: c_int,
    description: c_int,
    callback: c_int,
    flags: ScriptFlags,
) -> Result<(), &'static str> {
    let text = l.bytes_at(name).unwrap_or_default();
    if !is_name(text) {
        return Err(
            "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        );
    }
    let is_known = l
        .shared()
        .loading
        .borrow()
        .as_ref()
        .is_some_and(|loading| loading.functions.iter().any(|function| function.name == text));
    if is_known {
        return Err("Function already exists in the library");
    }
    lua_pushvalue(l, callback);
    let reference = luaL_ref(l, REGISTRY);
    let description = if description == 0 { None } else { l.bytes_at(description).map(<[u8]>::to_vec) };
    let function = Registered { name: text.to_vec(), description, flags, reference };
    if let Some(loading) = &mut *l.shared().loading.borrow_mut() {
        loading.functions.push(function);
    }
    Ok(())
}

/// Whether a library or a function may have this name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
