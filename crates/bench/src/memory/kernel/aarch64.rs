//! The inner loops of AArch64, in the same shape as those of x86-64: NEON pairs of 32 bytes, and plain words.
//!
//! `cache` is `dc cvap` if the CPU has it, else `dc cvac`; `cache_invalidate` is `dc civac`; `no_cache` is `stnp`,
//! which is a hint: AArch64 promises no store past the cache. `dsb sy` completes them. A loop has three instructions
//! beyond the accesses (`ldr` with increment, `subs`, `b.ne`). NEON's loads only fill registers; the chase joins the
//! first word of each access, which arrives as late as its line.
//!
//! SVE is left out: the length of its vectors is known only at run time, so an access of a given size would need a
//! branch inside the operation. A NEON pair already keeps the load units of all current cores busy.
//!
//! Invariants: those of `x86_64.rs`.

use super::{BLOCK_BYTES, Functions, Persist, Width};
use std::arch::asm;

/// Whether this CPU has the form.
pub(super) fn has(width: Width) -> bool {
    matches!(width, Width::Neon | Width::Plain)
}

/// The widest form first.
pub(super) const WIDTHS: [Width; 2] = [Width::Neon, Width::Plain];

/// The CPU feature that `persist` lacks: none.
pub(super) fn missing(_persist: Persist) -> Option<&'static str> {
    None
}

fn has_cvap() -> bool {
    std::arch::is_aarch64_feature_detected!("dpb")
}

/// The instruction of `persist`.
pub(super) fn instruction(persist: Persist) -> &'static str {
    match persist {
        Persist::Cache if has_cvap() => "dc cvap",
        Persist::Cache => "dc cvac",
        Persist::CacheInvalidate => "dc civac",
        Persist::NoCache => "stnp",
        Persist::None => "store",
    }
}

macro_rules! repeat {
    ($count:literal, $instruction:expr, $step:expr) => {
        concat!(
            ".set .Ldm_at, 0\n.rept {",
            $count,
            "}\n",
            $instruction,
            "\n.set .Ldm_at, .Ldm_at + ",
            $step,
            "\n.endr"
        )
    };
}

macro_rules! stores {
    ($step:expr, $store:expr, $flush:expr, $fence:expr,
     $straight:ident, $blocks:ident, $step_straight:ident, $step_blocks:ident) => {
        #[inline(never)]
        unsafe fn $straight<const N: usize, const L: usize>(pointers: *const u64, count: usize, _: usize) {
            // SAFETY: invariants 1 and 2; `count` addresses are readable and not zero (`Bound`).
            unsafe {
                asm!("movi v0.16b, #255", "mov {v}, #-1", "2:", "ldr {p}, [{from}], #8",
                    repeat!("n", $store, $step), repeat!("l", $flush, "64"), $fence,
                    "subs {i}, {i}, #1", "b.ne 2b",
                    p = out(reg) _, v = out(reg) _, t = out(reg) _, from = inout(reg) pointers => _,
                    i = inout(reg) count => _, n = const N, l = const L, out("v0") _, options(nostack));
            }
        }

        #[inline(never)]
        unsafe fn $blocks<const N: usize, const L: usize>(pointers: *const u64, count: usize, blocks: usize) {
            // SAFETY: as above; an access is `blocks` blocks.
            unsafe {
                asm!("movi v0.16b, #255", "mov {v}, #-1", "2:", "ldr {p}, [{from}], #8", "mov {b}, {blocks}", "3:",
                    repeat!("n", $store, $step), repeat!("l", $flush, "64"),
                    "add {p}, {p}, #1024", "subs {b}, {b}, #1", "b.ne 3b", $fence,
                    "subs {i}, {i}, #1", "b.ne 2b",
                    p = out(reg) _, v = out(reg) _, t = out(reg) _, b = out(reg) _, blocks = in(reg) blocks,
                    from = inout(reg) pointers => _, i = inout(reg) count => _,
                    n = const N, l = const L, out("v0") _, options(nostack));
            }
        }

        #[inline(never)]
        unsafe fn $step_straight<const N: usize, const L: usize>(at: u64, _: usize, before: u64) -> u64 {
            // SAFETY: invariants 1 and 2.
            unsafe {
                asm!("movi v0.16b, #255", "mov {v}, #-1",
                    repeat!("n", $store, $step), repeat!("l", $flush, "64"), $fence,
                    p = in(reg) at, v = out(reg) _, t = out(reg) _,
                    n = const N, l = const L, out("v0") _, options(nostack));
            }
            before
        }

        #[inline(never)]
        unsafe fn $step_blocks<const N: usize, const L: usize>(at: u64, blocks: usize, before: u64) -> u64 {
            // SAFETY: invariants 1 and 2.
            unsafe {
                asm!("movi v0.16b, #255", "mov {v}, #-1", "3:",
                    repeat!("n", $store, $step), repeat!("l", $flush, "64"),
                    "add {p}, {p}, #1024", "subs {b}, {b}, #1", "b.ne 3b", $fence,
                    p = inout(reg) at => _, v = out(reg) _, t = out(reg) _, b = inout(reg) blocks => _,
                    n = const N, l = const L, out("v0") _, options(nostack));
            }
            before
        }
    };
}

