//! The time that a command takes, and that another client waits meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cases::Case;
use super::template::{Line, Sender};
use crate::failure::{Attempt, Failure, Result};
use crate::server::Server;
use duramen_resp::{Connection, Ended, encode_command};

/// The servers that are compared.
pub struct Pair {
    pub subject: Server,
    pub reference: Server,
}

/// One quantity, measured on both servers.
#[derive(Clone, Copy)]
pub struct Both {
    pub ours: Duration,
    pub theirs: Duration,
}

/// The cost of a case at one n.
pub struct Cost {
    pub n: usize,
    pub time: Both,
    pub wait: Both,
}

/// A case whose rounds have taken longer than this gets no further round.
const ENOUGH: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(120);
/// Requested after the measured commands: its reply shows that all replies are there.
const END: &str = "the end of the command's text";
const BETWEEN_WAITS: Duration = Duration::from_micros(500);

impl Cost {
    /// Takes the lesser of each value.
    pub fn take_least(&mut self, other: &Cost) {
        for (mine, its) in [(&mut self.time, &other.time), (&mut self.wait, &other.wait)] {
            mine.ours = mine.ours.min(its.ours);
            mine.theirs = mine.theirs.min(its.theirs);
        }
    }
}

/// Measures a case on both servers in turn.
pub fn measure(pair: &Pair, case: &Case, n: usize, rounds: usize) -> Result<Cost> {
    let mut bytes = Vec::new();
    for line in case.ask {
        Line::of(line, n).commands.iter().for_each(|command| encode_command(&mut bytes, command));
    }
    encode_command(&mut bytes, &["ECHO", END]);
    let mut cost = Cost { n, time: NEVER, wait: NEVER };
    let mut subject = Prepared::new(&pair.subject, case, n)?;
    let mut reference = Prepared::new(&pair.reference, case, n)?;
    let begun = Instant::now();
    for round in 0..rounds {
        if round > 0 && begun.elapsed() > ENOUGH {
            break;
        }
        if round > 0 && case.is_anew {
            // The servers' data must be released before the same can be prepared.
            drop((subject, reference));
            subject = Prepared::new(&pair.subject, case, n)?;
            reference = Prepared::new(&pair.reference, case, n)?;
        }
        let ((our_time, our_wait), (their_time, their_wait)) =
            (subject.ask(&bytes, case)?, reference.ask(&bytes, case)?);
        let time = Both { ours: our_time, theirs: their_time };
        cost.take_least(&Cost { n, time, wait: Both { ours: our_wait, theirs: their_wait } });
    }
    Ok(cost)
}

const NEVER: Both = Both { ours: Duration::MAX, theirs: Duration::MAX };

/// A server with a case's data.
struct Prepared<'s> {
    server: &'s Server,
    own: Connection,
    /// Other connections that wait, listen or are only open.
    _others: Vec<Connection>,
}

impl<'s> Prepared<'s> {
    fn new(server: &'s Server, case: &Case, n: usize) -> Result<Self> {
        let mut own = server.connect()?;
        let reset = [
            &["FLUSHALL"][..],
            &["CONFIG", "SET", "notify-keyspace-events", ""],
            &["SLOWLOG", "RESET"],
            &["HELLO", "3"],
        ];
        for command in reset {
            own.call(command, PATIENCE).map_err(|ended| failed(server, case, &ended))?;
        }
        let mut prepared = Self { server, own, _others: Vec::new() };
        for line in case.fill {
            let line = Line::of(line, n);
            match line.sender {
                Sender::Own => prepared.fill(case, &line.commands)?,
                Sender::Clients => prepared.connect(case, &line.commands, true)?,
                Sender::Blocked => prepared.connect(case, &line.commands, false)?,
            }
        }
        Ok(prepared)
    }

    fn fill(&mut self, case: &Case, commands: &[Vec<String>]) -> Result<()> {
        for commands in commands.chunks(1_000) {
            let mut bytes = Vec::new();
            commands.iter().for_each(|command| encode_command(&mut bytes, command));
            encode_command(&mut bytes, &["ECHO", END]);
            let received = exchange(&mut self.own, &bytes, self.server, case)?;
            demand_no_error(&received, self.server, case)?;
        }
        Ok(())
    }

