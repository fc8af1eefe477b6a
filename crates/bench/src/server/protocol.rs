//! Writes commands as bytes, and checks replies.
//!
//! A reply is parsed only as far as the check needs: the expected reply is known, so most replies are compared byte by
//! byte.

use crate::server::keys::{KEY_BYTES, Values, key as key_bytes};
use crate::server::typed::Typed;
use crate::server::verdict::{Verdict, exact};
use duramen_resp::command::{bulk_string, decimal};
use std::fmt;
use std::str::FromStr;

/// Keys in one MSET, as many as redis-benchmark sets.
pub(crate) const MSET_KEYS: u64 = 10;
/// Keys in one MGET, or one `get` of memcached.
pub(crate) const MGET_KEYS: u64 = 100;

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP 2.
    Redis,
    /// The text protocol.
    Memcached,
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "redis" => Ok(Self::Redis),
            "memcached" => Ok(Self::Memcached),
            _ => Err(format!("{text:?} is no protocol: wanted redis or memcached")),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        })
    }
}

/// One command in flight, and its expected reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Set this key: "done".
    Set(u64),
    /// Get this key: its value.
    Get(u64),
    /// Increment this key: the reply is at least this number, since others increment it too.
    Incr(u64, u32),
    /// Read this counter: exactly this number.
    Counter(u64, u32),
    /// Set this counter to 0: "done".
    Zero(u64),
    /// Set ten keys from this one on: "done".
    Mset(u64),
    /// Get a hundred keys from this one on: their values, in this order.
    Mget(u64),
    /// Get this key with its CAS number.
    Gets(u64),
    /// Set this key if it has this CAS number: "done", or "it has another one", since others set it too.
    Cas(u64, u64),
    /// Set this key's expiry time, to never: "done".
    Touch(u64),
    /// A command of another type than strings.
    Typed(Typed),
}

const COUNTER: &[u8; 4] = b"num:";
const KEY: &[u8; 4] = b"key:";

impl Protocol {
    /// Writes a command.
    pub(crate) fn write(self, sent: Sent, values: &Values, keys: u64, to: &mut Vec<u8>) {
        match self {
            Self::Redis => write_redis(sent, values, keys, to),
            Self::Memcached => write_memcached(sent, values, keys, to),
        }
    }

    /// Checks the reply at the start of `input`.
    pub(crate) fn judge(self, sent: Sent, values: &Values, keys: u64, input: &[u8]) -> Verdict {
        match (self, sent) {
            (_, Sent::Mget(first)) => self.judge_many(first, values, keys, input),
            // No plan has them for Redis: see `Plan::check`.
            (_, Sent::Gets(key)) => numbered_value(input, key, values),
            (_, Sent::Cas(..)) => match exact(input, &[b"STORED\r\n"]) {
                Verdict::Wrong => exact(input, &[b"EXISTS\r\n"]),
                verdict => verdict,
            },
            (_, Sent::Touch(_)) => exact(input, &[b"TOUCHED\r\n"]),
            (Self::Redis, Sent::Set(_) | Sent::Mset(_) | Sent::Zero(_)) => exact(input, &[b"+OK\r\n"]),
            (Self::Redis, Sent::Get(key)) => exact(input, &[&values.head, values.of(key), b"\r\n"]),
            (Self::Redis, Sent::Incr(_, least)) => number(input, b":", |found| found >= u64::from(least)),
            (Self::Redis, Sent::Counter(_, wanted)) => {
                let text = wanted.to_string();
                bulk(input, text.as_bytes())
            }
            (_, Sent::Typed(typed)) => typed.judge(values, input),
            (Self::Memcached, Sent::Set(_) | Sent::Mset(_) | Sent::Zero(_)) => exact(input, &[b"STORED\r\n"]),
            (Self::Memcached, Sent::Get(key)) => memcached_value(input, KEY, key, values.of(key)),
            (Self::Memcached, Sent::Incr(_, least)) => number(input, b"", |found| found >= u64::from(least)),
            (Self::Memcached, Sent::Counter(key, wanted)) => {
                memcached_value(input, COUNTER, key, wanted.to_string().as_bytes())
            }
        }
    }

    /// Checks the reply to a command whose key may be absent.
    pub(crate) fn judge_miss(self, sent: Sent, input: &[u8]) -> Verdict {
        match (self, sent) {
            (Self::Redis, Sent::Get(_)) => exact(input, &[b"$-1\r\n"]),
            (Self::Memcached, Sent::Get(_)) => exact(input, &[b"END\r\n"]),
            _ => Verdict::Wrong,
        }
    }

