//! Parts of a sorted set in their order: ZRANGE, the five commands that it stands for, and ZRANGESTORE.

use super::change::Small;
use super::parse::{Bounds, By};
use super::reply_part;
use crate::observe::keyspace_events::SORTED_SET;
use crate::redis::command::{Args, Call, CommandError, errors};
use duramen_structures::{Collection, Source};
use std::ops::{ControlFlow, Deref, Range};

const LIMIT_BY_RANK: CommandError = CommandError::new(
    "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
);
const SCORES_BY_LEX: CommandError =
    CommandError::new("ERR syntax error, WITHSCORES not supported in combination with BYLEX");

/// What the command's name says already; `None` is for the options to say.
#[derive(Clone, Copy)]
struct Form {
    by: Option<By>,
    is_reversed: Option<bool>,
    /// The argument that is the key; the destination of a store is before it.
    key: usize,
    stores: bool,
}

const ANY: Form = Form { by: None, is_reversed: None, key: 1, stores: false };

/// ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]: the members in a range.
pub fn zrange(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    range(call, ANY)
}

/// ZRANGESTORE destination key min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]: ZRANGE into a key; how many members.
pub fn zrangestore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    range(call, Form { key: 2, stores: true, ..ANY })
}

/// ZREVRANGE key start stop [WITHSCORES]: ZRANGE with REV.
pub fn zrevrange(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    range(call, Form { by: Some(By::Rank), is_reversed: Some(true), ..ANY })
}

/// ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]: ZRANGE with BYSCORE.
pub fn zrangebyscore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    range(call, Form { by: Some(By::Score), is_reversed: Some(false), ..ANY })
}

/// ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]: ZRANGE with BYSCORE and REV.
pub fn zrevrangebyscore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    range(call, Form { by: Some(By::Score), is_reversed: Some(true), ..ANY })
}

/// ZRANGEBYLEX key min max [LIMIT offset count]: ZRANGE with BYLEX.
pub fn zrangebylex(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    range(call, Form { by: Some(By::Lex), is_reversed: Some(false), ..ANY })
}

/// ZREVRANGEBYLEX key max min [LIMIT offset count]: ZRANGE with BYLEX and REV.
pub fn zrevrangebylex(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    range(call, Form { by: Some(By::Lex), is_reversed: Some(true), ..ANY })
}

struct Options<'a> {
    bounds: Bounds<'a>,
    is_reversed: bool,
    with_scores: bool,
    offset: i64,
    /// Negative: all.
    limit: i64,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>, mut form: Form) -> Result<Self, CommandError> {
        let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
        let mut at = form.key + 3;
        while at < args.len() {
            if !form.stores && args.is(at, "withscores") {
                with_scores = true;
            } else if args.is(at, "limit") && at + 2 < args.len() {
                (offset, limit) = (args.integer(at + 1)?, args.integer(at + 2)?);
                at += 2;
            } else if form.is_reversed.is_none() && args.is(at, "rev") {
                form.is_reversed = Some(true);
            } else if form.by.is_none() && args.is(at, "bylex") {
                form.by = Some(By::Lex);
            } else if form.by.is_none() && args.is(at, "byscore") {
                form.by = Some(By::Score);
            } else {
                return Err(errors::SYNTAX);
            }
            at += 1;
        }
        let (by, is_reversed) = (form.by.unwrap_or(By::Rank), form.is_reversed.unwrap_or(false));
        if limit != -1 && by == By::Rank {
            return Err(LIMIT_BY_RANK);
        }
        if with_scores && by == By::Lex {
            return Err(SCORES_BY_LEX);
        }
        let (first, second) = (form.key + 1, form.key + 2);
        let bounds = if is_reversed && by != By::Rank {
            Bounds::parse(by, args, second, first)?
        } else {
            Bounds::parse(by, args, first, second)?
        };
        if by == By::Rank {
            // An offset without a limit is of no effect there.
            offset = 0;
        }
        Ok(Self { bounds, is_reversed, with_scores, offset, limit })
    }

    /// The positions that are wanted.
    fn cut<B: Deref<Target = [u8]>, S: Source>(
        &self,
        set: &Collection<'_, B, S>,
    ) -> Result<Range<usize>, CommandError> {
        let part = if self.is_reversed { self.bounds.part_reversed(set)? } else { self.bounds.part(set)? };
        // Redis counts a negative offset down until no member is left.
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX).min(part.len());
        let count = usize::try_from(self.limit).unwrap_or(usize::MAX).min(part.len() - offset);
        Ok(if self.is_reversed {
            part.end - offset - count..part.end - offset
        } else {
            part.start + offset..part.start + offset + count
        })
    }
}

fn range(call: &mut Call<'_, '_>, form: Form) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let options = Options::parse(args, form)?;
    let set = call.stats.read(call.txn.sorted_set(db, args.at(form.key))?);
    if form.stores {
        let mut members: Vec<(Vec<u8>, f64)> = Vec::new();
        if let Some(set) = set {
            let mut small = Small::empty(call.server.keyspace.thresholds().sorted_set);
            set.visit_part(options.cut(&set)?, options.is_reversed, |member, score| {
                members.push((member.to_vec(), small.kept(member, score, true)));
                ControlFlow::Continue(())
            })?;
        }
        let members: Vec<_> = members.iter().map(|(member, score)| (&member[..], *score)).collect();
        let count = members.len();
        let changed = call.txn.put_sorted_set(db, args.at(1), members)?;
        call.notify_stored(SORTED_SET, "zrangestore", args.at(1), count, changed);
        call.reply.count(count);
        return Ok(());
    }
    match set {
        Some(set) => {
            let part = options.cut(&set)?;
            reply_part(&mut call.reply, &set, part, options.is_reversed, options.with_scores)?;
        }
        None => call.reply.array(0),
    }
    Ok(())
}
