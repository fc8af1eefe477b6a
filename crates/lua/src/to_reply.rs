//! A script's value as its reply: the other direction of [`from_reply`](crate::from_reply).
//!
//! A table is what its fields say, in this order: `err`, `ok`, `double`, `big_number`, `verbatim_string`, `map`, `set`;
//! else it is an array up to its first nil. Numbers lose what is after the point.

use crate::ffi::*;
use crate::host::Replies;
use crate::shared::Name;
use std::ffi::c_int;

/// Slots that a table needs at most, besides those of what is in it.
const SLOTS: c_int = 6;
/// Tables within tables. Beyond, and where Lua's stack ends, Redis's error takes the place of the rest.
const DEPTH_MAX: usize = 1000;

/// Writes the value on top, and pops it. May raise: memory.
pub fn write(l: Stack, out: &mut dyn Replies, is_resp3: bool) {
    value(l, out, is_resp3, 0);
}

fn value(l: Stack, out: &mut dyn Replies, is_resp3: bool, depth: usize) {
    if depth == DEPTH_MAX || lua_checkstack(l, SLOTS) == 0 {
        out.error(b"ERR reached lua stack limit", false);
        return l.pop(1);
    }
    match lua_type(l, -1) {
        STRING => out.bulk(l.bytes_at(-1).unwrap_or_default()),
        BOOLEAN => match (is_resp3, lua_toboolean(l, -1) != 0) {
            (true, value) => out.boolean(value),
            (false, true) => out.integer(1),
            (false, false) => out.null(),
        },
        NUMBER => out.integer(truncated(lua_tonumber(l, -1))),
        TABLE => table(l, out, is_resp3, depth + 1),
        _ => out.null(),
    }
    l.pop(1);
}

/// As C casts on the machines where Redis runs: what does not fit is the least integer.
const fn truncated(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if number >= -LIMIT && number < LIMIT { number as i64 } else { i64::MIN }
}

/// Writes the table on top.
fn table(l: Stack, out: &mut dyn Replies, is_resp3: bool, depth: usize) {
    if field(l, Name::Err) == STRING {
        let is_counted = {
            l.shared().push_name(l, Name::IsCounted);
            lua_rawget(l, -3);
            let is_counted = lua_toboolean(l, -1) != 0;
            l.pop(1);
            is_counted
        };
        out.error(c_text(l.bytes_at(-1).unwrap_or_default()), is_counted);
        return l.pop(1);
    }
    l.pop(1);
    if field(l, Name::Ok) == STRING {
        out.status(c_text(l.bytes_at(-1).unwrap_or_default()));
        return l.pop(1);
    }
    l.pop(1);
    if field(l, Name::Double) == NUMBER {
        out.double(lua_tonumber(l, -1));
        return l.pop(1);
    }
    l.pop(1);
    if field(l, Name::BigNumber) == STRING {
        out.big_number(l.bytes_at(-1).unwrap_or_default());
        return l.pop(1);
    }
    l.pop(1);
    if field(l, Name::VerbatimString) == TABLE {
        if field(l, Name::Format) == STRING {
            l.shared().push_name(l, Name::String);
            lua_rawget(l, -3);
            if let (Some(format), Some(text)) = (l.bytes_at(-2), l.bytes_at(-1)) {
                out.verbatim(c_text(format), text);
                return l.pop(3);
            }
            l.pop(1);
        }
        l.pop(1);
    }
    l.pop(1);
    if field(l, Name::Map) == TABLE {
        out.map(count(l));
        lua_pushnil(l);
        while lua_next(l, -2) != 0 {
            lua_pushvalue(l, -2);
            value(l, out, is_resp3, depth);
            value(l, out, is_resp3, depth);
        }
        return l.pop(1);
    }
    l.pop(1);
    if field(l, Name::Set) == TABLE {
        out.set(count(l));
        lua_pushnil(l);
        while lua_next(l, -2) != 0 {
            l.pop(1);
            lua_pushvalue(l, -1);
            value(l, out, is_resp3, depth);
        }
        return l.pop(1);
    }
    l.pop(1);
    let mut length = 0;
    loop {
        lua_rawgeti(l, -1, length + 1);
        let is_end = lua_type(l, -1) == NIL;
        l.pop(1);
        if is_end {
            break;
        }
        length += 1;
    }
    out.array(length as usize);
    for at in 1..=length {
        lua_rawgeti(l, -1, at);
        value(l, out, is_resp3, depth);
    }
}

/// Pushes a field of the table on top, and gives its type.
fn field(l: Stack, name: Name) -> c_int {
    l.shared().push_name(l, name);
    lua_rawget(l, -2);
    lua_type(l, -1)
}

/// The entries of the table on top.
fn count(l: Stack) -> usize {
    let mut count = 0;
    lua_pushnil(l);
    while lua_next(l, -2) != 0 {
        l.pop(1);
        count += 1;
    }
    count
}

/// The text up to its first zero, as C reads it.
fn c_text(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}
