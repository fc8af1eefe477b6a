//! SUBSCRIBE, PUBLISH and their forms. How messages travel stands in [`messages`](crate::messages).

use super::call::subcommand_arguments_error;
use super::{Args, Call, Command, CommandError};
use crate::messages::Kind;
use crate::net::Output;
use crate::redis::resp::Reply;
use crate::redis::session::ReplyMode;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("subscribe", |call| subscribe(call, Kind::Channel)),
    Command::new("unsubscribe", |call| unsubscribe(call, Kind::Channel)),
    Command::new("psubscribe", |call| subscribe(call, Kind::Pattern)),
    Command::new("punsubscribe", |call| unsubscribe(call, Kind::Pattern)),
    Command::new("ssubscribe", |call| subscribe(call, Kind::Shard)),
    Command::new("sunsubscribe", |call| unsubscribe(call, Kind::Shard)),
    Command::new("publish", |call| publish(call, false)),
    Command::new("spublish", |call| publish(call, true)),
    Command::container("pubsub", SUBCOMMANDS),
];

const SUBCOMMANDS: &[Command] = &[
    Command::new("pubsub|channels", |call| channels(call, Kind::Channel)),
    Command::new("pubsub|numpat", numpat),
    Command::new("pubsub|numsub", |call| numsub(call, Kind::Channel)),
    Command::new("pubsub|shardchannels", |call| channels(call, Kind::Shard)),
    Command::new("pubsub|shardnumsub", |call| numsub(call, Kind::Shard)),
    Command::new("pubsub|help", help),
];

const HELP: &[&str] = &[
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
    "HELP",
    "    Prints this help.",
];

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

/// SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE name [name …]: one reply for each name.
fn subscribe(call: &mut Call<'_, '_>, kind: Kind) -> Result<(), CommandError> {
    for name in names(call.args) {
        call.worker_state.subscribe(call.server, call.session, kind, name);
        reply_subscription(call, kind.words().0, Some(name), kind);
    }
    Ok(())
}

/// UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE [name …]: without names, all of them.
fn unsubscribe(call: &mut Call<'_, '_>, kind: Kind) -> Result<(), CommandError> {
    let word = kind.words().1;
    if call.args.len() > 1 {
        for name in names(call.args) {
            call.worker_state.unsubscribe(call.server, call.session, kind, name);
            reply_subscription(call, word, Some(name), kind);
        }
        return Ok(());
    }
    let mut was_any = false;
    while let Some(name) = call.worker_state.unsubscribe_any(call.server, call.session, kind) {
        reply_subscription(call, word, Some(&name), kind);
        was_any = true;
    }
    if !was_any {
        reply_subscription(call, word, None, kind);
    }
    Ok(())
}

fn names<'a>(args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    args.from(1)
}

/// The reply for one name, which also a client gets that gets no replies. Channels and patterns are counted together, channels of
/// shards apart.
fn reply_subscription(call: &mut Call<'_, '_>, word: &str, name: Option<&[u8]>, kind: Kind) {
    let count = match kind {
        Kind::Shard => call.session.subscriptions(Kind::Shard),
        _ => call.session.subscriptions(Kind::Channel) + call.session.subscriptions(Kind::Pattern),
    };
    let write = |reply: &mut Reply<'_>| {
        reply.push(3);
        reply.bulk(word.as_bytes());
        match name {
            Some(name) => reply.bulk(name),
            None => reply.null(),
        }
        reply.count(count);
    };
    if call.session.reply_mode == ReplyMode::On {
        return write(&mut call.reply);
    }
    let mut pushed = Output::default();
    write(&mut Reply::new(&mut pushed, call.session.protocol));
    call.worker_state.pushed.append(&mut pushed.bytes);
}

/// PUBLISH and SPUBLISH channel message: the number of receivers.
fn publish(call: &mut Call<'_, '_>, is_shard: bool) -> Result<(), CommandError> {
    let count = call.worker_state.publish(call.server, is_shard, call.args.at(1), call.args.at(2));
    call.reply.count(count);
    Ok(())
}

/// PUBSUB CHANNELS and SHARDCHANNELS [pattern].
fn channels(call: &mut Call<'_, '_>, kind: Kind) -> Result<(), CommandError> {
    if call.args.len() > 3 {
        return Err(subcommand_arguments_error(call.entry, call.args));
    }
    let names = call.server.subscriptions.names(kind, call.args.get(2));
    call.reply.array(names.len());
    for name in names {
        call.reply.bulk(&name);
    }
    Ok(())
}

/// PUBSUB NUMSUB and SHARDNUMSUB [channel …].
fn numsub(call: &mut Call<'_, '_>, kind: Kind) -> Result<(), CommandError> {
    call.reply.array(2 * (call.args.len() - 2));
    for name in call.args.from(2) {
        call.reply.bulk(name);
        call.reply.count(call.server.subscriptions.count(kind, name));
    }
    Ok(())
}

/// PUBSUB NUMPAT.
fn numpat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.count(call.server.subscriptions.names_count(Kind::Pattern));
    Ok(())
}
