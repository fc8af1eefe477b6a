//! Calls that the medium skips: a planted bug of the caller. The source has the call, but the medium does not start a
//! write-back, skips a drain or a sync, or makes two separate stores of an atomic store.
//!
//! At most one line of one file at a time, for the whole process. A function that passes the call on is marked
//! `#[track_caller]`, only in builds with planted bugs; the line is then that of its own caller.

use std::panic::Location;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};

/// 0: nothing is lost.
static LINE: AtomicU32 = AtomicU32::new(0);
/// How the path of the file ends.
static FILE: Mutex<&str> = Mutex::new("");

/// From now on skips the calls made at this line of `file` (the end of its path); `None`: none are skipped.
pub fn lose(place: Option<(&'static str, u32)>) {
    let (file, line) = place.unwrap_or(("", 0));
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = file;
    LINE.store(line, Release);
}

/// Whether a call from there is to be left out.
pub(super) fn is_lost(caller: &Location<'_>) -> bool {
    let line = LINE.load(Acquire);
    line != 0
        && line == caller.line()
        && caller.file().ends_with(*FILE.lock().unwrap_or_else(PoisonError::into_inner))
}
