//! The server's log: lines for an operator who is called at three in the morning.
//!
//! ```text
//! 21479:M 24 Nov 2026 10:00:00.123 * text
//! ```
//!
//! in Redis's format, so that tools for its logs can read these: process, `M`, time, level (`.` debug, `-` verbose, `*`
//! notice, `#` warning), text. The time is UTC. A text says what happened, where, and what to do; its further lines
//! begin with two blanks. `docs/operations.md` lists all texts.
//!
//! With `duramen-log-format json` each is an object in one line instead:
//!
//! ```text
//! {"time":"2026-11-24T10:00:00.123Z","level":"notice","pid":21479,"message":"text"}
//! ```
//!
//! If standard output is the stream of the system's journal (`JOURNAL_STREAM`), each line begins with its priority as
//! sd-daemon(3) defines it, such as `<4>`; the journal takes it off.
//!
//! Lines go to standard output, or to the file `logfile`. The file is opened for each line, so log rotation only has to
//! move it. A line that cannot be written is lost: the server keeps serving when the disk is full.
//!
//! There is one log per process: lines come from every thread, also before the server exists and when a thread panics.

use jiff::Timestamp;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A count and what it counts: "1 key", "2 keys".
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For finding a fault of the server.
    Debug,
    /// Connections opened and closed.
    Verbose,
    /// Start, end, and other events for the operator.
    Notice,
    /// The operator has to act.
    Warning,
    /// No line at all.
    Nothing,
}

impl Level {
    /// The directive's words, in the order of the levels.
    pub const WORDS: [&str; 5] = ["debug", "verbose", "notice", "warning", "nothing"];
    const ALL: [Self; 5] = [Self::Debug, Self::Verbose, Self::Notice, Self::Warning, Self::Nothing];

    /// The level of a word's position.
    pub fn at(index: usize) -> Self {
        Self::ALL.get(index).copied().unwrap_or(Self::Notice)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        Self::WORDS.get(self as usize).copied().unwrap_or("notice")
    }

    /// The priority of syslog.
    const fn priority(self) -> u8 {
        match self {
            Self::Debug => 7,
            Self::Verbose => 6,
            Self::Notice => 5,
            Self::Warning | Self::Nothing => 4,
        }
    }

    const fn sign(self) -> char {
        match self {
            Self::Debug => '.',
            Self::Verbose => '-',
            Self::Notice => '*',
            Self::Warning | Self::Nothing => '#',
        }
    }
}

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Redis's.
    #[default]
    Lines,
    /// JSON.
    Json,
}

impl Format {
    /// The directive's words, in the order of the variants.
    pub const WORDS: [&str; 2] = ["lines", "json"];

    /// The form of a word's position.
    pub const fn at(index: usize) -> Self {
        if index == 1 { Self::Json } else { Self::Lines }
    }

    /// Its word.
    pub const fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    /// The line, with its end.
    fn line(self, level: Level, millis: u64, text: &str) -> String {
        let (pid, text) = (std::process::id(), text.trim_end());
        match self {
            Self::Lines => {
                format!("{pid}:M {} {} {}\n", time_text(millis), level.sign(), text.replace('\n', "\n  "))
            }
            Self::Json => {
                let time = timestamp(millis).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
                let line = JsonLine { time: &time, level: level.word(), pid, message: text };
                // Texts and numbers can always be written.
                serde_json::to_string(&line).unwrap_or_default() + "\n"
            }
        }
    }
}

/// A line of [`Format::Json`].
#[derive(serde::Serialize)]
struct JsonLine<'a> {
    time: &'a str,
    level: &'a str,
    pid: u32,
    message: &'a str,
}

static FORMAT: AtomicU8 = AtomicU8::new(Format::Lines as u8);
static LEVEL: AtomicU8 = AtomicU8::new(Level::Notice as u8);
// `None`: standard output. Locked while a line is written, so that lines do not mix.
static FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Sends lines of this level and above to `file`, or to standard output if it is empty.
///
/// # Errors
/// When the file cannot be opened for appending.
pub fn open(level: Level, file: &str) -> std::io::Result<()> {
    let file = (!file.is_empty()).then(|| PathBuf::from(file));
    if let Some(path) = &file {
        append(path)?;
    }
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = file;
    set_level(level);
    Ok(())
}

