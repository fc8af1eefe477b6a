//! From a path to an open, locked file of a known kind.
//!
//! Invariants:
//!
//! 1. Nothing is opened that could block or have side effects: sockets and pipes are refused before. (No line can check it: another process may change what a path names between the look and the
//!    open. `a_path_that_cannot_hold_a_store_says_what_it_is` checks it.)
//! 2. The file that is locked is the one that the path names, also if another opener removed and made
//!    it again meanwhile. (No line can check it after the comparison below, since the file may be removed at any time.)
//! 3. A file that this open made is removed again if the open fails, while the lock is still held (asserted in
//!    `lock`).

use crate::file::directory_of;
use crate::lock::Owned;
use crate::options::{Create, MediaOptions, MediumKind};
use crate::topology::Sysfs;
use crate::{Error, ErrorKind, Result, block_device, fsdax, shm};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file that stands for a store when the path is a directory.
const FILE_NAME: &str = "duramen.store";

/// Only the owner may open a new store, since it holds other people's data; change the mode to allow more.
const FILE_MODE: u32 = 0o600;

// 8: each round lost means that another opener made and removed the file in between.
const TRIES_MAX: u32 = 8;

/// A file that is open and locked.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: Owned,
    pub(crate) path: PathBuf,
    /// Never `Auto` or `Volatile`.
    pub(crate) kind: MediumKind,
    pub(crate) is_device: bool,
    /// Bytes in the file or block device; 0 for a DAX device.
    pub(crate) length: u64,
}

/// Opens and locks what `path` stands for.
///
/// # Errors
/// As [`crate::Mapped::open`].
pub(crate) fn open(path: &Path, options: &MediaOptions, sysfs: &Sysfs) -> Result<Opened> {
    for _ in 0..TRIES_MAX {
        let (path, exists) = resolve(path, sysfs)?;
        refuse_file_among_devices(&path)?;
        if !exists && (options.create == Create::OpenExisting || options.read_only) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "cannot open store {}: there is no such file; check the path, \
                     or make a store there: \"duramen put\", \"load\" and \"serve\" do, and so does a program that creates it on open",
                    path.display()
                ),
            ));
        }
        let is_block = fs::metadata(&path).is_ok_and(|found| found.file_type().is_block_device());
        // Of a block device: nobody else has claimed it, as a mount does. Of a file: no effect.
        let flags = if is_block && !options.read_only { libc::O_EXCL } else { 0 };
        let file = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .create(!exists)
            .truncate(false)
            .mode(FILE_MODE)
            .custom_flags(flags)
            .open(&path)
            .map_err(|e| cannot_open(&path, exists, options.read_only, e))?;
        let mut file = Owned::acquire(file, &path, options.read_only)?;
        let found = file.metadata().map_err(|e| cannot_open(&path, true, options.read_only, e))?;
        // Invariant 2: between open and lock an opener that failed may have removed its file.
        if fs::metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (found.dev(), found.ino())) {
            if !exists && found.len() == 0 {
                file.remove_unless_kept(&path);
            }
            let is_block = found.file_type().is_block_device();
            let is_device = is_block || found.file_type().is_char_device();
            let kind = match is_block {
                true => decide_block(options.kind, &path)?,
                false => decide(options.kind, &file, is_device, &path)?,
            };
            let length = match is_device {
                true if is_block => block_device::size(&file, &path)?,
                true => 0,
                false => found.len(),
            };
            return Ok(Opened { file, path, kind, is_device, length });
        }
    }
    Err(Error::new(
        ErrorKind::InUse,
        format!(
            "cannot open store {}: others keep making and removing it; stop them and try again",
            path.display()
        ),
    ))
}

/// Refuses a path in `/dev` that is no device: a device that is absent would become a file in memory.
fn refuse_file_among_devices(path: &Path) -> Result<()> {
    let is_device = fs::metadata(path).is_ok_and(|found| !found.is_file());
    let is_in_dev =
        fs::canonicalize(directory_of(path)).is_ok_and(|directory| directory == Path::new("/dev"));
    if is_device || !is_in_dev {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NotFound,
        format!(
            "cannot open store {}: there is no such device; list the devices with \"daxctl list\" or \"lsblk\", \
             or give a file elsewhere, for example below /dev/shm",
            path.display()
        ),
    ))
}

