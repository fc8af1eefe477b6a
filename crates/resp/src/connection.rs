//! A client's blocking connection.
//!
//! Invariant: whatever a server sends, reading ends: with a reply, or with an [`Ended`] that carries the bytes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::command::encode_command;
use crate::reply::{Malformed, Replies, Reply};

/// The reason why no reply came, with the bytes received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The server closed the connection.
    Closed(Vec<u8>),
    /// No more bytes came in time.
    Silent(Vec<u8>),
    /// The bytes received are not a reply.
    Malformed(Vec<u8>),
}

impl Ended {
    /// The bytes received.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Ended::Closed(bytes) | Ended::Silent(bytes) | Ended::Malformed(bytes) => bytes,
        }
    }
}

/// One client's connection.
pub struct Connection {
    stream: TcpStream,
    replies: Replies,
}

impl Connection {
    /// Connects to a server on this machine.
    pub fn open(port: u16) -> io::Result<Connection> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        Ok(Connection { stream, replies: Replies::default() })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends one command.
    pub fn send_command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, arguments);
        self.send(&bytes)
    }

    /// The next reply.
    pub fn read(&mut self, patience: Duration) -> Result<Reply, Ended> {
        let deadline = Instant::now() + patience;
        loop {
            match self.replies.reply() {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(Malformed) => return Err(Ended::Malformed(self.replies.take())),
            }
            self.receive_more(deadline)?;
        }
    }

    /// The next line in another protocol, without its line ending.
    pub fn line(&mut self, patience: Duration) -> Result<String, Ended> {
        let deadline = Instant::now() + patience;
        loop {
            let received = self.replies.unread();
            if let Some(end) = received.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&received[..end]).into_owned();
                self.replies.skip(end + 2);
                return Ok(line);
            }
            self.receive_more(deadline)?;
        }
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize, patience: Duration) -> Result<Vec<u8>, Ended> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(bytes) = self.replies.unread().get(..count) {
                let bytes = bytes.to_vec();
                self.replies.skip(count);
                return Ok(bytes);
            }
            self.receive_more(deadline)?;
        }
    }

    /// Sends a command and reads its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A], patience: Duration) -> Result<Reply, Ended> {
        match self.send_command(arguments) {
            Ok(()) => self.read(patience),
            Err(_) => Err(Ended::Closed(self.replies.take())),
        }
    }

    /// Reads until the connection ends, until no byte comes for `quiet`, or until `enough` returns true; returns all
    /// bytes.
    pub fn read_all(&mut self, quiet: Duration, enough: impl Fn(&[u8]) -> bool) -> Ended {
        loop {
            match self.receive(Instant::now() + quiet) {
                Received::Bytes if enough(self.replies.unread()) => {
                    return Ended::Silent(self.replies.take());
                }
                Received::Bytes => {}
                Received::End => return Ended::Closed(self.replies.take()),
                Received::Nothing => return Ended::Silent(self.replies.take()),
            }
        }
    }

    fn receive_more(&mut self, deadline: Instant) -> Result<(), Ended> {
        match self.receive(deadline) {
            Received::Bytes => Ok(()),
            Received::End => Err(Ended::Closed(self.replies.take())),
            Received::Nothing => Err(Ended::Silent(self.replies.take())),
        }
    }

    fn receive(&mut self, deadline: Instant) -> Received {
        let mut buffer = [0; 64 << 10];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
                return Received::Nothing;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Received::End,
                Ok(count) => {
                    self.replies.add(&buffer[..count]);
                    return Received::Bytes;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Received::Nothing,
                    // A reset: the server closed and left input unread.
                    _ => return Received::End,
                },
            }
        }
    }
}

enum Received {
    Bytes,
    End,
    Nothing,
}
