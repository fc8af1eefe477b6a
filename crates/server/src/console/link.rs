//! The connection on which the console runs commands.

use crate::metrics::http::Status;
use duramen_resp::{Replies, Reply, encode_command};
use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The time of all commands of one request, from when it came: also of one that waits for a thread.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of all their replies: a page of large elements is more than anybody reads.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// Why a request is not answered.
#[derive(Debug)]
pub enum Failed {
    /// The server's error.
    Refused(String),
    /// A parameter is wrong.
    Parameter(String),
    /// The server has not answered in time.
    Late,
    /// The replies are too large.
    TooLarge,
    /// The server ends, or it has closed the connection.
    Ended,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) | Self::Parameter(why) => write!(f, "{why}"),
            Self::Late => write!(f, "the server has not answered within {} seconds", TIME_MAX.as_secs()),
            Self::TooLarge => {
                write!(f, "more than {} MiB would have to be read for this page", REPLY_BYTES_MAX >> 20)
            }
            Self::Ended => write!(f, "the server has closed the console's connection"),
        }
    }
}

impl Failed {
    /// The status of the answer.
    pub fn status(&self) -> Status {
        match self {
            Self::Refused(why) if why.starts_with("NOPERM") || why.starts_with("NOAUTH") => Status::Forbidden,
            Self::Refused(_) | Self::Parameter(_) => Status::BadRequest,
            Self::Late => Status::Late,
            Self::TooLarge | Self::Ended => Status::Unavailable,
        }
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Parameter(why)
    }
}

/// See the module.
pub struct Link {
    stream: UnixStream,
    replies: Replies,
    received: usize,
    deadline: Instant,
}

impl Link {
    /// On this connection. What it reads does not count as use: eviction does not see the console.
    ///
    /// # Errors
    /// As [`Self::all`].
    pub fn new(stream: UnixStream, asked_at: Instant) -> Result<Self, Failed> {
        let deadline = asked_at + TIME_MAX;
        let mut link = Self { stream, replies: Replies::default(), received: 0, deadline };
        // Users without the right to it read as everybody does.
        link.all(&[vec![b"client", b"no-touch", b"on"]])?;
        Ok(link)
    }

    /// Selects the database of the parameter `db`.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn select(&mut self, db: u64) -> Result<(), Failed> {
        if db == 0 {
            return Ok(());
        }
        self.call(&[b"select", db.to_string().as_bytes()]).map(drop)
    }

    /// Runs a command.
    ///
    /// # Errors
    /// The server's error, or why there is no reply.
    pub fn call(&mut self, command: &[&[u8]]) -> Result<Reply, Failed> {
        let reply = self.all(&[command.to_vec()])?.pop().ok_or(Failed::Ended)?;
        match reply.error() {
            Some(error) => Err(Failed::Refused(String::from_utf8_lossy(error).into_owned())),
            None => Ok(reply),
        }
    }

    /// Runs commands together; the replies may be errors.
    ///
    /// # Errors
    /// Why there are no replies.
    pub fn all(&mut self, commands: &[Vec<&[u8]>]) -> Result<Vec<Reply>, Failed> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| encode_command(&mut bytes, command));
        let left = self.left()?;
        self.stream.set_write_timeout(Some(left)).map_err(|_| Failed::Ended)?;
        self.stream.write_all(&bytes).map_err(|error| failed(&error))?;
        let mut replies = Vec::with_capacity(commands.len());
        let mut room = vec![0; 64 << 10];
        while replies.len() < commands.len() {
            if let Some(reply) = self.replies.reply().map_err(|_| Failed::Ended)? {
                replies.push(reply);
                continue;
            }
            let left = self.left()?;
            self.stream.set_read_timeout(Some(left)).map_err(|_| Failed::Ended)?;
            match self.stream.read(&mut room) {
                Ok(0) => return Err(Failed::Ended),
                Ok(count) => {
                    self.received += count;
                    if self.received > REPLY_BYTES_MAX {
                        return Err(Failed::TooLarge);
                    }
                    self.replies.add(&room[..count]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(replies)
    }

    fn left(&self) -> Result<Duration, Failed> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Failed::Late) } else { Ok(left) }
    }
}

fn failed(error: &std::io::Error) -> Failed {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failed::Late,
        _ => Failed::Ended,
    }
}

/// The members of an array.
///
/// # Errors
/// [`Failed::Ended`] for another reply, which no server of ours sends.
pub fn items(reply: &Reply) -> Result<&[Reply], Failed> {
    reply.items().ok_or(Failed::Ended)
}

/// The bytes of a reply, or none.
pub fn bytes(reply: &Reply) -> &[u8] {
    reply.text().unwrap_or_default()
}

/// The reply of SCAN and its like: the next cursor, and the members.
///
/// # Errors
/// As [`items`].
pub fn scanned(reply: &Reply) -> Result<(String, &[Reply]), Failed> {
    match items(reply)? {
        [cursor, members] => Ok((String::from_utf8_lossy(bytes(cursor)).into_owned(), items(members)?)),
        _ => Err(Failed::Ended),
    }
}
