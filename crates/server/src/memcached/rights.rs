//! The rights of a user in memcached's protocols: those of the Redis commands that do the same.
//!
//! | here | right |
//! |---|---|
//! | get, gets, mg, me | GET of each key |
//! | gat, gats, touch; mg with N or T | GET, and EXPIRE or SET, of each key |
//! | set, add, replace, cas, append, prepend, ms | SET of the key |
//! | incr, decr, ma | INCRBY of the key |
//! | delete, md | DEL of the key |
//! | flush_all; stats; a listing of all keys; shutdown | FLUSHALL; INFO; KEYS; SHUTDOWN |
//! | other commands that change the server | CONFIG SET |

use super::base64;
use super::line::Words;
use crate::acl::{Login, Users};
use crate::redis::command::KeyFlags;

/// The line that answers what the user may not.
pub const DENIED: &[u8] = b"CLIENT_ERROR access denied";

const READS: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);
const WRITES: KeyFlags = KeyFlags::OW.with(KeyFlags::UPDATE);
const CHANGES: KeyFlags = KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE);

/// What a command does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Reads it.
    Read,
    /// Replaces it.
    Store,
    /// Reads or changes a number.
    Count,
    /// Removes it.
    Delete,
    /// Reads it, and changes its expiry.
    Touch,
}

/// What a command does without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Removes all items.
    Flush,
    /// Shows counters.
    Stats,
    /// Lists keys.
    List,
    /// Ends the server.
    Shutdown,
    /// Changes settings.
    Configure,
}

/// Whether the user may use a key so.
pub fn may_use(login: &mut Login, users: &Users, used: Use, key: &[u8]) -> bool {
    let (command, flags) = match used {
        Use::Read => ("get", READS),
        Use::Store => ("set", WRITES),
        Use::Count => ("incrby", CHANGES),
        Use::Delete => ("del", KeyFlags::RM.with(KeyFlags::DELETE)),
        Use::Touch => ("expire", CHANGES),
    };
    login.may(users, command, Some((key, flags)))
        && (used != Use::Touch || login.may(users, "get", Some((key, flags))))
}

/// Whether the user may do so.
pub fn may_do(login: &mut Login, users: &Users, act: Act) -> bool {
    let command = match act {
        Act::Flush => "flushall",
        Act::Stats => "info",
        Act::List => "keys",
        Act::Shutdown => "shutdown",
        Act::Configure => "config|set",
    };
    login.may(users, command, None)
}

/// Whether the user may run the command of a line.
pub fn may_run(login: &mut Login, users: &Users, line: &[u8]) -> bool {
    let words = Words::of(line);
    let has_flag = |from: usize, letters: &[u8]| {
        words.all().iter().skip(from).any(|word| word.first().is_some_and(|letter| letters.contains(letter)))
    };
    let mut each = |used: Use, from: usize| {
        let mut keys = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).skip(from);
        keys.all(|key| may_use(login, users, used, key))
    };
    let used = match words.at(0) {
        b"get" | b"gets" | b"bget" => return each(Use::Read, 1),
        b"gat" | b"gats" => return each(Use::Touch, 2),
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" | b"ms" => Use::Store,
        b"incr" | b"decr" | b"ma" => Use::Count,
        b"delete" | b"md" => Use::Delete,
        b"touch" => Use::Touch,
        b"mg" if has_flag(2, b"N") => {
            return may_use_meta(login, users, Use::Store, &words, 2)
                && may_use_meta(login, users, Use::Touch, &words, 2);
        }
        b"mg" if has_flag(2, b"T") => Use::Touch,
        b"mg" | b"me" => Use::Read,
        b"flush_all" => return may_do(login, users, Act::Flush),
        b"stats" if matches!(words.at(1), b"cachedump" | b"detail") => {
            return may_do(login, users, Act::List);
        }
        b"stats" => return may_do(login, users, Act::Stats),
        b"lru_crawler" if words.at(1) == b"metadump" => return may_do(login, users, Act::List),
        b"shutdown" => return may_do(login, users, Act::Shutdown),
        b"lru_crawler" | b"lru" | b"slabs" | b"verbosity" | b"cache_memlimit" => {
            return may_do(login, users, Act::Configure);
        }
        // The others show nothing and change nothing.
        _ => return true,
    };
    let flags_from = match words.at(0) {
        b"ms" => 3,
        b"mg" | b"md" | b"ma" | b"me" => 2,
        _ => return may_use(login, users, used, words.at(1)),
    };
    may_use_meta(login, users, used, &words, flags_from)
}

/// The same for a meta command, whose key may be in base64.
fn may_use_meta(login: &mut Login, users: &Users, used: Use, words: &Words<'_>, flags_from: usize) -> bool {
    let is_binary = match words.at(0) {
        b"me" => words.at(2) == b"b",
        _ => words.all().iter().skip(flags_from).any(|word| word.first() == Some(&b'b')),
    };
    if !is_binary {
        return may_use(login, users, used, words.at(1));
    }
    // A key that cannot be decoded is none.
    base64::decode(words.at(1)).is_none_or(|key| may_use(login, users, used, &key))
}
