//! CSV with the options of Flink's format: where records end, the values of each, and how they are written.
//!
//! # Invariants
//!
//! 1. Every byte is examined once: pushed bytes are never scanned again.
//! 2. A quote inside a value that does not begin with a quote is text.
//! 3. A [`Splitter`] with the same options reads the output of [`Csv::write`] as the same values.

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};

use crate::error::{Error, Result};
use crate::headroom;

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

/// A byte that no UTF-8 text contains. An escaped byte goes through the reader as this byte and its two halves, so that
/// the reader does not take it for a quote, a delimiter or a line end.
const ESCAPED: u8 = 0xff;

/// The position of a splitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// After a record, or before the first.
    Between,
    Comment,
    /// Before the first byte of a value.
    Value,
    Within,
    /// After the escape character.
    Escape,
    /// After a carriage return that ended a record: a line feed may follow.
    Return,
}

/// Splits bytes into records as they arrive, and records into values.
pub struct Splitter {
    csv: Csv,
    /// Whether an empty line is a record of one empty value.
    blank: bool,
    reader: Reader,
    at: At,
    /// The values, one after the other, and spare room.
    bytes: Vec<u8>,
    filled: usize,
    /// The end of each value, and whether it is certainly text: quoted, or with an escaped byte.
    ends: Vec<(usize, bool)>,
    quoted: bool,
    escaped: bool,
    broken: Option<&'static str>,
}

impl Splitter {
    /// A splitter for records of this many columns.
    pub fn new(csv: &Csv, columns: usize) -> Splitter {
        Splitter {
            csv: csv.clone(),
            blank: columns == 1,
            reader: reader(csv),
            at: At::Between,
            bytes: vec![0; 1024],
            filled: 0,
            ends: Vec::new(),
            quoted: false,
            escaped: false,
            broken: None,
        }
    }

    /// Whether no byte of a record was seen since the last one.
    pub fn is_between(&self) -> bool {
        self.at == At::Between
    }

    /// Between two records, frees buffers of more than this many bytes.
    pub fn shrink(&mut self, most: usize) {
        if self.bytes.len() > most {
            self.filled = 0;
            self.ends.clear();
            self.bytes.truncate(most);
            self.bytes.shrink_to(most);
        }
    }

    /// Begins a record.
    fn begin(&mut self) {
        self.filled = 0;
        self.ends.clear();
        self.broken = None;
        self.at = At::Value;
    }

    /// Reads until a record or the input ends. It appends the record's bytes, without the line end, to `raw`, and adds
    /// the line ends before the record to `lines`. Returns how many bytes it took, and whether the record is complete.
    pub fn push(&mut self, input: &[u8], raw: &mut Vec<u8>, lines: &mut u64) -> Result<(usize, bool)> {
        headroom::reserve(raw, input.len())?;
        let mut taken = 0;
        while let Some(&byte) = input.get(taken) {
            match self.at {
                At::Between if matches!(byte, b'\n' | b'\r') => {
                    taken += 1;
                    if self.blank {
                        self.begin();
                        self.ends.push((0, false));
                        if byte == b'\n' {
                            self.at = At::Between;
                            return Ok((taken, true));
                        }
                        self.at = At::Return;
                    } else {
                        *lines += u64::from(byte == b'\n');
                    }
                }
                At::Between if self.csv.comments && byte == b'#' => self.at = At::Comment,
                At::Between => self.begin(),
                At::Comment => match memchr::memchr(b'\n', &input[taken..]) {
                    Some(end) => {
                        taken += end + 1;
                        *lines += 1;
                        self.at = At::Between;
                    }
                    None => taken = input.len(),
                },
                At::Return => {
                    self.at = At::Between;
                    return Ok((taken + usize::from(byte == b'\n'), true));
                }
                At::Value => {
                    self.quoted = self.csv.quote == Some(byte);
                    self.at = At::Within;
                }
                At::Escape => {
                    taken += 1;
                    raw.push(byte);
                    self.escaped = true;
                    self.feed(&[ESCAPED, 0x80 | byte >> 4, 0x80 | byte & 15]);
                    self.at = At::Within;
                }
                At::Within if self.csv.escape == Some(byte) => {
                    taken += 1;
                    raw.push(byte);
                    self.at = At::Escape;
                }
                At::Within => {
                    let rest = &input[taken..];
                    let escape = self.csv.escape.and_then(|escape| memchr::memchr(escape, rest));
                    let (read, ended) = self.feed(&rest[..escape.unwrap_or(rest.len())]);
                    taken += read;
                    raw.extend_from_slice(&rest[..read]);
                    let Some(record) = ended else { continue };
                    self.value();
                    self.at = At::Value;
                    if record {
                        let returned = raw.pop() == Some(b'\r');
                        self.at = if returned { At::Return } else { At::Between };
                        if !returned {
                            return Ok((taken, true));
                        }
                    }
                }
            }
        }
        Ok((taken, false))
    }

