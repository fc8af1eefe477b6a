//! A clean Debian with systemd as its first process, in namespaces of this machine. It needs root, and debootstrap once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::tool::{output, tool};
use crate::failure::{Attempt, Failure, Result};

const BOOT: &str = include_str!("boot.sh");
const PATIENCE: Duration = Duration::from_secs(60);

/// A running system; its end is that of all of its processes.
pub struct Machine {
    root: PathBuf,
    unshare: Child,
    /// The first process of the system, as this machine numbers it.
    init: u32,
}

/// A Debian without anything beyond systemd, made once in this directory.
pub fn base(cache: &Path, suite: &str) -> Result<PathBuf> {
    let base = cache.join(suite);
    if base.join("complete").exists() {
        return Ok(base);
    }
    if base.exists() {
        fs::remove_dir_all(&base).attempt(|| format!("remove {}", base.display()))?;
    }
    fs::create_dir_all(cache).attempt(|| format!("make {}", cache.display()))?;
    println!("debootstrap: {suite}, once");
    let mut make = tool("debootstrap", "debootstrap")?;
    make.args(["--variant=minbase", "--include=systemd,systemd-sysv,adduser,man-db", suite]).arg(&base);
    output(&mut make)?;
    fs::write(base.join("complete"), "").attempt(|| format!("write to {}", base.display()))?;
    Ok(base)
}

impl Machine {
    /// Boots a copy of `base` in `root`.
    pub fn boot(base: &Path, root: &Path) -> Result<Machine> {
        output(tool("cp", "coreutils")?.args(["--archive", "--no-target-directory"]).arg(base).arg(root))?;
        let log = root.join("boot.log");
        let log = fs::File::create(&log).attempt(|| format!("write {}", log.display()))?;
        let said = log.try_clone().attempt(|| "write the log of the boot".to_owned())?;
        let unshare = tool("unshare", "util-linux")?
            .args(["--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup"])
            .args(["sh", "-c", BOOT, "boot"])
            .arg(root)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(said)
            .spawn()
            .attempt(|| "run unshare".to_owned())?;
        let mut machine = Machine { root: root.to_owned(), unshare, init: 0 };
        let until = Instant::now() + PATIENCE;
        loop {
            if machine.init == 0 {
                let id = machine.unshare.id();
                let children =
                    fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
                machine.init = children.trim().parse().unwrap_or(0);
            } else {
                // "degraded": there is no terminal, for example.
                let state = machine.command(&["systemctl", "is-system-running"])?.output();
                let state = state.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
                if state.is_ok_and(|state| state == "running" || state == "degraded") {
                    return Ok(machine);
                }
            }
            if Instant::now() > until {
                let said = fs::read_to_string(root.join("boot.log")).unwrap_or_default();
                return Err(Failure::new(format!("systemd did not boot in {}: {said}", root.display())));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// A command within the system.
    pub fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = tool("nsenter", "util-linux")?;
        command.args(["--target", &self.init.to_string()]);
        command.args(["--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "chroot"]).arg(&self.root);
        command.args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"]);
        command.args(["LC_ALL=C"]).args(words).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a command within the system, and returns its output.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        output(&mut self.command(words)?)
    }

    /// Whether a command within the system ends with 0.
    pub fn is_true(&self, words: &[&str]) -> Result<bool> {
        let output = self.command(words)?.output().attempt(|| format!("run {words:?}"))?;
        Ok(output.status.success())
    }

    /// Copies a file into the system, to its root; the path there.
    pub fn put(&self, file: &Path) -> Result<String> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        fs::copy(file, self.root.join(&name)).attempt(|| format!("copy {}", file.display()))?;
        Ok(format!("/{name}"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // With the first process of their namespace, the kernel kills all others.
        let _ = self.unshare.kill();
        if let Some(init) = rustix::process::Pid::from_raw(self.init as i32) {
            let _ = rustix::process::kill_process(init, rustix::process::Signal::KILL);
        }
        let _ = self.unshare.wait();
    }
}