macro_rules! form {
    ($name:ident, $step:literal, load: $load:expr, join: $join:expr, store: $store:expr, stream: $stream:expr) => {
        mod $name {
            use super::{Functions, Persist, asm};

            #[inline(never)]
            unsafe fn read<const N: usize>(pointers: *const u64, count: usize, _: usize) {
                // SAFETY: invariants 1 and 2; `count` addresses are readable and not zero (`Bound`).
                unsafe {
                    asm!("2:", "ldr {p}, [{from}], #8", repeat!("n", $load, $step), "subs {i}, {i}, #1", "b.ne 2b",
                        p = out(reg) _, v = out(reg) _, from = inout(reg) pointers => _, i = inout(reg) count => _,
                        n = const N, out("v0") _, out("v1") _, options(nostack, readonly));
                }
            }

            #[inline(never)]
            unsafe fn read_blocks<const N: usize>(pointers: *const u64, count: usize, blocks: usize) {
                // SAFETY: as above; an access is `blocks` blocks.
                unsafe {
                    asm!("2:", "ldr {p}, [{from}], #8", "mov {b}, {blocks}", "3:", repeat!("n", $load, $step),
                        "add {p}, {p}, #1024", "subs {b}, {b}, #1", "b.ne 3b", "subs {i}, {i}, #1", "b.ne 2b",
                        p = out(reg) _, v = out(reg) _, b = out(reg) _, blocks = in(reg) blocks,
                        from = inout(reg) pointers => _, i = inout(reg) count => _,
                        n = const N, out("v0") _, out("v1") _, options(nostack, readonly));
                }
            }

            #[inline(never)]
            unsafe fn chase<const N: usize>(pointers: *const u64, count: usize, _: usize) {
                // SAFETY: invariants 1 and 2. `and` with zero keeps the dependency on the data read.
                unsafe {
                    asm!("mov {v}, #0", "2:", "ldr {p}, [{from}], #8", "add {p}, {p}, {v}",
                        repeat!("n", $join, $step), "and {v}, {v}, xzr", "subs {i}, {i}, #1", "b.ne 2b",
                        p = out(reg) _, v = out(reg) _, t = out(reg) _, from = inout(reg) pointers => _,
                        i = inout(reg) count => _, n = const N, out("v0") _, out("v1") _,
                        options(nostack, readonly));
                }
            }

            #[inline(never)]
            unsafe fn chase_blocks<const N: usize>(pointers: *const u64, count: usize, blocks: usize) {
                // SAFETY: as above; an access is `blocks` blocks.
                unsafe {
                    asm!("mov {v}, #0", "2:", "ldr {p}, [{from}], #8", "add {p}, {p}, {v}", "mov {b}, {blocks}", "3:",
                        repeat!("n", $join, $step), "add {p}, {p}, #1024", "subs {b}, {b}, #1", "b.ne 3b",
                        "and {v}, {v}, xzr", "subs {i}, {i}, #1", "b.ne 2b",
                        p = out(reg) _, v = out(reg) _, t = out(reg) _, b = out(reg) _, blocks = in(reg) blocks,
                        from = inout(reg) pointers => _, i = inout(reg) count => _,
                        n = const N, out("v0") _, out("v1") _, options(nostack, readonly));
                }
            }

            #[inline(never)]
            unsafe fn step_read<const N: usize>(at: u64, _: usize, _: u64) -> u64 {
                let mut read = 0;
                // SAFETY: invariants 1 and 2.
                unsafe {
                    asm!(repeat!("n", $join, $step), "and {v}, {v}, xzr",
                        p = in(reg) at, v = inout(reg) read, t = out(reg) _, n = const N, out("v0") _, out("v1") _,
                        options(nostack, readonly));
                }
                read
            }

            #[inline(never)]
            unsafe fn step_read_blocks<const N: usize>(at: u64, blocks: usize, _: u64) -> u64 {
                let mut read = 0;
                // SAFETY: invariants 1 and 2.
                unsafe {
                    asm!("3:", repeat!("n", $join, $step), "add {p}, {p}, #1024", "subs {b}, {b}, #1", "b.ne 3b",
                        "and {v}, {v}, xzr",
                        p = inout(reg) at => _, v = inout(reg) read, t = out(reg) _, b = inout(reg) blocks => _,
                        n = const N, out("v0") _, out("v1") _, options(nostack, readonly));
                }
                read
            }

            stores!($step, $store, "// {l} {t}", "", none, none_blocks, step_none, step_none_blocks);
            // `sys #3, c7, c12, #1` is `dc cvap`, which assemblers know only with FEAT_DPB switched on.
            stores!($step, $store, "add {t}, {p}, .Ldm_at\nsys #3, c7, c12, #1, {t}", "dsb sy",
                cvap, cvap_blocks, step_cvap, step_cvap_blocks);
            stores!($step, $store, "add {t}, {p}, .Ldm_at\ndc cvac, {t}", "dsb sy",
                cvac, cvac_blocks, step_cvac, step_cvac_blocks);
            stores!($step, $store, "add {t}, {p}, .Ldm_at\ndc civac, {t}", "dsb sy",
                invalidate, invalidate_blocks, step_invalidate, step_invalidate_blocks);
            stores!($step, $stream, "// {l} {t}", "dsb sy",
                no_cache, no_cache_blocks, step_no_cache, step_no_cache_blocks);

            /// Accesses of `N` instructions and `L` lines.
            pub(super) fn straight<const N: usize, const L: usize>() -> Functions {
                let mut functions = Functions {
                    read: read::<N>,
                    chase: chase::<N>,
                    step_read: step_read::<N>,
                    write: [cvac::<N, L>, invalidate::<N, L>, no_cache::<N, L>, none::<N, L>],
                    step_write: [
                        step_cvac::<N, L>,
                        step_invalidate::<N, L>,
                        step_no_cache::<N, L>,
                        step_none::<N, L>,
                    ],
                };
                if super::has_cvap() {
                    functions.write[Persist::Cache as usize] = cvap::<N, L>;
                    functions.step_write[Persist::Cache as usize] = step_cvap::<N, L>;
                }
                functions
            }

            /// Accesses of several blocks, each of `N` instructions and 16 lines.
            pub(super) fn blocks<const N: usize>() -> Functions {
                let mut functions = Functions {
                    read: read_blocks::<N>,
                    chase: chase_blocks::<N>,
                    step_read: step_read_blocks::<N>,
                    write: [
                        cvac_blocks::<N, 16>,
                        invalidate_blocks::<N, 16>,
                        no_cache_blocks::<N, 16>,
                        none_blocks::<N, 16>,
                    ],
                    step_write: [
                        step_cvac_blocks::<N, 16>,
                        step_invalidate_blocks::<N, 16>,
                        step_no_cache_blocks::<N, 16>,
                        step_none_blocks::<N, 16>,
                    ],
                };
                if super::has_cvap() {
                    functions.write[Persist::Cache as usize] = cvap_blocks::<N, 16>;
                    functions.step_write[Persist::Cache as usize] = step_cvap_blocks::<N, 16>;
                }
                functions
            }
        }
    };
}

