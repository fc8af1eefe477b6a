//! The machine of a run, as far as the kernel reports it in /proc and /sys. Unreadable values are empty or absent. No
//! host name, no address: results are made to be shared.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// CPU features that affect the measurements: wide stores, flushes, checksums.
const FEATURES: [&str; 19] = [
    "sse2",
    "sse4_2",
    "avx",
    "avx2",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "clflush",
    "clflushopt",
    "clwb",
    "movdiri",
    "movdir64b",
    "pclmulqdq",
    "vpclmulqdq",
    "cx16",
    "erms",
    "asimd",
    "sve",
    "dcpop",
];

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// The CPU's name as the CPU reports it.
    pub cpu: String,
    /// Its features that affect the measurements.
    pub features: Vec<String>,
    /// Cores that this process may use.
    pub cores: u64,
    /// Caches of the first core.
    pub caches: Vec<Cache>,
    /// NUMA nodes; one on most machines.
    pub numa_nodes: Vec<NumaNode>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Kernel, name and release.
    pub kernel: String,
    /// The setting of transparent huge pages for anonymous memory: `always`, `madvise`, `never`.
    #[serde(default)]
    pub huge_pages: String,
    /// The same setting for tmpfs and shared memory.
    #[serde(default)]
    pub huge_pages_shm: String,
    /// The hypervisor, if the CPU or the firmware reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualisation: Option<String>,
    /// The governor of the CPU's clock; absent if the kernel has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Runnable threads over the minute before the run: a value near the number of cores disturbs the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
}

impl Machine {
    /// The load before the run, if it was high enough to disturb it.
    pub fn busy(&self) -> Option<f64> {
        self.load.filter(|load| *load >= self.cores as f64 * 0.5)
    }
}

/// One cache of the first core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u64,
    /// `Data`, `Instruction`, `Unified`.
    pub kind: String,
    /// Its size.
    pub bytes: u64,
    /// Cores that share it, as the kernel lists them: `0-7`.
    pub shared_by: String,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaNode {
    /// Its number.
    pub node: u64,
    /// Its cores, as the kernel lists them; empty for memory alone (CXL).
    pub cores: String,
    /// Its memory.
    pub memory_bytes: u64,
}

impl Machine {
    /// This machine.
    pub fn read() -> Self {
        Self::read_under(Path::new("/"))
    }

    fn read_under(root: &Path) -> Self {
        let cpuinfo = text(&root.join("proc/cpuinfo"));
        let flags = field(&cpuinfo, "flags").or_else(|| field(&cpuinfo, "Features")).unwrap_or_default();
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let sys = root.join("sys");
        let huge = |name| chosen(&text(&sys.join("kernel/mm/transparent_hugepage").join(name)));
        Self {
            architecture: std::env::consts::ARCH.to_owned(),
            cpu: cpu_name(&cpuinfo),
            features: FEATURES.iter().filter(|f| flags.contains(f)).map(|f| (*f).to_owned()).collect(),
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64),
            caches: caches(&sys.join("devices/system/cpu/cpu0/cache")),
            numa_nodes: numa_nodes(&sys.join("devices/system/node")),
            memory_bytes: kibibytes(&text(&root.join("proc/meminfo")), "MemTotal"),
            kernel: format!(
                "{} {}",
                text(&root.join("proc/sys/kernel/ostype")).trim(),
                text(&root.join("proc/sys/kernel/osrelease")).trim()
            ),
            huge_pages: huge("enabled"),
            huge_pages_shm: huge("shmem_enabled"),
            virtualisation: virtualisation(&flags, &sys),
            governor: Some(text(&sys.join("devices/system/cpu/cpu0/cpufreq/scaling_governor")))
                .map(|governor| governor.trim().to_owned())
                .filter(|governor| !governor.is_empty()),
            load: text(&root.join("proc/loadavg")).split(' ').next().and_then(|load| load.parse().ok()),
        }
    }
}

/// The content of a file, or nothing.
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The first `name : value` of /proc/cpuinfo.
fn field(cpuinfo: &str, name: &str) -> Option<String> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// The model, with family and numbers: virtual machines often hide the name proper.
fn cpu_name(cpuinfo: &str) -> String {
    let name = field(cpuinfo, "model name").or_else(|| field(cpuinfo, "CPU implementer")).unwrap_or_default();
    match (field(cpuinfo, "cpu family"), field(cpuinfo, "model")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name,
    }
}

