//! Plants one bug after the other, to see that each is caught: the proof that the checks can fail.

use crate::directed::{self, Scenario};
use crate::evicting;
use crate::explore::{caught, run_setup};
use crate::measure::all_busy;
use crate::soak::{self, What};
use crate::threads::plan::{Kind, Plan};
use crate::threads::{IMAGES_MAX, run_plan};
use crate::{Case, Effort, Setup, Violation};
use duramen::mutants::{ALL, Mutant, plant};
use std::time::Duration;

/// A planted bug, and where it is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Prey {
    /// `None` is the medium's own bug: a flush that leaves out the last line of an unaligned range.
    mutant: Option<Mutant>,
    /// Where several threads meet: what they do.
    threads: Option<Kind>,
    /// What a soak must do to show it, if that does.
    soak: Option<What>,
    /// The scenario that is for it.
    scenario: Option<Scenario>,
    /// It shows in stores that evict, from this seed on.
    evicts: Option<u64>,
    /// The medium and durability where it shows, if it cannot on others.
    case: Option<&'static str>,
}

/// How a planted bug was caught, or was not.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The seed that caught it, and what it saw.
    pub by: Option<(u64, Box<Violation>)>,
    /// How long that took: time that the threads of this process were on a CPU.
    pub took: Duration,
}

/// Bugs that show where several threads meet, most of them only there.
const AMONG_THREADS: [(Mutant, Kind, Option<&str>); 31] = [
    (Mutant::FreedBeforeReadersLeave, Kind::Churn, None),
    (Mutant::UndurableShown, Kind::Mixed, None),
    (Mutant::CellNotLookedAtAgain, Kind::Cells, Some("line/every-write")),
    (Mutant::CellCopyNotChecked, Kind::Cells, Some("line/every-write")),
    (Mutant::UpdateTorn, Kind::Cells, Some("line/every-write")),
    (Mutant::SwapNotRechecked, Kind::Mixed, None),
    (Mutant::UpdateNotRechecked, Kind::Cells, Some("byte/every-write")),
    (Mutant::UnitShownInParts, Kind::Batches, None),
    (Mutant::RunningOverwritten, Kind::Batches, None),
    (Mutant::UnitNotDrained, Kind::Batches, Some("line/every-write")),
    (Mutant::BeforeUnitMoved, Kind::Batches, None),
    (Mutant::NextNotWoken, Kind::Mixed, Some("page/every-write")),
    (Mutant::StripeNotLocked, Kind::Mixed, None),
    (Mutant::SharedSegmentAlone, Kind::Splits, None),
    (Mutant::OverflowNotMarked, Kind::Splits, None),
    (Mutant::SplitWithoutLocks, Kind::Splits, None),
    (Mutant::SegmentReusedAtOnce, Kind::Splits, None),
    (Mutant::SegmentBeforeLock, Kind::Splits, None),
    (Mutant::EnterNotRechecked, Kind::Mixed, Some("page/every-write")),
    (Mutant::CommitDoesNotWait, Kind::Mixed, None),
    (Mutant::ToldInOneList, Kind::Mixed, Some("line/interval")),
    (Mutant::SumsNotKept, Kind::Churn, Some("page/interval")),
    (Mutant::PartialTakenTwice, Kind::Churn, None),
    (Mutant::SealedTooEarly, Kind::Churn, Some("byte/every-write")),
    (Mutant::GrownTwice, Kind::Growth, None),
    (Mutant::MovedIntoReserve, Kind::Churn, Some("line/manual")),
    (Mutant::NameWrittenLate, Kind::Tables, Some("line/every-write")),
    (Mutant::StepOfUnitShown, Kind::Batches, Some("byte/every-write")),
    (Mutant::KeysUnlockedEarly, Kind::Locks, None),
    (Mutant::LocksNotSorted, Kind::Locks, None),
    (Mutant::LockedInEpoch, Kind::Locks, Some("line/interval")),
];

/// Bugs that one thread shows, but only on one medium.
const ON_ONE_MEDIUM: [(Mutant, &str); 3] = [
    (Mutant::RecordNotFlushed, "line/every-write"),
    (Mutant::ImageBeforeCommit, "page/interval"),
    (Mutant::TableShownEarly, "page/interval"),
];

/// Bugs that one thread shows without any crash: values that are held while others write.
const WITHOUT_CRASH: [Mutant; 2] = [Mutant::FreedBeforeReadersLeave, Mutant::HoldNotLookedAt];

/// Bugs that one thread shows in units that go on from block to block.
const IN_UNITS: [Mutant; 2] = [Mutant::EnteredTwice, Mutant::SettledTooEarly];

/// Bugs of eviction, each with the first seed that is tried: the last shows in one of some hundred.
const EVICTING: [(Mutant, u64); 7] = [
    (Mutant::EvictedWithStale, 1),
    (Mutant::EvictedWithoutOrder, 1),
    (Mutant::EvictedBeforeFree, 1),
    (Mutant::EvictedBelow, 1),
    (Mutant::EvictedUnasked, 1),
    (Mutant::EvictedInPlaceUncounted, 1),
    (Mutant::EvictedCopyAlone, 431),
];

/// Bugs that a soak shows: stores that are damaged while they are closed, or full, emptied, and filled again.
const SOAKED: [(Mutant, What); 5] = [
    (Mutant::UsedUnverified, What::Damage),
    (Mutant::LostHeadIsEmpty, What::Damage),
    (Mutant::DamageForgotten, What::Damage),
    (Mutant::ReserveTakenByPuts, What::NoKept),
    (Mutant::KeptHoldsBackAll, What::All),
];

