//! Mapped media: memory that outlives the process, and what must be done so that a store survives.
//!
//! A [`Medium`] is one contiguous range of bytes, addressed by [`Offset`], that can grow while it is
//! open without moving. Four verbs describe how a store becomes durable, and nothing else is said in
//! other words anywhere in Duramen:
//!
//! * `flush` starts the write-back of a range; several flushes may be reordered;
//! * `drain` orders: every earlier flush *of this thread* is complete when it returns;
//! * `persist` is both, over one range;
//! * `publish` persists the one aligned 8-byte word that makes earlier bytes reachable.
//!
//! On [`Granularity::Page`] media neither `flush` nor `drain` reaches the device: only
//! [`Persistent::sync`] does.
//!
//! [`Mapped`] is every medium of this machine; [`MediaOptions`] says how to open one:
//!
//! | kind | is | granularity | survives the process | survives the power |
//! |---|---|---|---|---|
//! | `devdax` | a DAX character device | cache line, or byte where caches persist | every store | after persist |
//! | `fsdax` | a file mapped with `MAP_SYNC` | the same | every store | after persist |
//! | `shm` | a file on tmpfs | byte | every store | no |
//! | `file` | any other file | page | every store | after sync |
//! | `volatile` | anonymous memory | byte | no | no |
//!
//! ```
//! use duramen_media::{Bytes, Mapped, MediaOptions, Offset, Persistent};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path();
//! let medium = Mapped::open(path, &MediaOptions::default())?;
//! medium.write(Offset(4096), &[b"header", b"value"]); // starts the write-back
//! medium.drain(); // orders it before
//! medium.publish(Offset(0), 4096); // the word that makes it reachable
//! medium.sync()?; // on an ordinary file only this reaches the device
//! assert_eq!(medium.load_u64(Offset(0)), 4096);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//!
//! 1. An `Offset` becomes memory only through its medium, which checks it against the length (asserted in `mapped`).
//! 2. A mapping never moves and never shrinks while the medium is open; `grow` only adds (asserted in
//!    `region`).
//! 3. Space below `len()` is backed: touching it never raises SIGBUS for lack of space. Truncating the file of an open
//!    medium breaks that: see [`fault`]. (Asserted in `file` and `region`, but for the blocks of a file: only the kernel
//!    knows them. `a_sparse_file_is_filled_before_it_is_touched` checks those.)
//! 4. The words that commit something are written by [`Persistent::store_u64`] only, which is one
//!    aligned 8-byte atomic store; no compiler or CPU tears it. (Its alignment is asserted in `mapped`. No line can
//!    check which words commit something: the simulated medium tears all other stores.)

#[cfg(not(all(target_os = "linux", target_endian = "little", target_pointer_width = "64")))]
compile_error!("Duramen maps media on 64-bit little-endian Linux only");

mod block_device;
mod devdax;
mod error;
pub mod fault;
mod file;
mod fsdax;
mod lock;
mod mapped;
mod medium;
mod names;
mod opening;
mod options;
mod persist;
pub mod process;
mod region;
mod scratch;
mod shm;
#[cfg(feature = "sim")]
pub mod sim;
mod topology;
mod volatile;

pub use error::{Error, ErrorKind, Result};
#[cfg(not(feature = "sim"))]
pub use mapped::Mapped;
pub use medium::{Bytes, Device, Granularity, LINE_BYTES, Medium, Offset, PAGE_BYTES, Persistent, lines_of};
pub use options::{Create, MediaOptions, MediumKind};
pub use persist::page::Syncs;
pub use persist::{FlushInstruction, prefetch as prefetch_line};
pub use scratch::Scratch;
#[cfg(feature = "sim")]
pub use sim::Mapped;
