//! Commands that another server wrote down, executed by the code that executes those of clients.
//!
//! An error as a reply ends it: a command that was done there must be done here.

use super::Failure;
use crate::acl::Users;
use crate::clients::Origin;
use crate::config::Config;
use crate::net::{Output, Turn};
use crate::observe::stats::WorkerStats;
use crate::redis::command::{self, Args};
use crate::redis::dispatch::Dispatcher;
use crate::redis::resp::{Limits, Request, Requests};
use crate::redis::session::Session;
use crate::server::{Server, Stop};
use duramen_structures::Keyspace;
use std::sync::Arc;

// Commands without a meaning where there are no clients.
const PASSED_OVER: [&[u8]; 4] = [b"ping", b"replconf", b"publish", b"spublish"];

/// Executes the commands, as if one client had sent them all.
pub(super) struct Commands {
    dispatcher: Dispatcher,
    turn: Turn,
    session: Session,
    requests: Requests,
    output: Output,
    limits: Limits,
    // A place where `Stop` has nothing to wake.
    _poll: mio::Poll,
}

/// The outcome of the bytes of a request.
pub(super) enum Step {
    /// A command of this many bytes, and whether it was executed.
    Command { bytes: usize, is_executed: bool },
    /// More bytes are needed.
    Incomplete,
}

impl Commands {
    pub(super) fn new(keyspace: Keyspace) -> Result<Self, Failure> {
        let system = |error: std::io::Error| Failure(format!("cannot create an event queue: {error}"));
        let poll = mio::Poll::new().map_err(system)?;
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).map_err(system)?;
        let config = Config { databases: keyspace.databases(), ..Config::default() };
        let limits = Limits { bulk_bytes_max: super::STRING_BYTES_MAX, authenticated: true };
        let worker = keyspace.worker().map_err(Failure::new)?;
        let stop = Arc::new(Stop::new(waker));
        let server =
            Arc::new(Server::new(config, keyspace, None, Vec::new(), stop, String::new(), Users::nobody()));
        let client = server.clients.enter(Origin {
            mark: 0,
            worker: 0,
            address: "import".to_owned(),
            address_local: String::new(),
            unix: false,
            descriptor: -1,
            trusted: false,
            user: None,
        });
        let dispatcher = Dispatcher::new(
            Arc::clone(&server),
            Arc::new(WorkerStats::new(command::table().count())),
            0,
            command::table(),
        );
        let turn = Turn::new(server, worker);
        Ok(Self {
            dispatcher,
            turn,
            session: Session::trusted(client),
            requests: Requests::default(),
            output: Output::default(),
            limits,
            _poll: poll,
        })
    }

    /// Begins a group that becomes durable together.
    pub(super) fn group(&mut self) {
        self.turn.begin();
        self.dispatcher.begin_turn(&mut self.turn);
    }

    /// Makes it durable.
    pub(super) fn flush_group(&mut self) -> Result<(), Failure> {
        self.dispatcher.end_turn(&mut self.turn);
        let flushed = self.turn.flush();
        self.dispatcher.finish_turn(flushed.as_ref().copied());
        flushed.map_err(|error| Failure(String::from_utf8_lossy(error.text()).into_owned()))
    }

    /// The database that was selected last.
    pub(super) fn database(&self) -> u8 {
        self.session.db
    }

    /// Whether no MULTI is open: the executed commands are complete.
    pub(super) fn is_whole(&self) -> bool {
        self.session.transaction.is_none()
    }

    /// Executes the command at the beginning of `input`. After an incomplete command, the next call has the same bytes
    /// and more.
    pub(super) fn step(&mut self, input: &[u8]) -> Result<Step, Failure> {
        let bytes = match self.requests.next(input, &self.limits) {
            Ok(Request::Command { bytes }) => bytes,
            Ok(Request::Nothing { bytes }) => return Ok(Step::Command { bytes, is_executed: false }),
            Ok(Request::Incomplete { .. }) => return Ok(Step::Incomplete),
            Err(error) => return Err(Failure(format!("the bytes there are not a command: {error}"))),
        };
        let args = Args::of(&self.requests, input);
        let name = args.at(0).to_ascii_lowercase();
        if PASSED_OVER.contains(&&name[..]) {
            return Ok(Step::Command { bytes, is_executed: false });
        }
        self.output.truncate(0);
        self.dispatcher.execute(&mut self.turn, &mut self.session, args, 1, &mut self.output);
        if let Some(error) = first_error(&self.output.bytes) {
            let error = String::from_utf8_lossy(error);
            return Err(Failure(format!(
                "{} is answered \"{error}\"",
                name.to_ascii_uppercase().escape_ascii()
            )));
        }
        Ok(Step::Command { bytes, is_executed: true })
    }
}

/// The first error in a reply, also within the reply of EXEC.
fn first_error(reply: &[u8]) -> Option<&[u8]> {
    let mut rest = reply;
    while let Some(end) = rest.iter().position(|&byte| byte == b'\r') {
        let line = &rest[..end];
        let length = match line.first() {
            Some(b'-') => return Some(&line[1..]),
            Some(b'$') => {
                std::str::from_utf8(&line[1..]).ok().and_then(|digits| digits.parse::<usize>().ok())
            }
            _ => None,
        };
        rest = rest.get(end + 2 + length.map_or(0, |length| length + 2)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found_in_replies_and_nowhere_else() {
        for fine in [&b"+OK\r\n"[..], b"$6\r\na\r\n-ER\r\n:1\r\n", b"*2\r\n$-1\r\n+-\r\n", b""] {
            assert_eq!(first_error(fine), None, "{}", fine.escape_ascii());
        }
        assert_eq!(first_error(b"-ERR no\r\n"), Some(&b"ERR no"[..]));
        assert_eq!(first_error(b"*2\r\n$5\r\n-ERR \r\n-WRONGTYPE x\r\n"), Some(&b"WRONGTYPE x"[..]));
    }
}
