//! Why a request failed, for all protocols: the text that Redis 7.0 has for it, and whether the store itself failed.

use std::borrow::Cow;

/// The store has reached `maxmemory`, or the end of its device.
pub const OUT_OF_SPACE: CommandError =
    CommandError::new("OOM command not allowed when used memory > 'maxmemory'.");

/// An error reply: its text without the leading `-` and the line end; the first word is the code.
///
/// Bytes, because some errors repeat the client's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    text: Cow<'static, [u8]>,
    store: Option<StoreFailure>,
}

/// The state of the store that an error shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// Something could not be read or made durable just now.
    Now,
    /// Something could not be made durable earlier; the store takes no writes since.
    Earlier,
}

impl CommandError {
    /// An error whose text is known beforehand.
    pub const fn new(text: &'static str) -> Self {
        Self { text: Cow::Borrowed(text.as_bytes()), store: None }
    }

    /// A failure of the store just now.
    pub const fn failed(text: &'static str) -> Self {
        Self { text: Cow::Borrowed(text.as_bytes()), store: Some(StoreFailure::Now) }
    }

    /// An error whose text was put together.
    pub fn with(text: impl Into<String>) -> Self {
        Self { text: Cow::Owned(text.into().into_bytes()), store: None }
    }

    /// An error that shows bytes of the client's between two texts. As in Redis they end at a zero byte.
    pub fn showing(before: &str, shown: &[u8], after: &str) -> Self {
        let mut text = Vec::from(before.as_bytes());
        text.extend_from_slice(shown);
        if let Some(zero) = text.iter().position(|byte| *byte == 0) {
            text.truncate(zero);
        }
        text.extend_from_slice(after.as_bytes());
        Self { text: Cow::Owned(text), store: None }
    }

    /// An error that ends with all of an argument, which as in Redis ends at a zero byte, and without the line ends before it.
    pub fn ending(before: &str, shown: &[u8]) -> Self {
        let mut text = Vec::from(before.as_bytes());
        text.extend(shown.iter().take_while(|byte| **byte != 0));
        while text.pop_if(|byte| matches!(byte, b'\r' | b'\n')).is_some() {}
        Self { text: Cow::Owned(text), store: None }
    }

    /// This error as EXEC shows it when it is itself refused.
    #[must_use]
    pub fn aborting(&self) -> Self {
        let why = self.text.strip_prefix(b"ERR ").unwrap_or(&self.text);
        let text = [b"EXECABORT Transaction discarded because of: ", why].concat();
        Self { text: Cow::Owned(text), store: self.store }
    }

    /// Another error's text with bytes of the client's at its end.
    #[must_use]
    pub fn and_showing(self, before: &str, shown: &[u8], after: &str) -> Self {
        let tail = Self::showing(before, shown, after);
        Self { text: Cow::Owned([self.text, tail.text].concat()), ..tail }
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether the store itself has failed.
    pub const fn store_failure(&self) -> Option<StoreFailure> {
        self.store
    }

    /// The first word: `ERR`, `WRONGTYPE`…
    pub fn code(&self) -> &str {
        let word = self.text.split(|byte| *byte == b' ').next().unwrap_or_default();
        std::str::from_utf8(word).unwrap_or_default()
    }

    /// A command, or a subcommand by its full name `client|id`, with too few or too many arguments.
    pub fn arity(name: &str) -> Self {
        Self::with(format!("ERR wrong number of arguments for '{name}' command"))
    }

    /// An expiry time that is not above zero or that no clock can show.
    pub fn expire_time(command: &str) -> Self {
        Self::with(format!("ERR invalid expire time in '{command}' command"))
    }
}

/// Engine errors as the client sees them.
impl From<duramen::Error> for CommandError {
    fn from(error: duramen::Error) -> Self {
        use duramen::ErrorKind;
        let (code, store) = match error.kind() {
            // The medium has no more, whatever `maxmemory` says.
            ErrorKind::OutOfSpace if error.raw_os_error().is_some() => ("OOM", None),
            ErrorKind::OutOfSpace => return OUT_OF_SPACE,
            // Redis's code for "writes are refused because earlier ones could not be kept".
            ErrorKind::Poisoned => ("MISCONF", Some(StoreFailure::Earlier)),
            ErrorKind::Io => ("MISCONF", Some(StoreFailure::Now)),
            // Redis has no such error: it refuses to load data that it cannot trust.
            ErrorKind::Corrupt => ("CORRUPT", None),
            _ => ("ERR", None),
        };
        Self { store, ..Self::with(format!("{code} {}", one_line(&error.to_string()))) }
    }
}

/// Errors of typed values have Redis's texts already.
impl From<duramen_structures::Error> for CommandError {
    fn from(error: duramen_structures::Error) -> Self {
        match error {
            duramen_structures::Error::Engine(error) => error.into(),
            error @ duramen_structures::Error::GroupNotDurable => {
                Self { store: Some(StoreFailure::Earlier), ..Self::with(error.to_string()) }
            }
            error => Self::with(error.to_string()),
        }
    }
}

/// A line end inside an error would end the reply early.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
