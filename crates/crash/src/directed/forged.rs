//! Values that contain records: valid records of other keys, forged with full knowledge, or copied from the medium.

use super::{LEN_MAX, options, reported};
use crate::audit::{Secret, u64_at};
use crate::check::sound;
use crc32c::crc32c_append;
use duramen::{Durability, OnCorruption, Options, StoreOn};
use duramen_media::Offset;
use duramen_media::Persistent;
use duramen_media::sim::{Log, Model, SimMedium};

const KEY: &[u8] = b"admin";
const REAL: &[u8] = b"the real one";
const FORGED: &[u8] = b"forged!!";
/// Of the key of the values that hold them: its value begins on a multiple of 8 of the record.
const LARGE: &[u8] = b"upload01";
const VALUE_BYTES: usize = 6000;
const HEADER_BYTES: u64 = 24;
const EXTENT_BYTES: u64 = 16 << 10;

fn options_at(boot: u8) -> Options {
    Options { extent_bytes: Some(EXTENT_BYTES as u32), ..options(boot, Durability::EveryWrite) }
}

fn bytes_of(medium: &SimMedium) -> Vec<u8> {
    medium.memory().snapshot().into_iter().flatten().flat_map(u64::to_le_bytes).collect()
}

/// A record that is whole at `at`, of a block that begins at `block`, for a store with this secret.
fn forge(secret: Secret, bytes: &[u8], block: u64, at: u64) -> Vec<u8> {
    let block_header = &bytes[block as usize..];
    let word = u64_at(block_header, 0);
    let generation = u64_at(block_header, if word & 16 != 0 { 16 } else { 8 });
    let seeds = secret.seeds(generation);
    let mut head = vec![0; HEADER_BYTES as usize];
    // A value, before which all was durable.
    head[4] = 1 | 4 << 4;
    head[6] = KEY.len() as u8;
    head[8..12].copy_from_slice(&(FORGED.len() as u32).to_le_bytes());
    head[12..16].copy_from_slice(&u64_at(bytes, 64).to_le_bytes()[..4]);
    head[16..24].copy_from_slice(&(1u64 << 51).to_le_bytes());
    let check = crc32c_append(seeds.head((at - block) as usize), &head[4..]).to_le_bytes();
    head[..4].copy_from_slice(&check);
    let body = crc32c_append(crc32c_append(seeds.body, KEY), FORGED);
    let sum = crc32c_append(body, &check).to_le_bytes();
    let mut record = [&head, KEY, FORGED, &sum].concat();
    record.resize(record.len().next_multiple_of(8), 0);
    record
}

/// A store in which `admin` has a value, and where the next value of `upload01` will lie.
struct Target {
    medium: SimMedium,
    store: StoreOn<SimMedium>,
    block: u64,
    value_at: u64,
}

impl Target {
    fn new() -> Result<Self, String> {
        let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
        let store = StoreOn::open_on(medium.clone(), &options_at(1)).map_err(reported)?;
        store.put(KEY, REAL).map_err(reported)?;
        store.put(LARGE, [0xA5; VALUE_BYTES]).map_err(reported)?;
        let bytes = bytes_of(&medium);
        let before = bytes
            .windows(64)
            .position(|window| window == [0xA5; 64])
            .ok_or("the value was not found on the medium")?;
        let record_bytes = (HEADER_BYTES + LARGE.len() as u64 + VALUE_BYTES as u64 + 4).next_multiple_of(8);
        let (before, value_at) = (before as u64, before as u64 + record_bytes);
        let block = before / EXTENT_BYTES * EXTENT_BYTES;
        if value_at + VALUE_BYTES as u64 > block + EXTENT_BYTES {
            return Err("the next value lies in another block".into());
        }
        Ok(Self { medium, store, block, value_at })
    }

    fn secret(&self) -> Secret {
        Secret::of(&bytes_of(&self.medium))
    }

    /// A value of records that are whole where they will lie.
    fn value(&self, secret: Secret) -> Vec<u8> {
        let bytes = bytes_of(&self.medium);
        let mut value = Vec::new();
        while value.len() + 64 <= VALUE_BYTES {
            value.extend(forge(secret, &bytes, self.block, self.value_at + value.len() as u64));
        }
        value.resize(VALUE_BYTES, 0);
        value
    }

    /// Puts `value`, and returns its positions in the log.
    fn put(&self, value: &[u8]) -> Result<std::ops::Range<usize>, String> {
        let from = self.medium.position();
        self.store.put(LARGE, value).map_err(reported)?;
        let bytes = bytes_of(&self.medium);
        match bytes[self.value_at as usize..][..VALUE_BYTES] == *value {
            true => Ok(from..self.medium.position()),
            false => Err("the value lies at another place".into()),
        }
    }
}

