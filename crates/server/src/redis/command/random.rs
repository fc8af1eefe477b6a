//! The common part of HRANDFIELD, SRANDMEMBER and ZRANDMEMBER.

use super::{Args, CommandError, errors};
use crate::redis::resp::{Protocol, Reply};
use duramen_structures::{Collection, Source};
use std::ops::{ControlFlow, Deref};

const OUT_OF_RANGE: CommandError = CommandError::new(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);

/// The number of draws: negative when one may come again.
///
/// # Errors
/// Redis's errors for an argument that is no number, and for the number without an opposite.
pub fn draws(args: Args<'_>, index: usize) -> Result<i64, CommandError> {
    match args.integer(index)? {
        i64::MIN => Err(OUT_OF_RANGE),
        count => Ok(count),
    }
}

/// The parts to draw from a collection whose names have values.
#[derive(Clone, Copy)]
pub enum Draw {
    /// One name.
    One,
    /// So many, as [`draws`] says.
    Many {
        /// How many.
        count: i64,
        /// Each with its value.
        with_values: bool,
    },
}

impl Draw {
    /// key [count [option]], where the option asks for the values.
    ///
    /// # Errors
    /// Redis's, for anything else.
    pub fn parse(args: Args<'_>, option: &str) -> Result<Self, CommandError> {
        if args.len() == 2 {
            return Ok(Self::One);
        }
        let count = draws(args, 2)?;
        let with_values = args.len() == 4 && args.is(3, option);
        if args.len() > 3 && !with_values {
            return Err(errors::SYNTAX);
        }
        if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
            return Err(errors::OUT_OF_RANGE);
        }
        Ok(Self::Many { count, with_values })
    }
}

/// Replies with the drawn entries; `write` writes a value.
///
/// # Errors
/// When the collection cannot be read.
pub fn reply_drawn<B: Deref<Target = [u8]>, S: Source>(
    reply: &mut Reply<'_>,
    collection: Option<Collection<'_, B, S>>,
    draw: Draw,
    write: impl Fn(&mut Reply<'_>, &[u8]),
) -> Result<(), CommandError> {
    let (collection, count, with_values) = match (collection, draw) {
        (None, Draw::One) => {
            reply.null();
            return Ok(());
        }
        (None, Draw::Many { .. }) => {
            reply.array(0);
            return Ok(());
        }
        (Some(collection), Draw::One) => {
            let mut is_drawn = false;
            collection.draw_one(|name, _| {
                is_drawn = true;
                reply.bulk(name);
            })?;
            // All fields may be over.
            if !is_drawn {
                reply.null();
            }
            return Ok(());
        }
        (Some(collection), Draw::Many { count, with_values }) => (collection, count, with_values),
    };
    let in_pairs = with_values && reply.protocol == Protocol::Resp3;
    let head = |reply: &mut Reply<'_>, count: usize| {
        reply.array(if with_values && !in_pairs { count * 2 } else { count });
    };
    let entry = |reply: &mut Reply<'_>, name: &[u8], value: &[u8]| {
        if in_pairs {
            reply.array(2);
        }
        reply.bulk(name);
        if with_values {
            write(reply, value);
        }
    };
    if collection.is_timed() {
        return reply_shown(reply, &collection, count, head, entry);
    }
    if count >= 0 {
        let count = usize::try_from(count).map_or(collection.len(), |count| count.min(collection.len()));
        head(reply, count);
        collection.sample(count, |name, value| entry(reply, name, value))?;
        return Ok(());
    }
    let mut left = count.unsigned_abs();
    head(reply, left as usize);
    collection.draw(|name, value| {
        entry(reply, name, value);
        left -= 1;
        // Entries that the client is not sent need not be drawn.
        if left == 0 || !reply.takes() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(())
}

/// The same of a hash some of whose fields may be over: how many are shown is known at the end.
fn reply_shown<B: Deref<Target = [u8]>, S: Source>(
    reply: &mut Reply<'_>,
    hash: &Collection<'_, B, S>,
    count: i64,
    head: impl Fn(&mut Reply<'_>, usize),
    entry: impl Fn(&mut Reply<'_>, &[u8], &[u8]),
) -> Result<(), CommandError> {
    let mut drawn: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    if count >= 0 {
        let count = usize::try_from(count).map_or(hash.len(), |count| count.min(hash.len()));
        hash.sample(count, |field, value| drawn.push((field.to_vec(), value.to_vec())))?;
        head(reply, drawn.len());
        drawn.iter().for_each(|(field, value)| entry(reply, field, value));
        return Ok(());
    }
    let mut left = count.unsigned_abs();
    let mut is_any = false;
    hash.draw(|field, value| {
        if !std::mem::replace(&mut is_any, true) {
            head(reply, left as usize);
        }
        entry(reply, field, value);
        left -= 1;
        if left == 0 || !reply.takes() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if !is_any {
        head(reply, 0);
    }
    Ok(())
}
