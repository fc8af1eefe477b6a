//! A server's address, and a non-blocking stream to it.

use crate::server::{Failure, Result};
use duramen_resp::tls::{Settings, TlsStream};
use mio::event::Source;
use mio::{Interest, Registry, Token};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::str::FromStr;

/// A server's address: `HOST:PORT`, or the path of a Unix socket (it holds a slash).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
    /// Host and port, with TLS.
    Tls(String, Settings),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Some(rest) = text.strip_prefix("rediss://") {
            let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
            let Self::Tcp(place) = place.parse()? else {
                return Err(format!("{text:?}: wanted rediss://HOST:PORT"));
            };
            return Ok(Self::Tls(place, Settings::parse(query)?));
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
    }
}
