//! What must hold in scenarios that are written down step by step; `cargo xtask crash --mutants` shows that each can
//! fail.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod support;

use duramen_crash::directed;
use support::alone;

#[test]
fn uncommitted_records_need_no_tombstone() {
    let _alone = alone();
    directed::behind_the_tail().unwrap();
}

#[test]
fn a_value_read_from_another_group_is_durable_before_the_next_write() {
    let _alone = alone();
    directed::renamed_before_durable().unwrap();
}

#[test]
fn a_value_read_from_a_moved_record_survives_a_power_failure() {
    let _alone = alone();
    directed::copied_and_shown().unwrap();
}

#[test]
fn a_deleted_key_stays_deleted_while_a_pinned_block_has_its_older_record() {
    let _alone = alone();
    directed::kept_and_deleted().unwrap();
}

#[test]
fn a_deleted_key_stays_deleted_while_its_block_and_its_tombstone_s_are_freed() {
    let _alone = alone();
    directed::deleted_and_freed().unwrap();
}

#[test]
fn a_table_with_a_damaged_name_is_reported_and_salvaged() {
    let _alone = alone();
    directed::name_lost().unwrap();
}

#[test]
fn outcomes_of_two_transactions_that_share_a_block_are_reported_separately() {
    let _alone = alone();
    directed::two_transactions_in_one_block().unwrap();
}

#[test]
fn a_checkpoint_contains_nothing_of_an_active_transaction() {
    let _alone = alone();
    directed::checkpoint_beside_transaction().unwrap();
}

#[test]
fn a_checkpoint_has_the_order_of_elements_from_before_an_active_transaction() {
    let _alone = alone();
    directed::checkpoint_beside_transaction_of_elements().unwrap();
}

#[test]
fn a_checkpoint_contains_a_root_that_is_deleted_while_it_is_written() {
    let _alone = alone();
    directed::root_deleted_beside_checkpoint().unwrap();
}

#[test]
fn a_collection_deleted_in_a_group_is_reclaimed_only_after_its_flush() {
    let _alone = alone();
    directed::root_deleted_before_checkpoint().unwrap();
}

#[test]
fn a_checkpoint_has_the_new_place_of_a_moved_root() {
    let _alone = alone();
    directed::root_moved_before_checkpoint().unwrap();
}

#[test]
fn a_checkpoint_points_only_to_durable_records() {
    let _alone = alone();
    directed::checkpoint_beside_group().unwrap();
}

#[test]
fn a_moved_record_is_durable_before_its_old_block_is_freed() {
    let _alone = alone();
    directed::copied_and_freed().unwrap();
}

#[test]
fn a_transaction_confirmed_by_recovery_survives_a_power_failure() {
    let _alone = alone();
    directed::confirmed_by_recovery().unwrap();
}

#[test]
fn a_check_finds_no_fault_after_a_kill_within_a_transaction() {
    let _alone = alone();
    directed::checked_before_recovery().unwrap();
}

#[test]
fn keys_written_around_damaged_ones_are_found_and_in_order() {
    let _alone = alone();
    directed::written_around_damage().unwrap();
}

#[test]
fn a_flushed_group_survives_a_power_failure() {
    let _alone = alone();
    directed::flushed_group().unwrap();
}

#[test]
fn writers_that_lock_the_same_keys_in_another_order_do_not_deadlock() {
    let _alone = alone();
    directed::locked_in_any_order().unwrap();
}

#[test]
fn a_commit_does_not_wait_for_a_writer_that_waits_for_a_key() {
    let _alone = alone();
    directed::committed_beside_locks().unwrap();
}

#[test]
fn an_overwritten_element_is_found_at_its_new_rank() {
    let _alone = alone();
    directed::overwritten().unwrap();
}

#[test]
fn an_element_exists_throughout_an_overwrite() {
    let _alone = alone();
    directed::counted_beside_overwrites().unwrap();
}

#[test]
fn a_collection_exists_while_any_root_refers_to_it() {
    let _alone = alone();
    directed::named_anew().unwrap();
}

#[test]
fn a_collection_survives_an_aborted_transaction_that_deletes_its_root() {
    let _alone = alone();
    directed::deleted_absent().unwrap();
}

#[test]
fn a_reader_by_rank_returns_only_durable_elements() {
    let _alone = alone();
    directed::ranked_before_durable().unwrap();
}

#[test]
fn a_record_evicted_after_a_move_does_not_reappear() {
    let _alone = alone();
    directed::moved_and_evicted().unwrap();
}

#[test]
fn a_kill_within_a_value_never_turns_its_bytes_into_records() {
    let _alone = alone();
    directed::killed_within_a_forged_value().unwrap();
}

#[test]
fn damage_in_a_value_never_turns_its_bytes_into_records() {
    let _alone = alone();
    directed::damaged_forged_value().unwrap();
}

#[test]
fn a_value_forged_without_the_secret_is_no_record_after_a_lost_header() {
    let _alone = alone();
    directed::guessed_value_without_header().unwrap();
}

#[test]
fn a_value_copied_from_the_medium_is_no_record_after_a_lost_header() {
    let _alone = alone();
    directed::copied_value_without_header().unwrap();
}

#[test]
fn an_aborted_write_of_a_forged_value_leaves_no_record() {
    let _alone = alone();
    directed::aborted_forged_value().unwrap();
}
