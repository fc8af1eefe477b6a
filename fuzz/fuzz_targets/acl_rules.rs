//! Words of ACL SETUSER and lines of an ACL file from any bytes: no panic, a refused word changes nothing, and what is
//! written is read back as the same rights.

#![no_main]

use duramen_server::acl::commands::Commands;
use duramen_server::acl::file;
use duramen_server::acl::user::{Rules, merge_selectors};
use duramen_server::redis::command::{OwnedArgs, table};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static COMMANDS: LazyLock<Commands> =
    LazyLock::new(|| Commands::of(table().all().map(|entry| &entry.spec)));

const KEYS: [&[u8]; 5] = [b"a", b"ab", b"", b"*", b"key:1"];

/// The rights of both are the same, for each of some commands and keys.
fn compare(one: &Rules, other: &Rules) {
    assert_eq!(one.describe(), other.describe(), "the description");
    // 7: has no divisor in common with the lengths of the groups of commands.
    for entry in table().all().step_by(7) {
        for key in KEYS {
            let all = [entry.spec.name.as_bytes(), key, b"1"];
            let owned = OwnedArgs::of(&all);
            let check = |rules: &Rules| rules.check(&entry.spec, entry.index, owned.args());
            assert_eq!(check(one), check(other), "{} {}", entry.spec.name, key.escape_ascii());
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&head, input)) = data.split_first() else { return };
    let all_channels = head & 1 == 0;
    if head & 2 == 0 {
        // A whole file. What it gives is written and read again.
        let Ok(read) = file::parse(input, "file", &COMMANDS, all_channels) else { return };
        let lines = read.iter().map(|(name, rules)| [b"user ", &**name, b" ", &*rules.describe(), b"\n"].concat());
        let text = lines.collect::<Vec<_>>().concat();
        let again = file::parse(&text, "file", &COMMANDS, all_channels);
        let again = again.unwrap_or_else(|error| panic!("{}: {error}", text.escape_ascii()));
        assert_eq!(read.len(), again.len(), "the users");
        for (name, rules) in &read {
            compare(rules, &again[name]);
        }
        return;
    }
    let words: Vec<&[u8]> = input.split(|byte| *byte == b' ').collect();
    let Ok(words) = merge_selectors(&words) else { return };
    let mut rules = Rules::new(&COMMANDS, all_channels);
    for word in &words {
        let before = rules.clone();
        if rules.set(&COMMANDS, word, all_channels).is_err() {
            compare(&rules, &before);
        }
    }
    let text = [b"user u ", &*rules.describe(), b"\n"].concat();
    let read = file::parse(&text, "file", &COMMANDS, all_channels);
    let read = read.unwrap_or_else(|error| panic!("{}: {error}", text.escape_ascii()));
    compare(&rules, &read[&b"u"[..]]);
});
