//! Commands on places, which are members of sorted sets: GEOADD, GEOPOS, GEODIST, GEOHASH, and the searches GEOSEARCH,
//! GEOSEARCHSTORE, GEORADIUS and GEORADIUSBYMEMBER.

use super::{Args, Call, Command, CommandError, errors, sorted_set};
use crate::observe::keyspace_events::SORTED_SET;
use crate::redis::resp::Reply;
use duramen_structures::geo::{Place, Search, Shape};
use duramen_structures::string::double;
use duramen_structures::string::long_double::LongDouble;
use duramen_structures::{Scored, Stored, score_of};
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("geoadd", geoadd),
    Command::new("geopos", geopos),
    Command::new("geodist", geodist),
    Command::new("geohash", geohash),
    Command::new("geosearch", geosearch),
    Command::new("geosearchstore", geosearchstore),
    Command::new("georadius", georadius),
    Command::new("georadius_ro", georadius_ro),
    Command::new("georadiusbymember", georadiusbymember),
    Command::new("georadiusbymember_ro", georadiusbymember_ro),
];

const UNIT: CommandError = CommandError::new("ERR unsupported unit provided. please use M, KM, FT, MI");
const NO_MEMBER: CommandError = CommandError::new("ERR could not decode requested zset member");

/// `GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member …]`: the number of new members; with
/// CH of new and moved ones.
pub fn geoadd(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let mut options = sorted_set::Options::default();
    let mut at = 2;
    while at < args.len() {
        match () {
            () if args.is(at, "nx") => options.only_new = true,
            () if args.is(at, "xx") => options.only_old = true,
            () if args.is(at, "ch") => options.counts_changes = true,
            () => break,
        }
        at += 1;
    }
    if !(args.len() - at).is_multiple_of(3) || options.only_new && options.only_old {
        return Err(errors::SYNTAX);
    }
    let mut given: Vec<Scored<'_>> = Vec::with_capacity((args.len() - at) / 3);
    for at in (at..args.len()).step_by(3) {
        given.push((args.at(at + 2), place(args, at)?.score()));
    }
    sorted_set::add_members(call, &options, &given)
}

/// GEOPOS key [member …]: where each is.
pub fn geopos(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let scores = scores_of(call, call.args.from(2))?;
    call.reply.array(scores.len());
    for score in scores {
        match score {
            Some(score) => reply_place(&mut call.reply, Place::of_score(score)),
            None => call.reply.null_array(),
        }
    }
    Ok(())
}

/// GEODIST key member member [M | KM | FT | MI]: how far they are from each other.
pub fn geodist(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let unit = match args.len() {
        4 => 1.0,
        5 => meters_of(args.at(4))?,
        _ => return Err(errors::SYNTAX),
    };
    let scores = scores_of(call, args.from(2).take(2))?;
    match scores[..] {
        [Some(from), Some(to)] => {
            let meters = Place::of_score(from).meters_to(Place::of_score(to));
            reply_distance(&mut call.reply, meters / unit);
        }
        _ => call.reply.null(),
    }
    Ok(())
}

/// GEOHASH key [member …]: the geohash of each, in eleven letters.
pub fn geohash(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let scores = scores_of(call, call.args.from(2))?;
    call.reply.array(scores.len());
    for score in scores {
        match score {
            Some(score) => call.reply.bulk(Place::of_score(score).geohash().as_bytes()),
            None => call.reply.null(),
        }
    }
    Ok(())
}

/// GEOSEARCH key FROMMEMBER member | FROMLONLAT longitude latitude, BYRADIUS radius unit | BYBOX width height unit,
/// `[ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]`: the members within the area.
pub fn geosearch(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    search(call, Form { key: 1, options: 2, from: From::Options, stores: false })
}

/// GEOSEARCHSTORE destination source …: GEOSEARCH into a key, with STOREDIST by distance; replies with their number.
pub fn geosearchstore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    search(call, Form { key: 2, options: 3, from: From::Options, stores: true })
}

