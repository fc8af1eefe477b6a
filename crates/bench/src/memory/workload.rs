//! One workload: every knob with its meaning, bound and default, and the contradictions between knobs.
//!
//! This struct is the manual. docs/internals/bench-memory.md has it as a table, with the names that PerMA-Bench and its
//! successor have for each knob.

use crate::memory::error::bytes_text;
use crate::memory::kernel::{Persist, Width, is_access_bytes};
use std::fmt;

/// Read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Load.
    Read,
    /// Store, and persist as `persist_instruction` says.
    Write,
}

/// The order of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Upwards, once through the range, or repeatedly for `run_time`.
    Sequential,
    /// Downwards, otherwise as `Sequential`.
    SequentialDescending,
    /// Random places, each independent of the others.
    Random,
    /// Random places; each read begins only after the previous one has arrived.
    DependentReads,
    /// As `custom_operations` says.
    Custom,
}

/// How random places are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// A few are popular, as `zipf_alpha` says; the popular places lie scattered.
    Zipf,
}

/// Where threads run, seen from the memory's NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumaPattern {
    /// On the same node.
    Near,
    /// On another node.
    Far,
}

/// How threads are bound to cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// To all cores of their node.
    Node,
    /// Each to one core, round-robin over the cores of their node.
    Core,
    /// Not at all.
    None,
}

/// The action of one step of a custom operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Reads at a random place, which depends on the data of the previous read.
    Read,
    /// Writes `offset` bytes from the place of the last step on the same memory, or at a random place if there was
    /// none.
    Write(Persist),
    /// Writes right after this thread's last append.
    Append(Persist),
}

/// One step of a custom operation: `r_256`, `wd_64_cache_-128`, `a_256_cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomStep {
    /// The action.
    pub kind: StepKind,
    /// Whether the step accesses the DRAM range.
    pub dram: bool,
    /// Bytes accessed: a power of two from 8 up.
    pub bytes: u64,
    /// Bytes from the place of the last step on the same memory; writes only.
    pub offset: i64,
}

/// The most steps in a custom operation. 64: a tree of that height holds more than any memory.
pub(crate) const STEPS_MAX: usize = 64;
/// 4096: with more, the threads' stacks alone take gigabytes of address space, and no machine has the cores.
const THREADS_MAX: u64 = 4096;

