//! A selector: which commands may be run on which keys and channels.
//!
//! Commands are a set of bits by their position in the table, so the check of a command that names no key costs a few
//! instructions. The rules of commands are kept as they were given, for ACL GETUSER: as in Redis 7.2 a rule takes the place of
//! earlier ones for the same command.

use super::commands::Commands;
use crate::redis::command::{Args, Categories, Flags, KeyFlags, Spec};
use duramen_structures::glob;
use std::collections::BTreeMap;

const READ: u8 = 1;
const WRITE: u8 = 2;

/// Why a command is refused. A later variant, or position, is the one that Redis reports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denied {
    /// The command is not allowed.
    Command,
    /// The key at this argument is not allowed.
    Key(usize),
    /// The channel at this argument is not allowed.
    Channel(usize),
}

/// Why a word of ACL SETUSER is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleError {
    /// It has no meaning.
    Syntax,
    /// There is no such command or category.
    Unknown,
    /// A pattern of keys would add nothing.
    KeysAreAll,
    /// A pattern of channels would add nothing.
    ChannelsAreAll,
    /// The password to remove is not there.
    NoSuchPassword,
    /// What should be the hash of a password is none.
    BadHash,
    /// A subcommand with a first argument.
    FirstArgOfSubcommand,
}

impl RuleError {
    /// Redis's text.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Syntax => "Syntax error",
            Self::Unknown => "Unknown command or category name in ACL",
            Self::KeysAreAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
                 'resetkeys' to start with an empty list of patterns"
            }
            Self::ChannelsAreAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try \
                 'resetchannels' to start with an empty list of channels"
            }
            Self::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            Self::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Self::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

/// Whether a word could not be written to a file and read back: it has blanks or zero bytes.
pub fn has_blanks(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, 0 | b' ' | b'\t'..=b'\r'))
}

/// How a pattern is compared, by its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    All,
    Prefix,
    Literal,
    Glob,
}

impl Form {
    fn of(pattern: &[u8]) -> Self {
        let is_plain = |text: &[u8]| !text.iter().any(|byte| b"*?[\\".contains(byte));
        match pattern {
            b"*" => Self::All,
            [prefix @ .., b'*'] if is_plain(prefix) => Self::Prefix,
            all if is_plain(all) => Self::Literal,
            _ => Self::Glob,
        }
    }
}

/// A pattern of names.
#[derive(Clone, Debug)]
struct Pattern {
    text: Box<[u8]>,
    form: Form,
}

impl Pattern {
    fn new(text: &[u8]) -> Self {
        Self { text: text.into(), form: Form::of(text) }
    }

    #[inline]
    fn matches(&self, name: &[u8]) -> bool {
        match self.form {
            Form::All => true,
            Form::Prefix => name.starts_with(&self.text[..self.text.len() - 1]),
            Form::Literal => name == &*self.text,
            Form::Glob => glob::matches(&self.text, name),
        }
    }

    /// Whether it surely matches all names with this prefix.
    fn matches_all_with(&self, prefix: &[u8]) -> bool {
        matches!(self.form, Form::All | Form::Prefix) && self.matches(prefix)
    }
}

#[derive(Clone, Debug)]
struct KeyPattern {
    pattern: Pattern,
    uses: u8,
}

impl KeyPattern {
    fn write(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(match self.uses {
            READ => b"%R~",
            WRITE => b"%W~",
            _ => b"~",
        });
        text.extend_from_slice(&self.pattern.text);
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    /// One bit for each command.
    bits: Box<[u64]>,
    /// Every command, also later ones: `+@all` and nothing missing since.
    all_commands: bool,
    /// It began with `+@all`.
    from_all: bool,
    /// The first arguments with which commands without their bit are allowed.
    first_args: BTreeMap<usize, Vec<Box<[u8]>>>,
    /// Each with its sign, in order.
    rules: Vec<String>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Pattern>,
}

impl Selector {
    /// One without rights, or with that to all channels.
    pub fn new(commands: &Commands, all_channels: bool) -> Self {
        Self { bits: vec![0; commands.count().div_ceil(64)].into(), all_channels, ..Self::default() }
    }

