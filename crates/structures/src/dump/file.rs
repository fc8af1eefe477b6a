//! RDB files: the files that `redis-server` saves, loads, and sends to a replica.
//!
//! | bytes | meaning |
//! |---|---|
//! | 5 | `REDIS` |
//! | 4 | RDB version in decimal digits |
//! | … | entries |
//! | 1 | 255 |
//! | 8 | CRC-64 over all bytes before it, little-endian; 0: not given. From version 5 on |
//!
//! An entry is an RDB type (below 242), a key and a value, or one of these:
//!
//! | first byte | then | meaning |
//! |---|---|---|
//! | 254 | a length | the following keys are of this database |
//! | 253, 252 | 4 bytes, 8 bytes | Unix seconds, milliseconds at which the next key expires |
//! | 251 | two lengths | how many keys the database has, and how many of them expire |
//! | 250 | two strings | name and value of Redis's notes about itself |
//! | 249, 248 | a byte, a length | how often, and how long ago the next key was used; of no effect here |
//! | 247 | as a value of type 7 | a module's data besides keys |
//! | 246, 245 | … | functions; 245 is a string with the library's code |
//! | 244 | three lengths | how large a slot of a cluster is |
//!
//! 1. A [`Reader`] takes bytes of its source up to twice the size of the largest key with its value, and not more.
//! 2. No input causes a panic, and a length is trusted only once that many bytes have arrived.
//! 3. A [`Flaw`] names the byte of the file, and the key.

use std::fmt;
use std::io::{self, Read, Write};
use std::mem;

use super::collection::TYPES_TIMED;
use super::functions::{FUNCTION, FUNCTION_OF_CANDIDATES};
use super::input::Input;
use super::{
    Restored, VERSION_READ_MAX, VERSION_WRITTEN, VERSION_WRITTEN_TIMED, crc64, decode, decode_len, encode,
    encode_len,
};

const MAGIC: &[u8; 5] = b"REDIS";
/// From Valkey 9.0 on, with three digits after it.
const MAGIC_OF_VALKEY: &[u8; 6] = b"VALKEY";
/// The version that Valkey writes. Contents that a file of Redis cannot have are refused where they occur.
const VERSION_OF_VALKEY: u16 = 80;
const VERSION_CHECKED_MIN: u16 = 5;

const EXPIRES_AT_SECONDS: u8 = 253;
const EXPIRES_AT_MILLIS: u8 = 252;
const DATABASE: u8 = 254;
const DATABASE_KEYS: u8 = 251;
const NOTE: u8 = 250;
const FREQUENCY: u8 = 249;
const IDLE: u8 = 248;
const MODULE_NOTE: u8 = 247;
const SLOT: u8 = 244;
const END: u8 = 255;

const TYPE_MODULE_OLD: u8 = 6;
const TYPE_MODULE: u8 = 7;

// Bytes asked of the source at once.
const READ_BYTES: usize = 256 << 10;
const KEY_SHOWN_BYTES_MAX: usize = 128;

/// Contents to leave out of a file instead of refusing it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Skip {
    /// Values of modules, and modules' data besides keys.
    pub modules: bool,
    /// Libraries of functions.
    pub functions: bool,
}

/// A key of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its database.
    pub db: u64,
    /// Its name.
    pub key: Vec<u8>,
    /// Its value; it may be a collection of nothing, which Redis does not load either.
    pub value: Restored,
    /// Unix milliseconds.
    pub expires_at: Option<u64>,
}

/// The next item of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A key.
    Key(Key),
    /// The code of a library of functions.
    Library(Vec<u8>),
    /// Something that was left out, as [`Skip`] allows: its name.
    Skipped(String),
}

/// Why a file cannot be read any further.
#[derive(Debug)]
pub enum Flaw {
    /// Its source failed.
    Source(io::Error),
    /// The content is not an RDB file, or of a kind that is not supported.
    Content {
        /// How many bytes of the file were read before that.
        offset: u64,
        /// The key and database whose value it is.
        of: Option<(Vec<u8>, u64)>,
        /// The finding, and what to do.
        why: String,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => write!(f, "{error}"),
            Self::Content { offset, of: None, why } => write!(f, "at byte {offset}: {why}"),
            Self::Content { offset, of: Some((key, db)), why } => {
                let shown = &key[..key.len().min(KEY_SHOWN_BYTES_MAX)];
                let dots = if key.len() > KEY_SHOWN_BYTES_MAX { "..." } else { "" };
                write!(f, "at byte {offset}, key '{}{dots}' of database {db}: {why}", shown.escape_ascii())
            }
        }
    }
}