    fn judge_many(self, first: u64, values: &Values, keys: u64, input: &[u8]) -> Verdict {
        let mut used = 0;
        let mut head = |parts: &[&[u8]]| match exact(&input[used..], parts) {
            Verdict::Right(bytes) => {
                used += bytes;
                None
            }
            other => Some(other),
        };
        if self == Self::Redis
            && let Some(other) = head(&[format!("*{MGET_KEYS}\r\n").as_bytes()])
        {
            return other;
        }
        for key in many(first, MGET_KEYS, keys) {
            let value = values.of(key);
            let other = match self {
                Self::Redis => head(&[&values.head, value, b"\r\n"]),
                Self::Memcached => head(&[&value_line(KEY, key, value), value, b"\r\n"]),
            };
            if let Some(other) = other {
                return other;
            }
        }
        match self {
            Self::Redis => Verdict::Right(used),
            Self::Memcached => head(&[b"END\r\n"]).unwrap_or(Verdict::Right(used)),
        }
    }
}

/// So many keys from this one on.
fn many(first: u64, count: u64, keys: u64) -> impl Iterator<Item = u64> {
    (first..first + count).map(move |key| key % keys)
}

/// The CAS number in the reply to [`Sent::Gets`], once its first line has arrived.
pub(crate) fn cas_number(input: &[u8]) -> Option<u64> {
    let line = input.split(|byte| *byte == b'\r').next()?;
    std::str::from_utf8(line.rsplit(|byte| *byte == b' ').next()?).ok()?.parse().ok()
}

/// The reply to [`Sent::Gets`].
fn numbered_value(input: &[u8], key: u64, values: &Values) -> Verdict {
    const LINE_MAX: usize = 128;
    if !input.iter().take(LINE_MAX).any(|byte| *byte == b'\r') {
        return if input.len() >= LINE_MAX { Verdict::Wrong } else { Verdict::Incomplete };
    }
    let Some(number) = cas_number(input) else { return Verdict::Wrong };
    let value = values.of(key);
    let line = value_line(KEY, key, value);
    let number = format!(" {number}\r\n");
    exact(input, &[&line[..line.len() - 2], number.as_bytes(), value, b"\r\nEND\r\n"])
}

fn write_redis(sent: Sent, values: &Values, keys: u64, to: &mut Vec<u8>) {
    match sent {
        Sent::Set(key) => {
            to.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
            redis_key(KEY, key, to);
            bulk_string(values.of(key), to);
        }
        Sent::Get(key) => {
            to.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
            redis_key(KEY, key, to);
        }
        Sent::Incr(key, _) => {
            to.extend_from_slice(b"*2\r\n$4\r\nINCR\r\n");
            redis_key(COUNTER, key, to);
        }
        Sent::Counter(key, _) => {
            to.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
            redis_key(COUNTER, key, to);
        }
        Sent::Zero(key) => {
            to.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
            redis_key(COUNTER, key, to);
            bulk_string(b"0", to);
        }
        Sent::Mset(first) => {
            let header = format!("*{}\r\n$4\r\nMSET\r\n", 1 + 2 * MSET_KEYS);
            to.extend_from_slice(header.as_bytes());
            for key in many(first, MSET_KEYS, keys) {
                redis_key(KEY, key, to);
                bulk_string(values.of(key), to);
            }
        }
        Sent::Mget(first) => {
            let header = format!("*{}\r\n$4\r\nMGET\r\n", 1 + MGET_KEYS);
            to.extend_from_slice(header.as_bytes());
            many(first, MGET_KEYS, keys).for_each(|key| redis_key(KEY, key, to));
        }
        Sent::Typed(typed) => typed.write(values, to),
        // No plan has them: see `Plan::check`.
        Sent::Gets(_) | Sent::Cas(..) | Sent::Touch(_) => {}
    }
}

fn redis_key(prefix: &[u8; 4], key: u64, to: &mut Vec<u8>) {
    const { assert!(KEY_BYTES == 16) };
    to.extend_from_slice(b"$16\r\n");
    to.extend_from_slice(&key_bytes(prefix, key));
    to.extend_from_slice(b"\r\n");
}

