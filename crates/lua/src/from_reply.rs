//! A command's reply as a value of Lua.
//!
//! | reply | in Lua |
//! |---|---|
//! | integer, bulk string, array | number, string, table |
//! | status, error | `{ok = …}`, `{err = …}` |
//! | null of RESP2 | `false` |
//! | null of RESP3 | `nil` |
//! | boolean | boolean |
//! | map, set | `{map = {…}}`, `{set = {x = true, …}}` |
//! | double, big number | `{double = …}`, `{big_number = …}` |
//! | verbatim string | `{verbatim_string = {format = …, string = …}}` |
//! | attribute | nothing, and the value after it |

use crate::ffi::*;
use crate::shared::{Name, mark_counted, push_error};
use duramen_resp::number::integer;
use std::ffi::c_int;

/// More slots than one value needs besides those within it.
const SLOTS: c_int = 6;

/// Pushes the value of one reply. May raise: memory.
///
/// What is no reply is pushed as `false`: the host writes replies.
pub fn push(l: Stack, reply: &[u8]) {
    if value(l, reply).is_none() {
        lua_pushboolean(l, 0);
    }
}

/// Pushes the first value, and gives the bytes after it.
fn value(l: Stack, bytes: &[u8]) -> Option<&[u8]> {
    if lua_checkstack(l, SLOTS) == 0 {
        return None;
    }
    let (&sign, rest) = bytes.split_first()?;
    let (line, rest) = line(rest)?;
    let shared = l.shared();
    match sign {
        b':' => lua_pushnumber(l, integer(line)? as f64),
        b'+' => {
            lua_createtable(l, 0, 1);
            shared.push_name(l, Name::Ok);
            l.push_bytes(line);
            lua_rawset(l, -3);
        }
        b'-' => {
            // With its sign, which says that a code comes first.
            push_error(l, &bytes[..line.len() + 1]);
            mark_counted(l);
        }
        b'$' => match usize::try_from(integer(line)?) {
            Ok(count) => {
                l.push_bytes(rest.get(..count)?);
                return rest.get(count + 2..);
            }
            Err(_) => lua_pushboolean(l, 0),
        },
        b'*' => match usize::try_from(integer(line)?) {
            Ok(count) => return array(l, rest, count),
            Err(_) => lua_pushboolean(l, 0),
        },
        b'_' => lua_pushnil(l),
        b'#' => lua_pushboolean(l, c_int::from(line == b"t")),
        b',' => {
            lua_createtable(l, 0, 1);
            shared.push_name(l, Name::Double);
            lua_pushnumber(l, double(line)?);
            lua_rawset(l, -3);
        }
        b'(' => {
            lua_createtable(l, 0, 1);
            shared.push_name(l, Name::BigNumber);
            l.push_bytes(line);
            lua_rawset(l, -3);
        }
        b'=' => {
            let count = usize::try_from(integer(line)?).ok()?;
            let (format, text) = rest.get(..count)?.split_at_checked(4)?;
            lua_createtable(l, 0, 1);
            shared.push_name(l, Name::VerbatimString);
            lua_createtable(l, 0, 2);
            shared.push_name(l, Name::String);
            l.push_bytes(text);
            lua_rawset(l, -3);
            shared.push_name(l, Name::Format);
            l.push_bytes(&format[..3]);
            lua_rawset(l, -3);
            lua_rawset(l, -3);
            return rest.get(count + 2..);
        }
        b'%' => return pairs(l, rest, usize::try_from(integer(line)?).ok()?),
        b'~' => return set(l, rest, usize::try_from(integer(line)?).ok()?),
        b'|' => {
            let mut rest = rest;
            for _ in 0..usize::try_from(integer(line)?).ok()? * 2 {
                rest = value(l, rest)?;
                l.pop(1);
            }
            return value(l, rest);
        }
        _ => return None,
    }
    Some(rest)
}

fn array(l: Stack, mut rest: &[u8], count: usize) -> Option<&[u8]> {
    // A value takes four bytes at least, so a wrong count takes no more memory than the reply.
    lua_createtable(l, c_int::try_from(count.min(rest.len() / 3)).ok()?, 0);
    for at in 1..=count {
        rest = value(l, rest)?;
        lua_rawseti(l, -2, at as c_int);
    }
    Some(rest)
}

fn pairs(l: Stack, mut rest: &[u8], count: usize) -> Option<&[u8]> {
    lua_createtable(l, 0, 1);
    l.shared().push_name(l, Name::Map);
    lua_createtable(l, 0, c_int::try_from(count.min(rest.len() / 6)).ok()?);
    for _ in 0..count {
        rest = value(l, rest)?;
        rest = value(l, rest)?;
        set_pair(l);
    }
    lua_rawset(l, -3);
    Some(rest)
}

fn set(l: Stack, mut rest: &[u8], count: usize) -> Option<&[u8]> {
    lua_createtable(l, 0, 1);
    l.shared().push_name(l, Name::Set);
    lua_createtable(l, 0, c_int::try_from(count.min(rest.len() / 3)).ok()?);
    for _ in 0..count {
        rest = value(l, rest)?;
        lua_pushboolean(l, 1);
        set_pair(l);
    }
    lua_rawset(l, -3);
    Some(rest)
}

/// Sets the key and the value on top in the table below; a key that a table cannot have is dropped.
fn set_pair(l: Stack) {
    match lua_type(l, -2) {
        NIL => l.pop(2),
        _ => lua_rawset(l, -3),
    }
}

/// The bytes before and after the next line end.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\r')?;
    Some((&bytes[..end], bytes.get(end + 2..)?))
}

fn double(line: &[u8]) -> Option<f64> {
    std::str::from_utf8(line).ok()?.parse().ok()
}
