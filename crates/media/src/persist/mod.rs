//! How a store becomes durable: the step of each CPU, chosen once when a medium is opened.
//!
//! Invariants:
//!
//! 1. A step is in use only on a CPU that has it: [`Persist::order_only`], [`Persist::flushing`] and
//!    [`Persist::forced`] are the only makers, and they ask the CPU.
//! 2. Every line that `write` or `flush` started is complete when `drain` returns, on the thread that
//!    started it. (No line can check it: a program cannot see whether a line has left the cache. The simulated medium
//!    counts a line as durable only so.)
//! 3. `write` stores exactly the bytes of its parts and touches no neighbour.
//! 4. Where caches are inside the persistence domain, how stores leave the cache affects only speed. Nothing waits for
//!    them there, so a store past the cache is ordered before `write` returns ([`Persist::for_speed`]).

mod lines;
pub(crate) mod page;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("Duramen knows the persist steps of x86-64 and AArch64 only");

use crate::names::{name_of, named};
use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{Ordering, fence};

pub use arch::prefetch;

// Where the step was not forced, `write` stores lines past the cache from this many bytes on.
//
// Measured on DRAM (AMD EPYC with AVX-512, /dev/shm, example `persist_steps`, ns per record written and
// drained, clwb : nt-avx512):
//   whole lines only   64 B 163:107   256 B 178:119   1 KiB 215:143   4 KiB 373:266
//   whole words       136 B 179:138   264 B 186:147   520 B 210:162    1 KiB 271:195   4 KiB 692:382
//   ends flushed      264 B 180:219   1 KiB 222:242   2 KiB 274:283   2.3 KiB 301:273   4 KiB 532:307
// A range that is not whole words has its first and last line stored and flushed. Those must be fetched, which costs
// more than the rest gains below 2 KiB.
//
// 128 for whole words although less is quicker too: the line is then not in the cache for its next reader, and on
// Optane, which writes 256 bytes at a time, flushing is reported to be the quicker way for short writes (Yang et al.,
// FAST 2020).
const WIDE_FROM_WORDS_BYTES: u64 = 128;
const WIDE_FROM_BYTES: u64 = 2048;

/// How stores reach the persistence domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushInstruction {
    /// x86-64: write the line back and keep it in the cache.
    Clwb,
    /// x86-64: write the line back and drop it from the cache.
    Clflushopt,
    /// x86-64: the same, one line after the other.
    Clflush,
    /// x86-64: whole lines by 64-byte stores that bypass the cache. Other whole aligned words by word stores that
    /// bypass it, and the remaining bytes by the best flush.
    NonTemporalAvx512,
    /// The same with 32-byte stores.
    NonTemporalAvx2,
    /// The same with 16-byte stores.
    NonTemporalSse2,
    /// x86-64: whole lines by 64-byte direct stores; the rest as with the steps above.
    Movdir64b,
    /// Nothing but order: caches are inside the persistence domain, or nothing survives a power
    /// failure anyway.
    OrderOnly,
    /// AArch64: clean the line to the point of persistence.
    DcCvap,
    /// AArch64: clean the line to the point of coherency.
    DcCvac,
}

impl FlushInstruction {
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

    /// The steps that this CPU has, in the order of the list above.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Self::NAMES.iter().map(|(step, _)| *step).filter(|step| arch::missing_flag(*step).is_none()).collect()
    }
}

impl fmt::Display for FlushInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(name_of(&Self::NAMES, *self))
    }
}

impl FromStr for FlushInstruction {
    type Err = crate::Error;

    fn from_str(name: &str) -> Result<Self> {
        named(&Self::NAMES, "persist step", name)
    }
}

/// The chosen step, ready for use: a few words that the hot path branches on, always the same way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Persist {
    step: FlushInstruction,
    /// None: order only.
    flush: Option<arch::Flush>,
    /// Stores of lines past the cache that `write` uses from `wide_from` bytes on, and for ranges of
    /// whole words, from `wide_from_words` bytes on.
    wide: Option<arch::Wide>,
    wide_from: u64,
    wide_from_words: u64,
    /// Whether stores past the cache are ordered before everything later at once, and not by the next drain.
    orders_wide: bool,
    atomic_16: bool,
    atomic_64: bool,
}

