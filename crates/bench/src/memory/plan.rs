//! Turns a workload file into the points to run: knobs by name, the matrix, and the command line's settings.

use crate::memory::error::{Error, Result, nearest};
use crate::memory::kernel::Width;
use crate::memory::kernel::is_access_bytes;
use crate::memory::workload::{
    Distribution, Mode, NumaPattern, Operation, Pin, Workload, parse_steps, persist_named, threads_in_bound,
};
use crate::memory::yaml::{Key, Node, Place, Value, parse};
use std::collections::BTreeMap;

/// One point of a matrix, or a benchmark without one.
#[derive(Clone, Debug)]
pub struct Benchmark {
    /// The name in the file.
    pub name: String,
    /// One workload, or the workloads that run at once.
    pub parts: Vec<Part>,
}

/// A workload of a benchmark.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its name in a parallel benchmark; otherwise that of the benchmark.
    pub name: String,
    /// The workload itself.
    pub workload: Workload,
    /// Its coordinates in the matrix: knob and value as written.
    pub point: Vec<(String, String)>,
}

/// Settings of the command line, which override every file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Instead of `memory_range`.
    pub memory_range: Option<u64>,
    /// Instead of `dram_memory_range`, where there is one.
    pub dram_memory_range: Option<u64>,
    /// Instead of `run_time`.
    pub run_time: Option<f64>,
    /// Instead of `number_operations`, where there are any.
    pub number_operations: Option<u64>,
    /// Instead of `instruction_set`.
    pub instruction_set: Option<Width>,
    /// Instead of `thread_nodes`.
    pub thread_nodes: Vec<usize>,
    /// Instead of `memory_nodes`.
    pub memory_nodes: Vec<usize>,
    /// Instead of `emulate_latency_ns`.
    pub emulate_latency_ns: Option<u64>,
    /// Instead of `emulate_bandwidth`.
    pub emulate_bandwidth: Option<u64>,
}

type Set = fn(&mut Workload, &Scalars) -> std::result::Result<(), String>;

/// A knob: its name, its aliases, and how it is set.
struct Knob {
    name: &'static str,
    aliases: &'static [&'static str],
    set: Set,
}

/// The value of a knob as text: one, or a list for the knobs that take lists.
struct Scalars {
    all: Vec<String>,
    is_list: bool,
}

impl Scalars {
    fn one(&self) -> std::result::Result<&str, String> {
        match self.all.as_slice() {
            [one] if !self.is_list => Ok(one),
            _ => Err("a list; wanted one value (lists of values to try go into matrix)".into()),
        }
    }

    fn number(&self) -> std::result::Result<u64, String> {
        let text = self.one()?;
        let digits = text.replace('_', "");
        digits.parse().map_err(|_| format!("{text:?} is no whole number"))
    }

    fn real(&self, least: f64, most: f64) -> std::result::Result<f64, String> {
        let text = self.one()?;
        let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
        if (least..=most).contains(&number) {
            Ok(number)
        } else {
            Err(format!("{text} is not from {least} to {most}"))
        }
    }

    fn flag(&self) -> std::result::Result<bool, String> {
        self.named(&[("true", true), ("false", false), ("yes", true), ("no", false)])
    }

    fn size(&self) -> std::result::Result<u64, String> {
        parse_bytes(self.one()?)
    }

    fn named<T: Copy>(&self, names: &[(&str, T)]) -> std::result::Result<T, String> {
        let text = self.one()?;
        names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
            let all: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            match nearest(text, all.iter().copied()) {
                Some(near) => format!("{text:?} is unknown; did you mean {near:?}?"),
                None => format!("{text:?} is unknown; wanted one of {}", all.join(", ")),
            }
        })
    }

    fn numbers(&self) -> std::result::Result<Vec<usize>, String> {
        self.all.iter().map(|text| text.parse().map_err(|_| format!("{text:?} is no whole number"))).collect()
    }
}

/// A count of bytes: `4096`, `64K`, `10G`, `1T`, with or without `iB` or `B`.
///
/// # Errors
/// The mistake in the text.
pub fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let wrong =
        || format!("{text:?} is no size; wanted a whole number of bytes, or with K, M, G or T, as 10G");
    let plain = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    let (number, shift) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 10),
        Some((at, 'm' | 'M')) => (&plain[..at], 20),
        Some((at, 'g' | 'G')) => (&plain[..at], 30),
        Some((at, 't' | 'T')) => (&plain[..at], 40),
        _ => (plain, 0),
    };
    let number: u64 = number.trim_end().replace('_', "").parse().map_err(|_| wrong())?;
    number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes <= 1 << 46)
        .ok_or_else(|| format!("{text} is above 64 TiB"))
}

