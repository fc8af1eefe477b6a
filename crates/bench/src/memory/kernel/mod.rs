//! The measured accesses: the one module of this crate with unsafe code.
//!
//! A [`Memory`] is an exclusive hold on a range of a medium. Offsets into it are all checked, off the clock, and become
//! a [`Bound`] buffer of addresses; a loop over that buffer does nothing but the accesses. A [`Chain`] is a list of
//! steps, each with an address that depends on the previous read. The address from the buffer is added to the value of
//! the last read, masked to zero. So the access waits for the data, and the address is right whatever the data is.
//!
//! Invariants:
//!
//! 1. The memory of a `Memory<'m>` stays mapped for `'m`, and no Rust reference to it exists while `'m` lasts:
//!    `Memory::hold` takes the medium exclusively.
//! 2. Addresses in a `Bound` or of a `Chain` run are inside their memory for the whole access, and aligned to the
//!    smaller of the access and a line. `bind` is the only way to make them.
//! 3. Threads may store to the same bytes at the same time, but only in assembly, which has no data races in the sense
//!    of the language. Of the data read, only its arrival is used.

pub(crate) mod clock;
pub(crate) mod policy;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("the inner loops are written for x86-64 and AArch64");

use duramen_media::{Bytes, LINE_BYTES, Mapped, Offset};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::AtomicU8;

/// Accesses up to this size are a straight line of instructions; larger ones are blocks of so many bytes.
pub(crate) const BLOCK_BYTES: u64 = 1024;

/// The number of bytes that one instruction moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 64 bytes.
    Avx512,
    /// 32 bytes.
    Avx2,
    /// 16 bytes.
    Sse2,
    /// 32 bytes, as a pair.
    Neon,
    /// 8 bytes.
    Plain,
}

impl Width {
    /// The forms that this CPU has, the widest first.
    pub fn available() -> Vec<Self> {
        arch::WIDTHS.into_iter().filter(|width| arch::has(*width)).collect()
    }

    /// The widest form that this CPU has.
    pub fn widest() -> Self {
        Self::available().first().copied().unwrap_or(Self::Plain)
    }

    /// Bytes that one instruction moves.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Avx512 => 64,
            Self::Avx2 | Self::Neon => 32,
            Self::Sse2 => 16,
            Self::Plain => 8,
        }
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Sse2 => "sse2",
            Self::Neon => "neon",
            Self::Plain => "plain",
        })
    }
}

/// How a store becomes durable. The discriminants are the columns of the loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// Store, write the line back and keep it (`clwb`), fence.
    Cache = 0,
    /// Store, write the line back and drop it (`clflushopt`), fence.
    CacheInvalidate = 1,
    /// Store past the cache, fence.
    NoCache = 2,
    /// Store, and nothing else: not even a fence.
    None = 3,
}

impl Persist {
    /// All, in the order of the verdict.
    pub const ALL: [Self; 4] = [Self::Cache, Self::CacheInvalidate, Self::NoCache, Self::None];

    /// The flag, as in /proc/cpuinfo, that this CPU lacks for it.
    pub fn missing(self) -> Option<&'static str> {
        arch::missing(self)
    }

    /// Its instruction on this CPU.
    pub fn instruction(self) -> &'static str {
        arch::instruction(self)
    }
}

impl fmt::Display for Persist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cache => "cache",
            Self::CacheInvalidate => "cache_invalidate",
            Self::NoCache => "no_cache",
            Self::None => "none",
        })
    }
}

/// A loop over `count` (not 0) addresses, with accesses of `blocks` blocks if they have blocks.
type Loop = unsafe fn(pointers: *const u64, count: usize, blocks: usize);
/// One access. Returns 0, but only once the data is there; a store returns `before`.
type Step = unsafe fn(at: u64, blocks: usize, before: u64) -> u64;

/// All functions of one form for accesses of one size.
#[derive(Clone, Copy)]
struct Functions {
    read: Loop,
    chase: Loop,
    step_read: Step,
    write: [Loop; 4],
    step_write: [Step; 4],
}

/// Whether `bytes` can be the size of an access.
pub(crate) fn is_access_bytes(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes >= 8
}

fn functions(width: Width, bytes: u64) -> Functions {
    assert!(arch::has(width), "this CPU has no {width}");
    assert!(is_access_bytes(bytes), "an access of {bytes} bytes");
    arch::functions(width, bytes)
}

fn blocks(bytes: u64) -> usize {
    (bytes / BLOCK_BYTES) as usize
}

/// A range of a medium, held exclusively.
#[derive(Debug)]
pub struct Memory<'m> {
    base: u64,
    bytes: u64,
    // Shared by threads, written by all of them: like a slice of atomic bytes.
    hold: PhantomData<&'m [AtomicU8]>,
}

impl<'m> Memory<'m> {
    /// Holds `range` of `medium`.
    ///
    /// # Panics
    /// When the range is not inside the medium.
    pub fn hold(medium: &'m mut Mapped, range: Range<u64>) -> Self {
        let bytes = range.end.saturating_sub(range.start);
        let base = medium.pointer(Offset(range.start), bytes) as u64;
        Self { base, bytes, hold: PhantomData }
    }

