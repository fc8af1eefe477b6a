//! Values as CSV.

use super::Csv;
use crate::error::{Error, Result};

impl Csv {
    /// Ends a value that was appended from the byte `start` on: encloses it in quotes or escapes it such that it is
    /// read as the same value, and never as NULL.
    pub fn end_value(&self, start: usize, first: bool, out: &mut String) -> Result<()> {
        if !self.is_plain(&out[start..], first) {
            let text = out.split_off(start);
            self.write(&text, first, out)?;
        }
        Ok(())
    }

    /// Whether a value is read as the same without quotes and escape characters.
    fn is_plain(&self, text: &str, first: bool) -> bool {
        let bytes = text.as_bytes();
        // A value at the beginning of a file may look like a byte order mark, and one at the beginning of a line like a
        // comment.
        let is_head = || first && text.starts_with(['#', '\u{feff}']);
        let quote = self.quote.unwrap_or(self.delimiter);
        !text.is_empty()
            && text != self.null
            && !is_head()
            && memchr::memchr3(self.delimiter, quote, b'\n', bytes).is_none()
            && memchr::memchr2(b'\r', self.escape.unwrap_or(b'\r'), bytes).is_none()
    }

    /// Appends a value in quotes, if it needs them.
    fn write(&self, text: &str, first: bool, out: &mut String) -> Result<()> {
        let Some(quote) = self.quote else { return self.write_bare(text, first, out) };
        let special = |byte: u8| {
            byte == self.delimiter
                || byte == quote
                || self.escape == Some(byte)
                || matches!(byte, b'\n' | b'\r')
        };
        let head = first && (self.comments && text.starts_with('#') || text.starts_with('\u{feff}'));
        if !text.is_empty() && text != self.null && !head && !text.bytes().any(special) {
            out.push_str(text);
            return Ok(());
        }
        let quote = char::from(quote);
        out.push(quote);
        for char in text.chars() {
            if char == quote || self.escape.map(char::from) == Some(char) {
                out.push(char);
            }
            out.push(char);
        }
        out.push(quote);
        Ok(())
    }

    /// As [`Csv::write`], for options without quotes.
    fn write_bare(&self, text: &str, first: bool, out: &mut String) -> Result<()> {
        let Some(escape) = self.escape else {
            let delimiter = char::from(self.delimiter);
            let head = first && (self.comments && text.starts_with('#') || text.starts_with('\u{feff}'));
            if text == self.null || head || text.contains([delimiter, '\n', '\r']) {
                return Err(Error::connector(format!(
                    "the value {text:?} would be read as NULL, a delimiter, a comment or a line end with \
                     'csv.disable-quote-character' = 'true'"
                ))
                .hint("set 'csv.escape-character' or another 'csv.null-literal'"));
            }
            out.push_str(text);
            return Ok(());
        };
        let (escape, delimiter) = (char::from(escape), char::from(self.delimiter));
        let special = |char: char| char == escape || char == delimiter;
        // One escaped character shows that it is not NULL, a comment or a byte order mark.
        let plain = |char: char| !matches!(char, 'n' | 'r' | 't' | '0' | '\n' | '\r');
        let head = first && text.starts_with(['#', '\u{feff}']);
        let marked = if head { Some(0) } else { text.find(plain).filter(|_| text == self.null) };
        if text == self.null && marked.is_none() {
            return Err(Error::connector(format!("{text:?} would be read as 'csv.null-literal'"))
                .hint("set another 'csv.null-literal'"));
        }
        for (place, char) in text.char_indices() {
            match char {
                '\n' => out.extend([escape, 'n']),
                '\r' => out.extend([escape, 'r']),
                _ if special(char) || Some(place) == marked => out.extend([escape, char]),
                _ => out.push(char),
            }
        }
        Ok(())
    }
}
