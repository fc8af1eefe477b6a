//! The log: records in blocks, blocks in units of space.
//!
//! [`blocks`] is what DRAM knows of each block, [`space`] hands out units and takes them back, and
//! [`appender`] writes records into a block of its own, or one that writers share. [`read`] reads them where they lie.

pub(crate) mod appender;
pub(crate) mod blocks;
pub(crate) mod read;
pub(crate) mod space;