fn write_memcached(sent: Sent, values: &Values, keys: u64, to: &mut Vec<u8>) {
    let (verb, prefix, key): (&[u8], _, _) = match sent {
        Sent::Set(key) | Sent::Mset(key) => (b"set ", KEY, key),
        Sent::Zero(key) => (b"set ", COUNTER, key),
        Sent::Get(key) | Sent::Mget(key) => (b"get ", KEY, key),
        Sent::Gets(key) => (b"gets ", KEY, key),
        Sent::Cas(key, _) => (b"cas ", KEY, key),
        Sent::Touch(key) => (b"touch ", KEY, key),
        Sent::Counter(key, _) => (b"get ", COUNTER, key),
        Sent::Incr(key, _) => (b"incr ", COUNTER, key),
        // No plan has them: see `Plan::check`.
        Sent::Typed(_) => return,
    };
    to.extend_from_slice(verb);
    to.extend_from_slice(&key_bytes(prefix, key));
    match sent {
        Sent::Set(_) | Sent::Mset(_) | Sent::Zero(_) | Sent::Cas(..) => {
            let value = if prefix == COUNTER { b"0" } else { values.of(key) };
            to.extend_from_slice(b" 0 0 ");
            decimal(value.len() as u64, to);
            if let Sent::Cas(_, number) = sent {
                to.push(b' ');
                decimal(number, to);
            }
            to.extend_from_slice(b"\r\n");
            to.extend_from_slice(value);
        }
        Sent::Mget(first) => {
            for key in many(first, MGET_KEYS, keys).skip(1) {
                to.push(b' ');
                to.extend_from_slice(&key_bytes(prefix, key));
            }
        }
        Sent::Incr(..) => to.extend_from_slice(b" 1"),
        Sent::Touch(_) => to.extend_from_slice(b" 0"),
        Sent::Get(_) | Sent::Gets(_) | Sent::Counter(..) | Sent::Typed(_) => {}
    }
    to.extend_from_slice(b"\r\n");
}

fn bulk(input: &[u8], value: &[u8]) -> Verdict {
    let mut head = Vec::with_capacity(24);
    head.push(b'$');
    decimal(value.len() as u64, &mut head);
    head.extend_from_slice(b"\r\n");
    exact(input, &[&head, value, b"\r\n"])
}

fn memcached_value(input: &[u8], prefix: &[u8; 4], key: u64, value: &[u8]) -> Verdict {
    // memcached pads a counter that has become shorter with spaces; these counters only grow.
    exact(input, &[&value_line(prefix, key, value), value, b"\r\nEND\r\n"])
}

/// The line before a value.
fn value_line(prefix: &[u8; 4], key: u64, value: &[u8]) -> Vec<u8> {
    let mut line = b"VALUE ".to_vec();
    line.extend_from_slice(&key_bytes(prefix, key));
    line.extend_from_slice(b" 0 ");
    decimal(value.len() as u64, &mut line);
    line.extend_from_slice(b"\r\n");
    line
}

