//! The contenders of a comparison: an engine, or a variant of one, that can be made again for each round.

use crate::kv::engine::{Engine, Watch};
use crate::kv::place::{Place, anonymous_bytes};
use crate::kv::run::{LockWaits, check_all};
use crate::kv::{Latency, Outcome, Pace, Plan, Records, Result, run};
use duramen::IndexKind;
use std::path::Path;

/// An engine that can be opened on an empty place as often as wanted.
pub trait Contender {
    /// Its name in tables; unique among the contenders of a run.
    fn name(&self) -> String;

    /// When an acknowledged write survives which failure, in a few words. Only contenders with the same durability are
    /// compared.
    fn durability(&self) -> String;

    /// The path of its stores: contenders with the same path cannot have stores at the same time. `None` never
    /// conflicts.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Whether values must be put in another way to be updated in place, which makes reads slower.
    fn distinguishes_updates(&self) -> bool {
        false
    }

    /// Makes an empty store, which is removed when the value is dropped. `updates`: values will be updated in place.
    ///
    /// # Errors
    /// An error of the engine; a usage error if something is already there.
    fn open(&self, updates: bool) -> Result<Box<dyn Opened + '_>>;
}

/// An open engine, whatever its type.
pub trait Opened {
    /// Runs `plan`.
    ///
    /// # Errors
    /// As [`run`].
    fn run(
        &self,
        records: &Records,
        plan: &Plan,
        latency: Latency,
        pace: Pace,
        watch: &dyn Watch,
    ) -> Result<Outcome>;

    /// Finishes the engine's background work.
    ///
    /// # Errors
    /// As [`Engine::finish_background`].
    fn finish_background(&self) -> Result<()>;

    /// Reads and checks all keys below `keys`.
    ///
    /// # Errors
    /// As [`check_all`].
    fn check_all(&self, records: &Records, keys: u64) -> Result<()>;

    /// Bytes that the store takes on its medium now; `None` without a medium.
    fn medium_bytes(&self) -> Option<u64>;

    /// A line about the store and its medium.
    fn describe(&self) -> String;
}

/// An engine with its size on the medium and the value that removes it.
pub struct Held<E, F> {
    /// The engine.
    pub engine: E,
    /// Bytes on the medium.
    pub medium_bytes: F,
    /// A line about it.
    pub describe: String,
}

impl<E: Engine, F: Fn(&E) -> Option<u64>> Opened for Held<E, F> {
    fn run(
        &self,
        records: &Records,
        plan: &Plan,
        latency: Latency,
        pace: Pace,
        watch: &dyn Watch,
    ) -> Result<Outcome> {
        run(&self.engine, records, plan, latency, pace, watch)
    }

    fn finish_background(&self) -> Result<()> {
        self.engine.finish_background()
    }

    fn check_all(&self, records: &Records, keys: u64) -> Result<()> {
        check_all(&self.engine, records, keys)
    }

    fn medium_bytes(&self) -> Option<u64> {
        (self.medium_bytes)(&self.engine)
    }

    fn describe(&self) -> String {
        self.describe.clone()
    }
}

/// Duramen, opened with some options.
#[derive(Clone, Debug)]
pub struct Duramen {
    /// Its name in tables.
    pub name: String,
    /// Where the store is, and how it is opened.
    pub place: Place,
    /// Whether updates change values in place; otherwise an update is a new version.
    pub in_place: bool,
}

impl Contender for Duramen {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn durability(&self) -> String {
        crate::kv::duramen_engine::durability_name(self.place.options.durability)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.place.path)
    }

    fn distinguishes_updates(&self) -> bool {
        self.in_place
    }

    fn open(&self, updates: bool) -> Result<Box<dyn Opened + '_>> {
        Ok(Box::new(self.place.fresh(self.in_place && updates)?))
    }
}

impl Opened for crate::kv::place::Fresh {
    fn run(
        &self,
        records: &Records,
        plan: &Plan,
        latency: Latency,
        pace: Pace,
        watch: &dyn Watch,
    ) -> Result<Outcome> {
        let store = self.engine().store();
        let before = store.stats();
        let outcome = run(self.engine(), records, plan, latency, pace, watch)?;
        let after = store.stats();
        let lock_waits = LockWaits {
            keys: after.index_key_waits - before.index_key_waits,
            leaves: (store.index_kind() == IndexKind::Ordered)
                .then(|| after.index_leaf_waits - before.index_leaf_waits),
        };
        Ok(Outcome { lock_waits: Some(lock_waits), ..outcome })
    }

    fn finish_background(&self) -> Result<()> {
        self.engine().finish_background()
    }

    fn check_all(&self, records: &Records, keys: u64) -> Result<()> {
        check_all(self.engine(), records, keys)
    }

    fn medium_bytes(&self) -> Option<u64> {
        Some(self.engine().store().stats().used_bytes)
    }

    fn describe(&self) -> String {
        self.engine().store().describe()
    }
}

/// Memory and medium that a load took.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Anonymous memory per record, in bytes. Known only for the first store in a process: later ones reuse memory that
    /// the allocator kept.
    pub dram: Option<f64>,
    /// Medium per record, in bytes.
    pub medium: Option<f64>,
}

impl Space {
    /// The space of `keys` records; `before`: memory before the store was opened.
    pub(crate) fn of(opened: &dyn Opened, before: Option<u64>, keys: u64) -> Self {
        let keys = keys as f64;
        Self {
            dram: before.map(|before| anonymous_bytes().saturating_sub(before) as f64 / keys),
            medium: opened.medium_bytes().map(|bytes| bytes as f64 / keys),
        }
    }
}
