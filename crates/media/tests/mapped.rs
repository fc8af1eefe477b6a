//! A mapped medium through its public door: what it keeps, what it refuses, and how it says so.

// A test may unwrap, and so may what tests call.
#![allow(clippy::unwrap_used)]

use duramen_media::{
    Bytes, Create, Device, ErrorKind, FlushInstruction, Granularity, Mapped, MediaOptions, MediumKind,
    Offset, PAGE_BYTES, Persistent,
};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn options(kind: MediumKind) -> MediaOptions {
    MediaOptions { kind, len_initial: MIB, len_max: 1 << 30, ..MediaOptions::default() }
}

/// A directory for each kind that can run on any machine: tmpfs, and the file system of the build.
fn for_each_file_kind(run: impl Fn(MediumKind, &Path)) {
    for (kind, parent) in [(MediumKind::Shm, "/dev/shm"), (MediumKind::File, env!("CARGO_TARGET_TMPDIR"))] {
        let directory = tempfile::tempdir_in(parent).unwrap();
        run(kind, &directory.path().join("store"));
    }
}

fn read(medium: &Mapped, at: u64, bytes: u64) -> Vec<u8> {
    // SAFETY: no test stores while it reads.
    unsafe { medium.bytes(Offset(at), bytes) }.to_vec()
}

#[test]
fn growth_moves_nothing_and_is_zeroed() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    for (kind, path) in [
        (MediumKind::Shm, directory.path().join("shm")),
        (MediumKind::File, directory.path().join("file")),
        (MediumKind::Volatile, PathBuf::from("name")),
    ] {
        let medium = Mapped::open(&path, &options(kind)).unwrap();
        assert_eq!((medium.kind(), medium.is_new(), medium.len()), (kind, true, MIB));
        let first = medium.pointer(Offset(0), MIB);
        medium.store(Offset(MIB - 4), &[b"here"]);
        for len in [MIB + 1, 3 * MIB, 3 * MIB, MIB, 64 * MIB, 70 * MIB + 5] {
            let before = medium.len();
            medium.grow(len).unwrap();
            assert!(medium.len() >= len.max(before) && medium.len().is_multiple_of(PAGE_BYTES));
            assert_eq!(medium.pointer(Offset(0), MIB), first);
            assert!(read(&medium, before, medium.len() - before).iter().all(|b| *b == 0));
        }
        assert_eq!(read(&medium, MIB - 4, 4), b"here");
    }
}

#[test]
fn reopened_elsewhere_the_content_is_the_same() {
    for_each_file_kind(|kind, path| {
        let medium = Mapped::open(path, &options(kind)).unwrap();
        medium.grow(5 * MIB).unwrap();
        medium.write(Offset(4 * MIB + 3), &[b"the ", b"", b"content"]);
        medium.store_u64(Offset(64), 0x0123_4567_89ab_cdef);
        medium.sync().unwrap();
        let (base, len) = (medium.pointer(Offset(0), 1) as usize, medium.len());
        drop(medium);
        // Something else takes the old addresses.
        let other = Mapped::open(Path::new("other"), &options(MediumKind::Volatile)).unwrap();
        let again = Mapped::open(path, &options(MediumKind::Auto)).unwrap();
        assert_ne!(again.pointer(Offset(0), 1) as usize, base);
        assert_eq!((again.kind(), again.is_new(), again.len()), (kind, false, len));
        assert_eq!(read(&again, 4 * MIB + 3, 11), b"the content");
        assert_eq!(again.load_u64(Offset(64)), 0x0123_4567_89ab_cdef);
        drop(other);
    });
}

#[test]
fn a_directory_stands_for_the_file_in_it() {
    for_each_file_kind(|kind, path| {
        let directory = path.parent().unwrap();
        let medium = Mapped::open(directory, &options(kind)).unwrap();
        assert_eq!(medium.path(), directory.join("duramen.store"));
        drop(medium);
        assert_eq!(fs::metadata(directory.join("duramen.store")).unwrap().len(), MIB);
    });
}

