//! What a command is to the table: data alone.
//!
//! Code contains only what Redis's description lacks: a command's name and its function ([`Command`]). Everything else,
//! from the arity to the keys, is in its description; the table joins the two to an [`Entry`], once.
//!
//! `A` is what runs. Nothing in here calls it, so its type, which names all that a command is given, stands above, in
//! [`call`](super::call).

use super::Args;
use super::description::Description;
use super::flags::{Categories, Flags};
use super::keys::{Begin, Find, Key, KeyFlags, KeySpec};
use super::step::Step;
use duramen_structures::Room;

/// Commands that Redis may send to replicas although they write no key.
pub const MAY_REPLICATE: [&str; 3] = ["pfcount", "publish", "spublish"];

/// One command, or one subcommand, in the list of its group.
#[derive(Clone, Copy, Debug)]
pub struct Command<A: 'static> {
    /// Lower case; for a subcommand with its container: `client|id`.
    pub name: &'static str,
    /// Subcommands, found by the second argument.
    pub subcommands: &'static [Self],
    /// The function; for a container, that for a missing or unknown subcommand.
    pub apply: A,
    not_queued: bool,
    merged_args: usize,
    is_merged: bool,
    keys_differ: bool,
    step: Option<Step>,
    removes: bool,
    key_flags: Option<fn(Args<'_>) -> KeyFlags>,
}

impl<A: Copy> Command<A> {
    /// A command.
    pub const fn new(name: &'static str, apply: A) -> Self {
        Self {
            name,
            subcommands: &[],
            apply,
            not_queued: false,
            merged_args: 0,
            is_merged: false,
            keys_differ: false,
            step: None,
            removes: false,
            key_flags: None,
        }
    }

    /// The command, or one of these when the second argument names it.
    #[must_use]
    pub const fn or(self, subcommands: &'static [Self]) -> Self {
        Self { subcommands, ..self }
    }

    /// The command, which inside MULTI is executed at once.
    #[must_use]
    pub const fn not_queued(self) -> Self {
        Self { not_queued: true, ..self }
    }

    /// Marks the command: several in a row with this number of arguments and the same key run as one batch. The batch
    /// has the name and the key once, then the arguments of each after the key.
    #[must_use]
    pub const fn merged(self, args: usize) -> Self {
        Self { merged_args: args, is_merged: true, ..self }
    }

    /// Marks the command: several in a row with this number of arguments and any keys run as one batch. Each succeeds
    /// or fails alone. The batch has the name once, then the arguments of each after it.
    #[must_use]
    pub const fn merged_of_any_keys(self, args: usize) -> Self {
        Self { merged_args: args, is_merged: true, keys_differ: true, ..self }
    }

    /// The command, which with so many arguments is a step of a run of commands of any kind that name the same key.
    #[must_use]
    pub const fn step(self, args: usize, step: Step) -> Self {
        Self { merged_args: args, step: Some(step), ..self }
    }

    /// Marks a command that removes entries, elements or keys and adds none, or replaces them with nothing longer. In a
    /// full store it may use all space that is kept for deletes.
    #[must_use]
    pub const fn removes(self) -> Self {
        Self { removes: true, ..self }
    }

