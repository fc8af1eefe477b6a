//! TLS below a protocol: rustls over a connection's socket. A connection without TLS passes nothing of this.
//!
//! - **Invariant 1**: [`TlsStream::read`] returns less than it was asked for only when the socket has no more, so that edge-triggered events
//!   suffice. [`TlsStream::is_ended`] reports an end that was read together with bytes.
//! - **Invariant 2**: bytes that [`TlsStream::write`] took are encrypted and sent before later ones; [`TlsStream::send`] sends what the socket did not
//!   take, at most one buffer of rustls.

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A handshake that takes longer ends the connection.
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// The settings of new connections; `None`: TLS is not configured.
#[derive(Default)]
pub struct Settings(RwLock<Option<Arc<ServerConfig>>>);

impl Settings {
    /// These from now on; connections keep those that they came with.
    pub fn set(&self, config: Arc<ServerConfig>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(config);
    }

    /// Whether TLS is spoken at all.
    pub fn is_on(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// A connection that has just come.
    ///
    /// # Errors
    /// When there are no settings, or rustls refuses them.
    pub fn accept(&self, socket: TcpStream) -> io::Result<TlsStream> {
        let config = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let config = config.ok_or_else(|| io::Error::other("TLS is not configured"))?;
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(TlsStream { socket, session, since: Instant::now(), is_ended: false, is_named: false })
    }
}

/// A connection that speaks TLS.
pub struct TlsStream {
    /// The socket.
    pub socket: TcpStream,
    session: ServerConnection,
    since: Instant,
    is_ended: bool,
    is_named: bool,
}

impl TlsStream {
    /// Reads decrypted bytes, and does what the handshake asks for.
    ///
    /// # Errors
    /// `WouldBlock` when there are none, and errors of the socket or the peer.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        loop {
            match self.session.reader().read(&mut room[done..]) {
                Ok(0) => {
                    self.is_ended = true;
                    return Ok(done);
                }
                Ok(bytes) => {
                    done += bytes;
                    if done == room.len() {
                        return Ok(done);
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The peer ended without saying so. A request that was cut is not executed in any case.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    self.is_ended = true;
                    return Ok(done);
                }
                Err(error) => return Err(error),
            }
            match self.session.read_tls(&mut self.socket) {
                // The reader says what that means.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && done > 0 => return Ok(done),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let read = self.session.process_new_packets();
            match self.send() {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                // An alert is among what was sent.
                _ => read.map_err(io::Error::other)?,
            };
        }
    }

    /// Encrypts bytes and sends them; how many were taken.
    ///
    /// # Errors
    /// `WouldBlock` when earlier bytes are not sent yet, and errors of the socket.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send()?;
        let taken = self.session.writer().write(bytes)?;
        match self.send() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends what is encrypted.
    ///
    /// # Errors
    /// `WouldBlock` when the socket takes no more, and errors of the socket.
    pub fn send(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether something encrypted is not sent.
    pub fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// The peer sends no more.
    pub const fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether the handshake takes too long.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.session.is_handshaking() && now.saturating_duration_since(self.since) > HANDSHAKE
    }

    /// The client's verified certificate, once, if it has one.
    pub fn take_certificate(&mut self) -> Option<Vec<u8>> {
        if self.is_named || self.session.is_handshaking() {
            return None;
        }
        self.is_named = true;
        self.session.peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }

    /// No more will be sent.
    pub fn shutdown_write(&mut self) {
        self.session.send_close_notify();
        // The client may be gone already.
        let _ = self.send();
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

/// The common name of a certificate's subject: `CN` of X.509, which is DER. The certificate was verified before.
pub fn common_name(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const OBJECT: u8 = 6;
    const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    let (_, outer, _) = element(certificate)?;
    let (_, mut fields, _) = element(outer)?;
    // A version may come first; then number, algorithm, issuer and validity.
    let mut before_subject = 4;
    let subject = loop {
        let (tag, content, rest) = element(fields)?;
        fields = rest;
        match tag {
            0xa0 => {}
            _ if before_subject == 0 => break content,
            _ => before_subject -= 1,
        }
    };
    let mut names = subject;
    let mut found = None;
    while !names.is_empty() {
        let (SET, mut parts, rest) = element(names)? else { return None };
        names = rest;
        while !parts.is_empty() {
            let (SEQUENCE, part, more) = element(parts)? else { return None };
            parts = more;
            let (OBJECT, kind, value) = element(part)? else { return None };
            let (_, text, _) = element(value)?;
            if kind == COMMON_NAME {
                found = Some(text);
            }
        }
    }
    found
}

/// Tag, content and rest of the element at the beginning of some DER.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}
