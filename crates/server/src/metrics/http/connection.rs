//! One connection: it reads a head, writes an answer, and reads the next one, each by a deadline.
//!
//! ```text
//!   Reading ──head──▶ Writing ──sent──▶ Reading        kept open
//!      │                 └──────sent──▶ Ending ──▶     closes after the answer
//!      └─ deadline: 408 if a part of a head has come, else closed
//! ```
//!
//! *Ending*: our side is shut down, and what the client still sends is read and dropped. If the socket were closed with
//! unread bytes, the kernel would reset the connection and the client might lose the answer.

use super::handler::Site;
use super::request::{HEAD_BYTES_MAX, Parsed, parse};
use super::response::{Response, Status};
use mio::net::TcpStream;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// A head must be whole this long after its first byte.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// An answer must be read within this time.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// Between two requests. Prometheus asks every 15 to 60 seconds.
const IDLE_TIME_MAX: Duration = Duration::from_secs(150);
/// After the last answer.
const END_TIME_MAX: Duration = Duration::from_secs(1);
/// Bytes that are dropped after the last answer.
const DROPPED_BYTES_MAX: usize = 1 << 20;

enum Phase {
    Reading,
    Writing { bytes: Vec<u8>, sent: usize, closes: bool },
    Ending { dropped: usize },
}

/// A client's connection.
pub struct Connection {
    /// Its socket.
    pub stream: TcpStream,
    phase: Phase,
    input: Vec<u8>,
    deadline: Instant,
    /// Since when it is idle, or sends this head, or reads this answer. Single bytes do not renew it.
    pub since: Instant,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It waits for the client.
    Waits,
    /// It has been answered once, and may have sent another request: others come first.
    GoesOn,
    /// It is closed.
    Closes,
}

impl Connection {
    /// A new one.
    pub fn new(stream: TcpStream, now: Instant) -> Self {
        // The first request follows at once.
        Self { stream, phase: Phase::Reading, input: Vec::new(), deadline: now + HEAD_TIME_MAX, since: now }
    }

    /// Its deadline.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The socket is ready, or may be: goes on as far as that does not block, and no further than one answer.
    pub fn ready(&mut self, site: &dyn Site, now: Instant) -> Next {
        loop {
            let was_writing = matches!(self.phase, Phase::Writing { .. });
            let went = match &mut self.phase {
                Phase::Reading => self.read(site, now),
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
        if matches!(self.phase, Phase::Reading) && !self.input.is_empty() {
            self.answer(&Response::of(Status::Timeout), false, true, now);
            return self.ready(site, now);
        }
        Next::Closes
    }

    fn answer(&mut self, response: &Response, is_head: bool, closes: bool, now: Instant) {
        self.phase = Phase::Writing { bytes: response.bytes(is_head, closes), sent: 0, closes };
        (self.deadline, self.since) = (now + ANSWER_TIME_MAX, now);
    }

    /// Reads, and answers the first request; false when it would block.
    fn read(&mut self, site: &dyn Site, now: Instant) -> Result<bool, Ended> {
        match parse(&self.input) {
            Parsed::Whole(request, len) => {
                self.input.drain(..len);
                let response = site.answer(&request);
                self.answer(&response, request.is_head, request.closes, now);
                return Ok(true);
            }
            Parsed::Refused(status) => {
                self.answer(&Response::of(status), false, true, now);
                return Ok(true);
            }
            Parsed::Partial => {}
        }
        let mut room = [0; 2048];
        let wanted = room.len().min(HEAD_BYTES_MAX - self.input.len().min(HEAD_BYTES_MAX - 1));
        let Some(read) = within(self.stream.read(&mut room[..wanted]))? else { return Ok(false) };
        if read == 0 {
            return Err(Ended);
        }
        if self.input.is_empty() {
            (self.deadline, self.since) = (now + HEAD_TIME_MAX, now);
        }
        self.input.extend_from_slice(&room[..read]);
        Ok(true)
    }

    fn write(&mut self, now: Instant) -> Result<bool, Ended> {
        let Phase::Writing { bytes, sent, closes } = &mut self.phase else { return Ok(true) };
        if *sent < bytes.len() {
            let Some(wrote) = within(self.stream.write(&bytes[*sent..]))? else { return Ok(false) };
            *sent += wrote;
            return Ok(true);
        }
        if *closes {
            self.stream.shutdown(Shutdown::Write).map_err(|_| Ended)?;
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
        let Some(read) = within(self.stream.read(&mut room))? else { return Ok(false) };
        *dropped += read;
        if read == 0 || *dropped > DROPPED_BYTES_MAX { Err(Ended) } else { Ok(true) }
    }
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
