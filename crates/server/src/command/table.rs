//! Finds a command by the name that a client sent, in any case, without allocation.
//!
//! Built once: an open table of twice as many slots as needed, whose seed is chosen so that no two names
//! share a slot. A lookup is one hash of the name and one comparison. Subcommands are found by a short
//! walk over their container's list.

use super::{Args, Command, Description, Spec, description};
use super::{admin, bitmap, connection, key, string, transaction};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Every group of commands. Each group's module lists its own.
const GROUPS: &[&[Command]] = &[
    connection::COMMANDS,
    admin::COMMANDS,
    string::COMMANDS,
    bitmap::COMMANDS,
    key::COMMANDS,
    transaction::COMMANDS,
];

/// A command in the table.
#[derive(Debug)]
pub struct Entry {
    /// The command.
    pub spec: Spec,
    /// Its position among all commands and subcommands: the index of its counters.
    pub index: usize,
    /// Its subcommands.
    pub subcommands: Vec<Self>,
}

impl Entry {
    /// Whether `name`, in any case, calls this command and no other: neither a subcommand nor one that has some.
    #[inline]
    pub fn is_called(&self, name: &[u8]) -> bool {
        let same = self.spec.name.as_bytes().eq_ignore_ascii_case(name);
        same && self.subcommands.is_empty() && !name.contains(&b'|')
    }

    /// `client` of `client|id`; the whole name of a plain command.
    pub fn container_name(&self) -> &'static str {
        self.spec.name.split('|').next().unwrap_or_default()
    }

    /// `id` of `client|id`.
    fn subcommand_name(&self) -> &'static str {
        self.spec.name.split('|').nth(1).unwrap_or_default()
    }

    /// The subcommand with this name, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Self> {
        self.subcommands.iter().find(|entry| entry.subcommand_name().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// All commands. There is one, and it stays.
pub struct Table {
    entries: &'static [Entry],
    // Subcommands too, by their indexes.
    all: Box<[&'static Entry]>,
    // Position in `entries` plus one; 0 is empty. As many as a power of two.
    slots: Box<[u16]>,
    seed: u32,
}

impl Table {
    /// The one table.
    pub fn get() -> &'static Self {
        static TABLE: LazyLock<Table> = LazyLock::new(|| Table::build(GROUPS));
        &TABLE
    }

    fn build(groups: &[&[Command]]) -> Self {
        let mut descriptions = description::by_name();
        let mut count = 0;
        let entries = groups
            .iter()
            .copied()
            .flatten()
            .filter_map(|command| entry(command, &mut descriptions, &mut count));
        let entries: &'static [Entry] = entries.collect::<Vec<_>>().leak();
        let all = entries.iter().flat_map(|entry| std::iter::once(entry).chain(&entry.subcommands)).collect();
        let mut slots_count = (entries.len() * 4).next_power_of_two();
        let mut seed = 0u32;
        loop {
            // A seed without collision is found within some hundred tries at this load; when not, a larger
            // table finds one.
            if let Some(slots) = Self::slots_for(entries, seed, slots_count) {
                return Self { entries, all, slots, seed };
            }
            seed += 1;
            if seed.is_multiple_of(1 << 12) {
                slots_count *= 2;
            }
        }
    }

    fn slots_for(entries: &[Entry], seed: u32, slots_count: usize) -> Option<Box<[u16]>> {
        let mut slots = vec![0u16; slots_count].into_boxed_slice();
        for (position, entry) in entries.iter().enumerate() {
            let slot = &mut slots[Self::hash(entry.spec.name.as_bytes(), seed) as usize & (slots_count - 1)];
            if *slot != 0 {
                return None;
            }
            *slot = position as u16 + 1;
        }
        Some(slots)
    }

    #[inline]
    fn hash(name: &[u8], seed: u32) -> u32 {
        // FNV-1a over the letters in lower case (`| 0x20` also changes other bytes, which only costs a
        // comparison), then the high bits folded into the low ones that are used.
        let mut hash = 0x811c_9dc5 ^ seed.wrapping_mul(0x9e37_79b9);
        for byte in name {
            hash = (hash ^ u32::from(byte | 0x20)).wrapping_mul(0x0100_0193);
        }
        hash ^ (hash >> 15)
    }

    /// The command with this name, in any case.
    #[inline]
    pub fn command(&self, name: &[u8]) -> Option<&Entry> {
        let slot = Self::hash(name, self.seed) as usize & (self.slots.len() - 1);
        let entry = self.entries.get((self.slots[slot] as usize).wrapping_sub(1))?;
        entry.spec.name.as_bytes().eq_ignore_ascii_case(name).then_some(entry)
    }

    /// The command, or the subcommand, that these arguments call. An unknown subcommand gives its container.
    #[inline]
    pub fn find(&self, args: Args<'_>) -> Option<&Entry> {
        let entry = self.command(args.at(0))?;
        if entry.subcommands.is_empty() || args.len() < 2 {
            return Some(entry);
        }
        Some(entry.subcommand(args.at(1)).unwrap_or(entry))
    }

    /// The command `get`, or the subcommand `client|id`, by its full name in any case.
    pub fn full_name(&self, name: &[u8]) -> Option<&Entry> {
        let mut parts = name.splitn(2, |byte| *byte == b'|');
        let entry = self.command(parts.next()?)?;
        match parts.next() {
            None => Some(entry),
            Some(subcommand) => entry.subcommand(subcommand),
        }
    }

    /// All commands, without subcommands, in the order of their groups.
    pub const fn commands(&self) -> &'static [Entry] {
        self.entries
    }

    /// All commands, each before its subcommands.
    pub fn all(&self) -> impl Iterator<Item = &'static Entry> {
        self.all.iter().copied()
    }

    /// Number of commands and subcommands together.
    pub const fn count(&self) -> usize {
        self.all.len()
    }

    /// The command or subcommand at this position.
    pub fn at(&self, index: usize) -> Option<&'static Entry> {
        self.all.get(index).copied()
    }
}

/// The command with its description; without one, which a test finds, there is no such command.
fn entry(
    command: &Command,
    descriptions: &mut HashMap<String, Description>,
    count: &mut usize,
) -> Option<Entry> {
    let description = descriptions.remove(command.name)?;
    let index = *count;
    *count += 1;
    let subcommands = command.subcommands.iter().filter_map(|command| entry(command, descriptions, count));
    Some(Entry { subcommands: subcommands.collect(), spec: Spec::new(command, description), index })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Span;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        let table = Table::get();
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
        let commands = GROUPS.iter().copied().flatten();
        let names = commands.flat_map(|command| std::iter::once(command).chain(command.subcommands));
        assert!(names.map(|command| command.name).eq(Table::get().all().map(|entry| entry.spec.name)));
    }

    #[test]
    fn no_other_name_is_found() {
        for name in [&b""[..], b"pingg", b"pin", b"\xff\x00", b"client|id", b"P\x09NG"] {
            assert!(Table::get().command(name).is_none(), "{name:?}");
        }
    }

    #[test]
    fn arity_counts_the_name() {
        let spec = |name: &str| &Table::get().command(name.as_bytes()).unwrap().spec;
        assert!(spec("get").arity_allows(2) && !spec("get").arity_allows(1) && !spec("get").arity_allows(3));
        assert!(spec("del").arity_allows(2) && spec("del").arity_allows(9) && !spec("del").arity_allows(1));
    }

    #[test]
    fn a_name_alone_finds_its_command() {
        let spans = [Span { start: 0, end: 4 }];
        assert_eq!(Table::get().find(Args::new(b"pInG", &spans)).unwrap().spec.name, "ping");
    }
}