/// Everything that defines a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Bytes of the medium to use. Default 10 GiB.
    pub memory_range: u64,
    /// Bytes of DRAM to use in addition. Default 0.
    pub dram_memory_range: u64,
    /// The share of random operations that go to the DRAM range, 0 to 1. Whole batches of up to 4096 go to one or the
    /// other. Default 0.
    pub dram_operation_ratio: f64,
    /// Bytes of one access: a power of two from 8 up. Default 256.
    pub access_size: u64,
    /// Read or write. Default read.
    pub operation: Operation,
    /// The order of accesses. Default sequential; custom if there are custom operations.
    pub exec_mode: Mode,
    /// How random places are chosen. Default uniform.
    pub random_distribution: Distribution,
    /// Skew of the zipfian distribution, above 0 up to 5. Default 0.9.
    pub zipf_alpha: f64,
    /// The instruction that makes a write durable. Default `no_cache`.
    pub persist_instruction: Persist,
    /// Random or custom operations, over all threads. Default 100,000,000, or unbounded if there is a run time.
    pub number_operations: Option<u64>,
    /// Seconds after which the workload ends, unless the operations end earlier. Default none.
    pub run_time: Option<f64>,
    /// Threads: 1 to 4096. Default 1.
    pub number_threads: u64,
    /// Disjoint parts of the range, each for its own threads; must divide the threads; 0 means one for each thread.
    /// Default 1.
    pub number_partitions: u64,
    /// Bytes of one work package: threads pull packages from a queue. Default 64 MiB. Smaller if there would be fewer
    /// packages than threads.
    pub min_io_chunk_size: u64,
    /// One in so many operations is timed alone. Default 0: none.
    pub latency_sample_frequency: u64,
    /// Whether pages are faulted in before the clock starts. Default true.
    pub prefault_memory: bool,
    /// Whether to ask for huge pages if the medium can have them. Default true.
    pub huge_pages: bool,
    /// Whether to ask for huge pages in the DRAM range. Default true.
    pub dram_huge_pages: bool,
    /// Where threads run. Default near.
    pub numa_pattern: NumaPattern,
    /// The nodes on whose cores threads run, instead of `numa_pattern`. Default empty.
    pub thread_nodes: Vec<usize>,
    /// The nodes from which memory is taken. Default empty: the kernel chooses.
    pub memory_nodes: Vec<usize>,
    /// How threads are bound. Default node.
    pub pin: Pin,
    /// The core of each thread, round-robin over the list, instead of `pin`. Default empty.
    pub thread_cores: Vec<usize>,
    /// The steps of a custom operation.
    pub custom_operations: Vec<CustomStep>,
    /// Whether each custom operation begins only after the data of the previous one has arrived. Default false.
    pub dependent_operations: bool,
    /// The form of the loops. Default the widest that the CPU has.
    pub instruction_set: Option<Width>,
    /// Nanoseconds added to each step on the medium: an emulated slower memory. Default 0.
    pub emulate_latency_ns: u64,
    /// Bytes per second of the medium for all threads together, to emulate a slower memory. Default 0: no cap.
    pub emulate_bandwidth: u64,
    /// The seed of random places. Default 1.
    pub seed: u64,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            memory_range: 10 << 30,
            dram_memory_range: 0,
            dram_operation_ratio: 0.0,
            access_size: 256,
            operation: Operation::Read,
            exec_mode: Mode::Sequential,
            random_distribution: Distribution::Uniform,
            zipf_alpha: 0.9,
            persist_instruction: Persist::NoCache,
            number_operations: None,
            run_time: None,
            number_threads: 1,
            number_partitions: 1,
            min_io_chunk_size: 64 << 20,
            latency_sample_frequency: 0,
            prefault_memory: true,
            huge_pages: true,
            dram_huge_pages: true,
            numa_pattern: NumaPattern::Near,
            thread_nodes: Vec::new(),
            memory_nodes: Vec::new(),
            pin: Pin::Node,
            thread_cores: Vec::new(),
            custom_operations: Vec::new(),
            dependent_operations: false,
            instruction_set: None,
            emulate_latency_ns: 0,
            emulate_bandwidth: 0,
            seed: 1,
        }
    }
}