impl std::error::Error for Flaw {}

/// Reads a file from its first byte to its last.
pub struct Reader<R> {
    source: R,
    // The bytes of the file from `begin` on; those before `at` were read.
    window: Vec<u8>,
    at: usize,
    begin: u64,
    // Checksum of the file up to `begin`.
    crc: u64,
    source_ended: bool,
    version: u16,
    db: u64,
    skip: Skip,
    bytes_max: u64,
    // The last step wanted more than there is.
    is_cut: bool,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head of a file. `bytes_max` bounds the length of a decompressed string.
    ///
    /// # Errors
    /// When it is no RDB file, or of an unsupported version.
    pub fn new(source: R, skip: Skip, bytes_max: u64) -> Result<Self, Flaw> {
        let mut reader = Self {
            source,
            window: Vec::new(),
            at: 0,
            begin: 0,
            crc: 0,
            source_ended: false,
            version: 0,
            db: 0,
            skip,
            bytes_max,
            is_cut: false,
            ended: false,
        };
        let head: Option<[u8; 9]> = reader.step(|input| input.take_array())?;
        let version = head
            .filter(|head| is_begin(&head[..MAGIC.len()]))
            .and_then(|head| {
                head.strip_prefix(MAGIC_OF_VALKEY).or(head.strip_prefix(MAGIC)).map(<[u8]>::to_vec)
            })
            .and_then(|digits| std::str::from_utf8(&digits).ok()?.parse().ok());
        match version {
            None => Err(reader.flaw(None, "no RDB file: it does not begin with REDIS and four digits, nor with VALKEY and three".to_owned())),
            Some(version @ (1..=VERSION_READ_MAX | VERSION_OF_VALKEY)) => {
                reader.version = version;
                Ok(reader)
            }
            Some(version) => Err(reader.flaw(
                None,
                format!(
                    "RDB version {version}; this build reads versions 1 to {VERSION_READ_MAX}, and {VERSION_OF_VALKEY} of Valkey: save it with an older Redis"
                ),
            )),
        }
    }

    /// How many bytes of the file were read.
    pub fn offset(&self) -> u64 {
        self.begin + self.at as u64
    }

    /// The RDB version of the file.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The bytes read from the source beyond the end of the file, and the source.
    pub fn into_rest(mut self) -> (Vec<u8>, R) {
        self.window.drain(..self.at);
        (self.window, self.source)
    }

    /// The next key; `None` at the end, when the checksum was right.
    ///
    /// # Errors
    /// On other content. All earlier items are complete, though the checksum at the end was not checked yet.
    #[expect(clippy::should_implement_trait, reason = "an iterator of results would go on after an error")]
    pub fn next(&mut self) -> Result<Option<Item>, Flaw> {
        let mut expires_at = None;
        while !self.ended {
            let Some([first]) = self.step(|input| input.take_array())? else {
                return Err(self.cut(None));
            };
            match first {
                END => {
                    self.check_sum()?;
                    self.ended = true;
                }
                DATABASE => self.db = self.part("the number of a database", decode_len)?,
                DATABASE_KEYS => {
                    self.part("sizes of a database", |input| Some((decode_len(input)?, decode_len(input)?)))?;
                }
                EXPIRES_AT_SECONDS => {
                    let seconds =
                        i32::from_le_bytes(self.part("an expiry time", |input| input.take_array())?);
                    expires_at = Some(u64::try_from(seconds).unwrap_or(0) * 1000);
                }
                EXPIRES_AT_MILLIS => {
                    let millis = i64::from_le_bytes(self.part("an expiry time", |input| input.take_array())?);
                    expires_at = Some(u64::try_from(millis).unwrap_or(0));
                }
                NOTE => {
                    let most = self.bytes_max;
                    self.part("a note of the server's", |input| {
                        Some((decode(input, most)?, decode(input, most)?))
                    })?;
                }
                FREQUENCY => {
                    self.part("how often a key was used", |input| input.take_array::<1>())?;
                }
                IDLE => {
                    self.part("how long ago a key was used", decode_len)?;
                }
                SLOT => {
                    self.part("a slot's sizes", |input| {
                        Some([decode_len(input)?, decode_len(input)?, decode_len(input)?])
                    })?;
                }
                MODULE_NOTE => return self.skip_module_note().map(Some),
                FUNCTION => return self.function().map(Some),
                FUNCTION_OF_CANDIDATES => {
                    let why = "a function as release candidates of Redis 7.0 wrote it, which nobody reads: save it with Redis 7.0";
                    return Err(self.flaw(None, why.to_owned()));
                }
                rdb_type => return self.key(rdb_type, expires_at).map(Some),
            }
        }
        Ok(None)
    }

