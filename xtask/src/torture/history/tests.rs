//! The check must be able to fail: for each fault, a history that has it and a similar one that does not.

use super::*;

const KEEPS: Promise = Promise { on_acknowledge: true, prefix: false };
const COMMITS: Promise = Promise { on_acknowledge: false, prefix: true };

fn value(seq: u64) -> State {
    State::lasting(Content::Stamped { seq, len: 100 })
}

fn gone() -> State {
    State::lasting(Content::Absent)
}

fn contents(states: &[State]) -> Vec<Content> {
    states.iter().map(|state| state.content.clone()).collect()
}

/// A writer of one unit of two keys and two units of one key.
struct Writer {
    history: History,
    clock: u64,
}

impl Writer {
    fn new(promise: Promise) -> Writer {
        let unit = |names: &[&str]| Unit {
            form: Form::Stamped,
            keys: names.iter().map(|name| name.as_bytes().to_vec()).collect(),
        };
        let units = vec![unit(&["pair:a", "pair:b"]), unit(&["x"]), unit(&["y"])];
        Writer { history: History::new(promise, units, 1), clock: 1_000_000 }
    }

    fn send(&mut self, unit: usize, states: &[State]) -> u64 {
        self.clock += 10;
        let op = self.history.next_op();
        self.history.apply(&Event::Sent { op, unit, at: self.clock, states: states.to_vec() });
        op
    }

    fn write(&mut self, unit: usize, states: &[State]) -> u64 {
        let op = self.send(unit, states);
        self.clock += 10;
        self.history.apply(&Event::Acked { op, at: self.clock });
        op
    }

    fn window(&self) -> Window {
        Window { from: self.clock, to: self.clock + 1 }
    }

    fn recover(&mut self, unit: usize, states: &[State]) -> Vec<Fault> {
        self.clock += 10;
        let found = contents(states);
        self.history.apply(&Event::Recovered { unit, window: self.window(), found });
        self.faults()
    }

    fn faults(&mut self) -> Vec<Fault> {
        self.history.take_violations().into_iter().map(|violation| violation.fault).collect()
    }
}

#[test]
fn an_acknowledged_write_that_is_absent_is_lost() {
    let mut writer = Writer::new(KEEPS);
    writer.write(1, &[value(1)]);
    assert_eq!(writer.recover(1, &[gone()]), [Fault::Lost]);
}

#[test]
fn acknowledged_overwrite_that_shows_its_predecessor_is_lost() {
    let mut writer = Writer::new(KEEPS);
    writer.write(1, &[value(1)]);
    writer.write(1, &[value(2)]);
    assert_eq!(writer.recover(1, &[value(1)]), [Fault::Lost]);
    assert_eq!(writer.recover(1, &[value(2)]), []);
}

#[test]
fn deleted_key_that_is_back_is_resurrected() {
    let mut writer = Writer::new(KEEPS);
    writer.write(1, &[value(1)]);
    writer.write(1, &[gone()]);
    assert_eq!(writer.recover(1, &[value(1)]), [Fault::Resurrected]);
}

#[test]
fn value_that_nobody_wrote_is_torn() {
    let mut writer = Writer::new(KEEPS);
    writer.write(1, &[value(1)]);
    assert_eq!(writer.recover(1, &[State::lasting(Content::Torn("?".to_owned()))]), [Fault::Torn]);
    assert_eq!(writer.recover(1, &[value(9)]), [Fault::Torn]);
}

#[test]
fn half_a_batch_is_broken_acknowledged_or_not() {
    for acknowledged in [true, false] {
        let mut writer = Writer::new(KEEPS);
        writer.write(0, &[value(1), value(1)]);
        match acknowledged {
            false => {
                writer.send(0, &[value(2), gone()]);
                assert_eq!(writer.recover(0, &[value(2), value(1)]), [Fault::BrokenBatch]);
            }
            true => {
                writer.write(0, &[value(2), gone()]);
                // Durable: a missing write is lost, a deleted key that reappears is resurrected.
                assert_eq!(writer.recover(0, &[value(1), gone()]), [Fault::Lost]);
                assert_eq!(writer.recover(0, &[value(2), value(1)]), [Fault::Resurrected]);
            }
        }
    }
}

