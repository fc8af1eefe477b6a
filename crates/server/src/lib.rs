//! Serves a Duramen store to Redis and memcached clients.
//!
//! [`serve`] is the whole server: it opens the store, listens, and returns after a clean shutdown.
//! [`Started`] is the same in two steps, for whoever has other things to do meanwhile, and [`serve_with`] for what shall
//! run in its process, which enters by the [`InProcessClient`].
//!
//! | module | is about |
//! |---|---|
//! | [`config`] | directives, and where they come from |
//! | [`resp`] | the protocol: bytes to commands, values to bytes |
//! | [`command`] | what each command does |
//! | [`log`] | lines for the operator |
//! | [`net`] | sockets, threads, one wait for durability per turn; knows no protocol |
//! | [`redis`], [`memcached`] | the protocols, with their commands, on those; `protocols`: which is spoken where |
//! | [`import`] | what another server saved, and back |
//! | [`messages`], [`notifications`], [`tracking`] | what reaches a client without a request |
//! | [`worker_state`], [`server`], [`clients`], [`session`], [`stats`], [`times`] | what commands may know of all that |
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
/// Types of values, as their tags in the store tell.
pub use duramen_structures::{Type, data_of_item, string_of_pieces, table_name, text_of_number};
pub use error::{Error, ErrorKind};
pub use in_process::InProcessClient;
pub use start::{Started, serve, serve_with};
