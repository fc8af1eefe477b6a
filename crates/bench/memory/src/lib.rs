//! What a byte-addressable memory can do: workloads described in YAML, inner loops that do nothing but the
//! access, and a verdict. Works over `duramen-media`, never over the engine.

mod address;
mod bounds;
pub mod kernel;

pub use bounds::{Bounds, bounds, persists_of};
