//! One store on one medium: load, cut, boot and compare, in a loop.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::disk::{Disk, Loss};
use super::kit::Kit;
use super::machine::{Accelerator, Boot, Heard, Machine, Storage};
use super::{Fault, Settings};
use crate::failure::{Attempt, Failure, Result};
use crate::random::Random;
use crate::torture::history::{self, Promise, Violation};
use crate::torture::witness::{PATIENCE, Witness};
use duramen_resp::{Connection, Reply};

/// Longest time for a machine to boot. Translated instructions are slow on a busy host.
pub const BOOT_PATIENCE: Duration = Duration::from_secs(120);
const BOOTS_MAX: u32 = 4;
/// Room for ext4 and a store of a few MiB that grows by steps.
const DISK_BYTES: u64 = 192 << 20;

/// The medium of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Medium {
    /// /dev/dax0.0
    Devdax,
    /// A file on ext4 mounted with -o dax
    Fsdax,
    /// A file on ext4 on a disk with a write cache
    File,
}

impl Medium {
    pub fn name(self) -> &'static str {
        match self {
            Medium::Devdax => "devdax",
            Medium::Fsdax => "fsdax",
            Medium::File => "file",
        }
    }

    /// The beginning of the server's line about its medium when it detected the kind without an option.
    fn greeting(self) -> &'static str {
        match self {
            Medium::Devdax => "medium: devdax /dev/dax0.0, ",
            Medium::Fsdax => "medium: fsdax /store/store, ",
            Medium::File => "medium: file /store/store, ",
        }
    }

    /// The granularity that follows from the flush instruction in that line. An instruction that flushes lines is used
    /// only on cache line media; on media of granularity byte it would be "order only".
    pub fn granularity(self, greeting: &str) -> Option<&'static str> {
        let mut fields = greeting.strip_prefix(self.greeting())?.split([',', ';']).skip(1);
        match (self, fields.next()?.split_whitespace().next()?) {
            (Medium::File, "write-back") => Some("page"),
            (Medium::Devdax | Medium::Fsdax, "clwb" | "clflushopt" | "clflush") => Some("cache line"),
            _ => None,
        }
    }
}

/// When the server acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Durability {
    /// No acknowledged write may be lost
    EveryWrite,
    /// Epochs of 50 ms: a prefix survives, with all that SAVE kept
    Interval,
}

impl Durability {
    pub fn name(self) -> &'static str {
        match self {
            Durability::EveryWrite => "every-write",
            Durability::Interval => "interval",
        }
    }

    fn directive(self) -> &'static str {
        match self {
            Durability::EveryWrite => "every-write",
            Durability::Interval => "50ms",
        }
    }

    fn promise(self) -> Promise {
        let each = self == Durability::EveryWrite;
        Promise { on_acknowledge: each, prefix: !each }
    }
}

/// The results of all cuts.
#[derive(Default)]
pub struct Tally {
    pub cuts: u64,
    /// Cuts while the store was created or recovered.
    pub cuts_starting: u64,
    pub acknowledged: u64,
    pub reads: u64,
    pub violations: Vec<Violation>,
    /// From power on to the start of the server, or of the check before it.
    pub boots: Vec<Duration>,
    /// From the start of the server to its first answer.
    pub starts: Vec<Duration>,
    /// As measured by the store itself.
    pub recoveries: Vec<Duration>,
    /// Sectors that the disk's cache lost.
    pub sectors_lost: u64,
    /// The server's line about its medium.
    pub greeting: String,
    /// The directory of the image and the console's log of a store with a finding.
    pub kept: Option<PathBuf>,
}

impl Tally {
    pub fn count(&self, fault: history::Fault) -> usize {
        self.violations.iter().filter(|violation| violation.fault == fault).count()
    }
}

