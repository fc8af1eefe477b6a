//! CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR: a client keeps copies and gets an invalidation when one is out
//! of date.

use crate::acl::Denied;
use crate::redis::command::{Args, Call, CommandError, denied, errors};
use crate::redis::tracking::Tracks;

const NOT_TRACKING: CommandError = CommandError::new(
    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
);

/// CLIENT TRACKING ON|OFF [REDIRECT id] [BCAST] [PREFIX prefix …] [OPTIN] [OPTOUT] [NOLOOP].
pub fn tracking(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (mut tracks, given) = parse(call)?;
    if call.args.is(2, "on") {
        let before = call.session.tracks.as_deref();
        check(&tracks, &given, before)?;
        // The prefixes are added to the client's.
        tracks.prefixes = before.map(|before| before.prefixes.clone()).unwrap_or_default();
        tracks.caching = before.is_some_and(|before| before.caching);
        tracks.prefixes.extend(given.into_iter().map(Box::from));
        if tracks.broadcast && tracks.prefixes.is_empty() {
            tracks.prefixes.insert(Box::default());
        }
        // Else it would be told names of keys that it may not read.
        let (login, users) = (&mut call.session.login, &call.server.users);
        if !tracks.prefixes.iter().all(|prefix| login.may_read_all_with(users, prefix)) {
            return Err(denied::denied(Denied::Key(0), call.entry.spec.name));
        }
        call.server.tracking.begin(&call.session.client, &tracks);
        call.server.listen_to_store();
        call.session.tracks = Some(Box::new(tracks));
    } else if call.args.is(2, "off") {
        call.worker_state.track_no_more(call.server, call.session);
    } else {
        return Err(errors::SYNTAX);
    }
    call.reply.ok();
    Ok(())
}

/// The options, and the prefixes in their order.
fn parse<'a>(call: &Call<'a, '_>) -> Result<(Tracks, Vec<&'a [u8]>), CommandError> {
    let args: Args<'a> = call.args;
    let mut tracks = Tracks::default();
    let mut given: Vec<&'a [u8]> = Vec::new();
    let mut at = 3;
    while at < args.len() {
        let has_more = at + 1 < args.len();
        if args.is(at, "redirect") && has_more {
            at += 1;
            if tracks.redirect.is_some() {
                return Err(CommandError::new("ERR A client can only redirect to a single other client"));
            }
            let id =
                u64::try_from(args.integer(at)?).ok().filter(|id| call.server.clients.find(*id).is_some());
            let id = id.ok_or(CommandError::new("ERR The client ID you want redirect to does not exist"))?;
            tracks.redirect = Some(id);
        } else if args.is(at, "bcast") {
            tracks.broadcast = true;
        } else if args.is(at, "optin") {
            tracks.opt_in = true;
        } else if args.is(at, "optout") {
            tracks.opt_out = true;
        } else if args.is(at, "noloop") {
            tracks.no_loop = true;
        } else if args.is(at, "prefix") && has_more {
            at += 1;
            given.push(args.at(at));
        } else {
            return Err(errors::SYNTAX);
        }
        at += 1;
    }
    Ok((tracks, given))
}

/// Whether the options are compatible with each other and with the client's present ones.
fn check(tracks: &Tracks, given: &[&[u8]], before: Option<&Tracks>) -> Result<(), CommandError> {
    let error = |text| Err(CommandError::new(text));
    if !given.is_empty() && !tracks.broadcast {
        return error("ERR PREFIX option requires BCAST mode to be enabled");
    }
    if before.is_some_and(|before| before.broadcast != tracks.broadcast) {
        return error(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
        );
    }
    if tracks.broadcast && (tracks.opt_in || tracks.opt_out) {
        return error("ERR OPTIN and OPTOUT are not compatible with BCAST");
    }
    if tracks.opt_in && tracks.opt_out {
        return error("ERR You can't specify both OPTIN mode and OPTOUT mode");
    }
    if before.is_some_and(|before| tracks.opt_in && before.opt_out || tracks.opt_out && before.opt_in) {
        return error(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
        );
    }
    collisions(given, before)
}

fn overlap(one: &[u8], other: &[u8]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn collisions(given: &[&[u8]], before: Option<&Tracks>) -> Result<(), CommandError> {
    let existing = || before.into_iter().flat_map(|before| &before.prefixes);
    for (at, prefix) in given.iter().enumerate() {
        let (other, what) = match existing().find(|other| overlap(prefix, other)) {
            Some(other) => (&**other, "an existing"),
            None => match given[at + 1..].iter().find(|other| overlap(prefix, other)) {
                Some(other) => (*other, "another provided"),
                None => continue,
            },
        };
        return Err(CommandError::showing("ERR Prefix '", prefix, "'").and_showing(
            &format!(" overlaps with {what} prefix '"),
            other,
            "'. Prefixes for a single client must not overlap.",
        ));
    }
    Ok(())
}

/// CLIENT CACHING YES|NO: whether the keys of the next command are remembered.
pub fn caching(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let tracks = call.session.tracks.as_deref_mut().ok_or(NOT_TRACKING)?;
    let (is_allowed, error) = match (call.args.is(2, "yes"), call.args.is(2, "no")) {
        (true, _) => {
            (tracks.opt_in, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
        }
        (_, true) => {
            (tracks.opt_out, "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
        }
        _ => return Err(errors::SYNTAX),
    };
    if !is_allowed {
        return Err(CommandError::new(error));
    }
    tracks.caching = true;
    call.reply.ok();
    Ok(())
}

/// The client that gets the invalidations: 0 is this one, -1 none.
fn redirect(tracks: Option<&Tracks>) -> i64 {
    tracks.map_or(-1, |tracks| tracks.redirect.unwrap_or(0) as i64)
}

/// CLIENT GETREDIR.
pub fn get_redirect(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.integer(redirect(call.session.tracks.as_deref()));
    Ok(())
}

/// CLIENT TRACKINGINFO.
pub fn info(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let tracks = call.session.tracks.as_deref();
    let is = |flag: fn(&Tracks) -> bool| tracks.is_some_and(flag);
    let flags = [
        (tracks.is_none(), "off"),
        (tracks.is_some(), "on"),
        (is(|tracks| tracks.broadcast), "bcast"),
        (is(|tracks| tracks.opt_in), "optin"),
        (is(|tracks| tracks.opt_in && tracks.caching), "caching-yes"),
        (is(|tracks| tracks.opt_out), "optout"),
        (is(|tracks| tracks.opt_out && tracks.caching), "caching-no"),
        (is(|tracks| tracks.no_loop), "noloop"),
        (is(|tracks| tracks.is_broken), "broken_redirect"),
    ];
    let reply = &mut call.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.iter().filter(|(is_so, _)| *is_so).count());
    flags.iter().filter(|(is_so, _)| *is_so).for_each(|(_, flag)| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(redirect(tracks));
    reply.bulk(b"prefixes");
    reply.array(tracks.map_or(0, |tracks| tracks.prefixes.len()));
    tracks.into_iter().flat_map(|tracks| &tracks.prefixes).for_each(|prefix| reply.bulk(prefix));
    Ok(())
}