impl Persist {
    /// The step for a medium that needs only order.
    pub(crate) fn order_only() -> Self {
        Self {
            step: FlushInstruction::OrderOnly,
            flush: None,
            wide: None,
            wide_from: 0,
            wide_from_words: 0,
            orders_wide: false,
            atomic_16: arch::has_atomic_16(),
            atomic_64: arch::has_atomic_64(),
        }
    }

    /// The best step of this CPU for a medium whose lines must be written back.
    ///
    /// # Errors
    /// `Unsupported` when the lines of this CPU's caches are not what Duramen was built for.
    pub(crate) fn flushing() -> Result<Self> {
        let step = arch::flush_best();
        Ok(Self {
            wide: arch::wide_best(),
            wide_from: WIDE_FROM_BYTES,
            wide_from_words: WIDE_FROM_WORDS_BYTES,
            ..Self::forced(step)?
        }
        .checked())
    }

    /// Asserts of both instructions, however they were chosen, that this CPU has them (invariant 1).
    fn checked(self) -> Self {
        assert!(self.flush.is_none_or(arch::has_flush), "{:?} on a CPU without it (invariant 1)", self.flush);
        assert!(self.wide.is_none_or(arch::has_wide), "{:?} on a CPU without it (invariant 1)", self.wide);
        self
    }

