//! Chooses the plot for a set of measurements: by how many of their arguments are numbers that vary.

use crate::report::run::Measurement;
use crate::report::scale::{self};

/// One measurement and its run.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) run: usize,
    pub(super) measurement: &'a Measurement,
}

/// Arguments of a set of measurements, by the way they can be plotted.
pub(super) struct Shape<'a> {
    /// Numeric arguments with more than one value, the most values first.
    pub(super) numeric: Vec<&'a str>,
    /// Other arguments with more than one value.
    pub(super) words: Vec<&'a str>,
    /// Whether names differ.
    pub(super) named: bool,
    /// Whether there is more than one run.
    pub(super) runs: bool,
}

impl<'a> Shape<'a> {
    pub(super) fn of(members: &[Member<'a>], runs: usize) -> Self {
        let mut names: Vec<&'a str> = Vec::new();
        for argument in members.iter().flat_map(|member| member.measurement.arguments.keys()) {
            if !names.contains(&argument.as_str()) {
                names.push(argument);
            }
        }
        let mut numeric = Vec::new();
        let mut words = Vec::new();
        for name in names {
            let values: Vec<_> =
                members.iter().map(|member| member.measurement.arguments.get(name)).collect();
            if values.windows(2).all(|pair| pair[0] == pair[1]) {
                continue;
            }
            let numbers = distinct(members, name);
            if numbers.len() > 1
                && values.iter().all(|value| value.is_some_and(|value| value.number().is_some()))
            {
                numeric.push((name, numbers.len()));
            } else {
                words.push(name);
            }
        }
        // A stable sort: of two arguments with equally many values, the first given stays first.
        numeric.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let first = members.first().map(|member| member.measurement.name.as_str());
        Self {
            numeric: numeric.into_iter().map(|(name, _)| name).collect(),
            words,
            named: members.iter().any(|member| Some(member.measurement.name.as_str()) != first),
            runs: runs > 1,
        }
    }

    /// The words that distinguish a member from others, without the arguments in `axes` and its run.
    pub(super) fn point(&self, member: Member<'_>, axes: &[&str]) -> String {
        let mut parts = Vec::new();
        if self.named {
            parts.push(member.measurement.name.clone());
        }
        for name in self.numeric.iter().chain(&self.words).filter(|name| !axes.contains(name)) {
            if let Some(value) = member.measurement.arguments.get(*name) {
                let shown = scale::argument(name, value);
                let is_word = matches!(value, crate::report::Argument::Text(_));
                parts.push(if is_word { shown } else { format!("{} {shown}", scale::words(name)) });
            }
        }
        parts.join(", ")
    }

    /// The same words, after the run's letter if there are several runs.
    pub(super) fn label(&self, member: Member<'_>, axes: &[&str]) -> String {
        let point = self.point(member, axes);
        match (self.runs, point.is_empty()) {
            (false, true) => member.measurement.name.clone(),
            (false, false) => point,
            (true, true) => super::letter(member.run),
            (true, false) => format!("{}: {point}", super::letter(member.run)),
        }
    }
}

/// The distinct numbers of an argument, ascending.
pub(super) fn distinct(members: &[Member<'_>], argument: &str) -> Vec<f64> {
    let numbers = members.iter().filter_map(|member| member.measurement.arguments.get(argument)?.number());
    let mut numbers: Vec<f64> = numbers.filter(|number| number.is_finite()).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    numbers
}

/// Members by a key, in the order in which keys first appear.
pub(super) fn by<'a, K: PartialEq>(
    members: &[Member<'a>],
    key: impl Fn(Member<'a>) -> K,
) -> Vec<(K, Vec<Member<'a>>)> {
    let mut all: Vec<(K, Vec<Member<'a>>)> = Vec::new();
    for member in members {
        let key = key(*member);
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(*member),
            None => all.push((key, vec![*member])),
        }
    }
    all
}
