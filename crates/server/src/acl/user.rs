//! One user: whether it may log in, its passwords, and its selectors, of which one must allow a command.

use super::commands::Commands;
use super::password::Hash;
use super::selector::{Denied, RuleError, Selector, join};
use crate::redis::command::{Args, KeyFlags, Spec};
use duramen_resp::inline;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A user. Its connections keep it also when it is deleted.
#[derive(Debug)]
pub struct User {
    /// Its name.
    pub name: Box<[u8]>,
    rules: RwLock<Arc<Rules>>,
    is_deleted: AtomicBool,
}

impl User {
    /// A user with these rules.
    pub fn new(name: &[u8], rules: Rules) -> Self {
        Self { name: name.into(), rules: RwLock::new(Arc::new(rules)), is_deleted: AtomicBool::new(false) }
    }

    /// Its present rules.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives it other rules.
    pub(super) fn replace(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    pub(super) fn delete(&self) {
        self.is_deleted.store(true, Ordering::Release);
    }

    /// Whether it was deleted.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// The line of ACL LIST and of the ACL file.
    pub fn describe(&self) -> Vec<u8> {
        [b"user ", &*self.name, b" ", &self.rules().describe()].concat()
    }
}

/// The rules of a user.
#[derive(Clone, Debug)]
pub struct Rules {
    is_on: bool,
    /// Any password is right.
    needs_no_password: bool,
    /// `sanitize-payload` and its contrary are kept for ACL GETUSER; RESTORE always checks.
    sanitizes: Option<bool>,
    passwords: Vec<Hash>,
    root: Selector,
    selectors: Vec<Selector>,
}

/// The word of ACL SETUSER that was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct BadWord {
    /// The word.
    pub word: Vec<u8>,
    /// Why.
    pub why: RuleError,
}

impl Rules {
    /// Those of a new user: it may not log in, and has no rights.
    pub fn new(commands: &Commands, all_channels: bool) -> Self {
        Self {
            is_on: false,
            needs_no_password: false,
            sanitizes: None,
            passwords: Vec::new(),
            root: Selector::new(commands, all_channels),
            selectors: Vec::new(),
        }
    }

    /// Those of the default user, which may do everything: without a password if it is empty.
    pub fn of_default(commands: &Commands, password: &[u8]) -> Self {
        let mut rules = Self::new(commands, true);
        // Words that are always known.
        let _ = rules.root.set(commands, b"+@all").and_then(|()| rules.root.set(commands, b"~*"));
        rules.is_on = true;
        rules.set_password(password);
        rules
    }

    /// The only password from now on; any, if it is empty (`requirepass`).
    pub(super) fn set_password(&mut self, password: &[u8]) {
        self.needs_no_password = password.is_empty();
        self.passwords = if password.is_empty() { Vec::new() } else { vec![Hash::of(password)] };
    }

    /// Applies words of ACL SETUSER in order. `all_channels`: what a new selector may use.
    ///
    /// # Errors
    /// The first word that is refused; the rules are then changed in part.
    pub fn set_all(
        &mut self,
        commands: &Commands,
        words: &[Vec<u8>],
        all_channels: bool,
    ) -> Result<(), BadWord> {
        for word in words {
            self.set(commands, word, all_channels).map_err(|why| BadWord { word: word.clone(), why })?;
        }
        Ok(())
    }

    /// Applies one word of ACL SETUSER.
    ///
    /// # Errors
    /// The word has no meaning, or no effect.
    pub fn set(&mut self, commands: &Commands, word: &[u8], all_channels: bool) -> Result<(), RuleError> {
        let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
        match word {
            [] => {}
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("sanitize-payload") => self.sanitizes = Some(true),
            _ if is("skip-sanitize-payload") => self.sanitizes = Some(false),
            _ if is("nopass") => self.set_password(b""),
            _ if is("resetpass") => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            _ if is("reset") => {
                *self = Self::new(commands, all_channels);
                self.sanitizes = Some(true);
            }
            _ if is("clearselectors") => self.selectors.clear(),
            [mark @ (b'>' | b'#' | b'<' | b'!'), text @ ..] => {
                let hash = match mark {
                    b'>' | b'<' => Hash::of(text),
                    _ => Hash::parse(text).ok_or(RuleError::BadHash)?,
                };
                let known = self.passwords.iter().position(|known| *known == hash);
                match (mark, known) {
                    (b'>' | b'#', known) => {
                        if known.is_none() {
                            self.passwords.push(hash);
                        }
                        self.needs_no_password = false;
                    }
                    (_, Some(at)) => drop(self.passwords.remove(at)),
                    (_, None) => return Err(RuleError::NoSuchPassword),
                }
            }
            [b'(', inner @ .., b')'] => {
                let mut selector = Selector::new(commands, all_channels);
                for word in split(inner)? {
                    // In a file it would end the selector, or be split in another place.
                    let is_quoted = word.iter().any(|byte| matches!(byte, b'"' | b'\''));
                    if is_quoted || word.ends_with(b")") || word.starts_with(b"(") {
                        return Err(RuleError::Syntax);
                    }
                    selector.set(commands, &word)?;
                }
                self.selectors.push(selector);
            }
            _ => return self.root.set(commands, word),
        }
        Ok(())
    }

