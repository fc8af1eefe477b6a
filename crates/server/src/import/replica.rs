//! Replicates a running server for a while: its snapshot, and then the commands that it executes.
//!
//! ```text
//! connect → AUTH → REPLCONF → PSYNC ? -1 → snapshot (an RDB file) ─┬─► end
//!                                                  with `follow` └─► commands … told to stop → its offset at that moment → end
//! ```
//!
//! The server's offset counts the bytes of its commands. An offset is acknowledged when all commands up to it are
//! durable here. A requested end waits for all commands that the server had executed at that time: after stopping its
//! clients first, nothing is missing.

use super::commands::Step;
use super::{Failure, Import};
use duramen_resp::encode_command;
use duramen_resp::tls::Settings;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::atomic::Ordering;
use std::time::Duration;

const PORT_DEFAULT: u16 = 6379;
const READ_BYTES: usize = 64 << 10;
// A server pings its replicas every ten seconds.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);
const FOLLOW_TIMEOUT: Duration = Duration::from_millis(500);

/// The address of a server, and the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its name or IP address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The user that the password is of; `None`: the default user.
    pub user: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// How to speak TLS; `None`: without.
    pub tls: Option<Settings>,
}

impl std::str::FromStr for Origin {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let wanted = || {
            format!(
                "{url}: wanted redis://[[USER]:PASSWORD@]HOST[:PORT], or rediss:// for TLS, which may end with ?cacert=FILE&cert=FILE&key=FILE"
            )
        };
        let (rest, tls) = match (url.strip_prefix("redis://"), url.strip_prefix("rediss://")) {
            (Some(rest), _) => (rest, None),
            (None, Some(rest)) => {
                let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
                (rest, Some(Settings::parse(query)?))
            }
            (None, None) => return Err(wanted()),
        };
        let rest = rest.trim_end_matches('/');
        let (login, place) =
            rest.rsplit_once('@').map_or((None, rest), |(login, place)| (Some(login), place));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') => (host, port.parse().map_err(|_| wanted())?),
            _ => (place, PORT_DEFAULT),
        };
        if host.is_empty() || host.contains('/') {
            return Err(wanted());
        }
        let (user, password) =
            match login.map(|login| login.split_once(':').ok_or_else(wanted)).transpose()? {
                Some((user, password)) => (Some(user).filter(|user| !user.is_empty()), Some(password)),
                None => (None, None),
            };
        let host = host.trim_matches(['[', ']']).to_owned();
        let decoded = |text: Option<&str>| text.map(|text| decoded(text).ok_or_else(wanted)).transpose();
        Ok(Self { host, port, user: decoded(user)?, password: decoded(password)?, tls })
    }
}

impl Origin {
    /// A server on this machine, without a login.
    pub fn local(port: u16) -> Self {
        Self { host: "127.0.0.1".to_owned(), port, user: None, password: None, tls: None }
    }

    /// Sends PING and returns the reply. A server that wants a login first is alive too: the reply is its refusal.
    ///
    /// # Errors
    /// When nothing that answers PING answers within this time, for each step.
    pub fn ping(&self, patience: Duration) -> Result<String, Failure> {
        let mut connection = Connection::open_within(self, patience)?;
        connection.send(&["PING"])?;
        let line = connection.line()?;
        match line.split_at_checked(1) {
            Some(("+", reply)) => Ok(reply.to_owned()),
            Some(("-", reply)) if reply.starts_with("NOAUTH ") => Ok(reply.to_owned()),
            _ => Err(Failure(format!("the server answers PING with \"{line}\""))),
        }
    }
}

/// Decodes the percent signs in a part of an address; `None` if they are malformed or the result is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// A socket, with TLS or without.
trait Socket: Read + Write {
    fn set_read_timeout(&self, time: Duration) -> io::Result<()>;
}

impl Socket for TcpStream {
    fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        Self::set_read_timeout(self, Some(time))
    }
}

impl Socket for StreamOwned<ClientConnection, TcpStream> {
    fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        self.sock.set_read_timeout(Some(time))
    }
}