fn above_zero(number: u64) -> std::result::Result<u64, String> {
    if number > 0 { Ok(number) } else { Err("0; wanted at least 1".into()) }
}

/// All knobs. The aliases are the names in the versions of PerMA-Bench, and in its successor MemA-Bench.
const KNOBS: &[Knob] = &[
    Knob {
        name: "memory_range",
        aliases: &["total_memory_range", "m0_region_size"],
        set: |w, v| {
            w.memory_range = above_zero(v.size()?)?;
            Ok(())
        },
    },
    Knob {
        name: "dram_memory_range",
        aliases: &["m1_region_size"],
        set: |w, v| {
            w.dram_memory_range = v.size()?;
            Ok(())
        },
    },
    Knob {
        name: "dram_operation_ratio",
        aliases: &[],
        set: |w, v| {
            w.dram_operation_ratio = v.real(0.0, 1.0)?;
            Ok(())
        },
    },
    Knob {
        name: "access_size",
        aliases: &[],
        set: |w, v| {
            let bytes = v.size()?;
            if !is_access_bytes(bytes) || bytes > 1 << 30 {
                return Err(format!(
                    "{bytes} is no power of two from 8 to 1 GiB; the nearest are {} and {}",
                    (bytes.clamp(8, 1 << 30) / 2 + 1).next_power_of_two(),
                    bytes.clamp(8, 1 << 30).next_power_of_two()
                ));
            }
            w.access_size = bytes;
            Ok(())
        },
    },
    Knob {
        name: "operation",
        aliases: &[],
        set: |w, v| {
            let names = [
                ("read", Operation::Read),
                ("write", Operation::Write),
                ("r", Operation::Read),
                ("w", Operation::Write),
            ];
            w.operation = v.named(&names)?;
            Ok(())
        },
    },
    Knob {
        name: "exec_mode",
        aliases: &[],
        set: |w, v| {
            w.exec_mode = v.named(&[
                ("sequential", Mode::Sequential),
                ("sequential_asc", Mode::Sequential),
                ("sequential_desc", Mode::SequentialDescending),
                ("random", Mode::Random),
                ("dependent_reads", Mode::DependentReads),
                ("custom", Mode::Custom),
            ])?;
            Ok(())
        },
    },
    Knob {
        name: "random_distribution",
        aliases: &[],
        set: |w, v| {
            let names = [
                ("uniform", Distribution::Uniform),
                ("zipfian", Distribution::Zipf),
                ("zipf", Distribution::Zipf),
            ];
            w.random_distribution = v.named(&names)?;
            Ok(())
        },
    },
    Knob {
        name: "zipf_alpha",
        aliases: &[],
        set: |w, v| {
            w.zipf_alpha = v.real(0.01, 5.0)?;
            Ok(())
        },
    },
    Knob {
        name: "persist_instruction",
        aliases: &["flush_instruction"],
        set: |w, v| {
            let text = v.one()?;
            w.persist_instruction = persist_named(text).ok_or_else(|| {
                format!("{text:?} is unknown; wanted one of cache, cache_invalidate, no_cache, none")
            })?;
            Ok(())
        },
    },
    Knob {
        name: "number_operations",
        aliases: &[],
        set: |w, v| {
            w.number_operations = Some(above_zero(v.number()?)?);
            Ok(())
        },
    },
    Knob {
        name: "run_time",
        aliases: &[],
        set: |w, v| {
            let seconds = v.real(0.0, 86_400.0)?;
            w.run_time = (seconds > 0.0).then_some(seconds);
            Ok(())
        },
    },
    Knob {
        name: "number_threads",
        aliases: &[],
        set: |w, v| {
            w.number_threads = threads_in_bound(v.number()?)?;
            Ok(())
        },
    },
    Knob {
        name: "number_partitions",
        aliases: &[],
        set: |w, v| {
            w.number_partitions = v.number()?;
            Ok(())
        },
    },
    Knob {
        name: "min_io_chunk_size",
        aliases: &["min_io_batch_size", "chunk_size"],
        set: |w, v| {
            let bytes = v.size()?;
            if bytes < 64 || !bytes.is_power_of_two() {
                return Err(format!("{bytes} is no power of two from 64 up"));
            }
            w.min_io_chunk_size = bytes;
            Ok(())
        },
    },
    Knob {
        name: "latency_sample_frequency",
        aliases: &[],
        set: |w, v| {
            w.latency_sample_frequency = v.number()?;
            Ok(())
        },
    },
    Knob {
        name: "prefault_memory",
        aliases: &["prefault_file", "prefault"],
        set: |w, v| {
            w.prefault_memory = v.flag()?;
            Ok(())
        },
    },
    Knob {
        name: "huge_pages",
        aliases: &["transparent_huge_pages", "m0_transparent_huge_pages"],
        set: |w, v| {
            w.huge_pages = v.flag()?;
            Ok(())
        },
    },
    Knob {
        name: "dram_huge_pages",
        aliases: &["m1_transparent_huge_pages"],
        set: |w, v| {
            w.dram_huge_pages = v.flag()?;
            Ok(())
        },
    },
    Knob {
        name: "numa_pattern",
        aliases: &[],
        set: |w, v| {
            w.numa_pattern = v.named(&[("near", NumaPattern::Near), ("far", NumaPattern::Far)])?;
            Ok(())
        },
    },
    Knob {
        name: "thread_nodes",
        aliases: &["numa_task_nodes", "numa_thread_nodes"],
        set: |w, v| {
            w.thread_nodes = v.numbers()?;
            Ok(())
        },
    },
    Knob {
        name: "memory_nodes",
        aliases: &["numa_memory_nodes", "m0_numa_nodes"],
        set: |w, v| {
            w.memory_nodes = v.numbers()?;
            Ok(())
        },
    },
    Knob {
        name: "pin",
        aliases: &["thread_pin_mode"],
        set: |w, v| {
            w.pin = v.named(&[
                ("node", Pin::Node),
                ("core", Pin::Core),
                ("none", Pin::None),
                ("all-numa", Pin::Node),
                ("single-numa", Pin::Core),
            ])?;
            Ok(())
        },
    },
    Knob {
        name: "thread_cores",
        aliases: &[],
        set: |w, v| {
            w.thread_cores = v.numbers()?;
            Ok(())
        },
    },
    Knob {
        name: "custom_operations",
        aliases: &["custom_ops"],
        set: |w, v| {
            w.custom_operations = parse_steps(&v.all.join(","))?;
            Ok(())
        },
    },
    Knob {
        name: "dependent_operations",
        aliases: &[],
        set: |w, v| {
            w.dependent_operations = v.flag()?;
            Ok(())
        },
    },
    Knob {
        name: "instruction_set",
        aliases: &[],
        set: |w, v| {
            w.instruction_set = match v.one()? {
                "auto" => None,
                _ => Some(v.named(&[
                    ("avx512", Width::Avx512),
                    ("avx2", Width::Avx2),
                    ("sse2", Width::Sse2),
                    ("neon", Width::Neon),
                    ("plain", Width::Plain),
                ])?),
            };
            Ok(())
        },
    },
    Knob {
        name: "data_instruction",
        aliases: &[],
        set: |w, v| {
            w.instruction_set = v.named(&[("simd", None), ("mov", Some(Width::Plain))])?;
            Ok(())
        },
    },
    Knob {
        name: "emulate_latency_ns",
        aliases: &[],
        set: |w, v| {
            w.emulate_latency_ns = v.number()?.min(1_000_000_000);
            Ok(())
        },
    },
    Knob {
        name: "emulate_bandwidth",
        aliases: &[],
        set: |w, v| {
            w.emulate_bandwidth = v.size()?;
            Ok(())
        },
    },
    Knob {
        name: "seed",
        aliases: &[],
        set: |w, v| {
            w.seed = v.number()?;
            Ok(())
        },
    },
];