fn number(input: &[u8], before: &[u8], right: impl Fn(u64) -> bool) -> Verdict {
    let Some(end) = input.iter().take(24).position(|byte| *byte == b'\n') else {
        return if input.len() >= 24 { Verdict::Wrong } else { Verdict::Incomplete };
    };
    let line = input[..end].strip_suffix(b"\r").and_then(|line| line.strip_prefix(before));
    let found = line.and_then(|line| std::str::from_utf8(line).ok()).and_then(|text| text.parse().ok());
    if found.is_some_and(right) { Verdict::Right(end + 1) } else { Verdict::Wrong }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, sent: Sent) -> String {
        let mut bytes = Vec::new();
        protocol.write(sent, &Values::new(3), 100, &mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn commands_are_written_as_the_protocols_say() {
        let value = String::from_utf8(Values::new(3).of(7).to_vec()).unwrap();
        let set = format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000007\r\n$3\r\n{value}\r\n");
        assert_eq!(written(Protocol::Redis, Sent::Set(7)), set);
        assert_eq!(
            written(Protocol::Redis, Sent::Incr(7, 1)),
            "*2\r\n$4\r\nINCR\r\n$16\r\nnum:000000000007\r\n"
        );
        assert_eq!(
            written(Protocol::Memcached, Sent::Set(7)),
            format!("set key:000000000007 0 0 3\r\n{value}\r\n")
        );
        assert_eq!(written(Protocol::Memcached, Sent::Incr(7, 1)), "incr num:000000000007 1\r\n");
        assert_eq!(
            written(Protocol::Memcached, Sent::Cas(7, 12)),
            format!("cas key:000000000007 0 0 3 12\r\n{value}\r\n")
        );
        assert_eq!(written(Protocol::Memcached, Sent::Touch(7)), "touch key:000000000007 0\r\n");
        let mget = written(Protocol::Memcached, Sent::Mget(99));
        assert!(
            mget.starts_with("get key:000000000099 key:000000000000 ") && mget.ends_with("98\r\n"),
            "{mget}"
        );
        let mset = written(Protocol::Redis, Sent::Mset(95));
        assert!(mset.starts_with("*21\r\n$4\r\nMSET\r\n") && mset.contains("key:000000000004"), "{mset}");
    }

    /// The reply to [`Sent::Mget`] of 7, of 100 keys.
    fn many_values(protocol: Protocol) -> String {
        let (values, mut reply) = (Values::new(3), String::new());
        if protocol == Protocol::Redis {
            reply.push_str("*100\r\n");
        }
        for key in (7..107).map(|key| key % 100) {
            let value = std::str::from_utf8(values.of(key)).unwrap();
            reply += &match protocol {
                Protocol::Redis => format!("$3\r\n{value}\r\n"),
                Protocol::Memcached => format!("VALUE key:{key:012} 0 3\r\n{value}\r\n"),
            };
        }
        if protocol == Protocol::Memcached { reply + "END\r\n" } else { reply }
    }

    #[test]
    fn replies_are_right_incomplete_or_wrong_at_every_length() {
        let values = Values::new(3);
        let value = String::from_utf8(values.of(7).to_vec()).unwrap();
        let (redis, memcached) = (Protocol::Redis, Protocol::Memcached);
        for (protocol, sent, right) in [
            (redis, Sent::Set(7), "+OK\r\n".to_owned()),
            (redis, Sent::Get(7), format!("$3\r\n{value}\r\n")),
            (redis, Sent::Incr(7, 2), ":2\r\n".to_owned()),
            (redis, Sent::Counter(7, 12), "$2\r\n12\r\n".to_owned()),
            (memcached, Sent::Set(7), "STORED\r\n".to_owned()),
            (memcached, Sent::Get(7), format!("VALUE key:000000000007 0 3\r\n{value}\r\nEND\r\n")),
            (memcached, Sent::Incr(7, 2), "3\r\n".to_owned()),
            (memcached, Sent::Gets(7), format!("VALUE key:000000000007 0 3 123\r\n{value}\r\nEND\r\n")),
            (memcached, Sent::Cas(7, 123), "STORED\r\n".to_owned()),
            (memcached, Sent::Cas(7, 123), "EXISTS\r\n".to_owned()),
            (memcached, Sent::Touch(7), "TOUCHED\r\n".to_owned()),
            (memcached, Sent::Mget(7), many_values(memcached)),
            (redis, Sent::Mget(7), many_values(redis)),
        ] {
            let more = format!("{right}+O");
            assert_eq!(
                protocol.judge(sent, &values, 100, more.as_bytes()),
                Verdict::Right(right.len()),
                "{right}"
            );
            for length in 0..right.len() {
                assert_eq!(
                    protocol.judge(sent, &values, 100, &right.as_bytes()[..length]),
                    Verdict::Incomplete,
                    "{right}"
                );
            }
        }
    }

    #[test]
    fn a_get_may_miss_where_keys_are_evicted() {
        let (redis, memcached) = (Protocol::Redis, Protocol::Memcached);
        assert_eq!(redis.judge_miss(Sent::Get(7), b"$-1\r\n+O"), Verdict::Right(5));
        assert_eq!(memcached.judge_miss(Sent::Get(7), b"END\r\n"), Verdict::Right(5));
        assert_eq!(memcached.judge_miss(Sent::Get(7), b"EN"), Verdict::Incomplete);
        assert_eq!(memcached.judge_miss(Sent::Set(7), b"END\r\n"), Verdict::Wrong);
    }

    #[test]
    fn a_wrong_reply_is_reported_as_wrong() {
        let values = Values::new(3);
        for (sent, reply) in [
            (Sent::Set(7), "-ERR no\r\n"),
            (Sent::Set(7), "$-1\r\n"),
            (Sent::Get(7), "$-1\r\n"),
            (Sent::Get(7), "$4\r\nabcd\r\n"),
            (Sent::Get(7), "$3\r\n\u{1}\u{1}\u{1}\r\n"),
            (Sent::Incr(7, 2), ":1\r\n"),
            (Sent::Incr(7, 2), "-ERR value is not an integer or out of range\r\n"),
            (Sent::Counter(7, 12), "$2\r\n13\r\n"),
        ] {
            assert_eq!(
                Protocol::Redis.judge(sent, &values, 100, reply.as_bytes()),
                Verdict::Wrong,
                "{reply}"
            );
        }
    }
}