/// Runs the cuts of one medium and durability; stops at the first cut with a finding.
pub fn run(
    kit: &Kit,
    accelerator: Accelerator,
    settings: &Settings,
    medium: Medium,
    durability: Durability,
) -> Result<Tally> {
    let directory = tempfile::Builder::new()
        .prefix("run-")
        .tempdir_in(&kit.directory)
        .attempt(|| format!("make a directory in {}", kit.directory.display()))?;
    let path = directory.path();
    let (storage, disk) = match medium {
        Medium::File => {
            let (image, socket) = (path.join("disk.raw"), path.join("disk.socket"));
            let disk = Disk::new(&image, &socket, DISK_BYTES, settings.fault == Some(Fault::Disk))?;
            (Storage::Disk { socket }, Some(disk))
        }
        _ => (Storage::nvdimm(path.join("nvdimm.raw"))?, None),
    };
    let mut arena = Arena {
        kit,
        accelerator,
        settings,
        medium,
        durability,
        storage,
        disk,
        log: path.join("console.log"),
        random: Random::new(settings.seed ^ ((medium as u64) << 8) ^ durability as u64),
        witness: Witness::new(durability.promise(), settings.writers),
        fresh: true,
        made: false,
        tally: Tally::default(),
    };
    let outcome = arena.cuts();
    let mut tally = arena.tally;
    for (acknowledged, reads) in arena.witness.histories.iter().map(history::History::counts) {
        tally.acknowledged += acknowledged;
        tally.reads += reads;
    }
    if outcome.is_err() || !tally.violations.is_empty() {
        tally.kept = Some(directory.keep());
    }
    match (outcome, &tally.kept) {
        (Err(failure), Some(kept)) => {
            Err(Failure::new(format!("{failure}\nimage and console are kept in {}", kept.display())))
        }
        _ => Ok(tally),
    }
}

struct Arena<'a> {
    kit: &'a Kit,
    accelerator: Accelerator,
    settings: &'a Settings,
    medium: Medium,
    durability: Durability,
    storage: Storage,
    disk: Option<Disk>,
    log: PathBuf,
    random: Random,
    witness: Witness,
    /// The medium is not formatted yet.
    fresh: bool,
    /// A server has answered on this store: from now on the store must open.
    made: bool,
    tally: Tally,
}

/// The outcome of a step.
enum Step {
    Done,
    /// There is a finding, and it is in the tally.
    Found,
}

