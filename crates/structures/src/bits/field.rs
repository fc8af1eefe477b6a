//! BITFIELD: integers of 1 to 64 bits at any bit of a string, with a choice for overflow.

/// Signedness and width of a field: `i1` to `i64`, `u1` to `u63`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    signed: bool,
    bits: u8,
}

/// The treatment of a value that a field cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Its low bits are kept.
    #[default]
    Wrap,
    /// The nearest value that fits is taken.
    Saturate,
    /// Nothing is written and the reply is null.
    Fail,
}

/// A field at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its first bit.
    pub offset: u64,
    /// Its value.
    pub width: Width,
}

impl Width {
    /// By its name, as `u8` or `i33`.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let (signed, bits) = match name {
            [b'i', bits @ ..] => (true, bits),
            [b'u', bits @ ..] => (false, bits),
            _ => return None,
        };
        let bits = crate::string::integer::parse(bits)?;
        // u64 does not exist: replies are signed 64-bit integers.
        let bits_max = if signed { 64 } else { 63 };
        (1..=bits_max).contains(&bits).then_some(Self { signed, bits: bits as u8 })
    }

    /// How many bits.
    pub fn bits(self) -> u64 {
        u64::from(self.bits)
    }

    fn min(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn max(self) -> i128 {
        if self.signed { (1 << (self.bits - 1)) - 1 } else { (1 << self.bits) - 1 }
    }

    /// The value that a field of this width gets for `value`; `None` if it is not to be written.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i64> {
        if (self.min()..=self.max()).contains(&value) {
            return Some(value as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.sign_extend(value as u64)),
            Overflow::Saturate => Some(value.clamp(self.min(), self.max()) as i64),
            Overflow::Fail => None,
        }
    }

    /// The low bits of `bits` as a value of this width.
    fn sign_extend(self, bits: u64) -> i64 {
        let unused = 64 - u32::from(self.bits);
        if self.signed { (bits << unused) as i64 >> unused } else { (bits << unused >> unused) as i64 }
    }
}

impl Overflow {
    /// By its name, in any case.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        [(&b"wrap"[..], Self::Wrap), (b"sat", Self::Saturate), (b"fail", Self::Fail)]
            .into_iter()
            .find_map(|(known, overflow)| name.eq_ignore_ascii_case(known).then_some(overflow))
    }
}

impl Field {
    /// Bytes that a string must have to hold the field.
    pub fn bytes_end(self) -> u64 {
        (self.offset + self.width.bits()).div_ceil(8)
    }

    /// The same field, counted from `bytes` bytes after the start of the string.
    pub fn behind(self, bytes: usize) -> Self {
        Self { offset: self.offset - 8 * bytes as u64, ..self }
    }

    /// The value of the field; bits beyond the end are zeros.
    pub fn get(self, bytes: &[u8]) -> i64 {
        // At most 7 bits before the field and 64 in it: 9 bytes.
        let first = (self.offset >> 3) as usize;
        let mut window = [0; 16];
        let rest = bytes.get(first..).unwrap_or_default();
        let held = rest.len().min(9);
        window[..held].copy_from_slice(&rest[..held]);
        let bits = u128::from_be_bytes(window) << (self.offset & 7) >> (128 - self.width.bits());
        self.width.sign_extend(bits as u64)
    }

    /// BITFIELD SET: the value before, `None` if an overflow made it fail. `bytes` must hold the field.
    pub fn set(self, bytes: &mut [u8], value: i64, overflow: Overflow) -> Option<i64> {
        let before = self.get(bytes);
        if overflow == Overflow::Saturate && self.wraps_below(value) {
            self.store(bytes, self.width.max() as i64);
            return Some(before);
        }
        // An unsigned field takes a negative value as the large one with the same bits.
        let value = if self.width.signed { i128::from(value) } else { i128::from(value as u64) };
        self.store(bytes, self.width.fit(value, overflow)?);
        Some(before)
    }

    /// BITFIELD INCRBY: the value after, `None` if an overflow made it fail. `bytes` must hold the field.
    pub fn increment(self, bytes: &mut [u8], increment: i64, overflow: Overflow) -> Option<i64> {
        let after = self.width.fit(i128::from(self.get(bytes)) + i128::from(increment), overflow)?;
        self.store(bytes, after);
        Some(after)
    }

