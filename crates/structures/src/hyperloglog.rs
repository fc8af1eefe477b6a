//! HyperLogLog: how many different elements were added, to about 0.8 %, in at most 12 KiB.
//!
//! The bytes are those of Redis, so that a value goes from one to the other by GET and SET, DUMP and RESTORE:
//!
//! | offset | size | is |
//! |---|---|---|
//! | 0 | 4 | `HYLL` |
//! | 4 | 1 | 0: dense, 1: sparse |
//! | 5 | 3 | 0 |
//! | 8 | 8 | the count when it was last taken, little-endian; the highest bit: an element came since |
//! | 16 | | the registers |
//!
//! There are 16,384 registers. The lowest 14 bits of an element's hash choose one. It keeps the maximum, over its
//! elements, of the number of leading zeros of the other bits plus one. *Dense*: 6 bits each, from the lowest bit of
//! the first byte on. *Sparse*: runs of equal registers, in one byte each except the second kind:
//!
//! | byte | is |
//! |---|---|
//! | `00nnnnnn` | n + 1 registers are 0 |
//! | `01nnnnnn nnnnnnnn` | n + 1 registers are 0 |
//! | `1vvvvvnn` | n + 1 registers are v + 1 |
//!
//! The estimate is that of O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), as in Redis.
//! Nothing that is read is trusted: runs that do not cover all registers are [`Corrupted`].

use std::ops::Range;

/// How many registers there are.
const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// The bits of a hash whose leading zeros are counted.
const COUNTED_BITS: u32 = 64 - INDEX_BITS;
const REGISTER_BITS: usize = 6;
/// Bytes of the head.
pub const HEAD_BYTES: usize = 16;
/// Where the head has the count.
pub const COUNT: Range<usize> = 8..HEAD_BYTES;
/// In the last byte of the count: it is no longer true.
const FORGOTTEN: u8 = 0x80;
/// So many registers fill whole bytes, one byte less than registers: where a register lies in its bytes repeats from there on.
const REGISTERS_ALIKE: usize = 4;
const DENSE_BYTES: usize = HEAD_BYTES + REGISTERS * REGISTER_BITS / 8;
const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// The longest runs of each form, and the greatest register that a run can say.
const ZERO_MAX: usize = 64;
const VALUE_RUN_MAX: usize = 4;
const VALUE_MAX: u8 = 32;
/// Runs that are looked at after a change, from the one before it on, whether two can be one.
const MERGED_AHEAD: usize = 5;
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// The bytes say that they are a HyperLogLog, and are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupted;

/// A HyperLogLog that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyperLogLog(Vec<u8>);

/// All registers, for counts of several HyperLogLogs together.
#[derive(Clone)]
pub struct Registers(Box<[u8; REGISTERS]>);

/// A run of registers in the sparse form.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Run {
    value: u8,
    registers: usize,
    bytes: usize,
}

impl Run {
    /// The one that these bytes begin with.
    fn at(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        Some(match first >> 6 {
            0 => Self { value: 0, registers: usize::from(first & 0x3f) + 1, bytes: 1 },
            1 => {
                let registers = usize::from(first & 0x3f) << 8 | usize::from(*bytes.get(1)?);
                Self { value: 0, registers: registers + 1, bytes: 2 }
            }
            _ => Self { value: (first >> 2 & 0x1f) + 1, registers: usize::from(first & 3) + 1, bytes: 1 },
        })
    }

    fn is_value(self) -> bool {
        self.value > 0
    }

    /// Appends the shortest form of so many registers, if there are any.
    fn push(to: &mut Vec<u8>, value: u8, registers: usize) {
        match registers.checked_sub(1) {
            None => {}
            Some(more) if value > 0 => to.push(0x80 | (value - 1) << 2 | more as u8),
            Some(more) if registers <= ZERO_MAX => to.push(more as u8),
            Some(more) => to.extend([0x40 | (more >> 8) as u8, more as u8]),
        }
    }
}

impl Default for HyperLogLog {
    fn default() -> Self {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + 2);
        bytes.extend(MAGIC);
        bytes.extend([SPARSE, 0, 0, 0]);
        bytes.extend([0; 8]);
        Run::push(&mut bytes, 0, REGISTERS);
        Self(bytes)
    }
}

impl HyperLogLog {
    /// Of bytes that begin as one; `None`: they are something else.
    pub fn of(bytes: Vec<u8>) -> Option<Self> {
        Head::of(&bytes, bytes.len()).map(|_| Self(bytes))
    }

    /// Its bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Whether it is in the dense form.
    pub fn is_dense(&self) -> bool {
        self.0[4] == DENSE
    }

