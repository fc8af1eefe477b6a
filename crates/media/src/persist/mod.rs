//! How a store becomes durable: the step of each CPU, chosen once when a medium is opened.
//!
//! Invariants:
//!
//! 1. A step is in use only on a CPU that has it: `Persist::choose` is the only maker, and it asks
//!    the CPU.
//! 2. Every line that `write` or `flush` started is complete when `drain` returns, on the thread that
//!    started it.
//! 3. `write` stores exactly the bytes of its parts and touches no neighbour.

pub(crate) mod page;

use crate::options::{name_of, named};
use std::fmt;
use std::str::FromStr;

/// How stores reach the persistence domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistStep {
    /// x86-64: write the line back and keep it in the cache.
    Clwb,
    /// x86-64: write the line back and drop it from the cache.
    Clflushopt,
    /// x86-64: the same, one line after the other.
    Clflush,
    /// x86-64: whole lines by 64-byte stores that bypass the cache; the rest by the best flush.
    NonTemporalAvx512,
    /// The same with 32-byte stores.
    NonTemporalAvx2,
    /// The same with 16-byte stores.
    NonTemporalSse2,
    /// x86-64: whole lines by 64-byte direct stores; the rest by the best flush.
    Movdir64b,
    /// Nothing but order: caches are inside the persistence domain, or nothing survives a power
    /// failure anyway.
    OrderOnly,
    /// AArch64: clean the line to the point of persistence.
    DcCvap,
    /// AArch64: clean the line to the point of coherency.
    DcCvac,
}

impl PersistStep {
    const NAMES: [(Self, &'static str); 10] = [
        (Self::Clwb, "clwb"),
        (Self::Clflushopt, "clflushopt"),
        (Self::Clflush, "clflush"),
        (Self::NonTemporalAvx512, "nt-avx512"),
        (Self::NonTemporalAvx2, "nt-avx2"),
        (Self::NonTemporalSse2, "nt-sse2"),
        (Self::Movdir64b, "movdir64b"),
        (Self::OrderOnly, "order-only"),
        (Self::DcCvap, "dc-cvap"),
        (Self::DcCvac, "dc-cvac"),
    ];
}

impl fmt::Display for PersistStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(name_of(&Self::NAMES, *self))
    }
}

impl FromStr for PersistStep {
    type Err = crate::Error;

    fn from_str(name: &str) -> crate::Result<Self> {
        named(&Self::NAMES, "persist step", name)
    }
}
