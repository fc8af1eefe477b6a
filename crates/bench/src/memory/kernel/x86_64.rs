//! The inner loops of x86-64, in inline assembly, so that no compiler changes the measured accesses.
//!
//! A loop takes its addresses from a buffer that was filled ahead. `i` runs from minus the count to zero, so that one
//! `inc` is both the step and the test. A loop has three instructions beyond the accesses (fetch the address, `inc`,
//! `jne`), whatever the size. A test counts them in the disassembly.
//!
//! One macro makes every vector form; they differ in width and mnemonics only. Accesses of up to 1024 bytes are one
//! straight line of instructions; longer ones are blocks of 1024 bytes in an inner loop.
//!
//! Invariants:
//!
//! 1. A function of module `avx512` or `avx2` runs only if `has` said that the CPU has the form; one of column `cache`
//!    or `cache_invalidate` only if `missing` found the flag.
//! 2. All addresses in a buffer are mapped for the whole access, and aligned to the smaller of the access and 64: only
//!    `kernel::Bound` makes buffers.

use super::{BLOCK_BYTES, Functions, Persist, Width};
use std::arch::asm;

/// Whether this CPU has the form.
pub(super) fn has(width: Width) -> bool {
    match width {
        Width::Avx512 => is_x86_feature_detected!("avx512f"),
        Width::Avx2 => is_x86_feature_detected!("avx2"),
        // Part of every x86-64 CPU.
        Width::Sse2 | Width::Plain => true,
        Width::Neon => false,
    }
}

/// The widest form first.
pub(super) const WIDTHS: [Width; 4] = [Width::Avx512, Width::Avx2, Width::Sse2, Width::Plain];

/// The flag, as in /proc/cpuinfo, that this CPU lacks for `persist`.
pub(super) fn missing(persist: Persist) -> Option<&'static str> {
    #[allow(unused_unsafe)] // `__cpuid` became a safe function after the oldest compiler supported here.
    let ebx = {
        // SAFETY: every x86-64 CPU has CPUID.
        let leaf_max = unsafe { std::arch::x86_64::__cpuid(0) }.eax;
        // SAFETY: as above; a CPU without leaf 7 returns the values of its highest leaf, which are then not used.
        let leaf = unsafe { std::arch::x86_64::__cpuid_count(7, 0) };
        if leaf_max >= 7 { leaf.ebx } else { 0 }
    };
    // Intel SDM volume 2, CPUID leaf 7: EBX bit 24 is CLWB, bit 23 CLFLUSHOPT.
    match persist {
        Persist::Cache if ebx & 1 << 24 == 0 => Some("clwb"),
        Persist::CacheInvalidate if ebx & 1 << 23 == 0 => Some("clflushopt"),
        _ => None,
    }
}

/// The instruction of `persist`.
pub(super) fn instruction(persist: Persist) -> &'static str {
    match persist {
        Persist::Cache => "clwb",
        Persist::CacheInvalidate => "clflushopt",
        Persist::NoCache => "non-temporal store",
        Persist::None => "store",
    }
}

/// `{$count}` times an instruction whose address is `.Ldm_at` bytes on, which grows by `$step` each time.
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

