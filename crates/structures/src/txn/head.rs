//! Items of memcached: strings that have flags and a CAS number.
//!
//! Values of memcached's commands are kept under [`TAG`], with a short head before the data:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 1 | bits 0 and 1: bytes of the flags (0, 1, 2, 4); bits 2 to 4: bytes of the CAS number, less one; bit 5:
//! stale; bit 6: won; bit 7: binary key |
//! | 1 | 0 to 4 | flags, little-endian |
//! | next | 1 to 8 | CAS number, little-endian |
//! | next | | data |
//!
//! A reader of strings sees the data alone, and a command that writes or counts a string drops the head. Read as an
//! item, a string without a head has flags 0, and a CAS number made of its stamp, which changes with every write.

/// Tag of an item: [`Type::String`](crate::Type::String), kept in another form.
pub(crate) const TAG: u8 = 0x82;

const FLAGS_BYTES: [usize; 4] = [0, 1, 2, 4];
const STALE: u8 = 1 << 5;
const WON: u8 = 1 << 6;
const BINARY_KEY: u8 = 1 << 7;

/// memcached's fields of an item besides its data and its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemHead {
    /// The client's.
    pub flags: u32,
    /// Another one after each change.
    pub cas: u64,
    /// Out of date: the first reader is to fetch it again.
    pub stale: bool,
    /// A reader was asked to fetch it again.
    pub won: bool,
    /// Its key came in base64, and is returned as such.
    pub binary_key: bool,
}

impl ItemHead {
    /// Appends its bytes.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let flags_bytes = (u32::BITS - self.flags.leading_zeros()).div_ceil(8) as usize;
        let form =
            FLAGS_BYTES.iter().position(|bytes| *bytes >= flags_bytes).unwrap_or(FLAGS_BYTES.len() - 1);
        let cas_bytes = ((u64::BITS - self.cas.leading_zeros()).div_ceil(8) as usize).max(1);
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        into.push(
            form as u8
                | ((cas_bytes - 1) as u8) << 2
                | bit(self.stale, STALE)
                | bit(self.won, WON)
                | bit(self.binary_key, BINARY_KEY),
        );
        into.extend_from_slice(&self.flags.to_le_bytes()[..FLAGS_BYTES[form]]);
        into.extend_from_slice(&self.cas.to_le_bytes()[..cas_bytes]);
    }

    /// Decodes a head; returns it and where the data begins.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (&form, rest) = bytes.split_first()?;
        let flags_bytes = FLAGS_BYTES[usize::from(form & 3)];
        let cas_bytes = usize::from(form >> 2 & 7) + 1;
        let (mut flags, mut cas) = ([0; 4], [0; 8]);
        flags[..flags_bytes].copy_from_slice(rest.get(..flags_bytes)?);
        cas[..cas_bytes].copy_from_slice(rest.get(flags_bytes..flags_bytes + cas_bytes)?);
        let head = Self {
            flags: u32::from_le_bytes(flags),
            cas: u64::from_le_bytes(cas),
            stale: form & STALE != 0,
            won: form & WON != 0,
            binary_key: form & BINARY_KEY != 0,
        };
        Some((head, 1 + flags_bytes + cas_bytes))
    }
}

/// Where the data of a string that is stored under this tag begins.
pub(super) fn data_from(tag: u8, bytes: &[u8]) -> usize {
    if tag != TAG {
        return 0;
    }
    ItemHead::decode(bytes).map_or(0, |(_, at)| at)
}

/// The data of a value with this tag, if it is an item: for tools that read a keyspace's store without a
/// [`Keyspace`](crate::Keyspace).
#[must_use]
pub fn data_of_item(tag: u8, bytes: &[u8]) -> Option<&[u8]> {
    (tag == TAG).then(|| &bytes[data_from(tag, bytes)..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(head: &ItemHead) -> Vec<u8> {
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        bytes
    }

    #[test]
    fn the_form_matches_the_table() {
        let head = ItemHead { flags: 0x0102, cas: 0x30405, stale: true, ..ItemHead::default() };
        assert_eq!(encoded(&head), [0b0010_1010, 2, 1, 5, 4, 3]);
        assert_eq!(encoded(&ItemHead { won: true, ..ItemHead::default() }), [0b0100_0000, 0]);
        assert_eq!(data_of_item(TAG, b"\x00\x07data"), Some(&b"data"[..]));
        assert_eq!(data_of_item(1, b"\x00\x07data"), None);
    }

    proptest! {
        #[test]
        fn a_head_reads_back(flags: u32, flags_less in 0u32..32, cas: u64, cas_less in 0u32..64, stale: bool, won: bool, binary_key: bool, data: Vec<u8>) {
            let head = ItemHead { flags: flags >> flags_less, cas: cas >> cas_less, stale, won, binary_key };
            let mut bytes = encoded(&head);
            let at = bytes.len();
            bytes.extend_from_slice(&data);
            prop_assert_eq!(ItemHead::decode(&bytes), Some((head, at)));
        }

        #[test]
        fn any_bytes_are_a_head_or_not(bytes in prop::collection::vec(any::<u8>(), 0..16)) {
            let _ = ItemHead::decode(&bytes);
            prop_assert!(data_of_item(TAG, &bytes).is_some_and(|data| data.len() <= bytes.len()));
        }
    }
}
