//! What the kernel reports about memory devices: sizes, alignments, interleaving, and how far stores must be pushed to
//! survive. All of it comes from sysfs and from /proc/self/mountinfo.
//!
//! It must never be wrong on the safe side's cost: what cannot be read means "flush", "does not
//! survive power", and the usual interleaving.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes in one interleave stripe where nothing else is known: that of Optane.
pub(crate) const STRIPE_BYTES: u64 = 4096;
/// Devices side by side where nothing else is known: a full socket of Optane.
pub(crate) const WAYS: u32 = 6;

/// How far a store must be pushed to survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PersistenceDomain {
    /// Unknown, or no persistent memory at all.
    Unknown,
    /// To the memory controller: flush.
    MemoryController,
    /// To the cache: order only.
    CpuCache,
}

/// A region of persistent memory, as the kernel's nd subsystem describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NdRegion {
    pub(crate) domain: PersistenceDomain,
    /// Devices that the region is interleaved over.
    pub(crate) mappings: Option<u32>,
}

/// A tree like /sys; tests make their own.
#[derive(Clone, Debug)]
pub(crate) struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self { root: PathBuf::from("/sys") }
    }
}

impl Sysfs {
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Whether a character device is a DAX device: it is on the bus, or in older kernels in the class,
    /// called "dax".
    pub(crate) fn is_dax(&self, device: (u32, u32)) -> bool {
        fs::read_link(self.char_device(device).join("subsystem"))
            .is_ok_and(|target| target.file_name().is_some_and(|name| name == "dax"))
    }

    /// Size and alignment of a DAX device, in bytes.
    pub(crate) fn dax_size_and_align(&self, device: (u32, u32)) -> (Option<u64>, Option<u64>) {
        let place = self.char_device(device);
        // The attribute moved between kernels: first with the device, then with its region.
        let align = ["align", "device/align", "dax_region/align", "device/dax_region/align"]
            .iter()
            .find_map(|name| number(&place.join(name)));
        (number(&place.join("size")), align)
    }

    /// The region of persistent memory that a DAX device belongs to.
    pub(crate) fn region_of_char(&self, device: (u32, u32)) -> Option<NdRegion> {
        region_above(&self.char_device(device))
    }

    /// The region of persistent memory under a block device. Of a device that is put together from
    /// several (device mapper, md), the weakest domain, and the mappings of all.
    pub(crate) fn region_of_block(&self, device: (u32, u32)) -> Option<NdRegion> {
        let place = self.root.join(format!("dev/block/{}:{}", device.0, device.1));
        region_of_block_at(&place, 0)
    }

    fn char_device(&self, device: (u32, u32)) -> PathBuf {
        self.root.join(format!("dev/char/{}:{}", device.0, device.1))
    }

    /// What the kernel does about huge pages of anonymous memory: the word in brackets.
    pub(crate) fn huge_pages_of_memory(&self) -> Option<String> {
        chosen(&self.root.join("kernel/mm/transparent_hugepage/enabled"))
    }

    /// The same of tmpfs as a whole; `deny` and `force` override every mount.
    pub(crate) fn huge_pages_of_shm(&self) -> Option<String> {
        chosen(&self.root.join("kernel/mm/transparent_hugepage/shmem_enabled"))
    }
}

// 8: devices stacked deeper than this are a loop, or nothing to guess about.
const STACK_MAX: u32 = 8;

fn region_of_block_at(place: &Path, depth: u32) -> Option<NdRegion> {
    if let Some(region) = region_above(place) {
        return Some(region);
    }
    if depth == STACK_MAX {
        return None;
    }
    // A partition has its parts above it, a whole device in it.
    let place = fs::canonicalize(place).ok()?;
    let slaves = [place.join("slaves"), place.parent()?.join("slaves")];
    let below = slaves.iter().find_map(|slaves| fs::read_dir(slaves).ok())?;
    let mut all: Option<NdRegion> = None;
    for slave in below {
        let region = region_of_block_at(&slave.ok()?.path(), depth + 1)?;
        all = Some(match all {
            None => region,
            Some(all) => NdRegion {
                domain: all.domain.min(region.domain),
                mappings: all.mappings.zip(region.mappings).map(|(a, b)| a + b),
            },
        });
    }
    all
}

/// The region of persistent memory above a device: the nearest directory whose `devtype` is "nd_pmem". Some such
/// directories have no `persistence_domain`: the kernel hides it where the platform reports none. (Regions of type
/// "nd_volatile" are DRAM.)
fn region_above(place: &Path) -> Option<NdRegion> {
    let place = fs::canonicalize(place).ok()?;
    let directory = place.ancestors().find(|directory| {
        fs::read_to_string(directory.join("devtype")).is_ok_and(|kind| kind.trim() == "nd_pmem")
    })?;
    let domain = match fs::read_to_string(directory.join("persistence_domain")).unwrap_or_default().trim() {
        "cpu_cache" => PersistenceDomain::CpuCache,
        "memory_controller" => PersistenceDomain::MemoryController,
        _ => PersistenceDomain::Unknown,
    };
    let mappings = number(&directory.join("mappings")).and_then(|n| u32::try_from(n).ok());
    Some(NdRegion { domain, mappings: mappings.filter(|n| *n > 0) })
}

/// A number in decimal or, with 0x, in hexadecimal.
fn number(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Of `always [madvise] never`, the word in brackets.
fn chosen(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let word = text.split_once('[')?.1.split_once(']')?.0;
    Some(word.to_owned())
}

/// A mount, as /proc/self/mountinfo has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Where it is mounted.
    pub(crate) point: String,
    /// `huge=` of a tmpfs; absent means never.
    pub(crate) huge: Option<String>,
}

