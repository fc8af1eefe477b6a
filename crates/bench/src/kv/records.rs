//! The bytes of keys and values: made from a number, and checked against it.
//!
//! A key starts with 8 bytes that look random and belong to one number alone. A value of at least 24 bytes:
//!
//! | at | bytes | is |
//! |---|---|---|
//! | 0 | 8 | seal: the number's hash, its low half xor the version |
//! | next multiple of 8 in the record | 8 | cell for in-place updates: the number's other hash, low half xor a count |
//! | | | filler, random bytes that follow from number and version |
//! | end - 8 | 8 | the seal again |
//!
//! A shorter value has only what fits: the seal, which updates then change, and filler.

use crate::kv::random::{Random, mix, normal_of};
use crate::kv::{Failure, Result};
use std::fmt;
use std::str::FromStr;

const SEAL_BYTES: usize = 8;
/// The smallest value with a separate cell and a second seal.
const VALUE_BYTES_FULL: usize = 32;
/// Places in the pool where fillers begin: 64 lines, so that making a value reads what the L1 cache holds.
const FILLER_STARTS: u64 = 64;
/// The smallest mean: three deviations below it there is still room for seals and cell.
const VALUE_BYTES_VARYING_MIN: usize = 80;
const VALUE_BYTES_MAX: usize = 16 << 20;
const KEY_BYTES_MAX: usize = 1024;

/// Sizes of keys and values, in bytes: `16+200`, or `16+200~` for sizes around these, normally distributed
/// with a quarter of the key's and a fifth of the value's size as deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    key_bytes: usize,
    value_bytes: usize,
    varies: bool,
}

impl Shape {
    /// The shapes of the published evaluations.
    pub const NAMES: [&'static str; 8] =
        ["8+8", "16+100", "16+200", "32+500", "100+900", "16+4096", "16+65536", "16+200~"];

    /// Records of one size.
    ///
    /// # Errors
    /// A usage error if a key is not 8 to 1024 bytes or a value not 8 bytes to 16 MiB.
    pub fn new(key_bytes: usize, value_bytes: usize) -> Result<Self> {
        if !(8..=KEY_BYTES_MAX).contains(&key_bytes) {
            return Err(Failure::usage(format!(
                "keys of {key_bytes} bytes are not possible; wanted 8, so that keys differ, to {KEY_BYTES_MAX}"
            )));
        }
        if !(SEAL_BYTES..=VALUE_BYTES_MAX).contains(&value_bytes) {
            return Err(Failure::usage(format!(
                "records with values of {value_bytes} bytes cannot be made: from {SEAL_BYTES}, by which a value is \
                 checked, to {VALUE_BYTES_MAX}"
            )));
        }
        Ok(Self { key_bytes, value_bytes, varies: false })
    }

    /// Bytes of a key, or their mean.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Bytes of a value, or their mean.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Bytes of key and value together, or their mean.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.key_bytes + self.value_bytes
    }

    fn key_bytes_of(&self, number: u64) -> usize {
        vary(self.varies, self.key_bytes, 4.0, mix(number), 8)
    }

    fn value_bytes_of(&self, number: u64, version: u32) -> usize {
        vary(self.varies, self.value_bytes, 5.0, mix(number) ^ u64::from(version), SEAL_BYTES)
    }
}

/// `mean`, or a size around it that belongs to `number`: at most three deviations away.
#[inline]
fn vary(varies: bool, mean: usize, divisor: f64, number: u64, least: usize) -> usize {
    if !varies {
        return mean;
    }
    let size = mean as f64 * (1.0 + normal_of(number).clamp(-3.0, 3.0) / divisor);
    (size.round() as usize).max(least)
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.varies { "~" } else { "" };
        f.pad(&format!("{}+{}{mark}", self.key_bytes, self.value_bytes))
    }
}

impl FromStr for Shape {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self> {
        let (sizes, varies) = text.strip_suffix('~').map_or((text, false), |sizes| (sizes, true));
        let parsed = sizes.split_once('+').and_then(|(k, v)| Some((k.parse().ok()?, v.parse().ok()?)));
        let Some((key, value)) = parsed else {
            return Err(Failure::usage(format!(
                "record shape {text:?} is unknown; wanted KEY+VALUE in bytes, such as {}",
                Self::NAMES.join(", ")
            )));
        };
        let shape = Self::new(key, value)?;
        if varies && value < VALUE_BYTES_VARYING_MIN {
            return Err(Failure::usage(format!(
                "values of {value} bytes on average are not possible; wanted at least {VALUE_BYTES_VARYING_MIN}"
            )));
        }
        Ok(Self { varies, ..shape })
    }
}