/// Knobs of the original that were left out, with the reason.
const LEFT_OUT: &[(&str, &str)] = &[
    ("read_ratio", "early versions mixed reads and writes by it; use operation, or a parallel_benchmark"),
    ("write_ratio", "early versions mixed reads and writes by it; use operation, or a parallel_benchmark"),
    ("pause_frequency", "early versions paused between operations; use emulate_bandwidth"),
    ("pause_length_micros", "early versions paused between operations; use emulate_bandwidth"),
    (
        "explicit_hugepages_size",
        "pages are the medium's: mount it with huge=, or use a device with large alignment",
    ),
];

fn find(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|knob| knob.name == name || knob.aliases.contains(&name))
}

/// Reads a workload file.
///
/// # Errors
/// `InvalidInput`: file, line, the mistake, and what would be right.
pub fn benchmarks(file: &str, text: &str, overrides: &Overrides) -> Result<Vec<Benchmark>> {
    let root = parse(file, text)?;
    let place = Place { file, line: root.line };
    let Value::Map(all) = &root.value else {
        return Err(place.error(format!("{}, wanted benchmarks by name", root.value.name())));
    };
    if all.is_empty() {
        return Err(place.error("no benchmark; wanted a name, and under it args and perhaps matrix"));
    }
    let mut benchmarks = Vec::new();
    for (key, node) in all {
        benchmarks.extend(benchmark(file, key, node, overrides)?);
    }
    Ok(benchmarks)
}

