//! What a byte-addressable memory can do: workloads described in YAML, inner loops that do nothing but the
//! access, and a verdict. Works over `duramen-media`, never over the engine.

mod address;
mod bounds;
mod error;
pub mod kernel;
mod place;
mod plan;
mod run;
mod tier;
mod workload;
mod yaml;

pub use bounds::{Bounds, bounds, persists_of};
pub use error::{Error, ErrorKind, Result};
pub use place::{Target, available_memory};
pub use plan::{Benchmark, Overrides, Part, benchmarks, knobs, parse_bytes};
pub use run::{Bench, Outcome, Unwatched, Watch};
pub use tier::{Node, Placing, allowed_cores, nodes};
pub use workload::{CustomStep, Distribution, Mode, NumaPattern, Operation, Pin, StepKind, Workload};