/// A connection to the server.
struct Connection {
    input: BufReader<Box<dyn Socket>>,
}

impl Connection {
    fn open(origin: &Origin) -> Result<Self, Failure> {
        Self::open_within(origin, HANDSHAKE_TIMEOUT)
    }

    /// Connects and logs in; each step may take this long.
    fn open_within(origin: &Origin, patience: Duration) -> Result<Self, Failure> {
        let Origin { host, port, user, password, tls } = origin;
        let failed = |error| Failure(format!("cannot connect to {host} port {port}: {error}"));
        let mut socket = Err(io::Error::other("the name has no address"));
        for address in (&host[..], *port).to_socket_addrs().map_err(failed)? {
            socket = TcpStream::connect_timeout(&address, patience);
            if socket.is_ok() {
                break;
            }
        }
        let socket = socket.map_err(failed)?;
        socket.set_read_timeout(Some(patience)).map_err(failed)?;
        socket.set_write_timeout(Some(patience)).map_err(failed)?;
        let socket: Box<dyn Socket> = match tls {
            None => Box::new(socket),
            Some(settings) => Box::new(settings.connect(host, socket).map_err(failed)?),
        };
        let mut connection = Self { input: BufReader::new(socket) };
        if let Some(password) = password {
            let login = user.iter().chain([password]).map(String::as_str);
            connection.ask(&["AUTH"].into_iter().chain(login).collect::<Vec<_>>())?;
        }
        Ok(connection)
    }

    fn send(&mut self, words: &[&str]) -> Result<(), Failure> {
        let mut request = Vec::new();
        encode_command(&mut request, words);
        let socket = self.input.get_mut();
        socket.write_all(&request).and_then(|()| socket.flush()).map_err(|error| lost(&error))
    }

    /// Sends a command; the first line of its reply.
    fn ask(&mut self, words: &[&str]) -> Result<String, Failure> {
        self.send(words)?;
        let line = self.line()?;
        match line.strip_prefix('-') {
            Some(error) => Err(Failure(format!("the server answers {} with \"{error}\"", words[0]))),
            None => Ok(line),
        }
    }

    /// The next non-empty line: empty ones only show that the server is alive.
    fn line(&mut self) -> Result<String, Failure> {
        loop {
            let mut line = Vec::new();
            let read = self.input.by_ref().take(READ_BYTES as u64).read_until(b'\n', &mut line);
            if read.map_err(|error| lost(&error))? == 0 {
                return Err(Failure("the server closed the connection".to_owned()));
            }
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if !line.is_empty() {
                return Ok(line);
            }
        }
    }
}

fn lost(error: &io::Error) -> Failure {
    Failure(format!("lost the connection to the server: {error}"))
}

