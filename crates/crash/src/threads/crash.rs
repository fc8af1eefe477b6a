//! Crashes a run of several threads at the persist points of its log, and checks that some order of the calls explains
//! the recovered content.

use super::history::{Act, History};
use super::linear::{self, Event, Goal};
use super::plan::Plan;
use super::values::{ABSENT, Id, Values};
use super::work::Ended;
use crate::check;
use crate::oracle::State;
use crate::setup::{Case, Promise};
use duramen::StoreOn;
use duramen_media::sim::{Choice, Log, Rng, SimMedium, Walker};

/// One image in this many is recovered twice: the first recovery is crashed.
const NESTED_ONE_IN: u64 = 60;

/// How a store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The power failed.
    Power,
    /// The process died; all its stores to the medium remain.
    Process,
    /// The store was closed.
    Close,
}

/// The calls that had begun when the log had `position` events, in the form that the search takes.
///
/// A group that was unflushed at that moment is a special case where each write is durable individually: its reads may
/// not be shown, so they prove nothing, and its writes may or may not have happened.
fn events_at(history: &History, case: Case, position: usize, end: End) -> Vec<Event<'_>> {
    let mut events = Vec::new();
    for call in &history.calls {
        let begun = end == End::Close || call.from <= position;
        // The content under a collection's key proves whether its deletion is durable; a call that finds it deleted
        // does not.
        let is_gone = matches!(call.act, Act::Element { found: None, .. });
        if call.void || !begun || is_gone && end != End::Close {
            continue;
        }
        let ended = call.ended.filter(|_| end == End::Close || call.to.is_some_and(|to| to <= position));
        let unflushed = case.promise() == Promise::Nothing
            && call.group.is_some_and(|group| history.flushed[group].is_none_or(|at| at > position));
        if call.act.only_reads() && (ended.is_none() || unflushed) {
            continue;
        }
        let required = ended.is_some() && !unflushed;
        events.push(Event { call, ended: ended.unwrap_or(u64::MAX), required });
    }
    events.sort_by_key(|event| event.call.begun);
    events
}

/// Checks that all calls can have happened one after the other.
///
/// # Errors
/// The contradiction.
pub fn check_run(history: &History, values: &mut Values) -> Result<(), String> {
    let mut events: Vec<Event<'_>> = history
        .calls
        .iter()
        .filter(|call| !call.void)
        .map(|call| Event { call, ended: call.ended.unwrap_or(u64::MAX), required: call.ended.is_some() })
        .collect();
    events.sort_by_key(|event| event.call.begun);
    linear::check(&events, history.shape, &history.shape.whole(&[]), Goal::Any, values)
}

/// Checks that a store that ended at `position` may hold `found` when it is reopened.
///
/// # Errors
/// The contradiction.
pub fn check_found(
    history: &History,
    case: Case,
    position: usize,
    end: End,
    found: &[Id],
    values: &mut Values,
) -> Result<(), String> {
    let found = &history.shape.whole(found);
    let goal = match (case.promise(), end) {
        (Promise::Uncommitted, _) => Goal::Committed(found),
        (Promise::Suffix, End::Power) => Goal::Passes(found),
        _ => Goal::Ends(found),
    };
    let events = events_at(history, case, position, end);
    linear::check(&events, history.shape, &history.shape.whole(&[]), goal, values)
}

/// The contents of all keys.
pub fn ids(state: &State, values: &mut Values) -> Vec<Id> {
    state
        .iter()
        .map(|entry| entry.as_ref().map_or(ABSENT, |entry| values.id(&entry.value, entry.tag)))
        .collect()
}

/// Counts of the checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looked {
    /// Positions.
    pub points: u64,
    /// Images.
    pub images: u64,
    /// Recoveries that were crashed, too.
    pub nested: u64,
}