    /// Whether it allows everything.
    pub const fn is_unlimited(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    /// Removes all rights to channels, or gives all.
    pub fn reset_channels(&mut self, all: bool) {
        self.channels.clear();
        self.all_channels = all;
    }

    /// Applies a word of ACL SETUSER that is about rights.
    ///
    /// # Errors
    /// The word has no meaning, or no effect.
    pub fn set(&mut self, commands: &Commands, word: &[u8]) -> Result<(), RuleError> {
        let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
        match word {
            _ if is("allkeys") || word == b"~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            _ if is("resetkeys") => {
                self.all_keys = false;
                self.keys.clear();
            }
            _ if is("allchannels") || word == b"&*" => self.reset_channels(true),
            _ if is("resetchannels") => self.reset_channels(false),
            _ if is("allcommands") || is("+@all") => self.set_all_commands(true),
            _ if is("nocommands") || is("-@all") => self.set_all_commands(false),
            [b'~', pattern @ ..] => return self.add_keys(READ | WRITE, pattern),
            // As Redis, before a look at the rest.
            [b'%', ..] if self.all_keys => return Err(RuleError::KeysAreAll),
            [b'%', rest @ ..] => {
                let (uses, pattern) = uses(rest)?;
                return self.add_keys(uses, pattern);
            }
            [b'&', pattern @ ..] => return self.add_channels(pattern),
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let category = Categories::of_name(name).ok_or(RuleError::Unknown)?;
                for index in commands.of_category(category) {
                    self.set_command(commands, index, *sign == b'+');
                }
                self.note_rule(*sign, &word[1..]);
            }
            [b'-', name @ ..] => {
                let index = commands.find(name).ok_or(RuleError::Unknown)?;
                self.set_command(commands, index, false);
                self.note_rule(b'-', name);
            }
            [b'+', name @ ..] => return self.allow(commands, name),
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn set_all_commands(&mut self, is_on: bool) {
        self.bits.fill(if is_on { u64::MAX } else { 0 });
        (self.all_commands, self.from_all) = (is_on, is_on);
        self.first_args.clear();
        self.rules.clear();
    }

    fn set_command(&mut self, commands: &Commands, index: usize, is_on: bool) {
        self.first_args.remove(&index);
        for index in std::iter::once(index).chain(commands.subcommands(index)) {
            let bit = 1 << (index % 64);
            match is_on {
                true => self.bits[index / 64] |= bit,
                false => self.bits[index / 64] &= !bit,
            }
        }
    }

    /// `+NAME`, where the name is a command, a subcommand, or a command with a first argument.
    fn allow(&mut self, commands: &Commands, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let index = commands.find(name).ok_or(RuleError::Unknown)?;
            self.set_command(commands, index, true);
            self.note_rule(b'+', name);
            return Ok(());
        };
        let (command, first) = (&name[..bar], &name[bar + 1..]);
        let index = commands.find(command).ok_or(RuleError::Unknown)?;
        if commands.is_subcommand(index) {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        if first.is_empty() || has_blanks(first) {
            return Err(RuleError::Syntax);
        }
        if commands.subcommands(index).is_empty() {
            if std::str::from_utf8(first).is_err() {
                return Err(RuleError::Syntax);
            }
            let known = self.first_args.entry(index).or_default();
            if !known.iter().any(|other| other.eq_ignore_ascii_case(first)) {
                known.push(first.into());
            }
        } else {
            let index = commands.find(name).ok_or(RuleError::Unknown)?;
            self.set_command(commands, index, true);
        }
        self.note_rule(b'+', name);
        Ok(())
    }

    /// Keeps a rule, in the place of earlier ones of the same command or category.
    fn note_rule(&mut self, sign: u8, name: &[u8]) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let is_replaced = |rule: &str| {
            rule[1..].strip_prefix(&*name).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        self.rules.retain(|rule| !is_replaced(rule));
        self.rules.push(format!("{}{name}", char::from(sign)));
        // Also when all that was taken away is given back.
        self.all_commands = self.from_all && self.bits.iter().all(|word| *word == u64::MAX);
    }

    fn add_keys(&mut self, uses: u8, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::KeysAreAll);
        }
        if has_blanks(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| *known.pattern.text == *pattern) {
            Some(known) => known.uses |= uses,
            None => self.keys.push(KeyPattern { pattern: Pattern::new(pattern), uses }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::ChannelsAreAll);
        }
        if has_blanks(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| *known.text == *pattern) {
            self.channels.push(Pattern::new(pattern));
        }
        Ok(())
    }

    // --- the check

    /// Whether a command may run with these arguments.
    ///
    /// # Errors
    /// The first thing that it may not.
    #[inline]
    pub fn check(&self, spec: &Spec, index: usize, args: Args<'_>) -> Result<(), Denied> {
        self.check_command(spec, index, args)?;
        if !self.all_keys
            && let Some(key) = spec.only_key
        {
            if !self.may_use(args.at(key.index), key.flags) {
                return Err(Denied::Key(key.index));
            }
        } else if !self.all_keys {
            for key in spec.keys_to_check(args) {
                if !self.may_use(args.at(key.index), key.flags) {
                    return Err(Denied::Key(key.index));
                }
            }
        }
        if !self.all_channels && spec.flags.has(Flags::PUBSUB) {
            self.check_channels(spec, args)?;
        }
        Ok(())
    }

