//! The workloads of `duramen bench kv` on alternatives to Duramen and on Duramen itself: same bytes, same run, in turn,
//! and only at the same durability.

pub mod contenders;
pub mod engine;
mod fjall_engine;
pub mod hyper;
mod level;
mod lmdb;
mod map;
mod red;
mod rocks;

pub use level::{Level, Name};
