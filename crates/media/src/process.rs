//! What a process is to a medium: whether it is still the one that opened it, what its allocator keeps, and whether
//! the kernel may take its pages.

use crate::error::bytes_text;
use crate::{Error, ErrorKind, Result};
use rustix::mm::MlockAllFlags;
use rustix::process::Resource;
use rustix::thread::CapabilitySet;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many `fork`s are between the process that first opened a medium and this one. An opener that remembers the
/// number and later reads another is in a child: the mapping is shared with the parent, and the parent's threads are
/// not in the child.
///
/// Seen is the C library's `fork`, not a bare system call. One load of a line that nobody writes.
#[inline]
#[must_use]
pub fn forks() -> u32 {
    // Relaxed: stored by the only thread that a child has when it begins.
    FORKS.load(Ordering::Relaxed)
}

/// From now on [`forks`] counts.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler stores to an atomic and does nothing else, which a child may do between `fork` and `exec`.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        debug_assert_eq!(refused, 0, "pthread_atfork finds no memory");
    });
}

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// From now on the kernel keeps each page of this process in memory once it was used, also those of later mappings.
///
/// # Errors
/// `PermissionDenied` when this process may not lock all its memory: with any lower limit a later allocation would fail.
pub fn lock_memory() -> Result<()> {
    let refused = |found: String| {
        Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "cannot lock memory: this process may lock {found}, wanted all; raise the limit to unlimited (ulimit -l; \
                 LimitMEMLOCK=infinity in a unit of systemd), or give the program the capability CAP_IPC_LOCK"
            ),
        )
    };
    let may_lock_all = rustix::thread::capabilities(None)
        .is_ok_and(|found| found.effective.contains(CapabilitySet::IPC_LOCK));
    match rustix::process::getrlimit(Resource::Memlock).current {
        Some(limit) if !may_lock_all => return Err(refused(bytes_text(limit))),
        _ => {}
    }
    let pages = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::mm::mlockall(pages).map_err(|errno| Error::os("cannot lock memory".to_owned(), errno))
}

// The longest that Linux takes.
const SLICE: std::time::Duration = std::time::Duration::from_millis(100);

/// Lowers this thread's urgency: the kernel prefers any thread that wakes, as long as both get their share of the
/// processor. For threads whose work may be delayed a little. Linux from 6.12 on does that for a thread with a long
/// slice; an older kernel ignores the slice.
pub fn yield_to_wakers() {
    if cfg!(miri) {
        return;
    }
    let (this_thread, flags, size) = (0, 0, size_of::<SchedAttr>() as u32);
    let mut wanted = SchedAttr::default();
    // SAFETY: the kernel writes at most `size` bytes, all of which `wanted` has.
    let found = unsafe { libc::syscall(libc::SYS_sched_getattr, this_thread, &raw mut wanted, size, flags) };
    // Another policy was set on purpose: keep it.
    if found != 0 || wanted.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    // The rest stays, as the nice value that the process was started with.
    (wanted.size, wanted.runtime) = (size, SLICE.as_nanos() as u64);
    // SAFETY: the kernel reads as many bytes as `size` says, and changes how this thread is scheduled and nothing else.
    unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const wanted, flags) };
}

/// `struct sched_attr` of `sched_setattr(2)`, in its first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

// A larger allocation is a separate mapping. 1 MiB: to map and zero it takes some 0.2 ms, as copying it does.
#[cfg(target_env = "gnu")]
const APART_BYTES: i32 = 1 << 20;
// What may be free at the end of a heap.
#[cfg(target_env = "gnu")]
const TRIM_BYTES: i32 = 4 << 20;

/// Has glibc return large allocations to the system when they are freed. By default, once an allocation of up to 32 MiB
/// was freed, glibc keeps later ones of that size, so the memory of a burst of large buffers stays with the process.
/// For programs, not for libraries: it is a setting of the whole process. Without glibc it does nothing.
pub fn return_large_allocations() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: only numbers are passed; a setting that is refused stays what it was.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, APART_BYTES) };
        // SAFETY: as above.
        unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES) };
    }
}

/// Has a program that is linked statically with glibc look hosts up in `/etc/hosts` and by DNS alone. By default glibc
/// loads a shared module for each other word of the line `hosts` in `/etc/nsswitch.conf` (`resolve`, `myhostname`); a
/// module of another glibc than the linked one ends the process by a signal. Must be called before the first look-up.
/// In a program that is linked dynamically, and without glibc, it does nothing.
pub fn look_hosts_up_without_modules() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        use std::ffi::{c_char, c_int};
        unsafe extern "C" {
            // Of <nss.h>.
            fn __nss_configure_lookup(database: *const c_char, line: *const c_char) -> c_int;
        }
        // SAFETY: both are texts that end with a zero; glibc copies what it keeps of them.
        let refused = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
        debug_assert_eq!(refused, 0, "glibc knows the database and both words");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no such system calls")]
    fn memory_is_not_locked_below_a_limit() {
        use rustix::process::{Rlimit, getrlimit, setrlimit};
        let locked = || std::fs::read_to_string("/proc/self/status").unwrap();
        let before = getrlimit(Resource::Memlock);
        let limit = 1 << 20;
        let limits = Rlimit { current: Some(limit), ..before };
        setrlimit(Resource::Memlock, limits).unwrap();
        // Capabilities are the thread's own.
        let refused = std::thread::spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::IPC_LOCK);
            rustix::thread::set_capabilities(None, sets).unwrap();
            lock_memory().unwrap_err()
        });
        let error = refused.join().unwrap();
        setrlimit(Resource::Memlock, before).unwrap();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("may lock 1 MiB, wanted all"), "{error}");
        assert!(locked().contains("VmLck:\t       0 kB"), "{}", locked());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no such system calls")]
    fn a_thread_that_yields_keeps_its_nice_value() {
        const NICE: i32 = 7;
        let nice = std::thread::spawn(|| {
            // SAFETY: changes how this thread is scheduled; 0 is the thread that calls.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
            yield_to_wakers();
            // SAFETY: reads a number of this thread.
            unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
        });
        assert_eq!(nice.join().unwrap(), NICE);
    }
}