    /// Adds an element; whether a register changed. Beyond `sparse_bytes` in all, registers are kept dense.
    ///
    /// # Errors
    /// When the runs end before the element's register.
    pub fn add(&mut self, element: &[u8], sparse_bytes: usize) -> Result<bool, Corrupted> {
        let Place { index, value } = Place::of(element);
        self.raise(index, value, sparse_bytes)
    }

    /// Raises a register to `value`, if it is lower; whether it was.
    fn raise(&mut self, index: usize, value: u8, sparse_bytes: usize) -> Result<bool, Corrupted> {
        let raised = if self.is_dense() {
            let registers = &mut self.0[HEAD_BYTES..];
            let raised = dense_at(registers, index) < value;
            if raised {
                dense_set(registers, index, value);
            }
            raised
        } else {
            self.raise_sparse(index, value, sparse_bytes)?
        };
        if raised {
            self.forget_count();
        }
        Ok(raised)
    }

    fn raise_sparse(&mut self, index: usize, value: u8, sparse_bytes: usize) -> Result<bool, Corrupted> {
        if value > VALUE_MAX {
            return self.raise_dense(index, value);
        }
        // The run that the register is in, where it begins, the register that it begins with, and where the one before begins.
        let (mut at, mut first, mut before) = (HEAD_BYTES, 0, HEAD_BYTES);
        let run = loop {
            let run = Run::at(&self.0[at..]).ok_or(Corrupted)?;
            if index < first + run.registers {
                break run;
            }
            before = at;
            at += run.bytes;
            first += run.registers;
        };
        if run.value >= value {
            return Ok(false);
        }
        let mut parts = Vec::with_capacity(5);
        Run::push(&mut parts, run.value, index - first);
        Run::push(&mut parts, value, 1);
        Run::push(&mut parts, run.value, first + run.registers - index - 1);
        if parts.len() > run.bytes && self.0.len() + parts.len() - run.bytes > sparse_bytes {
            return self.raise_dense(index, value);
        }
        self.0.splice(at..at + run.bytes, parts);
        self.merge_from(before);
        Ok(true)
    }

    /// Makes one run of two equal ones, where it can say both, among the first few from `at` on.
    fn merge_from(&mut self, mut at: usize) {
        for _ in 0..MERGED_AHEAD {
            let Some(run) = self.0.get(at..).and_then(Run::at) else { return };
            let next = self.0.get(at + run.bytes..).and_then(Run::at);
            match next {
                Some(next)
                    if run.is_value()
                        && next.value == run.value
                        && run.registers + next.registers <= VALUE_RUN_MAX =>
                {
                    let mut merged = Vec::with_capacity(1);
                    Run::push(&mut merged, run.value, run.registers + next.registers);
                    self.0.splice(at..at + 2, merged);
                }
                _ => at += run.bytes,
            }
        }
    }

    /// The same once the registers are dense.
    fn raise_dense(&mut self, index: usize, value: u8) -> Result<bool, Corrupted> {
        self.make_dense()?;
        self.raise(index, value, 0)
    }

    /// Keeps the registers dense from now on.
    ///
    /// # Errors
    /// When the runs do not cover them.
    pub fn make_dense(&mut self) -> Result<(), Corrupted> {
        if self.is_dense() {
            return Ok(());
        }
        let mut registers = Registers::default();
        registers.raise_to(self)?;
        let mut dense = vec![0; DENSE_BYTES];
        dense[..HEAD_BYTES].copy_from_slice(&self.0[..HEAD_BYTES]);
        dense[4] = DENSE;
        for (index, &value) in registers.0.iter().enumerate() {
            dense_set(&mut dense[HEAD_BYTES..], index, value);
        }
        self.0 = dense;
        Ok(())
    }

    /// The registers' maximum with those of others.
    ///
    /// # Errors
    /// When its runs do not cover the registers.
    pub fn merge(&mut self, others: &Registers, sparse_bytes: usize) -> Result<(), Corrupted> {
        for (index, &value) in others.0.iter().enumerate() {
            if value > 0 {
                self.raise(index, value, sparse_bytes)?;
            }
        }
        self.forget_count();
        Ok(())
    }

    /// The count that is kept is no longer true.
    pub fn forget_count(&mut self) {
        self.0[COUNT.end - 1] |= FORGOTTEN;
    }

    /// The approximate number of different elements: counted again and kept in the bytes at [`COUNT`].
    ///
    /// # Errors
    /// When the runs do not cover the registers.
    pub fn count(&mut self) -> Result<u64, Corrupted> {
        let mut registers = Registers::default();
        registers.raise_to(self)?;
        let count = registers.count();
        self.0[COUNT].copy_from_slice(&count.to_le_bytes());
        Ok(count)
    }
}

