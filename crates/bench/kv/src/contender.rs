//! What is measured beside what: an engine, or a variant of one, that can be made anew for each round.

use crate::engine::{Engine, Watch};
use crate::place::{Place, anonymous_bytes};
use crate::run::{LockWaits, check_all};
use crate::{Latency, Outcome, Pace, Plan, Records, Result, run};
use duramen::IndexKind;
use std::path::Path;

/// An engine that can be opened on nothing, as often as wanted.
pub trait Contender {
    /// Its name in tables; contenders of one run differ in it.
    fn name(&self) -> String;

    /// When an acknowledged write survives what, in a few words. Only contenders of the same are compared.
    fn durability(&self) -> String;

    /// Where it makes its stores, if nobody else can be there at the same time.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Whether values have to be put in another way if they are to be updated in place, which reads then pay for.
    fn distinguishes_updates(&self) -> bool {
        false
    }

    /// Makes an empty store, which goes when the value does. `updates`: values will be updated in place.
    ///
    /// # Errors
    /// As the engine says; usage, when something is there.
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

    /// Ends what goes on in the background.
    ///
    /// # Errors
    /// As [`Engine::settle`].
    fn settle(&self) -> Result<()>;

    /// Reads and checks all keys below `keys`.
    ///
    /// # Errors
    /// As [`check_all`].
    fn check_all(&self, records: &Records, keys: u64) -> Result<()>;

    /// Bytes that the store takes on its medium now; `None` where it has none.
    fn medium_bytes(&self) -> Option<u64>;

    /// A line about the store and its medium.
    fn describe(&self) -> String;
}

/// An engine with what it takes on its medium, and what removes it.
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

    fn settle(&self) -> Result<()> {
        self.engine.settle()
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

/// Duramen, opened in one way.
#[derive(Clone, Debug)]
pub struct Duramen {
    /// Its name in tables.
    pub name: String,
    /// Where, and how.
    pub place: Place,
    /// Whether values that are updated change in place; else an update is a new version.
    pub in_place: bool,
}

impl Contender for Duramen {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn durability(&self) -> String {
        crate::duramen_engine::durability_name(self.place.options.durability)
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

impl Opened for crate::place::Fresh {
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

    fn settle(&self) -> Result<()> {
        self.engine().settle()
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

/// What a load took of memory and medium.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Anonymous memory per record, in bytes. Known of the first store in a process only: later ones are given
    /// memory that the allocator kept of those before.
    pub dram: Option<f64>,
    /// Medium per record, in bytes.
    pub medium: Option<f64>,
}

impl Space {
    /// Of `keys` records, when memory was `before` before the store was opened.
    pub(crate) fn of(opened: &dyn Opened, before: Option<u64>, keys: u64) -> Self {
        let keys = keys as f64;
        Self {
            dram: before.map(|before| anonymous_bytes().saturating_sub(before) as f64 / keys),
            medium: opened.medium_bytes().map(|bytes| bytes as f64 / keys),
        }
    }
}
