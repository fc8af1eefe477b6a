//! The clocks that time operations.

use std::time::Duration;

/// How time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Clock {
    /// Wall-clock time: how long a user waits.
    #[default]
    Wall,
    /// CPU time of the threads: the cost of operations, also on a machine that others use. It leaves out waits for a
    /// device.
    Cpu,
}

/// CPU time of the calling thread so far.
pub(crate) fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
