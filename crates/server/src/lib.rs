//! Serves a Duramen store to Redis clients.
#![forbid(unsafe_code)]

pub mod clients;
pub mod command;
pub mod keyspace;
pub mod resp;
pub mod server;
pub mod session;
pub mod stats;
