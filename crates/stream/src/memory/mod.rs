//! The memory of the process: what a job must leave of it ([`headroom`]), and what its state may take
//! ([`MemoryLimit`]).

pub mod headroom;
pub mod limit;

pub use limit::MemoryLimit;