impl Arena<'_> {
    fn cuts(&mut self) -> Result<()> {
        for number in 1..=self.settings.cuts {
            // Always for a new store: during creation crashes are least expected.
            if (!self.made || self.random.one_in(5))
                && let Step::Found = self.cut_while_starting()?
            {
                return Ok(());
            }
            let acknowledged = self.acknowledged();
            let Some(mut machine) = self.start()? else { return Ok(()) };
            if let Step::Found = self.verify(&mut machine)? {
                return Ok(());
            }
            // A clean end in between: the store is then also closed and opened again, not only recovered.
            if self.random.one_in(3)
                && let Step::Found = self.restart_server(&mut machine)?
            {
                return Ok(());
            }
            let working = Duration::from_millis(300 + self.random.below(2200));
            let loss = self.load_and_cut(machine, working)?;
            self.tally.cuts += 1;
            self.print_cut(number, acknowledged, working, loss);
            if !self.tally.violations.is_empty() {
                return Ok(());
            }
        }
        let Some(mut machine) = self.start()? else { return Ok(()) };
        if let Step::Done = self.verify(&mut machine)? {
            self.restart_server(&mut machine)?;
        }
        self.cut(machine).map(|_| ())
    }

    fn acknowledged(&self) -> u64 {
        self.witness.histories.iter().map(|history| history.counts().0).sum()
    }

    fn print_cut(&self, number: u64, acknowledged_before: u64, working: Duration, loss: Option<Loss>) {
        let last = |durations: &[Duration]| durations.last().copied().unwrap_or_default();
        let disk = loss.map_or_else(String::new, |loss| {
            format!(
                "; the disk lost {} of {} cached sectors after {} flushes",
                loss.lost, loss.cached, loss.flushes
            )
        });
        println!(
            "{} {} cut {number}: up after {:.1} s, ready after {:.2} s (recovery {:.1} ms), {} acknowledged in {:.2} s{disk}",
            self.medium.name(),
            self.durability.name(),
            last(&self.tally.boots).as_secs_f64(),
            last(&self.tally.starts).as_secs_f64(),
            last(&self.tally.recoveries).as_secs_f64() * 1000.0,
            self.acknowledged() - acknowledged_before,
            working.as_secs_f64(),
        );
    }

    fn found(&mut self, fault: history::Fault, what: String) -> Step {
        self.tally.violations.push(Violation { fault, what });
        Step::Found
    }

    /// The store misbehaved: adds a violation with the console's last lines.
    fn refused(&mut self, machine: &mut Machine, what: &str) -> Step {
        let words = machine.last_words();
        self.found(history::Fault::Refused, format!("{what}; the console ends:\n{words}"))
    }

    /// Switches a machine on, and waits until its kernel runs. On a busy host a kernel may fail before that, without
    /// having seen the medium; then tries once more.
    fn power_on(&mut self) -> Result<Machine> {
        for _ in 1..BOOTS_MAX {
            let mut machine = self.power_on_once()?;
            if let Heard::Line(_) = machine.wait_for("@ up", BOOT_PATIENCE) {
                return Ok(machine);
            }
            self.cut(machine)?;
        }
        let mut machine = self.power_on_once()?;
        machine.demand("@ up", BOOT_PATIENCE)?;
        Ok(machine)
    }

    fn power_on_once(&mut self) -> Result<Machine> {
        if let Some(disk) = &mut self.disk {
            disk.serve()?;
        }
        let durability = match self.settings.fault {
            Some(Fault::Server) => "manual",
            _ => self.durability.directive(),
        };
        let boot =
            Boot { medium: self.medium.name(), durability, fresh: self.fresh, storage: Some(&self.storage) };
        Machine::start(self.kit, self.accelerator, &boot, &self.log)
    }

    /// Switches a machine on, and waits until the server starts. `None`: there is a finding.
    fn boot(&mut self) -> Result<Option<Machine>> {
        let mut machine = self.power_on()?;
        let (first, then) = if self.fresh { ("@ serving", None) } else { ("@ checking", Some("@ checked")) };
        let heard = machine.wait_for(first, BOOT_PATIENCE);
        self.tally.boots.push(machine.started.elapsed());
        if !matches!(heard, Heard::Line(_)) {
            // The first boot only makes the file system; a failure of that is not the store's fault.
            if self.fresh {
                return Err(Failure::new(format!(
                    "the machine did not attach the medium ({heard}); its console ends:\n{}",
                    machine.last_words()
                )));
            }
            self.refused(&mut machine, "the medium was not attached again");
            return self.cut(machine).map(|_| None);
        }
        self.fresh = false;
        if let Some(then) = then {
            if let Step::Found = self.check(&mut machine, then)? {
                return self.cut(machine).map(|_| None);
            }
            machine.demand("@ serving", BOOT_PATIENCE)?;
        }
        Ok(Some(machine))
    }

    /// Waits for the end of `duramen check`, which must find the store sound.
    fn check(&mut self, machine: &mut Machine, then: &str) -> Result<Step> {
        let line = machine.demand(then, BOOT_PATIENCE)?;
        let sound = machine.heard_since("@ checking").iter().any(|line| line.ends_with("; sound"));
        // After a cut during creation there may be no store yet.
        if self.made && !(line == "@ checked 0" && sound) {
            return Ok(self.refused(machine, &format!("duramen check finds damage in the store ({line})")));
        }
        Ok(Step::Done)
    }

    /// Switches a machine on, and waits until its server answers. `None`: there is a finding.
    fn start(&mut self) -> Result<Option<Machine>> {
        let Some(mut machine) = self.boot()? else { return Ok(None) };
        match self.wait_ready(&mut machine)? {
            Step::Done => Ok(Some(machine)),
            Step::Found => self.cut(machine).map(|_| None),
        }
    }

    fn wait_ready(&mut self, machine: &mut Machine) -> Result<Step> {
        let begun = Instant::now();
        let heard = machine.wait_for("listening: ", PATIENCE);
        if !matches!(heard, Heard::Line(_)) {
            return Ok(self.refused(machine, &format!("the store did not open again ({heard})")));
        }
        let lines = machine.heard_since("@ serving");
        self.tally.greeting =
            lines.iter().find(|line| line.starts_with("medium: ")).cloned().unwrap_or_default();
        let mut connection = loop {
            if let Ok(mut connection) = Connection::open(machine.port())
                && connection.call(&["PING"], Duration::from_secs(2)).is_ok_and(|reply| reply.kind() == b'+')
            {
                break connection;
            }
            if machine.ended()? || begun.elapsed() > PATIENCE {
                return Ok(self.refused(machine, "the server listens but does not answer"));
            }
            thread::sleep(Duration::from_millis(10));
        };
        self.tally.starts.push(begun.elapsed());
        self.made = true;
        self.learn(&mut connection)
    }

    /// Asks the server for its clock, its medium and its recovery time.
    fn learn(&mut self, connection: &mut Connection) -> Result<Step> {
        self.witness.set_clock_ahead(clock_ahead(connection)?);
        let info = connection
            .call(&["INFO", "duramen"], PATIENCE)
            .map_err(|ended| Failure::new(format!("INFO got no reply: {ended:?}")))?;
        let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let nanos = field("duramen_recovery_nanos").and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        self.tally.recoveries.push(Duration::from_nanos(nanos));
        if self.medium.granularity(&self.tally.greeting).is_none() {
            let what = format!(
                "found {:?} in the log of the server, wanted {:?} and the flush instruction of its granularity",
                self.tally.greeting,
                self.medium.greeting()
            );
            return Ok(self.found(history::Fault::Refused, what));
        }
        Ok(Step::Done)
    }

    /// Cuts the power once or twice while the store is created or recovered.
    fn cut_while_starting(&mut self) -> Result<Step> {
        for _ in 0..1 + self.random.below(2) {
            let Some(machine) = self.boot()? else { return Ok(Step::Found) };
            // From before the program is loaded to some time after it listens.
            thread::sleep(Duration::from_millis(self.random.below(400)));
            self.cut(machine)?;
            self.tally.cuts += 1;
            self.tally.cuts_starting += 1;
        }
        Ok(Step::Done)
    }

    fn verify(&mut self, machine: &mut Machine) -> Result<Step> {
        let mut violations = self.witness.verify(machine.port())?;
        let found = !violations.is_empty();
        self.tally.violations.append(&mut violations);
        Ok(if found { Step::Found } else { Step::Done })
    }

    /// Shuts the server down cleanly, checks the store, restarts the server and compares again.
    fn restart_server(&mut self, machine: &mut Machine) -> Result<Step> {
        let mut connection =
            Connection::open(machine.port()).attempt(|| "connect to the server".to_owned())?;
        // A successful SHUTDOWN closes the connection without a reply.
        let _ = connection.call(&["SHUTDOWN"], PATIENCE);
        let served = machine.demand("@ served", PATIENCE)?;
        if served != "@ served 0" {
            return Ok(self.refused(machine, &format!("the server did not end cleanly ({served})")));
        }
        machine.demand("@ checking", PATIENCE)?;
        if let Step::Found = self.check(machine, "@ checked")? {
            return Ok(Step::Found);
        }
        machine.demand("@ serving", PATIENCE)?;
        match self.wait_ready(machine)? {
            Step::Done => self.verify(machine),
            Step::Found => Ok(Step::Found),
        }
    }

    fn load_and_cut(&mut self, mut machine: Machine, working: Duration) -> Result<Option<Loss>> {
        let commits = self.durability == Durability::Interval;
        let (port, disk) = (machine.port(), self.disk.as_ref());
        let ended = self.witness.write(port, None, &mut self.random, commits, || -> Result<bool> {
            thread::sleep(working);
            let ended = machine.ended();
            disk.iter().for_each(|disk| disk.cut_power());
            // This also ends the writers, whatever happened before.
            machine.cut()?;
            ended
        })?;
        self.tally.violations.append(&mut self.witness.take_violations());
        if ended {
            self.refused(&mut machine, "the machine ended under load, before the cut");
        }
        self.cut(machine)
    }

    /// Cuts the power; for a disk, returns the losses of its cache.
    fn cut(&mut self, mut machine: Machine) -> Result<Option<Loss>> {
        self.disk.iter().for_each(Disk::cut_power);
        machine.cut()?;
        let Some(disk) = &mut self.disk else { return Ok(None) };
        let loss = disk.lose_cache(&mut self.random)?;
        self.tally.sectors_lost += loss.lost;
        Ok(Some(loss))
    }
}

