//! The process and its memory, in every phase.

use super::{Family, Kind, process};
use crate::clients::unix_millis;
use std::sync::OnceLock;

pub const FAMILIES: &[Family] = &[
    process("build", Kind::Gauge, &["version"], &[], "1, with the version of the program.", |_, s| {
        s.labelled([env!("CARGO_PKG_VERSION")], true)
    }),
    process("ready", Kind::Gauge, &[], &[], "1 while clients may write, as /ready says.", |f, s| {
        s.set(f.is_ready)
    }),
    process(
        "process_start_timestamp_seconds",
        Kind::Gauge,
        &[],
        &["uptime_in_seconds", "uptime_in_days"],
        "Unix time at which the process started.",
        |f, s| {
            // Computed once: the clock may be set, and the process does not start again by that.
            static START: OnceLock<f64> = OnceLock::new();
            s.set(*START.get_or_init(|| unix_millis() as f64 / 1e3 - f.process.age_seconds));
        },
    ),
    process(
        "process_cpu_seconds",
        Kind::Counter,
        &["mode"],
        &["used_cpu_sys", "used_cpu_user"],
        "Processor time in the program (user) and in the kernel (system).",
        |f, s| {
            s.labelled(["user"], f.process.user_seconds);
            s.labelled(["system"], f.process.system_seconds);
        },
    ),
    process(
        "process_resident_bytes",
        Kind::Gauge,
        &[],
        &["used_memory_rss", "allocator_resident"],
        "Memory of the process that is in DRAM, with the mapped store.",
        |f, s| s.set(f.process.resident_bytes),
    ),
    process(
        "process_private_bytes",
        Kind::Gauge,
        &[],
        &["duramen_memory_bytes", "allocator_allocated", "allocator_active"],
        "Memory that the process allocated for itself: indexes, buffers, state of jobs; not the mapped store.",
        |f, s| s.set(f.process.anonymous_bytes),
    ),
    process(
        "process_private_limit_bytes",
        Kind::Gauge,
        &[],
        &[],
        "The most that may be: the least of the machine's memory, the limit of the control group, and ulimit -d.",
        |f, s| s.set(f.process.limit_bytes),
    ),
    process(
        "machine_memory_bytes",
        Kind::Gauge,
        &[],
        &["total_system_memory"],
        "Memory of the machine.",
        |f, s| s.set(f.process.system_bytes),
    ),
];
