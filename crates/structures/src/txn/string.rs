//! Strings that are read or written in part.
//!
//! A string is one record until a part of it is written and it is longer than a piece and than [`PACKED_MAXES`] times
//! the limit of packed collections. From then on it is in pieces (`large`), until it is written as a whole. So no
//! number is in pieces. Reading or writing a part then takes time by the part's length. A read of the whole string
//! joins the pieces.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use duramen::{ElementOrder, Meta, Store, Value};

use super::source::{Reads, Source};
use super::{Found, Txn};
use crate::Type;
use crate::bits::Bitmap;
use crate::error::{Error, Result};
use crate::large::{self, ElementWriter};
use crate::string::large::{LargeString, PIECE};
use crate::string_until;

/// See the module. With fewer bytes it takes no longer to write them all.
const PACKED_MAXES: usize = 4;

/// The known facts of a value that was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its type tag; see [`Type::of_tag`].
    pub tag: u8,
    /// When it expires, in Unix milliseconds.
    pub expires_at: Option<u64>,
}

/// The string in pieces that a root names.
fn pieces(key: &[u8], root: &Found<'_>, reads: Reads<'_>) -> Result<Option<LargeString>> {
    let Some(id) = root.collection() else { return Ok(None) };
    large::flags(root, 0).map_err(|malformed| error(key, malformed))?;
    Ok(Some(LargeString::of(reads.open(id)?)))
}

fn error(key: &[u8], fault: impl Into<large::Fault>) -> Error {
    super::source::error(Type::String, key, fault)
}

/// All of a string in pieces.
#[cold]
pub(super) fn put_together<'a>(key: &[u8], root: &Found<'_>, reads: Reads<'_>) -> Result<Found<'a>> {
    Ok(put_together_stamped(key, root, reads)?.0)
}

/// The same, and a number that becomes greater with every change of it.
#[cold]
pub(super) fn put_together_stamped<'a>(
    key: &[u8],
    root: &Found<'_>,
    reads: Reads<'_>,
) -> Result<(Found<'a>, u64)> {
    let large_string = pieces(key, root, reads)?.ok_or(Error::WrongType)?;
    let (bytes, stamps) = large_string
        .whole(Source::reads(&reads, large_string.elements()))
        .map_err(|fault| error(key, fault))?;
    Ok((Found::Pieces { bytes, expires_at: root.expires_at() }, stamps))
}

/// All of a string that lies in pieces, if it is one: for tools that read a keyspace's store, which nobody writes, without a
/// [`Keyspace`](crate::Keyspace).
///
/// # Errors
/// Those of the store, and flaws of the pieces.
pub fn string_of_pieces(store: &Store, value: &Value<'_>) -> Result<Option<Vec<u8>>> {
    match value.meta() {
        Meta { tag, collection: Some(id), .. } if tag == Type::String.tag() => {
            let large_string = LargeString::of(store.collection(id)?);
            let whole = large_string.whole(large_string.elements().reads());
            whole.map(|(bytes, _)| Some(bytes)).map_err(|fault| error(value.key(), fault))
        }
        _ => Ok(None),
    }
}

