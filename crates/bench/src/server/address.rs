//! A server's address, and a non-blocking stream to it.

use crate::server::{Failure, Result};
use duramen_resp::tls::{Settings, TlsStream};
use mio::event::Source;
use mio::{Interest, Registry, Token};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long a server may take to answer a login.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server's address: `HOST:PORT`, or the path of a Unix socket (it holds a slash), or `redis[s]://[USER:PASSWORD@]HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
    /// Host and port, with TLS.
    Tls(String, Settings),
    /// One of them, as a user of Redis's protocol: its name and its password.
    As(Box<Self>, String, String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let secured = text.strip_prefix("rediss://");
        if let Some(rest) = secured.or_else(|| text.strip_prefix("redis://")) {
            let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
            let (login, place) =
                rest.rsplit_once('@').map_or((None, rest), |(login, place)| (Some(login), place));
            let Self::Tcp(place) = place.parse()? else {
                return Err(format!("{text:?}: wanted redis[s]://[USER:PASSWORD@]HOST:PORT"));
            };
            let at = match secured {
                Some(_) => Self::Tls(place, Settings::parse(query)?),
                None => Self::Tcp(place),
            };
            let Some(login) = login else { return Ok(at) };
            let (user, password) = login.split_once(':').ok_or("wanted USER:PASSWORD before the @")?;
            return Ok(Self::As(Box::new(at), user.to_owned(), password.to_owned()));
        }
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
                Ok(Self::Tcp(text.to_owned()))
            }
            _ => Err(format!(
                "{text:?} is no address: wanted HOST:PORT, or the path of a Unix socket (with a slash)"
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Tls(address, _) => write!(f, "rediss://{address}"),
            Self::As(at, user, _) => write!(f, "{at} as {user}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// Connects with a blocking call, then makes the stream non-blocking.
    pub(crate) fn connect(&self) -> Result<Stream> {
        self.try_connect().map_err(|error| {
            Failure::new(format!(
                "cannot connect to {self}: {error}; is the server running, and does it take enough clients?"
            ))
        })
    }

    pub(crate) fn try_connect(&self) -> io::Result<Stream> {
        match self {
            Self::Tls(address, settings) => {
                let host = address.rsplit_once(':').map_or(&**address, |(host, _)| host);
                let session = settings.session(host.trim_matches(['[', ']']))?;
                match Self::Tcp(address.clone()).try_connect()? {
                    Stream::Tcp(socket) => Ok(Stream::Tls(Box::new(TlsStream::new(socket, session)))),
                    other => Ok(other),
                }
            }
            Self::As(at, user, password) => {
                let mut stream = at.try_connect()?;
                log_in(&mut stream, user, password)?;
                Ok(stream)
            }
            Self::Tcp(address) => {
                let mut last = io::Error::other("the name has no address");
                for address in address.to_socket_addrs()? {
                    match std::net::TcpStream::connect(address) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            stream.set_nonblocking(true)?;
                            return Ok(Stream::Tcp(mio::net::TcpStream::from_std(stream)));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            Self::Unix(path) => {
                let stream = std::os::unix::net::UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(mio::net::UnixStream::from_std(stream)))
            }
        }
    }
}

/// Sends AUTH and waits for its answer.
fn log_in(stream: &mut Stream, user: &str, password: &str) -> io::Result<()> {
    let mut command = Vec::new();
    duramen_resp::encode_command(&mut command, &["AUTH", user, password]);
    let (mut sent, mut said) = (0, Vec::new());
    let begun = Instant::now();
    while !said.ends_with(b"\r\n") {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::new(ErrorKind::TimedOut, "the server does not answer AUTH"));
        }
        let mut room = [0; 512];
        // Also before all is sent: a handshake needs both directions.
        let moved = match sent < command.len() {
            true => stream.write(&command[sent..]).map(|bytes| sent += bytes),
            false => Ok(()),
        };
        let read = moved.or_else(wait).and_then(|()| stream.read(&mut room));
        match read {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => said.extend_from_slice(&room[..bytes]),
            Err(error) => wait(error)?,
        }
    }
    match said.as_slice() {
        b"+OK\r\n" => Ok(()),
        _ => Err(io::Error::other(String::from_utf8_lossy(said.trim_ascii_end()).into_owned())),
    }
}

/// Waits for a moment if that is all that the error asks for.
fn wait(error: io::Error) -> io::Result<()> {
    if error.kind() != ErrorKind::WouldBlock {
        return Err(error);
    }
    std::thread::sleep(Duration::from_millis(1));
    Ok(())
}

/// A connected, non-blocking stream.
pub(crate) enum Stream {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
    Tls(Box<TlsStream<mio::net::TcpStream>>),
}

impl Stream {
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        // Edge-triggered: registered once for both directions.
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(stream) => stream.register(registry, token, interest),
            Self::Unix(stream) => stream.register(registry, token, interest),
            Self::Tls(stream) => stream.socket.register(registry, token, interest),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
            Self::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.send(),
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hosts_with_ports_or_paths() {
        assert_eq!("127.0.0.1:6379".parse(), Ok(Address::Tcp("127.0.0.1:6379".into())));
        assert_eq!("[::1]:6379".parse(), Ok(Address::Tcp("[::1]:6379".into())));
        assert_eq!("./s.sock".parse(), Ok(Address::Unix("./s.sock".into())));
        for bad in ["", "6379", ":6379", "host:0", "host:70000", "host:"] {
            assert!(Address::from_str(bad).unwrap_err().contains("wanted HOST:PORT"), "{bad}");
        }
        let (tcp, tls) = (Address::Tcp("h:1".into()), Address::Tls("h:1".into(), Settings::default()));
        let as_me = |at: &Address| Address::As(Box::new(at.clone()), "me".to_owned(), "a:b@c".to_owned());
        for (text, wanted) in [
            ("redis://h:1", tcp.clone()),
            ("rediss://h:1", tls.clone()),
            ("redis://me:a:b@c@h:1", as_me(&tcp)),
            ("rediss://me:a:b@c@h:1", as_me(&tls)),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
        assert!(Address::from_str("redis://me@h:1").is_err());
        assert!(!as_me(&tls).to_string().contains("a:b"), "the password is not shown");
    }

    #[test]
    fn a_login_comes_before_the_first_command_and_its_refusal_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("redis://me:pw@{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            ["+OK\r\n", "-WRONGPASS no\r\n"].map(|reply| {
                let (mut socket, _) = listener.accept().unwrap();
                let mut said = [0; 30];
                socket.read_exact(&mut said).unwrap();
                for piece in reply.as_bytes().chunks(2) {
                    socket.write_all(piece).unwrap();
                }
                String::from_utf8(said.to_vec()).unwrap()
            })
        });
        let address: Address = address.parse().unwrap();
        assert!(address.try_connect().is_ok());
        assert!(address.try_connect().is_err_and(|error| error.to_string().contains("WRONGPASS")));
        assert_eq!(server.join().unwrap()[0], "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n");
    }
}