#[test]
fn a_medium_opened_read_only_is_unchanged() {
    for_each_file_kind(|kind, path| {
        let read_only = MediaOptions { read_only: true, ..options(kind) };
        assert_eq!(Mapped::open(path, &read_only).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!path.exists(), "nothing is made");
        File::create(path).unwrap();
        assert_eq!(Mapped::open(path, &read_only).unwrap_err().kind(), ErrorKind::NotFound);
        fs::remove_file(path).unwrap();

        let owner = Mapped::open(path, &options(kind)).unwrap();
        owner.store(Offset(100), &[b"as it is"]);
        owner.sync().unwrap();
        let error = Mapped::open(path, &read_only).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
        drop(owner);
        // A hole.
        File::options().write(true).open(path).unwrap().set_len(3 * MIB).unwrap();
        let whole = fs::read(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();

        let [one, other] = [0, 1].map(|_| Mapped::open(path, &read_only).unwrap());
        assert_eq!((one.kind(), one.is_new(), one.len()), (kind, false, 3 * MIB));
        let error = Mapped::open(path, &options(kind)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InUse | ErrorKind::PermissionDenied), "{error}");
        assert_eq!(read(&one, 2 * MIB, 8), [0; 8]);
        one.store(Offset(100), &[b"another."]);
        one.store(Offset(2 * MIB), &[b"in a hole"]);
        one.grow(5 * MIB).unwrap();
        one.store_u64(Offset(4 * MIB), 7);
        one.prepare(Offset(0), MIB).unwrap();
        one.flush(Offset(0), MIB);
        one.sync().unwrap();
        assert_eq!((read(&one, 100, 8), one.load_u64(Offset(4 * MIB))), (b"another.".to_vec(), 7));
        assert_eq!(read(&other, 100, 8), b"as it is");
        drop((one, other));
        assert!(fs::read(path).unwrap() == whole);
        Mapped::open(path, &read_only).unwrap();
    });
    let volatile = MediaOptions { read_only: true, ..options(MediumKind::Volatile) };
    assert_eq!(Mapped::open(Path::new("x"), &volatile).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn the_option_create_decides_whether_a_store_must_exist() {
    for_each_file_kind(|kind, path| {
        let open = |create| Mapped::open(path, &MediaOptions { create, ..options(kind) });
        let error = open(Create::OpenExisting).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(!path.exists());
        File::create(path).unwrap();
        assert_eq!(open(Create::OpenExisting).unwrap_err().kind(), ErrorKind::NotFound, "an empty file");
        assert!(open(Create::CreateNew).unwrap().is_new(), "an empty file is nothing");
        assert!(open(Create::CreateNew).unwrap().is_new(), "and so is one that nothing was stored to");
        let medium = open(Create::OpenOrCreate).unwrap();
        medium.store(Offset(9), &[b"x"]);
        drop(medium);
        let error = open(Create::CreateNew).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(!open(Create::OpenExisting).unwrap().is_new());
    });
}

#[test]
fn a_second_open_reports_the_owner() {
    for_each_file_kind(|kind, path| {
        let medium = Mapped::open(path, &options(kind)).unwrap();
        let error = Mapped::open(path, &options(kind)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InUse);
        let pid = std::process::id();
        assert!(error.to_string().contains(&format!("this same process (pid {pid})")), "{error}");
        drop(medium);
        Mapped::open(path, &options(kind)).unwrap();
    });
}

/// A helper that the next test runs in another process.
#[test]
fn helper_that_opens_a_store_and_prints_the_error() {
    if let Some(path) = std::env::var_os("DURAMEN_TEST_OPEN") {
        match Mapped::open(Path::new(&path), &options(MediumKind::Auto)) {
            Ok(medium) => println!("opened {}", medium.describe()),
            Err(error) => println!("{:?}: {error}", error.kind()),
        }
    }
}

/// The command that opens `path` in another process, by the test above.
fn open_elsewhere(path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "helper_that_opens_a_store_and_prints_the_error", "--nocapture"])
        .env("DURAMEN_TEST_OPEN", path);
    command
}

