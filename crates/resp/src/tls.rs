//! TLS by rustls: a stream for event loops, of servers and of clients, and a client's blocking connection.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Where the authorities of the system are.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// TLS over a nonblocking socket.
///
/// - **Invariant 1**: [`read`](Self::read) returns less than it was asked for only when the socket has no more, so that
///   edge-triggered events suffice. [`is_ended`](Self::is_ended) reports an end that was read together with bytes.
/// - **Invariant 2**: bytes that [`write`](Self::write) took are sent before later ones; [`send`](Self::send) sends what
///   the socket did not take, at most one buffer of rustls.
/// - **Invariant 3**: what arrives after the peer broke the protocol, or after [`end`](Self::end), is read and
///   dropped. rustls takes none of it, since it has sent its last alert.
pub struct TlsStream<S> {
    /// The socket.
    pub socket: S,
    /// The state of the protocol.
    pub session: Connection,
    is_ended: bool,
    is_over: bool,
}

impl<S: Read + Write> TlsStream<S> {
    /// A stream that has not begun its handshake.
    pub fn new(socket: S, session: impl Into<Connection>) -> Self {
        Self { socket, session: session.into(), is_ended: false, is_over: false }
    }

    /// Reads decrypted bytes, and does what the handshake asks for.
    ///
    /// # Errors
    /// `WouldBlock` when there are none, and errors of the socket or the peer.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.is_over {
            return self.drop_rest(room);
        }
        let mut done = 0;
        let mut is_empty = false;
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
            // Without bytes for the caller it is read once more: an end that has come meanwhile causes no other event.
            if is_empty && done > 0 {
                return Ok(done);
            }
            match self.session.read_tls(&mut Noting { socket: &mut self.socket, is_empty: &mut is_empty }) {
                // The reader says what an end means.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && done > 0 => return Ok(done),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let read = self.session.process_new_packets();
            // Also if the alert cannot be sent.
            self.is_over = read.is_err();
            match self.send() {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                // An alert is among what was sent.
                _ => read.map_err(io::Error::other)?,
            };
        }
    }

    /// Drops some of what arrives, until the peer ends: an end of ours before would take the alert away from it.
    /// `Interrupted` says that there may be more.
    fn drop_rest(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.socket.read(room)? {
            0 => {
                self.is_ended = true;
                Ok(0)
            }
            _ => Err(ErrorKind::Interrupted.into()),
        }
    }

    /// Says that nothing more will be written. What arrives from now on is dropped.
    pub fn end(&mut self) {
        self.session.send_close_notify();
        self.is_over = true;
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
            // The buffer is full until the handshake is over.
            _ if taken == 0 && !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
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
}

/// A socket of which is noted that a read has emptied it, which saves the read that would find nothing.
struct Noting<'a, S> {
    socket: &'a mut S,
    is_empty: &'a mut bool,
}

impl<S: Read> Read for Noting<'_, S> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.socket.read(room)?;
        // An end is read again: the reader says what it means.
        *self.is_empty = read > 0 && read < room.len();
        Ok(read)
    }
}

/// How a client speaks TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The file of the authorities of servers; `None`: those of the system.
    pub authorities: Option<String>,
    /// The files of the client's certificate and key.
    pub certificate: Option<(String, String)>,
}

