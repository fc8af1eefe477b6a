//! A disk with a volatile write cache, which QEMU reaches as a network block device.
//!
//! With an image file alone, every write that left the guest would survive. A store could then forget to wait for the
//! device, and no test would notice. This disk keeps writes in its cache until it gets a flush. On power loss, each
//! sector written since the last flush keeps its old content or that of any write since, independently of other
//! sectors. A disk promises no more than that.
//!
//! Invariants:
//! 1. A flush is answered after all writes that were answered before it are on the platter.
//! 2. A read finds the last write to each sector, whether or not it is on the platter.
//! 3. A flush that was not answered when the power was cut has written nothing; nothing is answered afterwards.
//! 4. The seed alone decides which parts of the cache survive.
//!
//! The protocol is NBD's fixed newstyle handshake with simple replies, as in
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::failure::{Attempt, Failure, Result};
use crate::random::Random;

const SECTOR: usize = 512;
/// A cache with more sectors than this writes to the platter without a flush, in the order of sector numbers.
const CACHED_SECTORS_MAX: usize = 128 << 10;
/// The duration of a flush, as on a disk without a capacitor; most cuts under load hit one.
const FLUSH: Duration = Duration::from_millis(5);
/// The longest write that QEMU sends.
const REQUEST_BYTES_MAX: u32 = 32 << 20;

const HANDSHAKE_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
// Handshake: fixed newstyle, and no padding after the export's size.
const HANDSHAKE_FLAGS: u16 = 0b11;
// Transmission: flags are present, and flushes are supported.
const EXPORT_FLAGS: u16 = 0b101;
const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = (1 << 31) + 1;
const INVALID: u32 = 22;

/// The disk, which outlives the machines that use it.
pub struct Disk {
    platter: Option<Platter>,
    socket: PathBuf,
    serving: Option<JoinHandle<Platter>>,
    has_power: Arc<AtomicBool>,
}

/// The effect of a power cut on the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Sectors that were in the cache.
    pub cached: u64,
    /// Sectors of the cache that lost their last write.
    pub lost: u64,
    /// Flushes since the machine was switched on.
    pub flushes: u64,
}

/// The sectors on the platter, and the cache in front of it.
struct Platter {
    image: File,
    bytes: u64,
    /// All writes since the last flush, in order, for each sector written.
    cache: BTreeMap<u64, Vec<[u8; SECTOR]>>,
    flushes: u64,
    /// Acknowledges flushes without writing anything.
    lies: bool,
    has_power: Arc<AtomicBool>,
}

impl Disk {
    /// A disk of zeros. With `lies` it acknowledges every flush and writes nothing.
    pub fn new(image: &Path, socket: &Path, bytes: u64, lies: bool) -> Result<Disk> {
        let what = || format!("make the disk image {}", image.display());
        let image =
            File::options().read(true).write(true).create(true).truncate(true).open(image).attempt(what)?;
        image.set_len(bytes).attempt(what)?;
        let has_power = Arc::new(AtomicBool::new(true));
        let platter = Platter {
            image,
            bytes,
            cache: BTreeMap::new(),
            flushes: 0,
            lies,
            has_power: Arc::clone(&has_power),
        };
        Ok(Disk { platter: Some(platter), socket: socket.to_owned(), serving: None, has_power })
    }

    /// Starts a thread that waits for one machine at the socket and serves it until it is gone.
    pub fn serve(&mut self) -> Result<()> {
        let _ = std::fs::remove_file(&self.socket);
        let listener =
            UnixListener::bind(&self.socket).attempt(|| format!("listen on {}", self.socket.display()))?;
        let Some(mut platter) = self.platter.take() else {
            return Err(Failure::new("the disk is in use by another machine"));
        };
        self.has_power.store(true, Ordering::SeqCst);
        self.serving = Some(std::thread::spawn(move || {
            if let Ok((stream, _)) = listener.accept() {
                // Returns an error when the power is cut. The connection stays open until the machine is gone:
                // otherwise the machine would see the disk's end and report it to its clients.
                let _ = platter.converse(&stream);
                let _ = io::copy(&mut &stream, &mut io::sink());
            }
            platter
        }));
        Ok(())
    }

