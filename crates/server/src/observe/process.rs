//! The kernel's numbers about this process, for INFO: memory and processor time.

/// Numbers of this process and its machine. What cannot be read is 0 or empty.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Memory that is in DRAM, the mapped medium included.
    pub resident_bytes: u64,
    /// The peak of `resident`.
    pub resident_bytes_max: u64,
    /// The part that belongs to no file: memory that the process allocated.
    pub anonymous_bytes: u64,
    /// Memory of the machine.
    pub system_bytes: u64,
    /// The most that the process may allocate: the least of the machine's memory, the limits of its control groups, and
    /// `ulimit -d`.
    pub limit_bytes: u64,
    /// Seconds since the process began.
    pub age_seconds: f64,
    /// Seconds of processor time in the program.
    pub user_seconds: f64,
    /// Seconds of processor time in the kernel.
    pub system_seconds: f64,
    /// Kernel and architecture.
    pub system: String,
    /// The program's file.
    pub executable: String,
}

// The unit of times in /proc on every Linux (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// Asks the kernel.
pub fn read() -> Process {
    let status = text("/proc/self/status");
    let stat = text("/proc/self/stat");
    // After the name in parentheses, which may itself contain blanks.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let words: Vec<&str> = after_name.split_whitespace().collect();
    // By the numbers of proc(5), where the name is the second.
    let seconds = |number: usize| {
        let ticks = words.get(number - 3).and_then(|ticks| ticks.parse::<f64>().ok());
        ticks.unwrap_or_default() / TICKS_PER_SECOND
    };
    let uptime = text("/proc/uptime").split(' ').next().and_then(|seconds| seconds.parse::<f64>().ok());
    let system_bytes = kibibytes(&text("/proc/meminfo"), "MemTotal:");
    let release = text("/proc/sys/kernel/osrelease");
    Process {
        resident_bytes: kibibytes(&status, "VmRSS:"),
        resident_bytes_max: kibibytes(&status, "VmHWM:"),
        anonymous_bytes: kibibytes(&status, "RssAnon:"),
        system_bytes,
        limit_bytes: limits().fold(system_bytes, u64::min),
        age_seconds: (uptime.unwrap_or_default() - seconds(22)).max(0.0),
        user_seconds: seconds(14),
        system_seconds: seconds(15),
        system: format!("Linux {} {}", release.trim(), std::env::consts::ARCH),
        executable: std::env::current_exe().map_or_else(|_| String::new(), |path| path.display().to_string()),
    }
}

/// Limits of the process's memory, in bytes.
fn limits() -> impl Iterator<Item = u64> {
    let data = rustix::process::getrlimit(rustix::process::Resource::Data).current;
    // Version 2 of control groups: the process's own group and those above it.
    let groups = text("/proc/self/cgroup");
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().trim();
    let above = std::path::Path::new(own)
        .ancestors()
        .map(|group| format!("/sys/fs/cgroup{}/memory.max", group.display()));
    let of_groups: Vec<u64> = above.filter_map(|path| text(&path).trim().parse().ok()).collect();
    data.into_iter().chain(of_groups)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn kibibytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse::<u64>().ok()).unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_numbers_of_this_process_are_read() {
        let process = read();
        assert!(process.resident_bytes > 0 && process.resident_bytes <= process.resident_bytes_max);
        assert!(process.anonymous_bytes > 0 && process.system_bytes > process.anonymous_bytes);
        assert!(!process.executable.is_empty());
        assert!(process.limit_bytes > process.anonymous_bytes && process.limit_bytes <= process.system_bytes);
        assert!(process.age_seconds < 100_000.0, "{} s", process.age_seconds);
    }
}
