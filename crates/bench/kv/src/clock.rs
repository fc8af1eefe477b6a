//! What operations are timed by.

use std::time::Duration;

/// What time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Clock {
    /// The clock on the wall: what a user waits.
    #[default]
    Wall,
    /// CPU time of the threads: what operations cost, also on a machine that others use. It leaves out waits
    /// for a device.
    Cpu,
}

/// CPU time of the calling thread so far.
pub(crate) fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
