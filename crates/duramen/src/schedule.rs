//! What a scheduled run needs of the engine. Nothing here is for programs.

use crate::sync::reclaim;

/// Runs what earlier runs left to be reclaimed, so that it does not run within the next one: all threads of a process
/// share it. Whoever calls must be alone with the engine.
pub fn finish_reclamation() {
    // What a release defers comes with the next.
    for _ in 0..4 {
        reclaim::collect();
    }
}
