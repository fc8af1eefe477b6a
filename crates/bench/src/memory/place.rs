//! The measured memory: opened, checked against the free space, faulted in, and cleared away.
//!
//! Invariants:
//!
//! 1. A file that this module makes has a unique name and is unlinked as soon as it is open, so it disappears however
//!    the process ends.
//! 2. Existing data is overwritten only with the caller's consent ([`Target::overwrite`]).

use crate::memory::error::{Error, Result, bytes_text};
use crate::memory::tier::{Placing, node_of_device};
use crate::memory::workload::Workload;
use duramen_media::{Bytes, Create, Device, FlushInstruction, Mapped, MediaOptions, MediumKind};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The memory to measure.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The kind of medium. `Auto` is the kind of the path, or DRAM without a path.
    pub kind: MediumKind,
    /// A directory, in which a file is made; a file to make; or an existing file or device.
    pub path: Option<PathBuf>,
    /// Whether existing data at the path may be overwritten.
    pub overwrite: bool,
    /// How the medium's stores are made durable, instead of the medium's default.
    pub flush_instruction: Option<FlushInstruction>,
}

/// The size of the first open, before the file loses its name: one huge page.
const FIRST_BYTES: u64 = 2 << 20;

impl Target {
    /// Whether the target is DRAM, decided before anything is opened.
    pub(crate) fn is_dram(&self) -> bool {
        self.kind == MediumKind::Volatile || self.kind == MediumKind::Auto && self.path.is_none()
    }

    /// The NUMA node of a device.
    pub(crate) fn home(&self) -> Option<usize> {
        self.path.as_deref().and_then(node_of_device)
    }

    /// The new file in the path's directory; `None` if the path exists already.
    fn scratch(&self) -> Result<Option<PathBuf>> {
        let name = format!("duramen-bench-{}.tmp", std::process::id());
        let path = match (&self.path, self.kind) {
            (Some(path), _) => path.clone(),
            (None, MediumKind::Shm) => PathBuf::from("/dev/shm"),
            (None, MediumKind::File) => std::env::temp_dir(),
            (None, kind) => return Err(Error::invalid(format!("medium {kind} needs a path; give --path"))),
        };
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() => Ok(Some(path.join(name))),
            Ok(found) => {
                let what = if found.file_type().is_char_device() { "device" } else { "file" };
                if !self.overwrite {
                    return Err(Error::invalid(format!(
                        "{what} {} exists already, and measuring overwrites it; give --overwrite if its content \
                         is not needed, or the path of a directory",
                        path.display()
                    )));
                }
                Ok(None)
            }
            Err(_) => Ok(Some(path)),
        }
    }

    /// Opens `bytes` of the medium for `workload`.
    ///
    /// # Errors
    /// `InvalidInput`: an existing file may not be overwritten, or is too small. `System`: not enough memory or space,
    /// no access, in use.
    pub fn open(&self, bytes: u64, workload: &Workload, placing: &Placing) -> Result<Mapped> {
        let mut options = MediaOptions {
            kind: if self.is_dram() { MediumKind::Volatile } else { self.kind },
            len_initial: FIRST_BYTES,
            len_max: bytes.next_multiple_of(FIRST_BYTES).max(FIRST_BYTES),
            prefault: workload.prefault_memory,
            huge_pages: workload.huge_pages,
            flush_instruction: self.flush_instruction,
            ..MediaOptions::default()
        };
        placing.taking_memory(|| {
            let medium = if self.is_dram() {
                check_memory(bytes)?;
                Mapped::open(Path::new("anonymous memory"), &options)?
            } else if let Some(path) = self.scratch()? {
                options.create = Create::CreateNew;
                let medium = Mapped::open(&path, &options)?;
                // Invariant 1. The open file stays until it is closed.
                let _ = std::fs::remove_file(medium.path());
                check_space(&medium, bytes)?;
                medium
            } else {
                options.create = Create::OpenExisting;
                let path = self.path.clone().unwrap_or_default();
                let found = std::fs::metadata(&path).map_or(0, |found| found.len());
                let is_device =
                    std::fs::metadata(&path).is_ok_and(|found| found.file_type().is_char_device());
                // Checked before the open, because the open reserves the space that the file lacks.
                if !is_device && found < bytes {
                    return Err(too_small(&path, found, bytes));
                }
                // `OpenExisting` would fail on an empty device, whose head is zero.
                options.create = Create::OpenOrCreate;
                Mapped::open(&path, &options)?
            };
            if medium.len() < bytes {
                if medium.kind() == MediumKind::Devdax {
                    return Err(too_small(medium.path(), medium.len(), bytes));
                }
                medium.grow(bytes)?;
            }
            Ok(medium)
        })
    }
}

