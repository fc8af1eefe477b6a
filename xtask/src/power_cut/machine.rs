//! The machine whose power is cut: QEMU, its console, and the connection to the server inside.
//!
//! A power cut is SIGKILL to QEMU: the guest's processes, its kernel and its page cache are gone between two
//! instructions. The image of the emulated NVDIMM has all stores to it; the disk keeps the writes that [`super::disk`]
//! lets survive.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::kit::Kit;
use crate::failure::{Attempt, Failure, Result};
use crate::server::free_port;

/// How the guest's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Accelerator {
    /// By the processor
    Kvm,
    /// By translation, if there is no KVM
    Tcg,
}

impl Accelerator {
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Accelerator::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Accelerator::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }

    /// KVM if a guest prints something with it, else translation. Some hosts have a /dev/kvm with which no guest ever
    /// runs.
    pub fn detect(kit: &Kit) -> Result<Accelerator> {
        if File::options().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Accelerator::Tcg);
        }
        let boot = Boot { medium: "none", durability: "", fresh: false, storage: None };
        let mut machine = Machine::start(kit, Accelerator::Kvm, &boot, &kit.directory.join("kvm.log"))?;
        // 8 s: enough for translation to get there, and several times what KVM should need.
        let seen = machine.wait_for("@ up", Duration::from_secs(8));
        Ok(if matches!(seen, Heard::Line(_)) { Accelerator::Kvm } else { Accelerator::Tcg })
    }
}

/// The device that holds the store.
pub enum Storage {
    /// The image of an NVDIMM.
    Nvdimm { image: PathBuf, bytes: u64 },
    /// A disk, served at this Unix socket.
    Disk { socket: PathBuf },
}

/// The label area of the NVDIMM, which records its namespaces.
const LABEL_BYTES: u64 = 2 << 20;
/// The rest of the NVDIMM, a multiple of 16 MiB. 128 MiB: small enough that a store reuses its blocks many times.
const REGION_BYTES: u64 = 128 << 20;

impl Storage {
    /// A new NVDIMM, all zeros, in this file.
    pub fn nvdimm(image: PathBuf) -> Result<Storage> {
        let what = || format!("make the image {}", image.display());
        let bytes = REGION_BYTES + LABEL_BYTES;
        File::create(&image).attempt(what)?.set_len(bytes).attempt(what)?;
        Ok(Storage::Nvdimm { image, bytes })
    }
}

/// The task of the machine.
pub struct Boot<'a> {
    pub medium: &'a str,
    pub durability: &'a str,
    /// The medium must be formatted first.
    pub fresh: bool,
    pub storage: Option<&'a Storage>,
}

/// A running machine; its power is cut on drop.
pub struct Machine {
    child: Child,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    /// The console lines read so far; lines that nobody has requested yet are still in `lines`.
    heard: Vec<String>,
    port: u16,
    pub started: Instant,
}

/// The result of waiting for a line of the console.
pub enum Heard {
    Line(String),
    /// Another line that begins with "@" came first.
    Other(String),
    /// The machine has ended.
    End,
    Silence,
}

impl std::fmt::Display for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Heard::Line(line) | Heard::Other(line) => write!(f, "found {line:?} on its console"),
            Heard::End => f.write_str("it ended"),
            Heard::Silence => f.write_str("its console was silent until the timeout"),
        }
    }
}