#[test]
fn an_open_by_another_process_reports_the_owner_until_it_closes() {
    for_each_file_kind(|kind, path| {
        let said = || {
            let output = open_elsewhere(path).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let medium = Mapped::open(path, &options(kind)).unwrap();
        let output = said();
        let pid = std::process::id();
        let wanted = format!("InUse: cannot open store {}: it is in use by process {pid}", path.display());
        assert!(output.contains(&wanted), "{output}");
        drop(medium);
        let output = said();
        assert!(output.contains(&format!("opened {kind} ")), "{output}");
    });
}

/// A file system of its own, unmounted at the end; none where this user or machine cannot mount it.
struct Mounted {
    point: tempfile::TempDir,
    _image: Option<tempfile::NamedTempFile>,
}

impl Mounted {
    fn tmpfs(options: &str) -> Option<Self> {
        Self::mount(&["-t", "tmpfs", "-o", options, "duramen-test"], None)
    }

    /// An ext4 of `bytes` in a file.
    fn ext4(bytes: u64) -> Option<Self> {
        let image = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        image.as_file().set_len(bytes).unwrap();
        let path = image.path().to_str().unwrap().to_owned();
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", &path]).status();
        if !made.is_ok_and(|s| s.success()) {
            println!("skipped: there is no mkfs.ext4 here");
            return None;
        }
        Self::mount(&["-t", "ext4", "-o", "loop", &path], Some(image))
    }

    fn mount(arguments: &[&str], image: Option<tempfile::NamedTempFile>) -> Option<Self> {
        let point = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(arguments).arg(point.path());
        if is_root() && command.status().is_ok_and(|s| s.success()) {
            return Some(Self { point, _image: image });
        }
        println!("skipped: cannot mount {arguments:?} here");
        None
    }

    fn path(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    /// Waits until an empty tmpfs has all its space: a child that another test forks has the file that was removed,
    /// too, until it runs its program.
    fn wait_until_free(&self) {
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_secs(10) {
            let space = rustix::fs::statvfs(self.point.path()).unwrap();
            if space.f_bfree == space.f_blocks {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.point.path()).status();
    }
}

#[test]
fn a_full_disk_is_out_of_space_and_what_was_grown_can_be_written() {
    let Some(disk) = Mounted::ext4(24 * MIB) else { return };
    let path = disk.path("store");
    let medium = Mapped::open(&path, &options(MediumKind::Auto)).unwrap();
    assert_eq!(medium.kind(), MediumKind::File);
    while medium.len() < 256 * MIB {
        let len = medium.len();
        if let Err(error) = medium.grow(len + MIB) {
            assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
            break;
        }
    }
    let len = medium.len();
    assert!(len > 8 * MIB && len < 24 * MIB, "{len}");
    assert_eq!(fs::metadata(&path).unwrap().len(), len);
    // The rest of the disk goes to others; every byte of ours can still be written and synced.
    let mut rest = File::create(disk.path("rest")).unwrap();
    while rest.write_all(&[1; 4096]).is_ok() {}
    let _ = rest.sync_all();
    medium.store(Offset(0), &[&vec![7; len as usize]]);
    medium.sync().unwrap();
    drop(medium);
    let medium = Mapped::open(&path, &options(MediumKind::File)).unwrap();
    assert!(read(&medium, 0, len).iter().all(|b| *b == 7));
}

#[test]
fn a_full_file_system_is_out_of_space_and_stays_usable() {
    for huge in ["never", "always", "advise", "within_size"] {
        let Some(tmpfs) = Mounted::tmpfs(&format!("size=8m,huge={huge}")) else { return };
        for kind in [MediumKind::Shm, MediumKind::File] {
            let path = tmpfs.path("store");
            let medium = Mapped::open(&path, &options(kind)).unwrap();
            medium.store(Offset(100), &[b"before"]);
            let len = medium.len();
            let error = medium.grow(64 * MIB).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
            assert!(error.to_string().contains("free space"), "{error}");
            assert_eq!((medium.len(), fs::metadata(&path).unwrap().len()), (len, len), "huge={huge} {kind}");
            assert_eq!(read(&medium, 100, 6), b"before");
            // The failure loses no remaining space: growth to nearly all of it succeeds, and touching every byte
            // raises no signal.
            medium.grow(6 * MIB).unwrap();
            let all = vec![7u8; medium.len() as usize];
            medium.store(Offset(0), &[&all]);
            assert_eq!(medium.grow(9 * MIB).unwrap_err().kind(), ErrorKind::OutOfSpace);
            medium.store(Offset(medium.len() - 8), &[b"at end"]);
            drop(medium);
            fs::remove_file(&path).unwrap();
            tmpfs.wait_until_free();
        }
        // A new store that does not fit leaves no file.
        let path = tmpfs.path("large");
        let large = MediaOptions { len_initial: 32 * MIB, ..options(MediumKind::Shm) };
        assert_eq!(Mapped::open(&path, &large).unwrap_err().kind(), ErrorKind::OutOfSpace);
        assert!(!path.exists());
    }
}

#[test]
fn a_sparse_file_is_filled_before_it_is_touched() {
    let Some(tmpfs) = Mounted::tmpfs("size=4m") else { return };
    let path = tmpfs.path("store");
    let sparse = |len: u64| {
        let mut file = File::create(&path).unwrap();
        file.write_all(b"data").unwrap();
        file.set_len(len).unwrap();
    };
    for kind in [MediumKind::Shm, MediumKind::File] {
        sparse(3 * MIB - 7);
        let medium = Mapped::open(&path, &options(kind)).unwrap();
        assert_eq!((medium.is_new(), medium.len()), (false, 3 * MIB - 7), "opening changes no length");
        medium.store(Offset(0), &[&vec![1; (3 << 20) - 7]]);
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 3 * MIB);
        medium.grow(3 * MIB + 1).unwrap();
        medium.store(Offset(3 * MIB - 8), &[&[2; 9]]);
        drop(medium);
        sparse(64 * MIB);
        let error = Mapped::open(&path, &options(kind)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 64 * MIB, "a store that was there is not touched");
    }
}

#[test]
fn a_store_longer_than_len_max_opens_and_does_not_grow() {
    for_each_file_kind(|kind, path| {
        let medium = Mapped::open(path, &options(kind)).unwrap();
        medium.store(Offset(0), &[b"x"]);
        drop(medium);
        let bounded = MediaOptions { len_max: PAGE_BYTES, ..options(kind) };
        let medium = Mapped::open(path, &bounded).unwrap();
        assert_eq!((medium.len(), medium.len_max()), (MIB, MIB));
        let error = medium.grow(MIB + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace);
        assert!(error.to_string().contains("len_max"), "{error}");
    });
}

#[test]
fn an_ordinary_file_system_is_not_taken_for_dax() {
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let directory = tempfile::tempdir_in(parent).unwrap();
        let path = directory.path().join("store");
        let error = Mapped::open(&path, &options(MediumKind::Fsdax)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("mount -o dax"), "{error}");
        assert!(!path.exists(), "a failed open leaves no file");
    }
}

#[test]
fn a_path_that_cannot_hold_a_store_says_what_it_is() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = |name: &str| directory.path().join(name);
    let _socket = std::os::unix::net::UnixListener::bind(place("socket")).unwrap();
    fs::create_dir_all(place("d/duramen.store")).unwrap();
    fs::write(place("file"), "x").unwrap();
    symlink("/nonexistent/target", place("dangling")).unwrap();
    let refused = |path: &Path, kind, wanted: ErrorKind, text: &str| {
        let error = Mapped::open(path, &options(kind)).unwrap_err();
        assert_eq!(error.kind(), wanted, "{error}");
        assert!(error.to_string().contains(text), "{error}, wanted {text:?}");
    };
    use ErrorKind::{InvalidInput, NotFound};
    refused(&place("socket"), MediumKind::Auto, InvalidInput, "a socket");
    refused(&place("d"), MediumKind::Auto, InvalidInput, "a directory");
    refused(Path::new("/dev/null"), MediumKind::Auto, InvalidInput, "not a DAX one");
    refused(&place("file"), MediumKind::Devdax, InvalidInput, "/dev/dax0.0");
    refused(&place("file"), MediumKind::Shm, InvalidInput, "tmpfs");
    refused(&place("none/store"), MediumKind::File, NotFound, "mkdir -p");
    refused(&place("dangling"), MediumKind::File, NotFound, "cannot create");
    refused(&place("file/store"), MediumKind::File, NotFound, "cannot");
}

