//! One connection: it reads a head, writes an answer, and reads the next one, each by a deadline.
//!
//! ```text
//!   Reading ──head──▶ Writing ──sent──▶ Reading        kept open
//!      │                 └──────sent──▶ Ending ──▶     closes after the answer
//!      └─ deadline: 408 if a part of a head has come, else closed
//! ```
//!
//! Before *Writing* comes *Working*, while another thread makes the answer, or *Holding*, after a wrong password.
//!
//! *Ending*: our side is shut down, and what the client still sends is read and dropped. If the socket were closed with
//! unread bytes, the kernel would reset the connection and the client might lose the answer.

use super::handler::{Answer, Site, Work};
use super::request::{HEAD_BYTES_MAX, Parsed, parse};
use super::response::{Response, Status};
use crate::net::Stream;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A head must be whole this long after its first byte.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// An answer must be read within this time.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// Between two requests. Prometheus asks every 15 to 60 seconds.
const IDLE_TIME_MAX: Duration = Duration::from_secs(150);
/// For work and for the answer to a wrong password. Both end earlier.
const WORK_TIME_MAX: Duration = Duration::from_secs(60);
/// After the last answer.
const END_TIME_MAX: Duration = Duration::from_secs(1);
/// Bytes that are dropped after the last answer.
const DROPPED_BYTES_MAX: usize = 1 << 20;

enum Phase {
    Reading,
    Working { is_head: bool, closes: bool },
    Holding { bytes: Vec<u8>, closes: bool },
    Writing { bytes: Vec<u8>, sent: usize, closes: bool },
    Ending { dropped: usize },
}

/// A client's connection.
pub struct Connection {
    /// Its socket.
    pub stream: Stream,
    client: IpAddr,
    phase: Phase,
    input: Vec<u8>,
    deadline: Instant,
    /// Since when it is idle, or sends this head, or reads this answer. Single bytes do not renew it.
    pub since: Instant,
}

/// What becomes of the connection.
pub enum Next {
    /// It waits for the client.
    Waits,
    /// It has been answered once, and may have sent another request: others come first.
    GoesOn,
    /// It waits for the response of this work, which [`Connection::worked`] takes.
    Works(Work),
    /// It is closed.
    Closes,
}

impl Connection {
    /// A new one.
    pub fn new(stream: Stream, client: IpAddr, now: Instant) -> Self {
        let deadline = now + HEAD_TIME_MAX;
        // The first request follows at once.
        Self { stream, client, phase: Phase::Reading, input: Vec::new(), deadline, since: now }
    }

    /// Whether it waits for work: there is a bound on how many do, and none gives its place away.
    pub const fn is_working(&self) -> bool {
        matches!(self.phase, Phase::Working { .. })
    }

    /// The response of its work is there.
    pub fn worked(&mut self, response: &Response, site: &dyn Site, now: Instant) -> Next {
        let Phase::Working { is_head, closes } = self.phase else { return Next::Waits };
        self.answer(response, is_head, closes, now);
        self.ready(site, now)
    }

    /// Its deadline.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The socket is ready, or may be: goes on as far as that does not block, and no further than one answer.
    pub fn ready(&mut self, site: &dyn Site, now: Instant) -> Next {
        if let Err(Ended) = self.send_encrypted() {
            return Next::Closes;
        }
        loop {
            let was_writing = matches!(self.phase, Phase::Writing { .. });
            let went = match &mut self.phase {
                Phase::Reading => match self.read(site, now) {
                    Ok(Read::Work(work)) => return Next::Works(work),
                    Ok(Read::More) => Ok(true),
                    Ok(Read::Nothing) => Ok(false),
                    Err(Ended) => Err(Ended),
                },
                Phase::Working { .. } | Phase::Holding { .. } => Ok(false),
                Phase::Writing { .. } => self.write(now),
                Phase::Ending { .. } => self.drop_input(),
            };
            match went {
                Ok(true) if was_writing && matches!(self.phase, Phase::Reading) => return Next::GoesOn,
                Ok(true) => {}
                Ok(false) => return Next::Waits,
                Err(Ended) => return Next::Closes,
            }
        }
    }

    /// The deadline has passed.
    pub fn expire(&mut self, site: &dyn Site, now: Instant) -> Next {
        if let Phase::Holding { bytes, closes } = &mut self.phase {
            let (bytes, closes) = (std::mem::take(bytes), *closes);
            self.write_from_now_on(bytes, closes, now);
            return self.ready(site, now);
        }
        if matches!(self.phase, Phase::Reading) && !self.input.is_empty() {
            self.answer(&Response::of(Status::Timeout), false, true, now);
            return self.ready(site, now);
        }
        Next::Closes
    }

