//! The names and categories of all commands, by their positions in the command table.

use crate::redis::command::{Categories, Spec};
use std::collections::HashMap;
use std::ops::Range;

/// See the module.
#[derive(Default)]
pub struct Commands {
    names: Vec<&'static str>,
    categories: Vec<Categories>,
    by_name: HashMap<&'static str, usize>,
}

impl Commands {
    /// Those of a table, each before its subcommands.
    pub fn of(specs: impl Iterator<Item = &'static Spec>) -> Self {
        let mut commands = Self::default();
        for spec in specs {
            commands.by_name.insert(spec.name, commands.names.len());
            commands.names.push(spec.name);
            commands.categories.push(spec.description.categories);
        }
        commands
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.names.len()
    }

    /// The position of a command by its full name, `client|id` for a subcommand, in any case.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.by_name.get(name.as_str()).copied()
    }

    /// Whether it is a subcommand.
    pub fn is_subcommand(&self, index: usize) -> bool {
        self.names[index].contains('|')
    }

    /// The positions of its subcommands.
    pub fn subcommands(&self, index: usize) -> Range<usize> {
        let own = self.names[index];
        let is_below = |name: &&&str| name.strip_prefix(own).is_some_and(|rest| rest.starts_with('|'));
        let count = self.names[index + 1..].iter().take_while(is_below).count();
        index + 1..index + 1 + count
    }

    /// The positions of the commands and subcommands of a category.
    pub fn of_category(&self, category: Categories) -> impl Iterator<Item = usize> + '_ {
        self.categories.iter().enumerate().filter(move |(_, own)| own.has(category)).map(|(index, _)| index)
    }
}