/// The bytes of the dense form with an element's register, and its new value: to add to a HyperLogLog by reading only
/// these.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    index: usize,
    value: u8,
}

impl Place {
    /// That of an element.
    pub fn of(element: &[u8]) -> Self {
        let hash = murmur64a(element, 0xadc8_3b19);
        let index = hash as usize & (REGISTERS - 1);
        // The bit after the last one ends the zeros.
        let counted = hash >> INDEX_BITS | 1 << COUNTED_BITS;
        Self { index, value: counted.trailing_zeros() as u8 + 1 }
    }

    /// Which bytes, of all that the dense form has.
    pub fn bytes(self) -> Range<usize> {
        let first = HEAD_BYTES + self.index * REGISTER_BITS / 8;
        first..(first + 2).min(DENSE_BYTES)
    }

    /// Raises the register in these bytes, if it is lower; whether it was.
    pub fn raise(self, bytes: &mut [u8]) -> bool {
        let index = self.index % REGISTERS_ALIKE;
        let skipped = index * REGISTER_BITS / 8;
        let mut alike = [0; REGISTERS_ALIKE];
        let part = skipped..skipped + bytes.len();
        alike[part.clone()].copy_from_slice(bytes);
        let is_lower = dense_at(&alike, index) < self.value;
        if is_lower {
            dense_set(&mut alike, index, self.value);
            bytes.copy_from_slice(&alike[part]);
        }
        is_lower
    }
}

/// The contents of a HyperLogLog's first bytes.
#[derive(Clone, Copy, Debug)]
pub struct Head([u8; HEAD_BYTES]);

impl Head {
    /// Of the first bytes of a string of `len`, at least as many as the head has; `None`: it is none.
    pub fn of(first: &[u8], len: usize) -> Option<Self> {
        let head = *first.first_chunk::<HEAD_BYTES>()?;
        let known = match head[4] {
            DENSE => len == DENSE_BYTES,
            SPARSE => true,
            _ => false,
        };
        (known && head.starts_with(MAGIC)).then_some(Self(head))
    }

    /// Whether the registers are dense.
    pub fn is_dense(&self) -> bool {
        self.0[4] == DENSE
    }

    /// How many different elements there were, about, as it was counted last and while nothing was added since.
    pub fn known_count(&self) -> Option<u64> {
        let mut count = [0; 8];
        count.copy_from_slice(&self.0[COUNT]);
        Some(u64::from_le_bytes(count)).filter(|count| count >> 63 == 0)
    }

    /// The last byte of the count, once that is no longer true; `None`: it says so.
    pub fn forgotten_count(&self) -> Option<u8> {
        let last = self.0[COUNT.end - 1];
        (last & FORGOTTEN == 0).then_some(last | FORGOTTEN)
    }
}

impl Default for Registers {
    fn default() -> Self {
        Self(Box::new([0; REGISTERS]))
    }
}

impl Registers {
    /// Raises each register to that of another, if it is lower.
    ///
    /// # Errors
    /// When its runs do not cover the registers.
    pub fn raise_to(&mut self, other: &HyperLogLog) -> Result<(), Corrupted> {
        if other.is_dense() {
            for (index, register) in self.0.iter_mut().enumerate() {
                *register = (*register).max(dense_at(&other.0[HEAD_BYTES..], index));
            }
            return Ok(());
        }
        let (mut at, mut first) = (HEAD_BYTES, 0);
        while at < other.0.len() {
            let run = Run::at(&other.0[at..]).ok_or(Corrupted)?;
            let registers = self.0.get_mut(first..first + run.registers).ok_or(Corrupted)?;
            // Most of a sparse one are runs of zeros, which raise nothing.
            if run.value > 0 {
                registers.iter_mut().for_each(|register| *register = (*register).max(run.value));
            }
            at += run.bytes;
            first += run.registers;
        }
        if first == REGISTERS { Ok(()) } else { Err(Corrupted) }
    }

    /// How many different elements were added, about.
    pub fn count(&self) -> u64 {
        // A register of the dense form is below 2^6.
        let mut with = [0u32; 1 << REGISTER_BITS];
        for &register in &*self.0 {
            with[usize::from(register)] += 1;
        }
        let all = REGISTERS as f64;
        let longest = with[COUNTED_BITS as usize + 1];
        let mut sum = all * tau((all - f64::from(longest)) / all);
        for value in (1..=COUNTED_BITS as usize).rev() {
            sum = (sum + f64::from(with[value])) * 0.5;
        }
        sum += all * sigma(f64::from(with[0]) / all);
        (ALPHA * all * all / sum).round() as u64
    }
}