/// Forms about `images_max` images along the log, opens each, and checks it.
///
/// # Errors
/// Returns a description of the violation and its position.
pub fn crash(
    plan: &Plan,
    log: &Log,
    ended: &mut Ended,
    images_max: u64,
    rng: &mut Rng,
) -> Result<Looked, String> {
    let mut looked = Looked::default();
    let points = {
        let mut counter = Walker::new(log);
        std::iter::from_fn(|| counter.next_point()).count() as u64
    };
    let at_once = 4;
    let skip = (points * at_once / images_max.max(1)).max(1);
    let mut walker = Walker::new(log);
    let mut boot = 1;
    while let Some(position) = walker.next_point() {
        if !rng.one_in(skip) {
            continue;
        }
        looked.points += 1;
        let mut choices = walker.choices(rng, at_once as usize);
        let killed = rng.one_in(6);
        if killed {
            choices.push(walker.all());
        }
        let last = choices.len() - 1;
        for (i, choice) in choices.iter().enumerate() {
            let end = if killed && i == last { End::Process } else { End::Power };
            boot += u64::from(end == End::Power);
            looked.images += 1;
            let boot = if end == End::Power { boot } else { 1 };
            let reported = |what: String| {
                format!(
                    "crashed at event {position} of {}, {end:?}: {what}\n    image: {choice:?}",
                    log.events.len()
                )
            };
            if end == End::Power && rng.one_in(NESTED_ONE_IN) {
                looked.nested += 1;
                looked.images +=
                    crash_again(plan, &mut walker, choice, boot, position, ended, rng).map_err(reported)?;
            }
            look(plan, &mut walker, choice, boot, position, end, ended, rng).map_err(reported)?;
        }
    }
    Ok(looked)
}

/// Crashes the recovery of an image, during the recovery and after it; returns the number of images.
///
/// After a crash during recovery, the store may hold any content that the first crash allows. After a crash that
/// follows recovery, it must hold the content that it showed.
fn crash_again(
    plan: &Plan,
    walker: &mut Walker<'_>,
    choice: &Choice,
    boot: u64,
    position: usize,
    ended: &mut Ended,
    rng: &mut Rng,
) -> Result<u64, String> {
    let setup = &plan.setup;
    let (memory, len) = walker.form(choice);
    let log = Log::on(setup.case.model, setup.len_max, memory.snapshot(), len);
    drop(memory);
    let medium = SimMedium::resume(log);
    let open = |medium: &SimMedium, boot: u64, values: &mut Values| {
        let opened = crate::explore::caught(|| {
            let store = StoreOn::open_on(medium.clone(), &setup.options(boot))
                .map_err(|error| format!("the store does not open: {error}"))?;
            let opened = medium.position();
            let found = ids(&check::read_all(setup, &store, true, None)?, values);
            check::accounts(&store)?;
            medium.power_off();
            Ok((opened, found))
        });
        medium.power_off();
        opened
    };
    let (opened, shown) = open(&medium, boot, &mut ended.values)?;
    let log = medium.take_log();
    let mut again = Walker::new(&log);
    let mut images = 0;
    let reached = position + usize::from(choice.is_torn());
    while let Some(at) = again.next_point() {
        for choice in again.choices(rng, 2) {
            images += 1;
            let (memory, len) = again.form(&choice);
            let medium = SimMedium::from_image(setup.case.model, setup.len_max, memory, len);
            let at_crash =
                |what| format!("crashed again at event {at} of the recovery: {what}\n    {choice:?}");
            let (_, found) = open(&medium, boot | 1 << 32, &mut ended.values).map_err(at_crash)?;
            if at < opened {
                check_found(&ended.history, setup.case, reached, End::Power, &found, &mut ended.values)
                    .map_err(at_crash)?;
            } else if found != shown {
                return Err(at_crash(format!("{shown:?} was returned, and recovery finds {found:?}")));
            }
        }
    }
    Ok(images)
}

#[expect(clippy::too_many_arguments, reason = "the inside of `crash`, cut out where an image begins")]
fn look(
    plan: &Plan,
    walker: &mut Walker<'_>,
    choice: &Choice,
    boot: u64,
    position: usize,
    end: End,
    ended: &mut Ended,
    rng: &mut Rng,
) -> Result<(), String> {
    let setup = &plan.setup;
    let (memory, len) = walker.form(choice);
    let medium = SimMedium::from_image(setup.case.model, setup.len_max, memory, len);
    let looked = crate::explore::caught(|| {
        let store = StoreOn::open_on(medium.clone(), &setup.options(boot))
            .map_err(|error| format!("the store does not open: {error}"))?;
        let state = check::read_all(setup, &store, true, None)?;
        let found = ids(&state, &mut ended.values);
        // A torn store belongs to a call that had begun.
        let reached = position + usize::from(choice.is_torn());
        check_found(&ended.history, setup.case, reached, end, &found, &mut ended.values)?;
        check::accounts(&store).map_err(|wrong| format!("after recovery: {wrong}"))?;
        let way = rng.below(12);
        if way < 4 {
            check::audit(setup, &store, &medium, &state)?;
        }
        match way {
            0 => check::delete_all(setup, store, &medium, boot, &state),
            1 => check::overwrite_all(setup, store, &medium, boot, &state, rng),
            _ => {
                medium.power_off();
                drop(store);
                Ok(())
            }
        }
    });
    medium.power_off();
    looked
}
