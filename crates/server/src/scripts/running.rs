//! Scripts that run longer than `busy-reply-threshold`. Meanwhile other clients are answered BUSY, and SCRIPT KILL ends
//! those that have written nothing.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The scripts over the limit.
#[derive(Default)]
pub struct Running {
    // How many: for every command.
    count: AtomicUsize,
    busy: Mutex<Vec<Arc<Busy>>>,
}

/// A script over the limit.
#[derive(Debug)]
pub struct Busy {
    /// It is a function of a library; else a script.
    pub is_function: bool,
    /// The function's name; of a script, its digest.
    pub name: Box<[u8]>,
    /// The command that runs it.
    pub command: Box<[Box<[u8]>]>,
    /// When it began.
    pub since: Instant,
    /// It has written.
    pub has_written: AtomicBool,
    // It is to end.
    is_killed: AtomicBool,
}

impl Busy {
    /// A script that began at `since`.
    pub const fn new(
        is_function: bool,
        name: Box<[u8]>,
        command: Box<[Box<[u8]>]>,
        since: Instant,
        has_written: bool,
    ) -> Self {
        let has_written = AtomicBool::new(has_written);
        Self { is_function, name, command, since, has_written, is_killed: AtomicBool::new(false) }
    }

    /// Whether it is to end.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed)
    }
}

/// Why a script cannot be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKilled {
    /// None is over the limit.
    NotBusy,
    /// It has written.
    HasWritten,
    /// It is of the other kind.
    OtherKind,
}

impl Running {
    /// Whether some script is over the limit.
    #[inline]
    pub fn are_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// One of them.
    pub fn first(&self) -> Option<Arc<Busy>> {
        self.lock().first().cloned()
    }

    /// A script has come over the limit.
    pub fn add(&self, busy: Busy) -> Arc<Busy> {
        let busy = Arc::new(busy);
        let mut all = self.lock();
        all.push(Arc::clone(&busy));
        self.count.store(all.len(), Ordering::Relaxed);
        busy
    }

    /// It has ended.
    pub fn remove(&self, busy: &Arc<Busy>) {
        let mut all = self.lock();
        all.retain(|other| !Arc::ptr_eq(other, busy));
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// Has all of this kind end that have written nothing.
    ///
    /// # Errors
    /// When that is none, of the first one.
    pub fn kill(&self, functions: bool) -> Result<(), NotKilled> {
        let all = self.lock();
        let mut result = Err(NotKilled::NotBusy);
        for busy in &*all {
            let killed = if busy.has_written.load(Ordering::Relaxed) {
                Err(NotKilled::HasWritten)
            } else if busy.is_function != functions {
                Err(NotKilled::OtherKind)
            } else {
                busy.is_killed.store(true, Ordering::Relaxed);
                Ok(())
            };
            if result.is_err() && (killed.is_ok() || result == Err(NotKilled::NotBusy)) {
                result = killed;
            }
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Busy>>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(is_function: bool, has_written: bool) -> Busy {
        Busy::new(is_function, b"name".as_slice().into(), Box::default(), Instant::now(), has_written)
    }

    #[test]
    fn only_what_has_written_nothing_is_killed_and_by_its_own_command() {
        let running = Running::default();
        assert_eq!(running.kill(false), Err(NotKilled::NotBusy));
        let written = running.add(busy(false, true));
        assert_eq!(running.kill(false), Err(NotKilled::HasWritten));
        let script = running.add(busy(false, false));
        let function = running.add(busy(true, false));
        assert_eq!(running.kill(false), Ok(()));
        assert!(script.is_killed() && !function.is_killed() && !written.is_killed());
        running.remove(&written);
        running.remove(&script);
        assert_eq!(running.kill(false), Err(NotKilled::OtherKind));
        assert_eq!(running.kill(true), Ok(()));
        running.remove(&function);
        assert!(!running.are_any() && running.first().is_none());
    }
}