impl Machine {
    /// Switches the machine on; the console is appended to `log`.
    pub fn start(kit: &Kit, accelerator: Accelerator, boot: &Boot<'_>, log: &Path) -> Result<Machine> {
        let port = free_port()?;
        let mut command = Command::new(&kit.setpriv);
        // The machine ends with this program, whatever ends that.
        command.args(["--pdeathsig", "KILL"]).arg(&kit.qemu);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        command.args(["-serial", "stdio", "-monitor", "none", "-machine", "q35,nvdimm=on"]);
        command.args(accelerator.arguments());
        command.args(["-smp", "1", "-m", "1G,slots=2,maxmem=8G"]);
        command.arg("-kernel").arg(&kit.kernel).arg("-initrd").arg(&kit.initramfs);
        let fresh = u8::from(boot.fresh);
        command.arg("-append").arg(format!(
            "console=ttyS0 quiet loglevel=3 panic=-1 no_timer_check duramen.medium={} duramen.durability={} duramen.fresh={fresh}",
            boot.medium, boot.durability
        ));
        command.arg("-netdev");
        command.arg(format!("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:6379"));
        command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        match boot.storage {
            Some(Storage::Nvdimm { image, bytes }) => {
                command.arg("-object").arg(format!(
                    "memory-backend-file,id=memory,share=on,mem-path={},size={bytes}",
                    image.display()
                ));
                command.arg("-device");
                command.arg(format!("nvdimm,id=nvdimm,memdev=memory,label-size={LABEL_BYTES}"));
            }
            Some(Storage::Disk { socket }) => {
                command.arg("-blockdev").arg(format!(
                    "driver=nbd,node-name=disk,server.type=unix,server.path={}",
                    socket.display()
                ));
                command.args(["-device", "virtio-blk-pci,drive=disk"]);
            }
            None => {}
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(append(log)?)
            .spawn()
            .attempt(|| format!("start {}", kit.qemu.display()))?;
        let (sender, lines) = channel();
        let mut copy = append(log)?;
        let console = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let Some(console) = console else { return };
            for line in BufReader::new(console).split(b'\n') {
                let Ok(line) = line else { return };
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                // The log is for people; a full disk must not end the machine.
                let _ = writeln!(copy, "{line}");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let reader = Some(reader);
        Ok(Machine { child, lines, reader, heard: Vec::new(), port, started: Instant::now() })
    }

    /// The port of the server inside, on this host.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits for a line with this beginning; another line that begins with "@" ends the wait.
    pub fn wait_for(&mut self, beginning: &str, patience: Duration) -> Heard {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let line = message_of(&line).to_owned();
                    self.heard.push(line.clone());
                    if line.starts_with(beginning) {
                        return Heard::Line(line);
                    }
                    if line.starts_with('@') {
                        return Heard::Other(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Heard::Silence,
                Err(RecvTimeoutError::Disconnected) => return Heard::End,
            }
        }
    }

    /// As [`Machine::wait_for`]; any other outcome is a failure that shows the console's last lines.
    pub fn demand(&mut self, beginning: &str, patience: Duration) -> Result<String> {
        match self.wait_for(beginning, patience) {
            Heard::Line(line) => Ok(line),
            other => Err(Failure::new(format!(
                "found no {beginning:?} on the console of the machine ({other}); it ends:\n{}",
                self.last_words()
            ))),
        }
    }

    /// The console's lines since the last one with this beginning, including it.
    pub fn heard_since(&self, beginning: &str) -> &[String] {
        let from = self.heard.iter().rposition(|line| line.starts_with(beginning)).unwrap_or(0);
        &self.heard[from..]
    }

    /// The last lines of the console.
    pub fn last_words(&mut self) -> String {
        self.heard.extend(self.lines.try_iter());
        self.heard[self.heard.len().saturating_sub(15)..].join("\n")
    }

    /// Whether the machine has ended without a cut.
    pub fn ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().attempt(|| "wait for QEMU".to_owned())?.is_some())
    }

    /// Cuts the power.
    pub fn cut(&mut self) -> Result<()> {
        // Fails only if the machine is gone already.
        let _ = self.child.kill();
        self.child.wait().attempt(|| "wait for QEMU".to_owned())?;
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.cut();
    }
}

fn append(log: &Path) -> Result<File> {
    File::options().create(true).append(true).open(log).attempt(|| format!("write the log {}", log.display()))
}

/// A line of the console without what a server's log has before its message: process, role, time and level.
fn message_of(line: &str) -> &str {
    let mut words = line.splitn(7, ' ');
    let is_process = |head: &str| {
        head.split_once(':').is_some_and(|(pid, role)| pid.parse::<u32>().is_ok() && role.len() == 1)
    };
    match (words.next(), words.nth(4), words.next()) {
        (Some(head), Some(level), Some(message)) if is_process(head) && level.len() == 1 => message,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_begins_after_the_head_of_a_log_line() {
        let said = "126:M 01 Dec 2026 02:55:47.340 * listening: 0.0.0.0:6379";
        assert_eq!(message_of(said), "listening: 0.0.0.0:6379");
        for line in ["@ serving", "", "a b c d e f g", "12:34 a b c d e f"] {
            assert_eq!(message_of(line), line);
        }
    }
}
