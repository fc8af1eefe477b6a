//! Which thread runs next: a random walk, or priorities that change at a few random steps.

use super::super::Rng;

/// How the next thread is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// At one point in `one_in`, switches to a random other thread.
    Walk {
        /// 1 means at every point.
        one_in: u64,
    },
    /// Each thread has a priority, and the highest runs. At `depth - 1` of the first `steps` steps with a choice, the
    /// running thread gets the lowest priority (Burckhardt et al.: a randomized scheduler with probabilistic guarantees
    /// of finding bugs, ASPLOS 2010). Finds bugs that need few changes at the right places.
    Priorities {
        /// How many orderings a bug needs.
        depth: u32,
        /// How long a run is taken to be.
        steps: u64,
    },
}

impl Strategy {
    /// One that follows from `rng`.
    #[must_use]
    pub fn some(rng: &mut Rng) -> Self {
        if rng.one_in(2) {
            Self::Walk { one_in: [1, 2, 4, 16, 64][rng.below(5) as usize] }
        } else {
            Self::Priorities { depth: 3, steps: [200, 1_000, 5_000, 20_000][rng.below(4) as usize] }
        }
    }
}

/// The state of a strategy.
pub(super) struct Chooser {
    strategy: Strategy,
    rng: Rng,
    priorities: Vec<i64>,
    /// Steps at which the running thread gets the lowest priority, counted among those with a choice.
    changes: Vec<u64>,
    steps: u64,
    lowest: i64,
}

impl Chooser {
    pub(super) fn new(strategy: Strategy, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7472_6561_6473);
        let changes = match strategy {
            Strategy::Walk { .. } => Vec::new(),
            Strategy::Priorities { depth, steps } => (1..depth).map(|_| 1 + rng.below(steps)).collect(),
        };
        Self { strategy, rng, priorities: Vec::new(), changes, steps: 0, lowest: 0 }
    }

    /// A thread begins.
    pub(super) fn enter(&mut self) {
        self.priorities.push(1 + self.rng.below(1 << 40) as i64);
    }

    /// Whether a sleeper wakes here, though others are ready.
    pub(super) fn wakes_early(&mut self) -> bool {
        self.rng.one_in(400)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    /// One of `ready`, which is not empty. `me` runs now, and is in `ready` unless it is blocked; `relaxing`: it waits
    /// for others.
    pub(super) fn choose(&mut self, ready: &[usize], me: usize, relaxing: bool) -> usize {
        match self.strategy {
            Strategy::Walk { one_in } => {
                if !relaxing && ready.contains(&me) && !self.rng.one_in(one_in) {
                    return me;
                }
                let others = ready.iter().filter(|&&thread| thread != me || !relaxing);
                let count = others.clone().count();
                let at = self.below(count.max(1));
                others.copied().nth(at).unwrap_or(ready[0])
            }
            Strategy::Priorities { .. } => {
                self.steps += u64::from(ready.len() > 1);
                if relaxing || ready.len() > 1 && self.changes.contains(&self.steps) {
                    self.lowest -= 1;
                    self.priorities[me] = self.lowest;
                }
                ready.iter().copied().max_by_key(|&thread| self.priorities[thread]).unwrap_or(ready[0])
            }
        }
    }
}
