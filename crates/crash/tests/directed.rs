//! What must hold in scenarios that are written down step by step; `cargo xtask crash --mutants` shows that each can fail.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod support;

use duramen_crash::directed;
use support::alone;

#[test]
fn records_that_were_not_committed_keep_no_tombstone() {
    let _alone = alone();
    directed::behind_the_tail().unwrap();
}

#[test]
fn what_was_read_of_another_group_is_durable_before_what_is_written_next() {
    let _alone = alone();
    directed::renamed_before_durable().unwrap();
}

#[test]
fn what_a_reader_is_shown_of_a_copy_survives_a_power_failure() {
    let _alone = alone();
    directed::copied_and_shown().unwrap();
}

#[test]
fn a_key_stays_deleted_whose_older_record_lies_in_a_block_that_a_kept_value_holds_back() {
    let _alone = alone();
    directed::kept_and_deleted().unwrap();
}

#[test]
fn a_table_whose_name_is_damaged_is_reported_of_and_saved() {
    let _alone = alone();
    directed::name_lost().unwrap();
}

#[test]
fn what_becomes_of_two_transactions_that_went_on_to_one_block_is_reported_apart() {
    let _alone = alone();
    directed::two_transactions_in_one_block().unwrap();
}

#[test]
fn an_image_knows_nothing_of_a_transaction_that_runs() {
    let _alone = alone();
    directed::checkpoint_beside_transaction().unwrap();
}

#[test]
fn an_image_knows_elements_in_the_order_that_they_had_before_a_transaction_that_runs() {
    let _alone = alone();
    directed::checkpoint_beside_transaction_of_elements().unwrap();
}

#[test]
fn an_image_knows_a_root_that_is_deleted_while_it_is_written() {
    let _alone = alone();
    directed::root_deleted_beside_checkpoint().unwrap();
}

#[test]
fn what_a_group_has_deleted_is_not_reclaimed_before_that_is_durable() {
    let _alone = alone();
    directed::root_deleted_before_checkpoint().unwrap();
}

#[test]
fn an_image_knows_where_a_root_is_that_was_moved() {
    let _alone = alone();
    directed::root_moved_before_checkpoint().unwrap();
}

#[test]
fn an_image_points_to_nothing_that_a_power_failure_takes_away() {
    let _alone = alone();
    directed::checkpoint_beside_group().unwrap();
}

#[test]
fn what_was_moved_is_durable_before_its_block_is_free() {
    let _alone = alone();
    directed::copied_and_freed().unwrap();
}

#[test]
fn a_transaction_that_recovery_confirms_outlives_a_power_failure() {
    let _alone = alone();
    directed::confirmed_by_recovery().unwrap();
}

#[test]
fn a_check_finds_nothing_wrong_where_a_process_died_within_a_transaction() {
    let _alone = alone();
    directed::checked_before_recovery().unwrap();
}

#[test]
fn keys_written_around_damaged_ones_are_found_and_in_order() {
    let _alone = alone();
    directed::written_around_damage().unwrap();
}

#[test]
fn a_group_that_was_flushed_outlives_a_power_failure() {
    let _alone = alone();
    directed::flushed_group().unwrap();
}

#[test]
fn who_locks_the_same_keys_in_another_order_comes_to_an_end() {
    let _alone = alone();
    directed::locked_in_any_order().unwrap();
}

#[test]
fn a_commit_waits_for_nobody_who_waits_for_a_key() {
    let _alone = alone();
    directed::committed_beside_locks().unwrap();
}

#[test]
fn an_element_that_is_overwritten_is_found_where_it_belongs_now() {
    let _alone = alone();
    directed::overwritten().unwrap();
}

#[test]
fn an_element_that_is_overwritten_is_there_at_every_moment() {
    let _alone = alone();
    directed::counted_beside_overwrites().unwrap();
}

#[test]
fn a_collection_lives_while_anything_names_it() {
    let _alone = alone();
    directed::named_anew().unwrap();
}

#[test]
fn a_collection_outlives_a_transaction_that_deletes_its_root_and_is_aborted() {
    let _alone = alone();
    directed::deleted_absent().unwrap();
}

#[test]
fn a_reader_along_the_ranks_sees_nothing_that_is_not_durable() {
    let _alone = alone();
    directed::ranked_before_durable().unwrap();
}

#[test]
fn what_was_evicted_where_it_had_been_moved_to_stays_away() {
    let _alone = alone();
    directed::moved_and_evicted().unwrap();
}

#[test]
fn no_kill_within_a_value_makes_records_of_what_it_holds() {
    let _alone = alone();
    directed::killed_within_a_forged_value().unwrap();
}

#[test]
fn damage_in_a_value_makes_no_records_of_what_it_holds() {
    let _alone = alone();
    directed::damaged_forged_value().unwrap();
}

#[test]
fn what_somebody_without_the_secret_makes_is_no_record_behind_a_lost_header() {
    let _alone = alone();
    directed::guessed_value_without_header().unwrap();
}

#[test]
fn what_is_copied_from_the_medium_is_no_record_behind_a_lost_header() {
    let _alone = alone();
    directed::copied_value_without_header().unwrap();
}

#[test]
fn a_value_that_was_not_written_after_all_leaves_no_record() {
    let _alone = alone();
    directed::aborted_forged_value().unwrap();
}