#[test]
fn write_in_flight_may_or_may_not_have_happened() {
    for survivor in [1, 2, 3] {
        let mut writer = Writer::new(KEEPS);
        writer.write(1, &[value(1)]);
        writer.send(1, &[value(2)]);
        writer.send(1, &[value(3)]);
        assert_eq!(writer.recover(1, &[value(survivor)]), []);
        // Invariant 3: a state that was found stays.
        assert_eq!(writer.recover(1, &[value(survivor)]), []);
        let other = if survivor == 1 { 2 } else { 1 };
        assert_ne!(writer.recover(1, &[value(other)]), []);
    }
}

#[test]
fn a_write_in_flight_stays_possible_over_crashes_without_a_read() {
    let mut writer = Writer::new(KEEPS);
    writer.write(1, &[value(1)]);
    writer.send(1, &[gone()]);
    assert_eq!(writer.recover(1, &[gone()]), []);
    assert_eq!(writer.recover(1, &[value(1)]), [Fault::Resurrected]);
}

fn expiring(writer: &Writer, seq: u64, after: u64) -> State {
    let earliest = writer.clock + 10 + after;
    let expires = Some(Expiry { earliest, latest: earliest + 10_000 });
    State { content: Content::Stamped { seq, len: 100 }, expires }
}

#[test]
fn expired_value_that_is_still_there_is_resurrected() {
    let mut writer = Writer::new(KEEPS);
    let state = expiring(&writer, 1, 100);
    writer.write(1, std::slice::from_ref(&state));
    assert_eq!(writer.recover(1, std::slice::from_ref(&state)), [], "not yet");
    writer.clock += 100 + SLACK_MS + 50;
    assert_eq!(writer.recover(1, &[state]), [Fault::Resurrected]);
    assert_eq!(writer.recover(1, &[gone()]), []);
}

#[test]
fn value_that_expires_too_early_is_lost() {
    let mut writer = Writer::new(KEEPS);
    let state = expiring(&writer, 1, 1000);
    writer.write(1, &[state]);
    assert_eq!(writer.recover(1, &[gone()]), [Fault::Lost]);
}

#[test]
fn a_value_whose_expiry_was_in_flight_may_expire_or_stay() {
    for stays in [true, false] {
        let mut writer = Writer::new(KEEPS);
        writer.write(1, &[value(1)]);
        let state = expiring(&writer, 1, 100);
        writer.send(1, &[state]);
        assert_eq!(writer.recover(1, &[value(1)]), [], "both states are possible");
        writer.clock += 20_000;
        let found = if stays { value(1) } else { gone() };
        assert_eq!(writer.recover(1, &[found]), []);
    }
}

#[test]
fn an_uncommitted_write_may_be_lost_where_only_commits_are_durable() {
    let mut writer = Writer::new(COMMITS);
    let op = writer.write(1, &[value(1)]);
    writer.history.apply(&Event::Committed { op });
    writer.write(1, &[value(2)]);
    writer.write(1, &[value(3)]);
    assert_eq!(writer.recover(1, &[value(1)]), []);

    let mut writer = Writer::new(COMMITS);
    let op = writer.write(1, &[value(1)]);
    writer.history.apply(&Event::Committed { op });
    assert_eq!(writer.recover(1, &[gone()]), [Fault::Lost]);
}

#[test]
fn later_write_without_an_earlier_one_is_a_hole() {
    let mut writer = Writer::new(COMMITS);
    writer.write(1, &[value(1)]);
    writer.write(2, &[value(2)]);
    writer.history.crashed();
    assert_eq!(writer.recover(0, &[gone(), gone()]), []);
    assert_eq!(writer.recover(1, &[gone()]), []);
    assert_eq!(writer.recover(2, &[value(2)]), [Fault::Hole]);

    let mut writer = Writer::new(COMMITS);
    writer.write(1, &[value(1)]);
    writer.write(2, &[value(2)]);
    writer.history.crashed();
    writer.recover(0, &[gone(), gone()]);
    writer.recover(1, &[value(1)]);
    assert_eq!(writer.recover(2, &[gone()]), [], "a prefix is allowed");
}

