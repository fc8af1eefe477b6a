//! Stores that evict, crashed at many points.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

use duramen_crash::evicting;

#[test]
fn what_was_evicted_is_gone_or_newest_and_the_rest_is_as_ever() {
    for seed in 1..=12 {
        evicting::run_seed(seed).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn a_copy_is_not_evicted_without_a_tombstone_while_its_original_is_left() {
    evicting::run_seed(431).unwrap_or_else(|violation| panic!("{violation}"));
}