fn benchmark(file: &str, key: &Key, node: &Node, overrides: &Overrides) -> Result<Vec<Benchmark>> {
    let Value::Map(sections) = &node.value else {
        return Err(Place { file, line: node.line }.error(format!(
            "benchmark `{}` is {}, wanted args and perhaps matrix",
            key.name,
            node.value.name()
        )));
    };
    let Some((at, parallel)) = sections.iter().find(|(key, _)| key.name == "parallel_benchmark") else {
        let parts = parts(file, key, sections, overrides)?;
        return Ok(parts
            .into_iter()
            .map(|part| Benchmark { name: key.name.clone(), parts: vec![part] })
            .collect());
    };
    let place = Place { file, line: at.line };
    if let Some((other, _)) = sections.iter().find(|(key, _)| key.name != "parallel_benchmark") {
        return Err(Place { file, line: other.line }.error(format!(
            "`{}` next to parallel_benchmark; put it into one of its workloads",
            other.name
        )));
    }
    let Value::Map(named) = &parallel.value else {
        return Err(place.error(format!(
            "parallel_benchmark is {}, wanted two workloads by name",
            parallel.value.name()
        )));
    };
    if named.len() != 2 {
        return Err(place.error(format!("parallel_benchmark has {} workloads, wanted two", named.len())));
    }
    let mut points: Vec<Vec<Part>> = vec![Vec::new()];
    for (key, node) in named {
        let Value::Map(sections) = &node.value else {
            return Err(Place { file, line: node.line }.error(format!(
                "workload `{}` is {}, wanted args and perhaps matrix",
                key.name,
                node.value.name()
            )));
        };
        let parts = parts(file, key, sections, overrides)?;
        points = points
            .iter()
            .flat_map(|before| parts.iter().map(|part| before.iter().chain([part]).cloned().collect()))
            .collect();
    }
    Ok(points.into_iter().map(|parts| Benchmark { name: key.name.clone(), parts }).collect())
}

/// 100,000: a larger matrix is a mistake, not a plan.
const POINTS_MAX: usize = 100_000;

/// The points of one workload.
fn parts(file: &str, key: &Key, sections: &[(Key, Node)], overrides: &Overrides) -> Result<Vec<Part>> {
    let (mut args, mut matrix) = (&Vec::new(), &Vec::new());
    for (section, node) in sections {
        let place = Place { file, line: section.line };
        let target = match section.name.as_str() {
            "args" => &mut args,
            "matrix" => &mut matrix,
            name => {
                let hint = match (find(name), nearest(name, ["args", "matrix", "parallel_benchmark"])) {
                    (Some(_), _) => "it belongs under args".to_owned(),
                    (None, Some(near)) => format!("did you mean `{near}`?"),
                    (None, None) => "wanted args, matrix or parallel_benchmark".to_owned(),
                };
                return Err(place.error(format!("`{name}` in benchmark `{}`: {hint}", key.name)));
            }
        };
        match &node.value {
            Value::Map(map) => *target = map,
            Value::Scalar(text) if text.is_empty() || text == "~" => {}
            other => {
                return Err(place.error(format!(
                    "{} is {}, wanted knobs with values",
                    section.name,
                    other.name()
                )));
            }
        }
    }
    let mut base = Draft::new(file, key);
    for (knob, node) in args {
        base.set(knob, node, Origin::Args)?;
    }
    let mut drafts = vec![base];
    for (knob, node) in matrix {
        let place = Place { file, line: knob.line };
        let Value::List(values) = &node.value else {
            return Err(place.error(format!(
                "`{}` in matrix is {}, wanted a list of values to try; one value goes into args",
                knob.name,
                node.value.name()
            )));
        };
        if values.is_empty() || drafts.len() * values.len() > POINTS_MAX {
            return Err(place.error(format!("`{}` makes {} points", knob.name, drafts.len() * values.len())));
        }
        let mut next = Vec::new();
        for draft in &drafts {
            for value in values {
                let mut draft = draft.clone();
                draft.set(knob, value, Origin::Matrix)?;
                next.push(draft);
            }
        }
        drafts = next;
    }
    let parts: Vec<Part> = drafts.into_iter().map(|draft| draft.finish(overrides)).collect::<Result<_>>()?;
    for (index, part) in parts.iter().enumerate() {
        if parts.iter().take(index).any(|other| other.point == part.point) && !part.point.is_empty() {
            let value: Vec<String> =
                part.point.iter().map(|(knob, value)| format!("{knob} {value}")).collect();
            return Err(Place { file, line: key.line }.error(format!(
                "the matrix of `{}` has {} twice; remove one",
                key.name,
                value.join(", ")
            )));
        }
    }
    Ok(parts)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Args,
    Matrix,
}