    /// Ends the input; returns whether that completes a record.
    pub fn finish(&mut self) -> bool {
        match std::mem::replace(&mut self.at, At::Between) {
            At::Between | At::Comment => return false,
            At::Return => {}
            At::Value => self.value(),
            At::Escape => self.broken = Some("an escape character at the end"),
            At::Within => {
                // A delimiter ends the value, unless a quote is open.
                if self.feed(&[self.csv.delimiter]).1.is_none() {
                    self.broken = Some("a quote that is not closed");
                }
                self.value();
            }
        }
        restart(&mut self.reader);
        true
    }

    /// Forgets an incomplete record.
    pub fn restart(&mut self) {
        if self.at != At::Between {
            self.at = At::Between;
            restart(&mut self.reader);
        }
        (self.quoted, self.escaped) = (false, false);
    }

    /// An empty record.
    pub fn empty(&mut self) {
        self.begin();
        self.at = At::Between;
        self.ends.push((0, false));
    }

    /// Gives bytes to the reader until a value ends. Returns how many it took, and whether the record has ended with
    /// it.
    fn feed(&mut self, input: &[u8]) -> (usize, Option<bool>) {
        let mut taken = 0;
        while taken < input.len() {
            let (result, read, written) =
                self.reader.read_field(&input[taken..], &mut self.bytes[self.filled..]);
            taken += read;
            self.filled += written;
            match result {
                ReadFieldResult::Field { record_end } => return (taken, Some(record_end)),
                ReadFieldResult::OutputFull => self.grow(),
                ReadFieldResult::InputEmpty | ReadFieldResult::End => break,
            }
            if self.filled == self.bytes.len() {
                self.grow();
            }
        }
        (taken, None)
    }

    /// Doubles the room for values.
    fn grow(&mut self) {
        let room = self.bytes.len();
        headroom::reserve(&mut self.bytes, room).unwrap_or_else(|error| headroom::give_up(error));
        self.bytes.resize(room * 2, 0);
    }

    /// Ends a value.
    fn value(&mut self) {
        let start = self.ends.last().map_or(0, |(end, _)| *end);
        let escaped = std::mem::take(&mut self.escaped);
        if escaped {
            let (mut from, mut to) = (start, start);
            while from < self.filled {
                let mut byte = self.bytes[from];
                if byte == ESCAPED && from + 2 < self.filled {
                    byte = match self.bytes[from + 1] << 4 | self.bytes[from + 2] & 15 {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'0' => 0,
                        other => other,
                    };
                    from += 2;
                }
                self.bytes[to] = byte;
                (from, to) = (from + 1, to + 1);
            }
            self.filled = to;
        }
        self.ends.push((self.filled, std::mem::take(&mut self.quoted) || escaped));
    }

    /// How many values the last record has.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// All values of the record, one after the other, if they are UTF-8.
    pub fn text(&self) -> Result<&str> {
        if let Some(broken) = self.broken {
            return Err(Error::connector(format!("found {broken}")));
        }
        std::str::from_utf8(&self.bytes[..self.filled]).map_err(|_| not_utf8())
    }

    /// A value of the record, cut from `text`, and whether it is certainly text: quoted or escaped.
    pub fn get<'t>(&self, text: &'t str, place: usize) -> Result<(&'t str, bool)> {
        let start = if place == 0 { 0 } else { self.ends[place - 1].0 };
        let (end, quoted) = self.ends[place];
        // The boundary of two values may split a character that is whole only without the delimiter.
        Ok((text.get(start..end).ok_or_else(not_utf8)?, quoted))
    }
}

/// The error for bytes that are not text.
pub fn not_utf8() -> Error {
    Error::connector("found bytes that are not UTF-8")
}

fn reader(csv: &Csv) -> Reader {
    let mut builder = ReaderBuilder::new();
    builder.delimiter(csv.delimiter).quoting(csv.quote.is_some());
    if let Some(quote) = csv.quote {
        builder.quote(quote);
    }
    let mut reader = builder.build();
    restart(&mut reader);
    reader
}

fn restart(reader: &mut Reader) {
    reader.reset();
    // The reader drops a byte order mark from the first bytes that it gets, which may be in the middle of a file.
    reader.read_field(b"\n", &mut [0]);
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

    /// Appends a value such that it is not read as NULL.
    pub fn write(&self, text: &str, first: bool, out: &mut String) -> Result<()> {
        let Some(quote) = self.quote else { return self.write_bare(text, first, out) };
        let special = |byte: u8| {
            byte == self.delimiter
                || byte == quote
                || self.escape == Some(byte)
                || matches!(byte, b'\n' | b'\r')
        };
        // A value at the beginning of a file may look like a byte order mark, and one at the beginning of a line like a
        // comment.
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
