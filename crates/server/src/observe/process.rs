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
    let times: Vec<f64> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .collect();
    let release = text("/proc/sys/kernel/osrelease");
    Process {
        resident_bytes: kibibytes(&status, "VmRSS:"),
        resident_bytes_max: kibibytes(&status, "VmHWM:"),
        anonymous_bytes: kibibytes(&status, "RssAnon:"),
        system_bytes: kibibytes(&text("/proc/meminfo"), "MemTotal:"),
        user_seconds: times.first().copied().unwrap_or_default() / TICKS_PER_SECOND,
        system_seconds: times.get(1).copied().unwrap_or_default() / TICKS_PER_SECOND,
        system: format!("Linux {} {}", release.trim(), std::env::consts::ARCH),
        executable: std::env::current_exe().map_or_else(|_| String::new(), |path| path.display().to_string()),
    }
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
    }
}
