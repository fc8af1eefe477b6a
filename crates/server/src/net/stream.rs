//! A connection's socket, TCP or Unix, with TLS or without.

use super::tls::TlsStream;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{Read, Result, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;

/// A nonblocking socket.
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TCP, with TLS.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// No more will be sent.
    pub fn shutdown_write(&mut self) {
        // The client may be gone already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
            Self::Tls(stream) => {
                stream.shutdown_write();
                Ok(())
            }
        };
    }

    /// The connection, if it speaks TLS.
    #[inline]
    pub fn tls(&mut self) -> Option<&mut TlsStream> {
        match self {
            Self::Tls(stream) => Some(stream),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Whether an end was read together with the last bytes.
    #[inline]
    pub const fn is_ended(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.stream.is_ended(),
            Self::Tcp(_) | Self::Unix(_) => false,
        }
    }

    /// As CLIENT LIST shows it.
    pub fn descriptor(&self) -> i32 {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
            Self::Tls(stream) => stream.stream.socket.as_raw_fd(),
        }
    }
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(room),
            Self::Unix(stream) => stream.read(room),
            Self::Tls(stream) => stream.stream.read(room),
        }
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.register(registry, token, interests),
            Self::Unix(stream) => stream.register(registry, token, interests),
            Self::Tls(stream) => stream.stream.socket.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.reregister(registry, token, interests),
            Self::Unix(stream) => stream.reregister(registry, token, interests),
            Self::Tls(stream) => stream.stream.socket.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.deregister(registry),
            Self::Unix(stream) => stream.deregister(registry),
            Self::Tls(stream) => stream.stream.socket.deregister(registry),
        }
    }
}