/// Four functions that store: a loop and a step of a chain, straight and in blocks.
macro_rules! stores {
    ($feature:literal, $step:expr, $fill:expr, $done:expr, $store:expr, $flush:expr, $fence:expr,
     $straight:ident, $blocks:ident, $step_straight:ident, $step_blocks:ident) => {
        #[inline(never)]
        #[target_feature(enable = $feature)]
        unsafe fn $straight<const N: usize, const L: usize>(pointers: *const u64, count: usize, _: usize) {
            // SAFETY: invariants 1 and 2; `count` addresses are readable and not zero (`Bound`).
            unsafe {
                asm!($fill, "2:", "mov {p}, [{end} + {i}*8]",
                    repeat!("n", $store, $step), repeat!("l", $flush, "64"), $fence,
                    "inc {i}", "jnz 2b", $done,
                    p = out(reg) _, v = out(reg) _, end = in(reg) pointers.wrapping_add(count),
                    i = inout(reg) -(count as isize) => _, n = const N, l = const L, out("xmm0") _, options(nostack));
            }
        }

        #[inline(never)]
        #[target_feature(enable = $feature)]
        unsafe fn $blocks<const N: usize, const L: usize>(pointers: *const u64, count: usize, blocks: usize) {
            // SAFETY: as above; an access is `blocks` blocks.
            unsafe {
                asm!($fill, "2:", "mov {p}, [{end} + {i}*8]", "mov {b}, {blocks}", "3:",
                    repeat!("n", $store, $step), repeat!("l", $flush, "64"),
                    "add {p}, 1024", "dec {b}", "jnz 3b", $fence,
                    "inc {i}", "jnz 2b", $done,
                    p = out(reg) _, v = out(reg) _, b = out(reg) _, blocks = in(reg) blocks,
                    end = in(reg) pointers.wrapping_add(count),
                    i = inout(reg) -(count as isize) => _, n = const N, l = const L, out("xmm0") _, options(nostack));
            }
        }

        #[inline(never)]
        #[target_feature(enable = $feature)]
        unsafe fn $step_straight<const N: usize, const L: usize>(at: u64, _: usize, before: u64) -> u64 {
            // SAFETY: invariants 1 and 2.
            unsafe {
                asm!($fill, repeat!("n", $store, $step), repeat!("l", $flush, "64"), $fence, $done,
                    p = in(reg) at, v = out(reg) _, n = const N, l = const L, out("xmm0") _, options(nostack));
            }
            before
        }

        #[inline(never)]
        #[target_feature(enable = $feature)]
        unsafe fn $step_blocks<const N: usize, const L: usize>(at: u64, blocks: usize, before: u64) -> u64 {
            // SAFETY: invariants 1 and 2.
            unsafe {
                asm!($fill, "3:", repeat!("n", $store, $step), repeat!("l", $flush, "64"),
                    "add {p}, 1024", "dec {b}", "jnz 3b", $fence, $done,
                    p = inout(reg) at => _, v = out(reg) _, b = inout(reg) blocks => _,
                    n = const N, l = const L, out("xmm0") _, options(nostack));
            }
            before
        }
    };
}

