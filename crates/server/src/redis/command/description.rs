//! Reads `descriptions/`: a file for each group of commands, in which each command and subcommand is described as Redis
//! does.
//!
//! A redis-server of version 7.0 has the descriptions:
//!
//! ```text
//! redis-cli --json command info hset | jq '.[] | {name: .[0], arity: .[1], flags: .[2], first: .[3],
//!     last: .[4], step: .[5], acl: .[6], tips: .[7], key_specs: .[8]}'
//! redis-cli --json command docs hset | jq 'to_entries[] | {name: .key, docs: .value | del(.subcommands)}'
//! ```
//!
//! Only those of CLIENT SETINFO and NO-TOUCH, which are younger, were written by hand. Those of HEXPIRE and its like
//! are Redis 7.4's.

use super::flags::{Categories, Flags};
use super::keys::{Begin, Find, KeyFlags, KeySpec};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

/// The descriptions of each group, by its name.
pub static FILES: [(&str, &str); 16] = [
    ("connection", include_str!("descriptions/connection.json")),
    ("admin", include_str!("descriptions/admin.json")),
    ("string", include_str!("descriptions/string.json")),
    ("bitmap", include_str!("descriptions/bitmap.json")),
    ("hash", include_str!("descriptions/hash.json")),
    ("list", include_str!("descriptions/list.json")),
    ("set", include_str!("descriptions/set.json")),
    ("sorted_set", include_str!("descriptions/sorted_set.json")),
    ("geo", include_str!("descriptions/geo.json")),
    ("hyperloglog", include_str!("descriptions/hyperloglog.json")),
    ("sort", include_str!("descriptions/sort.json")),
    ("stream", include_str!("descriptions/stream.json")),
    ("key", include_str!("descriptions/key.json")),
    ("transaction", include_str!("descriptions/transaction.json")),
    ("pubsub", include_str!("descriptions/pubsub.json")),
    ("scripting", include_str!("descriptions/scripting.json")),
];

/// Redis's description of a command: an entry of a file in `descriptions/`.
#[derive(Clone, Debug)]
pub struct Description {
    /// Number of arguments including the name; negative: at least that many.
    pub arity: i16,
    /// What the command does, and where it is allowed.
    pub flags: Flags,
    /// First and last key and the step between them, for clients that know nothing newer. For display only: keys are
    /// found by `key_specs`.
    pub key_range: [i64; 3],
    /// For `ACL` and `COMMAND LIST`.
    pub categories: Categories,
    /// For proxies and clients of clusters.
    pub tips: Vec<String>,
    /// Where its keys are.
    pub key_specs: Vec<KeySpec>,
}

/// A description as it is written. Its `docs` are read by [`docs`](super::docs).
#[derive(Deserialize)]
struct Written<'a> {
    arity: i16,
    #[serde(borrow)]
    flags: Vec<&'a str>,
    first: i64,
    last: i64,
    step: i64,
    #[serde(borrow)]
    acl: Vec<&'a str>,
    #[serde(borrow)]
    tips: Vec<&'a str>,
    key_specs: Vec<Value>,
}

/// The descriptions of all commands and subcommands, by their names.
///
/// One with an unknown word is left out together with its command; a test finds it.
pub fn by_name() -> HashMap<&'static str, Description> {
    let written = FILES.iter().flat_map(|(_, text)| read(text).unwrap_or_default());
    written.filter_map(|(name, written)| Some((name, description(&written)?))).collect()
}

fn read<'a>(text: &'a str) -> serde_json::Result<HashMap<&'a str, Written<'a>>> {
    serde_json::from_str(text)
}

fn description(written: &Written<'_>) -> Option<Description> {
    let categories: Option<Vec<&str>> =
        written.acl.iter().map(|category| category.strip_prefix('@')).collect();
    Some(Description {
        arity: written.arity,
        flags: Flags::of_names(written.flags.iter().copied())?,
        key_range: [written.first, written.last, written.step],
        categories: Categories::of_names(categories?)?,
        tips: written.tips.iter().map(|tip| (*tip).to_owned()).collect(),
        key_specs: written.key_specs.iter().map(key_spec).collect::<Option<_>>()?,
    })
}

fn words<'a>(value: &'a Value, name: &str) -> Option<Vec<&'a str>> {
    value.get(name)?.as_array()?.iter().map(Value::as_str).collect()
}

