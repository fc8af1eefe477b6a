//! Sets of names from Redis: flags, ACL categories, uses of keys.

/// Makes a set type: a bit for each member; the names are listed in this order, which is Redis's.
macro_rules! named_set {
    ($(#[$about:meta])* $set:ident { $($(#[$doc:meta])* $constant:ident = $bit:literal, $name:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $set(u32);

        impl $set {
            $($(#[$doc])* pub const $constant: Self = Self(1 << $bit);)*

            /// The empty set.
            pub const NONE: Self = Self(0);

            const NAMES: &'static [(Self, &'static str)] = &[$((Self::$constant, $name)),*];

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

            /// Whether one of `other` is in this set.
            #[inline]
            #[allow(dead_code, reason = "each set has what any of them needs")]
            pub const fn has_any(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// The member with this name, in any case.
            pub fn of_name(name: &[u8]) -> Option<Self> {
                let same = |(_, other): &&(Self, &str)| other.as_bytes().eq_ignore_ascii_case(name);
                Self::NAMES.iter().find(same).map(|(member, _)| *member)
            }

            /// The members with these names; `None` when a name is that of none.
            pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
                let mut names = names.into_iter().map(|name| Self::of_name(name.as_bytes()));
                names.try_fold(Self::NONE, |set, member| Some(set.with(member?)))
            }

            /// The names of all members that there are.
            #[allow(dead_code, reason = "each set has what any of them needs")]
            pub fn all_names() -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().map(|(_, name)| *name)
            }

            /// The names of the members.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().filter(move |(member, _)| self.has(*member)).map(|(_, name)| *name)
            }
        }
    };
}

pub(super) use named_set;
