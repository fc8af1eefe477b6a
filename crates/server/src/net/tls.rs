//! TLS of connections. A connection without TLS passes nothing of this.

use duramen_resp::tls;
use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};
use std::io;
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
        let stream = tls::TlsStream::new(socket, session);
        Ok(TlsStream { stream, since: Instant::now(), is_named: false })
    }
}

/// A connection that speaks TLS.
pub struct TlsStream {
    /// The socket, with the state of the protocol.
    pub stream: tls::TlsStream<TcpStream>,
    since: Instant,
    is_named: bool,
}

impl TlsStream {
    /// Whether the handshake takes too long.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.stream.session.is_handshaking() && now.saturating_duration_since(self.since) > HANDSHAKE
    }

    /// The client's verified certificate, once, if it has one.
    pub fn take_certificate(&mut self) -> Option<Vec<u8>> {
        if self.is_named || self.stream.session.is_handshaking() {
            return None;
        }
        self.is_named = true;
        self.stream.session.peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }

    /// No more will be sent.
    pub fn shutdown_write(&mut self) {
        self.stream.end();
        // The client may be gone already.
        let _ = self.stream.send();
        let _ = self.stream.socket.shutdown(Shutdown::Write);
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
