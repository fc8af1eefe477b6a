//! Functions of Lua's own that are different here: they know proxies, refuse compiled code, and do not stop an end.

use crate::ffi::*;
use crate::proxy::READ_ONLY;
use crate::shared::{Name, raise_ending, raise_text};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The first byte of compiled code.
const COMPILED: u8 = 0x1b;

const FUNCTIONS: [(&CStr, CFunction); 11] = [
    (c"getmetatable", get_metatable),
    (c"setmetatable", set_metatable),
    (c"rawset", raw_set),
    (c"rawget", raw_get),
    (c"next", next),
    (c"pairs", pairs),
    (c"pcall", protected_call),
    (c"xpcall", protected_call_handled),
    (c"loadstring", load_string),
    (c"load", load),
    (c"collectgarbage", collect_garbage),
];

/// Replaces them.
pub fn replace(l: Stack) {
    for (name, function) in FUNCTIONS {
        l.push_function(function);
        l.set_field(GLOBALS, name);
    }
    l.field(GLOBALS, c"table");
    l.push_function(table_insert);
    l.set_field(-2, c"insert");
    l.pop(1);
}

/// Raises if the argument is a proxy. Redis's error has no position here: the function is C's.
fn refuse_proxy(l: Stack, at: c_int) {
    if l.shared().target_of(lua_topointer(l, at)).is_some() {
        l.push_bytes(READ_ONLY);
        lua_error(l);
    }
}

/// Puts the target in the place of a proxy.
fn resolve_proxy(l: Stack, at: c_int) {
    // Few tables have a metatable, and every proxy has one.
    if lua_getmetatable(l, at) == 0 {
        return;
    }
    l.pop(1);
    if let Some(target) = l.shared().target_of(lua_topointer(l, at)) {
        lua_rawgeti(l, REGISTRY, target);
        lua_replace(l, at);
    }
}

extern "C-unwind" fn set_metatable(l: Stack) -> c_int {
    let kind = lua_type(l, 2);
    luaL_checktype(l, 1, TABLE);
    if kind != NIL && kind != TABLE {
        return l.wrong_argument(2, c"nil or table expected");
    }
    refuse_proxy(l, 1);
    if lua_getmetatable(l, 1) != 0 {
        l.push_bytes(b"__metatable");
        lua_rawget(l, -2);
        if lua_type(l, -1) != NIL {
            return raise_text(l, b"cannot change a protected metatable");
        }
    }
    lua_settop(l, 2);
    lua_setmetatable(l, 1);
    1
}

extern "C-unwind" fn get_metatable(l: Stack) -> c_int {
    luaL_checkany(l, 1);
    if lua_getmetatable(l, 1) == 0 {
        lua_pushnil(l);
        return 1;
    }
    l.push_bytes(b"__metatable");
    lua_rawget(l, -2);
    match lua_type(l, -1) {
        NIL => l.pop(1),
        // A proxy's, which scripts do not see.
        BOOLEAN if l.shared().target_of(lua_topointer(l, 1)).is_some() => lua_pushnil(l),
        _ => {}
    }
    1
}

extern "C-unwind" fn raw_set(l: Stack) -> c_int {
    luaL_checktype(l, 1, TABLE);
    luaL_checkany(l, 2);
    luaL_checkany(l, 3);
    refuse_proxy(l, 1);
    lua_settop(l, 3);
    check_key(l, 2);
    lua_rawset(l, 1);
    1
}

/// `lua_rawset` takes every key; as a metamethod it would raise for these.
fn check_key(l: Stack, at: c_int) {
    if lua_type(l, at) == NIL {
        raise_text(l, b"table index is nil");
    }
    if lua_type(l, at) == NUMBER && lua_tonumber(l, at).is_nan() {
        raise_text(l, b"table index is NaN");
    }
}