fn too_small(path: &Path, found: u64, wanted: u64) -> Error {
    Error::invalid(format!(
        "{} has {} and the workload wants {}; lower memory_range or give --range {found}",
        path.display(),
        bytes_text(found),
        bytes_text(wanted)
    ))
}

/// Opens DRAM in addition to the medium.
///
/// # Errors
/// As [`Target::open`].
pub(crate) fn open_dram(bytes: u64, workload: &Workload) -> Result<Mapped> {
    let target = Target { kind: MediumKind::Volatile, ..Target::default() };
    let workload = Workload { huge_pages: workload.dram_huge_pages, ..workload.clone() };
    let placing = Placing::of(&Workload { memory_nodes: Vec::new(), ..workload.clone() }, None)?;
    target.open(bytes, &workload, &placing)
}

/// Refuses a size that would make the machine swap or the process run out of memory.
fn check_memory(bytes: u64) -> Result<()> {
    let available = available_memory();
    if bytes > available {
        return Err(Error::system(format!(
            "the workload wants {} of memory and {} are available; lower memory_range or give --range",
            bytes_text(bytes),
            bytes_text(available)
        )));
    }
    Ok(())
}

/// Bytes of memory that can be taken without swapping: the smaller of the kernel's estimate and the control group's
/// rest.
pub fn available_memory() -> u64 {
    let system = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    });
    let group = || {
        let number = |name: &str| {
            let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?;
            text.trim().parse::<u64>().ok()
        };
        Some(number("memory.max")?.saturating_sub(number("memory.current")?))
    };
    system.unwrap_or(u64::MAX).min(group().unwrap_or(u64::MAX))
}

fn check_space(medium: &Mapped, bytes: u64) -> Result<()> {
    if medium.kind() == MediumKind::Shm {
        check_memory(bytes)?;
    }
    // The name is gone; its directory is on the same file system.
    let directory = medium.path().parent().unwrap_or(Path::new("."));
    let Ok(system) = rustix::fs::statvfs(directory) else { return Ok(()) };
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if bytes > free.saturating_add(medium.len()) {
        return Err(Error::system(format!(
            "the workload wants {} in {} and {} are free; lower memory_range or give --range",
            bytes_text(bytes),
            directory.display(),
            bytes_text(free)
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::error::ErrorKind;

    fn open(target: &Target, bytes: u64) -> Result<Mapped> {
        let workload = Workload { huge_pages: false, ..Workload::default() };
        target.open(bytes, &workload, &Placing::of(&workload, None)?)
    }

    fn at(path: &Path, kind: MediumKind) -> Target {
        Target { kind, path: Some(path.to_owned()), ..Target::default() }
    }

    #[test]
    fn a_scratch_file_has_no_name_while_it_is_measured() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path().to_owned(), directory.path().join("new")] {
            let medium = open(&at(&path, MediumKind::File), 3 << 20).unwrap();
            assert!(medium.len() >= 3 << 20);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_users_file_is_overwritten_only_with_the_option() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("precious");
        std::fs::write(&path, vec![7; 4 << 20]).unwrap();
        let mut target = at(&path, MediumKind::File);
        let error = open(&target, 1 << 20).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("--overwrite"), "{error}");
        target.overwrite = true;
        assert!(open(&target, 1 << 20).is_ok());
        let error = open(&target, 8 << 20).unwrap_err();
        assert!(error.to_string().contains("has 4 MiB and the workload wants 8 MiB"), "{error}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 << 20, "its length is as before");
        let held = open(&target, 1 << 20).unwrap();
        let error = open(&target, 1 << 20).unwrap_err();
        assert!(error.to_string().contains(&std::process::id().to_string()), "in use by: {error}");
        drop(held);
    }

    #[test]
    fn more_memory_than_available_is_refused_before_allocation() {
        let error = open(&Target::default(), 1 << 46).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::System);
        assert!(error.to_string().contains("are available; lower memory_range"), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let error = open(&at(directory.path(), MediumKind::File), 1 << 46).unwrap_err();
        assert!(error.to_string().contains("are free; lower memory_range"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