    fn key(&mut self, rdb_type: u8, expires_at: Option<u64>) -> Result<Item, Flaw> {
        let (most, db) = (self.bytes_max, self.db);
        if !super::is_read(rdb_type) && !super::TYPES_KNOWN.contains(&rdb_type) {
            return Err(self.flaw(
                None,
                format!("no entry begins with {rdb_type}, so the file is damaged there or before"),
            ));
        }
        let key = self.part("a key's name", |input| decode(input, most))?;
        if rdb_type == TYPE_MODULE {
            return self.skip_module_value(key);
        }
        // Valkey has types of its own from there on.
        let is_valkeys = self.version == VERSION_OF_VALKEY && TYPES_TIMED.contains(&rdb_type);
        if !super::is_read(rdb_type) || is_valkeys {
            let what = match rdb_type {
                TYPE_MODULE_OLD => {
                    "a module's value as Redis 4.0's candidates wrote it, whose end nobody finds"
                }
                _ => "a hash whose fields expire, of Valkey 9",
            };
            let why = format!(
                "its value is {what} (RDB type {rdb_type}), which is not read: delete the key there and save again"
            );
            return Err(self.flaw(Some(key), why));
        }
        match self.step(|input| super::read(rdb_type, input, most))? {
            Some(value) => Ok(Item::Key(Key { db, key, value, expires_at })),
            None if self.is_cut => Err(self.cut(Some(key))),
            None => {
                Err(self.flaw(Some(key), format!("the bytes there are not a value of RDB type {rdb_type}")))
            }
        }
    }

    fn skip_module_value(&mut self, key: Vec<u8>) -> Result<Item, Flaw> {
        let most = self.bytes_max;
        match self.step(|input| skip_module(input, most))? {
            Some(module) if self.skip.modules => Ok(Item::Skipped(format!(
                "key '{}' of database {}, of module type {}",
                key.escape_ascii(),
                self.db,
                module_name(module)
            ))),
            Some(module) => {
                let why = format!(
                    "its value is of the module type {}; give --skip-modules, or delete the key there and save \
                     again",
                    module_name(module)
                );
                Err(self.flaw(Some(key), why))
            }
            None if self.is_cut => Err(self.cut(Some(key))),
            None => Err(self.flaw(Some(key), "the bytes there are not a value of a module".to_owned())),
        }
    }

    fn skip_module_note(&mut self) -> Result<Item, Flaw> {
        let most = self.bytes_max;
        let module = module_name(self.part("what a module keeps", |input| skip_module(input, most))?);
        if self.skip.modules {
            return Ok(Item::Skipped(format!("what the module with type {module} keeps besides keys")));
        }
        let why = format!("the module with type {module} keeps data besides keys; give --skip-modules");
        Err(self.flaw(None, why))
    }

    fn function(&mut self) -> Result<Item, Flaw> {
        let most = self.bytes_max;
        let code = self.part("the code of a library", |input| decode(input, most))?;
        if !self.skip.functions {
            return Ok(Item::Library(code));
        }
        // `#!lua name=NAME`
        let head = code.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let head = String::from_utf8_lossy(head);
        let name =
            head.split_whitespace().find_map(|word| word.strip_prefix("name=")).unwrap_or("without a name");
        Ok(Item::Skipped(format!("library of functions {name}")))
    }

    fn check_sum(&mut self) -> Result<(), Flaw> {
        if self.version < VERSION_CHECKED_MIN {
            return Ok(());
        }
        let found = crc64::go_on(self.crc, &self.window[..self.at]);
        let stored = u64::from_le_bytes(self.part("the checksum", |input| input.take_array())?);
        if stored == 0 || stored == found {
            return Ok(());
        }
        let why = format!(
            "the file has the checksum {found:#018x}, wanted {stored:#018x}: the file has changed since it was saved"
        );
        Err(self.flaw(None, why))
    }

