//! The memory and the cores of a workload: NUMA nodes, and an emulated slower memory.
//!
//! The slow tier is only emulated. It adds a fixed wait after each step on the medium, and a token bucket limits the
//! bandwidth of all threads together. It has neither the queues nor the bursts of a real device.

use crate::memory::error::{Error, Result};
use crate::memory::kernel::policy;
use crate::memory::workload::{NumaPattern, Pin, Workload};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A NUMA node: its cores (none on a node of memory alone) and its distance to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub node: usize,
    /// Its cores.
    pub cores: Vec<usize>,
    /// Whether it has memory.
    pub has_memory: bool,
    /// Distance to each node, in order; 10 is the distance to itself.
    pub distances: Vec<u32>,
}

/// The nodes of this machine; one with all cores if the kernel reports none.
pub fn nodes() -> Vec<Node> {
    let found = nodes_at(Path::new("/sys/devices/system/node"));
    if found.is_empty() {
        vec![Node { node: 0, cores: allowed_cores(), has_memory: true, distances: vec![10] }]
    } else {
        found
    }
}

fn nodes_at(root: &Path) -> Vec<Node> {
    let list =
        |name: &str| std::fs::read_to_string(root.join(name)).map_or(Vec::new(), |text| parse_list(&text));
    let with_memory = list("has_memory");
    list("online")
        .into_iter()
        .map(|node| {
            let read = |name: &str| {
                std::fs::read_to_string(root.join(format!("node{node}/{name}"))).unwrap_or_default()
            };
            Node {
                node,
                cores: parse_list(&read("cpulist")),
                has_memory: with_memory.contains(&node),
                distances: read("distance").split_whitespace().filter_map(|word| word.parse().ok()).collect(),
            }
        })
        .collect()
}

/// Parses a list as the kernel writes it: `0-3,8`.
fn parse_list(text: &str) -> Vec<usize> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
        })
        .flatten()
        .take(policy::NODES_MAX)
        .collect()
}

/// The cores that this process may use.
pub fn allowed_cores() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// The node of the memory at `path`, if the kernel reports it: a DAX device has a target node.
pub(crate) fn node_of_device(path: &Path) -> Option<usize> {
    let name = std::fs::canonicalize(path).ok()?.file_name()?.to_str()?.to_owned();
    ["target_node", "numa_node"].iter().find_map(|attribute| {
        let text = std::fs::read_to_string(format!("/sys/bus/dax/devices/{name}/{attribute}")).ok()?;
        text.trim().parse().ok()
    })
}

/// The nodes for a workload's memory, and the cores for its threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placing {
    /// The nodes from which memory is taken; empty: the kernel's choice.
    pub memory: Vec<usize>,
    /// The cores of each thread; empty: not bound.
    cores: Vec<Vec<usize>>,
}

impl Placing {
    /// Decides for `workload`, whose medium belongs to node `home` if that is known.
    ///
    /// # Errors
    /// `InvalidInput`: a node or core does not exist, or `far` was requested and there is only one node.
    pub fn of(workload: &Workload, home: Option<usize>) -> Result<Self> {
        Self::among(workload, home, &nodes(), &allowed_cores())
    }

    fn among(workload: &Workload, home: Option<usize>, nodes: &[Node], allowed: &[usize]) -> Result<Self> {
        let known = |node: usize| nodes.iter().find(|n| n.node == node);
        let all: Vec<String> = nodes.iter().map(|n| n.node.to_string()).collect();
        for (what, wanted) in
            [("thread_nodes", &workload.thread_nodes), ("memory_nodes", &workload.memory_nodes)]
        {
            if let Some(node) = wanted.iter().find(|node| known(**node).is_none()) {
                return Err(Error::invalid(format!(
                    "{what}: node {node} does not exist; this machine has {}",
                    all.join(", ")
                )));
            }
        }
        let with_cores = |n: &&Node| n.cores.iter().any(|core| allowed.contains(core));
        let memory_node = workload.memory_nodes.first().copied().or(home);
        let thread_nodes: Vec<usize> = match (workload.numa_pattern, workload.thread_nodes.as_slice()) {
            (_, [_, ..]) => workload.thread_nodes.clone(),
            (NumaPattern::Near, _) => match memory_node {
                // A node of memory alone has no cores: take the nearest node with cores.
                Some(node) => nearest_with_cores(known(node), nodes, allowed).into_iter().collect(),
                None => nodes.iter().filter(with_cores).map(|n| n.node).collect(),
            },
            (NumaPattern::Far, _) => {
                let from = memory_node.unwrap_or(0);
                let far = nodes.iter().filter(with_cores).filter(|n| n.node != from);
                let far =
                    far.max_by_key(|n| n.distances.get(from).copied().unwrap_or(0)).ok_or_else(|| {
                        Error::invalid(
                            "numa_pattern: far needs cores on a second NUMA node, and this machine has one; \
                         use emulate_latency_ns and emulate_bandwidth for a memory further away",
                        )
                    })?;
                vec![far.node]
            }
        };
        let memory = match (workload.numa_pattern, memory_node) {
            (_, Some(node)) if workload.memory_nodes.is_empty() => vec![node],
            (NumaPattern::Far, None) => vec![0],
            _ => workload.memory_nodes.clone(),
        };
        if let Some(core) = workload.thread_cores.iter().find(|core| !allowed.contains(core)) {
            return Err(Error::invalid(format!(
                "thread_cores: core {core} does not exist, or this process may not use it"
            )));
        }
        let cores: Vec<usize> = thread_nodes
            .iter()
            .filter_map(|node| known(*node))
            .flat_map(|node| node.cores.iter().copied())
            .filter(|core| allowed.contains(core))
            .collect();
        if cores.is_empty() && workload.thread_cores.is_empty() {
            return Err(Error::invalid(format!(
                "thread_nodes: {thread_nodes:?} have no core that this process may use"
            )));
        }
        let bound = match (workload.thread_cores.as_slice(), workload.pin) {
            ([_, ..], _) => workload.thread_cores.iter().map(|core| vec![*core]).collect(),
            (_, Pin::Core) => cores.iter().map(|core| vec![*core]).collect(),
            (_, Pin::Node) => vec![cores],
            (_, Pin::None) => Vec::new(),
        };
        Ok(Self { memory, cores: bound })
    }

