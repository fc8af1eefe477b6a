//! CSV with the options of Flink's format: its options, where records end and the values of each (`split`), values
//! into columns (`read`) and from rows (`write`). What is written is read with the same options as the same values.

mod read;
mod split;
mod write;

pub use self::read::read;
pub use self::split::Splitter;
use crate::error::Error;

/// The CSV options of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csv {
    /// The delimiter between two values.
    pub delimiter: u8,
    /// The quote around a value that has delimiters or line ends.
    pub quote: Option<u8>,
    /// The escape character, which makes the next byte literal.
    pub escape: Option<u8>,
    /// Whether lines that begin with `#` are skipped.
    pub comments: bool,
    /// The text of NULL.
    pub null: String,
}

impl Default for Csv {
    fn default() -> Self {
        Csv { delimiter: b',', quote: Some(b'"'), escape: None, comments: false, null: String::new() }
    }
}

impl Csv {
    /// A contradiction of the options, and what is wanted instead.
    pub fn contradiction(&self) -> Option<(&'static str, &'static str)> {
        let comment = self.comments.then_some(b'#');
        let special = [Some(self.delimiter), self.quote, self.escape, comment];
        let special: Vec<u8> = special.into_iter().flatten().collect();
        let is_wrong = |(place, byte): (usize, &u8)| {
            // A letter after an escape character may stand for another character.
            byte.is_ascii_alphanumeric() || matches!(byte, b'\n' | b'\r') || special[..place].contains(byte)
        };
        if special.iter().enumerate().any(is_wrong) {
            return Some((
                "the delimiter, quote and escape character of 'csv'",
                "different characters that are not letters, digits or line ends, and not # if comments are allowed",
            ));
        }
        let in_null = |byte: u8| special.contains(&byte) || matches!(byte, b'\n' | b'\r');
        if self.null.bytes().any(in_null) || self.null.starts_with('\u{feff}') {
            return Some((
                "the 'csv.null-literal'",
                "a text without delimiters, quotes, escape characters, line ends and byte order marks",
            ));
        }
        None
    }
}

/// The error for bytes that are not text.
pub fn not_utf8() -> Error {
    Error::connector("found bytes that are not UTF-8")
}
