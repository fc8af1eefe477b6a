//! A child made by `fork` has a copy of the store's DRAM, the parent's mapping and lock, and none of its threads.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

use duramen::{Error, ErrorKind, IndexKind, MediumKind, Options};
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs `work` in a child, which ends without running what its threads would at their end. How it ended.
fn in_child(work: impl FnOnce()) -> i32 {
    // SAFETY: the child has this thread alone; glibc keeps its allocator whole over `fork`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!worked)) };
    }
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let mut status = 0;
        // SAFETY: a child of this process, and a place for its status.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            return status;
        }
        if Instant::now() > end {
            // SAFETY: a child of this process that was not waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn refused<T>(outcome: Result<T, Error>) {
    let Err(error) = outcome else { panic!("not refused") };
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    assert!(error.to_string().contains("fork"), "{error}");
}

fn forked(directory: &Path, medium: MediumKind, index: IndexKind) {
    let path = directory.join("store");
    let options = Options { medium, index, ..Options::default() };
    let store = options.open(&path).unwrap();
    for key in 0..1000u32 {
        store.put(key.to_le_bytes(), [7; 100]).unwrap();
    }
    let writer = store.writer().unwrap();
    let (mut store, mut writer) = (Some(store), Some(writer));
    let other = directory.join("other");
    let status = in_child(|| {
        {
            let store = store.as_ref().unwrap();
            refused(store.get(1u32.to_le_bytes()));
            refused(store.get_many(&[b"a", b"b"]));
            refused(store.scan(0, 10, &mut |_| {}));
            refused(store.put(b"of the child", b"1"));
            refused(store.delete(1u32.to_le_bytes()));
            refused(store.commit());
            refused(store.maintain());
            let writer = writer.as_mut().unwrap();
            refused(writer.get(b"a"));
            refused(writer.put(b"of the child", b"2"));
            writer.group();
            refused(writer.put(b"of the child", b"3"));
            refused(writer.flush_group());
        }
        // Neither waits for a thread that is not here, nor says to the medium that the store was closed.
        drop(writer.take());
        refused(store.take().unwrap().close().map_err(duramen::Error::from));
        // Its own it may have.
        let own = options.open(&other).unwrap();
        own.put(b"key", b"value").unwrap();
        own.close().unwrap();
    });
    assert_eq!(status, 0);
    let status = in_child(|| {
        drop(writer.take());
        drop(store.take());
    });
    assert_eq!(status, 0);
    // Still locked, still open, and nothing of the children's in it.
    assert_eq!(options.open(&path).unwrap_err().kind(), ErrorKind::InUse);
    let report = duramen::check(&path, &options);
    assert_eq!(report.unwrap_err().kind(), ErrorKind::InUse);
    writer.as_mut().unwrap().put(b"of the parent", b"1").unwrap();
    drop(writer);
    let store = store.unwrap();
    assert_eq!(store.len(), 1001);
    store.close().unwrap();
    let store = options.open(&path).unwrap();
    assert!(store.recovery().clean);
    assert_eq!(store.len(), 1001);
    assert!(store.get(b"of the child").unwrap().is_none());
    assert!(options.open(&other).unwrap().get(b"key").unwrap().is_some());
}

#[test]
fn a_child_made_by_fork_is_refused_and_leaves_the_store_as_it_is() {
    for (directory, medium) in
        [(tempfile::tempdir_in("/dev/shm"), MediumKind::Shm), (tempfile::tempdir(), MediumKind::File)]
    {
        for index in [IndexKind::Hash, IndexKind::Ordered] {
            let directory = tempfile::tempdir_in(directory.as_ref().unwrap().path()).unwrap();
            forked(directory.path(), medium, index);
        }
    }
}
