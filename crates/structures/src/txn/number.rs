//! Integers that commands count with, stored so that the engine changes them in place.
//!
//! INCR and its like store their sum under [`TAG`] as a field of 8 bytes that one atomic store replaces:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 0 to 7 | zeros, so that the field is aligned: [`duramen::padding_before_field`] of the engine key |
//! | next | 8 | little-endian: bits 0 to 47 the integer, two's complement; bits 48 to 63 changes, modulo 2^16 |
//!
//! Everybody else sees the integer's decimal text: [`super::Txn`] turns one into the other, and nobody outside of it knows
//! of the form. What any other command writes is text, and so is an integer that 48 bits do not hold.
//!
//! Why changes are counted: the engine identifies the state of such a value by its bytes. Without the count a key that
//! went from 1 to 2 and back would seem unchanged. WATCH would miss it, and a transaction that read two keys could
//! combine values that never existed at the same time. A new number starts its count at random. Two cases remain:
//! changes that are missed because they were a multiple of 65,536 and returned to the same integer; and, once in 65,536
//! cases, a key that was deleted and counted up to the same integer again.

use super::counter::Counter;
use crate::string::integer::Text;
use duramen::Meta;

/// The text of a value under an engine key with this tag, if it is a number or a counter of memcached: for tools that
/// read a keyspace's store without a [`Keyspace`](crate::Keyspace).
#[must_use]
pub fn text_of_number(engine_key: &[u8], tag: u8, bytes: &[u8]) -> Option<Text> {
    text_of(tag, bytes, engine_key.len())
}

/// The same, of an engine key of `key_bytes`.
pub(super) fn text_of(tag: u8, bytes: &[u8], key_bytes: usize) -> Option<Text> {
    let counter = || Counter::of(tag, bytes, key_bytes).map(|counter| counter.text());
    Number::of(tag, bytes, key_bytes).map(|number| Text::new(number.value())).or_else(counter)
}

/// Tag of a number: [`Type::String`](crate::Type::String), kept in another form.
pub(crate) const TAG: u8 = 0x81;

const VALUE_BITS: u32 = 48;
const FIELD_BYTES: usize = 8;
// With the most padding there can be.
const BYTES_MAX: usize = 7 + FIELD_BYTES;

/// An integer, and how often it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    value: i64,
    changes: u16,
}

/// A number as it is stored.
pub(crate) struct Bytes {
    bytes: [u8; BYTES_MAX],
    padding: usize,
}

impl Number {
    /// A number that counts its changes from `changes` on; `None` for one that does not fit.
    pub(crate) fn new(value: i64, changes: u16) -> Option<Self> {
        let fits = value << (64 - VALUE_BITS) >> (64 - VALUE_BITS) == value;
        fits.then_some(Self { value, changes })
    }

    /// This number with another value, if that fits.
    pub(crate) fn changed_to(self, value: i64) -> Option<Self> {
        Self::new(value, self.changes.wrapping_add(1))
    }

    /// The same value for another key, or for this one as something new.
    pub(crate) fn moved(self, changes: u16) -> Self {
        Self { changes, ..self }
    }

    pub(crate) fn value(self) -> i64 {
        self.value
    }

    /// The number that is stored so under an engine key of `key_bytes`, if it is one.
    pub(crate) fn of(tag: u8, bytes: &[u8], key_bytes: usize) -> Option<Self> {
        let (padding, field) = bytes.split_last_chunk::<FIELD_BYTES>()?;
        if tag != TAG || padding.len() != duramen::padding_before_field(key_bytes) {
            return None;
        }
        let word = u64::from_le_bytes(*field);
        let value = (word << (64 - VALUE_BITS)) as i64 >> (64 - VALUE_BITS);
        Some(Self { value, changes: (word >> VALUE_BITS) as u16 })
    }

    /// The field, and where in the value it lies.
    pub(crate) fn field(self, key_bytes: usize) -> (usize, [u8; FIELD_BYTES]) {
        let value = self.value as u64 & ((1 << VALUE_BITS) - 1);
        let word = value | u64::from(self.changes) << VALUE_BITS;
        (duramen::padding_before_field(key_bytes), word.to_le_bytes())
    }

    /// The value to be stored under an engine key of `key_bytes`.
    pub(crate) fn bytes(self, key_bytes: usize) -> Bytes {
        let (padding, field) = self.field(key_bytes);
        let mut bytes = [0; BYTES_MAX];
        bytes[padding..padding + FIELD_BYTES].copy_from_slice(&field);
        Bytes { bytes, padding }
    }

    /// The meta field of a number that expires at `expires_at`.
    pub(crate) fn meta(expires_at: Option<u64>) -> Meta {
        Meta { tag: TAG, expires_at, updatable: true, ..Meta::default() }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.padding + FIELD_BYTES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: i64 = (1 << 47) - 1;

    #[test]
    fn the_form_matches_the_table() {
        let number = Number::new(-2, 0x1234).unwrap();
        assert_eq!(&number.bytes(3)[..], [0, 0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0x34, 0x12]);
        assert_eq!(&number.bytes(16)[..], [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0x34, 0x12]);
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        for value in [MAX + 1, -MAX - 2, i64::MAX, i64::MIN] {
            assert_eq!(Number::new(value, 0), None, "{value}");
        }
        let last = Number::new(MAX, u16::MAX).unwrap();
        assert_eq!(last.changed_to(MAX + 1), None);
        assert_eq!(last.changed_to(-MAX - 1), Number::new(-MAX - 1, 0));
    }

    proptest! {
        #[test]
        fn a_number_reads_back(value in -MAX - 1..=MAX, changes: u16, key_bytes in 1usize..40) {
            let number = Number::new(value, changes).unwrap();
            let bytes = number.bytes(key_bytes);
            prop_assert_eq!(Number::of(TAG, &bytes, key_bytes), Some(number));
            prop_assert_eq!(Number::of(TAG, &bytes, key_bytes + 1), None);
            prop_assert_eq!(Number::of(1, &bytes, key_bytes), None);
            prop_assert_ne!(&number.changed_to(value).unwrap().bytes(key_bytes)[..], &bytes[..]);
        }

        #[test]
        fn any_bytes_are_a_number_or_not(bytes in prop::collection::vec(any::<u8>(), 0..20), key_bytes in 0usize..20) {
            let number = Number::of(TAG, &bytes, key_bytes);
            prop_assert_eq!(number.is_some(), bytes.len() == 8 + (8 - key_bytes % 8) % 8);
        }
    }
}