/// How many milliseconds the server's clock is ahead of the local one, by the fastest of several replies.
fn clock_ahead(connection: &mut Connection) -> Result<i64> {
    let mut best: Option<(Duration, i64)> = None;
    for _ in 0..8 {
        let (from, begun) = (history::now_ms(), Instant::now());
        let reply = connection
            .call(&["TIME"], PATIENCE)
            .map_err(|ended| Failure::new(format!("TIME got no reply: {ended:?}")))?;
        let took = begun.elapsed();
        let number = |at: usize| -> Option<i64> {
            let text = reply.items().and_then(|items| items.get(at)).and_then(Reply::text)?;
            std::str::from_utf8(text).ok()?.parse().ok()
        };
        let (Some(seconds), Some(micros)) = (number(0), number(1)) else {
            return Err(Failure::new("TIME was not answered by seconds and microseconds"));
        };
        let ahead = seconds * 1000 + micros / 1000 - (from as i64 + took.as_millis() as i64 / 2);
        if best.is_none_or(|(quickest, _)| took < quickest) {
            best = Some((took, ahead));
        }
    }
    Ok(best.map_or(0, |(_, ahead)| ahead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_has_the_kind_and_the_granularity_of_the_medium() {
        let line = "medium: fsdax /store/store, 16 MiB of at most 1 TiB, clwb (nt-avx2 from 256 bytes); an acknowledged \
                    write survives kill -9 and power failure";
        assert_eq!(Medium::Fsdax.granularity(line), Some("cache line"));
        assert_eq!(Medium::Devdax.granularity(line), None, "another kind");
        assert_eq!(Medium::Fsdax.granularity(&line.replace("clwb", "order only")), None, "no flushes");
        let line = "medium: file /store/store, 16 MiB of at most 1 TiB, write-back of pages; an acknowledged";
        assert_eq!(Medium::File.granularity(line), Some("page"));
    }
}
