//! How long a store takes to open after it was not closed.

use crate::kv::place::Place;
use crate::kv::{Clock, Failure, Result};
use duramen::{Create, Options};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a recovery did.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// Records that it read.
    pub records: u64,
    /// From the call of `open` to its return.
    pub seconds: f64,
    /// CPU time of all threads in between.
    pub cpu_seconds: f64,
}

impl Recovery {
    /// Million records per second and thread, for `threads` threads.
    #[must_use]
    pub fn million_per_second(&self, threads: usize, clock: Clock) -> f64 {
        let seconds = match clock {
            Clock::Wall => self.seconds * threads as f64,
            Clock::Cpu => self.cpu_seconds,
        };
        self.records as f64 / seconds / 1e6
    }
}

/// Copies the open store at `path` as it is on the medium now, and opens the copy. For recovery this is the same as
/// after kill -9. The copy's pages are in memory.
///
/// # Errors
/// As opening; also if fewer than `keys` keys are recovered.
pub fn recover_copy(place: &Place, path: &Path, threads: usize, keys: u64) -> Result<Recovery> {
    let mut copy = path.as_os_str().to_owned();
    copy.push(".copy");
    let copy = Copy(PathBuf::from(copy));
    if copy.0.exists() {
        return Err(Failure::usage(format!(
            "{} exists already; remove it, or give another --path",
            copy.0.display()
        )));
    }
    std::fs::copy(path, &copy.0)
        .map_err(|e| Failure::new(format!("cannot copy the store to {}: {e}", copy.0.display())))?;
    let options =
        Options { recovery_threads: threads, create: Create::OpenExisting, ..place.options.clone() };
    let (begun, cpu) = (Instant::now(), process_cpu_seconds());
    let store = options.open(&copy.0)?;
    let (seconds, cpu_seconds) = (begun.elapsed().as_secs_f64(), process_cpu_seconds() - cpu);
    if store.len() != keys {
        return Err(Failure::new(format!(
            "recovery of {} found {} keys, wanted {keys}; no figures are given",
            copy.0.display(),
            store.len()
        )));
    }
    let records = store.recovery().records;
    store.close().map_err(duramen::Error::from)?;
    Ok(Recovery { records, seconds, cpu_seconds })
}

fn process_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A copy, removed when dropped.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
