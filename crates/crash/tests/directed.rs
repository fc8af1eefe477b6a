//! What must hold in scenarios that are written down step by step; `cargo xtask crash --mutants` shows that each can fail.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod support;

use duramen_crash::directed::SCENARIOS;
use support::alone;

#[test]
fn nothing_is_wrong_in_any_scenario() {
    let _alone = alone();
    for (claim, scenario) in SCENARIOS {
        scenario().unwrap_or_else(|what| panic!("{claim}: {what}"));
    }
}
