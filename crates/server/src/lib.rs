//! Serves a Duramen store to Redis and memcached clients.
//!
//! [`serve`] is the whole server: it opens the store, listens, and returns after a clean shutdown. [`Started`] does the
//! same in two steps, for a caller with other work in between. [`serve_with`] also runs code in the server's process,
//! which connects through the [`InProcessClient`].
//!
//! | module | is about |
//! |---|---|
//! | [`config`] | directives, and where they come from |
//! | [`resp`] | the protocol: bytes to commands, values to bytes |
//! | [`command`] | what each command does |
//! | [`log`] | lines for the operator |
//! | [`net`] | sockets, threads, one wait for durability per turn; knows no protocol |
//! | [`redis`], [`memcached`] | the protocols, with their commands, on those; `protocols`: which is spoken where |
//! | [`import`] | reads another server's files, and writes them |
//! | [`messages`], [`notifications`], [`tracking`] | messages that clients get without a request |
//! | [`worker_state`], [`server`], [`clients`], [`session`], [`stats`], [`times`] | the state that commands may use |
#![forbid(unsafe_code)]

pub mod clients;
pub mod command;
pub mod config;
mod counter;
mod error;
mod eviction_listener;
mod expiry_listener;
pub mod expiry_timers;
pub mod export;
mod hosted_jobs;
pub mod import;
mod in_process;
mod key_list;
pub mod log;
pub mod memcached;
pub mod messages;
pub mod net;
pub mod notifications;
mod process;
mod protocols;
pub mod redis;
pub mod resp;
pub mod server;
pub mod session;
mod start;
pub mod stats;
mod systemd;
pub mod times;
pub mod tracking;
mod waiting;
pub mod worker_state;

pub use config::Config;
/// Types of values, by their tags in the store.
pub use duramen_structures::{Type, data_of_item, string_of_pieces, table_name, text_of_number};
pub use error::{Error, ErrorKind};
pub use in_process::InProcessClient;
pub use start::{Started, serve, serve_with};