#[test]
fn a_missing_permission_is_reported_with_user_and_directory() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let path = directory.path().join("store");
    let said = if is_root() {
        // Root ignores permissions, so another user tries; that user must be able to run this program.
        let mut command = open_elsewhere(&path);
        match command.uid(65534).gid(65534).output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => {
                println!("skipped: root ignores permissions, and as another user: {error}");
                return;
            }
        }
    } else {
        let error = Mapped::open(&path, &options(MediumKind::File)).unwrap_err();
        format!("{:?}: {error}", error.kind())
    };
    let wanted = format!("PermissionDenied: cannot create store {}: user ", path.display());
    assert!(said.contains(&wanted) && said.contains("write access to directory"), "{said}");
}

#[test]
fn a_new_store_is_for_its_owner_only() {
    for_each_file_kind(|kind, path| {
        drop(Mapped::open(path, &options(kind)).unwrap());
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600);
    });
}

#[test]
fn invalid_options_are_refused_before_anything_is_created() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("store");
    let good = options(MediumKind::Shm);
    for (bad, text) in [
        (MediaOptions { len_max: 4095, ..good.clone() }, "len_max"),
        (MediaOptions { stripe_bytes: Some(100), ..good.clone() }, "stripe_bytes"),
        (MediaOptions { ways: Some(0), ..good.clone() }, "ways"),
    ] {
        let error = Mapped::open(&path, &bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(text), "{error}");
        assert!(!path.exists());
    }
    let tuned = MediaOptions { stripe_bytes: Some(256), ways: Some(4), ..good.clone() };
    assert_eq!(Mapped::open(&path, &tuned).unwrap().interleave(), (256, 4));
    assert_eq!(Mapped::open(&path, &good).unwrap().interleave(), (4096, 6));
}

