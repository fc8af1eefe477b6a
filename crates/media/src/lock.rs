//! One owner per store, or several readers: `flock` on the open file, and the name of the owner when it is refused.
//!
//! The lock belongs to the open file, so a second open in the same process is refused too. Dropping the file releases
//! it, and so does the death of the process. It works on character devices as on files. It does not reach other
//! machines on most network file systems.

use crate::{Error, ErrorKind, Result, process};
use rustix::fs::FlockOperation;
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An open file whose lock is held. Dropping it releases the lock at once. Closing alone would not while another thread
/// is starting a process: the child has a copy of every open file until its `exec`.
#[derive(Debug)]
pub(crate) struct Owned {
    file: File,
    /// Of the process that took the lock.
    forks: u32,
    /// A file that was made by an open that did not succeed yet: removed while the lock is held.
    remove: Option<PathBuf>,
}

impl Owned {
    /// Takes the lock of `file`; read-only opens share it.
    ///
    /// # Errors
    /// `InUse`, naming the owner where the kernel tells.
    pub(crate) fn acquire(file: File, path: &Path, shared: bool) -> Result<Self> {
        let operation = match shared {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        match retry_on_intr(|| rustix::fs::flock(&file, operation)) {
            Ok(()) => Ok(Self { file, forks: process::forks(), remove: None }),
            Err(Errno::WOULDBLOCK) => Err(Error::new(ErrorKind::InUse, in_use(&file, path))),
            Err(errno) => Err(Error::os(format!("cannot lock store {}", path.display()), errno)),
        }
    }

    /// Has `path` removed on drop, before the lock is released, unless [`Owned::keep`] is called.
    pub(crate) fn remove_unless_kept(&mut self, path: &Path) {
        assert!(self.remove.is_none(), "one open makes one file");
        self.remove = Some(path.to_owned());
    }

    /// Gives up the lock: another may open the file.
    pub(crate) fn release(&self) {
        assert!(
            self.remove.is_none(),
            "a file to be removed is removed under its lock (opening, invariant 3)"
        );
        if self.forks == process::forks() {
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }

    /// The open succeeded.
    pub(crate) fn keep(&mut self) {
        self.remove = None;
    }
}

impl Deref for Owned {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.forks != process::forks() {
            // A child that was forked: lock and path are the parent's.
            return;
        }
        if let Some(path) = self.remove.take() {
            let _ = std::fs::remove_file(path);
        }
        self.release();
    }
}

/// How often to read /proc/locks for a lock that is there. The kernel returns the file in pieces, and a lock that is
/// released between two of them may hide another.
const READINGS: u32 = 8;

fn in_use(file: &File, path: &Path) -> String {
    let pid = file.metadata().ok().and_then(|m| {
        let device = (rustix::fs::major(m.dev()), rustix::fs::minor(m.dev()));
        (0..READINGS).find_map(|_| owner(&std::fs::read_to_string("/proc/locks").ok()?, device, m.ino()))
    });
    let (who, what_to_do) = match pid {
        Some(pid) if pid == std::process::id() => {
            (format!("this same process (pid {pid})"), "close it there, or share the open store".to_owned())
        }
        Some(pid) => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let name = name.trim_end();
            let name = if name.is_empty() { String::new() } else { format!(", {name}") };
            (format!("process {pid}{name}"), "stop it, or choose another store".to_owned())
        }
        None => (
            "a process that /proc/locks does not show here (another container?)".to_owned(),
            format!("find it with \"fuser {}\"", path.display()),
        ),
    };
    format!("cannot open store {}: it is in use by {who}; {what_to_do}", path.display())
}

/// The pid that holds the `flock` of inode `inode` on `device`, from the text of /proc/locks. Lines
/// read `1: FLOCK  ADVISORY  WRITE 1234 00:1b:5678 0 EOF`, with the device in hexadecimal; a process of
/// another pid namespace has pid 0 or -1. Waiters (`->`) hold nothing.
fn owner(locks: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let found = |line: &str| -> Option<(u32, bool)> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, _, _, pid, place) =
            (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
        let mut place = place.split(':');
        let major = u32::from_str_radix(place.next()?, 16).ok()?;
        let minor = u32::from_str_radix(place.next()?, 16).ok()?;
        let same_inode = place.next()?.parse::<u64>().ok()? == inode;
        let pid: u32 = pid.parse().ok().filter(|pid| *pid > 0)?;
        (kind == "FLOCK" && same_inode).then_some((pid, (major, minor) == device))
    };
    let holders: Vec<(u32, bool)> = locks.lines().filter_map(found).collect();
    // Some file systems (btrfs) show files another device than the lock's: take the inode alone then,
    // if it is the only one of its number.
    match (holders.iter().find(|(_, same_device)| *same_device), holders.as_slice()) {
        (Some((pid, _)), _) | (None, [(pid, _)]) => Some(*pid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 11 00:1b:99 0 EOF
2: FLOCK  ADVISORY  WRITE 12 00:1b:5678 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 00:1b:5678 0 EOF
3: FLOCK  ADVISORY  WRITE 14 fe:00:5678 0 EOF
4: FLOCK  ADVISORY  WRITE 15 00:2c:42 0 EOF
5: FLOCK  ADVISORY  WRITE 0 00:1b:77 0 EOF
garbage
";

    #[test]
    fn the_owner_is_found_by_device_and_inode() {
        assert_eq!(owner(LOCKS, (0, 0x1b), 5678), Some(12));
        assert_eq!(owner(LOCKS, (0xfe, 0), 5678), Some(14));
        assert_eq!(owner(LOCKS, (0, 0x1b), 99), None, "a POSIX lock is another kind");
        assert_eq!(owner(LOCKS, (0, 0x1b), 77), None, "another pid namespace");
    }

    #[test]
    fn the_only_holder_of_an_inode_is_taken_on_any_device() {
        assert_eq!(owner(LOCKS, (9, 9), 42), Some(15));
        assert_eq!(owner(LOCKS, (9, 9), 5678), None, "two of them: no telling");
    }
}
