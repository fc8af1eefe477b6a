//! How others wake the store's own thread.

use crate::sync::atomic::AtomicBool;
use crate::sync::lock;
use crate::sync::{Condvar, Mutex};
use std::time::Duration;

/// How others wake the background thread.
#[derive(Default)]
pub(crate) struct Wake {
    pub stop: AtomicBool,
    pub hurry: Mutex<bool>,
    pub wake: Condvar,
    /// There is little room, and the thread could make none when it last looked: it looks again in a while, and to wake it for
    /// each block that is opened would only take time.
    pub in_vain: AtomicBool,
}

impl Wake {
    pub(crate) fn hurry(&self) {
        let mut hurry = lock(&self.hurry);
        if !*hurry {
            *hurry = true;
            self.wake.notify_one();
        }
    }

    /// Waits for `pause`, or until somebody hurries: whether somebody does.
    pub(crate) fn rest(&self, pause: Duration) -> bool {
        let mut hurry = lock(&self.hurry);
        if !*hurry && !pause.is_zero() {
            hurry = self.wake.wait_timeout(hurry, pause);
        }
        std::mem::take(&mut hurry)
    }
}