#[test]
fn a_file_in_memory_survives_no_power_failure_as_any_medium() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    for kind in [MediumKind::File, MediumKind::Shm] {
        let medium = Mapped::open(&directory.path().join(kind.to_string()), &options(kind)).unwrap();
        assert_eq!((medium.kind(), medium.survives_power()), (kind, false));
    }
}

#[test]
fn an_absent_device_is_refused_and_no_file_is_made_among_the_devices() {
    let path = Path::new("/dev/dax77.0");
    for kind in [MediumKind::Auto, MediumKind::File, MediumKind::Shm] {
        let error = Mapped::open(path, &options(kind)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("no such device"), "{error}");
        assert!(!path.exists());
    }
}

#[test]
fn granularity_follows_the_medium_and_the_forced_flush_instruction() {
    for_each_file_kind(|kind, path| {
        let forced = |step| MediaOptions { flush_instruction: Some(step), ..options(kind) };
        let plain = Mapped::open(path, &options(kind)).unwrap();
        let is_file = kind == MediumKind::File;
        let wanted = if is_file { Granularity::Page } else { Granularity::Byte };
        assert_eq!((plain.granularity(), plain.flush_instruction()), (wanted, FlushInstruction::OrderOnly));
        assert_eq!(plain.survives_power(), is_file);
        drop(plain);
        for step in FlushInstruction::available().into_iter().filter(|s| *s != FlushInstruction::OrderOnly) {
            match Mapped::open(path, &forced(step)) {
                Ok(medium) => {
                    assert_eq!(
                        (medium.granularity(), medium.flush_instruction()),
                        (Granularity::CacheLine, step)
                    );
                    assert!(medium.describe().ends_with(&step.to_string()), "{}", medium.describe());
                }
                Err(error) => {
                    assert!(is_file, "{error}");
                    assert_eq!(error.kind(), ErrorKind::InvalidInput);
                }
            }
        }
        if !is_file {
            let foreign =
                if cfg!(target_arch = "x86_64") { FlushInstruction::DcCvap } else { FlushInstruction::Clwb };
            let error = Mapped::open(path, &forced(foreign)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("lacks"), "{error}");
        }
    });
}