/// Bugs that a few steps show, in an order that seeds do not meet in minutes.
const DIRECTED: [(Mutant, Scenario); 9] = [
    (Mutant::EnteredTwice, directed::two_units_in_one_block),
    (Mutant::ImageOfRunning, directed::image_beside_unit),
    (Mutant::ImageOfPending, directed::image_beside_group),
    (Mutant::CountedBehindTail, directed::behind_the_tail),
    (Mutant::CopiesNotDrained, directed::copied_and_freed),
    (Mutant::UncommittedCopied, directed::copied_and_shown),
    (Mutant::KeptNotCounted, directed::kept_and_deleted),
    (Mutant::NamelessBuried, directed::name_lost),
    (Mutant::DamagedPlacedByGuess, directed::written_around_damage),
];

/// All planted bugs.
#[must_use]
pub fn all() -> Vec<Prey> {
    let among = AMONG_THREADS.map(|(mutant, kind, case)| Prey {
        mutant: Some(mutant),
        threads: Some(kind),
        soak: None,
        scenario: None,
        evicts: None,
        case,
    });
    let shows_alone = |mutant: &Mutant| {
        *mutant == Mutant::FreedBeforeReadersLeave || AMONG_THREADS.iter().all(|(other, ..)| other != mutant)
    };
    let alone = ALL.into_iter().filter(shows_alone).map(Some);
    let case = |mutant| ON_ONE_MEDIUM.iter().find(|(other, _)| mutant == Some(*other)).map(|(_, case)| *case);
    let alone = std::iter::once(None).chain(alone);
    let alone = alone.map(|mutant| Prey {
        mutant,
        threads: None,
        soak: None,
        scenario: None,
        evicts: None,
        case: case(mutant),
    });
    let soaked = SOAKED.map(|(mutant, what)| Prey {
        mutant: Some(mutant),
        threads: None,
        soak: Some(what),
        scenario: None,
        evicts: None,
        case: None,
    });
    let directed = DIRECTED.map(|(mutant, scenario)| Prey {
        mutant: Some(mutant),
        threads: None,
        soak: None,
        scenario: Some(scenario),
        evicts: None,
        case: None,
    });
    let evicting = EVICTING.map(|(mutant, first)| Prey {
        mutant: Some(mutant),
        threads: None,
        soak: None,
        scenario: None,
        evicts: Some(first),
        case: None,
    });
    alone.chain(among).chain(soaked).chain(directed).chain(evicting).collect()
}

impl Prey {
    /// What the bug is called.
    #[must_use]
    pub fn name(&self) -> String {
        self.mutant.map_or_else(|| "FlushShort".into(), |mutant| format!("{mutant:?}"))
    }

    /// Whether several threads look for it.
    #[must_use]
    pub fn is_among_threads(&self) -> bool {
        self.threads.is_some()
    }

    /// Whether runs of one thread look for it.
    fn is_alone(&self) -> bool {
        self.threads.is_none() && self.soak.is_none() && self.scenario.is_none()
    }

    fn look(&self, seed: u64) -> Result<(), Box<Violation>> {
        if let Some(what) = self.soak {
            return soak::run_seed(seed, &std::env::temp_dir(), what).map(|_| ()).map_err(|found| {
                let command =
                    format!("cargo xtask crash --mutants -- --mutant {} --seed {seed}", self.name());
                Box::new(Violation { setup: "soak".into(), what: found, command })
            });
        }
        if let Some(scenario) = self.scenario {
            return caught(scenario).map_err(|what| {
                let command = format!("cargo xtask crash --mutants -- --mutant {}", self.name());
                Box::new(Violation { setup: "scenario".into(), what, command })
            });
        }
        if self.evicts.is_some() {
            return evicting::run_seed(seed).map(|_| ());
        }
        let case = self.case.and_then(Case::named);
        if let Some(kind) = self.threads {
            return run_plan(&Plan::new(seed, Some(kind), case, None), IMAGES_MAX).map(|_| ());
        }
        let setup = Setup { flush_short: self.mutant.is_none(), ..Setup::new(seed, case) };
        let images_max =
            if self.mutant.is_some_and(|mutant| WITHOUT_CRASH.contains(&mutant)) { 20 } else { 600 };
        run_setup(&setup, Effort { images_max, ..Effort::default() }).map(|_| ())
    }

    /// Runs seeds from `seed` on until the bug is caught, or for `patience`.
    #[must_use]
    pub fn hunt(&self, seed: u64, patience: Duration) -> Caught {
        plant(self.mutant);
        let begun = all_busy();
        let took = || all_busy().saturating_sub(begun);
        let mut by = None;
        let seed = seed.max(self.evicts.unwrap_or(0));
        let is_in_units = self.is_alone() && self.mutant.is_some_and(|mutant| IN_UNITS.contains(&mutant));
        let case = self.case.and_then(Case::named);
        for seed in (seed..).filter(|&seed| !is_in_units || Setup::new(seed, case).spans) {
            if took() >= patience {
                break;
            }
            if let Err(violation) = self.look(seed) {
                // What the seed shows without the bug does not count.
                plant(None);
                if self.mutant.is_none() || self.look(seed).is_ok() {
                    by = Some((seed, violation));
                    break;
                }
                plant(self.mutant);
            }
        }
        plant(None);
        Caught { by, took: took() }
    }
}
