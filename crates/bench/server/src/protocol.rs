//! Commands as bytes, and replies judged.
//!
//! A reply is parsed only as far as judging needs: what it must be is known, so most are compared as they are.

use crate::keys::{KEY_BYTES, Values, key as key_bytes};
use crate::resp::{Verdict, bulk_string, decimal, exact};
use crate::typed::Typed;
use std::fmt;
use std::str::FromStr;

/// Keys in one MSET, as many as redis-benchmark sets.
pub(crate) const MSET_KEYS: u64 = 10;

/// What a server speaks.
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

/// One command under way, and what its reply must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Set this key: "done".
    Set(u64),
    /// Get this key: its value.
    Get(u64),
    /// Count this key up: at least this number, since others count it too.
    Incr(u64, u32),
    /// Read this counter: exactly this number.
    Counter(u64, u32),
    /// Set this counter to 0: "done".
    Zero(u64),
    /// Set ten keys from this one on: "done".
    Mset(u64),
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
            Self::Memcached => write_memcached(sent, values, to),
        }
    }

    /// Judges the reply at the start of `input`.
    pub(crate) fn judge(self, sent: Sent, values: &Values, input: &[u8]) -> Verdict {
        match (self, sent) {
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
            for key in (first..first + MSET_KEYS).map(|key| key % keys) {
                redis_key(KEY, key, to);
                bulk_string(values.of(key), to);
            }
        }
        Sent::Typed(typed) => typed.write(values, to),
    }
}

fn redis_key(prefix: &[u8; 4], key: u64, to: &mut Vec<u8>) {
    const { assert!(KEY_BYTES == 16) };
    to.extend_from_slice(b"$16\r\n");
    to.extend_from_slice(&key_bytes(prefix, key));
    to.extend_from_slice(b"\r\n");
}

fn write_memcached(sent: Sent, values: &Values, to: &mut Vec<u8>) {
    let (verb, prefix, key): (&[u8], _, _) = match sent {
        Sent::Set(key) | Sent::Mset(key) => (b"set ", KEY, key),
        Sent::Zero(key) => (b"set ", COUNTER, key),
        Sent::Get(key) => (b"get ", KEY, key),
        Sent::Counter(key, _) => (b"get ", COUNTER, key),
        Sent::Incr(key, _) => (b"incr ", COUNTER, key),
        // No plan has them: `Plan::check`.
        Sent::Typed(_) => return,
    };
    to.extend_from_slice(verb);
    to.extend_from_slice(&key_bytes(prefix, key));
    match sent {
        Sent::Set(_) | Sent::Mset(_) | Sent::Zero(_) => {
            let value = if prefix == COUNTER { b"0" } else { values.of(key) };
            to.extend_from_slice(b" 0 0 ");
            decimal(value.len() as u64, to);
            to.extend_from_slice(b"\r\n");
            to.extend_from_slice(value);
        }
        Sent::Incr(..) => to.extend_from_slice(b" 1"),
        Sent::Get(_) | Sent::Counter(..) | Sent::Typed(_) => {}
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
    let mut head = b"VALUE ".to_vec();
    head.extend_from_slice(&key_bytes(prefix, key));
    head.extend_from_slice(b" 0 ");
    decimal(value.len() as u64, &mut head);
    head.extend_from_slice(b"\r\n");
    // memcached pads a counter that has grown shorter with spaces; ours only grow.
    exact(input, &[&head, value, b"\r\nEND\r\n"])
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
        let mset = written(Protocol::Redis, Sent::Mset(95));
        assert!(mset.starts_with("*21\r\n$4\r\nMSET\r\n") && mset.contains("key:000000000004"), "{mset}");
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
        ] {
            let more = format!("{right}+O");
            assert_eq!(
                protocol.judge(sent, &values, more.as_bytes()),
                Verdict::Right(right.len()),
                "{right}"
            );
            for length in 0..right.len() {
                assert_eq!(
                    protocol.judge(sent, &values, &right.as_bytes()[..length]),
                    Verdict::Incomplete,
                    "{right}"
                );
            }
        }
    }

    #[test]
    fn a_wrong_reply_is_wrong() {
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
            assert_eq!(Protocol::Redis.judge(sent, &values, reply.as_bytes()), Verdict::Wrong, "{reply}");
        }
    }
}