#[test]
fn atomic_stores_come_in_the_documented_sizes_only() {
    let medium = Mapped::open(Path::new("atomic"), &options(MediumKind::Volatile)).unwrap();
    assert!([8, 16].contains(&medium.atomic_bytes_max()));
    for bytes in [0usize, 1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 64, 128] {
        let at = Offset((bytes * 30) as u64);
        let old = vec![0xAA; bytes + 2];
        let around = if bytes == 0 { at } else { Offset(at.0 - 1) };
        medium.store(around, &[&old]);
        let new: Vec<u8> = (1..=bytes as u8).collect();
        let stored = medium.store_atomic(at, &new);
        let after = read(&medium, around.0, bytes as u64 + 2);
        let always = [1, 2, 4, 8].contains(&bytes);
        let sometimes = [16, 64].contains(&bytes);
        assert!(stored == always || sometimes, "{bytes} bytes: {stored}");
        if stored {
            assert_eq!(after, [&[0xAA][..], &new, &[0xAA]].concat());
        } else {
            assert_eq!(after, old, "{bytes} bytes: a refusal stores nothing");
        }
    }
}

#[test]
fn ranges_are_loaded_at_every_alignment() {
    let medium = Mapped::open(Path::new("pieces"), &options(MediumKind::Volatile)).unwrap();
    let bytes: Vec<u8> = (0..400u32).map(|i| (i * 7 % 251) as u8).collect();
    for at in [Offset(4096), Offset(medium.len() - bytes.len() as u64)] {
        medium.store(at, &[&bytes]);
        for from in 0..64 {
            for len in (0..=300).chain([bytes.len() - from]) {
                let mut back = vec![0x55; len];
                medium.load_pieces(at.plus(from as u64), &mut back);
                assert_eq!(back, bytes[from..from + len], "{len} bytes from {from}");
            }
        }
    }
}

#[test]
fn sixteen_bytes_are_never_seen_torn() {
    let medium = Mapped::open(Path::new("torn"), &options(MediumKind::Volatile)).unwrap();
    if medium.atomic_bytes_max() < 16 {
        println!("skipped: this CPU documents no atomic store of 16 bytes");
        return;
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2_000_000u32 {
                assert!(medium.store_atomic(Offset(4096), &[round as u8; 16]));
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut seen = [0u8; 16];
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            medium.load_pieces(Offset(4096), &mut seen);
            assert!(seen.iter().all(|b| *b == seen[0]), "{seen:?}");
        }
    });
}

#[test]
#[should_panic(expected = "access of 8 bytes at 0x100000 on a medium of 0x100000 bytes")]
fn an_access_beyond_the_end_panics() {
    let medium = Mapped::open(Path::new("bounds"), &options(MediumKind::Volatile)).unwrap();
    medium.store(Offset(MIB - 8), &[b"in range"]);
    medium.load_u64(Offset(MIB));
}

#[test]
#[should_panic(expected = "access of 2 bytes at 0xffffffffffffffff")]
fn an_offset_that_would_overflow_panics() {
    let medium = Mapped::open(Path::new("bounds"), &options(MediumKind::Volatile)).unwrap();
    medium.store(Offset(u64::MAX), &[b"xy"]);
}

#[test]
fn a_prefetch_beyond_the_end_has_no_effect() {
    let medium = Mapped::open(Path::new("prefetch"), &options(MediumKind::Volatile)).unwrap();
    for at in [0, MIB - 1, MIB, 1 << 30, u64::MAX] {
        medium.prefetch(Offset(at));
    }
}

/// Kilobytes of dirty pages in the mappings of `path`.
fn dirty_kib(path: &Path) -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ours = false;
    let mut sum = 0;
    for line in smaps.lines() {
        if line.contains('-') && !line.starts_with(char::is_uppercase) {
            ours = line.ends_with(path.to_str().unwrap());
        } else if ours && (line.starts_with("Shared_Dirty:") || line.starts_with("Private_Dirty:")) {
            sum += line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        }
    }
    sum
}

