//! Loads of Redis's other types: lists, sets, sorted sets, hashes, streams, HyperLogLogs, bitmaps.
//!
//! Commands that remove elements alternate with commands that add them, so that there is always an element to remove.
//! `lpop` is as many RPUSH as LPOP, and both count. Each load has separate keys, which are deleted and filled before
//! every turn. A reply is checked by its type and the number of its elements; a field and a score are compared byte by
//! byte.

use crate::server::keys::{Values, key};
use crate::server::verdict::{Verdict, exact};
use duramen_resp::encode_command;
use duramen_resp::number::digits;

/// One command on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Unlink,
    Lpush,
    Rpush,
    Lpop,
    Rpop,
    Lrange(u32),
    Sadd,
    Spop,
    Smembers(u32),
    Sinter,
    Sunionstore,
    Zunionstore,
    Hset,
    Hget,
    Hgetall(u32),
    Zadd,
    Zpopmin,
    Zscore,
    Zrank,
    Zrange(u32),
    Xadd,
    Xrange(u32),
    Pfadd,
    Setbit,
}

/// The content of each key before a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// So many elements.
    With(u64),
    /// Enough elements for 100,000 in all keys together, and at least four in each.
    Shared,
}

/// The content of the keys, and the commands to send.
#[derive(Debug, PartialEq, Eq)]
pub struct Load {
    pub(crate) name: &'static str,
    prefix: [u8; 4],
    filled: Filled,
    fill: Action,
    sends: &'static [Action],
}

const SHARED: u64 = 100_000;
const SHARED_MIN: u64 = 4;
/// Elements of the sets that are combined.
const COMBINED: u64 = 100_000;
/// The most bits of a bitmap.
const BITS: u64 = 8 * SHARED;

macro_rules! loads {
    ($($name:literal $prefix:literal $filled:expr, $fill:ident, $sends:expr;)*) => {
        &[$(Load { name: $name, prefix: *$prefix, filled: $filled, fill: Action::$fill, sends: &$sends }),*]
    };
}

use Action::{
    Hget, Hgetall, Hset, Lpop, Lpush, Lrange, Pfadd, Rpop, Rpush, Sadd, Setbit, Sinter, Smembers, Spop,
    Sunionstore, Xadd, Xrange, Zadd, Zpopmin, Zrange, Zrank, Zscore, Zunionstore,
};
use Filled::{Shared, With};

static LOADS: &[Load] = loads! {
    "lpush" b"lst:" With(0), Rpush, [Lpush];
    "rpush" b"lst:" With(0), Rpush, [Rpush];
    "lpop" b"lst:" Shared, Rpush, [Rpush, Lpop];
    "rpop" b"lst:" Shared, Rpush, [Lpush, Rpop];
    "lrange_100" b"lr1:" With(100), Rpush, [Lrange(100)];
    "lrange_600" b"lr6:" With(600), Rpush, [Lrange(600)];
    "sadd" b"set:" With(0), Sadd, [Sadd];
    "spop" b"set:" Shared, Sadd, [Sadd, Spop];
    "smembers_100" b"sm1:" With(100), Sadd, [Smembers(100)];
    "sinter" b"big:" With(COMBINED), Sadd, [Sinter];
    "sunionstore" b"big:" With(COMBINED), Sadd, [Sunionstore];
    "zunionstore" b"bgz:" With(COMBINED), Zadd, [Zunionstore];
    "hset" b"hsh:" With(0), Hset, [Hset];
    "hget" b"hsh:" Shared, Hset, [Hget];
    "hgetall_100" b"hg1:" With(100), Hset, [Hgetall(100)];
    "zadd" b"zst:" With(0), Zadd, [Zadd];
    "zpopmin" b"zst:" Shared, Zadd, [Zadd, Zpopmin];
    "zscore" b"zst:" Shared, Zadd, [Zscore];
    "zrank" b"zst:" Shared, Zadd, [Zrank];
    "zrange_100" b"zr1:" With(1000), Zadd, [Zrange(100)];
    "xadd" b"str:" With(0), Xadd, [Xadd];
    "xrange_100" b"xr1:" With(100), Xadd, [Xrange(100)];
    "pfadd" b"hll:" With(0), Pfadd, [Pfadd];
    "setbit" b"bit:" With(0), Setbit, [Setbit];
};

