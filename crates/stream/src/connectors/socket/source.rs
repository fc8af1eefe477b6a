//! Reads lines from connections.

use std::io::ErrorKind;

use serde_json::{Value, json};

use super::stream::{Listener, Socket, Stream};
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::Source;
use crate::error::{Error, Result};
use crate::formats::split::{RECORD_BYTES_MAX, Splitter};
use crate::run::notice::notice;
use crate::run::records::{Place, Records};
use crate::run::row_source::RowSource;

/// The bytes of unfinished records of all connections of a listening socket. Beyond it the connection with the longest
/// one is closed. Four of the longest records: one peer that never ends a record does not keep others from theirs.
const UNFINISHED_BYTES_MAX: usize = 4 * RECORD_BYTES_MAX;

/// The bytes that one turn takes from all connections, however few rows they give.
const READ_BYTES: usize = 4 << 20;

/// The buffers that a connection keeps between two records, if others may connect too.
const SPARE_BYTES: usize = 1 << 16;

/// A connection that sends records.
struct Connection {
    stream: Stream,
    bytes: Vec<u8>,
    /// Bytes that were consumed.
    taken: usize,
    splitter: Splitter,
    records: u64,
    ended: bool,
    /// Whether it ended by a reset: then an unfinished record was truncated, and is dropped.
    was_reset: bool,
    /// Nothing more is read from it.
    closed: bool,
}

impl Connection {
    fn new(stream: Stream, splitter: Splitter) -> std::io::Result<Connection> {
        stream.set_nonblocking()?;
        Ok(Connection {
            stream,
            bytes: Vec::new(),
            taken: 0,
            splitter,
            records: 0,
            ended: false,
            was_reset: false,
            closed: false,
        })
    }