/// Makes and checks the records of one shape.
#[derive(Debug)]
pub struct Records {
    shape: Shape,
    /// Fillers are slices of it.
    pool: Vec<u8>,
}

impl Records {
    /// For records of `shape`.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        let mut random = Random::new(0x706f_6f6c, 1);
        let words = (shape.value_bytes * 2).div_ceil(8) + (FILLER_STARTS * 8) as usize;
        let pool = (0..words).flat_map(|_| random.next().to_le_bytes()).collect();
        Self { shape, pool }
    }

    /// Their shape.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The key of `number`, into `key`, which is cleared before.
    #[inline]
    pub fn key(&self, number: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&mix(number).to_le_bytes());
        let mut left = self.shape.key_bytes_of(number) - 8;
        while left > 0 {
            let take = left.min(8);
            key.extend_from_slice(&number.to_le_bytes()[..take]);
            left -= take;
        }
    }

    /// The value of `number` in `version`, into `value`, which is cleared before.
    #[inline]
    pub fn value(&self, number: u64, version: u32, value: &mut Vec<u8>) {
        let bytes = self.shape.value_bytes_of(number, version);
        let seal = seal(number, version).to_le_bytes();
        value.clear();
        value.extend_from_slice(self.filler(number, version, bytes));
        value[..SEAL_BYTES].copy_from_slice(&seal);
        if bytes >= VALUE_BYTES_FULL {
            let at = self.cell_at(number);
            value[at..at + 8].copy_from_slice(&self.cell(number, version));
            value[bytes - SEAL_BYTES..].copy_from_slice(&seal);
        }
    }

    /// Where in the value in-place updates go. The place is a multiple of 8 bytes in Duramen's record, whose header is
    /// a multiple of 8 bytes.
    #[inline]
    #[must_use]
    pub fn cell_at(&self, number: u64) -> usize {
        if self.shape.value_bytes < VALUE_BYTES_FULL {
            return 0;
        }
        let key = self.shape.key_bytes_of(number);
        SEAL_BYTES + (8 - key % 8) % 8
    }

    /// The bytes that an in-place update of `number` writes there.
    #[inline]
    #[must_use]
    pub fn cell(&self, number: u64, version: u32) -> [u8; 8] {
        if self.shape.value_bytes < VALUE_BYTES_FULL {
            return seal(number, version).to_le_bytes();
        }
        (mix(!number) ^ u64::from(version)).to_le_bytes()
    }

    /// Checks that `value` belongs to `number`: by length, seals and cell. It reads two cache lines, so that the check
    /// does not cost more than the operation.
    ///
    /// # Errors
    /// Names the found and the wanted value.
    #[inline]
    pub fn check(&self, number: u64, value: &[u8]) -> Result<()> {
        if self.version_of(number, value).is_some() { Ok(()) } else { Err(self.wrong(number, value)) }
    }

    /// The bytes that [`Records::begins`] compares with a value of `number`.
    #[inline]
    pub(crate) fn seal(&self, number: u64) -> u64 {
        seal(number, 0)
    }

    /// Whether `value` has a valid length and begins with the hash of its number: a weaker check than
    /// [`Records::check`], with one comparison.
    #[inline]
    pub(crate) fn begins(&self, seal: u64, value: &[u8]) -> bool {
        let fits = self.shape.varies || value.len() == self.shape.value_bytes;
        fits && word(value, 0).is_some_and(|first| (first ^ seal) >> 32 == 0)
    }

    /// Like [`Records::check`], and also checks every byte of the filler.
    ///
    /// # Errors
    /// As [`Records::check`].
    pub fn check_whole(&self, number: u64, value: &[u8]) -> Result<()> {
        let Some(version) = self.version_of(number, value) else { return Err(self.wrong(number, value)) };
        let filler = self.filler(number, version, value.len());
        let (cell, full) = (self.cell_at(number), value.len() >= VALUE_BYTES_FULL);
        let end = if full { value.len() - SEAL_BYTES } else { value.len() };
        let after = if full { cell + 8 } else { SEAL_BYTES };
        let short = value.len() < VALUE_BYTES_FULL;
        let middle = short || value[SEAL_BYTES..cell] == filler[SEAL_BYTES..cell];
        // A short value's version changes with updates in place, which leave the filler as it was.
        if middle && (short || value[after..end] == filler[after..end]) {
            return Ok(());
        }
        Err(Failure::new(format!(
            "the value of key {number}, version {version}, is torn: its filler belongs to another value"
        )))
    }

    /// The version of a value of `number`; `None` if the value does not belong to it.
    #[inline]
    fn version_of(&self, number: u64, value: &[u8]) -> Option<u32> {
        let first = word(value, 0)?;
        let version = first ^ seal(number, 0);
        let version = u32::try_from(version).ok()?;
        let bytes = value.len();
        if self.shape.value_bytes < VALUE_BYTES_FULL {
            return (bytes == self.shape.value_bytes).then_some(version);
        }
        if bytes != self.shape.value_bytes_of(number, version) {
            return None;
        }
        let cell = word(value, self.cell_at(number))? ^ mix(!number);
        (cell >> 32 == 0 && word(value, bytes - SEAL_BYTES)? == first).then_some(version)
    }

    #[cold]
    fn wrong(&self, number: u64, value: &[u8]) -> Failure {
        let head: String = value.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Failure::new(format!(
            "key {number} has a wrong value: found {} bytes that begin with {head}, wanted one of {} bytes that was \
             put; the engine returned what it was not given, so there are no figures",
            value.len(),
            self.shape.value_bytes
        ))
    }

    #[inline]
    fn filler(&self, number: u64, version: u32, bytes: usize) -> &[u8] {
        let start = (mix(number).wrapping_add(u64::from(version)) % FILLER_STARTS * 64) as usize;
        &self.pool[start..start + bytes]
    }
}

