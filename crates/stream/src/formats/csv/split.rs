//! Where records of CSV end, and the values of each.
//!
//! # Invariants
//!
//! 1. Pushed bytes are never scanned again. Only a complete record with quotes and with a value that may be NULL is read
//!    once more.
//! 2. A quote inside a value that does not begin with a quote is text.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use super::{Csv, not_utf8};
use crate::error::{Error, Result};
use crate::memory::headroom;

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
    /// The end of each value, and spare room.
    ends: Vec<usize>,
    /// Number of values.
    count: usize,
    /// Whether each value is certainly text: quoted, or with an escaped byte. Missing ones are not.
    certain: Vec<bool>,
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
            ends: vec![0; columns + 1],
            count: 0,
            certain: Vec::new(),
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
            (self.filled, self.count) = (0, 0);
            self.bytes.truncate(most);
            self.bytes.shrink_to(most);
        }
    }

    /// Begins a record.
    fn begin(&mut self) {
        (self.filled, self.count) = (0, 0);
        self.certain.clear();
        self.broken = None;
        self.at = if self.csv.escape.is_some() { At::Value } else { At::Within };
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
                        self.end_value(false);
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
                    self.feed(&[ESCAPED, 0x80 | byte >> 4, 0x80 | byte & 15], 1);
                    self.at = At::Within;
                }
                At::Within if self.csv.escape == Some(byte) => {
                    taken += 1;
                    raw.push(byte);
                    self.at = At::Escape;
                }
                At::Within => {
                    let rest = &input[taken..];
                    let (read, ended) = match self.csv.escape {
                        // All values of the record at once.
                        None => self.feed(rest, usize::MAX),
                        Some(escape) => {
                            let before = self.count;
                            let end = memchr::memchr(escape, rest).unwrap_or(rest.len());
                            let (read, ended) = self.feed(&rest[..end], 1);
                            if self.count > before {
                                self.count = before;
                                self.value();
                                self.at = At::Value;
                            }
                            (read, ended)
                        }
                    };
                    taken += read;
                    raw.extend_from_slice(&rest[..read]);
                    if ended {
                        let returned = raw.pop() == Some(b'\r');
                        self.at = if returned { At::Return } else { At::Between };
                        self.find_quoted(raw);
                        if !returned {
                            return Ok((taken, true));
                        }
                    }
                }
            }
        }
        Ok((taken, false))
    }

    /// Ends the input; returns whether that completes a record, which has the bytes `raw`.
    pub fn finish(&mut self, raw: &[u8]) -> bool {
        match std::mem::replace(&mut self.at, At::Between) {
            At::Between | At::Comment => return false,
            At::Return => {}
            At::Value => self.value(),
            At::Escape => self.broken = Some("an escape character at the end"),
            At::Within => {
                // A delimiter ends the value, unless a quote is open.
                let before = self.count;
                self.feed(&[self.csv.delimiter], 1);
                if self.count == before {
                    self.broken = Some("a quote that is not closed");
                }
                self.count = before;
                self.value();
            }
        }
        restart(&mut self.reader);
        if self.broken.is_none() {
            self.find_quoted(raw);
        }
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
        self.end_value(false);
    }

    /// Gives bytes to the reader until this many more values or the record have ended. Returns how many it took, and
    /// whether the record has ended.
    fn feed(&mut self, input: &[u8], values: usize) -> (usize, bool) {
        let until = self.count.saturating_add(values);
        let mut taken = 0;
        while taken < input.len() && self.count < until {
            if self.filled == self.bytes.len() {
                self.grow();
            }
            self.make_room();
            let room = until.min(self.ends.len());
            let (result, read, written, ended) = self.reader.read_record(
                &input[taken..],
                &mut self.bytes[self.filled..],
                &mut self.ends[self.count..room],
            );
            taken += read;
            self.filled += written;
            self.count += ended;
            if result == ReadRecordResult::Record {
                return (taken, true);
            }
        }
        (taken, false)
    }

    /// Makes room for the end of one more value.
    fn make_room(&mut self) {
        if self.count == self.ends.len() {
            let room = self.ends.len();
            headroom::reserve(&mut self.ends, room).unwrap_or_else(|error| headroom::give_up(error));
            self.ends.resize(room * 2, 0);
        }
    }

    /// Doubles the room for values.
    fn grow(&mut self) {
        let room = self.bytes.len();
        headroom::reserve(&mut self.bytes, room).unwrap_or_else(|error| headroom::give_up(error));
        self.bytes.resize(room * 2, 0);
    }

    /// Ends a value.
    fn value(&mut self) {
        let start = self.count.checked_sub(1).map_or(0, |last| self.ends[last]);
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
        let certain = std::mem::take(&mut self.quoted) || escaped;
        self.end_value(certain);
    }

    fn end_value(&mut self, certain: bool) {
        self.make_room();
        self.ends[self.count] = self.filled;
        self.count += 1;
        if certain {
            self.certain.resize(self.count, false);
            self.certain[self.count - 1] = true;
        }
    }

    /// After a complete record without escape characters: finds out which of its values are quoted, if that makes a
    /// difference.
    fn find_quoted(&mut self, raw: &[u8]) {
        let (Some(quote), None) = (self.csv.quote, self.csv.escape) else { return };
        let null = self.csv.null.as_bytes();
        let mut start = 0;
        let mut is_null = |end: &usize| &self.bytes[std::mem::replace(&mut start, *end)..*end] == null;
        if memchr::memchr(quote, raw).is_none() || !self.ends[..self.count].iter().any(&mut is_null) {
            return;
        }
        (self.filled, self.count) = (0, 0);
        self.certain.clear();
        let mut at = 0;
        loop {
            let before = self.count;
            self.certain.push(raw.get(at) == Some(&quote));
            at += self.feed(&raw[at..], 1).0;
            if self.count == before {
                self.feed(&[self.csv.delimiter], 1);
                break;
            }
        }
        restart(&mut self.reader);
    }

    /// How many values the last record has.
    pub fn count(&self) -> usize {
        self.count
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
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        let certain = self.certain.get(place).is_some_and(|certain| *certain);
        // The boundary of two values may split a character that is whole only without the delimiter.
        Ok((text.get(start..self.ends[place]).ok_or_else(not_utf8)?, certain))
    }
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
