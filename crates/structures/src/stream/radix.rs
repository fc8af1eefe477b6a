//! The number of nodes that Redis's radix tree has over the ids of a stream's nodes, for XINFO STREAM.
//!
//! The tree has a node for each id, one for each place where ids diverge, and one for each run of common bytes between
//! two such places. Redis joins nodes where possible, so that the ids alone determine the number. An empty tree has its
//! root.

use super::StreamId;

/// The number for these ascending ids.
pub(crate) fn nodes(ids: &[StreamId]) -> u64 {
    let ids: Vec<_> = ids.iter().map(|id| id.to_bytes()).collect();
    if ids.is_empty() { 1 } else { below(&ids, 0) }
}

/// The nodes below the place where the first `from` bytes of these ids are read, which they have in common.
fn below(ids: &[[u8; StreamId::BYTES]], from: usize) -> u64 {
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return 0 };
    // The common prefix of the first and the last is common to all, because they are in order.
    let common = first[from..].iter().zip(&last[from..]).take_while(|(a, b)| a == b).count();
    let part = from + common;
    let run = u64::from(common > 0);
    if part == StreamId::BYTES {
        return run + 1;
    }
    let parts = ids.chunk_by(|a, b| a[part] == b[part]);
    run + 1 + parts.map(|ids| below(ids, part + 1)).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_redis() {
        let id = |ms, seq| StreamId { ms, seq };
        for (ids, wanted) in [
            (&[][..], 1),
            (&[id(1, 0)], 2),
            // 7 bytes in common, where they part, and of each the rest and the id.
            (&[id(1, 0), id(2, 0)], 6),
            // They part in the last byte.
            (&[id(1, 1), id(1, 2)], 4),
            (&[id(1, 1), id(1, 2), id(2, 0)], 8),
        ] {
            assert_eq!(nodes(ids), wanted, "{ids:?}");
        }
    }
}
