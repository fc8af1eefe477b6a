//! The engine through its public interface, in one program, since each program is linked with the whole engine. Tests
//! that need a separate process are next to it.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod block_device;
mod checkpoint;
mod close;
mod collections;
mod damage;
mod entries;
mod evict;
mod examples;
mod format;
mod full;
mod give_back;
mod limits;
mod locks;
mod misuse;
mod prototype;
mod range;
mod roots;
mod store;
mod stretches;
mod tables;
mod transaction;

use duramen::Store;
use std::time::{Duration, Instant};

/// Maintains until the awaited condition holds; returns whether it did within a minute. Dead records wait for earlier
/// readers, and other tests' readers are active in this process.
fn maintained(store: &Store, is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        store.maintain().unwrap();
        if is_so() {
            return true;
        }
        if begun.elapsed() > Duration::from_secs(60) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