    /// Redis computes how far `value` is below the maximum in 64 bits. Where that overflows it saturates
    /// at the wrong end: SET i8 of -2^63 gives 127. Clients may see the same here.
    fn wraps_below(self, value: i64) -> bool {
        self.width.signed
            && self.width.bits < 64
            && self.width.max() - i128::from(value) > i128::from(i64::MAX)
    }

    fn store(self, bytes: &mut [u8], value: i64) {
        for bit in 0..self.width.bits() {
            let on = value >> (self.width.bits() - 1 - bit) & 1 != 0;
            let at = self.offset + bit;
            let byte = &mut bytes[(at >> 3) as usize];
            let mask = 0x80 >> (at & 7);
            if on {
                *byte |= mask;
            } else {
                *byte &= !mask;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(name: &str, offset: u64) -> Field {
        Field { offset, width: Width::of_name(name.as_bytes()).unwrap() }
    }

    #[test]
    fn only_widths_that_a_reply_can_show_exist() {
        for name in ["", "i", "u", "i0", "u0", "i65", "u64", "I8", "i08", "i-1", "x8", "8"] {
            assert_eq!(Width::of_name(name.as_bytes()), None, "{name}");
        }
        assert!(Width::of_name(b"i64").is_some() && Width::of_name(b"u63").is_some());
    }

    #[test]
    fn overflow_wraps_saturates_or_fails() {
        let u2 = field("u2", 102);
        let mut bytes = vec![0; u2.bytes_end() as usize];
        assert_eq!(bytes.len(), 13);
        for (wanted, overflow) in [(3, Overflow::Saturate), (0, Overflow::Wrap)] {
            u2.set(&mut bytes, 3, Overflow::Wrap);
            assert_eq!(u2.increment(&mut bytes, 1, overflow), Some(wanted));
        }
        u2.set(&mut bytes, 3, Overflow::Wrap);
        assert_eq!(u2.increment(&mut bytes, 1, Overflow::Fail), None);
        assert_eq!(u2.get(&bytes), 3);

        let i5 = field("i5", 3);
        assert_eq!(i5.set(&mut bytes, 15, Overflow::Wrap), Some(0));
        assert_eq!(i5.increment(&mut bytes, 1, Overflow::Wrap), Some(-16));
        assert_eq!(i5.increment(&mut bytes, -1, Overflow::Saturate), Some(-16));
        assert_eq!(i5.set(&mut bytes, -100, Overflow::Saturate), Some(-16));
        assert_eq!(i5.get(&bytes), -16);

        assert_eq!(i5.set(&mut bytes, i64::MIN, Overflow::Saturate), Some(-16));
        assert_eq!(i5.get(&bytes), 15);

        let i64_ = field("i64", 0);
        i64_.set(&mut bytes, i64::MAX, Overflow::Wrap);
        assert_eq!(i64_.increment(&mut bytes, 1, Overflow::Wrap), Some(i64::MIN));
        let u8_ = field("u8", 0);
        u8_.set(&mut bytes, -1, Overflow::Saturate);
        assert_eq!(u8_.get(&bytes), 255);
    }

    proptest! {
        #[test]
        fn a_field_holds_its_value_and_nothing_around_it_changes(
            mut bytes in prop::collection::vec(any::<u8>(), 20),
            offset in 0u64..96,
            signed: bool,
            bits in 1u8..=64,
            value: i64,
        ) {
            let width = Width { signed, bits: if signed { bits } else { bits.min(63) } };
            let field = Field { offset, width };
            let before = bytes.clone();
            let old = field.get(&bytes);
            prop_assert_eq!(field.set(&mut bytes, value, Overflow::Wrap), Some(old));
            let model: u64 = (0..width.bits()).fold(0, |all, bit| all << 1 | u64::from(crate::bits::get(&bytes, offset + bit)));
            prop_assert_eq!(width.sign_extend(model), field.get(&bytes));
            prop_assert_eq!(width.sign_extend(value as u64), field.get(&bytes));
            for bit in (0..offset).chain(offset + width.bits()..160) {
                prop_assert_eq!(crate::bits::get(&bytes, bit), crate::bits::get(&before, bit));
            }
        }

        #[test]
        fn a_field_beyond_the_end_reads_zeros(bytes in prop::collection::vec(any::<u8>(), 0..4), offset in 0u64..60) {
            let mut padded = bytes.clone();
            padded.resize(20, 0);
            let field = field("u40", offset);
            prop_assert_eq!(field.get(&bytes), field.get(&padded));
        }
    }
}
