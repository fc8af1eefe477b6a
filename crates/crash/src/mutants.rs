//! Plants bugs, one at a time, and checks that each is caught: the proof that the checks can fail.

use crate::directed::{self, Scenario};
use crate::evicting;
use crate::explore::{caught, run_setup};
use crate::measure::all_busy;
use crate::soak::{self, What};
use crate::threads::plan::{Kind, Plan};
use crate::threads::{IMAGES_MAX, run_plan};
use crate::{Case, Effort, Setup, Violation};
use duramen::Residence;
use duramen::mutants::{ALL, Mutant, plant};
use duramen_media::sim::lose;
use std::time::Duration;

/// A planted bug.
#[derive(Clone, Copy, Debug)]
enum Bug {
    /// In the medium: a flush omits the last line of an unaligned range.
    FlushShort,
    /// In the engine's logic.
    Logic(Mutant),
    /// The medium omits one call of the engine.
    Lost(&'static Lost),
}

/// An omitted call of the medium, by its place in the engine.
#[derive(Debug)]
pub struct Lost {
    name: &'static str,
    file: &'static str,
    source: &'static str,
    /// The call is made in the first line with `call` behind the first one with `behind`.
    behind: &'static str,
    call: &'static str,
}

/// A planted bug, and where it is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Prey {
    bug: Bug,
    /// The main work of several threads, if it needs them.
    threads: Option<Kind>,
    /// The soak that shows it, if one does.
    soak: Option<What>,
    /// The scenario for it.
    scenario: Option<Scenario>,
    /// It shows in stores that evict.
    evicts: bool,
    /// The medium and durability where it shows, if it cannot on others.
    case: Option<&'static str>,
}

/// The result of the hunt for a planted bug.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The seed that caught it, and the violation.
    pub by: Option<(u64, Box<Violation>)>,
    /// How long that took: time that the threads of this process were on a CPU.
    pub took: Duration,
}

/// The call at a place of the engine: `lost!(name, crate, file, behind, call)`.
macro_rules! lost {
    ($name:literal, $krate:literal, $file:literal, $behind:literal, $call:literal) => {
        Lost {
            name: $name,
            file: concat!($krate, "/src/", $file),
            source: include_str!(concat!("../../", $krate, "/src/", $file)),
            behind: $behind,
            call: $call,
        }
    };
}

/// Omitted calls that one thread shows, each with the medium and durability where it does.
static LOST: [(Lost, &str); 14] = [
    // A record is stored and its write-back never started before its slot points to it.
    (
        lost!(
            "RecordNotFlushed",
            "log",
            "appender.rs",
            "fn append_with",
            "None => self.write(log, at, &[head.bytes(), key"
        ),
        "line/every-write",
    ),
    // The same for records of a transaction, and for its commit record.
    (
        lost!(
            "MembersNotFlushed",
            "log",
            "appender.rs",
            "Some(trailer) => {",
            "self.write(log, at, &[head.bytes(), key"
        ),
        "line/every-write",
    ),
    // A write returns without a drain.
    (
        lost!("AcknowledgedWithoutDrain", "log", "reachable.rs", "fn make_durable", "self.drain(log);"),
        "line/every-write",
    ),
    // A cell is opened before its record is durable.
    (
        lost!("CellOpenedBeforeDurable", "log", "cell.rs", "fn open_cell", "self.drain(log);"),
        "line/every-write",
    ),
    // The header of a new block is stored and never flushed.
    (
        lost!(
            "BlockHeaderNotFlushed",
            "log",
            "format/block.rs",
            "fn publish_fresh",
            "self.store(medium, at, offset);"
        ),
        "line/every-write",
    ),
    // A commit does not flush what the epoch wrote.
    (lost!("EpochNotFlushed", "log", "open_block.rs", "fn flush", "medium.flush("), "line/interval"),
    // Recovery does not flush what a dead process left in the caches.
    (
        lost!(
            "DeadProcessNotFlushed",
            "duramen",
            "recover/scan.rs",
            "fn conclude",
            "self.medium.flush(base, outcome.tail)"
        ),
        "line/every-write",
    ),
    // One copy of the superblock is not durable when the other is written.
    (
        lost!(
            "SuperblockCopiesTogether",
            "log",
            "format/superblock.rs",
            "fn persist_from",
            "medium.sync()?;"
        ),
        "page/every-write",
    ),
    // New extents are counted before their headers are durable.
    (
        lost!(
            "GrownBeforeHeaders",
            "duramen",
            "maintenance/grow.rs",
            "fn adopt_extents",
            "log.sync_or_poison()?;"
        ),
        "page/every-write",
    ),
    // The hole is punched before the header of the block that is given back is durable.
    (
        lost!("GivenBackBeforeHeader", "log", "given_back.rs", "fn give_back", "self.sync_or_poison()?;"),
        "page/every-write",
    ),
    // A freed block of several extents is made one extent long before the others have headers.
    (
        lost!(
            "FreedExtentsWithoutHeaders",
            "log",
            "space.rs",
            "extent.0 + 1, header.extents - 1",
            "medium.sync()"
        ),
        "page/every-write",
    ),
    // The superblock begins the new incarnation before what recovery decided is durable.
    (
        lost!("AdoptedTooLate", "duramen", "recover/mod.rs", "fn adopt", "free_blocks(medium, extent_bytes"),
        "page/every-write",
    ),
    // The superblock points to an index checkpoint before the records are durable that its slots pointed to.
    (
        lost!(
            "ImageBeforeCommit",
            "duramen",
            "checkpoint/write.rs",
            "runs.put(&root)?",
            "self.log().commit()?;"
        ),
        "page/interval",
    ),
    // A table is seen as made, cleared or swapped before that is durable.
    (
        lost!("TableShownEarly", "duramen", "api/tables.rs", "fn commit_names", "log.commit()?;"),
        "page/interval",
    ),
];