impl Settings {
    /// Reads the query of an address: `cacert=FILE&cert=FILE&key=FILE`.
    ///
    /// # Errors
    /// The part that is none of these.
    pub fn parse(query: &str) -> Result<Self, String> {
        let (mut settings, mut cert, mut key) = (Self::default(), None, None);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("cacert", file)) => settings.authorities = Some(file.to_owned()),
                Some(("cert", file)) => cert = Some(file.to_owned()),
                Some(("key", file)) => key = Some(file.to_owned()),
                _ => return Err(format!("{part}: wanted cacert=FILE, cert=FILE or key=FILE")),
            }
        }
        settings.certificate = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("cert and key belong together".to_owned()),
        };
        Ok(settings)
    }

    /// The settings as rustls takes them.
    ///
    /// # Errors
    /// The file that cannot be read or understood.
    pub fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        let files: Vec<&str> = match &self.authorities {
            Some(file) => vec![file],
            None => SYSTEM.into_iter().filter(|file| std::path::Path::new(file).exists()).take(1).collect(),
        };
        for file in &files {
            // Of the system's some may be in a form that is not known.
            let (added, _) = roots.add_parsable_certificates(chain(file)?);
            if added == 0 {
                return Err(invalid(format!("{file}: there is no authority in it")));
            }
        }
        if files.is_empty() {
            return Err(invalid(
                "the authorities of the system were not found: name a file by cacert".to_owned(),
            ));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let secret =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| invalid(format!("{key}: {error}")))?;
                builder
                    .with_client_auth_cert(chain(cert)?, secret)
                    .map_err(|error| invalid(format!("{cert}: {error}")))?
            }
        };
        Ok(Arc::new(config))
    }

    /// The client's side of a connection to a host, for an event loop.
    ///
    /// # Errors
    /// As [`config`](Self::config), and a host that is no name.
    pub fn session(&self, host: &str) -> io::Result<ClientConnection> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| invalid(format!("{host} is no name of a host")))?;
        ClientConnection::new(self.config()?, name).map_err(io::Error::other)
    }

    /// A blocking connection to a host over a socket, after its handshake.
    ///
    /// # Errors
    /// As [`session`](Self::session), and those of the handshake.
    pub fn connect(
        &self,
        host: &str,
        socket: TcpStream,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut stream = StreamOwned::new(self.session(host)?, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }
}

fn chain(file: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    read.map_err(|error| invalid(format!("{file}: {error}")))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that has broken bytes a few times, and takes none.
    struct Broken(u8);

    impl Read for Broken {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Ok(0);
            }
            self.0 -= 1;
            let bytes = [0x5b, 0x0a, 0x27, 0x8e, 0x8e, 0xff, 0xff, 0x22];
            room[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn broken(times: u8) -> TlsStream<Broken> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        TlsStream::new(Broken(times), ClientConnection::new(Arc::new(config), name).unwrap())
    }

    fn read(stream: &mut TlsStream<Broken>) -> std::result::Result<usize, ErrorKind> {
        stream.read(&mut [0; 64]).map_err(|error| error.kind())
    }

    // rustls asserts that it has sent no alert before.

    #[test]
    fn after_an_alert_that_could_not_be_sent_rustls_takes_nothing() {
        let mut stream = broken(3);
        assert_eq!(read(&mut stream), Err(ErrorKind::BrokenPipe));
        assert_eq!(read(&mut stream), Err(ErrorKind::Interrupted));
        assert_eq!(read(&mut stream), Err(ErrorKind::Interrupted));
        assert_eq!((read(&mut stream), stream.is_ended()), (Ok(0), true));
    }

    #[test]
    fn after_its_own_end_rustls_takes_nothing() {
        let mut stream = broken(2);
        stream.end();
        assert_eq!(read(&mut stream), Err(ErrorKind::Interrupted));
        assert_eq!(read(&mut stream), Err(ErrorKind::Interrupted));
        assert_eq!((read(&mut stream), stream.is_ended()), (Ok(0), true));
    }

    #[test]
    fn the_query_of_an_address_names_files() {
        let settings = Settings::parse("cacert=a&cert=b&key=c").unwrap();
        assert_eq!(settings.authorities.as_deref(), Some("a"));
        assert_eq!(settings.certificate, Some(("b".to_owned(), "c".to_owned())));
        assert_eq!(Settings::parse(""), Ok(Settings::default()));
        for bad in ["x=y", "cert=a", "cacert"] {
            assert!(Settings::parse(bad).is_err(), "{bad}");
        }
    }
}