form!(neon, "32",
    load: "ldp q0, q1, [{p}, .Ldm_at] // {v}",
    join: "ldp q0, q1, [{p}, .Ldm_at]\nfmov {t}, d0\norr {v}, {v}, {t}",
    store: "stp q0, q0, [{p}, .Ldm_at] // {v}", stream: "stnp q0, q0, [{p}, .Ldm_at] // {v}");
form!(plain, "8",
    load: "ldr {v}, [{p}, .Ldm_at]",
    join: "ldr {t}, [{p}, .Ldm_at]\norr {v}, {v}, {t}",
    store: "str {v}, [{p}, .Ldm_at]",
    // A pair is the shortest store past the cache; a single word has only the ordinary form.
    stream: "str {v}, [{p}, .Ldm_at]");

/// The loops for accesses of `bytes` (a power of two from 8) in the form `width`.
pub(super) fn functions(width: Width, bytes: u64) -> Functions {
    const _: () = assert!(BLOCK_BYTES == 1024);
    match (width, bytes) {
        (_, 8) => plain::straight::<1, 1>(),
        (_, 16) => plain::straight::<2, 1>(),
        (Width::Neon, 32) => neon::straight::<1, 1>(),
        (Width::Neon, 64) => neon::straight::<2, 1>(),
        (Width::Neon, 128) => neon::straight::<4, 2>(),
        (Width::Neon, 256) => neon::straight::<8, 4>(),
        (Width::Neon, 512) => neon::straight::<16, 8>(),
        (Width::Neon, 1024) => neon::straight::<32, 16>(),
        (Width::Neon, _) => neon::blocks::<32>(),
        (_, 32) => plain::straight::<4, 1>(),
        (_, 64) => plain::straight::<8, 1>(),
        (_, 128) => plain::straight::<16, 2>(),
        (_, 256) => plain::straight::<32, 4>(),
        (_, 512) => plain::straight::<64, 8>(),
        (_, 1024) => plain::straight::<128, 16>(),
        (_, _) => plain::blocks::<128>(),
    }
}

/// The virtual counter, read after everything earlier.
#[inline]
pub(super) fn ticks() -> u64 {
    let count;
    // SAFETY: Linux lets programs read the counter.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) count, options(nostack, nomem, preserves_flags))
    };
    count
}

/// The same counter at the least cost, for waiting.
#[inline]
pub(super) fn ticks_rough() -> u64 {
    let count;
    // SAFETY: Linux lets programs read the counter.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) count, options(nostack, nomem, preserves_flags)) };
    count
}

/// Completes all flushes of this thread.
#[inline]
pub(super) fn drain() {
    // SAFETY: a barrier changes nothing.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}