/// A group is flushed without a drain.
static GROUP_NOT_DRAINED: Lost = lost!(
    "GroupNotDrained",
    "duramen",
    "writer.rs",
    "pub(crate) fn flush_group",
    "self.appender.advance_durable_tail("
);
/// Compaction lets slots point to copies, and frees the originals, before the copies are durable.
static COPIES_NOT_DRAINED: Lost =
    lost!("CopiesNotDrained", "log", "reachable.rs", "fn make_all_durable", "self.drain(log);");
/// An update in place is not one atomic store.
static UPDATE_TORN: Lost =
    lost!("UpdateTorn", "log", "cell.rs", "fn store", "medium.store_atomic(to, bytes)");

/// Bugs that several threads show; most need them.
const AMONG_THREADS: [(Mutant, Kind, Option<&str>); 27] = [
    (Mutant::FreedBeforeReadersLeave, Kind::Churn, None),
    (Mutant::UndurableShown, Kind::Mixed, None),
    (Mutant::CellNotLookedAtAgain, Kind::Cells, Some("line/every-write")),
    (Mutant::CellCopyNotChecked, Kind::Cells, Some("line/every-write")),
    (Mutant::SwapNotRechecked, Kind::Mixed, None),
    (Mutant::UpdateNotRechecked, Kind::Cells, Some("byte/every-write")),
    (Mutant::TransactionShownInParts, Kind::Batches, None),
    (Mutant::ActiveOverwritten, Kind::Batches, None),
    (Mutant::BeforeTransactionMoved, Kind::Batches, None),
    (Mutant::NextNotWoken, Kind::Mixed, Some("page/every-write")),
    (Mutant::StripeNotLocked, Kind::Mixed, None),
    (Mutant::OverflowNotMarked, Kind::Splits, None),
    (Mutant::SplitWithoutLocks, Kind::Splits, None),
    (Mutant::SegmentReusedAtOnce, Kind::Splits, None),
    (Mutant::SegmentBeforeLock, Kind::Splits, None),
    (Mutant::EnterNotRechecked, Kind::Mixed, Some("page/every-write")),
    (Mutant::CommitDoesNotWait, Kind::Mixed, None),
    (Mutant::DirtyBlocksInOneList, Kind::Mixed, Some("line/interval")),
    (Mutant::SumsNotKept, Kind::Churn, Some("page/interval")),
    (Mutant::PartialTakenTwice, Kind::Churn, None),
    (Mutant::GrownTwice, Kind::Growth, None),
    (Mutant::MovedIntoReserve, Kind::Churn, Some("line/manual")),
    (Mutant::NameWrittenLate, Kind::Tables, Some("line/every-write")),
    (Mutant::BarrierOpenForNames, Kind::Tables, Some("page/interval")),
    (Mutant::StepOfTransactionShown, Kind::Batches, Some("byte/every-write")),
    (Mutant::KeysUnlockedEarly, Kind::Locks, None),
    (Mutant::DiesWithAnyRoot, Kind::Collections, None),
];