/// Ertl's correction for small counts.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * power;
        power += power;
        if sum == before {
            return sum;
        }
    }
}

/// Ertl's correction for large ones.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut power, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        power *= 0.5;
        sum -= (1.0 - x).powi(2) * power;
        if sum == before {
            return sum / 3.0;
        }
    }
}

fn dense_at(registers: &[u8], index: usize) -> u8 {
    let (byte, shift) = (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    let next = registers.get(byte + 1).copied().unwrap_or_default();
    (u16::from_le_bytes([registers[byte], next]) >> shift) as u8 & 0x3f
}

fn dense_set(registers: &mut [u8], index: usize, value: u8) {
    let (byte, shift) = (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    let (bits, mask) = (u16::from(value) << shift, 0x3f << shift);
    registers[byte] = registers[byte] & !(mask as u8) | bits as u8;
    if let Some(next) = registers.get_mut(byte + 1) {
        *next = *next & !((mask >> 8) as u8) | (bits >> 8) as u8;
    }
}

/// MurmurHash64A, by A. Appleby, of little-endian words.
fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |word: u64| {
        let word = word.wrapping_mul(FACTOR);
        (word ^ word >> 47).wrapping_mul(FACTOR)
    };
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = (hash ^ mix(u64::from_le_bytes(*word))).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(FACTOR);
    hash ^ hash >> 47
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(log: &HyperLogLog) -> Option<u64> {
        Head::of(&log.0, log.0.len())?.known_count()
    }

    fn with(elements: std::ops::Range<u32>) -> HyperLogLog {
        let mut log = HyperLogLog::default();
        for element in elements {
            log.add(&element.to_le_bytes(), 3000).unwrap();
        }
        log
    }

    fn registers_of(log: &HyperLogLog) -> Registers {
        let mut registers = Registers::default();
        registers.raise_to(log).unwrap();
        registers
    }

    #[test]
    fn both_forms_hold_the_same_registers() {
        for elements in [0, 1, 10, 300, 900, 2000] {
            let sparse = with(0..elements);
            let mut dense = HyperLogLog::default();
            dense.make_dense().unwrap();
            for element in 0..elements {
                dense.add(&element.to_le_bytes(), 3000).unwrap();
            }
            assert_eq!(*registers_of(&sparse).0, *registers_of(&dense).0, "{elements}");
            let mut made = sparse.clone();
            made.make_dense().unwrap();
            assert_eq!(made.into_bytes()[HEAD_BYTES..], dense.into_bytes()[HEAD_BYTES..]);
            assert!(sparse.is_dense() == (sparse.into_bytes().len() == DENSE_BYTES));
        }
    }

    #[test]
    fn the_count_is_near_the_truth_and_repeated_elements_change_nothing() {
        for elements in [1, 50, 1000, 20_000, 300_000u32] {
            let mut log = with(0..elements);
            let count = log.count().unwrap();
            assert_eq!(known(&log), Some(count));
            let error = (count as f64 - f64::from(elements)).abs() / f64::from(elements);
            // Five times the standard error of 0.81 %.
            assert!(error < 0.0405, "{count} of {elements}");
            assert!(!log.add(&(elements - 1).to_le_bytes(), 3000).unwrap());
            assert_eq!(known(&log), Some(count));
        }
    }

    #[test]
    fn a_merge_is_as_if_all_had_been_added() {
        let (mut one, other) = (with(0..5000), with(3000..9000));
        one.merge(&registers_of(&other), 3000).unwrap();
        assert_eq!(*registers_of(&one).0, *registers_of(&with(0..9000)).0);
        assert_eq!(known(&one), None);
    }

    #[test]
    fn no_bytes_cause_a_panic_and_runs_that_do_not_fit_are_errors() {
        let mut random = 7u64;
        for len in 0..200 {
            let mut bytes: Vec<u8> = (0..len)
                .map(|_| {
                    random = murmur64a(&random.to_le_bytes(), 1);
                    random as u8
                })
                .collect();
            for (to, from) in bytes.iter_mut().zip(*b"HYLL\x01") {
                *to = from;
            }
            let Some(mut log) = HyperLogLog::of(bytes.clone()) else {
                assert!(len < HEAD_BYTES);
                continue;
            };
            let fits = Registers::default().raise_to(&log);
            assert_eq!(log.clone().count().is_ok(), fits.is_ok());
            for element in 0..50u32 {
                let _ = log.add(&element.to_le_bytes(), 3000);
            }
        }
        let short = [MAGIC, &[SPARSE, 0, 0, 0][..], &[0; 8], &[0x7f, 0xfe]].concat();
        assert_eq!(HyperLogLog::of(short).unwrap().count(), Err(Corrupted));
    }
}
