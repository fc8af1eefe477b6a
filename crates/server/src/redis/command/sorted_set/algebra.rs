//! Several sorted sets or sets together: ZUNION, ZINTER, ZDIFF, their STORE forms, ZINTERCARD.
//!
//! All keys are read first, as in Redis: a key of another type is an error even if the result is known without it. A
//! set counts as a sorted set whose members have the score 1.

use super::reply_members;
use crate::observe::keyspace_events::SORTED_SET;
use crate::redis::command::set::count_common;
use crate::redis::command::{Args, Call, CommandError, errors, integer};
use duramen_structures::string::double;
use duramen_structures::{Collection, Scored, rank, score_of};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

const WEIGHT: CommandError = CommandError::new("ERR weight value is not a float");
const LIMIT: CommandError = CommandError::new("ERR LIMIT can't be negative");

/// The operations on sorted sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// What becomes of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Reply,
    Store,
    Count,
}

/// ZUNION numkeys key [key …] [WEIGHTS weight [weight …]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]: the members of any
/// set.
pub fn zunion(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    combine(call, Operation::Union, Answer::Reply)
}

/// ZINTER numkeys key [key …] [WEIGHTS weight [weight …]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]: the members of all
/// sets.
pub fn zinter(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    combine(call, Operation::Intersection, Answer::Reply)
}

/// ZDIFF numkeys key [key …] [WITHSCORES]: the members of the first set only.
pub fn zdiff(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    combine(call, Operation::Difference, Answer::Reply)
}

/// ZUNIONSTORE destination numkeys key [key …] [WEIGHTS …] [AGGREGATE …]: ZUNION into a key; how many members.
pub fn zunionstore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    combine(call, Operation::Union, Answer::Store)
}

/// ZINTERSTORE destination numkeys key [key …] [WEIGHTS …] [AGGREGATE …]: ZINTER into a key; how many members.
pub fn zinterstore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    combine(call, Operation::Intersection, Answer::Store)
}

/// ZDIFFSTORE destination numkeys key [key …]: ZDIFF into a key; how many members.
pub fn zdiffstore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    combine(call, Operation::Difference, Answer::Store)
}

/// ZINTERCARD numkeys key [key …] [LIMIT limit]: the number of members that ZINTER returns, at most the limit, unless
/// that is 0.
pub fn zintercard(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    combine(call, Operation::Intersection, Answer::Count)
}

/// A set with what its scores are multiplied by.
struct Input<'t> {
    key: &'t [u8],
    /// `None` where its key is missing.
    len: Option<usize>,
    weight: f64,
}

/// The members of an input, with their own scores.
type Copied<'t> = Option<Collection<'t, Vec<u8>>>;

impl<'t> Input<'t> {
    fn read(&self, call: &mut Call<'_, '_>) -> Result<Copied<'t>, CommandError> {
        let set = call.txn.set_or_sorted_set(call.session.db, self.key)?;
        Ok(set.map(|set| set.detached()).transpose()?)
    }

    /// The score of this set's first mention of a member; NaN, which infinity times 0 is, counts as 0.
    fn weighed(&self, score: f64) -> f64 {
        let weighed = self.weight * score;
        if weighed.is_nan() { 0.0 } else { weighed }
    }
}

/// What becomes of two scores of one member.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    // The comparisons are those of the reference, also for NaN.
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            // Infinities of two signs make 0.
            Self::Sum if (score + other).is_nan() => 0.0,
            Self::Sum => score + other,
            Self::Min if other < score => other,
            Self::Max if other > score => other,
            Self::Min | Self::Max => score,
        }
    }
}

struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    count_max: usize,
}

impl Options {
    /// Those from the argument at `at` on, for so many sets.
    fn parse(
        args: Args<'_>,
        mut at: usize,
        sets: usize,
        operation: Operation,
        answer: Answer,
    ) -> Result<Self, CommandError> {
        let mut options = Self {
            weights: vec![1.0; sets],
            aggregate: Aggregate::Sum,
            with_scores: false,
            count_max: usize::MAX,
        };
        let has_scores = operation != Operation::Difference && answer != Answer::Count;
        while at < args.len() {
            let left = args.len() - at;
            if has_scores && left > sets && args.is(at, "weights") {
                for (weight, text) in options.weights.iter_mut().zip(args.from(at + 1)) {
                    *weight = double::parse(text).ok_or(WEIGHT)?;
                }
                at += 1 + sets;
            } else if has_scores && left >= 2 && args.is(at, "aggregate") {
                options.aggregate = match () {
                    () if args.is(at + 1, "sum") => Aggregate::Sum,
                    () if args.is(at + 1, "min") => Aggregate::Min,
                    () if args.is(at + 1, "max") => Aggregate::Max,
                    () => return Err(errors::SYNTAX),
                };
                at += 2;
            } else if answer == Answer::Reply && args.is(at, "withscores") {
                options.with_scores = true;
                at += 1;
            } else if answer == Answer::Count && left >= 2 && args.is(at, "limit") {
                let limit = integer(args.at(at + 1)).and_then(|limit| usize::try_from(limit).ok());
                let limit = limit.ok_or(LIMIT)?;
                options.count_max = if limit == 0 { usize::MAX } else { limit };
                at += 2;
            } else {
                return Err(errors::SYNTAX);
            }
        }
        Ok(options)
    }
}