impl Load {
    /// The load of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        LOADS.iter().find(|load| load.name == name)
    }

    pub(crate) fn names() -> String {
        LOADS.iter().map(|load| load.name).collect::<Vec<_>>().join(", ")
    }

    /// Elements of each key before a turn.
    pub(crate) fn elements(&self, keys: u64) -> u64 {
        match self.filled {
            With(count) => count,
            Shared => (SHARED / keys).max(SHARED_MIN),
        }
    }

    /// The number of keys to fill: a command that combines two sets needs two.
    pub(crate) fn keys(&self, keys: u64) -> u64 {
        if matches!(self.sends[0], Sinter | Sunionstore | Zunionstore) { keys.max(2) } else { keys }
    }

    /// Deletes a key.
    pub(crate) fn empty(&self, key: u64) -> Typed {
        Typed { prefix: self.prefix, action: Action::Unlink, key, element: 0 }
    }

    /// Puts one element before a turn. Combined sets have half of their elements in common.
    pub(crate) fn put(&self, key: u64, element: u64) -> Typed {
        let shift =
            if self.filled == With(COMBINED) && self.keys(1) == 2 { key % 2 * COMBINED / 2 } else { 0 };
        Typed { prefix: self.prefix, action: self.fill, key, element: element + shift }
    }

    /// Command `number` of a turn.
    pub(crate) fn send(&self, number: u64, key: u64, element: u64) -> Typed {
        let action = self.sends[(number % self.sends.len() as u64) as usize];
        Typed { prefix: self.prefix, action, key, element }
    }

    /// The number of elements to choose from.
    pub(crate) fn chosen_from(&self, keys: u64) -> u64 {
        match self.sends {
            [Setbit] => (BITS / keys).max(512),
            [Zrange(count)] => self.elements(keys) - u64::from(*count),
            // The elements must exist.
            [Hget | Zscore | Zrank] => self.elements(keys),
            // All added elements are new; otherwise fewer would be added than removed.
            [_, _] => 1_000_000_000_000,
            _ => SHARED,
        }
    }

    /// Whether command `number` works on the same key as the previous one.
    pub(crate) fn goes_on(&self, number: u64) -> bool {
        !number.is_multiple_of(self.sends.len() as u64)
    }
}

/// One complete command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Typed {
    prefix: [u8; 4],
    action: Action,
    key: u64,
    element: u64,
}

impl Typed {
    pub(crate) fn write(self, values: &Values, to: &mut Vec<u8>) {
        let (a, b) = (key(&self.prefix, 0), key(&self.prefix, 1));
        let name = &key(&self.prefix, self.key)[..];
        let member = &key(b"ele:", self.element)[..];
        let mut score = [0; 20];
        let score = digits(self.element, &mut score);
        let value = || values.of(self.element);
        let (mut low, mut high) = ([0; 20], [0; 20]);
        let mut send = |parts: &[&[u8]]| encode_command(to, parts);
        match self.action {
            Action::Unlink => send(&[b"UNLINK", name]),
            Lpush => send(&[b"LPUSH", name, value()]),
            Rpush => send(&[b"RPUSH", name, value()]),
            Lpop => send(&[b"LPOP", name]),
            Rpop => send(&[b"RPOP", name]),
            Lrange(count) => {
                let high = digits(u64::from(count) - 1, &mut high);
                send(&[b"LRANGE", name, b"0", high]);
            }
            Sadd => send(&[b"SADD", name, member]),
            Spop => send(&[b"SPOP", name]),
            Smembers(_) => send(&[b"SMEMBERS", name]),
            Sinter => send(&[b"SINTER", &a, &b]),
            Sunionstore => send(&[b"SUNIONSTORE", b"union", &a, &b]),
            Zunionstore => {
                send(&[b"ZUNIONSTORE", b"unionz", b"2", &a, &b]);
            }
            Hset => send(&[b"HSET", name, member, value()]),
            Hget => send(&[b"HGET", name, member]),
            Hgetall(_) => send(&[b"HGETALL", name]),
            Zadd => send(&[b"ZADD", name, score, member]),
            Zpopmin => send(&[b"ZPOPMIN", name]),
            Zscore => send(&[b"ZSCORE", name, member]),
            Zrank => send(&[b"ZRANK", name, member]),
            Zrange(count) => {
                let low = digits(self.element, &mut low);
                let high = digits(self.element + u64::from(count) - 1, &mut high);
                send(&[b"ZRANGE", name, low, high]);
            }
            Xadd => send(&[b"XADD", name, b"*", b"field", value()]),
            Xrange(_) => send(&[b"XRANGE", name, b"-", b"+"]),
            Pfadd => send(&[b"PFADD", name, member]),
            Setbit => send(&[b"SETBIT", name, score, b"1"]),
        }
    }

