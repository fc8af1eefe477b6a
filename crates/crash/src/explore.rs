//! Forms images along the log of a session, and checks each.

use crate::check;
use crate::oracle::{Allowed, Crash, History, Means};
use crate::phases::{COUNT, Counts, Inside};
use crate::session::Session;
use crate::setup::{Case, Op, Promise, Setup, TIME_BEGIN};
use duramen_media::sim::{Choice, Log, Model, Rng, SimMedium, Walker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Limits of the exploration.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Images at one position.
    pub images: usize,
    /// Images of one seed, nested crashes included.
    pub images_max: u64,
    /// Depth of nested crashes: 1 crashes recovery, 2 also crashes the recovery after that.
    pub depth: u32,
    /// Time to stop, even in the middle of a seed.
    pub until: Option<Instant>,
}

/// One image in this many is checked before it is opened: a check reads all of it once more.
const CHECKED_ONE_IN: u64 = 4;

impl Default for Effort {
    fn default() -> Self {
        Self { images: 20, images_max: 6_000, depth: 2, until: None }
    }
}

/// Counts of the exploration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Seeds.
    pub seeds: u64,
    /// Images opened.
    pub images: u64,
    /// Positions crashed at.
    pub points: u64,
    /// Sessions that ran on an image, or after a process crash.
    pub nested: u64,
    /// Greatest depth of nested crashes: 1 is a crash, 2 a crash of the recovery from it.
    pub depth: u64,
    /// Operations run.
    pub ops: u64,
    /// Points by the phases that contain them.
    pub inside: Counts,
}

impl Totals {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.images += other.images;
        self.points += other.points;
        self.nested += other.nested;
        self.depth = self.depth.max(other.depth);
        self.ops += other.ops;
        for (all, more) in self.inside.iter_mut().zip(other.inside) {
            *all += more;
        }
    }
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The run.
    pub setup: String,
    /// The violation and its position.
    pub what: String,
    /// The command that repeats it.
    pub command: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n  {}\n  repeat with: {}", self.setup, self.what, self.command)
    }
}

impl std::error::Error for Violation {}

/// Runs one seed.
///
/// # Errors
/// The first promise that was broken.
pub fn run_seed(seed: u64, case: Option<Case>, effort: Effort) -> Result<Totals, Box<Violation>> {
    let setup = Setup::new(seed, case);
    run_setup(&setup, effort)
}

/// Runs one setup.
///
/// # Errors
/// The first promise that was broken.
pub fn run_setup(setup: &Setup, effort: Effort) -> Result<Totals, Box<Violation>> {
    setup.clock.store(TIME_BEGIN, Relaxed);
    let mut explorer = Explorer {
        setup,
        effort,
        totals: Totals { seeds: 1, ..Totals::default() },
        rng: Rng::new(setup.seed),
        boot: 1,
    };
    let result = explorer.begin();
    result.map(|()| explorer.totals).map_err(|what| {
        Box::new(Violation {
            setup: setup.describe(),
            what,
            command: format!("cargo xtask crash --seed {} --case {} --seeds 1", setup.seed, setup.case.name),
        })
    })
}

/// Whether each write is durable when it returns.
fn setup_is_strict(setup: &Setup) -> bool {
    setup.case.promise() == Promise::Nothing && setup.case.model != Model::Page
}

/// Compares each write's return with the medium's log: none of the bytes that it stored may be dirty then. Two kinds of
/// bytes may be: those that a delete of an absent key wrote and took back, and those left dirty by a process that died
/// earlier.
fn acknowledged_is_durable(log: &Log, history: &History) -> Result<(), String> {
    let mut walker = Walker::new(log);
    walker.advance(history.open_end);
    let mut group = None;
    for (at, step) in history.steps.iter().enumerate() {
        walker.advance(step.end);
        let from = match step.means {
            Means::Grouped | Means::Table => {
                group.get_or_insert(step.start);
                continue;
            }
            Means::FlushGroup => group.take().unwrap_or(step.start),
            Means::Write | Means::Commit if step.effects.is_empty() => continue,
            Means::Write | Means::Commit => step.start,
        };
        if let Some(event) = walker.dirty_since(from) {
            return Err(format!(
                "step {at}, {}, returned at event {} while the store of event {event} (line {}) was not durable",
                step.what, step.end, log.events[event].line
            ));
        }
    }
    Ok(())
}