    fn answer(&mut self, response: &Response, is_head: bool, closes: bool, now: Instant) {
        self.write_from_now_on(response.bytes(is_head, closes), closes, now);
    }

    fn write_from_now_on(&mut self, bytes: Vec<u8>, closes: bool, now: Instant) {
        self.phase = Phase::Writing { bytes, sent: 0, closes };
        (self.deadline, self.since) = (now + ANSWER_TIME_MAX, now);
    }

    /// Sends bytes that are encrypted; false when it would block.
    fn send_encrypted(&mut self) -> Result<bool, Ended> {
        match self.stream.tls() {
            Some(tls) if tls.stream.has_unsent() => match tls.stream.send() {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                Err(_) => Err(Ended),
            },
            _ => Ok(true),
        }
    }

    /// Reads, and answers the first request.
    fn read(&mut self, site: &dyn Site, now: Instant) -> Result<Read, Ended> {
        match parse(&self.input) {
            Parsed::Whole(request, len) => {
                self.input.drain(..len);
                let (is_head, closes) = (request.is_head, request.closes);
                match site.answer(&request, self.client) {
                    Answer::Now(response) => self.answer(&response, is_head, closes, now),
                    Answer::After(time, response) => {
                        self.phase = Phase::Holding { bytes: response.bytes(is_head, closes), closes };
                        (self.deadline, self.since) = (now + time.min(WORK_TIME_MAX), now);
                        return Ok(Read::Nothing);
                    }
                    Answer::Work(work) => {
                        self.phase = Phase::Working { is_head, closes };
                        (self.deadline, self.since) = (now + WORK_TIME_MAX, now);
                        return Ok(Read::Work(work));
                    }
                }
                return Ok(Read::More);
            }
            Parsed::Refused(status) => {
                self.answer(&Response::of(status), false, true, now);
                return Ok(Read::More);
            }
            Parsed::Partial => {}
        }
        let mut room = [0; 2048];
        let wanted = room.len().min(HEAD_BYTES_MAX - self.input.len().min(HEAD_BYTES_MAX - 1));
        let Some(read) = within(self.stream.read(&mut room[..wanted]))? else { return Ok(Read::Nothing) };
        if read == 0 {
            return Err(Ended);
        }
        if self.input.is_empty() {
            (self.deadline, self.since) = (now + HEAD_TIME_MAX, now);
        }
        self.input.extend_from_slice(&room[..read]);
        Ok(Read::More)
    }

    fn write(&mut self, now: Instant) -> Result<bool, Ended> {
        let Phase::Writing { bytes, sent, closes } = &mut self.phase else { return Ok(true) };
        if *sent < bytes.len() {
            let Some(wrote) = within(self.stream.write(&bytes[*sent..]))? else { return Ok(false) };
            *sent += wrote;
            return Ok(true);
        }
        let closes = *closes;
        if !self.send_encrypted()? {
            return Ok(false);
        }
        if closes {
            self.stream.shutdown_write();
            self.phase = Phase::Ending { dropped: 0 };
            self.deadline = now + END_TIME_MAX;
        } else {
            (self.phase, self.since) = (Phase::Reading, now);
            self.deadline = now + if self.input.is_empty() { IDLE_TIME_MAX } else { HEAD_TIME_MAX };
        }
        Ok(true)
    }

    fn drop_input(&mut self) -> Result<bool, Ended> {
        let Phase::Ending { dropped } = &mut self.phase else { return Ok(true) };
        let mut room = [0; 4096];
        let read = match self.stream.read(&mut room) {
            // With TLS it says that some bytes were dropped.
            Err(error) if error.kind() == ErrorKind::Interrupted => room.len(),
            read => match within(read)? {
                Some(read) => read,
                None => return Ok(false),
            },
        };
        *dropped += read;
        if read == 0 || *dropped > DROPPED_BYTES_MAX { Err(Ended) } else { Ok(true) }
    }
}

/// What reading has brought.
enum Read {
    /// There may be more to do.
    More,
    /// It would block, or the answer comes later.
    Nothing,
    /// A request whose answer is work.
    Work(Work),
}

/// The connection is over.
struct Ended;

/// The bytes that were moved; `None` when it would block.
fn within(moved: std::io::Result<usize>) -> Result<Option<usize>, Ended> {
    match moved {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(_) => Err(Ended),
    }
}
