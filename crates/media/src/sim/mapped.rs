//! [`Mapped`] of builds with the simulated medium: the real one, or a simulated one in its place. Code for stores of
//! this machine (structures, jobs, servers) runs on either. Builds without the feature `sim` have only the real one,
//! and nothing of this file.
//!
//! Invariant: each method hands its call on and does nothing else. Those at which [`lose`](super::lose) looks for its
//! caller are marked `#[track_caller]`.

use super::SimMedium;
use crate::mapped::Mapped as Real;
use crate::{
    Bytes, Device, FlushInstruction, Granularity, MediaOptions, MediumKind, Offset, Persistent, Result,
};
use std::ops::Range;
use std::path::Path;

/// A medium that is mapped into memory, or a simulated one. See [`Mapped::open`] and [`Mapped::simulated`].
#[derive(Debug)]
pub struct Mapped(Inner);

#[derive(Debug)]
enum Inner {
    Real(Real),
    Simulated(SimMedium),
}

/// Calls the same method of whichever medium it is.
macro_rules! either {
    ($self:ident, $medium:ident => $call:expr) => {
        match &$self.0 {
            Inner::Real($medium) => $call,
            Inner::Simulated($medium) => $call,
        }
    };
}

impl Mapped {
    /// Opens the medium at `path`, or makes it: as in builds without the simulated medium.
    ///
    /// # Errors
    /// As there.
    pub fn open(path: &Path, options: &MediaOptions) -> Result<Self> {
        Real::open(path, options).map(|real| Self(Inner::Real(real)))
    }

    /// A simulated medium, for code that takes only [`Mapped`].
    #[must_use]
    pub fn simulated(medium: SimMedium) -> Self {
        Self(Inner::Simulated(medium))
    }

    /// Whether the medium held nothing when it was opened; of a simulated one, whether it has no bytes yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        match &self.0 {
            Inner::Real(real) => real.is_new(),
            Inner::Simulated(medium) => medium.is_empty(),
        }
    }

    /// What the medium is made of; never `Auto`. A simulated one is the kind of its granularity.
    #[must_use]
    pub fn kind(&self) -> MediumKind {
        match &self.0 {
            Inner::Real(real) => real.kind(),
            Inner::Simulated(medium) if medium.granularity() == Granularity::Page => MediumKind::File,
            Inner::Simulated(_) => MediumKind::Devdax,
        }
    }

    /// The path of the file or device; of a volatile or a simulated medium, its name.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &self.0 {
            Inner::Real(real) => real.path(),
            Inner::Simulated(_) => Path::new("simulated"),
        }
    }

    /// How stores are made durable. A simulated medium has no instructions for it.
    #[must_use]
    pub fn flush_instruction(&self) -> FlushInstruction {
        match &self.0 {
            Inner::Real(real) => real.flush_instruction(),
            Inner::Simulated(_) => FlushInstruction::OrderOnly,
        }
    }

    /// One line for the operator when the medium sits on small pages and could have huge ones.
    #[must_use]
    pub fn small_pages_advice(&self) -> Option<String> {
        match &self.0 {
            Inner::Real(real) => real.small_pages_advice(),
            Inner::Simulated(_) => None,
        }
    }
}

impl Bytes for Mapped {
    #[inline]
    fn len(&self) -> u64 {
        either!(self, medium => medium.len())
    }

    #[inline]
    fn pointer(&self, at: Offset, bytes: u64) -> *const u8 {
        either!(self, medium => medium.pointer(at, bytes))
    }

    fn unreadable(&self, at: Offset, bytes: u64) -> Vec<Range<u64>> {
        either!(self, medium => medium.unreadable(at, bytes))
    }

    fn fetch(&self, at: Offset, bytes: u64) {
        either!(self, medium => medium.fetch(at, bytes));
    }

    fn is_cold(&self, at: Offset, bytes: u64) -> bool {
        either!(self, medium => medium.is_cold(at, bytes))
    }

    fn read_once(&self, at: Offset, into: &mut [u8]) -> bool {
        either!(self, medium => medium.read_once(at, into))
    }

    #[inline]
    fn load_u64(&self, at: Offset) -> u64 {
        either!(self, medium => medium.load_u64(at))
    }

    #[inline]
    fn load_pieces(&self, at: Offset, into: &mut [u8]) {
        either!(self, medium => medium.load_pieces(at, into));
    }

    #[inline]
    fn prefetch(&self, at: Offset) {
        either!(self, medium => medium.prefetch(at));
    }
}

impl Persistent for Mapped {
    fn granularity(&self) -> Granularity {
        either!(self, medium => medium.granularity())
    }

    #[inline]
    fn store_u64(&self, at: Offset, word: u64) {
        either!(self, medium => medium.store_u64(at, word));
    }

    #[inline]
    #[track_caller]
    fn store_atomic(&self, at: Offset, bytes: &[u8]) -> bool {
        either!(self, medium => medium.store_atomic(at, bytes))
    }

    fn atomic_bytes_max(&self) -> u64 {
        either!(self, medium => medium.atomic_bytes_max())
    }

    #[inline]
    fn store(&self, at: Offset, parts: &[&[u8]]) {
        either!(self, medium => medium.store(at, parts));
    }

    #[inline]
    #[track_caller]
    fn write(&self, at: Offset, parts: &[&[u8]]) {
        either!(self, medium => medium.write(at, parts));
    }

    #[inline]
    #[track_caller]
    fn flush(&self, at: Offset, bytes: u64) {
        either!(self, medium => medium.flush(at, bytes));
    }

    #[inline]
    #[track_caller]
    fn drain(&self) {
        either!(self, medium => medium.drain());
    }

    #[track_caller]
    fn sync(&self) -> Result<()> {
        either!(self, medium => medium.sync())
    }
}

impl Device for Mapped {
    fn len_max(&self) -> u64 {
        either!(self, medium => medium.len_max())
    }

    fn grow(&self, len: u64) -> Result<()> {
        either!(self, medium => medium.grow(len))
    }

    fn gives_back(&self) -> bool {
        either!(self, medium => medium.gives_back())
    }

    fn give_back(&self, at: Offset, bytes: u64) {
        either!(self, medium => medium.give_back(at, bytes));
    }

    fn has_space(&self, at: Offset, bytes: u64) -> bool {
        either!(self, medium => medium.has_space(at, bytes))
    }

    fn back(&self, at: Offset, bytes: u64) -> Result<()> {
        either!(self, medium => medium.back(at, bytes))
    }

    fn prepare(&self, at: Offset, bytes: u64) -> Result<()> {
        either!(self, medium => medium.prepare(at, bytes))
    }

    fn reuse(&self, at: Offset, bytes: u64) {
        either!(self, medium => medium.reuse(at, bytes));
    }

    fn fault_in(&self, at: Offset, bytes: u64) {
        either!(self, medium => medium.fault_in(at, bytes));
    }

    fn unwritten_is_zero(&self) -> bool {
        either!(self, medium => medium.unwritten_is_zero())
    }

    fn interleave(&self) -> (u64, u32) {
        either!(self, medium => medium.interleave())
    }

    fn survives_process(&self) -> bool {
        either!(self, medium => medium.survives_process())
    }

    fn survives_power(&self) -> bool {
        either!(self, medium => medium.survives_power())
    }

    fn release(&self) {
        either!(self, medium => medium.release());
    }

    fn is_deleted(&self) -> bool {
        either!(self, medium => medium.is_deleted())
    }

    fn describe(&self) -> String {
        either!(self, medium => medium.describe())
    }
}
