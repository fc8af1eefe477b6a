//! A value as a transaction sees it.

use std::ops::Deref;

use duramen::{CollectionId, Meta, Value};

use super::counter::Counter;
use super::head;
use super::number;
use crate::Type;
use crate::string::integer::Text;

// So that most commands can append without a further allocation.
const EDIT_ROOM_BYTES: usize = 128;

/// A value as a transaction sees it, not copied.
pub enum Found<'a> {
    /// As it lies in the store.
    Stored(Value<'a>),
    /// The data of an item of memcached, after its head.
    Item {
        /// All of it.
        value: Value<'a>,
        /// Where the data begins.
        from: usize,
    },
    /// A string that is kept in pieces, put together.
    Pieces {
        /// All of it.
        bytes: Vec<u8>,
        /// When it expires, in Unix milliseconds.
        expires_at: Option<u64>,
    },
    /// As this transaction is about to write it.
    Pending {
        /// The value.
        bytes: &'a [u8],
        /// Its meta field.
        meta: Meta,
    },
    /// An integer that is kept as such, as text.
    Number {
        /// The text.
        text: Text,
        /// When it expires, in Unix milliseconds.
        expires_at: Option<u64>,
        /// Bytes that its record takes on the medium; `None` before it is written.
        footprint: Option<u64>,
    },
}

impl<'a> Found<'a> {
    /// The value under an engine key of `key_bytes`.
    pub(super) fn of(value: Value<'a>, key_bytes: usize) -> Self {
        if value.tag() == head::TAG {
            let from = head::data_from(head::TAG, &value);
            return Self::Item { value, from };
        }
        match number::text_of(value.tag(), &value, key_bytes) {
            None => Self::Stored(value),
            Some(text) => {
                let (expires_at, footprint) = (value.expires_at(), Some(value.footprint()));
                Self::Number { text, expires_at, footprint }
            }
        }
    }

    /// The value's type tag; see [`Type::of_tag`].
    pub fn tag(&self) -> u8 {
        match self {
            Self::Stored(value) => value.tag(),
            Self::Pending { meta, .. } => meta.tag,
            Self::Number { .. } | Self::Item { .. } | Self::Pieces { .. } => Type::String.tag(),
        }
    }

    /// The pending write of this transaction under an engine key of `key_bytes`.
    pub(super) fn pending(bytes: &'a [u8], meta: Meta, key_bytes: usize) -> Self {
        if let Some(counter) = Counter::of(meta.tag, bytes, key_bytes) {
            return Self::Number { text: counter.text(), expires_at: meta.expires_at, footprint: None };
        }
        let from = head::data_from(meta.tag, bytes);
        let tag = if meta.tag == head::TAG { Type::String.tag() } else { meta.tag };
        Self::Pending { bytes: &bytes[from..], meta: Meta { tag, ..meta } }
    }

    /// When it expires, in Unix milliseconds.
    pub fn expires_at(&self) -> Option<u64> {
        match self {
            Self::Stored(value) | Self::Item { value, .. } => value.expires_at(),
            Self::Pending { meta, .. } => meta.expires_at,
            Self::Number { expires_at, .. } | Self::Pieces { expires_at, .. } => *expires_at,
        }
    }

    /// The elements that it is the root of, where it is kept in its large form.
    pub(super) fn collection(&self) -> Option<CollectionId> {
        match self {
            Self::Stored(value) => value.meta().collection,
            Self::Pending { meta, .. } => meta.collection,
            Self::Number { .. } | Self::Item { .. } | Self::Pieces { .. } => None,
        }
    }

    /// Whether it is the root of a string in pieces, whose bytes only `string` may interpret.
    pub(super) fn is_root_of_string(&self) -> bool {
        self.collection().is_some() && self.tag() == Type::String.tag()
    }

    /// A copy of its bytes, with room for the appends of most commands.
    pub(super) fn copied_to_edit(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len() + EDIT_ROOM_BYTES);
        copy.extend_from_slice(self);
        copy
    }

    /// Bytes that its record takes on the medium; `None` when it is not there yet.
    pub fn footprint(&self) -> Option<u64> {
        match self {
            Self::Stored(value) | Self::Item { value, .. } => Some(value.footprint()),
            Self::Pending { .. } | Self::Pieces { .. } => None,
            Self::Number { footprint, .. } => *footprint,
        }
    }
}

impl Deref for Found<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(value) => value.bytes(),
            Self::Item { value, from } => &value.bytes()[*from..],
            Self::Pending { bytes, .. } => bytes,
            Self::Pieces { bytes, .. } => bytes,
            Self::Number { text, .. } => text,
        }
    }
}