    /// Binds the calling thread, the workload's thread number `index`.
    pub(crate) fn bind_thread(&self, index: usize) {
        if let Some(cores) = index.checked_rem(self.cores.len()).and_then(|at| self.cores.get(at)) {
            let mut set = CpuSet::new();
            cores.iter().for_each(|core| set.set(*core));
            // Refused if the cores were taken away meanwhile: the thread then runs where it may.
            let _ = sched_setaffinity(None, &set);
        }
    }

    /// Runs `take`, which allocates memory, with pages from the nodes of this placing.
    ///
    /// # Errors
    /// `System` when the kernel refuses the nodes; those of `take`.
    pub(crate) fn taking_memory<T>(&self, take: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.memory.is_empty() {
            return take();
        }
        policy::bind_to(&self.memory).map_err(|error| {
            Error::system(format!(
                "cannot take memory from node {:?}: {error}; see numactl --hardware",
                self.memory
            ))
        })?;
        let taken = take();
        let _ = policy::reset();
        taken
    }
}

fn nearest_with_cores(home: Option<&Node>, nodes: &[Node], allowed: &[usize]) -> Option<usize> {
    let home = home?;
    nodes
        .iter()
        .filter(|n| n.cores.iter().any(|core| allowed.contains(core)))
        .min_by_key(|n| home.distances.get(n.node).copied().unwrap_or(u32::MAX))
        .map(|n| n.node)
}

/// A cap on bandwidth: tokens arrive at a rate, and a thread that takes more waits.
#[derive(Debug)]
pub(crate) struct Bucket {
    bytes_per_second: f64,
    /// The time at which all bytes taken so far are paid for.
    paid: Mutex<Instant>,
}

impl Bucket {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second as f64, paid: Mutex::new(Instant::now()) }
    }

    /// Takes `bytes`, and waits until the bucket allows them.
    pub(crate) fn take(&self, bytes: u64) {
        let due = {
            let mut paid = self.paid.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
            *paid = (*paid).max(Instant::now()) + cost;
            *paid
        };
        let left = due.saturating_duration_since(Instant::now());
        // A sleep may end 60 µs late: the rest is spun.
        if left > Duration::from_micros(200) {
            std::thread::sleep(left - Duration::from_micros(100));
        }
        while Instant::now() < due {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_nodes_and_memory() -> Vec<Node> {
        let node = |node, cores: &[usize], distances: &[u32]| Node {
            node,
            cores: cores.to_vec(),
            has_memory: true,
            distances: distances.to_vec(),
        };
        vec![node(0, &[0, 1], &[10, 21, 17]), node(1, &[2, 3], &[21, 10, 28]), node(2, &[], &[17, 28, 10])]
    }

    #[test]
    fn near_and_far_follow_the_distances() {
        let nodes = two_nodes_and_memory();
        let allowed = [0, 1, 2, 3];
        let place = |workload: &Workload, home| Placing::among(workload, home, &nodes, &allowed);
        let near = Workload { memory_nodes: vec![1], ..Workload::default() };
        assert_eq!(place(&near, None).unwrap(), Placing { memory: vec![1], cores: vec![vec![2, 3]] });
        let cxl = Workload { memory_nodes: vec![2], pin: Pin::Core, ..Workload::default() };
        assert_eq!(place(&cxl, None).unwrap().cores, [[0], [1]]);
        let far = Workload { numa_pattern: NumaPattern::Far, ..Workload::default() };
        assert_eq!(place(&far, None).unwrap(), Placing { memory: vec![0], cores: vec![vec![2, 3]] });
        assert_eq!(place(&far, Some(2)).unwrap(), Placing { memory: vec![2], cores: vec![vec![2, 3]] });
        let missing = Workload { thread_nodes: vec![7], ..Workload::default() };
        assert!(place(&missing, None).unwrap_err().to_string().contains("node 7 does not exist"));
        let core = Workload { thread_cores: vec![9], ..Workload::default() };
        assert!(place(&core, None).unwrap_err().to_string().contains("core 9"));
    }

    #[test]
    fn far_memory_on_one_node_is_refused_with_an_alternative() {
        let far = Workload { numa_pattern: NumaPattern::Far, ..Workload::default() };
        let nodes = [Node { node: 0, cores: vec![0, 1], has_memory: true, distances: vec![10] }];
        let error = Placing::among(&far, None, &nodes, &[0, 1]).unwrap_err().to_string();
        assert!(error.contains("this machine has one") && error.contains("emulate_latency_ns"), "{error}");
    }

    #[test]
    fn this_machine_has_a_node_with_cores() {
        assert!(nodes().iter().any(|node| !node.cores.is_empty()));
        assert_eq!(parse_list("0-2,5\n"), [0, 1, 2, 5]);
        assert!(parse_list("\n").is_empty());
    }

    #[test]
    fn a_bucket_holds_two_threads_below_its_rate() {
        let bucket = Bucket::new(1 << 30);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..50).for_each(|_| bucket.take(1 << 20)));
            }
        });
        // 100 MiB at 1 GiB a second.
        let seconds = start.elapsed().as_secs_f64();
        assert!((0.0976..0.3).contains(&seconds), "{seconds}");
    }
}
