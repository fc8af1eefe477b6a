//! Servers under measurement: started on a separate core, stopped while another server has its turn, ended at the end.

use crate::server::{Address, Failure, Result};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How to start a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name in tables.
    pub name: String,
    /// The failures that an acknowledged write survives, in words.
    pub durability: String,
    /// Program and arguments, with `{port}` and `{directory}` replaced.
    pub command: Vec<String>,
}

/// The known servers: name, durability, command.
const KNOWN: [(&str, &str, &str); 8] = [
    (
        "duramen",
        "every write survives a crash of the process, and of the machine unless the store is in /dev/shm",
        "{self} serve --port {port} --bind 127.0.0.1 --duramen-path {directory} --duramen-durability every-write \
         --duramen-threads 1",
    ),
    (
        "duramen-1s",
        "every write survives a crash of the process, and all but the last second a crash of the machine, unless the store is in /dev/shm",
        "{self} serve --port {port} --bind 127.0.0.1 --duramen-path {directory} --duramen-durability interval:1s \
         --duramen-threads 1",
    ),
    (
        "duramen-flush",
        "as duramen, with an explicit flush of each line (clwb)",
        "{self} serve --port {port} --bind 127.0.0.1 --duramen-path {directory} --duramen-durability every-write \
         --duramen-threads 1 --duramen-flush-instruction clwb",
    ),
    (
        "redis",
        "nothing survives",
        "redis-server --port {port} --bind 127.0.0.1 --dir {directory} --save \"\" --appendonly no",
    ),
    (
        "redis-everysec",
        "all but the last second or two of writes survive a crash",
        "redis-server --port {port} --bind 127.0.0.1 --dir {directory} --save \"\" --appendonly yes --appendfsync everysec",
    ),
    (
        "redis-always",
        "every write survives a crash of the machine",
        "redis-server --port {port} --bind 127.0.0.1 --dir {directory} --save \"\" --appendonly yes --appendfsync always",
    ),
    (
        "duramen-memcached",
        "as duramen, by memcached's text protocol",
        "{self} serve --port 0 --bind 127.0.0.1 --memcached {port} --duramen-path {directory} --duramen-durability \
         every-write --duramen-threads 1",
    ),
    ("memcached", "nothing survives", "memcached -p {port} -l 127.0.0.1 -t 1 -m 4096 -u root"),
];

/// Names that [`Server::from_str`] knows.
pub fn known() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(name, _, _)| *name)
}

impl FromStr for Server {
    type Err = String;

    /// A known name, `NAME=KNOWN` to measure a known server under another name, or `NAME=COMMAND`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, rest) = text.split_once('=').unwrap_or((text, text));
        if let Some((known, durability, command)) = KNOWN.iter().find(|(known, _, _)| *known == rest) {
            let name = if name == rest { known } else { name };
            return Ok(Self {
                name: name.to_owned(),
                durability: (*durability).to_owned(),
                command: words(command),
            });
        }
        if !text.contains('=') {
            let known: Vec<&str> = known().collect();
            return Err(format!(
                "server {text:?} is unknown; wanted one of {}, or NAME=COMMAND",
                known.join(", ")
            ));
        }
        if name.is_empty() || !rest.contains("{port}") {
            return Err(format!("{text:?}: wanted NAME=COMMAND with {{port}} at the place of the port"));
        }
        Ok(Self { name: name.to_owned(), durability: "unknown".to_owned(), command: words(rest) })
    }
}

/// Splits at spaces; `""` is an empty word.
fn words(command: &str) -> Vec<String> {
    command
        .split_whitespace()
        .map(|word| if word == "\"\"" { String::new() } else { word.to_owned() })
        .collect()
}

/// A running server. When dropped, it is killed and its directory removed.
pub struct Running {
    child: Child,
    pid: Pid,
    /// Its address.
    pub address: Address,
    directory: PathBuf,
}

const START_MAX: Duration = Duration::from_secs(20);

