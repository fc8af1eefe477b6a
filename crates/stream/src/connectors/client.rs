//! A client of a RESP server: sends commands in one write and reads the replies in order. It connects when it is first
//! used, and again after the connection is lost.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub use duramen_resp::Reply;
use duramen_resp::tls::Settings;
use duramen_resp::{Malformed, Replies, encode_command};

use rustls::{ClientConnection, StreamOwned};

use crate::catalog::options::Kind::{Flag, Name, Number, Text};
use crate::catalog::options::{Declared, option};
use crate::catalog::{Attachment, Table};
use crate::error::{Error, Result};
use crate::run::notice::notice;

/// The option of all connectors to a server.
pub const HOSTNAME: Declared = option("hostname", Name, "127.0.0.1", "the server");

/// The option of all connectors to a server.
pub const PORT: Declared = option("port", Number, "6379", "its port");

/// The option of all connectors to a server.
pub const PASSWORD: Declared = option("password", Text, "(none)", "its password");

/// The option of all connectors to a server.
pub const USERNAME: Declared = option("username", Text, "default", "the user that the password is of");

/// The option of all connectors to a server.
pub const TLS: Declared = option("tls", Flag, "false", "speak TLS");

/// The option of all connectors to a server.
pub const TLS_AUTHORITIES: Declared = option(
    "tls.cacert",
    Text,
    "(the system's)",
    "the file of the authorities that sign the server's certificate",
);

/// The option of all connectors to a server.
pub const TLS_CERTIFICATE: Declared =
    option("tls.cert", Text, "(none)", "the file of this client's certificate");

/// The option of all connectors to a server.
pub const TLS_KEY: Declared = option("tls.key", Text, "(none)", "the file of its key");

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Its host name or IP address.
    pub host: String,
    /// Its port.
    pub port: u16,
    user: Option<String>,
    password: Option<String>,
    tls: Option<Settings>,
    attachment: Option<Attachment>,
}

impl Address {
    /// Whether it is the server in which this job runs.
    pub fn is_in_process(&self) -> bool {
        self.attachment.is_some()
    }

