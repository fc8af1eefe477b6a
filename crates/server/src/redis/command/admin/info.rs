//! INFO [section…].

use crate::observe::info;
use crate::redis::command::{Call, CommandError};

/// INFO [section…].
pub fn info(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let asked: Vec<String> =
        call.args.from(1).map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
    let asked_for = |name: &str| asked.iter().any(|asked| asked == name);
    let (default, all) =
        (asked.is_empty() || asked_for("default"), asked_for("all") || asked_for("everything"));
    let databases = if all || default || asked_for("keyspace") {
        (0..call.txn.databases()).map(|db| call.txn.count(db)).collect::<Result<_, _>>()?
    } else {
        Vec::new()
    };
    let shows = |name: &str, by_default| all || (default && by_default) || asked_for(name);
    let text = info::text(call.server, call.table, call.now, databases, shows);
    call.reply.verbatim(&text);
    Ok(())
}