    #[inline]
    fn check_command(&self, spec: &Spec, index: usize, args: Args<'_>) -> Result<(), Denied> {
        let has_bit = self.bits.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 != 0);
        if has_bit || self.all_commands || spec.flags.has(Flags::NO_AUTH) {
            return Ok(());
        }
        let known = self.first_args.get(&index).ok_or(Denied::Command)?;
        let first = args.get(1).ok_or(Denied::Command)?;
        let is_known = known.iter().any(|known| known.eq_ignore_ascii_case(first));
        if is_known { Ok(()) } else { Err(Denied::Command) }
    }

    /// Whether a key may be used so.
    #[inline]
    pub fn may_use(&self, key: &[u8], flags: KeyFlags) -> bool {
        let wanted = wanted(flags);
        self.all_keys
            || self.keys.iter().any(|known| known.uses & wanted == wanted && known.pattern.matches(key))
    }

    /// Whether a command that has one key is allowed on each of these.
    #[inline]
    pub fn may_use_all<'k>(
        &self,
        command: usize,
        flags: KeyFlags,
        keys: &mut impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        let wanted = wanted(flags);
        let allows = |key: &[u8]| {
            self.keys.iter().any(|known| known.uses & wanted == wanted && known.pattern.matches(key))
        };
        self.may_run(command) && (self.all_keys || keys.all(allows))
    }

    /// Whether every key with this prefix may be read.
    pub fn may_read_all_with(&self, prefix: &[u8]) -> bool {
        let reads = |known: &KeyPattern| known.uses & READ != 0 && known.pattern.matches_all_with(prefix);
        self.all_keys || self.keys.iter().any(reads)
    }

    /// Whether the command at this position is allowed without regard to its arguments.
    pub fn may_run(&self, index: usize) -> bool {
        self.all_commands || self.bits.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    fn check_channels(&self, spec: &Spec, args: Args<'_>) -> Result<(), Denied> {
        let (last, is_pattern) = match spec.name {
            "publish" | "spublish" => (1, false),
            "subscribe" | "ssubscribe" => (usize::MAX, false),
            "psubscribe" => (usize::MAX, true),
            _ => return Ok(()),
        };
        let denied = |(_, name): &(usize, &[u8])| !self.may_listen(name, is_pattern);
        match args.iter().enumerate().skip(1).take(last).find(denied) {
            Some((at, _)) => Err(Denied::Channel(at)),
            None => Ok(()),
        }
    }

    /// Whether a channel is allowed. A pattern of PSUBSCRIBE must be one of the selector's, letter for letter.
    pub fn may_listen(&self, name: &[u8], is_pattern: bool) -> bool {
        let allows = |known: &Pattern| if is_pattern { *known.text == *name } else { known.matches(name) };
        self.all_channels || self.channels.iter().any(allows)
    }

    // --- how it is shown

    /// Its rules of commands.
    pub fn commands_text(&self) -> String {
        let mut text = String::from(if self.from_all { "+@all" } else { "-@all" });
        for rule in self.rules.iter().filter(|_| !self.all_commands) {
            text.push(' ');
            text.push_str(rule);
        }
        text
    }

    /// Its patterns of keys.
    pub fn keys_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let mut text = Vec::new();
        for (at, known) in self.keys.iter().enumerate() {
            if at > 0 {
                text.push(b' ');
            }
            known.write(&mut text);
        }
        text
    }

    /// Its patterns of channels.
    pub fn channels_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let with_mark = |pattern: &Pattern| [b"&", &*pattern.text].concat();
        self.channels.iter().map(with_mark).collect::<Vec<_>>().join(&b' ')
    }

    /// All of it, as ACL SETUSER reads it.
    pub fn describe(&self) -> Vec<u8> {
        let channels = self.channels_text();
        let channels = if self.all_channels { channels } else { join(&[b"resetchannels", &channels]) };
        join(&[&self.keys_text(), &channels, self.commands_text().as_bytes()])
    }
}

/// Joins what is not empty by blanks.
pub fn join(parts: &[&[u8]]) -> Vec<u8> {
    let parts: Vec<&[u8]> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(&b' ')
}

/// The uses and the pattern of `%RW~pattern`.
fn uses(rest: &[u8]) -> Result<(u8, &[u8]), RuleError> {
    let mut uses = 0;
    for (at, byte) in rest.iter().enumerate() {
        let more = match byte.to_ascii_uppercase() {
            b'R' => READ,
            b'W' => WRITE,
            // Without a use the pattern would allow nothing, and could not be shown.
            b'~' if uses != 0 => return Ok((uses, &rest[at + 1..])),
            _ => return Err(RuleError::Syntax),
        };
        if uses & more != 0 {
            return Err(RuleError::Syntax);
        }
        uses |= more;
    }
    Err(RuleError::Syntax)
}

/// The uses that a pattern must allow.
const fn wanted(flags: KeyFlags) -> u8 {
    let writes = KeyFlags::INSERT.with(KeyFlags::DELETE).with(KeyFlags::UPDATE);
    let read = if flags.has(KeyFlags::ACCESS) { READ } else { 0 };
    read | if flags.has_any(writes) { WRITE } else { 0 }
}