/// The mount of the file system with `device`, from the text of /proc/self/mountinfo. Lines read
/// `25 24 0:23 / /dev/shm rw,relatime shared:3 - tmpfs tmpfs rw,huge=always`.
pub(crate) fn mount_of(mountinfo: &str, device: (u32, u32)) -> Option<Mount> {
    let device = format!("{}:{}", device.0, device.1);
    mountinfo.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(2);
        if place.next()? != device {
            return None;
        }
        // Spaces and the like are written as octal escapes; only spaces are likely.
        let point = place.nth(1)?.replace("\\040", " ");
        let huge = kind.split(' ').nth(2)?.split(',').find_map(|o| o.strip_prefix("huge="));
        Some(Mount { point, huge: huge.map(ToOwned::to_owned) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A sysfs with one region of two interleaved modules, a DAX device and a block device with one
    /// partition in it, and a device mapper over the partition.
    fn sysfs(domain: &str) -> (tempfile::TempDir, Sysfs) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let region = root.join("devices/ndbus0/region0");
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let link = |target: PathBuf, path: PathBuf| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        };
        write(region.join("devtype"), "nd_pmem\n");
        if !domain.is_empty() {
            write(region.join("persistence_domain"), domain);
        }
        write(region.join("mappings"), "2\n");
        let dax = region.join("dax0.1/dax0.0");
        write(dax.join("size"), "1073741824\n");
        write(dax.join("align"), "0x200000\n");
        link(root.join("bus/dax"), dax.join("subsystem"));
        link(dax, root.join("dev/char/252:0"));
        let block = region.join("namespace0.0/block/pmem0");
        write(block.join("pmem0p1/size"), "1\n");
        fs::create_dir_all(block.join("slaves")).unwrap();
        link(block.join("pmem0p1"), root.join("dev/block/259:1"));
        let mapper = root.join("devices/virtual/block/dm-0");
        link(block.join("pmem0p1"), mapper.join("slaves/pmem0p1"));
        link(mapper, root.join("dev/block/253:0"));
        let disk = root.join("devices/pci/block/vda");
        fs::create_dir_all(disk.join("slaves")).unwrap();
        link(disk, root.join("dev/block/254:0"));
        write(root.join("kernel/mm/transparent_hugepage/enabled"), "always [madvise] never\n");
        let sysfs = Sysfs::at(root);
        (directory, sysfs)
    }

    #[test]
    fn a_dax_device_is_known_by_its_bus_with_size_and_alignment() {
        let (_directory, sysfs) = sysfs("memory_controller\n");
        assert!(sysfs.is_dax((252, 0)));
        assert!(!sysfs.is_dax((1, 3)));
        assert_eq!(sysfs.dax_size_and_align((252, 0)), (Some(1 << 30), Some(2 << 20)));
    }

    #[test]
    fn the_region_is_found_above_devices_partitions_and_mappers() {
        let (_directory, sysfs) = sysfs("memory_controller\n");
        let region = NdRegion { domain: PersistenceDomain::MemoryController, mappings: Some(2) };
        assert_eq!(sysfs.region_of_char((252, 0)), Some(region));
        assert_eq!(sysfs.region_of_block((259, 1)), Some(region));
        assert_eq!(sysfs.region_of_block((253, 0)), Some(region));
        assert_eq!(sysfs.region_of_block((254, 0)), None, "an ordinary disk");
        assert_eq!(sysfs.region_of_block((9, 9)), None, "no device");
    }

    #[test]
    fn flushing_is_skipped_only_if_the_kernel_reports_persistent_caches() {
        for (text, domain) in [
            ("cpu_cache\n", PersistenceDomain::CpuCache),
            ("memory_controller", PersistenceDomain::MemoryController),
            ("", PersistenceDomain::Unknown),
            ("cpu_cache2", PersistenceDomain::Unknown),
        ] {
            let (_directory, sysfs) = sysfs(text);
            assert_eq!(sysfs.region_of_char((252, 0)).unwrap().domain, domain);
        }
    }

    #[test]
    fn a_volatile_region_is_no_persistent_region() {
        let (directory, sysfs) = sysfs("cpu_cache\n");
        fs::write(directory.path().join("devices/ndbus0/region0/devtype"), "nd_volatile\n").unwrap();
        assert_eq!(sysfs.region_of_char((252, 0)), None);
    }

    #[test]
    fn the_chosen_word_is_the_one_in_brackets() {
        let (_directory, sysfs) = sysfs("");
        assert_eq!(sysfs.huge_pages_of_memory().as_deref(), Some("madvise"));
        assert_eq!(sysfs.huge_pages_of_shm(), None);
    }

    #[test]
    fn the_huge_option_of_a_mount_is_found_by_its_device() {
        let text = "\
24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,size=1k,mode=755
25 24 0:23 / /dev/shm rw,relatime shared:3 master:1 - tmpfs tmpfs rw,size=24684084k
26 24 0:24 / /mnt/with\\040space rw - tmpfs tmpfs rw,huge=within_size,size=1k
";
        assert_eq!(mount_of(text, (0, 23)), Some(Mount { point: "/dev/shm".into(), huge: None }));
        assert_eq!(
            mount_of(text, (0, 24)),
            Some(Mount { point: "/mnt/with space".into(), huge: Some("within_size".into()) })
        );
        assert_eq!(mount_of(text, (9, 9)), None);
    }
}