/// Salvage saves the written keys and nothing from inside a value; without damage a check finds none.
fn salvaged(medium: &SimMedium, is_damaged: bool) -> Result<(), String> {
    if !is_damaged {
        sound(medium, &options_at(1))?;
    }
    let target = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let target = StoreOn::open_on(target, &options_at(1)).map_err(reported)?;
    duramen::salvage_on(medium, &target, &options_at(1)).map_err(reported)?;
    let mut strange = None;
    let visit = |found: &duramen::Value<'_>| {
        let is_known = match found.key() {
            KEY => found.bytes() == REAL,
            key => key == LARGE,
        };
        if !is_known {
            strange = Some(format!("salvage saves {} with {found:?}", found.key().escape_ascii()));
        }
    };
    target.for_each(visit).map_err(reported)?;
    match (strange, target.get(KEY).map_err(reported)?) {
        (Some(strange), _) => Err(strange),
        (None, None) => Err("salvage does not save admin".into()),
        (None, Some(_)) => Ok(()),
    }
}

/// The value of `admin` at an open on a machine that is not rebooted; all stores of the killed process to the medium
/// count.
fn shown(medium: SimMedium, serve: bool) -> Result<Option<Vec<u8>>, String> {
    salvaged(&medium, serve)?;
    let on_corruption = if serve { OnCorruption::Serve } else { OnCorruption::Refuse };
    let again = StoreOn::open_on(medium, &Options { on_corruption, ..options_at(1) }).map_err(reported)?;
    Ok(again.get(KEY).map_err(reported)?.map(|value| value.to_vec()))
}

fn wants_real(found: Option<Vec<u8>>, what: &str) -> Result<(), String> {
    if found.as_deref() == Some(REAL) { Ok(()) } else { Err(format!("{what}: admin has {found:?}")) }
}

/// The process is killed at each event of a put. Its value contains valid records, forged with the secret.
///
/// # Errors
/// Returns a description of the violation.
pub fn killed_within_a_forged_value() -> Result<(), String> {
    let target = Target::new()?;
    let events = target.put(&target.value(target.secret()))?;
    let log = target.medium.log();
    for position in events {
        let medium = SimMedium::resume(log.up_to(position));
        wants_real(shown(medium, false)?, &format!("killed at event {position}"))?;
    }
    Ok(())
}

/// The same value, and a byte of it is damaged.
///
/// # Errors
/// Returns a description of the violation.
pub fn damaged_forged_value() -> Result<(), String> {
    let target = Target::new()?;
    target.put(&target.value(target.secret()))?;
    let medium = SimMedium::resume(target.medium.log());
    medium.memory().flip_bit((target.value_at + VALUE_BYTES as u64 - 1) * 8);
    wants_real(shown(medium, true)?, "a byte of the value is damaged")
}

/// A power failure has taken the header of a value and left its body.
fn without_header(value: impl Fn(&Target) -> Vec<u8>) -> Result<(), String> {
    let target = Target::new()?;
    target.put(&value(&target))?;
    let medium = SimMedium::resume(target.medium.log());
    let header_at = target.value_at - LARGE.len() as u64 - HEADER_BYTES;
    (0..HEADER_BYTES / 8).for_each(|word| medium.store_u64(Offset(header_at + word * 8), 0));
    wants_real(shown(medium, false)?, "the header of the value is lost")
}

/// The value contains records that are forged without the secret.
///
/// # Errors
/// Returns a description of the violation.
pub fn guessed_value_without_header() -> Result<(), String> {
    without_header(|target| target.value(Secret::none()))
}

/// The value contains the bytes of its block, as they are on the medium.
///
/// # Errors
/// Returns a description of the violation.
pub fn copied_value_without_header() -> Result<(), String> {
    without_header(|target| {
        let bytes = bytes_of(&target.medium);
        // From the first record on: each 8 bytes of the value is where one may begin.
        let from = target.block as usize + 64;
        bytes[from..][..VALUE_BYTES].to_vec()
    })
}

/// A conditional write of a value that contains records fails its condition. Then a small record follows, and the
/// process is killed.
///
/// # Errors
/// Returns a description of the violation.
pub fn aborted_forged_value() -> Result<(), String> {
    let target = Target::new()?;
    let value = target.value(target.secret());
    let mut writer = target.store.writer().map_err(reported)?;
    let stamp = target.store.get(KEY).map_err(reported)?.ok_or("admin is gone")?.stamp();
    let swapped =
        writer.compare_and_swap(LARGE, stamp, Some((&value, Default::default()))).map_err(reported)?;
    if swapped != duramen::Swap::Changed {
        return Err("the stamp of another key is accepted".into());
    }
    writer.put(b"small", b"12345678").map_err(reported)?;
    let medium = SimMedium::resume(target.medium.log());
    let again = StoreOn::open_on(medium, &options_at(1)).map_err(reported)?;
    for (key, wanted) in [(KEY, REAL), (b"small", b"12345678"), (LARGE, &[0xA5; VALUE_BYTES][..])] {
        let found = again.get(key).map_err(reported)?.map(|value| value.to_vec());
        if found.as_deref() != Some(wanted) {
            return Err(format!("{} has {found:?}", key.escape_ascii()));
        }
    }
    Ok(())
}
