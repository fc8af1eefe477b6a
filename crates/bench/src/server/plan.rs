//! The knobs of one load.

use crate::server::keys::Distribution;
use crate::server::protocol::{MGET_KEYS, MSET_KEYS};
use crate::server::typed::Load;
use crate::server::{Address, Failure, Protocol, Result};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The commands of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sets a key to its value.
    Set,
    /// Gets an existing key.
    Get,
    /// Adds 1 to a counter.
    Incr,
    /// Sets ten keys at once.
    Mset,
    /// Gets a hundred keys at once.
    Mget,
    /// Gets a key with its CAS number, or sets a key with a known number if that is still current; about as many of
    /// each.
    Cas,
    /// Sets the expiry time of a key.
    Touch,
    /// So many gets in a hundred commands, and sets otherwise.
    Mixed(u8),
    /// A load of another type than strings, by its name.
    Typed(&'static Load),
}

impl Command {
    /// Whether it works on the keys that are set before the load.
    pub fn sets_keys(self) -> bool {
        !matches!(self, Self::Incr | Self::Typed(_))
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "set" => Ok(Self::Set),
            "get" => Ok(Self::Get),
            "incr" => Ok(Self::Incr),
            "mset" => Ok(Self::Mset),
            "mget" => Ok(Self::Mget),
            "cas" => Ok(Self::Cas),
            "touch" => Ok(Self::Touch),
            "mixed" => Ok(Self::Mixed(80)),
            other => {
                let share = other.strip_prefix("mixed:").and_then(|share| share.parse::<u8>().ok());
                if let Some(share) = share.filter(|share| *share <= 100) {
                    return Ok(Self::Mixed(share));
                }
                Load::named(other).map(Self::Typed).ok_or_else(|| {
                    format!(
                        "{text:?} is no command: wanted set, get, incr, mset, mget, mixed:N with N gets in a hundred, memcached's cas or touch, or one of {}",
                        Load::names()
                    )
                })
            }
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set => f.write_str("SET"),
            Self::Get => f.write_str("GET"),
            Self::Incr => f.write_str("INCR"),
            Self::Mset => write!(f, "MSET {MSET_KEYS}"),
            Self::Mget => write!(f, "MGET {MGET_KEYS}"),
            Self::Cas => f.write_str("GETS, CAS"),
            Self::Touch => f.write_str("TOUCH"),
            Self::Mixed(gets) => write!(f, "{gets} % GET, {} % SET", 100 - gets),
            Self::Typed(load) => f.write_str(&load.name.to_ascii_uppercase()),
        }
    }
}

/// The end of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// After this time.
    Time(Duration),
    /// After this number of commands.
    Commands(u64),
}

/// One load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server's address.
    pub address: Address,
    /// The server's protocol.
    pub protocol: Protocol,
    /// The command to send.
    pub command: Command,
    /// Commands in flight on a connection, 1 to 10,000. In a closed loop they are sent as one batch.
    pub pipeline: u32,
    /// Connections, 1 to 10,000.
    pub connections: u32,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// The number of keys to choose from. They are set before the load and not counted.
    pub keys: u64,
    /// How often each key is chosen.
    pub distribution: Distribution,
    /// Commands per second in an open loop; `None` means a closed loop.
    pub rate: Option<f64>,
    /// The end of the load.
    pub length: Length,
    /// Commands are sent for this time before counting begins.
    pub warm_up: Duration,
    /// Whether to set the keys first. Not needed if an earlier load has set them.
    pub load: bool,
    /// Whether a key that was set may be absent because the server evicts; then no key is read back.
    pub evicts: bool,
    /// The seed of the choice of keys.
    pub seed: u64,
}

impl Plan {
    /// A load with the usual numbers: 50 connections, values of 200 bytes, 100,000 keys, a closed loop, 3 seconds.
    pub fn new(address: Address, command: Command) -> Self {
        Self {
            address,
            protocol: Protocol::Redis,
            command,
            pipeline: 1,
            connections: 50,
            value_bytes: 200,
            keys: 100_000,
            distribution: Distribution::Uniform,
            rate: None,
            length: Length::Time(Duration::from_secs(3)),
            warm_up: Duration::from_millis(500),
            load: true,
            evicts: false,
            seed: 1,
        }
    }

    /// Refuses an impossible plan.
    ///
    /// # Errors
    /// A usage error with the number, its bounds, and what to do.
    pub fn check(&self) -> Result<()> {
        let within = |name: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Failure::usage(format!("{name} is {value}, wanted {low} to {high}")))
        };
        within("pipeline", self.pipeline.into(), 1, 10_000)?;
        within("connections", self.connections.into(), 1, 10_000)?;
        within("value bytes", self.value_bytes as u64, 1, 64 << 20)?;
        within("keys", self.keys, 1, 999_999_999_999)?;
        if self.command == Command::Incr {
            within("keys of incr", self.keys, 1, 1 << 28)?;
        }
        if self.protocol == Protocol::Memcached && self.command == Command::Mset {
            return Err(Failure::usage("mset is not a command of memcached; choose set with pipelining"));
        }
        if self.protocol == Protocol::Redis && matches!(self.command, Command::Cas | Command::Touch) {
            return Err(Failure::usage(
                "cas and touch are memcached's; choose others, or --protocol memcached",
            ));
        }
        if self.command == Command::Cas {
            within("keys of cas", self.keys, 1, 1 << 28)?;
        }
        if let (Protocol::Memcached, Command::Typed(load)) = (self.protocol, self.command) {
            return Err(Failure::usage(format!(
                "{} is not a command of memcached; choose set or get",
                load.name
            )));
        }
        if let Some(rate) = self.rate
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(Failure::usage(format!("rate is {rate}, wanted commands a second above 0")));
        }
        match self.length {
            Length::Time(time) if time.is_zero() => Err(Failure::usage("the time to run is 0, wanted more")),
            Length::Commands(0) => Err(Failure::usage("the number of commands is 0, wanted more")),
            _ => Ok(()),
        }
    }
}