    /// A part of the memory, for another workload or thread.
    ///
    /// # Panics
    /// When the part is not inside.
    pub fn part(&self, range: Range<u64>) -> Memory<'_> {
        assert!(
            range.start <= range.end && range.end <= self.bytes,
            "part {range:?} of {} bytes",
            self.bytes
        );
        Memory { base: self.base + range.start, bytes: range.end - range.start, hold: PhantomData }
    }

    /// The number of bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address of an access of `bytes` at `offset`.
    #[inline]
    fn place(&self, offset: u64, bytes: u64) -> u64 {
        assert!(
            bytes <= self.bytes
                && offset <= self.bytes - bytes
                && (self.base + offset).is_multiple_of(bytes.min(LINE_BYTES)),
            "an access of {bytes} bytes at {offset} of {}",
            self.bytes
        );
        self.base + offset
    }

    /// Makes a buffer of addresses out of a buffer of offsets, for accesses of `bytes`.
    ///
    /// # Panics
    /// When an access would not be inside the memory, or not aligned.
    pub fn bind<'b>(&'b self, offsets: &'b mut [u64], bytes: u64) -> Bound<'b> {
        for offset in offsets.iter_mut() {
            *offset = self.place(*offset, bytes);
        }
        Bound { pointers: offsets, bytes }
    }
}

/// Addresses for accesses of one size, all checked.
pub struct Bound<'b> {
    pointers: &'b [u64],
    bytes: u64,
}

impl Bound<'_> {
    fn run(&self, function: Loop) {
        if !self.pointers.is_empty() {
            // SAFETY: every address is mapped and aligned for `bytes` (invariant 2), the function is for
            // accesses of `bytes` and this CPU has its form (`functions`), and the count is not 0.
            unsafe { function(self.pointers.as_ptr(), self.pointers.len(), blocks(self.bytes)) };
        }
    }

    /// Reads at every address; the reads may overlap.
    pub fn read(&self, width: Width) {
        self.run(functions(width, self.bytes).read);
    }

    /// Reads at every address; each read begins only after the previous one has arrived.
    pub fn chase(&self, width: Width) {
        self.run(functions(width, self.bytes).chase);
    }

    /// Stores at every address, and persists each store.
    ///
    /// # Panics
    /// When this CPU lacks the instruction.
    pub fn write(&self, width: Width, persist: Persist) {
        assert!(persist.missing().is_none(), "this CPU has no {}", persist.instruction());
        self.run(functions(width, self.bytes).write[persist as usize]);
    }
}

/// One step of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStep {
    /// The number of bytes.
    pub bytes: u64,
    /// `None` for a read.
    pub write: Option<Persist>,
    /// Whether the second memory (DRAM) is accessed.
    pub dram: bool,
    /// Ticks to wait after the step, to emulate slower memory.
    pub wait_ticks: u64,
}

/// Steps ready to run: the buffer holds one address for each step, operation by operation.
pub struct Chain {
    steps: Vec<(ChainStep, Step)>,
    /// Whether an operation's first address waits for the data of the previous operation.
    dependent: bool,
}

impl Chain {
    /// Prepares `steps`.
    ///
    /// # Panics
    /// When this CPU lacks the form or an instruction, or a size is no power of two from 8.
    pub fn new(steps: &[ChainStep], width: Width, dependent: bool) -> Self {
        let steps = steps
            .iter()
            .map(|step| {
                let functions = functions(width, step.bytes);
                let function = match step.write {
                    None => functions.step_read,
                    Some(persist) => {
                        assert!(persist.missing().is_none(), "this CPU has no {}", persist.instruction());
                        functions.step_write[persist as usize]
                    }
                };
                (*step, function)
            })
            .collect();
        Self { steps, dependent }
    }

    /// The number of steps of one operation.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there is no step.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Makes addresses out of offsets, in place: one for each step, operation by operation.
    ///
    /// # Panics
    /// When the count is not a multiple of the steps, an access is outside its memory, or a step is in DRAM and there
    /// is none.
    pub fn bind<'b>(
        &'b self,
        medium: &'b Memory<'_>,
        dram: Option<&'b Memory<'_>>,
        offsets: &'b mut [u64],
    ) -> BoundChain<'b> {
        assert!(!self.is_empty() && offsets.len().is_multiple_of(self.len()), "offsets for whole operations");
        let dram = dram.unwrap_or(medium);
        for operation in offsets.chunks_exact_mut(self.len()) {
            for (offset, (step, _)) in operation.iter_mut().zip(&self.steps) {
                let memory = if step.dram { dram } else { medium };
                *offset = memory.place(*offset, step.bytes);
            }
        }
        BoundChain { chain: self, pointers: offsets }
    }
}

/// A chain with its addresses, all checked.
pub struct BoundChain<'b> {
    chain: &'b Chain,
    pointers: &'b [u64],
}

impl BoundChain<'_> {
    /// The number of operations that the buffer has addresses for.
    pub fn operations(&self) -> usize {
        self.pointers.len() / self.chain.len()
    }

    /// Runs all operations.
    pub fn run(&self) {
        let mut before = 0;
        for operation in self.pointers.chunks_exact(self.chain.len()) {
            before = self.operation(operation, if self.chain.dependent { before } else { 0 });
        }
        std::hint::black_box(before);
    }

    /// Runs one operation, by number.
    pub fn run_one(&self, index: usize) {
        let steps = self.chain.len();
        if let Some(operation) = self.pointers.get(index * steps..(index + 1) * steps) {
            std::hint::black_box(self.operation(operation, 0));
        }
    }

    #[inline]
    fn operation(&self, pointers: &[u64], mut before: u64) -> u64 {
        for (pointer, (step, function)) in pointers.iter().zip(&self.chain.steps) {
            // SAFETY: the address is mapped and aligned for the step (invariant 2) and `before` is 0, the
            // function is for accesses of its size, and this CPU has its form (`Chain::new`).
            before = unsafe { function(pointer.wrapping_add(before), blocks(step.bytes), before) };
            if step.wait_ticks > 0 {
                clock::wait(step.wait_ticks, before);
            }
        }
        before
    }
}

/// Completes this thread's stores past the cache and flushes.
pub fn drain() {
    arch::drain();
}

#[cfg(test)]
mod tests;