    /// Whether it may log in.
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether it may log in with any password.
    pub const fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Whether any password is right, for AUTH without a name.
    pub const fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Whether this is one of its passwords. The time does not depend on which.
    pub fn has_password(&self, hash: &Hash) -> bool {
        Hash::is_among(hash, &self.passwords) | self.needs_no_password
    }

    /// Whether it may do everything.
    pub fn is_unlimited(&self) -> bool {
        self.all().any(Selector::is_unlimited)
    }

    fn all(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether a command may run with these arguments.
    ///
    /// # Errors
    /// What no selector allows.
    #[inline]
    pub fn check(&self, spec: &Spec, index: usize, args: Args<'_>) -> Result<(), Denied> {
        let denied = match self.root.check(spec, index, args) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        let mut last = denied;
        for selector in &self.selectors {
            match selector.check(spec, index, args) {
                Ok(()) => return Ok(()),
                Err(denied) => last = last.max(denied),
            }
        }
        Err(last)
    }

    /// Whether the command may run, and all keys be read.
    pub fn may_read_all(&self, spec: &Spec, index: usize, args: Args<'_>) -> bool {
        self.all()
            .any(|selector| selector.check(spec, index, args).is_ok() && selector.may_read_all_with(b""))
    }

    /// Whether all keys with this prefix may be read.
    pub fn may_read_all_with(&self, prefix: &[u8]) -> bool {
        self.all().any(|selector| selector.may_read_all_with(prefix))
    }

    /// Whether one selector allows the command at a position, and a key if one is given.
    pub fn may(&self, command: usize, key: Option<(&[u8], KeyFlags)>) -> bool {
        self.all().any(|selector| {
            selector.may_run(command) && key.is_none_or(|(key, flags)| selector.may_use(key, flags))
        })
    }

    /// Whether a channel, or a pattern of PSUBSCRIBE, is allowed.
    pub fn may_listen(&self, name: &[u8], is_pattern: bool) -> bool {
        self.all().any(|selector| selector.may_listen(name, is_pattern))
    }

    /// The flags, as ACL GETUSER names them.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let sanitizes =
            self.sanitizes.map(|is| if is { "sanitize-payload" } else { "skip-sanitize-payload" });
        let is_on = if self.is_on { "on" } else { "off" };
        [Some(is_on), self.needs_no_password.then_some("nopass"), sanitizes].into_iter().flatten()
    }

    /// The hashes of its passwords.
    pub fn passwords(&self) -> &[Hash] {
        &self.passwords
    }

    /// The rights that stand outside of parentheses.
    pub const fn root(&self) -> &Selector {
        &self.root
    }

    /// Those in parentheses.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// All of it, as ACL SETUSER reads it.
    pub fn describe(&self) -> Vec<u8> {
        let flags: Vec<&str> = self.flags().collect();
        let passwords: Vec<String> = self.passwords.iter().map(|hash| format!("#{}", hash.hex())).collect();
        let mut text =
            join(&[flags.join(" ").as_bytes(), passwords.join(" ").as_bytes(), &self.root.describe()]);
        for selector in &self.selectors {
            text.extend([b" (", &*selector.describe(), b")"].concat());
        }
        text
    }
}

fn split(text: &[u8]) -> Result<Vec<Vec<u8>>, RuleError> {
    let (mut buffer, mut spans) = (Vec::new(), Vec::new());
    inline::split(text, &mut buffer, &mut spans).map_err(|inline::Unbalanced| RuleError::Syntax)?;
    Ok(spans.iter().map(|span| buffer[span.start..span.end].to_vec()).collect())
}

/// Joins the words of a selector that were given apart: from one that begins with a parenthesis to one that ends with
/// its fellow.
///
/// # Errors
/// The word that begins a selector without an end.
pub fn merge_selectors(words: &[&[u8]]) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut merged = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words {
        if let Some((first, mut text)) = open.take() {
            text.push(b' ');
            text.extend_from_slice(word);
            if word.ends_with(b")") {
                merged.push(text);
            } else if word.starts_with(b"(") {
                return Err(first.to_vec());
            } else {
                open = Some((first, text));
            }
        } else if word.starts_with(b"(") && !word.ends_with(b")") {
            open = Some((word, word.to_vec()));
        } else {
            merged.push(word.to_vec());
        }
    }
    match open {
        Some((first, _)) => Err(first.to_vec()),
        None => Ok(merged),
    }
}