/// Bugs that one thread shows without any crash: values that are pinned while others write.
const WITHOUT_CRASH: [Mutant; 2] = [Mutant::FreedBeforeReadersLeave, Mutant::PinNotChecked];

/// Bugs that one thread shows in transactions that span several blocks.
const IN_TRANSACTIONS: [Mutant; 2] = [Mutant::EnteredTwice, Mutant::FinalizedTooEarly];

/// Bugs that one thread shows in stores whose index checkpoints have roots of collections.
const WITH_ROOTS: [Mutant; 1] = [Mutant::CheckpointRootsForgotten];

/// Bugs of eviction.
const EVICTING: [Mutant; 6] = [
    Mutant::EvictedWithStale,
    Mutant::EvictedWithoutOrder,
    Mutant::EvictedBeforeFree,
    Mutant::EvictedBelow,
    Mutant::EvictedUnasked,
    Mutant::EvictedInPlaceUncounted,
];

/// Bugs that a soak shows: stores that are damaged while they are closed, or full, emptied, and filled again.
const SOAKED: [(Mutant, What); 5] = [
    (Mutant::UsedUnverified, What::Damage),
    (Mutant::LostHeadIsEmpty, What::Damage),
    (Mutant::DamageForgotten, What::Damage),
    (Mutant::ReserveTakenByPuts, What::NoKept),
    (Mutant::KeptHoldsBackAll, What::All),
];

/// Bugs that a few steps show, in an order that seeds do not reach in minutes.
const DIRECTED: [(Mutant, Scenario); 27] = [
    (Mutant::BodyBeforeHeader, directed::killed_within_a_forged_value),
    (Mutant::BodySearched, directed::damaged_forged_value),
    (Mutant::SecretLeftOut, directed::guessed_value_without_header),
    (Mutant::PlaceNotChecked, directed::copied_value_without_header),
    (Mutant::EnteredTwice, directed::two_transactions_in_one_block),
    (Mutant::TransactionsConfirmedEarly, directed::confirmed_by_recovery),
    (Mutant::CheckpointOfActive, directed::checkpoint_beside_transaction),
    (Mutant::CheckpointTreeLacks, directed::checkpoint_beside_transaction_of_elements),
    (Mutant::MovedRootForgotten, directed::root_moved_before_checkpoint),
    (Mutant::CheckpointRootsLost, directed::root_deleted_beside_checkpoint),
    (Mutant::ReclaimedBesideGroup, directed::root_deleted_before_checkpoint),
    (Mutant::CheckpointOfPending, directed::checkpoint_beside_group),
    (Mutant::CountedBehindTail, directed::behind_the_tail),
    (Mutant::UncommittedCopied, directed::copied_and_shown),
    (Mutant::KeptNotCounted, directed::kept_and_deleted),
    (Mutant::FreedWithoutOrder, directed::deleted_and_freed),
    (Mutant::NamelessReclaimed, directed::name_lost),
    (Mutant::DamagedPlacedByGuess, directed::written_around_damage),
    (Mutant::BuiltOnUndrained, directed::renamed_before_durable),
    (Mutant::DiesWithAnyRoot, directed::named_anew),
    (Mutant::TreeNotLed, directed::overwritten),
    (Mutant::LedInTwoSteps, directed::counted_beside_overwrites),
    (Mutant::LostBeforeShown, directed::deleted_absent),
    (Mutant::RankedAsDurable, directed::ranked_before_durable),
    (Mutant::LocksNotSorted, directed::locked_in_any_order),
    (Mutant::LockedInEpoch, directed::committed_beside_locks),
    (Mutant::EvictedCopyAlone, directed::moved_and_evicted),
];

