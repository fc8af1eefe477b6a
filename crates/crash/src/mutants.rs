//! Plants one bug after the other, to see that each is caught: the proof that the checks can fail.

use crate::measure::busy;
use crate::threads::plan::{Kind, Plan};
use crate::threads::{IMAGES_MAX, run_plan};
use crate::{Case, Effort, Setup, Violation, explore::run_setup};
use duramen::mutants::{ALL, Mutant, plant};
use std::time::{Duration, Instant};

/// How a planted bug was caught, or was not.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The bug.
    pub name: String,
    /// The seed that caught it, and what it saw.
    pub by: Option<(u64, Box<Violation>)>,
    /// How long that took, of this thread's time on a CPU.
    pub took: Duration,
}

/// Runs seeds from `seed` on until the bug is caught, or for `patience`. `None` is the medium's own bug: a flush
/// that leaves out the last line of an unaligned range.
#[must_use]
pub fn hunt(mutant: Option<Mutant>, seed: u64, patience: Duration) -> Caught {
    let name = mutant.map_or_else(|| "FlushShort".into(), |mutant| format!("{mutant:?}"));
    plant(mutant);
    let begun = busy();
    let began = Instant::now();
    let threads = mutant.and_then(threads_for);
    // The work of scheduled threads is not this thread's.
    let took = || if threads.is_some() { began.elapsed() } else { busy().saturating_sub(begun) };
    let mut by = None;
    for seed in seed.. {
        if took() >= patience {
            break;
        }
        if let Some((kind, case)) = threads {
            let plan = Plan::of_kind(kind, seed, case.and_then(Case::named), None);
            if let Err(violation) = run_plan(&plan, IMAGES_MAX) {
                by = Some((seed, violation));
                break;
            }
            continue;
        }
        let setup = Setup { flush_short: mutant.is_none(), ..Setup::new(seed, None) };
        let effort = Effort { images_max: 2_000, ..Effort::default() };
        if let Err(violation) = run_setup(&setup, effort) {
            by = Some((seed, violation));
            break;
        }
    }
    plant(None);
    Caught { name, by, took: took() }
}

/// For a bug that shows only where several threads meet: what they should do, and on which medium it can show.
fn threads_for(mutant: Mutant) -> Option<(Kind, Option<&'static str>)> {
    Some(match mutant {
        Mutant::UndurableShown
        | Mutant::BucketNotLocked
        | Mutant::SwapNotRechecked
        | Mutant::CommitDoesNotWait
        | Mutant::EnterNotRechecked
        | Mutant::EpochsOverlap
        | Mutant::FreedBeforeReadersLeave => (Kind::Mixed, None),
        Mutant::CellNotLookedAtAgain => (Kind::Cells, Some("line/every-write")),
        Mutant::SplitPublishedFirst | Mutant::BatchKeepsFrozenLock => (Kind::Splits, None),
        Mutant::BatchShownInParts => (Kind::Batches, None),
        _ => return None,
    })
}

/// All planted bugs.
pub fn all() -> impl Iterator<Item = Option<Mutant>> {
    std::iter::once(None).chain(ALL.into_iter().map(Some))
}
