//! `cargo xtask package-life`: the life of Debian's package in a clean Debian, with systemd as its first process.
//!
//! 1. Installed, the service runs as its user, with the unit's restrictions, and reports when it is ready.
//! 2. 1,000 acknowledged keys are there after `kill -9` of the server, which systemd starts again.
//! 3. The upgrade to a second revision restarts the service over the same store; a configuration that the administrator
//!    changed stays, and a service that the administrator disabled stays disabled.
//! 4. Removal keeps configuration and data, and the next installation finds both.
//! 5. A purge keeps the data unless the question is answered with yes; then nothing is left of the package.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::files::Input;
use super::machine::{self, Machine};
use super::program::{self, Processor};
use super::release::Release;
use super::sbom::Sbom;
use super::{debian, files};
use crate::failure::{Attempt, Failure, Result};
use crate::target::target;

#[derive(clap::Args)]
pub struct Settings {
    /// A static program that was built before [default: built now]
    #[arg(long, value_name = "PATH")]
    duramen: Option<PathBuf>,
    /// The release of Debian
    #[arg(long, default_value = "bookworm")]
    suite: String,
}

const KEYS: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends lines to the server and prints a line for each reply: a value's text, a list's texts, or the line itself.
const ASK: &str = r#"exec 3<>/dev/tcp/127.0.0.1/6379
for line; do
    printf '%s\r\n' "$line" >&3
    IFS= read -r -t 20 reply <&3
    case $reply in
    '$-1'*) ;;
    '$'*) IFS= read -r -t 20 reply <&3 ;;
    '*'*)
        count=${reply:1:-1} all=
        while [ $((count--)) -gt 0 ]; do
            read -r -t 20 <&3
            IFS= read -r -t 20 reply <&3
            all="$all ${reply%?}"
        done
        reply="${all# }." ;;
    esac
    printf '%s\n' "${reply%?}"
done"#;

/// Runs all steps; the first that fails ends the run.
pub fn run(repository: &Path, settings: Settings) -> Result<bool> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("package-life mounts and boots a system: run it as root"));
    }
    let processor = Processor::here().ok_or_else(|| Failure::new("no packages for this processor"))?;
    let program = match settings.duramen {
        Some(path) => path,
        None => program::build(repository, processor)?,
    };
    let scratch = tempfile::tempdir().attempt(|| "make a directory".to_owned())?;
    let sbom = Sbom::of(repository, processor)?;
    let package = |revision: &str| -> Result<PathBuf> {
        let release = Release::of(repository, revision)?;
        let input =
            Input { repository, release: &release, program: &program, runnable: &program, sbom: &sbom };
        let tree = scratch.path().join(format!("tree-{revision}"));
        files::write(&tree, &input)?;
        let package = scratch.path().join(format!("duramen-{revision}.deb"));
        debian::write(&input, processor, &tree, &package)?;
        Ok(package)
    };
    let (first, second) = (package("1")?, package("2")?);
    let base = machine::base(&target(repository, "package-life")?, &settings.suite)?;
    let machine = Machine::boot(&base, &scratch.path().join("root"))?;
    let system = System { machine: &machine };
    let (first, second) = (machine.put(&first)?, machine.put(&second)?);
    system.live(&first, &second)?;
    Ok(true)
}

struct System<'a> {
    machine: &'a Machine,
}