    /// From the options `hostname` (127.0.0.1), `port` (6379) and `password` of a table.
    pub fn of(table: &Table) -> Result<Address> {
        let text = |name: &str| table.options.get(name).cloned();
        let certificate = match (text("tls.cert"), text("tls.key")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return Err(Error::invalid(
                    format!("one of 'tls.cert' and 'tls.key' of `{}`", table.name),
                    "both",
                ));
            }
        };
        let is_tls = text("tls").is_some_and(|tls| tls == "true");
        let port = table.options.get("port").map_or("6379", String::as_str);
        Ok(Address {
            host: table.options.get("hostname").cloned().unwrap_or_else(|| "127.0.0.1".to_owned()),
            port: port.parse().map_err(|_| {
                Error::invalid(format!("'port' = '{port}' of `{}`", table.name), "a number up to 65535")
            })?,
            user: text("username"),
            password: text("password"),
            tls: is_tls.then(|| Settings { authorities: text("tls.cacert"), certificate }),
            attachment: table.attachment.clone(),
        })
    }

    /// The address as text, for people.
    pub fn name(&self) -> String {
        if self.attachment.is_some() { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    fn connect(&self) -> std::io::Result<Box<dyn Socket>> {
        if let Some(attachment) = &self.attachment {
            let stream = attachment.connect()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            return Ok(Box::new(stream));
        }
        let stream = TcpStream::connect((self.host.as_str(), self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(settings) => Ok(Box::new(settings.connect(&self.host, stream)?)),
        }
    }
}

/// A connection: reads and writes.
trait Socket: Read + Write + Send {}

impl Socket for TcpStream {}
impl Socket for UnixStream {}
impl Socket for StreamOwned<ClientConnection, TcpStream> {}

/// A command of these words.
pub fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// All keys of a server with this prefix; `ask` runs a command there.
pub fn scan<E: From<Error>>(
    prefix: &str,
    mut ask: impl FnMut(Vec<Vec<u8>>) -> Result<Vec<Reply>, E>,
) -> Result<BTreeSet<Vec<u8>>, E> {
    let special = |char: char| matches!(char, '*' | '?' | '[' | ']' | '\\');
    let pattern: String = prefix
        .chars()
        .flat_map(|char| special(char).then_some('\\').into_iter().chain([char]))
        .chain(['*'])
        .collect();
    let mut keys = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let replies = ask(words(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000"]))?;
        let Some([next, found]) = replies.first().and_then(Reply::items) else {
            return Err(Error::connector("found another reply to SCAN, wanted a cursor and keys").into());
        };
        keys.extend(found.items().unwrap_or_default().iter().filter_map(Reply::text).map(<[u8]>::to_vec));
        cursor = String::from_utf8_lossy(next.text().unwrap_or(b"0")).into_owned();
        if cursor == "0" {
            return Ok(keys);
        }
    }
}

/// How long the client retries with a server that does not answer before the job ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection, and what has arrived on it.
struct Open {
    socket: Box<dyn Socket>,
    replies: Replies,
}

impl Open {
    fn read(&mut self) -> std::io::Result<Reply> {
        let mut buffer = [0; 64 << 10];
        loop {
            match self.replies.reply() {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(Malformed) => {
                    let shown = self.replies.unread().iter().take(64).copied().collect::<Vec<u8>>();
                    let text = format!("found {} in a reply, wanted RESP", shown.escape_ascii());
                    return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
                }
            }
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.replies.add(&buffer[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A client.
pub struct Client {
    address: Address,
    database: u8,
    open: Option<Open>,
}

impl Client {
    /// A client of one database.
    pub fn new(address: Address, database: u8) -> Client {
        Client { address, database, open: None }
    }

    /// Runs commands one after the other; returns their replies. If the connection is lost meanwhile, all are run
    /// again, so they must be idempotent.
    pub fn run(&mut self, commands: &[Vec<Vec<u8>>]) -> Result<Vec<Reply>> {
        let began = Instant::now();
        let mut reported = false;
        loop {
            match self.once(commands) {
                Ok(Ok(replies)) => return Ok(replies),
                Ok(Err(refused)) => return Err(Error::connector(refused)),
                Err(error) => {
                    self.open = None;
                    let name = self.address.name();
                    if began.elapsed() > PATIENCE {
                        return Err(Error::connector(format!(
                            "the server at {name} has not answered for {} s: {error}",
                            PATIENCE.as_secs()
                        )));
                    }
                    if !reported {
                        let seconds = PATIENCE.as_secs();
                        notice(&format!("waiting up to {seconds} s for the server at {name}: {error}"));
                        reported = true;
                    }
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    }

    /// Closes the connection, if there is one.
    pub fn disconnect(&mut self) {
        self.open = None;
    }

    /// Runs commands over the current connection, or a new one, without a retry. The inner error is the server's, with
    /// the command that it refused.
    pub fn once(&mut self, commands: &[Vec<Vec<u8>>]) -> std::io::Result<Result<Vec<Reply>, String>> {
        let ran = self.pipelined(commands);
        if !matches!(ran, Ok(Ok(_))) {
            // The replies to commands after a refused one are not read: the next commands must not take them for theirs.
            self.open = None;
        }
        ran
    }

    fn pipelined(&mut self, commands: &[Vec<Vec<u8>>]) -> std::io::Result<Result<Vec<Reply>, String>> {
        if self.open.is_none() {
            self.open = Some(Open { socket: self.address.connect()?, replies: Replies::default() });
            let mut first = Vec::new();
            if let Some(password) = &self.address.password {
                let words = [Some("AUTH"), self.address.user.as_deref(), Some(password)];
                first.push(words.into_iter().flatten().map(|word| word.as_bytes().to_vec()).collect());
            }
            if self.database != 0 {
                first.push(vec![b"SELECT".to_vec(), self.database.to_string().into_bytes()]);
            }
            if let Err(refused) = self.pipelined(&first)? {
                return Ok(Err(refused));
            }
        }
        let Some(open) = &mut self.open else { return Ok(Ok(Vec::new())) };
        let mut replies = Vec::new();
        // In parts: a server that cannot send its replies stops reading.
        for part in commands.chunks(1024) {
            let mut request = Vec::new();
            part.iter().for_each(|command| encode_command(&mut request, command));
            open.socket.write_all(&request)?;
            open.socket.flush()?;
            for command in part {
                let reply = open.read()?;
                if let Some(refused) = reply.error() {
                    return Ok(Err(format!("{}{}", String::from_utf8_lossy(refused), named(command))));
                }
                replies.push(reply);
            }
        }
        Ok(Ok(replies))
    }
}

/// The command that a server refused: its verb and key. A password is no key.
fn named(command: &[Vec<u8>]) -> String {
    let shown: Vec<_> = command.iter().take(2).map(|word| String::from_utf8_lossy(word)).collect();
    match &shown[..] {
        [verb, _] if verb == "AUTH" => String::new(),
        shown => format!(", in reply to {}", shown.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a refused command the replies to the commands behind it are still on their way.
    #[test]
    fn replies_behind_a_refused_command_are_not_those_of_the_next_ones() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            for replies in ["-WRONGTYPE no\r\n+stale\r\n", "+fresh\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut [0; 20]).unwrap();
                stream.write_all(replies.as_bytes()).unwrap();
                // Open until the client ends it.
                let _ = stream.read_to_end(&mut Vec::new());
            }
        });
        let address = Address {
            host: "127.0.0.1".to_owned(),
            port,
            user: None,
            password: None,
            tls: None,
            attachment: None,
        };
        let mut client = Client::new(address, 0);
        let refused = client.run(&[words(&["GET", "k"]), words(&["PING"])]).unwrap_err().to_string();
        assert_eq!(refused, "WRONGTYPE no, in reply to GET k");
        assert_eq!(client.run(&[words(&["PING", "x"])]).unwrap()[0].text(), Some(&b"fresh"[..]));
        drop(client);
        server.join().unwrap();
    }
}
