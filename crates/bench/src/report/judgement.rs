//! The judgement of the difference of two figures, by their spreads.

use crate::report::run::{Better, Metric};

/// The judgement of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The second is better beyond the spread.
    Better,
    /// The second is worse beyond the spread.
    Worse,
    /// The spreads touch.
    NoDifference,
    /// One of them was measured once: nothing is known about its spread.
    UnknownSpread,
    /// The two are in different units.
    OtherUnit,
}

impl Judgement {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifference => "no difference beyond the spread",
            Self::UnknownSpread => "measured once, spread unknown",
            Self::OtherUnit => "other units, not compared",
        }
    }
}

/// Whether it was measured more than once.
pub(crate) fn has_spread(metric: &Metric) -> bool {
    metric.samples.len() > 1 || metric.min < metric.max
}

pub(crate) fn judge(first: &Metric, second: &Metric) -> Judgement {
    if first.unit != second.unit {
        Judgement::OtherUnit
    } else if first.min <= second.max && second.min <= first.max {
        // Touching spreads decide, even if one of them is a single sample.
        if has_spread(first) || has_spread(second) {
            Judgement::NoDifference
        } else {
            Judgement::UnknownSpread
        }
    } else if !has_spread(first) || !has_spread(second) {
        Judgement::UnknownSpread
    } else if (second.min > first.max) == (second.better == Better::Higher) {
        Judgement::Better
    } else {
        Judgement::Worse
    }
}