/// `GEORADIUS key longitude latitude radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]`
/// [STORE key | STOREDIST key]: the members within a circle.
pub fn georadius(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    search(call, Form { key: 1, options: 6, from: From::Place, stores: true })
}

/// GEORADIUS_RO key longitude latitude radius unit …: GEORADIUS without STORE.
pub fn georadius_ro(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    search(call, Form { key: 1, options: 6, from: From::Place, stores: false })
}

/// GEORADIUSBYMEMBER key member radius unit …: GEORADIUS around a member.
pub fn georadiusbymember(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    search(call, Form { key: 1, options: 5, from: From::Member, stores: true })
}

/// GEORADIUSBYMEMBER_RO key member radius unit …: GEORADIUSBYMEMBER without STORE.
pub fn georadiusbymember_ro(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    search(call, Form { key: 1, options: 5, from: From::Member, stores: false })
}

/// Longitude and latitude, the arguments from `at` on.
fn place(args: Args<'_>, at: usize) -> Result<Place, CommandError> {
    let degrees = |at| double::parse(args.at(at)).ok_or(errors::NOT_FLOAT);
    let place = Place { longitude: degrees(at)?, latitude: degrees(at + 1)? };
    if place.is_valid() {
        return Ok(place);
    }
    let Place { longitude, latitude } = place;
    Err(CommandError::with(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// Meters of a unit.
fn meters_of(unit: &[u8]) -> Result<f64, CommandError> {
    match () {
        () if unit.eq_ignore_ascii_case(b"m") => Ok(1.0),
        () if unit.eq_ignore_ascii_case(b"km") => Ok(1000.0),
        () if unit.eq_ignore_ascii_case(b"ft") => Ok(0.3048),
        () if unit.eq_ignore_ascii_case(b"mi") => Ok(1609.34),
        () => Err(UNIT),
    }
}

/// The scores of members of the sorted set at the first argument.
fn scores_of<'a>(
    call: &mut Call<'_, '_>,
    members: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<Vec<Option<f64>>, CommandError> {
    let Some(set) = call.stats.read(call.txn.sorted_set(call.session.db, call.args.at(1))?) else {
        return Ok(vec![None; members.len()]);
    };
    let mut scores = Vec::with_capacity(members.len());
    set.get_each(members, |score| scores.push(score.map(score_of)))?;
    Ok(scores)
}

fn reply_place(reply: &mut Reply<'_>, place: Place) {
    reply.array(2);
    reply.double(&LongDouble::from(place.longitude).text());
    reply.double(&LongDouble::from(place.latitude).text());
}

fn reply_distance(reply: &mut Reply<'_>, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

/// The parts of a search that its command's name decides.
#[derive(Clone, Copy)]
struct Form {
    /// The argument that is the key.
    key: usize,
    /// The first that is an option.
    options: usize,
    from: From,
    /// Whether the result may be stored at a key.
    stores: bool,
}

/// The center of a search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Place,
    Member,
    Options,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Ascending,
    Descending,
}

/// The search, and how its result is used.
#[derive(Default)]
struct Options<'a> {
    from: Option<Place>,
    shape: Option<Shape>,
    /// Meters per unit of the returned distances.
    unit: f64,
    /// The search is around a member; without a place its key is missing.
    is_around_member: bool,
    has_distance: bool,
    has_hash: bool,
    has_place: bool,
    sort: Option<Sort>,
    count: usize,
    is_any: bool,
    destination: Option<&'a [u8]>,
    stores_distance: bool,
}

/// The members that were found.
struct Found {
    member: Vec<u8>,
    score: f64,
    place: Place,
    meters: f64,
}

impl<'a> Options<'a> {
    fn parse(
        args: Args<'a>,
        form: Form,
        member: impl Fn(&[u8]) -> Result<Option<Place>, CommandError>,
    ) -> Result<Self, CommandError> {
        let mut options = Self { unit: 1.0, ..Self::default() };
        match form.from {
            From::Place => {
                options.from = Some(place(args, 2)?);
                options.circle(args, 4)?;
            }
            From::Member => {
                options.from = member(args.at(2))?;
                options.is_around_member = true;
                // For a missing key the radius is not checked, as in Redis.
                if options.from.is_some() {
                    options.circle(args, 3)?;
                }
            }
            From::Options if form.stores => options.destination = Some(args.at(1)),
            From::Options => {}
        }
        let (mut at, is_search) = (form.options, form.from == From::Options);
        while at < args.len() {
            let left = args.len() - at - 1;
            at += 1 + match () {
                () if args.is(at, "withdist") => Self::set(&mut options.has_distance),
                () if args.is(at, "withhash") => Self::set(&mut options.has_hash),
                () if args.is(at, "withcoord") => Self::set(&mut options.has_place),
                () if args.is(at, "any") => Self::set(&mut options.is_any),
                () if args.is(at, "asc") => {
                    options.sort = Some(Sort::Ascending);
                    0
                }
                () if args.is(at, "desc") => {
                    options.sort = Some(Sort::Descending);
                    0
                }
                () if left >= 1 && args.is(at, "count") => {
                    let count = usize::try_from(args.integer(at + 1)?).ok().filter(|count| *count > 0);
                    options.count = count.ok_or(CommandError::new("ERR COUNT must be > 0"))?;
                    1
                }
                () if left >= 1 && form.stores && !is_search && args.is(at, "store") => {
                    (options.destination, options.stores_distance) = (args.get(at + 1), false);
                    1
                }
                () if left >= 1 && form.stores && !is_search && args.is(at, "storedist") => {
                    (options.destination, options.stores_distance) = (args.get(at + 1), true);
                    1
                }
                () if form.stores && is_search && args.is(at, "storedist") => {
                    Self::set(&mut options.stores_distance)
                }
                () if is_search => options.area(args, at, left, &member)?,
                () => return Err(errors::SYNTAX),
            };
        }
        options.check(args, form)?;
        Ok(options)
    }

    fn set(option: &mut bool) -> usize {
        *option = true;
        0
    }

    /// FROMMEMBER, FROMLONLAT, BYRADIUS or BYBOX, with its number of arguments.
    fn area(
        &mut self,
        args: Args<'a>,
        at: usize,
        left: usize,
        member: impl Fn(&[u8]) -> Result<Option<Place>, CommandError>,
    ) -> Result<usize, CommandError> {
        let is_around_place = self.from.is_some() && !self.is_around_member;
        match () {
            () if left >= 1 && args.is(at, "frommember") && !is_around_place => {
                self.from = member(args.at(at + 1))?;
                self.is_around_member = true;
                Ok(1)
            }
            () if left >= 2 && args.is(at, "fromlonlat") && !self.is_around_member => {
                self.from = Some(place(args, at + 1)?);
                Ok(2)
            }
            () if left >= 2 && args.is(at, "byradius") && !matches!(self.shape, Some(Shape::Box { .. })) => {
                self.circle(args, at + 1)?;
                Ok(2)
            }
            () if left >= 3 && args.is(at, "bybox") && !matches!(self.shape, Some(Shape::Circle { .. })) => {
                self.rectangle(args, at + 1)?;
                Ok(3)
            }
            () => Err(errors::SYNTAX),
        }
    }

    fn circle(&mut self, args: Args<'a>, at: usize) -> Result<(), CommandError> {
        let radius = length(args, at, "ERR need numeric radius")?;
        if radius < 0.0 {
            return Err(CommandError::new("ERR radius cannot be negative"));
        }
        self.unit = meters_of(args.at(at + 1))?;
        self.shape = Some(Shape::Circle { radius: radius * self.unit });
        Ok(())
    }

    fn rectangle(&mut self, args: Args<'a>, at: usize) -> Result<(), CommandError> {
        let width = length(args, at, "ERR need numeric width")?;
        let height = length(args, at + 1, "ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err(CommandError::new("ERR height or width cannot be negative"));
        }
        self.unit = meters_of(args.at(at + 2))?;
        self.shape = Some(Shape::Box { width: width * self.unit, height: height * self.unit });
        Ok(())
    }

    fn check(&self, args: Args<'_>, form: Form) -> Result<(), CommandError> {
        let is_search = form.from == From::Options;
        if self.destination.is_some() && (self.has_distance || self.has_hash || self.has_place) {
            let what = if is_search { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(CommandError::with(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let name = args.at(0);
        if is_search && self.from.is_none() && !self.is_around_member {
            let text = "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ";
            return Err(CommandError::ending(text, name));
        }
        if is_search && self.shape.is_none() {
            let text = "ERR exactly one of BYRADIUS and BYBOX can be specified for ";
            return Err(CommandError::ending(text, name));
        }
        if self.is_any && self.count == 0 {
            return Err(CommandError::new("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }
}

fn length(args: Args<'_>, at: usize, error: &'static str) -> Result<f64, CommandError> {
    double::parse(args.at(at)).ok_or(CommandError::new(error))
}

fn search(call: &mut Call<'_, '_>, form: Form) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let set = call.stats.read(call.txn.sorted_set(db, args.at(form.key))?);
    let options = Options::parse(args, form, |member| match &set {
        None => Ok(None),
        Some(set) => set.score(member)?.map(|score| Some(Place::of_score(score))).ok_or(NO_MEMBER),
    })?;
    let mut found = match (&set, options.from, options.shape) {
        (Some(set), Some(from), Some(shape)) => find(set, Search { from, shape }, &options)?,
        _ => Vec::new(),
    };
    drop(set);
    let sort = options.sort.or((options.count > 0 && !options.is_any).then_some(Sort::Ascending));
    let nearer = |a: &Found, b: &Found| a.meters.partial_cmp(&b.meters).unwrap_or(Ordering::Equal);
    match sort {
        Some(Sort::Ascending) => found.sort_by(nearer),
        Some(Sort::Descending) => found.sort_by(|a, b| nearer(b, a)),
        None => {}
    }
    if options.count > 0 {
        found.truncate(options.count);
    }
    let Some(destination) = options.destination else {
        reply(&mut call.reply, &found, &options);
        return Ok(());
    };
    let score = |found: &Found| {
        if options.stores_distance { found.meters / options.unit } else { found.score }
    };
    let members = found.iter().map(|found| (&found.member[..], score(found))).collect();
    let is_gone = found.is_empty() && call.txn.exists(db, destination)?;
    call.txn.put_sorted_set(db, destination, members)?;
    call.reply.count(found.len());
    let event = if call.entry.spec.name == "geosearchstore" { "geosearchstore" } else { "georadiusstore" };
    call.notify_stored(SORTED_SET, event, destination, found.len(), is_gone);
    Ok(())
}

/// The result of a search among the members of a sorted set. It reads only members whose scores may be within its area.
fn find(set: &Stored<'_, '_>, search: Search, options: &Options<'_>) -> Result<Vec<Found>, CommandError> {
    let mut found = Vec::new();
    let is_enough = |found: &Vec<Found>| options.is_any && found.len() == options.count;
    for (min, max) in search.scores() {
        let part = set.below(min, false)?..set.below(max, false)?;
        set.visit_part(part, false, |member, score| {
            let place = Place::of_score(score);
            if let Some(meters) = search.meters_to(place) {
                found.push(Found { member: member.to_vec(), score, place, meters });
            }
            if is_enough(&found) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if is_enough(&found) {
            break;
        }
    }
    Ok(found)
}

fn reply(reply: &mut Reply<'_>, found: &[Found], options: &Options<'_>) {
    let more = [options.has_distance, options.has_hash, options.has_place];
    let more = more.into_iter().filter(|has| *has).count();
    reply.array(found.len());
    for found in found {
        if more > 0 {
            reply.array(1 + more);
        }
        reply.bulk(&found.member);
        if options.has_distance {
            reply_distance(reply, found.meters / options.unit);
        }
        if options.has_hash {
            reply.integer(found.score as i64);
        }
        if options.has_place {
            reply_place(reply, found.place);
        }
    }
}
