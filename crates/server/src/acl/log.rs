//! ACL LOG: what was refused, the newest first. Equal events within a minute are one entry.

use std::collections::VecDeque;

/// Equal events at most so far apart are counted together.
const TOGETHER_MILLIS: u64 = 60_000;
/// Among so many of the newest entries an equal one is looked for.
const LOOKED_AT: usize = 10;
/// Names are cut at this length: they come from clients, also from those that are not logged in.
const NAME_BYTES_MAX: usize = 1024;

/// Why something was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
    /// A name and a password.
    Auth,
}

impl Reason {
    /// As Redis names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::Auth => "auth",
        }
    }
}

/// Where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// A command of a connection.
    TopLevel,
    /// In MULTI, or EXEC.
    Multi,
    /// A command of a script.
    Lua,
}

impl Context {
    /// As Redis names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Multi => "multi",
            Self::Lua => "lua",
        }
    }
}

/// An entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Counts up from 0.
    pub id: u64,
    /// How many equal events it stands for.
    pub count: u64,
    /// See [`Reason`].
    pub reason: Reason,
    /// See [`Context`].
    pub context: Context,
    /// The command, key or channel.
    pub object: Vec<u8>,
    /// The user.
    pub user: Vec<u8>,
    /// Unix milliseconds of the first event.
    pub created: u64,
    /// Of the last one.
    pub updated: u64,
    /// The client of the last one, as in CLIENT LIST.
    pub client: String,
}

/// See the module.
#[derive(Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    next: u64,
}

impl Log {
    /// Notes an event; `count` and `id` of the entry are set here.
    pub fn note(&mut self, mut event: Entry, most: usize) {
        event.object.truncate(NAME_BYTES_MAX);
        event.user.truncate(NAME_BYTES_MAX);
        let is_equal = |entry: &Entry| {
            (entry.reason, entry.context) == (event.reason, event.context)
                && event.updated.abs_diff(entry.updated) <= TOGETHER_MILLIS
                && (&entry.object, &entry.user) == (&event.object, &event.user)
        };
        let known = self.entries.iter().take(LOOKED_AT).position(is_equal);
        if let Some(mut entry) = known.and_then(|at| self.entries.remove(at)) {
            entry.count += 1;
            (entry.updated, entry.client) = (event.updated, event.client);
            self.entries.push_front(entry);
            return;
        }
        (event.id, event.count) = (self.next, 1);
        self.next += 1;
        self.entries.push_front(event);
        self.entries.truncate(most);
    }

    /// The newest entries.
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.entries.iter().take(count).cloned().collect()
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
