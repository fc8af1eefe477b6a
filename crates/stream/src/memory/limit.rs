//! How much memory a process may use, and how much of it state may take.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use duramen::Scratch;

use super::headroom::{self, require};
use crate::error::{Error, Result};

/// File systems whose files are memory: `TMPFS_MAGIC`, `RAMFS_MAGIC` and `HUGETLBFS_MAGIC` of `linux/magic.h`.
const IN_MEMORY: [i64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Shorter vectors gain less from huge pages than an unused half page costs.
pub const HUGE_LEAST: usize = 4 << 20;

/// The bytes of state that a job may have on the heap, and the directory for the rest. Without limits by default.
#[derive(Debug, Clone, Default)]
pub struct MemoryLimit(Option<Arc<Bounds>>);

#[derive(Debug)]
struct Bounds {
    directory: PathBuf,
    bytes_max: usize,
    heap: AtomicUsize,
    mapped: AtomicUsize,
}

impl MemoryLimit {
    /// At most this many bytes on the heap; further vectors lie in unnamed files in this directory. It should be on a
    /// disk.
    pub fn of(directory: &Path, bytes_max: usize) -> MemoryLimit {
        MemoryLimit(Some(Arc::new(Bounds {
            directory: directory.to_owned(),
            bytes_max,
            heap: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
        })))
    }

    /// Bytes on the heap.
    pub fn heap(&self) -> usize {
        self.0.as_ref().map_or(0, |bounds| bounds.heap.load(Ordering::Relaxed))
    }

    /// Bytes in files.
    pub fn mapped(&self) -> usize {
        self.0.as_ref().map_or(0, |bounds| bounds.mapped.load(Ordering::Relaxed))
    }

    /// Bytes of page copies that may wait for a checkpoint; above this, rows have to wait.
    pub fn copies_max(&self) -> usize {
        // 1 MiB: less would be a batch's worth, or nothing.
        self.0.as_ref().map_or(usize::MAX, |bounds| (bounds.bytes_max / 8).max(1 << 20))
    }

    /// Counts bytes on the heap, if there is room for them or they are few.
    pub fn grant(&self, bytes: usize, few: bool) -> bool {
        let Some(bounds) = &self.0 else { return true };
        let more =
            |held: usize| (few || held.saturating_add(bytes) <= bounds.bytes_max).then_some(held + bytes);
        bounds.heap.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Uncounts bytes that were freed.
    pub fn give_back(&self, bytes: usize) {
        if let Some(bounds) = &self.0 {
            bounds.heap.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Memory in a file. `None` if there is none, such as on a full disk: then the heap is used.
    pub fn map(&self, bytes: usize) -> Option<Scratch> {
        let bounds = self.0.as_ref()?;
        let scratch = Scratch::new(&bounds.directory, bytes).ok()?;
        bounds.mapped.fetch_add(scratch.bytes().len(), Ordering::Relaxed);
        Some(scratch)
    }

    /// Memory on huge pages, if this many bytes are worth it and there is room for them.
    pub fn huge(&self, bytes: usize) -> Option<Scratch> {
        let whole = bytes.next_multiple_of(Scratch::HUGE_PAGE);
        if bytes < HUGE_LEAST || require(whole).is_err() || !self.grant(whole, false) {
            return None;
        }
        let scratch = Scratch::in_memory(whole).ok();
        if scratch.is_none() {
            self.give_back(whole);
        }
        scratch
    }

    /// Uncounts a file that is no longer mapped.
    pub fn unmap(&self, scratch: &Scratch) {
        if let Some(bounds) = &self.0 {
            bounds.mapped.fetch_sub(scratch.bytes().len(), Ordering::Relaxed);
        }
    }

    /// The room for the state of one of `jobs` jobs of this process, whose store is at this path. State above the bound
    /// lies in files next to the store. By default the bound is the job's share of half of the process's memory. There
    /// is no bound if the store itself is in memory: a file next to it would free nothing.
    ///
    /// # Errors
    /// `bytes_max` is given and cannot be enforced.
    pub fn beside(store: &Path, bytes_max: Option<usize>, jobs: usize) -> Result<MemoryLimit> {
        let directory = match store.parent() {
            _ if store.is_dir() => store,
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let refused = |bytes: usize, wanted: String| {
            let found =
                format!("a memory limit of {bytes} bytes for a job with the store {}", store.display());
            Err(Error::invalid(found, wanted).hint("omit the limit, or put the store on a disk"))
        };
        let is_on_disk = rustix::fs::statfs(directory).is_ok_and(|found| !IN_MEMORY.contains(&found.f_type));
        match bytes_max {
            Some(bytes) if !is_on_disk => {
                let wanted = "a store on a disk: state beyond the limit is written next to the store, which is in memory \
                              here";
                refused(bytes, wanted.to_owned())
            }
            Some(bytes) => match Scratch::new(directory, 1) {
                Ok(_) => Ok(MemoryLimit::of(directory, bytes)),
                Err(error) => refused(
                    bytes,
                    format!(
                        "a directory in which unnamed files can be created, for state beyond the limit: {}: {error}",
                        directory.display()
                    ),
                ),
            },
            None if is_on_disk => Ok(MemoryLimit::of(directory, memory(Path::new("/")) / 2 / jobs.max(1))),
            None => Ok(MemoryLimit::default()),
        }
    }
}

/// Bytes that this process may use: the machine's memory, or the smallest limit of its control groups.
fn memory(root: &Path) -> usize {
    let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let machine = text(root.join("proc/meminfo"));
    let machine = machine.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let mut least =
        machine.and_then(|kibibytes| kibibytes.parse().ok()).map_or(usize::MAX, |had: usize| had << 10);
    for group in headroom::groups(root) {
        if let Some(limit) = headroom::limit_of(&group) {
            least = least.min(limit);
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_smallest_memory_limit_wins() {
        let meminfo = ("proc/meminfo", "MemTotal:        2000 kB\nMemFree: 1 kB\n");
        let machine = root(&[meminfo]);
        assert_eq!(memory(machine.path()), 2000 << 10);
        let old = root(&[
            meminfo,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "100000\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "200000\n"),
        ]);
        assert_eq!(memory(old.path()), 100_000);
        let new = root(&[
            meminfo,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.max", "300000\n"),
        ]);
        assert_eq!(memory(new.path()), 300_000);
    }

    /// `/proc` exists on every machine, and no files can be created in it.
    #[test]
    fn a_memory_limit_is_refused_where_no_file_can_be_created() {
        let refused =
            MemoryLimit::beside(Path::new("/proc/store"), Some(1 << 20), 1).unwrap_err().to_string();
        assert!(refused.contains("unnamed files") && refused.contains("1048576 bytes"), "{refused}");
        let disk = tempfile::tempdir().unwrap();
        let is_on_disk =
            rustix::fs::statfs(disk.path()).is_ok_and(|found| !IN_MEMORY.contains(&found.f_type));
        assert_eq!(MemoryLimit::beside(&disk.path().join("store"), Some(1 << 20), 1).is_ok(), is_on_disk);
    }

    #[test]
    fn a_store_in_memory_has_no_limit_and_refuses_a_requested_one() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let store = directory.path().join("store");
        assert_eq!(MemoryLimit::beside(&store, None, 1).unwrap().copies_max(), usize::MAX);
        // The path of a DAX device lies on one of the kernel's own file systems.
        for store in [&*store, Path::new("/dev/dax0.0")] {
            let refused = MemoryLimit::beside(store, Some(1 << 20), 1).unwrap_err().to_string();
            assert!(
                refused.contains("1048576 bytes") && refused.contains("put the store on a disk"),
                "{refused}"
            );
        }
    }
}
