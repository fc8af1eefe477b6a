//! A store on a block device, which is here a loop device. Without the right to make one the tests are skipped.

use duramen::{Durability, ErrorKind, MediumKind, Options};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BYTES: u64 = 64 << 20;

/// A device whose blocks are those of a file.
struct Loop {
    path: PathBuf,
    file: File,
    _directory: tempfile::TempDir,
}

impl Loop {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let backing = directory.path().join("backing");
        let file = File::options().read(true).write(true).create_new(true).open(&backing).unwrap();
        file.set_len(BYTES).unwrap();
        match Command::new("losetup").args(["--find", "--show"]).arg(&backing).output() {
            Ok(found) if found.status.success() => {
                let path = String::from_utf8(found.stdout).unwrap().trim_end().into();
                Some(Self { path, file, _directory: directory })
            }
            _ => {
                println!("skipped: no loop device can be made here");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

fn options() -> Options {
    let durability = Durability::Interval(Duration::from_secs(3600));
    Options { durability, background: false, ..Options::default() }
}

fn refused(path: &Path, options: &Options, kind: ErrorKind, text: &str) {
    let error = options.open(path).map(drop).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(text), "{error}, wanted {text:?}");
}

#[test]
fn a_store_on_a_block_device_is_found_again() {
    let Some(device) = Loop::new() else { return };
    let open = || options().open(&device.path).unwrap();
    let key = |number: u32| number.to_le_bytes();
    let (store, last) = (open(), 20_000);
    assert_eq!(store.stats().medium_bytes, BYTES);
    let mut writer = store.writer().unwrap();
    (0..last).for_each(|number| writer.put(key(number), [7; 300]).unwrap());
    store.commit().unwrap();
    // Of the device, and not only of the page cache.
    let mut head = [0; 4096];
    device.file.read_exact_at(&mut head, 0).unwrap();
    assert!(head.iter().any(|&byte| byte != 0), "a commit reaches the device");
    refused(&device.path, &options(), ErrorKind::InUse, "cannot open");
    drop(writer);
    store.close().unwrap();

    let store = open();
    assert_eq!(store.len(), u64::from(last));
    (0..last).for_each(|number| assert_eq!(store.get(key(number)).unwrap().unwrap().to_vec(), [7; 300]));
    let mut writer = store.writer().unwrap();
    // It is used whole, and has no more.
    let error = (last..).find_map(|number| writer.put(key(number), [8; 3000]).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    assert!(writer.delete(key(0)).unwrap(), "deletes still work");
    drop(writer);
    assert_eq!(store.audit(), Vec::<String>::new());
    store.close().unwrap();
    let read_only = Options { read_only: true, ..options() };
    assert!(read_only.open(&device.path).unwrap().get(key(1)).unwrap().is_some());
}

#[test]
fn what_a_block_device_holds_is_not_overwritten() {
    let Some(device) = Loop::new() else { return };
    device.file.write_all_at(b"somebody's", 1 << 20).unwrap();
    device.file.sync_all().unwrap();
    // The page cache of the device may hold what was there before.
    let _ = Command::new("blockdev").arg("--flushbufs").arg(&device.path).status();
    let create = Options { create: duramen::Create::CreateNew, ..options() };
    refused(&device.path, &create, ErrorKind::AlreadyExists, "duramen erase");
    refused(&device.path, &options(), ErrorKind::Corrupt, "duramen erase --force");
    let mut found = [0; 10];
    device.file.read_exact_at(&mut found, 1 << 20).unwrap();
    assert_eq!(&found, b"somebody's");
    let kind = Options { medium: MediumKind::Shm, ..options() };
    refused(&device.path, &kind, ErrorKind::InvalidInput, "a block device");
    // Another who has it exclusively, as a mount does.
    let path = std::ffi::CString::new(device.path.to_str().unwrap()).unwrap();
    // SAFETY: opens a file; the descriptor is closed below.
    let held = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_EXCL) };
    assert!(held >= 0);
    refused(&device.path, &options(), ErrorKind::InUse, "mounted");
    // SAFETY: the descriptor was opened above.
    unsafe { libc::close(held) };
}
