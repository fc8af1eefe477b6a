//! The comparison of a reply with the expected one.

/// The result of checking a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Right; the reply has so many bytes.
    Right(usize),
    /// More bytes must arrive.
    Incomplete,
    /// Wrong.
    Wrong,
}

/// Compares the input with the parts of a reply, one after the other.
pub(crate) fn exact(input: &[u8], parts: &[&[u8]]) -> Verdict {
    let mut at = 0;
    for part in parts {
        let have = part.len().min(input.len() - at);
        if input[at..at + have] != part[..have] {
            return Verdict::Wrong;
        }
        if have < part.len() {
            return Verdict::Incomplete;
        }
        at += have;
    }
    Verdict::Right(at)
}
