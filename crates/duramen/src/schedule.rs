//! Functions of the engine for scheduled runs. Nothing here is for programs.

use duramen_log::sync::reclaim;

/// Runs the releases that earlier runs deferred, so that they do not run within the next one: all threads of a process
/// share them. No other thread may use the engine during the call.
pub fn finish_reclamation() {
    // A release may defer another, which runs in the next round.
    for _ in 0..4 {
        reclaim::collect();
    }
}