    /// The command, of whose arguments depends what it does with its keys (`variable_flags`).
    #[must_use]
    pub const fn key_flags(self, of: fn(Args<'_>) -> KeyFlags) -> Self {
        Self { key_flags: Some(of), ..self }
    }
}

/// One command or subcommand in the table: the fields that every call needs, and behind a pointer its description.
#[derive(Debug)]
pub struct Spec {
    /// Lower case; for a subcommand with its container: `client|id`.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i16,
    /// What the command may do, and where it may be used.
    pub flags: Flags,
    /// Its description.
    pub description: Box<Description>,
    /// The locks while it runs.
    pub locks: LockSpec,
    /// How many arguments a command of a batch has; 0: it never runs in a batch.
    pub merged_args: usize,
    /// Its function is called for several in a row of this command.
    pub is_merged: bool,
    /// And these may be of different keys.
    pub keys_differ: bool,
    /// What it does in a run of other commands too.
    pub step: Option<Step>,
    /// Its key, if it has one at a fixed place, whose use does not depend on the arguments.
    pub only_key: Option<Key>,
    /// It may use keys that its description does not find.
    has_more_keys: bool,
    /// How much of what a full store keeps back its writes may use: some, unless Redis refuses it where memory is short.
    pub room: Room,
    key_flags: Option<fn(Args<'_>) -> KeyFlags>,
}

/// The locks of a command while it runs, as far as they are known without its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockSpec {
    /// Nothing: it has no keys, or reads one plain value.
    Nothing,
    /// The key that is this argument.
    One(usize),
    /// Its keys; everything if its arguments do not name them all.
    Keys,
    /// The keys of a script, which may name more.
    Script,
    /// The keys of the queued commands, and the watched keys.
    Queued,
    /// Everything, once it looks at a key.
    All,
}

impl LockSpec {
    fn of(name: &str, description: &Description) -> Self {
        let mut specs = description.key_specs.iter().filter(|spec| !spec.flags.has(KeyFlags::NOT_KEY));
        match name {
            "exec" => return Self::Queued,
            "eval" | "evalsha" | "eval_ro" | "evalsha_ro" | "fcall" | "fcall_ro" => return Self::Script,
            // DIGEST and POPULATE are of any keys; what looks at none locks none.
            // So is what SAVE writes.
            "debug" | "save" => return Self::All,
            // They change or show what every function is part of.
            "function|load" | "function|delete" | "function|flush" | "function|restore" | "function|list"
            | "function|dump" => return Self::All,
            _ => {}
        }
        let (Some(spec), more) = (specs.next(), specs.next()) else { return Self::Nothing };
        let one = match (&spec.begin, spec.find) {
            (Begin::Index(index), Find::Range { last: 0, .. })
                if more.is_none() && !spec.flags.has(KeyFlags::INCOMPLETE) =>
            {
                usize::try_from(*index).ok()
            }
            _ => None,
        };
        let reads_plain = description.flags.has(Flags::READONLY)
            // Those look into values of any type.
            && !matches!(name, "dump" | "memory|usage" | "object|encoding")
            && !description.categories.has_any(Categories::OF_ELEMENTS);
        match one {
            Some(_) if reads_plain => Self::Nothing,
            Some(index) => Self::One(index),
            None => Self::Keys,
        }
    }
}

impl Spec {
    /// The command with its description.
    pub fn new<A>(command: &Command<A>, description: Description) -> Self {
        let own = if command.not_queued { Flags::NOT_QUEUED } else { Flags::NONE };
        Self {
            name: command.name,
            arity: description.arity,
            flags: description.flags.with(own),
            locks: LockSpec::of(command.name, &description),
            merged_args: command.merged_args,
            is_merged: command.is_merged,
            keys_differ: command.keys_differ,
            step: command.step,
            only_key: only_key(command.name, &description),
            has_more_keys: has_more_keys(command.name, &description),
            room: match description.flags {
                _ if command.removes => Room::Removal,
                flags if flags.has(Flags::WRITE) && !flags.has(Flags::DENYOOM) => Room::Change,
                _ => Room::Free,
            },
            description: Box::new(description),
            key_flags: command.key_flags,
        }
    }

    /// Whether a command with `count` arguments (its name among them) has as many as it takes.
    #[inline]
    pub const fn arity_allows(&self, count: usize) -> bool {
        if self.arity < 0 {
            count >= self.arity.unsigned_abs() as usize
        } else {
            count == self.arity as usize
        }
    }

    fn key_specs(&self) -> impl Iterator<Item = &KeySpec> {
        self.description.key_specs.iter().filter(|spec| !spec.flags.has(KeyFlags::NOT_KEY))
    }

    /// Whether `other`, which has so many arguments and names the same key, may run as one with this command.
    #[inline]
    pub fn runs_with(&self, other: &Self, count: usize) -> bool {
        let is_like = || match (self.step, other.step) {
            (Some(own), Some(other)) => own.is_like(other),
            _ => self.name == other.name,
        };
        count > 0 && other.merged_args == count && is_like()
    }

    /// Whether the command works on keys that are not among its arguments, or on all keys of a database.
    pub fn works_on_any(&self) -> bool {
        !self.has_keys() && (self.flags.has(Flags::READONLY) || self.flags.has(Flags::WRITE))
    }

    /// Whether the command has keys at all.
    pub fn has_keys(&self) -> bool {
        self.key_specs().next().is_some()
    }

    /// The keys among `args`; `None` when the arguments do not name all of them.
    #[inline]
    pub fn keys<'a>(&'a self, args: Args<'a>) -> Option<impl Iterator<Item = Key> + 'a> {
        let tells = |spec: &KeySpec| !spec.flags.has(KeyFlags::INCOMPLETE) && spec.places(args).is_some();
        self.key_specs().all(tells).then(|| self.keys_found(args))
    }

    /// The keys that are among `args`.
    #[inline]
    pub fn keys_found<'a>(&'a self, args: Args<'a>) -> impl Iterator<Item = Key> + 'a {
        self.key_specs().flat_map(move |spec| {
            let flags = match self.key_flags {
                Some(of) if spec.flags.has(KeyFlags::VARIABLE_FLAGS) => of(args),
                _ => spec.flags,
            };
            spec.places(args).into_iter().flatten().map(move |index| Key { index, flags })
        })
    }
}

impl Spec {
    /// The keys whose use must be allowed: those that its description finds, and those that it uses besides, if there are any.
    /// Some may be named twice, and of a command that would fail some may be no keys. A command whose number of keys is
    /// wrong fails: as in Redis, none of its keys is checked.
    #[inline]
    pub fn keys_to_check<'a>(&'a self, args: Args<'a>) -> impl Iterator<Item = Key> + 'a {
        let more = if self.has_more_keys { self.more_keys(args) } else { Vec::new() };
        let has_some = |spec: &KeySpec| spec.places(args).is_some_and(|mut places| places.next().is_some());
        let is_right =
            self.key_specs().all(|spec| !matches!(spec.find, Find::Number { .. }) || has_some(spec));
        self.keys_found(args).take(if is_right { usize::MAX } else { 0 }).chain(more)
    }

