//! SORT and SORT_RO: the elements of a list, a set or a sorted set, ordered by themselves or by the values of other
//! keys.

use super::{Args, Call, Command, CommandError, errors};
use crate::observe::keyspace_events::LIST;
use duramen_structures::Type;
use duramen_structures::string::double;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[Command::new("sort", sort), Command::new("sort_ro", sort_ro)];

const BY_DENIED: CommandError =
    CommandError::new("ERR BY option of SORT denied due to insufficient ACL permissions.");
const GET_DENIED: CommandError =
    CommandError::new("ERR GET option of SORT denied due to insufficient ACL permissions.");
const NOT_DOUBLE: CommandError = CommandError::new("ERR One or more scores can't be converted into double");

/// `SORT key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern …]] [ASC | DESC] [ALPHA] [STORE destination]`: the
/// elements in order, or what the patterns lead to from them; with STORE how many.
pub fn sort(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    run(call, true)
}

/// SORT_RO key …: SORT without STORE.
pub fn sort_ro(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    run(call, false)
}

#[derive(Default)]
struct Options<'a> {
    by: Option<&'a [u8]>,
    get: Vec<&'a [u8]>,
    is_descending: bool,
    is_alpha: bool,
    offset: i64,
    /// Negative: all.
    count: i64,
    destination: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>, stores: bool, may_read_all: bool) -> Result<Self, CommandError> {
        let mut options = Self { count: -1, ..Self::default() };
        let mut at = 2;
        while at < args.len() {
            let left = args.len() - at - 1;
            at += 1 + match () {
                () if args.is(at, "asc") => {
                    options.is_descending = false;
                    0
                }
                () if args.is(at, "desc") => {
                    options.is_descending = true;
                    0
                }
                () if args.is(at, "alpha") => {
                    options.is_alpha = true;
                    0
                }
                () if left >= 2 && args.is(at, "limit") => {
                    (options.offset, options.count) = (args.integer(at + 1)?, args.integer(at + 2)?);
                    2
                }
                () if left >= 1 && stores && args.is(at, "store") => {
                    options.destination = args.get(at + 1);
                    1
                }
                () if left >= 1 && args.is(at, "by") => {
                    options.by = args.get(at + 1);
                    if !may_read_all && !options.keeps_order() {
                        return Err(BY_DENIED);
                    }
                    1
                }
                () if left >= 1 && args.is(at, "get") => {
                    if !may_read_all {
                        return Err(GET_DENIED);
                    }
                    options.get.push(args.at(at + 1));
                    1
                }
                () => return Err(errors::SYNTAX),
            };
        }
        Ok(options)
    }

    /// Whether the elements stay in the order that they have: BY a pattern that is the same for all.
    fn keeps_order(&self) -> bool {
        self.by.is_some_and(|pattern| star(pattern).is_none())
    }

    /// Which of so many elements LIMIT asks for.
    fn part(&self, len: usize) -> Range<usize> {
        let within = |at: i64| usize::try_from(at).unwrap_or(0).min(len);
        let from = within(self.offset);
        let count = if self.count < 0 { len } else { within(self.count) };
        from..len.min(from + count)
    }
}

/// What an element is compared by.
enum Weight<'e> {
    Number(f64),
    /// `None`: its key is missing.
    Text(Option<Cow<'e, [u8]>>),
}

fn run(call: &mut Call<'_, '_>, stores: bool) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let spec = &call.entry.spec;
    let may_read_all = call.session.login.may_read_all(&call.server.users, spec, call.entry.index, args);
    let options = Options::parse(args, stores, may_read_all)?;
    let (elements, type_) = elements(call)?;
    // A set has no stable order that could be stored, or on which a script could rely.
    let wants_order = options.destination.is_some() || call.worker_state.is_in_script;
    let orders_set = options.keeps_order() && type_ == Some(Type::Set) && wants_order;
    let sorted: Vec<&[u8]> = if options.keeps_order() && !orders_set {
        let backwards = options.is_descending && type_ != Some(Type::Set);
        let mut elements: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
        if backwards {
            elements.reverse();
        }
        elements
    } else {
        let by = options.by.filter(|_| !orders_set);
        ordered(call, &elements, by, options.is_alpha || orders_set, &options)?
    };
    let sorted = &sorted[options.part(sorted.len())];
    let mut values: Vec<Option<Cow<'_, [u8]>>> = Vec::new();
    for element in sorted {
        if options.get.is_empty() {
            values.push(Some(Cow::Borrowed(element)));
        }
        for pattern in &options.get {
            values.push(look_up(call, pattern, element)?);
        }
    }
    match options.destination {
        None => {
            call.reply.array(values.len());
            for value in &values {
                match value {
                    Some(value) => call.reply.bulk(value),
                    None => call.reply.null(),
                }
            }
        }
        Some(destination) => {
            let values: Vec<&[u8]> =
                values.iter().map(|value| value.as_deref().unwrap_or_default()).collect();
            call.will_write(destination);
            let is_gone = values.is_empty() && call.txn.delete(db, destination)?;
            if !values.is_empty() {
                call.txn.put_list(db, destination, &values)?;
            }
            call.reply.count(values.len());
            call.notify_stored(LIST, "sortstore", destination, values.len(), is_gone);
        }
    }
    Ok(())
}

