//! Whole bitmaps, of which only the parts that may contain ones are kept.

use std::collections::BTreeMap;

use super::Operation;

/// Bytes that are kept or left out together: a piece of a string that was written in part.
const PART: usize = crate::string::large::PIECE;

/// A string of bits. Bits outside all parts are zeros.
#[derive(Debug, Default)]
pub struct Bitmap {
    len: usize,
    // By their numbers: part i has the bytes from i * PART on, as many as there are or fewer.
    parts: BTreeMap<usize, Vec<u8>>,
}

impl Bitmap {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it takes no more space with all its zeros than in parts, or not much more.
    pub(crate) fn is_dense(&self) -> bool {
        // 2: a part has a record of its own, with a head.
        self.parts.len() * PART * 2 >= self.len
    }

    /// Sets bytes from `at` on, which must be after all bytes set before.
    pub(crate) fn set(&mut self, at: usize, mut bytes: &[u8]) {
        let mut at = at;
        self.len = self.len.max(at + bytes.len());
        while !bytes.is_empty() {
            let (number, within) = (at / PART, at % PART);
            let (now, later) = bytes.split_at(bytes.len().min(PART - within));
            let part = self.parts.entry(number).or_default();
            part.resize(within, 0);
            part.extend_from_slice(now);
            (at, bytes) = (at + now.len(), later);
        }
    }

    /// The same with so many bytes.
    pub(crate) fn with_len(self, len: usize) -> Self {
        Self { len, ..self }
    }

    /// The kept parts, ascending, each with the position of its first byte; the last part ends where the bitmap ends.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let parts = self.parts.iter().map(|(number, part)| (number * PART, &part[..]));
        let ends_with = |(at, part): &(usize, &[u8])| at + part.len() == self.len;
        let last = self.parts.last_key_value().map(|(number, part)| (number * PART, &part[..]));
        let has_end = self.is_empty() || last.is_some_and(|last| ends_with(&last));
        parts.chain((!has_end).then(|| (self.len - 1, &[0][..])))
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut whole = vec![0; self.len];
        for (number, part) in &self.parts {
            whole[number * PART..][..part.len()].copy_from_slice(part);
        }
        whole
    }

    /// The result of BITOP with it as the only source so far: with [`Operation::Not`] all bits are inverted.
    pub fn first(mut self, operation: Operation) -> Self {
        if operation == Operation::Not {
            for number in 0..self.len.div_ceil(PART) {
                let part = self.parts.entry(number).or_default();
                part.resize(PART.min(self.len - number * PART), 0);
                part.iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        self
    }

    /// Combines it with a further source. The result is as long as the longer one; the shorter one counts as filled with zeros.
    pub fn combine(&mut self, operation: Operation, source: Self) {
        self.len = self.len.max(source.len);
        if operation == Operation::And {
            // Parts that are zeros in one of them are zeros in the result.
            self.parts.retain(|number, _| source.parts.contains_key(number));
        }
        for (number, part) in source.parts {
            match self.parts.get_mut(&number) {
                Some(result) => operation.combine(result, &part),
                None if operation == Operation::And => {}
                None => drop(self.parts.insert(number, part)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bitmap(bytes: &[u8]) -> Bitmap {
        let mut bitmap = Bitmap::default();
        // As a string in pieces is read: those of zeros are left out.
        for (number, part) in
            bytes.chunks(PART).enumerate().filter(|(_, part)| part.iter().any(|it| *it != 0))
        {
            bitmap.set(number * PART, part);
        }
        bitmap.with_len(bytes.len())
    }

    proptest! {
        #[test]
        fn bitmaps_with_holes_are_combined_as_those_without(
            sources in prop::collection::vec((1..4 * PART, prop::collection::vec((0..4 * PART, any::<u8>()), 0..5)), 1..4),
            operation in prop::sample::select(vec![Operation::And, Operation::Or, Operation::Xor, Operation::Not]),
        ) {
            let sources = sources.into_iter().map(|(len, set)| {
                let mut bytes = vec![0; len];
                set.into_iter().for_each(|(at, byte)| bytes[at % len] = byte);
                bytes
            });
            let mut sources: Vec<Vec<u8>> = sources.collect();
            if operation == Operation::Not {
                sources.truncate(1);
            }
            let mut result = bitmap(&sources[0]).first(operation);
            let mut wanted: Vec<u8> = match operation {
                Operation::Not => sources[0].iter().map(|byte| !byte).collect(),
                _ => sources[0].clone(),
            };
            for source in &sources[1..] {
                result.combine(operation, bitmap(source));
                operation.combine(&mut wanted, source);
            }
            prop_assert_eq!(result.to_vec(), &wanted[..]);
            // The written parts make the same string.
            let mut written = Vec::new();
            for (at, part) in result.parts() {
                let end = (at + part.len()).max(written.len());
                written.resize(end, 0);
                written[at..at + part.len()].copy_from_slice(part);
            }
            prop_assert_eq!(written, wanted);
        }
    }
}
