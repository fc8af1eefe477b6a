//! Adds members and changes their scores: ZADD, ZINCRBY.

use super::reply_score;
use crate::observe::keyspace_events::SORTED_SET;
use crate::redis::command::{Args, Call, CommandError, Done, errors};
use crate::redis::resp::Reply;
use duramen_structures::string::double;
use duramen_structures::{Compact, Edit, Encoding, Scored, score_of};
use std::collections::HashMap;

const NOT_A_NUMBER: CommandError = CommandError::new("ERR resulting score is not a number (NaN)");

/// ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member …]: the number of new members; with CH of new or
/// changed ones; with INCR the new score, or null if the options do not allow it.
pub fn zadd(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    add(call, Options::default())
}

/// ZINCRBY key increment member: ZADD with INCR.
pub fn zincrby(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    add(call, Options { increments: true, ..Options::default() })
}

/// What ZADD does with a member that is there, or is not, and what it replies.
#[derive(Default)]
pub struct Options {
    pub only_new: bool,
    pub only_old: bool,
    only_greater: bool,
    only_less: bool,
    pub counts_changes: bool,
    increments: bool,
}

impl Options {
    /// With those from the second argument on; where the scores begin.
    fn parse(mut self, args: Args<'_>) -> Result<(Self, usize), CommandError> {
        let mut at = 2;
        while at < args.len() {
            match () {
                () if args.is(at, "nx") => self.only_new = true,
                () if args.is(at, "xx") => self.only_old = true,
                () if args.is(at, "gt") => self.only_greater = true,
                () if args.is(at, "lt") => self.only_less = true,
                () if args.is(at, "ch") => self.counts_changes = true,
                () if args.is(at, "incr") => self.increments = true,
                () => break,
            }
            at += 1;
        }
        let left = args.len() - at;
        let error = match &self {
            _ if left == 0 || !left.is_multiple_of(2) => errors::SYNTAX,
            Self { only_new: true, only_old: true, .. } => {
                CommandError::new("ERR XX and NX options at the same time are not compatible")
            }
            Self { only_greater: true, only_less: true, .. }
            | Self { only_new: true, only_greater: true, .. }
            | Self { only_new: true, only_less: true, .. } => {
                CommandError::new("ERR GT, LT, and/or NX options at the same time are not compatible")
            }
            Self { increments: true, .. } if left > 2 => {
                CommandError::new("ERR INCR option supports a single increment-element pair")
            }
            _ => return Ok((self, at)),
        };
        Err(error)
    }

    /// What becomes of a member's score; `None` when nothing may become of it.
    fn apply(&self, old: Option<f64>, given: f64) -> Result<Option<f64>, CommandError> {
        let Some(old) = old else { return Ok((!self.only_old).then_some(given)) };
        if self.only_new {
            return Ok(None);
        }
        let new = if self.increments { old + given } else { given };
        if new.is_nan() {
            return Err(NOT_A_NUMBER);
        }
        let is_refused = self.only_less && new >= old || self.only_greater && new <= old;
        Ok((!is_refused).then_some(new))
    }
}

fn add(call: &mut Call<'_, '_>, options: Options) -> Result<(), CommandError> {
    let args = call.args;
    let (options, first) = options.parse(args)?;
    let mut given: Vec<Scored<'_>> = Vec::with_capacity((args.len() - first) / 2);
    for (score, member) in args.from(first).step_by(2).zip(args.from(first + 1).step_by(2)) {
        given.push((member, double::parse(score).ok_or(errors::NOT_FLOAT)?));
    }
    add_members(call, &options, &given)
}

/// Whether a sorted set is a listpack in the reference, while members come one by one: it knows no -0.
pub struct Small {
    is_listpack: bool,
    len: usize,
    compact: Compact,
}

impl Small {
    /// One without members.
    pub const fn empty(compact: Compact) -> Self {
        Self { is_listpack: true, len: 0, compact }
    }

    fn of(set: &Edit<'_, '_>, compact: Compact) -> Self {
        let is_listpack = set.is_empty() || set.encoding() == Encoding::Listpack;
        Self { is_listpack, len: set.len(), compact }
    }

    /// The score of a member that comes now.
    pub fn kept(&mut self, member: &[u8], score: f64, is_new: bool) -> f64 {
        if is_new {
            self.is_listpack &= member.len() <= self.compact.bytes && self.len < self.compact.entries;
            self.len += 1;
        }
        if self.is_listpack { score + 0.0 } else { score }
    }
}

/// ZADD in a run, of one member and without options.
pub fn zadd_step(
    set: &mut Edit<'_, '_>,
    reply: &mut Reply<'_>,
    args: Args<'_>,
) -> Result<Done, CommandError> {
    let (score, member) = (double::parse(args.at(0)).ok_or(errors::NOT_FLOAT)?, args.at(1));
    let old = set.score(member)?;
    if old != Some(score) {
        set.insert(member, &score.to_le_bytes())?;
    }
    reply.integer(i64::from(old.is_none()));
    Ok(if old == Some(score) { Done::Nothing } else { Done::Changed("zadd") })
}

/// Adds members to the sorted set at the first argument, and replies.
pub fn add_members(
    call: &mut Call<'_, '_>,
    options: &Options,
    given: &[Scored<'_>],
) -> Result<(), CommandError> {
    if given.len() == 1 {
        call.edits_one();
    }
    let compact = call.txn.thresholds().sorted_set;
    let mut set = call.txn.edit_sorted_set(call.session.db, call.args.at(1))?;
    let mut olds = Vec::with_capacity(given.len());
    set.get_each(given.iter().map(|(member, _)| *member), |score| olds.push(score.map(score_of)))?;

    // A member may come twice: the second time it has the score that the first gave it. Its last change is the one that
    // is made, after those of the members between: one of them may convert the set, which then distinguishes -0 from 0.
    let mut changes: Vec<Option<(&[u8], [u8; 8])>> = Vec::with_capacity(given.len());
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    let (mut added, mut changed, mut score) = (0, 0, None);
    let mut small = Small::of(&set, compact);
    for (&(member, given), old) in given.iter().zip(olds) {
        let place = places.get(member).copied();
        let changed_before = place.and_then(|place| changes[place]);
        let old = changed_before.map_or(old, |(_, score)| Some(score_of(&score)));
        score = options.apply(old, given)?;
        let Some(new) = score else { continue };
        match old {
            None => added += 1,
            Some(old) if old == new => continue,
            Some(_) => changed += 1,
        }
        let change = (member, small.kept(member, new, old.is_none()).to_le_bytes());
        if let Some(place) = places.insert(member, changes.len()) {
            changes[place] = None;
        }
        changes.push(Some(change));
    }
    if added + changed > 0 {
        let changes: Vec<_> = changes.iter().flatten().collect();
        set.insert_all(changes.iter().map(|(member, score)| (*member, &score[..])))?;
        set.save()?;
        call.notify(SORTED_SET, if options.increments { "zincr" } else { "zadd" }, call.args.at(1));
    }
    match score {
        _ if !options.increments => {
            call.reply.count(if options.counts_changes { added + changed } else { added });
        }
        Some(score) => reply_score(&mut call.reply, score),
        None => call.reply.null(),
    }
    Ok(())
}