    pub(crate) fn judge(self, values: &Values, input: &[u8]) -> Verdict {
        match self.action {
            Hget => exact(input, &[&values.head, values.of(self.element), b"\r\n"]),
            Zscore => {
                let mut room = [0; 20];
                let score = digits(self.element, &mut room);
                let mut head = [0; 20];
                let bytes = digits(score.len() as u64, &mut head);
                exact(input, &[b"$", bytes, b"\r\n", score, b"\r\n"])
            }
            Action::Unlink
            | Lpush
            | Rpush
            | Sadd
            | Sunionstore
            | Zunionstore
            | Hset
            | Zadd
            | Zrank
            | Pfadd
            | Setbit => whole(input, b':', None),
            Lpop | Rpop | Spop | Xadd => whole(input, b'$', None),
            Zpopmin => whole(input, b'*', Some(2)),
            Lrange(count) | Smembers(count) | Zrange(count) | Xrange(count) => {
                whole(input, b'*', Some(count.into()))
            }
            Hgetall(count) => whole(input, b'*', Some(2 * i64::from(count))),
            Sinter => whole(input, b'*', Some((COMBINED / 2) as i64)),
        }
    }
}

/// Checks for a whole reply of this type; an array has so many elements. None of it is nil or an error.
fn whole(input: &[u8], kind: u8, count: Option<i64>) -> Verdict {
    match after(input, 0, Some((kind, count))) {
        Ok(Some(end)) => Verdict::Right(end),
        Ok(None) => Verdict::Incomplete,
        Err(()) => Verdict::Wrong,
    }
}

/// The end of the reply at `at`, if the reply is whole.
fn after(input: &[u8], at: usize, wanted: Option<(u8, Option<i64>)>) -> Result<Option<usize>, ()> {
    let Some(line) = input[at..].iter().take(32).position(|byte| *byte == b'\n') else {
        return if input.len() - at >= 32 { Err(()) } else { Ok(None) };
    };
    let (line, mut end) = (&input[at..at + line], at + line + 1);
    let (kind, number) = (
        line.first().copied().ok_or(())?,
        line.get(1..).and_then(|rest| rest.strip_suffix(b"\r")).ok_or(())?,
    );
    let number: i64 = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok()).ok_or(())?;
    if wanted.is_some_and(|(wanted, count)| kind != wanted || count.is_some_and(|count| count != number)) {
        return Err(());
    }
    match kind {
        b':' => Ok(Some(end)),
        b'$' if number >= 0 => {
            end += number as usize + 2;
            Ok((input.len() >= end).then_some(end))
        }
        b'*' if number >= 0 => {
            for _ in 0..number {
                match after(input, end, None)? {
                    Some(next) => end = next,
                    None => return Ok(None),
                }
            }
            Ok(Some(end))
        }
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(name: &str, reply: &str) -> Verdict {
        let load = Load::named(name).unwrap();
        load.send(0, 0, 7).judge(&Values::new(3), reply.as_bytes())
    }

    #[test]
    fn replies_are_judged_by_type_and_count() {
        let pair = "$1\r\na\r\n$2\r\nbb\r\n";
        for (name, right) in [
            ("sadd", ":1\r\n".to_owned()),
            ("zscore", "$1\r\n7\r\n".to_owned()),
            ("xadd", "$3\r\n1-1\r\n".to_owned()),
            ("lrange_100", format!("*100\r\n{}", pair.repeat(50))),
            ("hgetall_100", format!("*200\r\n{}", pair.repeat(100))),
            ("xrange_100", format!("*100\r\n{}", format!("*2\r\n$3\r\n1-1\r\n*2\r\n{pair}").repeat(100))),
        ] {
            let more = format!("{right}:1\r\n");
            assert_eq!(judged(name, &more), Verdict::Right(right.len()), "{name}");
            for length in 0..right.len() {
                assert_eq!(judged(name, &right[..length]), Verdict::Incomplete, "{name} {length}");
            }
        }
    }

    #[test]
    fn wrong_replies_are_reported_as_wrong() {
        for (name, reply) in [
            ("sadd", "+OK\r\n"),
            ("sadd", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
            ("zscore", "$1\r\n8\r\n"),
            ("xadd", "$-1\r\n"),
            ("lrange_100", "*99\r\n"),
            ("lrange_100", "*-1\r\n"),
            ("smembers_100", "*100\r\n$-1\r\n"),
        ] {
            assert_eq!(judged(name, reply), Verdict::Wrong, "{name} {reply}");
        }
        let load = Load::named("lpop").unwrap();
        assert_eq!(load.send(1, 0, 7).judge(&Values::new(3), b"$-1\r\n"), Verdict::Wrong);
    }

    #[test]
    fn typed_commands_are_complete() {
        let load = Load::named("zrange_100").unwrap();
        let mut bytes = Vec::new();
        load.send(0, 3, 95).write(&Values::new(3), &mut bytes);
        let wanted = "*4\r\n$6\r\nZRANGE\r\n$16\r\nzr1:000000000003\r\n$2\r\n95\r\n$3\r\n194\r\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), wanted);
    }

    #[test]
    fn a_load_of_two_commands_begins_with_elements() {
        for load in LOADS.iter().filter(|load| load.sends.len() == 2) {
            assert!(load.elements(100_000) > 0, "{}", load.name);
        }
    }
}