#[test]
fn sync_leaves_no_page_of_the_mapping_dirty() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("store");
    let medium = Mapped::open(&path, &options(MediumKind::File)).unwrap();
    if medium.kind() != MediumKind::File {
        println!("skipped: the build is not on an ordinary file system");
        return;
    }
    for round in 0..3 {
        medium.store(Offset(round * 8192), &[&[1; 8192]]);
        let dirty = dirty_kib(&path);
        assert!(dirty >= 8, "{dirty} KiB dirty after a store");
        medium.sync().unwrap();
        assert_eq!(dirty_kib(&path), 0, "KiB dirty after sync");
    }
    let mut seen = [0; 8192];
    File::open(&path).unwrap().read_exact_at(&mut seen, 8192).unwrap();
    assert_eq!(seen, [1; 8192]);
}

/// Whether the mapping of `path` is on huge pages.
fn huge_kib(path: &Path) -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ours = false;
    let mut sum = 0;
    for line in smaps.lines() {
        if line.contains('-') && !line.starts_with(char::is_uppercase) {
            ours = line.ends_with(path.to_str().unwrap());
        } else if ours && line.starts_with("ShmemPmdMapped:") {
            sum += line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        }
    }
    sum
}

#[test]
fn tmpfs_gives_huge_pages_whatever_its_mount_says_and_else_advice() {
    for huge in ["never", "always", "advise", "within_size"] {
        let Some(tmpfs) = Mounted::tmpfs(&format!("size=64m,huge={huge}")) else { return };
        let path = tmpfs.path("store");
        let wanted = MediaOptions { len_initial: 16 * MIB, ..options(MediumKind::Auto) };
        let medium = Mapped::open(&path, &wanted).unwrap();
        medium.grow(32 * MIB).unwrap();
        assert_eq!(medium.len(), 32 * MIB);
        if let Some(advice) = medium.small_pages_advice() {
            println!("skipped huge={huge}: {advice}");
            let point = tmpfs.point.path().to_str().unwrap();
            let names_mount = advice.contains("huge=advise") && advice.contains(point);
            let by_kernel = advice.contains("transparent huge pages") || advice.contains("shmem_enabled");
            assert!(names_mount || by_kernel, "{advice}");
            continue;
        }
        let huge_kib_now = huge_kib(&path);
        println!("huge={huge}: {huge_kib_now} KiB of 32 MiB on huge pages");
        assert!(huge_kib_now >= 16 * 1024, "huge={huge}: {huge_kib_now} KiB on huge pages");
        // All of it reads as zero, and the next open finds the stored bytes, on the same pages.
        assert!(read(&medium, 0, medium.len()).iter().all(|byte| *byte == 0));
        medium.store(Offset(20 * MIB), &[b"kept"]);
        drop(medium);
        let medium = Mapped::open(&path, &wanted).unwrap();
        assert_eq!(read(&medium, 20 * MIB, 4), b"kept");
        assert!(huge_kib(&path) > 0, "huge={huge}");
        drop(medium);
        fs::remove_file(&path).unwrap();
        // Without being asked, a tmpfs that has none by itself is given none, and says how to have them.
        let small = MediaOptions { huge_pages: false, prefault: true, ..wanted };
        let medium = Mapped::open(&path, &small).unwrap();
        if huge == "never" {
            assert_eq!(huge_kib(&path), 0);
            assert!(medium.small_pages_advice().unwrap().contains("set huge_pages"));
        }
    }
}

#[test]
fn prefault_is_accepted_by_every_kind() {
    for_each_file_kind(|kind, path| {
        for kind in [kind, MediumKind::Volatile] {
            let prefault = MediaOptions { prefault: true, ..options(kind) };
            let medium = Mapped::open(path, &prefault).unwrap();
            medium.grow(4 * MIB).unwrap();
            assert!(read(&medium, 0, medium.len()).iter().all(|b| *b == 0));
        }
    });
}