fn caches(place: &Path) -> Vec<Cache> {
    let mut all = Vec::new();
    for index in 0.. {
        let place = place.join(format!("index{index}"));
        let Ok(level) = text(&place.join("level")).trim().parse() else { break };
        all.push(Cache {
            level,
            kind: text(&place.join("type")).trim().to_owned(),
            bytes: size(text(&place.join("size")).trim()),
            shared_by: text(&place.join("shared_cpu_list")).trim().to_owned(),
        });
    }
    all
}

fn numa_nodes(place: &Path) -> Vec<NumaNode> {
    let mut all: Vec<NumaNode> = fs::read_dir(place)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let node = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let meminfo = text(&entry.path().join("meminfo"));
            Some(NumaNode {
                node,
                cores: text(&entry.path().join("cpulist")).trim().to_owned(),
                memory_bytes: kibibytes(&meminfo, "MemTotal"),
            })
        })
        .collect();
    all.sort_by_key(|node| node.node);
    all
}

/// `32K`, `1024K`, `32M` in bytes.
fn size(text: &str) -> u64 {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().map_or(0, |n| n * factor)
}

/// `MemTotal:  123 kB` in bytes; lines of a node have `Node 0 ` before them.
fn kibibytes(meminfo: &str, name: &str) -> u64 {
    let value = meminfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.split(' ').next_back() == Some(name)).then_some(value)
    });
    value.and_then(|v| v.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |n| n * 1024)
}

/// The word in brackets of `always [madvise] never`.
fn chosen(text: &str) -> String {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(word, _)| word).to_owned()
}

fn virtualisation(flags: &[&str], sys: &Path) -> Option<String> {
    let told = text(&sys.join("hypervisor/type")).trim().to_owned();
    if !told.is_empty() {
        return Some(told);
    }
    let vendor = text(&sys.join("class/dmi/id/sys_vendor")).trim().to_owned();
    let known =
        ["QEMU", "Amazon EC2", "Google", "Microsoft Corporation", "VMware, Inc.", "Xen", "innotek GmbH"];
    if known.contains(&vendor.as_str()) && (flags.contains(&"hypervisor") || vendor == "QEMU") {
        return Some(vendor);
    }
    flags.contains(&"hypervisor").then(|| "a hypervisor".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cores_memory_and_kernel_of_this_machine_are_read() {
        let machine = Machine::read();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }

    #[test]
    fn a_machine_with_two_nodes_is_read_as_the_kernel_reports_it() {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in [
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: Some CPU\ncpu family\t: 6\nmodel\t\t: 106\nflags\t\t: sse2 clwb hypervisor odd\n",
            ),
            ("proc/meminfo", "MemTotal:       24000000 kB\nMemFree: 1 kB\n"),
            ("proc/loadavg", "1.50 0.80 0.40 2/100 77\n"),
            ("proc/sys/kernel/ostype", "Linux\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n"),
            ("sys/devices/system/node/node1/cpulist", "\n"),
            ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       1024 kB\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let machine = Machine::read_under(root.path());
        assert_eq!(machine.cpu, "Some CPU (family 6, model 106)");
        assert_eq!(machine.features, ["sse2", "clwb"]);
        assert_eq!(machine.memory_bytes, 24_000_000 * 1024);
        assert_eq!((machine.kernel.as_str(), machine.huge_pages.as_str()), ("Linux 6.1.0", "madvise"));
        assert_eq!(machine.caches[0].bytes, 48 << 10);
        assert_eq!(machine.numa_nodes.len(), 2);
        assert_eq!((machine.numa_nodes[1].cores.as_str(), machine.numa_nodes[1].memory_bytes), ("", 1 << 20));
        assert_eq!(machine.virtualisation.as_deref(), Some("a hypervisor"));
        assert_eq!((machine.governor, machine.load), (None, Some(1.5)));
    }

    #[test]
    fn an_unreadable_property_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let machine = Machine::read_under(root.path());
        assert_eq!((machine.cpu.as_str(), machine.memory_bytes), ("", 0));
        assert_eq!((machine.virtualisation, machine.load), (None, None));
    }
}