#[test]
fn an_equal_older_value_read_after_a_crash_proves_no_survival() {
    let mut writer = Writer::new(COMMITS);
    writer.write(1, &[value(1)]);
    writer.write(2, &[value(2)]);
    writer.write(1, &[gone()]);
    writer.history.crashed();
    assert_eq!(writer.recover(1, &[gone()]), [], "before the first write, or after the last");
    writer.history.crashed();
    assert_eq!(writer.recover(0, &[gone(), gone()]), []);
    assert_eq!(writer.recover(1, &[gone()]), []);
    assert_eq!(writer.recover(2, &[gone()]), []);
}

#[test]
fn live_read_must_show_the_writers_own_last_write() {
    let mut writer = Writer::new(KEEPS);
    writer.write(1, &[value(1)]);
    let after = writer.write(1, &[value(2)]);
    let mut read = |after, seq| {
        let window = writer.window();
        writer.history.apply(&Event::Read { unit: 1, after, window, found: contents(&[value(seq)]) });
        writer.faults()
    };
    assert_eq!(read(after, 2), []);
    assert_eq!(read(after, 1), [Fault::Lost]);
}

#[test]
fn a_read_inside_a_pipeline_is_compared_with_the_state_at_its_position() {
    let mut writer = Writer::new(KEEPS);
    let first = writer.send(1, &[value(1)]);
    writer.send(1, &[value(2)]);
    let window = writer.window();
    writer.history.apply(&Event::Acked { op: first, at: window.to });
    writer.history.apply(&Event::Read { unit: 1, after: first, window, found: contents(&[value(1)]) });
    assert_eq!(writer.faults(), []);
}

#[test]
fn refusal_is_reported() {
    let mut writer = Writer::new(KEEPS);
    writer.history.apply(&Event::Refused { what: "SET: -ERR".to_owned() });
    assert_eq!(writer.faults(), [Fault::Refused]);
}

#[test]
fn a_shared_counter_is_between_acknowledged_and_sent_additions() {
    let mut writer = Writer::new(KEEPS);
    for _ in 0..3 {
        writer.history.apply(&Event::SharedSent { counter: 0 });
        writer.history.apply(&Event::SharedAcked { counter: 0 });
    }
    writer.history.apply(&Event::SharedSent { counter: 0 });
    let additions = writer.history.additions()[0];
    assert_eq!(additions, Additions { sent: 4, acked: 3, committed: 3 });
    let fault = |found| check_shared(0, 10, &found, additions).map(|violation| violation.fault);
    assert_eq!(fault(Content::Number(12)), Some(Fault::Lost));
    assert_eq!(fault(Content::Number(13)), None);
    assert_eq!(fault(Content::Number(14)), None);
    assert_eq!(fault(Content::Number(15)), Some(Fault::Torn));
    assert_eq!(fault(Content::Absent), Some(Fault::Lost));
    assert_eq!(fault(Content::Torn(String::new())), Some(Fault::Torn));
}

#[test]
fn scan_knows_which_keys_may_and_must_be_seen() {
    let mut writer = Writer::new(KEEPS);
    let state = expiring(&writer, 1, 5);
    writer.write(1, &[value(2)]);
    writer.write(2, &[state]);
    let window = writer.window();
    assert_eq!(writer.history.in_scan(b"x", window), Some((true, true)));
    assert_eq!(writer.history.in_scan(b"y", window), Some((true, false)));
    assert_eq!(writer.history.in_scan(b"pair:a", window), Some((false, false)));
    assert_eq!(writer.history.in_scan(b"stranger", window), None);
}
