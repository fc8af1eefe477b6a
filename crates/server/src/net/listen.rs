//! The addresses that the server listens on.

use super::stream::Stream;
use super::tls::Settings;
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use mio::event::Source;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;

/// Where to listen.
pub struct Place<'a> {
    /// Goes with the connections that come there.
    pub mark: u8,
    /// Addresses; a leading minus: no error where it is not available.
    pub bind: &'a [String],
    /// TCP port; 0 for none.
    pub port: u16,
    /// The port speaks TLS.
    pub is_tls: bool,
    /// Path of a Unix socket; empty for none.
    pub unixsocket: &'a str,
    /// The directives of the port and of the socket, for errors.
    pub directives: [&'a str; 2],
}

/// A listening socket.
pub struct Listener {
    socket: Bound,
    mark: u8,
    is_tls: bool,
}

enum Bound {
    /// TCP, at this address.
    Tcp(TcpListener, SocketAddr),
    /// A Unix socket at this path.
    Unix(UnixListener, PathBuf),
}

/// A connection that has just come.
pub struct Incoming {
    /// Its socket.
    pub stream: Stream,
    /// Where from, as CLIENT LIST shows it.
    pub address: String,
    /// Where to.
    pub address_local: String,
    /// From this machine.
    pub is_local: bool,
    /// Through a Unix socket.
    pub is_unix: bool,
    /// The listener's.
    pub mark: u8,
}

impl Listener {
    /// Opens all places, with the backlog and the permissions that `config` names.
    ///
    /// # Errors
    /// `Address`, naming the address and what to do.
    pub fn open_all(config: &Config, places: &[Place<'_>]) -> Result<Vec<Self>, Error> {
        let mut listeners = Vec::new();
        for place in places {
            let before = listeners.len();
            Self::open(config, place, &mut listeners)?;
            if place.port != 0 && listeners.len() == before {
                return Err(Error::new(
                    ErrorKind::Address,
                    format!("nothing to listen on for port {}: no address of bind is available", place.port),
                ));
            }
        }
        if listeners.is_empty() {
            return Err(Error::new(
                ErrorKind::Address,
                "nothing to listen on: no port and no Unix socket is configured, or no address of bind is available",
            ));
        }
        Ok(listeners)
    }

    fn open(config: &Config, place: &Place<'_>, listeners: &mut Vec<Self>) -> Result<(), Error> {
        let mark = place.mark;
        let [port, socket] = place.directives;
        if place.port != 0 {
            for name in place.bind {
                let (name, optional) = match name.strip_prefix('-') {
                    Some(name) => (name, true),
                    None => (name.as_str(), false),
                };
                let address = SocketAddr::new(ip(name)?, place.port);
                match tcp(address, config.tcp_backlog) {
                    Ok(listener) => listeners.push(Self {
                        socket: Bound::Tcp(listener, address),
                        mark,
                        is_tls: place.is_tls,
                    }),
                    Err(error) if optional && not_available(&error) => {}
                    Err(error) => return Err(refused(&address.to_string(), &error, port)),
                }
            }
        }
        if !place.unixsocket.is_empty() {
            let listener = unix(place.unixsocket, config.unixsocketperm)
                .map_err(|error| refused(place.unixsocket, &error, socket))?;
            listeners.push(Self {
                socket: Bound::Unix(listener, PathBuf::from(place.unixsocket)),
                mark,
                is_tls: false,
            });
        }
        Ok(())
    }

    /// The next connection; `WouldBlock` when there is none. Of a port with TLS it has not begun its handshake.
    ///
    /// # Errors
    /// The kernel's.
    pub fn accept(&self, tls: &Settings) -> io::Result<Incoming> {
        let mark = self.mark;
        match &self.socket {
            Bound::Tcp(listener, address) => {
                let (stream, peer) = listener.accept()?;
                // Replies are sent whole: waiting for more to send could only delay them.
                stream.set_nodelay(true)?;
                let local = stream.local_addr().unwrap_or(*address);
                let stream = match self.is_tls {
                    false => Stream::Tcp(stream),
                    // The next one is not kept from coming.
                    true => Stream::Tls(Box::new(
                        tls.accept(stream).map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?,
                    )),
                };
                Ok(Incoming {
                    stream,
                    is_local: peer.ip().to_canonical().is_loopback(),
                    address: peer.to_string(),
                    address_local: local.to_string(),
                    is_unix: false,
                    mark,
                })
            }
            Bound::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                let address = format!("{}:0", path.display());
                Ok(Incoming {
                    stream: Stream::Unix(stream),
                    address_local: address.clone(),
                    address,
                    is_local: true,
                    is_unix: true,
                    mark,
                })
            }
        }
    }

    /// For people.
    pub fn name(&self) -> String {
        match &self.socket {
            Bound::Tcp(_, address) if self.is_tls => format!("{address} (TLS)"),
            Bound::Tcp(_, address) => address.to_string(),
            Bound::Unix(_, path) => path.display().to_string(),
        }
    }

    /// Registers it for events of new connections.
    ///
    /// # Errors
    /// The kernel's.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.socket {
            Bound::Tcp(listener, _) => listener.register(registry, token, Interest::READABLE),
            Bound::Unix(listener, _) => listener.register(registry, token, Interest::READABLE),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Bound::Unix(_, path) = &self.socket {
            // The next start would remove it too.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn ip(name: &str) -> Result<IpAddr, Error> {
    match name {
        "*" | "0.0.0.0" => Ok(Ipv4Addr::UNSPECIFIED.into()),
        "::*" => Ok(Ipv6Addr::UNSPECIFIED.into()),
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => name.parse().map_err(|_| {
            let message =
                format!("bind {name}: not an IP address; write 127.0.0.1, ::1, or * for every address");
            Error::new(ErrorKind::Configuration, message)
        }),
    }
}

fn tcp(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Else `::` would take the IPv4 port too, and `bind * ::*` fail.
        socket.set_only_v6(true)?;
    }
    // Connections of the server before, still closing, do not keep its successor from the port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(TcpListener::from_std(socket.into()))
}

fn unix(path: &str, permissions: u32) -> io::Result<UnixListener> {
    // A socket without a listener was left by a server that was killed. Any other file there stays.
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    if permissions != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(permissions))?;
    }
    Ok(listener)
}

fn not_available(error: &io::Error) -> bool {
    // EAFNOSUPPORT and EPROTONOSUPPORT have no kind of their own.
    error.kind() == io::ErrorKind::AddrNotAvailable
        || [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::PROTONOSUPPORT]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn refused(address: &str, error: &io::Error, directive: &str) -> Error {
    let todo = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("another server listens there: stop it, or choose another address with {directive}")
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "choose one that this user may use with {directive} (ports below 1024 are the administrator's)"
            )
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address: see bind".to_owned(),
        _ => format!("choose another with {directive}"),
    };
    Error::new(ErrorKind::Address, format!("cannot listen on {address}: {error}; {todo}"))
}
