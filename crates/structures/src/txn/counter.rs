//! Counters of memcached: items whose number the engine changes in place.
//!
//! `incr` and `decr` store their result under [`TAG`], an item's [head](super::head) before it:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 2 to 13 | the head; its CAS number is the first of a run of 256 |
//! | next | 1 | bytes of the text at least: blanks stand where a number has become shorter |
//! | next | 0 to 7 | zeros, so that the field is aligned: [`duramen::padding_before_field`] of all before it, with the key |
//! | next | 8 | little-endian: bits 0 to 55 the number; bits 56 to 63 changes since the record was written |
//!
//! The reported CAS number is that of the head plus [`CAS_STEP`] for each change. So each change has a different one,
//! from numbers that the worker who wrote the record reserves. After 255 changes, and when the number becomes longer, a
//! record is rewritten.

use super::head::ItemHead;
use crate::string::integer::{TEXT_BYTES_MAX, Text, digits};

/// Tag of a counter: [`Type::String`](crate::Type::String), kept in another form.
pub(crate) const TAG: u8 = 0x83;

/// The difference between the CAS numbers of two successive changes of a counter.
pub const CAS_STEP: u64 = 1 << 10;
/// How many CAS numbers a counter needs, with a step between them.
pub const CAS_RUN: u64 = 1 << CHANGES_BITS;

const CHANGES_BITS: u32 = 8;
const VALUE_BITS: u32 = u64::BITS - CHANGES_BITS;
const FIELD_BYTES: usize = 8;

/// A counter as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    first: ItemHead,
    width: u8,
    value: u64,
    changes: u8,
}

impl Counter {
    /// A counter whose text takes at least `width` bytes. `head` has the first of its run of CAS numbers. `None`: it
    /// cannot be kept in this form.
    pub(crate) fn new(head: ItemHead, value: u64, width: usize) -> Option<Self> {
        let width = width.max(digits(value));
        let fits = value >> VALUE_BITS == 0 && width <= TEXT_BYTES_MAX;
        fits.then_some(Self { first: head, width: width as u8, value, changes: 0 })
    }

    /// The counter that is stored so under an engine key of `key_bytes`, if it is one.
    pub(crate) fn of(tag: u8, bytes: &[u8], key_bytes: usize) -> Option<Self> {
        if tag != TAG {
            return None;
        }
        let (first, head_bytes) = ItemHead::decode(bytes)?;
        let (&width, rest) = bytes[head_bytes..].split_first()?;
        let (padding, field) = rest.split_last_chunk::<FIELD_BYTES>()?;
        if padding.len() != duramen::padding_before_field(key_bytes + head_bytes + 1) {
            return None;
        }
        let word = u64::from_le_bytes(*field);
        let (value, changes) = (word & ((1 << VALUE_BITS) - 1), (word >> VALUE_BITS) as u8);
        let fits = digits(value) <= width.into() && usize::from(width) <= TEXT_BYTES_MAX;
        fits.then_some(Self { first, width, value, changes })
    }

    /// With its CAS number of now.
    pub(crate) fn head(&self) -> ItemHead {
        ItemHead { cas: self.first.cas + u64::from(self.changes) * CAS_STEP, ..self.first }
    }

    pub(crate) fn value(&self) -> u64 {
        self.value
    }

    /// This counter with another number, if its record can hold that.
    pub(crate) fn changed_to(self, value: u64) -> Option<Self> {
        let changes = self.changes.checked_add(1)?;
        let fits = value >> VALUE_BITS == 0 && digits(value) <= self.width.into();
        fits.then_some(Self { value, changes, ..self })
    }

    /// The text that memcached returns.
    pub(crate) fn text(&self) -> Text {
        Text::padded(self.value, self.width.into())
    }

    /// The field, and where it lies in a value of `bytes` bytes.
    pub(crate) fn field(&self, bytes: usize) -> (usize, [u8; FIELD_BYTES]) {
        let word = self.value | u64::from(self.changes) << VALUE_BITS;
        (bytes - FIELD_BYTES, word.to_le_bytes())
    }

    /// The value to be stored under an engine key of `key_bytes`.
    pub(crate) fn bytes(&self, key_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        self.first.encode(&mut bytes);
        bytes.push(self.width);
        bytes.resize(bytes.len() + duramen::padding_before_field(key_bytes + bytes.len()) + FIELD_BYTES, 0);
        let (at, field) = self.field(bytes.len());
        bytes[at..].copy_from_slice(&field);
        bytes
    }

    /// The same as an item that is not counted in place, which may lie under any key.
    pub(crate) fn as_item(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48);
        self.head().encode(&mut bytes);
        bytes.extend_from_slice(&self.text());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_form_matches_the_table() {
        let counter = Counter::new(ItemHead { cas: 0x102, ..ItemHead::default() }, 9, 2).unwrap();
        // The head, the width, padding up to 8 bytes with the key.
        assert_eq!(counter.bytes(3), [0b0000_0100, 2, 1, 2, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        let changed = counter.changed_to(10).unwrap();
        assert_eq!(changed.bytes(3), [0b0000_0100, 2, 1, 2, 0, 10, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((&*counter.text(), &*changed.text()), (&b"9 "[..], &b"10"[..]));
        assert_eq!(changed.head().cas, 0x102 + CAS_STEP);
        assert_eq!(changed.as_item(), [&[0b0000_0100, 2, 5][..], b"10"].concat());
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        let head = ItemHead::default();
        assert_eq!(Counter::new(head, 1 << 56, 1), None);
        assert_eq!(Counter::new(head, 1, 21), None);
        let mut counter = Counter::new(head, 99, 2).unwrap();
        assert_eq!(counter.changed_to(100), None, "it would be longer");
        for _ in 0..255 {
            counter = counter.changed_to(1).unwrap();
        }
        assert_eq!(counter.changed_to(1), None, "its CAS numbers are used up");
    }

    proptest! {
        #[test]
        fn a_counter_reads_back(value in 0..1u64 << 56, width in 0usize..=20, changes in 0u8..4, cas in 0u64..1 << 60, flags: u32, key_bytes in 1usize..260) {
            let mut counter = Counter::new(ItemHead { flags, cas, ..ItemHead::default() }, value, width).unwrap();
            for _ in 0..changes {
                counter = counter.changed_to(value / 2).unwrap();
            }
            let bytes = counter.bytes(key_bytes);
            prop_assert_eq!(Counter::of(TAG, &bytes, key_bytes), Some(counter));
            prop_assert_eq!((key_bytes + counter.field(bytes.len()).0) % 8, (key_bytes + duramen::padding_before_field(key_bytes)) % 8);
            let item = counter.as_item();
            let (head, from) = ItemHead::decode(&item).unwrap();
            prop_assert_eq!((head, &item[from..]), (counter.head(), &counter.text()[..]));
        }

        #[test]
        fn any_bytes_are_a_counter_or_not(bytes in prop::collection::vec(any::<u8>(), 0..40), key_bytes in 1usize..20) {
            if let Some(counter) = Counter::of(TAG, &bytes, key_bytes) {
                prop_assert!(counter.text().len() <= 20);
            }
        }
    }
}
