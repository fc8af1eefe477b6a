//! Benchmarks of byte-addressable memory: workloads described in YAML, inner loops that do nothing but the access, and
//! a verdict. Works over `duramen-media`, never over the engine.
//!
//! | to | use |
//! |---|---|
//! | read workload files | [`benchmarks`], [`suite`] |
//! | run one | [`Bench::run`] on a [`Target`] |
//! | report the results | [`measurements`], [`verdict`], [`profile`] |
//! | measure the bare costs of a medium within another benchmark | [`bounds`] |

mod address;
mod bounds;
mod error;
pub mod kernel;
mod place;
mod plan;
mod record;
mod run;
mod suite;
mod tier;
mod verdict;
mod workload;
mod yaml;

pub use bounds::{Bounds, bounds, persists_of};
pub use duramen_media::Error as MediumError;
pub use error::{Error, ErrorKind, Result};
pub use place::{Target, available_memory};
pub use plan::{Benchmark, Overrides, Part, benchmarks, parse_bytes};
pub use record::{measurements, medium};
pub use run::{Bench, Outcome, Unwatched, Watch};
pub use suite::{PATTERNS, SUITE, built_in, persist_with, suite};
pub use tier::{Node, Placing, allowed_cores, nodes};
pub use verdict::{profile, verdict};
pub use workload::{CustomStep, Distribution, Mode, NumaPattern, Operation, Pin, StepKind, Workload};