/// A workload under construction, with the line of each knob that was set.
#[derive(Clone)]
struct Draft<'f> {
    file: &'f str,
    name: String,
    line: usize,
    workload: Workload,
    lines: BTreeMap<&'static str, (usize, Origin)>,
    point: Vec<(String, String)>,
}

impl<'f> Draft<'f> {
    fn new(file: &'f str, key: &Key) -> Self {
        Self {
            file,
            name: key.name.clone(),
            line: key.line,
            workload: Workload::default(),
            lines: BTreeMap::new(),
            point: Vec::new(),
        }
    }

    fn set(&mut self, key: &Key, node: &Node, origin: Origin) -> Result<()> {
        let place = Place { file: self.file, line: key.line };
        let Some(knob) = find(&key.name) else {
            if let Some((_, why)) = LEFT_OUT.iter().find(|(name, _)| *name == key.name) {
                return Err(place.error(format!("`{}` is left out: {why}", key.name)));
            }
            let all =
                KNOBS.iter().flat_map(|knob| [knob.name].into_iter().chain(knob.aliases.iter().copied()));
            return Err(place.error(match nearest(&key.name, all) {
                Some(near) => format!("unknown knob `{}`; did you mean `{near}`?", key.name),
                None => format!("unknown knob `{}`; docs/internals/bench-memory.md lists all", key.name),
            }));
        };
        if let Some((line, _)) = self.lines.get(knob.name) {
            return Err(place.error(format!("`{}` is set already, in line {line}; remove one", key.name)));
        }
        let place = Place { file: self.file, line: node.line };
        let scalar = |node: &Node| match &node.value {
            Value::Scalar(text) => Ok(text.clone()),
            other => Err(place.error(format!("`{}` is {}, wanted a value", key.name, other.name()))),
        };
        let scalars = match &node.value {
            Value::List(list) => {
                Scalars { all: list.iter().map(scalar).collect::<Result<_>>()?, is_list: true }
            }
            _ => Scalars { all: vec![scalar(node)?], is_list: false },
        };
        (knob.set)(&mut self.workload, &scalars)
            .map_err(|why| place.error(format!("`{}`: {why}", key.name)))?;
        self.lines.insert(knob.name, (node.line, origin));
        if origin == Origin::Matrix {
            self.point.push((knob.name.to_owned(), scalars.all.join(",")));
        }
        Ok(())
    }

    fn finish(mut self, overrides: &Overrides) -> Result<Part> {
        let workload = &mut self.workload;
        if !workload.custom_operations.is_empty() && !self.lines.contains_key("exec_mode") {
            workload.exec_mode = Mode::Custom;
        }
        let overridden = overrides.apply(workload);
        // If the matrix varies one of these, a knob that matters only at some of its points is legitimate.
        let varied = |knob: &str| self.lines.get(knob).is_some_and(|(_, origin)| *origin == Origin::Matrix);
        let any = varied("operation") || varied("exec_mode") || varied("random_distribution");
        let given = |knob: &str| !any && self.lines.contains_key(knob);
        self.workload.check(given).map_err(|(knob, why)| {
            if overridden.contains(&knob) {
                return Error::invalid(format!(
                    "benchmark `{}`: {knob} as set on the command line: {why}",
                    self.name
                ));
            }
            let line = self.lines.get(knob).map_or(self.line, |(line, _)| *line);
            Place { file: self.file, line }.error(format!("benchmark `{}`: {knob}: {why}", self.name))
        })?;
        Ok(Part { name: self.name, workload: self.workload, point: self.point })
    }
}