/// The path of the file or device meant, and whether it exists.
fn resolve(path: &Path, sysfs: &Sysfs) -> Result<(PathBuf, bool)> {
    let (path, found) = match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            let path = path.join(FILE_NAME);
            let found = fs::metadata(&path);
            (path, found)
        }
        found => (path.to_owned(), found),
    };
    let found = match found {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((path, false)),
        Err(e) => return Err(cannot_open(&path, true, false, e)),
    };
    let kind = found.file_type();
    let (what, instead) = if kind.is_file() || kind.is_block_device() {
        return Ok((path, true));
    } else if kind.is_char_device() {
        let device = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        if sysfs.is_dax(device) {
            return Ok((path, true));
        }
        (
            "a character device, and not a DAX one",
            "give a DAX device (\"daxctl list\"), a file or a directory",
        )
    } else if kind.is_dir() {
        ("a directory", "remove it, or give the path of a file")
    } else if kind.is_socket() {
        ("a socket", "give a file, a directory or a DAX device")
    } else if kind.is_fifo() {
        ("a pipe", "give a file, a directory or a DAX device")
    } else {
        ("of unknown type", "give a file, a directory or a DAX device")
    };
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("cannot open store {}: it is {what}; {instead}", path.display()),
    ))
}

fn cannot_open(path: &Path, exists: bool, read_only: bool, source: std::io::Error) -> Error {
    let attempt = format!("cannot {} store {}", if exists { "open" } else { "create" }, path.display());
    let user = rustix::process::geteuid().as_raw();
    let directory = directory_of(path).display();
    let is_busy = source.raw_os_error() == Some(libc::EBUSY);
    match crate::error::kind_of(&source) {
        _ if is_busy => Error::with_source(
            ErrorKind::InUse,
            format!(
                "{attempt}: the device is mounted, or another program has it; see \"lsblk\" and \"fuser {0}\", and unmount \
                 it or stop that program",
                path.display()
            ),
            source,
        ),
        ErrorKind::PermissionDenied if exists => Error::os(
            format!(
                "{attempt}: user {user} needs {} access to it and passage to {directory}",
                if read_only { "read" } else { "read and write" }
            ),
            source,
        ),
        ErrorKind::PermissionDenied => Error::os(
            format!("{attempt}: user {user} needs write access to directory {directory}, or choose another"),
            source,
        ),
        ErrorKind::NotFound => Error::os(
            format!("{attempt}: its directory {directory} does not exist; create it first (mkdir -p)"),
            source,
        ),
        _ => Error::os(attempt, source),
    }
}

/// The kind of medium, as asked for or as the file is.
fn decide(asked: MediumKind, file: &File, device: bool, path: &Path) -> Result<MediumKind> {
    let wrong = |found: &str, instead: &str| {
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!("cannot open {} as {asked}: it is {found}; {instead}", path.display()),
        ))
    };
    match (asked, device) {
        (MediumKind::Auto | MediumKind::Devdax, true) => Ok(MediumKind::Devdax),
        (_, true) => wrong("a DAX device", "choose medium \"devdax\" or \"auto\""),
        (MediumKind::Devdax, false) => {
            wrong("a file", "give a DAX device such as /dev/dax0.0, or choose medium \"auto\"")
        }
        (MediumKind::Shm, false) => shm::check(file, path).map(|()| MediumKind::Shm),
        (MediumKind::Fsdax, false) => fsdax::check(file, path).map(|()| MediumKind::Fsdax),
        (MediumKind::File, false) => Ok(MediumKind::File),
        (MediumKind::Auto | MediumKind::Volatile, false) => Ok(if shm::is_tmpfs(file) {
            MediumKind::Shm
        } else if fsdax::accepts_sync(file).is_ok() {
            MediumKind::Fsdax
        } else {
            MediumKind::File
        }),
    }
}

/// The kind of medium that a block device is.
fn decide_block(asked: MediumKind, path: &Path) -> Result<MediumKind> {
    match asked {
        MediumKind::Auto | MediumKind::File => Ok(MediumKind::File),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "cannot open {} as {asked}: it is a block device; choose medium \"file\" or \"auto\", or, for persistent \
                 memory, a file on it mounted with -o dax, or reconfigure it as devdax with ndctl",
                path.display()
            ),
        )),
    }
}

/// Whether what was found is what [`MediaOptions::create`] wants; `blank` is nothing.
///
/// # Errors
/// `NotFound`, `AlreadyExists`.
pub(crate) fn check_create(create: Create, blank: bool, is_device: bool, path: &Path) -> Result<()> {
    match (create, blank) {
        (Create::OpenExisting, true) => Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "cannot open store {}: it is there and empty; make a store there: \
                     \"duramen put\", \"load\" and \"serve\" do, and so does a program that creates it on open",
                path.display()
            ),
        )),
        (Create::CreateNew, false) => Err(Error::new(
            ErrorKind::AlreadyExists,
            format!(
                "cannot create store {}: it holds data already; open it, choose another path, or {}",
                path.display(),
                if is_device {
                    format!("erase it (duramen erase --force --path {})", path.display())
                } else {
                    "remove it".to_owned()
                }
            ),
        )),
        _ => Ok(()),
    }
}
