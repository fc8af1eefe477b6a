//! Memory that a job must leave to the process. A job that would take it ends with an error; the server and the other
//! jobs continue.
//!
//! An allocator that is refused memory ends the process, and so does the kernel when a machine or a control group has
//! no more. So a job asks before that:
//!
//! * about every 20 ms, between two batches: there must be [`RESERVE`] left, from which small allocations are served;
//! * before each allocation of [`LARGE`] bytes or more whose size comes from data: there must be that much more.
//!
//! Allocations of this kind also use `try_reserve`, and where no error can be returned they unwind with it
//! ([`give_up`], [`error_of`]).

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::error::{Error, Result};

/// The bytes that jobs leave to the process: the growth of some threads between two checks, and the buffers of the
/// server's clients.
const RESERVE: usize = 64 << 20;

/// The reserve is at most this part of a limit.
const RESERVE_PART: usize = 16;

/// Smaller allocations are not checked one by one: the check costs some 30 µs, which is little for filling 4 MiB.
pub const LARGE: usize = 4 << 20;

/// Time between two checks.
const EVERY: Duration = Duration::from_millis(20);

/// Time after a refusal in which no other job is refused: the memory of the first one is being freed.
const AFTER: Duration = Duration::from_secs(1);

/// A limit on the memory of the process, and what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    bytes: usize,
    limit: usize,
    name: &'static str,
}

impl Left {
    fn of(limit: usize, used: usize, name: &'static str) -> Left {
        Left { bytes: limit.saturating_sub(used), limit, name }
    }

    fn reserve(&self) -> usize {
        RESERVE.min(self.limit / RESERVE_PART)
    }

    fn has(&self, bytes: usize) -> bool {
        self.bytes >= bytes.saturating_add(self.reserve())
    }
}

/// A size in text.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 => write!(f, "{} MiB", bytes >> 20),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

fn out_of_memory(found: impl fmt::Display, wanted: impl fmt::Display) -> Error {
    Error::memory(format_args!("out of memory: found {found}, wanted {wanted}"))
        .hint("a store on a disk keeps state beyond --memory in files; else give the process more memory")
}

/// A control group's directory, and the name of the file with its limit.
pub type Group = (PathBuf, &'static str);

/// The control groups that this process belongs to, from the innermost outwards.
pub fn groups(root: &Path) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default().lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (base, file) = match fields.next() {
            Some("") => ("sys/fs/cgroup", "memory.max"),
            Some(controllers) if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let base = root.join(base);
        let group = base.join(fields.next().unwrap_or_default().trim_start_matches('/'));
        let ancestors = group.ancestors().take_while(|group| group.starts_with(&base));
        groups.extend(ancestors.map(|group| (group.to_owned(), file)));
    }
    groups
}

/// The limit of a control group. Without one the file has "max", or more than any machine has.
pub fn limit_of((group, file): &Group) -> Option<usize> {
    std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

/// The value of a line `name value` or `name: value kB`.
fn field(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', ':']))?;
    let (number, scale) = match line.trim().strip_suffix(" kB") {
        Some(number) => (number, 10),
        None => (line.trim(), 0),
    };
    Some(number.parse::<usize>().ok()? << scale)
}

/// The memory that the kernel can still give, on the whole machine.
fn of_machine(root: &Path) -> Option<Left> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let bytes = field(&text, "MemAvailable")? + field(&text, "SwapFree").unwrap_or(0);
    Some(Left { bytes, limit: field(&text, "MemTotal")?, name: "the machine has" })
}

/// The memory that is left to a control group; file pages that are cached can be dropped.
fn of_group(group: &Group) -> Option<Left> {
    let limit = limit_of(group)?;
    let (used, inactive, active) = match group.1 {
        "memory.max" => ("memory.current", "inactive_file", "active_file"),
        _ => ("memory.usage_in_bytes", "total_inactive_file", "total_active_file"),
    };
    let used = std::fs::read_to_string(group.0.join(used)).ok()?.trim().parse::<usize>().ok()?;
    let stat = std::fs::read_to_string(group.0.join("memory.stat")).unwrap_or_default();
    let cached = field(&stat, inactive).unwrap_or(0) + field(&stat, active).unwrap_or(0);
    Some(Left::of(limit, used.saturating_sub(cached), "the control group may use"))
}

/// What is left of the process's own limits, `ulimit -v` and `ulimit -d`.
fn of_process() -> impl Iterator<Item = Left> {
    let limit = |resource| getrlimit(resource).current.and_then(|limit| usize::try_from(limit).ok());
    let (space, data) = (limit(Resource::As), limit(Resource::Data));
    let text = match (space, data) {
        (None, None) => String::new(),
        _ => std::fs::read_to_string("/proc/self/statm").unwrap_or_default(),
    };
    let pages: Vec<usize> = text.split(' ').filter_map(|field| field.trim().parse().ok()).collect();
    let used = move |field: usize| Some(pages.get(field)? * rustix::param::page_size());
    let left = [
        space.zip(used(0)).map(|(limit, used)| Left::of(limit, used, "RLIMIT_AS allows")),
        data.zip(used(5)).map(|(limit, used)| Left::of(limit, used, "RLIMIT_DATA allows")),
    ];
    left.into_iter().flatten()
}