impl Overrides {
    /// Sets the knobs that it has, and returns their names.
    fn apply(&self, workload: &mut Workload) -> Vec<&'static str> {
        let mut set = Vec::new();
        if let Some(range) = self.memory_range {
            workload.memory_range = range;
            set.push("memory_range");
        }
        if let (Some(range), 1..) = (self.dram_memory_range, workload.dram_memory_range) {
            workload.dram_memory_range = range;
            set.push("dram_memory_range");
        }
        if self.run_time.is_some() {
            workload.run_time = self.run_time;
        }
        if self.number_operations.is_some() && !workload.is_sequential() {
            workload.number_operations = self.number_operations;
        }
        if self.instruction_set.is_some() {
            workload.instruction_set = self.instruction_set;
            set.push("instruction_set");
        }
        if !self.thread_nodes.is_empty() {
            workload.thread_nodes.clone_from(&self.thread_nodes);
        }
        if !self.memory_nodes.is_empty() {
            workload.memory_nodes.clone_from(&self.memory_nodes);
        }
        if let Some(ns) = self.emulate_latency_ns {
            workload.emulate_latency_ns = ns;
        }
        if let Some(bytes) = self.emulate_bandwidth {
            workload.emulate_bandwidth = bytes;
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: &str = "\
hash_index_update:
  matrix:
    number_threads: [1, 4, 16]
  args:
    custom_ops: \"r_256,w_64_cache_128,w_64_cache_-128\"
    total_memory_range: 10G
    number_operations: 100000000
";

    #[test]
    fn the_published_example_gives_three_points_with_a_smaller_range() {
        let overrides = Overrides { memory_range: Some(1 << 30), ..Overrides::default() };
        let all = benchmarks("hash.yaml", PUBLISHED, &overrides).unwrap();
        let threads: Vec<u64> = all.iter().map(|b| b.parts[0].workload.number_threads).collect();
        assert_eq!(threads, [1, 4, 16]);
        let workload = &all[2].parts[0].workload;
        assert_eq!((workload.memory_range, workload.exec_mode), (1 << 30, Mode::Custom));
        assert_eq!(workload.number_operations, Some(100_000_000));
        assert_eq!(all[2].parts[0].point, [("number_threads".to_owned(), "16".to_owned())]);
        let whole = benchmarks("hash.yaml", PUBLISHED, &Overrides::default()).unwrap();
        assert_eq!(whole[0].parts[0].workload.memory_range, 10 << 30);
    }

    #[test]
    fn a_matrix_is_a_cross_product_also_of_two_workloads_at_once() {
        let text = "\
both:
  parallel_benchmark:
    log:
      matrix: { number_threads: [1, 2], access_size: [64, 256] }
      args: { operation: write, run_time: 1 }
    scan:
      matrix: { number_threads: [1, 4, 8] }
      args: { memory_range: 1G, run_time: 0.5 }
";
        let all = benchmarks("p.yaml", text, &Overrides::default()).unwrap();
        assert_eq!(all.len(), 12);
        assert!(all.iter().all(|b| b.parts.len() == 2 && b.parts[0].name == "log"));
        assert_eq!(all[11].parts[1].workload.number_threads, 8);
    }

    #[test]
    fn a_knob_with_an_effect_at_some_points_only_is_allowed_in_a_matrix() {
        let text = "\
a:
  matrix: { operation: [read, write] }
  args: { persist_instruction: cache }
";
        assert_eq!(benchmarks("a.yaml", text, &Overrides::default()).unwrap().len(), 2);
    }

    #[test]
    fn sizes_are_parsed_in_all_forms() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65536),
            ("10G", 10 << 30),
            ("1MiB", 1 << 20),
            ("2k", 2048),
            ("100_000", 100_000),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1.5G", "10X", "99999999T", "18446744073709551616"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_two_knobs_share_a_name() {
        let mut all: Vec<&str> = KNOBS
            .iter()
            .flat_map(|knob| [knob.name].into_iter().chain(knob.aliases.iter().copied()))
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