fn key_spec(value: &Value) -> Option<KeySpec> {
    let (begin, find) = (value.get("begin_search")?, value.get("find_keys")?);
    let begin_number = |name| begin.get("spec")?.get(name)?.as_i64();
    let find_number = |name| find.get("spec")?.get(name)?.as_i64();
    Some(KeySpec {
        notes: value.get("notes").and_then(Value::as_str).map(str::to_owned),
        flags: KeyFlags::of_names(words(value, "flags")?)?,
        begin: match begin.get("type")?.as_str()? {
            "index" => Begin::Index(begin_number("index")?),
            "keyword" => {
                let word = begin.get("spec")?.get("keyword")?.as_str()?;
                Begin::Keyword(word.to_owned(), begin_number("startfrom")?)
            }
            "unknown" => Begin::Unknown,
            _ => return None,
        },
        find: match find.get("type")?.as_str()? {
            "range" => Find::Range {
                last: find_number("lastkey")?,
                step: find_number("keystep")?,
                limit: find_number("limit")?,
            },
            "keynum" => Find::Number {
                number: find_number("keynumidx")?,
                first: find_number("firstkey")?,
                step: find_number("keystep")?,
            },
            "unknown" => Find::Unknown,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::command::keys::Key;
    use crate::redis::command::{Args, Command, OwnedArgs, Span, Spec, subcommand_unknown, table};

    #[test]
    fn every_description_is_of_a_command_and_formats_unchanged() {
        let descriptions = by_name();
        for (group, text) in FILES {
            for (name, written) in
                read(text).unwrap_or_else(|error| panic!("descriptions/{group}.json: {error}"))
            {
                let entry = table().full_name(name.as_bytes());
                assert!(entry.is_some(), "descriptions/{group}.json describes {name}, which is no command");
                let description = &descriptions[name];
                assert!(description.flags.names().eq(written.flags), "{name}: flags");
                let categories = description.categories.names().map(|category| format!("@{category}"));
                assert!(categories.eq(written.acl), "{name}: categories");
                for (spec, written) in description.key_specs.iter().zip(&written.key_specs) {
                    assert!(spec.flags.names().eq(words(written, "flags").unwrap()), "{name}: flags of keys");
                }
            }
        }
    }

    #[test]
    fn the_key_range_is_that_of_the_only_key_specification() {
        for (name, description) in by_name() {
            let wanted = match *description.key_specs.as_slice() {
                [] => [0, 0, 0],
                [
                    KeySpec {
                        begin: Begin::Index(first), find: Find::Range { last, step, limit: 0 }, ..
                    },
                ] => [first, if last >= 0 { first + last } else { last }, step],
                // Of several it is a part.
                _ => continue,
            };
            assert_eq!(description.key_range, wanted, "{name}");
        }
    }

    fn args(text: &str) -> OwnedArgs {
        let mut start = 0;
        let spans: Vec<Span> = text
            .split(' ')
            .map(|word| {
                let span = Span { start, end: start + word.len() };
                start = span.end + 1;
                span
            })
            .collect();
        Args::new(text.as_bytes(), &spans).to_owned()
    }

    /// The keys of a command described so, with whether they are only read.
    fn keys(key_specs: &str, call: &str) -> Option<Vec<(String, bool)>> {
        let key_specs: Value = serde_json::from_str(key_specs).unwrap();
        let description = Description {
            arity: -1,
            flags: Flags::NONE,
            key_range: [0, 0, 0],
            categories: Categories::NONE,
            tips: Vec::new(),
            key_specs: key_specs.as_array().unwrap().iter().map(|spec| key_spec(spec).unwrap()).collect(),
        };
        let spec = Spec::new(&Command::new("any", subcommand_unknown), description);
        let owned = args(call);
        let told = |Key { index, flags }| {
            (String::from_utf8(owned.args().at(index).to_vec()).unwrap(), flags.has(KeyFlags::RO))
        };
        Some(spec.keys(owned.args())?.map(told).collect())
    }

    fn some(keys: &[(&str, bool)]) -> Option<Vec<(String, bool)>> {
        Some(keys.iter().map(|(key, read)| ((*key).to_owned(), *read)).collect())
    }

    // The specifications are those of redis-server 7.0.15.
    #[test]
    fn keys_are_found_after_a_keyword() {
        let xread = r#"[{"flags":["RO","access"],
            "begin_search":{"type":"keyword","spec":{"keyword":"STREAMS","startfrom":1}},
            "find_keys":{"type":"range","spec":{"lastkey":-1,"keystep":1,"limit":2}}}]"#;
        let found = some(&[("a", true), ("b", true)]);
        assert_eq!(keys(xread, "xread count 2 streams a b 0 0"), found);
        assert_eq!(keys(xread, "xread count 2"), some(&[]));
        assert_eq!(keys(xread, "xread streams"), some(&[]));
        let georadius = r#"[{"flags":["RO","access"],"begin_search":{"type":"index","spec":{"index":1}},
            "find_keys":{"type":"range","spec":{"lastkey":0,"keystep":1,"limit":0}}},
            {"flags":["OW","update"],"begin_search":{"type":"keyword","spec":{"keyword":"STORE","startfrom":6}},
            "find_keys":{"type":"range","spec":{"lastkey":0,"keystep":1,"limit":0}}}]"#;
        assert_eq!(keys(georadius, "georadius store 1 2 3 km asc"), some(&[("store", true)]));
        assert_eq!(keys(georadius, "georadius k 1 2 3 km store d"), some(&[("k", true), ("d", false)]));
        let migrate = r#"[{"flags":["RW"],
            "begin_search":{"type":"keyword","spec":{"keyword":"KEYS","startfrom":-2}},
            "find_keys":{"type":"range","spec":{"lastkey":-1,"keystep":1,"limit":0}}}]"#;
        assert_eq!(keys(migrate, "migrate h 1 0 0 9 keys a b"), some(&[("a", false), ("b", false)]));
    }

    #[test]
    fn keys_are_found_by_their_number() {
        let zunion = r#"[{"flags":["RO","access"],"begin_search":{"type":"index","spec":{"index":1}},
            "find_keys":{"type":"keynum","spec":{"keynumidx":0,"firstkey":1,"keystep":1}}}]"#;
        assert_eq!(keys(zunion, "zunion 2 a b withscores"), some(&[("a", true), ("b", true)]));
        assert_eq!(keys(zunion, "zunion 0 a"), some(&[]));
        for refused in ["3 a b", "-1 a", "x a", "9223372036854775807 a"] {
            assert_eq!(keys(zunion, &format!("zunion {refused}")), None, "{refused}");
        }
        assert_eq!(keys(zunion, "zunion"), None);
    }

    #[test]
    fn keys_that_cannot_be_determined_are_not_guessed() {
        let first = r#"{"flags":["RO"],"begin_search":{"type":"index","spec":{"index":1}},
            "find_keys":{"type":"range","spec":{"lastkey":0,"keystep":1,"limit":0}}}"#;
        let unknown = r#"{"flags":["OW"],"begin_search":{"type":"unknown","spec":{}},
            "find_keys":{"type":"unknown","spec":{}}}"#;
        assert_eq!(keys(&format!("[{first}]"), "sort k store d"), some(&[("k", true)]));
        assert_eq!(keys(&format!("[{first},{unknown}]"), "sort k store d"), None);
        assert_eq!(keys(&format!("[{first}]").replace("RO", "incomplete"), "sort k"), None);
        // A channel is no key.
        assert_eq!(keys(&format!("[{first}]").replace("RO", "not_key"), "spublish c m"), some(&[]));
    }

    // The answers are those of redis-server 7.0.15 to COMMAND GETKEYSANDFLAGS.
    #[test]
    fn the_use_of_a_key_depends_on_the_arguments() {
        let read = KeyFlags::RO.with(KeyFlags::ACCESS);
        let replace = KeyFlags::OW.with(KeyFlags::UPDATE);
        let change = KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE);
        for (call, flags) in [
            ("get k", read),
            ("set k v", replace),
            ("set k get", replace),
            ("set k v get", change),
            ("bitfield k", read),
            ("bitfield k get u8 0 overflow fail get u8 8", read),
            ("bitfield k get set incrby", read),
            ("bitfield k get u8 0 set u8 0 1", change),
            ("bitfield k get u8", change),
            ("bitfield k nonsense", change),
        ] {
            let owned = args(call);
            let spec = &table().find(owned.args()).unwrap().spec;
            let found: Vec<Key> = spec.keys(owned.args()).unwrap().collect();
            assert_eq!(found, [Key { index: 1, flags }], "{call}");
        }
    }
}
