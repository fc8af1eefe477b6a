//! The built-in suite: workload files of the repository, scaled to the machine.

use crate::memory::error::Result;
use crate::memory::kernel::Persist;
use crate::memory::plan::{Benchmark, Overrides, benchmarks};
use crate::memory::tier::allowed_cores;
use crate::memory::workload::{StepKind, Workload};

/// The files of the suite, by name.
pub const SUITE: [(&str, &str); 9] = [
    ("bandwidth.yaml", include_str!("../../workloads/bandwidth.yaml")),
    ("persist.yaml", include_str!("../../workloads/persist.yaml")),
    ("latency.yaml", include_str!("../../workloads/latency.yaml")),
    ("prefetcher.yaml", include_str!("../../workloads/prefetcher.yaml")),
    ("hash_index.yaml", include_str!("../../workloads/hash_index.yaml")),
    ("tree_index.yaml", include_str!("../../workloads/tree_index.yaml")),
    ("hybrid_tree.yaml", include_str!("../../workloads/hybrid_tree.yaml")),
    ("log_append.yaml", include_str!("../../workloads/log_append.yaml")),
    ("page_faults.yaml", include_str!("../../workloads/page_faults.yaml")),
];

/// Files with the access patterns of other systems and of Duramen.
pub const PATTERNS: [(&str, &str); 4] = [
    ("duramen.yaml", include_str!("../../workloads/duramen.yaml")),
    ("dash.yaml", include_str!("../../workloads/dash.yaml")),
    ("fast_fair.yaml", include_str!("../../workloads/fast_fair.yaml")),
    ("fptree.yaml", include_str!("../../workloads/fptree.yaml")),
];

/// The text of the built-in file called `name`.
pub fn built_in(name: &str) -> Option<&'static str> {
    SUITE.iter().chain(&PATTERNS).find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The points of the suite that make sense on this machine, and the reasons why others were left out.
///
/// # Errors
/// When `overrides` contradict a workload: a range that cannot be divided.
pub fn suite(overrides: &Overrides) -> Result<(Vec<Benchmark>, Vec<String>)> {
    let cores = allowed_cores().len() as u64;
    let mut notes =
        vec![format!("points with more than {} threads were left out: there are {cores} cores", 2 * cores)];
    let mut all = Vec::new();
    for (name, text) in SUITE {
        all.extend(benchmarks(name, text, overrides)?);
    }
    for persist in Persist::ALL {
        if let Some(flag) = persist.missing() {
            notes.push(format!("{persist} was left out: this CPU has no {flag}"));
            all.retain(|b| b.parts.iter().all(|part| !part.workload.persists().contains(&persist)));
        }
    }
    all.retain(|benchmark| benchmark.parts.iter().all(|part| part.workload.number_threads <= 2 * cores));
    Ok((all, notes))
}

/// Replaces every persist instruction in the steps of `workload` on the medium: by `wide` from 256 bytes up, else
/// `small`.
pub fn persist_with(workload: &mut Workload, small: Persist, wide: Persist) {
    for step in workload.custom_operations.iter_mut().filter(|step| !step.dram) {
        let persist = if step.bytes >= 256 { wide } else { small };
        step.kind = match step.kind {
            StepKind::Read => StepKind::Read,
            StepKind::Write(_) => StepKind::Write(persist),
            StepKind::Append(_) => StepKind::Append(persist),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_file_is_valid_also_with_a_small_range() {
        for (name, text) in SUITE.iter().chain(&PATTERNS) {
            for range in [None, Some(64 << 20), Some(1 << 30)] {
                let overrides = Overrides { memory_range: range, ..Overrides::default() };
                assert!(!benchmarks(name, text, &overrides).unwrap().is_empty());
            }
        }
        assert!(suite(&Overrides::default()).unwrap().0.len() > 60);
    }
}
