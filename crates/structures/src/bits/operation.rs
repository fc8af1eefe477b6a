//! BITOP: whole bitmaps combined bit by bit.

/// The operations of BITOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bits set in all sources.
    And,
    /// Bits set in any source.
    Or,
    /// Bits set in an odd number of sources.
    Xor,
    /// Bits not set in the only source.
    Not,
}

impl Operation {
    /// By its name, in any case.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        [(&b"and"[..], Self::And), (b"or", Self::Or), (b"xor", Self::Xor), (b"not", Self::Not)]
            .into_iter()
            .find_map(|(known, operation)| name.eq_ignore_ascii_case(known).then_some(operation))
    }

    /// Combines `result` with a further source. The result is as long as the longest source; a shorter
    /// one counts as filled with zeros.
    pub(super) fn combine(self, result: &mut Vec<u8>, source: &[u8]) {
        if result.len() < source.len() {
            result.resize(source.len(), 0);
        }
        let (shared, beyond) = result.split_at_mut(source.len());
        let pairs = shared.iter_mut().zip(source);
        match self {
            Self::And => {
                pairs.for_each(|(to, from)| *to &= from);
                beyond.fill(0);
            }
            Self::Or => pairs.for_each(|(to, from)| *to |= from),
            Self::Xor | Self::Not => pairs.for_each(|(to, from)| *to ^= from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_have_no_case() {
        assert_eq!(Operation::of_name(b"XoR"), Some(Operation::Xor));
        assert_eq!(Operation::of_name(b"nand"), None);
    }

    proptest! {
        #[test]
        fn every_byte_is_combined(sources in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5)) {
            let longest = sources.iter().map(Vec::len).max().unwrap();
            let at = |source: &Vec<u8>, index: usize| source.get(index).copied().unwrap_or(0);
            type Fold = fn(u8, u8) -> u8;
            let cases: [(Operation, Fold); 3] =
                [(Operation::And, |a, b| a & b), (Operation::Or, |a, b| a | b), (Operation::Xor, |a, b| a ^ b)];
            for (operation, fold) in cases {
                let mut result = sources[0].clone();
                for source in &sources[1..] {
                    operation.combine(&mut result, source);
                }
                let model: Vec<u8> = (0..longest)
                    .map(|index| sources[1..].iter().fold(at(&sources[0], index), |all, s| fold(all, at(s, index))))
                    .collect();
                prop_assert_eq!(result, model);
            }
        }
    }
}
