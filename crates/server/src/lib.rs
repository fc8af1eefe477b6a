//! Serves a Duramen store to Redis clients.
#![forbid(unsafe_code)]

pub mod clients;
pub mod command;
pub mod config;
mod error;
pub mod keyspace;
pub mod resp;
pub mod server;
pub mod session;
pub mod stats;
pub use config::Config;
pub use error::{Error, ErrorKind};
