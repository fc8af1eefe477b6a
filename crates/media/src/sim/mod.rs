//! A simulated medium: ordinary memory, and a log of all its events. From the log, every memory image that a power
//! failure could leave can be formed.
//!
//! Three models, one per granularity:
//!
//! | model | a store is durable | until then |
//! |---|---|---|
//! | [`Model::CacheLine`] (ADR) | when its line was flushed and the same thread drained after | the line may hold any prefix of its stores, the next one torn in 8-byte words; lines are independent; words of `write` (non-temporal) may be missing in any order |
//! | [`Model::Byte`] (eADR, CXL flush) | when it was made, in program order; `write` when drained | the next store torn in 8-byte words |
//! | [`Model::Page`] (file) | when a `sync` after it returned | each 512-byte sector of a dirty page may hold any prefix of its stores; the file may have its old length |
//!
//! [`SimMedium`] records, [`Log`] is the record, [`Walker`] walks a log and forms images, and a new `SimMedium` opens
//! on one. Nothing is copied while a workload runs: an event takes 80 bytes. Code for stores of this machine runs on it
//! through [`Mapped`].
//!
//! [`lose`] makes it skip the calls of one source line: a planted bug. [`schedule`] decides which thread of the machine
//! runs next, so that a run of several threads repeats too.
//!
//! Invariants:
//! 1. The order of events in the log is the order in which their stores reached the memory.
//! 2. A word that lies in an image was stored there by somebody, or is zero, or was in the base.
//! 3. The same log, choice and seed give the same image. (No line can check it: it is about two runs.
//!    `a_run_of_the_engine_repeats_by_its_seed` compares them.)

mod images;
mod log;
mod lost;
mod machine;
mod mapped;
mod memory;
pub mod schedule;

pub use images::{Choice, Pick, Walker};
pub use log::{Event, Kind, Log};
pub use lost::lose;
pub use machine::SimMedium;
pub use mapped::Mapped;
pub use memory::Memory;

/// What survives when: see the table of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Stores are certain when their line was flushed and the flush drained.
    CacheLine,
    /// Stores are certain in program order.
    Byte,
    /// Stores are certain after a sync.
    Page,
}

/// A small generator of pseudo-random numbers (SplitMix64), the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that repeats with its seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64 }
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A generator of its own for one part of a run.
    pub fn fork(&mut self) -> Self {
        Self(self.bits())
    }
}
