//! What arguments say of a part of a sorted set.

use crate::redis::command::{Args, CommandError};
use duramen_structures::string::double;
use duramen_structures::{Collection, Source};
use std::cmp::Ordering;
use std::ops::{ControlFlow, Deref, Range};

const NOT_SCORE_RANGE: CommandError = CommandError::new("ERR min or max is not a float");
const NOT_LEX_RANGE: CommandError = CommandError::new("ERR min or max not valid string range item");

/// What the bounds of a range are of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Positions; negative ones count from the end.
    Rank,
    /// Scores.
    Score,
    /// Members; of a sorted set whose scores are equal.
    Lex,
}

/// Part of a sorted set.
pub enum Bounds<'a> {
    /// From one position to another, which belongs to it.
    Rank(i64, i64),
    /// From one score to another.
    Score(Bound<f64>, Bound<f64>),
    /// From one member to another.
    Lex(Lex<'a>, Lex<'a>),
}

/// One end of a range.
pub struct Bound<T> {
    at: T,
    is_exclusive: bool,
}

/// One end of a range of members.
pub enum Lex<'a> {
    /// `-`
    Least,
    /// A member, which need not be there.
    Member(Bound<&'a [u8]>),
    /// `+`
    Greatest,
}

impl<'a> Bounds<'a> {
    /// The range from the argument at `min` to the one at `max`.
    ///
    /// # Errors
    /// Redis's errors for an invalid bound.
    pub fn parse(by: By, args: Args<'a>, min: usize, max: usize) -> Result<Self, CommandError> {
        match by {
            // The first that is written is the first to be looked at.
            By::Rank => Ok(Self::Rank(args.integer(min)?, args.integer(max)?)),
            By::Score => {
                let bound = |at| score_bound(args.at(at)).ok_or(NOT_SCORE_RANGE);
                Ok(Self::Score(bound(min)?, bound(max)?))
            }
            By::Lex => {
                let bound = |at| lex_bound(args.at(at)).ok_or(NOT_LEX_RANGE);
                Ok(Self::Lex(bound(min)?, bound(max)?))
            }
        }
    }

    /// Which members of a sorted set are in the range.
    pub fn part<B: Deref<Target = [u8]>, S: Source>(
        &self,
        set: &Collection<'_, B, S>,
    ) -> Result<Range<usize>, CommandError> {
        let range = match self {
            Self::Rank(start, end) => rank_range(set.len(), *start, *end),
            Self::Score(min, max) => {
                set.below(min.at, min.is_exclusive)?..set.below(max.at, !max.is_exclusive)?
            }
            // If the scores differ, the members are not ascending. Redis then starts at the first that is not too small
            // and ends at the first that is too great.
            Self::Lex(min, max) if Lex::may_hold(min, max, set)? => {
                let start = set.run_end(0, |member| min.is_above(member))?;
                start..set.run_end(start, |member| !max.is_below(member))?
            }
            Self::Lex(..) => 0..0,
        };
        Ok(if range.start < range.end { range } else { 0..0 })
    }

    /// [`part`](Self::part), as it is found from the end on. Ranks count from there.
    pub fn part_reversed<B: Deref<Target = [u8]>, S: Source>(
        &self,
        set: &Collection<'_, B, S>,
    ) -> Result<Range<usize>, CommandError> {
        match self {
            Self::Rank(..) => {
                let part = self.part(set)?;
                Ok(set.len() - part.end..set.len() - part.start)
            }
            Self::Lex(min, max) if Lex::may_hold(min, max, set)? => {
                let end = set.run_start(set.len(), |member| max.is_below(member))?;
                Ok(set.run_start(end, |member| !min.is_above(member))?..end)
            }
            Self::Lex(..) => Ok(0..0),
            Self::Score(..) => self.part(set),
        }
    }
}

/// The positions of `count` in a range; negative ones count from the end.
pub fn rank_range(count: usize, start: i64, end: i64) -> Range<usize> {
    let count = count as i64;
    let from_end = |at: i64| if at < 0 { at + count } else { at };
    let (start, end) = (from_end(start).max(0), from_end(end).min(count - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

impl Lex<'_> {
    fn is_above(&self, member: &[u8]) -> bool {
        match self {
            Self::Least => false,
            Self::Member(bound) => member < bound.at || bound.is_exclusive && member == bound.at,
            Self::Greatest => true,
        }
    }

    fn is_below(&self, member: &[u8]) -> bool {
        match self {
            Self::Least => true,
            Self::Member(bound) => member > bound.at || bound.is_exclusive && member == bound.at,
            Self::Greatest => false,
        }
    }

    /// Whether something of a sorted set can be between them: its first member is not too great and its last not too small.
    fn may_hold<B: Deref<Target = [u8]>, S: Source>(
        min: &Self,
        max: &Self,
        set: &Collection<'_, B, S>,
    ) -> Result<bool, CommandError> {
        if set.is_empty() || !Self::are_in_order(min, max) {
            return Ok(false);
        }
        let (mut is_too_great, mut is_too_small) = (false, false);
        set.visit_part(0..1, false, |first, _| {
            is_too_great = max.is_below(first);
            ControlFlow::Break(())
        })?;
        set.visit_part(set.len() - 1..set.len(), false, |last, _| {
            is_too_small = min.is_above(last);
            ControlFlow::Break(())
        })?;
        Ok(!is_too_great && !is_too_small)
    }

    /// Whether there can be something between them.
    fn are_in_order(min: &Self, max: &Self) -> bool {
        match (min, max) {
            (Self::Member(min), Self::Member(max)) => match min.at.cmp(max.at) {
                Ordering::Less => true,
                Ordering::Equal => !min.is_exclusive && !max.is_exclusive,
                Ordering::Greater => false,
            },
            (Self::Greatest, _) | (_, Self::Least) => false,
            _ => true,
        }
    }
}

fn score_bound(text: &[u8]) -> Option<Bound<f64>> {
    let (is_exclusive, text) = match text {
        [b'(', text @ ..] => (true, text),
        text => (false, text),
    };
    Some(Bound { at: double::parse_bound(text)?, is_exclusive })
}

fn lex_bound(text: &[u8]) -> Option<Lex<'_>> {
    match text {
        b"-" => Some(Lex::Least),
        b"+" => Some(Lex::Greatest),
        [b'(', at @ ..] => Some(Lex::Member(Bound { at, is_exclusive: true })),
        [b'[', at @ ..] => Some(Lex::Member(Bound { at, is_exclusive: false })),
        _ => None,
    }
}
