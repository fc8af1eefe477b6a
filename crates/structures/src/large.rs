//! Collections, lists, streams and strings in their large form: a *root* in the record of their key, and an element of
//! an engine collection for each entry. Writing an entry takes one record. Deleting, expiring, renaming or overwriting
//! the key takes one small record, whatever the size.
//!
//! The root's value is one byte: bits 0 to 3 are the form, 2 for this one; bits 4 to 7 are flags, as in a
//! [`packed`](crate::packed) run, and for a hash 2 more: some field has had an expiry time, which is that of its
//! element. It is rewritten only when a flag changes.
//!
//! | type | collection | key of an element | value of an element |
//! |---|---|---|---|
//! | hash | map | field | 0 and the field's value; or 8, the field's place (8 bytes, big-endian), and the value |
//! | set | map | member | nothing |
//! | sorted set | map and tree by value | member | the score's image; after it a byte 1 if it is -0 |
//! | list | tree by key | see `list::large` | |
//! | stream | tree by key | see `stream::large` | |
//! | string that was written in part | tree by key | see `string::large` | |
//!
//! 1. Consistency between several commands is their own matter: every reader or writer of a large value holds the lock
//!    of its key, or is alone.
//! 2. A large value is never empty, but for streams: with its last element the key goes.
//! 3. The flags mean the same as in the packed form: a collection that Redis would call small is small here too, though
//!    it is kept large.

use std::ops::Range;

use duramen::{Collection, ElementOrder, Reads as ElementReads, Value};

use crate::packed::Malformed;

const FORM: u8 = 2;
const FORM_BITS: u8 = 0x0f;
const FLAGS_SHIFT: u32 = 4;
/// Bytes of elements that are read before they are written to a copy.
const COPIED_BYTES: usize = 1 << 20;

/// Writes elements, and reads them as they are written: the one place that knows how.
pub(crate) trait ElementWriter {
    /// A collection without a reference yet. It is deleted if it gets none.
    fn new_collection(&mut self, order: ElementOrder) -> Collection;

    /// Reads of a collection, including this writer's own writes.
    fn reads<'a>(&'a self, elements: &'a Collection) -> ElementReads<'a>;

    /// The next write, if there is one, is the only one of this edit: the root stays unchanged.
    fn ends_with_next(&mut self);

    /// Sets an element; whether it was there.
    fn put(&mut self, elements: &Collection, key: &[u8], value: &[u8]) -> duramen::Result<bool> {
        self.put_until(elements, key, value, None)
    }

    /// Sets an element with this expiry time; whether it was there.
    fn put_until(
        &mut self,
        elements: &Collection,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
    ) -> duramen::Result<bool>;

    /// Removes an element; whether it was there.
    fn delete(&mut self, elements: &Collection, key: &[u8]) -> duramen::Result<bool>;

    /// Sets these elements, or removes those without a value, in this order; how many were there.
    fn write_all(
        &mut self,
        elements: &Collection,
        writes: &[(&[u8], Option<&[u8]>)],
    ) -> duramen::Result<u64> {
        self.write_all_until(elements, writes, None)
    }

    /// The same; those that are set have this expiry time.
    fn write_all_until(
        &mut self,
        elements: &Collection,
        writes: &[(&[u8], Option<&[u8]>)],
        expires_at: Option<u64>,
    ) -> duramen::Result<u64>;
}

/// Why a large value could not be read or written.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Bytes are not what they must be.
    Malformed(Malformed),
    /// The engine refused.
    Engine(duramen::Error),
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<duramen::Error> for Fault {
    fn from(error: duramen::Error) -> Self {
        Self::Engine(error)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Fault>;

/// The bytes of an element, or of the part of a run where it lies.
pub(crate) enum Bytes<'a> {
    Lent(&'a [u8]),
    /// Bytes of a record.
    Stored(Value<'a>, Range<usize>),
    Score([u8; 8]),
}

impl std::ops::Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Stored(value, place) => &value[place.clone()],
            Self::Score(bytes) => bytes,
        }
    }
}

/// Copies all elements to a collection that nothing names yet. They lie together in memory meanwhile, [`COPIED_BYTES`] of them, or all of
/// a collection without an order.
pub(crate) fn copy(writer: &mut impl ElementWriter, elements: &Collection) -> Result<Collection> {
    let made = writer.new_collection(elements.order());
    let mut copied = 0;
    while copied < elements.len() {
        // Where the key ends, and the value.
        let (mut bytes, mut ends, mut timed) = (Vec::new(), Vec::new(), Vec::new());
        let mut gather = |element: &Value<'_>| {
            bytes.extend_from_slice(element.key());
            let key_end = bytes.len();
            bytes.extend_from_slice(element);
            if let Some(expires_at) = element.expires_at() {
                timed.push((ends.len(), expires_at));
            }
            ends.push((key_end, bytes.len()));
            bytes.len() < COPIED_BYTES || elements.order() == ElementOrder::Unordered
        };
        match elements.order() {
            ElementOrder::Unordered => writer.reads(elements).each(&mut gather)?,
            _ => writer.reads(elements).ranked(copied, false, &mut gather)?,
        }
        let (mut at, mut writes) = (0, Vec::with_capacity(ends.len()));
        for &(key_end, end) in &ends {
            writes.push((&bytes[at..key_end], Some(&bytes[key_end..end])));
            at = end;
        }
        for &(at, expires_at) in timed.iter().rev() {
            let (key, value) = writes.swap_remove(at);
            writer.put_until(&made, key, value.unwrap_or_default(), Some(expires_at))?;
        }
        writer.write_all(&made, &writes)?;
        copied += ends.len().max(1) as u64;
        if elements.order() == ElementOrder::Unordered {
            break;
        }
    }
    Ok(made)
}

/// The value of a root.
pub(crate) fn root(flags: u8) -> [u8; 1] {
    [FORM | flags << FLAGS_SHIFT]
}

/// The flags of a root; `known` are those that its type has.
///
/// # Errors
/// When it does not have this form.
pub(crate) fn flags(root: &[u8], known: u8) -> std::result::Result<u8, Malformed> {
    match *root {
        [byte] if byte & FORM_BITS == FORM && byte >> FLAGS_SHIFT & !known == 0 => Ok(byte >> FLAGS_SHIFT),
        [byte] if byte & FORM_BITS == FORM => Err(crate::packed::UNKNOWN_FLAGS),
        [_] => Err(Malformed { at: 0, why: "the form of its root is not one that this version knows" }),
        _ => Err(Malformed { at: root.len(), why: "its root is not of one byte" }),
    }
}
