//! Sorted sets: what their order is, and how it is kept.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Deref};

use super::{Kind, PackedMap};
use crate::packed::{self, Element, Malformed};

/// A member and its score.
pub type Scored<'a> = (&'a [u8], f64);

/// How two members of a sorted set lie to each other.
pub fn rank(a: Scored<'_>, b: Scored<'_>) -> Ordering {
    // No score is NaN.
    a.1.partial_cmp(&b.1).unwrap_or(Ordering::Equal).then_with(|| a.0.cmp(b.0))
}

/// The score that these bytes are; they were read from a sorted set, or made of a double.
pub fn score_of(value: &[u8]) -> f64 {
    value.try_into().map_or(0.0, f64::from_le_bytes)
}

/// A score as Redis keeps it in a listpack, which knows no -0.
pub(super) fn small(score: f64) -> f64 {
    score + 0.0
}

/// Likewise, of its bytes.
pub(super) fn small_bytes(value: &[u8]) -> &[u8] {
    if score_of(value) == 0.0 { &[0; 8] } else { value }
}

/// A value that was read, if it is a score.
pub(super) fn verified(value: Element<'_>) -> Result<Element<'_>, Malformed> {
    let score = value.bytes.try_into().map(f64::from_le_bytes);
    if score.is_ok_and(|score| !score.is_nan()) {
        Ok(value)
    } else {
        Err(Malformed { at: value.place.start, why: "a score is not the 8 bytes of a number" })
    }
}

impl PackedMap<Vec<u8>> {
    /// The sorted set of these members, which are all different.
    pub fn sorted_set_of(kind: impl Into<Kind>, mut members: Vec<Scored<'_>>) -> Self {
        members.sort_unstable_by(|a, b| rank(*a, *b));
        let mut set = Self::empty(kind);
        let is_small = members.len() <= set.kind.compact.entries
            && !members.iter().any(|(member, _)| set.kind.is_long(member, &[]));
        if !is_small {
            set.convert();
        }
        let bytes = |score: f64| if is_small { small(score) } else { score }.to_le_bytes();
        let scores: Vec<[u8; 8]> = members.iter().map(|(_, score)| bytes(*score)).collect();
        let strings = members.iter().zip(&scores).flat_map(|(&(member, _), score)| [member, &score[..]]);
        packed::push(&mut set.run, &strings.collect::<Vec<_>>());
        set
    }

    pub(super) fn insert_scored(&mut self, member: &[u8], value: &[u8]) -> Result<bool, Malformed> {
        let new = (member, score_of(value));
        let is_new = !self.remove(member)?;
        if self.kind.is_long(member, &[]) || self.len() >= self.kind.compact.entries {
            self.convert();
        }
        let kept = if self.is_converted()? { new.1 } else { small(new.1) };
        let mut place = self.run.len();
        let mut elements = self.open()?.iter();
        while let Some((found, score)) = self.next(&mut elements)? {
            if rank((found.bytes, score_of(score.bytes)), new).is_gt() {
                place = found.place.start;
                break;
            }
        }
        packed::splice(&mut self.run, place..place, 0, &[member, &kept.to_le_bytes()]);
        Ok(is_new)
    }
}

impl<B: Deref<Target = [u8]>> PackedMap<B> {
    /// The members of a sorted set in their order.
    pub fn scored(&self) -> Result<Vec<Scored<'_>>, Malformed> {
        let mut members = Vec::with_capacity(self.len().min(self.run.len()));
        self.visit(|member, value| {
            members.push((member, score_of(value)));
            ControlFlow::Continue(())
        })?;
        Ok(members)
    }
}