/// The elements to sort, in their present order.
fn elements(call: &mut Call<'_, '_>) -> Result<(Vec<Vec<u8>>, Option<Type>), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let tag = call.stats.read(call.txn.look(db, key)?).map(|found| found.tag);
    let Some(tag) = tag else { return Ok((Vec::new(), None)) };
    let owned = |elements: Vec<&[u8]>| elements.into_iter().map(<[u8]>::to_vec).collect();
    let type_ = Type::of_tag(tag);
    let elements = match type_ {
        Some(Type::List) => call.txn.list(db, key)?.map(|list| list.list().map(owned)),
        Some(Type::Set) => call.txn.set(db, key)?.map(|set| set.list().map(owned)),
        Some(Type::SortedSet) => call
            .txn
            .sorted_set(db, key)?
            .map(|set| Ok(owned(set.scored()?.into_iter().map(|(member, _)| member).collect()))),
        _ => return Err(errors::WRONG_TYPE),
    };
    Ok((elements.transpose()?.unwrap_or_default(), type_))
}

fn ordered<'e>(
    call: &mut Call<'_, '_>,
    elements: &'e [Vec<u8>],
    by: Option<&[u8]>,
    is_alpha: bool,
    options: &Options<'_>,
) -> Result<Vec<&'e [u8]>, CommandError> {
    let (mut weighed, mut all_numbers) = (Vec::with_capacity(elements.len()), true);
    for element in elements {
        let text = match by {
            Some(pattern) => look_up(call, pattern, element)?,
            None => Some(Cow::Borrowed(&element[..])),
        };
        let weight = match text {
            text if is_alpha => Weight::Text(text),
            Some(text) => {
                let number = double::parse_weight(&text);
                all_numbers &= number.is_some();
                Weight::Number(number.unwrap_or_default())
            }
            None => Weight::Number(0.0),
        };
        weighed.push((&element[..], weight));
    }
    // The others are looked up all the same, as in the reference.
    if !all_numbers {
        return Err(NOT_DOUBLE);
    }
    let stores = options.destination.is_some();
    let texts = |x: &[u8], y: &[u8]| if stores { x.cmp(y) } else { until_zero(x).cmp(until_zero(y)) };
    weighed.sort_by(|(a, weight_a), (b, weight_b)| {
        let order = match (weight_a, weight_b) {
            (Weight::Number(x), Weight::Number(y)) => {
                x.partial_cmp(y).unwrap_or(Ordering::Equal).then(a.cmp(b))
            }
            (Weight::Text(Some(x)), Weight::Text(Some(y))) => texts(x, y),
            (Weight::Text(x), Weight::Text(y)) => x.is_some().cmp(&y.is_some()),
            _ => Ordering::Equal,
        };
        if options.is_descending { order.reverse() } else { order }
    });
    Ok(weighed.into_iter().map(|(element, _)| element).collect())
}

/// Where the element goes in a pattern.
fn star(pattern: &[u8]) -> Option<usize> {
    until_zero(pattern).iter().position(|byte| *byte == b'*')
}

/// A text as the reference's C functions see it.
fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Looks up a pattern for an element. `#` is the element itself. Otherwise the element replaces the first `*`, which
/// gives the key of a string, or with `->` the key and field of a hash.
fn look_up<'e>(
    call: &mut Call<'_, '_>,
    pattern: &[u8],
    element: &'e [u8],
) -> Result<Option<Cow<'e, [u8]>>, CommandError> {
    if pattern == b"#" {
        return Ok(Some(Cow::Borrowed(element)));
    }
    let Some(star) = star(pattern) else { return Ok(None) };
    let (before, after) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = until_zero(after).windows(2).position(|two| two == b"->");
    let (after, field) = match arrow {
        Some(at) if at + 2 < after.len() => (&after[..at], Some(&after[at + 2..])),
        _ => (after, None),
    };
    let key = [before, element, after].concat();
    let db = call.session.db;
    let Some(found) = call.stats.read(call.txn.get(db, &key)?) else {
        call.missed(db, &key);
        return Ok(None);
    };
    match (Type::of_tag(found.tag()), field) {
        (Some(Type::String), None) => Ok(Some(Cow::Owned(found.to_vec()))),
        (Some(Type::Hash), Some(field)) => {
            let Some(hash) = call.txn.hash(db, &key)? else { return Ok(None) };
            Ok(hash.get(field)?.map(|value| Cow::Owned(value.to_vec())))
        }
        _ => Ok(None),
    }
}