macro_rules! form {
    ($name:ident, $feature:literal, $step:literal,
     load: $load:expr, clear: $clear:expr, join: $join:expr, take: $take:expr,
     fill: $fill:expr, store: $store:expr, stream: $stream:expr, done: $done:expr) => {
        mod $name {
            use super::{Functions, asm};

            #[inline(never)]
            #[target_feature(enable = $feature)]
            unsafe fn read<const N: usize>(pointers: *const u64, count: usize, _: usize) {
                // SAFETY: invariants 1 and 2; `count` addresses are readable and not zero (`Bound`).
                unsafe {
                    asm!("2:", "mov {p}, [{end} + {i}*8]", repeat!("n", $load, $step), "inc {i}", "jnz 2b", $done,
                        p = out(reg) _, v = out(reg) _, end = in(reg) pointers.wrapping_add(count),
                        i = inout(reg) -(count as isize) => _, n = const N, out("xmm0") _,
                        options(nostack, readonly));
                }
            }

            #[inline(never)]
            #[target_feature(enable = $feature)]
            unsafe fn read_blocks<const N: usize>(pointers: *const u64, count: usize, blocks: usize) {
                // SAFETY: as above; an access is `blocks` blocks.
                unsafe {
                    asm!("2:", "mov {p}, [{end} + {i}*8]", "mov {b}, {blocks}", "3:", repeat!("n", $load, $step),
                        "add {p}, 1024", "dec {b}", "jnz 3b", "inc {i}", "jnz 2b", $done,
                        p = out(reg) _, v = out(reg) _, b = out(reg) _, blocks = in(reg) blocks,
                        end = in(reg) pointers.wrapping_add(count),
                        i = inout(reg) -(count as isize) => _, n = const N, out("xmm0") _,
                        options(nostack, readonly));
                }
            }

            /// Reads one after the other: `and` with 0 gives 0 whatever the data is, but only once it has arrived.
            #[inline(never)]
            #[target_feature(enable = $feature)]
            unsafe fn chase<const N: usize>(pointers: *const u64, count: usize, _: usize) {
                // SAFETY: invariants 1 and 2.
                unsafe {
                    asm!("xor {v:e}, {v:e}", "2:", "add {v}, [{end} + {i}*8]", "mov {p}, {v}", $clear,
                        repeat!("n", $join, $step), $take, "and {v}, 0", "inc {i}", "jnz 2b", $done,
                        p = out(reg) _, v = out(reg) _, end = in(reg) pointers.wrapping_add(count),
                        i = inout(reg) -(count as isize) => _, n = const N, out("xmm0") _,
                        options(nostack, readonly));
                }
            }

            #[inline(never)]
            #[target_feature(enable = $feature)]
            unsafe fn chase_blocks<const N: usize>(pointers: *const u64, count: usize, blocks: usize) {
                // SAFETY: invariants 1 and 2; an access is `blocks` blocks.
                unsafe {
                    asm!("xor {v:e}, {v:e}", "2:", "add {v}, [{end} + {i}*8]", "mov {p}, {v}", $clear,
                        "mov {b}, {blocks}", "3:", repeat!("n", $join, $step),
                        "add {p}, 1024", "dec {b}", "jnz 3b", $take, "and {v}, 0", "inc {i}", "jnz 2b", $done,
                        p = out(reg) _, v = out(reg) _, b = out(reg) _, blocks = in(reg) blocks,
                        end = in(reg) pointers.wrapping_add(count),
                        i = inout(reg) -(count as isize) => _, n = const N, out("xmm0") _,
                        options(nostack, readonly));
                }
            }

            #[inline(never)]
            #[target_feature(enable = $feature)]
            unsafe fn step_read<const N: usize>(at: u64, _: usize, _: u64) -> u64 {
                let read;
                // SAFETY: invariants 1 and 2.
                unsafe {
                    asm!($clear, repeat!("n", $join, $step), $take, "and {v}, 0", $done,
                        p = in(reg) at, v = out(reg) read, n = const N, out("xmm0") _,
                        options(nostack, readonly));
                }
                read
            }

            #[inline(never)]
            #[target_feature(enable = $feature)]
            unsafe fn step_read_blocks<const N: usize>(at: u64, blocks: usize, _: u64) -> u64 {
                let read;
                // SAFETY: invariants 1 and 2.
                unsafe {
                    asm!($clear, "3:", repeat!("n", $join, $step), "add {p}, 1024", "dec {b}", "jnz 3b",
                        $take, "and {v}, 0", $done,
                        p = inout(reg) at => _, v = out(reg) read, b = inout(reg) blocks => _,
                        n = const N, out("xmm0") _, options(nostack, readonly));
                }
                read
            }

            stores!($feature, $step, $fill, $done, $store, "# {l}", "",
                none, none_blocks, step_none, step_none_blocks);
            stores!($feature, $step, $fill, $done, $store, "clwb [{p} + .Ldm_at]", "sfence",
                cache, cache_blocks, step_cache, step_cache_blocks);
            stores!($feature, $step, $fill, $done, $store, "clflushopt [{p} + .Ldm_at]", "sfence",
                invalidate, invalidate_blocks, step_invalidate, step_invalidate_blocks);
            stores!($feature, $step, $fill, $done, $stream, "# {l}", "sfence",
                no_cache, no_cache_blocks, step_no_cache, step_no_cache_blocks);

            /// Accesses of `N` instructions and `L` lines.
            pub(super) fn straight<const N: usize, const L: usize>() -> Functions {
                Functions {
                    read: read::<N>,
                    chase: chase::<N>,
                    step_read: step_read::<N>,
                    write: [cache::<N, L>, invalidate::<N, L>, no_cache::<N, L>, none::<N, L>],
                    step_write: [
                        step_cache::<N, L>,
                        step_invalidate::<N, L>,
                        step_no_cache::<N, L>,
                        step_none::<N, L>,
                    ],
                }
            }

            /// Accesses of several blocks, each of `N` instructions and 16 lines.
            pub(super) fn blocks<const N: usize>() -> Functions {
                Functions {
                    read: read_blocks::<N>,
                    chase: chase_blocks::<N>,
                    step_read: step_read_blocks::<N>,
                    write: [
                        cache_blocks::<N, 16>,
                        invalidate_blocks::<N, 16>,
                        no_cache_blocks::<N, 16>,
                        none_blocks::<N, 16>,
                    ],
                    step_write: [
                        step_cache_blocks::<N, 16>,
                        step_invalidate_blocks::<N, 16>,
                        step_no_cache_blocks::<N, 16>,
                        step_none_blocks::<N, 16>,
                    ],
                }
            }
        }
    };
}

// A comment that names {v} lets the forms that need no general register share their operands with the plain one.
form!(avx512, "avx512f", "64",
    load: "vmovdqu64 zmm0, [{p} + .Ldm_at] # {v}",
    clear: "vpxorq zmm0, zmm0, zmm0", join: "vporq zmm0, zmm0, [{p} + .Ldm_at]", take: "vmovq {v}, xmm0",
    fill: "vpternlogd zmm0, zmm0, zmm0, 0xff # {v}",
    store: "vmovdqu64 [{p} + .Ldm_at], zmm0", stream: "vmovntdq [{p} + .Ldm_at], zmm0", done: "vzeroupper");
