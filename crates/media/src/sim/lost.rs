//! Calls that the medium leaves out: planted bugs of whoever makes them. The source that is read has the call, and the medium does nothing:
//! a write-back is not begun, a drain or a sync is forgotten; of an
//! atomic store it is left out that it is one: it is two, one behind the other.
//!
//! One line of one file at a time, for the whole process. A function that hands the call on is marked `#[track_caller]`, in builds with
//! planted bugs alone: then the line is that of its own caller.

use std::panic::Location;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};

/// 0: nothing is lost.
static LINE: AtomicU32 = AtomicU32::new(0);
/// How the path of the file ends.
static FILE: Mutex<&str> = Mutex::new("");

/// From now on what is asked for in this line of `file` (the end of its path) is not done; `None`: everything is.
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
