//! Identifies a file whose reading continues: by its position, device and inode, and a checksum of the bytes before
//! that position. The name is not enough: files are rotated, replaced and rewritten under one name.
//!
//! The bytes decide. If the bytes before the position are the ones that were read, reading continues, even in a copy
//! (inodes change when a file is copied back, devices when the machine starts). Device and inode find a file that has
//! been renamed.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::run::row_source::place;

/// Bytes before the position that are in the checksum. The end of the part read differs between files, while headers do
/// not.
const SUMMED: u64 = 4096;

/// The position in a file, and its identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Bytes that were read.
    pub read: u64,
    device: u64,
    inode: u64,
    /// The checksum; `None` until it is known.
    sum: Option<u32>,
}

impl Known {
    /// A file of which nothing was read yet.
    pub fn new(found: &Metadata) -> Known {
        Known { read: 0, device: found.dev(), inode: found.ino(), sum: None }
    }

    /// Device and inode.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Whether a file has this device and inode.
    pub fn is_at(&self, found: &Metadata) -> bool {
        (found.dev(), found.ino()) == self.identity()
    }

    /// The same after `read` bytes, with the checksum computed from this file.
    pub fn summed_at(&self, read: u64, file: &File) -> Known {
        Known { read, sum: sum(file, read).ok(), ..self.clone() }
    }

    /// Whether something was read, and this file begins with it.
    pub fn is_read_of(&self, file: &File) -> io::Result<bool> {
        if self.read == 0 || file.metadata()?.len() < self.read {
            return Ok(false);
        }
        Ok(self.sum.is_none_or(|wanted| sum(file, self.read).is_ok_and(|found| found == wanted)))
    }

    /// As stored in a checkpoint.
    pub fn to_json(&self) -> Value {
        json!({ "read": self.read, "device": self.device, "inode": self.inode, "sum": self.sum })
    }

    /// From the form in a checkpoint.
    pub fn of(position: &Value) -> Result<Known> {
        let sum = match &position["sum"] {
            Value::Null => None,
            sum => Some(sum.as_u64().and_then(|sum| u32::try_from(sum).ok()).ok_or_else(|| {
                Error::connector(format!("the checkpoint has no checksum in the position {position}"))
            })?),
        };
        let (device, inode) = (place(position, "device")?, place(position, "inode")?);
        Ok(Known { read: place(position, "read")?, device, inode, sum })
    }
}

/// The checksum of the bytes before the position.
fn sum(file: &File, read: u64) -> io::Result<u32> {
    let summed = read.min(SUMMED);
    let mut bytes = vec![0; summed as usize];
    file.read_exact_at(&mut bytes, read - summed)?;
    Ok(crc32c::crc32c(&bytes))
}