impl Txn<'_> {
    /// Type and expiry time of the key, without reading its value.
    pub fn look(&mut self, db: u8, key: &[u8]) -> Result<Option<Seen>> {
        let found = self.root(db, key)?;
        Ok(found.map(|(found, _)| Seen { tag: found.tag(), expires_at: found.expires_at() }))
    }

    /// How long the string at `key` is; an error when it holds another type.
    pub fn string_len(&mut self, db: u8, key: &[u8]) -> Result<Option<usize>> {
        self.read_string(db, key, |_| 0..0, |len, _| len)
    }

    /// Calls `take` with the length of the string at `key`, and its bytes in `part`, as far as they exist; an error
    /// when it holds another type.
    pub fn read_string<T>(
        &mut self,
        db: u8,
        key: &[u8],
        part: impl FnOnce(usize) -> Range<usize>,
        take: impl FnOnce(usize, &[u8]) -> T,
    ) -> Result<Option<T>> {
        let Some((found, reads)) = self.root_to_read(db, key)? else { return Ok(None) };
        if found.tag() != Type::String.tag() {
            return Err(Error::WrongType);
        }
        let within = |part: Range<usize>, len: usize| part.start.min(len)..part.end.min(len);
        let Some(large_string) = pieces(key, &found, reads)? else {
            return Ok(Some(take(found.len(), &found[within(part(found.len()), found.len())])));
        };
        let elements = Source::reads(&reads, large_string.elements());
        let len = large_string.len(elements).map_err(|fault| error(key, fault))?;
        let part = within(part(len), len);
        let mut bytes = vec![0; part.len()];
        large_string.read(elements, part.start, &mut bytes).map_err(|fault| error(key, fault))?;
        Ok(Some(take(len, &bytes)))
    }

    /// Calls `visit` for the bytes in `part` of the string at `key`, in ascending runs, each with the position of its
    /// first byte, until it breaks. Bytes without a call are zeros: for a string with a long hole only written parts
    /// are read. Returns the length of the string; an error when the key holds another type.
    pub fn visit_string(
        &mut self,
        db: u8,
        key: &[u8],
        part: Range<usize>,
        mut visit: impl FnMut(usize, &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<usize>> {
        let Some((found, reads)) = self.root_to_read(db, key)? else { return Ok(None) };
        if found.tag() != Type::String.tag() {
            return Err(Error::WrongType);
        }
        let Some(large_string) = pieces(key, &found, reads)? else {
            let part = part.start.min(found.len())..part.end.min(found.len());
            if !part.is_empty() {
                let _ = visit(part.start, &found[part]);
            }
            return Ok(Some(found.len()));
        };
        let elements = Source::reads(&reads, large_string.elements());
        let len = large_string.len(elements).map_err(|fault| error(key, fault))?;
        large_string.visit(elements, part, visit).map_err(|fault| error(key, fault))?;
        Ok(Some(len))
    }

    /// The string at `key` as a bitmap; an error when it holds another type.
    pub fn bitmap(&mut self, db: u8, key: &[u8]) -> Result<Option<Bitmap>> {
        let mut bitmap = Bitmap::default();
        let len = self.visit_string(db, key, 0..usize::MAX, |at, bytes| {
            bitmap.set(at, bytes);
            ControlFlow::Continue(())
        })?;
        Ok(len.map(|len| bitmap.with_len(len)))
    }

    /// Stores a bitmap, which is not empty, at `key`, replacing an existing value.
    pub fn put_bitmap(&mut self, db: u8, key: &[u8], bitmap: &Bitmap) -> Result<()> {
        if bitmap.is_dense() || !self.lies_in_pieces(bitmap.len()) {
            return self.put_vec(db, key, bitmap.to_vec(), string_until(None));
        }
        self.begin_edit();
        let made = LargeString::of(self.new_collection(ElementOrder::ByKey));
        for (at, bytes) in bitmap.parts() {
            made.write(self, at, bytes).map_err(|fault| error(key, fault))?;
        }
        self.put_root(Type::String, db, key, made.elements(), 0, None)
    }

    /// Whether a string of this length is to lie in pieces once it is written in part.
    fn lies_in_pieces(&self, len: usize) -> bool {
        len > PIECE && self.is_large(len / PACKED_MAXES)
    }

    /// Reads single bytes of the string at `key`, at the positions of their keys; after its end they are zeros. Returns
    /// its length; an error when the key holds another type.
    pub fn read_bytes(
        &mut self,
        db: u8,
        key: &[u8],
        bytes: &mut BTreeMap<usize, u8>,
    ) -> Result<Option<usize>> {
        let Some((found, reads)) = self.root_to_read(db, key)? else { return Ok(None) };
        if found.tag() != Type::String.tag() {
            return Err(Error::WrongType);
        }
        let Some(large_string) = pieces(key, &found, reads)? else {
            bytes.iter_mut().for_each(|(&at, byte)| *byte = found.get(at).copied().unwrap_or(0));
            return Ok(Some(found.len()));
        };
        let elements = Source::reads(&reads, large_string.elements());
        let len = large_string.len(elements).map_err(|fault| error(key, fault))?;
        large_string.read_bytes(elements, bytes).map_err(|fault| error(key, fault))?;
        Ok(Some(len))
    }

    /// Writes `bytes` into the string at `key` from `at` on. It grows where needed, with zeros up to `at`, and is
    /// created if it is missing. Writing no bytes does not extend it. The expiry time stays. An error when the key
    /// holds another type.
    pub fn write_string(&mut self, db: u8, key: &[u8], at: usize, bytes: &[u8]) -> Result<()> {
        let part = if bytes.is_empty() { 0..0 } else { at..at + bytes.len() };
        let (within, whole_part) = (part.clone(), part);
        let write = |whole: &mut [u8]| whole[within].copy_from_slice(bytes);
        self.write_in_string(db, key, whole_part, write, |large_string, txn| {
            large_string.write(txn, at, bytes)
        })
    }

    /// The same with single bytes, each where its key says.
    pub fn write_bytes(&mut self, db: u8, key: &[u8], bytes: &BTreeMap<usize, u8>) -> Result<()> {
        let end = bytes.last_key_value().map_or(0, |(at, _)| at + 1);
        let start = bytes.first_key_value().map_or(0, |(at, _)| *at);
        let write = |whole: &mut [u8]| bytes.iter().for_each(|(&at, &byte)| whole[at] = byte);
        self.write_in_string(db, key, start..end, write, |large_string, txn| {
            large_string.write_bytes(txn, bytes)
        })
    }

    /// Writes into this part of the string at `key`: by `write` where it lies in one record, else by `write_pieces`.
    fn write_in_string(
        &mut self,
        db: u8,
        key: &[u8],
        part: Range<usize>,
        write: impl FnOnce(&mut [u8]),
        write_pieces: impl FnOnce(&LargeString, &mut Self) -> large::Result<()>,
    ) -> Result<()> {
        self.begin_edit();
        let mut expires_at = None;
        let mut whole = Vec::new();
        if let Some((found, reads)) = self.root_to_read(db, key)? {
            if found.tag() != Type::String.tag() {
                return Err(Error::WrongType);
            }
            if let Some(large_string) = pieces(key, &found, reads)? {
                drop(found);
                if !part.is_empty() && part.start / PIECE == (part.end - 1) / PIECE {
                    ElementWriter::ends_with_next(self);
                }
                write_pieces(&large_string, self).map_err(|fault| error(key, fault))?;
                self.end_edit();
                self.element_changed(db, key);
                return Ok(());
            }
            expires_at = found.expires_at();
            whole.extend_from_slice(&found);
        }
        let len = whole.len().max(part.end);
        if !self.lies_in_pieces(len) {
            whole.resize(len, 0);
            write(&mut whole);
            return self.put_vec(db, key, whole, string_until(expires_at));
        }
        // Only the old bytes, and the new ones: there may be a hole between them.
        let made = LargeString::make(self, &whole).map_err(|fault| error(key, fault))?;
        write_pieces(&made, self).map_err(|fault| error(key, fault))?;
        self.put_root(Type::String, db, key, made.elements(), 0, expires_at)
    }
}