    /// Something that is no value of a key.
    fn part<T>(&mut self, what: &str, parse: impl Fn(&mut Input<'_>) -> Option<T>) -> Result<T, Flaw> {
        match self.step(parse)? {
            Some(part) => Ok(part),
            None if self.is_cut => Err(self.cut(None)),
            None => Err(self.flaw(None, format!("the bytes there are not {what}"))),
        }
    }

    /// The next result of `parse`, once enough of the file has arrived; `None`: nothing of the kind, or the file is cut
    /// off.
    fn step<T>(&mut self, parse: impl Fn(&mut Input<'_>) -> Option<T>) -> Result<Option<T>, Flaw> {
        loop {
            let mut input = Input::new(&self.window[self.at..]);
            let (found, left) = (parse(&mut input), input.len());
            if found.is_some() {
                self.at = self.window.len() - left;
                return Ok(found);
            }
            let unread = self.window.len() - self.at;
            self.is_cut = input.is_short().is_some();
            let Some(wanted) = input.is_short().filter(|_| !self.source_ended) else { return Ok(None) };
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).saturating_add(unread - left);
            // Twice as much, so that a value of many strings is not read again for each of them.
            self.fill(wanted.max(unread.saturating_mul(2)))?;
        }
    }

    /// Reads from the source until this many bytes are unread, or it ends.
    fn fill(&mut self, wanted: usize) -> Result<(), Flaw> {
        self.crc = crc64::go_on(self.crc, &self.window[..self.at]);
        self.begin += self.at as u64;
        self.window.drain(..mem::take(&mut self.at));
        while self.window.len() < wanted {
            let have = self.window.len();
            self.window.resize(have + READ_BYTES, 0);
            let taken = loop {
                match self.source.read(&mut self.window[have..]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    taken => break taken,
                }
            };
            self.window.truncate(have + *taken.as_ref().unwrap_or(&0));
            if taken.map_err(Flaw::Source)? == 0 {
                self.source_ended = true;
                break;
            }
        }
        Ok(())
    }

    fn cut(&self, key: Option<Vec<u8>>) -> Flaw {
        let bytes = self.begin + self.window.len() as u64;
        self.flaw(
            key,
            format!(
                "the file ends after {bytes} bytes within the value that begins there, or that is damaged"
            ),
        )
    }

    fn flaw(&self, key: Option<Vec<u8>>, why: String) -> Flaw {
        Flaw::Content { offset: self.offset(), of: key.map(|key| (key, self.db)), why }
    }
}

/// Skips a module's data; returns the number of its type.
fn skip_module(input: &mut Input<'_>, bytes_max: u64) -> Option<u64> {
    let module = decode_len(input)?;
    loop {
        match decode_len(input)? {
            0 => return Some(module),
            1 | 2 => drop(decode_len(input)?),
            3 => drop(input.take(4)?),
            4 => drop(input.take(8)?),
            5 => drop(decode(input, bytes_max)?),
            _ => return None,
        }
    }
}

/// The nine letters in the number of a module's type.
fn module_name(number: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|at| LETTERS[(number >> (58 - 6 * at) & 63) as usize] as char).collect()
}

/// Writes a file that redis-server 7.0 and later load.
pub struct Writer<W> {
    out: W,
    crc: u64,
    entry: Vec<u8>,
}

/// The name of the first note of each file that is written here.
const WRITER_NOTE: &[u8] = b"duramen-ver";
/// Bytes at the start of a file from which [`is_ours`] recognizes its writer.
pub const HEAD_BYTES: usize = 32;

/// Whether so many bytes, five, may begin a file.
pub fn is_begin(five: &[u8]) -> bool {
    five == MAGIC || five == &MAGIC_OF_VALKEY[..MAGIC.len()]
}

/// Whether a file that begins so was written here, and by no other server.
pub fn is_ours(head: &[u8]) -> bool {
    let note = [&[NOTE, WRITER_NOTE.len() as u8][..], WRITER_NOTE].concat();
    let behind_version = head.strip_prefix(MAGIC).and_then(|rest| rest.get(4..));
    behind_version.is_some_and(|rest| rest.starts_with(&note))
}

