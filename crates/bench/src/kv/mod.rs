//! Named key-value workloads against the engine, each compared with the time that its bare memory accesses take.
//!
//! | to | see |
//! |---|---|
//! | name a workload, a record shape, a distribution | [`Workload`], [`Shape`], [`Distribution`] |
//! | measure another engine by the same workloads | [`Engine`], [`Session`], [`run`] |
//! | measure Duramen | [`DuramenEngine`], [`targets`] |
//!
//! Invariants:
//!
//! 1. A workload is a function of its seed: the same seed gives the same operations on the same bytes. Engine, thread
//!    schedule and machine do not matter.
//! 2. Every returned value is checked against its key. The first wrong one ends the run with an error and without
//!    figures.
//! 3. Operations are made before the clock starts; docs/internals/bench-kv.md states what runs while the clock runs.

pub mod bound;
mod clock;
pub mod contender;
mod distribution;
mod duramen_engine;
mod elsewhere;
mod engine;
mod failure;
mod forms;
pub mod place;
mod plan;
mod prepared;
pub mod probe;
mod random;
mod records;
pub mod recovery;
pub mod reporting;
mod run;
mod statistics;
pub mod studies;
pub mod suite;
pub mod targets;
pub mod variants;
mod workload;

pub use clock::Clock;
pub use distribution::Distribution;
/// Options for opening stores, for callers that do not depend on the engine themselves.
pub use duramen::{Durability, FlushInstruction, IndexKind, MediumKind, Options};
pub use duramen_engine::DuramenEngine;
pub use engine::{Changed, Engine, Session, Unwatched, Visit, Watch};
pub use failure::{Failure, Result};
pub use plan::{Plan, Steps};
pub use records::{Records, Shape};
pub use run::{Latency, Outcome, Pace, SLICE, Slice, check_all, run};
pub use statistics::median;
pub use workload::{Op, Workload};
