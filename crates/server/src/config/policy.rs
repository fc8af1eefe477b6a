//! The eviction policies (`maxmemory-policy`): their Redis names, and the engine's options for them.

use duramen::{EvictBy, Eviction};

/// See the module. The default refuses writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy(Option<Eviction>);

const fn policy(by: EvictBy, volatile_only: bool) -> Policy {
    Policy::of(Eviction { by, volatile_only })
}

/// In the order in which Redis names them.
const POLICIES: &[(&str, Policy)] = &[
    ("volatile-lru", policy(EvictBy::Recency, true)),
    ("volatile-lfu", policy(EvictBy::Frequency, true)),
    ("volatile-random", policy(EvictBy::Chance, true)),
    ("volatile-ttl", policy(EvictBy::Expiry, true)),
    ("allkeys-lru", Policy::CACHE),
    ("allkeys-lfu", policy(EvictBy::Frequency, false)),
    ("allkeys-random", policy(EvictBy::Chance, false)),
    ("noeviction", Policy(None)),
];

impl Policy {
    /// The policy of a cache: allkeys-lru.
    pub const CACHE: Self = policy(EvictBy::Recency, false);

    /// The policy with these engine options.
    pub const fn of(eviction: Eviction) -> Self {
        Self(Some(eviction))
    }

    /// The policy with this name, ignoring case.
    ///
    /// # Errors
    /// Redis's text.
    pub fn named(name: &str) -> Result<Self, String> {
        let found = POLICIES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, policy)| *policy).ok_or_else(|| {
            let names: Vec<_> = POLICIES.iter().map(|(name, _)| *name).collect();
            format!("argument must be one of the following: {}", names.join(", "))
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        POLICIES.iter().find(|(_, policy)| *policy == self).map_or("noeviction", |(name, _)| name)
    }

    /// The engine's options for it.
    pub const fn eviction(self) -> Option<Eviction> {
        self.0
    }

    /// Whether keys are chosen by how often they are read.
    pub fn is_lfu(self) -> bool {
        self.0.is_some_and(|eviction| eviction.by == EvictBy::Frequency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names() {
        for (name, policy) in POLICIES {
            assert_eq!(Policy::named(&name.to_uppercase()), Ok(*policy));
            assert_eq!(policy.name(), *name);
        }
        assert_eq!(Policy::default().name(), "noeviction");
        assert!(Policy::named("allkeys").unwrap_err().ends_with("allkeys-random, noeviction"));
    }
}
