//! The user of one connection, with the rules as of its last command.

use super::selector::Denied;
use super::user::{Rules, User};
use super::users::Users;
use crate::redis::command::{Args, KeyFlags, Spec};
use std::sync::Arc;

/// See the module.
#[derive(Clone)]
pub struct Login {
    // `None`: the server's own work, which may do everything.
    user: Option<Arc<User>>,
    rules: Option<Arc<Rules>>,
    generation: u64,
    is_unlimited: bool,
}

impl Login {
    /// That of the server's own work.
    pub const fn trusted() -> Self {
        Self { user: None, rules: None, generation: 0, is_unlimited: true }
    }

    /// As this user.
    pub fn of(user: Arc<User>, users: &Users) -> Self {
        let mut login = Self { user: Some(user), ..Self::trusted() };
        login.read_rules(users);
        login
    }

    /// The user; `None`: the server itself.
    pub const fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Its name, if it has one.
    pub fn name(&self) -> Option<&[u8]> {
        self.user.as_ref().map(|user| &*user.name)
    }

    /// Whether nothing need be checked.
    #[inline]
    pub fn is_unlimited(&mut self, users: &Users) -> bool {
        if self.generation != users.generation() {
            self.read_rules(users);
        }
        self.is_unlimited
    }

    /// The user of the connection is gone, or its rules have changed.
    #[cold]
    fn read_rules(&mut self, users: &Users) {
        // First: a change after it is noticed next time.
        self.generation = users.generation();
        let Some(user) = &self.user else { return };
        self.rules = (!user.is_deleted()).then(|| user.rules());
        self.is_unlimited = self.rules.as_ref().is_some_and(|rules| rules.is_unlimited());
    }

    fn rules(&mut self, users: &Users) -> Result<&Rules, Denied> {
        self.is_unlimited(users);
        self.rules.as_deref().ok_or(Denied::Command)
    }

    /// Whether a command may run with these arguments.
    ///
    /// # Errors
    /// What it may not.
    #[inline]
    pub fn check(&mut self, users: &Users, spec: &Spec, index: usize, args: Args<'_>) -> Result<(), Denied> {
        if self.is_unlimited(users) {
            return Ok(());
        }
        self.rules(users)?.check(spec, index, args)
    }

    /// Whether the rights outside of parentheses allow a command that has one key, on each of these. If not, others may.
    #[inline]
    pub fn may_use_all<'k>(
        &mut self,
        users: &Users,
        command: usize,
        flags: KeyFlags,
        keys: &mut impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        self.rules(users).is_ok_and(|rules| rules.root().may_use_all(command, flags, keys))
    }

    /// Whether the command may run, and all keys be read: SORT with BY or GET.
    pub fn may_read_all(&mut self, users: &Users, spec: &Spec, index: usize, args: Args<'_>) -> bool {
        self.is_unlimited(users) || self.rules(users).is_ok_and(|rules| rules.may_read_all(spec, index, args))
    }

    /// Whether all keys with this prefix may be read.
    pub fn may_read_all_with(&mut self, users: &Users, prefix: &[u8]) -> bool {
        self.is_unlimited(users) || self.rules(users).is_ok_and(|rules| rules.may_read_all_with(prefix))
    }

    /// Whether the command of this name may run on a key, for a protocol that has other names.
    pub fn may(&mut self, users: &Users, command: &str, key: Option<(&[u8], KeyFlags)>) -> bool {
        if self.is_unlimited(users) {
            return true;
        }
        let Some(index) = users.commands().find(command.as_bytes()) else { return false };
        self.rules(users).is_ok_and(|rules| rules.may(index, key))
    }
}
