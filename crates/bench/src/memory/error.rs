//! Errors of a workload or a run: place, found, wanted, and what to do.

use std::fmt;

/// A `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A workload file or an option asks for something impossible.
    InvalidInput,
    /// The medium or the machine cannot do what the user asked for.
    System,
}

/// What was attempted, found and wanted, and what to do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::InvalidInput, message: message.into() }
    }

    pub(crate) fn system(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::System, message: message.into() }
    }

    /// The cause of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<duramen_media::Error> for Error {
    fn from(error: duramen_media::Error) -> Self {
        use duramen_media::ErrorKind as Media;
        match error.kind() {
            Media::InvalidInput | Media::NotFound | Media::AlreadyExists => Self::invalid(error.to_string()),
            _ => Self::system(error.to_string()),
        }
    }
}

/// The nearest of `names`, if it is near enough to be meant.
pub(crate) fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let lower = name.to_ascii_lowercase();
    names
        .into_iter()
        .map(|known| (distance(&lower, known), known))
        .filter(|(distance, known)| *distance <= known.len().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// The number of characters to insert, delete, replace or swap to make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut table = vec![0usize; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            let at = |i: usize, j: usize| table.get(i * width + j).copied().unwrap_or(0);
            let found = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = at(i - 1, j - 1) + usize::from(a.get(i - 1) != b.get(j - 1));
                let mut best = replaced.min(at(i - 1, j) + 1).min(at(i, j - 1) + 1);
                if i > 1 && j > 1 && a.get(i - 1) == b.get(j - 2) && a.get(i - 2) == b.get(j - 1) {
                    best = best.min(at(i - 2, j - 2) + 1);
                }
                best
            };
            if let Some(cell) = table.get_mut(i * width + j) {
                *cell = found;
            }
        }
    }
    table.last().copied().unwrap_or(0)
}

/// A count of bytes as people write it.
pub(crate) fn bytes_text(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >> shift > 0 {
            return if bytes.trailing_zeros() >= shift {
                format!("{} {unit}", bytes >> shift)
            } else {
                format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64)
            };
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_gets_a_suggestion_and_nonsense_does_not() {
        let names = ["access_size", "number_threads", "operation"];
        assert_eq!(nearest("acces_size", names), Some("access_size"));
        assert_eq!(nearest("number_thraeds", names), Some("number_threads"));
        assert_eq!(nearest("Operation", names), Some("operation"));
        assert_eq!(nearest("temperature_of_tea", names), None);
    }

    #[test]
    fn bytes_are_written_in_the_largest_unit() {
        assert_eq!(bytes_text(64), "64 bytes");
        assert_eq!(bytes_text(10 << 30), "10 GiB");
        assert_eq!(bytes_text(1536), "1.5 KiB");
    }
}
