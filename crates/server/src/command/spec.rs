//! What a command is to the dispatcher: its name, how many arguments it takes, what it may do, and
//! the function that does it.
//!
//! Everything that is only *told* about a command (summary, arguments, history, key
//! specifications) lives in `reference.jsonl`, which was taken from Redis 7.0's own `COMMAND INFO`
//! and `COMMAND DOCS`; a test holds each [`Spec`] against it, so the two cannot drift apart.

use super::{Call, CommandError};

/// Does what the command says and writes exactly one reply. An error makes the dispatcher take back
/// whatever was written to the reply and write the error in its place.
///
/// May be called again for the same command when its transaction met a conflict: what it does outside
/// the transaction must bear repeating.
pub type Apply = fn(&mut Call<'_, '_>) -> Result<(), CommandError>;

/// One command, or one subcommand, as the table holds it.
///
/// ```text
/// pub const STRLEN: Spec = Spec {
///     arity: 2,
///     flags: Flags::READONLY.with(Flags::FAST),
///     keys: Keys::FIRST,
///     ..Spec::new("strlen", strlen)
/// };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Lower case; for a subcommand with its container: `client|id`.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i16,
    /// What the command may do, and where it may be used.
    pub flags: Flags,
    /// Where its keys are.
    pub keys: Keys,
    /// Subcommands, found by the second argument. `apply` is then what runs for an unknown one, by
    /// custom [`super::subcommand_unknown`].
    pub subcommands: &'static [Spec],
    /// What runs.
    pub apply: Apply,
}

impl Spec {
    /// A command without keys or flags that takes only its name; to be completed by `..`.
    pub const fn new(name: &'static str, apply: Apply) -> Self {
        Self { name, arity: 1, flags: Flags::NONE, keys: Keys::NONE, subcommands: &[], apply }
    }

    /// A command that is only a holder of subcommands.
    pub const fn container(name: &'static str, subcommands: &'static [Spec]) -> Self {
        Self { arity: -2, subcommands, ..Self::new(name, super::subcommand_unknown) }
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
}

/// Where the keys of a command are among its arguments, in Redis's terms: `last` counts from the end
/// when negative, and a `step` of 0 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Index of the first key; 0 means none.
    pub first: i16,
    /// Index of the last key.
    pub last: i16,
    /// Distance from one key to the next.
    pub step: i16,
}

impl Keys {
    /// No keys.
    pub const NONE: Self = Self::range(0, 0, 0);
    /// The first argument is the only key.
    pub const FIRST: Self = Self::range(1, 1, 1);
    /// Every argument is a key.
    pub const ALL: Self = Self::range(1, -1, 1);

    /// Keys from `first` to `last`, every `step` arguments.
    pub const fn range(first: i16, last: i16, step: i16) -> Self {
        Self { first, last, step }
    }
}

/// What a command may do and where it may be used: a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

macro_rules! flags {
    ($($(#[$doc:meta])* $constant:ident = $bit:literal, $name:literal;)*) => {
        impl Flags {
            $($(#[$doc])* pub const $constant: Self = Self(1 << $bit);)*

            /// Names as `COMMAND INFO` prints them, in its order.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$constant, $name)),*];
        }
    };
}

flags! {
    /// May change the keyspace.
    WRITE = 0, "write";
    /// Reads keys and changes none.
    READONLY = 1, "readonly";
    /// May need more room on the medium.
    DENYOOM = 2, "denyoom";
    /// For administrators.
    ADMIN = 3, "admin";
    /// Publishes or subscribes.
    PUBSUB = 4, "pubsub";
    /// Not from scripts.
    NOSCRIPT = 5, "noscript";
    /// May wait for another client.
    BLOCKING = 6, "blocking";
    /// Allowed while the store is being opened.
    LOADING = 7, "loading";
    /// Allowed on a replica without its primary.
    STALE = 8, "stale";
    /// Not shown to MONITOR.
    SKIP_MONITOR = 9, "skip_monitor";
    /// Not entered in the slow log.
    SKIP_SLOWLOG = 10, "skip_slowlog";
    /// Constant or logarithmic time.
    FAST = 11, "fast";
    /// Allowed before AUTH.
    NO_AUTH = 12, "no_auth";
    /// May be replicated though it writes no key itself.
    MAY_REPLICATE = 13, "may_replicate";
    /// May be called without keys though it has some.
    NO_MANDATORY_KEYS = 14, "no_mandatory_keys";
    /// Not while the store is being loaded in the background.
    NO_ASYNC_LOADING = 15, "no_async_loading";
    /// Not inside MULTI.
    NO_MULTI = 16, "no_multi";
    /// Key positions depend on the arguments.
    MOVABLE_KEYS = 17, "movablekeys";
    /// Allowed while a script is busy.
    ALLOW_BUSY = 18, "allow_busy";
}

impl Flags {
    /// The empty set.
    pub const NONE: Self = Self(0);
    // Ours, never told: executed at once inside MULTI (EXEC, DISCARD, MULTI, WATCH, QUIT, RESET).
    /// Runs at once even when a MULTI is open.
    pub const NOT_QUEUED: Self = Self(1 << 31);

    /// This set and `other`'s.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are in this set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arity_counts_the_name() {
        let exact = Spec { arity: 2, ..Spec::new("get", super::super::subcommand_unknown) };
        assert!(exact.arity_allows(2) && !exact.arity_allows(1) && !exact.arity_allows(3));
        let open = Spec { arity: -2, ..Spec::new("del", super::super::subcommand_unknown) };
        assert!(open.arity_allows(2) && open.arity_allows(9) && !open.arity_allows(1));
    }
}
