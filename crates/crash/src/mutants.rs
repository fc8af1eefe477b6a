//! Plants one bug after the other, to see that each is caught: the proof that the checks can fail.

use crate::measure::busy;
use crate::threads::plan::{Kind, Plan};
use crate::threads::{IMAGES_MAX, run_plan};
use crate::{Case, Effort, Setup, Violation, explore::run_setup};
use duramen::mutants::{ALL, Mutant, plant};
use std::time::{Duration, Instant};

/// A planted bug, and where it is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Prey {
    /// `None` is the medium's own bug: a flush that leaves out the last line of an unaligned range.
    mutant: Option<Mutant>,
    /// Where several threads meet: what they do, and on which medium if it cannot show on others.
    threads: Option<(Kind, Option<&'static str>)>,
}

/// How a planted bug was caught, or was not.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The seed that caught it, and what it saw.
    pub by: Option<(u64, Box<Violation>)>,
    /// How long that took: time of this thread on a CPU, or of day where other threads did the work.
    pub took: Duration,
}

/// Bugs that show where several threads meet, most of them only there.
const AMONG_THREADS: [(Mutant, Kind, Option<&str>); 20] = [
    (Mutant::FreedBeforeReadersLeave, Kind::Churn, None),
    (Mutant::UndurableShown, Kind::Mixed, None),
    (Mutant::CellNotLookedAtAgain, Kind::Cells, Some("line/every-write")),
    (Mutant::SwapNotRechecked, Kind::Mixed, None),
    (Mutant::SplitPublishedFirst, Kind::Splits, None),
    (Mutant::BatchShownInParts, Kind::Batches, None),
    (Mutant::EpochsOverlap, Kind::Mixed, None),
    (Mutant::BucketNotLocked, Kind::Mixed, None),
    (Mutant::OverflowNotMarked, Kind::Splits, None),
    (Mutant::SplitWithoutLocks, Kind::Splits, None),
    (Mutant::SegmentReusedAtOnce, Kind::Splits, None),
    (Mutant::BatchKeepsFrozenLock, Kind::Splits, None),
    (Mutant::EnterNotRechecked, Kind::Mixed, None),
    (Mutant::CommitDoesNotWait, Kind::Mixed, None),
    (Mutant::ToldInOneList, Kind::Mixed, Some("line/interval")),
    (Mutant::SumsNotKept, Kind::Churn, Some("page/interval")),
    (Mutant::PartialTakenTwice, Kind::Churn, None),
    (Mutant::SealedTooEarly, Kind::Churn, None),
    (Mutant::GrownTwice, Kind::Churn, None),
    (Mutant::SpaceNotLookedForAgain, Kind::Churn, None),
];

/// All planted bugs.
#[must_use]
pub fn all() -> Vec<Prey> {
    let among =
        AMONG_THREADS.map(|(mutant, kind, case)| Prey { mutant: Some(mutant), threads: Some((kind, case)) });
    let shows_alone = |mutant: &Mutant| {
        *mutant == Mutant::FreedBeforeReadersLeave || AMONG_THREADS.iter().all(|(other, ..)| other != mutant)
    };
    let alone = ALL.into_iter().filter(shows_alone).map(Some);
    let alone = std::iter::once(None).chain(alone).map(|mutant| Prey { mutant, threads: None });
    alone.chain(among).collect()
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

    fn look(&self, seed: u64) -> Result<(), Box<Violation>> {
        if let Some((kind, case)) = self.threads {
            return run_plan(&Plan::new(seed, Some(kind), case.and_then(Case::named), None), IMAGES_MAX)
                .map(|_| ());
        }
        let setup = Setup { flush_short: self.mutant.is_none(), ..Setup::new(seed, None) };
        run_setup(&setup, Effort { images_max: 2_000, ..Effort::default() }).map(|_| ())
    }

    /// Runs seeds from `seed` on until the bug is caught, or for `patience`.
    #[must_use]
    pub fn hunt(&self, seed: u64, patience: Duration) -> Caught {
        plant(self.mutant);
        let (begun, on_cpu) = (Instant::now(), busy());
        let took = || match self.threads {
            Some(_) => begun.elapsed(),
            None => busy().saturating_sub(on_cpu),
        };
        let mut by = None;
        for seed in seed.. {
            if took() >= patience {
                break;
            }
            if let Err(violation) = self.look(seed) {
                by = Some((seed, violation));
                break;
            }
        }
        plant(None);
        Caught { by, took: took() }
    }
}
