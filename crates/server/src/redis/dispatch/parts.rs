//! Removals that a full store does in parts.
//!
//! A command is one transaction: each removed element takes a record, and no space is freed before it commits. In a
//! full store these records use the space kept for deletes (`log::space` of the engine). A command that removes more
//! than fits there is divided: each part is a transaction, and the next one may use the space that it freed. So every
//! removal succeeds, for any number of elements.
//!
//! The price: between two parts another client may see the rest, and a crash may leave it. Neither happens while the
//! store has free space, nor within MULTI, where such a command is refused.
//!
//! | commands | parts |
//! |---|---|
//! | that name what they remove: HDEL, SREM, ZREM, XDEL, XACK | half of the names, then the others; the replies are added |
//! | of a range: ZREMRANGEBYSCORE, ZREMRANGEBYLEX, ZREMRANGEBYRANK, LREM | a number of elements each, until none is left; the replies are added |
//! | that pop up to a count: SPOP, ZPOPMIN, LPOP, LMPOP … | one: it pops half as many |

use super::Dispatcher;
use crate::net::{Output, Turn};
use crate::redis::command::{Args, Entry, OwnedArgs, integer};
use crate::redis::resp::Reply;
use crate::redis::session::Session;
use crate::redis::worker_state::Share;

/// The number of elements of a range in the first part.
const TOGETHER: usize = 1024;

/// How a command is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// The arguments are names from this one on.
    Names(usize),
    /// The command asks for its [`Share`].
    Shares,
    /// This argument is the most that the command pops.
    Count(usize),
}

impl Division {
    fn of(name: &str, args: Args<'_>) -> Option<Self> {
        let last = args.len() - 1;
        let division = match name {
            "hdel" | "srem" | "zrem" | "xdel" => Self::Names(2),
            "xack" => Self::Names(3),
            "zremrangebyscore" | "zremrangebylex" | "zremrangebyrank" | "lrem" => Self::Shares,
            "spop" | "zpopmin" | "zpopmax" | "lpop" | "rpop" if last == 2 => Self::Count(last),
            "lmpop" | "zmpop" | "blmpop" | "bzmpop" if args.is(last - 1, "count") => Self::Count(last),
            _ => return None,
        };
        let is_divisible = match division {
            Self::Names(first) => last > first,
            Self::Count(at) => integer(args.at(at)).is_some_and(|count| count > 1),
            Self::Shares => true,
        };
        is_divisible.then_some(division)
    }
}

/// The result of a part.
enum Part {
    Removed(usize),
    /// It found no room either.
    NoRoom,
    /// It answered something else, which is the command's reply.
    Else,
}

impl Dispatcher {
    /// Whether a command that found no room may be done in parts.
    pub(super) fn has_parts(&self, entry: &Entry, args: Args<'_>) -> bool {
        self.worker_state.share.is_none() && Division::of(entry.spec.name, args).is_some()
    }

    /// Does such a command in parts; `out` has nothing of its reply yet.
    #[cold]
    pub(super) fn run_in_parts(
        &mut self,
        turn: &mut Turn,
        entry: &'static Entry,
        session: &mut Session,
        args: Args<'_>,
        out: &mut Output,
    ) {
        let words: Vec<&[u8]> = args.from(0).collect();
        let protocol = session.protocol;
        let removed = match Division::of(entry.spec.name, args) {
            Some(Division::Names(first)) => self.run_halves(turn, entry, session, &words, first, out),
            Some(Division::Shares) => self.run_shares(turn, entry, session, &words, out),
            Some(Division::Count(at)) => {
                let half = (integer(words[at]).unwrap_or_default() / 2).to_string();
                let mut own = words;
                own[at] = half.as_bytes();
                return self.run(turn, entry, session, OwnedArgs::of(&own).args(), out);
            }
            None => return,
        };
        if let Some(removed) = removed {
            Reply::new(out, protocol).count(removed);
        }
    }

    /// Runs it with the first half of the names, then with the others; each is divided again if it must be.
    fn run_halves(
        &mut self,
        turn: &mut Turn,
        entry: &'static Entry,
        session: &mut Session,
        words: &[&[u8]],
        first: usize,
        out: &mut Output,
    ) -> Option<usize> {
        let (command, names) = words.split_at(first);
        let (before, behind) = names.split_at(names.len() / 2);
        let mut removed = 0;
        for half in [before, behind] {
            let Part::Removed(count) = self.part(turn, entry, session, &[command, half].concat(), out) else {
                return None;
            };
            removed += count;
        }
        Some(removed)
    }

    /// Runs it repeatedly, until a run removes less than its maximum.
    fn run_shares(
        &mut self,
        turn: &mut Turn,
        entry: &'static Entry,
        session: &mut Session,
        words: &[&[u8]],
        out: &mut Output,
    ) -> Option<usize> {
        let (mut removed, mut most) = (0, TOGETHER);
        loop {
            let start = out.len();
            self.worker_state.share = Some(Share { most, removed });
            let part = self.part(turn, entry, session, words, out);
            self.worker_state.share = None;
            match part {
                Part::Removed(count) => {
                    removed += count;
                    if count < most {
                        return Some(removed);
                    }
                }
                Part::NoRoom if most > 1 => {
                    out.truncate(start);
                    most /= 2;
                }
                Part::NoRoom | Part::Else => return None,
            }
        }
    }

    /// Runs a part. A reply that is a number is taken from `out`.
    fn part(
        &mut self,
        turn: &mut Turn,
        entry: &'static Entry,
        session: &mut Session,
        words: &[&[u8]],
        out: &mut Output,
    ) -> Part {
        let start = out.len();
        self.run(turn, entry, session, OwnedArgs::of(words).args(), out);
        let reply = &out.bytes[start..];
        if reply.starts_with(b"-OOM") {
            return Part::NoRoom;
        }
        let number = reply.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
        match number.and_then(integer).and_then(|number| usize::try_from(number).ok()) {
            Some(number) => {
                out.truncate(start);
                Part::Removed(number)
            }
            None => Part::Else,
        }
    }
}