    /// Reads the bytes that have arrived.
    fn receive(&mut self) -> std::io::Result<()> {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        let mut room = vec![0; 1 << 16];
        // As much as a batch takes at a time; further data waits in the kernel, which blocks the peer.
        while !self.ended && self.bytes.len() < 1 << 20 {
            match self.stream.read(&mut room) {
                Ok(0) => self.ended = true,
                Ok(read) => self.bytes.extend_from_slice(&room[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Records that have arrived completely count.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    (self.ended, self.was_reset) = (true, true);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Bytes of a record that is not complete, and bytes that are not split yet.
    fn unfinished(&self) -> usize {
        self.bytes.len() - self.taken + self.splitter.unfinished()
    }

    /// Frees buffers that a long record needed.
    fn shrink(&mut self) {
        if self.taken == self.bytes.len() {
            self.taken = 0;
            self.bytes.clear();
            self.bytes.shrink_to(SPARE_BYTES);
        }
        self.splitter.shrink(SPARE_BYTES);
    }

    /// Splits the next record off; returns whether it is complete.
    fn next_record(&mut self) -> Result<bool> {
        let (taken, whole) = self.splitter.push(&self.bytes[self.taken..])?;
        self.taken += taken;
        if !whole && self.was_reset && !self.splitter.is_between() {
            return Err(Error::connector("the connection was reset before the record had an end"));
        }
        let whole = whole || self.ended && self.taken == self.bytes.len() && self.splitter.finish();
        self.records += u64::from(whole);
        Ok(whole)
    }

    /// Takes the complete records as rows of a batch. Returns an error of the peer in `Ok`, and an error of this
    /// process in `Err`.
    fn read_rows(
        &mut self,
        table: &str,
        records: &mut Records,
        batch: &mut Batch,
        rows: usize,
        left: &mut usize,
    ) -> Result<Option<Error>> {
        if let Err(error) = self.receive() {
            return Ok(Some(Error::connector(format!("cannot read from the socket of `{table}`: {error}"))));
        }
        let from = |records: u64| format!("the socket of `{table}`, record {records}");
        while batch.rows() < rows && *left > 0 {
            let before = self.taken;
            let whole = self.next_record();
            *left = left.saturating_sub(self.taken - before);
            match whole {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    return Ok(Some(Error::connector(format!("{}: {error}", from(self.records + 1)))));
                }
            }
            match records.add(&self.splitter, batch, || from(self.records)) {
                // The record was read or kept, so the failure is in keeping it.
                Err(error) if records.keeps_letters() => return Err(error),
                Err(error) => return Ok(Some(error)),
                Ok(()) => {}
            }
        }
        Ok(None)
    }
}

/// Whether an error means that the listener is unusable, and not only this connection.
fn is_of_listener(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotConnected)
}

/// Closes the connections with the longest unfinished records until at most this many bytes are left.
fn close_longest(table: &str, connections: &mut [Connection], most: usize) {
    let mut all: usize = connections.iter().map(Connection::unfinished).sum();
    while all > most {
        let open = connections.iter_mut().filter(|connection| !connection.closed);
        let Some(longest) = open.max_by_key(|connection| connection.unfinished()) else { return };
        notice(&format!(
            "a connection to `{table}` is closed: found {all} bytes of unfinished records of all connections, wanted at \
             most {most}; this one has {}",
            longest.unfinished()
        ));
        all -= longest.unfinished();
        longest.closed = true;
    }
}

/// A source.
pub struct Lines {
    table: String,
    records: Records,
    listener: Option<Listener>,
    connections: Vec<Connection>,
    /// The connection that is read first: the one at which the last turn stopped.
    first: usize,
    /// Whether it was reported that no more connections are accepted.
    refusing: bool,
}

impl Lines {
    /// For a table of connector 'socket'.
    pub fn open(table: &Table, source: &Source, place: Place<'_>) -> Result<Lines> {
        let socket = Socket::of(table, place)?;
        let records = Records::open(table, source, place)?;
        let failed =
            |error| Error::connector(format!("cannot open {socket:?} for `{}`: {error}", table.name));
        let (listener, connections) = match table.options.get("mode").map(String::as_str) {
            None | Some("connect") => {
                let stream = socket.connect_patiently(&table.name)?;
                (None, vec![Connection::new(stream, records.splitter(true)).map_err(failed)?])
            }
            Some("listen") => (Some(socket.listen().map_err(failed)?), Vec::new()),
            Some(other) => {
                return Err(Error::invalid(
                    format!("'mode' = '{other}' of `{}`", table.name),
                    "'connect' or 'listen'",
                ));
            }
        };
        Ok(Lines { table: table.name.clone(), records, listener, connections, first: 0, refusing: false })
    }
}

impl RowSource for Lines {
    fn read_rows(&mut self, batch: &mut Batch, rows: usize) -> Result<bool> {
        let Lines { table, records, listener, connections, first, refusing } = self;
        let failed = |error| Error::connector(format!("cannot read from the socket of `{table}`: {error}"));
        if let Some(listener) = listener {
            loop {
                match listener.accept() {
                    // A peer that has disconnected already sends nothing.
                    Ok(stream) => connections.extend(Connection::new(stream, records.splitter(true))),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // An error of the peer, or of this process: without free file descriptors it waits until a
                    // connection ends.
                    Err(error) if is_of_listener(&error) => return Err(failed(error)),
                    Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        if !std::mem::replace(refusing, true) {
                            notice(&format!("`{table}` cannot accept more connections now: {error}"));
                        }
                        break;
                    }
                }
            }
        }
        let (mut left, count) = (READ_BYTES, connections.len());
        let begin = if *first < count { *first } else { 0 };
        for at in (begin..count).chain(0..begin) {
            *first = at;
            if batch.rows() >= rows || left == 0 {
                break;
            }
            let connection = &mut connections[at];
            let error = connection.read_rows(table, records, batch, rows, &mut left)?;
            if listener.is_some() {
                connection.shrink();
            }
            let Some(error) = error else { continue };
            // Other peers are connected, or will be: an error of one peer ends only its own connection.
            if listener.is_none() {
                return Err(error);
            }
            notice(&format!("a connection to `{table}` is closed: {error}"));
            connection.closed = true;
            *refusing = false;
        }
        if listener.is_some() {
            close_longest(table, connections, UNFINISHED_BYTES_MAX);
        }
        connections.retain(|connection| {
            let rest = connection.taken < connection.bytes.len() || !connection.splitter.is_between();
            !connection.closed && (!connection.ended || rest)
        });
        Ok(listener.is_some() || !connections.is_empty())
    }

    fn skipped(&self) -> u64 {
        self.records.skipped()
    }

    fn position(&self) -> Value {
        json!({ "skipped": self.records.skipped() })
    }

    fn seek(&mut self, position: &Value) -> Result<()> {
        self.records.set_skipped(crate::run::row_source::place(position, "skipped")?);
        Ok(())
    }

    fn letters(&mut self) -> Option<&mut Records> {
        Some(&mut self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_longest_unfinished_record_is_closed_when_all_together_are_too_long() {
        let (mut peers, mut connections) = (Vec::new(), Vec::new());
        for bytes in [10, 3000, 200_000, 10] {
            let (mut peer, stream) = UnixStream::pair().unwrap();
            let mut connection = Connection::new(Stream::Unix(stream), Splitter::new(None, 1, true)).unwrap();
            // All but the last record are unfinished, and the pair holds less than the long one.
            let mut rest = "x".repeat(bytes);
            rest.push_str(if peers.len() == 3 { "\n" } else { "" });
            let sending = std::thread::spawn(move || {
                peer.write_all(rest.as_bytes()).unwrap();
                peer
            });
            while connection.unfinished() < bytes {
                connection.receive().unwrap();
                let whole = connection.next_record().unwrap();
                if whole {
                    break;
                }
            }
            peers.push(sending.join().unwrap());
            connection.shrink();
            connections.push(connection);
        }
        let unfinished: Vec<usize> = connections.iter().map(Connection::unfinished).collect();
        assert_eq!(unfinished, [10, 3000, 200_000, 0]);
        close_longest("t", &mut connections, 203_010);
        assert!(connections.iter().all(|connection| !connection.closed));
        close_longest("t", &mut connections, 203_009);
        let closed: Vec<bool> = connections.iter().map(|connection| connection.closed).collect();
        assert_eq!(closed, [false, false, true, false]);
    }

    /// A peer that closes before it has read all sent data resets the connection.
    #[test]
    fn a_record_truncated_by_a_reset_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.try_clone().unwrap().write_all(b"x").unwrap();
        peer.peek(&mut [0]).unwrap();
        peer.write_all(b"12\n345").unwrap();
        let mut connection = Connection::new(Stream::Tcp(stream), Splitter::new(None, 1, true)).unwrap();
        while connection.bytes.len() < 6 {
            connection.receive().unwrap();
        }
        assert!(connection.next_record().unwrap());
        assert!(!connection.next_record().unwrap());
        drop(peer);
        while !connection.ended {
            connection.receive().unwrap();
        }
        let error = connection.next_record().unwrap_err().to_string();
        assert!(error.contains("was reset before the record had an end"), "{error}");
    }
}