impl<W: Write> Writer<W> {
    /// Writes the head. `now` is in Unix seconds. Only a file that `is_timed` may hold hashes whose fields expire; Redis
    /// reads it from 7.4 on.
    ///
    /// # Errors
    /// When the output fails; so for all.
    pub fn new(out: W, now: u64, is_timed: bool) -> io::Result<Self> {
        let mut writer = Self { out, crc: 0, entry: Vec::new() };
        writer.entry.extend_from_slice(MAGIC);
        let version = if is_timed { VERSION_WRITTEN_TIMED } else { VERSION_WRITTEN };
        write!(writer.entry, "{version:04}")?;
        writer.entry.push(NOTE);
        encode(WRITER_NOTE, &mut writer.entry);
        encode(env!("CARGO_PKG_VERSION").as_bytes(), &mut writer.entry);
        for (name, value) in [("redis-bits", 64), ("ctime", now), ("aof-base", 0)] {
            writer.entry.push(NOTE);
            encode(name.as_bytes(), &mut writer.entry);
            encode(value.to_string().as_bytes(), &mut writer.entry);
        }
        writer.flush_entry()?;
        Ok(writer)
    }

    /// Libraries of functions, as [`super::functions::write`] gives them. Before all keys.
    ///
    /// # Errors
    /// When the output fails.
    pub fn libraries(&mut self, body: &[u8]) -> io::Result<()> {
        self.write(body)
    }

    /// The following keys are of this database, which has this many.
    ///
    /// # Errors
    /// When the output fails.
    pub fn database(&mut self, db: u64, keys: u64, expires: u64) -> io::Result<()> {
        self.entry.push(DATABASE);
        encode_len(db, &mut self.entry);
        self.entry.push(DATABASE_KEYS);
        encode_len(keys, &mut self.entry);
        encode_len(expires, &mut self.entry);
        self.flush_entry()
    }

