//! Plants one bug after the other, to see that each is caught: the proof that the checks can fail.

use crate::measure::busy;
use crate::{Effort, Setup, Violation, explore::run_setup};
use duramen::mutants::{ALL, Mutant, plant};
use std::time::Duration;

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
    let took = || busy().saturating_sub(begun);
    let mut by = None;
    for seed in seed.. {
        if took() >= patience {
            break;
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

/// All planted bugs.
pub fn all() -> impl Iterator<Item = Option<Mutant>> {
    std::iter::once(None).chain(ALL.into_iter().map(Some))
}
