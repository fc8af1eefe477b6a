//! Finds the ends of records in bytes that arrive piece by piece: JSON lines, CSV records. A byte order mark at the
//! beginning of the input is skipped.

use super::csv;
use crate::error::{Error, Result};
use crate::memory::headroom;

/// The longest record, the same limit as for messages and values elsewhere. A longer one has an unclosed quote, or is
/// not text at all.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

const MARK: &[u8] = "\u{feff}".as_bytes();

/// Finds the records of one input.
pub struct Splitter {
    /// For CSV; `None` for JSON lines.
    csv: Option<csv::Splitter>,
    raw: Vec<u8>,
    /// Bytes of a byte order mark seen so far; `None` after it.
    mark: Option<usize>,
    /// Line ends before the record.
    lines: u64,
    /// Whether `raw` is a complete record.
    whole: bool,
}

impl Splitter {
    /// For records of this many columns. `begins`: the first byte is the first of the input.
    pub fn new(csv: Option<&csv::Csv>, columns: usize, begins: bool) -> Splitter {
        let csv = csv.map(|csv| csv::Splitter::new(csv, columns));
        Splitter { csv, raw: Vec::new(), mark: begins.then_some(0), lines: 0, whole: false }
    }

    /// Reads until a record or the input ends; returns how many bytes were consumed, and whether the record is
    /// complete. The record is available until the next call.
    pub fn push(&mut self, input: &[u8]) -> Result<(usize, bool)> {
        self.forget();
        let mut taken = 0;
        while let (Some(seen), Some(byte)) = (self.mark, input.get(taken)) {
            if MARK[seen] == *byte {
                taken += 1;
                self.mark = Some(seen + 1).filter(|seen| *seen < MARK.len());
            } else {
                self.mark = None;
                // It was not a mark; no record ends within it.
                self.read(&MARK[..seen])?;
            }
        }
        let (read, whole) = self.read(&input[taken..])?;
        if self.raw.len() > RECORD_BYTES_MAX {
            return Err(Error::connector(format!("a record of more than {RECORD_BYTES_MAX} bytes"))
                .hint("an unclosed quote includes all text after it"));
        }
        self.whole = whole;
        Ok((taken + read, whole))
    }

    fn read(&mut self, input: &[u8]) -> Result<(usize, bool)> {
        if let Some(csv) = &mut self.csv {
            return csv.push(input, &mut self.raw, &mut self.lines);
        }
        let mut taken = 0;
        while let Some(end) = memchr::memchr(b'\n', &input[taken..]) {
            headroom::reserve(&mut self.raw, end)?;
            self.raw.extend_from_slice(&input[taken..taken + end]);
            taken += end + 1;
            if !self.raw.trim_ascii().is_empty() {
                return Ok((taken, true));
            }
            self.raw.clear();
            self.lines += 1;
        }
        headroom::reserve(&mut self.raw, input.len() - taken)?;
        self.raw.extend_from_slice(&input[taken..]);
        Ok((input.len(), false))
    }

    /// The input has ended; returns whether that completes a record.
    pub fn finish(&mut self) -> bool {
        self.forget();
        if let Some(seen) = self.mark.take() {
            // At most three bytes.
            let _ = self.read(&MARK[..seen]);
        }
        self.whole = match &mut self.csv {
            Some(csv) => csv.finish(&self.raw),
            None => !self.raw.trim_ascii().is_empty(),
        };
        self.whole
    }

    /// Reads a whole record, such as a message.
    pub fn message(&mut self, record: &[u8]) -> Result<()> {
        (self.mark, self.lines, self.whole) = (Some(0), 0, false);
        self.raw.clear();
        if let Some(csv) = &mut self.csv {
            csv.restart();
        }
        let mut rest = record;
        let mut whole = false;
        while !rest.is_empty() && !whole {
            let (taken, ended) = self.push(rest)?;
            (rest, whole) = (&rest[taken..], ended);
        }
        if !rest.is_empty() {
            return Err(Error::connector("found more than one record"));
        }
        if !whole && !self.finish() {
            self.raw.clear();
            if let Some(csv) = &mut self.csv {
                csv.empty();
            }
        }
        self.whole = true;
        Ok(())
    }

    fn forget(&mut self) {
        if std::mem::take(&mut self.whole) {
            // The record's own line end, and those within it.
            self.lines += 1;
            if self.csv.is_some() {
                self.lines += memchr::memchr_iter(b'\n', &self.raw).count() as u64;
            }
            self.raw.clear();
        }
    }

    /// Bytes read of a record that is not complete.
    pub fn unfinished(&self) -> usize {
        if self.whole { 0 } else { self.raw.len() }
    }

    /// Between two records, frees buffers of more than this many bytes. The last record is forgotten.
    pub fn shrink(&mut self, most: usize) {
        if self.is_between() {
            self.forget();
            self.raw.shrink_to(most);
            if let Some(csv) = &mut self.csv {
                csv.shrink(most);
            }
        }
    }

    /// Whether nothing of the next record was read: reading can resume from here.
    pub fn is_between(&self) -> bool {
        self.whole || self.csv.as_ref().map_or(self.raw.is_empty(), csv::Splitter::is_between)
    }

    /// The record without the end of its line.
    pub fn record(&self) -> &[u8] {
        self.raw.strip_suffix(b"\r").unwrap_or(&self.raw)
    }

    /// The line at which the record begins, from 1.
    pub fn line(&self) -> u64 {
        self.lines + 1
    }

    /// The values of the record, if it is CSV.
    pub fn csv(&self) -> Option<&csv::Splitter> {
        self.csv.as_ref()
    }
}