form!(avx2, "avx2", "32",
    load: "vmovdqu ymm0, [{p} + .Ldm_at] # {v}",
    clear: "vpxor ymm0, ymm0, ymm0", join: "vpor ymm0, ymm0, [{p} + .Ldm_at]", take: "vmovq {v}, xmm0",
    fill: "vpcmpeqd ymm0, ymm0, ymm0 # {v}",
    store: "vmovdqu [{p} + .Ldm_at], ymm0", stream: "vmovntdq [{p} + .Ldm_at], ymm0", done: "vzeroupper");
form!(sse2, "sse2", "16",
    load: "movdqa xmm0, [{p} + .Ldm_at] # {v}",
    clear: "pxor xmm0, xmm0", join: "por xmm0, [{p} + .Ldm_at]", take: "movq {v}, xmm0",
    fill: "pcmpeqd xmm0, xmm0 # {v}",
    store: "movdqa [{p} + .Ldm_at], xmm0", stream: "movntdq [{p} + .Ldm_at], xmm0", done: "");
form!(plain, "sse2", "8",
    load: "mov {v}, [{p} + .Ldm_at]",
    clear: "xor {v:e}, {v:e}", join: "or {v}, [{p} + .Ldm_at]", take: "",
    fill: "mov {v}, -1",
    store: "mov [{p} + .Ldm_at], {v}", stream: "movnti [{p} + .Ldm_at], {v}", done: "");

/// The loops for accesses of `bytes` (a power of two from 8) in the form `width`. If the access is narrower than that,
/// the widest form that fits it.
pub(super) fn functions(width: Width, bytes: u64) -> Functions {
    const _: () = assert!(BLOCK_BYTES == 1024);
    match (width, bytes) {
        (_, 8) => plain::straight::<1, 1>(),
        (Width::Plain, 16) => plain::straight::<2, 1>(),
        (Width::Plain, 32) => plain::straight::<4, 1>(),
        (Width::Plain, 64) => plain::straight::<8, 1>(),
        (Width::Plain, 128) => plain::straight::<16, 2>(),
        (Width::Plain, 256) => plain::straight::<32, 4>(),
        (Width::Plain, 512) => plain::straight::<64, 8>(),
        (Width::Plain, 1024) => plain::straight::<128, 16>(),
        (Width::Plain | Width::Neon, _) => plain::blocks::<128>(),
        (_, 16) => sse2::straight::<1, 1>(),
        (Width::Sse2, 32) => sse2::straight::<2, 1>(),
        (Width::Sse2, 64) => sse2::straight::<4, 1>(),
        (Width::Sse2, 128) => sse2::straight::<8, 2>(),
        (Width::Sse2, 256) => sse2::straight::<16, 4>(),
        (Width::Sse2, 512) => sse2::straight::<32, 8>(),
        (Width::Sse2, 1024) => sse2::straight::<64, 16>(),
        (Width::Sse2, _) => sse2::blocks::<64>(),
        (_, 32) => avx2::straight::<1, 1>(),
        (Width::Avx2, 64) => avx2::straight::<2, 1>(),
        (Width::Avx2, 128) => avx2::straight::<4, 2>(),
        (Width::Avx2, 256) => avx2::straight::<8, 4>(),
        (Width::Avx2, 512) => avx2::straight::<16, 8>(),
        (Width::Avx2, 1024) => avx2::straight::<32, 16>(),
        (Width::Avx2, _) => avx2::blocks::<32>(),
        (Width::Avx512, 64) => avx512::straight::<1, 1>(),
        (Width::Avx512, 128) => avx512::straight::<2, 2>(),
        (Width::Avx512, 256) => avx512::straight::<4, 4>(),
        (Width::Avx512, 512) => avx512::straight::<8, 8>(),
        (Width::Avx512, 1024) => avx512::straight::<16, 16>(),
        (Width::Avx512, _) => avx512::blocks::<16>(),
    }
}

/// The time stamp counter, read after all earlier loads and before any later instruction.
#[inline]
pub(super) fn ticks() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: every x86-64 CPU has it; it reads no memory.
    unsafe {
        asm!("lfence", "rdtsc", "lfence", out("eax") low, out("edx") high, options(nostack, nomem, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// The same counter at the least cost, for waiting.
#[inline]
pub(super) fn ticks_rough() -> u64 {
    // SAFETY: every x86-64 CPU has it.
    #[allow(unused_unsafe)]
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
}

/// Completes all stores past the cache and flushes of this thread.
#[inline]
pub(super) fn drain() {
    // SAFETY: every x86-64 CPU has SSE.
    #[allow(unused_unsafe)]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
