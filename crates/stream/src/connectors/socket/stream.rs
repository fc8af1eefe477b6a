//! Addresses of sockets, and connections.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::client::Address;
use crate::catalog::Table;
use crate::error::{Error, Result};
use crate::run::notice::notice;
use crate::run::records::Place;

/// How long a peer that does not answer is retried.
const PATIENCE: Duration = Duration::from_secs(30);

/// The address of a socket.
#[derive(Debug)]
pub enum Socket {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Socket {
    pub fn of(table: &Table, place: Place<'_>) -> Result<Socket> {
        match (table.options.get("path"), table.options.contains_key("port")) {
            (Some(path), _) => Ok(Socket::Unix(place.directory.join(path))),
            (None, true) => {
                let Address { host, port, .. } = Address::of(table)?;
                Ok(Socket::Tcp(host, port))
            }
            (None, false) => Err(Error::invalid(
                format!("neither 'port' nor 'path' for `{}`", table.name),
                "'hostname' and 'port' of TCP, or the 'path' of a Unix socket",
            )),
        }
    }

    pub fn connect(&self) -> std::io::Result<Stream> {
        match self {
            Socket::Tcp(host, port) => TcpStream::connect((host.as_str(), *port)).map(Stream::Tcp),
            Socket::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        }
    }

    /// Retries until a peer listens.
    pub fn connect_patiently(&self, table: &str) -> Result<Stream> {
        let began = Instant::now();
        let mut reported = false;
        loop {
            match self.connect() {
                Ok(stream) => return Ok(stream),
                Err(error) if began.elapsed() > PATIENCE => {
                    return Err(Error::connector(format!("cannot connect `{table}` to {self:?}: {error}")));
                }
                Err(error) => {
                    if !reported {
                        let seconds = PATIENCE.as_secs();
                        notice(&format!(
                            "waiting up to {seconds} s to connect `{table}` to {self:?}: {error}"
                        ));
                        reported = true;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    pub fn listen(&self) -> std::io::Result<Listener> {
        let listener = match self {
            Socket::Tcp(host, port) => Listener::Tcp(TcpListener::bind((host.as_str(), *port))?),
            Socket::Unix(path) => {
                // Left by a killed process. A socket with a listener is not removed, and neither is a file.
                let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
                if is_socket && UnixStream::connect(path).is_err() {
                    let _ = std::fs::remove_file(path);
                }
                Listener::Unix(UnixListener::bind(path)?)
            }
        };
        match &listener {
            Listener::Tcp(listener) => listener.set_nonblocking(true)?,
            Listener::Unix(listener) => listener.set_nonblocking(true)?,
        }
        Ok(listener)
    }
}

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub fn accept(&self) -> std::io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub fn set_nonblocking(&self) -> std::io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    pub fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }

    pub fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }
}
