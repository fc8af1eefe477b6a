//! Servers that the checks start, on loopback ports that nobody else has; they end with the check.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::cargo::cargo;
use crate::failure::{Attempt, Failure, Result};
use duramen_resp::Connection;

/// A running server; it is killed on drop.
pub struct Server {
    name: &'static str,
    command: Vec<String>,
    child: Child,
    port: u16,
    log: PathBuf,
}

/// The result of starting a server.
pub enum Readiness {
    /// It answers requests.
    Ready,
    /// The process has ended.
    Exited(ExitStatus),
    /// It runs but does not answer in time.
    Silent,
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Readiness::Ready => f.write_str("it answers"),
            Readiness::Exited(status) => write!(f, "it ended unexpectedly: {status}"),
            Readiness::Silent => f.write_str("it runs, but did not answer before the timeout"),
        }
    }
}

impl Server {
    /// Starts `program`; its output goes to `log`.
    pub fn start(
        name: &'static str,
        program: &Path,
        arguments: &[String],
        port: u16,
        log: &Path,
    ) -> Result<Server> {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .attempt(|| format!("write the log {}", log.display()))?;
        let err = out.try_clone().attempt(|| format!("write the log {}", log.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .attempt(|| format!("start {}", program.display()))?;
        let command =
            std::iter::once(program.display().to_string()).chain(arguments.iter().cloned()).collect();
        Ok(Server { name, command, child, port, log: log.to_owned() })
    }

    /// Starts Debian's redis-server without persistence.
    pub fn start_redis(program: &Path, directory: &Path) -> Result<Server> {
        Server::start_redis_with(program, &[], directory)
    }

    /// The same with more settings.
    pub fn start_redis_with(program: &Path, settings: &[&str], directory: &Path) -> Result<Server> {
        let port = free_port()?;
        let directory_text = directory.display().to_string();
        let arguments = [
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            // Otherwise DEBUG SLEEP is refused.
            "--enable-debug-command",
            "yes",
            "--dir",
            &directory_text,
        ];
        let arguments: Vec<String> =
            arguments.iter().chain(settings).map(|&argument| argument.to_owned()).collect();
        Server::start("redis-server", program, &arguments, port, &directory.join("redis.log"))
    }

    /// Starts Debian's memcached with 64 MiB on this port.
    pub fn start_memcached(program: &Path, port: u16, more: &[&str], directory: &Path) -> Result<Server> {
        let number = port.to_string();
        let arguments = ["-p", &number, "-l", "127.0.0.1", "-U", "0", "-u", "root", "-m", "64", "-t", "2"];
        let arguments: Vec<String> =
            arguments.iter().chain(more).map(|&argument| argument.to_owned()).collect();
        Server::start("memcached", program, &arguments, port, &directory.join("memcached.log"))
    }

    /// Starts `duramen serve` with these settings.
    pub fn start_duramen(program: &Path, settings: &[&str], log: &Path) -> Result<Server> {
        let port = free_port()?;
        let mut arguments = vec!["serve".to_owned()];
        arguments.extend(["--port", &port.to_string(), "--bind", "127.0.0.1"].map(str::to_owned));
        arguments.extend(settings.iter().map(|&setting| setting.to_owned()));
        Server::start("duramen", program, &arguments, port, log)
    }

    /// The time that its threads have run on processors.
    ///
    /// # Errors
    /// When the kernel does not provide it.
    pub fn cpu_time(&self) -> Result<Duration> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let mut nanos = 0;
        for task in std::fs::read_dir(&tasks).attempt(|| format!("list {tasks}"))? {
            // A thread may end meanwhile.
            let Some(path) = task.ok().map(|task| task.path().join("schedstat")) else { continue };
            let text = std::fs::read_to_string(path).unwrap_or_default();
            nanos += text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// The program and its arguments.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The private memory of the process, in KiB: the store's is shared.
    pub fn resident_kib(&self) -> Result<u64> {
        self.status_kib("RssAnon:")
    }

    /// The memory of its files that the process has mapped and that is resident, in KiB.
    pub fn shared_kib(&self) -> Result<u64> {
        Ok(self.shm_kib()? + self.status_kib("RssFile:")?)
    }

    /// That part of it which lies in memory file systems and takes memory of the machine: a store on shm.
    pub fn shm_kib(&self) -> Result<u64> {
        self.status_kib("RssShmem:")
    }

    fn status_kib(&self, field: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).attempt(|| format!("read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok());
        kib.ok_or_else(|| Failure::new(format!("{path} has no line {field} in kB")))
    }

    /// Opens a new client connection.
    pub fn connect(&self) -> Result<Connection> {
        Connection::open(self.port).attempt(|| format!("connect to {} on port {}", self.name, self.port))
    }

    /// Waits until the server answers PING.
    pub fn wait_ready(&mut self, patience: Duration) -> Result<Readiness> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().attempt(|| format!("wait for {}", self.name))? {
                return Ok(Readiness::Exited(status));
            }
            if let Ok(mut connection) = Connection::open(self.port)
                && let Ok(reply) = connection.call(&["PING"], Duration::from_secs(1))
                && reply.kind() == b'+'
            {
                return Ok(Readiness::Ready);
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(Readiness::Silent)
    }

    /// Waits until the server accepts a connection, in any protocol.
    pub fn demand_connects(&self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while let Err(failure) = self.connect() {
            if Instant::now() >= deadline {
                return Err(failure);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// As [`Server::wait_ready`]; any result but readiness is a failure that shows the end of the log.
    pub fn demand_ready(&mut self, patience: Duration) -> Result<()> {
        match self.wait_ready(patience)? {
            Readiness::Ready => Ok(()),
            other => Err(Failure::new(format!(
                "{} did not come up on port {} ({other}); its last words:\n{}",
                self.name,
                self.port,
                self.last_words()
            ))),
        }
    }

    /// The end of its output.
    pub fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) -> Result<()> {
        // Fails only if the process is gone already.
        let _ = self.child.kill();
        self.child.wait().attempt(|| format!("wait for {}", self.name))?;
        Ok(())
    }

    /// Sends SIGTERM, and waits for the clean end.
    pub fn terminate(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                .attempt(|| format!("send SIGTERM to {}", self.name))?;
        }
        wait_for_end(&mut self.child, patience).attempt(|| format!("wait for {}", self.name))
    }

    /// The exit status, if the process has ended.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().attempt(|| format!("wait for {}", self.name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the process ends; `None` if it has not ended in time.
pub fn wait_for_end(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + patience;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() > deadline {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// A port on which nobody listened a moment ago.
pub fn free_port() -> Result<u16> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).attempt(|| "find a free port on loopback".to_owned())?;
    let address = listener.local_addr().attempt(|| "find a free port on loopback".to_owned())?;
    Ok(address.port())
}

/// The `duramen` program: the given one, or one built now in the directory of this program.
pub fn duramen_program(given: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path);
    }
    let own = std::env::current_exe().attempt(|| "find this program's own path".to_owned())?;
    // TARGET/debug/xtask: the directory names the profile, its parent is the target directory.
    let (Some(profile), Some(target)) = (own.parent(), own.parent().and_then(Path::parent)) else {
        return Err(Failure::new(format!("cannot find the target directory from {}", own.display())));
    };
    let mut build = cargo(&crate::repository());
    // As `.ci/run` builds the tests, so that the same build is used.
    build.args(["build", "--quiet", "--workspace", "--features", "bench,sql"]);
    build.args(["--bin", "duramen", "--target-dir"]).arg(target);
    if profile.file_name().is_some_and(|name| name == "release") {
        build.arg("--release");
    }
    let status = build.status().attempt(|| "run cargo build --bin duramen".to_owned())?;
    if !status.success() {
        return Err(Failure::new("cannot build the duramen program: cargo build failed"));
    }
    Ok(profile.join("duramen"))
}

/// The `duramen` program for measurements: the given one, or one built now with optimisation and these features.
pub fn release_program(repository: &Path, given: Option<PathBuf>, features: &str) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path);
    }
    let built = cargo(repository)
        .args(["build", "--release", "--package", "duramen-cli", "--features", features])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .attempt(|| "run cargo build --release --package duramen-cli".to_owned())?;
    if !built.status.success() {
        return Err(Failure::new("cannot build the duramen program: cargo build --release failed"));
    }
    let text = String::from_utf8_lossy(&built.stdout);
    let executable = text.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(PathBuf::from(rest.split('"').next()?))
    });
    executable.ok_or_else(|| Failure::new("cargo built no program duramen"))
}

/// A program of `PATH`, by name.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(name)).find(|path| path.is_file())
}
