//! The addresses that the server listens on.

use super::stream::Stream;
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

/// A listening socket.
pub enum Listener {
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
}

impl Listener {
    /// Opens all that `config` names.
    ///
    /// # Errors
    /// `Address`, naming the address and what to do.
    pub fn open_all(config: &Config) -> Result<Vec<Self>, Error> {
        let mut listeners = Vec::new();
        if config.port != 0 {
            for name in &config.bind {
                let (name, optional) = match name.strip_prefix('-') {
                    Some(name) => (name, true),
                    None => (name.as_str(), false),
                };
                let address = SocketAddr::new(ip(name)?, config.port);
                match tcp(address, config.tcp_backlog) {
                    Ok(listener) => listeners.push(Self::Tcp(listener, address)),
                    Err(error) if optional && not_available(&error) => {}
                    Err(error) => return Err(refused(&address.to_string(), &error, "--port")),
                }
            }
        }
        if !config.unixsocket.is_empty() {
            let listener =
                unix(config).map_err(|error| refused(&config.unixsocket, &error, "--unixsocket"))?;
            listeners.push(Self::Unix(listener, PathBuf::from(&config.unixsocket)));
        }
        if listeners.is_empty() {
            return Err(Error::new(
                ErrorKind::Address,
                "nothing to listen on: port is 0 or no address of bind is available, and unixsocket is empty",
            ));
        }
        Ok(listeners)
    }

    /// The next connection; `WouldBlock` when there is none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn accept(&self) -> io::Result<Incoming> {
        match self {
            Self::Tcp(listener, address) => {
                let (stream, peer) = listener.accept()?;
                // Replies are sent whole: waiting for more to send could only delay them.
                stream.set_nodelay(true)?;
                let local = stream.local_addr().unwrap_or(*address);
                Ok(Incoming {
                    stream: Stream::Tcp(stream),
                    is_local: peer.ip().to_canonical().is_loopback(),
                    address: peer.to_string(),
                    address_local: local.to_string(),
                    is_unix: false,
                })
            }
            Self::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                let address = format!("{}:0", path.display());
                Ok(Incoming {
                    stream: Stream::Unix(stream),
                    address_local: address.clone(),
                    address,
                    is_local: true,
                    is_unix: true,
                })
            }
        }
    }

    /// For people.
    pub fn name(&self) -> String {
        match self {
            Self::Tcp(_, address) => address.to_string(),
            Self::Unix(_, path) => path.display().to_string(),
        }
    }

    /// Begins to tell of connections.
    ///
    /// # Errors
    /// The kernel's.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(listener, _) => listener.register(registry, token, Interest::READABLE),
            Self::Unix(listener, _) => listener.register(registry, token, Interest::READABLE),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
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

fn unix(config: &Config) -> io::Result<UnixListener> {
    let path = &config.unixsocket;
    // A socket that nobody listens on was left by a server that was killed. Anything else there stays.
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    if config.unixsocketperm != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(config.unixsocketperm))?;
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
