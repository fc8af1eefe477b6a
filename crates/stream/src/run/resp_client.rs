//! A client of a RESP server: sends commands in one write and reads the replies in order. It connects when it is first
//! used, and again after the connection is lost.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::notice::notice;
use crate::catalog::{Attachment, Table};
use crate::error::{Error, Result};

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Its host name or IP address.
    pub host: String,
    /// Its port.
    pub port: u16,
    password: Option<String>,
    attachment: Option<Attachment>,
}

impl Address {
    /// Whether it is the server in which this job runs.
    pub fn is_in_process(&self) -> bool {
        self.attachment.is_some()
    }

    /// From the options `hostname` (127.0.0.1), `port` (6379) and `password` of a table.
    pub fn of(table: &Table) -> Result<Address> {
        let port = table.options.get("port").map_or("6379", String::as_str);
        Ok(Address {
            host: table.options.get("hostname").cloned().unwrap_or_else(|| "127.0.0.1".to_owned()),
            port: port.parse().map_err(|_| {
                Error::invalid(format!("'port' = '{port}' of `{}`", table.name), "a number up to 65535")
            })?,
            password: table.options.get("password").cloned(),
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
        Ok(Box::new(stream))
    }
}

/// A connection: reads and writes.
trait Socket: Read + Write + Send {}

impl Socket for TcpStream {}
impl Socket for UnixStream {}

/// A server's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status, an integer as text, or bytes.
    Bytes(Vec<u8>),
    /// A null reply.
    Null,
    /// An array of replies.
    List(Vec<Reply>),
}

impl Reply {
    /// The bytes of all texts in it.
    pub fn bytes(&self) -> usize {
        match self {
            Reply::Bytes(bytes) => bytes.len(),
            Reply::List(list) => list.iter().map(Reply::bytes).sum(),
            Reply::Null => 0,
        }
    }

    /// The replies of an array; none for any other reply.
    pub fn items(&self) -> &[Reply] {
        if let Reply::List(list) = self { list } else { &[] }
    }

    /// The bytes of a text reply.
    pub fn text(&self) -> Option<&[u8]> {
        if let Reply::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

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
        let Some([next, found]) = replies.first().map(Reply::items) else {
            return Err(Error::connector("found another reply to SCAN, wanted a cursor and keys").into());
        };
        keys.extend(found.items().iter().filter_map(Reply::text).map(<[u8]>::to_vec));
        cursor = String::from_utf8_lossy(next.text().unwrap_or(b"0")).into_owned();
        if cursor == "0" {
            return Ok(keys);
        }
    }
}

/// How long the client retries with a server that does not answer before the job ends.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest reply, the same limit as in Redis.
const BYTES_MAX: usize = 512 << 20;
/// Maximum nesting of arrays.
const DEPTH_MAX: usize = 8;

/// A client.
pub struct Client {
    address: Address,
    database: u8,
    open: Option<BufReader<Box<dyn Socket>>>,
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
        let mut told = false;
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
                    if !told {
                        let seconds = PATIENCE.as_secs();
                        notice(&format!("waiting up to {seconds} s for the server at {name}: {error}"));
                        told = true;
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
            self.open = Some(BufReader::new(self.address.connect()?));
            let mut first = Vec::new();
            if let Some(password) = &self.address.password {
                first.push(vec![b"AUTH".to_vec(), password.clone().into_bytes()]);
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
            open.get_mut().write_all(&encode(part))?;
            for command in part {
                match read(open, 0)? {
                    Ok(reply) => replies.push(reply),
                    Err(refused) => return Ok(Err(format!("{refused}{}", named(command)))),
                }
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

fn encode(commands: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut out = Vec::new();
    for command in commands {
        out.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for word in command {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
    }
    out
}

fn broken(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, format!("found {what} in a reply, wanted RESP"))
}

fn read(from: &mut impl BufRead, depth: usize) -> std::io::Result<Result<Reply, String>> {
    let mut line = Vec::new();
    from.by_ref().take(1 << 16).read_until(b'\n', &mut line)?;
    let Some(text) = line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok()) else {
        return Err(if line.is_empty() {
            std::io::ErrorKind::UnexpectedEof.into()
        } else {
            broken("an incomplete line")
        });
    };
    let count = || text.get(1..).and_then(|text| text.parse::<i64>().ok()).ok_or_else(|| broken(text));
    match text.as_bytes().first() {
        Some(b'+' | b':') => Ok(Ok(Reply::Bytes(text.as_bytes()[1..].to_vec()))),
        Some(b'-') => Ok(Err(text[1..].to_owned())),
        Some(b'$') => {
            let Ok(bytes) = usize::try_from(count()?) else { return Ok(Ok(Reply::Null)) };
            if bytes > BYTES_MAX {
                return Err(broken(text));
            }
            // Memory is taken as bytes arrive, and not for a length that is only announced.
            let mut read = Vec::new();
            from.by_ref().take(bytes as u64 + 2).read_to_end(&mut read)?;
            if read.len() < bytes + 2 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            read.truncate(bytes);
            Ok(Ok(Reply::Bytes(read)))
        }
        Some(b'*') if depth < DEPTH_MAX => {
            let Ok(count) = usize::try_from(count()?) else { return Ok(Ok(Reply::Null)) };
            let mut list = Vec::new();
            for _ in 0..count {
                match self::read(from, depth + 1)? {
                    Ok(reply) => list.push(reply),
                    Err(refused) => return Ok(Err(refused)),
                }
            }
            Ok(Ok(Reply::List(list)))
        }
        _ => Err(broken(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> std::io::Result<Result<Reply, String>> {
        read(&mut &*bytes, 0)
    }

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
        let address = Address { host: "127.0.0.1".to_owned(), port, password: None, attachment: None };
        let mut client = Client::new(address, 0);
        let refused = client.run(&[words(&["GET", "k"]), words(&["PING"])]).unwrap_err().to_string();
        assert_eq!(refused, "WRONGTYPE no, in reply to GET k");
        assert_eq!(client.run(&[words(&["PING", "x"])]).unwrap()[0].text(), Some(&b"fresh"[..]));
        drop(client);
        server.join().unwrap();
    }

    #[test]
    fn replies_are_parsed_and_other_bytes_are_reported() {
        let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        assert_eq!(parse(b"+OK\r\n").unwrap(), Ok(bytes("OK")));
        assert_eq!(parse(b":12\r\n").unwrap(), Ok(bytes("12")));
        assert_eq!(parse(b"$2\r\na\n\r\n").unwrap(), Ok(bytes("a\n")));
        assert_eq!(parse(b"$-1\r\n").unwrap(), Ok(Reply::Null));
        assert_eq!(parse(b"-ERR no\r\n").unwrap(), Err("ERR no".to_owned()));
        let list = Reply::List(vec![bytes("a"), Reply::List(Vec::new())]);
        assert_eq!(parse(b"*2\r\n$1\r\na\r\n*0\r\n").unwrap(), Ok(list));
        for wrong in [&b""[..], b"+OK", b"$5\r\na\r\n", b"?\r\n", b"$x\r\n", b"$99999999999\r\n"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&b"*1\r\n".repeat(20)).is_err());
    }
}