    #[cold]
    fn more_keys(&self, args: Args<'_>) -> Vec<Key> {
        match self.name {
            "sort" => keys_of_sort(args, true),
            "debug" if args.is(1, "object") || args.is(1, "digest-value") => {
                let flags = KeyFlags::RO.with(KeyFlags::ACCESS);
                (2..args.len()).map(|index| Key { index, flags }).collect()
            }
            _ => {
                // The description finds the first of several destinations; the command takes the last.
                let words = self.key_specs().filter_map(|spec| match (&spec.begin, spec.find) {
                    (Begin::Keyword(word, from), Find::Range { last: 0, .. }) => {
                        Some((word, *from, spec.flags))
                    }
                    _ => None,
                });
                let all = words.flat_map(|(word, from, flags)| {
                    let from = usize::try_from(from).unwrap_or(1);
                    (from..args.len().saturating_sub(1))
                        .filter(move |at| args.is(*at, word))
                        .map(move |at| Key { index: at + 1, flags })
                });
                all.collect()
            }
        }
    }
}

/// The keys of SORT and SORT_RO, which no specification gives: the sorted key, and the destination of the last STORE.
/// As in Redis, keys found through a pattern are not listed.
pub fn keys_of_sort(args: Args<'_>, stores: bool) -> Vec<Key> {
    let mut keys = vec![Key { index: 1, flags: KeyFlags::RO.with(KeyFlags::ACCESS) }];
    let mut at = 2;
    while stores && at < args.len() {
        if args.is(at, "store") && at + 1 < args.len() {
            keys.truncate(1);
            keys.push(Key { index: at + 1, flags: KeyFlags::OW.with(KeyFlags::UPDATE) });
        } else if args.is(at, "limit") {
            at += 2;
        } else if args.is(at, "by") || args.is(at, "get") {
            at += 1;
        }
        at += 1;
    }
    keys
}

fn only_key(name: &str, description: &Description) -> Option<Key> {
    match description.key_specs.as_slice() {
        [KeySpec { begin: Begin::Index(index), find: Find::Range { last: 0, .. }, flags, .. }]
            if !flags
                .has_any(KeyFlags::VARIABLE_FLAGS.with(KeyFlags::NOT_KEY).with(KeyFlags::INCOMPLETE))
                && !has_more_keys(name, description) =>
        {
            Some(Key { index: usize::try_from(*index).ok()?, flags: *flags })
        }
        _ => None,
    }
}

fn has_more_keys(name: &str, description: &Description) -> bool {
    let has_word = |spec: &KeySpec| {
        matches!((&spec.begin, spec.find), (Begin::Keyword(..), Find::Range { last: 0, .. }))
    };
    matches!(name, "sort" | "debug") || description.key_specs.iter().any(has_word)
}

/// A command in the table.
#[derive(Debug)]
pub struct Entry<A> {
    /// The command.
    pub spec: Spec,
    /// What runs.
    pub apply: A,
    /// The name by which clients call it: another than the command's after `rename-command`, or empty.
    pub called: &'static str,
    /// Its position among all commands and subcommands: the index of its counters.
    pub index: usize,
    /// Its subcommands.
    pub subcommands: Vec<Self>,
}

impl<A> Entry<A> {
    /// Whether `name`, in any case, calls this command and no other: neither a subcommand nor one that has some.
    #[inline]
    pub fn is_called(&self, name: &[u8]) -> bool {
        let same = self.called.as_bytes().eq_ignore_ascii_case(name);
        same && self.subcommands.is_empty() && !name.contains(&b'|')
    }

    /// `client` of `client|id`; the whole name of a plain command.
    pub fn container_name(&self) -> &'static str {
        self.spec.name.split('|').next().unwrap_or_default()
    }

    /// The same as clients call it.
    pub fn container_called(&self) -> &'static str {
        match self.spec.name.contains('|') {
            true => self.called.rsplit_once('|').map_or(self.called, |(container, _)| container),
            false => self.called,
        }
    }

    /// `id` of `client|id`.
    pub(super) fn subcommand_name(&self) -> &'static str {
        self.spec.name.split('|').nth(1).unwrap_or_default()
    }

    /// The subcommand with this name, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Self> {
        self.subcommands.iter().find(|entry| entry.subcommand_name().as_bytes().eq_ignore_ascii_case(name))
    }
}
