//! LCS: the longest common subsequence of two strings.
//!
//! The classic table of (n + 1)(m + 1) lengths, walked back from its end. Where several subsequences
//! are longest, and how they split into ranges, is Redis's choice, step by step.

/// Where the two strings agree, positions inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// First and last position in the first string.
    pub a: (u32, u32),
    /// First and last position in the second string.
    pub b: (u32, u32),
}

impl Match {
    /// How many bytes agree.
    pub fn len(&self) -> u32 {
        self.a.1 - self.a.0 + 1
    }

    /// Never: a match has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// A longest common subsequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lcs {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The runs it consists of, last one first.
    pub matches: Vec<Match>,
}

/// Bytes of memory that the table for strings of these lengths takes.
pub fn table_bytes(a_len: usize, b_len: usize) -> u64 {
    (a_len as u64 + 1).saturating_mul(b_len as u64 + 1).saturating_mul(4)
}

/// Computes the subsequence. Time and memory grow with the product of the lengths: check
/// [`table_bytes`] first.
pub fn lcs(a: &[u8], b: &[u8]) -> Lcs {
    let width = b.len() + 1;
    let mut table = vec![0u32; (a.len() + 1) * width];
    for (i, &byte) in a.iter().enumerate() {
        let (above, row) = table[i * width..(i + 2) * width].split_at_mut(width);
        for (j, &other) in b.iter().enumerate() {
            row[j + 1] = if byte == other { above[j] + 1 } else { above[j + 1].max(row[j]) };
        }
    }
    walk_back(a, b, &table)
}

fn walk_back(a: &[u8], b: &[u8], table: &[u32]) -> Lcs {
    let width = b.len() + 1;
    let mut bytes = Vec::with_capacity(table.last().copied().unwrap_or(0) as usize);
    let mut matches = Vec::new();
    let mut run: Option<Match> = None;
    let (mut i, mut j) = (a.len(), b.len());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            bytes.push(a[i]);
            let (at_a, at_b) = (i as u32, j as u32);
            // A step off the diagonal ends the run below, so an open run always continues here.
            let run = run.get_or_insert(Match { a: (at_a, at_a), b: (at_b, at_b) });
            (run.a.0, run.b.0) = (at_a, at_b);
        } else {
            matches.extend(run.take());
            if table[(i - 1) * width + j] > table[i * width + j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }
    matches.extend(run);
    bytes.reverse();
    Lcs { bytes, matches }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_common_subsequence_of_the_manual_is_found() {
        let found = lcs(b"ohmytext", b"mynewtext");
        assert_eq!(found.bytes, b"mytext");
        assert_eq!(found.matches, [Match { a: (4, 7), b: (5, 8) }, Match { a: (2, 3), b: (0, 1) }]);
        assert_eq!(found.matches[0].len(), 4);
    }

    #[test]
    fn strings_without_a_common_character_have_an_empty_subsequence() {
        assert_eq!(lcs(b"", b"abc"), Lcs { bytes: vec![], matches: vec![] });
        assert_eq!(lcs(b"abc", b"xyz"), Lcs { bytes: vec![], matches: vec![] });
    }

    fn is_subsequence(part: &[u8], whole: &[u8]) -> bool {
        let mut rest = whole.iter();
        part.iter().all(|byte| rest.any(|other| other == byte))
    }

    proptest! {
        #[test]
        fn matches_spell_the_subsequence(a in "[a-d]{0,40}", b in "[a-d]{0,40}") {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            let found = lcs(a, b);
            prop_assert!(is_subsequence(&found.bytes, a) && is_subsequence(&found.bytes, b));
            let mut spelled = Vec::new();
            for run in found.matches.iter().rev() {
                prop_assert_eq!(&a[run.a.0 as usize..=run.a.1 as usize], &b[run.b.0 as usize..=run.b.1 as usize]);
                spelled.extend_from_slice(&a[run.a.0 as usize..=run.a.1 as usize]);
            }
            prop_assert_eq!(spelled, found.bytes);
        }
    }
}
