//! Serves a Duramen store to Redis and memcached clients.
//!
//! [`serve`] is the whole server: it opens the store, listens, and returns after a clean shutdown. [`Started`] does the
//! same in two steps, for a caller with other work in between. [`serve_with`] also runs code in the server's process,
//! which connects through the [`InProcessClient`].
//!
//! | module | is about |
//! |---|---|
//! | [`config`] | directives, and where they come from |
//! | [`net`] | sockets, threads, the turn with the engine's writer and its one wait for durability; knows no protocol |
//! | [`redis`], [`memcached`] | the protocols, with their commands, on those; `start` lists them |
//! | [`messages`] | messages that clients get without a request |
//! | [`observe`] | the log, INFO, latencies, keyspace events |
//! | [`metrics`] | metrics for Prometheus, by HTTP |
//! | [`console`] | a page at the same address |
//! | [`import`], [`export`] | read another server's files, and write them |
//! | [`scripts`] | the texts of Lua scripts, and each worker's interpreter |
//! | [`acl`] | users and their rights |
//! | [`server`], [`clients`] | the state that all connections share |
//!
//! A protocol is a folder that implements [`net::Protocol`], and has its place in the list in `start`.
#![forbid(unsafe_code)]

pub mod acl;
pub mod clients;
pub mod command_error;
pub mod config;
pub mod console;
mod counter;
mod error;
pub mod export;
#[cfg(test)]
mod generated_page;
pub mod hosted_jobs;
pub mod import;
mod in_process;
mod key_list;
pub mod memcached;
pub mod messages;
pub mod metrics;
pub mod net;
pub mod observe;
pub mod redis;
pub mod scripts;
pub mod server;
mod start;

pub use config::Config;
/// Types of values, by their tags in the store.
pub use duramen_structures::{Type, data_of_item, string_of_pieces, table_name, text_of_number};
pub use error::{Error, ErrorKind};
pub use in_process::InProcessClient;
pub use observe::log;
pub use start::{Started, serve, serve_with};
