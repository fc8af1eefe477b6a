//! What commands on streams have in common in their arguments: ids, intervals, trimming.

use crate::redis::command::{Args, CommandError, errors};
use duramen_structures::stream::{NodeLimits, ParsedId, StreamId, Trim};

const INVALID_ID: CommandError =
    CommandError::new("ERR Invalid stream ID specified as stream command argument");
const TRIMMED_TWICE: CommandError =
    CommandError::new("ERR syntax error, MAXLEN and MINID options at the same time are not compatible");

/// Nodes that are trimmed at once where nobody says how much.
const TRIM_NODES_MAX: u64 = 100;
/// Entries, where a node may have any number.
const TRIMMED_OF_ANY: u64 = 10_000;
const TRIMMED_MAX: u64 = 1_000_000;

/// An id that names one entry.
pub fn id(text: &[u8]) -> Result<StreamId, CommandError> {
    StreamId::parse(text, 0, false).map(|parsed| parsed.id).ok_or(INVALID_ID)
}

/// An id, or `-` and `+` for the least and the greatest. Without a number it is `missing_seq`.
pub fn id_or_end(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        text => StreamId::parse(text, missing_seq, false).map(|parsed| parsed.id).ok_or(INVALID_ID),
    }
}

/// The first id of an interval; after `(` the interval begins after that id.
pub fn start(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            id(rest)?.next().ok_or(CommandError::new("ERR invalid start ID for the interval"))
        }
        text => id_or_end(text, 0),
    }
}

/// The last id of an interval, which ends before it after `(`.
pub fn end(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            let id = StreamId::parse(rest, u64::MAX, false).ok_or(INVALID_ID)?.id;
            id.previous().ok_or(CommandError::new("ERR invalid end ID for the interval"))
        }
        text => id_or_end(text, u64::MAX),
    }
}

/// The ids among the arguments from `index` on.
pub fn ids(args: Args<'_>, index: usize) -> Result<Vec<StreamId>, CommandError> {
    args.from(index).map(id).collect()
}

/// The options of XADD and XTRIM.
pub struct AddOrTrim {
    /// The entries to keep, if anything is trimmed.
    pub trim: Option<Trim>,
    /// `~`: only whole nodes go.
    pub whole_nodes: bool,
    /// No more go; 0 is no limit.
    pub limit: u64,
    /// XADD makes no stream.
    pub no_make: bool,
    /// The id of XADD; `None` is `*`.
    pub id: Option<ParsedId>,
    /// The place of XADD's first field.
    pub behind: usize,
}

impl AddOrTrim {
    /// The options of XADD, up to its id.
    pub fn of_add(args: Args<'_>, limits: NodeLimits) -> Result<Self, CommandError> {
        Self::parse(args, limits, true)
    }

    /// Those of XTRIM.
    pub fn of_trim(args: Args<'_>, limits: NodeLimits) -> Result<Self, CommandError> {
        Self::parse(args, limits, false)
    }

    fn parse(args: Args<'_>, limits: NodeLimits, is_add: bool) -> Result<Self, CommandError> {
        let (trim, whole_nodes, no_make, id) = (None, false, false, None);
        let mut found = Self { trim, whole_nodes, limit: 0, no_make, id, behind: args.len() + 1 };
        let (mut limit, mut at) = (None, 2);
        while at < args.len() {
            let more = at + 1 < args.len();
            if is_add && args.at(at) == b"*" {
                found.behind = at + 1;
                break;
            } else if (args.is(at, "maxlen") || args.is(at, "minid")) && more {
                if found.trim.is_some() {
                    return Err(TRIMMED_TWICE);
                }
                let is_len = args.is(at, "maxlen");
                at += 1;
                let has_sign = at + 1 < args.len() && matches!(args.at(at), b"~" | b"=");
                found.whole_nodes = has_sign && args.at(at) == b"~";
                at += usize::from(has_sign);
                found.trim = Some(if is_len {
                    let len = u64::try_from(args.integer(at)?);
                    Trim::Len(len.map_err(|_| CommandError::new("ERR The MAXLEN argument must be >= 0."))?)
                } else {
                    Trim::From(self::id(args.at(at))?)
                });
            } else if args.is(at, "limit") && more {
                at += 1;
                let given = u64::try_from(args.integer(at)?);
                limit = Some(given.map_err(|_| CommandError::new("ERR The LIMIT argument must be >= 0."))?);
            } else if is_add && args.is(at, "nomkstream") {
                found.no_make = true;
            } else if is_add {
                found.id = Some(StreamId::parse(args.at(at), 0, true).ok_or(INVALID_ID)?);
                found.behind = at + 1;
                break;
            } else {
                return Err(errors::SYNTAX);
            }
            at += 1;
        }
        if limit.is_some_and(|limit| limit > 0) && found.trim.is_none() {
            return Err(CommandError::new(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if !is_add && found.trim.is_none() {
            return Err(CommandError::new("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        found.limit = match limit {
            Some(_) if !found.whole_nodes => {
                return Err(CommandError::new(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option",
                ));
            }
            Some(limit) => limit,
            None if found.whole_nodes => match limits.entries.saturating_mul(TRIM_NODES_MAX) {
                0 => TRIMMED_OF_ANY,
                entries => entries.min(TRIMMED_MAX),
            },
            None => 0,
        };
        Ok(found)
    }
}