struct Explorer<'s> {
    setup: &'s Setup,
    effort: Effort,
    totals: Totals,
    rng: Rng,
    boot: u64,
}

/// The result of `work`; a panic's message becomes an error.
///
/// # Errors
/// Those of `work`, and its panic.
pub fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let said = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("something");
        Err(format!("panic: {said}"))
    })
}

impl Explorer<'_> {
    fn begin(&mut self) -> Result<(), String> {
        let setup = self.setup;
        let empty = Allowed::exactly(vec![None; setup.cells()]);
        let log = Log::empty(setup.case.model, setup.len_max);
        self.session(1, log, empty.clone(), empty, &setup.ops, self.effort.depth)
    }

    /// Opens the store where `log` ends, runs `ops`, and crashes it everywhere.
    fn session(
        &mut self,
        boot: u64,
        log: Log,
        before: Allowed,
        opened: Allowed,
        ops: &[Op],
        depth: u32,
    ) -> Result<(), String> {
        let setup = self.setup;
        let begin = log.events.len();
        let medium = SimMedium::resume(log);
        medium.flush_short(setup.flush_short);
        let kept = medium.clone();
        let clock = setup.now();
        let mut rng = self.rng.fork();
        let ran = caught(|| {
            let mut session = Session::open(setup, medium, boot, before, &opened, &mut rng)?;
            session.run(ops)?;
            Ok(session.power_off().1)
        });
        let history = match ran {
            Ok(history) => history,
            Err(what) => {
                kept.power_off();
                return Err(what);
            }
        };
        self.totals.ops += ops.len() as u64;
        let log = kept.take_log();
        drop(kept);
        let result = self.crash_everywhere(boot, &log, begin, &history, depth);
        setup.clock.store(clock, Relaxed);
        result
    }

    fn crash_everywhere(
        &mut self,
        boot: u64,
        log: &Log,
        begin: usize,
        history: &History,
        depth: u32,
    ) -> Result<(), String> {
        if setup_is_strict(self.setup) {
            acknowledged_is_durable(log, history)?;
        }
        let mut walker = Walker::new(log);
        walker.advance(begin);
        // One seed does not examine every position of a long log.
        let left = self.effort.images_max.saturating_sub(self.totals.images).max(50);
        let share = if depth == self.effort.depth { left / 2 } else { left / 8 };
        let points = {
            let mut counter = Walker::new(log);
            counter.advance(begin);
            std::iter::from_fn(|| counter.next_point()).count() as u64
        };
        let skip = (points * self.effort.images as u64 / 2 / share.max(1)).max(1);
        while let Some(position) = walker.next_point() {
            if !self.rng.one_in(skip) {
                continue;
            }
            if self.is_late() {
                return Ok(());
            }
            self.count_point(position, history, depth);
            let (allowed, now) = history.allowed(position, position, Crash::Power);
            // A torn store belongs to the next step, which has begun.
            let (torn, torn_now) = history.allowed(position, position + 1, Crash::Power);
            self.setup.clock.store(now, Relaxed);
            let choices = walker.choices(&mut self.rng, self.effort.images);
            for choice in choices {
                if self.is_late() {
                    return Ok(());
                }
                let (allowed, now) = if choice.is_torn() { (&torn, torn_now) } else { (&allowed, now) };
                self.setup.clock.store(now, Relaxed);
                self.crash_with(&mut walker, &choice, allowed, depth)
                    .map_err(|what| self.at(position, history, &choice, &what))?;
            }
            if depth > 0 && self.rng.one_in(12) {
                self.kill(boot, log, position, history, &allowed, depth).map_err(|what| {
                    self.at(position, history, &walker.all(), &format!("process killed, {what}"))
                })?;
            }
        }
        Ok(())
    }

    fn is_late(&self) -> bool {
        self.effort.until.is_some_and(|until| Instant::now() >= until)
    }

    fn count_point(&mut self, position: usize, history: &History, depth: u32) {
        self.totals.points += 1;
        let nesting = u64::from(self.effort.depth - depth);
        self.totals.depth = self.totals.depth.max(nesting + 1);
        let mut inside = [false; COUNT];
        for span in history.spans.iter().filter(|span| span.is_cut(position)) {
            inside[span.inside as usize] = true;
        }
        for step in history.steps.iter().filter(|step| step.start < position && position < step.end) {
            step.inside.iter().for_each(|&at| inside[at as usize] = true);
        }
        if (history.open_start + 1..history.open_end).contains(&position) && nesting > 0 {
            let which = if nesting > 1 { Inside::RecoveryAgain } else { Inside::Recovery };
            inside[which as usize] = true;
        }
        for (count, inside) in self.totals.inside.iter_mut().zip(inside) {
            *count += u64::from(inside);
        }
    }

    fn at(&self, position: usize, history: &History, choice: &Choice, what: &str) -> String {
        let step = history.steps.iter().rposition(|step| step.start < position || step.end <= position);
        let doing = match step {
            _ if position < history.open_end => "while opening".into(),
            Some(step) if history.steps[step].end > position => {
                format!("during step {step}, {}", history.steps[step].what)
            }
            Some(step) => format!("after step {step}, {}", history.steps[step].what),
            None => "after opening".into(),
        };
        format!("at event {position}, {doing}: {what}\n    image: {choice:?}")
    }

    /// Opens one image, checks it, and continues in one of several ways.
    fn crash_with(
        &mut self,
        walker: &mut Walker<'_>,
        choice: &Choice,
        allowed: &Allowed,
        depth: u32,
    ) -> Result<(), String> {
        let setup = self.setup;
        self.totals.images += 1;
        self.boot += 1;
        let boot = self.boot;
        let (memory, len) = walker.form(choice);
        let medium = SimMedium::from_image(setup.case.model, setup.len_max, memory, len);
        let way = self.rng.below(16);
        let mut rng = self.rng.fork();
        let looked = caught(|| {
            if self.totals.images.is_multiple_of(CHECKED_ONE_IN) {
                check::sound(&medium, &setup.options(boot))?;
            }
            let (store, state) = check::open_and_look(setup, &medium, boot, allowed)?;
            if way < 4 {
                check::audit(setup, &store, &medium, &state)?;
            }
            match way {
                0 | 4 | 5 => check::delete_all(setup, store, &medium, boot, &state),
                1 => check::overwrite_all(setup, store, &medium, boot, &state, &mut rng),
                _ => {
                    medium.power_off();
                    drop(store);
                    Ok(())
                }
            }
        });
        medium.power_off();
        drop(medium);
        looked?;
        if depth > 0 && way >= 14 && self.totals.images < self.effort.images_max {
            self.totals.nested += 1;
            let (memory, len) = walker.form(choice);
            let log = Log::on(setup.case.model, setup.len_max, memory.snapshot(), len);
            drop(memory);
            let count = self.rng.below(8);
            let ops = setup.some_ops(&mut rng, count);
            self.boot += 1;
            self.session(self.boot, log, allowed.clone(), allowed.clone(), &ops, depth - 1)
                .map_err(|what| format!("crashed again: {what}"))?;
        }
        Ok(())
    }

    /// Ends the process at `position`, without a power failure, and continues in a new one.
    fn kill(
        &mut self,
        boot: u64,
        log: &Log,
        position: usize,
        history: &History,
        allowed: &Allowed,
        depth: u32,
    ) -> Result<(), String> {
        self.totals.nested += 1;
        let (opened, _) = history.allowed(position, position, Crash::Process);
        let mut rng = self.rng.fork();
        let count = rng.below(8);
        let ops = self.setup.some_ops(&mut rng, count);
        self.session(boot, log.up_to(position), allowed.clone(), opened, &ops, depth - 1)
    }
}