    /// Exactly `step`.
    ///
    /// # Errors
    /// `Unsupported` when this CPU lacks it, naming the flag.
    pub(crate) fn forced(step: FlushInstruction) -> Result<Self> {
        if let Some(flag) = arch::missing_flag(step) {
            let available: Vec<String> =
                FlushInstruction::available().iter().map(ToString::to_string).collect();
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "cannot persist by {step}: this CPU lacks {flag} (see \"flags\" in /proc/cpuinfo); \
                     choose one of {}, or none for the best",
                    available.join(", ")
                ),
            ));
        }
        if step != FlushInstruction::OrderOnly
            && let Some(why) = arch::unfit()
        {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("cannot persist by {step}: this CPU has {why}"),
            ));
        }
        let flush = arch::flush_of(step);
        Ok(Self { step, flush, wide: arch::wide_of(step), ..Self::order_only() }.checked())
    }

    /// The same on a medium whose stores survive without a flush. The caller publishes by a plain store, which may
    /// overtake a store past the cache, so those are ordered first. Flushed stores are in order already.
    pub(crate) fn for_speed(self) -> Self {
        Self { orders_wide: true, ..self }
    }

    /// Whether stores reach the cache in order without a drain (invariant 4).
    pub(crate) fn is_in_order(&self) -> bool {
        self.orders_wide || self.wide.is_none()
    }

    /// The step in use.
    pub(crate) fn step(&self) -> FlushInstruction {
        self.step
    }

    /// Whether lines are written back at all.
    pub(crate) fn flushes(&self) -> bool {
        self.flush.is_some()
    }

    /// For people: the step, and what `write` does besides.
    pub(crate) fn describe(&self) -> String {
        match self.wide {
            Some(wide) if self.wide_from > 0 => {
                let wide = format!("{wide:?}").to_lowercase();
                format!("{} (nt-{wide} from {} bytes)", self.step, self.wide_from_words)
            }
            _ => self.step.to_string(),
        }
    }

    /// Stores `parts` without starting their write-back.
    ///
    /// # Safety
    /// `to` is writable for all parts together, and overlaps none of them.
    #[inline]
    pub(crate) unsafe fn store(&self, to: *mut u8, parts: &[&[u8]]) {
        // SAFETY: promised by the caller.
        unsafe { lines::store(to, parts) };
    }

    /// Stores `parts`, `total` bytes together, and starts their write-back.
    ///
    /// # Safety
    /// As [`Persist::store`].
    #[inline(always)]
    pub(crate) unsafe fn write(&self, to: *mut u8, parts: &[&[u8]], total: u64) {
        debug_assert_eq!(
            parts.iter().map(|part| part.len() as u64).sum::<u64>(),
            total,
            "bytes (invariant 3)"
        );
        let Some(flush) = self.flush else {
            // SAFETY: promised by the caller.
            unsafe { lines::store(to, parts) };
            return;
        };
        match self.wide {
            Some(wide) if total >= self.wide_from_at(to, total) => {
                // SAFETY: promised by the caller; the CPU has both (invariant 1).
                unsafe { lines::write_wide(wide, flush, to, parts, total as usize) };
                if self.orders_wide {
                    arch::drain();
                }
            }
            _ => {
                // SAFETY: promised by the caller.
                unsafe { lines::store(to, parts) };
                // SAFETY: what was just stored to is mapped; the CPU has `flush` (invariant 1).
                unsafe { lines::flush(flush, to, total) };
            }
        }
    }

    #[inline]
    fn wide_from_at(&self, to: *const u8, total: u64) -> u64 {
        if lines::are_words(to, total as usize) { self.wide_from_words } else { self.wide_from }
    }

    /// Starts the write-back of `bytes` bytes from `at`.
    ///
    /// # Safety
    /// The range is mapped.
    #[inline]
    pub(crate) unsafe fn flush(&self, at: *const u8, bytes: u64) {
        if let Some(flush) = self.flush {
            // SAFETY: mapped (promised by the caller); the CPU has `flush` (invariant 1).
            unsafe { lines::flush(flush, at, bytes) };
        }
    }

    /// Completes what this thread started, before anything that it does later.
    #[inline]
    pub(crate) fn drain(&self) {
        if self.flush.is_some() {
            arch::drain();
        } else {
            // No write-back is pending that the CPU does not order itself. Only keep the compiler, and on AArch64 the
            // CPU, from moving later stores before earlier ones.
            fence(Ordering::Release);
        }
    }

    /// The most bytes that can be both stored and loaded atomically.
    pub(crate) fn atomic_bytes_max(&self) -> u64 {
        if self.atomic_16 { 16 } else { 8 }
    }

    /// One atomic store (release) of 16 or 64 bytes. Returns false, and does nothing, for other
    /// counts and where the CPU cannot.
    ///
    /// # Safety
    /// `to` is writable for `bytes`, and aligned to their count.
    #[inline]
    pub(crate) unsafe fn store_vector(&self, to: *mut u8, bytes: &[u8]) -> bool {
        if let (true, Ok(bytes)) = (self.atomic_16, bytes.try_into()) {
            // SAFETY: promised by the caller; the CPU has it (invariant 1).
            unsafe { arch::store_16(to, bytes) };
            true
        } else if let (true, Ok(bytes)) = (self.atomic_64, bytes.try_into()) {
            // SAFETY: promised by the caller; the CPU has it (invariant 1).
            unsafe { arch::store_64(to, bytes) };
            true
        } else {
            false
        }
    }

    /// Copies `bytes`, a multiple of 16, in pieces of 16, each by one atomic load (acquire). Returns false, and does
    /// nothing, where the CPU cannot.
    ///
    /// # Safety
    /// `from` is readable for `bytes`, and aligned to 16.
    #[inline]
    pub(crate) unsafe fn load_vectors(&self, from: *const u8, bytes: &mut [u8]) -> bool {
        if self.atomic_16 {
            for (i, piece) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                // SAFETY: promised by the caller; the CPU has it (invariant 1).
                unsafe { arch::load_16(from.wrapping_add(i * 16), piece) };
            }
        }
        self.atomic_16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flush_instruction_reads_back_from_its_name() {
        for (step, name) in FlushInstruction::NAMES {
            assert_eq!(step.to_string(), name);
            assert_eq!(name.parse::<FlushInstruction>().unwrap(), step);
        }
    }

    #[test]
    fn a_flush_instruction_that_the_cpu_lacks_is_refused_with_the_flag() {
        let available = FlushInstruction::available();
        assert!(available.contains(&FlushInstruction::OrderOnly));
        for (step, name) in FlushInstruction::NAMES {
            match Persist::forced(step) {
                Ok(persist) => {
                    assert!(available.contains(&step), "{name}");
                    assert_eq!(persist.step(), step);
                    assert_eq!(persist.flushes(), step != FlushInstruction::OrderOnly);
                }
                Err(error) => {
                    assert!(!available.contains(&step), "{name}");
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    let flag = arch::missing_flag(step).unwrap();
                    assert!(error.to_string().contains(&format!("lacks {flag}")), "{error}");
                }
            }
        }
    }

    #[test]
    fn the_default_flushes() {
        let persist = Persist::flushing().unwrap();
        assert!(persist.flushes());
        assert!(FlushInstruction::available().contains(&persist.step()));
    }

    /// The default stores past the cache only what is long: the same with lengths around its bounds.
    #[test]
    fn long_writes_touch_exactly_their_bytes() {
        let persist = Persist::flushing().unwrap();
        let source: Vec<u8> = (0..3000u32).map(|i| (i * 7 + 1) as u8).collect();
        let mut memory = vec![0u8; 4096];
        for offset in (0..128).step_by(8).chain([1, 63, 65]) {
            for bytes in (96..320).chain([1023, 1024, 1025]).chain(1984..2240).chain([2999, 3000]) {
                memory.fill(0xEE);
                let whole = &source[..bytes];
                let parts: Vec<&[u8]> = whole.chunks(1 + (offset * 31 + bytes) % 700).collect();
                let to = memory.as_mut_ptr().wrapping_add(128 + offset);
                // SAFETY: 128 + 127 + 3000 is below 4096, and no reference to the memory exists here.
                unsafe { persist.write(to, &parts, bytes as u64) };
                persist.drain();
                let (before, rest) = memory.split_at(128 + offset);
                let (middle, after) = rest.split_at(bytes);
                assert!(
                    middle == whole && before.iter().all(|b| *b == 0xEE) && after.iter().all(|b| *b == 0xEE),
                    "{bytes} bytes at {offset} in {} parts",
                    parts.len()
                );
            }
        }
    }

    /// Every step × every offset in two lines × every length to 300 in one, two and many parts: the
    /// bytes are exact, and the neighbours are untouched.
    #[test]
    fn write_and_store_touch_exactly_their_bytes() {
        #[repr(align(128))]
        struct Aligned([u8; 1024]);
        let source: Vec<u8> = (0..300u32).map(|i| (i * 7 + 1) as u8).collect();
        let mut memory = Box::new(Aligned([0; 1024]));
        let base = memory.0.as_mut_ptr();
        let steps = FlushInstruction::available().into_iter().map(|s| Persist::forced(s).unwrap());
        let steps = steps.chain([Persist::flushing().unwrap()]);
        for persist in steps.flat_map(|persist| [persist, persist.for_speed()]) {
            for offset in 0..128usize {
                for bytes in 0..300usize {
                    let whole = &source[..bytes];
                    let (a, b) = whole.split_at(bytes / 3);
                    let splits: [Vec<&[u8]>; 3] =
                        [vec![whole], vec![a, &[], b], whole.chunks(1 + offset % 37).collect()];
                    let parts = &splits[(offset + bytes) % 3];
                    // SAFETY: 1024 bytes are ours, and no reference to them exists here.
                    unsafe { base.write_bytes(0xEE, 1024) };
                    let to = base.wrapping_add(128 + offset);
                    if bytes % 5 == 0 {
                        // SAFETY: 128 + 127 + 300 is below 1024.
                        unsafe { persist.store(to, parts) };
                        // SAFETY: the same range.
                        unsafe { persist.flush(to, bytes as u64) };
                    } else {
                        // SAFETY: 128 + 127 + 300 is below 1024.
                        unsafe { persist.write(to, parts, bytes as u64) };
                    }
                    persist.drain();
                    // SAFETY: nothing stores to the memory while this slice lives.
                    let now = unsafe { std::slice::from_raw_parts(base, 1024) };
                    let (before, rest) = now.split_at(128 + offset);
                    let (middle, after) = rest.split_at(bytes);
                    assert!(
                        middle == whole
                            && before.iter().all(|b| *b == 0xEE)
                            && after.iter().all(|b| *b == 0xEE),
                        "{} of {bytes} bytes at {offset} in {} parts",
                        persist.describe(),
                        parts.len()
                    );
                }
            }
        }
    }
}
