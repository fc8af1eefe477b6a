//! The table of all commands, from the lists of their groups.

use super::{Command, Table};
use super::{
    admin, bitmap, connection, geo, hash, hyperloglog, key, list, pubsub, scripting, set, sort, sorted_set,
    stream, string, transaction,
};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Every group of commands. Each group's module lists its own.
const GROUPS: &[&[Command]] = &[
    connection::COMMANDS,
    admin::COMMANDS,
    string::COMMANDS,
    bitmap::COMMANDS,
    hash::COMMANDS,
    list::COMMANDS,
    set::COMMANDS,
    sorted_set::COMMANDS,
    geo::COMMANDS,
    hyperloglog::COMMANDS,
    sort::COMMANDS,
    stream::COMMANDS,
    key::COMMANDS,
    transaction::COMMANDS,
    pubsub::COMMANDS,
    scripting::COMMANDS,
];

/// The one table.
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::build(GROUPS));
    &TABLE
}

/// Old names and new ones.
type Pairs = Vec<(String, String)>;

/// The table in which commands have other names (`rename-command`).
///
/// # Errors
/// Redis's text.
pub fn table_renamed(pairs: &[(String, String)]) -> Result<&'static Table, String> {
    // Tables stay; so the workers, and later servers of the process, share those of equal pairs.
    static TABLES: Mutex<Vec<(Pairs, &Table)>> = Mutex::new(Vec::new());
    if pairs.is_empty() {
        return Ok(table());
    }
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = tables.iter().find(|(known, _)| known == pairs) {
        return Ok(known);
    }
    let renamed: &'static Table = Box::leak(Box::new(Table::renamed(GROUPS, pairs)?));
    tables.push((pairs.to_vec(), renamed));
    Ok(renamed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::command::description;
    use crate::redis::command::spec::LockSpec;
    use crate::redis::command::{Args, Span, Spec};

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        let table = table();
        for entry in table.commands() {
            let name = entry.spec.name;
            assert!(std::ptr::eq(table.command(name.as_bytes()).unwrap(), entry), "{name}");
            assert!(std::ptr::eq(table.command(name.to_uppercase().as_bytes()).unwrap(), entry), "{name}");
            for sub in &entry.subcommands {
                assert!(std::ptr::eq(table.full_name(sub.spec.name.as_bytes()).unwrap(), sub));
            }
        }
        for (index, entry) in table.all().enumerate() {
            assert!(entry.index == index && std::ptr::eq(table.at(index).unwrap(), entry));
        }
        assert!(table.at(table.count()).is_none());
    }

    #[test]
    fn every_command_is_described() {
        let described = description::by_name();
        for (commands, (group, _)) in GROUPS.iter().zip(description::FILES) {
            for command in
                commands.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands))
            {
                let name = command.name;
                assert!(
                    described.contains_key(name),
                    "{name} has no description, or one with an unknown word: add \"{name}\": {{\"arity\", \"flags\", \"first\", \
                     \"last\", \"step\", \"acl\", \"tips\", \"key_specs\", \"docs\"}} to command/descriptions/{group}.json; the \
                     head of command/description.rs says which redis-cli commands give it"
                );
            }
        }
        assert_eq!(GROUPS.len(), description::FILES.len());
        assert_eq!(described.len(), table().count());
    }

    #[test]
    fn no_other_name_is_found() {
        for name in [&b""[..], b"pingg", b"pin", b"\xff\x00", b"client|id", b"P\x09NG"] {
            assert!(table().command(name).is_none(), "{name:?}");
        }
    }

    #[test]
    fn arity_counts_the_name() {
        let spec = |name: &str| &table().command(name.as_bytes()).unwrap().spec;
        assert!(spec("get").arity_allows(2) && !spec("get").arity_allows(1) && !spec("get").arity_allows(3));
        assert!(spec("del").arity_allows(2) && spec("del").arity_allows(9) && !spec("del").arity_allows(1));
    }

    #[test]
    fn commands_that_run_as_one_lock_their_only_key() {
        for entry in table().all().filter(|entry| entry.spec.merged_args > 0) {
            let Spec { name, merged_args, locks, keys_differ, .. } = entry.spec;
            assert!(entry.spec.arity_allows(merged_args), "{name}");
            // When each runs alone, the read of one plain value takes no lock, as usual.
            assert!(locks == LockSpec::One(1) || keys_differ && locks == LockSpec::Nothing, "{name}");
            assert!(
                entry.subcommands.is_empty() && (entry.spec.is_merged || entry.spec.step.is_some()),
                "{name}"
            );
        }
        let spec = |name: &str| &table().command(name.as_bytes()).unwrap().spec;
        let runs = |name, other, count| spec(name).runs_with(spec(other), count);
        assert!(runs("lpush", "rpop", 2) && runs("llen", "rpush", 3) && runs("zadd", "zscore", 3));
        assert!(runs("pfadd", "pfadd", 3) && !runs("pfadd", "setbit", 4) && !runs("xadd", "lpush", 3));
        assert!(!runs("lpush", "rpop", 3) && !runs("lpush", "sadd", 3) && !runs("lpush", "lset", 0));
    }

    #[test]
    fn a_name_alone_finds_its_command() {
        let spans = [Span { start: 0, end: 4 }];
        assert_eq!(table().find(Args::new(b"pInG", &spans)).unwrap().spec.name, "ping");
    }
}