extern "C-unwind" fn raw_get(l: Stack) -> c_int {
    luaL_checktype(l, 1, TABLE);
    luaL_checkany(l, 2);
    lua_settop(l, 2);
    resolve_proxy(l, 1);
    lua_rawget(l, 1);
    1
}

extern "C-unwind" fn next(l: Stack) -> c_int {
    luaL_checktype(l, 1, TABLE);
    lua_settop(l, 2);
    resolve_proxy(l, 1);
    if lua_next(l, 1) != 0 {
        return 2;
    }
    lua_pushnil(l);
    1
}

extern "C-unwind" fn pairs(l: Stack) -> c_int {
    luaL_checktype(l, 1, TABLE);
    l.push_function(next);
    lua_pushvalue(l, 1);
    lua_pushnil(l);
    3
}

extern "C-unwind" fn table_insert(l: Stack) -> c_int {
    luaL_checktype(l, 1, TABLE);
    refuse_proxy(l, 1);
    // Of an `int`, as Lua's.
    let end = lua_objlen(l, 1) as c_int + 1;
    let place = match lua_gettop(l) {
        2 => end,
        3 => {
            let place = luaL_checkinteger(l, 2) as c_int;
            let mut at = end.max(place);
            while at > place {
                lua_rawgeti(l, 1, at - 1);
                lua_rawseti(l, 1, at);
                at -= 1;
            }
            place
        }
        _ => return raise_text(l, b"wrong number of arguments to 'insert'"),
    };
    lua_rawseti(l, 1, place);
    0
}

/// `pcall`; as in Redis, an error that is a reply comes as its text.
extern "C-unwind" fn protected_call(l: Stack) -> c_int {
    luaL_checkany(l, 1);
    lua_pushboolean(l, 1);
    lua_insert(l, 1);
    if lua_pcall(l, lua_gettop(l) - 2, MULTIPLE, 0) != 0 {
        raise_ending(l);
        if lua_type(l, -1) == TABLE {
            l.shared().push_name(l, Name::Err);
            lua_rawget(l, -2);
            match lua_isstring(l, -1) {
                0 => l.pop(1),
                _ => lua_replace(l, -2),
            }
        }
        lua_pushboolean(l, 0);
        lua_replace(l, 1);
    }
    lua_gettop(l)
}

extern "C-unwind" fn protected_call_handled(l: Stack) -> c_int {
    luaL_checkany(l, 2);
    lua_settop(l, 2);
    lua_insert(l, 1);
    let failed = lua_pcall(l, 0, MULTIPLE, 1);
    raise_ending(l);
    lua_pushboolean(l, c_int::from(failed == 0));
    lua_replace(l, 1);
    lua_gettop(l)
}

/// Collecting and counting; the collector's own settings stay as they are.
extern "C-unwind" fn collect_garbage(l: Stack) -> c_int {
    let option = match lua_type(l, 1) {
        NONE | NIL => b"collect",
        _ => l.check_bytes(1),
    };
    let argument = if lua_type(l, 2) == NUMBER { lua_tonumber(l, 2) as c_int } else { 0 };
    match option {
        // See `at_rest`.
        b"collect" | b"step" if l.shared().compiling.get() > 0 => lua_pushnumber(l, 0.0),
        b"collect" => lua_pushnumber(l, f64::from(l.gc(GC_COLLECT, 0))),
        b"count" => {
            let bytes = f64::from(l.gc(GC_COUNT, 0)) + f64::from(l.gc(GC_COUNT_BYTES, 0)) / 1024.0;
            lua_pushnumber(l, bytes);
        }
        b"step" => lua_pushboolean(l, l.gc(GC_STEP, argument)),
        b"stop" | b"restart" => lua_pushnumber(l, 0.0),
        b"setpause" | b"setstepmul" => lua_pushnumber(l, 200.0),
        _ => return l.wrong_argument(1, c"invalid option"),
    }
    1
}

/// Source text in one piece.
pub struct Text<'t> {
    left: Option<&'t [u8]>,
    begins: bool,
}