/// The limits of the process that leave it the least.
fn left() -> impl Iterator<Item = Left> {
    static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| {
        let mut groups = groups(Path::new("/"));
        groups.retain(|group| limit_of(group).is_some());
        groups
    });
    of_process().chain(of_machine(Path::new("/"))).chain(GROUPS.iter().filter_map(of_group))
}

/// Refuses to take bytes that the process needs.
pub fn require(bytes: usize) -> Result<()> {
    match left().find(|left| !left.has(bytes)) {
        None => Ok(()),
        Some(left) => Err(refused_by(&left, bytes)),
    }
}

fn refused_by(left: &Left, bytes: usize) -> Error {
    let found = format!("{} left of the {} that {}", Size(left.bytes), Size(left.limit), left.name);
    let reserve = format!("{} that stay free for the rest of the process", Size(left.reserve()));
    if bytes == 0 {
        out_of_memory(found, reserve)
    } else {
        out_of_memory(found, format!("{} for data of the job besides {reserve}", Size(bytes)))
    }
}

/// Refuses to go on with a job if the process has no reserve left. Cheap: it measures now and then.
pub fn watch() -> Result<()> {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = BEGAN.get_or_init(Instant::now).elapsed().as_millis() as u64;
    let next = NEXT.load(Ordering::Relaxed);
    let later = |time: Duration| now + time.as_millis() as u64;
    if now < next || NEXT.compare_exchange(next, later(EVERY), Ordering::Relaxed, Ordering::Relaxed).is_err()
    {
        return Ok(());
    }
    require(0).inspect_err(|_| NEXT.store(later(AFTER), Ordering::Relaxed))
}

/// Makes room for this many more elements, whose number comes from data.
pub fn reserve<T>(vector: &mut Vec<T>, more: usize) -> Result<()> {
    if vector.capacity() - vector.len() >= more { Ok(()) } else { reserve_slow(vector, more) }
}

#[cold]
fn reserve_slow<T>(vector: &mut Vec<T>, more: usize) -> Result<()> {
    let count = vector.len().saturating_add(more).max(vector.capacity() * 2);
    let bytes = count.saturating_mul(size_of::<T>());
    if bytes >= LARGE {
        require(bytes)?;
    }
    vector.try_reserve(more).map_err(|_| refused(bytes))
}

/// An empty vector with this capacity, which comes from data.
pub fn with_capacity<T>(count: usize) -> Result<Vec<T>> {
    let mut vector = Vec::new();
    reserve(&mut vector, count)?;
    Ok(vector)
}

/// The error for bytes that the allocator refused.
pub fn refused(bytes: usize) -> Error {
    require(bytes).err().unwrap_or_else(|| {
        out_of_memory("no memory in the process", format_args!("{} for data of the job", Size(bytes)))
    })
}

/// Ends the job with an error, from where none can be returned. It does not count as a panic.
pub fn give_up(error: Error) -> ! {
    std::panic::resume_unwind(Box::new(error))
}

/// The error with which a job unwound. Panics that are faults of the engine become one too.
pub fn error_of(panic: Box<dyn Any + Send>) -> Error {
    let text = match panic.downcast::<Error>() {
        Ok(error) => return *error,
        Err(panic) => panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default(),
    };
    Error::evaluation(format_args!("a panic, which is a fault of the engine: {text}"))
}

/// Runs a part of a job. An unwinding of it is its error.
pub fn caught<R>(run: impl FnOnce() -> Result<R>) -> Result<R> {
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(error_of(panic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_memory_of_the_machine_are_refused_with_what_is_left() {
        let refused = require(usize::MAX / 2).unwrap_err().to_string();
        assert!(
            refused.starts_with("out of memory: found ") && refused.contains(" left of the "),
            "{refused}"
        );
        assert!(refused.contains("the rest of the process"), "{refused}");
        require(1 << 20).unwrap();
        let mut vector = vec![1_u64];
        let refused = reserve(&mut vector, usize::MAX / 16).unwrap_err().to_string();
        assert!(refused.starts_with("out of memory: "), "{refused}");
        assert_eq!(vector, [1]);
        reserve(&mut vector, LARGE).unwrap();
        assert!(vector.capacity() > LARGE);
    }

    #[test]
    fn a_control_group_has_left_what_is_neither_used_nor_cached() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("memory.max", "1000000\n"),
            ("memory.current", "900000\n"),
            ("memory.stat", "anon 500000\nfile 400000\ninactive_file 100000\nactive_file 200000\n"),
            ("memory.limit_in_bytes", "1000000\n"),
            ("memory.usage_in_bytes", "900000\n"),
        ] {
            std::fs::write(root.path().join(file), text).unwrap();
        }
        let left = of_group(&(root.path().to_owned(), "memory.max")).unwrap();
        assert_eq!((left.bytes, left.limit), (400_000, 1_000_000));
        assert!(left.has(400_000 - 62_500) && !left.has(400_000 - 62_499));
        let left = of_group(&(root.path().to_owned(), "memory.limit_in_bytes")).unwrap();
        assert_eq!(left.bytes, 100_000);
        assert_eq!(of_group(&(root.path().join("none"), "memory.max")), None);
    }

    #[test]
    fn an_unwinding_job_keeps_its_error() {
        let ended: Result<()> = caught(|| give_up(refused(5 << 20)));
        let text = "out of memory: found no memory in the process, wanted 5 MiB for data of the job";
        assert!(ended.unwrap_err().to_string().starts_with(text));
        assert_eq!(caught(|| Ok(7)), Ok(7));
    }
}