#[inline]
fn seal(number: u64, version: u32) -> u64 {
    mix(number ^ 0x5eed_5eed) ^ u64::from(version)
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(shape: &str) -> Records {
        Records::new(shape.parse().unwrap())
    }

    #[test]
    fn every_named_shape_makes_values_that_pass_their_check() {
        let (mut key, mut value) = (vec![], vec![]);
        for name in Shape::NAMES {
            let records = records(name);
            assert_eq!(records.shape().to_string(), name);
            for number in 0..200 {
                records.key(number, &mut key);
                records.value(number, number as u32 * 7, &mut value);
                records.check(number, &value).unwrap();
                records.check_whole(number, &value).unwrap();
                assert!(records.check(number + 1, &value).is_err(), "{name}: another key's value passes");
                if !name.ends_with('~') {
                    assert_eq!(
                        (key.len(), value.len()),
                        (records.shape().key_bytes(), records.shape().value_bytes())
                    );
                }
                let at = records.cell_at(number);
                value[at..at + 8].copy_from_slice(&records.cell(number, 99));
                records.check(number, &value).unwrap();
                records.check_whole(number, &value).unwrap();
                assert_eq!((24 + key.len() + at) % 8, 0, "{name}: cells are aligned in the record");
            }
        }
    }

    #[test]
    fn any_changed_byte_is_found() {
        let records = records("16+200");
        let mut value = vec![];
        records.value(5, 6, &mut value);
        for at in 0..value.len() {
            // The cell's count and the version are free, so their low halves may be anything consistent.
            if (8..12).contains(&at) {
                continue;
            }
            value[at] ^= 1;
            assert!(records.check_whole(5, &value).is_err(), "byte {at}");
            value[at] ^= 1;
        }
        value.pop();
        assert!(records.check(5, &value).is_err());
        assert!(records.check(5, &[]).is_err());
    }

    #[test]
    fn varying_sizes_have_their_mean_and_deviation() {
        let shape: Shape = "16+200~".parse().unwrap();
        let sizes: Vec<f64> = (0..100_000).map(|n| shape.value_bytes_of(n, 0) as f64).collect();
        let mean = sizes.iter().sum::<f64>() / 1e5;
        let deviation = (sizes.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 1e5).sqrt();
        assert!((199.0..201.0).contains(&mean), "mean {mean}");
        assert!((38.0..41.0).contains(&deviation), "deviation {deviation}");
        assert!(sizes.iter().all(|s| (80.0..=320.0).contains(s)));
    }

    #[test]
    fn keys_differ() {
        for name in ["8+8", "16+200~", "100+900"] {
            let records = records(name);
            let mut keys: Vec<Vec<u8>> = (0..20_000)
                .map(|n| {
                    let mut key = vec![];
                    records.key(n, &mut key);
                    key
                })
                .collect();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), 20_000);
        }
    }

    #[test]
    fn impossible_shapes_say_what_is_possible() {
        for (text, says) in [
            ("16", "KEY+VALUE"),
            ("4+100", "keys of 4 bytes"),
            ("16+4", "values of 4 bytes"),
            ("16+40~", "at least 80"),
            ("16+99999999999", "values of 99999999999"),
            ("x+y", "KEY+VALUE"),
        ] {
            let failure = text.parse::<Shape>().unwrap_err();
            assert!(failure.is_usage() && failure.to_string().contains(says), "{failure}");
        }
    }
}