impl<'t> Text<'t> {
    /// All of `text`.
    pub const fn new(text: &'t [u8]) -> Self {
        Self { left: Some(text), begins: true }
    }
}

/// Gives a `Text` to the compiler. Before what looks like compiled code goes a space, so that it is read as text.
pub extern "C-unwind" fn read_text(_: Stack, context: *mut c_void, count: *mut usize) -> *const c_char {
    // SAFETY: whoever loads with this reader gives it a `Text`, which is used by nobody else meanwhile.
    let text = unsafe { &mut *context.cast::<Text<'_>>() };
    let is_first = std::mem::replace(&mut text.begins, false);
    let piece = match text.left {
        Some(left) if is_first && left.first() == Some(&COMPILED) => b" ",
        Some(left) => {
            text.left = None;
            left
        }
        None => b"",
    };
    // SAFETY: `count` is a place for the length.
    unsafe { *count = piece.len() };
    piece.as_ptr().cast()
}

/// Compiles a text, to a function on top; else to an error's text.
pub fn compile(l: Stack, text: &[u8], name: *const c_char) -> c_int {
    let mut text = Text::new(text);
    at_rest(l, || {
        // SAFETY: the reader takes a `Text`; the name ends with a zero: the caller got it from Lua, or wrote it.
        unsafe { l.load(read_text, (&raw mut text).cast(), name) }
    })
}

/// Compiles with the collector at rest: in 5.1 the parser does not keep the name of what it reads alive.
fn at_rest(l: Stack, compile: impl FnOnce() -> c_int) -> c_int {
    let compiling = &l.shared().compiling;
    compiling.set(compiling.get() + 1);
    l.gc(GC_STOP, 0);
    // Errors, also of a function that gives pieces, come back as a result.
    let failed = compile();
    compiling.set(compiling.get() - 1);
    if compiling.get() == 0 {
        l.gc(GC_RESTART, 0);
    }
    failed
}

extern "C-unwind" fn load_string(l: Stack) -> c_int {
    let text = l.check_bytes(1);
    let name = l.optional_name(2, text.as_ptr().cast());
    let failed = compile(l, text, name);
    loaded(l, failed)
}

extern "C-unwind" fn load(l: Stack) -> c_int {
    let name = l.optional_name(2, c"=(load)".as_ptr());
    luaL_checktype(l, 1, FUNCTION);
    // A place for the piece that is read: it stays until the next.
    lua_settop(l, 3);
    lua_pushboolean(l, 1);
    lua_replace(l, 3);
    let failed = at_rest(l, || {
        // SAFETY: the reader takes no context; the name ends with a zero, as Lua's strings do.
        unsafe { l.load(read_pieces, std::ptr::null_mut(), name) }
    });
    loaded(l, failed)
}

fn loaded(l: Stack, failed: c_int) -> c_int {
    raise_ending(l);
    if failed == 0 {
        return 1;
    }
    lua_pushnil(l);
    lua_insert(l, -2);
    2
}

/// Calls the function that gives the pieces. Place 3 is `true` before the first one.
extern "C-unwind" fn read_pieces(l: Stack, _: *mut c_void, count: *mut usize) -> *const c_char {
    let give = |piece: &[u8]| {
        // SAFETY: `count` is a place for the length.
        unsafe { *count = piece.len() };
        piece.as_ptr().cast::<c_char>()
    };
    let is_first = lua_type(l, 3) == BOOLEAN;
    lua_pushvalue(l, 1);
    lua_call(l, 0, 1);
    if lua_type(l, -1) == NIL {
        l.pop(1);
        return std::ptr::null();
    }
    let Some(piece) = l.text_at(-1) else {
        raise_text(l, b"reader function must return a string");
        return std::ptr::null();
    };
    if is_first && piece.first() == Some(&COMPILED) {
        l.push_bytes(b"reader function must return source text");
        lua_error(l);
    }
    lua_replace(l, 3);
    give(piece)
}
