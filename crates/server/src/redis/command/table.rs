//! Finds a command by the name that a client sent, in any case, without allocation.
//!
//! Built once: an open table of twice as many slots as needed, whose seed is chosen so that no two names
//! share a slot. A lookup is one hash of the name and one comparison. Subcommands are found by a short
//! walk over their container's list.

use super::spec::{Command, Entry, Spec};
use super::{Args, Description, description};
use std::collections::HashMap;

/// All commands. There is one, and it stays.
pub struct Table<A: 'static> {
    entries: &'static [Entry<A>],
    // Subcommands too, by their indexes.
    all: Box<[&'static Entry<A>]>,
    // Position in `entries` plus one; 0 is empty. As many as a power of two.
    slots: Box<[u16]>,
    seed: u32,
}

impl<A: Copy> Table<A> {
    /// The table of the commands in these groups.
    pub fn build(groups: &[&[Command<A>]]) -> Self {
        Self::of(Self::entries(groups))
    }

    /// The same with other names, each pair the old and the new one, in this order. An empty new name: the command
    /// cannot be called. Rights, counters and errors have the first names still, as in Redis.
    ///
    /// # Errors
    /// Redis's text for a pair.
    pub fn renamed(groups: &[&[Command<A>]], pairs: &[(String, String)]) -> Result<Self, String> {
        let mut entries = Self::entries(groups);
        for (old, new) in pairs {
            let has =
                |entry: &Entry<A>, name: &str| !name.is_empty() && entry.called.eq_ignore_ascii_case(name);
            let Some(found) = entries.iter().position(|entry| has(entry, old)) else {
                return Err(format!("rename-command {old}: No such command in rename-command"));
            };
            entries[found].called = "";
            if entries.iter().any(|entry| has(entry, new)) {
                return Err(format!("rename-command {old} {new}: Target command name already exists"));
            }
            let entry = &mut entries[found];
            entry.called = String::leak(new.clone());
            for own in &mut entry.subcommands {
                own.called = String::leak(format!("{new}|{}", own.subcommand_name()));
            }
        }
        Ok(Self::of(entries))
    }

    fn entries(groups: &[&[Command<A>]]) -> Vec<Entry<A>> {
        let mut descriptions = description::by_name();
        let mut count = 0;
        let entries = groups
            .iter()
            .copied()
            .flatten()
            .filter_map(|command| entry(command, &mut descriptions, &mut count));
        entries.collect()
    }

    fn of(entries: Vec<Entry<A>>) -> Self {
        let entries: &'static [Entry<A>] = entries.leak();
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

    fn slots_for(entries: &[Entry<A>], seed: u32, slots_count: usize) -> Option<Box<[u16]>> {
        let mut slots = vec![0u16; slots_count].into_boxed_slice();
        for (position, entry) in entries.iter().enumerate().filter(|(_, entry)| !entry.called.is_empty()) {
            let slot = &mut slots[Self::hash(entry.called.as_bytes(), seed) as usize & (slots_count - 1)];
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
    pub fn command(&self, name: &[u8]) -> Option<&'static Entry<A>> {
        let slot = Self::hash(name, self.seed) as usize & (self.slots.len() - 1);
        let entry = self.entries.get((self.slots[slot] as usize).wrapping_sub(1))?;
        entry.called.as_bytes().eq_ignore_ascii_case(name).then_some(entry)
    }

    /// The command, or the subcommand, that these arguments call. An unknown subcommand gives its container.
    #[inline]
    pub fn find(&self, args: Args<'_>) -> Option<&'static Entry<A>> {
        let entry = self.command(args.at(0))?;
        if entry.subcommands.is_empty() || args.len() < 2 {
            return Some(entry);
        }
        Some(entry.subcommand(args.at(1)).unwrap_or(entry))
    }

    /// The command `get`, or the subcommand `client|id`, by its full name in any case.
    pub fn full_name(&self, name: &[u8]) -> Option<&'static Entry<A>> {
        let mut parts = name.splitn(2, |byte| *byte == b'|');
        let entry = self.command(parts.next()?)?;
        match parts.next() {
            None => Some(entry),
            Some(subcommand) => entry.subcommand(subcommand),
        }
    }

    /// The commands that can be called, without subcommands, in the order of their groups.
    pub fn commands(&self) -> impl Iterator<Item = &'static Entry<A>> + Clone {
        self.entries.iter().filter(|entry| !entry.called.is_empty())
    }

    /// All commands, each before its subcommands, also those that were renamed or removed.
    pub fn all(&self) -> impl Iterator<Item = &'static Entry<A>> {
        self.all.iter().copied()
    }

    /// Number of commands and subcommands together.
    pub const fn count(&self) -> usize {
        self.all.len()
    }

    /// The command or subcommand at a position in this table.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn entry(&self, index: usize) -> &'static Entry<A> {
        self.all[index]
    }

    /// The command or subcommand at this position.
    pub fn at(&self, index: usize) -> Option<&'static Entry<A>> {
        self.all.get(index).copied()
    }
}

/// The command with its description; without one, which a test finds, there is no such command.
fn entry<A: Copy>(
    command: &Command<A>,
    descriptions: &mut HashMap<&str, Description>,
    count: &mut usize,
) -> Option<Entry<A>> {
    let description = descriptions.remove(command.name)?;
    let index = *count;
    *count += 1;
    let subcommands = command.subcommands.iter().filter_map(|command| entry(command, descriptions, count));
    let subcommands = subcommands.collect();
    let spec = Spec::new(command, description);
    Some(Entry { called: command.name, subcommands, spec, apply: command.apply, index })
}
