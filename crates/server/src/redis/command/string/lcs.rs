//! What two strings have in common: LCS.

use super::string_bytes_max;
use crate::redis::command::{Args, Call, CommandError, errors};
use duramen_structures::Error;
use duramen_structures::string::lcs::{self, table_bytes};

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]: the longest common subsequence.
pub fn lcs_command(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let db = call.session.db;
    let a = text(call, db, 1)?;
    let b = text(call, db, 2)?;
    let options = Options::parse(call.args)?;
    if a.len().max(b.len()) >= u32::MAX as usize - 1 {
        return Err(CommandError::new("ERR String too long for LCS"));
    }
    let bytes = table_bytes(a.len(), b.len());
    if bytes > string_bytes_max(call.server, bytes) {
        return Err(CommandError::new(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    let found = lcs::lcs(&a, &b);
    if options.indexes {
        let matches = || found.matches.iter().filter(|run| i64::from(run.len()) >= options.match_len_min);
        call.reply.map(2);
        call.reply.bulk(b"matches");
        call.reply.array(matches().count());
        for run in matches() {
            call.reply.array(if options.with_match_len { 3 } else { 2 });
            for (first, last) in [run.a, run.b] {
                call.reply.array(2);
                call.reply.integer(i64::from(first));
                call.reply.integer(i64::from(last));
            }
            if options.with_match_len {
                call.reply.integer(i64::from(run.len()));
            }
        }
        call.reply.bulk(b"len");
        call.reply.count(found.bytes.len());
    } else if options.len {
        call.reply.count(found.bytes.len());
    } else {
        call.reply.bulk(&found.bytes);
    }
    Ok(())
}

#[derive(Default)]
struct Options {
    len: bool,
    indexes: bool,
    with_match_len: bool,
    match_len_min: i64,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "idx") {
                options.indexes = true;
            } else if args.is(at, "len") {
                options.len = true;
            } else if args.is(at, "withmatchlen") {
                options.with_match_len = true;
            } else if args.is(at, "minmatchlen") && at + 1 < args.len() {
                at += 1;
                options.match_len_min = args.integer(at)?;
            } else {
                return Err(errors::SYNTAX);
            }
            at += 1;
        }
        if options.len && options.indexes {
            return Err(CommandError::new(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

fn text(call: &mut Call<'_, '_>, db: u8, index: usize) -> Result<Vec<u8>, CommandError> {
    match call.txn.get_string(db, call.args.at(index)) {
        Ok(value) => Ok(call.stats.read(value).map_or_else(Vec::new, |value| value.to_vec())),
        Err(Error::WrongType) => Err(CommandError::new("ERR The specified keys must contain string values")),
        Err(error) => Err(error.into()),
    }
}