/// Sets the level: lines of it and above are written.
pub fn set_level(level: Level) {
    // Relaxed: publishes nothing.
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Sets the form of lines.
pub fn set_format(format: Format) {
    // Relaxed: publishes nothing.
    FORMAT.store(format as u8, Ordering::Relaxed);
}

/// Whether lines go to a file: then standard error is not read together with them.
pub fn is_to_file() -> bool {
    FILE.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// For finding a fault.
pub fn debug(text: impl Display) {
    line(Level::Debug, &text);
}

/// A connection opened or closed.
pub fn verbose(text: impl Display) {
    line(Level::Verbose, &text);
}

/// An event for the operator.
pub fn notice(text: impl Display) {
    line(Level::Notice, &text);
}

/// An event on which the operator has to act.
pub fn warning(text: impl Display) {
    line(Level::Warning, &text);
}

fn line(level: Level, text: &dyn Display) {
    if (level as u8) < LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let line = Format::at(FORMAT.load(Ordering::Relaxed).into()).line(level, now, &text.to_string());
    let file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = match &*file {
        Some(path) => append(path).and_then(|mut file| file.write_all(line.as_bytes())),
        None => {
            let mut out = std::io::stdout().lock();
            static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
            let is_journal = *IS_JOURNAL.get_or_init(|| is_journal(std::env::var_os("JOURNAL_STREAM"), &out));
            let line = if is_journal { with_priority(level, &line) } else { line };
            out.write_all(line.as_bytes()).and_then(|()| out.flush())
        }
    };
}

/// Whether a stream is the one that the journal named, by device and inode.
fn is_journal(named: Option<OsString>, stream: impl AsFd) -> bool {
    let named = named.and_then(|named| named.into_string().ok());
    let numbers = named.as_deref().and_then(|named| named.split_once(':'));
    let Some((Ok(device), Ok(inode))) =
        numbers.map(|(device, inode)| (device.parse::<u64>(), inode.parse::<u64>()))
    else {
        return false;
    };
    rustix::fs::fstat(stream).is_ok_and(|found| (found.st_dev, found.st_ino) == (device, inode))
}

/// The journal cuts its entries at line ends, and reads a priority for each.
fn with_priority(level: Level, text: &str) -> String {
    let prefix = format!("<{}>", level.priority());
    text.split_inclusive('\n').flat_map(|line| [prefix.as_str(), line]).collect()
}

fn append(path: &Path) -> std::io::Result<std::fs::File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Unix milliseconds as `24 Nov 2026 10:00:00.123`, in UTC.
fn time_text(millis: u64) -> String {
    timestamp(millis).strftime("%d %b %Y %H:%M:%S%.3f").to_string()
}

fn timestamp(millis: u64) -> Timestamp {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    time.unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, wanted) in [
            (0, "01 Jan 1970 00:00:00.007"),
            (951_782_399, "28 Feb 2000 23:59:59.007"),
            (951_782_400, "29 Feb 2000 00:00:00.007"),
            (951_868_800, "01 Mar 2000 00:00:00.007"),
            (1_795_513_200, "24 Nov 2026 09:40:00.007"),
            (4_107_542_400, "01 Mar 2100 00:00:00.007"),
        ] {
            assert_eq!(time_text(seconds * 1000 + 7), wanted);
        }
    }

    #[test]
    fn log_levels_have_their_names() {
        for (index, word) in Level::WORDS.iter().enumerate() {
            assert_eq!(Level::at(index).word(), *word);
            assert_eq!(Level::at(index) as usize, index);
        }
    }

    #[test]
    fn a_line_of_json_is_one_object_whatever_the_text_is() {
        let text = "the file \"a\\b\" was moved:\n  <script>\u{1}\u{2028}\n";
        let line = Format::Json.line(Level::Warning, 1_795_513_200_007, text);
        assert_eq!(line.matches('\n').count(), 1);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["time"], "2026-11-24T09:40:00.007Z");
        assert_eq!(
            (object["level"].as_str(), object["pid"].as_u64()),
            (Some("warning"), Some(std::process::id().into()))
        );
        assert_eq!(object["message"], text.trim_end());
        let line = Format::Lines.line(Level::Warning, 1_795_513_200_007, "one\ntwo\n");
        assert_eq!(line, format!("{}:M 24 Nov 2026 09:40:00.007 # one\n  two\n", std::process::id()));
    }

    #[test]
    fn each_line_for_the_journal_has_a_priority() {
        assert_eq!(with_priority(Level::Warning, "one\n  two\n"), "<4>one\n<4>  two\n");
        assert_eq!(with_priority(Level::Debug, "one\n"), "<7>one\n");
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let found = rustix::fs::fstat(&stream).unwrap();
        let named = |text: String| is_journal(Some(text.into()), &stream);
        assert!(named(format!("{}:{}", found.st_dev, found.st_ino)));
        assert!(!named(format!("{}:{}", found.st_dev, found.st_ino + 1)));
        assert!(!named("x".to_owned()) && !is_journal(None, &stream));
    }
}