impl System<'_> {
    fn live(&self, first: &str, second: &str) -> Result<()> {
        let before = self.files()?;
        self.install(first)?;
        self.demand("systemctl is-enabled --quiet duramen", "enabled")?;
        self.demand(
            "test \"$(stat -c %U:%a /var/lib/duramen)\" = duramen:750",
            "the state directory is private",
        )?;
        self.demand(
            "test \"$(stat -c %U:%G:%a /etc/duramen/duramen.conf)\" = root:duramen:640",
            "so is the file",
        )?;
        let owner = "test \"$(stat -c %U /proc/$(systemctl show -P MainPID duramen))\" = duramen";
        self.demand(owner, "it runs as its user")?;
        self.demand("man -w duramen duramen-serve duramen.conf", "man pages")?;
        println!("installed: {}", self.restrictions()?);

        let sets: Vec<String> = (0..KEYS).map(|key| format!("SET key:{key} value:{key}")).collect();
        let replies = self.ask(&sets)?;
        if replies.lines().filter(|line| *line == "+OK").count() != KEYS {
            return Err(Failure::new(format!("not every SET is answered with OK: {replies}")));
        }
        let pid = self.main_pid()?;
        self.machine.run(&["systemctl", "kill", "--signal=KILL", "duramen"])?;
        self.await_restart(&pid)?;
        self.demand_data("after kill -9, and the restart by systemd")?;

        self.demand("echo 'maxclients 9000' >> /etc/duramen/duramen.conf", "a changed configuration")?;
        let pid = self.main_pid()?;
        self.install(second)?;
        self.await_restart(&pid)?;
        self.demand_data("after the upgrade over the running server")?;
        let found = self.ask(&["CONFIG GET maxclients".to_owned()])?;
        if found != "maxclients 9000" {
            return Err(Failure::new(format!(
                "the changed configuration: CONFIG GET maxclients answers {found}"
            )));
        }

        self.demand("systemctl disable --now --quiet duramen", "disabled")?;
        self.install_without_start(first)?;
        self.demand("! systemctl is-enabled --quiet duramen", "it stays disabled")?;
        self.demand("! systemctl is-active --quiet duramen", "and is not started")?;
        self.demand("systemctl enable --now --quiet duramen", "enabled again")?;
        self.demand_data("after the installation of the older revision")?;

        self.machine.run(&["dpkg", "--remove", "duramen"])?;
        self.demand("test ! -e /usr/bin/duramen && ! systemctl is-active --quiet duramen", "removed")?;
        self.demand(
            "test -s /var/lib/duramen/store && grep -q 9000 /etc/duramen/duramen.conf",
            "data stays",
        )?;
        self.install(second)?;
        self.demand_data("after removal and installation")?;

        self.machine.run(&["dpkg", "--purge", "duramen"])?;
        self.demand("test -s /var/lib/duramen/store && test ! -e /etc/duramen", "a purge keeps the data")?;
        self.install(second)?;
        self.demand_data("after a purge that kept the data")?;

        let answer = "echo 'duramen duramen/purge_data boolean true' | debconf-set-selections";
        self.demand(answer, "the answer: delete")?;
        self.machine.run(&["dpkg", "--purge", "duramen"])?;
        self.demand("! getent passwd duramen && ! getent group duramen", "no user")?;
        let after = self.files()?;
        let left: Vec<&String> = after.difference(&before).collect();
        if !left.is_empty() {
            return Err(Failure::new(format!("the purge left {left:?}")));
        }
        println!("purged: nothing is left in {} files", after.len());
        Ok(())
    }

    /// Installs a package, and waits until the service is active.
    fn install(&self, package: &str) -> Result<()> {
        self.install_without_start(package)?;
        self.demand("systemctl is-active --quiet duramen", &format!("{package} runs"))?;
        self.demand("duramen ping", "and answers")
    }

    fn install_without_start(&self, package: &str) -> Result<()> {
        self.machine.run(&["dpkg", "--install", package]).map(drop)
    }

    /// A command of the shell must succeed; else the failure shows the service's state.
    fn demand(&self, command: &str, what: &str) -> Result<()> {
        if self.machine.is_true(&["sh", "-c", command])? {
            return Ok(());
        }
        let state = "systemctl status --no-pager --full duramen; journalctl --no-pager -n 30 -u duramen";
        let state = self.machine.command(&["sh", "-c", state])?.output();
        let state = state.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        Err(Failure::new(format!("{what}: `{command}` failed\n{}", state.unwrap_or_default())))
    }

    fn ask(&self, lines: &[String]) -> Result<String> {
        let mut words = vec!["bash", "-c", ASK, "ask"];
        words.extend(lines.iter().map(String::as_str));
        self.machine.run(&words)
    }

    fn main_pid(&self) -> Result<String> {
        self.machine.run(&["systemctl", "show", "--property=MainPID", "--value", "duramen"])
    }

    /// Waits until the service runs as another process.
    fn await_restart(&self, before: &str) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let pid = self.main_pid()?;
            let is_active = self.machine.is_true(&["systemctl", "is-active", "--quiet", "duramen"])?;
            if is_active && pid != before && pid != "0" {
                return Ok(());
            }
            if Instant::now() > until {
                return self.demand("false", "the service does not restart");
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn demand_data(&self, when: &str) -> Result<()> {
        let gets: Vec<String> = (0..KEYS).map(|key| format!("GET key:{key}")).collect();
        let wanted: Vec<String> = (0..KEYS).map(|key| format!("value:{key}")).collect();
        let found = self.ask(&gets)?;
        if found != wanted.join("\n") {
            return Err(Failure::new(format!("{when}: the keys are not as they were written: {found}")));
        }
        println!("{when}: all {KEYS} keys");
        Ok(())
    }

    /// What systemd says about the unit's restrictions.
    fn restrictions(&self) -> Result<String> {
        self.machine.run(&["systemd-analyze", "verify", "/usr/lib/systemd/system/duramen.service"])?;
        let table = self.machine.run(&["systemd-analyze", "--no-pager", "security", "duramen.service"])?;
        let line = table.lines().find(|line| line.contains("Overall exposure level"));
        let line = line.ok_or_else(|| Failure::new(format!("systemd-analyze security says {table}")))?;
        Ok(line.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).to_owned())
    }

    /// All files of the system but those that every installation changes.
    fn files(&self) -> Result<BTreeSet<String>> {
        const OTHERS: [&str; 12] = [
            "/proc/*",
            "/sys/*",
            "/dev/*",
            "/run/*",
            "/tmp/*",
            "/var/log/*",
            "/var/cache/*",
            "/var/lib/dpkg/*-old",
            "/var/lib/dpkg/lock*",
            "/var/lib/systemd/*",
            "/etc/*-",
            "/*.deb",
        ];
        let mut words = vec!["find", "/"];
        for path in OTHERS {
            words.extend(["-path", path, "-prune", "-o"]);
        }
        words.push("-print");
        Ok(self.machine.run(&words)?.lines().map(str::to_owned).collect())
    }
}
