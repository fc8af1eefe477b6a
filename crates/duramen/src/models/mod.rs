//! Model checking with loom: small programs over the engine's own code, run through every order of their
//! atomic operations (within a bound of preemptions), with every value that the memory model lets a load return.
//! Compiled with `--cfg loom` alone; run by `cargo xtask loom`, described in `docs/checking.md`.
//!
//! [`primitives`] stands behind [`crate::sync`]. The index has buckets of two slots and segments of two
//! buckets then, so that a handful of keys overflows and splits.

pub(crate) mod primitives;