#[test]
fn threads_grow_and_use_a_medium_at_once() {
    for_each_file_kind(|kind, path| {
        let medium = Mapped::open(path, &options(kind)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let medium = &medium;
                scope.spawn(move || {
                    for step in 1..32u64 {
                        let len = MIB + step * 64 * 1024;
                        medium.grow(len).unwrap();
                        let at = Offset(len - 8 * (thread + 1));
                        medium.store_u64(at, step << 8 | thread);
                        medium.publish(at, medium.load_u64(at));
                        assert_eq!(medium.load_u64(at), step << 8 | thread);
                    }
                });
            }
        });
        let wanted = MIB + 31 * 64 * 1024;
        // Whole huge pages, where a tmpfs may have any.
        let is_huge = kind == MediumKind::Shm && medium.len() == wanted.next_multiple_of(2 * MIB);
        assert!(is_huge || medium.len() == wanted, "{kind}: {}", medium.len());
    });
}

#[test]
fn a_range_that_would_raise_a_signal_is_reported_as_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = MediaOptions { prefault: false, len_initial: 1 << 20, ..options(MediumKind::File) };
    let medium = Mapped::open(&path, &options).unwrap();
    medium.store(Offset(0), &[&[1; 4096]]);
    assert_eq!(medium.unreadable(Offset(0), 1 << 20), []);
    // Pages behind the end of the file cannot be faulted in, as those that the device does not give back.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(512 << 10).unwrap();
    assert_eq!(medium.unreadable(Offset(0), 1 << 20).first(), Some(&(512 << 10..1 << 20)));
    assert_eq!(medium.unreadable(Offset(600 << 10), 100).first(), Some(&(600 << 10..604 << 10)));
    assert_eq!(medium.unreadable(Offset(100), 5000), []);
}

/// A medium of 1 MiB on a disk, all of whose bytes are 1, and none of whose pages is in memory. `None` where temporary
/// files are in memory.
fn cold(path: &Path) -> Option<Mapped> {
    let options = MediaOptions { prefault: false, len_initial: MIB, ..options(MediumKind::File) };
    let medium = Mapped::open(path, &options).unwrap();
    medium.store(Offset(0), &[&vec![1; MIB as usize]]);
    medium.sync().unwrap();
    if !medium.survives_power() {
        return None;
    }
    drop(medium);
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    Some(Mapped::open(path, &options).unwrap())
}

#[test]
fn only_pages_that_are_not_in_memory_are_zeroed_for_reuse() {
    let dir = tempfile::tempdir().unwrap();
    let Some(medium) = cold(&dir.path().join("store")) else { return };
    let (first, warm, last) = (100 * PAGE_BYTES, 105 * PAGE_BYTES, 120 * PAGE_BYTES);
    assert_eq!(read(&medium, warm, 8), [1; 8]);
    // The first and the last page are only partly in the range.
    medium.reuse(Offset(first + 8), last + 8 - (first + 8));
    for page in (0..MIB).step_by(PAGE_BYTES as usize) {
        let is_zero = page > first && page < last && page != warm;
        assert_eq!(read(&medium, page, 8), [u8::from(!is_zero); 8], "page at {page:#x}");
    }
}

#[test]
fn cold_bytes_that_are_read_once_take_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let Some(medium) = cold(&path) else { return };
    let (at, mut bytes) = (Offset(64 << 10), vec![0; 128 << 10]);
    assert!(medium.is_cold(at, 128 << 10));
    assert!(medium.read_once(at, &mut bytes));
    assert!(bytes.iter().all(|byte| *byte == 1));
    assert!(medium.is_cold(at, 128 << 10), "the pages were let go");
    assert_eq!(medium.unreadable(at, 128 << 10), []);
    assert!(!medium.is_cold(at, 128 << 10), "what is going to be read stays");
    medium.store(at, &[b"x"]);
    assert!(medium.read_once(at, &mut bytes));
    assert_eq!(&bytes[..2], b"x\x01", "what was stored is read, and not lost with the page");
    assert_eq!(read(&medium, at.0, 2), b"x\x01");
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100 << 10).unwrap();
    assert!(!medium.read_once(at, &mut bytes));
}