/// All planted bugs.
#[must_use]
pub fn all() -> Vec<Prey> {
    let shows_alone = |mutant: &Mutant| {
        *mutant == Mutant::FreedBeforeReadersLeave || AMONG_THREADS.iter().all(|(other, ..)| other != mutant)
    };
    let alone = ALL.into_iter().filter(shows_alone).map(|mutant| Prey::of(Bug::Logic(mutant)));
    let lost = LOST.iter().map(|(lost, case)| Prey { case: Some(*case), ..Prey::of(Bug::Lost(lost)) });
    let among = AMONG_THREADS.map(|(mutant, kind, case)| Prey {
        threads: Some(kind),
        case,
        ..Prey::of(Bug::Logic(mutant))
    });
    let group = Prey { scenario: Some(directed::flushed_group), ..Prey::of(Bug::Lost(&GROUP_NOT_DRAINED)) };
    let torn = Prey {
        threads: Some(Kind::Cells),
        case: Some("line/every-write"),
        ..Prey::of(Bug::Lost(&UPDATE_TORN))
    };
    let soaked = SOAKED.map(|(mutant, what)| Prey { soak: Some(what), ..Prey::of(Bug::Logic(mutant)) });
    let directed =
        DIRECTED.map(|(mutant, scenario)| Prey { scenario: Some(scenario), ..Prey::of(Bug::Logic(mutant)) });
    let copies =
        Prey { scenario: Some(directed::copied_and_freed), ..Prey::of(Bug::Lost(&COPIES_NOT_DRAINED)) };
    let evicting = EVICTING.map(|mutant| Prey { evicts: true, ..Prey::of(Bug::Logic(mutant)) });
    let mut all = vec![Prey::of(Bug::FlushShort)];
    all.extend(alone.chain(lost).chain(among).chain([group, torn, copies]).chain(soaked).chain(directed));
    all.extend(evicting);
    all
}

impl Lost {
    /// The line of the call; `None`: the source has no such call, so the bug is not caught.
    fn line(&self) -> Option<u32> {
        let mut lines = (1..).zip(self.source.lines()).skip_while(|(_, line)| !line.contains(self.behind));
        lines.find(|(_, line)| line.contains(self.call)).map(|(number, _)| number)
    }
}

impl Bug {
    /// Plants it, in place of the one before; the medium's own is part of a setup.
    fn plant(self) {
        plant(if let Self::Logic(mutant) = self { Some(mutant) } else { None });
        lose(if let Self::Lost(lost) = self { lost.line().map(|line| (lost.file, line)) } else { None });
    }

    /// Whether it is one of these.
    fn is_among(self, mutants: &[Mutant]) -> bool {
        matches!(self, Self::Logic(mutant) if mutants.contains(&mutant))
    }
}

/// Removes the planted bug.
fn plant_nothing() {
    plant(None);
    lose(None);
}

impl Prey {
    fn of(bug: Bug) -> Self {
        Self { bug, threads: None, soak: None, scenario: None, evicts: false, case: None }
    }

    /// The bug's name.
    #[must_use]
    pub fn name(&self) -> String {
        match self.bug {
            Bug::FlushShort => "FlushShort".into(),
            Bug::Logic(mutant) => format!("{mutant:?}"),
            Bug::Lost(lost) => lost.name.into(),
        }
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

    /// Whether the setup of a seed has what the bug needs.
    fn may_show(&self, seed: u64) -> bool {
        if !self.is_alone() {
            return true;
        }
        let setup = || Setup::new(seed, self.case.and_then(Case::named));
        if self.bug.is_among(&IN_TRANSACTIONS) {
            return setup().spans;
        }
        let has_roots = |setup: Setup| setup.residence == Residence::Persistent && setup.places > 0;
        !self.bug.is_among(&WITH_ROOTS) || has_roots(setup())
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
        if self.evicts {
            return evicting::run_seed(seed).map(|_| ());
        }
        let case = self.case.and_then(Case::named);
        if let Some(kind) = self.threads {
            return run_plan(&Plan::new(seed, Some(kind), case, None), IMAGES_MAX).map(|_| ());
        }
        let flush_short = matches!(self.bug, Bug::FlushShort);
        let setup = Setup { flush_short, ..Setup::new(seed, case) };
        let images_max = if self.bug.is_among(&WITHOUT_CRASH) { 20 } else { 600 };
        run_setup(&setup, Effort { images_max, ..Effort::default() }).map(|_| ())
    }

    /// Runs seeds from `seed` on until the bug is caught, or for `patience`.
    #[must_use]
    pub fn hunt(&self, seed: u64, patience: Duration) -> Caught {
        self.bug.plant();
        let begun = all_busy();
        let took = || all_busy().saturating_sub(begun);
        let mut by = None;
        for seed in (seed..).filter(|&seed| self.may_show(seed)) {
            if took() >= patience {
                break;
            }
            if let Err(violation) = self.look(seed) {
                // A violation that the seed also shows without the bug does not count.
                plant_nothing();
                if matches!(self.bug, Bug::FlushShort) || self.look(seed).is_ok() {
                    by = Some((seed, violation));
                    break;
                }
                self.bug.plant();
            }
        }
        plant_nothing();
        Caught { by, took: took() }
    }
}