/// The error in a workload: the knob at fault, and why.
pub(crate) type Fault = (&'static str, String);

impl Workload {
    /// The number of operations if neither it nor a run time is given.
    pub const OPERATIONS_DEFAULT: u64 = 100_000_000;

    /// The number of bytes that one operation accesses.
    pub fn operation_bytes(&self) -> u64 {
        match self.exec_mode {
            Mode::Custom => self.custom_operations.iter().map(|step| step.bytes).sum(),
            _ => self.access_size,
        }
    }

    /// Whether accesses go upwards or downwards through the range.
    pub(crate) fn is_sequential(&self) -> bool {
        matches!(self.exec_mode, Mode::Sequential | Mode::SequentialDescending)
    }

    /// The number of parts of the range.
    pub fn partitions(&self) -> u64 {
        if self.number_partitions == 0 { self.number_threads } else { self.number_partitions }
    }

    /// Whether it stores to the medium.
    pub fn writes(&self) -> bool {
        match self.exec_mode {
            Mode::Custom => self.custom_operations.iter().any(|s| s.kind != StepKind::Read && !s.dram),
            _ => self.operation == Operation::Write && self.dram_operation_ratio < 1.0,
        }
    }

    fn uses_dram(&self) -> bool {
        self.dram_operation_ratio > 0.0 || self.custom_operations.iter().any(|step| step.dram)
    }

    /// Checks what no knob can check alone. `given` says which knobs the file set for this point alone, and not by a
    /// matrix whose other points may need them.
    pub(crate) fn check(&self, given: impl Fn(&str) -> bool) -> Result<(), Fault> {
        let (range, size) = (self.memory_range, self.access_size);
        if self.exec_mode == Mode::Custom {
            if self.custom_operations.is_empty() {
                return Err((
                    "exec_mode",
                    "custom needs custom_operations, as in \"r_256,w_64_cache\"".into(),
                ));
            }
            if given("access_size") {
                return Err((
                    "access_size",
                    "the steps of custom_operations have their own sizes; remove it".into(),
                ));
            }
            if given("operation") {
                return Err((
                    "operation",
                    "the steps of custom_operations already name reads and writes; remove it".into(),
                ));
            }
            self.check_chain()?;
        } else {
            if !self.custom_operations.is_empty() {
                return Err((
                    "custom_operations",
                    "exec_mode is not custom; remove one, or set exec_mode: custom".into(),
                ));
            }
            if !range.is_multiple_of(size) || range == 0 {
                let better = (range / size).max(1) * size;
                return Err((
                    "memory_range",
                    format!("{range} is no multiple of access_size {size}; {better} would be"),
                ));
            }
        }
        self.check_threads()?;
        self.check_order(&given)?;
        self.check_dram()?;
        if let Some(width) = self.instruction_set
            && !Width::available().contains(&width)
        {
            let all: Vec<String> = Width::available().iter().map(ToString::to_string).collect();
            return Err(("instruction_set", format!("this CPU has no {width}; it has {}", all.join(", "))));
        }
        Ok(())
    }

    fn check_chain(&self) -> Result<(), Fault> {
        for dram in [false, true] {
            let range =
                if dram { self.dram_memory_range } else { self.memory_range } / self.partitions().max(1);
            let mut at = 0i64;
            let (mut low, mut high) = (0i64, 0i64);
            for step in self.custom_operations.iter().filter(|step| step.dram == dram) {
                at = if matches!(step.kind, StepKind::Write(_)) { at + step.offset } else { 0 };
                (low, high) = (low.min(at), high.max(at + step.bytes as i64));
            }
            // One line at either end, so that places can be aligned.
            let span = high.abs_diff(low) + 128;
            if high > low && span > range && !(dram && range == 0) {
                let what = if dram { "dram_memory_range" } else { "memory_range" };
                return Err((
                    "custom_operations",
                    format!(
                        "the steps span {span} bytes, and {what} has {range} for each partition; enlarge it"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn check_threads(&self) -> Result<(), Fault> {
        let (threads, partitions) = (self.number_threads, self.number_partitions);
        if partitions > 0 && !threads.is_multiple_of(partitions) {
            return Err((
                "number_partitions",
                format!("{partitions} does not divide number_threads {threads}; 0 gives each thread its own"),
            ));
        }
        let partitions = self.partitions();
        let line = self.operation_line();
        if !self.memory_range.is_multiple_of(partitions * line) {
            return Err((
                "number_partitions",
                format!(
                    "memory_range {} cannot be divided into {partitions} parts of whole accesses; use a power of two",
                    bytes_text(self.memory_range)
                ),
            ));
        }
        if self.min_io_chunk_size < self.operation_line() && self.is_sequential() {
            return Err((
                "min_io_chunk_size",
                format!("{} is less than one access of {}", self.min_io_chunk_size, self.access_size),
            ));
        }
        Ok(())
    }

    /// The unit in which the range is divided into parts.
    fn operation_line(&self) -> u64 {
        if self.exec_mode == Mode::Custom { 64 } else { self.access_size }
    }

    fn check_order(&self, given: &impl Fn(&str) -> bool) -> Result<(), Fault> {
        if self.is_sequential() {
            if given("number_operations") {
                return Err((
                    "number_operations",
                    "a sequential workload goes through its range once, or for run_time; set one of those"
                        .into(),
                ));
            }
            if given("random_distribution") && self.random_distribution == Distribution::Zipf {
                return Err((
                    "random_distribution",
                    "zipfian places need exec_mode: random or custom".into(),
                ));
            }
        }
        if given("zipf_alpha") && self.random_distribution == Distribution::Uniform {
            return Err(("zipf_alpha", "it needs random_distribution: zipfian".into()));
        }
        if self.exec_mode == Mode::DependentReads && self.operation == Operation::Write {
            return Err(("operation", "dependent_reads cannot write; use exec_mode: custom".into()));
        }
        if given("persist_instruction") && self.persists().is_empty() {
            return Err((
                "persist_instruction",
                "nothing is written; set operation: write, or remove it".into(),
            ));
        }
        if given("persist_instruction") && self.exec_mode == Mode::Custom {
            return Err((
                "persist_instruction",
                "each written step of custom_operations names its own, as in w_64_cache; remove it".into(),
            ));
        }
        if self.dependent_operations && self.exec_mode != Mode::Custom {
            return Err((
                "dependent_operations",
                "it is for exec_mode: custom; use exec_mode: dependent_reads".into(),
            ));
        }
        Ok(())
    }

    fn check_dram(&self) -> Result<(), Fault> {
        if self.dram_operation_ratio > 0.0 && self.exec_mode != Mode::Random {
            return Err((
                "dram_operation_ratio",
                "it needs exec_mode: random; custom steps say rd_ and wd_".into(),
            ));
        }
        if self.uses_dram() && self.dram_memory_range == 0 {
            let knob =
                if self.dram_operation_ratio > 0.0 { "dram_operation_ratio" } else { "custom_operations" };
            return Err((knob, "accesses to DRAM need a dram_memory_range".into()));
        }
        if self.dram_memory_range > 0 && !self.uses_dram() {
            return Err((
                "dram_memory_range",
                "nothing accesses it; set dram_operation_ratio, or use rd_ and wd_ steps".into(),
            ));
        }
        let unit = self.partitions() * self.operation_line();
        if !self.dram_memory_range.is_multiple_of(unit) {
            return Err((
                "dram_memory_range",
                format!("{} is no multiple of {unit}", self.dram_memory_range),
            ));
        }
        Ok(())
    }

    /// The persist instructions that the workload uses.
    pub(crate) fn persists(&self) -> Vec<Persist> {
        if self.exec_mode != Mode::Custom {
            return if self.operation == Operation::Write {
                vec![self.persist_instruction]
            } else {
                Vec::new()
            };
        }
        let of = |step: &CustomStep| match step.kind {
            StepKind::Read => None,
            StepKind::Write(persist) | StepKind::Append(persist) => Some(persist),
        };
        self.custom_operations.iter().filter_map(of).collect()
    }
}

/// The names of persist instructions, including the original's.
const PERSISTS: [(&str, Persist); 8] = [
    ("cache_invalidate", Persist::CacheInvalidate),
    ("cacheinv", Persist::CacheInvalidate),
    ("cache_inv", Persist::CacheInvalidate),
    ("cache", Persist::Cache),
    ("no_cache", Persist::NoCache),
    ("nocache", Persist::NoCache),
    ("none", Persist::None),
    ("ntstore", Persist::NoCache),
];

/// The persist instruction called `name`.
pub(crate) fn persist_named(name: &str) -> Option<Persist> {
    PERSISTS.iter().find(|(known, _)| *known == name).map(|(_, persist)| *persist)
}

/// The number of threads, if it is within its bounds.
pub(crate) fn threads_in_bound(threads: u64) -> Result<u64, String> {
    if (1..=THREADS_MAX).contains(&threads) {
        Ok(threads)
    } else {
        Err(format!("{threads} threads; wanted 1 to {THREADS_MAX}"))
    }
}

/// Steps separated by commas.
pub(crate) fn parse_steps(text: &str) -> Result<Vec<CustomStep>, String> {
    let steps: Vec<CustomStep> =
        text.split(',').map(|step| parse_step(step.trim())).collect::<Result<_, _>>()?;
    if steps.len() > STEPS_MAX {
        return Err(format!("{} steps; at most {STEPS_MAX}", steps.len()));
    }
    Ok(steps)
}

fn parse_step(text: &str) -> Result<CustomStep, String> {
    const SHAPE: &str = "a step is r_<size>, w_<size>_<persist>[_<offset>] or a_<size>_<persist>, with d after the letter for DRAM";
    let wrong = |why: String| format!("step {text:?}: {why}; {SHAPE}");
    let digits = text.find(|c: char| c.is_ascii_digit()).ok_or_else(|| wrong("no size".into()))?;
    let (head, rest) = text.split_at(digits);
    let (letter, dram) = match head.trim_end_matches('_') {
        "r" | "rp" => ('r', false),
        "rd" => ('r', true),
        "w" | "wp" => ('w', false),
        "wd" => ('w', true),
        "a" | "ap" => ('a', false),
        "ad" => ('a', true),
        other => return Err(wrong(format!("{other:?} is no operation"))),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    let bytes: u64 = number.parse().map_err(|_| wrong(format!("size {number} is too large")))?;
    if !is_access_bytes(bytes) || bytes > 1 << 30 {
        return Err(wrong(format!("size {bytes} is no power of two from 8 to 1 GiB")));
    }
    let rest = rest.strip_prefix('_').unwrap_or(rest);
    if letter == 'r' {
        return match rest {
            "" => Ok(CustomStep { kind: StepKind::Read, dram, bytes, offset: 0 }),
            more => Err(wrong(format!("a read takes nothing more than its size, and {more:?} follows"))),
        };
    }
    let (name, persist) = PERSISTS
        .iter()
        // The longest name first, so that "cache_inv" is not read as "cache" and an offset.
        .filter(|(name, _)| {
            rest.strip_prefix(name).is_some_and(|more| more.is_empty() || more.starts_with('_'))
        })
        .max_by_key(|(name, _)| name.len())
        .ok_or_else(|| wrong("a write needs one of cache, cache_invalidate, no_cache, none".into()))?;
    let offset: i64 = match rest.strip_prefix(name).and_then(|more| more.strip_prefix('_')) {
        None | Some("") => 0,
        Some(_) if letter == 'a' => return Err(wrong("an append takes no offset".into())),
        Some(offset) => offset.parse().map_err(|_| wrong(format!("offset {offset:?} is no number")))?,
    };
    if offset.unsigned_abs() > 1 << 30 || offset % bytes.min(64) as i64 != 0 {
        return Err(wrong(format!("offset {offset} is no multiple of {} below 1 GiB", bytes.min(64))));
    }
    let kind = if letter == 'w' { StepKind::Write(*persist) } else { StepKind::Append(*persist) };
    Ok(CustomStep { kind, dram, bytes, offset })
}

impl fmt::Display for CustomStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dram = if self.dram { "d" } else { "" };
        match self.kind {
            StepKind::Read => write!(f, "r{dram}_{}", self.bytes),
            StepKind::Write(persist) if self.offset == 0 => write!(f, "w{dram}_{}_{persist}", self.bytes),
            StepKind::Write(persist) => write!(f, "w{dram}_{}_{persist}_{}", self.bytes, self.offset),
            StepKind::Append(persist) => write!(f, "a{dram}_{}_{persist}", self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_published_chain_is_read() {
        let steps = parse_steps("r_256,w_64_cache_128,w_64_cache_-128").unwrap();
        let write =
            |offset| CustomStep { kind: StepKind::Write(Persist::Cache), dram: false, bytes: 64, offset };
        let read = CustomStep { kind: StepKind::Read, dram: false, bytes: 256, offset: 0 };
        assert_eq!(steps, [read, write(128), write(-128)]);
    }

    #[test]
    fn names_of_all_versions_of_the_original_are_read() {
        let text =
            "rd_1024, rp_64,r64,wp_64_cacheinv_64,wd_64_nocache,w64_none,w_64_cache_inv_-64,a_256_no_cache";
        let shown: Vec<String> = parse_steps(text).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            shown.join(","),
            "rd_1024,r_64,r_64,w_64_cache_invalidate_64,wd_64_no_cache,w_64_none,\
             w_64_cache_invalidate_-64,a_256_no_cache"
        );
    }

    #[test]
    fn wrong_steps_are_refused_with_the_reason() {
        for (text, wanted) in [
            ("r_65", "no power of two"),
            ("x_64", "is no operation"),
            ("w_64", "needs one of cache"),
            ("w_64_flush", "needs one of cache"),
            ("w_64_cache_7", "no multiple of 64"),
            ("w_64_cache_far", "is no number"),
            ("r_64_cache", "nothing more"),
            ("r_", "no size"),
            ("r_64,,r_64", "no size"),
            ("a_64_cache_64", "takes no offset"),
            ("r_99999999999999999999999", "too large"),
        ] {
            let error = parse_steps(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn steps_read_back_and_no_input_panics(text in "[rwadp_0-9cahenoi,-]{0,40}") {
            if let Ok(steps) = parse_steps(&text) {
                let shown: Vec<String> = steps.iter().map(ToString::to_string).collect();
                prop_assert_eq!(parse_steps(&shown.join(",")).unwrap(), steps);
            }
        }
    }
}