    /// A key, with type and value as [`super::string`] and similar functions give them.
    ///
    /// # Errors
    /// When the output fails.
    pub fn key(&mut self, key: &[u8], expires_at: Option<u64>, value: &[u8]) -> io::Result<()> {
        let Some((&rdb_type, value)) = value.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a value has no type"));
        };
        if let Some(expires_at) = expires_at {
            self.entry.push(EXPIRES_AT_MILLIS);
            self.entry.extend_from_slice(&expires_at.to_le_bytes());
        }
        self.entry.push(rdb_type);
        encode(key, &mut self.entry);
        self.flush_entry()?;
        self.write(value)
    }

    /// Writes the end; the output, which was not flushed.
    ///
    /// # Errors
    /// When the output fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.write(&[END])?;
        let crc = self.crc;
        self.write(&crc.to_le_bytes())?;
        Ok(self.out)
    }

    fn flush_entry(&mut self) -> io::Result<()> {
        let entry = mem::take(&mut self.entry);
        self.write(&entry)?;
        self.entry = entry;
        self.entry.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc = crc64::go_on(self.crc, bytes);
        self.out.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 1 << 20;

    fn read(bytes: &[u8], skip: Skip) -> Result<Vec<Item>, Flaw> {
        let mut reader = Reader::new(bytes, skip, MAX)?;
        let mut items = Vec::new();
        while let Some(item) = reader.next()? {
            items.push(item);
        }
        assert_eq!(reader.offset(), bytes.len() as u64);
        Ok(items)
    }

    fn written() -> (Vec<u8>, Vec<Item>) {
        let mut writer = Writer::new(Vec::new(), 1_700_000_000, false).unwrap();
        let key =
            |db, key: &[u8], value, expires_at| Item::Key(Key { db, key: key.to_vec(), value, expires_at });
        writer.database(0, 2, 1).unwrap();
        writer.key(b"a", None, &super::super::string(b"hello")).unwrap();
        writer.key(b"100", Some(1_800_000_000_123), &super::super::set(&[b"1", b"2"], true)).unwrap();
        writer.database(300, 1, 0).unwrap();
        writer.key(b"", None, &super::super::hash(&[(b"f", &[b'x'; 1000])], false)).unwrap();
        let hash = Restored::Hash(vec![b"f".to_vec(), vec![b'x'; 1000]]);
        let items = vec![
            key(0, b"a", Restored::String(b"hello".to_vec()), None),
            key(0, b"100", Restored::Set(vec![b"1".to_vec(), b"2".to_vec()]), Some(1_800_000_000_123)),
            key(300, b"", hash, None),
        ];
        (writer.finish().unwrap(), items)
    }

    #[test]
    fn a_written_value_is_read() {
        let (bytes, items) = written();
        assert_eq!(read(&bytes, Skip::default()).unwrap(), items);
        // A source that gives a byte at a time.
        struct Slowly<'a>(&'a [u8]);
        impl Read for Slowly<'_> {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                let len = to.len().min(1);
                self.0.read(&mut to[..len])
            }
        }
        let mut reader = Reader::new(Slowly(&bytes), Skip::default(), MAX).unwrap();
        for item in items {
            assert_eq!(reader.next().unwrap(), Some(item));
        }
        assert_eq!(reader.next().unwrap(), None);
        assert_eq!(reader.next().unwrap(), None);
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error_with_its_offset() {
        let (bytes, _) = written();
        for len in 0..bytes.len() {
            let flaw = read(&bytes[..len], Skip::default()).unwrap_err();
            let Flaw::Content { offset, .. } = flaw else { panic!("{flaw}") };
            assert!(offset <= len as u64);
        }
    }

    #[test]
    fn a_changed_byte_is_an_error_unless_it_is_of_the_version() {
        let (bytes, _) = written();
        for at in 9..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            let _ = read(&bad, Skip::default()).unwrap_err();
        }
        let flaw = read(b"REDIS0013", Skip::default()).err().unwrap().to_string();
        assert!(flaw.contains("RDB version 13"), "{flaw}");
        let flaw = read(b"\x1f\x8b\x08........", Skip::default()).err().unwrap().to_string();
        assert!(flaw.contains("no RDB file"), "{flaw}");
    }

    #[test]
    fn a_checksum_of_zero_is_not_checked_and_version_4_has_none() {
        let body = b"\xfe\x02\xfd\x01\0\0\0\0\x01k\x02\xc0\x05".as_slice();
        // `EXPIRETIME`, then a string "k" whose value has two bytes.
        for (version, end) in [("0006", &b"\xff\0\0\0\0\0\0\0\0"[..]), ("0004", b"\xff")] {
            let bytes = [b"REDIS", version.as_bytes(), body, end].concat();
            let items = read(&bytes, Skip::default()).unwrap();
            let value = Restored::String(b"\xc0\x05".to_vec());
            assert_eq!(items, [Item::Key(Key { db: 2, key: b"k".to_vec(), value, expires_at: Some(1000) })]);
        }
    }

    #[test]
    fn modules_are_refused_and_functions_read_or_both_skipped_by_name() {
        // Type "MBbloom--", version 4.
        let number = b"MBbloom--".iter().fold(0u64, |number, letter| {
            let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            number << 6 | letters.iter().position(|other| other == letter).unwrap() as u64
        }) << 10
            | 4;
        let mut bytes = b"REDIS0010\xf5\x12#!lua name=mylib\n;\x07\x01k\x81".to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend(b"\x02\x05\x03\0\0\0\0\x05\x01x\0\xff\0\0\0\0\0\0\0\0");
        let both = Skip { modules: true, functions: true };
        let skipped = [
            Item::Skipped("library of functions mylib".to_owned()),
            Item::Skipped("key 'k' of database 0, of module type MBbloom--".to_owned()),
        ];
        assert_eq!(read(&bytes, both).unwrap(), skipped);
        let refused = |skip| read(&bytes, skip).unwrap_err().to_string();
        let library = Item::Library(b"#!lua name=mylib\n;".to_vec());
        assert_eq!(read(&bytes, Skip { modules: true, functions: false }).unwrap()[0], library);
        let flaw = refused(Skip { modules: false, functions: true });
        assert!(flaw.contains("MBbloom--") && flaw.contains("key 'k'"), "{flaw}");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let both = Skip { modules: true, functions: true };
            for version in ["0003", "0010"] {
                let whole = [b"REDIS", version.as_bytes(), &bytes].concat();
                let mut reader = Reader::new(&whole[..], both, MAX).unwrap();
                while let Ok(Some(_)) = reader.next() {}
            }
        }
    }
}
