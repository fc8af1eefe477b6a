//! Stores that evict, crashed at many points.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

use duramen_crash::evicting;

#[test]
fn an_evicted_key_is_absent_or_newest_and_other_keys_are_unchanged() {
    for seed in 1..=12 {
        evicting::run_seed(seed).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn a_moved_record_is_evicted_with_a_tombstone_while_its_original_remains() {
    evicting::run_seed(431).unwrap_or_else(|violation| panic!("{violation}"));
}