impl Import<'_> {
    /// Imports the snapshot of a running server, and with `follow` all later commands, until it is asked to stop.
    ///
    /// # Errors
    /// When the server refuses, a command is unknown here, or the connection is lost: with the progress so far.
    pub fn replica(&mut self, origin: &Origin, follow: bool) -> Result<(), Failure> {
        let mut connection = Connection::open(origin)?;
        connection.ask(&["REPLCONF", "capa", "psync2"])?;
        let answer = connection.ask(&["PSYNC", "?", "-1"])?;
        let offset =
            answer.strip_prefix("+FULLRESYNC ").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        let Some(offset) = offset else {
            return Err(Failure(format!("the server answers PSYNC with \"{answer}\", wanted +FULLRESYNC")));
        };
        let head = connection.line()?;
        let Some(bytes) = head.strip_prefix('$').and_then(|digits| digits.parse::<u64>().ok()) else {
            return Err(Failure(format!(
                "the server begins its snapshot with \"{head}\", wanted $ and its length"
            )));
        };
        self.done.snapshot_bytes = Some(bytes);
        self.rdb(connection.input.by_ref().take(bytes))?;
        self.done.has_snapshot = true;
        (self.told)(&self.done);
        if follow {
            self.commands.group();
            let followed = self.follow(origin, &mut connection, offset);
            let flushed = self.commands.flush_group();
            (self.told)(&self.done);
            followed.map_err(|why| Failure(format!("{why}; imported before it: {}", self.done)))?;
            flushed?;
        }
        Ok(())
    }

    fn follow(
        &mut self,
        origin: &Origin,
        connection: &mut Connection,
        mut offset: u64,
    ) -> Result<(), Failure> {
        connection.input.get_ref().set_read_timeout(FOLLOW_TIMEOUT).map_err(|error| lost(&error))?;
        let (mut buffer, mut end) = (Vec::new(), None);
        loop {
            let mut at = 0;
            while at < buffer.len() {
                match self
                    .commands
                    .step(&buffer[at..])
                    .map_err(|why| Failure(format!("at offset {offset}: {why}")))?
                {
                    Step::Incomplete => break,
                    Step::Command { bytes, is_executed } => {
                        (at, offset) = (at + bytes, offset + bytes as u64);
                        self.done.bytes += bytes as u64;
                        self.done.commands += u64::from(is_executed);
                        self.done.databases.insert(self.commands.database());
                    }
                }
            }
            buffer.drain(..at);
            self.commands.flush_group()?;
            (self.told)(&self.done);
            if end.is_some_and(|end| offset >= end) && self.commands.is_whole() {
                return Ok(());
            }
            connection.send(&["REPLCONF", "ACK", &offset.to_string()])?;
            if end.is_none() && self.stop.load(Ordering::Relaxed) {
                end = Some(offset_of(origin)?);
                // There may be nothing more to wait for.
                self.commands.group();
                continue;
            }
            let have = buffer.len();
            buffer.resize(have + READ_BYTES, 0);
            let taken = connection.input.read(&mut buffer[have..]);
            buffer.truncate(have + *taken.as_ref().unwrap_or(&0));
            match taken {
                Ok(0) => {
                    return Err(Failure(format!("the server closed the connection after offset {offset}")));
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {}
                    _ => return Err(lost(&error)),
                },
                Ok(_) => {}
            }
            self.commands.group();
        }
    }
}

/// How far the server is now.
fn offset_of(origin: &Origin) -> Result<u64, Failure> {
    let mut connection = Connection::open(origin)?;
    connection.send(&["INFO", "replication"])?;
    loop {
        let line = connection.line()?;
        if let Some(offset) = line.strip_prefix("master_repl_offset:") {
            return offset.parse().map_err(|_| {
                Failure(format!("found the offset \"{offset}\" in the server's reply, wanted a number"))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let origin = |host: &str, port, user: Option<&str>, password: Option<&str>| Origin {
            host: host.to_owned(),
            port,
            user: user.map(str::to_owned),
            password: password.map(str::to_owned),
            tls: None,
        };
        let tls = |settings| Origin { tls: Some(settings), ..origin("host", 6379, None, None) };
        assert_eq!("rediss://host".parse(), Ok(tls(Settings::default())));
        let authorities = Some("/a/b.crt".to_owned());
        assert_eq!(
            "rediss://host?cacert=/a/b.crt".parse(),
            Ok(tls(Settings { authorities, certificate: None }))
        );
        for (url, wanted) in [
            ("redis://localhost", origin("localhost", 6379, None, None)),
            ("redis://10.0.0.1:7000/", origin("10.0.0.1", 7000, None, None)),
            ("redis://:secret@host", origin("host", 6379, None, Some("secret"))),
            ("redis://me:a:b@host:1", origin("host", 1, Some("me"), Some("a:b"))),
            ("redis://m%40e:a%3Ab%25%2F@host", origin("host", 6379, Some("m@e"), Some("a:b%/"))),
            ("redis://[::1]:7000", origin("::1", 7000, None, None)),
        ] {
            assert_eq!(url.parse(), Ok(wanted), "{url}");
        }
        for url in [
            "host",
            "http://host",
            "redis://",
            "redis://host:x",
            "redis://me@host",
            "redis://host/1/2",
            "redis://:a%2@host",
            "redis://:%zz@host",
        ] {
            assert!(url.parse::<Origin>().unwrap_err().contains("wanted redis://"), "{url}");
        }
    }
}