    /// Must be called before the machine is killed: from then on nothing is written or answered.
    pub fn cut_power(&self) {
        self.has_power.store(false, Ordering::SeqCst);
    }

    /// Must be called when the machine is gone: decides which part of the cache reached the platter.
    pub fn lose_cache(&mut self, random: &mut Random) -> Result<Loss> {
        // If no machine has connected, this ends the wait for one; otherwise nobody accepts it.
        let _ = UnixStream::connect(&self.socket);
        let serving = self.serving.take().ok_or_else(|| Failure::new("the disk has no client"))?;
        let mut platter = serving.join().map_err(|_| Failure::new("the disk's thread panicked"))?;
        let loss = platter.lose_cache(random);
        self.platter = Some(platter);
        loss.attempt(|| "write the disk image".to_owned())
    }
}

impl Platter {
    fn lose_cache(&mut self, random: &mut Random) -> io::Result<Loss> {
        let mut loss = Loss { flushes: std::mem::take(&mut self.flushes), ..Loss::default() };
        // A quarter of the cuts writes nothing, and a quarter everything; in the rest each sector is decided alone.
        let mood = random.below(4);
        for (sector, writes) in std::mem::take(&mut self.cache) {
            let last = writes.len() as u64;
            let survives = match mood {
                0 => 0,
                1 => last,
                _ => random.below(last + 1),
            };
            loss.cached += 1;
            loss.lost += u64::from(survives < last);
            if let Some(bytes) = survives.checked_sub(1).and_then(|at| writes.get(at as usize)) {
                self.image.write_all_at(bytes, sector * SECTOR as u64)?;
            }
        }
        Ok(loss)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.image.read_exact_at(bytes, offset)?;
        let first = offset / SECTOR as u64;
        for (at, piece) in bytes.chunks_mut(SECTOR).enumerate() {
            if let Some(cached) = self.cache.get(&(first + at as u64)).and_then(|writes| writes.last()) {
                piece.copy_from_slice(&cached[..piece.len()]);
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let first = offset / SECTOR as u64;
        for (at, piece) in bytes.chunks(SECTOR).enumerate() {
            let mut sector = [0; SECTOR];
            sector[..piece.len()].copy_from_slice(piece);
            self.cache.entry(first + at as u64).or_default().push(sector);
        }
        while self.cache.len() > CACHED_SECTORS_MAX {
            let Some((sector, writes)) = self.cache.pop_first() else { break };
            self.put(sector, &writes)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        std::thread::sleep(FLUSH);
        self.stop_without_power()?;
        self.flushes += 1;
        if self.lies {
            return Ok(());
        }
        for (sector, writes) in std::mem::take(&mut self.cache) {
            self.put(sector, &writes)?;
        }
        Ok(())
    }

    fn stop_without_power(&self) -> io::Result<()> {
        if self.has_power.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(io::ErrorKind::ConnectionAborted.into())
        }
    }

    fn put(&self, sector: u64, writes: &[[u8; SECTOR]]) -> io::Result<()> {
        match writes.last() {
            Some(bytes) => self.image.write_all_at(bytes, sector * SECTOR as u64),
            None => Ok(()),
        }
    }

    fn fits(&self, offset: u64, length: u32) -> bool {
        let whole = offset.is_multiple_of(SECTOR as u64) && (length as usize).is_multiple_of(SECTOR);
        let end = offset.checked_add(u64::from(length));
        whole && length <= REQUEST_BYTES_MAX && end.is_some_and(|end| end <= self.bytes)
    }

    /// The handshake and all requests, until the machine closes the connection.
    fn converse(&mut self, stream: &UnixStream) -> io::Result<()> {
        let mut input = BufReader::new(stream);
        let mut out = stream;
        let mut hello = Vec::new();
        hello.extend(HANDSHAKE_MAGIC.to_be_bytes());
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend(HANDSHAKE_FLAGS.to_be_bytes());
        out.write_all(&hello)?;
        let flags = u32::from_be_bytes(take(&mut input)?);
        while !self.option(&mut input, out, flags)? {}
        loop {
            self.request(&mut input, out)?;
        }
    }

    /// Handles one option of the handshake; returns whether the handshake is over.
    fn option(&self, input: &mut impl Read, mut out: &UnixStream, flags: u32) -> io::Result<bool> {
        if u64::from_be_bytes(take(input)?) != OPTION_MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let option = u32::from_be_bytes(take(input)?);
        let length = u32::from_be_bytes(take(input)?);
        if length > 64 << 10 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        io::copy(&mut input.take(u64::from(length)), &mut io::sink())?;
        let mut size = self.bytes.to_be_bytes().to_vec();
        size.extend(EXPORT_FLAGS.to_be_bytes());
        let reply = |kind: u32, data: &[u8]| {
            let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
            bytes.extend(option.to_be_bytes());
            bytes.extend(kind.to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            bytes.extend(data);
            bytes
        };
        match option {
            OPTION_EXPORT_NAME => {
                // The client may not know that the padding can be left out.
                size.resize(size.len() + if flags & 2 == 0 { 124 } else { 0 }, 0);
                out.write_all(&size)?;
                Ok(true)
            }
            OPTION_GO => {
                // Information 0, the export's size and flags; then the handshake is over.
                out.write_all(&reply(REPLY_INFO, &[&[0, 0], &size[..]].concat()))?;
                out.write_all(&reply(REPLY_ACK, &[]))?;
                Ok(true)
            }
            OPTION_ABORT => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => out.write_all(&reply(REPLY_UNSUPPORTED, &[])).map(|()| false),
        }
    }

    /// Handles one request.
    fn request(&mut self, input: &mut impl Read, mut out: &UnixStream) -> io::Result<()> {
        if u32::from_be_bytes(take(input)?) != REQUEST_MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let _flags: [u8; 2] = take(input)?;
        let kind = u16::from_be_bytes(take(input)?);
        let handle: [u8; 8] = take(input)?;
        let offset = u64::from_be_bytes(take(input)?);
        let length = u32::from_be_bytes(take(input)?);
        self.stop_without_power()?;
        let fits = self.fits(offset, length);
        let mut data = vec![0; if fits { length as usize } else { 0 }];
        let error = match kind {
            0 if fits => self.read(offset, &mut data).map(|()| 0)?,
            1 if fits => {
                input.read_exact(&mut data)?;
                self.write(offset, &data)?;
                data.clear();
                0
            }
            // The data of a refused write would be read as the next request.
            1 => return Err(io::ErrorKind::InvalidData.into()),
            2 => return Err(io::ErrorKind::ConnectionAborted.into()),
            3 => {
                self.flush()?;
                data.clear();
                0
            }
            _ => {
                data.clear();
                INVALID
            }
        };
        let mut reply = REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(handle);
        reply.extend(data);
        out.write_all(&reply)
    }
}

fn take<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platter(lies: bool) -> Platter {
        let image = tempfile::tempfile().unwrap();
        image.set_len(4096).unwrap();
        Platter {
            image,
            bytes: 4096,
            cache: BTreeMap::new(),
            flushes: 0,
            lies,
            has_power: Arc::new(AtomicBool::new(true)),
        }
    }

    fn sectors(platter: &Platter) -> Vec<u8> {
        let mut bytes = vec![9; 4096];
        platter.read(0, &mut bytes).unwrap();
        bytes.iter().step_by(SECTOR).copied().collect()
    }

    #[test]
    fn reads_find_what_was_written_before_it_is_flushed() {
        let mut platter = platter(false);
        platter.write(512, &[1; 1024]).unwrap();
        platter.write(1024, &[2; 512]).unwrap();
        assert_eq!(sectors(&platter), [0, 1, 2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn flushed_sectors_survive_and_others_are_old_or_any_that_was_written() {
        let (mut kept, mut lost, mut between) = (0, 0, 0);
        for seed in 0..100 {
            let mut platter = platter(false);
            platter.write(0, &[1; 1024]).unwrap();
            platter.flush().unwrap();
            platter.write(512, &[2; 1024]).unwrap();
            platter.write(512, &[3; 512]).unwrap();
            let loss = platter.lose_cache(&mut Random::new(seed)).unwrap();
            assert_eq!((loss.cached, loss.flushes), (2, 1));
            let found = sectors(&platter);
            assert_eq!(found[0], 1, "seed {seed}");
            assert!([1, 2, 3].contains(&found[1]) && [0, 2].contains(&found[2]), "seed {seed}: {found:?}");
            match (found[1], loss.lost) {
                (3, _) => kept += 1,
                (2, 1..) => between += 1,
                (1, 1..) => lost += 1,
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert!(kept > 10 && lost > 10 && between > 10, "{kept} kept, {lost} lost, {between} between");
    }

    #[test]
    fn a_flush_that_the_cut_interrupts_writes_nothing() {
        let mut platter = platter(false);
        platter.write(0, &[1; 512]).unwrap();
        platter.has_power.store(false, Ordering::SeqCst);
        assert!(platter.flush().is_err());
        assert_eq!(platter.cache.len(), 1);
    }

    #[test]
    fn a_disk_that_ignores_flushes_loses_flushed_sectors() {
        let lost = (0..20).filter(|&seed| {
            let mut platter = platter(true);
            platter.write(0, &[1; 512]).unwrap();
            platter.flush().unwrap();
            platter.lose_cache(&mut Random::new(seed)).unwrap();
            sectors(&platter)[0] == 0
        });
        assert!(lost.count() > 3);
    }

    #[test]
    fn handshake_and_requests_have_the_bytes_of_the_protocol() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let mut platter = platter(false);
            let _ = platter.converse(&ours);
            platter.flushes
        });
        let mut client = &theirs;
        assert_eq!(&take::<18>(&mut client).unwrap(), b"NBDMAGICIHAVEOPT\0\x03");
        client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0").unwrap();
        assert_eq!(
            &take::<20>(&mut client).unwrap(),
            b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x08\x80\0\0\x01\0\0\0\0",
            "structured replies are not had"
        );
        client.write_all(b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0").unwrap();
        assert_eq!(&take::<32>(&mut client).unwrap()[20..], b"\0\0\0\0\0\0\0\0\x10\0\0\x05");
        assert_eq!(take::<20>(&mut client).unwrap()[12..16], 1u32.to_be_bytes());
        let request = |kind: u8, length: u16| {
            let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
            bytes.extend([0, 0, 0, kind]);
            bytes.extend(b"a handle\0\0\0\0\0\0\x02\0\0\0");
            bytes.extend(length.to_be_bytes());
            bytes
        };
        client.write_all(&[request(1, 512), vec![7; 512]].concat()).unwrap();
        assert_eq!(&take::<16>(&mut client).unwrap(), b"\x67\x44\x66\x98\0\0\0\0a handle");
        client.write_all(&request(3, 0)).unwrap();
        assert_eq!(&take::<16>(&mut client).unwrap()[..8], b"\x67\x44\x66\x98\0\0\0\0");
        client.write_all(&request(0, 512)).unwrap();
        assert_eq!(take::<528>(&mut client).unwrap()[16..], [7; 512]);
        client.write_all(&request(4, 512)).unwrap();
        assert_eq!(&take::<16>(&mut client).unwrap()[..8], b"\x67\x44\x66\x98\0\0\0\x16", "no trim");
        drop(theirs);
        assert_eq!(server.join().unwrap(), 1);
    }
}