fn combine(call: &mut Call<'_, '_>, operation: Operation, answer: Answer) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let number = if answer == Answer::Store { 2 } else { 1 };
    let keys = usize::try_from(args.integer(number)?).ok().filter(|keys| *keys > 0).ok_or_else(|| {
        CommandError::with(format!(
            "ERR at least 1 input key is needed for '{}' command",
            call.entry.spec.name
        ))
    })?;
    let first = number + 1;
    if keys > args.len() - first {
        return Err(errors::SYNTAX);
    }
    let mut inputs = Vec::with_capacity(keys);
    for key in args.from(first).take(keys) {
        let set = call.stats.read(call.txn.set_or_sorted_set(db, key)?);
        inputs.push(Input { key, len: set.map(|set| set.len()), weight: 1.0 });
    }
    let options = Options::parse(args, first + keys, keys, operation, answer)?;
    for (input, weight) in inputs.iter_mut().zip(&options.weights) {
        input.weight = *weight;
    }
    if operation != Operation::Difference {
        // Sums of doubles depend on their order.
        inputs.sort_by_key(|input| input.len.unwrap_or(0));
    }
    match operation {
        Operation::Intersection if answer == Answer::Count => {
            let sets = inputs.iter().map(|input| (input.key, input.len)).collect();
            let count = count_common(call, sets, options.count_max)?;
            call.reply.count(count);
            Ok(())
        }
        Operation::Union => {
            let mut copies = Vec::with_capacity(inputs.len());
            for input in &inputs {
                copies.push(input.read(call)?);
            }
            let members = union(&inputs, &copies, options.aggregate)?;
            finish(call, answer, &options, members)
        }
        Operation::Intersection => {
            // The members of the smallest are looked up in the others, one by one.
            let copy =
                if inputs.iter().all(|input| input.len.is_some()) { inputs[0].read(call)? } else { None };
            let members = members(&copy)?.into_iter();
            let mut members = members.map(|(member, score)| (member, inputs[0].weighed(score))).collect();
            for other in &inputs[1..] {
                members = intersect(call, other, members, options.aggregate)?;
            }
            finish(call, answer, &options, members)
        }
        Operation::Difference => {
            let copy = inputs[0].read(call)?;
            let mut members = members(&copy)?;
            for other in &inputs[1..] {
                members = without(call, other, members)?;
            }
            finish(call, answer, &options, members)
        }
    }
}

fn finish(
    call: &mut Call<'_, '_>,
    answer: Answer,
    options: &Options,
    mut members: Vec<Scored<'_>>,
) -> Result<(), CommandError> {
    match answer {
        Answer::Count => call.reply.count(members.len()),
        Answer::Store => {
            let count = members.len();
            let key = call.args.at(1);
            let changed = call.txn.put_sorted_set(call.session.db, key, members)?;
            call.notify_stored(SORTED_SET, call.entry.spec.name, key, count, changed);
            call.reply.count(count);
        }
        Answer::Reply => {
            members.sort_unstable_by(|a, b| rank(*a, *b));
            reply_members(&mut call.reply, members.into_iter(), options.with_scores);
        }
    }
    Ok(())
}

fn members<'s>(copy: &'s Copied<'_>) -> Result<Vec<Scored<'s>>, CommandError> {
    Ok(copy.as_ref().map(Collection::scored).transpose()?.unwrap_or_default())
}

fn union<'s>(
    inputs: &[Input<'_>],
    copies: &'s [Copied<'_>],
    aggregate: Aggregate,
) -> Result<Vec<Scored<'s>>, CommandError> {
    let mut scores: HashMap<&[u8], f64> = HashMap::new();
    for (input, copy) in inputs.iter().zip(copies) {
        for (member, score) in members(copy)? {
            let score = input.weighed(score);
            match scores.entry(member) {
                Entry::Occupied(mut found) => *found.get_mut() = aggregate.of(*found.get(), score),
                Entry::Vacant(place) => {
                    place.insert(score);
                }
            }
        }
    }
    Ok(scores.into_iter().collect())
}

/// Those of `members` that another set has, with the scores of both.
fn intersect<'s>(
    call: &mut Call<'_, '_>,
    other: &Input<'_>,
    members: Vec<Scored<'s>>,
    aggregate: Aggregate,
) -> Result<Vec<Scored<'s>>, CommandError> {
    let Some(set) = call.txn.set_or_sorted_set(call.session.db, other.key)? else { return Ok(Vec::new()) };
    let mut left = Vec::with_capacity(members.len());
    let mut all = members.iter();
    set.get_each(members.iter().map(|(member, _)| *member), |found| {
        if let (Some((member, sum)), Some(found)) = (all.next(), found) {
            // That of a set's member is 1.
            let score = if found.is_empty() { 1.0 } else { score_of(found) };
            left.push((*member, aggregate.of(*sum, score * other.weight)));
        }
    })?;
    Ok(left)
}

/// Those of `members` that another set has not.
fn without<'s>(
    call: &mut Call<'_, '_>,
    other: &Input<'_>,
    members: Vec<Scored<'s>>,
) -> Result<Vec<Scored<'s>>, CommandError> {
    let Some(set) = call.txn.set_or_sorted_set(call.session.db, other.key)? else { return Ok(members) };
    let names = set.names()?;
    let mut left = Vec::with_capacity(members.len());
    for (member, score) in members {
        if !names.has(member)? {
            left.push((member, score));
        }
    }
    Ok(left)
}
