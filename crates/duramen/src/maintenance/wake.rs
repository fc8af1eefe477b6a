//! How other threads wake the store's own thread.

use duramen_log::sync::atomic::AtomicBool;
use duramen_log::sync::lock;
use duramen_log::sync::{Condvar, Mutex};
use std::time::Duration;

/// The signal that wakes the background thread.
#[derive(Default)]
pub(crate) struct Wake {
    pub stop: AtomicBool,
    pub is_woken: Mutex<bool>,
    pub wake: Condvar,
    /// There is little room, and the thread could make none when it last tried. It tries again in a while, and waking
    /// it for each block that is opened would only take time.
    pub no_progress: AtomicBool,
}

impl Wake {
    pub(crate) fn wake(&self) {
        let mut is_woken = lock(&self.is_woken);
        if !*is_woken {
            *is_woken = true;
            self.wake.notify_one();
        }
    }

    /// Waits for `pause`, or until another thread wakes this one; returns whether one did.
    pub(crate) fn rest(&self, pause: Duration) -> bool {
        let mut is_woken = lock(&self.is_woken);
        if !*is_woken && !pause.is_zero() {
            is_woken = self.wake.wait_timeout(is_woken, pause);
        }
        std::mem::take(&mut is_woken)
    }
}