    fn connect(&mut self, case: &Case, commands: &[Vec<String>], is_answered: bool) -> Result<()> {
        for command in commands {
            let mut connection = self.server.connect()?;
            // With RESP2 redis-server sends no invalidations.
            connection.call(&["HELLO", "3"], PATIENCE).map_err(|ended| failed(self.server, case, &ended))?;
            let sent = connection.send_command(command);
            sent.attempt(|| format!("send {} of '{}'", command[0], case.title()))?;
            if is_answered {
                connection.read(PATIENCE).map_err(|ended| failed(self.server, case, &ended))?;
            }
            self._others.push(connection);
        }
        if !is_answered {
            self.await_blocked(case, commands.len())?;
        }
        Ok(())
    }

    /// Waits until `count` clients are blocked.
    fn await_blocked(&mut self, case: &Case, count: usize) -> Result<()> {
        let wanted = format!("blocked_clients:{count}\r");
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let info = self.own.call(&["INFO", "clients"], PATIENCE);
            let info = info.map_err(|ended| failed(self.server, case, &ended))?;
            if info.text().is_some_and(|text| String::from_utf8_lossy(text).contains(&wanted)) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(Failure::new(format!("'{}': found fewer blocked clients, wanted {count}", case.title())))
    }

    /// Sends the measured commands; returns their time, and how long another client waits meanwhile.
    fn ask(&mut self, bytes: &[u8], case: &Case) -> Result<(Duration, Duration)> {
        let mut other = self.server.connect()?;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !is_over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    if other.call(&["SET", "another client's", "value"], PATIENCE).is_err() {
                        return Duration::MAX;
                    }
                    longest = longest.max(begun.elapsed());
                    thread::sleep(BETWEEN_WAITS);
                }
                longest
            });
            // So that the waiting client is at work.
            thread::sleep(BETWEEN_WAITS * 4);
            let (begun, ran) = (Instant::now(), self.server.cpu_time());
            let asked = exchange(&mut self.own, bytes, self.server, case);
            let elapsed = begun.elapsed();
            is_over.store(true, Ordering::Relaxed);
            // On a busy machine a long command is interrupted; the server's running time is then the better measure.
            // The kernel updates it when a thread is at rest.
            thread::sleep(BETWEEN_WAITS * 2);
            let ran_then = self.server.cpu_time();
            let wait = waits.join().map_err(|_| Failure::new("the client that waits panicked"))?;
            demand_no_error(&asked?, self.server, case)?;
            Ok((elapsed.min(ran_then?.saturating_sub(ran?)), wait))
        })
    }
}

/// Sends commands and reads until the last one is answered; returns everything received.
fn exchange(own: &mut Connection, bytes: &[u8], server: &Server, case: &Case) -> Result<Vec<u8>> {
    own.send(bytes).attempt(|| format!("send '{}' to port {}", case.title(), server.port()))?;
    match own.read_all(PATIENCE, has_end) {
        Ended::Silent(bytes) if has_end(&bytes) => Ok(bytes),
        ended => Err(failed(server, case, &ended)),
    }
}

/// Whether the last reply is there. Invalidation messages for keys that the client has read may follow it.
fn has_end(received: &[u8]) -> bool {
    let end = format!("{END}\r\n");
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    // The whole text is searched only then, because a search takes time that would be measured.
    let is_told = || has(&received[received.len().saturating_sub(200)..], b"invalidate");
    received.ends_with(end.as_bytes()) || is_told() && has(received, end.as_bytes())
}

fn demand_no_error(received: &[u8], server: &Server, case: &Case) -> Result<()> {
    match error_at(received) {
        Some(at) => Err(failed(server, case, &Ended::Silent(received[at..].to_vec()))),
        None => Ok(()),
    }
}

fn error_at(received: &[u8]) -> Option<usize> {
    let begins = |two: &[u8]| two[0] == b'-' && two[1].is_ascii_uppercase();
    if received.get(..2).is_some_and(begins) {
        return Some(0);
    }
    received.windows(3).position(|three| three[0] == b'\n' && begins(&three[1..])).map(|at| at + 1)
}

fn failed(server: &Server, case: &Case, ended: &Ended) -> Failure {
    let bytes = ended.bytes();
    let shown = &bytes[..bytes.len().min(200)];
    Failure::new(format!(
        "'{}' on port {}: found {:?}, wanted a reply that is no error",
        case.title(),
        server.port(),
        String::from_utf8_lossy(shown)
    ))
}
