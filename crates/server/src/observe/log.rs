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
//! Lines go to standard output, or to the file `logfile`. The file is opened for each line, so log rotation only has to
//! move it. A line that cannot be written is lost: the server keeps serving when the disk is full.
//!
//! There is one log per process: lines come from every thread, also before the server exists and when a thread panics.

use jiff::Timestamp;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
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

    const fn sign(self) -> char {
        match self {
            Self::Debug => '.',
            Self::Verbose => '-',
            Self::Notice => '*',
            Self::Warning | Self::Nothing => '#',
        }
    }
}

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
    let text = text.to_string().trim_end().replace('\n', "\n  ");
    let line = format!("{}:M {} {} {text}\n", std::process::id(), time_text(now), level.sign());
    let file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = match &*file {
        Some(path) => append(path).and_then(|mut file| file.write_all(line.as_bytes())),
        None => {
            let mut out = std::io::stdout().lock();
            out.write_all(line.as_bytes()).and_then(|()| out.flush())
        }
    };
}

fn append(path: &Path) -> std::io::Result<std::fs::File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Unix milliseconds as `24 Nov 2026 10:00:00.123`, in UTC.
fn time_text(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%d %b %Y %H:%M:%S%.3f").to_string()
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
}