impl Running {
    /// Starts a server with a new directory below `place`, on the core `core`, and waits until it listens.
    ///
    /// # Errors
    /// When it cannot be started, ends at once, or does not listen within 20 seconds; the message has its last line of
    /// output.
    pub fn start(server: &Server, place: &Path, port: u16, core: Option<usize>) -> Result<Self> {
        let directory = place.join(format!("duramen-bench-server-{}-{port}", std::process::id()));
        fs::create_dir_all(&directory).map_err(|error| {
            Failure::new(format!(
                "cannot make {}: {error}; give another place for the servers' data",
                directory.display()
            ))
        })?;
        let own =
            std::env::current_exe().map_or_else(|_| "duramen".into(), |path| path.display().to_string());
        let fill = |word: &String| {
            word.replace("{port}", &port.to_string())
                .replace("{directory}", &directory.display().to_string())
                .replace("{self}", &own)
        };
        let command: Vec<String> = server.command.iter().map(fill).collect();
        let log = directory.join("log.txt");
        let started = Self::spawn(&command, &log, core);
        let child = started.map_err(|error| {
            let _ = fs::remove_dir_all(&directory);
            Failure::new(format!(
                "cannot start {} ({}): {error}; is it installed?",
                server.name,
                command.join(" ")
            ))
        })?;
        let pid = Pid::from_child(&child);
        let address = Address::Tcp(format!("127.0.0.1:{port}"));
        let mut running = Self { child, pid, address, directory };
        running.await_listening(server, &log)?;
        Ok(running)
    }

    /// A child inherits its parent's cores, so the parent changes its own cores while it starts the child.
    fn spawn(command: &[String], log: &Path, core: Option<usize>) -> std::io::Result<Child> {
        let log = fs::File::create(log)?;
        let before = sched_getaffinity(None)?;
        if let Some(core) = core {
            pin(core)?;
        }
        let (program, arguments) = command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
        let child = std::process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        sched_setaffinity(None, &before)?;
        child
    }

    fn await_listening(&mut self, server: &Server, log: &Path) -> Result<()> {
        let until = Instant::now() + START_MAX;
        loop {
            if self.address.try_connect().is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > until {
                let said = fs::read_to_string(log).unwrap_or_default();
                let what =
                    ended.map_or("does not listen".to_owned(), |status| format!("has ended ({status})"));
                let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
                return Err(Failure::new(format!(
                    "{} {what} at {}; its last words: {last}",
                    server.name, self.address
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the process: it uses no core until [`resume`](Self::resume).
    pub fn pause(&self) {
        // Fails only if the process has ended, which the next connection detects.
        let _ = kill_process(self.pid, Signal::STOP);
    }

    /// Continues the process.
    pub fn resume(&self) {
        let _ = kill_process(self.pid, Signal::CONT);
    }

    /// Nanoseconds that all its threads have been on a core so far.
    pub fn cpu_ns(&self) -> u64 {
        let tasks =
            fs::read_dir(format!("/proc/{}/task", self.pid.as_raw_nonzero())).into_iter().flatten().flatten();
        tasks
            .filter_map(|task| {
                let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
                text.split(' ').next()?.parse::<u64>().ok()
            })
            .sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.resume();
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Binds this thread, and the processes it starts, to one core.
///
/// # Errors
/// When there is no such core for this process.
pub fn pin(core: usize) -> rustix::io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(rustix::io::Errno::INVAL);
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
}

/// Cores that this process may use.
pub fn cores() -> Vec<usize> {
    sched_getaffinity(None)
        .map_or_else(|_| Vec::new(), |set| (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_known_name_or_a_command() {
        let redis: Server = "redis".parse().unwrap();
        assert!(redis.command.contains(&String::new()) && redis.durability == "nothing survives");
        let own: Server = "mine=./server --listen {port}".parse().unwrap();
        assert_eq!((own.name.as_str(), own.command.len()), ("mine", 3));
        let other: Server = "old=redis".parse().unwrap();
        assert_eq!((other.name.as_str(), other.command), ("old", redis.command));
        for bad in ["", "x", "x=y", "=a {port}"] {
            assert!(bad.parse::<Server>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_that_exits_at_once_is_reported_with_its_output() {
        let place = tempfile::tempdir().unwrap();
        let server: Server = "odd=ls /nonexistent-{port}".parse().unwrap();
        let error = Running::start(&server, place.path(), 1, None).err().unwrap().to_string();
        assert!(error.contains("has ended") && error.contains("nonexistent-1"), "{error}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "its directory is gone");
    }
}
